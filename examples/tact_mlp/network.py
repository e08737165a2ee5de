"""A perceptron with one hidden layer, its noisy posterior, and two optimisers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from images import CLASSES, PIXELS, Images

HIDDEN = 100
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
DIMENSION = sum(int(np.prod(shape)) for shape in SHAPES)
# Prior standard deviations of the weights and biases in `SHAPES`. Samplers and optimisers move the
# weights in units of these.
PRIOR = (0.05, 0.05, 0.15, 0.15)
Estimate = Callable[[np.ndarray, np.random.Generator], tuple[float, np.ndarray]]


def weights(z: np.ndarray) -> list[np.ndarray]:
    """Weights and biases of both layers, from z of shape (D,) with a standard normal prior."""
    parts = np.split(np.asarray(z, np.float32), np.cumsum([np.prod(s) for s in SHAPES])[:-1])
    return [
        (np.float32(sd) * part).reshape(shape)
        for part, shape, sd in zip(parts, SHAPES, PRIOR, strict=True)
    ]


def log_probabilities(z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Log probabilities of the classes, one row for each image."""
    first, bias, second, offset = weights(z)
    scores = np.maximum(rows @ first + bias, 0) @ second + offset
    scores -= scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


class NoisyPosterior:
    """Estimates log p(z | images) from batches; a share of the labels is permuted in each epoch.

    An epoch goes through all images once, in random order. An instance keeps its place in the
    epoch, so every chain and every optimiser needs an instance of its own.
    """

    def __init__(self, images: Images, permuted: float, batch: int) -> None:
        self.images, self.permuted, self.batch = images, permuted, batch
        self.place = len(images.train_labels)
        self.calls = 0

    def _next(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        count = len(self.images.train_labels)
        if self.place + self.batch > count:
            self.place, self.order = 0, rng.permutation(count)
            self.labels = self.images.train_labels.copy()
            wrong = rng.permutation(count)[: round(self.permuted * count)]
            self.labels[wrong] = rng.permutation(self.labels[wrong])
        picked = self.order[self.place : self.place + self.batch]
        self.place += self.batch
        return self.images.train[picked], self.labels[picked]

    def __call__(self, z: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        """Estimate the log density, up to a constant, and its gradient."""
        self.calls += 1
        rows, labels = self._next(rng)
        first, bias, second, offset = weights(z)
        hidden = np.maximum(rows @ first + bias, 0)
        scores = hidden @ second + offset
        scores -= scores.max(axis=1, keepdims=True)
        scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
        here = np.arange(len(labels))
        weight = np.float32(len(self.images.train_labels) / len(labels))
        value = float(weight * scores[here, labels].sum()) - 0.5 * float(z @ z)
        slope = -np.exp(scores)
        slope[here, labels] += 1
        slope *= weight
        below = (slope @ second.T) * (hidden > 0)
        parts = (rows.T @ below, below.sum(axis=0), hidden.T @ slope, slope.sum(axis=0))
        scaled = [np.float32(sd) * part.ravel() for part, sd in zip(parts, PRIOR, strict=True)]
        return value, np.concatenate(scaled) - z


def momentum_sgd(
    estimate: Estimate, z: np.ndarray, steps: int, count: int, rng: np.random.Generator,
    sd: float = PRIOR[0],
) -> np.ndarray:  # fmt: skip
    """Ascend the mean log density with momentum 0.9.

    The learning rate starts at 0.05 and falls to 0 along a cosine.

    Parameters
    ----------
    count
        Number of images, of which the log density is the sum.
    sd
        Prior standard deviation of the weights whose learning rate that is. A step in z moves
        weights by sd² times as much.
    """
    speed = np.zeros_like(z)
    for k in range(steps):
        rate = 0.05 / sd**2 * 0.5 * (1 + np.cos(np.pi * k / steps))
        speed = 0.9 * speed + rate * estimate(z, rng)[1] / count
        z = z + speed
    return z


def adam(
    estimate: Estimate, z: np.ndarray, steps: int, count: int, rng: np.random.Generator,
    sd: float = PRIOR[0],
) -> np.ndarray:  # fmt: skip
    """Ascend the mean log density with the default settings of Kingma & Ba.

    Their learning rate is 0.001, in units of the weights with prior standard deviation `sd`. The
    other parameters are those of `momentum_sgd`.
    """
    mean, square = np.zeros_like(z), np.zeros_like(z)
    for k in range(1, steps + 1):
        gradient = estimate(z, rng)[1] / count
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        rise = (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
        z = z + 0.001 / sd * rise
    return z


def accuracy(draws: np.ndarray, images: Images) -> float:
    """Share of the test images whose most probable class, averaged over the draws, is right.

    Parameters
    ----------
    draws : shape (draws, D)
    """
    mean = np.zeros((len(images.test), CLASSES))
    for z in draws:
        mean += np.exp(log_probabilities(z, images.test))
    return float((mean.argmax(axis=1) == images.test_labels).mean())

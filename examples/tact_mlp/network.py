"""A perceptron with one hidden layer, its noisy posterior, and two optimisers."""

from __future__ import annotations

import numpy as np
from images import CLASSES, PIXELS, Images

HIDDEN = 100
SHAPES = ((PIXELS, HIDDEN), (HIDDEN,), (HIDDEN, CLASSES), (CLASSES,))
DIMENSION = sum(int(np.prod(shape)) for shape in SHAPES)
# Prior standard deviation of each layer's weights; samplers and optimisers move weights in units
# of it.
PRIOR = (0.05, 0.05, 0.15, 0.15)


def weights(z: np.ndarray) -> list[np.ndarray]:
    """Weights and biases of both layers, from z of shape (D,), whose prior is standard normal."""
    parts = np.split(np.asarray(z, np.float32), np.cumsum([np.prod(s) for s in SHAPES])[:-1])
    return [
        (np.float32(sd) * part).reshape(shape)
        for part, shape, sd in zip(parts, SHAPES, PRIOR, strict=True)
    ]


def log_probabilities(z: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Of the classes, one row an image."""
    first, bias, second, offset = weights(z)
    scores = np.maximum(rows @ first + bias, 0) @ second + offset
    scores -= scores.max(axis=1, keepdims=True)
    return scores - np.log(np.exp(scores).sum(axis=1, keepdims=True))


class NoisyPosterior:
    """log p(z | images) by batches, while a share of the labels is permuted anew each epoch.

    An epoch goes through all images once, in random order. It holds its place in the epoch, so
    every chain or optimiser needs one of its own.
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
        """Estimates of the log density, up to a constant, and of its gradient."""
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
    posterior: NoisyPosterior, z: np.ndarray, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Ascend the mean log density: learning rate 0.05, falling to 0 as a cosine; momentum 0.9."""
    count, speed = len(posterior.images.train_labels), np.zeros_like(z)
    # Moves of weights are prior sd² times those of z: 0.05 is the rate of the first layer.
    rate = 0.05 / PRIOR[0] ** 2
    for k in range(steps):
        _, gradient = posterior(z, rng)
        now = rate * 0.5 * (1 + np.cos(np.pi * k / steps))
        speed = 0.9 * speed + now * gradient / count
        z = z + speed
    return z


def adam(
    posterior: NoisyPosterior, z: np.ndarray, steps: int, rng: np.random.Generator
) -> np.ndarray:
    """Kingma & Ba's defaults in units of the weights of the first layer: rate 0.001."""
    rate = 0.001 / PRIOR[0]
    mean, square = np.zeros_like(z), np.zeros_like(z)
    for k in range(1, steps + 1):
        _, gradient = posterior(z, rng)
        gradient = gradient / len(posterior.images.train_labels)
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        z = z + rate * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
    return z


def accuracy(draws: np.ndarray, images: Images) -> float:
    """Share of the test images whose likeliest class, probabilities averaged over draws, is right.

    Parameters
    ----------
    draws : shape (draws, D)
    """
    mean = np.zeros((len(images.test), CLASSES))
    for z in draws:
        mean += np.exp(log_probabilities(z, images.test))
    return float((mean.argmax(axis=1) == images.test_labels).mean())

"""A recurrent and a convolutional network in NumPy, learned from permuted labels ([TACT] Table 1).

The recurrent one is the paper's: an LSTM of 128 units that reads an image row by row, 28 pixels at
a time. The convolutional one is small, because the paper's images (CIFAR-10) were not at hand. Both
see Fashion-MNIST.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from common import example
from scipy.special import expit

SIDE, UNITS, CLASSES, BATCH = 28, 128, 10, 128
Layers = Sequence[np.ndarray]


def _scores_slope(scores: np.ndarray, labels: np.ndarray) -> tuple[float, np.ndarray]:
    """The sum of log probabilities of the labels, and its gradient in the scores."""
    scores = scores - scores.max(axis=1, keepdims=True)
    scores -= np.log(np.exp(scores).sum(axis=1, keepdims=True))
    here = np.arange(len(labels))
    slope = -np.exp(scores)
    slope[here, labels] += 1
    return float(scores[here, labels].sum()), slope


class Recurrent:
    """An LSTM over the 28 rows of an image, and a linear layer on its last state."""

    label = "LSTM"
    shapes = ((SIDE, 4 * UNITS), (UNITS, 4 * UNITS), (4 * UNITS,), (UNITS, CLASSES), (CLASSES,))
    prior = (0.15, 0.08, 0.1, 0.15, 0.1)

    def scores(self, layers: Layers, rows: np.ndarray, tape: list[Any] | None = None) -> np.ndarray:
        """Scores of the classes; `tape` gets what the gradient needs of each step."""
        into, across, bias, out, offset = layers
        h = np.zeros((len(rows), UNITS), np.float32)
        cell = np.zeros_like(h)
        for line in rows.reshape(-1, SIDE, SIDE).transpose(1, 0, 2):
            gates = line @ into + h @ across + bias
            i, f, o = (expit(gates[:, k * UNITS : (k + 1) * UNITS] + (k == 1)) for k in range(3))
            g = np.tanh(gates[:, 3 * UNITS :])
            old_h, old_cell = h, cell
            cell = f * cell + i * g
            flat = np.tanh(cell)
            h = o * flat
            if tape is not None:
                tape.append((line, old_h, old_cell, i, f, o, g, flat))
        if tape is not None:
            tape.append(h)
        return h @ out + offset

    def ascent(
        self, layers: Layers, rows: np.ndarray, labels: np.ndarray
    ) -> tuple[float, list[np.ndarray]]:
        """The log likelihood of a batch, and its gradient in all layers."""
        tape: list[Any] = []
        value, slope = _scores_slope(self.scores(layers, rows, tape), labels)
        into, across, bias, out, _ = layers
        h = tape.pop()
        found = [np.zeros_like(into), np.zeros_like(across), np.zeros_like(bias), h.T @ slope,
                 slope.sum(axis=0)]  # fmt: skip
        on_h, on_cell = slope @ out.T, np.zeros_like(h)
        for line, old_h, old_cell, i, f, o, g, flat in reversed(tape):
            on_cell = on_cell + on_h * o * (1 - flat**2)
            on_gates = np.concatenate([
                on_cell * g * i * (1 - i), on_cell * old_cell * f * (1 - f),
                on_h * flat * o * (1 - o), on_cell * i * (1 - g**2),
            ], axis=1)  # fmt: skip
            found[0] += line.T @ on_gates
            found[1] += old_h.T @ on_gates
            found[2] += on_gates.sum(axis=0)
            on_h, on_cell = on_gates @ across.T, on_cell * f
        return value, found


class Convolutional:
    """Two convolutions of 5 × 5 pixels with steps of two, and a linear layer: 8 and 16 channels."""

    label = "CNN"
    shapes = ((25, 8), (8,), (200, 16), (16,), (256, CLASSES), (CLASSES,))
    prior = (0.25, 0.1, 0.1, 0.1, 0.1, 0.1)

    @staticmethod
    def _patches(images: np.ndarray) -> np.ndarray:
        """Patches of 5 × 5 at steps of two, shape (n, rows, columns, 25 × channels)."""
        windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))
        windows = windows[:, ::2, ::2]  # (n, rows, columns, channels, 5, 5)
        return np.ascontiguousarray(windows).reshape(*windows.shape[:3], -1)

    def scores(self, layers: Layers, rows: np.ndarray, tape: list[Any] | None = None) -> np.ndarray:
        """As `Recurrent.scores`."""
        first, bias, second, offset, out, last = layers
        patches = self._patches(rows.reshape(-1, SIDE, SIDE, 1))
        one = np.maximum(patches @ first + bias, 0)
        above = self._patches(one)
        two = np.maximum(above @ second + offset, 0)
        if tape is not None:
            tape += [patches, one, above, two]
        return two.reshape(len(rows), -1) @ out + last

    def ascent(
        self, layers: Layers, rows: np.ndarray, labels: np.ndarray
    ) -> tuple[float, list[np.ndarray]]:
        """As `Recurrent.ascent`."""
        tape: list[Any] = []
        value, slope = _scores_slope(self.scores(layers, rows, tape), labels)
        patches, one, above, two = tape
        on_two = (slope @ layers[4].T).reshape(two.shape) * (two > 0)
        on_above = (on_two @ layers[2].T).reshape(*above.shape[:3], 8, 5, 5)
        on_one = np.zeros_like(one)
        for a in range(5):
            for b in range(5):
                on_one[:, a : a + 8 : 2, b : b + 8 : 2] += on_above[..., a, b]
        on_one *= one > 0
        flat = [values.reshape(-1, values.shape[-1]) for values in (patches, on_one, above, on_two)]
        return value, [
            flat[0].T @ flat[1], flat[1].sum(axis=0), flat[2].T @ flat[3], flat[3].sum(axis=0),
            two.reshape(len(rows), -1).T @ slope, slope.sum(axis=0),
        ]  # fmt: skip


NETWORKS: dict[str, Recurrent | Convolutional] = {"RNN": Recurrent(), "CNN": Convolutional()}


def layers_of(network: Recurrent | Convolutional, z: np.ndarray) -> list[np.ndarray]:
    """Weights and biases, from z of shape (D,) with a standard normal prior."""
    sizes = [int(np.prod(shape)) for shape in network.shapes]
    parts = np.split(np.asarray(z, np.float32), np.cumsum(sizes)[:-1])
    return [
        (np.float32(sd) * part).reshape(shape)
        for part, shape, sd in zip(parts, network.shapes, network.prior, strict=True)
    ]


def posterior(
    network: Recurrent | Convolutional, images: Any, permuted: float
) -> tuple[Callable[[np.ndarray, np.random.Generator], tuple[float, np.ndarray]], int]:
    """An estimate of the log posterior and its gradient from batches, and the dimension D.

    Batches and permuted labels are those of `examples/tact_mlp`.
    """
    batches = example("tact_mlp", "network").NoisyPosterior(images, permuted, BATCH)

    def estimate(z: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        rows, labels = batches._next(rng)
        weight = len(images.train_labels) / len(labels)
        value, parts = network.ascent(layers_of(network, z), rows, labels)
        scaled = [sd * part.ravel() for part, sd in zip(parts, network.prior, strict=True)]
        return weight * value - 0.5 * float(z @ z), weight * np.concatenate(scaled) - z

    return estimate, sum(int(np.prod(shape)) for shape in network.shapes)


def adam(
    estimate: Callable[..., tuple[float, np.ndarray]], z: np.ndarray, steps: int, count: int,
    rng: np.random.Generator,
) -> np.ndarray:  # fmt: skip
    """Ascend the mean log density with the default settings of Kingma & Ba, .001 / .1 in z."""
    mean, square = np.zeros_like(z), np.zeros_like(z)
    for k in range(1, steps + 1):
        gradient = estimate(z, rng)[1] / count
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        z = z + 0.01 * (mean / (1 - 0.9**k)) / (np.sqrt(square / (1 - 0.999**k)) + 1e-8)
    return z


def accuracy(network: Recurrent | Convolutional, draws: np.ndarray, images: Any) -> float:
    """Share of the test images whose most probable class, averaged over the draws, is right."""
    mean = np.zeros((len(images.test), CLASSES))
    for z in draws:
        scores = network.scores(layers_of(network, z), images.test)
        scores = np.exp(scores - scores.max(axis=1, keepdims=True))
        mean += scores / scores.sum(axis=1, keepdims=True)
    return float((mean.argmax(axis=1) == images.test_labels).mean())

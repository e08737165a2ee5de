"""Train a decoder and its encoder, an importance weighted autoencoder, with NumPy.

    python decoder_training.py fashion OUT    # 28 × 28, Debian's dataset-fashion-mnist; a minute
    python decoder_training.py digits OUT     # 8 × 8, the digits that scikit-learn has; 20 s
    python decoder_training.py strokes OUT    # 12 × 12, drawn strokes, without any data

OUT then holds the four files of a network, for `run.py gs-figure-4 --data OUT`. Images are binary.
The bound with several draws of the encoder (Burda, Grosse & Salakhutdinov 2016) is ascended by
Adam. Sizes are those of the paper for `fashion`: codes of 50, two hidden layers of 200.
"""

from __future__ import annotations

import argparse
import gzip
import importlib
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from decoder_nets import Network
from scipy.special import expit, softmax

FOLDER = Path("/usr/share/datasets/fashion-mnist")
IMPORTANCE, BATCH = 5, 50
FIRST, SECOND, CORRECTION = 0.9, 0.999, 1e-8  # Adam's


@dataclass(frozen=True)
class Plan:
    """Sizes of codes and hidden layers, number of updates, and Adam's first step size."""

    codes: int
    hidden: int
    updates: int
    step: float


PLANS = {
    "fashion": Plan(50, 200, 6000, 1e-3),
    "digits": Plan(10, 64, 8000, 2e-3),
    "strokes": Plan(8, 48, 1500, 4e-3),
}


def strokes(count: int, rng: np.random.Generator, side: int = 12) -> np.ndarray:
    """Characters of two or three straight strokes with common joints, shape (count, side²)."""
    grid = np.stack(np.meshgrid(np.arange(side), np.arange(side), indexing="ij"), axis=-1)
    joints = rng.uniform(1.5, side - 2.5, (count, 4, 2))
    nearest = np.full((count, side, side), np.inf)
    for a in range(3):
        start, along = joints[:, a], joints[:, a + 1] - joints[:, a]
        there = grid[None] - start[:, None, None]
        share = (there * along[:, None, None]).sum(-1) / np.square(along).sum(-1)[:, None, None]
        gap = there - np.clip(share, 0, 1)[..., None] * along[:, None, None]
        drawn = (np.ones(count) if a < 2 else rng.random(count) < 0.5).astype(bool)
        distance = np.where(drawn[:, None, None], np.square(gap).sum(-1), np.inf)
        nearest = np.minimum(nearest, distance)
    return (nearest.reshape(count, -1) < 0.7).astype(np.float32)


def images(kind: str, folder: Path, rng: np.random.Generator) -> np.ndarray:
    """Binary images, one a row.

    Raises
    ------
    SystemExit
        The package with the images is not installed.
    """
    if kind == "strokes":
        return strokes(4000, rng)
    if kind == "digits":
        try:
            digits = importlib.import_module("sklearn.datasets").load_digits()
        except ImportError:
            raise SystemExit("The digits are in scikit-learn: pip install scikit-learn") from None
        return (digits.data > 7).astype(np.float32)
    path = folder / "train-images-idx3-ubyte.gz"
    if not path.is_file():
        raise SystemExit(f"There is no {path}: apt-get install dataset-fashion-mnist.")
    raw = np.frombuffer(gzip.decompress(path.read_bytes()), np.uint8, offset=16)
    return (raw.reshape(-1, 784) > 127).astype(np.float32)


def first_weights(plan: Plan, pixels: int, rng: np.random.Generator) -> list[np.ndarray]:
    """Weights and biases of all layers in turn: encoder, mean, log sd, decoder."""
    shapes = [(pixels, plan.hidden), (plan.hidden, plan.hidden), (plan.hidden, plan.codes),
              (plan.hidden, plan.codes), (plan.codes, plan.hidden), (plan.hidden, plan.hidden),
              (plan.hidden, pixels)]  # fmt: skip
    found = []
    for inputs, outputs in shapes:
        scale = np.sqrt(1 / inputs)
        found += [(scale * rng.standard_normal((inputs, outputs))).astype(np.float32),
                  np.zeros(outputs, np.float32)]  # fmt: skip
    return found


def ascent(
    weights: list[np.ndarray], y: np.ndarray, rng: np.random.Generator
) -> tuple[float, list[np.ndarray]]:
    """The bound of a batch with several draws, in nats an image, and its gradient in all weights.

    The log weight of a draw is log p(y | x) − ½|x|² + ½|e|² + Σ log s, with x = m + s e. A draw
    counts in the gradient as much as its normalised weight.
    """
    w1, b1, w2, b2, wm, bm, ws, bs, v1, c1, v2, c2, v3, c3 = weights
    first = np.tanh(y @ w1 + b1)
    second = np.tanh(first @ w2 + b2)
    mean, log_sd = second @ wm + bm, second @ ws + bs
    noise = rng.standard_normal((IMPORTANCE, *mean.shape), dtype=np.float32)
    spread = np.exp(log_sd) * noise
    x = mean + spread
    one = np.tanh(x @ v1 + c1)
    two = np.tanh(one @ v2 + c2)
    logits = two @ v3 + c3
    squares = 0.5 * (np.square(noise) - np.square(x)).sum(-1) + log_sd.sum(-1)
    log_weights = (y * logits - np.logaddexp(0, logits)).sum(-1) + squares
    share = softmax(log_weights, axis=0)[..., None].astype(np.float32)

    def flat(values: np.ndarray) -> np.ndarray:
        return values.reshape(-1, values.shape[-1])

    on_logits = share * (y - expit(logits))
    on_two = (on_logits @ v3.T) * (1 - np.square(two))
    on_one = (on_two @ v2.T) * (1 - np.square(one))
    on_x = on_one @ v1.T - share * x
    on_mean, on_sd = on_x.sum(axis=0), (on_x * spread).sum(axis=0) + 1
    on_second = (on_mean @ wm.T + on_sd @ ws.T) * (1 - np.square(second))
    on_first = (on_second @ w2.T) * (1 - np.square(first))
    pairs = ((y, on_first), (first, on_second), (second, on_mean), (second, on_sd), (x, on_one),
             (one, on_two), (two, on_logits))  # fmt: skip
    gradient = []
    for inputs, outputs in pairs:
        gradient += [flat(inputs).T @ flat(outputs) / len(y), flat(outputs).sum(axis=0) / len(y)]
    most = log_weights.max(axis=0)
    bound = most + np.log(np.exp(log_weights - most).mean(axis=0))
    return float(bound.mean()), gradient


def train(
    pictures: np.ndarray, plan: Plan, seed: int, *, say: bool = False
) -> tuple[Network, float]:
    """The trained network, and its mean bound over the last hundred batches."""
    rng = np.random.default_rng(seed)
    weights = first_weights(plan, pictures.shape[1], rng)
    # Each pixel starts at its own frequency.
    share = np.clip(pictures.mean(axis=0), 0.01, 0.99)
    weights[-1] = np.log(share / (1 - share)).astype(np.float32)
    mean, square = [np.zeros_like(w) for w in weights], [np.zeros_like(w) for w in weights]
    bounds: list[float] = []
    for update in range(1, plan.updates + 1):
        batch = pictures[rng.integers(len(pictures), size=BATCH)]
        bound, gradient = ascent(weights, batch, rng)
        bounds.append(bound)
        size = plan.step * (1 - update / (plan.updates + 1)) ** 0.5
        size *= np.sqrt(1 - SECOND**update) / (1 - FIRST**update)
        for w, g, m, s in zip(weights, gradient, mean, square, strict=True):
            m += (1 - FIRST) * (g - m)
            s += (1 - SECOND) * (np.square(g) - s)
            w += np.float32(size) * m / (np.sqrt(s) + CORRECTION)
        if say and update % 500 == 0:
            print(f"{update} updates: bound {np.mean(bounds[-100:]):.2f} nats an image")
    layers = list(zip(weights[::2], weights[1::2], strict=True))
    network = Network(
        tuple(layers[4:]), tuple(layers[:2]), (layers[2],), (layers[3],)
    )  # in the order of `first_weights`
    return network, float(np.mean(bounds[-100:]))


def main() -> None:
    """Parse the command line, train, and write the four files."""
    parser = argparse.ArgumentParser(description="Train a decoder and its encoder with NumPy.")
    parser.add_argument("kind", choices=sorted(PLANS))
    parser.add_argument("out", type=Path, help="folder of the four files")
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of Fashion-MNIST")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    started = time.process_time()
    pictures = images(options.kind, options.data, np.random.default_rng(options.seed))
    network, bound = train(pictures, PLANS[options.kind], options.seed, say=True)
    network.write(options.out)
    print(f"{options.out}: {bound:.2f} nats an image, {time.process_time() - started:.0f} s")


if __name__ == "__main__":
    main()

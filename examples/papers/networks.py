"""The recurrent and the convolutional network of [TACT] Table 1, in JAX.

Layers, activations, prior, batches of 64 and Adam's rate are those of the authors' code. Ours are
the images, Fashion-MNIST for both networks, and the draw of the prior at which all methods start.
The optimisers are those of `examples/tact_mlp`. Weights are sampled as z = weights / `SD`, whose
prior is standard normal.

JAX is imported where a network is first used, so that other figures do without it. It takes a GPU
where it finds one. Several processes may share the GPU, so that none reserves its memory. A batch
of 64 images keeps a GPU busy for a small part of a call, so that there several runs share a call.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from dataclasses import replace
from typing import Any

import numpy as np
from common import example

SIDE, UNITS, CLASSES, BATCH = 28, 128, 10, 64
# The authors add .001 |w|² to the mean loss of 60,000 images: a prior of precision 120.
SD = 120**-0.5
UNROLL = 7  # rows of an image that are compiled as one block; all 28 compile for 20 s
TESTED = 1000  # test images that are classified at once

# One thread for each process, as of BLAS in parts.py, and no reserved memory of a GPU.
# JAX reads both when it starts.
os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

Layers = Sequence[Any]
Estimate = Callable[[np.ndarray, np.random.Generator], tuple[float, np.ndarray]]
# From weights, places and labels, shape (D + 2 n,), to log likelihood and gradient, shape (1 + D,).
Call = Callable[[np.ndarray], np.ndarray]


def jax_is_here() -> None:
    """Refuse to begin without JAX.

    Raises
    ------
    SystemExit
        JAX is not installed.
    """
    if importlib.util.find_spec("jax") is None:
        raise SystemExit(
            "The networks of this table are in JAX, which is not installed: "
            "pip install 'stanct[papers]'. For an NVIDIA GPU: pip install 'jax[cuda12]'."
        )


class Recurrent:
    """An LSTM over the 28 rows of an image, ReLU, a layer of 64 with ReLU, and ten scores."""

    label = "LSTM"
    shapes = (
        (SIDE, 4 * UNITS), (UNITS, 4 * UNITS), (2, 4 * UNITS),  # two biases, as PyTorch has
        (UNITS, 64), (64,), (64, CLASSES), (CLASSES,),
    )  # fmt: skip

    def scores(self, layers: Layers, rows: Any) -> Any:
        """Scores of the classes, shape (n, 10), of images of shape (n, 784)."""
        import jax
        import jax.numpy as jnp

        into, across, bias, wide, wide_bias, out, out_bias = layers
        lines = rows.reshape(-1, SIDE, SIDE).transpose(1, 0, 2)
        inputs = lines @ into + bias.sum(axis=0)

        def step(state: tuple[Any, Any], given: Any) -> tuple[tuple[Any, Any], None]:
            h, cell = state
            i, f, g, o = jnp.split(given + h @ across, 4, axis=1)
            cell = jax.nn.sigmoid(f) * cell + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(cell), cell), None

        nothing = jnp.zeros((lines.shape[1], UNITS), inputs.dtype)
        (h, _), _ = jax.lax.scan(step, (nothing, nothing), inputs, unroll=UNROLL)
        hidden = jax.nn.relu(jax.nn.relu(h) @ wide + wide_bias)
        return hidden @ out + out_bias


def convolved(images: Any, filters: Any) -> Any:
    """Images of shape (n, h, w, c) through filters of shape (3, 3, c, f), with zeros around them.

    It is one product of matrices. JAX's own convolution is slow on a GPU where each of several runs
    has filters of its own.
    """
    import jax.numpy as jnp

    _, height, width, _ = images.shape
    wider = jnp.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    shifted = [wider[:, i : i + height, j : j + width] for i in range(3) for j in range(3)]
    return jnp.concatenate(shifted, axis=3) @ filters.reshape(-1, filters.shape[3])


class Convolutional:
    """Twice sixteen 3 × 3 filters, ReLU and pooling of 2 × 2, a layer of 100 with ReLU, scores."""

    label = "CNN"
    shapes = (
        (3, 3, 1, 16), (16,), (3, 3, 16, 16), (16,),
        (16 * (SIDE // 4) ** 2, 100), (100,), (100, CLASSES), (CLASSES,),
    )  # fmt: skip

    def scores(self, layers: Layers, rows: Any) -> Any:
        """As `Recurrent.scores`."""
        import jax

        first, bias, second, offset, wide, wide_bias, out, out_bias = layers
        images = rows.reshape(-1, SIDE, SIDE, 1)
        for filters, shift in ((first, bias), (second, offset)):
            images = jax.nn.relu(convolved(images, filters) + shift)
            n, height, width, channels = images.shape
            blocks = images.reshape(n, height // 2, 2, width // 2, 2, channels)
            images = blocks.max(axis=(2, 4))
        hidden = jax.nn.relu(images.reshape(images.shape[0], -1) @ wide + wide_bias)
        return hidden @ out + out_bias


NETWORKS: dict[str, Recurrent | Convolutional] = {"RNN": Recurrent(), "CNN": Convolutional()}


def count_of(network: Recurrent | Convolutional) -> int:
    """The number of weights and biases, D."""
    return sum(int(np.prod(shape)) for shape in network.shapes)


def layers_of(network: Recurrent | Convolutional, z: Any) -> list[Any]:
    """Weights and biases from z, shape (D,)."""
    found, place = [], 0
    for shape in network.shapes:
        size = int(np.prod(shape))
        found.append(SD * z[place : place + size].reshape(shape))
        place += size
    return found


def scores_of(network: Recurrent | Convolutional, z: Any, rows: Any) -> Any:
    """Scores of the classes, shape (n, 10), with all products in single precision on a GPU, too."""
    import jax

    with jax.default_matmul_precision("float32"):
        return network.scores(layers_of(network, z), rows)


@functools.cache
def likelihood(network: Recurrent | Convolutional) -> Callable[[Any, Any], Any]:
    """The compiled log likelihood of a batch and its gradient in z.

    Its first argument has shape (D + 2 n,): z, the places of n images, and their labels, in one
    array because every transfer to a GPU costs microseconds. Whole numbers below 2²⁴ are exact in
    single precision. The second argument holds all images, which stay on the device. It returns
    the log likelihood and its gradient, shape (1 + D,).
    """
    import jax
    import jax.numpy as jnp

    dimension = count_of(network)

    def value(z: Any, rows: Any, labels: Any) -> Any:
        chances = jax.nn.log_softmax(scores_of(network, z, rows))
        return jnp.take_along_axis(chances, labels[:, None], axis=1).sum()

    def both(given: Any, images: Any) -> Any:
        places, labels = given[dimension:].astype(jnp.int32).reshape(2, -1)
        found, slope = jax.value_and_grad(value)(given[:dimension], images[places], labels)
        return jnp.concatenate([found[None], slope])

    return jax.jit(both)


@functools.cache
def probabilities(network: Recurrent | Convolutional) -> Callable[[Any, Any], Any]:
    """The compiled probabilities of the classes, shape (n, 10), given z and images."""
    import jax

    return jax.jit(lambda z, rows: jax.nn.softmax(scores_of(network, z, rows)))


class Together:
    """Log likelihoods of several runs, each in a thread of its own, by one call for all.

    A call is made when every run waits for it. Runs that have ended are left in it, with what they
    last asked for, because another number of runs would be compiled anew.

    Attributes
    ----------
    failure
        Why calls fail from now on, all with `CancelledError`; None while they do not.
    """

    def __init__(self, network: Recurrent | Convolutional, images: Any, runs: int) -> None:
        import jax

        self._function = jax.jit(jax.vmap(likelihood(network), (0, None)))
        self._images = images
        self._given = np.zeros((runs, count_of(network) + 2 * BATCH), np.float32)
        self._found = self._given
        self.failure: BaseException | None = None
        self._calls, self._left, self._waiting = 0, runs, 0
        self._changed = threading.Condition()

    @contextlib.contextmanager
    def seat(self, run: int) -> Iterator[Call]:
        """What run number `run` calls, until it ends. Every run must take its seat."""
        try:
            yield functools.partial(self._answer, run)
        finally:
            with self._changed:
                self._left -= 1
                self._call_if_all_wait()

    def stop(self, failure: BaseException) -> None:
        """Let every run end at its next call, and keep why, unless a failure came before."""
        with self._changed:
            self.failure = self.failure or failure
            self._changed.notify_all()

    def _answer(self, run: int, given: np.ndarray) -> np.ndarray:
        with self._changed:
            self._given[run] = given
            self._waiting += 1
            call = self._calls
            self._call_if_all_wait()
            self._changed.wait_for(lambda: self._calls > call or self.failure)
            if self.failure:
                raise CancelledError
            return self._found[run]

    def _call_if_all_wait(self) -> None:
        if self.failure or not 0 < self._left == self._waiting:
            return
        try:
            self._found = np.asarray(self._function(self._given, self._images))
        except BaseException as failure:  # every run must hear of it, or it would wait forever
            self.stop(failure)
        self._calls, self._waiting = self._calls + 1, 0
        self._changed.notify_all()


def on_gpu() -> bool:
    """Whether JAX has a GPU or the like. A CPU gains little by common calls, or loses."""
    import jax

    return jax.default_backend() != "cpu"


def placed(images: Any) -> Any:
    """The training images on JAX's device."""
    import jax

    return jax.device_put(np.asarray(images.train, np.float32))


def alone(network: Recurrent | Convolutional, images: Any) -> Call:
    """The log likelihood and its gradient by a call for each."""
    compiled = likelihood(network)
    return lambda given: np.asarray(compiled(given, images))


def posterior(
    network: Recurrent | Convolutional, images: Any, permuted: float, call: Call
) -> Estimate:
    """An estimate of the log posterior in z and its gradient from batches.

    Epochs and permuted labels are those of `examples/tact_mlp`. `call` is from `Together` or
    `alone`.
    """
    count = len(images.train_labels)
    # The batches are places of images, in place of the images.
    batches = example("tact_mlp", "network").NoisyPosterior(
        replace(images, train=np.arange(count)), permuted, BATCH
    )

    def estimate(z: np.ndarray, rng: np.random.Generator) -> tuple[float, np.ndarray]:
        given = np.concatenate([z, *batches._next(rng)], dtype=np.float32, casting="unsafe")
        found = call(given).astype(float)
        found *= count / BATCH
        return found[0] - 0.5 * float(z @ z), found[1:] - z

    return estimate


def accuracy(network: Recurrent | Convolutional, draws: np.ndarray, images: Any) -> float:
    """Share of the test images whose most probable class, averaged over the draws, is right."""
    right, compiled = 0, probabilities(network)
    for start in range(0, len(images.test), TESTED):
        rows = np.asarray(images.test[start : start + TESTED], np.float32)
        mean = sum(np.asarray(compiled(z.astype(np.float32), rows)) for z in draws)
        right += int((mean.argmax(axis=1) == images.test_labels[start : start + TESTED]).sum())
    return right / len(images.test)

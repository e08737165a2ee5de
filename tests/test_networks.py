"""The networks of examples/papers in JAX: sizes, scores, gradients, optimisers, and doing without.

What imports JAX runs in a process of its own, because JAX warns of every fork that comes later.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import multiprocessing
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import CancelledError, ProcessPoolExecutor, ThreadPoolExecutor
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT
from scipy.special import expit, log_softmax

PAPERS = ROOT / "examples" / "papers"
NEEDS_JAX = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="needs the extra `papers`"
)


def module(name: str) -> ModuleType:
    """A module of the example, in the process that calls this."""
    if str(PAPERS) not in sys.path:
        sys.path.append(str(PAPERS))
    return importlib.import_module(name)


@pytest.fixture(scope="module")
def elsewhere():
    """Calls a function of this file in a process of its own, with double precision in JAX."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAX_ENABLE_X64", "1")
        patch.setenv("JAX_PLATFORMS", "cpu")
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(1, mp_context=context) as pool:
            yield lambda function, *arguments: pool.submit(function, *arguments).result()


def scores_and_slopes(name: str, z: np.ndarray, rows: np.ndarray, labels: np.ndarray) -> Any:
    """Layers, scores, log likelihood, its gradient, and finite differences, in order of the layers.

    There is one difference for each layer, at its steepest coordinate.
    """
    networks = module("networks")
    network = networks.NETWORKS[name]
    layers = [np.asarray(layer) for layer in networks.layers_of(network, z)]
    scores = np.asarray(network.scores(networks.layers_of(network, z), rows))
    places = np.arange(len(rows))[::-1]  # of images in reverse order

    def value(z: np.ndarray) -> np.ndarray:
        return np.asarray(
            networks.likelihood(network)(np.concatenate([z, places, labels[places]]), rows)
        )

    found, differences, begin = value(z), [], 0
    for layer in layers:
        k = begin + int(np.abs(found[1 + begin : 1 + begin + layer.size]).argmax())
        begin += layer.size
        shift = 1e-5 * (np.arange(z.size) == k)
        differences.append((k, (value(z + shift)[0] - value(z - shift)[0]) / 2e-5))
    return layers, scores, found[0], found[1:], differences


def lstm(layers: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Scores of the authors' LSTM, one row of an image after the other, as PyTorch has it."""
    into, across, bias, wide, wide_bias, out, out_bias = layers
    h = cell = np.zeros((len(rows), 128))
    for t in range(28):
        gates = rows[:, 28 * t : 28 * t + 28] @ into + bias[0] + h @ across + bias[1]
        i, f, g, o = gates[:, :128], gates[:, 128:256], gates[:, 256:384], gates[:, 384:]
        cell = expit(f) * cell + expit(i) * np.tanh(g)
        h = expit(o) * np.tanh(cell)
    return np.maximum(np.maximum(h, 0) @ wide + wide_bias, 0) @ out + out_bias


def convolutions(layers: list[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """Scores of the authors' CNN on images of one channel."""
    images = rows.reshape(-1, 28, 28, 1)
    for filters, bias in (layers[:2], layers[2:4]):
        wide = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
        _, height, width, _ = images.shape
        found = sum(wide[:, a : a + height, b : b + width] @ filters[a, b]
                    for a in range(3) for b in range(3))  # fmt: skip
        kept = np.maximum(found + bias, 0)
        images = np.maximum.reduce([kept[:, a::2, b::2] for a in (0, 1) for b in (0, 1)])
    hidden = np.maximum(images.reshape(len(rows), -1) @ layers[4] + layers[5], 0)
    return hidden @ layers[6] + layers[7]


def test_sizes_are_those_of_the_authors() -> None:
    """On their CIFAR-10, with three channels and 32 × 32 pixels, the CNN has 106,278 weights."""
    networks = module("networks")
    count = networks.count_of
    lstm, cnn = networks.NETWORKS["RNN"], networks.NETWORKS["CNN"]
    assert count(lstm) == 4 * 128 * (28 + 128 + 2) + 129 * 64 + 65 * 10 == 89_802
    assert count(cnn) == 10 * 16 + 145 * 16 + 785 * 100 + 101 * 10 == 81_990
    z = np.arange(count(cnn), dtype=float)
    layers = networks.layers_of(cnn, z)
    assert np.concatenate([layer.ravel() for layer in layers]) == pytest.approx(z / 120**0.5)


@NEEDS_JAX
@pytest.mark.parametrize(
    ("name", "plain"), [pytest.param("RNN", lstm, marks=LONG), ("CNN", convolutions)]
)
def test_scores_and_gradients(
    elsewhere: Callable[..., Any], name: str, plain: Callable[..., np.ndarray]
) -> None:
    """Against the same network in plain NumPy, and against differences in every layer."""
    count, rng = {"RNN": 89_802, "CNN": 81_990}[name], np.random.default_rng(6)
    z, rows, labels = 1.5 * rng.standard_normal(count), rng.standard_normal((3, 784)), [9, 0, 4]
    made = elsewhere(scores_and_slopes, name, z, rows, np.array(labels))
    layers, scores, value, gradient, differences = made
    np.testing.assert_allclose(scores, plain(layers, rows), rtol=1e-9, atol=1e-9)
    assert np.ptp(scores, axis=0).min() > 1e-3
    assert value == pytest.approx(log_softmax(scores, axis=1)[np.arange(3), labels].sum())
    assert len(differences) == len(layers)
    for place, difference in differences:
        assert abs(difference) > 1e-4
        assert gradient[place] == pytest.approx(difference, rel=1e-5)


def epoch_and_whole() -> Any:
    """The mean estimate over the two batches of an epoch, and the log posterior of all images."""
    networks, images = module("networks"), module("common").example("tact_mlp", "images")
    network, rng = networks.NETWORKS["CNN"], np.random.default_rng(3)
    rows, labels = rng.standard_normal((128, 784)), rng.integers(10, size=128)
    known = images.Images("noise", rows, labels, rows, labels)
    z = rng.standard_normal(networks.count_of(network))
    estimate = networks.posterior(network, known, 0.0, networks.alone(network, rows))
    first, second = estimate(z, rng), estimate(z, rng)
    whole = np.asarray(
        networks.likelihood(network)(np.concatenate([z, np.arange(128), labels]), rows)
    )
    mean = (first[0] + second[0]) / 2, (first[1] + second[1]) / 2
    guess = np.asarray(networks.probabilities(network)(z, rows)).argmax(axis=1)
    share = networks.accuracy(network, np.array([z, z]), known)
    return mean, (whole[0] - 0.5 * z @ z, whole[1:] - z), first[0] - second[0], (
        share, float((guess == labels).mean()),
    )  # fmt: skip


@LONG
@NEEDS_JAX
def test_batches_of_an_epoch_are_all_images(elsewhere: Callable[..., Any]) -> None:
    mean, whole, gap, accuracies = elsewhere(epoch_and_whole)
    assert abs(gap) > 1
    assert mean[0] == pytest.approx(whole[0], rel=1e-6)
    np.testing.assert_allclose(mean[1], whole[1], atol=2e-4)
    assert accuracies[0] == accuracies[1]


def runs_together(end: str = "") -> Any:
    """What three runs of different lengths get from common calls, and by calls of their own."""
    networks, rng = module("networks"), np.random.default_rng(4)
    network, rows = networks.NETWORKS["CNN"], rng.standard_normal((30, 784)).astype(np.float32)
    together = networks.Together(network, rows, 3)
    if end == "failing":
        together._function = None
    elif end == "stopped":
        together.stop(KeyboardInterrupt())
    asked = [[np.concatenate([rng.standard_normal(networks.count_of(network)),
                              rng.integers(30, size=networks.BATCH),
                              rng.integers(10, size=networks.BATCH)]).astype(np.float32)
              for _ in range(length)] for length in (1, 3, 2)]  # fmt: skip

    def run(k: int) -> Any:
        try:
            with together.seat(k) as call:
                return [call(given) for given in asked[k]]
        except CancelledError:
            return "cancelled"

    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(run, range(3)))
    call = networks.alone(network, rows)
    why = type(together.failure).__name__
    return found, [[call(given) for given in own] for own in asked], together._calls, why


@LONG
@NEEDS_JAX
def test_runs_that_share_calls_get_what_they_ask_for(elsewhere: Callable[..., Any]) -> None:
    """There are as many calls as the longest run needs, and a run that ends holds up none."""
    found, alone, calls, why = elsewhere(runs_together)
    assert [len(own) for own in found] == [1, 3, 2]
    for own, theirs in zip(found, alone, strict=True):
        np.testing.assert_allclose(own, theirs, rtol=1e-5, atol=1e-4)
    assert calls == 3 and why == "NoneType"


@NEEDS_JAX
@pytest.mark.parametrize(
    ("end", "why"), [("failing", "TypeError"), ("stopped", "KeyboardInterrupt")]
)
def test_all_runs_hear_of_a_failed_call_and_of_the_end(
    elsewhere: Callable[..., Any], end: str, why: str
) -> None:
    found, *_, told = elsewhere(runs_together, end)
    assert (found, told) == (["cancelled"] * 3, why)


def failure_of_a_table(own: bool) -> tuple[str, int]:
    """What is raised where an optimiser fails by itself, or with the common call, after how many.

    The other run takes a failed call for a rejected point, as a sampler does.
    """
    networks, table = module("networks"), module("network_table")
    network, rows = networks.NETWORKS["CNN"], np.zeros((30, 784), np.float32)
    together = networks.Together(network, rows, 2)
    together._function = (lambda given, _: given) if own else None
    given = np.zeros(networks.count_of(network) + 2 * networks.BATCH, np.float32)

    def run(method: str, call: Callable[[np.ndarray], np.ndarray]) -> Any:
        if method == "optimiser":
            return {}, int("no number") if own else call(given)
        for _ in range(20_000):
            with contextlib.suppress(CancelledError):
                call(given)
                continue
            break
        return {}, given

    try:
        table.side_by_side(together, ["optimiser", "sampler"], run)
    except BaseException as failure:
        return type(failure).__name__, together._calls
    return "nothing", together._calls


@NEEDS_JAX
@pytest.mark.parametrize(("own", "why"), [(False, "TypeError"), (True, "ValueError")])
def test_a_table_tells_why_a_run_failed_and_ends_the_others(
    elsewhere: Callable[..., Any], own: bool, why: str
) -> None:
    told, calls = elsewhere(failure_of_a_table, own)
    assert told == why and calls < 20_000


def test_optimisers_ascend_at_their_rates() -> None:
    """Adam moves a weight by .001 a step; momentum SGD arrives at the top of a parabola."""
    networks, rng = module("networks"), np.random.default_rng(1)
    optimisers = module("common").example("tact_mlp", "network")
    top = np.array([3.0, -2.0])

    def estimate(z: np.ndarray, _: np.random.Generator) -> tuple[float, np.ndarray]:
        return 0.0, 50 * (top - z) * networks.SD**2

    moved = networks.SD * optimisers.adam(estimate, np.zeros(2), 10, 50, rng, networks.SD)
    assert moved == pytest.approx([0.01, -0.01], rel=0.01)
    end = optimisers.momentum_sgd(estimate, np.zeros(2), 400, 50, rng, networks.SD)
    assert end == pytest.approx(top)
    # After one step, .05 times the slope of the mean log density in the weights.
    first = optimisers.momentum_sgd(estimate, np.zeros(2), 1, 50, rng, networks.SD)
    assert networks.SD * first == pytest.approx(0.05 * top * networks.SD)


def test_other_figures_do_without_jax() -> None:
    """The list of all names imports every module, and none of them imports JAX."""
    code = "import sys, run; run.main(['--list']); sys.exit('jax' in sys.modules)"
    paths = os.pathsep.join([str(PAPERS), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": paths}, check=False)
    assert done.returncode == 0

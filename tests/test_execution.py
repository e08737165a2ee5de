"""Blocks over executors: the same draws anywhere, lost workers, targets that cannot travel."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled

from stanct.errors import CheckpointError, SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.runs.run import EvidenceRun, Run
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.lending import Shelves
from stanct.work.execution import ExecutorWarning, executing

PROGRAM = """
data { real y; }
parameters { real mu; real<lower=0> t; }
model { mu ~ normal(0, 2); t ~ gamma(3, 2); y ~ normal(mu, t); }
generated quantities { real ahead = normal_rng(mu, t); }
"""
BASE = GaussianBase(np.array([0.5, 0.2]), np.array([[1.5, 0.0], [0.2, 0.8]]))
METHODS: dict[str, Any] = {
    "gibbs": partial(sampled, "gibbs", draws=230, warmup=48, bootstrap=1),
    "parallel_tempering": partial(sampled, "parallel_tempering", draws=120, warmup=48, bootstrap=1),
    "ais": partial(sampled, "ais", draws=96, temperatures=20),
    "smc": partial(sampled, "ais", draws=96, temperatures=20, resample=True),
    "tact": partial(sampled, "tact", draws=50, warmup=50, noise=(1.0, 1.0)),
}


def normal(x: np.ndarray) -> tuple[float, np.ndarray]:
    """A function that workers can import."""
    return -0.5 * float(x @ x), -x


def forks() -> Any:
    """Worker processes that start quickly: forked from one that has imported the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stanct.model"])
    return context


def pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=forks())


def draws(method: str, target: Any, **settings: Any) -> Run:
    return METHODS[method](target, base=BASE, seed=5, progress=False, **settings)


def assert_same(one: Run, other: Run) -> None:
    """Bit for bit, in draws, weights and what follows from them."""
    assert type(one) is type(other)
    for name in one.arrays:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name, values in one.variables.items():
        assert np.array_equal(values, other.variables[name]), name
    assert one.gradients == other.gradients
    if isinstance(one, EvidenceRun) and isinstance(other, EvidenceRun):
        assert one.evidence == other.evidence
    assert one.diagnostics == other.diagnostics


@pytest.fixture(scope="module")
def target():
    return target_of(PROGRAM, {"y": 1.5})


@pytest.fixture(scope="module")
def alone(target) -> dict[str, Run]:
    """Every method with one thread."""
    return {method: draws(method, target, threads=1) for method in METHODS}


@pytest.fixture(scope="module", params=[1, 2, 4])
def processes(request: pytest.FixtureRequest) -> Iterator[ProcessPoolExecutor]:
    with pool(request.param) as workers:
        yield workers


@pytest.mark.parametrize("method", METHODS)
def test_processes_draw_what_a_thread_draws(
    method: str, target, alone: dict[str, Run], processes: ProcessPoolExecutor
) -> None:
    assert_same(draws(method, target, executor=processes), alone[method])


@pytest.mark.parametrize("workers", [2, 4])
def test_threads_of_the_users_draw_what_one_thread_draws(
    workers: int, target, alone: dict[str, Run]
) -> None:
    with ThreadPoolExecutor(workers) as threads:
        for method, one in alone.items():
            assert_same(draws(method, target, executor=threads), one)


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_draws_what_one_thread_draws(target, alone: dict[str, Run]) -> None:
    distributed = pytest.importorskip("distributed", reason="needs the extra `dask`")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
    ):
        assert len({info["name"] for info in client.scheduler_info()["workers"].values()}) == 2
        for method, one in alone.items():
            assert_same(draws(method, target, executor=client.get_executor()), one)


def test_densities_are_built_once_a_worker(target, monkeypatch: pytest.MonkeyPatch) -> None:
    from stanct.targets import density

    built = []
    monkeypatch.setattr(density, "_shelves", Shelves(4))
    monkeypatch.setattr(density, "Density", lambda recipe: built.append(1) or target.density)
    draws("gibbs", target, threads=1)
    assert len(built) == 1


def test_a_function_goes_to_processes_if_it_can_be_imported() -> None:
    with pool(1) as workers:
        here = FunctionTarget(FunctionDensity(normal, 2))
        assert_same(draws("gibbs", here, executor=workers), draws("gibbs", here, threads=2))
        there = FunctionTarget(FunctionDensity(lambda x: normal(x), 2))
        with pytest.raises(SamplingError, match=r"cannot receive this target.*top level"):
            draws("gibbs", there, executor=workers)


def test_a_random_function_is_refused() -> None:
    rng = np.random.default_rng(1)
    target = FunctionTarget(FunctionDensity(lambda x: (rng.normal(), -x), 2))
    with ThreadPoolExecutor(1) as threads, pytest.raises(SamplingError, match="without randomness"):
        draws("gibbs", target, executor=threads)


def test_what_is_no_executor(target) -> None:
    with pytest.raises(SamplingError, match=r"client\.get_executor"):
        draws("ais", target, executor=4)
    with pytest.raises(SamplingError, match=r"'joint' takes no executor.*move together"):
        sampled("joint", target, executor=ThreadPoolExecutor(1))


class Mortal(Executor):
    """Two worker processes, one of which is killed when a given number of blocks was submitted."""

    def __init__(self, fatal: int) -> None:
        self.pool = pool(2)
        self.left = fatal

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left == 0:
            os.kill(next(iter(self.pool._processes)), signal.SIGKILL)
        return self.pool.submit(fn, *args, **kwargs)


def test_a_killed_worker_leaves_the_finished_draws(target, alone: dict[str, Run]) -> None:
    # One probe, 4 lanes by 2 rounds of warm-up, 4 lanes by 5 blocks of draws.
    with pytest.warns(ExecutorWarning, match="may have been killed.*checkpoint=FOLDER"):
        done = METHODS["ais"](
            target, base=BASE, seed=5, progress=False, draws=160, executor=Mortal(9 + 14)
        )
    whole = alone["ais"]
    kept = done.draws
    assert done.provenance["interrupted"] and 32 <= kept < 160
    together = min(kept, whole.draws)
    assert np.array_equal(done.z[:, :together], whole.z[:, :together])


def test_a_worker_killed_in_the_warm_up_is_an_error_and_the_checkpoint_goes_on(
    target, alone: dict[str, Run], tmp_path
) -> None:
    with pytest.raises(SamplingError, match=r"during 'warm-up'.*in the checkpoint"):
        draws("gibbs", target, executor=Mortal(14), checkpoint=tmp_path)
    assert list(tmp_path.glob("segment-*"))
    assert_same(draws("gibbs", target, checkpoint=tmp_path), alone["gibbs"])


def test_an_interrupt_finishes_what_is_under_way(target, alone: dict[str, Run]) -> None:
    class Interrupting(ThreadPoolExecutor):
        left = 1 + 8 + 7

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().submit(fn, *args, **kwargs)

    with Interrupting(2) as threads:
        done = draws("ais", target, executor=threads)
    assert done.provenance["interrupted"] and 32 <= done.draws < 96
    assert np.array_equal(done.z, alone["ais"].z[:, : done.draws])
    with Interrupting(2) as threads, pytest.raises(KeyboardInterrupt):
        threads.left = 5
        draws("ais", target, executor=threads)


def test_lanes_and_callers_do_not_share_state(target, tmp_path) -> None:
    class Wallet:
        def __init__(self) -> None:
            self.coins = 0

    def earn(lane: Wallet, size: int) -> int:
        lane.coins += size
        return lane.coins

    first = [Wallet(), Wallet()]
    lanes = list(first)
    with executing(target, "test", {}, seed=1, progress=False) as run:
        blocks, interrupted = run.blocks("earn", earn, lanes, [3, 4])
    assert (blocks, interrupted) == ([[3, 7], [3, 7]], False)
    assert [lane.coins for lane in lanes] == [7, 7] and [lane.coins for lane in first] == [0, 0]


def test_an_error_in_a_block_is_the_callers(target) -> None:
    def fail(lane: list[int], size: int) -> int:
        raise CheckpointError("as it is") if size > 1 else ZeroDivisionError("as it is")

    with executing(target, "test", {}, seed=1, progress=False) as run:
        with pytest.raises(ZeroDivisionError):
            run.blocks("fail", fail, [[1]], [1])
        with pytest.raises(CheckpointError):
            run.blocks("fail", fail, [[1]], [2], final=True)

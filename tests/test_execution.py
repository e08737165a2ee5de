"""Blocks over executors: the same draws anywhere, lost workers, targets that cannot travel."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import LONG, target_of
from sampled import KINDS, sampled

from stanct.bases.recipes import recipe
from stanct.common.errors import CheckpointError, LostExecutorError, SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.runs.bracket import Bracket
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.samplers._two_stages import noting_two_stages
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.lending import Shelves
from stanct.work.blas import with_one_blas_thread
from stanct.work.execution import executing
from stanct.work.pools import opened
from stanct.work.workers import ExecutorWarning

PROGRAM = """
data { real y; }
parameters { real mu; real<lower=0> t; }
model { mu ~ normal(0, 2); t ~ gamma(3, 2); y ~ normal(mu, t); }
generated quantities { real ahead = normal_rng(mu, t); }
"""
BASE = GaussianBase(np.array([0.5, 0.2]), np.array([[1.5, 0.0], [0.2, 0.8]]))
METHODS: dict[str, Any] = {
    "gibbs": partial(sampled, "gibbs", draws=230, warmup=48, bootstrap=1),
    "simulated_tempering": partial(sampled, "simulated_tempering", draws=130, warmup=48),
    "parallel_tempering": partial(sampled, "parallel_tempering", draws=120, warmup=48, bootstrap=1),
    "ais": partial(sampled, "ais", draws=96, temperatures=20),
    "smc": partial(sampled, "ais", draws=96, temperatures=20, resample=True),
    "bidirectional": partial(
        sampled, "bidirectional", draws=64, temperatures=20, exact=np.zeros(2)
    ),
    "adiabatic": partial(sampled, "adiabatic", draws=12, warmup=40),
    "independence": partial(sampled, "independence", draws=200),
    "tact": partial(sampled, "tact", draws=50, warmup=50, noise=(1.0, 1.0)),
    "joint": partial(sampled, "joint", draws=130, warmup=150, engine="embedded"),
    "pseudo_extended": partial(
        sampled, "pseudo_extended", draws=120, warmup=150, copies=2, engine="embedded"
    ),
    "power_posterior": partial(sampled, "power_posterior", draws=60, warmup=150, rungs=4),
    "extended_hamiltonian": partial(
        sampled, "extended_hamiltonian", draws=60, warmup=150, bootstrap=1, engine="embedded"
    ),
    "auto": partial(sampled, "auto", draws=130, warmup=150, max_gradients=0),
}
# Those that are also tried while a worker of a Dask cluster is killed.
FEW = ("gibbs", "ais", "joint")


def normal(x: np.ndarray) -> tuple[float, np.ndarray]:
    """A function that workers can import."""
    return -0.5 * float(x @ x), -x


def forks() -> Any:
    """Worker processes that start quickly: forked from one that has imported the package."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["stanct.api.model"])
    return context


def pool(workers: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(workers, mp_context=forks())


def draws(method: str, target: Any, **settings: Any) -> Run:
    return METHODS[method](target, base=BASE, seed=5, progress=False, **settings)


def assert_same(one: Run | Bracket, other: Run | Bracket) -> None:
    """Bit for bit, in draws, weights and what follows from them."""
    if isinstance(one, Bracket) and isinstance(other, Bracket):
        assert np.array_equal(one.reverse_log_weights, other.reverse_log_weights)
        assert np.array_equal(one.reverse_counts, other.reverse_counts)
        one, other = one.forward, other.forward
    assert isinstance(one, Run) and isinstance(other, Run)
    assert type(one) is type(other)
    for name in one.arrays:
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    for name, values in one.variables.items():
        assert np.array_equal(values, other.variables[name]), name
    assert one.gradients == other.gradients
    if isinstance(one, EvidenceRun) and isinstance(other, EvidenceRun):
        assert one.evidence == other.evidence
    assert one.diagnostics == other.diagnostics


@pytest.fixture(scope="module", autouse=True)
def few_comparisons() -> Iterator[None]:
    """Of these short runs only that by Gibbs is compared with draws in two stages."""

    def noting(run: Any, *rest: Any) -> Any:
        return noting_two_stages(run, *rest) if run.method == "gibbs" else run

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stanct.samplers._job.noting_two_stages", noting)
        yield


@pytest.fixture(scope="module")
def target():
    return target_of(PROGRAM, {"y": 1.5})


@pytest.fixture(scope="module")
def alone(target) -> dict[str, Run]:
    """Every method with one thread."""
    return {method: draws(method, target, threads=1) for method in METHODS}


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with pool(2) as workers:
        yield workers


@pytest.mark.parametrize("method", METHODS)
def test_processes_draw_what_a_thread_draws(
    method: str, target, alone: dict[str, Run], processes: ProcessPoolExecutor
) -> None:
    assert_same(draws(method, target, executor=processes), alone[method])


@LONG
def test_the_base_is_fitted_by_a_worker(target, processes: ProcessPoolExecutor) -> None:
    """Search, pilots and particles too: the base is the same, and so is all that follows."""

    class Counted(ThreadPoolExecutor):
        names: ClassVar[list[str]] = []

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
            called = args[0] if fn is with_one_blas_thread else fn
            self.names.append(getattr(getattr(called, "func", called), "__name__", ""))
            return super().submit(fn, *args, **kwargs)

    settings: Any = {"draws": 130, "warmup": 150, "seed": 5, "progress": False}
    one = sampled("auto", target, threads=1, **settings)
    with Counted(2) as threads:
        assert_same(sampled("auto", target, executor=threads, **settings), one)
    assert "fit_base" in Counted.names
    assert_same(sampled("auto", target, executor=processes, **settings), one)


def test_every_method_is_tried() -> None:
    assert {*METHODS} - {"smc"} == {*KINDS}


@pytest.mark.parametrize(
    "executor",
    [
        pytest.param("processes:1", marks=LONG),
        pytest.param("processes:4", marks=LONG),
        pytest.param("threads:2", marks=LONG),
        "threads:5",
    ],
)
def test_any_number_of_workers_draws_what_one_thread_draws(
    executor: str, target, alone: dict[str, Run]
) -> None:
    with opened(executor) as workers:
        for method, one in alone.items():
            assert_same(draws(method, target, executor=workers), one)
    assert_same(draws("ais", target, executor=executor), alone["ais"])


@LONG
@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_draws_what_one_thread_draws(target, alone: dict[str, Run]) -> None:
    """Also where a worker is killed, whose tasks Dask gives to the others."""
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
        for method in FEW:
            kills = Killing(client, client.get_executor(), after=9)
            assert_same(draws(method, target, executor=kills), alone[method])
            assert kills.left < 0


class Killing(Executor):
    """Dask's executor, one of whose workers is killed when a number of tasks was submitted."""

    def __init__(self, client: Any, executor: Executor, after: int) -> None:
        self.client, self.executor, self.left = client, executor, after

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left == 0:
            pids = self.client.run(os.getpid)
            os.kill(next(iter(pids.values())), signal.SIGKILL)
        return self.executor.submit(fn, *args, **kwargs)


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
    with pytest.raises(SamplingError, match=r"no executor 'proceses:2'\. Write 'processes:4'"):
        draws("ais", target, executor="proceses:2")
    with pytest.raises(SamplingError, match=r"cannot run CmdStan.*Leave out engine="):
        sampled("joint", target, executor="threads:2", engine="cmdstan")
    pytest.importorskip("distributed", reason="needs the extra `dask`")
    with pytest.raises(SamplingError, match=r"no Dask scheduler at 'nowhere'"):
        draws("ais", target, executor="dask:nowhere")


class Mortal(Executor):
    """Two worker processes, one of which is killed when a given number of blocks was submitted.

    With `seen`, the pool knows of it before the next block is submitted.
    """

    def __init__(self, fatal: int, *, seen: bool = False) -> None:
        self.pool = pool(2)
        self.left, self.seen = fatal, seen

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.left -= 1
        if self.left == 0:
            os.kill(next(iter(self.pool._processes)), signal.SIGKILL)
            while self.seen and not self.pool._broken:
                time.sleep(0.01)
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


@LONG
@pytest.mark.parametrize("method", ["joint", "pseudo_extended"])
def test_nuts_keeps_the_draws_that_were_finished_before_a_loss(
    method: str, target, alone: dict[str, Run], tmp_path
) -> None:
    # One probe, a round of 4 warm-ups and of blocks of 50 draws, 4 warm-ups, and two blocks, the
    # second of which may end in all chains before the loss is noticed.
    blocks = {"joint": 16, "pseudo_extended": 10}[method]
    whole = alone[method]
    with pytest.warns(ExecutorWarning, match="during 'draws'.*keeps the draws"):
        done = draws(method, target, executor=Mortal(1 + 4 + 4 * blocks + 4 + 8 + 2, seen=True))
    assert done.provenance["interrupted"] and done.draws in (50, 100)
    assert np.array_equal(done.z, whole.z[:, : done.draws])
    with pytest.raises(LostExecutorError, match=r"during 'draws'.*in the checkpoint"):
        draws(method, target, executor=Mortal(1 + 4 + 4 + 2, seen=True), checkpoint=tmp_path)
    with ThreadPoolExecutor(2) as threads:
        assert_same(draws(method, target, executor=threads, checkpoint=tmp_path), whole)


@LONG
def test_auto_keeps_its_first_run_when_the_second_loses_its_workers(target) -> None:
    settings: dict[str, Any] = {"chains": 2, "draws": 60, "warmup": 150, "progress": False}
    settings["base"] = recipe().without("given")
    # Without draws in two stages, checks of the first run fail for every other seed or so.
    firsts = (
        sampled("auto", target, max_gradients=0, **settings) for settings["seed"] in range(1, 20)
    )
    first = next(run for run in firsts if run.warnings)
    counting = Mortal(-1)
    assert_same(sampled("auto", target, max_gradients=0, executor=counting, **settings), first)
    with pytest.warns(ExecutorWarning, match="keeps the draws"):
        kept = sampled("auto", target, executor=Mortal(-counting.left + 1), **settings)
    assert kept.provenance["interrupted"]
    assert len(kept.provenance["steps"]) == len(first.provenance["steps"])
    assert np.array_equal(kept.z, first.z)


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
        with pytest.raises(ZeroDivisionError, match="as it is"):
            run.blocks("fail", fail, [[1]], [1])
        with pytest.raises(CheckpointError, match="as it is"):
            run.blocks("fail", fail, [[1]], [2], final=True)

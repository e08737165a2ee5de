"""`target_se` in ladders, particles, trajectories, copies and powers: reached, limited, resumed."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import SEED, target_of
from sampled import KINDS, sampled
from targets import SKEWED
from test_execution import assert_same, pool

import stanct
from stanct.common.errors import LostExecutorError, SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.verdicts import KINDS as OF_CHECKS
from stanct.runs.verdicts import check
from stanct.samplers import METHODS
from stanct.samplers._looks import until_precise
from stanct.samplers._precision import Precision
from stanct.work.workers import ExecutorWarning

BASE = GaussianBase(np.array([-0.7]), np.array([[1.5]]))
# The method, its settings, and an error that takes several looks.
CASES: dict[str, tuple[str, dict[str, Any], float]] = {
    "parallel_tempering": ("parallel_tempering", {"warmup": 100}, 0.015),
    "ais": ("ais", {"temperatures": 40}, 0.02),
    "smc": ("ais", {"temperatures": 40, "resample": True}, 0.014),
    "adiabatic": ("adiabatic", {}, 0.018),
    "pseudo_extended": ("pseudo_extended", {"bootstrap": 0, "engine": "embedded"}, 0.012),
    "power_posterior": ("power_posterior", {"rungs": 5, "warmup": 150}, 0.025),
}
AIMED = pytest.mark.parametrize("case", CASES)


def run(case: str, **options: Any) -> EvidenceRun:
    method, settings, aim = CASES[case]
    given = {"target_se": aim, "base": BASE, "seed": SEED, "progress": False}
    return sampled(
        method, target_of(SKEWED.source, SKEWED.data), **{**given, **settings, **options}
    )


@pytest.fixture(scope="module")
def whole() -> dict[str, EvidenceRun]:
    return {case: run(case) for case in CASES}


def check_of(run: EvidenceRun) -> Any:
    (found,) = [check for check in run.diagnostics if check.name == "target_se"]
    return found


@AIMED
def test_the_error_is_reached(case: str, whole: dict[str, EvidenceRun]) -> None:
    done, aim = whole[case], CASES[case][2]
    told = done.provenance["stopping"]
    assert told["reason"] == "reached" and check_of(done).passed
    # A further pass makes half as many draws again.
    assert (0.4 if case == "power_posterior" else 0.6) * aim < done.evidence.std_error <= aim
    assert abs(done.evidence.log_z - SKEWED.log_z) < 4 * done.evidence.std_error
    looks = told["looks"]
    assert len(looks) >= 3, "the error must be small at two looks, and was not at the first"
    assert [error <= aim for _, error in looks[-2:]] == [True, True]
    assert max(error for _, error in looks[:-2]) > aim
    assert looks[-1] == [done.draws, done.evidence.std_error]
    assert "interrupted" not in {check.name for check in done.diagnostics}


@AIMED
def test_draws_before_the_first_look_are_those_of_a_fixed_run(
    case: str, whole: dict[str, EvidenceRun]
) -> None:
    """What is asked for changes how many draws there are, and none of them."""
    first = whole[case].provenance["stopping"]["looks"][0][0]
    short = run(case, target_se=None, draws=first)
    assert short.draws == first and short.provenance["stopping"]["reason"] == "draws"
    assert np.array_equal(short.z, whole[case].z[:, :first])


@AIMED
def test_the_limit_is_told(case: str) -> None:
    done = run(case, target_se=1e-4, max_draws=96)
    assert done.draws == 96 and not check_of(done).passed
    words = "wanted 0.0001, after 96 draws a chain: these are the most allowed"
    assert words in check_of(done).message


class _Stopped(Precision):
    """A stopping rule that is interrupted at its second look."""

    def more(self, *arguments: Any, **given: Any) -> int:
        if self.looks:
            raise KeyboardInterrupt
        return super().more(*arguments, **given)


@AIMED
def test_a_run_that_was_stopped_between_looks_goes_on(
    case: str, whole: dict[str, EvidenceRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("stanct.samplers._job.Precision", _Stopped)
        early = run(case, checkpoint=tmp_path)
    assert early.provenance["interrupted"] and 0 < early.draws < whole[case].draws
    assert early.provenance["stopping"]["reason"] == "interrupted"
    assert_same(run(case, checkpoint=tmp_path), whole[case])
    # Everything is in the checkpoint now, and a run without time to sample returns it. Looks at
    # copies need draws of the base, which heed the deadline.
    if case != "pseudo_extended":
        assert_same(run(case, checkpoint=tmp_path, max_seconds=0), whole[case])


@pytest.fixture(scope="module")
def processes() -> Iterator[ProcessPoolExecutor]:
    with pool(2) as workers:
        yield workers


@AIMED
def test_other_processes_make_the_same_looks(
    case: str, whole: dict[str, EvidenceRun], processes: ProcessPoolExecutor
) -> None:
    assert_same(run(case, executor=processes), whole[case])


@pytest.mark.parametrize("case", ["ais", "parallel_tempering"])
def test_a_run_can_be_extended(case: str, whole: dict[str, EvidenceRun]) -> None:
    longer = whole[case].extend(64, target=target_of(SKEWED.source, SKEWED.data), progress=False)
    assert longer.draws == whole[case].draws + 64 and longer.provenance["stopping"] is None
    assert {"interrupted", "target_se"}.isdisjoint(longer.warnings)


def test_every_method_with_an_evidence_can_aim() -> None:
    assert {name for name, kind in METHODS.items() if not kind.aims} == {"tact"}
    assert {name for name in KINDS if not KINDS[name].aims} == {"tact", "bidirectional"}


@pytest.mark.parametrize("method", ["tact", "bidirectional"])
def test_a_method_that_cannot_says_so_before_any_work(method: str) -> None:
    def never(_x: np.ndarray) -> tuple[float, np.ndarray]:
        raise AssertionError("some work was done")

    exact = {"exact": np.zeros(1)} if method == "bidirectional" else {}
    target = stanct.FunctionTarget(stanct.FunctionDensity(never, 1))
    with pytest.raises(SamplingError, match=r"cannot stop at target_se.*'parallel_tempering'"):
        sampled(method, target, target_se=0.1, **exact)


def test_particles_come_in_islands(whole: dict[str, EvidenceRun]) -> None:
    assert whole["ais"].draws % 32 == 0 == whole["smc"].draws % 32
    assert run("ais", target_se=1e-4, max_draws=100).draws == 96
    with pytest.raises(SamplingError, match=r"two or more islands of 32.*max_draws=32\?"):
        run("ais", max_draws=20)
    with pytest.raises(SamplingError, match=r"two or more islands of 32.*max_draws=64\?"):
        run("ais", max_draws=63, chains=1, draws=64)


def looked(make: Any, *, aim: float | None = 0.1, names: tuple[str, ...] = ()) -> tuple[bool, str]:
    """Looks at a run whose error is 2/√n, and why they ended."""
    sealed: list[bool] = []
    bar: Any = SimpleNamespace(expect=lambda total: None, note=lambda text: None)
    made: list[int] = []

    def draft(*_: Any) -> Any:
        evidence = SimpleNamespace(log_z=0.0, std_error=2 / np.sqrt(sum(made)))
        failed = [check(name, 0, 0, False, "", "") for name in names]
        return SimpleNamespace(bare_evidence=evidence, diagnostics=failed)

    def step(draws: int, bar: Any) -> bool:
        early = make(len(made))
        made.append(draws)
        return early

    precision = Precision(aim, 500, 2000)
    job: Any = SimpleNamespace(
        chains=1,
        execution=SimpleNamespace(seal=lambda: sealed.append(True)),
        bar=lambda *_, **options: nullcontext(bar),
        draft=draft,
        lap=lambda stage: None,
    )
    _, early = until_precise(job, precision, step, EvidenceRun, dict, "draws")
    return early, precision.reason + " sealed" * len(sealed)


def lost(number: int) -> bool:
    if number:
        raise LostExecutorError("A worker was killed.")
    return False


def interrupted(number: int) -> bool:
    if number == 2:
        raise KeyboardInterrupt
    return False


def test_what_ends_looks() -> None:
    assert looked(lambda number: False) == (False, "reached")
    assert looked(lambda number: False, aim=None) == (False, "draws")
    assert looked(lambda number: number == 1) == (True, "interrupted")
    assert looked(interrupted) == (True, "interrupted sealed")
    with pytest.warns(ExecutorWarning, match="keeps the draws that were finished"):
        assert looked(lost) == (True, "interrupted sealed")
    with pytest.raises(KeyboardInterrupt):
        looked(lambda number: interrupted(2))
    # A small error is not believed while a check of mixing fails, and the swaps do not matter.
    assert looked(lambda number: False, names=("r_hat",)) == (False, "warnings")
    assert looked(lambda number: False, names=("swaps",)) == (False, "reached")
    assert OF_CHECKS["swaps"].mended_by == "run"

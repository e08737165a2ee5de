"""Error bars against actual errors; `examples/calibration` is the long form."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from sampled import sampled
from targets import LINE, SKEWED, Exact

REPEATS = 30


@LONG
@pytest.mark.parametrize("exact", [LINE, SKEWED], ids=["line", "skewed"])
def test_errors_of_log_z_and_of_a_mean_are_calibrated(exact: Exact, seed: int) -> None:
    """Coverage of 1.96 standard errors, and that they are not merely wide.

    With a true coverage of 95 % fewer than 25 of 30 happens once in 300; errors twice too small
    cover 67 %, twice too wide give scores of root mean square 0.5.
    """
    target = target_of(exact.source, exact.data)
    options = {"draws": 100, "warmup": 150, "base": "laplace", "engine": "embedded"}
    name, mean = next(iter(exact.means.items()))
    scores = []
    for child in np.random.SeedSequence(seed).generate_state(REPEATS):
        run = sampled("joint", target, **options, seed=int(child), progress=False)
        # A run of so few draws may have no round trip, and then says no number.
        evidence = run.bare_evidence
        log_z = (evidence.log_z - exact.log_z) / evidence.std_error
        found = run.expect(name)
        scores.append([log_z, np.ravel((found.value - mean) / found.std_error)[0]])
    z = np.abs(scores)
    assert np.all((z < 1.96).sum(axis=0) >= 25), z
    rms = np.sqrt(np.square(z).mean(axis=0))
    assert np.all((rms > 0.55) & (rms < 1.4)), rms


# ------------------------------------------------------------------------- the command


@pytest.fixture(scope="module")
def command() -> Iterator[ModuleType]:
    """`run.py` of the example, with its modules `scoring` and `plants`."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "calibration")
        # Other examples have a module of that name too.
        patch.delitem(sys.modules, "run", raising=False)
        yield importlib.import_module("run")
    sys.modules.pop("run", None)


def made_up(
    command: ModuleType, rng: np.random.Generator, family: str, runs: int = 8, **changes: Any
) -> list[Any]:
    """Rows of a calibrated method: every error is a draw of its standard error."""
    rows = []
    for seed in range(runs):
        log_z_se, mean_se = rng.uniform(0.005, 0.05, 2)
        row = {
            "log_z_error": log_z_se * rng.normal(),
            "log_z_se": log_z_se,
            "mean_error": mean_se * rng.normal(),
            "mean_se": mean_se,
        }
        rows.append(command.Row(family, "default", seed, **{**row, **changes}))
    return rows


FAMILIES = [f"family {k}" for k in range(16)]


def test_calibrated_rows_pass(command: ModuleType, rng: np.random.Generator) -> None:
    """At most one of a hundred tables has a suspect family: 16 families, two quantities, 10⁻⁴."""
    limits = command.Limits(least=0.9, silent=0.03)
    verdicts = []
    for _ in range(100):
        rows = [row for name in FAMILIES for row in made_up(command, rng, name)]
        verdicts.append(command.scoring.verdict(rows, limits))
    assert sum(not v.passed for v in verdicts) <= 2
    assert verdicts[0].lines[0].startswith("default: 128 of 128 runs, 100% without a warning")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"log_z_error": 0.1}, "errors of log Z exceed"),
        ({"mean_error": -0.4}, "errors of the mean exceed"),
        ({"warnings": "split_rhat"}, "8 of 8 runs warn"),
        ({"failed": "EngineError: no base"}, "8 runs failed"),
        ({"log_z_error": 1.0, "log_z_se": 0.0}, "errors of log Z exceed"),
    ],
    ids=["estimator", "kernel", "base", "failure", "no_error"],
)
def test_a_fault_is_found_in_its_family(
    command: ModuleType, rng: np.random.Generator, changes: dict[str, Any], words: str
) -> None:
    rows = [row for name in FAMILIES for row in made_up(command, rng, name)]
    bad = made_up(command, rng, "planted", **changes)
    found = command.scoring.verdict([*rows, *bad], command.Limits(least=0.8, silent=0.2))
    assert not found.passed
    assert [line.split(":")[0].strip() for line in found.lines[1:]] == ["planted"], found.lines
    assert words in found.lines[1]


@pytest.mark.parametrize(
    ("runs", "missed", "error", "passed"),
    [(16, 1, 50.0, True), (16, 6, 50.0, False), (100, 14, 2.5, True), (100, 16, 2.5, False)],
)
def test_one_miss_condemns_no_family_and_many_do(
    command: ModuleType, runs: int, missed: int, error: float, passed: bool
) -> None:
    """In a family of 100 runs, 85 must be within; of 16, six cannot be off by chance."""
    rows = [
        command.Row("a", "default", k, error if k < missed else 0.9, 1.0, 0.5, 1.0)
        for k in range(runs)
    ]
    assert command.scoring.verdict(rows, command.Limits(least=0.6, silent=1.0)).passed == passed


def test_a_spike_that_a_run_cannot_see_is_told_apart(
    command: ModuleType, rng: np.random.Generator
) -> None:
    rows = made_up(command, rng, "a", 20)
    beyond = made_up(command, rng, "a", 5, log_z_error=1.0, beyond=1)
    found = command.scoring.verdict([*rows, *beyond], command.Limits(least=0.8, silent=0.1))
    assert found.passed and "5 of them are silently off" in found.lines[1]
    (score,) = command.scoring.scores_of([*rows, *beyond], 0.85)
    assert (score.runs, score.beyond, score.silent) == (20, 5, 0)


def test_an_error_behind_a_warning_is_not_silent(
    command: ModuleType, rng: np.random.Generator
) -> None:
    (quiet,) = made_up(command, rng, "a", 1, mean_error=5.0)
    (warned,) = made_up(command, rng, "a", 1, mean_error=5.0, warnings="pareto_k")
    assert quiet.silent and not warned.silent
    score = command.scoring.score([quiet, warned], 0.85)
    assert (score.silent, score.warned, score.mean_within) == (1, 0.5, 0.0)


def test_rows_are_read_back_and_a_cut_line_is_left_out(
    command: ModuleType, rng: np.random.Generator, tmp_path: Path
) -> None:
    rows, file = made_up(command, rng, "a", 3), tmp_path / "runs.csv"
    with command.scoring.appending(file) as add:
        add(rows[0])
        add(rows[1])
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole + "a,default,2,0.0", encoding="utf-8")  # killed while it wrote
    assert command.scoring.read_rows(file) == rows[:2]
    with command.scoring.appending(file) as add:
        add(rows[2])
    assert command.scoring.read_rows(file) == rows
    table = command.scoring.as_markdown(command.scoring.scores_of(rows, 0.85)).splitlines()
    assert len(table) == 3 and len({line.count("|") for line in table}) == 1


@LONG
def test_the_command_goes_on_where_it_was_stopped(
    command: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second call repeats no run and takes its seeds from the file.

    Whether one or two runs cover is not what is asked here.
    """
    arguments = ["--quick", "--least", "0", "--families", "rates"]
    arguments += ["--out", str(tmp_path / "runs.csv")]
    assert command.calibrate(command.parsed([*arguments, "--repeats", "1", "--first", "8"]))
    (first,) = command.scoring.read_rows(tmp_path / "runs.csv")
    assert command.calibrate(command.parsed([*arguments, "--repeats", "2"]))
    again, second = command.scoring.read_rows(tmp_path / "runs.csv")
    assert again == first and (first.seed, second.seed) == (8, 9)
    assert "default (quick): 2 of 2 runs" in capsys.readouterr().out


@LONG
@pytest.mark.parametrize(
    ("plant", "family", "repeats"),
    [("estimator", "regression", 2), ("base", "regression", 3), ("kernel", "mixture", 3)],
)
def test_a_planted_fault_is_found(
    command: ModuleType,
    capsys: pytest.CaptureFixture[str],
    plant: str,
    family: str,
    repeats: int,
) -> None:
    arguments = ["--quick", "--calm", "0.85", "--repeats", str(repeats), "--first", "1"]
    chosen = command.parsed([*arguments, "--plant", plant, "--families", family])
    assert not command.calibrate(chosen)
    out = capsys.readouterr().out
    assert f"\n  {family}: " in out and "FAILED" in out

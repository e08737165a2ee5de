"""Sweeps over folders: the cases, the verdicts, and that no program ends a sweep."""

from __future__ import annotations

import csv
import json
import os
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

import cost
import log_probs
import numpy as np
import pytest
from conftest import LONG
from sweep import Case, Verdict, examine, find_cases, journal, main, report, sweep
from worker import NoAnswerError, Worker

from stanct.common.errors import StanctError
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Recipe
from stanct.engines.homes import Home
from stanct.targets.program_target import ProgramTarget

NORMAL = "data { int N; vector[N] y; }\nparameters { real m; }\nmodel { y ~ normal(m, 1); }\n"
PROGRAMS = {
    "good/normal.stan": NORMAL,
    "good/prior.stan": "parameters { real<lower=0> s; }\nmodel { s ~ exponential(1); }\n",
    "empty.stan": "model { }\n",
    "wrong.stan": "parameters { real x; }\nmodel { x ~ normol(0, 1); }\n",
    "lost.stan": "#include nowhere.stan\nparameters { real x; }\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in PROGRAMS.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / "good" / "normal.data.json").write_text('{"N": 2, "y": [0.5, 1]}')
    return tmp_path


def outcomes(verdicts: list[Verdict]) -> dict[tuple[str, str], str]:
    return {(verdict.case, verdict.kind): verdict.outcome for verdict in verdicts}


def test_every_program_gets_its_verdict(folder: Path) -> None:
    kinds = ("density", "prior_likelihood")
    verdicts = [v for case in find_cases(folder) for v in examine(case, kinds)]
    assert outcomes(verdicts) == {
        ("empty.stan", "density"): "refused",
        ("empty.stan", "prior_likelihood"): "refused",
        ("good/normal.stan", "density"): "transformed",
        ("good/normal.stan", "prior_likelihood"): "refused",
        ("good/prior.stan", "density"): "transformed",
        ("good/prior.stan", "prior_likelihood"): "refused",
        ("lost.stan", ""): "rejected",
        ("wrong.stan", ""): "rejected",
    }
    text = report(verdicts)
    assert "5 cases: 2 to transform, 1 that stanc rejects" in text
    assert "1 with an include that is not there, 1 without parameters." in text
    assert "refused, prior_likelihood, 1 for no likelihood: good/prior.stan" in text


def test_programs_with_data_are_compared(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A program takes the first data that have all of its variables."""
    names = [case.name for case in find_cases(folder, with_data=True)]
    assert names == ["good/normal.stan", "good/prior.stan"]
    out = folder / "verdicts.csv"
    assert main([str(folder), "--data", "--kind", "joint", "--out", str(out)]) == 0
    assert "equal" in capfd.readouterr().out
    assert "good/normal.stan,joint,equal" in out.read_text()


def test_verdicts_are_written_as_they_come(tmp_path: Path) -> None:
    path = tmp_path / "verdicts.csv"
    verdicts = [Verdict("a.stan", "joint", "failed", "crash", 'with "quotes", and\ntwo lines')]
    written = journal([*verdicts, Verdict("b.stan", "joint", "transformed")], path)
    assert next(written) == verdicts[0]
    with path.open(encoding="utf-8", newline="") as file:
        assert [Verdict(**row) for row in csv.DictReader(file)] == verdicts
    with pytest.raises(StanctError, match="cannot be written"):
        next(journal(verdicts, tmp_path / "no" / "folder.csv"))


def test_a_fault_is_listed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case, _ = find_cases(folder, with_data=True)
    honest = ProgramTarget.code
    monkeypatch.setattr(
        ProgramTarget, "code", lambda self, kind: honest(self, kind).replace("y | m, 1", "y | m, 2")
    )
    (verdict,) = examine(case, ["density"])
    assert (verdict.outcome, verdict.reason) == ("differs", "not its formula")
    assert "differs, density, 1 for not its formula: good/normal.stan\n  good" in report([verdict])


def test_posteriordb_is_known_by_its_posteriors(tmp_path: Path) -> None:
    root = tmp_path / "posterior_database"
    for name in ("posteriors", "models/stan", "data/data"):
        (root / name).mkdir(parents=True)
    (root / "models/stan/normal.stan").write_text(NORMAL)
    (root / "posteriors/two-normal.json").write_text(
        json.dumps({"model_name": "normal", "data_name": "two"})
    )
    with zipfile.ZipFile(root / "data/data/two.json.zip", "w") as archive:
        archive.writestr("two.json", '{"N": 2, "y": [0.5, 1]}')
    (case,) = find_cases(tmp_path, with_data=True)
    assert case.name == "two-normal"
    (verdict,) = examine(case, ["density"])
    assert verdict.outcome == "equal"
    measured = cost.measure(case, copies=2)
    assert isinstance(measured, cost.Cost)
    assert measured.dimension == 1
    assert 0.02 < measured.original < 2000
    assert 0.1 < measured.joint < 50
    assert "1 measured" in cost.report([measured], copies=2)


def test_a_gradient_that_ends_half_way_is_not_timed(tmp_path: Path) -> None:
    program = tmp_path / "nowhere.stan"
    program.write_text(
        "data { real y; } parameters { real x; } model { x ~ normal(y, 1); reject(x); }"
    )
    (tmp_path / "nowhere.data.json").write_text('{"y": 0.5}')
    (case,) = find_cases(tmp_path, with_data=True)
    measured = cost.measure(case, copies=2)
    assert isinstance(measured, str) and "not finite" in measured


@dataclass(frozen=True)
class Clockwork:
    """An engine whose programs take known times: a start, and a time for each step."""

    optimise: bool = True

    def compiled(self, source: str) -> None:
        assert "parameters" in source

    def trajectory_seconds(self, recipe: Recipe, steps: int) -> float:
        # Only what was generated is optimised.
        assert self.optimise == ("Generated" in recipe.source)
        kinds = {"Pseudo-extended": 4.4e-4, "Joint": 1.2e-4, "Generated": 0.9e-4, "": 1e-4}
        return 0.5 + steps * next(time for kind, time in kinds.items() if kind in recipe.source)


def test_compiled_programs_are_timed_by_the_length_of_their_trajectories(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "trajectory_seconds", Clockwork.trajectory_seconds)
    (tmp_path / "normal.stan").write_text(NORMAL)
    (tmp_path / "normal.data.json").write_text('{"N": 2, "y": [0.5, 1]}')
    (case,) = find_cases(tmp_path, with_data=True)
    measured = cost.measure(case, copies=4, engine=cast(CmdStan, Clockwork()))
    assert isinstance(measured, cost.Cost)
    assert measured.original == pytest.approx(100)
    assert [measured.density, measured.joint, measured.pseudo_extended] == pytest.approx(
        [0.9, 1.2, 1.1]
    )


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StanctError, match="holds no Stan programs with data"):
        find_cases(tmp_path, with_data=True)


def answer(request: str) -> str:
    if request == "crash":
        os.abort()
    if request == "sleep":
        time.sleep(60)
    return request.upper()


@LONG
def test_a_worker_outlives_crashes_and_endless_loops() -> None:
    with Worker(answer, seconds=2) as worker:
        assert worker("one") == "ONE"
        with pytest.raises(NoAnswerError) as crash:
            worker("crash")
        assert crash.value.reason == "crash"
        assert worker("two") == "TWO"
        with pytest.raises(NoAnswerError, match="No answer within 2 s"):
            worker("sleep")


@LONG
def test_a_comparison_without_end_still_says_what_became_of_the_program(tmp_path: Path) -> None:
    """A loop that the data make endless is no fault of the transformation."""
    path, data = tmp_path / "slow.stan", tmp_path / "slow.data.json"
    path.write_text(
        "data { int N; }\n"
        + NORMAL.split("\n", 1)[1].replace(
            "y ~ normal(m, 1);", "int k = 0; while (k < N) k += 1; m ~ std_normal();"
        )
    )
    data.write_text(json.dumps({"N": 2_000_000_000}))
    (verdict,) = sweep([Case("slow", path, data)], ["joint"], seconds=3)
    assert (verdict.kind, verdict.outcome, verdict.reason) == ("joint", "not compared", "no end")


def test_a_lost_case_is_a_verdict(tmp_path: Path) -> None:
    (verdict,) = examine(Case("gone", tmp_path / "gone.stan"), ["joint"])
    assert verdict.outcome == "rejected"


@LONG
@pytest.mark.cmdstan
def test_log_prob_of_several_programs(folder: Path, cmdstan_home: Home) -> None:
    """One executable has both, and a density with another bias differs."""
    if not cmdstan_home.assembled:
        pytest.skip("an official CmdStan does not tell its objects")
    asked = list(log_probs.all_asked(str(folder), "joint", 4))
    assert [one.name for one in asked] == ["normal", "prior"]
    sources = [one.recipe.source for one in asked]
    made = log_probs.Executable(CmdStan(cmdstan_home), folder, sources)
    for number, one in enumerate(asked):
        value = made.log_prob(number, one)
        assert value.shape == (4,)
        assert log_probs.difference(value, one.wanted) < 1e-9
    data = json.loads(asked[0].recipe.data)
    data["ct_bias"][-1] += 1
    other = replace(asked[0], recipe=replace(asked[0].recipe, data=json.dumps(data)))
    assert log_probs.difference(made.log_prob(0, other), other.wanted) > 1e-3
    data["ct_K"] = 9
    refused = replace(other, recipe=replace(other.recipe, data=json.dumps(data)))
    assert np.isnan(made.log_prob(0, refused)).all()

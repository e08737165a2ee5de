"""`sample_many` and `calibrate`: many data sets under one program."""

from __future__ import annotations

import errno
import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import LONG
from scipy.special import expit
from scipy.stats import multivariate_normal
from test_execution import Mortal

import stanct
from stanct.api import many as many_sets
from stanct.common.errors import CheckpointError, LostExecutorError, SamplingError
from stanct.path.gaussian import GaussianBase
from stanct.work import results
from stanct.work.interrupts import heeding_signals

NORMAL = """data { int N; vector[N] y; }
parameters { real mu; } model { mu ~ normal(0, 1); y ~ normal(mu, 1); }"""
WIDE = NORMAL.replace("normal(0, 1)", "normal(0, 3)")
QUICK: dict[str, Any] = {
    "method": "independence", "base": GaussianBase(np.zeros(1), np.ones((1, 1))), "draws": 250,
    "progress": False, "seed": 5,
}  # fmt: skip


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> stanct.TemperedModel:
    return model_of(NORMAL, tmp_path_factory.mktemp("many") / "normal.stan")


def model_of(source: str, path: Path) -> stanct.TemperedModel:
    path.write_text(source, encoding="utf-8")
    return stanct.temper(path)


def datasets(count: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    return {f"star {k}": {"N": 3, "y": rng.normal(size=3).tolist()} for k in range(count)}


def exact(y: list[float]) -> float:
    covariance: Any = np.eye(3) + 1
    return float(multivariate_normal.logpdf(y, np.zeros(3), covariance))


def test_evidences_of_many_data_sets(model: stanct.TemperedModel) -> None:
    data = datasets(8)
    found = model.sample_many(data, variables=["mu"], **QUICK)
    table = found.table
    assert list(table.index) == list(data) and found.complete and len(found.reliable) >= 7
    error = table["log_z"] - [exact(one["y"]) for one in data.values()]
    assert np.all(np.abs(error) < 4 * table["std_error"]) and np.all(table["std_error"] < 0.1)
    means = np.array([sum(one["y"]) / 4 for one in data.values()])
    assert np.all(np.abs(table["mean_mu"] - means) < 4 * table["error_mu"])
    # A data set's result depends on its name alone.
    alone = model.sample_many({"star 5": data["star 5"]}, **QUICK).table
    assert alone["log_z"].iloc[0] == table.loc["star 5", "log_z"]
    page = found.report()
    assert page.count("<svg") == 2
    assert "star 7" in page and "without a failed check" in page and "8 data sets" in repr(found)


@pytest.mark.parametrize("executor", ["threads:2", pytest.param("processes:2", marks=LONG)])
def test_any_executor_gives_the_same_numbers(executor: str, model: stanct.TemperedModel) -> None:
    data = datasets(4)
    here = model.sample_many(data, **QUICK).table
    there = model.sample_many(data, executor=executor, **QUICK).table.loc[here.index]
    assert here["log_z"].tolist() == there["log_z"].tolist()


def test_a_folder_goes_on_where_it_was_stopped(model: stanct.TemperedModel, tmp_path) -> None:
    data = datasets(6)
    whole = model.sample_many(data, **QUICK).table

    def stopped() -> Iterator[Any]:
        yield from list(data.values())[:4]
        raise KeyboardInterrupt

    numbered = dict(enumerate(data.values()))
    with pytest.warns(UserWarning, match="Stopped after 4 data sets. The same call goes on"):
        part = model.sample_many(stopped(), folder=tmp_path / "r", **QUICK)
    assert not part.complete and len(part.table) == 4 and "stopped" in repr(part)
    file = tmp_path / "r" / "results.jsonl"
    with file.open("ab") as stream:
        stream.write(b'{"name": "4", "log')  # a kill in the middle of a line
    before = file.read_bytes().splitlines()[:5]
    # With a fresh seed, the seed of the folder is kept.
    rest = model.sample_many(numbered.values(), folder=tmp_path / "r", **{**QUICK, "seed": None})
    assert rest.complete and rest.seed == 5 and len(rest.table) == 6
    assert file.read_bytes().splitlines()[:5] == before
    assert [json.loads(line)["name"] for line in file.read_bytes().splitlines()[1:]] == [
        str(k) for k in range(6)
    ]
    assert np.abs(rest.table["log_z"].to_numpy() - whole["log_z"].to_numpy()).max() < 0.3
    with pytest.raises(CheckpointError, match=r"with other options: draws=\d+\."):
        model.sample_many(data, folder=tmp_path / "r", **{**QUICK, "draws": 260})
    other = {"0": {"N": 3, "y": [0.0, 0.0, 0.0]}}
    with pytest.raises(CheckpointError, match="other data"):
        model.sample_many(other, folder=tmp_path / "r", **QUICK)


def test_what_fails_is_a_row_and_runs_can_be_kept(model: stanct.TemperedModel, tmp_path) -> None:
    data = {"good": datasets(1)["star 0"], "bad": {"N": 3, "y": [0.0, 1.0]}}
    found = model.sample_many(data, folder=tmp_path, keep_runs=True, **QUICK)
    assert found.table.loc["good", "error"] == "" and "y" in found.table.loc["bad", "error"]
    assert "1 without a result" in repr(found) and "bad" in found.report()
    kept: Any = stanct.load(tmp_path / "runs" / "good")
    assert kept.evidence.log_z == found.table.loc["good", "log_z"]


def test_errors_are_tried_again(model: stanct.TemperedModel, tmp_path: Path) -> None:
    file, folder = tmp_path / "later.json", tmp_path / "results"
    data = {"a": str(file), "b": datasets(1)["star 0"]}
    first = model.sample_many(data, folder=folder, **QUICK).table
    assert "later.json" in first.loc["a", "error"] and first.loc["b", "error"] == ""
    file.write_text(json.dumps(data["b"]), encoding="utf-8")
    second = model.sample_many(data, folder=folder, **QUICK).table
    assert second["error"].tolist() == ["", ""] and second.loc["b"].equals(first.loc["b"])
    assert model.sample_many(data, folder=folder, **QUICK).table.equals(second)
    lines = (folder / "results.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["name"] for line in lines[1:]] == ["a", "b", "a"]


def test_a_folder_may_hold_more_than_is_asked_for(
    model: stanct.TemperedModel, tmp_path: Path
) -> None:
    data = datasets(4)
    whole = model.sample_many(data, folder=tmp_path, **QUICK).table
    some = {name: data[name] for name in ("star 3", "star 1")}
    before = (tmp_path / "results.jsonl").read_bytes()
    found = model.sample_many(some, folder=tmp_path, **QUICK)
    assert found.complete and list(found.table.index) == list(some)
    assert found.table.equals(whole.loc[list(some)])
    assert "2 data sets" in repr(found) and "star 0" not in found.report()
    assert (tmp_path / "results.jsonl").read_bytes() == before


@pytest.mark.parametrize(
    ("number", "line"),
    [(1, b'{"seed": 5'), (3, b'{"name": "star 1", "log'), (4, b"[]"), (4, b"\xff"), (4, b"")],
)
def test_a_damaged_file_is_an_error(
    number: int, line: bytes, model: stanct.TemperedModel, tmp_path: Path
) -> None:
    data = datasets(3)
    whole = model.sample_many(data, folder=tmp_path, **QUICK).table
    file = tmp_path / "results.jsonl"
    lines = file.read_bytes().splitlines()
    lines[number - 1] = line
    file.write_bytes(b"\n".join([*lines, b""]))
    with pytest.raises(CheckpointError, match=r"jsonl is damaged: .*another folder"):
        model.sample_many(data, folder=tmp_path, **QUICK)
    if number > 1:
        del lines[number - 1]
        file.write_bytes(b"\n".join([*lines, b""]))
        again = model.sample_many(data, folder=tmp_path, **QUICK).table
        assert again["log_z"].equals(whole["log_z"])
    file.write_bytes(b'{"program')  # a kill in the middle of the first line
    assert model.sample_many(data, folder=tmp_path, **QUICK).complete


def test_a_call_goes_on_after_a_full_disk(
    model: stanct.TemperedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, file = datasets(2), tmp_path / "results.jsonl"
    written = results._append_line

    def full(file: Path, line: dict[str, Any]) -> None:
        """The disk takes ten more bytes after the first line."""
        if "name" not in line:
            written(file, line)
            return
        with file.open("ab") as stream:
            stream.write(json.dumps(line).encode()[:10])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(CheckpointError, match=r"disk is full: mak"):
        patch.setattr(results, "_append_line", full)
        model.sample_many(data, folder=tmp_path, **QUICK)
    assert model.sample_many(data, folder=tmp_path, **QUICK).complete
    assert all(map(json.loads, file.read_bytes().splitlines()))


def test_rows_are_in_the_order_of_the_data_sets(
    model: stanct.TemperedModel, tmp_path: Path
) -> None:
    class Backwards(ThreadPoolExecutor):
        """Begins with what it was given last."""

        later: ClassVar[list[Any]] = []

        def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
            if not isinstance(fn, many_sets._Task):
                return super().submit(fn, *args, **kwargs)
            future = Future[Any]()
            self.later.append((future, fn))
            if len(self.later) == 3:
                for waiting, work in reversed(self.later):
                    super().submit(lambda f=waiting, w=work: f.set_result(w()))
            return future

    data = datasets(3)
    with Backwards(1) as executor:
        found = model.sample_many(data, executor=executor, folder=tmp_path, **QUICK)
    lines = (tmp_path / "results.jsonl").read_bytes().splitlines()
    assert [json.loads(line)["name"] for line in lines[1:]] == list(data)[::-1]
    assert list(found.table.index) == list(data)
    page = found.report()
    assert page.index("star 0") < page.index("star 2")


@pytest.mark.parametrize("seen", [False, True])
def test_a_killed_worker_leaves_finished_results(
    seen: bool, model: stanct.TemperedModel, tmp_path: Path
) -> None:
    data = datasets(4)
    with pytest.raises(LostExecutorError, match=r"during 'data sets'.*With folder=FOLDER"):
        model.sample_many(data, executor=Mortal(2, seen=seen), **QUICK)
    # One task tells whether workers answer; the third data set is the fourth.
    mortal = Mortal(4, seen=seen)
    with pytest.raises(LostExecutorError, match=r"results are in .*: repeat the call with a new"):
        model.sample_many(data, executor=mortal, folder=tmp_path, **QUICK)
    rest = model.sample_many(data, folder=tmp_path, **QUICK)
    assert rest.complete and list(rest.table.index) == list(data)
    assert rest.table["log_z"].tolist() == model.sample_many(data, **QUICK).table["log_z"].tolist()


def test_bad_calls_are_refused_before_any_work(model: stanct.TemperedModel, tmp_path: Path) -> None:
    data = datasets(1)
    for options, words in (
        ({"draw": 5}, "draws"),
        ({"variables": ["mu", "my"]}, "no variable .my.*Did you mean"),
        ({"checkpoint": "x"}, "no option of the single runs"),
        ({"keep_runs": True}, "needs a folder"),
        ({"seed": -1}, "whole number"),
        ({"executor": 4}, "concurrent.futures.Executor"),
        ({"executor": "process:4"}, "There is no executor 'process:4'"),
        ({"executor": "threads:0"}, "There is no executor"),
        ({"executor": "dask"}, "needs an address"),
    ):
        with pytest.raises(SamplingError, match=words):
            model.sample_many(data, **{**QUICK, **options})
    with pytest.raises(SamplingError, match="cannot have the name"):
        model.sample_many({"../x": data["star 0"]}, **QUICK)
    with pytest.raises(SamplingError, match="200 bytes at most"):
        model.sample_many({"x" * 201: data["star 0"]}, **QUICK)
    for wrong in (None, 3, "data.json", many_sets.Simulated({}, {})):
        with pytest.raises(SamplingError, match="data by name, or a list of data, not "):
            model.sample_many(wrong, **QUICK)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SamplingError, match=r"declares `N` as data.*call model\.sample"):
        model.sample_many(data["star 0"], folder=tmp_path / "none", **QUICK)
    assert not (tmp_path / "none").exists()
    # Data sets may have the names of variables.
    assert list(model.sample_many({"N": data["star 0"]}, **QUICK).table.index) == ["N"]


def test_the_next_run_ends_a_process_that_sigterm_was_sent_to(
    model: stanct.TemperedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call returns what is finished, and would hide from a scheduler that it goes on."""
    whole, calls = many_sets.sample, list[int]()

    def struck(*arguments: Any, **options: Any) -> Any:
        calls.append(1)
        if len(calls) < 2:
            return whole(*arguments, **options)
        with heeding_signals():
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)

    monkeypatch.setattr(many_sets, "sample", struck)
    with pytest.warns(UserWarning, match="Stopped after 1 data sets"):
        found = model.sample_many(datasets(3), **QUICK)
    assert len(found.table) == 1 and len(calls) == 2
    with pytest.raises(SystemExit) as ended, heeding_signals():
        pytest.fail("the process goes on")
    assert ended.value.code == 143


def simulator(sd: float, shift: float = 0.0) -> Any:
    def simulate(rng: np.random.Generator) -> Any:
        mu = sd * rng.normal()
        return {"N": 3, "y": (mu + shift + rng.normal(size=3)).tolist()}, {"mu": mu}

    return simulate


@LONG
def test_right_programs_pass_and_wrong_ones_fail(model: stanct.TemperedModel) -> None:
    quick = {**QUICK, "repeats": 30, "draws": 60}
    right = model.calibrate(simulator(1.0), **quick)
    assert right.passed and len(right.ranks) == 30 and "all passed" in repr(right)
    rank = right.ranks["mu"].to_numpy()
    assert 0 < rank.min() < 0.1 and 0.9 < rank.max() < 1
    wrong = model.calibrate(simulator(3.0), **quick)
    assert not wrong.passed and wrong.tests.loc["spread of the ranks of mu", "p_value"] < 1e-3
    shifted = model.calibrate(simulator(1.0, shift=1.0), **quick)
    assert shifted.tests.loc["rank of mu", "p_value"] < 1e-3
    assert "Tests failed" in wrong.report() and "All tests passed" in right.report()


@LONG
def test_probabilities_of_models_are_calibrated(model: stanct.TemperedModel, tmp_path) -> None:
    """Right simulators agree with the probabilities; one that lies does not."""
    wide = model_of(WIDE, tmp_path / "wide.stan")
    base = GaussianBase(np.zeros(1), 3 * np.ones((1, 1)))
    quick = {**QUICK, "repeats": 30, "draws": 200, "base": base}
    models = {"narrow": (model, simulator(1.0)), "wide": (wide, simulator(3.0))}
    right = stanct.calibrate(models, **quick)
    assert right.passed and right.probabilities.sum(axis=1).to_numpy() == pytest.approx(1)
    assert "slope of the probability of wide" in right.tests.index
    runs = right.runs["narrow"].table, right.runs["wide"].table
    odds = runs[0]["log_z"] - runs[1]["log_z"].reindex(runs[0].index)
    assert right.probabilities["narrow"].to_numpy() == pytest.approx(expit(odds.to_numpy(float)))
    lies = {"narrow": (model, simulator(3.0)), "wide": (wide, simulator(1.0))}
    wrong = stanct.calibrate(lies, **quick)
    assert not wrong.passed
    assert not wrong.tests.loc["slope of the probability of narrow", "passed"]
    level = wrong.tests.loc["level of the probability of narrow"]
    assert level["passed"]  # as many data sets of either kind as the prior says
    with pytest.raises(SamplingError, match="positive number for each"):
        stanct.calibrate(models, prior={"narrow": 1.0}, **quick)
    with pytest.raises(SamplingError, match="failed on data set 0"):
        model.calibrate(lambda rng: 1 / 0, **quick)


Y = {"N": 3, "y": [1.0, 2.0, 3.0]}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (({"mu": 0.1}, Y), r"N, y of the data of .* among the true values.*the data, then"),
        (Y, "no true values, without which one model has no test"),
        ((Y, {}), "no true values"),
        (({"N": 4, "y": [1.0]}, {"mu": 0.1}), r"Data set 0 .*does not suit.*size \[N = 4\]"),
        (({"N": 1, "y": [np.nan]}, {"mu": 0.1}), r"y\[1\]` is NaN"),
        ((Y, {"mew": 0.1}), "There is no variable 'mew'"),
        ((Y, {"mu": [0.1, 0.2]}), r"shape \(2,\), the variable \(\)"),
        ((Y, {"mu": np.nan}), "must be of finite numbers, not nan"),
        ((Y, {"mu": "much"}), "must be of finite numbers, not 'much'"),
    ],
    ids=["swapped", "no truth", "empty", "sizes", "data", "name", "shape", "nan", "text"],
)
def test_a_simulator_is_checked_before_any_run(
    model: stanct.TemperedModel, made: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(many_sets, "sample", lambda *given, **options: pytest.fail("a run"))
    with pytest.raises(SamplingError, match=f"(?s){words}"):
        model.calibrate(lambda rng: made, repeats=3, **QUICK)


def test_a_later_truth_is_checked_too(model: stanct.TemperedModel) -> None:
    """Numbers at once, and shapes and names where the data set has its turn."""
    truths = iter([0.1, 0.2, np.inf])
    with pytest.raises(SamplingError, match=r"Data set 2 of the simulator .*finite numbers"):
        model.calibrate(lambda rng: (Y, {"mu": next(truths)}), repeats=3, **QUICK)
    later = iter([{"mu": 1.5}, {"mew": 0.1}, {"mu": [0.1]}])  # 1.5 is the posterior mean
    found = model.calibrate(lambda rng: (Y, next(later)), repeats=3, **QUICK)
    errors = next(iter(found.runs.values())).table["error"].tolist()
    assert errors[0] == "" and "'mew'" in errors[1] and "shape (1,)" in errors[2]
    assert found.counted == 1 and not found.passed
    assert "on 1 of 3 data sets: 2 tests, too few data sets count" in repr(found)


def test_a_calibration_that_was_stopped_has_not_passed(
    model: stanct.TemperedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []

    def stopping(*given: Any, **options: Any) -> Any:
        if len(done) == 8:
            raise KeyboardInterrupt
        done.append("")
        return sample(*given, **options)

    sample = many_sets.sample
    monkeypatch.setattr(many_sets, "sample", stopping)
    models = {name: (model, simulator(1.0)) for name in ("a", "b")}
    with pytest.warns(UserWarning, match="Stopped after 8 data sets"):
        found = model.calibrate(simulator(1.0), repeats=9, **QUICK)
    assert not found.passed and found.counted == 8 and len(found.made_by) == 9
    page = found.report()
    assert "Too few data sets count" in page and "All tests passed" not in page
    # The second model is not begun, and nothing was tested.
    with pytest.warns(UserWarning, match="Stopped after 0 data sets"):
        found = stanct.calibrate(models, repeats=9, **QUICK)
    assert not found.passed and found.counted == 0 and found.tests.empty
    assert "on 0 of 9 data sets: 0 tests, nothing was tested" in repr(found)
    assert "Nothing was tested" in found.report()

"""Runs: frozen, printable, saved whole without pickle, and handed to ArviZ."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from conftest import SEED, target_of
from sampled import sampled
from targets import LINE

from stanct import load
from stanct.common.errors import SavedRunError, StanctError
from stanct.path.gaussian import GaussianBase
from stanct.runs.tempered import TemperedRun


@pytest.fixture(scope="module")
def run() -> TemperedRun:
    return sampled(
        "joint",
        target_of(LINE.source, LINE.data),
        seed=SEED,
        draws=400,
        warmup=300,
        base=GaussianBase(np.zeros(2), np.eye(2)),
        progress=False,
    )


def test_shapes(run: TemperedRun) -> None:
    assert (run.chains, run.draws) == (4, 400)
    assert run.z.shape == (4, 400, 2) and run.base_delta.shape == (8 * 1600,)
    assert run.variables["b"].shape == (4, 400, 2)
    assert set(run.variables) == {"b", "sum_b"}
    assert run.gradients > 4 * (300 + 400)
    assert np.all((run.beta >= 0) & (run.beta < 1))


def test_frozen(run: TemperedRun) -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        run.method = "other"  # pyright: ignore[reportAttributeAccessIssue]


def test_reprs_fit_three_lines(run: TemperedRun) -> None:
    for thing in (run, run.evidence, run.expect("b"), run.expect("sum_b"), run.curve()):
        assert repr(thing).count("\n") <= 2
    places = max(4, 1 - int(np.floor(np.log10(run.evidence.std_error))))
    assert f"{run.evidence.log_z:.{places}f} ± {run.evidence.std_error:.{places}f}" in repr(run)


def test_expect_a_function(run: TemperedRun) -> None:
    product = run.expect(lambda v: v["b"][..., 0] * v["b"][..., 1])
    assert product.value.shape == ()
    with pytest.raises(StanctError, match="must begin with"):
        run.expect(lambda v: v["b"].mean(axis=0))
    with pytest.raises(StanctError, match=r"no variable .c.\..*b, sum_b"):
        run.expect("c")
    with pytest.raises(StanctError, match="between 0 and 1"):
        run.expect("b", beta=1.5)


def test_summary_against_the_exact_posterior(run: TemperedRun) -> None:
    table = run.summary()
    assert isinstance(table, pd.DataFrame)
    assert list(table.index) == ["b[1]", "b[2]", "sum_b"]
    design = LINE.data["X"] if LINE.data else np.zeros((0, 2))
    sd = np.sqrt(np.diag(np.linalg.inv(np.eye(2) + design.T @ design / 0.25)))
    assert table.loc[["b[1]", "b[2]"], "sd"].to_numpy() == pytest.approx(sd, rel=0.1)
    low = table["mean"] - 1.645 * table["sd"]
    assert table["q5"].to_numpy() == pytest.approx(low.to_numpy(), abs=0.06)
    wide = run.summary(["b"], prob=0.95)
    high = table["mean"] + 1.96 * table["sd"]
    assert wide["q97.5"].to_numpy() == pytest.approx(high.to_numpy()[:2], abs=0.08)
    with pytest.raises(StanctError, match=r"prob=95 .*prob=0\.95"):
        run.summary(prob=95)


def test_resample_has_the_posterior_s_mean(run: TemperedRun) -> None:
    draws = run.resample(400, seed=1)
    assert draws["b"].shape == (4, 400, 2)
    assert draws["b"].mean(axis=(0, 1)) == pytest.approx(LINE.means["b"], abs=0.05)
    base, known = run.resample(400, beta=0.0, seed=1)["b"], run.expect("b", beta=0.0)
    # Resampling adds the noise of 1,600 draws to that of the weighted ones.
    noise = 4 * base.std(axis=(0, 1)) / 40
    assert np.all(np.abs(base.mean(axis=(0, 1)) - known.value) < noise)
    assert np.all(np.abs(known.value - run.base.mean) < 4 * known.std_error)
    assert np.all(known.std_error < 0.25)


def test_arviz(run: TemperedRun) -> None:
    container = run.to_arviz()
    assert container["posterior"]["b"].shape == (4, 100, 2)
    assert np.array_equal(container["tempered"]["b"].values, run.variables["b"])
    weights = container["tempered_stats"]["log_weight"].values
    assert np.array_equal(weights, run.log_weights())
    assert container["sample_stats"]["diverging"].values.dtype == bool
    assert container["sample_stats"]["diverging"].shape == (4, 100)
    posterior = container["posterior"]
    assert float(posterior.attrs["log_z"]) == run.evidence.log_z
    assert run.to_arviz(draws=50)["posterior"]["b"].shape == (4, 50, 2)


def test_save_and_load(run: TemperedRun, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "line"
    run.save(folder)
    names = {path.name for path in folder.iterdir()}
    assert names == {"run.json", "draws.npz", "data.json", "density.stan", "joint.stan"}
    again = load(folder)
    assert isinstance(again, TemperedRun)
    assert again.evidence == run.evidence
    assert again.provenance == json.loads(json.dumps(run.provenance))
    for name, values in run.variables.items():
        assert np.array_equal(again.variables[name], values)
    assert again.programs == run.programs and again.data == run.data
    run.save(folder)  # a run may be replaced
    assert [path.name for path in folder.parent.iterdir()] == ["line"]


def test_a_saved_run_loads_without_pickle_in_another_process(
    run: TemperedRun, tmp_path: Path
) -> None:
    run.save(tmp_path / "line")
    code = "import sys, stanct; print(repr(stanct.load(sys.argv[1]).evidence.log_z))"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "line")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) == run.evidence.log_z


def test_save_refuses_other_folders(run: TemperedRun, tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(SavedRunError, match="not a saved run, so it is not overwritten"):
        run.save(tmp_path)
    assert (tmp_path / "thesis.tex").read_text() == "precious"
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(SavedRunError, match="file"):
        run.save(file / "under")


def test_a_failed_save_leaves_the_old_run(
    run: TemperedRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(tmp_path / "line")

    def full(*_args, **_settings):
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(SavedRunError, match="No space left"):
        run.save(tmp_path / "line")
    assert [path.name for path in tmp_path.iterdir()] == ["line"]
    assert TemperedRun.load(tmp_path / "line").evidence == run.evidence


def test_load_refuses_what_is_not_a_run(run: TemperedRun, tmp_path: Path) -> None:
    with pytest.raises(SavedRunError, match="not a saved run"):
        load(tmp_path)
    run.save(tmp_path / "line")
    (tmp_path / "line" / "draws.npz").write_bytes(b"damage")
    with pytest.raises(SavedRunError, match="damaged"):
        load(tmp_path / "line")

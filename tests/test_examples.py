"""The examples run as their READMEs say, and end near their truths."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT


def run(script: str, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_beta_binomial(tmp_path: Path) -> None:
    """Four powers of the likelihood and the path's own curve: ten z-scores below 4."""
    out = run("beta_binomial/run.py", cwd=tmp_path)
    rows = re.findall(r"^ +[\d.]+ +-[\d.]+ ± ([\d.]+) +-[\d.]+ +([+-][\d.]+)$", out, flags=re.M)
    assert len(rows) == 14
    assert all(float(error) <= 0.05 and abs(float(z)) < 4 for error, z in rows), out


def test_bimodal_draws_its_picture(tmp_path: Path) -> None:
    out = run("bimodal/run.py", "--out", str(tmp_path / "bimodal.png"), cwd=tmp_path)
    assert (tmp_path / "bimodal.png").read_bytes().startswith(b"\x89PNG")
    together = re.search(r"together ([\d.]+) ± ([\d.]+), exact 0.6", out)
    assert together is not None, out
    weight, error = map(float, together.groups())
    assert abs(weight - 0.6) < 4 * error < 0.25


def test_calibration_in_short(tmp_path: Path) -> None:
    out = run("calibration/run.py", "--repeats", "3", "--targets", "gaussian", cwd=tmp_path)
    assert "gaussian" in out and "log Z" in out


def test_exact_radon(tmp_path: Path) -> None:
    out = run("radon/exact.py", cwd=tmp_path)
    assert out.count("-1081.0216") >= 3


def test_tact_in_short(tmp_path: Path) -> None:
    """Even few draws are nearer the truth on the line than those of the ablations."""
    out = run("tact/run.py", "--quick", "--out", str(tmp_path), cwd=tmp_path)
    times = [float(number) for number in re.findall(r"\( *([\d.]+) ×\)", out)]
    assert len(times) == 10 and times[0] == times[4] == times[7] == 1
    assert min(times[1:4]) > 1.5, out
    for name in ("line.png", "plane.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_adiabatic_in_short(tmp_path: Path) -> None:
    """The weighted curve at twenty β, the mean of every method, and the picture of them all."""
    out = run("adiabatic/run.py", "--quick", "--out", str(tmp_path / "five.png"), cwd=tmp_path)
    rows = re.findall(r"^[\d.]+ +-[\d.]+ .*\(([+-][\d.]+) ± ([\d.]+)\)$", out, flags=re.M)
    assert len(rows) == 20
    assert all(abs(float(gap)) < 4 * float(error) < 4 for gap, error in rows), out
    means = dict(re.findall(r"^([a-z, ]+?) +0\.\d+ ± [\d.]+ +([+-][\d.]+) ", out, flags=re.M))
    ladders = {f"tempering, {name}" for name in ("coarse", "fine", "tuned")}
    assert means.keys() == {"annealing", "adiabatic", *ladders}
    assert all(abs(float(z)) < 4 for z in means.values()), out
    assert (tmp_path / "five.png").read_bytes().startswith(b"\x89PNG")


def test_logistic_in_short(tmp_path: Path) -> None:
    """Mini-batches agree with NUTS on all data: twelve z-scores below 4."""
    out = run("logistic/run.py", "--quick", cwd=tmp_path)
    largest = re.search(r"largest \|z\| of 12: ([\d.]+)", out)
    assert largest is not None and float(largest[1]) < 4, out
    errors = [float(number) for number in re.findall(r"± ([\d.]+)", out)]
    assert len(errors) == 24 and max(errors) < 0.02


def test_perceptron_in_short(tmp_path: Path) -> None:
    """On synthetic images, which the output says; the optimisers learn them."""
    out = run("tact_mlp/run.py", "--quick", "--data", str(tmp_path), cwd=tmp_path)
    assert "SYNTHETIC" in out
    learned = re.search(r"^Adam +([\d.]+)", out, flags=re.M)
    assert learned is not None and float(learned[1]) > 30, out
    assert re.search(r"^SGNHT +[\d.]+ ", out, flags=re.M) and "TACT-HMC" in out


def test_perceptron_without_data_says_where_to_get_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(ROOT / "examples" / "tact_mlp")
    images = importlib.import_module("images")
    words = "no .*train-images-idx3-ubyte.gz(.|\n)*apt-get install dataset-fashion-mnist"
    with pytest.raises(SystemExit, match=words):
        images.fashion(tmp_path)

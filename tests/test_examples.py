"""The examples run as their READMEs say, and end near their truths."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

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

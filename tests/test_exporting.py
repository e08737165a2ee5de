"""Exported programs: log Z of their draws by their own scripts, and by the run that they make."""

from __future__ import annotations

import json
import re
import runpy
import sys
from pathlib import Path
from typing import Any

import cmdstanpy
import numpy as np
import pytest
from scipy import integrate, stats

import stanct
from stanct.api.exporting import PAIRS
from stanct.cli.main import main
from stanct.engines.embedded import DrawBlock, Nuts, Recipe, run_nuts
from stanct.targets.density import Density

SOURCE = """
data {
  int N;
  vector[N] y;
}
parameters {
  real mu;
  real<lower=0> tau;
}
model {
  mu ~ normal(0, 3);
  tau ~ exponential(1);
  y ~ normal(mu, tau);
}
"""
Y = np.array([1.2, 0.3, 2.2, 1.9, 0.8, 1.5])
DATA = {"N": 6, "y": Y}
KINDS = sorted(PAIRS)


def density(tau: float) -> float:
    """Joint density of the data and tau: given it, the data are Gaussian with common mean mu."""
    covariance = tau**2 * np.eye(6) + 9
    gaussian: Any = stats.multivariate_normal(np.zeros(6), covariance)  # pyright: ignore
    return float(np.exp(gaussian.logpdf(Y) - tau))


LOG_Z = float(np.log(integrate.quad(density, 0.05, 60, limit=200)[0]))
MEAN_TAU = integrate.quad(lambda t: t * density(t), 0.05, 60, limit=200)[0] / np.exp(LOG_Z)


@pytest.fixture(scope="module", params=KINDS)
def exported(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with the draws of the embedded engine beside it, in files as CmdStan's."""
    folder = tmp_path_factory.mktemp(request.param)
    stanct.temper(SOURCE).export(folder, DATA, request.param, copies=3, seed=1)
    (program,) = folder.glob("*.stan")
    recipe = Recipe(program.read_text(), (folder / "data.json").read_text())
    own = Density(recipe)
    starts = [json.loads((folder / f"inits_{k}.json").read_text()) for k in (1, 2, 3, 4)]
    places = np.array([own.unconstrain(start) for start in starts])
    block, _ = run_nuts(recipe, places, seed=2, warmup=600, draws=2500, nuts=Nuts(0.9))
    (folder / "output").mkdir()
    names, draws = flat(block)
    for chain, rows in enumerate(draws):
        lines = [",".join(f"{value:.17g}" for value in row) for row in rows]
        text = "\n".join([",".join(names), *lines])
        (folder / "output" / f"chain_{chain + 1}.csv").write_text(f"{text}\n")
    return folder


def flat(block: DrawBlock) -> tuple[list[str], np.ndarray]:
    """Names of columns as CmdStan writes them, and draws, shape (chains, draws, columns)."""
    names, columns = list[str](), list[np.ndarray]()
    for name, values in {**block.statistics, **block.variables}.items():
        for place in np.ndindex(values.shape[2:][::-1]):  # the first index is the fastest
            index = place[::-1]
            names.append(".".join([name, *(str(i + 1) for i in index)]))
            columns.append(values[(..., *index)])
    return names, np.stack(columns, axis=-1)


class Fit:
    """What `run.py` asks of the result of cmdstanpy."""

    def __init__(self, files: list[str]) -> None:
        chains = [np.loadtxt(file, delimiter=",", skiprows=1) for file in files]
        self.column_names = tuple(Path(files[0]).read_text().splitlines()[0].split(","))
        self.chains = np.stack(chains, axis=1)

    def draws(self) -> np.ndarray:
        return self.chains


def numbers(text: str) -> tuple[float, float]:
    found = re.search(r"log Z = (\S+), standard error (\S+)", text)
    assert found
    return float(found[1]), float(found[2])


def test_the_script_prints_log_z_and_averages(
    exported: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = sorted(map(str, (exported / "output").glob("*.csv")))
    monkeypatch.setattr(cmdstanpy, "from_csv", Fit)
    monkeypatch.setattr(sys, "argv", ["run.py", *files])
    runpy.run_path(str(exported / "run.py"))
    text = capsys.readouterr().out
    log_z, error = numbers(text)
    assert error < 0.12
    assert log_z == pytest.approx(LOG_Z, abs=4 * error)
    row = next(line.split() for line in text.splitlines() if line.startswith("tau"))
    assert float(row[1]) == pytest.approx(MEAN_TAU, abs=5 * float(row[2]))


def test_the_draws_make_a_run(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stanct.import_run(exported, exported / "output", seed=1)
    assert run.bare_evidence.std_error < 0.12
    assert run.bare_evidence.log_z == pytest.approx(LOG_Z, abs=4 * run.bare_evidence.std_error)
    assert run.engine == "cmdstan"
    tau = run.expect("tau")
    assert abs(tau.value - MEAN_TAU) < 5 * tau.std_error
    assert "log Z" in str(run.report())
    run.save(exported / "saved")
    assert type(run).load(exported / "saved").evidence == run.evidence
    assert main(["import", str(exported), str(exported / "output"), "--json", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["log_z"] == pytest.approx(run.bare_evidence.log_z)

"""The examples run as their READMEs say, and their results are near the exact ones."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from conftest import LONG, ROOT

import stanct
from stanct.engines.homes import Home
from stanct.samplers import METHODS

pytestmark = LONG


def command(script: str, *arguments: str, cwd: Path) -> str:
    """What a script prints that runs in a process of its own."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / script), *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run(script: str, *arguments: str, cwd: Path) -> str:
    """What a script prints that starts no processes: it runs in this one, where all is imported."""
    path, out = ROOT / "examples" / script, io.StringIO()
    neighbours = [file.stem for file in path.parent.glob("*.py")]
    others = {name: sys.modules.pop(name) for name in neighbours if name in sys.modules}
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(out),
        warnings.catch_warnings(),
        np.errstate(),
    ):
        warnings.simplefilter("ignore")
        patch.chdir(cwd)
        patch.syspath_prepend(path.parent)
        patch.setattr(sys, "argv", [str(path), *arguments])
        try:
            runpy.run_path(str(path), run_name="__main__")
        except SystemExit as end:
            assert not end.code, (end.code, out.getvalue())
        finally:
            for name in neighbours:
                sys.modules.pop(name, None)
            sys.modules.update(others)
    return out.getvalue()


def test_the_kernel_benchmark_describes_itself(tmp_path: Path) -> None:
    out = command("benchmark_kernels/run.py", "--help", cwd=tmp_path)
    assert "[model] [data]" in out and "its data as JSON" in out


def test_beta_binomial(tmp_path: Path) -> None:
    """Four powers of the likelihood and ten points of the path have z-scores below 4."""
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
    """Seven families pass, and the file of runs gives the same table in Markdown."""
    arguments = ("--quick", "--repeats", "1", "--first", "1", "--out", "a.csv")
    out = run("calibration/run.py", *arguments, cwd=tmp_path)
    assert "7 of 7 runs" in out and out.endswith("PASSED\n"), out
    table = run("calibration/run.py", "--table", "a.csv", cwd=tmp_path)
    assert table.startswith("| family | method | n |") and table.count("\n") == 9, table


def test_bridge_in_short(tmp_path: Path) -> None:
    """Two fits of two posteriors, without R."""
    arguments = ("--fits", "2", "--only", "poisson", "normal", "--rscript", "")
    out = run("bridge/run.py", *arguments, cwd=tmp_path)
    rows = re.findall(r"^(\w+) +\d+ +(-[\d.]+) +(-[\d.]+) ± ([\d.]+) .* (\d)/2 +(\d)/2", out, re.M)
    assert [row[0] for row in rows] == ["poisson", "normal"]
    for _, exact, found, error, covered, passed in rows:
        assert abs(float(found) - float(exact)) < 4 * float(error) < 0.04
        assert int(covered) >= 1 and passed == "2"


def test_wrong_fits_in_short(tmp_path: Path) -> None:
    """A right fit and one with narrow covariances: the exit status tells of silent errors."""
    out = run("bridge/wrong.py", "--only", "normal", "--fits", "1", cwd=tmp_path)
    assert out.endswith("all {'right': 1, 'wrong': 1}\n")


def test_posteriors_without_an_integral_in_short(tmp_path: Path) -> None:
    names = ("softmax", "Heywood", "logistic, flat", "weibull(0.01) alone")
    out = run("truth/posteriors.py", "--only", *names, cwd=tmp_path)
    assert "improper: 2 of 2 named rightly" in out and "\nproper: 2 of 2 named rightly" in out


def test_sums_over_rows_in_short(tmp_path: Path) -> None:
    folder = str(ROOT / "stan_models")
    out = run("sweep/row_sums.py", folder, "--points", "5", cwd=tmp_path)
    assert "decoder: 5 points, largest difference" in out
    assert "simplex_counts.stan:13:3: No likelihood in this program is a sum over rows" in out
    assert re.search(r"^6 programs by reduce_sum, 0 with another density$", out, re.M), out


@pytest.mark.cmdstan
def test_exports_in_short(
    tmp_path: Path, cmdstan_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """CmdStan runs the script of an export, whose draws make a run without a failed check; the
    same from its folder."""
    monkeypatch.setenv("CMDSTAN", str(cmdstan_home.path))
    arguments = ("--programs", "simplex", "--kinds", "joint")
    out = run("exports/run.py", *arguments, cwd=tmp_path)
    found = re.search(r"^\| simplex \| joint \| -7.4795 \| .* \| right \| .* \|  \|$", out, re.M)
    assert found, out
    assert run("exports/run.py", *arguments, cwd=tmp_path) == out


def test_exports_by_the_engine_in_short(tmp_path: Path) -> None:
    arguments = ("--engine", "embedded", "--programs", "simplex", "--kinds", "joint")
    out = run("exports/run.py", *arguments, cwd=tmp_path)
    assert re.search(r"^\| simplex \| joint \| -7.4795 \| .* \| right", out, re.M), out


@pytest.mark.cmdstan
def test_printed_programs_in_short(
    tmp_path: Path, cmdstan_home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """stanc says nothing against them that it does not say of the user's."""
    monkeypatch.setenv("CMDSTAN", str(cmdstan_home.path))
    kinds = ("--kind", "joint", "--kind", "prior_likelihood")
    out = run("sweep/printed.py", str(ROOT / "examples/eight_schools"), *kinds, cwd=tmp_path)
    assert out == ("2 programs that stanc takes\njoint: 2 programs\nprior_likelihood: 2 programs\n")


def test_peers_in_short(tmp_path: Path) -> None:
    """Two tools that need nothing else: NUTS misses modes, and its error bar says nothing of it."""
    out = command(
        "benchmark_peers/run.py", "--targets", "mixture20", "--peers", "stanct", "NUTS and bridge",
        "--seeds", "1", cwd=tmp_path,
    )  # fmt: skip
    rows = [line.split(" | ") for line in out.splitlines() if line.startswith("| ")][1:]
    ours, nuts = ([float(cell) for cell in row[2:4]] for row in rows)
    assert ours[0] < 4 * ours[1] < 0.1
    assert nuts[0] > 1 > 4 * nuts[1]


def test_planets_in_short(tmp_path: Path) -> None:
    """Quadratures agree with what others published, with stanct, and with draws of the prior."""
    arguments = ("--stars", "K2-24", "2", "--planets", "0", "1", "--tools", "exact")
    out = run("orbits/run.py", *arguments, cwd=tmp_path)
    exact = {
        n: float(log_z) for n, log_z in re.findall(r"^\| (\d) \| exact \|  \| (\S+)", out, re.M)
    }
    assert exact == pytest.approx({"0": -109.600, "1": -107.955}, abs=0.005)
    (published,) = re.findall(r"^\| PUC: variational .*, long \| 1 \| (\S+)", out, re.M)
    assert float(published) < 0.02
    arguments = ("--stars", "K2-24", "--planets", "0", "--tools", "stanct")
    out = run("orbits/run.py", *arguments, cwd=tmp_path)
    found = re.search(r"^\| 0 \| stanct \| 1 \| (\S+) \|  \| (\S+)", out, re.M)
    assert found is not None, out
    assert float(found[1]) == pytest.approx(exact["0"], abs=4 * float(found[2])), out
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "orbits")
        circles = importlib.import_module("circles").Circles
    rng = np.random.default_rng(1)
    for planets in (0, 1):
        star = circles(planets)
        u = rng.uniform(size=(200_000, len(star.names)))
        log_z = np.logaddexp.reduce(star.log_likelihood(star.from_cube(u))) - np.log(len(u))
        assert log_z == pytest.approx(exact[str(planets)], abs=0.3)


def test_the_literature_in_short(tmp_path: Path) -> None:
    """Right answers, none where the density is improper, and rows that are not made again."""
    arguments = ("--targets", "gmm25", "separable2", "--seeds", "1", "--out", "rows.csv")
    out = command("literature/run.py", *arguments, cwd=tmp_path)
    assert re.search(r"^\| gmm25 \| 2 \| 0.0000 \| 1 \| .* \|  \| 0 \|$", out, re.M), out
    assert re.search(r"^\| separable2 \| 2 \|  \| 1 \|  \| .* improper \| 0 \|$", out, re.M), out
    rows = (tmp_path / "rows.csv").read_bytes()
    command("literature/run.py", *arguments, cwd=tmp_path)
    assert (tmp_path / "rows.csv").read_bytes() == rows


def test_arviz_in_short(tmp_path: Path) -> None:
    """What ArviZ finds in a tempered run is what it finds in NUTS, with priors written by hand."""
    arguments = ("--only", "eight schools", "--draws", "1000", "--out", str(tmp_path / "a.png"))
    out = run("arviz/run.py", *arguments, cwd=tmp_path)
    found = re.search(r"largest \|z\| of (\d+): ([\d.]+); chance exceeds ([\d.]+)", out)
    assert found is not None and found[1] == "23", out
    assert float(found[2]) < float(found[3]) < 6, out
    assert re.search(r"loo, hierarchy: elpd +-30\.[5-9]", out), out
    assert (tmp_path / "a.png").read_bytes().startswith(b"\x89PNG")


def test_exact_radon(tmp_path: Path) -> None:
    out = run("radon/exact.py", cwd=tmp_path)
    assert out.count("-1081.0216") >= 3


def test_tact_in_short(tmp_path: Path) -> None:
    """On the line even few draws of TACT-HMC are nearer the truth than those of its ablations."""
    out = run("tact/run.py", "--quick", "--out", str(tmp_path), cwd=tmp_path)
    times = [float(number) for number in re.findall(r"\( *([\d.]+) ×\)", out)]
    assert len(times) == 10 and times[0] == times[4] == times[7] == 1
    assert min(times[1:4]) > 1.5, out
    for name in ("line.png", "plane.png"):
        assert (tmp_path / name).read_bytes().startswith(b"\x89PNG")


def test_adiabatic_in_short(tmp_path: Path) -> None:
    """The weighted curve is right at twenty β, and the mean is right for every method."""
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
    """Mini-batches agree with NUTS on all rows: twelve z-scores are below 4."""
    out = run("logistic/run.py", "--quick", cwd=tmp_path)
    largest = re.search(r"largest \|z\| of 12: ([\d.]+)", out)
    assert largest is not None and float(largest[1]) < 4, out
    errors = [float(number) for number in re.findall(r"± ([\d.]+)", out)]
    assert len(errors) == 24 and max(errors) < 0.02


def test_perceptron_in_short(tmp_path: Path) -> None:
    """The output says that the images are synthetic, and Adam learns them."""
    arguments = ("--quick", "--workers", "1", "--data", str(tmp_path))
    out = command("tact_mlp/run.py", *arguments, cwd=tmp_path)
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


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import an example's `run.py` and its modules, and forget them after the test."""
    names = ("run", "exact", "genes")

    def load(folder: str) -> ModuleType:
        monkeypatch.syspath_prepend(ROOT / "examples" / folder)
        return importlib.import_module("run")

    yield load
    for name in names:
        sys.modules.pop(name, None)


def test_mixture20_in_short(example: Callable[[str], ModuleType]) -> None:
    """The exact moments are the paper's, and few draws of five copies find most of the modes."""
    mixture = example("mixture20")
    exact = {name: mixture.exact_moments(mixture.scenario_data(name)) for name in "ab"}
    np.testing.assert_allclose(exact["a"], [4.478, 4.905, 25.60468, 33.91964], atol=1e-5)
    np.testing.assert_allclose(exact["b"], [4.687614, 5.030235, 25.667715, 31.487669], atol=1e-5)
    outcome = mixture.work(mixture.Job("b", "PE 5", draws=500, warmup=200, seed=1))
    # Three times the paper's errors, scaled to a hundredth of its draws.
    bounds = 3 * np.array([0.04, 0.02, 0.18, 0.36]) * np.sqrt(100)
    assert np.all(np.abs(outcome.moments - exact["b"]) < bounds), outcome.moments
    data = mixture.scenario_data("b")
    away = np.linalg.norm(outcome.points[:, None] - data["centre"], axis=2)
    assert np.sum((away < 2 * data["sigma"]).any(axis=0)) >= 14


def test_mixture20_goes_on_where_it_was_stopped(
    example: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """Runs in the file are not repeated, and they are read back unchanged."""
    mixture = example("mixture20")
    kept = tmp_path / "runs.jsonl"
    jobs = [mixture.Job("a", "HMC", draws=200, warmup=200, seed=seed) for seed in (1, 2)]
    (first,) = mixture.done(jobs[:1], 1, kept)
    with kept.open("a", encoding="utf-8") as file:
        file.write('{"job": {"scenario": "a", "me')  # killed while it wrote
    again, second = mixture.done(jobs, 1, kept)
    assert (again.job, again.seconds, second.job) == (jobs[0], first.seconds, jobs[1])
    np.testing.assert_array_equal(again.moments, first.moments)
    np.testing.assert_array_equal(again.points, first.points)
    assert len(kept.read_text(encoding="utf-8").splitlines()) == 2


def test_eight_schools_in_short(
    example: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    """Two methods are within four standard errors of quadrature, and those errors are bounded."""
    schools = example("eight_schools")
    data = json.loads((schools.HERE / "eight_schools.data.json").read_text(encoding="utf-8"))
    truth = json.loads((schools.HERE / "truth.json").read_text(encoding="utf-8"))
    model = stanct.temper(schools.HERE / "non_centred.stan")
    runs = {
        ("non-centred", name): model.sample(
            data, method, chains=4, draws=500, warmup=300, seed=1, progress=False
        )
        for name, method in schools.METHODS.items()
    }
    schools.table(runs, truth)
    out = capsys.readouterr().out
    found = re.findall(r"± +([\d.]+) +([+-][\d.]+)", out)
    assert len(found) == 6 and all(abs(float(z)) < 4 for _, z in found), out
    log_z_errors = [float(error) for error, _ in found[::3]]
    assert max(log_z_errors) < 0.15, out


def test_lasso_in_short(
    example: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three samplers predict alike, and the two that estimate the evidence agree on it."""
    lasso = example("lasso_horseshoe")
    monkeypatch.setattr(lasso, "WARMUP", 300)
    monkeypatch.setattr(lasso, "CHAINS", 2)
    data = lasso.split(*lasso.simulate(40, 8, 1), 3, 1)
    plain, copies, joint = (
        lasso.sample("simulated", "lasso", method, data, 800, 1) for method in lasso.METHODS
    )
    assert plain.log_predictive < 0
    for result in (copies, joint):
        assert result.log_predictive == pytest.approx(plain.log_predictive, abs=0.4)
        assert result.std_error < 0.15
    error = np.hypot(copies.std_error, joint.std_error)
    assert abs(copies.log_z - joint.log_z) < 4 * error


def test_boltzmann_in_short(tmp_path: Path) -> None:
    """Six methods run on one small system, and a second call repeats no run."""
    out = run("boltzmann/run.py", "--quick", cwd=tmp_path)
    methods = re.findall(r"^(\w+) +[\d,]+ +([\d.]+|nan) +[\d.]+ +[\d.]+$", out, flags=re.M)
    assert len(methods) == 6, out
    assert [name for name, log_z in methods if log_z == "nan"] == ["hmc"]
    assert (tmp_path / "figure2.png").read_bytes().startswith(b"\x89PNG")
    rows = (tmp_path / "figure2.csv").read_text(encoding="utf-8")
    assert rows.count("\n") == 7
    assert run("boltzmann/run.py", "--quick", cwd=tmp_path) == out
    assert (tmp_path / "figure2.csv").read_text(encoding="utf-8") == rows


def test_table_of_errors_in_short(tmp_path: Path) -> None:
    """Two methods are within four standard errors of the exact log Z."""
    out = run("boltzmann/table.py", "--quick", cwd=tmp_path)
    lines = re.findall(r"^(\w+), Boltzmann +1 +([\d.]+) +\S+ +([\d.]+)", out, flags=re.M)
    assert [name for name, *_ in lines] == ["parallel_tempering", "gibbs"], out
    assert all(float(error) < 4 * float(std_error) < 0.4 for _, error, std_error in lines), out
    assert "dynesty" in out


def test_scale_in_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """More workers are less busy, and all methods draw on threads what they draw alone.

    tests/test_execution.py is about comparisons with draws in two stages on threads.
    """
    out = command("scale/run.py", "--workers", "10", "1000", "--tours", "100", cwd=tmp_path)
    rows = re.findall(r"^\| ([\d,]+) \| (\d+)% \| (\d+)% \|$", out, flags=re.M)
    few, many = ([int(share) for share in row[1:]] for row in rows)
    assert 100 >= few[0] > 2 * many[0] and few[1] >= many[1] > 0, out
    monkeypatch.setattr("stanct.samplers._job.noting_two_stages", lambda run, *_: run)
    same = run("scale/same.py", "--executor", "threads:2", cwd=tmp_path)
    assert same.count("the same") == len(METHODS) and "DIFFERENT" not in same, same


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="no R here: apt install r-base-core")
def test_the_script_for_r(tmp_path: Path) -> None:
    """Two programs of one model give log Z, and a comparison that hardly tells them apart."""
    has_json = subprocess.run(["Rscript", "-e", "library(jsonlite)"], check=False).returncode == 0
    if not has_json:
        pytest.skip("R has no jsonlite: apt install r-cran-jsonlite")
    schools = ROOT / "examples" / "eight_schools"
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [
            *("Rscript", str(ROOT / "examples" / "from_r" / "evidence.R")),
            *(str(schools / "non_centred.stan"), str(schools / "eight_schools.data.json")),
            str(schools / "centred.stan"),
        ],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    values = re.findall(r"log Z = (-[\d.]+), standard error ([\d.]+)", done.stdout)
    assert len(values) == 2
    for log_z, error in values:
        assert abs(float(log_z) + 31.3113) < 4 * float(error) < 0.6
    assert "probability" in done.stdout

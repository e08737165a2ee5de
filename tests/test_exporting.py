"""Exported programs: log Z of their draws by their own scripts, and by the run that they make."""

from __future__ import annotations

import contextlib
import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import cmdstanpy
import numpy as np
import pytest
from exported import draw
from scipy import integrate, stats

import stanct
from stanct.api import exporting, sampling
from stanct.api.exporting import PAIRS
from stanct.cli.main import main
from stanct.runs.screen import screen
from stanct.runs.surveyed import searched

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
  tau ~ lognormal(0, 1);
  y ~ normal(mu, tau);
}
"""
Y = np.array([1.2, 0.3, 2.2, 1.9, 0.8, 1.5])
DATA = {"N": 6, "y": Y}
KINDS = sorted(PAIRS)


def density(tau: float) -> float:
    """Joint density of the data and tau: given it, the data are Gaussian with common mean mu.

    Under a prior of tau that reaches 0, where the likelihood vanishes, the weights of the base on
    the path from the prior have no variance, and one in a hundred runs has a draw that dominates.
    """
    covariance = tau**2 * np.eye(6) + 9
    gaussian: Any = stats.multivariate_normal(np.zeros(6), covariance)  # pyright: ignore
    return float(np.exp(gaussian.logpdf(Y) + stats.lognorm.logpdf(tau, 1)))


LOG_Z = float(np.log(integrate.quad(density, 0.05, 60, limit=200)[0]))
MEAN_TAU = integrate.quad(lambda t: t * density(t), 0.05, 60, limit=200)[0] / np.exp(LOG_Z)


FITTED: dict[Any, Any] = {}


def fitted_once(target: Any, method: Any, **options: Any) -> Any:
    """The short run behind an export, which several tests share."""
    key = target.density.recipe.key, method, repr(options)
    if key not in FITTED:
        FITTED[key] = sampling.sample(target, method, **options)
    return FITTED[key]


@pytest.fixture(scope="module", params=KINDS)
def exported(request: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An export with the draws of the embedded engine beside it, in files as CmdStan's."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exporting, "sample", fitted_once)
        stanct.temper(SOURCE).export(folder, DATA, request.param, copies=3, seed=1)
    draw(folder)
    return folder


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
    assert "Do not trust" not in text
    if r := shutil.which("Rscript"):
        command = [r, str(exported / "run.R"), *files]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert numbers(told) == (log_z, error)


@pytest.mark.skipif(shutil.which("Rscript") is None, reason="there is no R")
def test_a_nan_of_one_quantity_costs_no_draw(tmp_path: Path) -> None:
    """Nor does the end of a chain that was killed cost more than its last line."""
    stanct.temper(SOURCE).export(tmp_path, DATA, "density", seed=1)
    draws = np.random.default_rng(1).normal(size=(200, 2))
    rows = [f"{x:.6g},{y:.6g},{'nan' if x < 0 else '1'}" for x, y in draws]
    text = "\n".join(["# model = m", "lp__,x,q", *rows, "# Elapsed Time: 1 seconds", "#", ""])
    (tmp_path / "1.csv").write_text(text)
    (tmp_path / "2.csv").write_text("\n".join(["lp__,x,q", *rows, "0.1,99"]))
    for files in (["1.csv"], ["2.csv"], ["1.csv", "2.csv"]):
        done = subprocess.run(["Rscript", "run.R", *files], cwd=tmp_path, capture_output=True,
                              text=True, check=True)  # fmt: skip
        told = {row[0]: row[1:] for row in map(str.split, done.stdout.splitlines())}
        assert float(told["x"][0]) == pytest.approx(draws[:, 1].mean(), rel=1e-3)
        assert told["q"] == ["NaN", "NA"] or told["q"] == ["NaN", "NaN"]
        assert "differ in length" not in done.stderr


@pytest.mark.parametrize("quantity", [0, 1])
def test_the_script_says_where_one_draw_dominates(
    exported: Path,
    quantity: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (kind,) = (kind for kind in KINDS if exported.name.startswith(kind))
    name = "ct_" + PAIRS[kind][quantity]

    class Dominated(Fit):
        def draws(self) -> np.ndarray:
            column = self.column_names.index(name)
            self.chains[5, 0, column] = self.chains[..., column].max() + 8
            return self.chains

    monkeypatch.setattr(cmdstanpy, "from_csv", Dominated)
    files = sorted(map(str, (exported / "output").glob("*.csv")))
    monkeypatch.setattr(sys, "argv", ["run.py", *files])
    runpy.run_path(str(exported / "run.py"))
    assert re.search(r"one draw has \d+% of a mean", capsys.readouterr().out)


@pytest.mark.usefixtures("words_alone")
def test_the_draws_make_a_run(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = stanct.import_run(exported, exported / "output", seed=1)
    assert run.bare_evidence.std_error < 0.12
    assert run.bare_evidence.log_z == pytest.approx(LOG_Z, abs=4 * run.bare_evidence.std_error)
    assert run.engine == "cmdstan"
    if not exported.name.startswith("pseudo"):
        assert run.base is not None
        x = np.stack([run.variables["mu"], np.log(run.variables["tau"])], axis=-1)
        np.testing.assert_allclose(run.base.unwhiten(run.z), x, rtol=1e-9, atol=1e-9)
    searches = not exported.name.startswith("extended")
    modes: Any = run.modes  # those that the short run of the export found
    assert (modes is not None) is searches
    if searches:
        assert modes["weight"].sum() == pytest.approx(1)
        assert "ascents from up to" in searched(run)
    tau = run.expect("tau")
    assert abs(tau.value - MEAN_TAU) < 5 * tau.std_error
    assert "log Z" in str(run.report())
    done = "\n".join(screen(run)).split("Believe it?")[0]
    assert "with the seed 1, engine cmdstan" in " ".join(done.split())
    run.save(exported / "saved")
    assert type(run).load(exported / "saved").evidence == run.evidence
    if not searches:  # the others take longer
        words = ["import", str(exported), str(exported / "output"), "--json", "--seed", "1"]
        assert main(words) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["log_z"] == pytest.approx(run.bare_evidence.log_z)


def test_base_and_bias_come_from_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From a joint run as they are; from a run with another base by its moments."""
    model = stanct.temper(SOURCE)
    run = model.sample(DATA, stanct.Joint(), draws=400, seed=1, progress=False)
    model.export(tmp_path / "own", DATA, run=run, seed=1)
    assert "A short run" not in capsys.readouterr().err
    assert given(tmp_path / "own")["ct_base_mean"] == pytest.approx(run.base.dense().mean)
    other = model.sample(DATA, stanct.AIS(), draws=384, base="mixture", seed=1, progress=False)
    for kind in ("joint", "pseudo_extended", "extended_hamiltonian"):
        model.export(tmp_path / kind, DATA, kind, run=other, copies=2, seed=1)
    assert capsys.readouterr().err.count("A short run fits the bias: only a run ") == 3
    assert given(tmp_path / "pseudo_extended")["ct_N"] == 2
    run.save(tmp_path / "run")
    (tmp_path / "m.stan").write_text(SOURCE)
    (tmp_path / "d.json").write_text(json.dumps({"N": 6, "y": Y.tolist()}))
    words = ["export", str(tmp_path / "m.stan"), str(tmp_path / "d.json"), "--seed", "1"]
    assert main([*words, "--run", str(tmp_path / "run"), "--out", str(tmp_path / "cli")]) == 0
    assert "cli" in capsys.readouterr().out
    assert given(tmp_path / "cli") == given(tmp_path / "own")


def given(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "data.json").read_text())


def test_what_the_formula_lacks_is_in_the_scripts(tmp_path: Path) -> None:
    """The mass of a prior that is cut, and the share of the base in the support."""
    model = stanct.temper(
        "data { real y; } parameters { real<lower=0> s; } "
        "model { s ~ normal(0, 1); y ~ normal(s, 0.5); }"
    )
    model.export(tmp_path / "prior", {"y": 2.5}, "prior_likelihood", seed=1)
    script = (tmp_path / "prior" / "run.py").read_text()
    found = re.search(r"log_z \+= (\S+)  # log of the integral of the prior", script)
    assert found and float(found[1]) == pytest.approx(np.log(0.5))
    assert "add -0.693" in (tmp_path / "prior" / "README.md").read_text()
    wall = 'parameters { real x; } model { if (x < 0) reject("no"); x ~ normal(0.5, 1); }'
    stanct.temper(wall).export(tmp_path / "wall", seed=1)
    script = (tmp_path / "wall" / "run.R").read_text()
    assert re.search(r"log_z <- log_z \+ -0\.\d+ # the program's", script)


def test_what_the_program_lacks_is_in_the_scripts(tmp_path: Path) -> None:
    half = SOURCE.replace("tau ~ lognormal(0, 1)", "tau ~ normal(0, 1)")
    whole = stanct.temper(half, half_priors="renormalise")
    for model, told in (stanct.temper(half), True), (whole, False):
        folder = model.export(tmp_path / str(told), DATA, seed=1, progress=False)
        for name in ("README.md", "run.py", "run.R"):
            assert ("log(2) to log Z" in (folder / name).read_text()) == told


def test_the_integral_of_a_prior_comes_from_a_run_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The README says so where such a run fails."""
    model = stanct.temper(
        "data { real y; } parameters { real s; } model { target += -s^2; y ~ normal(s, 1); }"
    )
    model.export(tmp_path / "known", {"y": 2.5}, "prior_likelihood", seed=1)
    script = (tmp_path / "known" / "run.py").read_text()
    found = re.search(r"log_z \+= (\S+)  # log of the integral of the prior, by a run", script)
    assert found and float(found[1]) == pytest.approx(np.log(np.pi) / 2, abs=0.05)
    record = json.loads((tmp_path / "known" / "export.json").read_text())
    assert record["log_prior_mass"] == float(found[1])

    def broken(*_: object) -> None:
        raise stanct.StanctError("nothing works")

    monkeypatch.setattr(sampling, "prior_target", broken)
    model.export(tmp_path / "unknown", {"y": 2.5}, "prior_likelihood", seed=1)
    told = (tmp_path / "unknown" / "README.md").read_text()
    assert "In log Z, the integral of the prior is not known, and counts as 1." in told
    assert "prior_mass" in told


@pytest.mark.parametrize(
    ("error", "draws"), [(1e-9, 2500), (0.1, 3500), (0.6, 20_000), (np.nan, 20_000)]
)
def test_scripts_draw_as_many_as_the_fit_says(
    error: float, draws: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A fit of 800 draws with twice the error that is aimed at needs 3200."""
    fit: Any = SimpleNamespace(method="joint", chains=4, draws=800)
    pairs: Any = SimpleNamespace(evidence=lambda method: SimpleNamespace(std_error=error))
    enough = exporting._enough(fit, pairs)
    assert enough[0] == draws
    assert enough[1] == pytest.approx(error * np.sqrt(800 / draws), nan_ok=True)
    monkeypatch.setattr(exporting, "_enough", lambda run, pairs: enough)
    monkeypatch.setattr(exporting, "sample", fitted_once)
    doubtful = pytest.warns(UserWarning, match="error of 0.12 in log Z. stanct itself")
    with doubtful if error == 0.6 else contextlib.nullcontext():
        stanct.temper(SOURCE).export(tmp_path, DATA, "joint", seed=1)
    for file in ("README.md", "run.py", "run.R"):
        text = (tmp_path / file).read_text()
        assert ("expect a standard error of 0.12 in log Z" in text) == (error == 0.6)
        if file != "README.md":
            assert re.findall(r"iter_sampling ?= ?(\d+)", text) == [str(draws)]


def test_a_kind_with_large_errors_names_one_with_small_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It warns, and both scripts say so before they compile."""
    errors = {"joint": 0.03, "extended_hamiltonian": 0.4}
    monkeypatch.setattr(exporting, "_enough", lambda run, pairs: (2500, errors[run.method]))
    monkeypatch.setattr(exporting, "sample", fitted_once)
    with pytest.warns(UserWarning, match=r'0.4 in log Z.*"joint" promises an error of 0.03'):
        stanct.temper(SOURCE).export(tmp_path, DATA, "extended_hamiltonian", seed=1)
    script = (tmp_path / "run.py").read_text()
    assert 0 < script.index("promises") < script.index("CmdStanModel(stan_file")
    compile(script, "run.py", "exec")
    script = (tmp_path / "run.R").read_text()
    assert 0 < script.index("promises") < script.index("cmdstan_model(")


@pytest.mark.parametrize("form", ["as written", "auto"])
def test_a_centred_prior_is_named(
    form: Literal["as written", "auto"], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path from the prior leads through its funnel, unless the form is chosen for it."""
    source = """
    data { int J; vector[J] y; }
    parameters { real<lower=0> tau; vector[J] theta; }
    model { tau ~ normal(0, 1); theta ~ normal(0, tau); y ~ normal(theta, 1); }"""
    monkeypatch.setattr(exporting, "_enough", lambda run, pairs: (2500, 0.4))
    told = "hierarchies='non-centred'" if form == "as written" else "stanct itself samples"
    with pytest.warns(UserWarning, match=told):
        model = stanct.temper(source, hierarchies=form)
        model.export(tmp_path, {"J": 3, "y": [0.5, 1, 2]}, "prior_likelihood", seed=1)
    assert told in (tmp_path / "README.md").read_text()


def test_the_better_of_two_bases_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where that of ADVI promises too little, and not elsewhere."""
    runs: dict[str, Any] = {}

    def sampled(*given: Any, **options: Any) -> Any:
        run = fitted_once(*given, **options)
        if run.method == "extended_hamiltonian":  # and not the joint run that a warning names
            runs[options.get("base", "own")] = run
        return run

    monkeypatch.setattr(exporting, "sample", sampled)
    model = stanct.temper(SOURCE)
    model.export(tmp_path / "one", DATA, "extended_hamiltonian", seed=1)
    assert set(runs) == {"own"}
    monkeypatch.setattr(exporting, "MOST_ERROR", 0.0)
    with pytest.warns(UserWarning, match="standard error"):
        model.export(tmp_path / "two", DATA, "extended_hamiltonian", seed=1)
    assert set(runs) == {"own", "pilot"}
    best = min(runs.values(), key=lambda run: run.bare_evidence.std_error)
    assert given(tmp_path / "two")["ct_base_mean"] == pytest.approx(best.base.dense().mean)


def test_kinds_without_log_z(tmp_path: Path) -> None:
    model = stanct.temper(SOURCE, prefix="tempered_")
    for kind in ("density", "weighted"):
        model.export(tmp_path, DATA, kind, seed=1)
        assert "log_z" not in (tmp_path / "run.py").read_text()
        with pytest.raises(stanct.StanctError, match="gives no log Z"):
            stanct.import_run(tmp_path, tmp_path)
    assert given(tmp_path)["tempered_weight"] == 1
    with pytest.raises(stanct.StanctError, match="no export"):
        stanct.import_run(tmp_path / "nothing", tmp_path)
    with pytest.raises(stanct.StanctError, match="Did you mean 'joint'"):
        model.export(tmp_path, DATA, "joit")


def test_threads_where_the_program_has_them(tmp_path: Path) -> None:
    source = """
    functions {
      real part(array[] real y, int first, int last, real m) { return normal_lpdf(y | m, 1); }
    }
    data { array[4] real y; }
    parameters { real m; }
    model { m ~ normal(0, 1); target += reduce_sum(part, y, 1, m); }"""
    stanct.temper(source).export(tmp_path, {"y": [0.1, 0.4, -0.3, 0.2]}, seed=1)
    assert "threads_per_chain=2" in (tmp_path / "run.py").read_text()
    assert "stan_threads = TRUE" in (tmp_path / "run.R").read_text()


def bumped_bias(data: dict[str, Any], record: dict[str, Any]) -> None:
    data["ct_bias"] = (np.array(data["ct_bias"]) + np.arange(data["ct_K"])).tolist()


def other_data(data: dict[str, Any], record: dict[str, Any]) -> None:
    own = json.loads(record["target"]["data"])
    record["target"]["data"] = json.dumps(own | {"y": [*own["y"][:-1], 9.0]})


def no_bias(data: dict[str, Any], record: dict[str, Any]) -> None:
    del data["ct_bias"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (bumped_bias, "have other weights(?s:.)*Later exports to the same folder"),
        (other_data, "have other log densities(?s:.)*the files that the program in this folder"),
        (no_bias, "data.json of the export has no `ct_bias`"),
    ],
)
def test_draws_of_other_exports_are_refused(
    exported: Path, change: Any, message: str, tmp_path: Path
) -> None:
    """Such as the draws of an earlier export to the same folder."""
    data, record = given(exported), json.loads((exported / "export.json").read_text())
    change(data, record)
    (tmp_path / "data.json").write_text(json.dumps(data))
    (tmp_path / "export.json").write_text(json.dumps(record))
    with pytest.raises(stanct.StanctError, match=message):
        stanct.import_run(tmp_path, exported / "output")


def table(file: Path) -> list[list[str]]:
    return [line.split(",") for line in file.read_text().splitlines()]


def test_files_that_are_not_whole(exported: Path, tmp_path: Path) -> None:
    rows = table(exported / "output" / "chain_1.csv")

    def imported(*lines: list[str]) -> stanct.EvidenceRun:
        (tmp_path / "a.csv").write_text("".join(",".join(line) + "\n" for line in lines))
        return stanct.import_run(exported, tmp_path, seed=1)

    ours = next(k for k, name in enumerate(rows[0]) if name in ("ct_u", "ct_u.1"))
    renamed = [name.replace("ct_u", "own_u") for name in rows[0]]
    with pytest.raises(stanct.StanctError, match=r"a\.csv has no `ct_u`"):
        imported(renamed, *rows[1:])
    broken = [*rows[5][:ours], "nan", *rows[5][ours + 1 :]]
    with pytest.raises(
        stanct.StanctError, match=r"no finite number in row 5 of the table \S+a\.csv"
    ):
        imported(*rows[:5], broken, *rows[6:])
    with pytest.raises(stanct.StanctError, match="has 3 draws of each chain"):
        imported(*rows[:4])
    without = [[*row[:ours], *row[ours + 1 :]] for row in rows]
    with pytest.raises(stanct.StanctError, match=r"`ct_u`|finite|shape"):
        imported(*without)
    with pytest.raises(stanct.StanctError, match="No files"):
        stanct.import_run(exported, [])


def test_a_chain_that_was_killed_is_told(exported: Path, tmp_path: Path) -> None:
    for file in (exported / "output").glob("*.csv"):
        rows = [line for line in file.read_text().split("\n") if line and line[0] != "#"]
        text = "\n".join([f"#     num_samples = {len(rows) - 1}", *rows, ""])
        (tmp_path / file.name).write_text(text[:9000] if file.name == "chain_2.csv" else text)
    with pytest.warns(UserWarning, match=r"Draws are left out.*chain_2\.csv has \d+ of \d+ draws"):
        run = stanct.import_run(exported, tmp_path, seed=1)
    assert run.chains == 3
    (lost,) = (one for one in run.diagnostics if one.name == "lost")
    assert not lost.passed and 0.2 < lost.value < 0.3 and "chain_2.csv has" in lost.message
    assert "lost" in run.verdict.draws
    all_of_it = stanct.import_run(exported, exported / "output", seed=1)
    assert "lost" not in {one.name for one in all_of_it.diagnostics}

"""The CmdStan engine: found, compiled once, equal to the embedded engine, clear when it fails."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path

import cmdstanpy
import numpy as np
import pytest
from conftest import target_of
from targets import LINE, SKEWED, TWO_MODES, Exact

from stanct import cmdstan, embedded
from stanct.cli import main
from stanct.cmdstan import CACHE_VARIABLE, CmdStan, Home
from stanct.embedded import Nuts, Recipe
from stanct.errors import EngineError, SamplingError
from stanct.model import temper
from stanct.resources import resource_folder
from stanct.samplers import joint

SOURCE = "parameters { real x; } model { target += std_normal_lpdf(x); }"
GAUSSIAN = resource_folder("stan_models") / "gaussian" / "gaussian.stan"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """A CmdStan that looks right and compiles nothing, and an empty cache."""
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    path = tmp_path / "cmdstan-2.39.0"
    (path / "bin").mkdir(parents=True)
    (path / "bin" / "stanc").touch()
    (path / "makefile").write_text("CMDSTAN_VERSION := 2.39.0\n")
    return Home(path, "2.39.0", False)


def compiler(monkeypatch: pytest.MonkeyPatch, calls: list[dict], wait: float = 0) -> None:
    """Replace the compiler by one that copies the source and remembers how it was called."""

    def compile_stan_file(source: Path, *, cpp_options: dict) -> str:
        calls.append(cpp_options)
        barrier.wait(wait or None)
        source.with_suffix("").write_text(source.read_text())
        return str(source.with_suffix(""))

    barrier = threading.Barrier(2 if wait else 1)
    monkeypatch.setattr(cmdstanpy, "compile_stan_file", compile_stan_file)


def test_a_program_is_compiled_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    first = CmdStan(home).compiled(SOURCE)
    assert first.read_text() == SOURCE
    assert CmdStan(home).compiled(SOURCE) == first and len(calls) == 1
    others = [
        CmdStan(home).compiled(SOURCE + " "),
        CmdStan(home, opencl=True).compiled(SOURCE),
        CmdStan(Home(home.path, "2.40.0", False)).compiled(SOURCE),
    ]
    assert len({first, *others}) == 4
    assert calls == [{}, {}, {"STAN_OPENCL": "TRUE"}, {}]
    CmdStan(home).compiled("functions { } // reduce_sum(f, x, 1)")
    assert calls[-1] == {"STAN_THREADS": "TRUE"}


def test_two_builds_of_one_program_at_once(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls, wait=30)
    found: list[Path] = []
    builders = [
        threading.Thread(target=lambda: found.append(CmdStan(home).compiled(SOURCE)))
        for _ in range(2)
    ]
    before = os.environ["CMDSTAN"]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert os.environ["CMDSTAN"] == before
    assert len(calls) == 2 and found[0] == found[1] and found[0].exists()
    cache = found[0].parent.parent
    assert [path.name for path in cache.iterdir()] == [found[0].parent.name]


def test_a_build_that_fails_leaves_nothing(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compile_stan_file(source: Path, **_options: object) -> str:
        source.with_suffix("").touch()  # what an interrupted link leaves
        raise ValueError("Console:\ncc1plus: out of memory")

    monkeypatch.setattr(cmdstanpy, "compile_stan_file", compile_stan_file)
    with pytest.raises(EngineError, match=r"(?s)CmdStan 2\.39\.0.*cc1plus: out of memory"):
        CmdStan(home).compiled(SOURCE)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_cache_that_cannot_be_written(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(home.path / "makefile" / "below"))
    with pytest.raises(EngineError, match=r"cache of compiled .* cannot be written.*STANCT_CACHE"):
        CmdStan(home).compiled(SOURCE)


def test_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An official CmdStan outranks the assembled one; a home without stanc is none."""
    monkeypatch.delenv("CMDSTAN", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    dot = tmp_path / ".cmdstan"
    assert cmdstan.find() is None
    for name in ("cmdstan-stanct", "cmdstan-2.30.0"):
        (dot / name / "bin").mkdir(parents=True)
        (dot / name / "bin" / "stanc").touch()
        (dot / name / "makefile").write_text("CMDSTAN_VERSION := 2.30.0\n")
        if name == "cmdstan-stanct":
            (dot / name / "stanct.json").touch()
        found = cmdstan.find()
        assert found is not None and found.path.name == name
        assert found.assembled == (name == "cmdstan-stanct")
    (dot / "cmdstan-2.30.0" / "bin" / "stanc").unlink()
    assert cmdstan.find() is None


def test_engines_by_name(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    model = temper(GAUSSIAN)
    with pytest.raises(EngineError, match=r"No CmdStan was found.*`stanct install-cmdstan`"):
        model.sample(engine="cmdstan", draws=100)
    with pytest.raises(SamplingError, match=r"no engine 'julia'.*auto, embedded, cmdstan"):
        model.sample(engine="julia")
    with pytest.raises(SamplingError, match="'ais' runs on the embedded engine alone"):
        model.sample(method="ais", engine="cmdstan")
    asked: list[object] = []
    monkeypatch.setitem(
        sys.modules["stanct.model"].METHODS, "joint", lambda _t, **s: asked.append(s["engine"])
    )
    data = GAUSSIAN.with_name("gaussian.data.json")
    model.sample(data)
    monkeypatch.setattr(cmdstan, "find", lambda: home)
    model.sample(data)
    model.sample(data, engine="embedded")
    assert asked == [embedded, CmdStan(home), embedded]


def test_without_cmdstanpy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cmdstanpy", None)
    with pytest.raises(EngineError, match=r"needs cmdstanpy.*pip install 'stanct\[cmdstan\]'"):
        CmdStan.here()


def test_doctor_says_what_is_there(
    home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    main(["doctor"])
    assert "cmdstan: none; add it: stanct install-cmdstan\n" in capsys.readouterr().out
    monkeypatch.setattr(cmdstan, "find", lambda: home)
    main(["doctor"])
    told = capsys.readouterr().out
    assert f"cmdstan: CmdStan 2.39.0 (official) in {home.path}; " in told
    assert "`--engine auto` is cmdstan for the method joint" in told


@pytest.fixture(scope="session")
def engine(cmdstan_home: Home) -> CmdStan:
    return CmdStan(cmdstan_home)


@pytest.mark.cmdstan
@pytest.mark.parametrize("exact", [LINE, TWO_MODES], ids=["line", "two_modes"])
def test_runs_equal_to_the_embedded_engine(exact: Exact, engine: CmdStan, seed: int) -> None:
    """The same layout, and an evidence that agrees with the truth and with the other engine's."""
    target = target_of(exact.source, exact.data)
    run = joint.sample(target, engine=engine, seed=seed, draws=600, progress=False)
    other = joint.sample(target, seed=seed, draws=600, progress=False)
    assert (run.engine, other.engine) == ("cmdstan", "embedded")
    assert abs(run.evidence.log_z - exact.log_z) < 4 * run.evidence.std_error
    assert run.evidence.std_error < 0.2
    for name in ("variables", "statistics"):
        mine, theirs = getattr(run, name), getattr(other, name)
        assert list(mine) == list(theirs)
        for key, values in mine.items():
            assert (values.shape, values.dtype) == (theirs[key].shape, theirs[key].dtype)
    assert run.gradients > run.statistics["n_leapfrog__"].sum()


@pytest.mark.cmdstan
def test_runs_are_reproducible_for_any_number_of_threads(engine: CmdStan, seed: int) -> None:
    recipe = target_of(LINE.source, LINE.data).density_recipe
    names = {"b": (2,)}
    start = np.array([[0.1, -0.3], [0.5, 0.2], [-1.0, 0.0]])
    settings = {"seed": seed, "draws": 60, "step_size": 0.2, "inv_metric": np.array([0.3, 0.7])}
    one, two = (
        engine.draw(recipe, start, names, nuts=Nuts(threads=threads), **settings)
        for threads in (1, 3)
    )
    assert np.array_equal(one.variables["b"], two.variables["b"])
    assert set(np.unique(one.statistics["stepsize__"])) == {0.2}
    assert one.variables["b"].shape == (3, 60, 2)


@pytest.mark.cmdstan
def test_equal_log_densities(engine: CmdStan, tmp_path: Path, rng: np.random.Generator) -> None:
    """The density program at 100 points: equal to the embedded engine's, gradients too."""
    target = target_of(SKEWED.source, SKEWED.data)
    points = rng.normal(size=(100, target.density.dimension))
    model = cmdstanpy.CmdStanModel(exe_file=engine.compiled(target.code("density")))
    (tmp_path / "data.json").write_text(target.data_text)
    (tmp_path / "points.json").write_text(json.dumps({"params_r": points.tolist()}))
    command = [str(model.exe_file), "log_prob", f"unconstrained_params={tmp_path}/points.json"]
    command += ["data", f"file={tmp_path}/data.json"]
    command += ["output", f"file={tmp_path}/out.csv", "sig_figs=17"]
    cmdstanpy.utils.do_command(command, fd_out=None)
    found = np.genfromtxt(tmp_path / "out.csv", delimiter=",", comments="#", skip_header=0)[1:]
    for row, point in zip(found, points, strict=True):
        value, gradient = target.density.log_density_gradient(point)
        np.testing.assert_allclose(row, [value, *gradient], rtol=1e-9, atol=1e-12)


@pytest.mark.cmdstan
def test_chains_that_fail_are_told(engine: CmdStan) -> None:
    recipe = Recipe('parameters { real x; } model { reject("no such ", "point"); }', "{}")
    settings = {"seed": 1, "draws": 10, "step_size": 0.1, "inv_metric": np.ones(1)}
    with pytest.raises(EngineError) as caught:
        engine.draw(recipe, np.zeros((2, 1)), {"x": ()}, nuts=Nuts(threads=1), **settings)
    told = str(caught.value)
    assert "chain 1:" in told and "chain 2:" in told and "no such point" in told
    assert "id=2" in told or "sample" in told  # the command

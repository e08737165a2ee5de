"""Densities that a CmdStan compiles: what the embedded engine cannot run, and second opinions."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path

import numpy as np
import pytest
from conftest import LONG, target_of
from scipy import integrate, stats
from sweep import Case, examine
from test_cmdstan import home  # noqa: F401 (a fixture)
from test_execution import PROGRAM
from verify import Verification, verify

import stanct
from stanct.common.errors import EngineError
from stanct.engines import native
from stanct.engines.cache import CACHE_VARIABLE
from stanct.engines.homes import Home
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget

TUPLE = """functions { tuple(real, real) both(real a, real b) { return (a, b); } }
data { real y; }
parameters {
  real mu; real<lower=0> t; tuple(real, vector[2]) p; array[2] tuple(real, real<lower=0>) q;
}
transformed parameters { real m; real s; (m, s) = both(mu, t); }
model {
  mu ~ normal(0, 2);
  t ~ gamma(3, 2);
  y ~ normal(m, s);
  q[1].1 ~ normal(0, 1);
  q[2].1 ~ normal(q[1].1, 1);
  q[1].2 ~ exponential(1);
  q[2].2 ~ exponential(2);
  p.1 ~ normal(0, 1);
  p.2 ~ normal(p.1, 1);
}
generated quantities {
  tuple(real, real) g = both(s, m);
  complex z = to_complex(m, s);
  row_stochastic_matrix[1, 2] r = [[0.25, 0.75]];
}"""
TRUNCATED = """data { vector[3] y; }
parameters { real mu; real<lower=0> s; }
model {
  mu ~ normal(0, 1);
  s ~ exponential(1);
  y ~ normal(mu, s) T[-2 - s, 3];
}"""
Y = {"y": [0.1, 0.5, 1.2]}


@pytest.fixture
def cmdstan(cmdstan_home: Home, monkeypatch: pytest.MonkeyPatch) -> Home:
    """The machine's CmdStan, found by everything."""
    monkeypatch.setattr("stanct.engines.homes.find", lambda: cmdstan_home)
    return cmdstan_home


def by(home: Home, target: ProgramTarget) -> Density:  # noqa: F811
    recipe = target.density_recipe
    return Density(type(recipe)(recipe.source, recipe.data, home=str(home.path)))


@LONG
@pytest.mark.cmdstan
def test_it_computes_what_the_embedded_engine_computes(cmdstan: Home, rng) -> None:
    target = target_of(PROGRAM, {"y": 1.5})
    own, other = target.density, by(cmdstan, target)
    assert (other.names, other.unconstrained_names) == (own.names, own.unconstrained_names)
    for x in rng.normal(size=(20, 2)):
        value, gradient = own.log_density_gradient(x)
        assert np.isclose(other.log_density(x), value, rtol=1e-12)
        found = other.log_density_gradient(x)
        assert np.isclose(found[0], value, rtol=1e-12) and np.allclose(found[1], gradient)
        theta = other.constrain(x)
        assert np.allclose(theta, own.constrain(x)) and np.allclose(other.unconstrain(theta), x)
        assert np.allclose(other.unconstrain({"mu": theta[0], "t": theta[1]}), x)
        numerical = [
            (other.log_density(x + h) - other.log_density(x - h)) / 2e-6 for h in 1e-6 * np.eye(2)
        ]
        assert np.allclose(numerical, gradient, atol=1e-5)
    ahead = other.variables(np.zeros((2000, 2)), seed=3)["ahead"]
    assert abs(ahead.mean()) < 4 / np.sqrt(2000) and 0.9 < ahead.std() < 1.1
    assert other.log_density(np.array([np.nan, 0.0])) == -np.inf
    with pytest.raises(ValueError, match="variable does not exist"):
        other.unconstrain({"mu": 1.0})
    values = [other.log_density_gradient(np.ones(2))[0]]
    models = [by(cmdstan, target) for _ in range(3)]
    threads = [
        threading.Thread(
            target=lambda one=one: values.extend(
                one.log_density_gradient(np.ones(2))[0] for _ in range(3000)
            )
        )
        for one in models
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(values) == 9001 and len(set(values)) == 1


@LONG
@pytest.mark.cmdstan
def test_what_the_embedded_engine_cannot_run_is_run(cmdstan: Home, tmp_path: Path) -> None:
    (tmp_path / "model.stan").write_text(TUPLE)
    model = stanct.temper(tmp_path / "model.stan")
    exact = np.log(
        integrate.quad(
            lambda t: stats.norm.pdf(1.5, 0, np.hypot(2, t)) * stats.gamma.pdf(t, 3, scale=0.5),
            0,
            50,
        )[0]
    )
    for method in ("auto", "gibbs"):
        run = model.sample({"y": 1.5}, method=method, seed=1, engine="embedded", progress=False)
        assert isinstance(run, stanct.EvidenceRun) and "cmdstan" in run.engine
        assert abs(run.evidence.log_z - exact) < 4 * run.evidence.std_error < 0.08
        assert abs(run.expect("p:1").value) < 4 * run.expect("p:1").std_error
        assert abs(run.expect("q.2:2").value - 0.5) < 4 * run.expect("q.2:2").std_error < 0.16
        assert run.expect("g:1").value == run.expect("z.imag").value == run.expect("t").value
        assert np.allclose(run.expect("r").value, [[0.25, 0.75]])
    with pytest.raises(stanct.SamplingError, match=r"'laplace' .* cannot run .*base='pilot'"):
        model.sample({"y": 1.5}, method="gibbs", base="laplace", progress=False)


@LONG
@pytest.mark.cmdstan
def test_the_second_opinion_does_not_blame_us(cmdstan: Home, tmp_path: Path) -> None:
    target = target_of(TRUNCATED, Y)
    assert not verify(target, "density").passed  # the engine drops the user's normaliser
    found = verify(target, "density", second=cmdstan)
    assert found.passed and "CmdStan evaluated one of the two" in str(found)
    (tmp_path / "model.stan").write_text(TRUNCATED)
    (tmp_path / "model.data.json").write_text(json.dumps(Y))
    case = Case("model", tmp_path / "model.stan", tmp_path / "model.data.json")
    assert [v.outcome for v in examine(case, ["density"])] == ["differs"]
    assert [v.outcome for v in examine(case, ["density"], cmdstan)] == ["equal"]


@LONG
@pytest.mark.cmdstan
def test_a_fault_of_ours_is_still_found(cmdstan: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of(TRUNCATED, Y)
    code = target.code("density")
    broken = code.replace("normal_lpdf(mu |", "2 * normal_lpdf(mu |")
    assert broken != code
    monkeypatch.setattr(ProgramTarget, "code", lambda self, kind: broken)
    found = verify(target_of(TRUNCATED, Y), "density", second=cmdstan)
    assert not found.passed and not found.engines_differ and "fault" not in str(found)


def test_a_difference_of_the_engines_is_called_that() -> None:
    found = Verification("joint", 20, 1e-3, by_cmdstan=True, engines=1e-3)
    assert found.engines_differ and "fault of one of the engines" in str(found)
    agree = Verification("joint", 20, 1e-3, by_cmdstan=True)
    assert "fault" not in str(agree) and not agree.engines_differ


@pytest.fixture
def scripted(home: Home) -> Home:  # noqa: F811
    """A CmdStan whose stanc and compiler are scripts that write down their arguments."""
    (home.path / "bin" / "stanc").write_text('#!/bin/sh\ntouch "${1#--o=}"\n')
    (home.path / "compiler").write_text(
        '#!/bin/sh\necho "$@" > told\n'
        'while [ "$1" != -o ]; do shift; done\ncat told > "$2"\n[ ! -e broken ]\n'
    )
    for name in ("bin/stanc", "compiler"):
        (home.path / name).chmod(0o755)
    (home.path / "makefile").write_text(
        "compile_info:\n\t@echo './compiler -O3 $(STAN_THREADS) \"-Wl,-rpath,a b\" main.o libx.a'\n"
    )
    return home


@pytest.mark.skipif(os.name != "posix", reason="scripts of a shell")
def test_how_a_density_is_compiled(scripted: Home) -> None:
    library = native._library("parameters { real x; }", scripted)
    told = library.read_text()
    assert told.startswith("-fPIC -shared") and "main.o" not in told
    assert "-O3 TRUE -Wl,-rpath,a b libx.a" in told and "-DBS_MAJOR=" in told
    assert native._library.__wrapped__("parameters { real x; }", scripted) == library
    assert sorted(path.name for path in library.parent.iterdir()) == ["model.so", "model.stan"]


@pytest.mark.skipif(os.name != "posix", reason="scripts of a shell")
def test_a_density_that_cannot_be_loaded_is_deleted(scripted: Home) -> None:
    with pytest.raises(EngineError, match=r"cannot be loaded: .*\. It was deleted: run again"):
        native.compiled_model("parameters { real x; }", "{}", scripted)
    assert list(Path(os.environ[CACHE_VARIABLE]).iterdir()) == []


@pytest.mark.skipif(os.name != "posix", reason="scripts of a shell")
def test_a_density_that_does_not_compile_leaves_nothing(scripted: Home) -> None:
    (scripted.path / "broken").touch()
    with pytest.raises(EngineError, match=r"could not compile the program's log density"):
        native._library("parameters { real x; } ", scripted)
    assert list(Path(os.environ[CACHE_VARIABLE]).iterdir()) == []

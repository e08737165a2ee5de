"""Paths between two programs, against exact ratios of their normalising constants."""

from __future__ import annotations

import html
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from exported import draw
from scipy import integrate, special, stats

import stanct
from stanct.cli.main import main
from stanct.runs.coupled import CoupledRun
from stanct.samplers.power_posterior import PriorAndLikelihood

RNG = np.random.default_rng(3)
X = np.linspace(-1.5, 1.5, 12)
Y = np.round(0.8 * X + 0.5 * RNG.standard_normal(12), 3)
HITS = np.array([0, 0, 1, 0, 0, 1, 0, 1, 1, 0, 1, 1])


def gaussian(y: Any, covariance: Any) -> float:
    """Log density of a Gaussian with mean 0."""
    found: Any = stats.multivariate_normal(np.zeros(len(y)), covariance)  # pyright: ignore
    return float(found.logpdf(y))


@dataclass(frozen=True)
class Pair:
    """Two programs, their data, and the exact log of the ratio of their constants."""

    full: str
    base: str
    data: dict[str, Any]
    exact: float
    base_data: dict[str, Any] | None = None


# A normal mean under two priors.
MEAN = """
data {{ int N; vector[N] y; }}
parameters {{ real mu; }}
model {{ mu ~ normal({prior}); y ~ normal(mu, 1); }}
"""


def _mean(location: float, scale: float) -> float:
    return gaussian(Y - location, np.eye(12) + scale**2)


PRIORS = Pair(
    MEAN.format(prior="1, 0.5"),
    MEAN.format(prior="0, 3"),
    {"N": 12, "y": Y},
    _mean(1, 0.5) - _mean(0, 3),
)

# From a logit to a probit: what both declare in other words has one name.
LOGIT = """
functions { real curve(real x) { return inv_logit(x); } }
data { int N; vector[N] x; array[N] int y; }
transformed data { real scale = 1; }
parameters { real b; }
transformed parameters { vector<lower=0, upper=1>[N] p; for (n in 1:N) p[n] = curve(b * x[n]); }
model { b ~ normal(0, 2 * scale); y ~ bernoulli(p); }
"""
PROBIT = """
functions { real curve(real x) { return Phi(x); } }
data { int N; vector[N] x; array[N] int y; }
transformed data { real scale = 2; }
parameters { real b; }
transformed parameters { vector[N] p; for (i in 1:N) p[i] = curve(b * x[i]); }
model { target += normal_lpdf(b | 0, scale); y ~ bernoulli(p); }
generated quantities { real half = curve(0); }
"""


def _hits(curve: Any) -> float:
    def density(b: float) -> float:
        p = curve(b * X)
        return float(np.exp(stats.norm.logpdf(b, 0, 2) + np.sum(np.log(np.where(HITS, p, 1 - p)))))

    return float(np.log(integrate.quad(density, -12, 12, limit=400)[0]))


LINKS = Pair(
    PROBIT,
    LOGIT,
    {"N": 12, "x": X, "y": HITS},
    _hits(lambda z: np.clip(special.ndtr(z), 1e-300, 1 - 1e-16)) - _hits(special.expit),
)

# From a prior to the posterior of a conjugate model: the ratio is the evidence.
POSTERIOR = Pair(
    """
data { int N; int k; }
parameters { real<lower=0, upper=1> p; }
model { p ~ beta(2, 3); k ~ binomial(N, p); }
""",
    "parameters { real<lower=0, upper=1> p; }\nmodel { p ~ beta(2, 3); }",
    {"N": 20, "k": 13},
    float(stats.betabinom.logpmf(13, 20, 2, 3)),
)

# From independent groups to pooled ones.
GROUPS = """
data {{ int J; vector[J] y; }}
parameters {{ real mu; vector[J] theta; }}
model {{
  mu ~ normal(0, 2); // stanct: prior
  theta ~ normal({location}); // stanct: prior
  y ~ normal(theta, 0.7);
}}
"""
MEANS = Y[:5]
POOLED = Pair(
    GROUPS.format(location="mu, 0.6"),
    GROUPS.format(location="0, 2"),
    {"J": 5, "y": MEANS},
    gaussian(MEANS, (0.49 + 0.36) * np.eye(5) + 4) - gaussian(MEANS, (0.49 + 4) * np.eye(5)),
)

# Two regressions with other noise, on data of their own.
LINE = """
data {{ int<lower=0> N; vector[N] x; vector[N] y; }}
parameters {{ real a; real b; }}
model {{ [a, b] ~ normal(0, 2); y ~ normal(a + b * x, {noise}); }}
"""


def _line(x: Any, y: Any, noise: float) -> float:
    return gaussian(y, noise**2 * np.eye(len(x)) + 4 * (1 + np.outer(x, x)))


NOISES = Pair(
    LINE.format(noise="0.5"),
    LINE.format(noise="0.8"),
    {"N": 12, "x": X, "y": Y},
    _line(X, Y, 0.5) - _line(X[:6], Y[:6], 0.8),
    base_data={"N": 6, "x": X[:6], "y": Y[:6]},
)
PAIRS = {
    "priors": PRIORS,
    "links": LINKS,
    "posterior": POSTERIOR,
    "pooled": POOLED,
    "noises": NOISES,
}


def model_of(pair: Pair) -> stanct.TemperedModel:
    return stanct.temper(pair.full, base=pair.base, base_data=pair.base_data)


@pytest.mark.parametrize("name", PAIRS)
def test_the_log_of_the_ratio(name: str) -> None:
    pair = PAIRS[name]
    run = model_of(pair).sample(
        pair.data, draws=1200, warmup=300, seed=1, engine="embedded", progress=False
    )
    assert isinstance(run, CoupledRun)
    evidence = run.evidence
    assert evidence.std_error < 0.15
    assert evidence.log_z == pytest.approx(pair.exact, abs=4 * evidence.std_error)
    assert "log (Z of model / Z of model) = " in repr(run)


@pytest.mark.parametrize("name", PAIRS)
def test_the_exported_program(name: str, tmp_path: Path) -> None:
    pair = PAIRS[name]
    model_of(pair).export(tmp_path, pair.data, seed=1)
    draw(tmp_path)
    evidence = stanct.import_run(tmp_path, tmp_path / "output", seed=1).evidence
    assert evidence.std_error < 0.1
    assert evidence.log_z == pytest.approx(pair.exact, abs=4 * evidence.std_error)
    assert evidence.of == "(Z of model / Z of model)"
    for name in ("run.py", "run.R", "README.md"):
        assert "log(Z_1 / Z_0)" in (tmp_path / name).read_text()


@pytest.mark.parametrize("name", PAIRS)
def test_both_densities(name: str) -> None:
    """At random points, the joined program has the densities of the two programs."""
    pair = PAIRS[name]
    target = model_of(pair).target(pair.data)
    parts = PriorAndLikelihood.of(target)
    full = stanct.temper(pair.full).density(pair.data)
    base = stanct.temper(pair.base).density(pair.base_data or pair.data)
    x = np.random.default_rng(5).standard_normal((100, full.dimension))
    ratio = full.log_densities(x) - base.log_densities(x)
    np.testing.assert_allclose(parts.log_likelihood(x), ratio, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(
        target.density.log_densities(x), full.log_densities(x), rtol=1e-9, atol=1e-9
    )
    np.testing.assert_allclose(
        parts.prior.log_densities(x), base.log_densities(x), rtol=1e-9, atol=1e-9
    )


@pytest.mark.usefixtures("words_alone")
def test_files_runs_and_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("full", NOISES.full), ("null", NOISES.base)):
        Path(f"{name}.stan").write_text(text)
    assert NOISES.base_data is not None
    for name, data in (("data", NOISES.data), ("theirs", NOISES.base_data)):
        listed = {key: np.asarray(value).tolist() for key, value in data.items()}
        Path(f"{name}.json").write_text(json.dumps(listed))
    words = ["evidence", "full.stan", "data.json", "--base-program", "null.stan", "--seed", "1"]
    words += ["--base-data", "theirs.json", "--engine", "embedded", "--draws", "400"]
    words += ["--method", "joint", "--set", "path=prior"]
    assert main([*words, "--save", "run"]) == 0
    assert "log (Z of full / Z of null) = " in capsys.readouterr().out
    run = stanct.load("run")
    assert isinstance(run, CoupledRun)
    page = str(run.report())
    assert "(Z of full / Z of null)" in page
    assert "stanct.temper('full.stan', base='null.stan', base_data=theirs)" in html.unescape(page)
    longer = run.extend(100, progress=False)
    assert longer.evidence.of == run.evidence.of
    assert longer.draws == 500
    assert main(["temper", "full.stan", "--base-program", "null.stan"]) == 0
    text = capsys.readouterr().out
    assert "of null.stan to the density p_1 of full.stan" in text
    words = ["evidence", "full.stan", "data.json", "--base-program", "null.stan"]
    assert main([*words, "--method", "gibbs"]) == 1
    assert "does not lead from one program to another" in capsys.readouterr().err


def test_other_methods_and_kinds(tmp_path: Path) -> None:
    model = model_of(PRIORS)
    run = model.sample(
        PRIORS.data, stanct.PowerPosterior(rungs=8), draws=200, seed=1, progress=False
    )
    assert run.evidence.log_z == pytest.approx(PRIORS.exact, abs=4 * run.evidence.std_error)
    assert run.evidence.of == "(Z of model / Z of model)"
    for kind in ("joint", "pseudo_extended", "extended_hamiltonian"):
        with pytest.raises(stanct.StanctError, match="no program of the kind"):
            model.export(tmp_path / kind, PRIORS.data, kind)
    assert not list(tmp_path.iterdir())


def test_what_one_program_leaves_out() -> None:
    """A half prior of both cancels from the ratio; one of the base alone does not."""
    half = "parameters {{ real<lower=0> s; }} model {{ s ~ normal(0, 1){end}; }}"
    both = stanct.temper(half.format(end=""), base=half.format(end=""))
    assert both.omissions == ()
    whole = half.format(end=" T[0, ]")
    model = stanct.temper(whole, base=half.format(end=""))
    (one,) = model.omissions
    assert one.value == pytest.approx(-np.log(2))
    again = stanct.temper(whole, base=half.format(end=""), half_priors="renormalise")
    assert again.omissions == ()
    run = model.sample(draws=1000, seed=1, engine="embedded", progress=False)
    assert run.evidence.log_z == pytest.approx(np.log(2), abs=1e-6)
    assert "normalised" in run.warnings


@pytest.mark.parametrize(
    ("full", "base", "message"),
    [
        ("real a; real b;", "real a;", r"`b` is a parameter of model.stan and not of"),
        ("real a;", "real a; real b;", r"`b` is a parameter of model.stan and not of"),
        ("real a;", "vector[2] a;", "parameter `a` is declared in another way"),
        ("real<lower=0> a;", "real a;", "parameter `a` is declared in another way"),
        (
            "real a; vector[2] c;",
            "vector[3] c; real a;",
            "parameter `c` is declared in another way",
        ),
    ],
)
def test_parameters_that_differ(full: str, base: str, message: str) -> None:
    with pytest.raises(stanct.ProgramError, match=message):
        stanct.temper(f"parameters {{ {full} }}", base=f"parameters {{ {base} }}")


def test_what_cannot_be_joined() -> None:
    plain = "data { int K; vector[K] y; } parameters { vector[K] a; } model { y ~ normal(a, 1); }"
    other = plain.replace("vector[K] y", "array[K] real y")
    with pytest.raises(stanct.ProgramError, match="of the data `y` is declared in another"):
        stanct.temper(plain, base=other)
    model = stanct.temper(plain, base=other, base_data={"K": 2, "y": [0.5, 1]})
    assert "base_y" in str(model.stan_code())
    with pytest.raises(stanct.DataError, match=r"`K` is 3 for model\.stan and 2 for model.stan"):
        model.target({"K": 3, "y": [0.5, 1, 2]})
    clash = plain.replace("model {", "transformed parameters { real z = 1; } model {")
    theirs = plain.replace("int K;", "int K; real z;")
    with pytest.raises(stanct.ProgramError, match="`z` is a variable of the data here"):
        stanct.temper(clash, base=theirs)
    hidden = "functions { void f_lp(real x) { target += x; } } " + plain.replace(
        "y ~", "f_lp(0.5); y ~"
    )
    with pytest.raises(stanct.ProgramError, match="to which of them `f_lp` adds"):
        stanct.temper(plain, base=hidden)
    sizes = "transformed data {{ int K = {size}; }} parameters {{ vector[K] a; }}"
    with pytest.raises(stanct.ProgramError, match="Parameters depend on `K`"):
        stanct.temper(sizes.format(size=2), base=sizes.format(size=3))


def test_a_base_that_vanishes() -> None:
    """Where the base has no mass, the ratio is that of the mass inside."""
    full = "parameters { real x; } model { x ~ normal(0, 1); }"
    base = 'parameters { real x; } model { if (x < -8) reject("no"); x ~ normal(0, 2); }'
    model = stanct.temper(full, base=base)
    x = np.array([[-9.0], [-1.0]])
    assert model.density().log_densities(x)[0] == -np.inf
    run = model.sample(draws=400, seed=1, engine="embedded", progress=False)
    assert run.evidence.log_z == pytest.approx(0, abs=4 * run.evidence.std_error)

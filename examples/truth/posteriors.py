"""Posteriors without an integral, and proper ones with extreme scales: which does a run name?

Every program of `IMPROPER` must fail the check `improper`, and none of `PROPER` may. Some of these
are refused with an error, because doubles do not hold their scales. Twelve of the first are small
forms of what people met in public, at the addresses that they name.

    python posteriors.py [--only NAME ...] [--seed 1]
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import stanct


@dataclass(frozen=True)
class Case:
    """A program and its data, and where somebody met it.

    Attributes
    ----------
    parameters, model
        The bodies of these blocks. The data block follows from the values.
    source
        The address at which somebody met such a posterior.
    """

    parameters: str
    model: str
    data: dict[str, Any] = field(default_factory=dict)
    source: str = ""

    @property
    def program(self) -> str:
        """The Stan program."""
        data = " ".join(f"{_type(value)} {name};" for name, value in self.data.items())
        return f"data {{ {data} }}\nparameters {{ {self.parameters} }}\nmodel {{ {self.model} }}\n"


def _type(value: Any) -> str:
    """The Stan type of a number, or of an array of them."""
    array = np.asarray(value)
    sizes = ", ".join(map(str, array.shape))
    if array.dtype.kind == "i":
        return f"array[{sizes}] int" if sizes else "int"
    return ("real", f"vector[{sizes}]", f"matrix[{sizes}]")[array.ndim]


def _groups(count: int, each: int) -> list[int]:
    return np.repeat(np.arange(1, count + 1), each).tolist()


def _normal(*shape: int, seed: int = 1) -> Any:
    return np.random.default_rng(seed).standard_normal(shape).round(3)


_X = np.linspace(-1.0, 1.0, 12).tolist()
_APART = {"x": _X, "y": [0] * 7 + [1] * 5}
_MIXED = {"x": _X, "y": [0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1]}
_LINE = "real a; real b;"
_LOGIT = "y ~ bernoulli_logit(a + b * x);"
_SCHOOLS = {"y": [28.0, 8, -3, 7, -1, 1, 18, 12], "s": [15.0, 10, 16, 11, 9, 11, 10, 18]}
_EIGHT = "real mu; real<lower=0> tau; vector[8] theta;"
_CENTRED = "mu ~ normal(0, 20); theta ~ normal(mu, tau); y ~ normal(theta, s);"
_TWO_HEAPS = {"y": np.concatenate([_normal(15), 8 + _normal(15, seed=2)])}
_MIX = (
    "for (n in 1:30) target += log_mix(w, normal_lpdf(y[n] | m1, s1), normal_lpdf(y[n] | m2, s2));"
)
_SIX = {"y": [1.6, 2.3, 3.8, 0.3, 1.6, 0.7]}
_FACTOR = {"y": np.outer(_normal(12), [1.0, 0.8, 1.2]) + 0.5 * _normal(12, 3, seed=2)}
_LOADED = "for (j in 1:3) y[:, j] ~ normal(l[j] * f, s[j]);"
_ORDINAL = {"x": _X, "y": [1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]}
_ITEMS = {"y": [1, 0, 1, 1, 0, 0, 1, 0, 1, 1, 1, 0], "j": _groups(4, 3), "k": [1, 2, 3] * 4}
_FIFTY = {"y": 3 * _normal(50)}
_TUMOURS = {"y": [0, 1, 2, 5, 4, 0, 3], "n": [20, 19, 22, 25, 20, 18, 23]}

_SERIES = {"y": 1 + np.convolve(_normal(40), 0.7 ** np.arange(20))[:30].round(3)}
_AR = {
    1: "y[2:30] ~ normal(m + phi * (y[1:29] - m), s);",
    2: "y[3:30] ~ normal(m + a * (y[2:29] - m) + b * (y[1:28] - m), s);",
}

IMPROPER = {
    # Separated.
    "separated": Case(_LINE, _LOGIT, _APART, "https://github.com/bambinos/bambi/issues/320"),
    "separated by a copy": Case(
        _LINE,
        _LOGIT,
        {"x": [0.0] * 4 + [1.0] * 4, "y": [0] * 4 + [1] * 4},
        "https://avehtari.github.io/Bayesian-Workflow/problems/problems.html",
    ),
    "separated in part": Case(
        _LINE,
        _LOGIT,
        {"x": [-1.0] * 6 + [1.0] * 4, "y": [0, 1, 0, 1, 1, 0, 1, 1, 1, 1]},
        "https://github.com/statsmodels/statsmodels/issues/1705",
    ),
    "separated probit": Case(_LINE, "y ~ bernoulli(Phi_approx(a + b * x));", _APART),
    "separated ordinal": Case(
        "real b; ordered[2] c;", "y ~ ordered_logistic(b * to_vector(x), c);", _ORDINAL
    ),
    "separated classes": Case(
        "vector[2] a; vector[2] b;",
        "for (n in 1:12) y[n] ~ categorical_logit(append_row(0, a + b * x[n]));",
        _ORDINAL,
    ),
    "separated with groups": Case(
        "real a; real b; real<lower=0> tau; vector[4] u;",
        "tau ~ exponential(1); u ~ normal(0, tau); y ~ bernoulli_logit(a + b * x + u[g]);",
        {**_APART, "g": [1, 2, 3, 4] * 3},
    ),
    "no events in a group": Case(
        _LINE,
        "y ~ poisson_log(a + b * x);",
        {"x": [-1.0] * 4 + [1.0] * 4, "y": [2, 1, 3, 2] + [0] * 4},
    ),
    # Oblique.
    "two intercepts": Case(
        "real a; real b; real<lower=0> s;",
        "y ~ normal(a + b, s);",
        _SIX,
        "https://github.com/stan-ja/stan-ja/pull/65",
    ),
    "effects of two factors": Case(
        "vector[4] a; vector[3] b;",
        "y ~ bernoulli_logit(a[j] + b[k]);",
        {**_ITEMS, "y": [1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0]},
        "https://github.com/pyro-ppl/numpyro/issues/154",
    ),
    "items and people": Case(
        "vector[4] a; vector[3] b; real m;",
        "b ~ normal(0, 1); y ~ bernoulli_logit(m + a[j] - b[k]);",
        _ITEMS,
        "https://github.com/stan-dev/example-models/issues/5",
    ),
    "softmax": Case("vector[3] a;", "y ~ multinomial(softmax(a));", {"y": [3, 5, 2]}),
    "collinear": Case(
        "vector[3] b; real<lower=0> s;",
        "y ~ normal(x * b, s);",
        {"y": _normal(10, seed=2), "x": np.c_[np.ones(10), _normal(10), 0.73 * _normal(10) + 1.7]},
    ),
    "neighbours and an intercept": Case(
        "real m; vector[6] u;",
        "target += -0.5 * dot_self(u[1:5] - u[2:6]); y ~ normal(m + u, 1);",
        _SIX,
        "https://github.com/pymc-devs/pymc/pull/6831",
    ),
    "product": Case("real a; real b;", "y ~ normal(a * b, 1);", _SIX),
    # Hierarchical with flat scales.
    "eight schools, flat log": Case(_EIGHT, f"target += -log(tau); {_CENTRED}", _SCHOOLS),
    "eight schools, not centred": Case(
        _EIGHT,
        "target += -log(tau); mu ~ normal(0, 20); theta ~ normal(0, 1); "
        "y ~ normal(mu + tau * theta, s);",
        _SCHOOLS,
    ),
    "two groups": Case(
        "real<lower=0> tau; vector[1] theta;",
        "theta ~ normal(0, tau); y ~ normal(theta, 1);",
        {"y": np.array([1.3])},
    ),
    "fifty groups": Case(
        "real mu; real<lower=0> tau; vector[50] theta;",
        "target += -log(tau); mu ~ normal(0, 10); theta ~ normal(mu, tau); y ~ normal(theta, 1);",
        _FIFTY,
    ),
    "two scales": Case(
        "vector<lower=0>[2] tau; vector[4] a; vector[3] b;",
        "tau[1] ~ exponential(1); target += -log(tau[2]); a ~ normal(0, tau[1]); "
        "b ~ normal(0, tau[2]); y ~ normal(a[j] + b[k], 1);",
        {**_ITEMS, "y": _normal(12)},
        "https://github.com/abmantz/lrgs/pull/6",
    ),
    "scale of a group of one": Case(
        "vector<lower=0>[3] s; vector[3] m;",
        "m ~ normal(0, 5); y ~ normal(m[g], s[g]);",
        {"y": _normal(7), "g": [1, 1, 1, 2, 2, 2, 3]},
        "https://github.com/wwiecek/baggr/issues/58",
    ),
    "tumours": Case(
        "real mu; real<lower=0> tau; vector[7] theta;",
        "target += -log(tau); mu ~ normal(0, 5); theta ~ normal(mu, tau); "
        "y ~ binomial_logit(n, theta);",
        _TUMOURS,
    ),
    # Factors.
    "factor of flat scale": Case(
        "vector[3] l; vector[12] f; vector<lower=0>[3] s; real<lower=0> p;",
        f"f ~ normal(0, p); s ~ exponential(1); {_LOADED}",
        _FACTOR,
    ),
    "factor without prior": Case(
        "vector[3] l; vector[12] f; vector<lower=0>[3] s;",
        f"s ~ exponential(1); {_LOADED}",
        _FACTOR,
    ),
    "Heywood": Case(
        "vector[3] l; vector[12] f; vector<lower=0>[3] s;",
        f"l ~ normal(0, 1); f ~ normal(0, 1); target += -sum(log(s)); {_LOADED}",
        _FACTOR,
    ),
    "Heywood, integrated": Case(
        "vector[3] l; vector<lower=0>[3] s;",
        "l ~ normal(0, 1); target += -sum(log(s)); for (n in 1:12) "
        "y[n]' ~ multi_normal(rep_vector(0, 3), l * l' + diag_matrix(square(s)));",
        _FACTOR,
    ),
    # Mixtures.
    "mixture, flat means": Case(
        "real m1; real m2; real<lower=0, upper=1> w;",
        "real s1 = 1; real s2 = 1; " + _MIX,
        _TWO_HEAPS,
    ),
    "mixture, flat scales": Case(
        "real m1; real m2; real<lower=0> s1; real<lower=0> s2; real<lower=0, upper=1> w;",
        "m1 ~ normal(0, 10); m2 ~ normal(0, 10); " + _MIX,
        _TWO_HEAPS,
    ),
    "mixture, flat logs of scales": Case(
        "real m1; real m2; real<lower=0> s1; real<lower=0> s2; real<lower=0, upper=1> w;",
        "target += -log(s1) - log(s2); m1 ~ normal(0, 10); m2 ~ normal(0, 10); " + _MIX,
        _TWO_HEAPS,
    ),
    "mixture, ordered": Case(
        "ordered[2] m; real<lower=0, upper=1> w;",
        "real s1 = 1; real s2 = 1; real m1 = m[1]; real m2 = m[2]; " + _MIX,
        _TWO_HEAPS,
    ),
    # Sums of zero.
    "sum to zero": Case(
        "real mu; sum_to_zero_vector[6] z; real<lower=0> tau;",
        "mu ~ normal(0, 5); tau ~ exponential(1); z ~ normal(0, tau); y ~ normal(mu + z, 1);",
        _SIX,
        "https://github.com/paul-buerkner/brms/issues/1853",
    ),
    "sum to zero, flat": Case(
        "real mu; sum_to_zero_vector[6] z; real<lower=0> tau;",
        "mu ~ normal(0, 5); z ~ normal(0, tau); y ~ normal(mu + z, 1);",
        {"y": [0.1, 0.2, -0.1, 0.0, 0.15, -0.05]},
    ),
    # Autoregressions, whose mean loses its precision where coefficients sum to one.
    "walk or not": Case(
        "real m; real<lower=-1, upper=1> phi; real<lower=0> s;",
        f"s ~ exponential(1); {_AR[1]}",
        _SERIES,
    ),
    "two lags": Case(
        "real m; real a; real b; real<lower=0> s;", f"s ~ exponential(1); {_AR[2]}", _SERIES
    ),
    # One parameter alone.
    "two equal data": Case("real m; real<lower=0> s;", "y ~ normal(m, s);", {"y": [1.0, 1.0]}),
    "slower than any power": Case("real<lower=1> s;", "target += -log(s) - log1p(log(s));"),
    "no data": Case(
        "real a; real b; real<lower=0> s;",
        "y ~ normal(a + b * x, s);",
        {"x": np.zeros(0), "y": np.zeros(0)},
        "https://github.com/stan-dev/stan/issues/1555",
    ),
    "dummy": Case(
        "real mu; real<lower=0> dummy;",
        "y ~ normal(mu, 1);",
        {"y": _normal(100)},
        "https://github.com/cbergmeir/Rlgt/pull/2",
    ),
    "degrees of freedom": Case(
        "real m; real<lower=0> nu;",
        "m ~ normal(0, 1); y ~ student_t(nu, m, 1);",
        {"y": _normal(30)},
    ),
    "dispersion": Case(
        "real a; real<lower=0> phi;",
        "a ~ normal(0, 1); y ~ neg_binomial_2_log(a, phi);",
        {"y": [2, 3, 2, 4, 3, 2, 1, 3]},
    ),
}

PROPER = {
    "normal of 1e12": Case("real a; real b;", "a ~ normal(0, 1e12); b ~ normal(a, 1);"),
    "cauchy of 1e12": Case("real a; real b;", "a ~ cauchy(0, 1e12); b ~ normal(a, 1);"),
    "normal of 1e-12": Case("vector[3] a;", "a ~ normal(0, 1e-12);"),
    "far and narrow": Case("vector[2] a;", "a ~ normal(1e9, 1e-3);"),
    "uniform to 1e15": Case("real<lower=-1e15, upper=1e15> a; real b;", "b ~ normal(a, 1);"),
    "all scales": Case(
        "vector[6] a;", "for (k in 1:6) a[k] ~ normal(0, 10 ^ (4 * k - 14));",
    ),
    "separated, wide normal": Case(
        _LINE, f"a ~ normal(0, 1e4); b ~ normal(0, 1e4); {_LOGIT}", _APART
    ),
    "separated, cauchy": Case(_LINE, f"a ~ cauchy(0, 10); b ~ cauchy(0, 2.5); {_LOGIT}", _APART),
    "separated ordinal, student": Case(
        "real b; ordered[2] c;",
        "b ~ student_t(3, 0, 10); c ~ student_t(3, 0, 10); "
        "y ~ ordered_logistic(b * to_vector(x), c);",
        _ORDINAL,
    ),
    "ordinal, flat": Case(
        "real b; ordered[2] c;", "y ~ ordered_logistic(b * to_vector(x), c);",
        {"x": _X, "y": [1, 2, 1, 3, 2, 1, 3, 2, 1, 3, 2, 3]},
    ),
    "logistic, flat": Case(_LINE, _LOGIT, _MIXED),
    "counts, wide normal": Case(
        _LINE, "a ~ normal(0, 1e4); b ~ normal(0, 1e4); y ~ poisson_log(a + b * x);",
        {"x": _X, "y": [0, 1, 0, 2, 1, 0, 3, 2, 4, 6, 5, 9]},
    ),
    "no events, wide normal": Case(
        _LINE, "a ~ normal(0, 1e3); b ~ normal(0, 1e3); y ~ poisson_log(a + b * x);",
        {"x": [-1.0] * 4 + [1.0] * 4, "y": [2, 1, 3, 2] + [0] * 4},
    ),
    "precision, gamma(0.001)": Case(
        "real mu; real<lower=0> p; vector[8] theta;",
        "mu ~ normal(0, 20); p ~ gamma(0.001, 0.001); theta ~ normal(mu, inv_sqrt(p)); "
        "y ~ normal(theta, s);", _SCHOOLS,
    ),
    "gamma(0.001) alone": Case(
        "real<lower=0> p; real b;", "p ~ gamma(0.001, 0.001); b ~ normal(0, 1);"),
    "scale, inv_gamma(0.01)": Case(_EIGHT, f"tau ~ inv_gamma(0.01, 0.01); {_CENTRED}", _SCHOOLS),
    "scale, cauchy of 1e6": Case(_EIGHT, f"tau ~ cauchy(0, 1e6); {_CENTRED}", _SCHOOLS),
    "scale, inv_gamma(0.001)": Case(_EIGHT, f"tau ~ inv_gamma(0.001, 0.001); {_CENTRED}", _SCHOOLS),
    "variance, inv_gamma(0.001)": Case(
        "real mu; real<lower=0> v; vector[8] theta;",
        "mu ~ normal(0, 1e6); v ~ inv_gamma(0.001, 0.001); theta ~ normal(mu, sqrt(v)); "
        "y ~ normal(theta, s);", _SCHOOLS,
    ),
    "scale, uniform to 1e12": Case(
        "real mu; real<lower=0, upper=1e12> tau; vector[8] theta;",
        f"tau ~ uniform(0, 1e12); {_CENTRED}", _SCHOOLS,
    ),
    "scale, student(1) of 1e9": Case(_EIGHT, f"tau ~ student_t(1, 0, 1e9); {_CENTRED}", _SCHOOLS),
    "scale, exponential(1e-9)": Case(_EIGHT, f"tau ~ exponential(1e-9); {_CENTRED}", _SCHOOLS),
    "scale, lognormal(0, 50)": Case(_EIGHT, f"tau ~ lognormal(0, 50); {_CENTRED}", _SCHOOLS),
    "group of one, inv_gamma(0.01)": Case(
        "vector<lower=0>[3] s; vector[3] m;",
        "m ~ normal(0, 5); s ~ inv_gamma(0.01, 0.01); y ~ normal(m[g], s[g]);",
        {"y": _normal(7), "g": [1, 1, 1, 2, 2, 2, 3]},
    ),
    "student(1) alone": Case("vector[3] b;", "b ~ student_t(1, 0, 1e6);"),
    "student(0.2) alone": Case("real b; real c;", "b ~ student_t(0.2, 0, 1); c ~ normal(b, 1);"),
    "pareto(1, 0.01)": Case(
        "real<lower=1> p; real b;", "p ~ pareto(1, 0.01); b ~ normal(log(p), 1);"),
    "weibull(0.01) alone": Case(
        "real<lower=0> p; real b;", "p ~ weibull(0.01, 1); b ~ normal(0, 1);"),
    "inv_gamma(0.001) alone": Case(
        "real<lower=0> p; real b;", "p ~ inv_gamma(0.001, 0.001); b ~ normal(0, 1);"),
    "two of gamma(0.001)": Case(
        "vector<lower=0>[2] p; real b;", "p ~ gamma(0.001, 0.001); b ~ normal(0, 1);"),
    "separated, student(1) of 1e6": Case(
        _LINE, f"a ~ student_t(1, 0, 1e6); b ~ student_t(1, 0, 1e6); {_LOGIT}", _APART),
    "degrees of freedom, gamma(0.01)": Case(
        "real m; real<lower=0> nu;",
        "m ~ normal(0, 1); nu ~ gamma(0.01, 0.01); y ~ student_t(nu, m, 1);", {"y": _normal(30)}),
    "scale, flat": Case(_EIGHT, _CENTRED, _SCHOOLS),
    "three groups, flat": Case(
        "real<lower=0> tau; vector[3] theta;", "theta ~ normal(0, tau); y ~ normal(theta, 1);",
        {"y": np.array([1.3, 4.0, -2.0])},
    ),
    "lognormal(27, 3)": Case(
        "real<lower=0> tau; vector[4] u;", "tau ~ lognormal(27, 3); u ~ normal(0, 1); "
        "y ~ normal(1e12 * u, tau);", {"y": 1e12 * _normal(4)},
    ),
    "fifty groups": Case(
        "real mu; real<lower=0> tau; vector[50] theta;",
        "tau ~ cauchy(0, 1e3); mu ~ normal(0, 1e6); theta ~ normal(mu, tau); y ~ normal(theta, 1);",
        _FIFTY,
    ),
    "horseshoe": Case(
        "vector[4] b; vector<lower=0>[4] l; real<lower=0> t;",
        "l ~ cauchy(0, 1); t ~ cauchy(0, 1); b ~ normal(0, l * t); y ~ normal(b, 1);",
        {"y": np.array([0.1, -0.3, 8.0, 0.2])},
    ),
    "funnel": Case("real v; vector[9] u;", "v ~ normal(0, 3); u ~ normal(0, exp(v / 2));"),
    "beta(0.01)": Case(
        "real<lower=0, upper=1> p; real b;", "p ~ beta(0.01, 0.01); b ~ normal(p, 1);"),
    "dirichlet(0.05)": Case(
        "simplex[4] p;", "p ~ dirichlet(rep_vector(0.05, 4)); y ~ multinomial(p);",
        {"y": [5, 1, 0, 0]}),
    "line, Jeffreys": Case(
        "real a; real b; real<lower=0> s;", "target += -log(s); y ~ normal(a + b * x, s);",
        {"x": 1e6 * np.array(_X), "y": 1e-3 * _normal(12)},
    ),
    "cauchy data, flat": Case("real m; real<lower=0> s;", "target += -log(s); y ~ cauchy(m, s);",
        {"y": _normal(6)}),
    "softmax, wide normal": Case("vector[3] a;", "a ~ normal(0, 100); y ~ multinomial(softmax(a));",
        {"y": [3, 5, 2]}),
    "product, wide normal": Case("real a; real b;", "a ~ normal(0, 1e3); b ~ normal(0, 1); "
        "y ~ normal(a * b, 1);", _SIX),
    "factor": Case(
        "vector<lower=0>[3] l; vector[12] f; vector<lower=0>[3] s;",
        f"l ~ normal(0, 10); f ~ normal(0, 1); s ~ cauchy(0, 10); {_LOADED}", _FACTOR,
    ),
    "mixture": Case(
        "ordered[2] m; real<lower=0> s1; real<lower=0> s2; real<lower=0, upper=1> w;",
        "real m1 = m[1]; real m2 = m[2]; m ~ normal(0, 1e3); s1 ~ lognormal(0, 2); "
        "s2 ~ lognormal(0, 2); " + _MIX, _TWO_HEAPS,
    ),
    "walk or not, normal of 1e12": Case(
        "real m; real<lower=-1, upper=1> phi; real<lower=0> s;",
        f"m ~ normal(0, 1e12); s ~ exponential(1); {_AR[1]}", _SERIES,
    ),
    "two lags, normal of 1e6": Case(
        "real m; real a; real b; real<lower=0> s;",
        f"m ~ normal(0, 1e6); s ~ exponential(1); {_AR[2]}", _SERIES,
    ),
    "normal of 1e60": Case("real a; real b;", "a ~ normal(0, 1e60); b ~ normal(a, 1);"),
    "slower than most powers": Case("real<lower=1> s;", "target += -log(s) - 2 * log1p(log(s));"),
    "sum to zero, mended": Case(
        "real mu; sum_to_zero_vector[6] z; real<lower=0> tau;",
        "mu ~ normal(0, 5e3); tau ~ exponential(0.001); z ~ normal(0, tau); "
        "target += 0.5 * log(2 * pi()) + log(tau); y ~ normal(mu + z, 1);", _SIX,
    ),
}  # fmt: skip


def named(case: Case, seed: int) -> tuple[tuple[str, ...], str, float]:
    """What the run warns of, its first line, and its seconds."""
    begun = time.perf_counter()
    try:
        run: Any = stanct.temper(case.program).sample(
            case.data, seed=seed, progress=False, engine="embedded"
        )
        warnings, said = run.warnings, str(run).splitlines()[0]
    except stanct.StanctError as refusal:
        said = str(refusal).splitlines()[0]
        warnings = ("improper",) if said.startswith("log Z does not exist") else ("refused",)
    return warnings, said, time.perf_counter() - begun


def main(arguments: Sequence[str] | None = None) -> int:
    """Run all programs, and return how many are named wrongly."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="*")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    wrong = 0
    for kind, cases in (("improper", IMPROPER), ("proper", PROPER)):
        chosen = {k: v for k, v in cases.items() if not given.only or k in given.only}
        missed = refused = 0
        for name, case in chosen.items():
            warnings, said, seconds = named(case, given.seed)
            right = ("improper" in warnings) == (kind == "improper")
            missed += not right
            # A refusal names no integral, and gives no number either.
            refused += right and "refused" in warnings
            mark = "WRONG" if not right else "refused" if "refused" in warnings else "ok"
            print(f"{mark:7} {kind} {seconds:5.1f} s  {name}: {said}", flush=True)
            if not right:
                print(f"        {', '.join(warnings)}", flush=True)
        said = f"{len(chosen) - missed} of {len(chosen)} named rightly"
        print(f"{kind}: {said}, {refused} of them refused", flush=True)
        wrong += missed
    return wrong


if __name__ == "__main__":
    raise SystemExit(main())

"""Constants that programs leave out: against quadrature, and in programs without omissions."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT, target_of
from numpy.polynomial.legendre import leggauss

import stanct
from stanct import StanctError
from stanct.cli.main import main
from stanct.common.errors import ProgramError
from stanct.runs.screen import screen
from stanct.stan.arithmetic import constant
from stanct.stan.omissions import omissions, renormalised
from stanct.stan.program import Program
from stanct.stan.supports import FAMILIES, mass
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget, check_program

NODES, WEIGHTS = leggauss(8)
# A two-dimensional grid ends where exp(-12) of the mass lies outside.
NEAR = 3e-5


def log_z(program: Program, data: dict[str, Any] | None = None) -> float:
    """log Z by quadrature on panels of the unconstrained space, of one or two dimensions."""
    density = ProgramTarget(program, read_data(data, program)).density
    half_width, number = (30, 120) if density.dimension == 1 else (12, 24)
    panels = np.linspace(-half_width, half_width, number + 1)
    centre, half = (panels[1:] + panels[:-1]) / 2, np.diff(panels) / 2
    x = (centre[:, None] + half[:, None] * NODES).ravel()
    log_w = np.log((half[:, None] * WEIGHTS).ravel())
    axes = [np.ravel(axis) for axis in np.meshgrid(*[x] * density.dimension)]
    weights = sum(np.ravel(axis) for axis in np.meshgrid(*[log_w] * density.dimension))
    values = density.log_densities(np.stack(axes, axis=1))
    return float(np.logaddexp.reduce(values + weights))


def value_in_stan(expression: str, data: str = "", values: dict[str, Any] | None = None) -> float:
    """What Stan makes of an expression without parameters."""
    target = target_of(
        f"data {{ {data} }} parameters {{ real x; }} model {{ target += {expression}; }}", values
    )
    return float(target.density.log_density(np.zeros(1)))


def program(parameters: str, model: str, **blocks: str) -> Program:
    texts = {"functions": "", "data": "", "transformed_parameters": ""} | blocks
    written = [f"{name.replace('_', ' ')} {{ {texts[name]} }}" for name in ("functions", "data")]
    if texts["transformed_parameters"]:
        model = f"}} model {{ {model}"
        model = f"transformed parameters {{ {texts['transformed_parameters']} {model}"
    else:
        model = f"model {{ {model}"
    return Program.from_source(f"{' '.join(written)} parameters {{ {parameters} }} {model} }}")


# Bounds, prior, and what is left out in Stan.
HALVES = {
    "normal": ("lower=0", "normal(0, 1)", "log(2)"),
    "above": ("upper=0", "normal(0, 1)", "log(2)"),
    "off centre": ("lower=0", "normal(1, 2)", "-normal_lccdf(0 | 1, 2)"),
    "at 1": ("lower=1", "normal(1, 2)", "log(2)"),
    "std_normal": ("lower=0", "std_normal()", "log(2)"),
    "std_normal at 1": ("lower=1", "std_normal()", "-std_normal_lccdf(1)"),
    "two bounds": (
        "lower=-1, upper=0.5", "normal(0, 1)",
        "-log_diff_exp(normal_lcdf(0.5 | 0, 1), normal_lcdf(-1 | 0, 1))",
    ),
    "student_t": ("lower=0", "student_t(5, 0, 2)", "log(2)"),
    "student_t off centre": ("lower=0", "student_t(5, 1, 2)", "-student_t_lccdf(0 | 5, 1, 2)"),
    "cauchy": ("lower=0, upper=50", "cauchy(1, 2.5)", 
        "-log_diff_exp(cauchy_lcdf(50 | 1, 2.5), cauchy_lcdf(0 | 1, 2.5))"),
    "double_exponential": (
        "lower=0", "double_exponential(1, 2)", "-double_exponential_lccdf(0 | 1, 2)"
    ),
    "logistic": ("lower=0", "logistic(0.5, 1)", "-logistic_lccdf(0 | 0.5, 1)"),
    "gumbel": ("lower=0", "gumbel(0.5, 1)", "-gumbel_lccdf(0 | 0.5, 1)"),
    "skew_normal": ("lower=0", "skew_normal(0, 1, 2)", "-skew_normal_lccdf(0 | 0, 1, 2)"),
    "exp_mod_normal": ("lower=0", "exp_mod_normal(0, 1, 2)", "-exp_mod_normal_lccdf(0 | 0, 1, 2)"),
    "lognormal": ("lower=1", "lognormal(0, 1)", "-lognormal_lccdf(1 | 0, 1)"),
    "gamma": ("lower=0, upper=3", "gamma(2, 1)", "-gamma_lcdf(3 | 2, 1)"),
    "inv_gamma": ("lower=0, upper=1.5", "inv_gamma(2, 1)", "-inv_gamma_lcdf(1.5 | 2, 1)"),
    "exponential": ("lower=0.5", "exponential(2)", "-exponential_lccdf(0.5 | 2)"),
    "weibull": ("lower=0.5", "weibull(2, 1.5)", "-weibull_lccdf(0.5 | 2, 1.5)"),
    "frechet": ("lower=0, upper=4", "frechet(2, 1.5)", "-frechet_lcdf(4 | 2, 1.5)"),
    "chi_square": ("lower=1", "chi_square(3)", "-chi_square_lccdf(1 | 3)"),
    "inv_chi_square": ("lower=0, upper=2", "inv_chi_square(3)", "-inv_chi_square_lcdf(2 | 3)"),
    "scaled_inv_chi_square": (
        "lower=0, upper=2", "scaled_inv_chi_square(3, 1)", "-scaled_inv_chi_square_lcdf(2 | 3, 1)"
    ),
    "rayleigh": ("lower=0.5", "rayleigh(1)", "-rayleigh_lccdf(0.5 | 1)"),
    "beta": ("lower=0.5, upper=1", "beta(2, 3)", "-beta_lccdf(0.5 | 2, 3)"),
    "beta_proportion": (
        "lower=0, upper=0.5", "beta_proportion(0.4, 5)", "-beta_proportion_lcdf(0.5 | 0.4, 5)"
    ),
    "uniform": ("lower=0, upper=5", "uniform(0, 10)", "-uniform_lcdf(5 | 0, 10)"),
    "pareto": ("lower=1.5, upper=9", "pareto(1, 2)",
        "-log_diff_exp(pareto_lcdf(9 | 1, 2), pareto_lcdf(1.5 | 1, 2))"),
    "pareto_type_2": (
        "lower=0, upper=9", "pareto_type_2(0, 1, 2)", "-pareto_type_2_lcdf(9 | 0, 1, 2)"
    ),
}  # fmt: skip


@pytest.mark.parametrize("call", [False, True], ids=["statement", "increment"])
@pytest.mark.parametrize("case", HALVES)
def test_correction_is_what_quadrature_finds(case: str, call: bool) -> None:
    """log Z as written and the correction are log Z of the renormalised program, which is 0."""
    bounds, prior, correction = HALVES[case]
    family, arguments = prior[:-1].split("(")
    statement = f"s ~ {prior};"
    if call:
        bar = f"s | {arguments}" if arguments else "s"
        statement = f"target += {family}_lpdf({bar});"
    written = program(f"real<{bounds}> s;", statement)
    (found,) = omissions(written)
    assert (found.kind, found.parameters, found.statement) == ("half_prior", ("s",), statement)
    assert found.correction == correction
    known = value_in_stan(correction)
    if found.value is None:
        assert family in ("skew_normal", "exp_mod_normal")
    else:
        assert found.value == pytest.approx(known, abs=1e-9)
    mended = renormalised(written)
    assert mended.expanded != written.expanded
    assert (" T[" in mended.expanded) is not call
    # Tails of Student's t and of Pareto's distribution beyond the grid are below 1e-9.
    assert log_z(written) + known == pytest.approx(0, abs=2e-6)
    assert log_z(mended) == pytest.approx(0, abs=2e-6)
    assert omissions(mended) == ()


@pytest.mark.parametrize(
    ("bounds", "prior", "value"),
    [
        ("lower=0, upper=pi()", "von_mises(0, 2)", np.log(2)),
        ("lower=0, upper=pi()", "von_mises(1, 2)", None),
        ("lower=-pi(), upper=pi()", "von_mises(1, 2)", 0),
        ("lower=0, upper=2 * pi()", "von_mises(1, 2)", 0),
    ],
)
def test_circles_are_cut(bounds: str, prior: str, value: float | None) -> None:
    written = program(f"real<{bounds}> s;", f"s ~ {prior};")
    found = omissions(written)
    lacks = -log_z(written)
    if value is not None:
        assert lacks == pytest.approx(value, abs=2e-6)
    assert [one.value for one in found] == pytest.approx([lacks] if lacks > 1e-5 else [], abs=2e-6)
    mended = renormalised(written)
    assert log_z(mended) == pytest.approx(0, abs=2e-6) and omissions(mended) == ()


@pytest.mark.parametrize(
    ("bounds", "truncation", "remedy"),
    [
        ("lower=1", "T[0, ]", "T[1, ]"),
        ("lower=0, upper=1", "T[0, ]", "T[0, 1]"),
        ("lower=-1, upper=1", "T[, 1]", "T[-1, 1]"),
        ("lower=0", "T[0, 1]", None),
        ("lower=0, upper=2", "T[0.5, 1]", None),
    ],
)
def test_truncations_that_are_wider_than_the_bounds(
    bounds: str, truncation: str, remedy: str | None
) -> None:
    written = program(f"real<{bounds}> s;", f"s ~ normal(0.2, 1){truncation};")
    found = omissions(written)
    assert [one.remedy for one in found] == ([f"s ~ normal(0.2, 1) {remedy};"] if remedy else [])
    if remedy:
        assert found[0].value == pytest.approx(-log_z(written), abs=2e-6)
        mended = program(f"real<{bounds}> s;", str(found[0].remedy))
        assert omissions(mended) == () and log_z(mended) == pytest.approx(0, abs=2e-6)


def test_sums_of_zero_lack_a_dimension() -> None:
    source = "sum_to_zero_vector[K] z;", "z ~ normal(0, 2);"
    written = program(source[0].replace("K", "3"), source[1])
    (found,) = omissions(written)
    assert (found.kind, found.line) == ("on_surface", 1)
    assert found.value == pytest.approx(-log_z(written), abs=2e-6)
    mended = program(source[0].replace("K", "3"), str(found.remedy))
    assert log_z(mended) == pytest.approx(0, abs=2e-6)
    scaled = program("sum_to_zero_vector[3] z; real<lower=0> tau;",
                     "tau ~ exponential(1); z ~ normal(0, tau);")  # fmt: skip
    (found,) = omissions(scaled)
    assert "depends on tau" in found.sentence and found.value is None
    assert found.remedy == "z ~ normal(0, tau); target += 0.5 * log(2 * pi()) + log(tau);"
    for one in (mended, program("sum_to_zero_vector[3] z; real<lower=0> tau;",
                                f"tau ~ exponential(1); {found.remedy}")):  # fmt: skip
        assert "on_surface" not in [again.kind for again in omissions(one)]


VECTORS = {
    "vector": ("vector<lower=0>[2] s;", "s ~ normal(0, 1);", "2 * log(2)"),
    "off centre": ("vector<lower=0>[2] s;", "s ~ normal(1, 1);", "-2 * normal_lccdf(0 | 1, 1)"),
    "array": ("array[2] real<lower=0> s;", "s ~ normal(1, 1);", "-2 * normal_lccdf(0 | 1, 1)"),
    "matrix": (
        "matrix<upper=1>[2, 1] s;", "to_vector(s) ~ normal(0, 1);",
        "-2 * normal_lcdf(1 | 0, 1)",
    ),
    "loop": (
        "vector<lower=0>[2] s;", "for (k in 1:2) s[k] ~ normal(1, 1);",
        "-2 * normal_lccdf(0 | 1, 1)",
    ),
    "braces": (
        "vector<lower=0>[2] s;", "for (k in 1:2) { target += normal_lpdf(s[k] | 1, 1); }",
        "-2 * normal_lccdf(0 | 1, 1)",
    ),
    "no braces": (
        "vector<lower=0>[2] s;", "for (k in 1:2) target += normal_lpdf(s[k] | 1, 1);",
        "-2 * normal_lccdf(0 | 1, 1)",
    ),
    "two bounds": (
        "vector<lower=0, upper=2>[2] s;", "s ~ normal(1, 1);",
        "-2 * log_diff_exp(normal_lcdf(2 | 1, 1), normal_lcdf(0 | 1, 1))",
    ),
    "vector of centres": (
        "vector<lower=0>[2] s;", "s ~ normal([0.5, 1], 1);", "-normal_lccdf(0 | [0.5, 1], 1)"
    ),
    "vector of bounds": (
        "vector<lower=[0, 1]'>[2] s;", "s ~ normal(1, 1);", "-normal_lccdf([0, 1]' | 1, 1)"
    ),
    "slice": (
        "vector<lower=0>[2] s;", "s[1:2] ~ normal(1, 1);", "-size(s[1:2]) * normal_lccdf(0 | 1, 1)"
    ),
    "sum": (
        "real<lower=0> s; real<upper=1> r;",
        "target += normal_lpdf(s | 0, 1) + std_normal_lpdf(r);", None,
    ),
    "order": ("ordered[2] s;", "s ~ normal(0, 1);", "lgamma(2 + 1)"),
    "positive order": (
        "positive_ordered[2] s;", "s ~ normal(1, 1);",
        "lgamma(2 + 1) + -2 * normal_lccdf(0 | 1, 1)",
    ),
    "order of positive ones": ("positive_ordered[2] s;", "s ~ gamma(2, 1);", "lgamma(2 + 1)"),
    "scale": (
        "real<lower=0> t; real<lower=0> s;",
        "t ~ normal(1, 0.2) T[0, ]; s ~ normal(0, t); target += -0.0 * s * t;", "log(2)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", VECTORS)
def test_corrections_of_several_elements(case: str) -> None:
    parameters, model, correction = VECTORS[case]
    written = program(parameters, model)
    found = [omission for omission in omissions(written) if omission.kind == "half_prior"]
    if correction is not None:
        assert [omission.correction for omission in found] == [correction]
    known = [
        value_in_stan(str(omission.correction), "vector[2] s;", {"s": [0, 0]}) for omission in found
    ]
    for omission, value in zip(found, known, strict=True):
        assert omission.value is None or omission.value == pytest.approx(value, abs=1e-9)
    assert log_z(written) + sum(known) == pytest.approx(0, abs=NEAR)
    assert log_z(renormalised(written)) == pytest.approx(0, abs=NEAR)


FLAT = {
    "uniform": ("real<lower=-1, upper=3> s;", "-log(4)", "s ~ uniform(-1, 3);"),
    "of several": ("vector<lower=-1, upper=3>[2] s;", "-2 * log(4)", "s ~ uniform(-1, 3);"),
    "simplex": ("simplex[3] s;", "lgamma(3)", "s ~ dirichlet(rep_vector(1, 3));"),
}  # fmt: skip


@pytest.mark.parametrize("case", FLAT)
def test_flat_priors(case: str) -> None:
    parameters, correction, remedy = FLAT[case]
    used = "target += normal_lpdf(0 | 0 * sum(s), 1) - normal_lpdf(0 | 0, 1);"
    if parameters.startswith("real"):
        used = used.replace("sum(s)", "s")
    written = program(parameters, used)
    (found,) = omissions(written)
    assert (found.kind, found.correction, found.remedy) == ("flat_prior", correction, remedy)
    known = value_in_stan(correction)
    assert found.value == pytest.approx(known)
    assert not found.improper
    assert log_z(written) + known == pytest.approx(0, abs=NEAR)
    assert log_z(program(parameters, used + remedy)) == pytest.approx(0, abs=NEAR)


OWN = "real my_lpdf(real y, real m) { return normal_lpdf(y | m, 1); }"
INNER = "real all_lpdf(real y, real m) { return normal_lpdf(y | m, 1) + normal_lpdf(m | 0, 1); }"
PRIOR = "real prior(real m) { return normal_lpdf(m | 0, 1); }"
ADDS = "void prior_lp(real m) { m ~ normal(0, 1); }"
Y = "int N; vector[N] y; real L;"
LIKE = "y ~ normal(m, s);"
BOTH = "real m; real<lower=0> s;"
PAIR = "real<lower=0> s; real<lower=0> t;"
FINE = "m ~ normal(0, 1); "

# Parameters, model, other blocks, and the omissions as kind:parameter.
PROGRAMS: dict[str, tuple[str, str, dict[str, str], str]] = {
    "proper": (BOTH, FINE + "s ~ exponential(1);" + LIKE, {"data": Y}, ""),
    "truncated": (BOTH, FINE + "s ~ normal(0, 1) T[0, ];" + LIKE, {"data": Y}, ""),
    "half": (BOTH, FINE + "s ~ normal(0, 1);" + LIKE, {"data": Y}, "half_prior:s"),
    "corrected by lccdf": (
        BOTH, FINE + "target += normal_lpdf(s | 1, 1) - normal_lccdf(0 | 1, 1);" + LIKE,
        {"data": Y}, "",
    ),
    "corrected elsewhere": (
        BOTH, FINE + "s ~ normal(1, 1);" + LIKE + "target += -normal_lccdf(0.0 | 1, 1);",
        {"data": Y}, "",
    ),
    "corrected at another bound": (
        BOTH, FINE + "s ~ normal(1, 1);" + LIKE + "target += -normal_lccdf(2 | 1, 1);",
        {"data": Y}, "half_prior:s missing_constant:",
    ),
    "corrected by log 2": (
        BOTH, FINE + "target += normal_lpdf(s | 0, 1) + log(2);" + LIKE, {"data": Y}, ""
    ),
    "corrected by a number": (
        BOTH, FINE + "s ~ normal(0, 1); target += 0.6931472;" + LIKE, {"data": Y}, ""
    ),
    "one correction of two": (
        PAIR, "s ~ normal(1, 1); t ~ normal(1, 1); target += -normal_lccdf(0 | 1, 1);", {},
        "half_prior:t",
    ),
    "a correction of each": (
        PAIR, "s ~ normal(1, 1); t ~ normal(1, 2);"
        "target += -(normal_lccdf(0 | 1, 2) + normal_lccdf(0.0 | 1.0, 1));", {}, "",
    ),
    "a correction of both": (
        PAIR, "s ~ normal(1, 1); t ~ normal(1, 1); target += -2 * normal_lccdf(0 | 1, 1);", {}, "",
    ),
    "a correction of another scale": (
        PAIR, "s ~ normal(1, 1); t ~ normal(1, 2); target += -normal_lccdf(0 | 1, 2);", {},
        "half_prior:s",
    ),
    "a correction in the statement of another": (
        PAIR, "target += normal_lpdf(t | 0, 1) + log(2); s ~ normal(0, 1);"
        "target += normal_lpdf(0 | s, t);", {}, "half_prior:s",
    ),
    "a correction made before": (
        PAIR, "s ~ exponential(1); t ~ normal(1, 1); target += -c;",
        {"data": "} transformed data { real c = normal_lccdf(0 | 1, 1);"}, "",
    ),
    "corrected by values": (
        BOTH, FINE + "s ~ normal(L, 1);" + LIKE + "target += -normal_lccdf(0 | y[1], 1);",
        {"data": Y}, "missing_constant:s",
    ),
    "censored at the bound": (
        BOTH, FINE + "s ~ normal(L, 1); target += normal_lccdf(0 | m, s);" + LIKE, {"data": Y},
        "half_prior:s",
    ),
    "weights of a mixture": (
        BOTH, FINE + "s ~ normal(0, 1); for (n in 1:N) target += log_sum_exp(log(0.5) + "
        "normal_lpdf(y[n] | m, 1), log(0.5) + normal_lpdf(y[n] | 0, s));", {"data": Y},
        "half_prior:s",
    ),
    "a function of a parameter": ("real x;", "exp(x) ~ gamma(3, 1);", {}, "missing_constant:x"),
    "a function on the unit interval": (
        "real<lower=0, upper=1> p;", "logit(p) ~ normal(0, 1);", {}, "missing_constant:p"
    ),
    "a function of a positive parameter": (
        "real<lower=0> v;", "target += gamma_lpdf(inv(v) | 2, 3);", {}, "missing_constant:v"
    ),
    "a sum of parameters": (
        PAIR, "s ~ exponential(1); t ~ exponential(1); s - t ~ normal(0, 1);", {},
        "missing_constant:s t",
    ),
    "made of a parameter": (
        "real x;", "s ~ lognormal(0, 1);", {"transformed_parameters": "real s = exp(x);"},
        "missing_constant:x",
    ),
    "put together": (
        "vector[2] a; real b; matrix[2, 2] m;", "append_row(a, b) ~ normal(0, 1); "
        "to_vector(m[1]) ~ normal(0, 1); row(m, 2) ~ normal(0, 1);", {}, "",
    ),
    "order corrected": ("ordered[3] c;", "c ~ normal(0, 1); target += lgamma(4);", {}, ""),
    "kept in a variable": (
        BOTH, "target += lprior;" + LIKE,
        {"data": Y, "transformed_parameters": "real lprior = normal_lpdf(m | 0, 1); "
         "lprior += student_t_lpdf(s | 3, 0, 2.5) - 1 * student_t_lccdf(0 | 3, 0, 2.5);"}, "",
    ),
    "no mass below": (
        "real<lower=-1> s; real<lower=1> r;", "s ~ gamma(1, 1); r ~ pareto(1, 2);", {}, ""
    ),
    "uniform within": ("real<lower=0, upper=2> s;", "s ~ uniform(0, 2);", {}, ""),
    "uniform by name": (
        "real<lower=L, upper=L + 1> s;", "s ~ uniform(L, L + 1);", {"data": "real L;"}, ""
    ),
    "infinite bound": ("real<lower=negative_infinity()> s;", "s ~ normal(0, 1);", {}, ""),
    "far away": ("real<lower=0> s;", "s ~ normal(100, 1);", {}, ""),
    "bound among data": (
        "real<lower=L> s;", "s ~ normal(L, 1);", {"data": "real L;"}, "half_prior:s"
    ),
    "own distribution": (
        "real<lower=0> s; real m;", "s ~ my(m); m ~ normal(0, 1);", {"functions": OWN}, ""
    ),
    "own likelihood": (
        "real m;", "y[1] ~ my(m);", {"functions": OWN, "data": Y}, "improper:m"
    ),
    "own joint density": ("real m;", "y[1] ~ all(m);", {"functions": INNER, "data": Y}, ""),
    "own prior": ("real m;", "target += prior(m);", {"functions": PRIOR}, ""),
    "own prior kept": (
        "real m;", "target += p;",
        {"functions": PRIOR, "transformed_parameters": "real p = prior(m);"}, "",
    ),
    "adds by itself": ("real m;", "prior_lp(m);", {"functions": ADDS}, ""),
    "improper": (BOTH, LIKE, {"data": Y}, "improper:m improper:s"),
    "improper centre": (
        "real m; vector[N] t;", "t ~ normal(m, 1); y ~ normal(t, 1);", {"data": Y}, "improper:m"
    ),
    "improper by its type": ("ordered[2] c;", "n ~ ordered_logistic(0.1, c);",
        {"data": "int n;"}, "improper:c"),
    "missing data": (
        "vector[2] z; real m;", "m ~ normal(0, 1); append_row(y, z) ~ normal(m, 1);",
        {"data": Y}, "",
    ),
    "missing data, filled in": (
        "real z; real m;", "vector[N] f = y; f[1] = z; m ~ normal(0, 1); f ~ normal(m, 1);",
        {"data": Y}, "",
    ),
    "censored data": (
        "vector<lower=L>[2] z; real m;", "m ~ normal(0, 1); z ~ normal(m, 1); y ~ normal(m, 1);",
        {"data": Y}, "",
    ),
    "bounded effects": (
        "vector<lower=0>[N] t; real m;",
        "m ~ normal(0, 1); t ~ normal(m, 1); y ~ normal(t, 1);", {"data": Y}, "half_prior:t",
    ),
    "effects at the bound": (
        "vector<lower=0>[N] t; real<lower=0> s;",
        "s ~ exponential(1); t ~ normal(0, s); y ~ normal(t, 1);", {"data": Y}, "half_prior:t",
    ),
    "likelihood turned round": (
        "real<lower=0> m;", "m ~ exponential(1); for (n in 1:N) m ~ normal(y[n], 1);",
        {"data": Y}, "",
    ),
    "likelihood turned round, vectorised": (
        "real<lower=0> m;", "m ~ normal(y, 1);", {"data": Y}, "",
    ),
    "two priors": ("real<lower=0> s;", "s ~ normal(0, 1); s ~ cauchy(0, 1);", {},
        "missing_constant:s"),
    "prior by choice": (
        "real<lower=0> s;", "if (N > 1) s ~ normal(0, 1); else s ~ gamma(1, 1);",
        {"data": "int N;"}, "half_prior:s",
    ),
    "by its bound": (
        "real<lower=0> a; real<lower=a> b;", "b ~ exponential(1);", {}, "",
    ),
    "bounded by a parameter with a prior": (
        "real a; real<lower=a> b;", "a ~ normal(0, 1); b ~ normal(0, 1);", {}, "half_prior:b",
    ),
    "multiplied by a parameter without a prior": (
        "real<lower=0> s; real<multiplier=s> x;", "x ~ normal(0, s);", {}, "improper:s",
    ),
    **{
        name: ("real<lower=0> x;", statement, {}, "missing_constant:x")
        for name, statement in {
            "a part of an array": "{x, 1} ~ normal(0, 1);",
            "a choice": "target += 1 > 0 ? normal_lpdf(x | 0, 1) : 0;",
            "a multiple": "target += 1 * normal_lpdf(x | 0, 1);",
            "a density kept in a variable":
                "real p = normal_lpdf(x | 0, 1); target += p; print(p);",
            "a sum that is scaled": "real p = 0; p += normal_lpdf(x | 0, 1); target += 2 * p;",
            "a sum that is added twice":
                "real p = 0; p += normal_lpdf(x | 0, 1); target += p; target += p;",
            "a sum that is added too early":
                "real p = 0; target += p; p += normal_lpdf(x | 0, 1);",
            "a sum that shrinks":
                "real p = 0; p += normal_lpdf(x | 0, 1); p *= 0.5; target += p;",
            "a sum that is added by choice":
                "real p = 0; p += normal_lpdf(x | 0, 1); if (x > 1) target += p;",
        }.items()
    },
    "sum by hand": (
        "real m;", "real p = 0; p += -abs(m)^3; target += p;", {}, "missing_constant:m"
    ),
    "elements by name": (
        "vector<lower=0>[3] x;", "for (v in x) v ~ normal(0, 1);", {}, "missing_constant:x"
    ),
    "in a function": (
        "real<lower=0> x;", "prior_lp(x);",
        {"functions": "void prior_lp(real x) { x ~ normal(0, 1); }"}, "missing_constant:x",
    ),
    "in a function with a value": (
        "real x;", "real a = prior_lp(x);",
        {"functions": "real prior_lp(real x) { x ~ normal(0, 1); return 1; }"}, "",
    ),
    "flat": ("real<lower=0, upper=9> s;", "y ~ normal(0, s);", {"data": Y}, "flat_prior:s"),
    "flat on the unit interval": (
        "real<lower=0, upper=1> p;", "n ~ bernoulli(p);", {"data": "int n;"}, ""
    ),
    "unused": ("real m; real r;", FINE, {}, "unused_parameter:r"),
    "unused but for generated quantities": (
        "real m; real<lower=0, upper=1> r;", FINE,
        {"transformed_parameters": "real twice = 2 * r;"}, "unused_parameter:r",
    ),
    "only transformed": (
        "real r; real m;", "t ~ normal(0, 1); m ~ normal(0, 1);",
        {"transformed_parameters": "real t = r;"}, "",
    ),
    "by hand": ("real m;", "target += -abs(m)^3;", {}, "missing_constant:m"),
    "Jacobian by name": (
        "real<lower=0> s;", "log_s ~ normal(0, 1);",
        {"transformed_parameters": "real log_s = log(s); jacobian += -log_s;"},
        "",
    ),
    "mixture": (
        "real<lower=0, upper=1> w; ordered[2] c;",
        "c ~ normal(0, 1); for (n in 1:N) target += log_mix(w, normal_lpdf(y[n] | c[1], 1), "
        "normal_lpdf(y[n] | c[2], 1));", {"data": Y}, "half_prior:c",
    ),
    "mixture by a variable": (
        "simplex[3] w; vector[3] c;",
        "for (n in 1:N) { vector[3] l = log(w); for (k in 1:3) l[k] += normal_lpdf(y[n] | c[k], 1);"
        " target += log_sum_exp(l); }", {"data": Y}, "flat_prior:w improper:c",
    ),
    "vector with a multivariate prior": (
        "vector<lower=0>[2] s;", "s ~ multi_normal(rep_vector(0, 2), identity_matrix(2));", {},
        "half_prior:s",
    ),
    "matrices": (
        "corr_matrix[2] R; cov_matrix[2] S;",
        "R ~ lkj_corr(2); S ~ wishart(4, identity_matrix(2));", {}, "",
    ),
    "a copy": ("real<lower=0> x;", "real a = x; a ~ normal(0, 1);", {}, "half_prior:x"),
    "no lccdf": ("real<lower=1> s;", "s ~ loglogistic(1, 2);", {}, "half_prior:s"),
}  # fmt: skip


@pytest.mark.parametrize("case", PROGRAMS)
def test_what_programs_leave_out(case: str) -> None:
    parameters, model, blocks, expected = PROGRAMS[case]
    written = program(parameters, model, **blocks)
    check_program(written)
    found = omissions(written)
    names = [f"{omission.kind}:{' '.join(omission.parameters)}" for omission in found]
    assert " ".join(names) == expected
    for omission in found:
        assert omission.improper == (omission.kind == "improper" or case == "unused"), (
            omission.sentence
        )
    mended = renormalised(written)
    check_program(mended)
    # Renormalised priors are not found again; those that depend on a parameter stay unchanged.
    again = [o for o in omissions(mended) if o.kind == "half_prior"]
    constant_ones = [o for o in found if o.remedy and o.correction and o.kind == "half_prior"]
    assert len(again) == sum(o.kind == "half_prior" for o in found) - len(constant_ones)


def test_numbers_of_the_data_tell_the_volume_of_a_support() -> None:
    flat = "data { real U; int N; } parameters { vector<lower=0, upper=U>[N] x; } model { }"
    assert omissions(Program.from_source(flat))[0].value is None
    (told,) = target_of(flat, {"U": 3.0, "N": 2}).omissions
    assert told.value == pytest.approx(-2 * math.log(3))


@pytest.mark.parametrize(
    ("model", "said"),
    [
        ("if (a > b) reject(a);", True),
        ("for (k in 2:N) if (c[k] < c[k - 1]) { reject(k); }", True),
        ("if (a + b > 0) { if (a < 3) reject(a, b); }", True),
        ("if (x * a > b) reject(a);", False),  # may be of the likelihood
        ("if (is_nan(a)) reject(a);", False),
        ("if (x < 0) reject(x);", False),
    ],
)
def test_what_is_rejected_by_parameters_alone_is_said(model: str, said: bool) -> None:
    """a < b has half of the prior's mass, and log Z lacks log 2."""
    source = f"""
    data {{ int N; real x; }} parameters {{ real a; real b; vector[N] c; }}
    model {{ a ~ std_normal(); b ~ std_normal(); c ~ std_normal();
    {model} }}
    """
    found = omissions(Program.from_source(source))
    assert [(one.kind, one.line) for one in found] == [("missing_constant", 4)] * said


@pytest.mark.parametrize(
    ("parameters", "model", "found"),
    [
        ("vector[n] b;", "for (t in 2:n) b[t] ~ normal(b[t - 1], 1);", "improper:1"),
        ("vector[n] b;", "b[2:n] ~ normal(b[1:(n - 1)], 1);", "improper:1"),
        ("vector[n] b;", "b[1] ~ normal(0, 5); b[2:] ~ normal(0, 1);", ""),
        ("vector[n] b;", "for (t in 1:n) b[t] ~ normal(0, 1);", ""),
        ("array[3] real b;", "for (t in 1:2) b[t] ~ normal(0, 1);", "improper:3"),
        ("vector[3] b;", "b[1] ~ normal(0, 1); b[3] ~ normal(0, 1);", "improper:2"),
        ("matrix[2, 3] b;", "b[1] ~ normal(0, 1);", "improper:2"),
        ("matrix[2, 3] b;", "for (i in 1:2) for (j in 1:3) b[i, j] ~ normal(0, 1);", ""),
        ("vector[3] b;", "b[1] ~ normal(0, 1); b ~ normal(0, 1);", ""),
        ("vector[3] b;", "b[{1, 2}] ~ normal(0, 1);", ""),  # may be all that there are
        ("vector<lower=0, upper=1>[3] b;", "b[1] ~ beta(2, 2);", ""),
        ("ordered[2] b;", "b[1] ~ uniform(-9, 1); b[2] ~ uniform(1, 9);", "missing_constant"),
        ("real b;", "for (k in 1:n) b ~ normal(0, 1);", "missing_constant"),
        ("real b;", "for (k in 1:n) b ~ normal(k, 1);", ""),
    ],
)
def test_elements_without_a_prior_are_named(parameters: str, model: str, found: str) -> None:
    source = f"data {{ int n; }} parameters {{ {parameters} }} model {{ {model} }}"
    told = omissions(Program.from_source(source))
    kind, _, place = found.partition(":")
    assert [one.kind for one in told] == [kind] * bool(kind)
    if place:
        assert told[0].sentence.startswith(f"`b[{place}]` has no prior") and told[0].improper


def test_data_tell_which_elements_have_no_prior() -> None:
    source = """
    data { int n; int m; } parameters { vector[n] b; } model { b[1:m] ~ normal(0, 1); }
    """
    assert omissions(Program.from_source(source)) == ()
    assert target_of(source, {"n": 3, "m": 3}).omissions == ()
    (told,) = target_of(source, {"n": 3, "m": 2}).omissions
    assert told.improper and told.sentence.startswith("`b[3]` has no prior")


SWITCHED = """
data { int kind; int N; vector[N] y; }
parameters { real m; real<lower=0> s; }
model {
  if (kind == 1) m ~ normal(0, 1);
  else if (kind == 2 && N > 0) {
    m ~ cauchy(0, 1);
  }
  if (!(kind == 3)) s ~ exponential(1); else {
    s ~ normal(0, 1);
  }
  y ~ normal(m, s);
}
"""


@pytest.mark.parametrize(
    ("kind", "n", "found"),
    [
        (0, 2, [("improper", 3, ("m",))]),
        (1, 2, []),
        (2, 2, []),
        (2, 0, [("improper", 3, ("m",))]),
        (3, 2, [("improper", 3, ("m",)), ("half_prior", 10, ("s",))]),
    ],
)
def test_data_tell_which_priors_a_program_has(kind: int, n: int, found: list[Any]) -> None:
    target = target_of(SWITCHED, {"kind": kind, "N": n, "y": [0.5] * n})
    told = [(one.kind, one.line, one.parameters) for one in target.omissions]
    assert told == found
    written = [one.kind for one in omissions(Program.from_source(SWITCHED))]
    assert written == ["half_prior"]  # any branch may be taken


FORWARD = """
data { int T; vector[T] y; } parameters { array[2] simplex[2] q; vector[2] m; }
model {
  array[T] vector[2] g; vector[2] each; m ~ normal(0, 1);
  for (k in 1:2) g[1, k] = START normal_lpdf(y[1] | m[k], 1);
  for (t in 2:T) for (k in 1:2) {
    for (j in 1:2) each[j] = g[t - 1, j] + log(q[j, k]) + normal_lpdf(y[t] | m[k], 1);
    g[t, k] = log_sum_exp(each);
  }
  target += log_sum_exp(g[T]);
}
"""


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (FORWARD.replace("START", "-log(2) +"), False),
        (FORWARD.replace("START", ""), True),  # log Z lacks the log of a half
        ("data { int n; } parameters { real<lower=0, upper=1> p; } model { vector[9] l; "
         "for (k in 1:9) l[k] = k < n ? negative_infinity() : binomial_lpmf(n | k, p);"
         "target += log_sum_exp(l); }", True),
        ("data { int n; } parameters { real<lower=0, upper=1> p; } model { vector[9] l; "
         "for (k in 1:9) l[k] = k < n ? negative_infinity() : -log(9) + binomial_lpmf(n | k, p); "
         "target += log_sum_exp(l); }", False),
        ("data { real y; } parameters { simplex[2] w; } model { vector[2] l = log(w); "
         "for (k in 1:2) l[k] += normal_lpdf(y | k, 1); target += log_sum_exp(l); }", False),
        ("data { int y; } parameters { real m; } model { m ~ normal(0, 1); "
         "target += log_sum_exp(poisson_lpmf(y | 1), poisson_lpmf(y | exp(m))); }", True),
    ],
)  # fmt: skip
def test_mixtures_without_weights_are_said(source: str, said: bool) -> None:
    found = omissions(Program.from_source(source))
    assert [one.kind for one in found] == ["missing_constant"] * said
    if said:
        assert "target += log_sum_exp(" in found[0].statement


LATENT = (
    "functions { real f_lpdf(real y, vector w) { "
    "return dirichlet_lpdf(w | [1, 2, 3]') + normal_lpdf(y | w[1], 1); } }"
)
WEIGHTS_OF = "data { real y; vector[3] a; } parameters { TYPE w; } model { PRIOR MIXED }"
MIXED = (
    "target += log_mix(w, [normal_lpdf(y | 0, 1), normal_lpdf(y | 3, 1), normal_lpdf(y | 5, 1)]');"
)
SUMMED = (
    "vector[3] l = LOG; for (k in 1:3) l[k] += normal_lpdf(y | k, 1); target += log_sum_exp(l);"
)


@pytest.mark.parametrize(
    ("kind", "prior", "mixed", "found"),
    [
        ("simplex[3]", "", MIXED, [("flat_prior", "lgamma(3)")]),
        ("simplex[3]", "", SUMMED.replace("LOG", "log(w)"), [("flat_prior", "lgamma(3)")]),
        ("simplex[3]", "w ~ dirichlet(a);", MIXED, []),
        ("simplex[3]", "target += dirichlet_lpdf(w | a);", MIXED, []),
        ("simplex[3]", "target += sum((a - 1) .* log(w));", MIXED, [("missing_constant", None)]),
        ("simplex[3]", LATENT, "y ~ f(w);", []),
        ("vector[3]", "", SUMMED.replace("LOG", "log_softmax(w)"), [("improper", None)]),
        ("vector[3]", "w ~ normal(0, a);", SUMMED.replace("LOG", "log_softmax(w)"), []),
    ],
)
def test_weights_that_only_the_likelihood_has(
    kind: str, prior: str, mixed: str, found: list[tuple[str, str | None]]
) -> None:
    source = WEIGHTS_OF.replace("TYPE", kind).replace("MIXED", mixed)
    if prior == LATENT:
        source, prior = LATENT + source, ""
    said = omissions(Program.from_source(source.replace("PRIOR", prior)))
    assert [(one.kind, one.correction) for one in said] == found


# Parameters and a model with constants of its own.
TWO = "vector<lower=0>[2] x;", "x ~ normal(0, 1); "
ONE = "real<lower=0> x;", "x ~ normal(0, 1); "
OWN_CONSTANTS = {
    "one for two": (TWO[0], TWO[1] + "target += log(2);"),
    "two for two": (TWO[0], TWO[1] + "target += 2 * log(2);"),
    "one for each of two": (TWO[0], TWO[1] + "target += log(2); target += log(2);"),
    "in a loop": (TWO[0], TWO[1] + "for (k in 1:2) target += log(2);"),
    "in a loop too many": (TWO[0], TWO[1] + "for (k in 1:3) target += log(2);"),
    "times the size": (TWO[0], TWO[1] + "target += -size(x) * normal_lccdf(0 | 0, 1);"),
    "one distribution function for two": (TWO[0], TWO[1] + "target += -normal_lccdf(0 | 0, 1);"),
    "one for an array of two": ("array[2] real<lower=0> x;", TWO[1] + "target += log(2);"),
    "of the wrong sign": (ONE[0], ONE[1] + "target += -log(2);"),
    "subtracted": (ONE[0], ONE[1] + "target += log(0.5);"),
    "of minus a half": (ONE[0], ONE[1] + "target += -log(0.5);"),
    "of another value": ("real<lower=0> x;", "x ~ normal(1, 1); target += log(2);"),
    "kept in data": (ONE[0], ONE[1] + "real c = log(2); target += c;"),
    "of an order": ("positive_ordered[2] x;", "x ~ exponential(1); target += log(2);"),
    "of an order and a sign": ("positive_ordered[2] x;", "x ~ normal(0, 1); target += log(8);"),
    "of an order without its sign": (
        "positive_ordered[2] x;", "x ~ normal(0, 1); target += log(2);",
    ),
    "by a number": ("real<lower=1> x;", "x ~ exponential(1); target += 1;"),
    "by the wrong number": ("real<lower=1> x;", "x ~ exponential(1); target += 2;"),
    "flat": ("real<lower=0, upper=4> x;", "target += -log(4);"),
    "flat with the wrong sign": ("real<lower=0, upper=4> x;", "target += log(4);"),
    "a difference": (
        "real<lower=-1, upper=2> x;", "target += normal_lpdf(x | 0, 2) - "
        "log_diff_exp(normal_lcdf(2 | 0, 2), normal_lcdf(-1 | 0, 2));",
    ),
    "a complement": (
        "real<lower=0> x;",
        "target += normal_lpdf(x | 1, 2) - log1m_exp(normal_lcdf(0 | 1, 2));",
    ),
    "of nothing": ("real x;", ONE[1] + "target += 3;"),
    "of elements by other names": (
        TWO[0], "real a = x[1]; real b = x[2]; a ~ exponential(1); "
        "target += normal_lpdf(b | 1, 1) - 1 * normal_lccdf(0 | 1, 1);",
    ),
    "of elements by other names without it": (
        TWO[0], "real a = x[1]; real b = x[2]; a ~ exponential(1); b ~ normal(1, 1);",
    ),
    "of a name that changes": (
        TWO[0], "for (k in 1:2) { real a = x[k]; a ~ normal(1, 1); }",
    ),
    "between the ends of a support": (
        "real<lower=0, upper=1> x;", "target += beta_lpdf(x | 2, 3) - "
        "1 * log_diff_exp(beta_lcdf(1 | 2, 3), beta_lcdf(0 | 2, 3));",
    ),
    "from an end of a support": (
        "real<lower=2, upper=4> x;", "target += uniform_lpdf(x | 2, 9) - "
        "1 * log_diff_exp(uniform_lcdf(4 | 2, 9), uniform_lcdf(2 | 2, 9));",
    ),
    "times the rows": (
        TWO[0], "target += normal_lpdf(x | 0, 1) - rows(x) * log(0.5);",
    ),
    "times the rows of a row": (
        "row_vector<lower=0>[2] x;", "target += normal_lpdf(x | 0, 1) - rows(x) * log(0.5);",
    ),
    "times a number of elements": (
        TWO[0], "target += normal_lpdf(x | 1, 1) - 2 * normal_lccdf(0 | 1, 1);",
    ),
    "times a wrong number of elements": (
        TWO[0], "target += normal_lpdf(x | 1, 1) - 1 * normal_lccdf(0 | 1, 1);",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", OWN_CONSTANTS)
def test_a_constant_counts_where_its_value_is_what_is_missing(case: str) -> None:
    """A program is silent exactly if quadrature finds that it is normalised."""
    written = program(*OWN_CONSTANTS[case])
    assert (omissions(written) == ()) is (abs(log_z(written)) < NEAR)


IN_ORDER = "real<lower=0, upper=3> x; real<lower=x, upper=3> y;"


@pytest.mark.parametrize(
    ("declared", "model", "kinds"),
    [
        ("vector<lower=0>[N] x;", "x ~ normal(0, 1); target += N * log(2);", []),
        ("vector<lower=0>[N] x;", "x ~ normal(0, 1); target += log(2);", ["missing_constant"]),
        ("vector<lower=0>[N] x;",
         "target += student_t_lpdf(x | 3, 1, 2) - 2 * student_t_lccdf(0 | 3, 1, 2);", []),
        ("vector<lower=0, upper=1>[N] x;", "target += normal_lpdf(x | 0, 1) "
         "- 2 * log_diff_exp(normal_lcdf(1 | 0, 1), normal_lcdf(0 | 0, 1));", []),
        ("vector<lower=0>[N] x;", "target += normal_lpdf(x | 0, 1) - rows(x) * log(0.5);", []),
        # Without its factor the constant may be meant for one element.
        ("vector<lower=0>[N] x;", "target += normal_lpdf(x | 1, 2) - normal_lccdf(0 | 1, 2);",
         ["missing_constant"]),
        ("vector<lower=0>[N] x;", "target += normal_lpdf(x | 1, 2) - 2 * normal_lccdf(0 | 0, 2);",
         ["missing_constant"]),
        ("vector<lower=0>[N] x;",
         "target += normal_lpdf(x | 1, 2); target += -2 * normal_lccdf(0 | 1, 2);",
         ["missing_constant"]),
        ("real<lower=0> x;", "x ~ normal(N, 1); target += -normal_lccdf(0 | N, 1);", []),
        ("real<lower=0> x;", "x ~ normal(0, 1); target += N * log(2);",
         ["half_prior", "missing_constant"]),
        ("vector<lower=0>[2] x;",
         "x ~ multi_normal(zeros_vector(2), identity_matrix(2)); target += 2 * log(2);",
         ["missing_constant"]),
        # Parameters in order are bounds of each other, and have one volume together.
        (IN_ORDER, "target += log(2) - 2 * log(3);", ["missing_constant"]),
        (IN_ORDER, "x ~ uniform(0, 3); y ~ uniform(0, 3); target += log(2);",
         ["missing_constant"]),
        (IN_ORDER, "x ~ uniform(0, 3); y ~ uniform(0, 3);", ["half_prior"]),
    ],
)  # fmt: skip
def test_constants_whose_values_the_text_does_not_tell(
    declared: str, model: str, kinds: list[str]
) -> None:
    found = omissions(program(declared, model, data="int N;"))
    assert [one.kind for one in found] == kinds


def test_data_tell_whether_a_prior_counts_its_elements() -> None:
    prior = "target += normal_lpdf(x | 1, 2) - 2 * normal_lccdf(0 | 1, 2);"
    written = program("vector<lower=0>[N] x;", prior, data="int N;")
    assert omissions(written) == ()
    for size in (1, 2, 3):
        data = read_data({"N": size}, written)
        assert (ProgramTarget(written, data).omissions == ()) is (size == 2)


@pytest.mark.parametrize(
    ("declared", "model", "count"),
    [
        ("ordered[2] x;", "x[1] ~ normal(0, 1); x[2] ~ normal(1, 2);", 2),
        ("ordered[2] x;", "for (k in 1:2) x[k] ~ normal(k, 1);", 1),
        ("ordered[2] x;", "real a = x[1]; real b = x[2]; a ~ normal(0, 1); b ~ normal(0, 1);", 2),
        ("ordered[2] x;", "x ~ normal([0, 1], 1);", 1),
        ("positive_ordered[2] x;", "x[1:2] ~ exponential([1, 2]);", 1),
        # Normalised by their differences, or on supports of their own.
        ("ordered[2] x;", "x[1] ~ normal(0, 1); x[2] - x[1] ~ exponential(1);", 0),
        ("ordered[2] x;", "x[1] ~ normal(0, 1); target += exponential_lpdf(x[2] - x[1] | 1);", 0),
        ("ordered[2] x;", "x[1] ~ uniform(-9, 1); x[2] ~ uniform(1, 9);", 0),
        ("ordered[2] x;", "x[1] ~ normal(0, 1); x[2] ~ normal(0, 1) T[x[1], ];", 0),
        ("ordered[1] x;", "x[1] ~ normal(0, 1);", 0),
    ],
)
def test_elements_of_an_order_with_priors_of_their_own(
    declared: str, model: str, count: int
) -> None:
    written = program(declared, model)
    halves = [one for one in omissions(written) if one.kind == "half_prior"]
    assert [one.value for one in halves] == [None] * count
    assert all("order" in one.sentence for one in halves)
    if "normal" in model and "1]" not in declared:
        assert (log_z(written) < -0.05) is bool(count)


KERNEL = "real my_lpdf(real x) { return -0.5 * x^2; }"
SUM = "real my_lpdf(real x) { return normal_lpdf(x | 0, 1); }"
LOCAL = "real my_lpdf(real x) { real p = 0; p += normal_lupdf(x | 0, 1); return p; }"
NESTED = KERNEL + " real other_lpdf(real x) { return my_lpdf(x); }"
MIXED = "log_sum_exp(log(.3) + normal_lpdf(x | 0, 1), log(.7) + normal_lpdf(x | 4, 1))"


@pytest.mark.parametrize(
    ("functions", "model", "is_said"),
    [
        (KERNEL, "x ~ my();", True),
        (KERNEL, "target += my_lpdf(x | );", True),
        (NESTED, "x ~ other();", True),
        ("void f_lp(real x) { target += -x^2; }", "f_lp(x);", True),
        ("", "target += 0.5 * normal_lpdf(x | 0, 1);", True),
        ("", "target += normal_lpdf(x | 0, 1) / 2;", True),
        ("", "target += 2 * normal_lpdf(x | 0, 1);", True),
        ("", "target += log_sum_exp(normal_lpdf(x | 0, 1), normal_lpdf(x | 4, 1));", True),
        ("", "target += normal_lpdf(x | 0, 1) - x^2;", True),
        ("", "target += 1 > 0 ? normal_lpdf(x | 0, 1) : -x^2;", True),
        (SUM, "x ~ my();", False),
        (LOCAL, "x ~ my();", False),
        ("void f_lp(real x) { x ~ normal(0, 1); }", "f_lp(x);", False),
        ("", f"target += {MIXED};", False),
        ("", "target += log_mix(.3, normal_lpdf(x | 0, 1), normal_lpdf(x | 4, 1));", False),
        ("", "target += (normal_lpdf(x | 0, 1) + normal_lccdf(9 | x, 1));", False),
        ("", "target += 1 > 0 ? normal_lpdf(x | 0, 1) : cauchy_lpdf(x | 0, 1);", False),
        ("", "real p = normal_lpdf(x | 0, 1); target += p;", False),
    ],
)
def test_what_is_added_by_hand_is_said_to_be_unchecked(
    functions: str, model: str, is_said: bool
) -> None:
    written = program("real x;", model, functions=functions)
    assert [one.kind for one in omissions(written)] == ["missing_constant"] * is_said


SUMS = {
    "as brms does": ("real lprior = 0; {0} {1}", "target += lprior;"),
    "in the model": ("", "real lprior = 0; {0} {1} target += lprior;"),
    "in a block": ("", "{{ real lprior = 0; {0} {{ {1} }} target += lprior; }}"),
    "in its declaration": ("real lprior = {2}; {1}", "target += lprior;"),
    "as a term": ("real lprior = 0; {0} {1}", "target += normal_lpdf(0.1 | m, s) + lprior;"),
}  # fmt: skip


@pytest.mark.parametrize("case", SUMS)
def test_priors_that_are_summed_before_they_are_added(case: str) -> None:
    """Corrections against quadrature; brms' own constants make the notes unnecessary."""
    prior, other = "student_t_lpdf(s | 3, 0, 2.5)", "lprior += exponential_lpdf(m | 2);"

    def written(prior: str) -> Program:
        texts = [text.format(f"lprior += {prior};", other, prior) for text in SUMS[case]]
        model = f"{texts[1]} 0.3 ~ normal(m, s);"
        return program("real<lower=0> s; real<lower=0> m;", model, transformed_parameters=texts[0])

    half = written(prior)
    (found,) = (one for one in omissions(half) if one.kind == "half_prior")
    assert (found.parameters, found.correction) == (("s",), "log(2)")
    assert found.remedy is not None and found.remedy.endswith("lprior += log(2);")
    mended = renormalised(half)
    check_program(mended)
    assert omissions(mended) == ()
    assert log_z(mended) - log_z(half) == pytest.approx(math.log(2), abs=NEAR)
    assert omissions(written(f"{prior} - 1 * student_t_lccdf(0 | 3, 0, 2.5)")) == ()


def test_what_is_added_to_the_target_is_not_found_again() -> None:
    written = program("vector<lower=0>[3] x;", "x[1:2] ~ normal(0, 1); x[3] ~ normal(0, 1);")
    assert len(omissions(written)) == 2
    assert omissions(renormalised(written)) == ()


def test_what_depends_on_parameters_is_said_and_left_alone() -> None:
    parameters, model, blocks, _ = PROGRAMS["bounded effects"]
    written = program(parameters, model, **blocks)
    (found,) = omissions(written)
    assert found.correction is None and found.value is None
    assert "depends on m" in found.sentence and "change the posterior" in found.sentence
    assert found.remedy == "t ~ normal(m, 1); target += -N * normal_lccdf(0 | m, 1);"
    assert renormalised(written) is written


def test_place_and_text_of_an_omission() -> None:
    source = """parameters {
  real<lower=0> s; // a scale
}
model {
  s ~ // the half of a normal
    normal(0, 2);
}
"""
    (found,) = omissions(Program.from_source(source, name="one"))
    assert (found.path, found.line) == ("one.stan", 5)
    assert found.statement == "s ~ normal(0, 2);"
    assert found.remedy == "s ~ normal(0, 2) T[0, ];"
    assert str(found).startswith("one.stan:5: The prior of `s`")
    assert "too small by 0.6931. Add log(2) to log Z, or write" in str(found)
    record = found.record()
    assert json.loads(json.dumps(record)) == record


def test_distribution_functions_are_stans() -> None:
    arguments = {
        "student_t": (4, 0.3, 1.2),
        "pareto_type_2": (0, 1.5, 2),
        "beta_proportion": (0.3, 4),
    }
    arguments |= {"uniform": (-1, 2), "pareto": (0.5, 2), "std_normal": ()}
    one = {"exponential", "rayleigh", "chi_square", "inv_chi_square"}
    unknown = {
        "skew_normal", "exp_mod_normal", "skew_double_exponential", "loglogistic", "von_mises",
    }  # fmt: skip
    for family in set(FAMILIES) - unknown:
        given = arguments.get(family, (1.3,) if family in one else (1.3, 0.8))
        behind = f" | {', '.join(map(str, given))}" if given else ""
        for x in (0.7, 0.9):
            ours = mass(family, given, -np.inf, x)
            assert ours is not None
            stans = value_in_stan(f"{family}_lcdf({x}{behind})")
            assert np.log(ours) == pytest.approx(stans, abs=1e-9), family


def test_constants() -> None:
    assert constant("-2 * pi()") == pytest.approx(-2 * np.pi)
    assert constant("1 / 2") == 0 and constant("1.0 / 2") == 0.5 and constant("2 ^ 3") == 8
    assert constant("log(2)") == pytest.approx(np.log(2))
    assert constant("N") is None and constant("1 / 0") is None and constant("[1, 2]") is None


def test_programs_of_the_repository() -> None:
    """Every finding in the examples and shipped programs was looked at."""
    found: dict[str, set[str]] = {}
    for folder in ("examples", "stan_models"):
        for path in sorted((ROOT / folder).rglob("*.stan")):
            try:
                read = Program.from_file(path)
            except ProgramError:
                continue  # a part that others include
            for omission in omissions(read):
                found.setdefault(path.stem, set()).add(omission.kind)
    by_hand = ("mixture20", "boltzmann", "boltzmann_glm", "boltzmann_opencl")
    scaled, powers = ("funnel", "two_modes", "kepler"), ("beta_binomial", "horseshoe_copies")
    assert found == {name: {"missing_constant"} for name in (*by_hand, *scaled, *powers)}


HALF = "parameters { real<lower=0> s; } model { s ~ normal(0, 1); }"
IMPROPER = "data { real y; } parameters { real m; } model { y ~ normal(m, 1); }"


def written_to(path: Path, source: str) -> str:
    path.write_text(source, encoding="utf-8")
    return str(path)


def test_front_door(tmp_path: Path) -> None:
    file = written_to(tmp_path / "half.stan", HALF)
    (found,) = stanct.temper(file).omissions
    assert found.kind == "half_prior"
    mended = stanct.temper(file, half_priors="renormalise")
    assert mended.omissions == ()
    assert "s ~ normal(0, 1) T[0, ];" in mended.program.expanded
    assert stanct.temper(file).target().origin["omissions"] == [found.record()]
    with pytest.raises(StanctError, match="half_priors must be"):
        stanct.temper(file, half_priors="mend")  # type: ignore[arg-type]


@LONG
def test_commands_say_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = written_to(tmp_path / "half.stan", HALF)
    assert main(["temper", file]) == 0
    assert re.search(r"Note, .*half.stan:1: The prior of `s`.*log\(2\)", capsys.readouterr().err)
    call = ["evidence", file, "--json", "--quiet", "--draws", "100", "--seed", "1"]
    assert main(call) == 0
    said = capsys.readouterr()
    (record,) = json.loads(said.out)["omissions"]
    assert record["value"] == pytest.approx(np.log(2))
    assert "Warning, normalised: " in said.err and "half.stan:1" in said.err


def test_a_renormalisation_that_changes_nothing_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = (
        "parameters { real<lower=0> s; } model { real p = normal_lpdf(s | 0, 1); target += 1 * p; }"
    )
    for source, says in ((HALF, False), (kept, True)):
        file = written_to(tmp_path / "program.stan", source)
        assert main(["temper", file, "--half-priors", "renormalise"]) == 0
        assert ("renormalise changed nothing" in capsys.readouterr().err) is says


def test_all_that_shows_a_run_says_what_nobody_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = "parameters { real m; } model {\n target += -abs(m)^3;\n}"
    run = stanct.temper(source).sample(draws=100, seed=1, progress=False)
    said = "Log Z is the evidence only if line 2 is normalised, which nobody checked."
    assert "normalised" not in run.warnings and run.verdict.unchecked == (2,)
    for shown in ("\n".join(screen(run)), repr(run), run._repr_html_()):
        assert said in " ".join(shown.split())
    assert "yes, if line 2 is normalised, which nobody checked" in str(run.verdict)
    run.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "if line 2 is normalised, which nobody checked" in page
    file = written_to(tmp_path / "kernel.stan", source)
    assert main(["evidence", file, "--json", "--quiet", "--draws", "100", "--seed", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["only_if_normalised"] == [2]


@pytest.mark.parametrize(
    ("body", "twice"),
    [
        ("y ~ normal(m, 1);\ny ~ normal(m, 1);", True),
        ("for (n in 1:3) y[n] ~ normal(m, 1);\nfor (n in 1:3) y[n] ~ normal(0, 2);", True),
        ("target += normal_lpdf(y | m, 1);\ny ~ normal(m, 2);", True),
        ("y[1:2] ~ normal(m, 1); y[3:] ~ normal(m, 2);", False),
        ("y[1] ~ normal(m, 1); y[2] ~ normal(m, 2);", False),
        ("for (n in 1:2) y[n] ~ normal(m, 1); for (n in 3:3) y[n] ~ normal(m, 2);", False),
        ("if (k > 0) y ~ normal(m, 1); else y ~ normal(m, 2);", False),
        ("for (n in 1:3) if (k == n) y[n] ~ normal(m, 1); else y[n] ~ normal(m, 2);", False),
        (
            "for (n in 1:3) target += log_mix(0.3, normal_lpdf(y[n] | m, 1),"
            " normal_lpdf(y[n] | m, 2));",
            False,
        ),
        ("y ~ normal(m, 1) T[-9, ];", False),
        ("for (n in 2:3) y[n] ~ normal(y[n - 1], 1); y[1] ~ normal(0, 1);", False),
    ],
)
def test_data_with_two_densities_are_named(body: str, twice: bool) -> None:
    head = "data { vector[3] y; int k; } parameters { real m; }"
    found = omissions(Program.from_source(f"{head} model {{ m ~ normal(0, 1);\n{body} }}"))
    assert [one.kind for one in found] == ["missing_constant"] * twice
    assert not twice or "has a density in line 2 already" in found[0].sentence


def test_no_bayes_factor_of_improper_priors(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written_to(tmp_path / "flat.stan", IMPROPER)
    folders = [str(tmp_path / name) for name in ("one", "two")]
    model = stanct.temper(file)
    runs = [model.sample({"y": 1.0}, draws=100, seed=seed, progress=False) for seed in (1, 2)]
    for run, folder in zip(runs, folders, strict=True):
        run.save(folder)
    with pytest.raises(StanctError, match=r"no proper prior: .*flat.stan:1: `m`") as refused:
        stanct.compare(*runs)
    assert 'improper="allow"' in str(refused.value)
    allowed = stanct.compare(*runs, improper="allow")
    assert any("`m` has no prior" in note for note in allowed.notes)
    assert main(["compare", *folders]) == 1
    assert main(["compare", *folders, "--improper", "allow"]) == 0
    assert "`m` has no prior" in capsys.readouterr().out
    with pytest.raises(StanctError, match="improper must be"):
        stanct.compare(*runs, improper="yes")  # type: ignore[arg-type]


EMPTY = """
data { int<lower=0> n; int k; }
parameters { vector[n] b; array[2] matrix[k, n] c; real<lower=0> s; vector[k] d; }
model { s ~ exponential(1); }
"""


@LONG
def test_parameters_without_elements_leave_out_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packages declare coefficients of which a model may have none."""
    file = written_to(tmp_path / "empty.stan", EMPTY)
    model = stanct.temper(file)
    named = {name for one in model.omissions for name in one.parameters}
    assert named == {"b", "c", "d"}

    def left(n: int, k: int) -> set[str]:
        found = model.target({"n": n, "k": k}).origin["omissions"]
        return {name for one in found for name in one["parameters"]}

    assert left(0, 0) == set()
    assert left(0, 2) == {"d"} and left(2, 0) == {"b"} and left(1, 1) == named
    data = written_to(tmp_path / "empty.json", '{"n": 0, "k": 0}')
    call = ["evidence", file, data, "--json", "--quiet", "--draws", "100", "--seed", "1"]
    assert main(call) == 0
    said = capsys.readouterr()
    assert "Note, " not in said.err and json.loads(said.out)["omissions"] == []

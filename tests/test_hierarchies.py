"""Both forms of a hierarchy have the same density, in other coordinates."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stanct.stan.hierarchies import hierarchies, non_centred
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.program_target import Target

DATA = {"J": 4, "y": [1.0, 2.0, -1.0, 0.5], "sigma": [1.0, 1.5, 2.0, 0.7], "x": [0.3, -1, 2, 0.1]}
HEAD = "data { int J; vector[J] y; vector[J] sigma; vector[J] x; }\n"
PRIOR = "mu ~ normal(0, 3); tau ~ gamma(2, 2);"
LIKELIHOOD = "y ~ normal(theta, sigma);"

# Parameters, transformed parameters, and the prior of theta; what its scale is per element.
CASES: dict[str, tuple[str, str, str]] = {
    "vector": ("vector[J] theta;", "", "theta ~ normal(mu, tau);"),
    "array": ("array[J] real theta;", "", "theta ~ normal(mu, tau);"),
    "loop": ("vector[J] theta;", "", "for (j in 1:J) theta[j] ~ normal(mu * x[j], tau);"),
    "loop in braces": (
        "array[J] real theta;",
        "",
        "for (j in 1:J) { theta[j] ~ normal(mu, tau); }",
    ),
    "student": ("vector[J] theta;", "", "theta ~ student_t(4, mu, tau);"),
    "cauchy": ("vector[J] theta;", "", "theta ~ cauchy(mu + x, 2 * tau);"),
    "laplace": ("vector[J] theta;", "", "theta ~ double_exponential(mu, tau);"),
    "logistic": ("vector[J] theta;", "", "theta ~ logistic(mu, tau);"),
    "local scales": (
        "vector<lower=0>[J] lambda; vector[J] theta;",
        "",
        "lambda ~ gamma(2, 1); theta ~ normal(mu, tau * lambda);",
    ),
    "array of local scales": (
        "vector<lower=0>[J] lambda; array[J] real theta;",
        "",
        "lambda ~ gamma(2, 1); theta ~ normal(mu, tau * lambda);",
    ),
    "transformed scale": (
        "vector[J] theta;",
        "vector[J] scale = tau * exp(x); vector[J] twice = 2 * theta;",
        "theta ~ normal(mu, scale);",
    ),
    "cholesky": (
        "cholesky_factor_corr[J] L; vector[J] theta;",
        "",
        "L ~ lkj_corr_cholesky(2); "
        "theta ~ multi_normal_cholesky(rep_vector(mu, J), "
        "diag_pre_multiply(rep_vector(tau, J), L));",
    ),
    "declared": ("vector<offset=mu, multiplier=tau>[J] theta;", "", "theta ~ normal(mu, tau);"),
    "declared otherwise": ("vector<multiplier=2>[J] theta;", "", "theta ~ normal(mu, tau);"),
}

# What must stay as it is.
REFUSED: dict[str, tuple[str, str, str]] = {
    "fixed scale": ("vector[J] theta;", "", "theta ~ normal(mu, 2);"),
    "bounded": ("vector<lower=0>[J] theta;", "", "theta ~ normal(mu, tau);"),
    "truncated": ("real theta;", "", "theta ~ normal(mu, tau) T[0, ];"),
    "part of a loop": ("vector[J] theta;", "", "for (j in 2:J) theta[j] ~ normal(mu, tau);"),
    "under a condition": ("vector[J] theta;", "", "if (J > 2) theta ~ normal(mu, tau);"),
    "local variable": (
        "vector[J] theta;",
        "",
        "real scale = tau * 2; theta ~ normal(mu, scale);",
    ),
    "scale from itself": (
        "vector[J] theta;",
        "real scale = tau + square(theta[1]);",
        "theta ~ normal(mu, scale);",
    ),
    "autoregression": ("vector[J] theta;", "", "theta[2:J] ~ normal(theta[1:(J - 1)], tau);"),
    "bound of another": (
        "vector[J] theta; real<lower=max(theta)> top;",
        "",
        "theta ~ normal(mu, tau); top ~ normal(0, 9);",
    ),
    "not a location family": ("vector[J] theta;", "", "theta ~ skew_normal(mu, tau, 1);"),
}


def program(parameters: str, transformed: str, prior: str) -> Program:
    block = f"transformed parameters {{ {transformed} }}\n" if transformed else ""
    return Program.from_source(
        f"{HEAD}parameters {{ real mu; real<lower=0> tau; {parameters} }}\n{block}"
        f"model {{ {PRIOR} {prior} {LIKELIHOOD} }}\n"
    )


def target(of: Program) -> Target:
    return Target(of, read_data(DATA, of))


@pytest.mark.parametrize("case", CASES)
def test_the_density_is_the_same_in_other_coordinates(case: str, seed: int) -> None:
    """log p(raw) = log p(theta) + log |d theta / d raw| at random points, constants included."""
    written = program(*CASES[case])
    assert [found.name for found in hierarchies(written)] == ["theta"]
    other = non_centred(written)
    assert hierarchies(other) == ()
    plain, raw = target(written).density, target(other).density
    places = [k for k, name in enumerate(raw.unconstrained_names) if name.startswith("theta_raw")]
    assert len(places) == DATA["J"]
    rng = np.random.default_rng(seed)
    for z in rng.normal(size=(5, raw.dimension)):
        x, jacobian = moved(plain, raw, z, places)
        assert raw.log_densities(z[None])[0] == pytest.approx(
            plain.log_densities(x[None])[0] + jacobian, rel=1e-9, abs=1e-9
        )


def moved(plain: Any, raw: Any, z: np.ndarray, places: list[int]) -> tuple[np.ndarray, float]:
    """The point of the program as written that `z` stands for, and log |dx / dz| by differences."""

    def at(point: np.ndarray) -> np.ndarray:
        values = raw.variables(point[None, None], seed=1)
        theta = np.asarray(values["theta"]).ravel()
        constrained = {name: np.asarray(v)[0, 0] for name, v in values.items() if name in known}
        return plain.unconstrain({**constrained, "theta": theta})

    known = {name.split(".")[0] for name in plain.names}
    x, step = at(z), 1e-6
    columns = np.array([(at(z + step * e) - at(z - step * e)) for e in np.eye(z.size)[places]])
    return x, float(np.linalg.slogdet(columns[:, places] / (2 * step))[1])


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_changed_stays(case: str) -> None:
    written = program(*REFUSED[case])
    assert hierarchies(written) == ()
    assert non_centred(written) is written


def test_only_the_named_ones_change() -> None:
    written = Program.from_source(
        "parameters { real<lower=0> s; real a; vector[2] b; }\n"
        "model { s ~ exponential(1); a ~ normal(0, s); b ~ normal(a, s); }\n"
    )
    assert [found.name for found in hierarchies(written)] == ["a", "b"]
    other = non_centred(written, ["b"])
    assert "vector[2] b = a + s * b_raw;" in other.expanded
    assert "a ~ normal(0, s);" in other.expanded and "a_raw" not in other.expanded


def test_one_hierarchy_on_top_of_another() -> None:
    """Each definition must stand behind those that it uses."""
    written = Program.from_source(
        "data { int J; }\n"
        "parameters { real<lower=0> s; vector[J] b; real a; }\n"
        "model { s ~ exponential(1); b ~ normal(a, s); a ~ normal(0, s); }\n"
    )
    density = Target(non_centred(written), read_data({"J": 2}, written)).density
    assert np.isfinite(density.log_densities(np.array([[0.1, 0.2, -0.3, 0.5]])))[0]


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    written = Program.from_source(
        "parameters { real<lower=0> s; real a; real a_raw; }\n"
        "model { s ~ exponential(1); a ~ normal(0, s); a_raw ~ normal(0, 1); }\n"
    )
    assert "real a_raw_;" in non_centred(written).expanded

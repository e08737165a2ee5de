"""Both forms of a hierarchy have the same density, in other coordinates."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG
from scipy.special import logsumexp
from scipy.stats import multivariate_normal, norm

import stanct
from stanct.bases.forms import Seen, centring_gain, nearer
from stanct.common.errors import StanctError
from stanct.stan.centring import centred, written_by_hand
from stanct.stan.forms import blocks, in_form, look_names, looking
from stanct.stan.hierarchies import hierarchies, non_centred
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget

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
    "increment": ("vector[J] theta;", "", "target += normal_lpdf(theta | mu, tau);"),
    "increment of a Student": (
        "array[J] real theta;",
        "",
        "target += student_t_lpdf(theta | 4, mu + x[1], (tau));",
    ),
    "increments in a loop": (
        "vector[J] theta;",
        "",
        "for (j in 1:J) target += cauchy_lpdf(theta[j] | mu * x[j], tau);",
    ),
    "increments along a walk": (
        "vector[J] theta;",
        "",
        "target += normal_lpdf(theta[1] | 0, 1); "
        "target += normal_lpdf(theta[2:J] | theta[1:(J - 1)], tau);",
    ),
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
    "loop with other statements": (
        "vector[J] theta;",
        "",
        "for (j in 1:J) { theta[j] ~ normal(mu, tau); x[j] ~ normal(theta[j], 1); }",
    ),
    "walk": (
        "vector[J] theta;",
        "",
        "theta[1] ~ normal(0, 3); theta[2:J] ~ normal(theta[1:(J - 1)], tau);",
    ),
    "open walk": ("array[J] real theta;", "", "theta[2:] ~ cauchy(theta[:(J - 1)], 2 * tau);"),
    "autoregression": (
        "real rho; vector[J] theta;",
        "",
        "rho ~ normal(0, 1); theta[2:J] ~ normal(mu + rho * (theta[1:J - 1] - mu), tau);",
    ),
    "walk of second order": (
        "vector[J] theta;",
        "vector[J] twice = 2 * theta;",
        "theta[3:J] ~ normal(2 * theta[2:(J - 1)] - theta[1:(J - 2)], tau);",
    ),
    "walk in a loop": (
        "vector[J] theta;",
        "",
        "for (j in 3:J) { theta[j] ~ student_t(4, theta[j - 2] + mu * x[j], tau); "
        "y[j] ~ normal(theta[j - 1], sigma[j]); }",
    ),
    "walk to the next": (
        "vector[J] theta;",
        "",
        "for (j in 1:(J - 1)) theta[j + 1] ~ normal(theta[j], tau * exp(x[j]));",
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
    "loop that ends early": (
        "vector[J] theta;",
        "",
        "for (j in 1:J) { if (j > 2) break; theta[j] ~ normal(mu, tau); }",
    ),
    "walk on its own element": (
        "vector[J] theta;",
        "",
        "for (j in 2:J) theta[j] ~ normal(theta[j], tau);",
    ),
    "walk backwards": ("vector[J] theta;", "", "theta[2:3] ~ normal(theta[3:J], tau);"),
    "walk that stops before the end": (
        "vector[J] theta;",
        "",
        "for (j in 2:3) theta[j] ~ normal(theta[j - 1], tau);",
    ),
    "walk along a covariate": (
        "vector[J] theta;",
        "",
        "theta[2:J] ~ normal(theta[1:(J - 1)] + x[2:J], tau);",
    ),
    "walk with a scale of its own": (
        "vector[J] theta;",
        "",
        "for (j in 2:J) theta[j] ~ normal(theta[j - 1], tau * exp(theta[1]));",
    ),
    "bound of another": (
        "vector[J] theta; real<lower=max(theta)> top;",
        "",
        "theta ~ normal(mu, tau); top ~ normal(0, 9);",
    ),
    "scale of any sign": (
        "real s; vector[J] theta;",
        "",
        "s ~ normal(0, 1); theta ~ normal(mu, s);",
    ),
    "sum of any sign": ("vector[J] theta;", "", "theta ~ normal(0, tau + mu * x);"),
    "bound below 0": (
        "real<lower=-1> s; vector[J] theta;",
        "",
        "s ~ normal(0, 1); theta ~ normal(mu, s);",
    ),
    "no Cholesky factor": (
        "matrix[J, J] L; vector[J] theta;",
        "",
        "to_vector(L) ~ normal(0, 1); theta ~ multi_normal_cholesky(x, L);",
    ),
    "centre that is a row": ("vector[J] theta;", "", "theta ~ normal(x', tau);"),
    "scalar with a vector": ("real theta;", "", "theta ~ normal(x, tau);"),
    "loop with a vector": ("vector[J] theta;", "", "for (j in 1:J) theta[j] ~ normal(x, tau);"),
    "reads its own density": (
        "vector[J] theta;",
        "",
        "theta ~ normal(mu, tau); target += 0.1 * target();",
    ),
    "not a location family": ("vector[J] theta;", "", "theta ~ skew_normal(mu, tau, 1);"),
    "sum of increments": (
        "vector[J] theta;",
        "",
        "target += normal_lpdf(theta | mu, tau) + normal_lpdf(theta | 0, 1);",
    ),
    "multiple of an increment": (
        "vector[J] theta;",
        "",
        "target += 2 * normal_lpdf(theta | mu, tau);",
    ),
    "minus an increment": ("vector[J] theta;", "", "target += -normal_lpdf(theta | mu, tau);"),
    "probability": ("vector[J] theta;", "", "target += normal_lcdf(theta | mu, tau);"),
}


def program(parameters: str, transformed: str, prior: str) -> Program:
    block = f"transformed parameters {{ {transformed} }}\n" if transformed else ""
    return Program.from_source(
        f"{HEAD}parameters {{ real mu; real<lower=0> tau; {parameters} }}\n{block}"
        f"model {{ {PRIOR} {prior} {LIKELIHOOD} }}\n"
    )


def target(of: Program) -> ProgramTarget:
    return ProgramTarget(of, read_data(DATA, of))


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
    density = ProgramTarget(non_centred(written), read_data({"J": 2}, written)).density
    assert np.isfinite(density.log_densities(np.array([[0.1, 0.2, -0.3, 0.5]])))[0]


def test_a_name_that_is_taken_is_not_taken_again() -> None:
    written = Program.from_source(
        "parameters { real<lower=0> s; real a; real a_raw; }\n"
        "model { s ~ exponential(1); a ~ normal(0, s); a_raw ~ normal(0, 1); }\n"
    )
    assert "real a_raw2;" in non_centred(written).expanded


GROUPS = """data { int J; vector[J] y; vector[J] sigma; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model { mu ~ normal(0, 3); tau ~ normal(0, 2); theta ~ normal(mu, tau); y ~ normal(theta, sigma); }
"""


def groups(noise: float) -> tuple[dict[str, Any], float, float]:
    """Twelve groups with observations of that noise; log Z and E[tau] by quadrature."""
    rng = np.random.default_rng(5)
    y = np.round(rng.normal(0.5, 0.5, 12) + noise * rng.normal(size=12), 3)
    tau = np.exp(np.linspace(np.log(1e-6), np.log(60), 4001))
    eye = np.eye(12)
    log_p = norm.logpdf(tau, 0, 2) + np.array(
        [multivariate_normal(np.zeros(12), (s**2 + noise**2) * eye + 9).logpdf(y) for s in tau]
    )
    log_p += np.log(np.gradient(tau))
    log_z = float(np.asarray(logsumexp(log_p)))
    data = {"J": 12, "y": y.tolist(), "sigma": [noise] * 12}
    return data, log_z, float(np.exp(log_p - log_z) @ tau)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    path = tmp_path / "groups.stan"
    path.write_text(GROUPS)
    return path


@LONG
@pytest.mark.parametrize(("noise", "changed"), [(0.05, []), (1.5, ["theta"])])
def test_pilots_choose_the_form(noise: float, changed: list[str], written: Path, seed: int) -> None:
    """Strong data ask for the centred form, weak data for the other; log Z is exact in both."""
    data, log_z, mean = groups(noise)
    model = stanct.temper(written, hierarchies="auto")
    run = model.sample(data, draws=1500, seed=seed, progress=False, engine="embedded")
    assert run.provenance["reparametrised"] == changed
    assert run.provenance["parameters"] == ["mu", "tau", "theta"]
    assert set(run.variables) == {"mu", "tau", "theta"}
    assert run.evidence.std_error < 0.03
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error
    tau = run.expect("tau")
    assert tau.std_error < 0.03 and abs(tau.value - mean) < 4 * tau.std_error


def test_a_path_from_the_prior_begins_without_a_funnel(written: Path) -> None:
    """Strong data ask for the centred form, whose prior is a funnel."""
    data, _, _ = groups(0.05)
    method = stanct.PowerPosterior(rungs=3)
    run = stanct.temper(written).sample(
        data, method, chains=2, warmup=150, draws=50, seed=1, progress=False
    )
    assert run.provenance["reparametrised"] == ["theta"]


@LONG
def test_the_other_form_by_name(written: Path, seed: int) -> None:
    data, log_z, _ = groups(1.5)
    model = stanct.temper(written, hierarchies="non-centred")
    assert "vector[J] theta = mu + tau * theta_raw;" in model.stan_code("density")
    run = model.sample(data, stanct.Gibbs(), draws=800, seed=seed, progress=False)
    assert run.evidence.std_error < 0.05
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error
    assert set(run.variables) == {"mu", "tau", "theta"}
    assert run.variables["theta"].shape == (4, 800, 12)


def test_a_base_of_ones_own_keeps_the_program(written: Path) -> None:
    data, _, _ = groups(1.5)
    base = stanct.GaussianBase(np.zeros(14), np.eye(14))
    model = stanct.temper(written, hierarchies="auto")
    run = model.sample(data, stanct.AIS(), base=base, draws=32, seed=1, progress=False)
    assert run.provenance["reparametrised"] == []


def test_a_choice_that_there_is_not(written: Path) -> None:
    with pytest.raises(StanctError, match="Did you mean hierarchies='non-centred'"):
        stanct.temper(written, hierarchies="noncentred")  # pyright: ignore[reportArgumentType]


# Transformed parameters that make theta from z.
BY_HAND: dict[str, str] = {
    "sum": "vector[J] theta = mu + tau * z;",
    "product": "vector[J] theta; theta = z * square(tau);",
    "loop": "vector[J] theta; for (j in 1:J) { theta[j] = mu * x[j] + (tau * z[j]); }",
    "vectors": "real q = exp(mu); vector[J] theta = (q * x - mu + tau * lambda .* z);",
}
NOT_BY_HAND: dict[str, str] = {
    "added to": "vector[J] theta; theta += mu + tau * z;",
    "added to in a loop": "vector[J] theta; for (j in 1:J) theta[j] += mu + tau * z[j];",
    "difference": "vector[J] theta = mu - tau * z;",
    "subtracted later": "vector[J] theta = mu + tau * z - x;",
    "used twice": "vector[J] theta = mu + tau * z; vector[J] other = 2 * z;",
    "known scale": "vector[J] theta = mu + 2 * z;",
    "scale of any sign": "vector[J] theta = mu + mu * z;",
    "changed later": "vector[J] theta = mu + tau * z; theta[1] = 0;",
    "location changes later": "real q = mu; vector[J] theta = q + tau * z; q = 2 * mu;",
    "quotient": "vector[J] theta = mu + z / tau;",
    "squared": "vector[J] theta = mu + tau * square(z);",
    "bounded": "vector<lower=0>[J] theta = mu + tau * z;",
    "part of a loop": "vector[J] theta = x; for (j in 2:J) theta[j] = mu + tau * z[j];",
}


def by_hand(definition: str, prior: str = "z ~ std_normal();") -> Program:
    return Program.from_source(
        f"{HEAD}parameters {{ real mu; real<lower=0> tau; vector<lower=0>[J] lambda; "
        f"vector[J] z; }}\ntransformed parameters {{ {definition} }}\n"
        f"model {{ {PRIOR} lambda ~ gamma(2, 1); {prior} {LIKELIHOOD} }}\n"
    )


@pytest.mark.parametrize("case", BY_HAND)
def test_what_was_written_non_centred_has_the_same_density_centred(case: str, seed: int) -> None:
    """log p(theta) = log p(z) − Σ log scale at random points, constants included."""
    written = by_hand(BY_HAND[case])
    assert [(one.raw, one.name) for one in written_by_hand(written)] == [("z", "theta")]
    other = in_form(written, ["z"])
    assert "theta" in other.parameter_names and "z" not in other.parameter_names
    assert [one.name for one in hierarchies(other)] == ["theta"]
    raw, plain = target(written).density, target(other).density
    looked = target(looking(written, blocks(written))).density
    rng = np.random.default_rng(seed)
    for w in rng.normal(size=(5, raw.dimension)):
        found = looked.variables(w[None, None], seed=1)
        values = {name: np.asarray(value)[0, 0] for name, value in found.items()}
        location, scale = (values[name] for name in look_names(written, 0))
        assert values["theta"] == pytest.approx(location + scale * values["z"], rel=1e-12)
        x = plain.unconstrain({name: values[name] for name in other.parameter_names})
        assert plain.log_densities(x[None])[0] == pytest.approx(
            raw.log_densities(w[None])[0] - np.log(scale).sum(), rel=1e-9, abs=1e-9
        )
        back = plain.variables(x[None, None], seed=1)
        assert np.asarray(back["z"])[0, 0] == pytest.approx(values["z"], rel=1e-9)


@pytest.mark.parametrize("case", NOT_BY_HAND)
def test_what_is_no_standardised_form_stays(case: str) -> None:
    written = by_hand(NOT_BY_HAND[case])
    assert written_by_hand(written) == ()
    assert centred(written) is written


@pytest.mark.parametrize(
    "prior",
    [
        "z ~ normal(0, 2);",
        "z ~ student_t(4, 0, 1);",
        "z[1:J] ~ std_normal();",
        "z ~ std_normal() T[-1, ];",
        "z ~ normal(0, 1) T[, 2];",
    ],
)
def test_other_priors_are_no_standard_ones(prior: str) -> None:
    assert written_by_hand(by_hand(BY_HAND["sum"], prior)) == ()


@pytest.mark.parametrize(
    "prior",
    [
        "target += std_normal_lpdf(z);",
        "target += std_normal_lpdf(z | );",
        "target += normal_lpdf(z | 0, 1);",
    ],
)
def test_increments_may_be_standard_priors(prior: str) -> None:
    written = by_hand(BY_HAND["sum"], prior)
    plain = by_hand(BY_HAND["sum"])
    assert [one.raw for one in written_by_hand(written)] == ["z"]
    point = np.linspace(-0.5, 0.5, target(plain).density.dimension)[None]
    first, second = (target(centred(one)).density.log_densities(point) for one in (written, plain))
    assert first == pytest.approx(second, rel=1e-12)


def test_a_scalar_and_a_normal_prior() -> None:
    written = Program.from_source(
        "parameters { real mu; real<lower=0> tau; real z; }\n"
        "transformed parameters { real theta = tau * z; }\n"
        "model { tau ~ exponential(1); mu ~ normal(theta, 1); z ~ normal(0, 1); }\n"
    )
    assert "real z = theta / tau;" in centred(written).expanded
    assert "theta ~ normal(0, tau);" in centred(written).expanded


@pytest.mark.parametrize("precise", [True, False])
def test_draws_tell_which_form_is_nearer_to_a_gaussian(precise: bool, seed: int) -> None:
    """With good data theta is normal by itself, and with poor data (theta − mu) / tau is."""
    rng = np.random.default_rng(seed)
    scale = np.exp(0.5 * rng.normal(size=(4000, 1)) + np.zeros(3))
    location = rng.normal(size=(4000, 1)) + np.zeros(3)
    z = rng.normal(size=(4000, 3))
    theta = 0.03 * z + [-1.0, 0.0, 2.0] if precise else location + scale * z
    gain = centring_gain(theta, location, scale)
    assert gain > 1 if precise else gain < -0.3
    assert centring_gain(theta[:40], location[:40], scale[:40]) == 0
    # It does not depend on units, as a ratio of volumes would.
    assert centring_gain(7 * theta, 7 * location, 7 * scale) == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize("by_hand", [False, True])
def test_points_are_carried_into_the_other_form(by_hand: bool, seed: int) -> None:
    """All variables stay, and the log density changes by the log of tau for each element."""
    values = "vector[J] z; } transformed parameters { vector[J] theta = mu + tau * z;"
    prior = "z ~ std_normal();" if by_hand else "theta ~ normal(mu, tau);"
    source = program(values if by_hand else "vector[J] theta;", "", prior)
    mine = ProgramTarget(source, read_data(DATA, source), flexible=True)
    x = np.random.default_rng(seed).normal(size=(60, mine.density.dimension))
    name = "z" if by_hand else "theta"
    seen, form = Seen.at(mine, x), mine.in_form([name])
    carried = seen.in_form(form, [name])
    before, after = (
        one.density.variables(points, seed=1) for one, points in ((mine, x), (form, carried))
    )
    for known in ("mu", "tau", "theta"):
        np.testing.assert_allclose(after[known], before[known], rtol=1e-12, atol=1e-12)
    change = form.density.log_densities(carried) - mine.density.log_densities(x)
    jacobian = DATA["J"] * np.log(before["tau"])
    np.testing.assert_allclose(change, -jacobian if by_hand else jacobian, atol=1e-9)


def test_few_draws_tell_nothing_of_forms() -> None:
    source = program("vector[J] theta;", "", "theta ~ normal(mu, tau);")
    mine = ProgramTarget(source, read_data(DATA, source), flexible=True)
    few = np.zeros((10, mine.density.dimension))
    form, points = nearer(mine, few)
    assert form is mine and points is few


@LONG
def test_draws_and_places_of_the_user_follow_the_form(written: Path, seed: int) -> None:
    """The moments of a fit in a funnel's own coordinates make a base that misses the neck."""
    data, log_z, mean = groups(1.5)
    model = stanct.temper(written)
    first = model.sample(data, draws=1500, seed=seed, progress=False, engine="embedded")
    fit = first.resample(1000, seed=seed)
    run: Any = model.sample(
        data, "joint", base=fit, draws=2000, seed=seed, progress=False, engine="embedded"
    )
    assert run.provenance["reparametrised"] == ["theta"]
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error < 0.15
    tau = run.expect("tau")
    assert abs(tau.value - mean) < 4 * tau.std_error < 0.15
    inits = {name: values[0, 0] for name, values in fit.items()}
    again = model.sample(data, inits=inits, draws=500, seed=seed, progress=False)
    assert again.provenance["reparametrised"] == ["theta"]
    assert again.provenance["survey"]["starts"] > first.provenance["survey"]["starts"]
    assert abs(again.evidence.log_z - log_z) < 4 * again.evidence.std_error < 0.2


@LONG
def test_a_program_by_hand_takes_the_form_that_suits_the_data(written: Path, seed: int) -> None:
    """With precise data z lies on a ridge, on which radon took four times the gradients."""
    source = (
        written.read_text()
        .replace(
            "vector[J] theta; }",
            "vector[J] z; }\ntransformed parameters { vector[J] theta = mu + tau * z; }",
        )
        .replace("theta ~ normal(mu, tau);", "z ~ std_normal();")
    )
    data, log_z, mean = groups(0.05)
    run: Any = stanct.temper(source).sample(data, seed=seed, progress=False)
    assert run.provenance["reparametrised"] == ["z"]
    assert list(run.variables) == ["mu", "tau", "z", "theta"]
    assert abs(run.evidence.log_z - log_z) < 4 * run.evidence.std_error < 0.05
    found = run.expect("tau")
    assert abs(found.value - mean) < 4 * found.std_error < 0.1
    more = run.extend(draws=50, progress=False)
    assert more.provenance["reparametrised"] == ["z"] and more.draws == run.draws + 50


def test_a_program_by_hand_that_reads_its_own_density_stays() -> None:
    assert written_by_hand(by_hand(BY_HAND["sum"], "z ~ std_normal(); target += target();")) == ()


@LONG
def test_names_of_the_short_chains_are_not_those_of_the_user() -> None:
    """`look_i` as a parameter, and `look_0_scale` as data, stopped the default."""
    source = """data { int J; real<lower=0> look_0_scale; }
    parameters { real mu; real<lower=0> tau; vector[J] theta; real look_i; }
    model { mu ~ normal(0, 1); tau ~ exponential(1); theta ~ normal(mu, tau);
      look_i ~ normal(theta[1], look_0_scale); }"""
    run: Any = stanct.temper(source).sample(
        {"J": 3, "look_0_scale": 1.0}, seed=1, draws=400, progress=False
    )
    assert run.provenance["reparametrised"] == ["theta"]
    assert list(run.variables) == ["mu", "tau", "theta", "look_i"]
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.2


@pytest.mark.parametrize("se", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
def test_a_scale_that_the_data_make_zero_stays(se: list[float]) -> None:
    """As written such a program has no density; its other form would have one."""
    source = """data { vector<lower=0>[3] se; }
    transformed data { vector<lower=0>[3] twice = 2 * se; }
    parameters { real<lower=0> tau; vector[3] theta; vector[3] other; }
    model { tau ~ exponential(1); theta ~ normal(0, tau * se); other ~ normal(0, tau * twice); }"""
    found = stanct.temper(source).target({"se": se}).blocks
    assert [block.name for block in found] == ([] if se[0] == 0 else ["theta"])


def test_densities_of_the_user_s_own_are_no_hierarchies() -> None:
    """Overloads of Stan's densities may have one argument, or two of another meaning."""
    own = "real normal_lpdf(real y, real m) { return normal_lpdf(y | m, 3); }"
    two = "real normal_lpdf(real y, int m, real k) { return normal_lpdf(y | m + 1.0, k); }"
    scale = "parameters { real<lower=0> s; real x; } model { s ~ exponential(1); "
    for function, prior in ((own, "x ~ normal(s);"), (two, "x ~ normal(0, s);")):
        program = Program.from_source(f"functions {{ {function} }} {scale} {prior} }}")
        assert not hierarchies(program)

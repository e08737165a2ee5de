"""Constants that `~` drops: added once, and never where they could depend on a parameter."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import target_of
from scipy.special import betaln, gammaln

from stanct import GaussianBase, temper
from stanct.stan.program import Program
from stanct.targets.constants import drops_constants
from stanct.targets.density import Density

COUNTS = [0, 3, 1, 7, 2, 12]
DATA = "data { int N; array[N] int y; array[N] int n; matrix[N, 2] x; } "
VALUES = {"N": 6, "y": COUNTS, "n": [15] * 6, "x": np.linspace(-1, 1, 12).reshape(6, 2).tolist()}
LINE = "parameters { real a; vector[2] b; } "
PRIOR = "a ~ normal(0, 2); b ~ normal(0, 1); "

# Constant that the priors of `PRIOR` drop.
LOST = np.log(2) + 1.5 * np.log(2 * np.pi)

KEPT_ONCE = {
    "poisson": LINE + "model {" + PRIOR + "y ~ poisson(exp(a + x * b)); }",
    "poisson_log": LINE + "model {" + PRIOR + "y ~ poisson_log(a + x * b); }",
    "poisson_log_glm": LINE + "model {" + PRIOR + "y ~ poisson_log_glm(x, a, b); }",
    "binomial": LINE + "model {" + PRIOR + "y ~ binomial(n, inv_logit(a + x * b)); }",
    "binomial_logit": LINE + "model {" + PRIOR + "y ~ binomial_logit(n, a + x * b); }",
    "binomial_logit_glm": LINE + "model {" + PRIOR + "y ~ binomial_logit_glm(n, x, a, b); }",
    "loop": LINE + "model {" + PRIOR + "for (i in 1 : N) y[i] ~ poisson_log(a + x[i] * b); }",
    "truncated": LINE
    + "model {"
    + PRIOR
    + "for (i in 1 : N) y[i] ~ poisson(exp(a + x[i] * b)) T[ , 20]; }",
    "branch on data": LINE
    + "model {"
    + PRIOR
    + "for (i in 1 : N) { int k = n[i]; if (k > y[i]) y[i] ~ poisson_log(a + x[i] * b); } }",
    "beta_binomial": "parameters { vector<lower=0>[2] s; } "
    "model { s ~ gamma(2, 1); y ~ beta_binomial(n, s[1], s[2]); }",
    "normal": LINE + "model {" + PRIOR + "to_vector(y) ~ normal(a + x * b, 1.5); }",
    "gaussian process": "parameters { real<lower=0> s; } model { s ~ inv_gamma(5, 5); "
    "0.1 * to_vector(y) ~ multi_normal_cholesky(zeros_vector(N), s * identity_matrix(N)); }",
    "multinomial": "parameters { simplex[N] p; } model { y ~ multinomial(p); }",
    "multinomial_logit": "parameters { vector[N] p; } "
    "model { p ~ normal(0, 1); y ~ multinomial_logit(p); }",
}


@pytest.mark.parametrize("model", KEPT_ONCE.values(), ids=KEPT_ONCE)
def test_the_density_is_the_same(model: str, rng: np.random.Generator) -> None:
    """Of the program that drops the constants, plus these, and of the one that keeps them."""
    target = target_of(DATA + model, VALUES)
    whole, found = Density(target.density_recipe), target.density
    # Otherwise nothing would be saved.
    assert abs(found.constant) > 0.5 and found.recipe.source == target.program.expanded
    for x in rng.normal(size=(20, whole.dimension)):
        wanted, gradient = whole.log_density_gradient(x)
        value, slope = found.log_density_gradient(x)
        assert np.isclose(value, wanted, rtol=1e-11, atol=1e-11)
        assert np.isclose(found.log_density(x), value, rtol=1e-13)
        np.testing.assert_allclose(slope, gradient, rtol=1e-10, atol=1e-10)


def test_the_constant_is_that_of_the_formula() -> None:
    """And copies and pickles of the density have it, too."""
    target = target_of(DATA + KEPT_ONCE["poisson_log"], VALUES)
    x = np.array([0.4, -0.2, 0.3])
    rate = np.array(VALUES["x"]) @ x[1:] + x[0]
    likelihood = np.sum(COUNTS * rate - np.exp(rate) - gammaln(np.array(COUNTS) + 1))
    prior = -0.5 * (x[0] / 2) ** 2 - np.log(2) - 0.5 * x[1:] @ x[1:] - 1.5 * np.log(2 * np.pi)
    density = target.density
    with density.borrow() as borrowed:
        for own in (
            density,
            Density(density.recipe),
            pickle.loads(pickle.dumps(density)),
            borrowed,
        ):
            assert np.isclose(own.log_density(x), likelihood + prior, rtol=1e-12)


def test_a_steep_density(rng: np.random.Generator) -> None:
    """Of values like −1e50 no constant can be seen; those of moderate ones are taken."""
    steep = {**VALUES, "x": (60 * np.array(VALUES["x"])).tolist()}
    target = target_of(DATA + KEPT_ONCE["poisson_log"], steep)
    values = [target.density.log_density(x) for x in rng.normal(size=(20, 3))]
    assert min(values) < -1e20
    assert np.isclose(target.density.constant, -np.sum(gammaln(np.array(COUNTS) + 1)) - LOST)


NOT_CONSTANT = {
    "a branch on a parameter": "if (a > 0) y ~ poisson_log(rep_vector(a, N));",
    "a loop left early": "for (i in 1 : N) { if (a > i) break; y[i] ~ poisson_log(a); }",
    "a read of the target": "y ~ poisson_log(rep_vector(a, N)); target += 0.1 * target();",
}


@pytest.mark.parametrize("statements", NOT_CONSTANT.values(), ids=NOT_CONSTANT)
def test_where_it_could_depend_on_a_parameter(statements: str, rng: np.random.Generator) -> None:
    target = target_of(DATA + LINE + "model {" + PRIOR + statements + " }", VALUES)
    assert not drops_constants(target.program)
    whole, found = Density(target.density_recipe), target.density
    assert found.constant == 0
    for x in rng.normal(scale=3, size=(20, 3)):
        assert found.log_density(x) == whole.log_density(x)


CHOSEN = {
    "a loop that a parameter ends": "int i = 1; while (i < a) { y[i] ~ poisson_log(a); i += 1; }",
    "an index": "int i = a > 3 ? 1 : 6; y[i] ~ poisson_log(a);",
    "an index assigned later": "int i = 1; if (N > 3) i += a > 0; y[i] ~ poisson_log(a);",
    "an index in a branch": "int i = 1; if (a > 3) i = 6; y[i] ~ poisson_log(a);",
    "an index in place": "y[a > 0 ? 1 : 2] ~ poisson_log(a);",
    "an index by a function": "y[1 + int_step(a)] ~ poisson_log(a);",
    "a counter's name": "for (i in 1 : N) { } { real i = a; if (i > 0) y ~ poisson(2); }",
    "a range": "for (i in 1 : (N - (a > 0))) y[i] ~ poisson_log(a);",
}


@pytest.mark.parametrize("statements", CHOSEN.values(), ids=CHOSEN)
def test_what_a_parameter_chooses(statements: str) -> None:
    """Not all of this is legal, and the engine runs less; the text is enough."""
    assert not drops_constants(Program.from_source(DATA + LINE + f"model {{ {statements} }}"))


def test_functions_that_drop_constants_themselves() -> None:
    body = "{ if (a > 0) return poisson_log_lupmf(y | a); return 0; }"
    own = f"functions {{ real count_lpmf(int y, real a) {body} }} "
    model = "model {" + PRIOR + "for (i in 1 : N) y[i] ~ count(a); y ~ poisson(1); }"
    assert not drops_constants(Program.from_source(own + DATA + LINE + model))
    adds = "functions { void add_lp(array[] int y, real a) { y ~ poisson_log(a); } } "
    model = "model {" + PRIOR + "if (a > 0) add_lp(y, a); y ~ poisson(1); }"
    assert not drops_constants(Program.from_source(adds + DATA + LINE + model))


def test_a_difference_that_is_none_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program about which the text misleads us keeps its constants."""
    monkeypatch.setattr("stanct.targets.constants.drops_constants", lambda program: True)
    model = "model {" + PRIOR + NOT_CONSTANT["a branch on a parameter"] + " }"
    target = target_of(DATA + LINE + model, VALUES)
    assert target.density.constant == 0


def test_compiled_loops_know_of_the_constant(tmp_path: Path) -> None:
    """The evidence of one binomial count with a uniform prior, by a method of compiled loops."""
    source = """
        data { int n; int y; }
        parameters { real<lower=0, upper=1> p; }
        model { y ~ binomial(n, p); }
    """
    (tmp_path / "share.stan").write_text(source)
    model = temper(tmp_path / "share.stan")
    base = GaussianBase(np.array([0.8]), np.eye(1) * 0.6)
    run = model.sample(
        {"n": 20, "y": 14}, method="gibbs", draws=1000, seed=3, base=base, log_zeta=-3.0,
        progress=False,
    )  # fmt: skip
    binomial = gammaln(21) - gammaln(15) - gammaln(7)
    exact = binomial + betaln(15, 7)
    assert abs(run.evidence.log_z - exact) < 4 * run.evidence.std_error < 0.1

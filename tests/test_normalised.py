"""Whole log densities, constants and Jacobians included, against closed forms from SciPy.

Each case: program, data, and its log density as a function of the unconstrained x.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from generated import SEED, Array, base_data, load
from scipy import special, stats

from stanct.stan.codegen import generate
from stanct.stan.program import Program

CLOSED_FORMS: dict[str, tuple[str, dict[str, Any], Any]] = {
    "lower": (
        "parameters { real<lower=2> s; } model { s ~ gamma(3, 2); }",
        {},
        lambda x: stats.gamma.logpdf(2 + np.exp(x[0]), 3, scale=0.5) + x[0],
    ),
    "lower_upper": (
        "parameters { real<lower=-1, upper=3> s; } model { s ~ normal(1, 2); }",
        {},
        lambda x: (
            stats.norm.logpdf(-1 + 4 * _logistic(x[0]), 1, 2)
            + np.log(4 * _logistic(x[0]) * _logistic(-x[0]))
        ),
    ),
    "one_sided": (
        "parameters { real<lower=0> s; } model { s ~ cauchy(1, 2.5) T[0, ]; }",
        {},
        lambda x: stats.cauchy.logpdf(np.exp(x[0]), 1, 2.5) - stats.cauchy.logsf(0, 1, 2.5) + x[0],
    ),
    "upper_side": (
        "parameters { real m; } model { m ~ normal(0, 9); -0.5 ~ normal(m, 1) T[ , 0]; }",
        {},
        lambda x: (
            stats.norm.logpdf(x[0], 0, 9)
            + stats.norm.logpdf(-0.5, x[0])
            - stats.norm.logcdf(0, x[0])
        ),
    ),
    "two_sided_vector": (
        "data { int N; vector[N] y; } parameters { real m; real<lower=0> s; }\n"
        "model { m ~ std_normal(); s ~ exponential(1); y ~ normal(m, s) T[-1, 2]; }",
        {"N": 3, "y": [-0.5, 0.3, 1.9]},
        lambda x: (
            stats.norm.logpdf(x[0])
            - np.exp(x[1])
            + x[1]
            + _truncated_normal([-0.5, 0.3, 1.9], x[0], np.exp(x[1]), -1, 2)
        ),
    ),
    "two_sided_many_normalisers": (
        "data { int N; vector[N] y; vector[N] w; } parameters { real m; real<lower=0> s; }\n"
        "model { m ~ std_normal(); s ~ exponential(1); y ~ normal(m + w, s) T[-1, 2]; }",
        {"N": 3, "y": [-0.5, 0.3, 1.9], "w": [0.1, -0.7, 1.2]},
        lambda x: (
            stats.norm.logpdf(x[0])
            - np.exp(x[1])
            + x[1]
            + _truncated_normal(
                [-0.5, 0.3, 1.9], x[0] + np.array([0.1, -0.7, 1.2]), np.exp(x[1]), -1, 2
            )
        ),
    ),
    "discrete_lower": (
        "data { int N; array[N] int n; } parameters { real<lower=0> r; }\n"
        "model { r ~ gamma(2, 1); n ~ poisson(r) T[2, ]; }",
        {"N": 2, "n": [2, 5]},
        lambda x: (
            stats.gamma.logpdf(np.exp(x[0]), 2)
            + x[0]
            + stats.poisson.logpmf([2, 5], np.exp(x[0])).sum()
            - 2 * stats.poisson.logsf(1, np.exp(x[0]))
        ),
    ),
    "discrete_both": (
        "data { int n; } parameters { real<lower=0, upper=1> q; }\n"
        "model { q ~ beta(2, 3); n ~ binomial(8, q) T[1, 6]; }",
        {"n": 1},
        lambda x: (
            stats.beta.logpdf(_logistic(x[0]), 2, 3)
            + np.log(_logistic(x[0]) * _logistic(-x[0]))
            + stats.binom.logpmf(1, 8, _logistic(x[0]))
            - np.log(
                stats.binom.cdf(6, 8, _logistic(x[0])) - stats.binom.cdf(0, 8, _logistic(x[0]))
            )
        ),
    ),
    "multivariate": (
        "data { vector[2] y; } parameters { vector[2] m; }\n"
        "model { m ~ multi_normal([1, 2]', [[2, 0.5], [0.5, 1]]); y ~ multi_student_t(5, m, "
        "identity_matrix(2)); }",
        {"y": [0.2, 0.4]},
        lambda x: _multi_normal(x) + _multi_student(x),
    ),
    "discrete_data": (
        "data { array[3] int n; array[3] int t; } parameters { real a; }\n"
        "model { a ~ logistic(0, 2); n ~ binomial_logit(t, a); n ~ neg_binomial_2(exp(a), 3); }",
        {"n": [2, 0, 4], "t": [5, 3, 4]},
        lambda x: (
            stats.logistic.logpdf(x[0], 0, 2)
            + stats.binom.logpmf([2, 0, 4], [5, 3, 4], _logistic(x[0])).sum()
            + stats.nbinom.logpmf([2, 0, 4], 3, 3 / (3 + np.exp(x[0]))).sum()
        ),
    ),
    "user_density": (
        "functions { real tail_lpdf(real y, real s) { return cauchy_lupdf(y | 0, s); } }\n"
        "parameters { real a; } model { a ~ tail(3); if (a > 0) a ~ normal(0, 1); else a ~ "
        "normal(0, 2); }",
        {},
        lambda x: (
            stats.cauchy.logpdf(x[0], 0, 3) + stats.norm.logpdf(x[0], 0, 1 if x[0] > 0 else 2)
        ),
    ),
    "lp_function": (
        "functions { void prior_lp(real a) { a ~ normal(0, 3); target += -a; } }\n"
        "parameters { real a; } model { prior_lp(a); }",
        {},
        lambda x: stats.norm.logpdf(x[0], 0, 3) - x[0],
    ),
    "dirichlet": (
        "parameters { simplex[3] w; } model { w ~ dirichlet([1, 2, 3]'); }",
        {},
        lambda x: _dirichlet(x, np.array([1.0, 2, 3])),
    ),
    "upper": (
        "parameters { real<upper=2> t; } model { t ~ normal(0, 1); }",
        {},
        lambda x: stats.norm.logpdf(2 - np.exp(x[0])) + x[0],
    ),
    "bounds_that_are_parameters": (
        "parameters { real a; real<lower=a, upper=a + 2> b; }\n"
        "model { a ~ normal(0, 1); b ~ uniform(a, a + 2); }",
        {},
        lambda x: stats.norm.logpdf(x[0]) + stats.logistic.logpdf(x[1]),
    ),
    "offset_multiplier": (
        "parameters { real<lower=0> s; vector<offset=1, multiplier=s>[2] t; }\n"
        "model { s ~ lognormal(0, 1); t ~ normal(1, s); }",
        {},
        lambda x: stats.norm.logpdf(x).sum(),
    ),
    "ordered": (
        "parameters { ordered[3] c; } model { c ~ normal(0, 2); }",
        {},
        lambda x: (
            stats.norm.logpdf(x[0] + np.append(0, np.exp(x[1:]).cumsum()), 0, 2).sum() + x[1:].sum()
        ),
    ),
    "positive_ordered": (
        "parameters { positive_ordered[3] c; } model { c ~ weibull(2, 3); }",
        {},
        lambda x: stats.weibull_min.logpdf(np.exp(x).cumsum(), 2, scale=3).sum() + x.sum(),
    ),
    "unit_vector": (  # its length is a standard normal vector's, the constant left out as in Stan
        "parameters { unit_vector[3] v; } model { v[2] ~ normal(0.5, 0.2); }",
        {},
        lambda x: stats.norm.logpdf(x[1] / np.linalg.norm(x), 0.5, 0.2) - 0.5 * x @ x,
    ),
    "sum_to_zero": (
        "parameters { sum_to_zero_vector[3] e; } model { e ~ double_exponential(0.1, 2); }",
        {},
        lambda x: stats.laplace.logpdf(_plane() @ x, 0.1, 2).sum(),
    ),
    "sum_to_zero_matrix": (
        "parameters { sum_to_zero_matrix[3, 3] e; } model { to_vector(e) ~ normal(0.1, 2); }",
        {},
        lambda x: stats.norm.logpdf(_plane() @ x.reshape(2, 2) @ _plane().T, 0.1, 2).sum(),
    ),
    "simplices": (
        "parameters { array[2] simplex[3] w; }\n"
        "model { for (k in 1 : 2) w[k] ~ dirichlet([k, 2, 3]'); }",
        {},
        lambda x: (
            _dirichlet(x[:2], np.array([1.0, 2, 3])) + _dirichlet(x[2:], np.array([2.0, 2, 3]))
        ),
    ),
    "column_stochastic": (
        "parameters { column_stochastic_matrix[3, 2] w; }\n"
        "model { for (k in 1 : 2) w[ : , k] ~ dirichlet([k, 2, 3]'); }",
        {},
        lambda x: (
            _dirichlet(x[:2], np.array([1.0, 2, 3])) + _dirichlet(x[2:], np.array([2.0, 2, 3]))
        ),
    ),
    "row_stochastic": (
        "parameters { row_stochastic_matrix[2, 3] w; }\n"
        "model { for (k in 1 : 2) w[k]' ~ dirichlet([k, 2, 3]'); }",
        {},
        # the unconstrained matrix is stored column by column
        lambda x: (
            _dirichlet(x[::2], np.array([1.0, 2, 3])) + _dirichlet(x[1::2], np.array([2.0, 2, 3]))
        ),
    ),
    "cholesky_factor_corr": (
        "parameters { cholesky_factor_corr[3] L; } model { L ~ lkj_corr_cholesky(1.7); }",
        {},
        lambda x: _lkj(x, 1.7),
    ),
    "corr_matrix": (
        "parameters { corr_matrix[3] R; } model { R ~ lkj_corr(1.7); }",
        {},
        lambda x: _lkj(x, 1.7),
    ),
    "cov_matrix": (
        "parameters { cov_matrix[2] S; }\n"
        "model { S ~ wishart(3.5, [[2, 0.5], [0.5, 1]]); S ~ inv_wishart(4, identity_matrix(2)); }",
        {},
        lambda x: _covariance(x),
    ),
    "cholesky_factor_cov": (
        "parameters { cholesky_factor_cov[3, 2] C; } model { to_vector(C) ~ normal(0.2, 1.5); }",
        {},
        lambda x: (
            stats.norm.logpdf([np.exp(x[0]), x[1], x[3], 0, np.exp(x[2]), x[4]], 0.2, 1.5).sum()
            + x[0]
            + x[2]
        ),
    ),
    "matrices_of_bounds": (
        "parameters { matrix<lower=0>[2, 2] M; row_vector<lower=-1, upper=1>[2] r; }\n"
        "model { to_vector(M) ~ inv_gamma(2, 3); r ~ uniform(-1, 1); }",
        {},
        lambda x: (
            (stats.invgamma.logpdf(np.exp(x[:4]), 2, scale=3) + x[:4]).sum()
            + stats.logistic.logpdf(x[4:]).sum()
        ),
    ),
    "truncated_below_by_a_parameter": (
        "data { vector[2] y; } parameters { real a; real<lower=0> s; }\n"
        "model { a ~ normal(0, 1); s ~ exponential(1); y ~ student_t(5, 0, s) T[a - 9, ]; }",
        {"y": [-0.4, 2.0]},
        lambda x: (
            stats.norm.logpdf(x[0])
            + stats.expon.logpdf(np.exp(x[1]))
            + x[1]
            + stats.t.logpdf([-0.4, 2.0], 5, 0, np.exp(x[1])).sum()
            - 2 * stats.t.logsf(x[0] - 9, 5, 0, np.exp(x[1]))
        ),
    ),
    "truncated_lognormal": (
        "data { array[3] real y; } parameters { real m; }\n"
        "model { m ~ gumbel(0, 1); y ~ lognormal(m, 0.5) T[0.2, 4]; }",
        {"y": [0.3, 1.1, 3.8]},
        lambda x: (
            stats.gumbel_r.logpdf(x[0])
            + _truncated_normal(np.log([0.3, 1.1, 3.8]), x[0], 0.5, np.log(0.2), np.log(4))
            - np.log([0.3, 1.1, 3.8]).sum()
        ),
    ),
    "truncated_counts_above": (
        "data { array[2] int n; array[2] int t; } parameters { vector<lower=0, upper=1>[2] q; }\n"
        "model { n ~ binomial(t, q) T[ , 4]; }",
        {"n": [2, 4], "t": [6, 9]},
        lambda x: (
            (
                stats.binom.logpmf([2, 4], [6, 9], _logistic(x))
                - stats.binom.logcdf(4, [6, 9], _logistic(x))
            ).sum()
            + stats.logistic.logpdf(x).sum()
        ),
    ),
    "truncated_by_the_user": (
        "functions {\n"
        "  real tri_lpdf(real y, real s) { return log(2 * y) - 2 * log(s); }\n"
        "  real tri_lcdf(real y, real s) { return 2 * log(y / s); }\n"
        "  real tri_lccdf(real y, real s) { return log1m(square(y / s)); }\n"
        "}\n"
        "parameters { real<lower=0> s; }\n"
        "model { s ~ exponential(1); 0.6 ~ tri(s + 2) T[0.5, 1.5]; }",
        {},
        lambda x: stats.expon.logpdf(np.exp(x[0])) + x[0] + np.log(1.2 / (1.5**2 - 0.5**2)),
    ),
    "counts_of_categories": (
        "data { array[3] int n; array[2] int k; } parameters { simplex[3] w; }\n"
        "model { w ~ dirichlet([2, 2, 2]'); n ~ multinomial(w); k ~ categorical(w); }",
        {"n": [3, 0, 2], "k": [1, 3]},
        lambda x: (
            _dirichlet(x, np.array([2.0, 2, 2]))
            + stats.multinomial.logpmf([3, 0, 2], 5, _softmax(x))
            + np.log(_softmax(x)[[0, 2]]).sum()
        ),
    ),
    "glm": (
        "data { matrix[3, 2] X; array[3] int n; vector[3] y; } parameters { vector[2] b; }\n"
        "model { b ~ skew_normal(0, 2, 1); n ~ poisson_log_glm(X, 0.3, b);\n"
        "  y ~ normal_id_glm(X, 0.1, b, 1.5); }",
        {"X": [[1, 0.2], [0.4, -1], [0, 0.7]], "n": [2, 0, 1], "y": [0.1, -0.8, 1.3]},
        lambda x: (
            stats.skewnorm.logpdf(x, 1, 0, 2).sum()
            + stats.poisson.logpmf([2, 0, 1], np.exp(0.3 + _design() @ x)).sum()
            + stats.norm.logpdf([0.1, -0.8, 1.3], 0.1 + _design() @ x, 1.5).sum()
        ),
    ),
    "overdispersed_counts": (
        "data { array[2] int n; } parameters { real<lower=0> a; real<lower=0> b; }\n"
        "model { a ~ gamma(2, 1); b ~ chi_square(3);\n"
        "  n ~ beta_binomial(9, a, b); n ~ neg_binomial(a, b); }",
        {"n": [2, 7]},
        lambda x: (
            stats.gamma.logpdf(np.exp(x[0]), 2)
            + stats.chi2.logpdf(np.exp(x[1]), 3)
            + x.sum()
            + stats.betabinom.logpmf([2, 7], 9, np.exp(x[0]), np.exp(x[1])).sum()
            + stats.nbinom.logpmf([2, 7], np.exp(x[0]), np.exp(x[1]) / (1 + np.exp(x[1]))).sum()
        ),
    ),
}


def _logistic(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def _truncated_normal(y: Any, m: Any, s: float, low: float, high: float) -> float:
    return stats.truncnorm.logpdf(y, (low - m) / s, (high - m) / s, m, s).sum()


def _multi_normal(x: Array) -> float:
    covariance: Any = [[2, 0.5], [0.5, 1]]
    return stats.multivariate_normal([1, 2], covariance).logpdf(x)


def _multi_student(x: Array) -> float:
    shape: Any = np.eye(2)
    return stats.multivariate_t(x, shape, 5).logpdf([0.2, 0.4])


def _plane() -> Array:
    """An orthonormal basis of the vectors of three elements that sum to zero, Stan's own."""
    return np.array([[1, 1], [-1, 1], [0, -2]]) / np.sqrt([2, 6])


def _softmax(x: Array) -> Array:
    return special.softmax(_plane() @ x)


def _dirichlet(x: Array, alpha: Array) -> float:
    w = _softmax(x)
    # d w_i / d x_j, the first two elements of w as coordinates
    jacobian = (np.diag(w) - np.outer(w, w))[:2] @ _plane()
    return stats.dirichlet.logpdf(w, alpha) + np.log(abs(np.linalg.det(jacobian)))


def _lkj(x: Array, shape: float) -> float:
    """LKJ of three variables: tanh(x) are partial correlations, which are independent and beta."""
    partial, shapes = np.tanh(x), np.array([shape + 0.5, shape + 0.5, shape])
    density = stats.beta.logpdf((1 + partial) / 2, shapes, shapes) - np.log(2)
    return (density + np.log1p(-(partial**2))).sum()


def _covariance(x: Array) -> float:
    factor = np.array([[np.exp(x[0]), 0], [x[1], np.exp(x[2])]])
    sigma = factor @ factor.T
    # |d S / d L| = 4 L_11^2 L_22, and the diagonal of L is an exponential
    log_jacobian = np.log(4) + 3 * x[0] + 2 * x[2]
    scale: Any = [[2, 0.5], [0.5, 1]]
    return (
        stats.wishart.logpdf(sigma, 3.5, scale)
        + stats.invwishart.logpdf(sigma, 4, np.eye(2))
        + log_jacobian
    )


def _design() -> Array:
    return np.array([[1, 0.2], [0.4, -1], [0, 0.7]])


# The engine cannot run these as parameters, but it can run the generated transforms.
DIMENSION = {"column_stochastic": 4, "row_stochastic": 4, "sum_to_zero_matrix": 4}


@pytest.mark.parametrize("name", sorted(CLOSED_FORMS.keys() - DIMENSION.keys()))
def test_density_program(name: str) -> None:
    source, data, log_density = CLOSED_FORMS[name]
    model = load(generate(Program.from_source(source), "density"), data)
    rng = np.random.default_rng(SEED)
    for _ in range(5):
        x = rng.normal(size=model.param_unc_num())
        assert model.log_density(x) == pytest.approx(float(log_density(x)), rel=1e-10)


# It cannot save quantities that depend on target() either.
@pytest.mark.parametrize("name", sorted(CLOSED_FORMS.keys() - {"lp_function"}))
def test_joint_program(name: str) -> None:
    """With base N(0, I): the target's density at x = z, from what each draw saves."""
    source, data, log_density = CLOSED_FORMS[name]
    code = generate(Program.from_source(source), "joint")
    dimension = DIMENSION.get(name) or load(source, data).param_unc_num()
    base = base_data(dimension) | {
        "ct_base_mean": [0.0] * dimension,
        "ct_is_dense": 0,
        "ct_base_scale": np.ones((dimension, 1)).tolist(),
    }
    joint = load(code, data | base)
    names = joint.param_names(include_tp=True, include_gq=True)
    rng = np.random.default_rng(SEED)
    for _ in range(5):
        x = rng.normal(size=dimension)
        values = joint.param_constrain(
            np.append(x, 0.3), include_tp=True, include_gq=True, rng=joint.new_rng(1)
        )
        saved = dict(zip(names, values, strict=True))
        found = saved["ct_log_p"] + saved["ct_log_jacobian"]
        if name == "unit_vector":  # the sphere's area over the integral of Stan's own factor
            found -= np.log(4 * np.pi) - 1.5 * np.log(2 * np.pi)
        assert found == pytest.approx(float(log_density(x)), rel=1e-10)

"""Stand-ins for functions that the embedded engine lacks have the values that Stan documents."""

from __future__ import annotations

import math
import re
from itertools import pairwise

import numpy as np
import pytest
from conftest import target_of
from scipy import stats
from scipy.linalg import expm
from scipy.special import betainc

import stanct
from stanct.stan.stand_ins import stand_ins, with_stand_ins
from stanct.stan.syntax import SourceText, Syntax

# Two vectors, two scalars, a matrix, and one that is positive definite.
X = np.array([0.4, -0.3, 0.7, 0.2, 0.9, -0.5, 0.6, 0.35])
V, W, A, B = X[:3], X[3:6], X[6], X[7]
M = np.outer(V, W) + np.diag(W)
S = np.outer(V, V) + np.eye(3)
L = np.linalg.cholesky(S)
GAMMA = np.array([[0.9, 0.1], [0.4, 0.6]])
THETA = np.array([0.5, 0.2, 0.3])
PROGRAM = """
data { vector[%d] c; }
parameters { vector[3] v; vector[3] w; real a; real b; }
transformed parameters {
  matrix[3, 3] m = v * w' + diag_matrix(w);
  matrix[3, 3] s = v * v' + identity_matrix(3);
  vector[3] theta = [0.5, 0.2, 0.3]';
  vector[size(c)] value = [%s]';
}
model {
  v ~ std_normal();
  w ~ std_normal();
  a ~ std_normal();
  b ~ std_normal();
  target += dot_product(c, value);
}
"""


def periodic(distance: np.ndarray) -> float:
    return float(np.sum(A**2 * np.exp(-2 * np.sin(np.pi * distance / 1.7) ** 2 / B**2)))


def of_categories(below: np.ndarray) -> tuple[float, float]:
    """Mean and variance of three categories."""
    share, category = np.diff([0, *below, 1]), np.arange(1, 4)
    mean = float(share @ category)
    return mean, float(share @ category**2) - mean**2


def qr(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The factors with a positive diagonal."""
    q, r = np.linalg.qr(matrix)
    signs = np.sign(np.diag(r))
    return q * signs, signs[:, None] * r


def hidden_markov() -> float:
    """The sum over all paths of three states."""
    omega = np.array([[V[0], W[0], A], [V[1], W[1], B]])
    rho, paths = np.array([0.3, 0.7]), []
    for path in np.ndindex(2, 2, 2):
        moves = [np.log(GAMMA[i, j]) for i, j in pairwise(path)]
        here = sum(omega[state, t] for t, state in enumerate(path))
        paths.append(np.log(rho[path[0]]) + here + sum(moves))
    return float(np.logaddexp.reduce(paths))


APART = np.linalg.norm(V - W)
PAIRS = np.array([[0, APART], [APART, 0]])
LINE = np.subtract.outer([0, 1, 2.5], [0, 1, 2.5])
CASES = {
    "distance(v, w)": APART,
    "distance(v', w)": APART,
    "distance(v, w')": APART,
    "distance(v', w')": APART,
    "norm1(v)": np.abs(V).sum(),
    "norm1(v')": np.abs(V).sum(),
    "norm1({a, b})": A + B,
    "norm2(v)": np.linalg.norm(V),
    "norm2(v')": np.linalg.norm(V),
    "norm2({a, b})": math.hypot(A, B),
    "trace(m)": np.trace(M),
    "trace_dot(m, s .* m)": np.trace(M @ (S * M)),
    "trace_quad_form(m, v)": V @ M @ V,
    "trace_quad_form(m, s .* m)": np.trace((S * M).T @ M @ (S * M)),
    "trace_gen_quad_form(m, s, m .* m)": np.trace(M @ (M * M).T @ S @ (M * M)),
    "log_determinant_spd(s)": np.linalg.slogdet(S)[1],
    "chol2inv(cholesky_decompose(s))[1, 2]": np.linalg.inv(S)[0, 1],
    "matrix_power(m, 3)[1, 2]": np.linalg.matrix_power(M, 3)[0, 1],
    "matrix_power(m, 0)[2, 2]": 1.0,
    "matrix_exp_multiply(m, s)[2, 3]": (expm(M) @ S)[1, 2],
    "scale_matrix_exp_multiply(a, m, s)[2, 3]": (expm(A * M) @ S)[1, 2],
    "qr_thin_Q(m)[2, 3]": qr(M)[0][1, 2],
    "qr_thin_Q(m[ : , 1 : 2])[3, 2]": qr(M[:, :2])[0][2, 1],
    "qr_thin_R(m)[2, 3] + qr_thin_R(m)[3, 2]": qr(M)[1][1, 2],
    "qr_thin_R(m[1 : 2])[2, 3]": qr(M[:2])[1][1, 2],
    "sub_row(m, 2, 2, 2) * [1, 2]'": M[1, 1] + 2 * M[1, 2],
    "to_array_2d(m)[2, 3]": M[1, 2],
    "sum(symmetrize_from_lower_tri(m)[1])": M[:, 0].sum(),
    "a * int_step(2) + int_step(0) + b * int_step(-0.5)": A,
    "a * modulus(17, 5)": 2 * A,
    "inc_beta(1.5, 2.5, a)": betainc(1.5, 2.5, A),
    "log_mix(theta, v)": np.log(THETA @ np.exp(V)),
    "log_mix(theta', {a, b, 0})": np.log(THETA @ np.exp([A, B, 0])),
    "log_mix({0.5, 0.2, 0.3}, v')": np.log(THETA @ np.exp(V)),
    "log_mix(theta, {v, w})": np.log(THETA @ np.exp(V)) + np.log(THETA @ np.exp(W)),
    "log_mix(theta, {v', w'})": np.log(THETA @ np.exp(V)) + np.log(THETA @ np.exp(W)),
    "log_mix(0.3, a, b)": np.log(0.3 * np.exp(A) + 0.7 * np.exp(B)),
    "gp_dot_prod_cov({v, w}, a)[1, 2]": V @ W + A**2,
    "gp_dot_prod_cov({v}, {w}, a)[1, 1]": V @ W + A**2,
    "gp_dot_prod_cov({1.0, 2.0}, a)[1, 2]": 2 + A**2,
    "gp_dot_prod_cov({1.0}, {a}, a)[1, 1]": A + A**2,
    "sum(gp_periodic_cov({0.0, 1, 2.5}, a, b, 1.7))": periodic(LINE),
    "sum(gp_periodic_cov({1.0, 2.5}, {0.0}, a, b, 1.7))": periodic(np.array([1, 2.5])),
    "sum(gp_periodic_cov({[0, 0, 1]', [0, 2, 1]'}, a, b, 1.7))": periodic(2.0 * (1 - np.eye(2))),
    "sum(gp_periodic_cov({v, w}, {[0, 0, 0]'}, a, b, 1.7))": periodic(
        np.array([np.linalg.norm(V), np.linalg.norm(W)])
    ),
    "hmm_marginal([[v[1], w[1], a], [v[2], w[2], b]], [[.9, .1], [.4, .6]], [.3, .7]')": (
        hidden_markov()
    ),
}
# Of these the size is that of the data.
SPARSE = """
transformed data {
  matrix[2, 3] m = [[0, 2, 0], [5, 0, 7]];
  vector[3] w = csr_extract_w(m);
  array[3] int column = csr_extract_v(m);
  array[3] int u = csr_extract_u(m);
  matrix[2, 3] dense = csr_to_dense_matrix(2, 3, w, column, u);
}
parameters { real x; }
model { x ~ std_normal(); }
generated quantities {
  vector[3] wx = w;
  array[3] int vx = column;
  array[3] int ux = u;
  matrix[2, 3] mx = dense;
  array[3] int count = multinomial_rng([0.5, 0.2, 0.3]', 100);
}
"""
# Draws, with the mean and the standard deviation of each.
DRAWN = {
    "neg_binomial_rng(3, 0.5)": stats.nbinom(3, 1 / 3).stats(),
    "beta_proportion_rng(0.3, 5)": stats.beta(1.5, 3.5).stats(),
    "exp_mod_normal_rng(1, 0.5, 2)": stats.exponnorm(1, 1, 0.5).stats(),
    "frechet_rng(6, 2)": stats.invweibull(6, scale=2).stats(),
    "inv_chi_square_rng(12)": stats.invgamma(6, scale=0.5).stats(),
    "scaled_inv_chi_square_rng(12, 2)": stats.invgamma(6, scale=24).stats(),
    "loglogistic_rng(2, 6)": stats.fisk(6, scale=2).stats(),
    "pareto_rng(2, 6)": stats.pareto(6, scale=2).stats(),
    "pareto_type_2_rng(1, 2, 6)": stats.lomax(6, 1, 2).stats(),
    "rayleigh_rng(2)": stats.rayleigh(scale=2).stats(),
    "discrete_range_rng(3, 8)": stats.randint(3, 9).stats(),
    "skew_normal_rng(1, 2, 3)": stats.skewnorm(3, 1, 2).stats(),
    "ordered_logistic_rng(0.5, [-1, 2]')": of_categories(stats.logistic(0.5).cdf([-1, 2])),
    "ordered_probit_rng(0.5, [-1, 2]')": of_categories(stats.norm(0.5).cdf([-1, 2])),
    "multi_student_t_rng(12, [1, 2]', [[2, 1], [1, 3]])[2]": stats.t(12, 2, np.sqrt(3)).stats(),
}


@pytest.fixture(autouse=True)
def without_cmdstan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CMDSTAN", "/no/cmdstan/here")


def test_the_density_is_that_of_the_formula() -> None:
    count, values = len(CASES), np.array(list(CASES.values()))
    weights = np.cos(np.arange(count))
    density = target_of(PROGRAM % (count, ", ".join(CASES)), {"c": weights}).density
    found = density.variables(X[None, None], seed=1)["value"][0, 0]
    for call, one, expected in zip(CASES, found, values, strict=True):
        assert one == pytest.approx(expected, rel=1e-12), call
    normal = -0.5 * X @ X - 4 * np.log(2 * np.pi)
    assert density.log_density(X) == pytest.approx(normal + weights @ values, rel=1e-12)
    # Its gradient is the one that differences show.
    gradient = density.log_density_gradient(X)[1]
    for k, step in enumerate(1e-6 * np.eye(8)):
        slope = (density.log_density(X + step) - density.log_density(X - step)) / 2e-6
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-6)


def test_sparse_matrices_and_counts() -> None:
    density = target_of(SPARSE).density
    drawn = density.variables(np.zeros((1, 2000, 1)), seed=1)
    first = {name: values[0, 0].tolist() for name, values in drawn.items()}
    assert (first["wx"], first["vx"], first["ux"]) == ([2, 5, 7], [2, 1, 3], [1, 2, 4])
    assert first["mx"] == [[0, 2, 0], [5, 0, 7]]
    count = drawn["count"][0]
    assert np.all(count.sum(axis=1) == 100)
    assert np.allclose(count.mean(axis=0), 100 * THETA, atol=0.5)
    covariance = 100 * (np.diag(THETA) - np.outer(THETA, THETA))
    assert np.allclose(np.cov(count.T), covariance, atol=2.5)


def test_random_numbers_have_their_means_and_variances() -> None:
    code = "parameters { real x; } model { x ~ std_normal(); } generated quantities { "
    code += f"vector[{len(DRAWN)}] y = [{', '.join(DRAWN)}]'; }}"
    drawn = target_of(code).density.variables(np.zeros((1, 20_000, 1)), seed=1)["y"][0]
    for call, own, (mean, variance) in zip(DRAWN, drawn.T, DRAWN.values(), strict=True):
        assert abs(own.mean() - mean) < 5 * np.sqrt(variance / len(own)), call
        # The error of a variance is that of a mean of squares.
        error = ((own - mean) ** 2).std() / np.sqrt(len(own))
        assert abs(((own - mean) ** 2).mean() - variance) < 5 * error, call


def test_each_stand_in_is_compared() -> None:
    tried = set(re.findall(r"\w+(?=\()", " ".join([*CASES, *DRAWN, SPARSE])))
    # A test of its own compares the one that stands in for a function which is rounding error.
    assert tried | {"neg_binomial_2_log_glm_lpmf"} >= set(stand_ins())


def test_what_is_changed() -> None:
    text = "parameters { vector[2] x; }\nmodel { target += -norm1(x); }\n"
    changed = with_stand_ins(text)
    assert changed.count("\n") == 2
    assert "target += -stanct_norm1(x);" in changed
    assert next(iter(Syntax(SourceText.expand(changed, "m")).blocks)) == "functions"
    # A function of the user's own, a variable of the name, and names that stanct took.
    for same in (
        "functions { real norm1(vector x) { return 1; } } " + text,
        "parameters { real trace; } model { trace ~ normal(0, 1); }",
        "parameters { real x; } model { target += log_mix(0.3, x, -x); }",
    ):
        assert with_stand_ins(same) == same
    taken = "functions { real stanct_norm1(real x) { return x; } } " + text
    assert "-xstanct_norm1(x)" in with_stand_ins(taken)


def test_users_read_their_own_program() -> None:
    model = stanct.temper("parameters { vector[2] x; } model { target += -distance(x, [1, 2]'); }")
    assert "stanct_" not in model.stan_code("density")


def test_a_stand_in_that_the_engine_cannot_run_is_named() -> None:
    code = "parameters { vector[2] v; } model { target += -sum(csr_extract_w(v * v')); }"
    with pytest.raises(stanct.StanctError, match="cannot run `csr_extract_w`"):
        _ = target_of(code).density


@pytest.mark.parametrize(
    "call", ["target += {}_lpmf(y | {})", "y ~ {}({})", "target += {}_lupmf(y | {})"]
)
@pytest.mark.parametrize("alpha", ["a", "rep_vector(a, 3)"])
def test_a_negative_binomial_of_large_phi_is_poisson(call: str, alpha: str) -> None:
    """The engine's own is rounding error from phi = 10¹¹, and 10²⁰⁰ at phi = 10²⁰²."""
    term = call.format("neg_binomial_2_log_glm", f"x, {alpha}, [b]', phi")
    program = (
        "data { array[3] int y; matrix[3, 1] x; } parameters { real a; real b; real<lower=0> phi; }"
        f" model {{ {term}; }}"
    )
    y, x, a, b = [4, 0, 7], [0.3, -1.2, 0.8], 0.6, -0.4
    density = target_of(program, {"y": y, "x": [[one] for one in x]}).density
    mean = np.exp(a + b * np.array(x))
    for log_phi in (0.5, 10, 30, 40, 300):
        phi_value = math.exp(log_phi)
        share = phi_value / (phi_value + mean)
        binomial, poisson = stats.nbinom.logpmf(y, phi_value, share), stats.poisson.logpmf(y, mean)
        exact = (binomial if log_phi < 12 else poisson).sum() + log_phi
        found = density.log_densities(np.array([[a, b, log_phi]]))[0]
        assert found == pytest.approx(exact, abs=1e-5)

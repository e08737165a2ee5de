"""The pseudo-extended program: its density is the formula, its output the chosen copy."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import stanli
from generated import (
    AREAS,
    BIAS,
    DATA,
    KNOTS,
    PROGRAMS,
    RUNNABLE,
    SEED,
    Array,
    base_data,
    load,
    numerical_gradient,
)
from scipy import special, stats

from stanct.common.errors import ProgramError
from stanct.stan.codegen import generate
from stanct.stan.program import Program

# `loops` is steep: test_verify compares it without numerical gradients.
NAMES = [name for name in RUNNABLE if name not in ("functions", "loops")]
LINEAR = (np.array([0.0, 1.0]), np.array([0.0, -2.5]))
BIASES = {"linear": LINEAR, "table": (KNOTS, BIAS)}


def pseudo_extended(
    source: Program | str,
    data: dict[str, Any],
    base: dict[str, Any],
    copies: int,
    beta: Any = None,
    bounds: tuple[float, float] | None = None,
) -> Any:
    program = Program.from_source(source) if isinstance(source, str) else source
    extra: dict[str, Any] = {"ct_N": copies}
    if bounds is not None:
        extra |= {"ct_least_beta": bounds[0], "ct_most_beta": bounds[1]}
        extra["ct_log_zeta"] = base["ct_bias"][-1]
    if beta is not None:
        at_beta = np.interp(beta, base["ct_bias_beta"], base["ct_bias"])
        extra |= {"ct_beta": list(beta), "ct_bias": list(at_beta)}
    code = generate(program, "pseudo_extended", fixed=beta is not None, powers=bounds is not None)
    return load(code, data | base | extra)


def expected(
    log_densities: Array, z: Array, beta: Array, base: dict[str, Any], u: Array | None
) -> tuple[float, Array, Array]:
    """Return log density, delta and log weights from the target's log density of each copy."""
    log_base = stats.norm.logpdf(z).sum(axis=1)
    delta = log_base - log_densities - np.log(np.diag(base["ct_base_scale"])).sum()
    bias = np.interp(beta, base["ct_bias_beta"], base["ct_bias"])
    log_weight = -(1 - beta) * delta + bias
    value = special.logsumexp(log_weight) - np.log(len(z))
    value += np.sum(log_base - beta * delta)
    if u is not None:
        value += np.sum(np.interp(beta, base["ct_bias_beta"], base["ct_log_g"]) - bias)
        value += np.sum(special.log_expit(u) + special.log_expit(-u))
    return value, delta, log_weight


def point(dimension: int, copies: int, base: dict[str, Any], seed: int) -> tuple[Array, Array]:
    """Return z of shape (copies, D), and x = m + L z."""
    z = np.random.default_rng(seed).normal(size=(copies, dimension))
    x = np.array(base["ct_base_mean"]) + z @ np.array(base["ct_base_scale"]).T
    return z, x


@pytest.mark.parametrize(
    ("copies", "fixed", "bias"),
    [(1, False, "linear"), (1, True, "table"), (3, False, "table"), (3, True, "linear")],
)
@pytest.mark.parametrize("name", NAMES)
def test_density_is_the_formula(name: str, copies: int, fixed: bool, bias: str) -> None:
    """The density program, which keeps Stan's own transforms, is the reference."""
    if name == "bounds" and (copies == 1 or not fixed):
        pytest.skip("takes seconds to compile, and adds nothing in the other cases")
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    density = load(generate(program, "density"), DATA[name])
    dimension = density.param_unc_num()
    base = base_data(dimension, *BIASES[bias])
    u = np.random.default_rng(SEED).normal(size=copies) * 2
    model = pseudo_extended(program, DATA[name], base, copies, special.expit(u) if fixed else None)
    for seed in range(SEED, SEED + 3):
        z, x = point(dimension, copies, base, seed)
        if not fixed:
            u = np.random.default_rng(seed).normal(size=copies) * 2
        beta = special.expit(u)
        at = z.ravel() if fixed else np.append(z, u)
        assert model.param_unc_num() == at.size
        log_densities = np.array([density.log_density(row) for row in x]) + AREAS.get(name, 0.0)
        value, delta, log_weight = expected(log_densities, z, beta, base, None if fixed else u)
        found, gradient = model.log_density_gradient(at)
        assert found == pytest.approx(value, rel=1e-10, abs=1e-10)
        # Saved without gradients, an ODE is solved in other steps.
        accuracy = 1e-6 if name == "growth" else 1e-10
        names = model.param_names(include_tp=True)
        saved = model.param_constrain(at, include_tp=True)
        kept = {"beta": beta, "delta": delta, "log_weight": log_weight}
        for key, wanted in list(kept.items())[1 if fixed else 0 :]:
            values = [v for n, v in zip(names, saved, strict=True) if n.startswith(f"ct_{key}.")]
            np.testing.assert_allclose(values, wanted, rtol=accuracy, atol=accuracy)
        if seed == SEED and copies == 3:
            differences = numerical_gradient(model, at)
            np.testing.assert_allclose(gradient, differences, rtol=5e-6, atol=5e-6)


def test_the_linear_form_is_that_of_the_paper() -> None:
    """b = beta log zeta, uniform g: log (1/N) sum exp(-(1 - beta)(delta + log zeta)) + sum ..."""
    log_zeta = -2.5
    base = base_data(1, *LINEAR)
    base["ct_log_g"] = [0.0, 0.0]
    model = pseudo_extended("parameters { real a; } model { a ~ student_t(3, 1, 2); }", {}, base, 2)
    z, x = point(1, 2, base, SEED)
    u = np.array([0.4, -1.7])
    beta = special.expit(u)
    psi = -stats.norm.logpdf(z[:, 0])
    phi = -stats.t.logpdf(x[:, 0], 3, 1, 2) - np.log(base["ct_base_scale"][0][0])
    rate = phi + log_zeta - psi
    value = -np.log(2) + special.logsumexp(-(1 - beta) * rate)
    value += np.sum(-beta * (phi + log_zeta) - (1 - beta) * psi + np.log(beta * (1 - beta)))
    found = model.log_density(np.append(z, u)) - log_zeta  # the program's w lack this constant
    assert found == pytest.approx(value, rel=1e-12)


def test_fixed_beta_at_both_ends() -> None:
    """At beta = 0 an impossible copy counts no more than its base; at beta = 1 it excludes."""
    source = "parameters { real a; } model { a ~ normal(1, 2) T[0, ]; }"
    base = base_data(1, *LINEAR)
    base["ct_log_g"] = [0.0, 0.0]
    scale, mean = base["ct_base_scale"][0][0], base["ct_base_mean"][0]
    inside, outside = (0.7 - mean) / scale, (-0.7 - mean) / scale
    model = pseudo_extended(source, {}, base, 2, [0.0, 1.0])
    target = stats.truncnorm.logpdf(0.7, -0.5, np.inf, 1, 2)
    # sum_i w_i is that of the second copy alone, whose log weight is b(1)
    value = -np.log(2) + stats.norm.logpdf(outside) + target + np.log(scale) - 2.5
    assert model.log_density(np.array([outside, inside])) == pytest.approx(value, rel=1e-12)
    assert model.log_density(np.array([inside, outside])) == -np.inf


def test_marginal_of_the_weighted_copy_is_the_target() -> None:
    """Integrate over both copies: E[sum of normalised w f(x)] is the target's E[f]."""
    base = {"ct_D": 1, "ct_base_mean": [0.5], "ct_is_dense": 0, "ct_base_scale": [[2.0]], "ct_K": 2}
    base |= {"ct_bias_beta": [0.0, 1.0], "ct_bias": [0.0, 0.3], "ct_log_g": [0.0, -2.0]}
    source = "parameters { real a; } model { a ~ normal(1, 0.8); target += 0.2; }"
    model = pseudo_extended(source, {}, base, 2, [0.2, 0.6])
    grid = np.linspace(-3.5, 3.5, 71)
    total = first = 0.0
    for left in grid:
        for right in grid:
            at = np.array([left, right])
            density = np.exp(model.log_density(at))
            log_weight = model.param_constrain(at, include_tp=True)[-2:]
            total += density
            first += density * special.softmax(log_weight) @ (0.5 + 2 * at)
    assert first / total == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("name", ["eight_schools", "bounds", "vectors", "matrices"])
def test_the_chosen_copy_comes_out_under_the_users_names(name: str) -> None:
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    original = load(program.expanded, DATA[name])
    dimension = original.param_unc_num()
    base = base_data(dimension)
    z, x = point(dimension, 3, base, SEED)
    model = pseudo_extended(program, DATA[name], base, 3)
    at = np.append(z, [-1.0, 0.2, 2.0])
    names = model.param_names(include_tp=True, include_gq=True)
    wanted_names = original.param_names(include_tp=True)
    rng = model.new_rng(seed=3)
    for _ in range(20):
        values = model.param_constrain(at, include_tp=True, include_gq=True, rng=rng)
        saved = dict(zip(names, values, strict=True))
        chosen = int(saved["ct_chosen"])
        wanted = original.param_constrain(x[chosen - 1], include_tp=True)
        for key, value in zip(wanted_names, wanted, strict=True):
            assert saved[key] == pytest.approx(value, rel=1e-11, abs=1e-13), key


def test_copies_are_chosen_by_their_weights() -> None:
    source = "parameters { real a; } model { a ~ normal(0, 1); }"
    base = base_data(1, *LINEAR)
    model = pseudo_extended(source, {}, base, 3)
    at = np.array([0.1, 0.5, -1.0, 1.0, -2.0, 0.0])
    names = model.param_names(include_tp=True, include_gq=True)
    rng = model.new_rng(seed=SEED)
    draws = [
        model.param_constrain(at, include_tp=True, include_gq=True, rng=rng) for _ in range(4000)
    ]
    chosen = np.array(draws)[:, names.index("ct_chosen")]
    first = names.index("ct_log_weight.1")
    shares = special.softmax(draws[0][first : first + 3])
    for copy, share in enumerate(shares, 1):
        error = np.sqrt(share * (1 - share) / 4000)
        assert abs(np.mean(chosen == copy) - share) < 4 * error


CONSTRAINTS = {
    # declaration, value inside, value outside, both of the parameter a = 0.3
    "lower": ("real<lower=0>", "a", "-a"),
    "upper": ("real<upper=0>", "-a", "a"),
    "both": ("real<lower=0, upper=a + 1>", "a", "2 * a + 1"),
    "vector": ("vector<lower=0>[2]", "[a, 1]'", "[1, -a]'"),
    "vector_bound": ("vector<upper=[1, 2]'>[2]", "[a, a + 1]'", "[a, a + 2]'"),
    "row_vector": ("row_vector<lower=0>[2]", "[a, 1]", "[a, -1]"),
    "matrix": ("matrix<lower=0>[1, 2]", "[[a, 1]]", "[[a, -1]]"),
    "array": ("array[2] real<lower=0>", "{a, 1}", "{a, -1}"),
    "arrays": ("array[1, 2] real<lower=0>", "{{a, 1}}", "{{a, -1}}"),
    "array_between": ("array[2] real<lower=0, upper=1>", "{a, 1}", "{a, 1.1}"),
    "array_of_bounds": ("array[2] real<lower={0, a}>", "{0, a}", "{a, 0}"),
    "vector_between": ("vector<lower=0, upper=1>[2]", "[a, 1]'", "[a, 1.1]'"),
    "vector_of_bounds": ("vector<lower=[0, a]'>[2]", "[0, a]'", "[a, 0]'"),
    "array_of_vectors": (
        "array[2] vector<lower=0, upper=1>[2]",
        "{[a, 1]', [0, a]'}",
        "{[a, 1]', [-a, a]'}",
    ),
    "arrays_of_vectors": ("array[2, 1] vector<upper=1>[1]", "{{[a]'}, {[1]'}}", "{{[a]'}, {[2]'}}"),
    "array_of_vectors_above": ("array[2] vector<lower=a>[1]", "{[a]', [1]'}", "{[1]', [0]'}"),
    "array_of_row_vectors": ("array[2] row_vector<lower=a>[1]", "{[a], [1]}", "{[a], [0]}"),
    "nan": ("real<lower=0>", "a", "not_a_number()"),
    "nan_in_a_vector": ("vector<lower=0>[2]", "[a, positive_infinity()]'", "[a, not_a_number()]'"),
    "nan_in_an_array": ("array[2] vector<upper=1>[1]", "{[a]', [a]'}", "{[a]', [not_a_number()]'}"),
    "ordered": ("ordered[2]", "[a, 1]'", "[a, a]'"),
    "array_of_ordered": ("array[2] ordered[2]", "{[a, 1]', [0, a]'}", "{[a, 1]', [1, a]'}"),
    "nan_ordered": ("ordered[3]", "[a, 1, 2]'", "[a, not_a_number(), 2]'"),
    "positive_ordered": ("positive_ordered[2]", "[a, 1]'", "[-a, 1]'"),
    "simplex": ("array[1] simplex[2]", "{[a, 1 - a]'}", "{[a, 1.1 - a]'}"),
    "simplexes": ("array[1, 2] simplex[2]", "{{[a, 1 - a]', [0, 1]'}}", "{{[a, 1 - a]', [a, 1]'}}"),
    "negative_simplexes": ("array[1] simplex[2]", "{[a, 1 - a]'}", "{[-a, 1 + a]'}"),
    "nan_simplexes": ("array[1] simplex[2]", "{[a, 1 - a]'}", "{[not_a_number(), 1 - a]'}"),
    "negative_simplex": ("simplex[2]", "[a, 1 - a]'", "[-a, 1 + a]'"),
    "unit_vector": ("unit_vector[2]", "[a, sqrt(1 - a^2)]'", "[a, sqrt(1 + a^2)]'"),
    "sum_to_zero": ("sum_to_zero_vector[2]", "[a, -a]'", "[a, 1 - a]'"),
    "sum_to_zero_matrix": (
        "sum_to_zero_matrix[2, 2]",
        "[[a, -a], [-a, a]]",
        "[[a, -a], [a, -a]]",
    ),
    "cholesky_factor_corr": (
        "cholesky_factor_corr[2]",
        "[[1, 0], [a, sqrt(1 - a^2)]]",
        "[[1, 0], [a, 1]]",
    ),
    "cholesky_factor_cov": ("cholesky_factor_cov[2]", "[[1, 0], [a, a]]", "[[1, a], [a, a]]"),
    "cov_matrix": ("cov_matrix[2]", "[[1, a], [a, a]]", "[[1, a], [a, a^2 - 0.1]]"),
    "corr_matrix": ("corr_matrix[2]", "[[1, a], [a, 1]]", "[[1, a], [a, 2]]"),
}


UNCHECKED_BY_THE_ENGINE = {"sum_to_zero_matrix"}


@pytest.mark.parametrize("name", sorted(CONSTRAINTS))
def test_constraints_of_transformed_parameters_still_reject(name: str) -> None:
    declaration, good, bad = CONSTRAINTS[name]
    base = base_data(1) | {"ct_base_mean": [0.0], "ct_base_scale": [[1.0]]}
    for value, accepted in ((good, True), (bad, False)):
        source = (
            "parameters { real a; }\n"
            f"transformed parameters {{ {declaration} t = {value}; }}\n"
            "model { a ~ normal(0, 1); }"
        )
        models = [(pseudo_extended(source, {}, base, 2), np.array([0.3, 0.3, 0.0, 0.0]))]
        if name not in UNCHECKED_BY_THE_ENGINE:
            models.append((load(source, {}), np.array([0.3])))
        for model, at in models:
            if accepted:
                assert np.isfinite(model.log_density(at))
            else:
                with pytest.raises(Exception, match=r"t is outside|t is not|must|sum|not"):
                    model.log_density(at)


def test_nothing_breaks_no_constraint() -> None:
    source = """
    data { int N; }
    parameters { real a; }
    transformed parameters {
      vector<lower=0, upper=a>[N] v = rep_vector(a, N);
      matrix<lower=0>[N, 2] m = rep_matrix(a, N, 2);
      array[N] vector<lower=0>[2] w = rep_array([a, a]', N);
      array[N, 2] real<upper=1> r = rep_array(a, N, 2);
      array[N] simplex[2] s = rep_array([a, 1 - a]', N);
      ordered[N] o = rep_vector(a, N);
    }
    model { a ~ normal(0, 1); }"""
    base = base_data(1) | {"ct_base_mean": [0.0], "ct_base_scale": [[1.0]]}
    for size in (0, 1):
        model = pseudo_extended(source, {"N": size}, base, 2)
        assert np.isfinite(model.log_density(np.array([0.3, 0.3, 0.0, 0.0])))


def test_functions_that_add_to_the_target() -> None:
    source = (
        "functions { void prior_lp(real a) { a ~ normal(0, 3); target += -a; } }\n"
        "parameters { real a; }\n"
        "model { prior_lp(a); if (target() > -1e9) a ~ normal(1, 1); }"
    )
    base = base_data(1)
    z, x = point(1, 3, base, SEED)
    u = np.array([0.1, -0.4, 1.0])
    log_densities = stats.norm.logpdf(x[:, 0], 0, 3) - x[:, 0] + stats.norm.logpdf(x[:, 0], 1, 1)
    value, _, _ = expected(log_densities, z, special.expit(u), base, u)
    model = pseudo_extended(source, {}, base, 3)
    assert model.log_density(np.append(z, u)) == pytest.approx(value, rel=1e-10)


def test_jacobian_statements_count_once_and_are_not_repeated() -> None:
    source = (
        "parameters { real a; }\n"
        "transformed parameters { real s = exp(a); if (a > -99) jacobian += a; }\n"
        "model { s ~ exponential(1); }"
    )
    base = base_data(1)
    z, x = point(1, 2, base, SEED)
    u = np.array([0.1, -0.4])
    log_densities = x[:, 0] - np.exp(x[:, 0])
    value, _, _ = expected(log_densities, z, special.expit(u), base, u)
    assert pseudo_extended(source, {}, base, 2).log_density(np.append(z, u)) == pytest.approx(value)
    code = generate(Program.from_source(source), "pseudo_extended")
    assert code.count("jacobian += a;") == 1
    assert "jacobian" not in code[code.index("generated quantities") :]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "functions { real f_lp(real x) { target += x; return x; } }\n"
            "parameters { real x; }\ntransformed parameters { real y = f_lp(x); }",
            r"bad\.stan:3:\d+: .*compute the transformed parameters again(?s:.)*plain function",
        ),
    ],
)
def test_refusals(source: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        generate(Program.from_source(source, name="bad"), "pseudo_extended")


def test_unequal_data_are_explained() -> None:
    source = "parameters { vector[2] a; } model { a ~ normal(0, 1); }"
    with pytest.raises(Exception, match=re.escape("ct_D is 3, but the program has 2")):
        pseudo_extended(source, {}, base_data(3), 2)


def test_tuples_and_stochastic_matrices_compile() -> None:
    """The embedded engine cannot run these; stanc checks the program."""
    source = (
        "parameters { tuple(real<lower=0>, simplex[3]) p; }\n"
        "transformed parameters { tuple(real<lower=0>, array[2] ordered[2]) q =\n"
        "  (p.1, {[1, 2]', [p.1, p.1 + 1]'});\n"
        "column_stochastic_matrix[1, 1] c = [[1]]; row_stochastic_matrix[1, 1] r = [[1]]; }\n"
        "model { p.1 ~ exponential(1); }"
    )
    code = generate(Program.from_source(source), "pseudo_extended")
    assert stanli.stan_to_mir(code)
    assert "if (!(q.1 >= 0))" in code
    assert "ct_is_ordered(q.2[ct_i1])" in code

"""Generated programs as densities: against the original, SciPy, quadrature and differences.

The programs run in the embedded engine. What it cannot run (tuples, complex numbers, stochastic
matrices as parameters) is checked as far as the transforms of the joint program go.
"""

from __future__ import annotations

import warnings
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
from scipy import integrate, stats

from stanct.stan.codegen import generate
from stanct.stan.program import Program


def expected_joint(
    log_density: float, z: Array, u: float, base: dict[str, Any]
) -> tuple[float, float, float]:
    """Return the joint log density, delta, and beta, from the target's log density in x."""
    beta, rest = 1 / (1 + np.exp(-u)), 1 / (1 + np.exp(u))
    log_det = np.log(np.diag(base["ct_base_scale"])).sum()
    log_base = stats.norm.logpdf(z).sum()
    bias = np.interp(beta, base["ct_bias_beta"], base["ct_bias"])
    log_jacobian = -np.logaddexp(0, -u) - np.logaddexp(0, u)
    value = beta * (log_density + log_det) + rest * log_base - bias + log_jacobian
    return value, log_base - log_density - log_det, beta


@pytest.mark.parametrize("kind", ["joint", "pseudo_extended"])
@pytest.mark.parametrize("name", [name for name in RUNNABLE if name != "functions"])
def test_the_embedded_engine_compiles_all_of_it(name: str, kind: str) -> None:
    """It would interpret what it cannot compile, many times slower, and warn."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    dimension = load(program.expanded, DATA[name]).param_unc_num()
    data = DATA[name] | base_data(dimension)
    if kind == "pseudo_extended":
        data |= {"ct_N": 2}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stanli.Model(stan_code=generate(program, kind), data=data)


@pytest.mark.parametrize("name", RUNNABLE)
def test_density_is_the_original_up_to_a_constant(name: str) -> None:
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    original = load(program.expanded, DATA[name])
    density = load(generate(program, "density"), DATA[name])
    rng = np.random.default_rng(SEED)
    constants: list[float] = []
    for _ in range(20):
        x = rng.normal(size=original.param_unc_num())
        value, gradient = original.log_density_gradient(x)
        new_value, new_gradient = density.log_density_gradient(x)
        assert np.isfinite(value)
        np.testing.assert_allclose(new_gradient, gradient, rtol=1e-12, atol=1e-12)
        constants.append(new_value - value)
        assert constants[-1] == pytest.approx(constants[0], abs=1e-9 * (1 + abs(value)))


@pytest.mark.parametrize("name", RUNNABLE)
def test_joint_is_the_formula(name: str) -> None:
    """The density program, which keeps Stan's own transforms, is the reference."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    density = load(generate(program, "density"), DATA[name])
    dimension = density.param_unc_num()
    base = base_data(dimension)
    joint = load(generate(program, "joint"), DATA[name] | base)
    assert joint.param_unc_num() == dimension + 1
    mean, scale = np.array(base["ct_base_mean"]), np.array(base["ct_base_scale"])
    rng = np.random.default_rng(SEED)
    for u in (0.0, -1.3, 2.1, 0.7, -3.0, 41.0, -41.0):
        z = rng.normal(size=dimension)
        log_density, gradient = density.log_density_gradient(mean + scale @ z)
        log_density += AREAS.get(name, 0.0)
        value, delta, beta = expected_joint(log_density, z, u, base)
        found, found_gradient = joint.log_density_gradient(np.append(z, u))
        assert found == pytest.approx(value, rel=1e-10, abs=1e-10)
        slope = np.diff(BIAS)[np.searchsorted(KNOTS[1:-1], beta)]
        slope /= np.diff(KNOTS)[np.searchsorted(KNOTS[1:-1], beta)]
        rest = 1 / (1 + np.exp(u))
        by_z = beta * scale.T @ gradient - rest * z
        by_u = -beta * rest * (delta + slope) + rest - beta
        np.testing.assert_allclose(
            found_gradient, np.append(by_z, by_u), rtol=1e-7, atol=1e-8 * (1 + abs(delta))
        )


COUPLING = [1.0, 1.0, 0.6, 0.2]


@pytest.mark.parametrize("kind", ["joint", "pseudo_extended", "extended_hamiltonian"])
def test_a_diagonal_scale_is_the_matrix_of_it(kind: str) -> None:
    """Density, gradient and whatever a draw saves, L given whole or by its diagonal."""
    program = Program.from_file(PROGRAMS / "vectors.stan")
    code = generate(program, kind)
    dimension = load(program.expanded, DATA["vectors"]).param_unc_num()
    diagonal = np.linspace(0.3, 0.9, dimension)
    copies = 2 if kind == "pseudo_extended" else 1
    rest = DATA["vectors"] | base_data(dimension)
    rest |= {"ct_N": copies, "ct_xi_knots": KNOTS}
    rest |= {"ct_beta_at": COUPLING}
    whole = {"ct_is_dense": 1, "ct_base_scale": np.diag(diagonal)}
    short = {"ct_is_dense": 0, "ct_base_scale": diagonal[:, None]}
    dense, sparse = (load(code, rest | scale) for scale in (whole, short))
    rng = np.random.default_rng(SEED)
    for _ in range(3):
        at = rng.normal(size=copies * (dimension + 1))
        (wanted, slope), (found, found_slope) = (
            model.log_density_gradient(at) for model in (dense, sparse)
        )
        assert found == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(found_slope, slope, rtol=1e-10, atol=1e-12)
        saved = [
            model.param_constrain(at, include_tp=True, include_gq=True, rng=model.new_rng(1))
            for model in (dense, sparse)
        ]
        np.testing.assert_allclose(saved[1], saved[0], rtol=1e-11, atol=1e-13)


@pytest.mark.parametrize("name", ["vectors", "matrices", "bounds"])
def test_joint_gradient_against_differences(name: str) -> None:
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    dimension = load(program.expanded, DATA[name]).param_unc_num()
    joint = load(generate(program, "joint"), DATA[name] | base_data(dimension))
    at = np.random.default_rng(SEED).normal(size=dimension + 1)
    gradient = joint.log_density_gradient(at)[1]
    np.testing.assert_allclose(gradient, numerical_gradient(joint, at), rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("name", ["eight_schools", "bounds", "vectors", "matrices"])
def test_joint_saves_the_users_parameters(name: str) -> None:
    """Same names, same values, Stan's own transforms of x = m + L z."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    original = load(program.expanded, DATA[name])
    dimension = original.param_unc_num()
    base = base_data(dimension)
    joint = load(generate(program, "joint"), DATA[name] | base)
    z = np.random.default_rng(SEED).normal(size=dimension)
    x = np.array(base["ct_base_mean"]) + np.array(base["ct_base_scale"]) @ z
    names = joint.param_names(include_tp=True)
    saved = dict(zip(names, joint.param_constrain(np.append(z, 0.3), include_tp=True), strict=True))
    wanted = dict(zip(original.param_names(), original.param_constrain(x), strict=True))
    assert set(wanted) <= set(saved)
    for key, value in wanted.items():
        assert saved[key] == pytest.approx(value, rel=1e-11, abs=1e-13), key
    ours = {key for key in saved if key not in wanted and not key.startswith("ct_z")}
    assert ours == {"ct_u", "ct_beta", "ct_log_p", "ct_log_jacobian", "ct_delta"}


def quadrature(delta: float, knots: Array, bias: Array) -> float:
    """log of the integral of exp(-beta delta - b(beta)) over [0, 1], numerically."""
    grid = np.linspace(0, 1, 2001)
    top = np.max(-grid * delta - np.interp(grid, knots, bias))
    reach = min(0.5, 20 / (1 + abs(delta)))
    integral, _ = integrate.quad(
        lambda beta: np.exp(-beta * delta - np.interp(beta, knots, bias) - top),
        0,
        1,
        points=[*knots[1:-1], reach, 1 - reach],
        epsabs=0,
        epsrel=1e-12,
        limit=500,
    )
    return np.log(integral) + top


@pytest.mark.parametrize(
    ("knots", "bias"),
    [([0, 1], [0, 3.2]), (KNOTS, BIAS), ([0, 0.5, 1], [0, 0, 0])],
)
@pytest.mark.parametrize("scale", [0.3, 4.0])
def test_weights_against_quadrature(knots: list[float], bias: list[float], scale: float) -> None:
    program = Program.from_file(PROGRAMS / "eight_schools.stan")
    density = load(generate(program, "density"), DATA["eight_schools"])
    base = base_data(10, np.asarray(knots, float), np.asarray(bias, float))
    joint = load(generate(program, "joint"), DATA["eight_schools"] | base)
    rng = np.random.default_rng(SEED)
    for u in (-2.0, 0.5, 3.0):
        z = rng.normal(size=10) * scale
        x = np.array(base["ct_base_mean"]) + np.array(base["ct_base_scale"]) @ z
        log_density = density.log_density(x)
        _, delta, beta = expected_joint(log_density, z, u, base)
        values = joint.param_constrain(
            np.append(z, u), include_tp=True, include_gq=True, rng=joint.new_rng(1)
        )
        names = joint.param_names(include_tp=True, include_gq=True)
        saved = dict(zip(names, values, strict=True))
        assert saved["ct_beta"] == pytest.approx(beta, rel=1e-14)
        assert saved["ct_delta"] == pytest.approx(delta, rel=1e-11)
        assert saved["ct_log_p"] + saved["ct_log_jacobian"] == pytest.approx(log_density, rel=1e-12)
        log_mass = quadrature(delta, np.asarray(knots, float), np.asarray(bias, float))
        assert saved["ct_log_weight_base"] == pytest.approx(-log_mass, rel=1e-9, abs=1e-9)
        weight = -delta - log_mass
        assert saved["ct_log_weight_target"] == pytest.approx(weight, rel=1e-9, abs=1e-9)


def test_log_mass_where_the_exponent_vanishes() -> None:
    """The series near r = 0 joins the closed form."""
    code = (
        "functions {\n" + (_function("log_mass")) + "}\nparameters { real delta; }\n"
        "transformed parameters { real m = ct_log_mass([0, 1]', [0, -delta]'); }\n"
    )
    model = load(code, {})
    for delta in (0.0, 1e-12, -1e-6, 9.99e-5, 1.01e-4, -1e-3, 30.0, -800.0, 800.0):
        exact = 0.0 if delta == 0 else np.log(-np.expm1(-abs(delta))) - np.log(abs(delta))
        if abs(delta) < 1e-3:
            exact = -abs(delta) / 2 + delta**2 / 24
        found = model.param_constrain(np.array([delta]), include_tp=True)[1]
        assert found == pytest.approx(exact + max(0.0, -delta), rel=1e-11, abs=1e-13)


def _function(name: str) -> str:
    folder = PROGRAMS.parent.parent / "templates" / "functions"
    return (folder / f"{name}.stanfunctions").read_text()


@pytest.mark.parametrize(
    "statement", ["x ~ normal(0, 1) T[0, ];", "for (n in 1 : 2) x ~ normal(0, 1) T[0, ];"]
)
def test_joint_where_the_target_vanishes(statement: str) -> None:
    """log p = -inf gives -inf at every u, never NaN."""
    source = f"parameters {{ real x; }} model {{ {statement} }}"
    joint = load(generate(Program.from_source(source), "joint"), base_data(1))
    for u in (-40.0, 0.0, 40.0):
        assert joint.log_density(np.array([-9.0, u])) == -np.inf
        assert np.isfinite(joint.log_density(np.array([3.0, u])))


def test_wrong_dimension_is_said() -> None:
    program = Program.from_file(PROGRAMS / "vectors.stan")
    with pytest.raises(Exception, match=r"ct_D is 3, but the program has 38 unconstrained"):
        load(generate(program, "joint"), DATA["vectors"] | base_data(3))


# Jacobians: against the numerical derivative of the transform itself.

TRANSFORMS: dict[str, tuple[str, str, int]] = {
    "simplex": ("simplex[4] t;", "t[1:3]", 3),
    "ordered": ("ordered[4] t;", "t", 4),
    "positive_ordered": ("positive_ordered[4] t;", "t", 4),
    "cholesky_factor_corr": (
        "cholesky_factor_corr[4] t;",
        "[t[2, 1], t[3, 1], t[3, 2], t[4, 1], t[4, 2], t[4, 3]]'",
        6,
    ),
    "corr_matrix": (
        "corr_matrix[4] t;",
        "[t[2, 1], t[3, 1], t[3, 2], t[4, 1], t[4, 2], t[4, 3]]'",
        6,
    ),
    "cov_matrix": ("cov_matrix[2] t;", "[t[1, 1], t[2, 1], t[2, 2]]'", 3),
    "cholesky_factor_cov": (
        "cholesky_factor_cov[3, 2] t;",
        "[t[1, 1], t[2, 1], t[2, 2], t[3, 1], t[3, 2]]'",
        5,
    ),
    "column_stochastic": (
        "column_stochastic_matrix[3, 2] t;",
        "[t[1, 1], t[2, 1], t[1, 2], t[2, 2]]'",
        4,
    ),
    "row_stochastic": (
        "row_stochastic_matrix[2, 3] t;",
        "[t[1, 1], t[1, 2], t[2, 1], t[2, 2]]'",
        4,
    ),
    "lower_upper": ("vector<lower=-1, upper=4>[3] t;", "t", 3),
    "offset_multiplier": ("vector<offset=1, multiplier=3>[2] t;", "t", 2),
}


def standard_base(dimension: int) -> dict[str, Any]:
    return base_data(dimension) | {
        "ct_base_mean": [0.0] * dimension,
        "ct_is_dense": 0,
        "ct_base_scale": np.ones((dimension, 1)).tolist(),
    }


def saved_values(source: str, dimension: int, z: Array) -> dict[str, float]:
    joint = load(generate(Program.from_source(source), "joint"), standard_base(dimension))
    names = joint.param_names(include_tp=True)
    values = joint.param_constrain(np.append(z, 0.0), include_tp=True)
    return dict(zip(names, values, strict=True))


@pytest.mark.parametrize("name", sorted(TRANSFORMS))
def test_log_jacobian_is_the_determinant(name: str) -> None:
    declaration, coordinates, dimension = TRANSFORMS[name]
    source = (
        f"parameters {{ {declaration} }}\n"
        f"transformed parameters {{ vector[{dimension}] free = {coordinates}; }}"
    )
    joint = load(generate(Program.from_source(source), "joint"), standard_base(dimension))
    names = joint.param_names(include_tp=True)

    def free(z: Array) -> Array:
        saved = joint.param_constrain(np.append(z, 0.0), include_tp=True)
        return np.array([v for n, v in zip(names, saved, strict=True) if n.startswith("free.")])

    z = np.random.default_rng(SEED).normal(size=dimension) * 0.8
    columns: list[Array] = []
    for k in range(dimension):
        h = np.eye(dimension)[k] * 1e-3
        near, far = free(z + h) - free(z - h), free(z + 2 * h) - free(z - 2 * h)
        columns.append((8 * near - far) / 12e-3)
    log_det = np.linalg.slogdet(np.array(columns))[1]
    saved = joint.param_constrain(np.append(z, 0.0), include_tp=True)
    found = saved[names.index("ct_log_jacobian")]
    assert found == pytest.approx(log_det, abs=1e-8)


@pytest.mark.parametrize(
    ("declaration", "reference", "dimension"),
    [
        ("column_stochastic_matrix[3, 2] t;", "stochastic_column_constrain(to_matrix(y, 2, 2))", 4),
        ("row_stochastic_matrix[2, 3] t;", "stochastic_row_constrain(to_matrix(y, 2, 2))", 4),
        ("sum_to_zero_matrix[3, 4] t;", "sum_to_zero_constrain(to_matrix(y, 2, 3))", 6),
        ("sum_to_zero_vector[5] t;", "sum_to_zero_constrain(y)", 4),
        ("simplex[5] t;", "simplex_constrain(y)", 4),
    ],
)
def test_transforms_are_stans_own(declaration: str, reference: str, dimension: int) -> None:
    z = np.random.default_rng(SEED).normal(size=dimension)
    ours = saved_values(f"parameters {{ {declaration} }}", dimension, z)
    shape = declaration.split("[")[1].split("]")[0]
    kind = "matrix" if "matrix" in declaration else "vector"
    code = (
        f"parameters {{ vector[{dimension}] y; }}\n"
        f"transformed parameters {{ {kind}[{shape}] t = {reference}; }}"
    )
    model = load(code, {})
    theirs = model.param_constrain(z, include_tp=True)[dimension:]
    found = [value for key, value in ours.items() if key.startswith("t.")]
    np.testing.assert_allclose(found, theirs, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("x", [-30.0, -19.5, 19.5, 30.0])
def test_correlations_stay_finite_far_out(x: float) -> None:
    """The logarithm of 1 - tanh^2 must not be formed from tanh, which is 1 from 19 on."""
    source = "parameters { cholesky_factor_corr[3] t; }"
    saved = saved_values(source, 3, np.full(3, x))
    # log sech^2 is 2 log 2 - 2 |x| to all digits; the weights of the three are 1, 1.5, 1.
    assert saved["ct_log_jacobian"] == pytest.approx(3.5 * (2 * np.log(2) - 2 * abs(x)), rel=1e-12)


def test_lines_that_continue_a_statement_stay_below_its_first_argument() -> None:
    program = Program.from_source(
        "data { vector[3] y; }\n"
        "parameters { real mu; real s; }\n"
        "model {\n"
        "  y ~ normal(mu,\n"
        "             // wide\n"
        "             exp(s));\n"
        "  mu ~ normal(0,\n"
        "    5);\n"
        "  s ~ normal(0,\n"
        "             1) T[-2,\n"
        "                  2];\n"
        "}\n"
    )
    lines = generate(program, "density").splitlines()
    first = next(k for k, line in enumerate(lines) if "normal_lpdf(y | mu," in line)
    column = lines[first].index("mu,")
    assert [line.index(line.strip()) for line in lines[first + 1 : first + 3]] == [column, column]
    hanging = next(k for k, line in enumerate(lines) if "normal_lpdf(mu | 0," in line)
    assert lines[hanging + 1] == "    5);"  # not below an argument, so it stays
    cut = next(k for k, line in enumerate(lines) if "normal_lpdf(s | 0," in line)
    assert lines[cut + 1].index("1") == lines[cut].index("0,")

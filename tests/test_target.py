"""Unconstrained points of draws, the data of generated programs, and the blame in errors."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from conftest import target_of
from scipy.stats import kstest, norm

from stanct import sample
from stanct.common.errors import EngineError, ProgramError
from stanct.engines.embedded import CompilerMessageError, DrawBlock, compile_program
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.stan.program import Program
from stanct.targets.program_target import ProgramTarget, check_program, make_density
from stanct.targets.recipes import joint_recipe

SHAPES = """
parameters {
  matrix[2, 3] m;
  array[2] simplex[3] p;
  array[2, 2] real<lower=0> s;
  cholesky_factor_corr[3] L;
}
transformed parameters { matrix[2, 2] t = m * m'; }
model { to_vector(m) ~ std_normal(); to_array_1d(s) ~ exponential(1); L ~ lkj_corr_cholesky(2); }
"""


def test_unconstrain_inverts_every_shape(rng: np.random.Generator) -> None:
    target = target_of(SHAPES)
    points = rng.standard_normal((1, 7, target.density.dimension))
    block = DrawBlock(target.density.variables(points, seed=1), {})
    assert block.variables["m"].shape == (1, 7, 2, 3)
    assert block.variables["p"].shape == (1, 7, 2, 3)
    assert block.variables["t"].shape == (1, 7, 2, 2)
    m = block.variables["m"][0, 0]
    assert block.variables["t"][0, 0] == pytest.approx(m @ m.T)
    assert target.unconstrain(block, 0, rng) == pytest.approx(points[0])
    none = DrawBlock({name: values[:, :0] for name, values in block.variables.items()}, {})
    assert target.unconstrain(none, 0, rng).shape == (0, target.density.dimension)


def test_a_unit_vector_gets_its_length_back(rng: np.random.Generator) -> None:
    """Only the direction is known; the length of a standard normal vector is drawn anew."""
    target = target_of("parameters { real a; unit_vector[3] v; } model { a ~ std_normal(); }")
    points = rng.standard_normal((1, 3000, 4))
    block = DrawBlock(target.density.variables(points, seed=1), {})
    found = target.unconstrain(block, 0, rng)
    assert found[:, 0] == pytest.approx(points[0, :, 0])
    length = np.linalg.norm(points[0, :, 1:], axis=1, keepdims=True)
    direction = found[:, 1:] / np.linalg.norm(found[:, 1:], axis=1, keepdims=True)
    assert direction == pytest.approx(points[0, :, 1:] / length)
    assert kstest(found[:, 2], norm.cdf).pvalue > 1e-3


@pytest.mark.parametrize("is_dense", [False, True])
def test_programs_read_a_diagonal_base_as_its_diagonal(
    rng: np.random.Generator, is_dense: bool
) -> None:
    """And either way the density is β log p(z) + (1 − β) log N(z; 0, I) + log β(1 − β)."""
    target = target_of("parameters { vector[3] a; } model { a ~ normal(1, 2); }")
    scale = np.diag([0.5, 1.0, 2.0]) + is_dense * np.tril(np.full((3, 3), 0.3), -1)
    base = GaussianBase(np.array([0.1, 0.2, 0.3]), scale)
    recipe = joint_recipe(target, base, Bias.linear(0.0))
    shape = np.shape(json.loads(recipe.data)["ct_base_scale"])
    assert shape == ((3, 3) if is_dense else (3, 1))
    z, beta = rng.standard_normal(3), 1 / (1 + np.exp(-0.4))
    log_p = norm.logpdf(base.unwhiten(z), 1, 2).sum() + base.log_det_scale
    wanted = beta * log_p + (1 - beta) * norm.logpdf(z).sum() + np.log(beta * (1 - beta))
    found = make_density(recipe, target.program, target.data).log_density(np.append(z, 0.4))
    assert found == pytest.approx(wanted, rel=1e-12)


def test_values_on_a_bound_are_left_out(rng: np.random.Generator) -> None:
    target = target_of("parameters { real<lower=0> s; } model { s ~ exponential(1); }")
    block = DrawBlock({"s": np.array([[1.0, 0.0, -1.0, 2.0]])}, {})
    kept = target.unconstrain(block, 0, rng)[:, 0]
    assert kept[np.isfinite(kept)] == pytest.approx(np.log([1.0, 2.0]))


@pytest.mark.parametrize(
    ("source", "place", "caret"),
    [
        ("parameters { real x; }\nmodel { x ~ normol(0, 1); }", "a.stan:2:13: .*normol_lpdf", 12),
        (
            "parameters { real x; }\nmodel { /* é ü */ target += y; }",
            "a.stan:2:29: .*y.* not in",
            28,
        ),
        ("parameters { real x; }\r\nmodel {\r\n\ttarget += z; }", "a.stan:3:12: .*z", 11),
        ("parameters { real x; }\nmodel { x = 3; }", "a.stan:2:9: Stan does not accept", 8),
        (
            "#include part.stan\nparameters { real x; }",
            r"part.stan:3:12: .*Identifier .y. not in scope",
            11,
        ),
    ],
)
def test_stanc_s_message_comes_back_in_the_user_s_file(
    tmp_path: Path, source: str, place: str, caret: int
) -> None:
    """The excerpt is the user's own line, the caret is under the word that stanc means."""
    part = "functions {\n  real f(real x) {\n    return y;\n  }\n}\n"
    (tmp_path / "part.stan").write_text(part)
    (tmp_path / "a.stan").write_bytes(source.encode())
    with pytest.raises(ProgramError, match=place) as caught:
        check_program(Program.from_file(tmp_path / "a.stan"))
    message = str(caught.value).split("\n")
    assert message[1].strip() in source.replace("\r", "") + part
    assert message[2] == "    " + message[1][4 : 4 + caret].translate(_BLANKS) + "^"


_BLANKS = {k: " " for k in range(32, 0x250)}  # tabs stay


def test_a_fault_of_ours_says_so() -> None:
    target: ProgramTarget = target_of("parameters { real x; } model { x ~ std_normal(); }")
    broken = type(target.density_recipe)("parameters { real x; } model { y ~ std_normal(); }", "{}")
    with pytest.raises(CompilerMessageError, match="y"):
        compile_program(broken.source)
    with pytest.raises(EngineError, match=r"(?s)fault of stanct"):
        make_density(broken, target.program, target.data)


PAIR = "functions {\n  tuple(real, real) f(real x) { return (x, x); }\n}\nparameters { real x; }\n"
NORMAL = (
    "parameters { simplex[2] x; }\nmodel { x ~ dirichlet([1, 1]'); }\ngenerated quantities {\n  "
)
LACKING = [
    (
        "qr_Q",
        "transformed data { matrix[2, 2] Q = qr_Q([[1, 2], [3, 5]]); }\n"
        "parameters { real x; } model { x ~ normal(Q[1, 1], 1); }",
    ),
    ("tuple", "parameters {\n  tuple(real, real) t;\n} model { t.1 ~ normal(0, 1); }"),
    ("tuple", "parameters {\n  array[2] tuple(real, real) t;\n} model { t[1].1 ~ normal(0, 1); }"),
    ("tuple", PAIR + "model {\n  real a; real b;\n  (a, b) = f(x);\n  a ~ normal(b, 1);\n}"),
    ("tuple", PAIR + "transformed parameters { real a; real b; (a, b) = f(x); } model { }"),
    ("complex", "parameters {\n  complex z;\n} model { get_real(z) ~ normal(0, 1); }"),
    ("complex_vector", "parameters {\n  complex_vector[2] z;\n} model { }"),
    ("column_stochastic_matrix", "parameters {\n  column_stochastic_matrix[2, 2] S;\n} model { }"),
    ("row_stochastic_matrix", "parameters {\n  row_stochastic_matrix[2, 2] S;\n} model { }"),
    (
        "inv_inc_beta",
        "parameters {\n  real<lower=0, upper=1> p;\n} model {\n  target += "
        "inv_inc_beta(2.0, 3.0, p);\n}",
    ),
    (
        "jacobian",
        "functions {\n  real up_jacobian(real x) { jacobian += x; return exp(x); }\n}\n"
        "parameters { real x; } transformed parameters { real y = up_jacobian(x); }\n"
        "model { y ~ lognormal(0, 1); }",
    ),
    (
        "gaussian_dlm_obs_lpdf",
        "parameters { real x; } model {\n  target += gaussian_dlm_obs_lpdf([[x]] | [[1]], [[1]], "
        "[[1]], [[1]], [1]', [[1]]);\n}",
    ),
    (
        "gaussian_dlm_obs",
        "parameters { matrix[1, 1] x; } model {\n  x ~ gaussian_dlm_obs([[1]], [[1]], [[1]], "
        "[[1]], [1]', [[1]]);\n}",
    ),
    # The engine would run these without the variables that it cannot compute.
    ("tuple", NORMAL + "tuple(real, vector[2]) g = (1, x);\n}"),
    ("complex", NORMAL + "real w = x[1]; complex z = to_complex(w, 2);\n}"),
    ("complex_matrix", NORMAL + "complex_matrix[1, 1] z = [[1i]];\n}"),
    ("row_stochastic_matrix", NORMAL + "row_stochastic_matrix[2, 2] r = append_row(x', x');\n}"),
    # The engine names a function that it has for real numbers, or the density around them.
    ("normal", "parameters { real x; }\nmodel { x ~ normal(abs(1 + 2i), 1); }"),
    (
        "3i",
        "transformed data {\n  real m = abs(3i);\n}\n"
        "parameters { real x; } model { x ~ normal(m, 1); }",
    ),
    ("normal", "parameters { real x; } model {\n  x ~ normal(x > 0 ? abs(1i) : 1, 1);\n}"),
    (
        "abs",
        "parameters { vector[4] x; } model { x ~ normal(0, 1);\n  target += sum(abs(fft(x)));\n}",
    ),
    ("normal", "parameters { real x; }\nmodel { x ~ normal((1, 2).1, 1); }"),
    ("abs", NORMAL + "real w = abs(1 + 2i);\n}"),
    ("get_real", NORMAL + "real w = get_real(eigenvalues(diag_matrix(x))[1]);\n}"),
]


def test_sizes_may_be_what_is_wrong() -> None:
    source = "data { int N; array[N] int y; } parameters { real a; vector[2] b; } model { y ~ "
    source += "bernoulli_logit_glm(rep_matrix(1, 2, 2), a, b); }"
    words = r"`bernoulli_logit_glm` .*does not match.*(?s:.)*sizes are right\. If they are, CmdStan"
    with pytest.raises(EngineError, match=words):
        _ = target_of(source, {"N": 3, "y": [0, 1, 0]}).density


def test_variables_without_elements_are_not_taken_for_lost_ones() -> None:
    target = target_of(NORMAL + "vector[0] t;\n}")
    assert target.density.variable_names == ("x",)


def test_a_function_without_end_is_no_matter_for_cmdstan() -> None:
    """There it takes the whole process with it."""
    source = """
    functions {
      real f(real x);
      real f(real x) { return f(x + 1); }
    }
    parameters { real x; }
    model { x ~ normal(f(x), 1); }
    """
    target = target_of(source)
    with pytest.raises(ProgramError, match=r"model\.stan:3:\d+: `f` calls itself without end"):
        _ = target.density
    with pytest.raises(ProgramError, match="calls itself without end"):
        sample(target, progress=False)


@pytest.mark.parametrize(("construct", "source"), LACKING)
def test_what_the_engine_lacks_is_an_error_before_any_work(construct: str, source: str) -> None:
    """It names the construct and its place, and blames neither the data nor the starts."""
    target = target_of(source)
    line = next(k for k, row in enumerate(source.split("\n"), 1) if construct in row)
    words = rf"model\.stan:{line}:\d+: The embedded engine cannot run `{construct}`(?s:.)*CmdStan"
    with pytest.raises(EngineError, match=words):
        _ = target.density
    with pytest.raises(EngineError, match=words):
        sample(target, "joint", engine="embedded", progress=False)

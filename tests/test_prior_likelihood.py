"""The prior-to-likelihood program: the terms of the likelihood, and the density of the path."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from generated import BIAS, DATA, KNOTS, PROGRAMS, SEED, Array, load, numerical_gradient
from scipy import integrate, special, stats

from stanct.common.errors import ProgramError, UnsupportedError
from stanct.stan.codegen import generate
from stanct.stan.dependence import Dependence
from stanct.stan.program import Program
from stanct.stan.syntax import Increment, Tilde, walk

TABLE = {"ct_K": 4, "ct_bias_beta": KNOTS.tolist(), "ct_bias": BIAS.tolist()}
LINEAR = {"ct_K": 2, "ct_bias_beta": [0.0, 1.0], "ct_bias": [0.0, -2.5]}
Y = np.array([0.3, -1.2, 0.8])


def path(source: Program | str, data: dict[str, Any], bias: dict[str, Any]) -> Any:
    program = Program.from_source(source) if isinstance(source, str) else source
    return load(generate(program, "prior_likelihood"), data | bias)


def saved(model: Any, at: Array) -> dict[str, float]:
    names = model.param_names(include_tp=True, include_gq=True)
    rng = model.new_rng(seed=1)
    values = model.param_constrain(at, include_tp=True, include_gq=True, rng=rng)
    return dict(zip(names, values, strict=True))


def _half_normal(x: float, scale: float) -> Any:
    return stats.halfnorm.logpdf(np.exp(x), scale=scale) + x


# Programs with their log prior (with the log Jacobian) and log likelihood in x.
PATHS: dict[
    str,
    tuple[str, dict[str, Any], Callable[[Array], Any], Callable[[Array], Any]],
] = {
    "tilde": (
        "data { int N; vector[N] y; real<lower=0> s0; } parameters { real m; real<lower=0> s; }\n"
        "model { m ~ normal(0, s0); s ~ normal(0, 2) T[0, ]; y ~ normal(m, s); }",
        {"N": 3, "y": Y, "s0": 1.5},
        lambda x: stats.norm.logpdf(x[0], 0, 1.5) + _half_normal(x[1], 2),
        lambda x: stats.norm.logpdf(Y, x[0], np.exp(x[1])).sum(),
    ),
    "mixed_increment": (
        "data { int N; vector[N] y; real s0; } parameters { real m; real<lower=0> s; }\n"
        "model { if (N > 1) target += normal_lpdf(m | 0, s0) - s\n"
        "  + 2 * normal_lpdf(y | m, s) - -exponential_lpdf(s | 1); }",
        {"N": 3, "y": Y, "s0": 1.5},
        lambda x: (
            stats.norm.logpdf(x[0], 0, 1.5) + stats.expon.logpdf(np.exp(x[1])) - np.exp(x[1]) + x[1]
        ),
        lambda x: 2 * stats.norm.logpdf(Y, x[0], np.exp(x[1])).sum(),
    ),
    "mixed_containers": (
        "data { int N; vector[N] y; } parameters { vector[N] m; }\n"
        "model { target += -square(m) - square(y - m); m ~ normal(0, 1); }",
        {"N": 3, "y": Y},
        lambda x: np.sum(stats.norm.logpdf(x) - x**2),
        lambda x: -np.sum((Y - x) ** 2),
    ),
    "lp_function": (
        "functions { void prior_lp(real m) { m ~ normal(0, 3); } }\n"
        "data { int N; vector[N] y; } parameters { real m; }\n"
        "model { prior_lp(m); y ~ normal(m, 1); if (target() < -1e9) target += -1; }",
        {"N": 3, "y": Y},
        lambda x: stats.norm.logpdf(x[0], 0, 3),
        lambda x: stats.norm.logpdf(Y, x[0], 1).sum(),
    ),
    "transformed_data": (
        "data { int N; vector[N] y; } transformed data { vector[N] z = (y - mean(y)) / sd(y); }\n"
        "parameters { real m; } model { m ~ normal(0, 3); z ~ normal(m, 1); }",
        {"N": 3, "y": Y},
        lambda x: stats.norm.logpdf(x[0], 0, 3),
        lambda x: stats.norm.logpdf((Y - Y.mean()) / Y.std(ddof=1), x[0], 1).sum(),
    ),
}


@pytest.mark.parametrize("bias", [LINEAR, TABLE], ids=["linear", "table"])
@pytest.mark.parametrize("name", sorted(PATHS))
def test_density_against_scipy(name: str, bias: dict[str, Any]) -> None:
    """At u = -40 that is the prior, at u = 40 the posterior, up to the logistic Jacobian."""
    source, data, log_prior, log_likelihood = PATHS[name]
    data = {k: v.tolist() if isinstance(v, np.ndarray) else v for k, v in data.items()}
    model = path(source, data, bias)
    dimension = model.param_unc_num() - 1
    rng = np.random.default_rng(SEED)
    for u in (-40.0, -1.5, 0.2, 2.5, 40.0):
        x = rng.normal(size=dimension)
        beta = special.expit(u)
        prior, likelihood = float(log_prior(x)), float(log_likelihood(x))
        value = prior + beta * likelihood - np.interp(beta, bias["ct_bias_beta"], bias["ct_bias"])
        value += special.log_expit(u) + special.log_expit(-u)
        at = np.append(x, u)
        found, gradient = model.log_density_gradient(at)
        assert found == pytest.approx(value, rel=1e-10, abs=1e-10)
        if abs(u) < 3:
            np.testing.assert_allclose(
                gradient, numerical_gradient(model, at), rtol=2e-6, atol=2e-6
            )
        if "target()" not in source:  # which the embedded engine cannot evaluate when it saves
            values = saved(model, at)
            assert values["ct_beta"] == pytest.approx(beta)
            assert values["ct_log_likelihood"] == pytest.approx(likelihood, rel=1e-10)
            mass = _log_mass(-likelihood, bias)
            assert values["ct_log_weight_base"] == pytest.approx(-mass, rel=1e-8)
            posterior = likelihood - mass
            assert values["ct_log_weight_target"] == pytest.approx(posterior, rel=1e-8, abs=1e-8)


def _log_mass(delta: float, bias: dict[str, Any]) -> float:
    """log of the integral of exp(-beta delta - b(beta)), one knot to the next."""
    knots, values = np.array(bias["ct_bias_beta"]), np.array(bias["ct_bias"])
    exponents = -delta * knots - values
    top = exponents.max()
    total = 0.0
    for k in range(len(knots) - 1):
        pair = exponents[k : k + 2] - top
        total += integrate.quad(
            lambda t, pair=pair, h=knots[k + 1] - knots[k]: (
                h * np.exp(pair[0] + t * (pair[1] - pair[0]))
            ),
            0,
            1,
            epsrel=1e-12,
        )[0]
    return top + np.log(total)


@pytest.mark.parametrize(
    "name", ["eight_schools", "functions", "increments", "layout", "split", "truncation"]
)
def test_at_the_end_the_density_program(name: str) -> None:
    """Prior and likelihood add up to the program that keeps all constants."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    density = load(generate(program, "density"), DATA[name])
    model = path(program, DATA[name], TABLE)
    x = np.random.default_rng(SEED).normal(size=density.param_unc_num())
    u = 45.0
    value = density.log_density(x) - BIAS[-1] - u
    assert model.log_density(np.append(x, u)) == pytest.approx(value, rel=1e-10)


def test_the_split_of_the_golden_program() -> None:
    program = Program.from_file(PROGRAMS / "split.stan")
    values = saved(path(program, DATA["split"], LINEAR), np.zeros(8))
    y = np.array(DATA["split"]["y"])
    expected = -0.1 * np.sum((y - y.mean()) ** 2) + stats.norm.logpdf(y).sum()
    expected += 3 * np.log(0.5) + 3 * np.log(1 / 3) + stats.norm.logpdf(0, 0, 9)
    assert values["ct_log_likelihood"] == pytest.approx(expected, rel=1e-12)


DATA_BLOCK = (
    "data { int N; int flag; vector[N] y; array[N] int k; array[N] int edge; real s0; }\n"
    "transformed data { vector[N] z = y / 2; }\n"
    "parameters { real a; vector[N] b; real<lower=0> s; }\n"
    "transformed parameters { vector[N] eta = a + s * b; vector[N] zero = rep_vector(0, N);\n"
    "vector[N] res = y - eta; real lprior = normal_lpdf(a | 0, s0);\n"
    "lprior += exponential_lpdf(s | 1); vector[N] pick = b[edge]; }\n"
)
# statements of the model, and the part of each increment in the order of the text
CLASSES = {
    "plain": ("a ~ normal(0, 1); y ~ normal(a, s);", "PL"),
    "data among the prior's constants": ("a ~ normal(mean(y), s0); y ~ normal(a, s);", "PL"),
    "size is no dependence": ("b ~ normal(zero, 1); y ~ normal(b, N);", "PL"),
    "index is no dependence": ("b[edge] ~ normal(0, 1); pick ~ normal(0, 1);", "PP"),
    "first argument only": ("head(b, N) ~ normal(0, 1); segment(y, 1, N) ~ normal(a, 1);", "PL"),
    "transformed data": ("z ~ normal(a, 1);", "L"),
    "residuals": ("res ~ normal(0, s);", "L"),
    "non-centred": ("eta ~ normal(0, 1);", "P"),
    "switch": ("if (flag == 1) a ~ normal(0, 1); else a ~ cauchy(0, 1);", "PP"),
    "switched assignment": ("real m = a; if (flag) m = -a; m ~ normal(0, 1);", "P"),
    "size of data": ("real m = a * size(y); m ~ normal(0, 1);", "P"),
    "switched increment": ("if (N > 2) target += -square(a);", "P"),
    "data-dependent condition": ("if (y[1] > 0) target += log(s); else target += -log(s);", "LL"),
    "data-dependent assignment": (
        "real l = 0; if (k[1] == 0) l = normal_lpdf(a | 0, 1); target += l;",
        "L",
    ),
    "accumulated prior": ("target += lprior; y ~ normal(a, s);", "PL"),
    "accumulated likelihood": (
        "vector[N] l; for (n in 1:N) l[n] = normal_lpdf(y[n] | a, s); target += sum(l);",
        "L",
    ),
    "data by index": ("real l = log(b[k[1]]); target += l; target += log(b[k[2]]);", "LL"),
    "scaled density": ("target += 2 * normal_lpdf(a | s0, 1); target += s0 * a;", "PL"),
    "censoring": ("target += normal_lccdf(s0 | a, s); target += -normal_lccdf(0 | a, 2);", "LP"),
    "mixture": ("target += log_mix(0.3, normal_lpdf(y[1] | a, 1), normal_lpdf(y[1] | s, 1));", "L"),
    "mixture prior": (
        "target += log_mix(0.3, normal_lpdf(a | s0, 1), normal_lpdf(a | 0, 1));",
        "P",
    ),
    "literal variate": ("1 ~ bernoulli_logit(a); {1, 0} ~ bernoulli_logit(a);", "PP"),
    "sum": ("target += normal_lpdf(a | 0, 1) + normal_lpdf(y | a, s) - a;", "PLP"),
    "sum in brackets": ("target += (normal_lpdf(a | 0, 1) + normal_lpdf(y | a, s));", "L"),
    "conditional expression": ("target += flag ? -a : -a - y[1];", "L"),
    "loop over data": ("for (v in y) v ~ normal(a, s); for (n in 1:N) b[n] ~ normal(n, 1);", "LP"),
    "one name, two scopes": (
        "{ vector[N] t = b; t ~ normal(0, 1); } { vector[N] t = y; t ~ normal(a, 1); }",
        "PL",
    ),
    "annotated": (
        "y ~ normal(a, 1); // stanct: prior\na ~ normal(0, 1); //stanct:likelihood",
        "PL",
    ),
    "annotated over lines": ("a ~ normal(0,\n // mean\n 1); // stanct: likelihood\n", "L"),
    "annotated loop": ("for (n in 1:N) { // stanct: likelihood\n b[n] ~ normal(0, 1);\n }", "L"),
    "inner annotation": (
        "for (n in 1:N) { // stanct: likelihood\n b[n] ~ normal(0, 1); // stanct: prior\n }",
        "P",
    ),
    "jacobian of a transform": ("target += log(s); log(s) ~ normal(0, 1);", "PP"),
    "reduce_sum": ("target += reduce_sum(f_lpdf, k, 1, a);", "L"),
}


@pytest.mark.parametrize("name", sorted(CLASSES))
def test_classes(name: str) -> None:
    statements, parts = CLASSES[name]
    program = Program.from_source(f"{DATA_BLOCK}model {{ {statements}\n}}")
    dependence = Dependence(program)
    found = [
        term.part
        for statement in walk(program.blocks["model"].statements)
        if isinstance(statement, (Tilde, Increment))
        for term in dependence.terms(statement)
    ]
    assert "".join(part[0].upper() for part in found) == parts


PRIOR = "data { vector[2] y; }\nparameters { real m; }\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "parameters { real m; }\nmodel { m ~ normal(0, 1); }",
            r"bad\.stan:2:1: No statement.*likelihood(?s:.)*// stanct: likelihood(?s:.)*joint",
        ),
        (
            "data { real y; }\nparameters {\n  real m;\n  real<lower=0> s;\n}\n"
            "model { m ~ normal(0, s); y ~ normal(m, 1); }",
            r"bad\.stan:4:17: `s` has no prior(?s:.)*s ~ normal\(0, 1\);(?s:.)*kind=\"joint\"",
        ),
        (
            "functions { void f_lp(vector y, real m) { y ~ normal(m, 1); } }\n"
            f"{PRIOR}model {{ m ~ normal(0, 1);\n f_lp(y, m); }}",
            r"bad\.stan:5:2: `f_lp` is given data(?s:.)*// stanct: prior",
        ),
        (
            f"{PRIOR}model {{\n  m ~ normal(0, 1); // stanct: liklihood\n}}",
            r"bad\.stan:4:21: `liklihood` is no part(?s:.)*// stanct: likelihood",
        ),
        (
            f"{PRIOR}model {{\n  // stanct: prior\n  m ~ normal(0, 1);\n}}",
            r"bad\.stan:4:3: This annotation belongs to no statement(?s:.)*end of the",
        ),
        (
            "functions { vector g(vector x) { return x; } real g(real x) { return x; } }\n"
            f"{PRIOR}model {{ m ~ normal(0, 1);\n target += g(m) + g(y); }}",
            r"bad\.stan:5:2: .*prior and likelihood terms(?s:.)*one `target \+=`",
        ),
        (
            f"{PRIOR}model {{ real lp = normal_lpdf(m | 0, 1);\n lp += normal_lpdf(y | m, 1);\n"
            " target += lp; }",
            r"bad\.stan:5:12: This term holds densities of data and (?s:.)*statement of its own",
        ),
        (
            f"{PRIOR}model {{\n target += "
            "log_sum_exp(normal_lpdf(m | 0, 1), normal_lpdf(y | m, 1)); }",
            r"bad\.stan:4:12: This term holds densities of data and ",
        ),
        (
            f"{PRIOR}model {{ m ~ normal(0, 1);\n target += m + y; }}",
            r"bad\.stan:4:2: .*scalars or containers",
        ),
    ],
)
def test_refusals(source: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        generate(Program.from_source(source, name="bad"), "prior_likelihood")


def test_flat_priors_on_bounded_supports_are_proper() -> None:
    source = (
        "data { real y; }\nparameters { real<lower=0, upper=1> p; simplex[3] w;\n"
        "  corr_matrix[2] R; array[2] vector<lower=-1, upper=2>[2] v; }\n"
        "model { y ~ normal(p, 1); }"
    )
    assert "ct_log_likelihood += normal_lpdf(y | p, 1);" in generate(
        Program.from_source(source), "prior_likelihood"
    )


def test_an_annotated_call_is_prior() -> None:
    source = (
        "functions { void f_lp(real m, vector y) { m ~ normal(mean(y), 1); } }\n"
        f"{PRIOR}model {{ f_lp(m, y); // stanct: prior\n y ~ normal(m, 1); }}"
    )
    assert "f_lp(m, y);" in generate(Program.from_source(source), "prior_likelihood")


DECOV = """
functions {{
  real decov_{suffix}(vector z_b, vector z_T, data vector shape) {{
    real lp = normal_lpdf(z_b | 0, 1) + sum(shape);
    lp += normal_lpdf(z_T[1 : 3] | 0, shape[1]);
    return lp;
  }}
}}
data {{ int N; vector[N] y; vector[3] shape; }}
parameters {{ real<lower=0> sigma; vector[3] z_b; vector[3] z_T; }}
model {{
  y ~ normal(z_b[1] + z_T[1], sigma);
  target += {call};
  sigma ~ exponential(1);
}}
"""


@pytest.mark.parametrize("kind", ["prior_likelihood", "weighted"])
@pytest.mark.parametrize(
    ("suffix", "call"),
    [("lpdf", "decov_lpdf(z_b | z_T, shape)"), ("prior", "decov_prior(z_b, z_T, shape)")],
)
def test_a_users_function_gives_priors_to_all_its_variates(
    suffix: str, call: str, kind: str
) -> None:
    """As decov_lpdf of rstanarm does, which has data for its hyperparameters."""
    code = generate(Program.from_source(DECOV.format(suffix=suffix, call=call)), kind)
    assert f"  target += {call};" in code


def test_a_sum_of_likelihoods_alone_is_taken() -> None:
    """Also where the prior is summed in a variable of its own, and where the user marks the sum."""
    parts = "real l = normal_lpdf(y | m, 1); real p = normal_lpdf(m | 0, 1);"
    mixed = "real l = normal_lpdf(y | m, 1) + normal_lpdf(m | 0, 1); { // stanct: likelihood\n"
    for body in (
        f"{parts} target += l;\n target += p;",
        f"{mixed} target += l; }} m ~ normal(0, 2);",
    ):
        code = generate(Program.from_source(f"{PRIOR}model {{ {body} }}"), "prior_likelihood")
        assert "ct_log_likelihood += l;" in code


def test_weighted_refuses_a_penalty_whose_factor_is_data() -> None:
    source = """
    data { vector[3] y; real lam; } parameters { real m; }
    model { m ~ normal(0, 10); y ~ normal(m, 1); target += -lam * square(m); }
    """
    with pytest.raises(UnsupportedError, match="and no density tells which part it is"):
        generate(Program.from_source(source), "weighted")
    residuals = source.replace("-lam * square(m)", "-lam * dot_self(y - m)")
    assert "dot_self" in generate(Program.from_source(residuals), "weighted")


def test_weighted_refuses_what_it_cannot_attribute() -> None:
    source = """
    functions { real loss(vector y, real mu) { return -sum(abs(y - mu)); } }
    data { int N; vector[N] y; } parameters { real mu; }
    model { mu ~ normal(0, 1); target += loss(y, mu);%s
    }
    """
    with pytest.raises(UnsupportedError, match=r"and no density tells which part it is(?s:.)*Mark"):
        generate(Program.from_source(source % ""), "weighted")
    for part, accumulator in (("prior", "target"), ("likelihood", "ct_log_likelihood")):
        marked = source.replace("mu ~ normal(0, 1);", "mu ~ normal(0, 1); y ~ normal(mu, 1);\n")
        code = generate(Program.from_source(marked % f" // stanct: {part}"), "weighted")
        assert f"{accumulator} += loss(y, mu);" in code


ALONE = """
data { int N; vector[N] y; }
parameters { real m; real<lower=0> s; vector[N] e; }
model {
  real scale = 2; // of what is observed
  // location
  m ~ normal(0, 1); s ~ exponential(1); // and scale
  // whose mean is 1

  // each by its own
  for (n in 1 : N) { e[n] ~ std_normal(); }
  // what is observed
  y ~ normal(m + s * e, scale); // with errors
}
"""


def test_priors_are_statements_of_the_model_and_keep_their_comments() -> None:
    code = generate(Program.from_source(ALONE), "prior_likelihood")
    own = code[code.index("  {\n") : code.index("generated quantities")].split("model {")
    assert own[0].strip() == (
        "{\n    real scale = 2; // of what is observed\n    // what is observed\n"
        "    ct_log_likelihood += normal_lpdf(y | m + s * e, scale); // with errors\n  }\n}"
    )
    assert own[1].startswith(
        "\n  // log p(theta), all constants kept: the prior\n  // location\n"
        "  target += normal_lpdf(m | 0, 1); target += exponential_lpdf(s | 1); // and scale\n"
        "  // whose mean is 1\n\n"
        "  // each by its own\n  for (n in 1 : N) { target += std_normal_lpdf(e[n]); }\n"
        "  // beta log p(y | theta)"
    )


@pytest.mark.parametrize(
    "together",
    [
        ("m ~ normal(0, 1);", "m ~ normal(0, scale);"),
        ("y ~ normal(m", "m ~ normal(0, 3); if (target() < 9) y ~ normal(m"),
        ("{ e[n] ~ std_normal(); }", "{ e[n] ~ std_normal(); y[n] ~ normal(m, 1); }"),
    ],
)
def test_priors_that_do_not_stand_alone_are_collected(together: tuple[str, str]) -> None:
    code = generate(Program.from_source(ALONE.replace(*together)), "prior_likelihood")
    assert "ct_log_prior += exponential_lpdf(s | 1);" in code
    assert "  target += ct_log_prior;" in code and "target += exponential" not in code

"""Constants of count data that generated programs compute once."""

from __future__ import annotations

import re

import numpy as np
import pytest
from generated import DATA, PROGRAMS, SEED, base_data, load
from scipy import special, stats

from stanct.stan.codegen import generate
from stanct.stan.program import Program

OURS = re.compile(r"ct_(?:poisson|poisson_log|binomial|binomial_logit)_lpmf\((?=\w+ \|)")


def calls(source: str, kind: str = "joint") -> int:
    return len(OURS.findall(generate(Program.from_source(source), kind)))


def program(statement: str, *, declared: str = "", function: str = "") -> str:
    return f"""
    functions {{ {function} }}
    data {{ int N; array[N] int y; array[N] int trials; matrix[N, 2] X; }}
    parameters {{ vector[N] v; vector[2] b; row_vector[N] r; array[N] real a; real s; }}
    model {{ {declared} {statement} }}
    """


@pytest.mark.parametrize(
    "statement",
    [
        "y ~ poisson_log(v);",
        "y ~ poisson(exp(v) + s);",
        "y ~ poisson_log(X * b + s);",
        "y ~ poisson_log(2 * v[trials] - s);",
        "y ~ binomial(trials, inv_logit(v));",
        "y ~ binomial_logit(trials, v);",
        "for (n in 1 : N) y[n] ~ poisson_log(v[n]);",
        "for (n in 1 : N) y[n] ~ poisson_log(s * v[n]);",
        "for (n in 1 : N) target += poisson_lpmf(y[n] | exp(v[n]));",
        "y ~ poisson_log(b[trials[1 : N]]);",
    ],
)
def test_sums_are_taken_out(statement: str) -> None:
    assert calls(program(statement)) == calls(program(statement), "pseudo_extended") == 1
    assert calls(program(statement), "density") == 0


@pytest.mark.parametrize(
    "statement",
    [
        "y ~ poisson_log(s);",
        "y ~ poisson_log(r);",
        "y ~ poisson_log(b' * X');",
        "y ~ poisson(a);",
        "y[1 : 2] ~ poisson_log(b);",
        "y ~ poisson(exp(v)) T[ , 9];",
        "y ~ binomial(9, inv_logit(v));",
        "y ~ poisson(sqrt(trials));",
        "y ~ poisson_log([s, s]');",
        "y ~ poisson_log(X[1] + s);",
        "y ~ neg_binomial_2_log(v, 1);",
        "for (n in 1 : N) y[n] ~ poisson(a[n]);",
        "for (n in 2 : N) y[n] ~ poisson_log(v[n]);",
    ],
)
def test_others_remain(statement: str) -> None:
    assert calls(program(statement)) == 0


def test_names_that_mean_something_else() -> None:
    """An argument, a local variable, and a mass function of the user's own."""
    function = "void add_lp(array[] int y, vector v) { y ~ poisson_log(v); }"
    assert calls(program("add_lp(y, v);", function=function)) == 0
    assert calls(program("k ~ poisson_log(v);", declared="array[N] int k = y;")) == 0
    function = "row_vector square(row_vector x) { return 2 * x; }"
    assert calls(program("y ~ poisson(square(r));", function=function)) == 0
    function = "real poisson_lpmf(array[] int k, vector v, real s) { return sum(v) + s; }"
    assert calls(program("y ~ poisson(v, s);", function=function)) == 0


def test_sums_have_names_of_their_own() -> None:
    code = generate(
        Program.from_source(
            "data { array[2] int N, N_a, a_b, b; } parameters { vector[2] v; }"
            "model { a_b ~ binomial_logit(N, v); b ~ binomial_logit(N_a, v); b ~ poisson_log(v); }"
        ),
        "joint",
    )
    assert "ct_log_choices_N_a_b = sum(lchoose(N, a_b));" in code
    assert "ct_log_choices_N_a_b_ = sum(lchoose(N_a, b));" in code
    assert "(b | N_a, v, ct_log_choices_N_a_b_)" in code


def test_impossible_counts_and_rates() -> None:
    """Nobody is seen where nobody looks, and rates are not negative."""
    code = generate(Program.from_file(PROGRAMS / "counts.stan"), "joint")
    data, base = DATA["counts"], base_data(5)
    at = np.random.default_rng(SEED).normal(size=6)
    assert np.isfinite(load(code, data | base).log_density(at))
    nobody = {"effort": [2.0, 0.0, 1.5], "y": [3, 1, 1]}
    assert load(code, data | base | nobody).log_density(at) == -np.inf
    code = generate(Program.from_source(program("y ~ poisson(v);")), "joint")
    data = {"N": 3, "y": [0, 0, 2], "trials": [1, 1, 1], "X": np.ones((3, 2)).tolist()}
    base = base_data(12) | {"ct_base_mean": [-9.0] * 3 + [0.0] * 9}
    assert not np.isfinite(load(code, data | base).log_density(np.zeros(13)))


@pytest.mark.parametrize(
    ("statement", "condition"),
    [
        ("if (use) y ~ binomial_logit(trials, v);", "use"),
        ("if (!use) { s ~ normal(0, 1); } else y ~ binomial_logit(trials, v);", "!(!use)"),
        ("if (use == 2) s ~ std_normal(); else if (N > 2) { profile(\"a\") "
         "{ if (use) y ~ binomial_logit(trials, v); } }", "!(use == 2) && (N > 2) && use"),
        ("if (use) for (n in 1 : N) y[n] ~ binomial_logit(trials[n], v[n]);", "use"),
    ],
)  # fmt: skip
def test_sums_heed_their_branch(statement: str, condition: str) -> None:
    """Counts that no branch looks at may be impossible."""
    code = program(statement).replace("data {", "data { int use;")
    generated = generate(Program.from_source(code), "joint")
    assert f"= {condition} ? sum(lchoose(trials, y)) : 0;" in generated
    data = {"N": 3, "y": [9, 9, 9], "trials": [1, 1, 1], "X": np.ones((3, 2)).tolist()}
    model = load(generated, data | base_data(12) | {"use": 0})
    assert np.isfinite(model.log_density(np.zeros(13)))


@pytest.mark.parametrize(
    "statement",
    [
        "if (s > 0) y ~ binomial_logit(trials, v);",
        "{ int k = N; if (k > 5) y ~ binomial_logit(trials, v); }",
        "for (k in 1 : 0) y ~ binomial_logit(trials, v);",
        "while (N > 3) y ~ binomial_logit(trials, v);",
        "if (s > 0) s ~ normal(0, 1); else if (N > 5) y ~ binomial_logit(trials, v);",
    ],
)
def test_sums_stay_where_data_do_not_decide(statement: str) -> None:
    assert calls(program(statement)) == 0
    data = {"N": 3, "y": [9, 9, 9], "trials": [1, 1, 1], "X": np.ones((3, 2)).tolist()}
    model = load(generate(Program.from_source(program(statement)), "joint"), data | base_data(12))
    assert np.isfinite(model.log_density(np.zeros(13)))


def test_sizes_are_checked_as_before() -> None:
    code = generate(Program.from_source(program("y ~ poisson_log(b);")), "joint")
    data = {"N": 3, "y": [1, 2, 3], "trials": [1, 1, 1], "X": np.ones((3, 2)).tolist()}
    with pytest.raises(RuntimeError, match="size"):
        load(code, data | base_data(12)).log_density(np.zeros(13))


@pytest.mark.parametrize("name", ["poisson", "poisson_log", "binomial", "binomial_logit"])
def test_mass_functions(name: str) -> None:
    """Against SciPy, at rates and chances between the smallest and the largest."""
    arguments = "trials, p" if "binomial" in name else "p"
    code = generate(
        Program.from_source(
            f"data {{ int N; array[N] int y; array[N] int trials; vector[N] p; }}"
            f"parameters {{ real s; }} model {{ s ~ std_normal(); y ~ {name}({arguments}); }}"
        ),
        "joint",
    )
    assert OURS.search(code)
    y, trials = np.array([0, 3, 7, 40, 0]), np.array([4, 9, 7, 41, 0])
    for x in (np.array([-30.0, -2, 0, 5, 1]), np.array([2.0, 9, 3, -1, 30])):
        p, mass = {
            "poisson": (np.exp(x), stats.poisson.logpmf(y, np.exp(x))),
            "poisson_log": (x, stats.poisson.logpmf(y, np.exp(x))),
            "binomial": (special.expit(x), stats.binom.logpmf(y, trials, special.expit(x))),
            "binomial_logit": (x, stats.binom.logpmf(y, trials, special.expit(x))),
        }[name]
        base = {"ct_D": 1, "ct_base_mean": [0.0], "ct_is_dense": 0, "ct_base_scale": [[1.0]]}
        base |= {"ct_K": 2, "ct_bias_beta": [0.0, 1.0], "ct_bias": [0.0, 0.0]}
        data = {"N": 5, "y": y.tolist(), "trials": trials.tolist(), "p": p.tolist()}
        found = load(code, data | base).log_density(np.zeros(2))
        # With this base joint and target density differ by log N(0; 0, 1) alone.
        wanted = 0.5 * mass.sum() + stats.norm.logpdf(0) + 2 * np.log(0.5)
        assert found == pytest.approx(wanted, rel=1e-11)

"""Log prior and pointwise log likelihood add up to the log density, or are refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of

from stanct.common.errors import ProgramError
from stanct.engines.embedded import Recipe
from stanct.stan.branches import taken
from stanct.stan.pointwise import pointwise
from stanct.stan.program import Program
from stanct.targets.density import Density

Y = [0.3, -1.2, 2.0]
X = [1.0, 2.0, -0.5]
HEAD = """
data {
  int N; vector[N] y; vector[N] x; array[N] int k; array[N] int c; array[N] vector[2] v;
  matrix[N, 2] q; real one;
}
parameters { real a; real b; real<lower=0> s; }
"""
DATA = {
    **{"N": 3, "y": Y, "x": X, "k": [0, 2, 1], "c": [3, 2, 1], "v": [[1, 0], [0, 1], [1, 1]]},
    **{"q": [[1, 0.3], [-0.4, 1], [2, 1]], "one": 0.4},
}
PRIOR = "a ~ normal(0, 1); b ~ normal(0, 2); s ~ lognormal(0, 1);"
MODELS = {
    "vector": ("y ~ normal(a + b * x, s);", ["y"]),
    "vector of locals": ("vector[N] m = a + b * x; y ~ normal(m, s);", ["y"]),
    "scalar arguments": ("y ~ normal(a, s);", ["y"]),
    "no arguments": ("y ~ std_normal();", ["y"]),
    "integers": ("k ~ poisson_log(a + b * x);", ["k"]),
    "integer sizes": ("k ~ binomial_logit(4, a + b * x);", ["k"]),
    "loop": ("for (n in 1:N) y[n] ~ normal(a + b * x[n], s);", ["y"]),
    "loop with locals": ("for (n in 1:N) { real m = a * x[n]; y[n] ~ normal(m, s); }", ["y"]),
    "increment": ("for (n in 1:N) target += normal_lpdf(y[n] | a, s);", ["y"]),
    "mixture": (
        "for (n in 1:N) target += log_mix(0.3, normal_lpdf(y[n] | a, s), std_normal_lpdf(y[n]));",
        ["y"],
    ),
    "vectors in a loop": (
        "for (n in 1:N) v[n] ~ multi_normal([a, b]', s * [[2, 1], [1, 2]]);",
        ["v"],
    ),
    "scalar": ("one ~ normal(a, s);", ["one"]),
    "two": ("y ~ normal(a, s); k ~ poisson_log(b);", ["y", "k"]),
    "truncated priors": ("a ~ normal(0, 1) T[-3, ]; y ~ normal(a, s);", ["y"]),
    "generalised linear": ("k ~ poisson_log_glm(to_matrix(x, N, 1), a, [b]');", ["k"]),
    "generalised linear, by value": (
        "y ~ normal_id_glm(q, rep_vector(a, N) + b * x, [a, b]', s);",
        ["y"],
    ),
    "generalised linear, trials": (
        "k ~ binomial_logit_glm(4, q, a, [a, b]');",
        ["k"],
    ),
    "generalised linear, ordered": (
        "c ~ ordered_logistic_glm(q, [a, b]', [-s, s]');",
        ["c"],
    ),
    "generalised linear, categories": (
        "c ~ categorical_logit_glm(q, [0, a, b]', [[0, a, b], [b, 0, s]]);",
        ["c"],
    ),
    "under a condition on the data": (
        "if (!(N > 5)) { vector[N] m = rep_vector(a, N); for (n in 1:N) m[n] += b * x[n];"
        " target += normal_lpdf(y | m, s); }",
        ["y"],
    ),
    "of other branches": ("if (N > 5) y ~ normal(a, s); else k ~ poisson_log(b);", ["k"]),
    "censored": (
        "for (n in 1:N) if (k[n] == 0) target += normal_lpdf(y[n] | a, s);"
        " else target += normal_lccdf(y[n] | a, s);",
        ["y"],
    ),
    "array of vectors": ("v ~ multi_normal([a, b]', s * [[2, 1], [1, 2]]);", []),
    "part of y": ("y[1:2] ~ normal(a, s);", []),
    "sum": ("target += -0.5 * sum(square(y - a));", []),
}  # fmt: skip


def check(source: str, observed: list[str], data: dict[str, Any] = DATA) -> dict[str, np.ndarray]:
    target = target_of(source, data)
    code = target.code("density")
    program = taken(Program.from_source(code, name="density"), data)
    found = pointwise(program, "ct_")
    assert list(found.log_likelihood) == observed
    values = Density(Recipe(found.code, target.data.text))
    rng = np.random.default_rng(2)
    x = rng.standard_normal((4, target.density.dimension))
    quantities = values.variables(x, seed=1)
    if observed:
        # A program without terms has the log Jacobian as its log density.
        jacobian = Density(Recipe(found.code, target.data.text))
        total = quantities[found.log_prior] + sum(
            quantities[name].sum(axis=-1) for name in found.log_likelihood.values()
        )
        whole = target.density.log_densities(x) - jacobian.log_densities(x)
        assert total == pytest.approx(whole, abs=1e-9)
    return {name: quantities[own] for name, own in found.log_likelihood.items()}


@pytest.mark.parametrize("name", MODELS)
def test_the_parts_add_up(name: str) -> None:
    body, observed = MODELS[name]
    found = check(f"{HEAD} model {{ {PRIOR} {body} }}", observed)
    for values in found.values():
        assert values.shape[1] in (1, 3)
        assert np.ptp(values, axis=1).min() > 0 or values.shape[1] == 1


def test_each_observation_has_its_own_value() -> None:
    found = check(f"{HEAD} model {{ {PRIOR} y ~ normal(a, s); }}", ["y"])["y"]
    x = np.random.default_rng(2).standard_normal((4, 3))
    a, s = x[:, :1], np.exp(x[:, 2:])
    expected = -0.5 * ((np.array(Y) - a) / s) ** 2 - np.log(s) - 0.5 * np.log(2 * np.pi)
    assert found == pytest.approx(expected)


REFUSED = {
    "a likelihood is truncated": "for (n in 1:N) y[n] ~ normal(a, s) T[-9, ];",
    "one sum has prior and likelihood": "target += normal_lpdf(y | a, s) + normal_lpdf(b | 0, 1);",
    "the model reads its own target": "y ~ normal(a, s); if (target() > 0) print(a);",
}


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("v ~ multi_normal([a, b]', s * [[2, 1], [1, 2]]);", "no row for each value"),
        ("y[1:2] ~ normal(a, s);", "`y[1:2]` is not one observation"),
        ("target += -0.5 * sum(square(y - a));", "no known density"),
        ("target += 2 * normal_lpdf(y | a, s);", "stands in a sum or in a loop"),
        ("y + x ~ normal(a, s);", "is not one observation"),
    ],
)
def test_a_term_that_stays_whole_is_named(body: str, reason: str) -> None:
    code = target_of(f"{HEAD} model {{ {PRIOR} {body} }}", DATA).code("density")
    found = pointwise(Program.from_source(code, name="density"), "ct_")
    assert found.log_likelihood == {}
    assert len(found.whole) == 1
    assert reason in next(iter(found.whole.values()))


@pytest.mark.parametrize("reason", REFUSED)
def test_what_cannot_be_told_apart_is_refused(reason: str) -> None:
    target = target_of(f"{HEAD} model {{ {PRIOR} {REFUSED[reason]} }}", DATA)
    program = Program.from_source(target.code("density"), name="density")
    with pytest.raises(ProgramError, match=reason):
        pointwise(program, "ct_")

"""Bounds whose shape the text alone does not tell: Stan's overloads decide between them."""

from __future__ import annotations

import pytest
from conftest import target_of

from stanct.audit.verify import verify
from stanct.errors import UnsupportedError
from stanct.stan.codegen import generate
from stanct.stan.program import Program

DATA = "data { vector[3] v; matrix[3, 3] M; vector[9] l; array[3] real a; }"
VALUES = {
    "v": [0.5, 1.0, 2.0],
    "M": [[2.0, 0.1, 0.2], [0.1, 3.0, 0.3], [0.2, 0.3, 4.0]],
    "l": [0.1 * k for k in range(1, 10)],
    "a": [0.3, 0.2, 0.1],
}
CONTAINERS = (
    *("sqrt(v)", "v .* v", "-v ./ (1 + l[1 : 3])", "head(l, 3)", "segment(l, 2, 3)", "v' * v"),
    *("col(M, 1)", "row(M, 1)'", "rows_dot_self(M)", "inverse(M) * v", "M \\ v", "sort_asc(v)"),
    *("block(M, 1, 1, 3, 1)[ , 1]", "l[1 : 3]' * l[2 : 4]", "to_vector(reverse(a))"),
)


@pytest.mark.parametrize("kind", ["joint", "pseudo_extended"])
@pytest.mark.parametrize("bound", CONTAINERS)
def test_bounds_of_vectors(bound: str, kind: str) -> None:
    source = f"{DATA} parameters {{ vector<lower={bound}>[3] x; }} model {{ x ~ normal(0, 9); }}"
    comparison = verify(target_of(source, VALUES), kind)
    assert comparison.passed and comparison.points


@pytest.mark.parametrize(
    "declared",
    [
        "vector<lower=head(l, 3), upper=9 + max(l)>[3] x;",
        "row_vector<upper=reverse(l[1 : 3])'>[3] x;",
        "matrix<lower=crossprod(M)>[3, 3] x;",
        "array[3] real<lower=head(a, 3)> x;",
        "vector[3] mu; vector<offset=head(mu, 3), multiplier=reverse(v)>[3] x;",
    ],
)
def test_other_types(declared: str) -> None:
    """Also of bounds that depend on parameters, for which there is no earlier block."""
    prior = "mu ~ normal(0, 1);" if "mu" in declared else ""
    x = "to_vector(x)"
    source = f"{DATA} parameters {{ {declared} }} model {{ {prior} {x} ~ normal(0, 9); }}"
    comparison = verify(target_of(source, VALUES), "joint")
    assert comparison.passed and comparison.points


def test_the_remedy_for_the_rest_works() -> None:
    source = "data {{ array[2] vector[3] v; }} parameters {{ array[2] vector<lower={}>[3] x; }}"
    with pytest.raises(UnsupportedError, match="Let a function of your own return it"):
        generate(Program.from_source(source.format("reverse(v)")), "joint")
    function = "functions { array[] vector b(array[] vector v) { return reverse(v); } } "
    target = target_of(
        function + source.format("b(v)") + " model { x[1] ~ normal(0, 9); x[2] ~ normal(0, 9); }",
        {"v": [[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]},
    )
    assert verify(target, "joint").passed

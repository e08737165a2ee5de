"""Bounds whose shape the text alone does not tell: Stan's overloads decide between them."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import target_of
from verify import verify

from stanct import sample
from stanct.common.errors import ProgramError, UnsupportedError
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.targets.program_target import check_generated

DATA = "data { vector[3] v; matrix[3, 3] M; vector[9] l; array[3] real a; array[2] vector[3] b; }"
VALUES = {
    "v": [0.5, 1.0, 2.0],
    "M": [[2.0, 0.1, 0.2], [0.1, 3.0, 0.3], [0.2, 0.3, 4.0]],
    "l": [0.1 * k for k in range(1, 10)],
    "a": [0.3, 0.2, 0.1],
    "b": [[0.1, 0.2, 0.3], [-1.0, 0.0, 1.0]],
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
        "array[2] vector<lower=v' * v>[3] x;",
        "array[2] vector<upper=quad_form(M, v), lower=-max(v)>[3] x;",
        "array[2] vector<lower=head(append_array(b, b), 2)>[3] x;",
        "array[2] row_vector<upper=reverse({v', 2 * v'})>[3] x;",
        "array[2] matrix<lower=reverse({M, 2 * M}), upper=9>[3, 3] x;",
        "array[2] matrix<lower=v' * v>[3, 3] x;",
        "array[1, 2] vector<lower=reverse({b})>[3] x;",
        "array[1, 2] vector<lower=v' * v>[3] x;",
        "array[2, 1] real<lower=v' * v> x;",
        "array[2, 1] real<lower=reverse({{0.1}, {0.2}}), upper=quad_form(M, v)> x;",
        "array[1, 2, 1] real<upper=reverse({{{0.1}, {0.2}}})> x;",
        "array[1, 2, 1] vector<upper=reverse({{{v}, {2 * v}}})>[3] x;",
        "array[1, 1, 2] vector<multiplier=quad_form(M, v), offset=v' * v>[3] x;",
    ],
)
def test_other_types(declared: str) -> None:
    """Also of bounds that depend on parameters, for which there is no earlier block."""
    prior = "mu ~ normal(0, 1);" if " mu;" in declared else ""
    sizes = re.search(r"array\[([^]]*)\] (real)?", declared)
    depth = sizes[1].count(",") + 1 if sizes else 0
    loops = "".join(f"for (e{k + 1} in {f'e{k}' if k else 'x'}) " for k in range(depth))
    x = f"e{depth}" if depth else "x"
    x = x if sizes and sizes[2] else f"to_vector({x})"
    source = f"{DATA} parameters {{ {declared} }} model {{ {prior} {loops} {x} ~ normal(0, 9); }}"
    comparison = verify(target_of(source, VALUES), "joint")
    assert comparison.passed and comparison.points


def test_the_remedy_for_the_rest_works() -> None:
    source = "data {{ array[1, 1, 1, 2] vector[3] v; }} parameters {{ array[1, 1, 1, 2] "
    source += "vector<lower={}>[3] x; }}"
    with pytest.raises(UnsupportedError, match="Let a function of your own return it"):
        generate(Program.from_source(source.format("reverse(v)")), "joint")
    function = "functions { array[,,,] vector b(array[,,,] vector v) { return reverse(v); } } "
    target = target_of(
        function + source.format("b(v)") + " model { for (e in x[1, 1, 1]) e ~ normal(0, 9); }",
        {"v": [[[[[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]]]]]},
    )
    assert verify(target, "joint").passed


@pytest.mark.parametrize("kind", ["joint", "pseudo_extended", "extended_hamiltonian"])
@pytest.mark.parametrize("declared", ["vector", "array[2] vector", "array[2, 3] row_vector"])
def test_bounds_that_the_engine_cannot_compute_are_legal(declared: str, kind: str) -> None:
    bounds = "lower=quantile(l, 0.5), upper=9 + quantile(l, 0.9)"
    source = f"{DATA} parameters {{ {declared}<{bounds}>[3] x; }} model {{ target += 0; }}"
    program = Program.from_source(source)
    check_generated(program, generate(program, kind))


IMPOSSIBLE = [
    ("real<lower=1, upper=0> c", r"`c` has lower = 1 and upper = 0, but no number is within"),
    ("real<lower=0, upper=0> c", "only one number is within"),
    ("real<lower=1, upper=1 + 1e-13> c", "only 450 floating-point numbers are within"),
    ("real<lower=not_a_number()> c", "lower = nan, but NaN is no bound"),
    ("real<upper=0 * v[2] / 0> c", "upper = nan, but NaN is no bound"),
    ("real<lower=positive_infinity()> c", "lower = inf, but no number"),
    ("vector<lower=v, upper=1.5>[3] c", r"`c\[3\]` has lower = 2 and upper = 1.5"),
    ("array[2, 3] real<lower=1, upper=a[3]> c", r"`c\[1,1\]` has lower = 1 and upper = 0.1"),
    ("matrix<lower=max(v), upper=-max(v)>[2, 2] c", r"`c\[1,1\]` has lower = 2 and upper = -2"),
    ("real<offset=1, multiplier=0> c", "a multiplier must be positive"),
    ("real<multiplier=-v[1]> c", "multiplier = -0.5, but a multiplier must be positive"),
]


@pytest.mark.parametrize(("declared", "words"), IMPOSSIBLE)
def test_bounds_that_cannot_hold_are_named_before_any_work(declared: str, words: str) -> None:
    source = f"{DATA}\nparameters {{\n  real x;\n  {declared};\n}}\nmodel {{ x ~ normal(0, 1); }}"
    with pytest.raises(ProgramError, match=rf"^model.stan:4:\d+: (?s:.)*{words}") as caught:
        _ = target_of(source, VALUES).density
    uses_data = re.search(r"\b[va]\b", declared)
    assert str(caught.value).endswith("or data." if uses_data else "Correct the declaration.")


def test_bounds_of_transformed_parameters_that_cannot_hold() -> None:
    source = "parameters { real x; } transformed parameters { real<lower=1, upper=0> y = x; }"
    with pytest.raises(ProgramError, match="`y` has lower = 1 and upper = 0"):
        _ = target_of(f"{source} model {{ x ~ normal(0, 1); }}").density
    one = "parameters { real x; } transformed parameters { real<lower=1, upper=1> y = 1; }"
    assert target_of(f"{one} model {{ x ~ normal(0, y); }}").density.log_density(np.zeros(1)) > -1


@pytest.mark.parametrize(
    "declared",
    [
        "real<lower=1, upper=1 + 1e-12> b",
        "real<lower=negative_infinity(), upper=positive_infinity()> b",
        "vector<lower=1, upper=0>[0] b",
        "real<lower=x, upper=x - 1> b",
        "real<lower=-800, upper=-790> b",
    ],
)
def test_bounds_that_may_hold_are_left_alone(declared: str) -> None:
    source = f"parameters {{ real x; {declared}; }} model {{ x ~ normal(0, 1); }}"
    assert target_of(source).density.dimension


def test_bounds_by_parameters_that_never_hold_end_the_run() -> None:
    source = "parameters { real x; real<lower=x, upper=x - 1> b; } model { b ~ normal(x, 1); }"
    with pytest.raises(ProgramError, match="not finite at each of"):
        sample(target_of(source), draws=100, seed=1, progress=False)

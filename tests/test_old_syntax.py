"""Programs of before Stan 2.33 get the line that takes the place of theirs."""

from __future__ import annotations

import pytest

import stanct
from stanct.stan.old_syntax import in_new_words

X = "parameters {{ real<lower=0> x; }} model {{ {} }}"


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("increment_log_prob(normal_log(x, 0, 1));", "write `target += normal_lpdf(x | 0, 1)`"),
        ("increment_log_prob(-x * x);", "write `target += -x * x`"),
        ("target += normal_log(x, fmax(0, 1), 1);", "write `normal_lpdf(x | fmax(0, 1), 1)`"),
        ("target += poisson_log(3, x);", "write `poisson_lpmf(3 | x)`"),
        ("target += normal_ccdf_log(x, 0, 1);", "write `normal_lccdf(x | 0, 1)`"),
        ("x ~ normal(if_else(1, 0.0, [2, 3][1]), 1);", "write `1 ? 0.0 : [2, 3][1]`"),
        ("x ~ normal(0, cov_exp_quad({1.0}, 1.0, x)[1, 1]);", "`gp_exp_quad_cov({1.0}, 1.0, x)`"),
        ("print(get_lp());", "write `target()`"),
        ("real m; m <- 0;", "Write `=` instead"),
    ],
)
def test_what_stan_removed_is_told_with_the_new_line(statement: str, told: str) -> None:
    with pytest.raises(stanct.ProgramError) as refused:
        stanct.temper(X.format(statement))
    assert told in str(refused.value) and ":1:" in str(refused.value)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("real[] f(real t) { return {t}; }", "`array[] real f`"),
        ("real f(real[,] y) { return y[1, 1]; }", "`array[,] real y`"),
    ],
)
def test_old_arrays_in_functions(function: str, told: str) -> None:
    source = f"functions {{ {function} }} " + X.format("x ~ normal(0, 1);")
    with pytest.raises(stanct.ProgramError, match="before the type") as refused:
        stanct.temper(source)
    assert told in str(refused.value)


def test_other_messages_are_stans_own() -> None:
    assert in_new_words("x ~ normol(0, 1);", 'undeclared identifier "normol"') is None
    assert in_new_words("f(x);", "Ill-typed arguments") is None

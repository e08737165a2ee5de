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
        ("vector[2] m; m[1] <- x;", "Write `=` instead"),
        ("lp__ <- lp__ + x;", "Write `target += …`, without `lp__` on the right"),
        ("lp__ = lp__ + x;", "write `target += …` to add to it"),
        ("x ~ exponential(1); # a rate", "Write `//` instead"),
        ("real m[2] = {1, x};", "Write `array[2] real m = {1, x};`"),
        ("vector[3] m[2, 2];", "Write `array[2, 2] vector[3] m;`"),
        ("target += log(normal_cdf(x, fmax(0, 1), 1));", "write `normal_cdf(x | fmax(0, 1), 1)`"),
        ("target += std_normal_lpdf(x) + normal_lpdf(x, 0, 1);", "`normal_lpdf(x | 0, 1)`"),
    ],
)
def test_what_stan_removed_is_told_with_the_new_line(statement: str, told: str) -> None:
    with pytest.raises(stanct.ProgramError) as refused:
        stanct.temper(X.format(statement))
    assert told in str(refused.value) and ":1:" in str(refused.value)


@pytest.mark.parametrize(
    ("function", "told"),
    [
        ("real[] f(real t) { return {t}; }", "Write `array[] real f`"),
        ("real f(real[,] y) { return y[1, 1]; }", "Write `array[,] real y`"),
        ("vector[] f(vector y) { return {y}; }", "Write `array[] vector f`"),
        ("real f(data vector[] y) { return 1; }", "Write `array[] vector y`"),
        ("real f(matrix[2, 2] y) { return y[1, 1]; }", "Write `matrix y`"),
        ("real f_log(real y, real s) { return -y * s; }", "name it `f_lpdf`, or `_lpmf`"),
    ],
)
def test_old_functions(function: str, told: str) -> None:
    source = f"functions {{ {function} }} " + X.format("x ~ f(1);")
    with pytest.raises(stanct.ProgramError) as refused:
        stanct.temper(source)
    assert told in str(refused.value)


def test_other_messages_are_stans_own() -> None:
    assert in_new_words("x ~ normol(0, 1);", 4, 'undeclared identifier "normol"') is None
    assert in_new_words("f(x);", 0, "Ill-typed arguments") is None
    truncated = "parameters { real x; } model { x ~ normal(0, 1) T[1, 2, 3]; }"
    with pytest.raises(stanct.ProgramError, match="Expected a truncation") as refused:
        stanct.temper(truncated)
    assert "array" not in str(refused.value)


OLD = """
functions {
  real gap_log(real y, real s) { # a density
    return -y * s + log(s);
  }
}
data {
  int n;
  real y[n];
}
parameters {
  real m;
  real<lower=0> s;
}
model {
  real z[n];
  for (i in 1:n) z[i] <- (y[i] - m) / s;
  s ~ gap(2);
  increment_log_prob(normal_log(z, 0, 1) - n * log(s));
}
"""


def test_messages_lead_from_an_old_program_to_one_that_runs() -> None:
    lines = OLD.split("\n")
    steps = (
        ("`//`", "#", "//"),
        ("`array[n] real y;`", "real y[n];", "array[n] real y;"),
        ("`array[n] real z;`", "real z[n];", "array[n] real z;"),
        ("`=`", "<-", "="),
        ("`gap_lpdf`", "gap_log", "gap_lpdf"),
        ("`normal_lpdf(z | 0, 1)`", "normal_log(z, 0, 1)", "normal_lpdf(z | 0, 1)"),
        ("`target += normal_lpdf(z | 0, 1) - n * log(s)`", "increment_log_prob(", "target += ("),
    )
    for told, old, new in steps:
        with pytest.raises(stanct.ProgramError) as refused:
            stanct.temper("\n".join(lines))
        assert told in str(refused.value)
        lines = [line.replace(old, new) for line in lines]
    stanct.temper("\n".join(lines))

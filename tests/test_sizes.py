"""Sizes that the data make negative or huge: an error at the declaration, before any engine."""

from __future__ import annotations

from typing import Any

import pytest
from conftest import target_of

from stanct.common.errors import ProgramError
from stanct.stan.program import Program
from stanct.targets import sizes
from stanct.targets.arithmetic import evaluated, known_numbers
from stanct.targets.program_target import ProgramTarget

HUGE = {"n": 2_000_000_000, "s": [1, 2, -3]}
SMALL = {"n": 3, "s": [1, 2, -3]}


def program(made: str = "", own: str = "", then: str = "", model: str = "", last: str = "") -> str:
    return (
        f"data {{ int n; array[3] int s; }} transformed data {{\n{made} }}"
        f"parameters {{ real u;\n{own} }} transformed parameters {{\n{then} }}"
        f"model {{ u ~ normal(0, 1);\n{model} }} generated quantities {{\n{last} }}"
    )


@pytest.mark.parametrize(
    ("source", "data", "words"),
    [
        (program(own="vector[n] x;"), HUGE, r"`x`, .* 2000000000 numbers, one draw"),
        (program(own="matrix[n, n] x;"), HUGE, r"one draw of all variables has 4\.0e\+18"),
        (program(then="vector[n] x = rep_vector(u, n);"), HUGE, "one draw"),
        (program(last="array[n, n] cov_matrix[n] x;"), HUGE, r"`x`, which has 1\.6e\+37"),
        (program(last="tuple(vector[n], real) x;"), HUGE, "has 2000000001 numbers"),
        (program("vector[n] x;"), HUGE, "takes about 80 GB"),
        (program("int k; k = n * 2; array[k %/% 4] int x;"), HUGE, "has 1000000000 numbers"),
        (program(model="vector[n] x; x ~ normal(0, 1);"), HUGE, "this machine has 16.0 GB"),
        (program("vector[n - 5] x;"), SMALL, "`x` has the size n - 5 = -2, which is negative"),
        (program(own="vector[s[3]] x;"), SMALL, r"the size s\[3\] = -3"),
        (program(own="array[sum(s) - 1] real x;"), SMALL, "= -1"),
        (program(last="vector[-n %/% 2] x;"), SMALL, "= -1"),
        (program(model="vector[n - 5] x;"), SMALL, "negative"),
        (program(own="cholesky_factor_cov[n - 1, 3] x;"), SMALL, "`x` has 2 rows and 3 columns"),
        (program("cholesky_factor_cov[n - 1, n] x;"), SMALL, "no fewer rows than columns"),
    ],
)
def test_sizes_that_cannot_be(
    source: str, data: Any, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizes, "memory", lambda: 16e9)
    monkeypatch.setattr(ProgramTarget, "_made", _not_called)
    target = target_of(source, data)
    with pytest.raises(ProgramError, match=words) as caught:
        _ = target.density
    assert caught.value.excerpt is not None and " x" in caught.value.excerpt
    assert len(str(caught.value)) < 400


def _not_called(_: Any) -> Any:
    raise AssertionError("an engine was asked")


def test_sizes_that_may_be() -> None:
    source = program(
        "array[n - 3] int none; int k = s[1]; k = 9;",
        "cholesky_factor_cov[n] L; vector[k - 20 + n] x;",
    )
    target = target_of(source, SMALL)
    sizes.refuse_sizes(target.program, target.data)  # k is assigned twice, so that it is not told


def test_data_of_negative_sizes() -> None:
    with pytest.raises(ProgramError, match=r"size \[n - 5 = -2\]"):
        target_of("data { int n; vector[n - 5] x; } parameters { real u; }", {"n": 3, "x": []})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2 * n + 1", 7),
        ("-7 %/% 2", -3),
        ("s[2] + m[1, 2]", 5),
        ("size(s) * num_elements(m)", 12),
        ("rows(m) + cols(m)", 4),
        ("max(s) - min(s) + max(n, 9) + abs(-2)", 16),
        ("s[0]", None),
        ("s[4]", None),
        ("n %/% 0", None),
        ("f(n)", None),
        ("n / 2", None),
        ("n > 2 ? 1 : 0", None),
        ("s", None),
        ("x.real", None),
    ],
)
def test_arithmetic(text: str, value: float | None) -> None:
    known = {"n": 3, "s": [1, 2, -3], "m": [[1, 3], [2, 4]]}
    assert evaluated(text, known) == value


def test_integers_of_the_transformed_data() -> None:
    source = (
        "data { int n; } transformed data { int a = n + 1; int b; b = 2 * a; int c = 1; "
        "if (n > 2) c = 5; int d; for (i in 1 : n) d = i; } parameters { real u; }"
    )
    known = known_numbers(Program.from_source(source), {"n": 3, "other": 1})
    assert known == {"n": 3, "a": 4, "b": 8}

"""Sizes that follow from the data by arithmetic."""

from __future__ import annotations

import pytest

from stanct.stan.arithmetic import evaluated, known_numbers
from stanct.stan.program import Program


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
        ("n > 2 && f(n)", None),
        ("n > 3 && f(n)", False),
        ("n > 2 || f(n)", True),
        ("!(n == 3) || n != 3", False),
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

"""Variables are found by the names that users write, and a wrong one is told with what is near."""

from __future__ import annotations

import numpy as np
import pytest

from stanct.common.errors import StanctError, as_written
from stanct.estimates.naming import by_interest, place_of, places_of, variable

RUN = {
    "theta_raw": np.zeros((2, 3, 8)),
    "mu": np.arange(6.0).reshape(2, 3),
    "beta": np.arange(72.0).reshape(2, 3, 3, 4),
    "tau": np.zeros((2, 3)),
    "theta": np.zeros((2, 3, 8)),
    "log_lik": np.zeros((2, 3, 8)),
    "gap": np.zeros((2, 3)),
}


def test_names_mean_variables_rows_and_scalars() -> None:
    assert place_of(RUN, "mu") == ("mu", ())
    assert place_of(RUN, " beta[2, 1] ") == ("beta", (1, 0))
    assert variable(RUN, "beta[3,4]") == pytest.approx(RUN["beta"][..., 2, 3])
    assert variable(RUN, "beta[2]").shape == (2, 3, 4)
    assert places_of(RUN, ["beta[2]", "mu", "beta[2,1]"]) == [
        *(("beta", (1, k)) for k in range(4)),
        ("mu", ()),
    ]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("mmu", "Did you mean 'mu'"),
        ("Theta", "Did you mean 'theta'"),
        ("beta[4,1]", r"It goes from beta\[1,1\] to beta\[3,4\]"),
        ("beta[0,1]", "It goes from"),
        ("beta[1,1,1]", "It goes from"),
        ("beta[]", "It goes from"),
        ("mu[1]", "'mu' is one number"),
        ("unlike", "It has: theta_raw, mu"),
    ],
)
def test_a_wrong_name_is_told_with_what_is_near(name: str, told: str) -> None:
    with pytest.raises(StanctError, match=told):
        variable(RUN, name)


def test_a_reader_asks_for_few_numbers_first_and_for_raw_effects_last() -> None:
    order = by_interest(RUN, ["theta_raw", "mu", "beta", "tau"])
    assert order == ["mu", "tau", "gap", "beta", "theta", "theta_raw", "log_lik"]


def test_names_of_cmdstan_become_those_of_stan() -> None:
    flat = ("mu", "mu.1", "b.1.2", "t:1.2", "a.3:2.1.4", "all directions", "mu[1]")
    stan = ("mu", "mu[1]", "b[1,2]", "t.1[2]", "a[3].2[1,4]", "all directions", "mu[1]")
    assert tuple(map(as_written, flat)) == stan

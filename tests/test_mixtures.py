"""A program that names a mixture is rewritten so that it keeps one component each."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from scipy.stats import norm

from stanct.stan.mixtures import with_one_component

WEIGHTS, PLACES, WIDTHS = np.array([0.2, 0.5, 0.3]), np.array([-3.0, 0.0, 4.0]), (1.0, 0.5, 2.0)
DATA = {"w": WEIGHTS.tolist(), "m": PLACES.tolist(), "s": [*WIDTHS]}
EACH = "for (k in 1:3) each[k] = normal_lpdf(x | m[k], s[k])"
MODELS = {
    "vector": f"vector[3] each; {EACH}; target += log_sum_exp(log(w) + each);",
    "row": f"row_vector[3] each; {EACH}; target += log_sum_exp(log(w)' + each);",
    "array": f"array[3] real each; {EACH} + log(w[k]); target += log_sum_exp(each);",
    "mix": f"vector[3] each; {EACH}; target += log_mix(w, each);",
    "mix of an array": f"array[3] real each; {EACH}; target += log_mix(w, each);",
}
PROGRAM = """
data {{ simplex[3] w; vector[3] m; vector[3] s; }}
parameters {{ real x; }}
model {{ {} }}
"""


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_each_component_has_its_own_density(model: str) -> None:
    one = target_of(PROGRAM.format(model), DATA).one_component
    assert one is not None and one.dimension == 2
    x = np.linspace(-4, 4, 5)
    exact = np.log(WEIGHTS)[:, None] + norm.logpdf(x, PLACES[:, None], np.array(WIDTHS)[:, None])
    for kept, log_density in enumerate(exact, 1):
        found = one.log_densities(np.column_stack([x, np.full(5, kept)]))
        np.testing.assert_allclose(found, log_density, rtol=1e-12)
    # Beyond the last one, that stays.
    beyond = one.log_densities(np.column_stack([x, np.full(5, 7)]))
    np.testing.assert_allclose(beyond, exact[-1], rtol=1e-12)


@pytest.mark.parametrize(
    "model",
    [
        "target += log_sum_exp(log(0.3) + a, log(0.7) + b);",
        "target += log_mix(0.3, a, b);",
        "target += log_mix(0.3, log_sum_exp(a, -1e300), b);",
        "a += log(0.3); target += a + log1p_exp(b + log(0.7) - a);",
        "a += log(0.3); a = log_sum_exp(a, log(0.7) + b); target += a;",
    ],
)
def test_two_components(model: str) -> None:
    both = "real a = normal_lpdf(x | -2, 1); real b = normal_lpdf(x | 2, 1);"
    one = target_of(f"parameters {{ real x; }} model {{ {both} {model} }}").one_component
    assert one is not None
    for kept, (weight, place) in enumerate([(0.3, -2), (0.7, 2)], 1):
        exact = np.log(weight) + norm.logpdf(0.5, place)
        assert one.log_density(np.array([0.5, kept])) == pytest.approx(exact)


@pytest.mark.parametrize(
    "program",
    [
        "parameters { real x; } model { x ~ std_normal(); }",
        "parameters { real x; } model { // log_mix(0.5, x, x)\n x ~ std_normal(); }",
        "functions { real f(real x) { return log_mix(0.3, x, -x); } }"
        " parameters { real x; } model { x ~ std_normal(); }",
        "parameters { real x; } model { x ~ std_normal(); }"
        " generated quantities { real y = log_sum_exp(x, 1); }",
        "functions { real log_mix(real x) { return -x^2; } }"
        " parameters { real x; } model { target += log_mix(x); }",
    ],
    ids=["none", "comment", "not called", "generated", "the user's own"],
)
def test_programs_without_a_mixture(program: str) -> None:
    assert with_one_component(program) is None


FORWARD = """
    for (t in 2:3) {
      for (k in 1:2) next[k] = log_sum_exp(alpha + log([x, 1 - x]')) + normal_lpdf(t | k, 1);
      alpha = next;
    }
"""


@pytest.mark.parametrize("inside", [False, True])
def test_states_one_after_the_other_are_no_components(inside: bool) -> None:
    """What a loop's sum over states gives goes into its own terms."""
    start, end = "vector[2] alpha = [0, x]'; vector[2] next;", "log_sum_exp(alpha)"
    head = f"functions {{ real f(real x) {{ {start} {FORWARD} return {end}; }} }}" * inside
    model = "target += f(x);" if inside else f"{start} {FORWARD} target += {end};"
    program = f"{head} parameters {{ real<lower=0, upper=1> x; }} model {{ {model} }}"
    assert target_of(program).one_component is None
    # Each row's sum on top of those before it is a mixture.
    sums = "real lp = 0; for (t in 2:3) lp += log_mix(x, -t, 0.0); target += lp;"
    assert with_one_component(f"parameters {{ real x; }} model {{ {sums} }}") is not None


def test_a_mixture_in_functions_of_the_users() -> None:
    """One calls the other, one has no arguments, and `~` and generated quantities call them."""
    program = """
    functions {
      real two_lpdf(vector y, real m) {
        return log_mix(0.3, normal_lpdf(y | m, 1), normal_lpdf(y | -m, 0.5));
      }
      real half() { return log_mix(0.5, 0.0, log(3)); }
      real twice(vector y) { real z = 2; return two_lpdf(y | 4) + half() * z; }
      real plain(real y) { return y; }
    }
    parameters { vector[2] x; vector[2] w; }
    model { target += twice(x) + plain(x[1]); w ~ two(1); }
    generated quantities { real g = half() + plain(1); }
    """
    one = target_of(program).one_component
    assert one is not None and one.dimension == 5
    x, w = np.array([3.0, 4.5]), np.array([0.1, -0.2])
    for kept, (share, sign, sd, half) in enumerate([(0.3, 1, 1, 0.5), (0.7, -1, 0.5, 1.5)], 1):
        exact = 2 * np.log(share) + norm.logpdf(x, 4 * sign, sd).sum() + 2 * np.log(half) + 3
        exact += norm.logpdf(w, sign, sd).sum()
        assert one.log_density(np.array([*x, *w, kept])) == pytest.approx(exact)


def test_names_of_the_program_are_not_used_again() -> None:
    program = "parameters { real component_; } model { target += log_mix(0.3, component_, 2.0); }"
    text = with_one_component(program)
    assert text is not None and text.count("real component_;") == 1

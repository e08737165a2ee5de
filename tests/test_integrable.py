"""Densities without an end are told from heavy tails, edges and slabs by lines through draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import LONG, target_of

import stanct
from stanct.targets.integrable import Endless, endless

SCHOOLS = {"J": 8, "y": [28, 8, -3, 7, -1, 1, 18, 12], "s": [15, 10, 16, 11, 9, 11, 10, 18]}
HIERARCHY = """
data { int J; vector[J] y; vector[J] s; }
parameters { real mu; real<lower=0> tau; vector[J] raw; }
model {
  PRIOR
  mu ~ normal(0, 5);
  raw ~ std_normal();
  y ~ normal(mu + tau * raw, s);
}
"""
CENTRED = """
data { int J; vector[J] y; vector[J] s; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model {
  PRIOR
  mu ~ normal(0, 5);
  theta ~ normal(mu, tau);
  y ~ normal(theta, s);
}
"""
LINE = """
data { int N; vector[N] x; array[N] int y; }
parameters { real a; real b; }
model { a ~ std_normal(); PRIOR y ~ bernoulli_logit(a + b * x); }
"""
TWO = "parameters { real a; real b; } model { a ~ std_normal(); b ~ normal(0, exp(a)); }"
SOFTMAX = """
data { array[3] int y; } parameters { vector[3] a; } model { y ~ multinomial(softmax(a)); }
"""
TWICE = """
data { int N; vector[N] x; vector[N] y; }
parameters { real a; real b; real c; }
model { y ~ normal(a + b * x + c * 2.5 * x, 1); }
"""
GROUPS = """
data { vector[6] y; array[6] int g; }
parameters { real mu; vector[3] a; }
model { PRIOR y ~ normal(mu + a[g], 1); }
"""
GROUPED = {"y": [1, 2, 0, 3, 1, 2], "g": [1, 1, 2, 2, 3, 3]}
UNTIL = "parameters { real x; } model { if (abs(x) > END) target += negative_infinity(); }"
FUNNEL = "parameters { vector[9] x; real v; } model { v ~ normal(0, 3); x ~ normal(0, exp(v)); }"
SEPARATED = {"N": 6, "x": [-3, -2, -1, 1, 2, 3], "y": [0, 0, 0, 1, 1, 1]}
MIXED = {**SEPARATED, "y": [0, 1, 0, 1, 0, 1]}


def along(source: str, data: Any, spread: float, seed: int = 1) -> tuple[str, ...]:
    """What lines through normal draws around the origin tell."""
    density = target_of(source, data).density
    x = spread * np.random.default_rng(seed).standard_normal((400, density.dimension))
    return endless(density, density.unconstrained_names, x, np.zeros(400)).along


@pytest.mark.parametrize("spread", [0.3, 1.0, 3.0])
@pytest.mark.parametrize(
    ("source", "data", "names"),
    [
        ("parameters { real<lower=0> s; } model { target += normal_lpdf(1 | 0, s); }", {}, ("s",)),
        ("parameters { real<lower=0> s; } model { target += -log(s); }", {}, ("s",)),
        ("parameters { real a; real b; } model { a ~ normal(0, 1); }", {}, ("b",)),
        (TWO, {}, ()),
        ("parameters { real a; real b; } model { a - 2 * b ~ normal(0, 1); }", {}, ("a", "b")),
        (SOFTMAX, {"y": [1, 3, 2]}, ("a.1", "a.2", "a.3")),
        (SOFTMAX.replace("y ~", "sum(a) ~ normal(0, 9); y ~"), {"y": [1, 3, 2]}, ()),
        (TWICE, {"N": 3, "x": [1, 2, 4], "y": [1, 3, 5]}, ("b", "c")),
        (GROUPS.replace("PRIOR", ""), GROUPED, ("mu", "a.1", "a.2", "a.3")),
        (GROUPS.replace("PRIOR", "sum(a) ~ normal(0, 0.001);"), GROUPED, ()),
        (HIERARCHY.replace("PRIOR", "target += -log(tau);"), SCHOOLS, ("tau",)),
        (HIERARCHY.replace("PRIOR", "tau ~ cauchy(0, 5);"), SCHOOLS, ()),
        (HIERARCHY.replace("PRIOR", ""), SCHOOLS, ()),
        (LINE.replace("PRIOR", ""), SEPARATED, ("b",)),
        (LINE.replace("PRIOR", "b ~ normal(0, 100);"), SEPARATED, ()),
        (LINE.replace("PRIOR", "b ~ student_t(0.5, 0, 100);"), SEPARATED, ()),
        (LINE.replace("PRIOR", ""), MIXED, ()),
        ("parameters { real x; } model { x ~ cauchy(0, 1); }", {}, ()),
        ("parameters { real x; } model { x ~ student_t(0.3, 0, 1); }", {}, ()),
        ("parameters { real<lower=0> x; } model { x ~ inv_gamma(0.01, 0.01); }", {}, ()),
        ("parameters { real<lower=0, upper=1> p; } model { p ~ beta(0.1, 0.1); }", {}, ()),
        (UNTIL.replace("END", "1000"), {}, ()),
        (UNTIL.replace("END", "2e5"), {}, ()),
        ("parameters { real x; } model { target += log_mix(0.5, normal_lpdf(x | 0, 1), "
         "normal_lpdf(x | 0, 1000)); }", {}, ()),
        (FUNNEL, {}, ()),
    ],
)  # fmt: skip
def test_lines_tell_which_integrals_have_no_end(
    source: str, data: Any, names: tuple[str, ...], spread: float
) -> None:
    assert along(source, data, spread) == names


def test_a_line_counts_only_where_its_end_has_mass() -> None:
    # The slab holds e⁻⁴⁰ of what is near the origin on each unit, and nobody would ever be there.
    source = "parameters { real x; } model { target += log_sum_exp(normal_lpdf(x | 0, 1), LEVEL); }"
    assert along(source.replace("LEVEL", "-40"), {}, 1.0) == ()
    assert along(source.replace("LEVEL", "-4"), {}, 1.0) == ("x",)


def test_many_dimensions_are_left_alone() -> None:
    density = target_of("parameters { vector[301] x; } model { }").density
    x = np.random.default_rng(1).standard_normal((20, 301))
    names = density.unconstrained_names
    assert endless(density, names, x, np.zeros(20)) == Endless()
    assert endless(density, names, x, np.full(20, -np.inf)) == Endless()


def test_a_single_point_tells_nothing() -> None:
    density = target_of("parameters { vector[2] x; } model { x ~ std_normal(); }").density
    assert endless(density, ["a", "b"], np.ones((5, 2)), np.zeros(5)) == Endless()


def test_a_few_weighty_draws_have_no_width() -> None:
    proper, flat = (
        target_of(f"parameters {{ real x; }} model {{ {prior} }}").density
        for prior in ("x ~ std_normal();", "target += 0;")
    )
    weights = np.where(np.arange(400) < 2, 0.0, -60.0)
    x = np.where(np.arange(400) < 2, 0.3, 5.0)[:, None] + 1e-9 * np.arange(400)[:, None]
    assert endless(proper, ["x"], x, weights).along == ()
    assert endless(flat, ["x"], x, weights).along == ("x",)


@LONG
@pytest.mark.parametrize("prior", ["target += -log(tau);", "tau ~ cauchy(0, 5);"])
def test_the_default_says_that_a_hierarchy_is_improper_and_stops(prior: str) -> None:
    model = stanct.temper(CENTRED.replace("PRIOR", prior))
    run: Any = model.sample(SCHOOLS, seed=1, progress=False, engine="embedded")
    improper = "log" in prior
    assert ("improper" in run.warnings) == improper
    if improper:
        assert len(run.provenance["steps"]) == 1
        (found,) = [check for check in run.diagnostics if check.name == "improper"]
        assert "Give tau a proper prior" in found.remedy
    else:
        assert run.is_reliable

"""Densities without an end are told from heavy tails, edges and slabs by lines through draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import LONG, target_of

import stanct
from stanct.common.errors import SamplingError
from stanct.runs.verdicts import failures
from stanct.samplers._beyond import endless_along
from stanct.targets.integrable import Endless, _has_no_end, endless, logarithms, logits
from stanct.targets.slices import Kinds, endless_beside_one, endless_scales
from stanct.work.ledger import Ledger

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


CONE = """
data { int n; vector[n] x; array[n] int<lower=0, upper=1> y; }
parameters { real a; real b; }
model { PRIOR y ~ bernoulli_logit(a + b * x); }
"""
APART = {"n": 12, "x": np.linspace(-1, 1, 12).tolist(), "y": [0] * 7 + [1] * 5}


@pytest.mark.parametrize("reach", [1e1, 1e3, 1e5])
@pytest.mark.parametrize("prior", ["", "a ~ normal(0, 1);", "b ~ normal(0, 1e6);",
                                   "a ~ cauchy(0, 1e3); b ~ cauchy(0, 1e3);"])  # fmt: skip
def test_rays_find_cones_that_hold_no_axis(prior: str, reach: float) -> None:
    """Complete separation between x = .09 and x = .27, where chains drift along a = −.18 b."""
    density = target_of(CONE.replace("PRIOR", prior), APART).density
    rng = np.random.default_rng(3)
    b = reach * rng.standard_normal(400) ** 2
    x = np.stack([-b * rng.uniform(0.12, 0.24, 400), b], axis=1)
    found = endless(density, density.unconstrained_names, x, np.zeros(400)).along
    assert found == {"": ("a", "b"), "a ~ normal(0, 1);": ()}.get(prior, ())


def test_pilots_on_a_wide_scale_do_not_see_its_end() -> None:
    """Draws that came a thousandth of a millionth of the way, along a line that is no axis."""
    rng = np.random.default_rng(1)
    for prior, names in (("normal(0, 1e12)", ()), ("cauchy(0, 1e12)", ()), ("", ("a", "b"))):
        said = f"a ~ {prior};" if prior else ""
        source = f"parameters {{ real a; real b; }} model {{ {said} b ~ normal(a, 1e-3); }}"
        density = target_of(source, {}).density
        a = 1e3 * rng.standard_normal(400)
        x = np.stack([a, a + 1e-3 * rng.standard_normal(400)], axis=1)
        assert endless(density, ["a", "b"], x, np.zeros(400)).along == names


@pytest.mark.parametrize(
    ("prior", "names"),
    [("z ~ normal(0, 1e12);", ()), ("z ~ normal(0, 1e30);", ()), ("z ~ cauchy(0, 1e12);", ()),
     ("z ~ normal(0, 1e12); w ~ normal(0, 1e9);", ()), ("", ("z",))],
)  # fmt: skip
@pytest.mark.parametrize("seed", range(1, 11))
def test_a_narrow_scale_beside_a_wide_one(prior: str, names: tuple[str, ...], seed: int) -> None:
    """Steps that suit the narrow one take draws along the wide one by 10⁻¹⁵ of it."""
    own = "real w;" * ("w ~" in prior)
    source = f"parameters {{ real x; real z; {own} }} model {{ x ~ normal(0, 1e-12); {prior} }}"
    density = target_of(source, {}).density
    rng = np.random.default_rng(seed)
    scales = np.array([1e-12, 1e-3, 1e-3][: density.dimension])
    x = scales * rng.standard_normal((256, density.dimension)) + [0.0, *([-0.7] * len(scales[1:]))]
    assert endless(density, density.unconstrained_names, x, np.zeros(256)).along == names


FOLLOWED = """
data { int n; vector[n] y; }
parameters { real mu; KIND[n] z; real<lower=0> tau; }
model { mu ~ normal(0, 5); PRIOR z ~ normal(CENTRE, tau); y ~ normal(mu + z, 1); }
"""


@pytest.mark.parametrize(
    ("kind", "prior", "n", "improper"),
    [
        ("sum_to_zero_vector", "tau ~ exponential(1);", 4, True),  # lacks a factor √(2π) τ
        ("sum_to_zero_vector", "tau ~ exponential(1); target += log(tau);", 4, False),
        ("sum_to_zero_vector", "tau ~ lognormal(0, 1);", 4, False),
        ("vector", "target += -log(tau);", 4, True),
        ("vector", "tau ~ exponential(1);", 4, False),
        ("vector", "tau ~ cauchy(0, 1);", 4, False),
        ("vector", "tau ~ inv_gamma(0.001, 0.001);", 4, False),
        ("vector", "tau ~ lognormal(27, 3);", 4, False),
        ("vector", "", 1, True),  # flat τ with so few groups
        ("vector", "", 4, False),
        ("vector", "target += -log(tau);", 60, True),
        ("vector", "tau ~ exponential(1);", 60, False),
    ],
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_slices_tell_of_scales_that_others_follow(
    kind: str, prior: str, n: int, improper: bool, seed: int
) -> None:
    source = FOLLOWED.replace("KIND", kind).replace("PRIOR", prior).replace("CENTRE", "0")
    density = target_of(source, {"n": n, "y": ([1.0, 2.0, 0.0, 3.0] * 15)[:n]}).density
    x = np.random.default_rng(seed).standard_normal((200, density.dimension))
    scale = density.unconstrained_names.index("tau")
    found, spent = endless_scales(density.log_density_gradients, x, [scale])
    assert found == [scale] * improper and spent < 600


@pytest.mark.parametrize(
    ("prior", "y", "improper"),
    [
        ("", [1.0, 1.0, 1.0], True),  # goes as 1 / sigma
        ("m ~ normal(0, 5);", [1.0, 1.0, 1.0, 1.0], True),
        ("", [1.0, 1.0, 1.0, 1.001], False),
        ("s ~ lognormal(-20, 2);", [1.0, 1.0, 1.0], False),
        ("s ~ inv_gamma(1, 1e-20);", [1.0, 1.0, 1.0], False),  # beyond the digits of m
    ],
)
@pytest.mark.parametrize("middle", [-24.0, -20.0, -16.0, -12.0])
def test_equal_data_leave_a_scale_without_an_end(
    prior: str, y: list[float], improper: bool, middle: float
) -> None:
    source = "data { int n; vector[n] y; } parameters { real m; real<lower=0> s; } "
    target = target_of(source + f"model {{ {prior} y ~ normal(m, s); }}", {"n": len(y), "y": y})
    for seed in range(1, 11):
        noise = np.random.default_rng(seed).standard_normal((200, 2))
        s = middle + 3 * noise[:, 1]
        x = np.column_stack([np.mean(y) + np.exp(s) * noise[:, 0], s])
        found = endless_along(target, x, np.zeros(200), Ledger(), by_gradients=True)
        assert found == ["s"] * improper


AUTOREGRESSION = """
data { int n; vector[n] y; }
parameters { real m; real<lower=-1, upper=1> phi; }
model { PRIOR y[2:n] ~ normal(MEAN, 1); }
"""


@pytest.mark.parametrize(
    ("prior", "mean", "improper"),
    [
        ("", "m + phi * (y[1:n - 1] - m)", True),  # the mass of m is 1 / (1 - phi)
        ("", "m + phi * y[1:n - 1]", False),
        ("y[1] ~ normal(m, 1 / sqrt(1 - square(phi)));", "m + phi * (y[1:n - 1] - m)", False),
        ("m ~ normal(0, 1e4);", "m + phi * (y[1:n - 1] - m)", False),
        ("m ~ cauchy(0, 1e9);", "m + phi * (y[1:n - 1] - m)", False),
        ("m ~ normal(0, 1e11);", "m + phi * (y[1:n - 1] - m)", False),
    ],
)
@pytest.mark.parametrize("seed", [4, 13])
def test_slices_tell_of_a_correlation_that_goes_to_one(
    prior: str, mean: str, improper: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    y = np.zeros(30)
    for k in range(1, 30):
        y[k] = 0.7 * y[k - 1] + rng.standard_normal()
    source = AUTOREGRESSION.replace("PRIOR", prior).replace("MEAN", mean)
    target = target_of(source, {"n": 30, "y": y})
    names = target.density.unconstrained_names
    assert (logarithms(target.program, names), logits(target.program, names)) == ([], [1])
    x = [0.0, 1.5] + 0.4 * rng.standard_normal((200, 2))
    found, spent = endless_scales(target.density.log_density_gradients, x, [], Kinds([1]))
    assert found == [1] * improper and spent < 200


@pytest.mark.parametrize("scale", [1e12, 1e20, 1e60, None])
def test_a_mean_with_a_proper_prior_ends_beyond_the_digits_of_a_correlation(
    scale: float | None,
) -> None:
    rng = np.random.default_rng(4)
    y = 1 + 0.5 * rng.standard_normal(30).cumsum()
    prior = "" if scale is None else f"m ~ normal(0, {scale});"
    source = AUTOREGRESSION.replace("PRIOR", prior)
    target = target_of(source.replace("MEAN", "m + phi * (y[1:n - 1] - m)"), {"n": 30, "y": y})
    for seed in range(1, 6):
        x = [0.0, 1.5] + 0.4 * np.random.default_rng(seed).standard_normal((200, 2))
        found = endless_along(target, x, np.zeros(200), Ledger(), by_gradients=True)
        assert found == ([] if scale else ["phi", "m"])


@pytest.mark.parametrize(
    ("prior", "mean", "along"),
    [
        ("", "m + phi * (y[1:n - 1] - m)", ["m"]),  # with phi = 1 + c / m
        ("", "m + phi * y[1:n - 1]", []),
        ("m ~ normal(0, 1e8);", "m + phi * (y[1:n - 1] - m)", []),
    ],
)
def test_what_has_no_prior_goes_far_and_others_follow(
    prior: str, mean: str, along: list[str]
) -> None:
    source = AUTOREGRESSION.replace("<lower=-1, upper=1>", "")
    source = source.replace("PRIOR", prior).replace("MEAN", mean)
    for seed in (1, 2, 3):
        rng = np.random.default_rng(seed)
        y = 1 + 0.5 * rng.standard_normal(30).cumsum()
        target, ledger = target_of(source, {"n": 30, "y": y}), Ledger()
        x = [0.5, 0.7] + 0.2 * rng.standard_normal((200, 2))
        found = endless_along(target, x, np.zeros(200), ledger, by_gradients=True)
        assert found == along and ledger.gradients < 300


@pytest.mark.parametrize("prior", ["", "m ~ normal(0, 1e6);", "m ~ cauchy(0, 1e40);"])
def test_two_coefficients_without_bounds_follow_their_mean(prior: str) -> None:
    """Given them its precision is (1 − a − b)², so that the mass of all three has no end."""
    source = """
    data { int n; vector[n] y; }
    parameters { real m; real a; real b; real<lower=0> s; }
    model {
      PRIOR s ~ exponential(1);
      y[3:n] ~ normal(m + a * (y[2:n - 1] - m) + b * (y[1:n - 2] - m), s);
    }
    """
    rng = np.random.default_rng(4)
    y = np.zeros(30)
    for k in range(1, 30):
        y[k] = 0.7 * y[k - 1] + rng.standard_normal()
    target = target_of(source.replace("PRIOR", prior), {"n": 30, "y": 1 + y})
    for seed in range(1, 6):
        noise = np.random.default_rng(seed).standard_normal((200, 4))
        x, ledger = [0.8, 0.3, 0.2, 0.05] + [0.8, 0.2, 0.2, 0.15] * noise, Ledger()
        found = endless_along(target, x, np.zeros(200), ledger, by_gradients=True)
        assert found == ([] if prior else ["m"]) and ledger.gradients < 800


@pytest.mark.parametrize(
    ("prior", "improper"),
    [("normal(0, 1e60)", False), ("cauchy(0, 1e150)", False), ("normal(c, 1)", True)],
)
def test_a_proper_prior_has_an_end_however_far(prior: str, improper: bool) -> None:
    """One that is itself around a parameter without a prior has none."""
    own = "real c;" * improper
    source = f"parameters {{ real a; real b; {own} }} model {{ a ~ {prior}; b ~ normal(a, 1); }}"
    target = target_of(source)
    for seed in range(1, 6):
        rng = np.random.default_rng(seed)
        a = 1e3 * rng.standard_normal(400)
        around = a[:, None] + rng.standard_normal((400, 2))
        x = np.column_stack([a, around])[:, : target.density.dimension]
        found = endless_along(target, x, np.zeros(400), Ledger(), by_gradients=True)
        assert bool(found) == improper


@pytest.mark.parametrize(("power", "improper"), [(1.0, True), (1.3, False), (2.0, False)])
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_tail_that_no_power_bounds(power: float, improper: bool, seed: int) -> None:
    """1 / (s (1 + log s)^power) on s > 1 has the integral of u^-power over u = 1 + log s."""
    source = "parameters { real<lower=1> s; } model { target += -log(s) - POWER * log1p(log(s)); }"
    target = target_of(source.replace("POWER", str(power)))
    u = np.random.default_rng(seed).random(400)
    x = (np.exp(u * np.log(700)) - 1 if improper else u**-2 - 1).clip(1e-3, 700)[:, None]
    found = endless_along(target, np.log(np.expm1(x)), np.zeros(400), Ledger(), by_gradients=True)
    assert found == ["s"] * improper


@pytest.mark.parametrize("middle", [-60.0, -20.0, 0.0, 20.0, 60.0])
@pytest.mark.parametrize("shape", [0.01, 0.1, 1.0])
def test_slices_of_a_logit_end_wherever_draws_are(shape: float, middle: float) -> None:
    source = "parameters { real<lower=0, upper=1> p; real b; } "
    source += f"model {{ p ~ beta({shape}, {shape}); b ~ normal(p, 1); }}"
    x = np.array([middle, 0.5]) + np.random.default_rng(1).standard_normal((200, 2))
    density = target_of(source).density
    assert endless_scales(density.log_density_gradients, x, [], Kinds([0]))[0] == []


@pytest.mark.parametrize("level", [-4, -40, -4000])
def test_a_floor_has_no_end_however_low(level: int) -> None:
    source = "parameters { real x; } model { target += log_sum_exp(normal_lpdf(x | 0, 1), LEVEL); }"
    assert along(source.replace("LEVEL", str(level)), {}, 1.0) == ("x",)


ORDINAL = """
data { int n; vector[n] x; array[n] int y; }
parameters { real b; ordered[2] c; }
model { PRIOR y ~ ordered_logistic(b * x, c); }
"""
THREE = {"n": 6, "x": [-3, -2, -0.5, 0.5, 2, 3], "y": [1, 1, 2, 2, 3, 3]}


@pytest.mark.parametrize("prior", ["", "b ~ normal(0, 1e9);", "c ~ student_t(3, 0, 1e6);"])
def test_separated_cutpoints_grow_with_the_slope(prior: str) -> None:
    """c ∈ (−2 b, −b/2), (b/2, 2 b), which is a cone of the cutpoints, and of no logarithms."""
    target = target_of(ORDINAL.replace("PRIOR", prior), THREE)
    rng = np.random.default_rng(4)
    b = 1e3 * rng.standard_normal(400) ** 2
    c = -b * rng.uniform(0.8, 1.6, 400), b * rng.uniform(0.8, 1.6, 400)
    x = np.stack([b, c[0], np.log(c[1] - c[0])], axis=1)
    density, names = target.density, target.density.unconstrained_names
    logs = logarithms(target.program, names)
    assert [names[place] for place in logs] == ["c.2"]
    found = endless(density, names, x, np.zeros(400), logs=logs)
    assert found.along == (() if prior else ("b", "c.1", "c.2"))
    assert endless(density, names, x, np.zeros(400)).along == ()  # of logarithms alone


@pytest.mark.parametrize("prior", ["", "a ~ normal(0, 1e3); b ~ cauchy(0, 1);"])
def test_a_product_is_kept_along_logarithms(prior: str) -> None:
    source = f"parameters {{ real a; real b; }} model {{ {prior} a * b ~ normal(3, 1); }}"
    rng = np.random.default_rng(5)
    a = rng.choice([-1, 1], 400) * np.exp(3 * rng.standard_normal(400))
    x = np.stack([a, (3 + rng.standard_normal(400)) / a], axis=1)
    density = target_of(source, {}).density
    assert endless(density, ["a", "b"], x, np.zeros(400)).along == (() if prior else ("a", "b"))


@pytest.mark.parametrize("prior", ["", "b ~ normal(0, 1e6);"])
def test_separation_in_part_is_flat_far_away(prior: str) -> None:
    """At x = 1 all are events, so that a + b has no end, and a − b is that of the others."""
    data = {"n": 6, "x": [-1, -1, -1, 1, 1, 1], "y": [0, 1, 0, 1, 1, 1]}
    density = target_of(CONE.replace("PRIOR", prior), data).density
    rng = np.random.default_rng(6)
    total, gap = 3e3 * rng.random(400), rng.standard_normal(400)
    x = np.stack([total + gap, total - gap], axis=1) / 2
    found = endless(density, ["a", "b"], x, np.zeros(400)).along
    assert found == (() if prior else ("a", "b"))


def test_draws_may_be_where_numbers_end() -> None:
    """Half of them lie where the next step overflows, as those of an empty component."""
    flat, wide = (
        target_of(f"parameters {{ real<lower=0> s; }} model {{ {prior} }}").density
        for prior in ("target += 0;", "s ~ lognormal(650, 10);")
    )
    rng = np.random.default_rng(7)
    x = 709.78 - np.abs(np.where(np.arange(400) % 50 == 0, 300.0, 1e-3 * rng.random(400)))[:, None]
    weights = np.where(x[:, 0] > 700, 0.0, -5.0)
    assert endless(flat, ["s"], x, weights).along == ("s",)
    assert not endless(wide, ["s"], 650 + 10 * rng.standard_normal((400, 1)), np.zeros(400)).along


@pytest.mark.parametrize(
    "prior",
    ["beta(0.001, 0.001)", "gamma(0.001, 0.001)", "inv_gamma(0.001, 0.001)", "uniform(0, 1e20)"],
)
def test_priors_over_all_numbers_have_an_end(prior: str) -> None:
    ends = "<lower=0, upper=1>" if "beta" in prior else "<lower=0>"
    source = f"parameters {{ real{ends} p; }} model {{ p ~ {prior}; }}"
    density = target_of(source).density
    for scale in (10, 100, 250):
        x = scale * np.random.default_rng(8).uniform(-2.5, 2.5, (400, 1))
        weights = density.log_densities(x)
        assert endless(density, ["p"], x, weights).along == ()


@pytest.mark.parametrize("prior", ["gamma(0.001, 0.001)", "inv_gamma(0.001, 0.001)",
                                   "weibull(0.01, 1)", "lognormal(0, 100)"])  # fmt: skip
def test_slices_reach_the_end_of_slow_priors(prior: str) -> None:
    """Where draws lie, their mass changes by a thousandth from one logarithm to the next."""
    density = target_of(
        f"parameters {{ real<lower=0> p; real b; }} model {{ p ~ {prior}; b ~ normal(0, 1); }}"
    ).density
    places = np.array([[-320.0, 0.0], [-60.0, 0.0], [60.0, 0.0], [320.0, 0.0]])
    for middle in places[density.log_densities(places) > -10]:
        x = np.random.default_rng(1).standard_normal((200, 2)) + middle
        assert endless_scales(density.log_density_gradients, x, [0])[0] == []


def test_a_density_without_digits_tells_nothing() -> None:
    """From a point where it is −10²³ a line leads on, and no fall is seen beside that number."""
    density = target_of(
        "parameters { real<lower=0, upper=1> p; real b; } model { 1e11 ~ normal(b, 0.5); }"
    ).density
    x = np.random.default_rng(1).standard_normal((400, 2))
    assert endless(density, ["p", "b"], x, np.zeros(400)).along == ()


@pytest.mark.parametrize("seed", range(1, 11))
@pytest.mark.parametrize("prior", ["gamma(0.001, 0.001)", "inv_gamma(0.001, 0.001)"])
def test_a_slope_of_a_gaussian_is_no_tail(prior: str, seed: int) -> None:
    """Rays to far draws move b too, and reach the end of numbers where its density still rises."""
    source = f"parameters {{ real<lower=0> p; real b; }} model {{ p ~ {prior}; b ~ normal(0, 1); }}"
    density = target_of(source).density
    rng = np.random.default_rng(seed)
    sign = -1.0 if prior.startswith("gamma") else 1.0
    x = np.stack([sign * rng.uniform(20, 700, 400), rng.standard_normal(400)], axis=1)
    weights = density.log_densities(x)
    assert endless(density, ["p", "b"], x, weights, logs=[0]).along == ()


@pytest.mark.parametrize("seed", range(1, 11))
def test_one_precision_falls_while_another_still_rises(seed: int) -> None:
    """A line along both ends with the numbers of one of them, and the other has some left."""
    density = target_of(
        "parameters { vector<lower=0>[2] p; real b; } "
        "model { p ~ gamma(0.001, 0.001); b ~ normal(0, 1); }"
    ).density
    rng = np.random.default_rng(seed)
    x = np.column_stack([-rng.uniform(20, 700, (400, 2)), rng.standard_normal(400)])
    weights = density.log_densities(x)
    assert endless(density, ["p.1", "p.2", "b"], x, weights, logs=[0, 1]).along == ()


@pytest.mark.parametrize("prior", ["", "nu ~ gamma(2, 0.1);", "nu ~ lognormal(30, 3);"])
def test_what_rises_until_its_digits_are_lost_has_no_end(prior: str) -> None:
    """Student's t with 10^14 degrees of freedom, whose density is noise there."""
    source = f"""
    data {{ int n; vector[n] y; }} parameters {{ real m; real<lower=0> nu; }}
    model {{ m ~ normal(0, 1); {prior} y ~ student_t(nu, m, 1); }}
    """
    y = np.random.default_rng(1).standard_normal(30).round(2)
    density = target_of(source, {"n": 30, "y": y.tolist()}).density
    nu = np.linspace(33.5, 34.5, 2001)
    noisy = density.log_densities(np.stack([np.zeros_like(nu), nu], axis=1))
    x = np.array([[0.0, nu[np.argmax(noisy)]]] * 3)
    found = endless(density, ["m", "nu"], x, np.zeros(3), logs=[1]).along
    assert found == (() if prior else ("nu",))


FACTOR = """
data { int n; matrix[n, 3] y; }
parameters { vector[3] l; vector[n] f; vector<lower=0>[3] s; }
model {
  l ~ normal(0, 1); f ~ normal(0, 1); PRIOR
  for (j in 1:3) y[:, j] ~ normal(l[j] * f, s[j]);
}
"""


@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("prior", ["target += -sum(log(s));", "s ~ exponential(1);",
                                   "s ~ inv_gamma(0.001, 0.001);"])  # fmt: skip
def test_a_variance_that_goes_to_zero_is_told_by_the_factors_that_follow(
    prior: str, seed: int
) -> None:
    """A Heywood case: as s[j] → 0, f follows y[:, j] / l[j] for every l[j]."""
    rng = np.random.default_rng(seed)
    f = rng.standard_normal(12)
    y = np.outer(f, [1.0, 0.8, 1.2]) + 0.5 * rng.standard_normal((12, 3))
    density = target_of(FACTOR.replace("PRIOR", prior), {"n": 12, "y": y.tolist()}).density
    x = np.concatenate(
        [
            np.full((200, 3), 1.0) + 0.2 * rng.standard_normal((200, 3)),
            f + 0.3 * rng.standard_normal((200, 12)),
            -0.7 + 0.3 * rng.standard_normal((200, 3)),
        ],
        axis=1,
    )
    vectors = [range(3), range(3, 15), range(15, 18)]
    found, spent = endless_beside_one(density.log_density_gradients, x, [15, 16, 17], vectors)
    assert bool(found) == ("log" in prior) and spent < 600
    assert endless_scales(density.log_density_gradients, x, [15, 16, 17])[0] == []


@pytest.mark.parametrize(("end", "looks"), [(200.0, 1), (709.9, 30)])
def test_an_end_of_the_support_is_not_looked_for(end: float, looks: int) -> None:
    """Where no number ends, it is none of a number's. There an equation may take long to solve."""
    asked = list[int]()

    def rises(x: np.ndarray) -> np.ndarray:
        asked.append(len(x))
        return np.where(x[:, 0] < end, x[:, 0], -np.inf)

    found = _has_no_end(rises, np.zeros(1), np.ones(1))
    assert (len(asked) >= looks) and found == (looks > 1) and (looks > 1 or len(asked) == 1)


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


@pytest.mark.usefixtures("words_alone")
@LONG
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_default_names_separation_and_asks_for_priors_alone(seed: int) -> None:
    """It lies in a cone that holds no axis, 0.089 < a / b < 0.218."""
    x = [-1.363, -1.036, -0.533, -0.518, -0.218, -0.089, 0.344, 0.774, 0.808, 1.082]
    data = {"n": 10, "x": x, "y": [0] * 5 + [1] * 5}
    model = stanct.temper(CONE.replace("PRIOR", ""))
    run: Any = model.sample(data, seed=seed, progress=False, engine="embedded")
    assert run.warnings == ("proper_prior", "improper") and run.gradients < 3e6
    proper, improper = failures(run.diagnostics)
    assert improper.message.startswith("The density does not fall off along a, b,")
    assert proper.remedy == improper.remedy == "Give `a`, `b` a proper prior."
    page = str(run.report())
    assert "log Z does not exist" in page and "Posterior summary" not in page
    assert "longer chains" not in page


FLAT = "parameters { vector[3] b; vector[COUNT] f; } model { b ~ std_normal(); }"
TURNED = """
data { vector[6] w; }
parameters { vector[6] b; }
model { b - w * dot_product(w, b) ~ std_normal(); }
"""
WEIGHTS = {"w": (np.array([1, -2, 3, 1, 5, -3]) / 7).tolist()}


@pytest.mark.parametrize(
    ("source", "data"),
    [
        (FLAT.replace("COUNT", "5"), {}),
        pytest.param(FLAT.replace("COUNT", "50"), {}, marks=LONG),
    ],
)
def test_flat_directions_are_told_before_chains_are_lost_on_them(source: str, data: Any) -> None:
    run: Any = stanct.temper(source).sample(data, seed=1, progress=False, engine="embedded")
    assert "improper" in run.warnings and run.gradients < 500_000


@LONG
def test_a_flat_direction_that_is_no_axis_is_told_even_where_no_base_fits() -> None:
    with pytest.raises(SamplingError, match=r"does not fall off along b\[1\].* has no end"):
        stanct.temper(TURNED).sample(WEIGHTS, seed=1, progress=False, engine="embedded")


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
        assert "Give `tau` a proper prior" in found.remedy
    else:
        assert run.verdict.for_draws  # the half prior puts the evidence alone in doubt

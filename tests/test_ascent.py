"""Compiled ascents: their ends beside SciPy's, their steps, and how they go on."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import ROOT, target_of
from scipy.optimize import minimize
from scipy.stats import ortho_group

from stanct import temper
from stanct.bases.ascents import Counted
from stanct.bases.search import RADII
from stanct.kernels import SIGNATURE
from stanct.kernels.ascent import MEMORY, SPENT, VALUE, Hill, Z, ascend, make_ascent
from stanct.targets.function_target import FunctionDensity
from stanct.targets.protocols import SampledDensity

STAR = """
data { int n; vector[n] y; }
parameters { real mu; real<lower=0> sigma; }
model { mu ~ normal(0, 1); sigma ~ exponential(1); y ~ normal(mu, sigma); }
"""
COUPLED = """
data { int n; array[n] int y; }
parameters { real a; real<lower=0> b; vector[n] x; }
model { a ~ normal(0, 2); b ~ gamma(2, 1); x ~ normal(0, 1); y ~ poisson_log(a + b * x); }
"""
SKEWED = """
parameters { vector[6] x; real<lower=0, upper=1> p; simplex[4] s; }
model { p ~ beta(3, 9); s ~ dirichlet([2, 3, 4, 5]'); x ~ student_t(4, 3, 2); target += -exp(x); }
"""


def schools() -> SampledDensity:
    folder = ROOT / "examples" / "eight_schools"
    return temper(folder / "non_centred.stan").target(folder / "eight_schools.data.json").density


PROGRAMS: dict[str, Callable[[], SampledDensity]] = {
    "star": lambda: target_of(STAR, {"n": 5, "y": [0.3, -0.2, 1.1, 0.5, -0.9]}).density,
    "schools": schools,
    "coupled": lambda: target_of(COUPLED, {"n": 9, "y": [2, 0, 1, 5, 3, 0, 0, 1, 9]}).density,
    "skewed": lambda: target_of(SKEWED).density,
}


def scipys(density: SampledDensity, start: np.ndarray) -> float:
    """The log density where SciPy's L-BFGS-B ends, with the same limits."""

    def fall(x: np.ndarray) -> tuple[float, np.ndarray]:
        values, slopes = density.log_density_gradients(x[None])
        return (-values[0], -slopes[0]) if np.isfinite(values[0]) else (1e300, -slopes[0])

    limits = {"maxiter": 500, "maxfun": 500, "ftol": 1e-10, "gtol": 1e-5}
    return -float(minimize(fall, start, jac=True, method="L-BFGS-B", options=limits).fun)


@pytest.mark.parametrize("name", PROGRAMS)
def test_ends_are_as_good_as_scipys(name: str) -> None:
    """From all radii, as many ascents end within .01 nats of the best."""
    density = PROGRAMS[name]()
    rng = np.random.default_rng(8)
    radii = np.resize(RADII, 100)[:, None]
    starts = radii * rng.uniform(-1, 1, (100, density.dimension))
    starts = starts[np.isfinite(density.log_densities(starts))]
    assert len(starts) > 60
    counted, root = Counted(density), np.ones((1, density.dimension))
    ours = np.array([counted.ascended(start, root)[1] for start in starts])
    theirs = np.array([scipys(density, start) for start in starts])
    best = max(ours.max(), theirs.max())
    assert np.sum(ours > best - 0.01) >= max(np.sum(theirs > best - 0.01), 0.9 * len(starts))
    assert counted.spent < 100 * len(starts)


@pytest.mark.parametrize("name", PROGRAMS)
def test_steps_that_were_far_too_short_are_followed_by_long_ones(name: str) -> None:
    """Hardly an ascent ends on a slope, where a memory of steeper ones makes its steps tiny."""
    density = PROGRAMS[name]()
    counted, root = Counted(density), np.ones((1, density.dimension))
    uniform = np.random.default_rng(3).uniform(-1, 1, (1000, density.dimension))
    starts = np.resize(RADII, 1000)[:, None] * uniform
    starts = starts[np.isfinite(density.log_densities(starts))]
    ends = np.array([counted.ascended(start, root)[1] for start in starts])
    assert np.mean(ends > ends.max() - 0.01) > 0.98
    assert ends.max() == pytest.approx(scipys(density, np.zeros(density.dimension)), abs=1e-6)


def gaussian(precision: np.ndarray) -> FunctionDensity:
    return FunctionDensity(
        lambda x: (float(-0.5 * x @ precision @ x), -precision @ x), len(precision)
    )


def test_a_root_makes_ascents_short(rng: np.random.Generator) -> None:
    """In the coordinates of its own covariance, any Gaussian is round."""
    axes = ortho_group.rvs(20, random_state=rng)
    density = gaussian(axes @ np.diag(np.logspace(-3, 3, 20)) @ axes.T)
    covariance = axes @ np.diag(np.logspace(3, -3, 20)) @ axes.T
    spent = []
    for root in (np.ones((1, 20)), np.linalg.cholesky(covariance)):
        counted = Counted(density)
        place, value = counted.ascended(rng.uniform(-5, 5, 20), root)
        spent.append(counted.spent)
    assert value == pytest.approx(0, abs=1e-8) and place == pytest.approx(0, abs=0.02)
    assert spent[1] <= 12 < spent[0]
    diagonal = gaussian(np.diag(np.logspace(-3, 3, 20)))
    counted = Counted(diagonal)
    counted.ascended(rng.uniform(-5, 5, 20), np.logspace(1.5, -1.5, 20)[None])
    assert counted.spent <= 12


def test_an_ascent_goes_on_where_it_stopped() -> None:
    """One gradient at a time takes the same way as all at once, to the last bit."""
    density = PROGRAMS["coupled"]()
    start, root = np.full(density.dimension, 3.0), np.ones((1, density.dimension))
    hill = Hill(SIGNATURE(density.address), density.handle, start, root, np.inf)
    vectors, numbers = make_ascent(density.dimension)
    assert ascend(hill, vectors, numbers, 500)
    again, also = make_ascent(density.dimension)
    parts = 1
    while not ascend(hill, again, also, 1):
        parts += 1
    assert parts == numbers[SPENT] == also[SPENT] > MEMORY
    assert np.array_equal(vectors[Z], again[Z]) and numbers[VALUE] == also[VALUE]


@pytest.mark.parametrize("value", [-np.inf, np.nan, np.inf])
def test_a_start_outside_of_the_support_ends_at_once(value: float) -> None:
    density = FunctionDensity(lambda x: (value, np.zeros(3)), 3)
    counted = Counted(density)
    place, found = counted.ascended(np.ones(3), np.ones((1, 3)))
    assert found == -np.inf and np.array_equal(place, np.ones(3)) and counted.spent == 1


def test_holes_and_slopes_without_end_do_not_trap_it() -> None:
    """Steps into a hole are shortened; huge slopes overflow nowhere; no step is out of reach."""

    def holed(x: np.ndarray) -> tuple[float, np.ndarray]:
        return (-np.inf, x) if 2 < x[0] < 4 else (-0.5 * float(x @ x), -x)

    place, value = Counted(FunctionDensity(holed, 2)).ascended(np.ones(2), np.ones((1, 2)))
    assert value == pytest.approx(0, abs=1e-8) and place == pytest.approx(0, abs=1e-4)
    steep = FunctionDensity(lambda x: (-1e200 * abs(float(x[0])), -1e200 * np.sign(x)), 1)
    assert np.isfinite(Counted(steep).ascended(np.array([50.0]), np.ones((1, 1)))[1])
    asked: list[np.ndarray] = []

    def noted(x: np.ndarray) -> tuple[float, np.ndarray]:
        asked.append(x)
        return -float(np.cosh(x / 9).sum()), -np.sinh(x / 9) / 9

    Counted(FunctionDensity(noted, 2), reach=1.5).ascended(np.full(2, 90.0), np.ones((1, 2)))
    steps = np.abs(np.diff(asked, axis=0)).max(axis=1)
    assert steps.max() <= 1.5 + 1e-12 and np.abs(asked[-1]).max() < 1e-3

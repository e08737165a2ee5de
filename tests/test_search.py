"""The search for modes, on densities whose modes are known."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from boltzmann_machine import BoltzmannMachine
from conftest import LONG, ROOT, Scanned, target_of
from scipy.stats import gamma, ortho_group
from targets import TWO_MODES

from stanct import sample, temper
from stanct.bases.ascents import MOST_GRADIENTS, MOST_STEPS, Counted, Optimum
from stanct.bases.fits import fit_base
from stanct.bases.known import Optima
from stanct.bases.local import (
    LocalFit,
    distinct_modes,
    explains,
    is_flat,
    laplace_fit,
    unit_wide,
)
from stanct.bases.particles import wide_of, with_ends_of
from stanct.bases.pilots import measured
from stanct.bases.scans import _toward, scanned
from stanct.bases.scouts import annealed_scouts
from stanct.bases.search import (
    AGAIN,
    BATCH,
    FEW,
    FEWEST_TO_TELL,
    MOST_DIMENSIONS,
    Search,
    _stays_large,
    search,
)
from stanct.bases.surroundings import surroundings
from stanct.common.arrays import Array
from stanct.engines.embedded import Nuts
from stanct.path.mixture import MixtureBase
from stanct.runs.diagnostics import FOUND_AGAIN
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.surveyed import surveyed_checks
from stanct.targets.density import Density
from stanct.targets.function_target import FunctionDensity
from stanct.targets.program_target import ProgramTarget
from stanct.work.interrupts import heard

Gradient = Callable[[np.ndarray], tuple[float, np.ndarray]]


def test_ascents_of_scans_are_not_counted() -> None:
    """Draws in heavy tails lead to the mode again; optima count the search's own ascents."""
    target = target_of("parameters { vector[4] x; } model { x ~ student_t(3, 0, 1); }")
    found = search(target.density, np.random.SeedSequence(1))
    optima = Optima.of(found.optima)
    assert optima is not None and optima.seen.tolist() == [found.ascents]
    assert found.optima[0].seen > found.ascents


def mixture(weights: np.ndarray, places: np.ndarray, scales: np.ndarray) -> Gradient:
    """Log density and gradient of a mixture of round Gaussians."""
    dimension = places.shape[1]

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        offset = x - places
        terms = np.log(weights) - 0.5 * np.square(offset / scales[:, None]).sum(axis=1)
        terms = terms - dimension * np.log(scales) - 0.5 * dimension * np.log(2 * np.pi)
        top = terms.max()
        share = np.exp(terms - top)
        value = top + np.log(share.sum())
        share /= share.sum()
        return float(value), -(share / scales**2) @ offset

    return at


def found_in(
    gradient: Gradient, dimension: int, seed: np.random.SeedSequence, **given: Any
) -> Search:
    """What ascents find, without a scan."""
    return search(FunctionDensity(gradient, dimension), seed, scan=False, **given)


def seeds(seed: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(seed)


@pytest.mark.parametrize("centre", [0.0, 100.0, 1000.0])
def test_a_mode_thirty_deviations_from_another(centre: float, seed: int) -> None:
    """The heavy mode is the far one, and the origin may be far from both."""
    places = np.full((2, 2), centre)
    places[1, 0] += 30
    weights = np.array([0.1, 0.9])
    found = found_in(mixture(weights, places, np.ones(2)), 2, seeds(seed))
    assert [fit.mean for fit in found.fits] == [
        pytest.approx(places[1], abs=1e-4),
        pytest.approx(places[0], abs=1e-4),
    ]
    assert np.exp([fit.log_evidence for fit in found.fits]) == pytest.approx(weights[::-1])
    assert found.unseen == 0 and found.radius == 100 and not found.astray


def test_narrow_modes_among_wide_ones(seed: int) -> None:
    """In six dimensions a mode of half the width has a small basin; one of ten may be missed."""
    missing = [missing_mass(seed, repeat) for repeat in range(10)]
    assert sum(mass > 0.01 for mass in missing) <= 1


def missing_mass(seed: int, repeat: int) -> float:
    """The mass of a random mixture that a search does not find."""
    rng = np.random.default_rng([seed, repeat])
    dimension, count = int(rng.integers(2, 7)), int(rng.integers(2, 6))
    weights, scales = rng.dirichlet(2 * np.ones(count)), rng.uniform(0.6, 1.6, count)
    while True:
        places = 5 * rng.normal(size=(count, dimension))
        apart = np.linalg.norm(places[:, None] - places, axis=2) + 99 * np.eye(count)
        if apart.min() > 6:  # otherwise two parts may make one mode
            break
    found = found_in(mixture(weights, places, scales), dimension, seeds(seed))
    assert len(found.fits) <= count
    return float(1 - np.exp(np.logaddexp.reduce([fit.log_evidence for fit in found.fits])))


def test_a_scan_finds_the_spike_inside_a_wide_mode(seed: int) -> None:
    """No ascent ends in it: from outside of its basin, slopes lead to the wide mode's centre."""
    source = """
    parameters { vector[6] x; }
    model {
      target += log_mix(0.5, normal_lpdf(x | [-1, -1, -1, 0, -1, -2]', 0.26),
                        normal_lpdf(x | 0, 1.5));
    }
    """
    density = target_of(source).density
    found = [search(density, np.random.SeedSequence(seed), scan=scan) for scan in (False, True)]
    assert [len(one.fits) for one in found] == [1, 2]
    assert 150_000 <= found[1].evaluations <= 300_000
    assert found[1].gradients > found[0].gradients
    assert found[1].fits[0].log_evidence == pytest.approx(np.log(0.5), abs=0.1)


def test_a_scan_finds_narrower_modes_in_many_dimensions(seed: int) -> None:
    """From afar all slopes lead to the widest mode, although it has a tenth of the mass."""
    dimension = 14
    places = np.zeros((2, dimension))
    places[1, :2] = 3.0
    weights, scales = np.array([0.1, 0.9]), np.array([1.0, 0.7])
    at = mixture(weights, places, scales)

    def log_densities(x: np.ndarray) -> np.ndarray:
        squares = np.square((x[:, None] - places) / scales[:, None]).sum(axis=2)
        terms = np.log(weights) - 0.5 * squares - dimension * np.log(scales)
        return np.logaddexp(*terms.T) - 0.5 * dimension * np.log(2 * np.pi)

    without, found = (
        search(Scanned(at, log_densities, dimension), seeds(seed), scan=scan)
        for scan in (False, True)
    )
    assert [len(one.fits) for one in (without, found)] == [1, 2]
    assert np.exp([fit.log_evidence for fit in found.fits]) == pytest.approx([0.9, 0.1], abs=0.02)
    assert found.gradients < 2000


def test_curvature_is_exact_however_ill_conditioned(seed: int) -> None:
    """And ascents after the first are short, because they step in its coordinates."""
    rng = np.random.default_rng(seed)
    dimension = 60
    axes = ortho_group.rvs(dimension, random_state=rng)
    precision = axes @ np.diag(np.logspace(-3, 3, dimension)) @ axes.T
    place = rng.normal(size=dimension)

    def at(x: np.ndarray) -> tuple[float, np.ndarray]:
        slope = -precision @ (x - place)
        return float(0.5 * slope @ (x - place)), slope

    found = found_in(at, dimension, seeds(seed))
    exact = 0.5 * (dimension * np.log(2 * np.pi) - np.linalg.slogdet(precision)[1])
    assert len(found.fits) == 1
    assert found.fits[0].log_evidence == pytest.approx(exact, abs=1e-6)
    assert found.gradients < 6000


def test_a_search_without_an_end_of_modes_is_given_up(seed: int) -> None:
    """A Boltzmann machine has thousands; what a hundred ascents saw of it is kept."""
    machine = BoltzmannMachine.random(28, np.random.default_rng(2), scale=6.0)
    found = found_in(machine.log_density_gradient, machine.dimension, seeds(seed))
    assert FEWEST_TO_TELL <= found.ascents < FEWEST_TO_TELL + 4 * BATCH
    assert found.gradients < 0.5 * MOST_GRADIENTS
    assert found.unseen > 0.5 and found.ends > 60 and len(found.fits) <= found.ends


@pytest.mark.parametrize(
    ("unseen", "ascents", "times", "endless"),
    [(1.0, 100, 10, True), (0.9, 120, 10, True), (0.75, 120, 10, False), (0.75, 120, 4, True),
     (0.3, 600, 2, True), (0.1, 600, 2, False), (0.0, 100, 2, False)],
)  # fmt: skip
def test_how_many_modes_more_ascents_would_leave(
    unseen: float, ascents: int, times: float, endless: bool
) -> None:
    """Where K modes are alike, (1 − 1/K)ⁿ of the ascents end at a new one: nothing falls faster."""
    assert _stays_large(unseen, ascents, times) == endless


@LONG
def test_a_search_that_finds_ever_new_modes_says_so(seed: int) -> None:
    """A comb in the plane has more modes within reach than ascents."""

    def comb(x: np.ndarray) -> tuple[float, np.ndarray]:
        value = 2 * np.cos(20 * x).sum() - 5e-5 * x @ x
        return float(value), -40 * np.sin(20 * x) - 1e-4 * x

    found = found_in(comb, 2, seeds(seed))
    assert found.unseen > 0.3
    assert found.gradients <= MOST_GRADIENTS + 1000


def test_ascents_into_a_spike_go_astray(seed: int) -> None:
    """The density of a funnel has no maximum, and a mode is only where there is one."""

    def funnel(w: np.ndarray) -> tuple[float, np.ndarray]:
        v, x = w[0], w[1:]
        scale = np.exp(np.minimum(-v, 300))
        square = float(x @ x) * scale
        value = -(v**2) / 18 - 0.5 * x.size * v - 0.5 * square
        slope = np.concatenate([[-v / 9 - 0.5 * x.size + 0.5 * square], -scale * x])
        return value, slope

    found = found_in(funnel, 10, seeds(seed))
    assert found.fits and all(fit.mean[0] < -30 for fit in found.fits)


def test_bounds_and_hints(seed: int) -> None:
    """Starts outside of the support move in; a radius limits the search; places extend it."""

    def cut(x: np.ndarray) -> tuple[float, np.ndarray]:
        if np.abs(x).max() > 3:
            return -np.inf, 0 * x
        return float(-0.5 * x @ x), -x

    found = found_in(cut, 2, seeds(seed))
    assert len(found.fits) == 1 and found.ascents > 600
    far = mixture(np.array([0.5, 0.5]), np.array([[0.0] * 8, [900.0] * 8]), np.ones(2))
    assert len(found_in(far, 8, seeds(seed), radius=3.0).fits) == 1
    told = found_in(far, 8, seeds(seed), radius=3.0, places=[np.full(8, 890.0)])
    assert len(told.fits) == 2 and told.radius == 3.0
    nothing = found_in(cut, MOST_DIMENSIONS + 1, seeds(seed))
    assert nothing.fits == () and nothing.unseen == 1 and nothing.gradients == 0


NORMAL = "parameters { vector[3] x; } model { target += normal_lpdf(x | 2, 3); }"
# A spike with a hundredth of the mass sits on a bulk of the same centre.
SPIKE = """parameters { vector[4] x; }
model { target += log_mix(0.01, normal_lpdf(x | 0, 0.05), normal_lpdf(x | 0, 1)); }"""


def laplace(program: str, seed: int) -> tuple[LocalFit, ProgramTarget]:
    target = target_of(program)
    density = target.density
    fits = search(density, seeds(seed), scan=False).fits
    assert len(fits) == 1
    return fits[0], target


def test_particles_measure_a_mode_that_is_gaussian(seed: int) -> None:
    fit, target = laplace(NORMAL, seed)
    found = measured(target, fit, seeds(seed), threads=1)
    assert found.fit is not None and found.strays is None and found.gradients > 0
    assert found.fit.log_evidence == pytest.approx(0, abs=1e-5)
    assert found.fit.points.mean() == pytest.approx(2, abs=1)


def test_a_skewed_mode_is_left_to_pilots(seed: int) -> None:
    """Half the width of δ over draws of its Laplace approximation is 1.4 nats, above `FITS`."""
    skewed = "parameters { vector[2] x; } model { target += sum(x) * 0.3 - sum(exp(x)); }"
    fit, target = laplace(skewed, seed)
    found = measured(target, fit, seeds(seed), threads=1)
    assert found.fit is None and found.strays is None


def test_the_bulk_around_a_spike_is_fitted(seed: int) -> None:
    """Draws of the spike's own Gaussian look right; only wide ones can tell."""
    fit, target = laplace(SPIKE, seed)
    assert fit.covariance[0, 0] < 0.01
    found = measured(target, fit, seeds(seed), threads=1)
    assert found.fit is not None and found.around is not None and found.strays is None
    assert found.fit.log_evidence == pytest.approx(np.log(0.01), abs=0.02)
    assert found.around.log_evidence == pytest.approx(np.log(0.99), abs=0.2)
    assert np.diag(found.around.covariance) == pytest.approx(1, rel=0.3)
    assert found.around.around and not found.fit.around
    base = fit_base(target, "modes", chains=4, seed=seeds(seed), nuts=Nuts())
    assert np.diag(base.base.covariance) == pytest.approx(1, rel=0.5)


def test_a_bulk_that_no_gaussian_holds_leaves_strays(seed: int) -> None:
    """Four bulks around a spike, far from each other."""
    program = """parameters { vector[2] x; }
    model { target += log_sum_exp({normal_lpdf(x | 0, .02) - 4,
      normal_lpdf(x[1] | 1, .1) + normal_lpdf(x[2] | 0, .02),
      normal_lpdf(x[1] | -1, .1) + normal_lpdf(x[2] | 0, .02),
      normal_lpdf(x[2] | 1, .1) + normal_lpdf(x[1] | 0, .02),
      normal_lpdf(x[2] | -1, .1) + normal_lpdf(x[1] | 0, .02)}); }"""
    target = target_of(program)
    fit = laplace_fit(np.zeros(2), np.log(1 / (2 * np.pi * 4e-4)) - 4, np.eye(2) / 4e-4,
                      np.random.default_rng(seed))  # fmt: skip
    looked = [
        surroundings(target.density.log_densities, fit, [fit], np.random.default_rng([seed, k]))
        for k in range(5)
    ]
    assert all(one.fit is None for one in looked) and any(len(one.strays) for one in looked)


def test_surroundings_whose_covariance_no_double_holds_end_no_run(seed: int) -> None:
    """Rounds of draws of a slow prior run away; the exact log Z is an integral over one scale."""
    y, s = np.array([28.0, 8, -3, 7, -1, 1, 18, 12]), np.array([15.0, 10, 16, 11, 9, 11, 10, 18])
    model = temper("""data { vector[8] y; vector[8] s; }
    parameters { real mu; real<lower=0> p; vector[8] theta; }
    model { mu ~ normal(0, 20); p ~ gamma(0.001, 0.001); theta ~ normal(mu, inv_sqrt(p));
      y ~ normal(theta, s); }""")  # fmt: skip
    runs = [model.sample({"y": y, "s": s}, seed=one, progress=False) for one in (seed, 1, 3, 5)]
    x = np.linspace(-60, 12, 40_001)
    spread = s**2 + np.exp(-x)[:, None]
    apart, one = np.sum(y / spread, axis=1), 1 + 400 * np.sum(1 / spread, axis=1)
    log_p = gamma.logpdf(np.exp(x), 0.001, scale=1000) + x - 4 * np.log(2 * np.pi)
    log_p -= 0.5 * (np.log(spread).sum(axis=1) + np.log(one) + np.sum(y**2 / spread, axis=1))
    log_p += 200 * apart**2 / one
    exact = float(np.logaddexp.reduce(log_p) + np.log(x[1] - x[0]))
    for found in (run.evidence for run in runs):
        assert found.log_z == pytest.approx(exact, abs=4 * found.std_error)
        assert found.std_error < 0.03


@pytest.mark.parametrize("name", ["spike_beside", "spike_within"])
def test_both_spikes_of_skilling(name: str, seed: int) -> None:
    """In twenty dimensions, a plateau holds 1 of 101, and the spike may lie beside its centre."""
    shift = 0.031 if name == "spike_beside" else 0.0
    program = """data { real shift; }
    parameters { vector<lower=-0.5, upper=0.5>[20] x; }
    model {
      x ~ uniform(-0.5, 0.5);
      target += log_sum_exp(log(100) + normal_lpdf(x | shift, 0.01), normal_lpdf(x | 0, 0.1));
    }"""
    run = sample(target_of(program, {"shift": shift}), seed=seed, progress=False)
    assert isinstance(run, EvidenceRun)
    assert run.evidence.log_z == pytest.approx(np.log(101), abs=4.5 * run.evidence.std_error)
    assert run.evidence.std_error < 0.03


# A period over two decades has a peak for each whole number of turns between observations. The
# best of them is 60 nats above the others, and few ascents end there.
@pytest.mark.parametrize("star", [1, pytest.param(6, marks=LONG), pytest.param(7, marks=LONG)])
def test_the_period_of_an_orbit_is_found(star: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "calibration")
        exact = importlib.import_module("families").drawn("orbit", star)
    run = sample(target_of(exact.stan, dict(exact.data)), seed=star, progress=False)
    assert isinstance(run, EvidenceRun) and not run.warnings
    assert run.evidence.log_z == pytest.approx(exact.log_z, abs=4.5 * run.evidence.std_error)
    assert run.evidence.std_error < 0.03
    survey = run.provenance["survey"]
    assert survey["unseen_of_any"] > 0.02 and survey["starts"] > 300


# Two planets and seven or eight instruments: without a further search the best pair of periods was
# missed by 57 and by 125 nats.
@pytest.mark.parametrize("star", [22, pytest.param(28, marks=LONG)])
def test_periods_are_found_in_more_than_a_dozen_dimensions(star: int, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "calibration")
        exact = importlib.import_module("families").drawn("orbit_pair", star)
    target = target_of(exact.stan, dict(exact.data))
    found = search(target.density, seeds(seed), scan=False)
    assert target.density.dimension == 14 and found.again is not None
    assert found.again >= AGAIN
    masses = [fit.log_evidence for fit in found.fits]
    assert np.logaddexp.reduce(masses) == pytest.approx(exact.log_z, abs=0.5)


def test_a_best_mode_that_was_hardly_found_again_fails_the_check(seed: int) -> None:
    """With a hundredth of the purse, a search among a hundred peaks is not settled."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "examples" / "calibration")
        exact = importlib.import_module("families").drawn("orbit", 10)
    target = target_of(exact.stan, dict(exact.data))
    found = search(target.density, seeds(seed), effort=0.2, most_rough=0)
    assert found.again is not None and found.unseen > 0.05
    assert FOUND_AGAIN == AGAIN
    few = {"survey": {"again": 2, "starts": 149, "unseen_of_any": 0.3}}["survey"]
    (failed,) = surveyed_checks({"weight": np.ones(1)}, "", few)
    assert failed.name == "search" and not failed.passed and "149 ascents, 2 led" in failed.message
    (failed,) = surveyed_checks({"mode": np.arange(1, 4)}, "", {"settled": False, "particles": 400})
    assert not failed.passed and "400 annealed particles" in failed.message


def test_particles_find_what_ascents_miss(seed: int) -> None:
    """Twenty round normals in forty dimensions; four are known, and particles find the rest."""
    source = """data { int K; int D; array[K] vector[D] mu; }
    parameters { vector[D] x; }
    model {
      vector[K] lp;
      for (k in 1:K) lp[k] = normal_lpdf(x | mu[k], 1);
      target += log_sum_exp(lp) - log(K);
    }"""
    mu = np.random.default_rng(8).uniform(-40, 40, (20, 40))
    target = target_of(source, {"K": 20, "D": 40, "mu": mu.tolist()})
    whole = search(target.density, seeds(seed), scan=False)
    found = replace(whole, optima=whole.optima[:4])
    for child in seeds(seed).spawn(20):
        scouts = annealed_scouts(
            target.density.borrow, wide_of(found.optima), particles=100, seed=child, threads=2,
            temperatures=30,
        )  # fmt: skip
        counted = Counted(target.density)
        found = with_ends_of(found, counted, scouts.points, again=0.9, few=0.01)
        assert not found.settled or len(found.fits) == 20
        if found.settled:
            assert counted.spent == 0
            break
    assert found.settled and found.particles < 2000
    masses = np.array([fit.log_evidence for fit in found.fits])
    assert np.logaddexp.reduce(masses) == pytest.approx(0, abs=1e-3)


def test_flat_modes_stay_apart_with_their_masses(seed: int) -> None:
    """A phase that hardly matters is flat, and the periods beside it are narrow.

    As one group of unit width they would get one pilot, and the others would be lost.
    """
    rng = np.random.default_rng(seed)
    precision = np.diag([1e8, 1e-4])
    flat = [laplace_fit(np.array([x, 0.0]), -x, precision, rng) for x in (0.0, 0.1)]
    assert all(map(is_flat, flat))
    first, second = found = [unit_wide(one) for one in flat]
    assert len(distinct_modes(found)) == 2
    assert first.covariance == pytest.approx(np.diag([1e-8, 1.0]))
    # The mass within one standard deviation of the flat direction: 2 pi sigma_1 exp(height).
    assert first.log_evidence == pytest.approx(np.log(2 * np.pi * 1e-4))
    assert second.log_evidence == pytest.approx(first.log_evidence - 0.1)


def test_a_fit_explains_its_own_points(seed: int) -> None:
    rng = np.random.default_rng(seed)
    covariance = np.array([[2.0, 1.9], [1.9, 2.0]])
    one = laplace_fit(np.zeros(2), 0.0, np.linalg.inv(covariance), rng, draws=200)
    same = laplace_fit(np.array([0.2, 0.2]), 0.0, np.linalg.inv(covariance), rng, draws=200)
    beside = laplace_fit(np.array([1.0, -1.0]), 0.0, np.linalg.inv(covariance), rng, draws=200)
    wider = laplace_fit(np.zeros(2), 0.0, np.linalg.inv(6 * covariance), rng, draws=200)
    assert explains(one, same)
    assert not explains(one, beside) and not explains(one, wider)


def test_the_base_of_known_modes_is_their_mixture(seed: int) -> None:
    """With a tenth for one wide Gaussian around them, which reaches what was missed."""
    program = """parameters { vector[2] x; }
    model { target += log_mix(0.3, normal_lpdf(x | -9, 1), normal_lpdf(x | 9, 0.5)); }"""
    found = fit_base(target_of(program), "modes", chains=4, seed=seeds(seed), nuts=Nuts())
    assert isinstance(found.base, MixtureBase) and found.survey is not None
    assert found.base.weights == pytest.approx([0.63, 0.27, 0.1], abs=1e-3)
    assert found.survey.sought.complete and found.survey.place[:, 0] == pytest.approx(
        [9, -9], abs=0.01
    )
    assert found.log_zeta == pytest.approx(0, abs=1e-3)
    pilot = fit_base(target_of(program), "pilot", chains=4, seed=seeds(seed), nuts=Nuts())
    assert pilot.base.is_gaussian and pilot.separated
    exact = np.log(0.7) - np.log(2 * np.pi * 0.25)
    inside = found.base.log_density(np.full(2, 9.0))
    assert inside == pytest.approx(exact + np.log(0.9), abs=0.01)


def test_a_search_repeats_itself_in_another_thread(seed: int) -> None:
    """Tests of whole runs search once for each program and seed."""

    def found(density: Density) -> Search:
        return search(density, seeds(seed))

    target = target_of(TWO_MODES.source)
    one = found(target.density)
    with target.density.borrow() as other:
        again = heard(lambda: found(other))
    assert len(one.fits) == 2 and replace(one, fits=()) == replace(again, fits=())
    for fit, same in zip(one.fits, again.fits, strict=True):
        assert fit.log_evidence == same.log_evidence
        assert np.array_equal(fit.mean, same.mean) and np.array_equal(fit.points, same.points)


def test_a_search_spends_less_where_densities_are_dear() -> None:
    """A tenth of the effort takes a tenth of the gradients and draws, and finds the modes."""

    def gradient(x: np.ndarray) -> tuple[float, np.ndarray]:
        lifts = [-0.5 * np.square(x - place).sum() for place in (-4.0, 4.0)]
        value = float(np.logaddexp(*lifts))
        share = np.exp(np.array(lifts) - value)
        return value, -(share[0] * (x + 4.0) + share[1] * (x - 4.0))

    density = FunctionDensity(gradient, 2)
    whole, part = (
        search(density, np.random.SeedSequence(1), effort=effort) for effort in (1.0, 0.02)
    )
    assert len(whole.fits) == len(part.fits) == 2
    assert part.gradients < 0.3 * whole.gradients
    assert part.evaluations < 0.2 * whole.evaluations


def test_steps_and_starts_within_reach(seed: int) -> None:
    """Where a density may be slow far away, nothing is asked of it there."""
    asked: list[float] = []

    def cliff(x: np.ndarray) -> tuple[float, np.ndarray]:
        asked.append(float(np.abs(x).max()))
        # Far from its mode the slope is so steep that an ascent's first step would leave the cube.
        x = np.clip(x, -50, 50)
        return float(-np.cosh(x).sum()), -np.sinh(x)

    density = FunctionDensity(cliff, 2)
    free = search(density, seeds(seed))
    assert max(asked) > 50 and free.radius == 100
    asked.clear()
    near = search(density, seeds(seed), reach=6.0)
    assert max(asked) < 25 and near.radius == 6  # a scan draws at five times a mode's width
    assert near.fits[0].log_evidence == pytest.approx(free.fits[0].log_evidence)


def test_modes_without_width_are_not_scanned() -> None:
    """Two spikes far apart have no Gaussian around them, in double precision."""
    spikes = [Optimum(np.array([x, 0.0]), 0.0, np.diag([1e40, 1e40])) for x in (-1e-3, 1e-3)]
    counted = Counted(FunctionDensity(lambda x: (0.0, x), 2))
    assert not scanned(counted, spikes, np.random.default_rng(1))


DECAY = """
functions { vector decay(real t, vector y, real k) { return -k * y; } }
data { int n; array[n] real t; vector[n] y; }
parameters { real<lower=0> k; }
model {
  array[n] vector[1] m = ode_rk45(decay, [1.0]', 0, t, k);
  k ~ exponential(1);
  for (i in 1:n) y[i] ~ normal(m[i][1], 0.1);
}
"""


def test_equations_that_become_slow_far_away() -> None:
    """At k = exp(15) one gradient takes seconds. The search spent ten minutes there."""
    times = np.arange(1, 7) / 2
    data = {"n": 6, "t": times.tolist(), "y": [0.72, 0.45, 0.38, 0.3, 0.1, 0.15]}
    target = target_of(DECAY, data)
    assert target.solves_equations and not target_of("parameters { real x; }").solves_equations
    began = time.monotonic()
    run = sample(target, seed=1, draws=400, progress=False)
    assert isinstance(run, EvidenceRun)
    assert time.monotonic() - began < 60
    k = np.linspace(1e-6, 8, 40_001)
    log_p = -k - 0.5 * np.square((data["y"] - np.exp(-np.outer(k, times))) / 0.1).sum(axis=1)
    log_p -= 6 * np.log(0.1 * np.sqrt(2 * np.pi))
    exact = np.log(np.trapezoid(np.exp(log_p), k))
    assert run.evidence.log_z == pytest.approx(exact, abs=4 * run.evidence.std_error)
    assert run.evidence.std_error < 0.02
    assert run.provenance["survey"]["radius"] == 2
    (searched,) = [one for one in run.road.makers if one["maker"] == "ascents"]
    assert searched["gradients"] + searched["evaluations"] < 8000  # .1 million of cheap densities


def test_nothing_is_asked_for_out_of_reach() -> None:
    """Scans, outskirts, what is around a mode, and starts around it, with a mode far out."""
    asked, sd = list[Array](), np.array([1.0, 0.5, 0.5, 0.5])

    def density(x: Array) -> tuple[float, Array]:
        asked.append(x.copy())
        offset = (x - 3) / sd**2
        return -0.5 * float((x - 3) @ offset), -offset

    reached = FunctionDensity(density, 4)
    found = search(reached, np.random.SeedSequence(1), reach=2.0)
    (fit,) = found.fits
    assert fit.mean == pytest.approx(3 * np.ones(4), abs=1e-3)
    surroundings(reached.log_densities, fit, [fit], np.random.default_rng(1), 2.0)
    # Within reach of the mode, or three of its standard deviations; ascents step farther by less.
    farthest = np.abs(asked).max(axis=0)
    assert np.all((farthest > 4.9) & (farthest < [7.5, 6.5, 6.5, 6.5])), farthest


@pytest.mark.parametrize(
    ("dimension", "places", "astray"), [(13, 0, 20), (13, 25, 25), (12, 0, 30)]
)
def test_a_search_without_an_end_is_given_up(dimension: int, places: int, astray: int) -> None:
    """No ascent on a slope ends at a mode. In few dimensions ascents are short: all are made."""
    found = found_in(
        lambda x: (float(x.sum()), np.ones(dimension)),
        dimension,
        np.random.SeedSequence(1),
        places=[np.zeros(dimension)] * places,
    )
    assert not found.fits and found.ascents == 0
    assert found.astray == astray if dimension > FEW else found.astray > astray


def test_an_ascent_may_take_as_many_steps_as_there_are_dimensions() -> None:
    """In 800 dimensions of very different widths, it is not there after five hundred."""
    source = """
    data { int D; vector[D] s; }
    parameters { vector[D] x; }
    model { x ~ normal(0, s); }
    """
    target = target_of(source, {"D": 800, "s": np.geomspace(1, 200, 800).tolist()})
    counted = Counted(target.density)
    start = 5 * np.random.default_rng(1).normal(size=800)
    _, value = counted.ascended(start, np.ones((1, 800)))
    top = float(target.density.log_densities(np.zeros((1, 800)))[0])
    assert MOST_STEPS < counted.spent <= 801 and top - value < 1e-5


def test_the_faint_tail_of_a_spike_leads_to_it(seed: int) -> None:
    """Far off the centre of an exact Gaussian, one draw of a million lies in the spike itself."""
    source = """data { int D; vector[D] at; }
    parameters { vector[D] x; }
    model { target += log_mix(0.5, normal_lpdf(x | at, 0.1), normal_lpdf(x | 0, 1)); }"""
    at = np.full(8, 2.0 / np.sqrt(8))
    target = target_of(source, {"D": 8, "at": at.tolist()})
    for child in seeds(seed).spawn(3):
        found = search(target.density, child)
        assert len(found.fits) == 2
        masses = sorted(fit.log_evidence for fit in found.fits)
        np.testing.assert_allclose(masses, np.log(0.5), atol=1e-3)


def test_a_density_without_a_gradient_ends_no_search() -> None:
    """A program that takes the log of a sum of densities underflows between its modes."""
    target = target_of(
        """
        functions {
          real f(vector x) {
            return log(exp(normal_lpdf(x | 0, 1)) + 3 * exp(normal_lpdf(x | 17.3, 0.3)));
          }
        }
        parameters { vector[3] x; } model { target += f(x); }
        """
    )
    lost = np.full(3, 23.9)
    _, slopes = target.density.log_density_gradients(lost[None])
    assert not np.isfinite(slopes).any() and np.isfinite(target.density.log_densities(lost[None]))
    known = [Optimum(np.zeros(3), 0.0, np.eye(3))]
    assert np.array_equal(_toward(Counted(target.density), known, lost), lost)

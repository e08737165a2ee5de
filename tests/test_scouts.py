"""Scouts: where annealed particles end, and whether the first base finds hidden modes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from boltzmann_machine import BoltzmannMachine, Moments
from conftest import LONG, ROOT, target_of
from sampled import sampled
from scipy.integrate import trapezoid
from test_base import fit_with_modes
from test_rounds import TARGET, base_of, round_of

import stanct
from stanct.bases import makers
from stanct.bases.ascents import SCANS
from stanct.bases.fits import LEAST_SHRINKAGE, explored, fit_base
from stanct.bases.known import FitSeeds, Modes, Sought
from stanct.bases.local import LocalFit, moment_match
from stanct.bases.pilots import TRIAL, needless
from stanct.bases.recipes import RECIPES
from stanct.bases.scans import TIMES
from stanct.bases.scouts import Scouts, annealed_scouts
from stanct.common.errors import EngineError
from stanct.engines.embedded import Nuts
from stanct.path.base import Base
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.runs.tempered import TemperedRun
from stanct.samplers._rounds import Round, refit_base
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity
from stanct.work.execution import Borrow

WIDE = GaussianBase(np.zeros(1), np.full((1, 1), 12.0))
PROGRAM = ROOT / "stan_models" / "boltzmann" / "boltzmann.stan"
PUBLISHED = ROOT / "examples" / "boltzmann" / "published.npz"
TWO_MODES = """
parameters { real x; }
model { target += log_mix(0.7, normal_lpdf(x | -9, 1), normal_lpdf(x | 9, 1)) - 3; }
"""
ONE_MODE = "parameters { vector[3] x; } model { x ~ normal(0, 2); }"
# A base that is not the target, and is therefore refitted.
SKEWED = "parameters { vector[3] x; } model { x ~ gumbel(0, 2); }"


def scouts(borrow: Borrow, seed: int, *, particles: int = 200, threads: int = 1) -> Scouts:
    return annealed_scouts(
        borrow, WIDE, particles=particles, seed=np.random.SeedSequence(seed), threads=threads
    )


def test_scouts_find_both_modes_and_the_evidence(seed: int) -> None:
    found = scouts(target_of(TWO_MODES).density.borrow, seed)
    assert found.points.shape == (200, 1)
    assert 0.4 < np.mean(found.points < 0) < 0.9
    assert found.log_z == pytest.approx(-3, abs=0.3)
    assert found.gradients > 200 * 100


def test_scouts_do_not_depend_on_threads(seed: int) -> None:
    borrow = target_of(TWO_MODES).density.borrow
    one, two = (scouts(borrow, seed, threads=threads) for threads in (1, 2))
    assert np.array_equal(one.points, two.points) and one.log_z == two.log_z
    assert not np.array_equal(one.points, scouts(borrow, seed + 1).points)


def test_scouts_outside_the_support_are_left_out(seed: int) -> None:
    def half(x: np.ndarray) -> tuple[float, np.ndarray]:
        return (-0.5 * float(x @ x) if x[0] > 0 else -np.inf), -x

    found = scouts(FunctionDensity(half, 1).borrow, seed, particles=12)
    assert len(found.points) < 12 and np.all(found.points > 0)
    nowhere = FunctionDensity(lambda x: (-np.inf, -x), 1)
    with pytest.raises(EngineError, match="all but 0 of 12 annealed particles"):
        scouts(nowhere.borrow, seed, particles=12)


def test_one_mode_needs_no_scouts(seed: int) -> None:
    """Its curvature tells its shape, and particles confirm it."""
    target = target_of(ONE_MODE)
    fitted, found = fit_with_modes(target, "pilot", seed, chains=2)
    assert not fitted.separated
    assert len(found.fits) == 1 and found.sought.complete
    cost = {stage.maker: stage.evaluations for stage in fitted.road}
    assert cost["ascents"] == (1 + TIMES) * SCANS and cost["curvature"] > TRIAL
    assert fitted.evaluations == sum(cost.values())
    np.testing.assert_allclose(np.diag(fitted.base.covariance), 4.0, rtol=1e-6)


def test_a_mode_too_good_to_be_skipped_gets_a_pilot(seed: int) -> None:
    """One pilot from the better mode would say that there is only one."""
    target = target_of(TWO_MODES)
    fitted, found = fit_with_modes(target, "pilot", seed, chains=1)
    assert fitted.separated and len(found.fits) == 2
    assert fitted.base.dense().scale[0, 0] == pytest.approx(9, abs=1.5)


def test_curvature_at_both_modes_is_found(seed: int) -> None:
    """Of stan_models/two_modes one run of 40 saw half, and log Z was wrong by log 0.3."""
    fitted, found = fit_with_modes(target_of(TWO_MODES), "laplace", seed)
    assert len(found.fits) == 2 and 0 < fitted.gradients < 5000


def test_a_flat_density_with_an_edge_has_a_base(seed: int) -> None:
    """No ascent and no Pathfinder goes anywhere on the unit ball in four dimensions."""
    target = target_of(
        "parameters { vector<lower=-1, upper=1>[4] x; } "
        "model { target += dot_self(x) < 1 ? 0 : negative_infinity(); }"
    )
    fitted = fit_base(target, "pilot", chains=2, seed=np.random.SeedSequence(seed), nuts=Nuts())
    draws = fitted.base.draw(np.random.default_rng(seed), 2000)
    radius = np.linalg.norm(np.tanh(draws / 2), axis=1)
    assert 0.3 < (radius < 1).mean() < 0.95
    assert np.abs(draws.mean(axis=0)).max() < 0.2


@LONG
def test_hidden_modes_widen_the_base(seed: int) -> None:
    """Matched moments of the pilots were up to sixty times too narrow in some direction."""
    with np.load(PUBLISHED) as arrays:
        machine = BoltzmannMachine(arrays["weights"][0], arrays["biases"][0])
        truth = machine.relaxed(Moments(0.0, arrays["mean"][0], arrays["covariance"][0]))
    target = stanct.temper(PROGRAM).target(machine.stan_data())
    fitted, found = fit_with_modes(target, "pilot", seed)
    assert fitted.separated and fitted.gradients < 600_000

    def narrowness(base: Base) -> float:
        return np.linalg.eigvals(np.linalg.solve(base.covariance, truth.covariance)).real.max()

    assert narrowness(moment_match(found.fits)[0]) > 10
    assert narrowness(fitted.base) < 8


def test_where_modes_hide_refits_do_not_narrow(rng: np.random.Generator) -> None:

    done: Round = round_of(base_of(1.5, 4.0), Bias.linear(-7.0), rng)
    assert TARGET.sd < 4.0
    assert refit_base(done, least_shrinkage=1.0).covariance[0, 0] == pytest.approx(16.0, rel=1e-6)


@pytest.mark.parametrize(("program", "floor"), [(TWO_MODES, 1.0), (SKEWED, LEAST_SHRINKAGE)])
@pytest.mark.parametrize("method", ["gibbs", "parallel_tempering", "joint", "pseudo_extended"])
def test_refits_know_whether_modes_hide(
    program: str, floor: float, method: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refit, floors = GaussianBase.refitted, []

    def spied(*arguments: Any, least_shrinkage: float) -> GaussianBase:
        floors.append(least_shrinkage)
        return refit(*arguments, least_shrinkage=least_shrinkage)

    monkeypatch.setattr(GaussianBase, "refitted", spied)
    model = stanct.TemperedModel(Program.from_source(program, name="model"))
    settings = {"draws": 8, "warmup": 150, "chains": 2, "bootstrap": 1, "engine": "embedded"}
    sampled(method, model.target(), seed=seed, progress=False, **settings)
    assert floors == [floor]


@pytest.mark.parametrize(("method", "settings"), [("joint", {}), ("gibbs", {"warmup": 500})])
def test_where_modes_lie_apart_chains_stay_where_the_path_is_fast(
    method: str, settings: dict[str, Any], seed: int
) -> None:
    """Half of the density of β under the bias is ∝ the speed's power 1.3, by sums over x."""
    model = stanct.TemperedModel(Program.from_source(TWO_MODES, name="model"))
    run = sampled(method, model.target(), seed=seed, engine="embedded", progress=False, **settings)
    assert isinstance(run, TemperedRun) and run.base is not None
    grid = np.linspace(0.005, 1, 200)
    x = np.linspace(-60, 60, 6001)[:, None]
    log_q = run.base.log_density(x)
    delta = log_q - model.density().log_densities(x)
    log_terms = log_q - grid[:, None] * delta
    weights = np.exp(log_terms - log_terms.max(axis=1, keepdims=True))
    log_z = np.log(weights.sum(axis=1)) + log_terms.max(axis=1)
    weights /= weights.sum(axis=1, keepdims=True)
    stay = ((weights * np.abs(delta - weights @ delta[:, None])).sum(axis=1)) ** 1.3
    density = 0.5 + 0.5 * stay / trapezoid(stay, grid)
    found = log_z - run.bias(grid)
    assert np.ptp(np.log(density)) > 1
    assert np.ptp(found - np.log(density)) < 0.8
    error = run.expect("x").std_error
    assert abs(run.expect("x").value - 9 * (1 - 2 * 0.7)) < 4 * error < 4.0


def test_of_one_mode_all_beta_are_visited_alike(seed: int) -> None:
    model = stanct.TemperedModel(Program.from_source(ONE_MODE, name="model"))
    run = model.sample(seed=seed, draws=8, warmup=150, chains=2, engine="embedded", progress=False)
    assert run.bias.beta.size == 2


COMB = """
data { int D; }
parameters { vector[D] x; }
model {
  for (d in 1:D) {
    vector[11] teeth;
    for (k in 1:11) teeth[k] = normal_lpdf(x[d] | 4 * k - 4, 0.3) - log(11);
    target += log_sum_exp(teeth);
  }
}
"""


@pytest.mark.parametrize(
    ("seen", "unseen"), [((0, 1), True), ((0, 10), False)], ids=["at one end", "both ends"]
)
def test_scouts_go_again_while_they_come_to_lie_farther_apart(
    seen: tuple[int, int], unseen: bool, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comb of eleven teeth, sd .3, four apart, of which the pilots have seen two."""
    starts, done, anneal = [], [], makers.annealed_scouts

    def counted(*arguments: Any, **settings: Any) -> Scouts:
        starts.append(arguments[1].scale[0, 0])
        done.append(anneal(*arguments, **settings))
        return done[-1]

    monkeypatch.setattr(makers, "annealed_scouts", counted)
    rng = np.random.default_rng(seed)
    points = [rng.normal(4.0 * k, 0.3, size=(300, 1)) for k in seen]
    pilots = [LocalFit(p.mean(axis=0), np.cov(p.T).reshape(1, 1), 0.0, p) for p in points]
    seeds = np.random.SeedSequence(seed)
    known = SimpleNamespace(
        target=target_of(COMB, {"D": 1}),
        measured=Modes(tuple(pilots), (), Sought(complete=not unseen)), nuts=Nuts(),
        seeds=FitSeeds.of(seeds), bar=SimpleNamespace(shown=False),
    )  # fmt: skip
    found = makers.AnnealedScouts()._looked(cast("Any", known))
    teeth = [set(np.round(scouts.points[:, 0] / 4)) for scouts in done]
    assert starts[0] == pytest.approx(np.sqrt(4 if unseen else 2) * np.std(points), rel=0.01)
    assert len(teeth[-1] & set(range(11))) >= 9
    assert (len(done) > 1 and len(teeth[0]) < 9) == unseen
    assert found.gradients == sum(scouts.gradients for scouts in done)
    # That of the whole comb is 12.6.
    assert 8 < np.std(found.points) < 17


def test_known_modes_make_some_pilots_needless(rng: np.random.Generator) -> None:
    """Of an approximation in a known mode, one in a new mode, and one hopelessly far below."""
    target = target_of(TWO_MODES)

    def fit(place: float, sd: float, log_evidence: float) -> LocalFit:
        points = place + sd * rng.standard_normal((25, 1))
        return LocalFit(np.array([place]), np.full((1, 1), sd**2), log_evidence, points)

    left, right = fit(-9, 1, np.log(0.7) - 3), fit(9, 1, np.log(0.3) - 3)
    narrow = fit(-7.5, 0.01, -12.0)
    assert needless(target, narrow, [left]) and not needless(target, narrow, [right])
    assert not needless(target, right, [left]) and needless(target, right, [left, right])
    assert not needless(target, right, [])
    assert needless(target, fit(40, 1, -500.0), [left])
    assert not needless(target, fit(40, 1, -50.0), [left])  # a bound may be low by as much
    # Without a measured mode, the best of the approximations bounds the mass.
    assert needless(target, fit(40, 1, -500.0), [], bound=-3.0)
    assert not needless(target, left, [], bound=-3.0)
    assert not needless(target, fit(40, 1, -500.0), [])


YEARS = """
data { int N; vector[N] year; vector[N] y; }
parameters { real a; real b; real<lower=0> sigma; }
model {
  a ~ normal(0, 100);
  b ~ normal(0, 1);
  sigma ~ exponential(1);
  y ~ normal(a + b * year, sigma);
}
"""


@LONG
def test_years_need_no_pilots(seed: int) -> None:
    """An intercept at year 0 is correlated with the slope by .99996, and 10⁴ times as wide."""
    rng = np.random.default_rng(1)
    year = np.arange(1952.0, 2014)
    y = 9.3 + 0.02 * (year - 1983) + 1.1 * rng.standard_normal(year.size)
    run = sampled(
        "auto", target_of(YEARS, {"N": year.size, "year": year, "y": y}), seed=seed, progress=False
    )
    # posteriordb's kilpisjarvi took 2.9 million with pilots.
    assert run.gradients < 300_000 and not run.warnings
    # Given sigma, the slope is normal with the moments of a ridge regression.
    design = np.stack([np.ones_like(year), year], axis=1)
    sigma = np.linspace(0.5, 2.5, 400)
    log_weights, slopes = [], []
    for one in sigma:
        precision = design.T @ design / one**2 + np.diag([1e-4, 1.0])
        middle = np.linalg.solve(precision, design.T @ y / one**2)
        square = y @ y / one**2 - middle @ precision @ middle
        log_det = np.linalg.slogdet(precision)[1]
        log_weights.append(-y.size * np.log(one) - 0.5 * (square + log_det) - one)
        slopes.append(middle[1])
    weights = np.exp(np.array(log_weights) - max(log_weights))
    slope = run.expect("b")
    assert abs(float(slope.value) - np.average(slopes, weights=weights)) < 4 * slope.std_error
    assert slope.std_error < 4e-4
    assert run.evidence.std_error < 0.02


@pytest.mark.parametrize(
    ("program", "unseen"), [(TWO_MODES, False), pytest.param(COMB, True, marks=LONG)]
)
def test_modes_that_one_start_found_tell_of_more(program: str, unseen: bool, seed: int) -> None:
    """In the plane the comb has 121 modes, more than there are starts."""
    seeds = np.random.SeedSequence(seed)
    target = target_of(program, {"D": 2} if unseen else None)
    found = explored(target, RECIPES["pilot"], chains=4, seed=seeds, nuts=Nuts())
    assert found.several and found.measured.sought.complete is not unseen
    assert "scouts" in [stage.maker for stage in found.purse.stages]

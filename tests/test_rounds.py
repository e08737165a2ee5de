"""Rounds: moments weighted to the target, and the curve under another base, in closed form."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from scipy.integrate import trapezoid
from scipy.stats import norm
from targets import SKEWED
from test_estimates import PATH, GaussianPath

import stanct
from stanct.common.arrays import Array
from stanct.common.deadline import deadline
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.path.low_rank import LowRankBase
from stanct.samplers._rounds import (
    LEAST_SHRINKAGE,
    BaseDraws,
    Round,
    course_under,
    reaching,
    refit_base,
)
from stanct.work.execution import Execution

TARGET = GaussianPath(mean=1.5, sd=0.4, log_z=-7.0)


def round_of(base: GaussianBase, bias: Bias, rng: np.random.Generator) -> Round:
    """Exact draws of the joint density between a base N(m, s²) and `TARGET`, in one dimension.

    In the base's whitened coordinate the target is a normal too, which `GaussianPath` can draw.
    """
    mean, sd = float(base.mean[0]), float(base.scale[0, 0])
    whitened = GaussianPath((TARGET.mean - mean) / sd, TARGET.sd / sd, TARGET.log_z)
    z = whitened.draw(bias, (4, 5000), rng)
    base_z = rng.standard_normal(20_000)
    return Round(base, bias, z[..., None], whitened.delta(z), whitened.delta(base_z))


def base_of(mean: float, sd: float) -> GaussianBase:
    return GaussianBase(np.array([mean]), np.array([[sd]]))


def test_the_exact_draws_are_right(rng: np.random.Generator) -> None:
    done = round_of(base_of(1.0, 1.5), Bias.linear(-7.0), rng)
    evidence = done.estimator.evidence("exact")
    assert abs(evidence.log_z - TARGET.log_z) < 4 * evidence.std_error < 0.05


def test_refit_base_has_the_target_s_moments(rng: np.random.Generator) -> None:
    new = refit_base(round_of(base_of(1.0, 0.6), Bias.linear(-7.0), rng))
    assert new.mean[0] == pytest.approx(TARGET.mean, abs=0.02)
    assert np.sqrt(new.covariance[0, 0]) == pytest.approx(TARGET.sd, rel=0.03)


def test_refit_base_does_not_shrink_beyond_its_floor(rng: np.random.Generator) -> None:
    """From a base ten times too wide the variance shrinks to a fifth only."""
    new = refit_base(round_of(base_of(1.5, 4.0), Bias.linear(-7.0), rng))
    assert new.covariance[0, 0] == pytest.approx(LEAST_SHRINKAGE * 16.0, rel=1e-6)


@pytest.mark.parametrize("dimension", [1, 4])
def test_a_base_that_reaches_further(dimension: int) -> None:
    base = GaussianBase(np.arange(dimension) + 1.0, 3 * np.eye(dimension))
    wide = reaching(base)
    assert isinstance(wide, GaussianBase) and np.array_equal(wide.mean, base.mean)
    assert wide.covariance == pytest.approx((1 + 2 / dimension) * base.covariance)
    # The distance KL(narrow | wide) = D/2 (log f − 1 + 1/f) stays below 1 / D nats.
    x = base.unwhiten(np.random.default_rng(1).standard_normal((4000, dimension)))
    assert 0 < np.mean(base.log_density(x) - wide.log_density(x)) < 1 / dimension
    low_rank = LowRankBase.from_points(x)
    assert reaching(low_rank) is low_rank


def test_a_base_of_the_user_s_own_is_not_widened(seed: int) -> None:
    # Its variance is 1, and a normal base is not the target.
    program = "parameters { vector[2] x; } model { x ~ logistic(0, sqrt(3) / pi()); }"
    target = stanct.temper(program).target()
    settings: dict[str, Any] = {"seed": seed, "draws": 400, "warmup": 200, "progress": False}
    base = GaussianBase(np.zeros(2), np.eye(2))
    own = stanct.sample(target, stanct.Joint(), base=base, engine="embedded", **settings)
    fitted = stanct.sample(target, stanct.Joint(), engine="embedded", **settings)
    assert np.exp(own.base.log_det_scale) == pytest.approx(1, abs=0.15)
    assert np.exp(fitted.base.log_det_scale) == pytest.approx(2, abs=0.3)


def test_the_path_from_another_base(rng: np.random.Generator) -> None:
    """Draws made with base N(1, 1.5²) tell of the path from N(0, 1) to the target."""
    done = round_of(base_of(1.0, 1.5), Bias.linear(-6.0), rng)
    found = course_under(done, base_of(0.0, 1.0))
    exact: Array = PATH.curve(found.beta)
    assert (PATH.mean, PATH.sd, PATH.log_z) == (TARGET.mean, TARGET.sd, TARGET.log_z)
    # The curve leaves its chord by more than half a nat: a wrong sign could not pass.
    assert np.max(np.abs(exact - found.beta * TARGET.log_z)) > 0.5
    assert np.max(np.abs(found.log_z - exact)) < 0.1
    speed = PATH.speed(found.beta)
    assert speed.max() > 10 * speed.min()
    assert found.speed == pytest.approx(speed, rel=0.1)


def test_a_round_s_bias_follows_its_own_curve(rng: np.random.Generator) -> None:
    done = round_of(base_of(0.0, 1.0), Bias.linear(-4.0), rng)
    bias = done.course.bias()
    assert np.max(np.abs(bias.value - PATH.curve(bias.beta))) < 0.1
    assert norm.cdf(bias.log_zeta, TARGET.log_z, 0.1) == pytest.approx(0.5, abs=0.4)


def test_a_bias_that_keeps_chains_where_the_path_is_fast(rng: np.random.Generator) -> None:
    done = round_of(base_of(0.0, 1.0), Bias.linear(-4.0), rng)
    bias = done.course.bias(0.5)
    fine = np.linspace(0, 1, 1001)
    stay = PATH.speed(fine) ** 1.3
    density = 0.5 + 0.5 * stay / trapezoid(stay, fine)
    wanted = PATH.curve(fine) - np.log(density / density[0])
    # The time at the fastest β is more than four times that at the slowest.
    assert density.max() > 4 * density.min()
    assert np.max(np.abs(bias.value - np.interp(bias.beta, fine, wanted))) < 0.1
    assert np.max(np.abs(bias(fine) - wanted)) < 0.4


class _Flat:
    """A target of the base's own density, which counts its evaluations."""

    evaluations = 0
    density: Any

    def __init__(self) -> None:
        self.density = self

    def log_densities(self, x: Array) -> Array:
        self.evaluations += len(x)
        return -0.4 * np.square(x).sum(axis=1)


class _Record:
    """What an execution with a checkpoint remembers."""

    threads, executor = 1, None

    def __init__(self) -> None:
        self.steps: list[Array] = []
        self.sealed = False

    def once(self, label: str, work: Callable[[], Array]) -> Array:
        self.steps.append(work())
        return self.steps[-1]

    def seal(self) -> None:
        self.sealed = True


def test_draws_of_the_base_are_the_same_whether_begun_or_restored() -> None:
    base, seed = base_of(0.0, 1.0), np.random.SeedSequence(3)
    count = 2 * BaseDraws.portion + 10

    def made(execution: Any) -> tuple[Array, int]:
        target: Any = _Flat()
        draws = BaseDraws(target, base, seed)
        if execution is not None:
            draws.begin(execution)
        return draws.first(count), target.evaluations

    record = _Record()
    restored = type("", (), {"once": lambda _, label, work: record.steps[0]})()
    plain, begun, again = made(None), made(record), made(restored)
    assert np.array_equal(plain[0], begun[0]) and np.array_equal(plain[0], again[0])
    assert plain[1] == begun[1] == again[1] + BaseDraws.portion
    assert len(np.unique(plain[0])) == count


@pytest.mark.parametrize(("pace", "made"), [(0.001, 3), (0.5, 2), (60.0, 1), (np.inf, 1)])
def test_draws_of_the_base_after_an_interrupt_take_no_longer_than_they_may(
    pace: float, made: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`made` portions of three, the first of them before the interrupt."""
    target: Any = _Flat()
    run: Any = _Record()
    draws = BaseDraws(target, base_of(0.0, 1.0), np.random.SeedSequence(1))
    draws.begin(run)
    draws._pace = pace
    make, now, spent = BaseDraws._make, [0.0], [0.0]

    def slow(self: BaseDraws, **given: Any) -> None:
        make(self, **given)
        spent[0] += pace

    monkeypatch.setattr(BaseDraws, "_make", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0] + spent[0])
    delta, cut = draws.kept(3 * draws.portion - 1, run, cut=True)
    assert cut and delta.size == min(made * draws.portion, 3 * draws.portion - 1)
    whole, cut = draws.kept(3 * draws.portion - 1, run)
    assert not cut and whole.size == 3 * draws.portion - 1 and not run.sealed


def test_an_interrupt_of_the_draws_of_the_base_keeps_what_is_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target: Any = _Flat()
    run: Any = _Record()
    draws = BaseDraws(target, base_of(0.0, 1.0), np.random.SeedSequence(1))

    def stopped(self: BaseDraws, **_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(BaseDraws, "_make", stopped)
        with pytest.raises(KeyboardInterrupt):
            draws.kept(3 * draws.portion, run)
    draws.begin(run)
    monkeypatch.setattr(BaseDraws, "_make", stopped)
    delta, cut = draws.kept(3 * draws.portion, run)
    assert cut and delta.size == draws.portion and run.sealed


def test_draws_of_the_base_do_not_depend_on_how_they_are_asked_for() -> None:
    target = target_of(SKEWED.source, SKEWED.data)

    def draws() -> BaseDraws:
        return BaseDraws(target, base_of(-0.7, 1.5), np.random.SeedSequence(7))

    whole = draws().first(5_700)
    assert whole.size == 5_700 and np.isfinite(whole).all() and np.unique(whole).size == 5_700
    execution = Execution(0, progress=False)
    found, cut = draws().kept(5_700, execution)
    assert np.array_equal(found, whole) and not cut
    in_parts = draws()
    assert np.array_equal(in_parts.first(300), whole[:300])
    assert np.array_equal(in_parts.kept(5_700, execution)[0], whole)
    assert np.array_equal(in_parts.first(2_000), whole[:2_000])


def test_draws_of_the_base_end_in_time() -> None:
    """What was made by the deadline stays, and is the beginning of the same draws."""

    def slow(x: np.ndarray) -> tuple[float, np.ndarray]:
        time.sleep(1e-4)
        return -0.5 * float(x @ x), -x

    target = stanct.FunctionTarget(stanct.FunctionDensity(slow, 1))
    made = BaseDraws(target, base_of(0.1, 1.5), np.random.SeedSequence(7))
    execution = Execution(0, progress=False)
    made.begin(execution)
    with deadline(0.3):
        found, cut = made.kept(10**6, execution)
    assert cut and 0 < found.size < 10**6
    again = BaseDraws(target, base_of(0.1, 1.5), np.random.SeedSequence(7))
    assert np.array_equal(found[:1000], again.first(1000))


def test_the_deadline_is_heard_within_a_portion() -> None:
    """Slow evaluations do not delay the end, and the draws that were given up come again."""
    calls = [0]

    def slow(x: np.ndarray) -> tuple[float, np.ndarray]:
        calls[0] += 1
        time.sleep(0.002 if calls[0] <= 2000 else 0)
        return -0.5 * float(x @ x), -x

    target = stanct.FunctionTarget(stanct.FunctionDensity(slow, 1))
    made, same = (BaseDraws(target, base_of(0.1, 1.5), np.random.SeedSequence(7)) for _ in range(2))
    execution = Execution(0, progress=False)
    with deadline(0.1), pytest.raises(KeyboardInterrupt):
        made.kept(2000, execution)
    assert calls[0] < 450
    calls[0] = 2000
    assert np.array_equal(made.first(1000), same.first(1000))

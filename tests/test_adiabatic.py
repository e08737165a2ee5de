"""Adiabatic Monte Carlo against exact answers: the integrator, the weights, and what it reports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import Analytic, Array, bimodal, gaussian, skewed
from conftest import ROOT, target_of
from sampled import sampled

from stanct import Adiabatic, FunctionDensity, FunctionTarget, GaussianBase, kernels, load, temper
from stanct.common.errors import SamplingError, StanctError
from stanct.estimates.modes import mode_columns, mode_shares
from stanct.kernels import Flow, make_problem, make_scratch
from stanct.runs.adiabatic import AdiabaticRun
from stanct.samplers import adiabatic

NODES, MEANS = np.array([0.0, 0.3, 1.0]), np.array([4.0, 1.0, -2.0])


def run(case: Analytic, **settings: object) -> AdiabaticRun:
    chosen = {"draws": 64, "warmup": 32, "duration": 10.0, "seed": 1, "progress": False}
    return sampled("adiabatic", case.target, base=case.base, **{**chosen, **settings})


class Mover:
    """Contact steps from one place, for the integrator's own properties."""

    def __init__(self, case: Analytic, seed: int) -> None:
        rng = np.random.default_rng(seed)
        self.density = case.target.density
        self.problem = make_problem(self.density, case.base)
        self.scratch = make_scratch(case.mean.size)
        self.state = kernels.make_state(self.problem, rng.standard_normal(case.mean.size))
        self.momentum = rng.standard_normal(case.mean.size)
        self.beta, self.volume = 0.2, 0.0
        self.flow = Flow(0.02, 0.3, 0.1, np.inf, 1000, NODES, MEANS)

    def step(self, time: float, limit: float) -> float:
        """One step; returns the time it took."""
        state = self.state
        phase = kernels.Phase(state.z, self.momentum, state.gradient, state.value)
        status, self.beta, taken, log_jacobian = kernels.contact_step(
            self.problem, self.flow, phase, kernels.Leg(self.beta, time, limit), self.scratch
        )
        assert status == kernels.OK
        self.volume += log_jacobian
        return taken

    def energy(self) -> float:
        """T + V_B + βδ + log z(β), up to a constant, with log z = −∫ E."""
        delta = kernels.delta_of(self.problem, self.state.value[0], self.state.z, self.scratch)
        grid = np.linspace(0, self.beta, 20001)
        log_z = -np.trapezoid(np.interp(grid, NODES, MEANS), grid)
        squares = self.momentum @ self.momentum + self.state.z @ self.state.z
        return 0.5 * squares + self.beta * delta + log_z


@pytest.mark.parametrize("make", [lambda: gaussian(10), skewed, bimodal])
def test_a_step_back_undoes_a_step(make: Callable[[], Analytic], seed: int) -> None:
    mover = Mover(make(), seed)
    for _ in range(20):
        before = (*mover.state.z, *mover.momentum, mover.beta, mover.volume)
        taken = mover.step(0.1, 1.0)
        mover.step(-taken, 0.0)
        after = (*mover.state.z, *mover.momentum, mover.beta, mover.volume)
        assert np.allclose(before, after, rtol=0, atol=1e-10)
        mover.step(0.05, 1.0)
    assert mover.beta > 0.2002


def test_the_error_of_the_contact_hamiltonian_is_of_second_order(seed: int) -> None:
    drifts = []
    for time in (0.08, 0.04, 0.02):
        mover = Mover(gaussian(10), seed)
        start = mover.energy()
        for _ in range(round(1.6 / time)):
            mover.step(time, 1.0)
        assert 0.22 < mover.beta < 1
        drifts.append(abs(mover.energy() - start))
    ratios = np.divide(drifts[:-1], drifts[1:])
    assert np.all((ratios > 3.4) & (ratios < 4.6))
    assert drifts[-1] < 0.01


def test_the_last_step_lands_on_the_limit(seed: int) -> None:
    mover = Mover(gaussian(10), seed)
    full = Mover(gaussian(10), seed)
    full.step(0.1, 1.0)
    between = (0.2 + full.beta) / 2
    taken = mover.step(0.1, between)
    assert mover.beta == between
    assert 0 < taken < 0.1
    # The same step when nothing limits it: the landing solved for its length.
    again = Mover(gaussian(10), seed)
    again.step(taken, 1.0)
    assert again.beta == pytest.approx(between, abs=1e-12)


def test_the_jacobian_is_the_change_of_volume(seed: int) -> None:
    """Of (z, p, log(β + c)), against finite differences of whole steps."""
    case = gaussian(3)

    def moved(point: Array) -> Array:
        mover = Mover(case, seed)
        mover.state = kernels.make_state(mover.problem, point[:3])
        mover.momentum = point[3:6].copy()
        mover.beta = float(np.exp(point[6]) - mover.flow.offset)
        for _ in range(5):
            mover.step(0.1, 1.0)
        volumes.append(mover.volume)
        return np.array([*mover.state.z, *mover.momentum, np.log(mover.beta + mover.flow.offset)])

    volumes: list[float] = []
    start = Mover(case, seed)
    point = np.array([*start.state.z, *start.momentum, np.log(0.5)])
    moved(point)
    columns = [(moved(point + h) - moved(point - h)) / 2e-5 for h in 1e-5 * np.eye(7)]
    _, log_determinant = np.linalg.slogdet(np.array(columns))
    assert log_determinant == pytest.approx(volumes[0], abs=1e-5)
    assert abs(volumes[0]) > 1e-3


@pytest.mark.parametrize(
    ("make", "log_z_bound", "mean_bound"),
    [(lambda: gaussian(1), 0.05, 0.1), (lambda: gaussian(10), 0.18, 0.25), (skewed, 0.12, 0.2)],
    ids=["gaussian 1", "gaussian 10", "skewed"],
)
def test_exact_answers(
    make: Callable[[], Analytic], log_z_bound: float, mean_bound: float, seed: int
) -> None:
    case = make()
    done = run(case, seed=seed)
    evidence = done.evidence
    assert evidence.std_error < log_z_bound
    assert abs(evidence.log_z - case.log_z) < 4 * evidence.std_error
    mean = done.expect("x")
    assert np.all(mean.std_error < mean_bound)
    assert np.all(np.abs(mean.value - case.mean) < 4 * mean.std_error)
    heated, heated_error = done.heated_evidence
    assert heated_error < 2 * log_z_bound
    assert abs(heated - case.log_z) < 4 * np.hypot(heated_error, evidence.std_error)
    assert done.energy_error < 0.2


def test_the_curve_of_a_gaussian(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """N(0, I) to N(0, s² I), D = 10, where z(β) and E_β[δ] are known."""
    dimension, sd = 10, 0.4
    constant, stretch = 0.5 * dimension * np.log(2 * np.pi), 1 / sd**2 - 1

    def function(x: Array) -> tuple[float, Array]:
        return -0.5 * float(x @ x) / sd**2, -x / sd**2

    def exact_means(nodes: Array) -> Array:
        return 0.5 * dimension * stretch / (1 + nodes * stretch) - constant

    learn = adiabatic._learn

    def exact(*arguments: Any) -> Any:
        nodes = np.linspace(0, 1, 401)
        return replace(learn(*arguments), nodes=nodes, means=exact_means(nodes))

    monkeypatch.setattr(adiabatic, "_learn", exact)
    target = FunctionTarget(FunctionDensity(function, dimension))
    base = GaussianBase(np.zeros(dimension), np.eye(dimension))
    done = sampled(
        "adiabatic",
        target,
        base=base,
        draws=64,
        warmup=16,
        duration=20,
        seed=seed,
        progress=False,
    )
    log_z = done.betas * constant - 0.5 * dimension * np.log1p(done.betas * stretch)
    curve, flow = done.curve(), done.flow_curve()
    assert curve.std_error.max() < 0.8
    assert np.all(np.abs(curve.log_z - log_z) <= 4 * curve.std_error + 1e-9)
    assert np.all(np.abs(flow.log_z - log_z) < 0.05)
    assert flow.std_error.max() < 0.02


def test_the_weights_do_not_depend_on_what_was_learned(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """A wrong E_β[δ] spoils the flow's own curve, not the weighted one."""
    learn = adiabatic._learn

    def wrong(*arguments: Any) -> Any:
        found = learn(*arguments)
        return replace(found, means=found.means + 0.7)

    monkeypatch.setattr(adiabatic, "_learn", wrong)
    case = gaussian(1)
    done = run(case, seed=seed, draws=128)
    assert abs(done.evidence.log_z - case.log_z) < 4 * done.evidence.std_error
    assert done.evidence.std_error < 0.1
    assert done.flow_curve().log_z[-1] - case.log_z < -0.5


def test_metropolis_corrects_a_bijection_and_refuses_another_flow(seed: int) -> None:
    case = gaussian(3)
    done = run(case, seed=seed, refresh=None, draws=128, duration=5)
    indices = done.metropolis(seed=seed)
    draws = np.take_along_axis(done.variables["x"], indices[..., None], axis=1)
    moved = np.mean(np.diff(indices, axis=1) != 0)
    assert 0.3 < moved < 1
    mean, variance = draws.mean(axis=(0, 1)), draws.var(axis=(0, 1))
    assert np.all(np.abs(mean - case.mean) < 0.25 * np.sqrt(case.variance))
    assert np.all(np.abs(variance / case.variance - 1) < 0.35)
    with pytest.raises(StanctError, match="no bijection"):
        run(case, seed=seed, draws=8).metropolis()


def test_a_metastability_is_reported(seed: int) -> None:
    """A narrow mode far out in the base's tail: few trajectories find it, and the run says so."""

    def function(x: Array) -> tuple[float, Array]:
        squares = np.array([x @ x / 2.0, (x - 5) @ (x - 5) / (2 * 0.15**2)])
        terms = np.array([np.log(0.5), np.log(0.5) - x.size * np.log(0.15)]) - squares
        value = float(np.logaddexp(*terms))
        share = np.exp(terms - value)
        return value, -share[0] * x - share[1] * (x - 5) / 0.15**2

    target = FunctionTarget(FunctionDensity(function, 3))
    base = GaussianBase(np.full(3, 2.0), 3 * np.eye(3))
    done = sampled(
        "adiabatic",
        target,
        base=base,
        draws=32,
        warmup=16,
        duration=5,
        seed=seed,
        progress=False,
        step=0.1,
    )
    named = {"hysteresis", "effective_size", "pareto_k", "kinetic", "energy", "lost", "stalled"}
    assert named & set(done.warnings)
    assert not done.is_reliable


def two_modes(**settings: object) -> AdiabaticRun:
    """The bimodal target of [GS] 7.1, log Z = 0, as a Stan program."""
    model = temper(ROOT / "examples" / "bimodal" / "bimodal.stan")
    chosen = {"draws": 64, "warmup": 64, "duration": 10.0, "progress": False, **settings}
    return sampled("adiabatic", model.target(), base=bimodal().base, **chosen)


@pytest.mark.usefixtures("words_alone")
def test_a_heating_metastability_between_two_modes_is_reported(seed: int) -> None:
    """Without resampling, flows from the target stall above it, and cooling never finds them.

    log Z lacks their share, whatever its error bar says; the run says so, in words and on its page.
    """
    done = two_modes(refresh=None, max_steps=2000, seed=seed)
    assert done.evidence.log_z < -6 * done.evidence.std_error > -1.2
    cooled, heated = done.stops
    assert heated.size == done.counts[:, 1, 2].sum() > 25 > cooled.size
    assert ((heated > 0) & (heated <= 1)).all() and np.median(heated) < 0.9
    assert {"stalled", "hysteresis"} <= set(done.warnings) and not done.is_reliable
    failed = {check.name: check for check in done.diagnostics if not check.passed}
    assert f"{heated.size / 256:.1%} of the heated trajectories stalled near β" in (
        failed["stalled"].message
    )
    assert "metastability" in failed["stalled"].remedy
    assert "missing from log Z" in failed["stalled"].remedy
    assert "Cooling and heating differ by" in failed["hysteresis"].message
    curve = done.heated_curve()
    assert (curve.log_z[-1], curve.std_error[-1]) == pytest.approx(done.heated_evidence)
    assert curve.log_z[0] == curve.std_error[0] == 0
    page = str(done.report())
    assert "Do not use this number" in page and "resample the momentum" in page


def test_a_cooling_metastability_between_two_modes_is_reported(seed: int) -> None:
    """Cooled in far too little time, trajectories are left behind where the modes part."""
    done = two_modes(duration=0.5, seed=seed)
    assert "effective_size" in done.warnings and not done.is_reliable
    assert done.heated_evidence[0] > done.evidence.log_z + 0.2


def test_resampled_momenta_cross_between_two_modes(seed: int) -> None:
    done = two_modes(refresh=3.0, duration=40.0, draws=128, seed=seed)
    assert done.is_reliable, done.warnings
    assert abs(done.evidence.log_z) < 4 * done.evidence.std_error < 0.3
    left = done.expect(lambda variables: variables["x"] < 0)
    assert abs(left.value - 0.6) < 4 * left.std_error < 0.2
    assert [stops.size for stops in done.stops] == [0, 0]


def test_heating_that_never_arrives_is_no_evidence(seed: int) -> None:
    done = run(gaussian(1), seed=seed, draws=16)
    lost = done.heated_log_weights.copy()
    lost[..., 0] = -np.inf
    done = replace(done, heated_log_weights=lost)
    assert done.heated_evidence == (np.inf, np.inf)
    assert "hysteresis" in done.warnings


def test_a_stall_is_counted(seed: int) -> None:
    with pytest.raises(SamplingError, match=r"(lost before|No trajectory arrived)"):
        run(gaussian(1), seed=seed, max_steps=3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"draws": 4}, "draws must be a whole number of at least 8"),
        ({"duration": 0.0}, "duration must be a finite number above 0"),
        ({"step": -0.1}, "step must be a finite number above 0, or None"),
        ({"refresh": np.inf}, "refresh must be a finite number above 0, or None"),
        ({"threads": 0}, "threads must be a whole number of at least 1"),
    ],
)
def test_impossible_settings(settings: dict, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        run(gaussian(1), **settings)


def test_a_program_any_threads_and_back_from_disk(tmp_path: Path, seed: int) -> None:
    program = "parameters { real x; } model { x ~ normal(1, 2); target += 3; }"
    (tmp_path / "normal.stan").write_text(program)
    model = temper(tmp_path / "normal.stan")
    base = GaussianBase(np.zeros(1), 3 * np.eye(1))
    one, two = (
        model.sample(
            None, Adiabatic(duration=5.0), base=base, seed=seed, draws=32, warmup=16,
            threads=threads, progress=False,
        )
        for threads in (1, 2)
    )  # fmt: skip
    assert np.array_equal(one.node_log_weights, two.node_log_weights)
    assert abs(one.evidence.log_z - 3) < 4 * one.evidence.std_error < 0.6
    one.save(tmp_path / "run")
    back = load(tmp_path / "run")
    assert isinstance(back, AdiabaticRun)
    assert back.evidence == one.evidence
    assert np.array_equal(back.heated_delta, one.heated_delta)


def test_a_mode_that_no_trajectory_reached_is_a_failed_check() -> None:
    """A peak in a wide component: cooling and heating agree on log 0.1."""
    apart = """parameters { vector[2] x; }
    model { target += log_mix(0.9, normal_lpdf(x | 0, 0.05), normal_lpdf(x | 10, 3)); }"""
    found = sampled("adiabatic", target_of(apart), draws=64, warmup=32, seed=2, progress=False)
    assert abs(found.evidence.log_z - np.log(0.1)) < 0.1
    assert found.warnings == ("modes",)
    assert found.mode_columns["pilot_weight"] == pytest.approx([0.9, 0.1], abs=0.05)
    assert found.modes["weight"].to_numpy() == pytest.approx([0, 1], abs=0.01)


@pytest.mark.parametrize(
    "density",
    [
        "log_mix(0.5, normal_lpdf(x | -1.3, 1), normal_lpdf(x | 1.3, 1))",
        "log_mix(0.9995, normal_lpdf(x | 0, 1), normal_lpdf(x | 8, 0.5))",
    ],
    ids=["overlap", "negligible"],
)
def test_modes_that_overlap_or_hold_nothing_are_not_missed(density: str) -> None:
    target = target_of(f"parameters {{ real x; }} model {{ target += {density}; }}")
    found = sampled("adiabatic", target, draws=64, warmup=32, seed=1, progress=False)
    assert found.modes is not None and "modes" not in found.warnings


def test_lost_trajectories_belong_to_no_mode() -> None:
    """A trajectory that did not arrive has no weight, and its place need not be finite."""
    survey = {"place": [[0.0], [9.0]], "spread": [[1.0], [1.0]], "log_evidence": [2.0, 2.0]}
    x = np.array([[[0.0], [9.0], [np.nan], [0.0]], [[9.0], [np.inf], [0.0], [9.0]]])
    log_weights = np.where(np.isfinite(x[..., 0]), 0.0, -np.inf)
    share, pilots = mode_shares(survey, x, np.asarray, log_weights), np.full(2, 2.0)
    table = mode_columns(share, pilots, log_weights, None)
    assert table["weight"] == pytest.approx([0.5, 0.5])
    assert table["pilot_weight"] == pytest.approx([0.5, 0.5])
    none_of_a_chain = np.where([[True], [False]], log_weights, -np.inf)
    assert mode_columns(share, pilots, none_of_a_chain, None)["chains"].tolist() == [1, 1]

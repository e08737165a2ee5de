"""TACT-HMC keeps the target invariant under noise of unknown size, and its ablations do not."""

# The type of a run without evidence must refuse `.evidence`.
# pyright: reportUnnecessaryTypeIgnoreComment=true

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, SEED, target_of
from sampled import sampled
from test_execution import pool

import stanct
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError, StanctError
from stanct.estimates.mixing import effective_size
from stanct.kernels import tact as tact_kernels
from stanct.path.gaussian import GaussianBase
from stanct.runs.surveyed import mode_size
from stanct.runs.tact import THERMOSTAT, XI_THERMOSTAT, TactRun
from stanct.samplers.tact import VARIANTS, Coupling, Hills
from stanct.targets.batches import StochasticTarget

NORMAL = target_of(
    "parameters { vector[2] x; } model { x[1] ~ normal(0, 1); x[2] ~ normal(3, 2); }"
)
MODES = target_of(
    "parameters { real x; } model { target += "
    "log_mix(0.35, normal_lpdf(x | -3, 0.5), normal_lpdf(x | 3, 0.8)); }"
)
PLAIN = {1: GaussianBase(np.zeros(1), np.eye(1)), 2: GaussianBase(np.zeros(2), np.eye(2))}
NOISE = (2.0, 5.0)


def run(target: Any, variant: str = "tact", **settings: Any) -> TactRun:
    dimension = target.density.dimension
    known = {
        "base": PLAIN[dimension], "seed": SEED, "progress": False, "draws": 2000, "warmup": 300,
        **VARIANTS[variant],
    }  # fmt: skip
    return sampled("tact", target, **{**known, **settings})


def error_of(values: Array) -> float:
    """Standard error of the mean of a (chains, draws) array."""
    return float(values.std() / np.sqrt(effective_size(values)))


def z_score(values: Array, truth: float, largest: float) -> float:
    """|mean − truth| in standard errors, whose size has a bound too."""
    error = error_of(values)
    assert error < largest
    return abs(float(values.mean()) - truth) / error


def test_noise_is_taken_up() -> None:
    """Means and variances of a normal under noise that more than doubles the friction."""
    found = run(NORMAL, "sgnht", noise=NOISE, draws=3000)
    x = found.variables["x"]
    assert z_score(x[..., 1], 3.0, 0.1) < 4
    assert z_score(x[..., 0] ** 2, 1.0, 0.05) < 4
    assert z_score((x[..., 1] - 3) ** 2, 4.0, 0.3) < 4
    assert found.is_reliable, found.warnings


def test_without_a_thermostat_noise_heats() -> None:
    """The ablation that the test above must fail for: variances grow by about η V / 2c."""
    x = run(NORMAL, "sghmc", noise=NOISE, draws=2000).variables["x"]
    assert z_score(x[..., 0] ** 2, 1.0, 0.2) > 8
    assert np.mean(x[..., 0] ** 2) == pytest.approx(1 + 0.01 * 25 / 2 / 0.1, rel=0.15)


def test_the_published_step_is_biased_by_half_the_friction() -> None:
    """And the symmetric one is not: variance 1 − z/2 of a unit normal."""
    unit = target_of("parameters { vector[2] x; } model { x ~ normal(0, 1); }")
    settings = {"friction": 0.4, "draws": 4000}
    published = run(unit, "sgnht", integrator="published", **settings)
    friction = published.trace[..., THERMOSTAT].mean()
    square = (published.variables["x"] ** 2).mean(axis=-1)
    assert z_score(square, 1 - friction / 2, 0.02) < 4
    assert z_score(square, 1.0, 0.02) > 8
    symmetric = run(unit, "sgnht", **settings)
    assert z_score((symmetric.variables["x"] ** 2).mean(axis=-1), 1.0, 0.03) < 4


def test_tempering_finds_the_weights_of_modes() -> None:
    found = run(MODES, start=np.array([3.0]), noise=(1.0, 3.0), draws=3000)
    x = found.variables["x"]
    assert z_score((x < 0).astype(float), 0.35, 0.04) < 4
    assert z_score(x, -3 * 0.35 + 3 * 0.65, 0.2) < 4
    assert found.plateau_share == pytest.approx(0.2, abs=0.04)
    assert found.is_reliable, found.warnings


@pytest.mark.parametrize("variant", ["no_tempering", "sghmc", "sgld"])
def test_without_tempering_chains_stay_where_they_are(variant: str) -> None:
    x = run(MODES, variant, start=np.array([3.0]), draws=500).variables["x"]
    assert (x > 0).all()


@pytest.mark.parametrize("thermostat", ["scalar", None])
def test_metadynamics_finds_them_too(thermostat: str | None) -> None:
    """With a thermostat, and by the Langevin moves of the extended Hamiltonian."""
    own = dict(VARIANTS["tact" if thermostat else "extended_hamiltonian"], bias="hills")
    hills = Hills(0.2, 0.2, softening=2.0)
    found = run(MODES, "tact", **(own | {"hills": hills, "draws": 2500, "warmup": 1500, "seed": 5}))
    assert found.method_settings["thermostat"] == thermostat
    left = found.expect(lambda draws: draws["x"] < 0)
    assert abs(left.value - 0.35) < 4 * left.std_error < 0.4
    assert found.trips.min() >= 100


@pytest.mark.parametrize("softening", [2.0, 8.0])
def test_hills_fill_the_free_energy(softening: float) -> None:
    """A normal in D dimensions: F(λ) = ½ D (log λ − λ) from its typical energy; W follows −F."""
    hills = Hills(0.02, 0.2, softening=softening)
    found = wide_run(bias="hills", hills=hills, warmup=4000, seed=5)
    truth = 7.5 * (np.log(9) - 1 + 1 / 9)
    share = softening / (softening + 1)
    rise = found.bias[1, -5:].mean() - found.bias[1, :20].mean()
    assert rise == pytest.approx(share * truth, abs=1.5)


def test_visits_under_hills_follow_the_free_energy() -> None:
    """Frozen hills W leave visits ∝ exp(−F − W), on the plateau, too, and W follows −F there.

    F is by quadrature. On the plateau no energy acts on ξ; without friction there, its visits are
    wrong by up to a factor of four.
    """
    hills = Hills(0.02, 0.2, softening=4.0)
    found = run(MODES, bias="hills", hills=hills, draws=6000, warmup=3000, seed=5)
    x = np.linspace(-60, 60, 6001)
    energy = -MODES.density.log_densities(x[:, None]) - found.provenance["energy_offset"]
    centres = (np.arange(100) + 0.5) / 100 * Coupling().wall
    lam = np.array([tact_kernels.coupling(xi, 1 / 3, 1.0, 3.0)[0] for xi in centres])
    free = -np.array([np.logaddexp.reduce(-value * energy) for value in lam])
    expected = np.exp(-free - found.bias[1])
    visits, _ = np.histogram(np.abs(found.trace[..., 0]), 10, (0, Coupling().wall))
    shares = expected.reshape(10, 10).sum(axis=1) / expected.sum()
    np.testing.assert_allclose(visits / visits.sum(), shares, rtol=0.15)
    below = found.bias[1] + 0.8 * free
    assert np.ptp(below) < 0.6


def test_the_biasing_force_learns_the_mean_energy() -> None:
    """A normal in D dimensions has mean energy ½ D T at temperature T."""
    found = wide_run(bias="force")
    centres = (np.arange(100) + 0.5) / 100 * Coupling().wall
    heat = np.array([1 / tact_kernels.coupling(xi, 1 / 3, 1.0, 3.0)[0] for xi in centres])
    energy = found.bias[1] - found.bias[1, :20].mean()
    assert np.mean((energy - 7.5 * (heat - 1)) / heat) == pytest.approx(0, abs=0.5)


def wide_run(**settings: Any) -> TactRun:
    """A normal in 15 dimensions."""
    wide = target_of("parameters { vector[15] x; } model { x ~ normal(0, 1); }")
    base = GaussianBase(np.zeros(15), np.eye(15))
    known = {"draws": 50, "warmup": 2000, "seed": SEED, "progress": False, "chains": 4}
    return sampled("tact", wide, base=base, **{**known, **settings})


def test_thermostats_settle_where_theory_says() -> None:
    """Means c + ηV/2 and Gaussian spreads √(η / γD) of [TACT] (6), for θ and ξ."""
    found = run(
        NORMAL, noise=(6.0, 4.0), step=0.05, tempering_step=0.05, draws=2000, inertia=0.5,
        tempering_inertia=2.0,
    )  # fmt: skip
    ours, xi = found.trace[..., THERMOSTAT], found.trace[..., XI_THERMOSTAT]
    assert ours.mean() == pytest.approx(0.1 + 0.0025 * 16 / 2, rel=0.03)
    assert xi.mean() == pytest.approx(0.1 + 0.0025 * 36 / 2, rel=0.08)
    assert ours.std() == pytest.approx(0.05 / np.sqrt(0.5 * 2), rel=0.06)
    assert xi.std() == pytest.approx(0.05 / np.sqrt(2.0), rel=0.12)
    skew = np.mean(((ours - ours.mean()) / ours.std()) ** 3)
    assert abs(skew) < 0.15
    assert found.thermostat_means == pytest.approx([0.12, 0.145], rel=0.1)


def test_diagonal_thermostats_take_up_uneven_noise() -> None:
    """One friction for all coordinates is too little for the noisy one, too much for the other."""

    def noisy(x: Array, rng: np.random.Generator) -> tuple[float, Array]:
        gradient = -x + rng.standard_normal(2) * np.array([0.0, 12.0])
        return -0.5 * float(x @ x), gradient

    settings = {"seed": SEED, "progress": False, "tempering": False, "draws": 800, "warmup": 30,
                "start": np.zeros(2)}  # fmt: skip
    target = StochasticTarget(noisy, 2)
    even = sampled("tact", target, thermostat="diagonal", **settings).variables["x"] ** 2
    assert z_score(even[..., 0], 1.0, 0.1) < 4 and z_score(even[..., 1], 1.0, 0.1) < 4
    scalar = sampled("tact", target, **settings).variables["x"] ** 2
    assert scalar[..., 1].mean() > 1.4 > 0.7 > scalar[..., 0].mean()


def test_a_full_thermostat_takes_up_correlated_noise() -> None:
    """The frictions of coordinates alone leave a correlation in the draws that is not there."""

    def noisy(x: Array, rng: np.random.Generator) -> tuple[float, Array]:
        common, own = 4.0 * rng.standard_normal(), 2.0 * rng.standard_normal(2)
        return -0.5 * float(x @ x), -x + common + own

    settings = {"seed": SEED, "progress": False, "tempering": False, "draws": 1500, "warmup": 30,
                "start": np.zeros(2)}  # fmt: skip
    target = StochasticTarget(noisy, 2)
    found = sampled("tact", target, thermostat="full", **settings)
    x = found.variables["x"]
    assert z_score(x[..., 0] * x[..., 1], 0.0, 0.1) < 4
    assert z_score(x[..., 0] ** 2, 1.0, 0.1) < 4
    assert "thermostat" not in found.warnings
    assert found.trace[..., THERMOSTAT].mean() == pytest.approx(0.1 + 0.01 * 20 / 2, rel=0.1)
    alone = sampled("tact", target, thermostat="diagonal", **settings).variables["x"]
    assert np.mean(alone[..., 0] * alone[..., 1]) > 0.25


def test_a_full_thermostat_needs_few_coordinates() -> None:
    wide = StochasticTarget(lambda x, _: (-0.5 * float(x @ x), -x), 65)
    with pytest.raises(SamplingError, match="matrix of 65 rows, and 64 are the most"):
        sampled("tact", wide, thermostat="full", progress=False)


def test_a_long_step_is_reported() -> None:
    """Longer than a third of the narrowest direction's own time: friction must do more."""
    stiff = target_of("parameters { vector[2] x; } model { x ~ normal(0, [0.2, 3]'); }")
    found = run(stiff, "sgnht", step=0.3, draws=1000)
    assert "thermostat" in found.warnings
    assert "too long" in next(c.remedy for c in found.diagnostics if c.name == "thermostat")


def test_noise_that_no_friction_takes_up_is_reported() -> None:
    found = run(NORMAL, "sgnht", noise=(0.0, 40.0), draws=500)
    assert found.thermostat_means[0] == np.inf
    (failed,) = [c for c in found.diagnostics if c.name == "thermostat" and not c.passed]
    assert "more than any friction takes up" in failed.message


def test_a_bias_that_was_not_learned_is_reported() -> None:
    """Without a bias ξ stays at one end."""
    found = wide_run(bias=None, draws=20, warmup=0, seed=2)
    assert {"trips", "bias"} <= set(found.warnings)


def test_nothing_depends_on_threads() -> None:
    one, two = (
        run(MODES, noise=(1.0, 1.0), draws=150, warmup=150, threads=threads, chains=3)
        for threads in (1, 2)
    )
    assert (one.z == two.z).all() and (one.trace == two.trace).all()
    assert (run(MODES, draws=20, seed=1).z != run(MODES, draws=20, seed=2).z).all()


def test_a_run_that_died_goes_on_from_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in the warm-up and again among the draws, it ends as if it had not been."""
    settings = {"noise": (1.0, 1.0), "draws": 60, "warmup": 100, "chains": 2}
    whole = run(MODES, **settings)
    real = tact_kernels.run_looks
    for lives in (5, 7):
        calls = iter(range(lives))

        def mortal(*arguments: Any, calls: Any = calls) -> Any:
            if next(calls, None) is None:
                raise ZeroDivisionError
            return real(*arguments)

        monkeypatch.setattr(tact_kernels, "run_looks", mortal)
        with pytest.raises(ZeroDivisionError):
            run(MODES, checkpoint=tmp_path / "folder", **settings)
    monkeypatch.setattr(tact_kernels, "run_looks", real)
    again = run(MODES, checkpoint=tmp_path / "folder", **settings)
    assert (again.z == whole.z).all() and (again.trace == whole.trace).all()
    assert (again.noise == whole.noise).all() and again.gradients == whole.gradients


def test_patience_bounds_the_gradients() -> None:
    """With 1 every variant costs the same, and tempered chains keep fewer draws."""
    settings = {"draws": 200, "warmup": 100, "patience": 1, "noise": (1.0, 1.0)}
    short, still = run(MODES, **settings), run(MODES, "sgnht", **settings)
    assert short.trace.shape[1] == still.draws == 200
    assert 10 < short.draws < 100 and "patience" in short.warnings
    assert short.counts[:, 0].tolist() == still.counts[:, 0].tolist() == [10 * (50 + 100 + 200)] * 4


@pytest.mark.parametrize("seed", [SEED, 3, 4])
def test_an_interrupt_keeps_finished_draws(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With seeds 3 and 4 one chain has collected more by then than what both have finished."""
    real, calls = tact_kernels.run_looks, iter(range(40))

    def impatient(*arguments: Any) -> Any:
        if next(calls, None) is None:
            raise KeyboardInterrupt
        return real(*arguments)

    monkeypatch.setattr(tact_kernels, "run_looks", impatient)
    found = run(MODES, draws=4000, warmup=100, chains=2, threads=1, seed=seed)
    assert 0 < found.draws < 4000 and "interrupted" in found.warnings


def noisy_normal(x: Array, rng: np.random.Generator) -> tuple[float, Array]:
    """A function that workers can import."""
    return -0.5 * float(x @ x) + rng.standard_normal(), -x + rng.standard_normal(x.size)


@LONG
def test_functions_go_to_processes() -> None:
    """With the state of their noise; a lambda cannot."""
    settings = {"seed": SEED, "progress": False, "draws": 30, "warmup": 25, "chains": 2}
    target = StochasticTarget(noisy_normal, 2)
    with pool(1) as workers:
        there = sampled("tact", target, executor=workers, **settings)
        with pytest.raises(SamplingError, match=r"cannot receive this target.*top level"):
            sampled(
                "tact",
                StochasticTarget(lambda x, rng: noisy_normal(x, rng), 2),
                executor=workers,
                **settings,
            )
    here = sampled("tact", target, threads=1, **settings)
    assert (here.z == there.z).all() and (here.noise == there.noise).all()


def test_no_evidence(tmp_path: Path) -> None:
    found = run(MODES, draws=100, warmup=100)
    assert not isinstance(found, stanct.EvidenceRun)
    with pytest.raises(AttributeError, match="evidence"):
        _ = found.evidence  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(StanctError, match=r"no evidence: tact estimates none.*gibbs"):
        stanct.compare(found, found)
    assert "of the time at temperature 1" in repr(found) and "log Z" not in repr(found)
    found.save(tmp_path / "run")
    back = stanct.load(tmp_path / "run")
    assert isinstance(back, TactRun)
    assert (back.trace == found.trace).all() and repr(back) == repr(found)
    assert back.base is not None and back.warnings == found.warnings
    data = found.to_arviz()
    assert data.posterior["x"].shape == (4, 100)
    assert "log_z" not in data.posterior.attrs
    assert found.expect("x").value == pytest.approx(found.variables["x"].mean())


HIERARCHY = """
data { int N; vector[N] y; } parameters { vector[2] th; real mu; real<lower=0> tau; }
model { mu ~ normal(0, 5); tau ~ lognormal(0, 1); th ~ normal(mu, tau); y ~ normal(th[1], 2); }
"""


@LONG
@pytest.mark.parametrize(
    ("minibatch", "fit"), [(None, "pilot"), (stanct.MiniBatch("N", 2), "laplace")]
)
def test_the_default_base_suits_hierarchies(minibatch: Any, fit: str) -> None:
    """A hierarchy is fitted in several forms before the method runs."""
    target = target_of(HIERARCHY, {"N": 4, "y": [2.0, -1.0, 0.5, 1.0]})
    short = {"draws": 20, "warmup": 20, "seed": SEED, "progress": False}
    found = sampled("tact", target, minibatch=minibatch, **short)
    assert found.settings["base"] == fit and found.base is not None
    assert found.variables["th"].shape == (4, found.draws, 2)


def test_a_mode_that_the_search_found_and_chains_lost_fails() -> None:
    """Chains of a search that saw two modes, with and without the draws of one."""
    found = run(MODES, base="pilot", draws=500)
    assert found.modes is not None and "modes" not in found.warnings
    assert found.mode_columns is not None
    assert found.mode_columns["pilot_weight"] == pytest.approx([0.65, 0.35], abs=0.05)
    assert "log_z" not in found.modes and "pilot_log_z" in found.modes
    assert found.base is not None
    right = found.base.whiten(3 + np.abs(found.base.unwhiten(found.z)) / 100)
    lost = replace(found, z=right)
    (check,) = [check for check in lost.diagnostics if check.name == "modes"]
    assert not check.passed and "Mode 2" in check.message


def test_a_mode_that_was_hardly_visited_lowers_the_effective_size() -> None:
    """One visit of 20 draws in 4 × 500: ranks of the coordinate hardly show it."""
    found = run(MODES, base="pilot", draws=500)
    assert found.base is not None
    x = np.random.default_rng(1).normal(3, 0.8, found.z.shape)
    x[0, 100:120] -= 6
    rare = replace(found, z=found.base.whiten(x))
    assert effective_size(x[..., 0], method="bulk") > 400
    assert "effective_size" in rare.warnings
    assert mode_size(rare.pilot_columns) < 100 and mode_size(None) == np.inf


def test_functions_need_no_base(tmp_path: Path) -> None:
    """A stochastic function is sampled in its own coordinates; the run is saved without a base."""

    def noisy(x: Array, rng: np.random.Generator) -> tuple[float, Array]:
        return -0.5 * float(x @ x) + rng.standard_normal(), -x + rng.standard_normal(3)

    target = StochasticTarget(noisy, 3, label="a normal")
    found = sampled(
        "tact", target, draws=300, warmup=100, thin=5, seed=SEED, progress=False, step=0.2, chains=2
    )
    assert z_score((found.variables["x"] ** 2).mean(axis=-1), 1.0, 0.2) < 4
    assert found.noise[:, :2].mean(axis=0) == pytest.approx(1.0, rel=0.4)
    found.save(tmp_path / "run")
    assert stanct.load(tmp_path / "run").base is None
    with pytest.raises(SamplingError, match="makes its own batches"):
        sampled("tact", target, minibatch=stanct.MiniBatch("N"), progress=False)
    with pytest.raises(SamplingError, match="this target has none"):
        sampled("tact", target, base="pilot", progress=False)


def test_a_failing_function_says_where() -> None:
    def broken(x: Array, rng: np.random.Generator) -> tuple[float, Array]:
        raise RuntimeError("no network")

    with pytest.raises(SamplingError, match="where a chain is to start: RuntimeError: no network"):
        sampled("tact", StochasticTarget(broken, 2), progress=False)


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"step": 0}, "step must be a finite number above 0"),
        ({"friction": -1}, "friction must be a finite number of at least 0"),
        ({"thermostat": "nose"}, "thermostat must be 'scalar', 'diagonal' or 'full', or None"),
        ({"bias": "abf"}, "bias must be 'force' or 'hills', or None, not 'abf'"),
        ({"integrator": "euler"}, "integrator must be 'symmetric' or 'published', not 'euler'"),
        ({"chains": 0}, "chains must be a whole number of at least 1"),
        ({"start": np.zeros(5)}, r"start has shape \(5,\)"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
        ({"base": "mixture"}, "would not cross"),
    ],
)
def test_impossible_settings(settings: dict[str, Any], match: str) -> None:
    with pytest.raises(SamplingError, match=match):
        run(NORMAL, **settings)


@pytest.mark.parametrize(
    ("make", "name"),
    [
        (lambda: Coupling(plateau=2.0), "plateau"),
        (lambda: Coupling(power=0.5), "power"),
        (lambda: Hills(height=0), "height"),
    ],
)
def test_impossible_parts(make: Any, name: str) -> None:
    with pytest.raises(SamplingError, match=name):
        make()

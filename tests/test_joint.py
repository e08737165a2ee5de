"""Joint continuous tempering end to end: exact evidences, moments, determinism, interrupts."""

from __future__ import annotations

import contextlib
import signal
import threading
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from scipy.integrate import quad
from scipy.stats import norm
from targets import CUT, LINE, SKEWED, TWO_MODES, Exact

from stanct.common.errors import ProgramError, SamplingError
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.path.gaussian import GaussianBase
from stanct.runs.tempered import TemperedRun
from stanct.samplers._nuts import CompiledNuts
from stanct.samplers._watch import Watch


def run_of(exact: Exact, seed: int, *, draws: int = 600, **settings: Any) -> TemperedRun:
    target = target_of(exact.source, exact.data)
    return sampled("joint", target, seed=seed, draws=draws, progress=False, **settings)


@pytest.mark.parametrize(
    ("exact", "largest_error", "largest_mean_error"),
    [
        (LINE, 0.05, 0.02),
        (SKEWED, 0.05, 0.05),
        (TWO_MODES, 0.12, 0.9),
        (CUT, 0.08, 0.03),
    ],
    ids=["line", "skewed", "two_modes", "cut"],
)
def test_evidence_and_means(
    exact: Exact, largest_error: float, largest_mean_error: float, seed: int
) -> None:
    run = run_of(exact, seed, draws=2500)
    assert abs(run.evidence.log_z - exact.log_z) < 4 * run.evidence.std_error
    assert run.evidence.std_error < largest_error
    for name, mean in exact.means.items():
        found = run.expect(name)
        assert np.all(np.abs(found.value - mean) < 4 * found.std_error), name
        assert np.all(found.std_error < largest_mean_error)


def test_both_modes_have_their_weights_while_nuts_is_stuck(seed: int) -> None:
    target = target_of(TWO_MODES.source)
    run = run_of(TWO_MODES, seed, draws=5000)
    left = run.expect(lambda v: v["x"][..., 0] < 0)
    assert abs(left.value - 0.7) < 4 * left.std_error
    assert left.std_error < 0.06
    block, _ = embedded.run_nuts(
        target.density_recipe,
        np.array([[-6.0, -3.0], [6.0, 3.0]]),
        seed=1,
        warmup=300,
        draws=1000,
        nuts=Nuts(),
    )
    sides = block.variables["x"][..., 0] > 0
    assert sides[0].sum() == 0 and sides[1].all()


def test_curve_against_quadrature(seed: int) -> None:
    """log z(β) of the geometric path between the run's own base and the target, D = 1."""
    target = target_of(SKEWED.source, SKEWED.data)
    run = run_of(SKEWED, seed)
    beta = np.array([0.01, 0.1, 0.5, 1.0])
    curve = run.curve(beta)
    mean, sd = run.base.mean[0], np.sqrt(run.base.covariance[0, 0])

    def integrand(x: float, b: float) -> float:
        log_base = norm.logpdf(x, mean, sd)
        return float(np.exp(b * target.density.log_density(np.array([x])) + (1 - b) * log_base))

    low, high = mean - 12 * sd, mean + 12 * sd
    exact = [np.log(quad(integrand, low, high, args=(b,), limit=400)[0]) for b in beta]
    assert np.all(np.abs(curve.log_z - exact) < 4 * curve.std_error)
    assert np.all(curve.std_error < 0.05)


def test_draws_do_not_depend_on_threads_and_depend_on_the_seed(seed: int) -> None:
    one = run_of(LINE, seed, draws=100, threads=1)
    four = run_of(LINE, seed, draws=100, threads=4)
    assert np.array_equal(one.z, four.z) and np.array_equal(one.base_delta, four.base_delta)
    assert one.evidence.log_z == four.evidence.log_z
    other = run_of(LINE, seed + 1, draws=100)
    assert not np.array_equal(one.z, other.z)
    assert len({chain[-1].tobytes() for chain in one.z}) == 4


def test_delta_and_weights_of_the_program_are_ours(seed: int) -> None:
    """δ saved by the Stan program equals δ recomputed from z through the density program."""
    target = target_of(SKEWED.source, SKEWED.data)
    run = run_of(SKEWED, seed, draws=50)
    x = run.base.unwhiten(run.z).reshape(-1, 1)
    delta = run.base.delta(run.z.reshape(-1, 1), target.density.log_densities(x))
    assert run.delta.ravel() == pytest.approx(delta, rel=1e-9, abs=1e-9)
    assert run.variables["r"].ravel() == pytest.approx(np.exp(x[:, 0]))


def test_given_base_without_rounds(seed: int) -> None:
    base = GaussianBase(np.array([-2.4, -1.2]), np.array([[5.6, 0.0], [2.8, 1.0]]))
    run = run_of(TWO_MODES, seed, base=base, log_zeta=3.0, bootstrap=0)
    assert run.base is base
    assert run.bias.log_zeta == 3.0 and run.bias.beta.size == 2
    assert abs(run.evidence.log_z - 3.5) < 4 * run.evidence.std_error


def test_a_bad_guess_is_mended_by_a_table_of_biases(seed: int) -> None:
    """A base far too narrow and off centre makes log z(β) dip deeply: the bias gets knots."""
    base = GaussianBase(np.array([6.0, 3.0]), np.eye(2) * 4)
    run = run_of(LINE, seed, base=base, log_zeta=20.0, bootstrap=2, draws=2500)
    assert abs(run.evidence.log_z - LINE.log_z) < 4 * run.evidence.std_error
    assert run.evidence.std_error < 0.1


def test_functions_that_add_to_the_target(seed: int) -> None:
    """What _lp functions add is part of the density; derived quantities have their names."""
    source = """
    functions { void centre_lp(real x) { x ~ normal(1, 2); target += 0.5; } }
    parameters { real x; real<lower=0> s; }
    model { centre_lp(x); s ~ exponential(1); }
    generated quantities { real y = x + s; }
    """
    run = sampled("joint", target_of(source), seed=seed, draws=400, progress=False)
    assert abs(run.evidence.log_z - 0.5) < 4 * run.evidence.std_error
    assert run.variables["y"] == pytest.approx(run.variables["x"] + run.variables["s"])


def test_interrupt_keeps_finished_draws(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = CompiledNuts.draw, []

    def interrupted(*args, **settings):
        calls.append(args)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return original(*args, **settings)

    monkeypatch.setattr(CompiledNuts, "draw", interrupted)
    run = run_of(LINE, seed, draws=600, engine="embedded")
    assert run.provenance["interrupted"] and "interrupted" in run.evidence.warnings
    assert run.draws == 150  # 16 blocks of the round, 3 of the run, then the interrupt
    monkeypatch.setattr(CompiledNuts, "draw", original)
    assert np.array_equal(run.z, run_of(LINE, seed, draws=600, engine="embedded").z[:, :150])


def test_an_interrupt_that_a_finaliser_drops_is_heeded(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drop(*_: object) -> None:
        with contextlib.suppress(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)

    base = GaussianBase(np.zeros(2), np.eye(2))
    monkeypatch.setattr(Watch, "show", drop)
    run = run_of(LINE, seed, draws=600, base=base, bootstrap=0)
    assert "interrupted" in run.warnings and run.draws == 50


def test_interrupt_before_any_draw(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_args, **_settings):
        raise KeyboardInterrupt

    monkeypatch.setattr(CompiledNuts, "adapt", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_of(LINE, seed, engine="embedded")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"chains": 0}, "chains must be a whole number of at least 1"),
        ({"draws": 2.5}, "draws must be a whole number of at least 8"),
        ({"warmup": 20}, "warmup must be a whole number of at least 150"),
        ({"target_accept": 1.0}, "target_accept must be a number between 0 and 1"),
        (
            {"base": "variational"},
            "base must be .*'modes' or a base .* your own, not 'variational'",
        ),
        ({"base": GaussianBase(np.zeros(3), np.eye(3))}, "3 dimensions, the program 2"),
        ({"log_zeta": 1.0}, "log_zeta belongs to a base of your own"),
        ({"bootstrap": -1}, "bootstrap must be a whole number of at least 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0"),
    ],
)
def test_impossible_settings(settings: dict, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        sampled(
            "joint", target_of(LINE.source, LINE.data), **{"seed": 1, "progress": False} | settings
        )


@pytest.mark.parametrize("method", ["joint", "gibbs", "parallel_tempering", "ais"])
def test_random_transformed_data_are_refused(method: str) -> None:
    source = """
    transformed data { real q = normal_rng(0, 1); }
    parameters { real x; }
    model { x ~ normal(q, 1); }
    """
    with pytest.raises(ProgramError, match=r"model.stan:2:33: `normal_rng` makes"):
        sampled(method, target_of(source), seed=1, progress=False)


@pytest.mark.parametrize("method", ["gibbs", "parallel_tempering", "ais"])
@pytest.mark.parametrize("wrong", [-1, 1.5, True])
def test_every_method_refuses_an_impossible_seed(method: str, wrong: Any) -> None:
    with pytest.raises(SamplingError, match="seed must be a whole number of at least 0"):
        sampled(method, target_of(LINE.source, LINE.data), seed=wrong, progress=False)


def test_runs_from_another_thread(seed: int) -> None:
    """The engine's samplers crash outside the library's thread: they go to a process then."""
    found: list[float] = []

    def work() -> None:
        run = run_of(LINE, seed, draws=60, base=GaussianBase(np.zeros(2), np.eye(2)), bootstrap=0)
        found.append(run.evidence.log_z)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    here = run_of(LINE, seed, draws=60, base=GaussianBase(np.zeros(2), np.eye(2)), bootstrap=0)
    assert found == [here.evidence.log_z]


def test_a_base_that_is_the_target_is_not_refitted() -> None:
    """Moments of a round's draws would be farther from the target than the base is."""
    normal = "parameters { vector[5] x; } model { x ~ std_normal(); }"
    run = sampled(
        "joint", target_of(normal), base="pilot", draws=200, warmup=150, engine="embedded"
    )
    assert run.evidence.std_error < 1e-6 and abs(run.evidence.log_z) < 1e-6
    # A base that is a little off is refitted.
    off = GaussianBase(np.zeros(5), 0.7 * np.eye(5))
    moved = sampled("joint", target_of(normal), base=off, draws=200, warmup=150, engine="embedded")
    assert np.abs(moved.base.covariance - off.covariance).max() > 0.1

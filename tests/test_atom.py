"""The atom at β = 0: its law, the transitions that visit it, and the tours between visits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from scipy.integrate import quad
from scipy.stats import ks_2samp
from targets import SKEWED, TWO_MODES

import stanct
from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError, StanctError
from stanct.kernels import make_extended, make_nuts_out, make_scratch, make_subtrees
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.samplers._nuts import NutsDraws
from stanct.targets.density import Density

TABLE = np.array([0.0, 0.2, 1.0]), np.array([0.0, -1.5, 0.5])
ATOM, LOG_ZETA, WIDTH = 0.3, 0.7, 0.4


def p_value(a: Array, b: Array) -> float:
    return float(np.asarray(ks_2samp(a, b))[1])


@pytest.mark.parametrize("delta", [-40.0, -1.0, 0.0, 2.0, 60.0])
def test_masses_are_integrals(delta: float) -> None:
    bias, plain = Bias(*TABLE, atom=ATOM), Bias(*TABLE)

    def integrand(beta: float) -> float:
        return float(np.exp(-beta * delta - plain(beta)))

    mass = sum(quad(integrand, *ends, epsabs=0, epsrel=1e-10)[0] for ends in ((0, 0.2), (0.2, 1)))
    assert np.exp(bias.log_mass(np.array(delta))) == pytest.approx(ATOM + (1 - ATOM) * mass)
    assert bias.log_mass(np.array(np.inf)) == pytest.approx(np.log(ATOM))
    log_weight = bias.log_weights(np.array(delta), 1.0)
    assert log_weight == pytest.approx(-delta - 0.5 - np.log(ATOM + (1 - ATOM) * mass))


@pytest.mark.parametrize("delta", [-300.0, -1.0, 0.0, 4.0, 300.0, np.inf])
def test_compiled_beta_is_the_library_s_beta_and_has_its_law(delta: float, rng) -> None:
    bias = Bias(*TABLE, atom=ATOM)
    uniforms, law = rng.random((2, 4000)), kernels.make_law(*TABLE, ATOM)
    found = np.array([kernels.draw_beta(delta, law, one, two) for one, two in uniforms.T])
    assert found == pytest.approx(bias.sample_beta(np.full(4000, delta), uniforms), abs=1e-9)
    share = ATOM / np.exp(bias.log_mass(np.array(delta)))
    error = np.sqrt(share * (1 - share) / 4000)
    assert abs(np.mean(found == 0) - share) <= 4 * error + 1e-12
    if 0.01 < share < 0.99:
        rest = Bias(*TABLE).sample_beta(np.full(20_000, delta), rng.random((2, 20_000)))
        assert p_value(found[found > 0], rest) > 1e-3


@pytest.mark.parametrize("atom", [-0.1, 1.0, float("nan")])
def test_bad_weights_are_refused(atom: float) -> None:
    with pytest.raises(StanctError, match="weight of an atom"):
        Bias(*TABLE, atom=atom)


def exact(rng: np.random.Generator, count: int) -> tuple[Array, Array]:
    """z and β of base N(0, 1) and e^LOG_ZETA N(1, WIDTH²) without a bias but with the atom."""
    grid = (np.arange(4000) + 0.5) / 4000
    precision = grid / WIDTH**2 + 1 - grid
    mean = grid / WIDTH**2 / precision
    log_z = LOG_ZETA * grid - grid * np.log(WIDTH) - 0.5 * np.log(precision)
    log_z -= 0.5 * grid / WIDTH**2 - 0.5 * precision * mean**2
    z_of_beta = np.exp(log_z)
    k = rng.choice(grid.size, size=count, p=z_of_beta / z_of_beta.sum())
    beta, mean, precision = grid[k], mean[k], precision[k]
    share = ATOM / (ATOM + (1 - ATOM) * z_of_beta.mean())
    there = rng.random(count) < share
    z = np.where(there, 0.0, mean) + rng.standard_normal(count) / np.sqrt(
        np.where(there, 1.0, precision)
    )
    return z, np.where(there, 0.0, beta)


@pytest.fixture(scope="module")
def normal() -> Density:
    source = f"parameters {{ real x; }} model {{ x ~ normal(1, {WIDTH}); target += {LOG_ZETA}; }}"
    return target_of(source).density


# Vanishes at a third of the base's draws.
CUT = """parameters { real x; }
model { if (x < -0.43) reject(x); target += std_normal_lpdf(x); }"""
BASE = GaussianBase(np.zeros(1), np.eye(1))


def by_nuts(density: Density, z: Array, beta: Array, rng: np.random.Generator, atom: float) -> Any:
    """Two transitions of NUTS from each point, with halved steps."""
    bias = Bias(np.array([0.0, 1.0]), np.zeros(2), atom=atom)
    trees, out = make_subtrees(6, 2, 1), make_nuts_out(2, 2, 1)
    ours, scratch = make_extended(density, BASE, bias, 1, np.zeros(0)), make_scratch(1)
    orbit = kernels.Orbit(ours, np.array([0.5, 3.0]), trees, scratch)
    point, gradient = trees.vectors[kernels.STATE, kernels.POINT :]
    scalars, ends = trees.scalars[kernels.STATE], np.empty((z.size, 2))
    for n in range(z.size):
        with np.errstate(divide="ignore"):
            point[:] = z[n], np.log(beta[n] / (1 - beta[n]))
        if beta[n] > 0:
            scalars[kernels.LOG_DENSITY] = kernels.evaluate_extended(
                ours, point, gradient, scalars[kernels.DELTA :], scratch
            )
        kernels.nuts_draws(orbit, 1.2, 6, True, rng, out)
        ends[n] = out.w[-1]
    return ends[:, 0], 1 / (1 + np.exp(-ends[:, 1]))


def by_gibbs(density: Density, z: Array, beta: Array, rng: np.random.Generator, atom: float) -> Any:
    """Two alternations from each point."""
    problem, law = kernels.make_problem(density, BASE), kernels.make_law(
        np.array([0.0, 1.0]), np.zeros(2), atom
    )  # fmt: skip
    moves = kernels.Moves(1.5, 16, 0.8, False)
    mover = kernels.Mover(moves, kernels.make_table(1), make_scratch(1))
    out, ends = kernels.make_gibbs_out(2, 1), np.empty((2, z.size))
    for n in range(z.size):
        state = kernels.make_state(problem, np.array([z[n]]))
        alternation = kernels.Alternation(float(beta[n]), law, False, 1)
        kernels.gibbs_draws(problem, state, alternation, mover, rng, out)
        ends[:, n] = out.z[-1, 0], out.beta[-1]
    return ends


@pytest.mark.parametrize("move", [by_nuts, by_gibbs])
def test_chains_with_the_atom_leave_their_law_invariant(move: Any, normal: Density, rng) -> None:
    z, beta = move(normal, *exact(rng, 10_000), rng, ATOM)
    wanted = exact(rng, 100_000)
    for function in (lambda z, b: z, lambda z, b: z[b == 0], lambda z, b: b[b > 0],
                     lambda z, b: (z - b) ** 2):  # fmt: skip
        assert p_value(function(z, beta), function(*wanted)) > 1e-4
    share = np.mean(wanted[1] == 0)
    assert abs(np.mean(beta == 0) - share) < 4 * np.sqrt(share * (1 - share) / z.size)
    # An atom of another weight is found.
    other = move(normal, *exact(rng, 4000), rng, ATOM / 2)[1]
    assert abs(np.mean(other == 0) - share) > 4 * np.sqrt(share * (1 - share) / 4000)


@pytest.mark.parametrize("method", ["joint", "gibbs"])
def test_runs_regenerate_at_the_atom(method: str, seed: int, tmp_path) -> None:
    """Draws after one at the atom do not depend on it, and estimates are right."""
    target = target_of(SKEWED.source, SKEWED.data)
    run = sampled(method, target, seed=seed, draws=1500, engine="embedded", progress=False)
    assert run.tours is not None
    assert run.tours.count == 4 + int((run.beta[:, :-1] == 0).sum())
    assert 0.025 < np.mean(run.beta == 0) < 0.1
    before, after = run.z[:, :-1, 0], run.z[:, 1:, 0]
    fresh = run.beta[:, :-1] == 0
    assert abs(np.corrcoef(before[fresh], after[fresh])[0, 1]) < 4 / np.sqrt(fresh.sum())
    for evidence in (run.evidence, run.rao_blackwell_evidence, run.thermodynamic_evidence):
        assert abs(evidence.log_z - SKEWED.log_z) < 4 * evidence.std_error < 0.2
    run.save(tmp_path / "run")
    again: Any = stanct.load(tmp_path / "run")
    assert again.bias.atom == run.bias.atom > 0 and again.evidence == run.evidence
    plain = sampled(method, target, seed=seed, draws=200, atom=0.0, progress=False)
    assert plain.tours is None and np.all(plain.beta > 0)


@pytest.mark.parametrize(("method", "share"), [("joint", 0.2), ("gibbs", 0.05)])
def test_the_atom_takes_the_share_that_was_chosen(method: str, share: float, seed: int) -> None:
    """Although all other β have less than a fifth of their usual mass under the user's bias."""
    target = target_of("parameters { vector[6] x; } model { x ~ normal(0, 0.2); }")
    base, flat = GaussianBase(np.zeros(6), np.eye(6)), ((0.0, 0.0), (1.0, 0.0))
    run = sampled(
        method, target, seed=seed, base=base, bias=flat, atom=share, bootstrap=1, draws=4000,
        engine="embedded", progress=False,
    )  # fmt: skip
    assert run.bias.atom < share / 3
    assert 0.6 * share < np.mean(run.beta == 0) < 1.6 * share
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.5


def test_outside_of_the_support_only_the_atom_is_left(seed: int) -> None:
    """A third of the base's draws are outside of the target's support."""
    target = target_of(CUT)
    exact_log_z = np.log(0.6664)
    for method in ("joint", "gibbs"):
        settings: dict[str, Any] = {"bootstrap": 0, "atom": 0.3, "engine": "embedded"}
        run = sampled(method, target, seed=seed, draws=1000, base=BASE, progress=False, **settings)
        outside = ~np.isfinite(run.delta)
        assert 0.02 < outside.mean() < 0.4 and np.all(run.beta[outside] == 0)
        assert abs(run.evidence.log_z - exact_log_z) < 4 * run.evidence.std_error < 0.1


def test_gibbs_draws_from_a_mixture_by_its_atom(seed: int) -> None:
    target = target_of(TWO_MODES.source)
    run = sampled("gibbs", target, seed=seed, draws=1000, progress=False)
    assert not run.base.is_gaussian
    assert abs(run.evidence.log_z - TWO_MODES.log_z) < 4 * run.evidence.std_error < 0.1
    with pytest.raises(SamplingError, match="draws from its base"):
        sampled("gibbs", target, seed=seed, base="mixture", atom=0.0, progress=False)
    one = sampled("gibbs", target, seed=seed, draws=100, atom=0.0, progress=False)
    assert one.base.is_gaussian


def test_chains_that_never_left_the_atom_begin_inside() -> None:
    """Step sizes are those of the path, and none can be found at the atom."""
    z, no = np.arange(12.0).reshape(3, 4, 1), -np.inf
    u = np.array([[1.0, no, 2.0, no], [no, no, no, no], [no, no, no, no]])
    delta = np.array([[0.0, 0.0, 0.0, 0.0], [0.0, 1.0, np.inf, np.inf], [0.0, 0.0, 0.0, 0.0]])
    found = NutsDraws(z, u, delta, {}).inside
    assert found[:, 0] == pytest.approx([2, 5, 11])
    assert found[0, 1] == 2 and np.all(np.isfinite(found)) and np.all(found[1:, 1] < -10)

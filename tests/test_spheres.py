"""Unit vectors lie on spheres, whose areas Stan's own densities do not have."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from scipy.special import gammaln, iv
from verify import verify

from stanct import sample
from stanct.engines.embedded import DrawBlock
from stanct.runs.evidence_run import EvidenceRun
from stanct.stan.omissions import omissions
from stanct.stan.program import Program

FLAT = "data { int n; } parameters { array[2] unit_vector[n] u; } model { }"
# Normalised von Mises–Fisher densities on the circle and on the sphere.
DIRECTIONS = {
    2: "target += 2 * u[1] - log(2 * pi()) - log_modified_bessel_first_kind(0, 2);",
    3: "target += 2 * u[1] + log(2) - log(4 * pi()) - log(sinh(2));",
}


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_density_is_that_of_the_area(n: int, rng: np.random.Generator) -> None:
    """Without a prior, log Z is the log of the area, 2 π^{n/2} / Γ(n/2) for each vector."""
    density = target_of(FLAT, {"n": n}).density
    area = np.log(2) + 0.5 * n * np.log(np.pi) - gammaln(0.5 * n)
    y = rng.standard_normal(2 * n)
    normal = -0.5 * np.square(y).sum() - n * np.log(2 * np.pi)
    assert density.log_density(y) - normal == pytest.approx(2 * area, abs=1e-12)


@pytest.mark.parametrize("n", DIRECTIONS)
@pytest.mark.parametrize("method", ["independence", "joint"])
def test_normalised_densities_have_mass_one(n: int, method: str, seed: int) -> None:
    target = target_of(f"parameters {{ unit_vector[{n}] u; }} model {{ {DIRECTIONS[n]} }}")
    run = sample(target, method, seed=seed, draws=500, engine="embedded", progress=False)
    assert isinstance(run, EvidenceRun)
    assert run.evidence.std_error < 0.03
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error
    mean = {2: iv(1, 2) / iv(0, 2), 3: 1 / np.tanh(2) - 0.5}[n]
    found = run.expect(lambda v: v["u"][..., 0])
    assert found.value == pytest.approx(mean, abs=4 * float(found.std_error))


@pytest.mark.parametrize("kind", ["density", "joint", "pseudo_extended", "weighted"])
def test_generated_programs_agree(kind: str) -> None:
    source = """
    data { int n; vector[n] y; }
    parameters { array[2] unit_vector[n] u; real<lower=0> s; }
    model { s ~ exponential(1); y ~ normal(3 * u[1] + u[2], s); }
    """
    assert verify(target_of(source, {"n": 3, "y": [1, 2, 0.5]}), kind, points=6).passed


def test_arrays_are_laid_out_vector_by_vector(rng: np.random.Generator) -> None:
    """Stan names their coordinates in another order than it lays them out."""
    target = target_of(FLAT, {"n": 3})
    density = target.density
    names = [f"u.{k}.{i}" for k in (1, 2) for i in (1, 2, 3)]
    assert density.unconstrained_names == tuple(names)
    y = rng.standard_normal(6)
    by_name = dict(zip(density.names, density.constrain(y), strict=True))
    of_second = [by_name[f"u.2.{i}"] for i in (1, 2, 3)]
    np.testing.assert_allclose(of_second, y[3:] / np.linalg.norm(y[3:]))
    nested = target_of("parameters { array[2, 3] real a; matrix[2, 2] m; } model { }").density
    at = dict(zip(nested.names, nested.constrain(np.arange(10.0)), strict=True))
    assert [at[name] for name in nested.unconstrained_names] == list(range(10))


def test_draws_come_back_to_their_points(rng: np.random.Generator) -> None:
    """The length of an unconstrained vector is drawn; its direction is that of the draw."""
    target = target_of(FLAT, {"n": 3})
    u = rng.standard_normal((1, 20, 2, 3))
    u /= np.linalg.norm(u, axis=-1, keepdims=True)
    x = target.unconstrain(DrawBlock({"u": u}, {}), 0, rng)
    again = target.density.variables(x, seed=1)["u"]
    np.testing.assert_allclose(again, u[0], atol=1e-12)


def test_priors_of_all_vectors_are_told() -> None:
    """A normal prior is not normalised on a sphere, nor among vectors that sum to zero."""
    source = """
    parameters { unit_vector[3] u; sum_to_zero_vector[4] z; simplex[3] p; simplex[3] q; }
    model { u ~ normal(0, 1); z ~ normal(0, 1); p ~ dirichlet(rep_vector(1, 3)); q ~ normal(0, 1); }
    """
    found = omissions(Program.from_source(source))
    told = {one.parameters[0] for one in found if one.kind == "on_surface"}
    assert told == {"u", "z", "q"}


@pytest.mark.parametrize("n", ["2", "3", "5", "n"])
def test_a_flat_prior_lacks_the_area(n: str) -> None:
    """The remedy normalises the program, and is not asked for again."""
    source = "data {{ int n; }} parameters {{ array[2] unit_vector[{}] u; }} model {{ {} }}"
    (flat,) = omissions(Program.from_source(source.format(n, "")))
    assert flat.kind == "unused_parameter" and flat.correction is not None
    remedy = f"target += {flat.correction};"
    size = 3 if n == "n" else int(n)
    area = np.log(2) + 0.5 * size * np.log(np.pi) - gammaln(0.5 * size)
    assert flat.value is None if n == "n" else flat.value == pytest.approx(-2 * area)
    target = target_of(source.format(n, remedy), {"n": size})
    y = np.random.default_rng(1).standard_normal(2 * size)
    normal = -0.5 * np.square(y).sum() - size * np.log(2 * np.pi)
    assert target.density.log_density(y) == pytest.approx(normal, abs=1e-12)
    assert omissions(target.program) == ()

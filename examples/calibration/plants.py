"""Faults that the calibration must find: a kernel, a base and an estimator that are wrong."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from scipy.optimize import minimize

import stanct
from stanct.estimates.path import PathEstimator
from stanct.path.bias import Bias
from stanct.path.course import beta_grid

PLANTS = ("kernel", "base", "estimator")
SHIFT = 0.1
Array = np.ndarray


def options_of(plant: str | None, method: Any, dimension: int) -> dict[str, Any]:
    """The options with which `sample` runs a method, under a plant or without one."""
    if plant == "kernel":
        return {"method": Stuck()}
    if plant == "base":
        # Beside the mass and much narrower than it, and no round mends it.
        base = stanct.GaussianBase(np.full(dimension, 3.0), 0.1 * np.eye(dimension))
        method = stanct.Joint() if method is None else method
        frozen = {"bootstrap": 0} if hasattr(method, "bootstrap") else {}
        return {"method": replace(method, **frozen), "base": base}
    return {} if method is None else {"method": method}


def evidence_of(plant: str | None, run: Any) -> stanct.Evidence:
    """The evidence of a run, under a plant or without one."""
    if plant == "estimator":
        return replace(run.bare_evidence, log_z=run.bare_evidence.log_z + SHIFT)
    return run.bare_evidence


def modes(density: Any, starts: Array) -> Array:
    """The modes that lie uphill from the starts, shape (modes, D)."""

    def downhill(x: Array) -> tuple[float, Array]:
        value, gradient = density.log_density_gradient(x)
        return (-value, -gradient) if np.isfinite(value) else (1e300, np.zeros_like(x))

    found: list[Array] = []
    for start in starts:
        top = minimize(downhill, start, jac=True, method="L-BFGS-B").x
        if all(np.linalg.norm(top - other) > 0.5 for other in found):
            found.append(top)
    return np.array(found)


@dataclass(frozen=True)
class Cells:
    """The cells of the points nearest to each mode, in whitened coordinates."""

    centres: Array

    def __call__(self, z: Array) -> int:
        return int(np.square(self.centres - z).sum(axis=1).argmin())


def confined(
    at: Callable[[Array], float], z: Array, delta: float, beta: float, rng: np.random.Generator
) -> tuple[Array, float]:
    """A move by elliptical slice sampling (Murray, Adams & MacKay 2010)."""
    level, other = -beta * delta - rng.exponential(), rng.standard_normal(z.size)
    angle = rng.uniform(0, 2 * np.pi)
    low, high = angle - 2 * np.pi, angle
    while True:
        point = z * np.cos(angle) + other * np.sin(angle)
        new = at(point)
        if -beta * new > level or high - low < 1e-12:
            return point, new
        low, high = (angle, high) if angle < 0 else (low, angle)
        angle = rng.uniform(low, high)


def work(borrow: Any, base: Any, bias: Bias, cells: Cells, lane: list[Any], draws: int) -> Array:
    """Move a chain through a block without ever leaving the cell in which it is."""
    (rng, z), rows = lane, []
    own = cells(z)
    with borrow() as density:

        def at(point: Array) -> float:
            inside = cells(point) == own
            return (
                base.delta(point, density.log_density(base.unwhiten(point))) if inside else np.inf
            )

        delta = at(z)
        for _ in range(draws):
            beta = float(bias.sample_beta(delta, rng.random(2)))
            for _ in range(3):
                # β = 0 would make 0 × ∞ of the walls of the cell.
                z, delta = confined(at, z, delta, max(beta, 1e-12), rng)
            rows.append([*z, beta, delta])
    lane[1] = z
    return np.array(rows)


@dataclass(frozen=True, kw_only=True)
class Stuck(stanct.Method[stanct.TemperedRun]):
    """Gibbs continuous tempering whose chains stay in the mode in which they begin."""

    name: ClassVar[str] = "stuck"
    default_draws: ClassVar[int] = 500
    default_warmup: ClassVar[int] = 250
    least_warmup: ClassVar[int] = 8

    def run(self, job: Any) -> stanct.TemperedRun:
        """Learn the bias in the warm-up, freeze it, and draw."""
        start = job.start()
        base, bias = start.base, Bias.linear(start.log_zeta)
        draws = base.unwhiten(base.draw(job.seeds.stream("modes"), 20))
        cells = Cells(base.whiten(modes(job.density, draws)))
        lanes = [[job.seeds.stream("chain", k), z] for k, z in enumerate(job.places(base))]
        fields: Mapping[str, Any] = {}
        stopped = False
        for stage, total in (("warm-up", job.warmup), ("draws", job.draws)):
            move = partial(work, job.borrow, base, bias, cells)
            sizes = [min(50, total - done) for done in range(0, total, 50)]
            blocks, stopped = job.blocks(stage, move, lanes, sizes, final=stage == "draws")
            rows = np.array([np.concatenate(chain) for chain in blocks])
            z, beta, delta = rows[..., :-2], rows[..., -2], rows[..., -1]
            path = PathEstimator(delta, job.base_delta(base, delta.size, stage), bias)
            fields = {"x": base.unwhiten(z), "z": z, "beta": beta, "delta": delta, "bias": bias}
            fields = {**fields, "base": base, "base_delta": path.base_delta}
            if stage == "warm-up":
                bias = path.course(beta_grid(101)).bias()
        statistics = {"divergent__": 0 * fields["beta"]}
        return job.finish(stanct.TemperedRun, interrupted=stopped, statistics=statistics, **fields)

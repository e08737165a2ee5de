"""Annealed scouts: particles that cool from a wide Gaussian to locate the mass of the target.

Descents from random starts end in the nearest mode, and a frustrated density has thousands. A
particle that is cooled slowly crosses between modes while it is hot. A hundred particles therefore
spread over the deep modes, roughly in proportion to the mass of each basin. Their unweighted
moments are those a base needs: wide where modes lie apart, and no wider than the target if it has
only one mode.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from stanct import kernels
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import EngineError
from stanct.kernels import (
    Mover,
    Moves,
    Population,
    Schedule,
    make_population,
    make_problem,
    make_scratch,
    make_table,
    make_tally,
)
from stanct.path.gaussian import GaussianBase
from stanct.work.execution import Borrow
from stanct.work.interrupts import end_if_left_behind, in_threads
from stanct.work.progress import Bar

STREAMS = 4
TEMPERATURES = 100
MOVES = Moves(path_length=1.5, max_steps=64, target_accept=0.8, learn=True)


@dataclass(frozen=True)
class Scouts:
    """Endpoints of annealed particles inside the support, unconstrained, shape (n, D), and the log
    of their mean weight, which is too low if few particles carry the weight.
    """

    points: Array = field(repr=False)
    log_z: float
    gradients: int


def annealed_scouts(
    borrow: Borrow,
    base: GaussianBase,
    *,
    particles: int,
    seed: np.random.SeedSequence,
    threads: int,
    temperatures: int = TEMPERATURES,
    bar: Bar | None = None,
) -> Scouts:
    """Cool particles from a base to the target, and find modes within its reach.

    Step sizes are learned on the way, because the particles serve only as starts and shapes. Their
    number is rounded up to a multiple of `STREAMS`, so many `threads` of which run at once; they do
    not depend on it. An `EngineError` says that the target vanishes at nearly all of them.
    """
    betas = np.linspace(0, 1, temperatures + 1) ** 2

    def stream(child: np.random.SeedSequence) -> tuple[Array, Array, float]:
        rng = np.random.Generator(np.random.PCG64(child))
        population = make_population(base.draw(rng, -(-particles // STREAMS)))
        scratch, tally = make_scratch(base.dimension), make_tally()
        mover = Mover(MOVES, make_table(base.dimension), scratch)
        with borrow() as density:
            problem = make_problem(density, base)
            for k in range(len(population.z)):
                end_if_left_behind()
                row = (population.z[k], population.gradient[k], population.value[k])
                kernels.evaluate(problem, *row, scratch)
            for k in range(len(population.z)):  # compiled loops ask nobody
                end_if_left_behind()
                one = Population(*(values[k : k + 1] for values in population))
                kernels.anneal(problem, one, Schedule(betas, 1), mover, rng, tally)
                if bar is not None:
                    bar.update()
        return population.z, population.log_weights, tally.counts[0] + len(population.z)

    children = seed.spawn(STREAMS)
    found = in_threads(lambda k: stream(children[k]), STREAMS, threads)
    z = np.concatenate([z for z, _, _ in found])
    log_weights = np.concatenate([weights for _, weights, _ in found])
    inside = np.isfinite(log_weights)
    if inside.sum() < 2:
        raise EngineError(
            f"The target vanishes at all but {inside.sum()} of {inside.size} annealed particles.",
            remedy="Pass base='pathfinder' or a GaussianBase.",
        )
    log_z = float(log_sum_exp(log_weights) - np.log(log_weights.size))
    gradients = int(sum(spent for _, _, spent in found))
    return Scouts(base.unwhiten(z[inside]), log_z, gradients)

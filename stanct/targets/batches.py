"""Log densities estimated from batches: a Stan program's shards, or a noisy Python function.

A sampler sees unbiased estimates of the log density and of its gradient, but not the batch that
gave them. The blocks of a chain borrow batches in the worker where they run (`Source`), as other
methods borrow densities.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import SamplingError
from stanct.engines.embedded import Recipe
from stanct.kernels import SIGNATURE
from stanct.kernels.noisy import Potential
from stanct.targets.density import Density
from stanct.targets.function_target import FunctionDensity, ProgramlessTarget
from stanct.targets.lending import Shelves
from stanct.targets.protocols import BatchDensity
from stanct.work.execution import Borrow

Estimate = Callable[[Array, np.random.Generator], tuple[float, Array]]
# Picklable; yields batches for the caller's exclusive use while the context lasts. A user's
# function takes its noise from the generator.
Lend = Callable[[np.random.Generator], AbstractContextManager["Batches"]]


@dataclass(frozen=True)
class Batches:
    """Densities given one batch each, from any of which the log density is estimated.

    Batch j of n_j observations is drawn with probability n_j / N. It estimates log p(x) by w_j
    v_j(x) + (1 − w_j) v_0(x) with w_j = N / n_j, where v_j is the log density given batch j alone,
    and v_0 the `prior`, given no data. Without it the shards include their weights, and the
    estimate is v_j(x). At the `reference`, shape (D,), a linear function of x makes the estimates
    of log density and gradient exact, which removes most of the noise nearby.
    """

    shards: tuple[BatchDensity, ...]
    sizes: Array
    prior: BatchDensity | None = None
    reference: Array | None = field(default=None, repr=False)

    @property
    def dimension(self) -> int:
        """D."""
        return self.shards[0].dimension

    @property
    def weights(self) -> Array:
        """w_j, shape (S,)."""
        return self.sizes.sum() / self.sizes

    def estimate(self, batch: int, x: Array) -> tuple[float, Array]:
        """Estimate log density and gradient at x from one batch, without the reference."""
        value, gradient = self.shards[batch].log_density_gradient(x)
        if self.prior is None:
            return value, gradient
        weight = float(self.weights[batch])
        prior, slope = self.prior.log_density_gradient(x)
        return weight * value + (1 - weight) * prior, weight * gradient + (1 - weight) * slope

    def exact(self, x: Array) -> tuple[float, Array]:
        """Compute log density and gradient of all data, in one pass through them."""
        share = self.sizes / self.sizes.sum()
        found = [self.estimate(j, x) for j in range(len(self.shards))]
        value = sum(p * v for p, (v, _) in zip(share, found, strict=True))
        return float(value), np.sum([p * g for p, (_, g) in zip(share, found, strict=True)], axis=0)

    def corrections(self) -> tuple[Array, Array]:
        """Return the a_j, shape (S,), and b_j, shape (S, D), that make batches exact at x̂.

        The term a_j + b_j x is added to the estimate of batch j. The arrays are empty without a
        reference. Raises `SamplingError` if the density is not finite there.
        """
        if self.reference is None:
            return np.zeros(0), np.zeros((0, self.dimension))
        found = [self.estimate(j, self.reference) for j in range(len(self.shards))]
        values = np.array([value for value, _ in found])
        gradients = np.array([gradient for _, gradient in found])
        if not (np.isfinite(values).all() and np.isfinite(gradients).all()):
            raise SamplingError(
                "The log density of a batch is not finite at the reference point.",
                remedy="Pass another reference, or control=False.",
            )
        share = self.sizes / self.sizes.sum()
        slopes = share @ gradients - gradients
        return share @ values - values - slopes @ self.reference, slopes


def make_potential(
    batches: Batches,
    mean: Array,
    scale: Array,
    corrections: tuple[Array, Array],
    noise: tuple[float, float],
) -> Potential:
    """Return batches in the form that compiled code takes; valid as long as their densities live.

    m and L are those of x = m + L z. L is lower triangular, shape (D, D), or its diagonal, shape
    (1, D).
    """
    return Potential(
        SIGNATURE(batches.shards[0].address),
        np.array([shard.handle for shard in batches.shards], np.int64),
        batches.weights,
        np.cumsum(batches.sizes / batches.sizes.sum()),
        0 if batches.prior is None else batches.prior.handle,
        batches.prior is not None,
        np.ascontiguousarray(corrections[0]),
        np.ascontiguousarray(corrections[1]),
        np.ascontiguousarray(mean, float),
        np.ascontiguousarray(scale, float),
        (float(noise[0]), float(noise[1])),
    )


@dataclass(frozen=True)
class Source:
    """Batches in whitened coordinates, borrowed where they are evaluated; see `make_potential`.

    `lend` is what `whole`, `estimates` or `cut` returns.
    """

    lend: Lend
    mean: Array
    scale: Array
    corrections: tuple[Array, Array]
    noise: tuple[float, float]

    @contextmanager
    def potential(self, rng: np.random.Generator) -> Iterator[Potential]:
        """Yield the batches for compiled code; they are valid while the context lasts."""
        with self.lend(rng) as batches:
            yield make_potential(batches, self.mean, self.scale, self.corrections, self.noise)


def whole(borrow: Borrow) -> Lend:
    """Make all data one batch."""
    return functools.partial(_whole, borrow)


@contextmanager
def _whole(borrow: Borrow, _: np.random.Generator) -> Iterator[Batches]:
    with borrow() as density:
        yield Batches((density,), np.ones(1))


def estimates(function: Estimate, dimension: int) -> Lend:
    """Make batches of a user's function, which chooses the data of each estimate itself."""
    return functools.partial(_estimates, function, dimension)


@contextmanager
def _estimates(function: Estimate, dimension: int, rng: np.random.Generator) -> Iterator[Batches]:
    density = FunctionDensity(lambda x: function(x, rng), dimension)
    yield Batches((density,), np.ones(1))


@dataclass(frozen=True)
class _Cut:
    """The recipes of a program's shards, from which any process can load them."""

    shards: tuple[Recipe, ...]
    sizes: Array
    prior: Recipe | None

    @functools.cached_property
    def key(self) -> str:
        recipes = [*self.shards, *([] if self.prior is None else [self.prior])]
        return hashlib.sha256("".join(recipe.key for recipe in recipes).encode()).hexdigest()

    def load(self) -> Batches:
        prior = None if self.prior is None else Density(self.prior)
        return Batches(tuple(map(Density, self.shards)), self.sizes, prior)


# The batches of the last program that was cut.
_shelves = Shelves[Batches](1)


def cut(batches: Batches) -> Lend:
    """Make batches of a Stan program's shards; loading takes seconds, so returned ones are kept."""
    prior = batches.prior
    recipe = _Cut(
        tuple(shard.recipe for shard in batches.shards if isinstance(shard, Density)),
        batches.sizes,
        prior.recipe if isinstance(prior, Density) else None,
    )
    _shelves.put(recipe.key, batches)
    return functools.partial(_cut, recipe)


def _cut(recipe: _Cut, _: np.random.Generator) -> AbstractContextManager[Batches]:
    return _shelves.lend(recipe.key, recipe.load)


@dataclass(frozen=True)
class StochasticTarget(ProgramlessTarget):
    """A target that a Python function estimates, such as a network's loss on a random batch.

    Each call costs the function's own time and some microseconds. Use the target with
    ``stanct.sample(target, stanct.TACT())``. Its one variable is ``x`` of shape (D,).

    Attributes
    ----------
    function
        Takes a point x of shape (D,) and a random generator. Returns unbiased estimates of the log
        density and of its gradient, shape (D,). The generator is the chain's own and must be the
        only source of randomness. The function is called from several threads, one at a time. A
        function that remembers earlier calls, such as its place in an epoch, suits only one chain
        without a checkpoint.
    dimension
        Number of dimensions D.
    label
        Name of the target in the run.
    """

    function: Estimate = field(repr=False)
    dimension: int
    label: str = "stochastic function"

    @property
    def density(self) -> FunctionDensity:
        """The estimate with a generator of seed 0, by which workers are compared."""
        return FunctionDensity(functools.partial(_first_estimate, self.function), self.dimension)


def _first_estimate(function: Estimate, x: Array) -> tuple[float, Array]:
    return function(x, np.random.default_rng(0))

"""Log densities known through batches: a Stan program's shards, or a noisy Python function.

Whatever the source, a sampler sees an unbiased estimate of the log density and of its gradient, and
never which batch it came from. Blocks of a chain borrow batches where they run (`Source`), as they
borrow densities elsewhere.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field

import numpy as np

from stanct.arrays import Array
from stanct.engines.embedded import Recipe
from stanct.errors import SamplingError
from stanct.kernels import SIGNATURE
from stanct.kernels.tact import Potential
from stanct.targets.density import Density
from stanct.targets.function_target import FunctionDensity, ProgramlessTarget
from stanct.targets.lending import Shelves
from stanct.targets.protocols import BatchDensity
from stanct.work.execution import Borrow

Estimate = Callable[[Array, np.random.Generator], tuple[float, Array]]
# Picklable; gives batches for the caller's own use while the context lasts. The generator is where
# a user's function takes its noise from.
Lend = Callable[[np.random.Generator], AbstractContextManager["Batches"]]


@dataclass(frozen=True)
class Batches:
    """Densities given one batch each, and the rule that makes an estimate of one of them.

    Batch j is drawn with probability n_j / N; log p(x) is estimated by
    w_j v_j(x) + (1 − w_j) v_0(x) with w_j = N / n_j, v_j the log density of the program given batch
    j alone, and v_0 that given no data. Without `prior` the shards carry
    their weights themselves and the estimate is v_j(x).

    Attributes
    ----------
    shards, sizes
        v_j and n_j, shape (S,).
    prior
        v_0.
    reference : shape (D,)
        Unconstrained point x̂ at which the estimates of all batches are made exact, log density and
        gradient: each gets the line in x that it misses there. Close to x̂ this removes most of the
        noise (control variates).
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
        """The estimate that batch j gives of log density and gradient at x, reference apart."""
        value, gradient = self.shards[batch].log_density_gradient(x)
        if self.prior is None:
            return value, gradient
        weight = float(self.weights[batch])
        prior, slope = self.prior.log_density_gradient(x)
        return weight * value + (1 - weight) * prior, weight * gradient + (1 - weight) * slope

    def exact(self, x: Array) -> tuple[float, Array]:
        """Log density and gradient of all data together, at the cost of one pass through them."""
        share = self.sizes / self.sizes.sum()
        found = [self.estimate(j, x) for j in range(len(self.shards))]
        value = sum(p * v for p, (v, _) in zip(share, found, strict=True))
        return float(value), np.sum([p * g for p, (_, g) in zip(share, found, strict=True)], axis=0)

    def corrections(self) -> tuple[Array, Array]:
        """The lines a_j + b_j x that make batches exact at the reference, shapes (S,) and (S, D).

        Empty without a reference.

        Raises
        ------
        SamplingError
            The density is not finite there.
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
    """Batches in the form that compiled code takes; valid as long as their densities live.

    Parameters
    ----------
    mean, scale
        x = m + L z, L of shape (D, D), lower triangular, or its diagonal of shape (1, D).
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
    """Batches in whitened coordinates, lent where they are evaluated; see `make_potential`.

    Attributes
    ----------
    lend
        Where the batches come from: `whole`, `estimates` or `cut`.
    """

    lend: Lend
    mean: Array
    scale: Array
    corrections: tuple[Array, Array]
    noise: tuple[float, float]

    @contextmanager
    def potential(self, rng: np.random.Generator) -> Iterator[Potential]:
        """The batches for compiled code, as long as the context lasts."""
        with self.lend(rng) as batches:
            yield make_potential(batches, self.mean, self.scale, self.corrections, self.noise)


def whole(borrow: Borrow) -> Lend:
    """All data are one batch."""
    return functools.partial(_whole, borrow)


@contextmanager
def _whole(borrow: Borrow, _: np.random.Generator) -> Iterator[Batches]:
    with borrow() as density:
        yield Batches((density,), np.ones(1))


def estimates(function: Estimate, dimension: int) -> Lend:
    """What a user's function estimates from a batch of its own choice."""
    return functools.partial(_estimates, function, dimension)


@contextmanager
def _estimates(function: Estimate, dimension: int, rng: np.random.Generator) -> Iterator[Batches]:
    density = FunctionDensity(lambda x: function(x, rng), dimension)
    yield Batches((density,), np.ones(1))


@dataclass(frozen=True)
class _Cut:
    """Everything that makes the shards of a program, so that any process can load them."""

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
    """Shards of a Stan program; loading them takes seconds, so they are kept when given back."""
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
    """A target that a Python function estimates, say a network's loss on a random batch.

    Slower than a Stan program only by what the function costs and some microseconds a call; use it
    with ``stanct.samplers.tact.sample``. Its one variable is ``x`` of shape (D,).

    Attributes
    ----------
    function
        From a point x of shape (D,) and a random generator, which is the chain's own and must be
        the only source of randomness, to unbiased estimates of the log density and of its gradient,
        shape (D,). It is called from several threads, one at a time. A function that remembers
        earlier calls, say its place in an epoch, is for one chain without a checkpoint.
    dimension
        D.
    label
        What the run calls it.
    """

    function: Estimate = field(repr=False)
    dimension: int
    label: str = "stochastic function"

    @property
    def density(self) -> FunctionDensity:
        """The estimate that a generator with seed 0 gives: by it workers are compared."""
        return FunctionDensity(functools.partial(_first_estimate, self.function), self.dimension)


def _first_estimate(function: Estimate, x: Array) -> tuple[float, Array]:
    return function(x, np.random.default_rng(0))

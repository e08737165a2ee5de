"""Mini-batches of a Stan program: shards of its data that are checked to add up.

The user names the size that counts observations. Every data array with a dimension of exactly that
size is cut along it, so a shard is the same program with fewer data. If the posterior is a prior
times one factor for each observation, then

    log p(x, A ∪ B) − log p(x, A) = log p(x, C ∪ B) − log p(x, C)   at every x,

which is checked at random points before sampling. For w = N / |B| and a random shard B,
w log p(x, B) + (1 − w) log p(x, ∅) is then an unbiased estimate of the log density. If the program
does not run without data, the likelihood is weighted inside the program instead.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import stanio

from stanct.common.arrays import Array
from stanct.common.errors import DataError, EngineError, ProgramError, SamplingError, StanctError
from stanct.common.settings import Flag, Whole, check_fields
from stanct.engines.embedded import Recipe
from stanct.stan.codegen import generate
from stanct.stan.nodes import Increment, Range, Tilde
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit, edited
from stanct.stan.syntax import walk
from stanct.targets.batches import Batches
from stanct.targets.data import StanData, error_at
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density

# Observations in each of the three parts A, B and C of a check; points with finite log densities;
# and the random points that are tried to find them.
PART, POINTS, TRIES = 20, 3, 60
TOLERANCE = 1e-8


@dataclass(frozen=True)
class MiniBatch:
    """Settings of the mini-batches of a Stan program.

    Attributes
    ----------
    observations
        Name of the size, in the data block, that counts observations.
    size
        Approximate number of observations in a batch. The data are cut into batches whose sizes
        differ by at most one.
    control
        Whether every batch's estimate is made exact at the centre of the base. This control variate
        removes most of the noise near the centre.
    """

    observations: str
    size: Annotated[int, Whole(1)] = 500
    control: Annotated[bool, Flag()] = True

    def __post_init__(self) -> None:
        check_fields(self)

    @property
    def settings(self) -> dict[str, Any]:
        """Settings for a run's provenance."""
        return asdict(self)


def program_batches(
    target: ProgramTarget, minibatch: MiniBatch, reference: Array | None, rng: np.random.Generator
) -> Batches:
    """Cut a program's data into random shards and check that they add up.

    Raises `DataError` or `ProgramError` at a size that is not declared, an array that cannot be
    cut, or a statement that does not add up over the observations; and `SamplingError` if there are
    too few, or the log density cannot be checked or split.
    """
    cutter = _Cutter(target, minibatch.observations)
    cutter.check(rng)
    order = rng.permutation(cutter.count)
    shards = np.array_split(order, max(1, round(cutter.count / minibatch.size)))
    sizes = np.array([len(shard) for shard in shards], float)
    point = reference if minibatch.control else None
    try:
        prior = cutter.density(np.arange(0))
    except (DataError, EngineError, SamplingError):
        weights = sizes.sum() / sizes
        split = [cutter.weighted(part, w) for part, w in zip(shards, weights, strict=True)]
        cutter.check_weighted(rng)
        return Batches(tuple(split), sizes, None, point)
    cutter.check_prior(prior, rng)
    return Batches(tuple(cutter.density(shard) for shard in shards), sizes, prior, point)


class _Cutter:
    """Makes the densities of a program given some of its observations."""

    def __init__(self, target: ProgramTarget, name: str) -> None:
        self.target, self.name = target, name
        values = target.data.values
        self.axes = _axes(target.program, name)
        self.count = int(values[name])
        if self.count < 3:
            raise SamplingError(
                f"`{name}` is {self.count}: there is nothing to cut into batches.",
                remedy="Sample without minibatch=.",
            )
        self.values = {
            d.name: np.asarray(values[d.name], int if d.type == "int" else float)
            if d.name in self.axes
            else values[d.name]
            for d in target.program.data
        }
        self.dimension = target.density.dimension
        self.code = target.code("density")

    def data(self, index: Array, extra: Mapping[str, Any] | None = None) -> str:
        """Return the JSON text of the data with these observations, shape (n,), in this order."""
        cut: dict[str, Any] = dict(self.values)
        cut[self.name] = len(index)
        for name, axis in self.axes.items():
            cut[name] = np.take(self.values[name], index, axis=axis)
        return stanio.dump_stan_json({**cut, **(extra or {})})

    def density(self, index: Array, code: str | None = None) -> Density:
        """Make the density of the density program, or of another one with the same data block."""
        return self._make(code or self.code, self.data(index))

    def weighted(self, index: Array, weight: float) -> Density:
        """Make the density of the program that weights its likelihood."""
        text = self.data(index, {f"{self.target.prefix}weight": weight})
        return self._make(self._weighted_code, text)

    @cached_property
    def _weighted_code(self) -> str:
        return self.target.code("weighted")

    def _make(self, code: str, text: str) -> Density:
        target = self.target
        density = make_density(Recipe(code, text), target.program, StanData(text, "a mini-batch"))
        if density.dimension != self.dimension:
            raise SamplingError(
                f"With fewer observations the program has {density.dimension} unconstrained "
                f"parameters instead of {self.dimension}.",
                remedy=f"`{self.name}` must count observations only.",
            )
        return density

    def parts(self, rng: np.random.Generator) -> tuple[Array, Array, Array]:
        """Draw A, B and C, which are disjoint; C may have one observation more."""
        order = rng.permutation(self.count)
        m = min(PART, self.count // 3)
        extra = 1 if self.count >= 3 * m + 1 else 0
        return order[:m], order[m : 2 * m], order[2 * m : 3 * m + extra]

    def check(self, rng: np.random.Generator) -> None:
        """Raise unless log densities add up over the observations."""
        parts = self.parts(rng)
        gap = self._gap(self.code, parts, rng)
        if gap is None:
            raise SamplingError(
                f"The log density was not finite at {TRIES} random points, so it cannot be "
                "checked that it adds up over the observations.",
                remedy="Sample without minibatch=.",
            )
        if gap > TOLERANCE:
            raise self._culprit(parts, rng)

    def _gap(
        self, code: str, parts: tuple[Array, Array, Array], rng: np.random.Generator
    ) -> float | None:
        """Return the relative error of the sum over observations; None if it is nowhere finite."""
        a, b, c = parts
        densities = [
            self.density(index, code)
            for index in (np.concatenate([a, b]), a, np.concatenate([c, b]), c)
        ]
        return self._worst(densities, np.array([1, -1, -1, 1]), rng)

    def _worst(
        self, densities: list[Density], signs: Array, rng: np.random.Generator
    ) -> float | None:
        """Return the largest |Σ ± log density| at random points, relative to its terms."""
        gaps = []
        for _ in range(TRIES):
            x = 0.5 * rng.standard_normal(self.dimension)
            found = np.array([density.log_density(x) for density in densities])
            if np.isfinite(found).all():
                gaps.append(abs(float(signs @ found)) / (1 + np.abs(found).max()))
            if len(gaps) == POINTS:
                break
        return max(gaps) if gaps else None

    def check_prior(self, prior: Density, rng: np.random.Generator) -> None:
        """Raise unless the program without data is the prior of the program with data."""
        a, b, _ = self.parts(rng)
        densities = [self.density(index) for index in (np.concatenate([a, b]), a, b)]
        gap = self._worst([*densities, prior], np.array([1, -1, -1, 1]), rng)
        if gap is None or gap > TOLERANCE:
            raise SamplingError(
                f"Without data (`{self.name}` = 0) the program is not the prior of the program "
                "with data.",
                remedy=f"Declare `int<lower=1> {self.name}` to have the likelihood weighted.",
            )

    def check_weighted(self, rng: np.random.Generator) -> None:
        """Raise unless the weighted terms are all that the observations add."""
        a, b, _ = self.parts(rng)
        both = [self.density(np.concatenate([a, b])), self.density(a)]
        weighted = [self.weighted(b, 2.0), self.weighted(b, 1.0)]
        gap = self._worst([*both, *weighted], np.array([1, -1, -1, 1]), rng)
        if gap is None or gap > TOLERANCE:
            raise SamplingError(
                "The terms taken for likelihood are not what the observations add to the log "
                f"density, and the program does not run with `{self.name}` = 0.",
                remedy="Mark statements `// stanct: prior` or `// stanct: likelihood`; "
                'stan_code("weighted") shows the split.',
            )

    def _culprit(self, parts: tuple[Array, Array, Array], rng: np.random.Generator) -> ProgramError:
        """Return an error at the first statement that does not add up by itself."""
        program = self.target.program
        remedy = (
            f"Mini-batches need one independent term for each of the `{self.name}` observations, "
            "given the parameters; sample without minibatch=, or write the program so."
        )
        for statement, code in _alone(program, self.target.prefix):
            try:
                gap = self._gap(code, parts, rng)
            except StanctError:
                continue
            if gap is not None and gap > TOLERANCE:
                used = _observed_names(program, statement, set(self.axes))
                names = f" It uses {', '.join(f'`{name}`' for name in used)}." if used else ""
                return program.syntax.error(
                    statement.first,
                    f"This statement does not add up over the observations.{names}",
                    remedy,
                )
        arrays = ", ".join(f"`{name}`" for name in self.axes)
        return ProgramError(
            f"The log density does not add up over the observations; the arrays cut along "
            f"`{self.name}` are {arrays}.",
            path=program.label,
            remedy=remedy,
        )


def _axes(program: Program, name: str) -> dict[str, int]:
    """Map each data array with a dimension of the named size to the axis of that dimension.

    Raises `DataError` if there is no such size, no array has it, or one depends on it in another
    way.
    """
    sizes = {d.name: d for d in program.data if d.type == "int" and not d.array_dims}
    if name not in sizes:
        raise DataError(
            f"The data block declares no size `{name}`.",
            path=program.label,
            remedy=f"Name one of {', '.join(sizes) or 'its sizes, of which there are none'}.",
        )
    word = re.compile(rf"\b{re.escape(name)}\b")
    for parameter in program.parameters:
        if word.search(" ".join([*parameter.array_dims, *parameter.dims])):
            raise error_at(
                parameter, program,
                f"`{parameter.name}` has a size that depends on `{name}`: every observation has "
                "parameters of its own.",
                "Sample without minibatch=, or integrate them out.",
            )  # fmt: skip
    axes: dict[str, int] = {}
    for declaration in program.data:
        dims = [*declaration.array_dims, *declaration.dims]
        if declaration.name == name or not any(word.search(size) for size in dims):
            continue
        found = [axis for axis, size in enumerate(dims) if size.strip() == name]
        others = [size for size in dims if word.search(size) and size.strip() != name]
        square = declaration.type.startswith(("cov", "corr", "cholesky"))
        if len(found) != 1 or others or square or declaration.type == "tuple":
            raise error_at(
                declaration, program,
                f"`{declaration.name}` depends on `{name}` otherwise than by one dimension of "
                f"exactly that size, so it cannot be cut into batches.",
                "Sample without minibatch=.",
            )  # fmt: skip
        axes[declaration.name] = found[0]
    if not axes:
        raise error_at(
            sizes[name], program, f"No data array has the size `{name}`.",
            "Name the size that counts observations.",
        )  # fmt: skip
    return axes


def _alone(program: Program, prefix: str) -> list[tuple[Range, str]]:
    """Return each statement that adds to the target, with a density program of it alone."""
    syntax = program.syntax
    terms = [
        statement.tokens
        for statement in walk(syntax.statements("model"))
        if isinstance(statement, Tilde | Increment)
    ]
    found = []
    for kept in terms:
        edits = [Edit(*syntax.span(other), ";") for other in terms if other != kept]
        found.append((kept, generate(edited(program, edits), "density", prefix=prefix)))
    return found


def _observed_names(program: Program, statement: Range, arrays: set[str]) -> list[str]:
    """Return the cut arrays and transformed data that a statement names, in order."""
    syntax = program.syntax
    made = set(syntax.words(syntax.block_range("transformed data")))
    words = syntax.names(statement)
    known = arrays | {word for word in made if word in words}
    parameters = set(program.parameter_names)
    return [w for w in dict.fromkeys(words) if w in known and w not in parameters]

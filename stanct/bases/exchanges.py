"""Optima that differ from known ones in the labels of components alone.

Where labels may be exchanged, as those of two planets or of the components of a mixture, every
optimum has twins of the same mass. Ascents may miss one: those that start around a known mode
count as finding it again. A density tells that labels may be exchanged by having the same value at
a point and at its image. The image of an optimum then needs no ascent.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from stanct.bases.ascents import Counted, Optimum
from stanct.bases.local import is_flat
from stanct.bases.loop import Maker, Proposal, State
from stanct.bases.particles import with_modes
from stanct.bases.rough import those_that_count
from stanct.bases.starts import RADII, reach_of
from stanct.common.arrays import Array
from stanct.common.errors import counted as number_of
from stanct.common.settings import Whole
from stanct.targets.density import Density

# The most labels. Of up to so many parameters with as many labels, every choice may change them
# together; of more, one, all, or all but one.
LABELS, TOGETHER = 6, 5
# Points near the best optimum, and near the origin, at which log densities are compared, and how
# many of them must be inside of the support.
POINTS, FEWEST = 3, 3
# Log densities are the same if they differ by no more than this, relative to them or to 1. Images
# of optima are optima if they do so by no more than this, in nats.
SAME, AS_HIGH = 1e-8, 1e-3


@dataclass(frozen=True)
class Exchange:
    """Two labels, from 0, that change places in some parameters. `order` says which parameter's
    value is at each place of `Density.names` in the image.
    """

    names: tuple[str, ...]
    labels: tuple[int, int]
    order: Array

    def image(self, density: Density, places: Array) -> tuple[Array, Array]:
        """Images of points, shape (n, D), and whether each has none, shape (n,)."""
        theta = np.array([density.constrain(place) for place in places])
        return density.unconstrained(theta[:, self.order])


def labelled(names: Sequence[str]) -> dict[str, Array]:
    """Places of the elements of each label, shape (K, elements), of parameters with 2 to 6."""
    found = dict[str, dict[str, list[int]]]()
    for place, flat in enumerate(names):
        name, *index = flat.split(".")
        if index and index[0].isdigit():
            found.setdefault(name, {}).setdefault(index[0], []).append(place)
    return {k: np.array([*v.values()]) for k, v in found.items() if 1 < len(v) <= LABELS}


def exchanges(
    counted: Counted, density: Density, best: Optimum, rng: np.random.Generator
) -> list[Exchange]:
    """Exchanges of two labels that leave the log density as it is, near the best optimum and near
    the origin, in the fewest parameters.
    """
    near = best.place + rng.standard_normal((POINTS, density.dimension)) @ best.root.T
    x = np.concatenate([near, rng.uniform(-1, 1, near.shape) * RADII[0]])
    # Unit vectors lose their length, at points as at their images.
    x = density.there_and_back(x)
    x = x[np.isfinite(x).all(axis=1)]
    values = counted.log_densities(x)
    x, values = x[np.isfinite(values)], values[np.isfinite(values)]
    found = list[Exchange]()
    if len(x) < FEWEST:
        return found
    for one in _candidates(labelled(density.names), len(density.names)):
        # What is left of a larger one would have been found by itself.
        if any(one.labels == of.labels and set(of.names) <= set(one.names) for of in found):
            continue
        if all(_same(counted, density, one, x[part], values[part]) for part in (np.s_[:1], ...)):
            found.append(one)
    return found


def _candidates(rows: Mapping[str, Array], size: int) -> Iterator[Exchange]:
    """Exchanges in parameters with as many labels as each other, fewest parameters first."""
    for labels in sorted({len(row) for row in rows.values()}):
        names = [name for name, row in rows.items() if len(row) == labels]
        most = len(names)
        sizes = range(1, most + 1) if most <= TOGETHER else (1, most - 1, most)
        for some in itertools.chain(*(itertools.combinations(names, k) for k in sizes)):
            for i, j in itertools.combinations(range(labels), 2):
                order = np.arange(size)
                for name in some:
                    order[rows[name][[i, j]]] = rows[name][[j, i]]
                yield Exchange(some, (i, j), order)


def _same(counted: Counted, density: Density, one: Exchange, x: Array, values: Array) -> bool:
    images, failed = one.image(density, x)
    if failed.any():
        return False
    gaps = np.abs(counted.log_densities(images) - values)
    return bool((gaps <= SAME * np.maximum(np.abs(values), 1)).all())


def twins(
    counted: Counted, density: Density, one: Optimum, modes: Sequence[Optimum],
    found: Sequence[Exchange], most: int,
) -> list[Optimum] | None:  # fmt: skip
    """Images of an optimum, and images of these, that are no known modes; None if too many."""
    new = list[Optimum]()
    for of in itertools.chain([one], new):  # grows
        for exchange in found:
            (place,), (failed,) = exchange.image(density, of.place[None])
            if failed or any(known.holds(place, of.value) for known in (*modes, *new)):
                continue
            if len(new) == most:
                return None
            value, precision = counted.at(place)[0], counted.precision(place)
            if not (abs(value - of.value) < AS_HIGH and np.isfinite(precision).all()):
                continue
            if np.linalg.eigvalsh(precision)[0] > 0:
                new.append(Optimum(place, value, precision, seen=0))
    return new


@dataclass(frozen=True, kw_only=True)
class Exchanges(Maker):
    """Optima that are known ones with other labels; see `stanct.bases.exchanges`.

    Attributes
    ----------
    most
        The most optima that are added. Those of the heaviest come first, and none of those after
        one that has too many.
    """

    name: ClassVar[str] = "exchanges"
    judged: ClassVar[bool] = False

    most: Annotated[int, Whole(0)] = 50

    def applies(self, state: State) -> bool:
        looked = state.search
        if state.instead is not None or not looked.fits or looked.has_thousands or looked.whole:
            return False
        return bool(labelled(state.target.density.names))

    def make(self, state: State) -> Proposal:
        looked, density = state.search, state.target.density
        counted, rng = Counted(density, reach=reach_of(state.target)), np.random.default_rng(0)
        modes, known, left_out = [*looked.optima], len(looked.optima), ""
        heaviest = sorted(those_that_count(modes), key=lambda one: -one.log_mass)
        found = exchanges(counted, density, heaviest[0], rng)
        # A ridge or a shell is no row of modes, though ascents end at places all along it.
        for one in [one for one in heaviest if found and not is_flat(one.fit(rng))]:
            new = twins(counted, density, one, modes, found, self.most + known - len(modes))
            if new is None:
                left_out = ", and others are left out"
                break
            modes += new
        added = len(modes) - known
        names = ", ".join(dict.fromkeys(name for one in found for name in one.names))
        more = number_of(added, "more optimum", "more optima")
        said = f"{more}, as labels of {names} may be exchanged{left_out}"
        return Proposal(
            known={"search": with_modes(looked, modes)} if added else {},
            gradients=counted.spent,
            evaluations=counted.evaluated,
            made=added,
            said=said if found else "no labels may be exchanged",
        )

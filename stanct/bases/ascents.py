"""Single ascents by L-BFGS, and the optima where they end.

Where an ascent ends, Newton steps and the exact curvature give a Laplace approximation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.linalg import solve_triangular

from stanct.bases.local import LocalFit, in_reach, laplace_fit, positive_covariance
from stanct.common.arrays import Array, log_sum_exp
from stanct.kernels import SIGNATURE
from stanct.kernels.ascent import SPENT, VALUE, Hill, Z, ascend, make_ascent
from stanct.path.curvature import hessian
from stanct.path.gaussian import LOG_2PI
from stanct.targets.protocols import SampledDensity
from stanct.work.interrupts import Pace
from stanct.work.progress import Bar

# Gradients that one ascent may spend, or as many as there are dimensions. Of eight searches for a
# Gaussian process of 1,000 points, two did not arrive within 500.
MOST_STEPS = 500
# Two ends are of one mode if they are nearer than this in standard deviations of its curvature, and
# the second is not higher by more than so many nats: else it is a spike in the middle of the mode.
SAME_END, HIGHER = 1.0, 1.0
# An ascent that stopped on a slope is at no mode: there the squared length of a Newton step, in
# standard deviations of the curvature, is larger than this.
ARRIVED = 0.1
# Gradients of a search, its draws in a scan, and the fewest of them, however little it may spend.
MOST_GRADIENTS, SCANS, FEWEST_SCANS = 30_000, 30_000, 600
# Draws of a start toward the centre until the density is finite there.
MOST_SHRINKS = 12
# Log densities between two looks of the progress bar.
SHOWN = 250


@dataclass(eq=False)
class Optimum:
    """A place where ascents end."""

    place: Array
    value: float
    precision: Array
    seen: int = 1
    afar: int = 0  # ascents of the search's own that ended there, without those from scans
    scanned: bool = False  # whether a scan led there, and no ascent from afar
    particles: int = 0  # annealed particles that ended there

    @cached_property
    def root(self) -> Array:
        """The Cholesky factor of the inverse of the precision."""
        return np.linalg.cholesky(positive_covariance(self.precision))

    @cached_property
    def log_mass(self) -> float:
        """Log of the mass of the Gaussian of its curvature, natural log."""
        log_det = np.log(np.diag(self.root)).sum()
        return float(self.value + log_det + 0.5 * self.place.size * LOG_2PI)

    def fit(self, rng: np.random.Generator) -> LocalFit:
        """The Gaussian of its curvature, with some draws."""
        return laplace_fit(self.place, self.value, self.precision, rng)

    def holds(self, place: Array, value: float) -> bool:
        """Whether an ascent that ended at a place, with that log density, is one of this mode."""
        offset = place - self.place
        near = float(offset @ self.precision @ offset) < SAME_END**2
        return near and value < self.value + HIGHER


class Counted:
    """A density that counts what is asked of it, with what a search may spend and how far it goes.

    Attributes
    ----------
    reach
        How long a step of an ascent may be in any coordinate, and how far from the origin and from
        all modes a start, or a draw of a scan, may lie.
    spent, evaluated
        Gradients, and log densities without one.
    most, scans
        Gradients that a search may spend, and draws in one of its scans.
    """

    def __init__(
        self, density: SampledDensity, effort: float = 1.0, reach: float = math.inf,
        bar: Bar | None = None,
    ) -> None:  # fmt: skip
        self._density, self._call = density, SIGNATURE(density.address)
        self._pace = Pace()
        self.reach, self.bar = reach, bar
        self.spent = self.evaluated = 0
        self.most = int(MOST_GRADIENTS * effort)
        self.scans = max(int(SCANS * effort), FEWEST_SCANS)

    def log_densities(self, points: Array) -> Array:
        """Log densities at points of shape (n, D), shape (n,)."""
        self.evaluated += len(points)
        values = np.empty(len(points))
        for k in range(0, len(points), SHOWN):
            part = slice(k, k + SHOWN)
            values[part] = self._density.log_densities(points[part])
            self._show(len(values[part]))
        return values

    def within(self, points: Array, modes: Sequence[Optimum]) -> Array:
        """Those of some points, shape (n, D), that are in reach of the origin or of a mode."""
        if math.isinf(self.reach):
            return points
        near = np.abs(points).max(axis=1) <= self.reach
        for mode in modes:
            spread = np.linalg.norm(mode.root, axis=1)
            near |= in_reach(points, mode.place, spread, self.reach)
        return points[near]

    def _show(self, count: int) -> None:
        if self.bar is not None:
            self.bar.update(count)

    def at(self, place: Array) -> tuple[float, Array]:
        """Log density and gradient at a place."""
        self.spent += 1
        values, slopes = self._density.log_density_gradients(place[None])
        return float(values[0]), slopes[0]

    def precision(self, place: Array) -> Array:
        """Minus the second derivatives at a place."""
        self.spent += 2 * place.size
        return -hessian(self._density.log_density_gradients, place)

    def ascended(self, start: Array, root: Array) -> tuple[Array, float]:
        """The end of an ascent by L-BFGS, and its log density; −inf where the start is rejected.

        Steps are those of z, x = start + R z. No coordinate changes by more than `reach` in a step.

        Parameters
        ----------
        root : shape (D, D) or (1, D)
            R, or its diagonal.
        """
        widest = np.abs(root).max() if len(root) == 1 else np.linalg.norm(root, axis=1).max()
        longest = float(self.reach / widest)
        # A copy is writable, as kernels want all arrays to be.
        hill = Hill(self._call, self._density.handle, np.array(start, float), root, longest)
        vectors, numbers = make_ascent(start.size)
        shown = 0
        for part in self._pace.parts(max(MOST_STEPS, start.size)):
            ended = ascend(hill, vectors, numbers, part.stop - part.start)
            self._show(int(numbers[SPENT]) - shown)
            shown = int(numbers[SPENT])
            if ended:
                break
        self.spent += int(numbers[SPENT])
        moved = root[0] * vectors[Z] if len(root) == 1 else root @ vectors[Z]
        return start + moved, float(numbers[VALUE]) + self._density.constant


@contextmanager
def uncounted(modes: list[Optimum]) -> Iterator[None]:
    """Ascents of the body leave `Optimum.seen` as it is: it counts those from anywhere."""
    before = {id(one): one.seen for one in modes}
    yield
    for one in modes:
        one.seen = before.get(id(one), 0)


def climb(
    counted: Counted, start: Array, modes: list[Optimum], root: Array | None = None
) -> Optimum | None:
    """Ascend from a start, add the end to the modes, and return it; None where it is no mode.

    With a root R of a covariance, the steps are those of L-BFGS in z, x = start + R z; see
    `Counted.ascended`.
    """
    root = np.ones((1, start.size)) if root is None else root
    for _ in range(MOST_SHRINKS):
        place, value = counted.ascended(start, root)
        if np.isfinite(value):
            break
        start = 0.6 * start
    else:
        return None
    if known := _seen_again(modes, place, value):
        return known
    place, value, slope, precision = _newton(counted, place)
    if not np.isfinite(precision).all():
        return None
    curvatures, axes = np.linalg.eigh(precision)
    if curvatures[0] <= 0:
        return None
    with np.errstate(over="ignore"):  # far out, on a slope without an end
        arrived = float(np.square(slope @ axes) @ (1 / curvatures)) < ARRIVED
    if not arrived:
        return None
    if known := _seen_again(modes, place, value):
        return known
    modes.append(Optimum(place, value, precision))
    return modes[-1]


def _seen_again(modes: Sequence[Optimum], place: Array, value: float) -> Optimum | None:
    """The known mode to which a place of that log density belongs, which is seen once more."""
    for mode in modes:
        if mode.holds(place, value):
            mode.seen += 1
            return mode
    return None


def _newton(counted: Counted, place: Array) -> tuple[Array, float, Array, Array]:
    """Newton steps while they ascend by more than rounding.

    No coordinate changes by more than `reach` in a step.

    Returns
    -------
    Their end, and the log density, the gradient and minus the second derivatives there.
    """
    value, slope = counted.at(place)
    precision = counted.precision(place)
    for _ in range(3):
        if not np.isfinite(precision).all():
            break
        try:
            step = np.linalg.solve(precision, slope)
        except np.linalg.LinAlgError:
            break
        if np.abs(step).max() > counted.reach:
            break
        new, slope_there = counted.at(place + step)
        if not (0.5 * float(slope @ step) > 1e-9 and new > value):
            break
        place, value, slope = place + step, new, slope_there
        precision = counted.precision(place)
    return place, value, slope, precision


def log_heights(modes: Sequence[Optimum], points: Array) -> Array:
    """Log of the sum of the modes' Gaussians at points, each as high as its mode, shape (n,)."""
    return np.asarray(log_sum_exp(each_height(modes, points), axis=0))


def each_height(modes: Sequence[Optimum], points: Array) -> Array:
    """Log heights of the modes' Gaussians at points, shape (K, n)."""
    squares = [
        np.square(solve_triangular(mode.root, (points - mode.place).T, lower=True)).sum(axis=0)
        for mode in modes
    ]
    return np.array([mode.value for mode in modes])[:, None] - 0.5 * np.array(squares)

"""Compares a generated program with the user's at random points."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import special

from stanct.common.arrays import Array
from stanct.engines.embedded import Recipe
from stanct.engines.homes import Home
from stanct.path.bias import Bias
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density
from stanct.targets.recipes import recipe, whitening_data
from stanct.targets.spheres import with_areas

_COPIES = 2
_TOLERANCE = 1e-9
_Pairs = Iterator[tuple[float, float]]
"""Log densities of the program, and those of its formula."""

_BIAS = Bias(np.array([0.0, 0.4, 1.0]), np.array([0.0, -1.0, 2.0]))
_LOG_PRIOR = Bias(_BIAS.beta, np.array([0.0, -1.5, -0.7]))
_COUPLING = np.array([1.0, 1.0, 0.2])
# What powers of the target alone have in place of bias and prior.
_POWERS = {"log_zeta": 2.0, "least_beta": 0.2, "most_beta": 0.9}
_AS_POWERS: dict[str, Any] = {
    "bounds": (0.2, 0.9),
    "bias": Bias.linear(2.0),
    "log_prior": Bias.linear(0.0),
}


@dataclass(frozen=True)
class Verification:
    """The difference between a generated program and its formula.

    Attributes
    ----------
    points
        Number of random points at which both log densities are finite.
    error
        Largest difference of the log densities, relative to 1 + their size. It is infinite if only
        one of the two is finite at some point.
    by_cmdstan
        Whether CmdStan evaluated one of the two.
    engines
        Largest relative difference of the embedded engine and CmdStan on one and the same program,
        the density program. It is computed only if the two log densities differ.
    """

    kind: str
    points: int
    error: float
    by_cmdstan: bool = False
    engines: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the two agree up to rounding, at one point at least."""
        return self.points > 0 and self.error < _TOLERANCE

    @property
    def engines_differ(self) -> bool:
        """Whether the embedded engine and CmdStan differ on the density program itself."""
        return self.engines > _TOLERANCE

    def __str__(self) -> str:
        verdict = "agrees with its formula" if self.passed else "DOES NOT agree with its formula"
        if self.points == 0:
            verdict = "could not be compared: no random point has a finite log density"
        doubt = (
            f" The embedded engine and CmdStan differ by {self.engines:.1e} on the density program "
            "itself, so this is a fault of one of the engines, and not of the generated program."
        )
        return (
            f"The {self.kind} program {verdict}; {self.points} random points, largest relative "
            f"difference {self.error:.1e}."
            f"{' CmdStan evaluated one of the two.' if self.by_cmdstan else ''}"
            f"{doubt if self.engines_differ and not self.passed else ''}"
        )


def verify(
    target: ProgramTarget, kind: str, *, points: int = 20, seed: int = 1, second: Home | None = None
) -> Verification:
    """Compare a generated program with its formula at random points.

    The `density` program is compared with the user's own program up to a constant. The other kinds
    are compared with the formula in their header, computed from the density program.

    Parameters
    ----------
    second
        The CmdStan that evaluates one of the two: the user's own program for the kind `density`,
        and the generated program for the others. Without it, the embedded engine evaluates both.
    """
    home = target.density.recipe.home if second is None else str(second.path)
    rng = np.random.default_rng(seed)
    formulas = {"density": _original, "prior_likelihood": _prior_likelihood, "weighted": _weighted}
    formula = formulas.get(kind, _whitened)
    with np.errstate(invalid="ignore", over="ignore"):
        pairs = list(formula(target, kind, rng, points, home))
        found, wanted = np.array(pairs, float).reshape(-1, 2).T
        both = np.isfinite(found) & np.isfinite(wanted)
        if kind == "density" and both.any():
            # The constants that `~` drops are the same everywhere.
            wanted = wanted + np.median(found[both] - wanted[both])
    gap = np.abs(found[both] - wanted[both]) / (1 + np.abs(wanted[both]))
    differ = bool(np.any(np.isfinite(found) != np.isfinite(wanted)))
    error = np.inf if differ else float(gap.max(initial=0.0))
    verdict = Verification(kind, int(both.sum()), error, bool(home))
    if verdict.passed or second is None:
        return verdict
    return replace(verdict, engines=_engines(target, second, np.random.default_rng(seed), points))


def _engines(target: ProgramTarget, second: Home, rng: np.random.Generator, points: int) -> float:
    """Return the largest relative difference of two engines on the density program."""
    own = target.density
    recipe = replace(target.density_recipe, home=str(second.path))
    other = make_density(recipe, target.program, target.data)
    gaps = [0.0]
    for x in rng.normal(size=(points, own.dimension)) / 2:
        one, two = own.log_density(x), other.log_density(x)
        if np.isfinite(one) != np.isfinite(two):
            return np.inf
        if np.isfinite(one):
            gaps.append(abs(one - two) / (1 + abs(two)))
    return max(gaps)


def _original(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> _Pairs:
    """Yield values of the density program and of the user's own program."""
    density = target.density
    own = Recipe(target.program.expanded, target.data.text, home=home)
    original = make_density(own, target.program, target.data)
    for x in rng.normal(size=(points, density.dimension)) / 2:
        yield density.log_density(x), original.log_density(x)


def _declared(target: ProgramTarget, kind: str, extra: Mapping[str, object], home: str) -> Density:
    """The density of a program that declares the user's parameters as they are."""
    made = replace(recipe(target, kind, **extra), home=home)
    return with_areas(make_density(made, target.program, target.data), target.program)


def whitened(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int
) -> tuple[list[Recipe], Iterator[tuple[int, Array, float]]]:
    """The whitened programs of a kind with data, and points with the log density of the formula.

    A point comes as the number of its program, its unconstrained parameters and log density, which
    is computed from log p(z).
    """
    density, dimension = target.density, target.density.dimension
    mean, diagonal = rng.normal(size=dimension) / 4, rng.uniform(0.3, 0.6, dimension)
    log_det = np.log(diagonal).sum()
    extra = whitening_data(mean, diagonal)
    copies = 1
    if kind == "pseudo_extended":
        copies = _COPIES
        extra["N"] = copies
        by_base = extra | _bias_data() | {"log_g": _LOG_PRIOR.value}
        recipes = [
            recipe(target, kind, **by_base),
            recipe(target, kind, {"powers": True}, **extra, **_POWERS),
        ]
    else:
        extra |= _bias_data()
        if kind == "extended_hamiltonian":
            extra = {n: v for n, v in extra.items() if n != "bias_beta"}
            extra |= {"xi_knots": _BIAS.beta, "beta_at": _COUPLING}
        recipes = [recipe(target, kind, **extra)]

    def pairs() -> Iterator[tuple[int, Array, float]]:
        for k in range(points):
            z, u = rng.normal(size=(copies, dimension)), rng.normal(size=copies)
            number = k % len(recipes)
            powers = number == 1
            log_p = np.array([density.log_density(mean + diagonal * row) for row in z])
            log_p += 0 if powers else log_det
            if kind == "extended_hamiltonian":
                wanted = _extended_hamiltonian(log_p[0], u[0])
            elif powers:
                wanted = _tempered(log_p, np.zeros(copies), u, copies=True, **_AS_POWERS)
            else:
                wanted = _tempered(log_p, _log_normal(z), u, copies=kind == "pseudo_extended")
            yield number, np.append(z, u), wanted

    return recipes, pairs()


def _whitened(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> _Pairs:
    """Yield values of a whitened program and of its formula."""
    recipes, pairs = whitened(target, kind, rng, points)
    programs = [
        make_density(replace(one, home=home), target.program, target.data) for one in recipes
    ]
    for number, point, wanted in pairs:
        yield programs[number].log_density(point), wanted


def _tempered(
    log_p: Array,
    log_base: Array,
    u: Array,
    *,
    copies: bool,
    bounds: tuple[float, float] = (0.0, 1.0),
    bias: Bias = _BIAS,
    log_prior: Bias = _LOG_PRIOR,
) -> float:
    """Return the log density on a path between a base and p, or on powers of p with a base of 1.

    Σ β log p(z) + (1 − β) log base − b(β) + log inv_logit(u) + log inv_logit(−u), with
    β = l + (h − l) inv_logit(u). For copies, [PE] 8 adds log (1/N) Σ w + Σ log g, with
    log w = −(1 − β) δ + b(β), and less by b(1) for powers.

    Parameters
    ----------
    log_p, log_base, u : shape (N,)
        Log densities of the copies, and their controls.
    """
    low, high = bounds
    beta = low + (high - low) * special.expit(u)
    value = np.sum(beta * log_p + (1 - beta) * log_base - bias(beta))
    value += np.sum(special.log_expit(u) + special.log_expit(-u))
    if copies:
        log_weight = (beta - 1) * (log_base - log_p) + bias(beta)
        log_weight -= 0 if log_base.any() else bias.log_zeta
        value += special.logsumexp(log_weight) - np.log(len(beta)) + np.sum(log_prior(beta))
    return float(value)


def _extended_hamiltonian(log_p: float, u: float) -> float:
    """Return β(ξ) log p(z) − b(|ξ|) + the log Jacobian of ξ."""
    xi = 2 * special.expit(u) - 1
    beta = np.interp(abs(xi), _BIAS.beta, _COUPLING)
    value = beta * log_p - float(_BIAS(abs(xi)))
    return float(value + special.log_expit(u) + special.log_expit(-u))


def _prior_likelihood(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> _Pairs:
    """Yield the path extrapolated to β = 1, where it is linear in β, and the density program."""
    density = target.density
    program = _declared(target, kind, _bias_data(), home)
    u = np.array([-1.0, 1.0])
    beta = special.expit(u)
    jacobian = special.log_expit(u) + special.log_expit(-u)
    for x in rng.normal(size=(points, density.dimension)) / 2:
        ends = np.array([program.log_density(np.append(x, value)) for value in u])
        path = ends + _BIAS(beta) - jacobian
        reach = (1 - beta[1]) / (beta[1] - beta[0])
        yield path[1] + reach * (path[1] - path[0]), density.log_density(x)


def _log_normal(z: Array) -> Array:
    return -0.5 * np.sum(z**2 + np.log(2 * np.pi), axis=1)


def _bias_data() -> dict[str, object]:
    return {"K": _BIAS.beta.size, "bias_beta": _BIAS.beta, "bias": _BIAS.value}


def _weighted(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> _Pairs:
    """Yield the log density at weight 1, in which it is linear, and the density program."""
    density = target.density
    light, heavy = (_declared(target, kind, {"weight": weight}, home) for weight in (0.5, 2.0))
    for x in rng.normal(size=(points, density.dimension)) / 2:
        yield (2 * light.log_density(x) + heavy.log_density(x)) / 3, density.log_density(x)

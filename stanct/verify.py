"""Compares a generated program with the user's at random points: `stanct temper --check`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import special

from stanct.base import GaussianBase
from stanct.density import Density
from stanct.embedded import Recipe
from stanct.errors import StanctError
from stanct.path import Bias
from stanct.stan.codegen import KINDS
from stanct.target import Target, make_density

Array = np.ndarray
_COPIES = 2
_BIAS = Bias(np.array([0.0, 0.4, 1.0]), np.array([0.0, -1.0, 2.0]))


@dataclass(frozen=True)
class Comparison:
    """How far a generated program is from its formula.

    Attributes
    ----------
    kind
        Of the generated program.
    points
        Random points where both are finite.
    error
        The largest difference of log densities, relative to 1 + their size.
    """

    kind: str
    points: int
    error: float

    @property
    def passed(self) -> bool:
        """Whether the two agree to rounding, at one point at least."""
        return self.points > 0 and self.error < 1e-8

    def __str__(self) -> str:
        verdict = "agrees with its formula" if self.passed else "DOES NOT agree with its formula"
        if self.points == 0:
            verdict = "could not be compared: no random point has a finite log density"
        return (
            f"The {self.kind} program {verdict}; {self.points} random points, largest relative "
            f"difference {self.error:.1e}."
        )


def compare(target: Target, kind: str, *, points: int = 20, seed: int = 1) -> Comparison:
    """Evaluate a generated program at random points, and what it should be there.

    `density` is compared with the user's own program, up to a constant; the other kinds with the
    formula in their header, computed from the density program.

    Parameters
    ----------
    target
        Program and data.
    kind
        As for `stanct.stan.codegen.generate`.
    points
        How many to draw, from a normal distribution of standard deviation one half.
    """
    if kind not in KINDS:
        raise StanctError(
            f"There is no kind {kind!r} of generated program.",
            remedy="The kinds are " + ", ".join(map(repr, KINDS)) + ".",
        )
    rng = np.random.default_rng(seed)
    density = target.density
    if kind == "density":
        original = make_density(
            Recipe(target.program.expanded, target.data.text), target.program, target.data
        )
        x = rng.normal(size=(points, density.dimension)) / 2
        found, wanted = density.log_densities(x), original.log_densities(x)
        both = np.isfinite(found) & np.isfinite(wanted)
        # The constants that `~` drops are the same everywhere.
        wanted = wanted + np.median(found[both] - wanted[both]) if both.any() else wanted
    else:
        formula = {"prior_likelihood": _prior_likelihood, "weighted": _weighted}.get(
            kind, _whitened
        )
        with np.errstate(invalid="ignore"):
            found, wanted = formula(target, kind, density, rng, points)
    both = np.isfinite(found) & np.isfinite(wanted)
    differ = bool(np.any(np.isfinite(found) != np.isfinite(wanted)))
    gap = np.abs(found[both] - wanted[both]) / (1 + np.abs(wanted[both]))
    return Comparison(kind, int(both.sum()), np.inf if differ else float(gap.max(initial=0.0)))


def _generated(target: Target, kind: str, extra: dict[str, object]) -> Density:
    named = {target.prefix + name: value for name, value in extra.items()}
    recipe = Recipe(target.code(kind), target.data.extended(named))
    return make_density(recipe, target.program, target.data)


def _bias_data() -> dict[str, object]:
    return {"K": _BIAS.beta.size, "bias_beta": _BIAS.beta, "bias": _BIAS.value}


def _whitened(
    target: Target, kind: str, density: Density, rng: np.random.Generator, points: int
) -> tuple[Array, Array]:
    """Both sides of the formulas for `joint` and `pseudo_extended`."""
    dimension = density.dimension
    copies = _COPIES if kind == "pseudo_extended" else 1
    base = GaussianBase(rng.normal(size=dimension) / 4, np.diag(rng.uniform(0.3, 0.6, dimension)))
    extra = {"D": dimension, "base_mean": base.mean, "base_scale": base.scale, **_bias_data()}
    if kind == "pseudo_extended":
        extra |= {"N": copies, "estimate_beta": 1, "fixed_beta": []}
    program = _generated(target, kind, extra)
    found, wanted = np.empty(points), np.empty(points)
    log_det = np.log(np.diag(base.scale)).sum()
    for k in range(points):
        z, u = rng.normal(size=(copies, dimension)), rng.normal(size=copies)
        found[k] = program.log_density(np.append(z, u))
        beta = special.expit(u)
        log_base = -0.5 * np.sum(z**2 + np.log(2 * np.pi), axis=1)
        delta = log_base - density.log_densities(base.mean + z @ base.scale.T) - log_det
        bias = np.interp(beta, _BIAS.beta, _BIAS.value)
        wanted[k] = np.sum(log_base - beta * delta - bias)
        wanted[k] += np.sum(special.log_expit(u) + special.log_expit(-u))
        if kind == "pseudo_extended":
            log_weight = bias - _BIAS.value[-1] - (1 - beta) * delta
            wanted[k] += special.logsumexp(log_weight) - np.log(copies)
    return found, wanted


def _prior_likelihood(
    target: Target, kind: str, density: Density, rng: np.random.Generator, points: int
) -> tuple[Array, Array]:
    """The path is linear in β; what it comes to at β = 1 is the density program."""
    program = _generated(target, kind, _bias_data())
    found, wanted = np.empty(points), np.empty(points)
    u = np.array([-1.0, 1.0])
    beta = special.expit(u)
    jacobian = special.log_expit(u) + special.log_expit(-u)
    for k in range(points):
        x = rng.normal(size=density.dimension) / 2
        path = np.array([program.log_density(np.append(x, value)) for value in u])
        path += np.interp(beta, _BIAS.beta, _BIAS.value) - jacobian
        slope = (path[1] - path[0]) / (beta[1] - beta[0])
        found[k], wanted[k] = path[1] + slope * (1 - beta[1]), density.log_density(x)
    return found, wanted


def _weighted(
    target: Target, kind: str, density: Density, rng: np.random.Generator, points: int
) -> tuple[Array, Array]:
    """The log density is linear in the weight; weight 1 is the density program."""
    light, heavy = (_generated(target, kind, {"weight": weight}) for weight in (0.5, 2.0))
    x = rng.normal(size=(points, density.dimension)) / 2
    found = (2 * light.log_densities(x) + heavy.log_densities(x)) / 3
    return found, density.log_densities(x)

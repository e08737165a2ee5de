"""Compares a generated program with the user's at random points: `stanct temper --check`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from scipy import special

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.common.names import KINDS
from stanct.engines.embedded import Recipe
from stanct.engines.homes import Home
from stanct.path.bias import Bias
from stanct.stan.syntax import Tilde, walk
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density
from stanct.targets.recipes import recipe, whitening_data
from stanct.targets.spheres import with_areas

_COPIES = 2
_TOLERANCE, _GRADIENT_TOLERANCE = 1e-9, 1e-7
_Pair = tuple[tuple[float, Array], tuple[float, Array]]
"""Log density and gradient of the program, and those of its formula."""

# Kinds that declare the user's parameters as they are.
_DECLARED = ("prior_likelihood", "weighted")
_BIAS = Bias(np.array([0.0, 0.4, 1.0]), np.array([0.0, -1.0, 2.0]))
_LOG_PRIOR = Bias(_BIAS.beta, np.array([0.0, -1.5, -0.7]))
_COUPLING = np.array([1.0, 1.0, 0.2])
# What powers of the target alone have in place of bias and prior.
_POWERS = {"log_zeta": 2.0, "least_beta": 0.2, "most_beta": 0.9}


@dataclass(frozen=True)
class Verification:
    """The difference between a generated program and its formula.

    Attributes
    ----------
    kind
        Kind of the generated program.
    points
        Number of random points at which both log densities are finite.
    error
        Largest difference of the log densities, relative to 1 + their size. It is infinite if only
        one of the two is finite at some point.
    gradient_error
        Largest difference of the gradients, relative to 1 + the largest component.
    gradient_rounding
        Largest such difference of the density program's gradient when the last digit of every
        parameter changes. It is computed only if the gradients differ. If it is large, rounding
        makes the numerical gradient meaningless, as it can in programs with eigenvectors.
    truncation
        Line of a truncated statement that the embedded engine may compute wrongly as it stands in
        the user's program: it drops the normaliser of a vector (stanli 0.24). None without one.
    by_cmdstan
        Whether CmdStan evaluated one of the two.
    engines
        Largest relative difference of the embedded engine and CmdStan on one and the same program,
        the density program. It is computed only if the two log densities differ.
    """

    kind: str
    points: int
    error: float
    gradient_error: float
    gradient_rounding: float = 0.0
    truncation: int | None = None
    by_cmdstan: bool = False
    engines: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether the two agree up to rounding, at one point at least."""
        tolerance = max(_GRADIENT_TOLERANCE, 10 * self.gradient_rounding)
        return self.points > 0 and self.error < _TOLERANCE and self.gradient_error < tolerance

    @property
    def engines_differ(self) -> bool:
        """Whether the embedded engine and CmdStan differ on the density program itself."""
        return self.engines > _TOLERANCE

    def __str__(self) -> str:
        verdict = "agrees with its formula" if self.passed else "DOES NOT agree with its formula"
        if self.points == 0:
            verdict = "could not be compared: no random point has a finite log density"
        own = (
            f" (your program's own change by {self.gradient_rounding:.1e} with the last digit of "
            "the parameters)"
        )
        return (
            f"The {self.kind} program {verdict}; {self.points} random points, largest relative "
            f"difference {self.error:.1e}, of gradients {self.gradient_error:.1e}"
            f"{own if self.gradient_rounding else ''}."
            f"{' CmdStan evaluated one of the two.' if self.by_cmdstan else ''}"
            f"{'' if self.passed else self._doubt}"
        )

    @property
    def _doubt(self) -> str:
        if self.engines_differ:
            return (
                " The embedded engine and CmdStan differ by "
                f"{self.engines:.1e} on the density program itself, so this is a fault of one of "
                "the engines, and not of the generated program."
            )
        if self.by_cmdstan or self.truncation is None:
            return ""
        return (
            " The embedded engine computed both, and it drops the normaliser of a truncated vector "
            f"in your own program, such as that of line {self.truncation}. The generated program "
            "writes the normaliser out, so it may well be right."
        )


def verify(
    target: ProgramTarget,
    kind: str,
    *,
    points: int = 20,
    seed: int = 1,
    second: Home | None = None,
) -> Verification:
    """Compare a generated program with its formula at random points.

    The `density` program is compared with the user's own program up to a constant. The other kinds
    are compared with the formula in their header, computed from the density program. Gradients are
    compared too.

    Parameters
    ----------
    target
        Program and data.
    kind
        Kind of generated program, see `stanct.stan.codegen.generate`.
    points
        Number of random points.
    seed
        Seed of the random points.
    second
        The CmdStan that evaluates one of the two: the user's own program for the kind `density`,
        and the generated program for the others. Without it, the embedded engine evaluates both.
    """
    if kind not in KINDS:
        raise StanctError(
            f"There is no kind {kind!r} of generated program.",
            remedy="The kinds are " + ", ".join(map(repr, KINDS)) + ".",
        )
    home = target.density.recipe.home if second is None else str(second.path)
    rng = np.random.default_rng(seed)
    formulas = {"density": _original, "prior_likelihood": _prior_likelihood, "weighted": _weighted}
    formula = formulas.get(kind, _whitened)
    with np.errstate(invalid="ignore", over="ignore"):
        pairs = list(formula(target, kind, rng, points, home))
        found, wanted = (np.array([pair[side][0] for pair in pairs]) for side in (0, 1))
        both = np.isfinite(found) & np.isfinite(wanted)
        if kind == "density" and both.any():
            # The constants that `~` drops are the same everywhere.
            wanted = wanted + np.median(found[both] - wanted[both])
        gaps = [
            _gap(pair[0][1], pair[1][1])
            for pair, finite in zip(pairs, both, strict=True)
            if finite and np.isfinite(pair[1][1]).all()
        ]
    gap = np.abs(found[both] - wanted[both]) / (1 + np.abs(wanted[both]))
    differ = bool(np.any(np.isfinite(found) != np.isfinite(wanted)))
    error = np.inf if differ else float(gap.max(initial=0.0))
    gradient_error = float(np.max(gaps, initial=0.0))
    rounding = 0.0 if gradient_error < _GRADIENT_TOLERANCE else _rounding(target, rng, points)
    truncation = _truncated_line(target) if kind == "density" else None
    found = Verification(
        kind, int(both.sum()), error, gradient_error, rounding, truncation, bool(home)
    )
    if found.passed or second is None:
        return found
    return replace(found, engines=_engines(target, second, np.random.default_rng(seed), points))


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


def _truncated_line(target: ProgramTarget) -> int | None:
    syntax = target.program.syntax
    model = target.program.blocks.get("model")
    for statement in walk(model.statements if model else ()):
        if isinstance(statement, Tilde) and statement.truncated:
            return syntax.source.place(syntax.start(statement.tokens.first)).line
    return None


def _gap(found: Array, wanted: Array) -> float:
    """Return the difference of two gradients relative to 1 + the second's largest component."""
    return float(np.max(np.abs(found - wanted)) / (1 + np.abs(wanted).max(initial=0)))


def _rounding(target: ProgramTarget, rng: np.random.Generator, points: int) -> float:
    """Return the change of the density program's gradient with the parameters' last digits."""
    density = target.density
    gaps = [0.0]
    for x in rng.normal(size=(points, density.dimension)) / 2:
        beside = np.nextafter(x, rng.choice([-np.inf, np.inf], size=x.size))
        pair = [density.log_density_gradient(at)[1] for at in (beside, x)]
        if np.isfinite(pair).all():
            gaps.append(_gap(*pair))
    return max(gaps)


def _original(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> Iterator[_Pair]:
    """Yield values of the density program and of the user's own program."""
    density = target.density
    own = Recipe(target.program.expanded, target.data.text, home=home)
    original = make_density(own, target.program, target.data)
    for x in rng.normal(size=(points, density.dimension)) / 2:
        yield density.log_density_gradient(x), original.log_density_gradient(x)


def _generated(
    target: ProgramTarget, kind: str, extra: Mapping[str, object], home: str, **variant: bool
) -> Density:
    made = replace(recipe(target, kind, variant, **extra), home=home)
    density = make_density(made, target.program, target.data)
    return with_areas(density, target.program) if kind in _DECLARED else density


def _whitened(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> Iterator[_Pair]:
    """Yield values of a whitened program and of its formula, from log p(z) and its gradient."""
    density, dimension = target.density, target.density.dimension
    mean, diagonal = rng.normal(size=dimension) / 4, rng.uniform(0.3, 0.6, dimension)
    log_det = np.log(diagonal).sum()
    extra = whitening_data(mean, diagonal)
    copies = 1
    if kind == "pseudo_extended":
        copies = _COPIES
        extra["N"] = copies
        by_base = extra | _bias_data() | {"log_g": _LOG_PRIOR.value}
        programs = [
            _generated(target, kind, by_base, home),
            _generated(target, kind, extra | _POWERS, home, powers=True),
        ]
    else:
        extra |= _bias_data()
        if kind == "extended_hamiltonian":
            extra = {n: v for n, v in extra.items() if n != "bias_beta"}
            extra |= {"xi_knots": _BIAS.beta, "beta_at": _COUPLING}
        programs = [_generated(target, kind, extra, home)]
    for k in range(points):
        z, u = rng.normal(size=(copies, dimension)), rng.normal(size=copies)
        evaluated = [density.log_density_gradient(mean + diagonal * row) for row in z]
        which = k % len(programs)
        powers = which == 1
        log_p = np.array([value for value, _ in evaluated]) + (0 if powers else log_det)
        by_z = np.array([gradient for _, gradient in evaluated]) * diagonal
        found = programs[which].log_density_gradient(np.append(z, u))
        if kind == "extended_hamiltonian":
            wanted, gradient = _extended_hamiltonian(log_p, by_z, u)
        else:
            path = _Path.of(log_p, by_z, z, u, powers=powers)
            wanted, gradient = path.tempered()
            if kind == "pseudo_extended":
                excess, by_copies = path.pseudo_extended()
                wanted, gradient = wanted + excess, gradient + by_copies
        yield found, (wanted, gradient)


@dataclass(frozen=True)
class _Path:
    """Copies on a path between a base and the target p, or on its powers, as if the base were 1.

    Attributes
    ----------
    log_p, log_base : shape (N,)
        Log densities of the copies.
    by_z, base_by_z : shape (N, D)
        Their gradients.
    u, beta, by_u : shape (N,)
        The controls, β = l + (h − l) inv_logit(u), and dβ/du.
    bias, log_prior
        b and log g.
    """

    log_p: Array
    by_z: Array
    log_base: Array
    base_by_z: Array
    u: Array
    beta: Array
    by_u: Array
    bias: Bias
    log_prior: Bias

    @classmethod
    def of(cls, log_p: Array, by_z: Array, z: Array, u: Array, *, powers: bool) -> _Path:
        low, high = (_POWERS["least_beta"], _POWERS["most_beta"]) if powers else (0.0, 1.0)
        share = 0 if powers else 1
        flat = Bias.linear(_POWERS["log_zeta"]), Bias.linear(0.0)
        tables = flat if powers else (_BIAS, _LOG_PRIOR)
        up, down = special.expit(u), special.expit(-u)
        beta, by_u = low + (high - low) * up, (high - low) * up * down
        return cls(log_p, by_z, share * _log_normal(z), -share * z, u, beta, by_u, *tables)

    def tempered(self) -> tuple[float, Array]:
        """Return the tempered log density and its gradient.

        Σ β log p(z) + (1 − β) log base − b(β) + log inv_logit(u) + log inv_logit(−u).
        """
        u, beta, rest = self.u, self.beta, 1 - self.beta
        value = np.sum(beta * self.log_p + rest * self.log_base - self.bias(beta))
        value += np.sum(special.log_expit(u) + special.log_expit(-u))
        along_z = beta[:, None] * self.by_z + rest[:, None] * self.base_by_z
        along_u = self.by_u * (self.log_p - self.log_base - _slope(self.bias, beta))
        along_u += special.expit(-u) - special.expit(u)
        return value, np.append(along_z, along_u)

    def pseudo_extended(self) -> tuple[float, Array]:
        """Return what [PE] 8 adds, log (1/N) Σ w + Σ log g, and its gradient.

        log w = −(1 − β) δ + b(β), and less by b(1) for powers of the target.
        """
        beta, rest = self.beta, 1 - self.beta
        delta = self.log_base - self.log_p
        log_weight = -rest * delta + self.bias(beta)
        if not self.base_by_z.any():
            log_weight -= self.bias.log_zeta
        share = special.softmax(log_weight)
        along_z = (share * rest)[:, None] * (self.by_z - self.base_by_z)
        along_u = share * (delta + _slope(self.bias, beta)) + _slope(self.log_prior, beta)
        value = special.logsumexp(log_weight) - np.log(len(beta)) + np.sum(self.log_prior(beta))
        return value, np.append(along_z, self.by_u * along_u)


def _extended_hamiltonian(log_p: Array, by_z: Array, u: Array) -> tuple[float, Array]:
    """Return β(ξ) log p(z) − b(|ξ|) + the log Jacobian of ξ, and its gradient."""
    xi = 2 * special.expit(u[0]) - 1
    beta = np.interp(abs(xi), _BIAS.beta, _COUPLING)
    value = beta * log_p[0] - float(_BIAS(abs(xi)))
    value += special.log_expit(u[0]) + special.log_expit(-u[0])
    fall, slope = (_slope_of(_BIAS.beta, of, abs(xi)) for of in (_COUPLING, _BIAS.value))
    along_u = np.sign(xi) * (fall * log_p[0] - slope) * (1 - xi**2) / 2 - xi
    return float(value), np.append(beta * by_z, along_u)


def _prior_likelihood(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> Iterator[_Pair]:
    """Yield the path extrapolated to β = 1, where it is linear in β, and the density program."""
    density = target.density
    program = _generated(target, kind, _bias_data(), home)
    u = np.array([-1.0, 1.0])
    beta = special.expit(u)
    jacobian = special.log_expit(u) + special.log_expit(-u)
    for x in rng.normal(size=(points, density.dimension)) / 2:
        ends = [program.log_density_gradient(np.append(x, value)) for value in u]
        path = np.array([value for value, _ in ends]) + _BIAS(beta) - jacobian
        slopes = np.array([gradient[:-1] for _, gradient in ends])
        reach = (1 - beta[1]) / (beta[1] - beta[0])
        found = path[1] + reach * (path[1] - path[0]), slopes[1] + reach * (slopes[1] - slopes[0])
        yield found, density.log_density_gradient(x)


def _log_normal(z: Array) -> Array:
    return -0.5 * np.sum(z**2 + np.log(2 * np.pi), axis=1)


def _slope(table: Bias, at: Array) -> Array:
    return _slope_of(table.beta, table.value, at)


def _slope_of(knots: Array, values: Array, at: Array) -> Array:
    slopes = np.diff(values) / np.diff(knots)
    return slopes[np.searchsorted(knots[1:-1], at)]


def _bias_data() -> dict[str, object]:
    return {"K": _BIAS.beta.size, "bias_beta": _BIAS.beta, "bias": _BIAS.value}


def _weighted(
    target: ProgramTarget, kind: str, rng: np.random.Generator, points: int, home: str
) -> Iterator[_Pair]:
    """Yield the log density at weight 1, in which it is linear, and the density program."""
    density = target.density
    light, heavy = (_generated(target, kind, {"weight": weight}, home) for weight in (0.5, 2.0))
    for x in rng.normal(size=(points, density.dimension)) / 2:
        low, high = light.log_density_gradient(x), heavy.log_density_gradient(x)
        found = (2 * low[0] + high[0]) / 3, (2 * low[1] + high[1]) / 3
        yield found, density.log_density_gradient(x)

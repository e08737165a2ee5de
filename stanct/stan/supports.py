"""Supports of Stan's distribution families, and their mass between two bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from scipy.special import betainc, expit, gammainc, gammaincc, ndtr, stdtr

from stanct.stan.nodes import TypeSpec

Cdf = Callable[..., float]


@dataclass(frozen=True, slots=True)
class Family:
    """The support and the distribution function of one univariate family.

    `cdf` is the probability below x, given x and the family's arguments; None if Stan has no
    `_lcdf`. `low` and `high` are ends of the support that no argument sets, and `low_argument` and
    `high_argument` the places of those that do. `centre` is the place of the argument about which
    the family is symmetric, and a `standard` one is so about 0. On a circle of length `period`,
    `cdf` grows by 1 with each turn.
    """

    cdf: Cdf | None
    low: float = -math.inf
    high: float = math.inf
    low_argument: int | None = None
    high_argument: int | None = None
    centre: int | None = None
    standard: bool = False
    period: float = math.inf


def _von_mises(x: float, m: float, k: float) -> float:
    from scipy.stats import vonmises  # takes .4 s to load

    return float(vonmises.cdf(x, k, loc=m))


def _laplace(x: float, m: float, s: float) -> float:
    tail = 0.5 * math.exp(-abs(x - m) / s)
    return tail if x < m else 1 - tail


def _positive(cdf: Cdf | None) -> Family:
    if cdf is None:
        return Family(None, 0)
    return Family(lambda x, *a: cdf(x, *a) if x > 0 else 0.0, 0)


def _within(x: float, a: float, b: float) -> float:
    return min(max((x - a) / (b - a), 0.0), 1.0)


def _unit(cdf: Cdf) -> Family:
    return Family(lambda x, *a: cdf(min(max(x, 0.0), 1.0), *a), 0, 1)


# Only the support is known for families whose cdf is None or returns NaN.
FAMILIES: Mapping[str, Family] = MappingProxyType(
    {
        "normal": Family(lambda x, m, s: ndtr((x - m) / s), centre=0),
        "std_normal": Family(lambda x: ndtr(x), standard=True),
        "student_t": Family(lambda x, nu, m, s: stdtr(nu, (x - m) / s), centre=1),
        "cauchy": Family(lambda x, m, s: 0.5 + math.atan((x - m) / s) / math.pi, centre=0),
        "double_exponential": Family(_laplace, centre=0),
        "logistic": Family(lambda x, m, s: expit((x - m) / s), centre=0),
        "gumbel": Family(lambda x, m, s: math.exp(-math.exp(-(x - m) / s))),
        "skew_normal": Family(lambda *_: math.nan),
        "exp_mod_normal": Family(lambda *_: math.nan),
        "skew_double_exponential": Family(lambda *_: math.nan),
        "lognormal": _positive(lambda x, m, s: ndtr((math.log(x) - m) / s)),
        "gamma": _positive(lambda x, a, b: gammainc(a, b * x)),
        "inv_gamma": _positive(lambda x, a, b: gammaincc(a, b / x)),
        "exponential": _positive(lambda x, b: -math.expm1(-b * x)),
        "weibull": _positive(lambda x, a, s: -math.expm1(-((x / s) ** a))),
        "frechet": _positive(lambda x, a, s: math.exp(-((x / s) ** -a))),
        "chi_square": _positive(lambda x, nu: gammainc(nu / 2, x / 2)),
        "inv_chi_square": _positive(lambda x, nu: gammaincc(nu / 2, 0.5 / x)),
        "scaled_inv_chi_square": _positive(
            lambda x, nu, s: gammaincc(nu / 2, nu * s * s / (2 * x))
        ),
        "rayleigh": _positive(lambda x, s: -math.expm1(-x * x / (2 * s * s))),
        "loglogistic": _positive(None),
        "beta": _unit(lambda x, a, b: betainc(a, b, x)),
        "beta_proportion": _unit(lambda x, m, k: betainc(m * k, (1 - m) * k, x)),
        "uniform": Family(_within, low_argument=0, high_argument=1),
        "von_mises": Family(_von_mises, period=2 * math.pi),
        "pareto": Family(lambda x, m, a: 1 - (m / x) ** a if x > m else 0.0, low_argument=0),
        "pareto_type_2": Family(
            lambda x, m, s, a: 1 - (1 + (x - m) / s) ** -a if x > m else 0.0, low_argument=0
        ),
    }
)
"""Mapping from Stan's name of a univariate family to its properties."""

COMPACT = frozenset(
    {"simplex", "unit_vector", "corr_matrix", "cholesky_factor_corr"}
    | {"column_stochastic_matrix", "row_stochastic_matrix"}
)
"""Types whose values lie in a bounded set without declared bounds."""

MULTIVARIATE = frozenset(
    {
        "multi_normal",
        "multi_normal_cholesky",
        "multi_normal_prec",
        "multi_student_t",
        "multi_student_t_cholesky",
    }
)
"""Multivariate families whose support is the whole space."""


def is_compact(spec: TypeSpec) -> bool:
    """Return whether the values of a type lie in a bounded set."""
    if spec.base == "tuple":
        return all(is_compact(element) for element in spec.elements)
    return spec.base in COMPACT or {"lower", "upper"} <= spec.constraints.keys()


def mass(family: str, arguments: Sequence[float], low: float, high: float) -> float | None:
    """Return the probability between two bounds, or None if it is unknown."""
    cdf = FAMILIES[family].cdf
    if cdf is None:
        return None
    try:
        below = 0.0 if low == -math.inf else float(cdf(low, *arguments))
        above = 1.0 if high == math.inf else float(cdf(high, *arguments))
    except (ArithmeticError, TypeError, ValueError):
        return None
    # A smaller difference is mostly rounding error.
    return above - below if above - below > 1e-6 else None


def low_end(family: str, arguments: Sequence[float]) -> float:
    """Return the end of the support below which a family has no mass."""
    place = FAMILIES[family].low_argument
    return FAMILIES[family].low if place is None else arguments[place]

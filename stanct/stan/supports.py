"""Supports of Stan's distribution families, and their mass between two bounds."""

from __future__ import annotations

import ast
import math
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from scipy.special import betainc, expit, gammainc, gammaincc, ndtr, stdtr

from stanct.stan.syntax import TypeSpec

Cdf = Callable[..., float]


@dataclass(frozen=True, slots=True)
class Family:
    """The support and the distribution function of one univariate family.

    Attributes
    ----------
    cdf
        Probability below x, given x and the family's arguments; None if Stan has no `_lcdf`.
    low, high
        Ends of the support that no argument sets.
    low_argument, high_argument
        Positions of the arguments that are the ends of the support.
    centre
        Position of the argument about which the family is symmetric.
    standard
        Whether the family is symmetric about 0 and takes no arguments.
    period
        Length of the circle on which the family is normalised; infinite on the line. There `cdf`
        grows by 1 with each turn.
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


_OPERATORS: Mapping[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {
    "pi": lambda: math.pi,
    "e": lambda: math.e,
    "sqrt2": lambda: math.sqrt(2),
    "log2": lambda: math.log(2),
    "log10": lambda: math.log(10),
    "machine_precision": lambda: 2.0**-52,
    "positive_infinity": lambda: math.inf,
    "negative_infinity": lambda: -math.inf,
    "log": math.log,
    "sqrt": math.sqrt,
    "exp": math.exp,
    "log1m": lambda x: math.log1p(-x),
    "log1m_exp": lambda x: math.log(-math.expm1(x)),
    "log_diff_exp": lambda x, y: x + math.log(-math.expm1(y - x)),
    "lgamma": math.lgamma,
    "tgamma": math.gamma,
}
_PROBABILITY = re.compile(r"(?P<family>\w+?)_(?P<log>l?)(?P<side>c?)cdf")


def _refused(_: ast.expr) -> float:
    raise ValueError("not a constant")


def constant(text: str, other: Callable[[ast.expr], float] = _refused) -> float | None:
    """Return the value of a constant Stan expression, or None for any other expression.

    `other` gives the value of a part that is no constant.
    """
    try:
        value = _value(ast.parse(text.replace("^", "**").strip(), mode="eval").body, other)
        return None if math.isnan(value) else float(value)
    except (SyntaxError, ValueError, ArithmeticError, TypeError, RecursionError):
        return None


def _value(node: ast.expr, other: Callable[[ast.expr], float]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
        value = _value(node.operand, other)
        return -value if isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _value(node.left, other), _value(node.right, other)
        if isinstance(node.op, ast.Div) and isinstance(left, int) and isinstance(right, int):
            return int(left / right)  # Stan rounds towards zero
        return _OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and not node.keywords:
        function = _FUNCTIONS.get(node.func.id)
        if function is not None:
            return function(*(_value(argument, other) for argument in node.args))
        probability = _probability(node.func.id, node.args, other)
        if probability is not None:
            return probability
    return other(node)


def _probability(
    name: str, arguments: Sequence[ast.expr], other: Callable[[ast.expr], float]
) -> float | None:
    """The value of a distribution function, `a | b` being its first argument for Python."""
    match = _PROBABILITY.fullmatch(name)
    if match is None or match["family"] not in FAMILIES or not arguments:
        return None
    parts = [*arguments]
    if isinstance(parts[0], ast.BinOp) and isinstance(parts[0].op, ast.BitOr):
        parts[:1] = [parts[0].left, parts[0].right]
    if any(isinstance(part, ast.List | ast.Starred) for part in parts):
        return None
    end, *given = (_value(part, other) for part in parts)
    if not match["side"] and end <= _low(FAMILIES[match["family"]], given):
        return -math.inf if match["log"] else 0.0
    ends = (end, math.inf) if "c" in match["side"] else (-math.inf, end)
    inside = mass(match["family"], given, *ends)
    return None if inside is None else math.log(inside) if match["log"] else inside


def _low(family: Family, arguments: Sequence[float]) -> float:
    """The end of the support below which a family has no mass."""
    return family.low if family.low_argument is None else arguments[family.low_argument]

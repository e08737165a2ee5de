"""Writes in Stan what a prior lacks where bounds cut it off.

For a family with distribution function F and bounds a and b that is − log(F(b) − F(a)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from stanct.stan.densities import Density, one_line
from stanct.stan.supports import constant
from stanct.stan.syntax import Range, Syntax, Tilde

# Families without a log distribution function in Stan.
_WITHOUT_LCDF = frozenset({"loglogistic"})


@dataclass(frozen=True)
class Bound:
    """A declared bound.

    Attributes
    ----------
    tokens
        As declared; None for the bound that a type implies.
    text
        In Stan, indexed as the variate is.
    rank
        How many indices lead to a scalar; None where that is not known.
    """

    tokens: Range | None
    text: str
    rank: int | None


class Writer:
    """Writes the missing factor of one prior in Stan.

    Parameters
    ----------
    density
        The prior.
    low, high
        The bounds that cut mass off.
    centred
        Whether the one bound is the centre of a symmetric family.
    ranks
        Of the variate, and of the arguments; None where one is not known.
    syntax
        The program.

    Attributes
    ----------
    is_repeated
        Whether what is written is of one element, and the variate has several.
    """

    def __init__(
        self,
        density: Density,
        low: Bound | None,
        high: Bound | None,
        *,
        centred: bool,
        ranks: tuple[int | None, Sequence[int | None]],
        syntax: Syntax,
    ) -> None:
        self._density, self._low, self._high = density, low, high
        self._centred, self._syntax = centred, syntax
        self._variate, arguments = ranks
        others = [*arguments, *(bound.rank for bound in (low, high) if bound is not None)]
        self._is_known = None not in (*others, self._variate)
        self._is_alike = self._is_known and not any(others)
        self.is_repeated = bool(self._variate) and (centred or self._is_alike)

    def each(self) -> str | None:
        """Less the log of the mass within the bounds, for one element or summed over all."""
        if self._centred:
            return "log(2)"
        family = self._density.family
        if not self._is_known or family in _WITHOUT_LCDF:
            return None
        arguments = [one_line(self._syntax, tokens) for tokens in self._density.arguments]
        behind = f" | {', '.join(arguments)}" if arguments else ""
        lower = upper = ""
        if self._low is not None:
            ending = "_lccdf" if self._high is None else "_lcdf"
            lower = f"{family}{ending}({self._low.text}{behind})"
        if self._high is not None:
            upper = f"{family}_lcdf({self._high.text}{behind})"
        if not (lower and upper):
            return f"-{lower or upper}"
        # The difference of sums is not the sum of differences.
        return f"-log_diff_exp({upper}, {lower})" if self._is_alike else None

    def truncation(self) -> str:
        """`T[..., ...]` where that is the remedy."""
        bounds = [bound for bound in (self._low, self._high) if bound is not None]
        if not isinstance(self._density.statement, Tilde):
            return ""
        if self._density.family in _WITHOUT_LCDF or any(bound.rank != 0 for bound in bounds):
            return ""
        if self._variate != 0 and self.each() is not None:
            return ""
        low, high = ("" if b is None else b.text for b in (self._low, self._high))
        return f" T[{low}, {high}]"

    def statement(self, counts: Sequence[str]) -> str:
        """The increment of the target that is the remedy."""
        each = self.each()
        return "" if each is None else f"target += {product(counts, each)};"


def cuts(bound: Bound | None, end: float | str, sign: int) -> tuple[Bound | None, bool]:
    """Return the bound if it lies within the support; and whether only the data tell.

    `sign` is 1 for a lower bound and -1 for an upper one.
    """
    if bound is None or bound.text == end or isinstance(end, str):
        return None, False
    if math.isinf(end):
        return bound, False
    number = constant(bound.text)
    if number is None:
        return bound, True
    return (bound if sign * number > sign * end else None), False


def product(factors: Sequence[str], each: str) -> str:
    """Write a product in Stan, with its sign in front and without factors of 1."""
    factors = [operand(factor) for factor in factors if factor != "1"]
    sign = "-" if each.startswith("-") and factors else ""
    return sign + " * ".join([*factors, each.removeprefix(sign) if sign else each])


def operand(text: str) -> str:
    """Put an expression in brackets unless it can stand in a product as it is."""
    call = re.match(r"\w*\(", text)
    if re.fullmatch(r"[\w.]+", text):
        return text
    if call is not None and text.endswith(")"):
        inner = text[call.end() : -1]
        depth = [inner[: k + 1].count("(") - inner[: k + 1].count(")") for k in range(len(inner))]
        if min(depth, default=0) >= 0:
            return text
    return f"({text})"

"""Priors that bounds cut off, and Stan code for their missing log factor.

For a family with distribution function F and bounds a and b, the factor is −log(F(b) − F(a)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stanct.stan.densities import Density, one_line
from stanct.stan.distributions import TRUNCATED_ONLY
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit
from stanct.stan.supports import constant
from stanct.stan.syntax import Range, Syntax, Tilde, TypeSpec

# Families without a log distribution function in Stan.
_WITHOUT_LCDF = frozenset({"loglogistic"})


@dataclass(frozen=True)
class Bound:
    """A declared bound.

    Its tokens are None for a bound that a type implies. The text is the bound in Stan, indexed like
    the variate. The rank is the number of indices that lead to a scalar; None if unknown.
    """

    tokens: Range | None
    text: str
    rank: int | None


@dataclass(frozen=True)
class Cut:
    """How the support of a parameter cuts off mass of its prior.

    Attributes
    ----------
    conditional
        Whether it depends on the data if it does.
    centred
        Whether the only bound is the centre of a symmetric family.
    """

    name: str
    spec: TypeSpec
    low: Bound | None
    high: Bound | None
    conditional: bool
    centred: bool

    @property
    def bounds(self) -> tuple[Bound, ...]:
        """The bounds beyond which there is mass."""
        return tuple(bound for bound in (self.low, self.high) if bound is not None)


@dataclass(frozen=True, eq=False)
class HalfPrior:
    """A prior that has mass outside of the declared support.

    Attributes
    ----------
    name
        Name of the parameter.
    density
        Prior of the parameter.
    where
        Description of where the mass lies that is left out.
    depends_on
        Parameters on which the missing factor depends; empty if the factor is constant.
    total
        The missing factor in Stan, in all runs of the statement, or in each if the text says when
        it runs; None if unknown.
    value, remedy
        See `omissions.Omission`.
    truncation
        Truncation to insert before the statement's semicolon, e.g. ` T[0, ]`; empty if `added`
        normalises the prior, or if nothing does.
    added
        Statement that normalises the prior if no truncation does; otherwise empty.
    """

    name: str
    density: Density = field(repr=False)
    where: str
    depends_on: tuple[str, ...]
    total: str | None
    value: float | None
    remedy: str | None
    truncation: str
    added: str

    @property
    def correction(self) -> str | None:
        """The missing factor if it is a constant; see `omissions.Omission`."""
        return None if self.depends_on else self.total

    @property
    def sentence(self) -> str:
        """What the prior lacks, in a sentence."""
        said = f"The prior of `{self.name}` has mass {self.where} and is not truncated there"
        if self.depends_on:
            names = ", ".join(self.depends_on)
            return (
                f"{said}; how much depends on {names}: the missing factor is not a constant, and a "
                "truncation would change the posterior, too."
            )
        if self.value is None:
            return f"{said}, so that the density is not normalised and log Z is too small."
        return f"{said}, so that log Z is too small by {self.value:.4f}."

    def edits(self, program: Program) -> list[Edit]:
        """Return the edits of the program's text that normalise the prior."""
        tokens, syntax = self.density.statement.tokens, program.syntax
        semicolon = syntax.tokens[tokens.stop - 1]
        if self.truncation:
            return [Edit(semicolon.start, semicolon.start, self.truncation)]
        if not self.added:
            return []
        start = syntax.start(tokens.first)
        if syntax.word(tokens.first - 1) in (";", "{", "}"):
            return [Edit(semicolon.end, semicolon.end, f" {self.added}")]
        return [
            Edit(start, start, "{ "),
            Edit(semicolon.end, semicolon.end, f" {self.added} }}"),
        ]


class Writer:
    """Writes the missing factor of one prior in Stan.

    Attributes
    ----------
    is_repeated
        Whether the written factor is that of one element of a variate with several.
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
        """Return minus the log mass within the bounds, for one element or summed over all."""
        if self._centred:
            return "log(2)"
        family = self._density.family
        if not self._is_known or family in _WITHOUT_LCDF | TRUNCATED_ONLY:
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
        # With containers each `_lcdf` is a sum, and log_diff_exp of two sums is wrong.
        return f"-log_diff_exp({upper}, {lower})" if self._is_alike else None

    def truncation(self) -> str:
        """Return ` T[..., ...]` if a truncation is the remedy, otherwise an empty string."""
        bounds = [bound for bound in (self._low, self._high) if bound is not None]
        if not isinstance(self._density.statement, Tilde):
            return ""
        if self._density.family in _WITHOUT_LCDF or any(bound.rank != 0 for bound in bounds):
            return ""
        if self._variate != 0 and self.each() is not None:
            return ""
        low, high = ("" if b is None else b.text for b in (self._low, self._high))
        return f" T[{low}, {high}]"

    def statement(self, counts: Sequence[str], total: str) -> str:
        """Return the increment of a sum that is the remedy; empty if there is none."""
        each = self.each()
        return "" if each is None else f"{total} += {product(counts, each)};"


def cuts(bound: Bound | None, end: float | str, sign: int) -> tuple[Bound | None, bool]:
    """Return the bound if it may lie within the support, and whether this depends on data.

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
    """Put an expression in parentheses unless it needs none as a factor."""
    call = re.match(r"\w*\(", text)
    if re.fullmatch(r"[\w.]+", text):
        return text
    if call is not None and text.endswith(")"):
        inner = text[call.end() : -1]
        depth = [inner[: k + 1].count("(") - inner[: k + 1].count(")") for k in range(len(inner))]
        if min(depth, default=0) >= 0:
            return text
    return f"({text})"

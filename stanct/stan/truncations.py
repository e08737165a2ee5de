"""Priors that bounds cut off, and Stan code for their missing log factor.

For a family with distribution function F and bounds a and b, the factor is −log(F(b) − F(a)).
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from stanct.stan.arithmetic import constant
from stanct.stan.densities import Density, one_line
from stanct.stan.distributions import TRUNCATED_ONLY
from stanct.stan.nodes import Compound, Range, Tilde, TypeSpec
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit
from stanct.stan.syntax import Syntax

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

    `conditional` says whether it depends on the data if it does, and `centred` whether the only
    bound is the centre of a symmetric family.
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

    `where` says where that mass lies, and `depends_on` has the parameters on which the missing
    factor depends. `total` is the factor in Stan, of all runs of the statement, or of each if the
    text says when it runs. It is normalised by a `truncation` before its semicolon, such as ` T[0,
    ]`, or by the statement `added`. For `value` and `remedy` see `omissions.Omission`.
    """

    name: str
    density: Density = field(repr=False)
    where: str
    depends_on: tuple[str, ...] = ()
    total: str | None = None
    value: float | None = None
    remedy: str | None = None
    truncation: str = ""
    added: str = ""

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
        start, alone = syntax.start(tokens.first), syntax.word(tokens.first - 1) not in ";{}"
        behind = Edit(semicolon.end, semicolon.end, f" {self.added}{' }' * alone}")
        return [Edit(start, start, "{ " * alone), behind]


@dataclass(frozen=True)
class Writer:
    """Writes the missing factor of one prior in Stan.

    `variate` and `others` are the ranks of the variate, and of arguments and bounds; None if
    unknown.
    """

    density: Density
    cut: Cut
    variate: int | None
    others: Sequence[int | None]
    syntax: Syntax

    @property
    def is_repeated(self) -> bool:
        """Whether the factor is that of one element of a variate with several."""
        return bool(self.variate) and (self.cut.centred or self._is_alike)

    @property
    def _is_alike(self) -> bool:
        return self.variate is not None and all(rank == 0 for rank in self.others)

    def each(self) -> str | None:
        """Return minus the log mass within the bounds, for one element or summed over all."""
        if self.cut.centred:
            return "log(2)"
        family = self.density.family
        if None in (self.variate, *self.others) or family in _WITHOUT_LCDF | TRUNCATED_ONLY:
            return None
        arguments = [one_line(self.syntax, tokens) for tokens in self.density.arguments]
        behind = f" | {', '.join(arguments)}" if arguments else ""
        low, high, lower, upper = self.cut.low, self.cut.high, "", ""
        if low is not None:
            lower = f"{family}{'_lccdf' if high is None else '_lcdf'}({low.text}{behind})"
        if high is not None:
            upper = f"{family}_lcdf({high.text}{behind})"
        if not (lower and upper):
            return f"-{lower or upper}"
        # With containers each `_lcdf` is a sum, and log_diff_exp of two sums is wrong.
        return f"-log_diff_exp({upper}, {lower})" if self._is_alike else None

    def truncation(self) -> str:
        """Return ` T[..., ...]` if a truncation is the remedy, otherwise an empty string."""
        known = isinstance(self.density.statement, Tilde) and (
            self.density.family not in _WITHOUT_LCDF
            and all(bound.rank == 0 for bound in self.cut.bounds)
        )
        if not known or (self.variate != 0 and self.each() is not None):
            return ""
        low, high = ("" if b is None else b.text for b in (self.cut.low, self.cut.high))
        return f" T[{low}, {high}]"


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


def length(syntax: Syntax, loop: Compound) -> str | None:
    """Return the number of turns of a loop in Stan; None for a loop over a container."""
    ends = syntax.loop_ends(loop)
    if len(ends) != 2:
        return None
    low, high = (one_line(syntax, end) for end in ends)
    first, last = constant(low), constant(high)
    if first is not None and last is not None:
        return f"{max(last - first + 1, 0):.15g}"
    return high if low == "1" else f"({high} - {operand(low)} + 1)"


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

"""Walks: priors of elements given those before them, such as `x[2:n] ~ normal(x[1:n - 1], tau)`.

With x[t] = x[t − 1] + tau raw[t] and raw[t] ~ std_normal, a walk has a non-centred form, as a
hierarchy has. The matrix dx / draw is triangular with tau on its diagonal, so that

    ∏ N(x[t] | x[t − 1], tau) dx = ∏ N(raw[t] | 0, 1) draw.

Any centre will do that depends on earlier elements only: autoregressions of any order, drifts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stanct.stan.nodes import Compound, Range, Tilde, TypeSpec
from stanct.stan.syntax import Syntax

# Operators that bind less tightly than a sum.
_LOOSER = frozenset({"?", "||", "&&", "==", "!=", "<", "<=", ">", ">="})


@dataclass(frozen=True)
class Walk:
    """The loop that defines the elements of a walk from those before them.

    What stands in the parentheses of `for`, the index of the element, and the centre of the
    element.
    """

    head: str
    element: str
    location: str


def find_walk(
    syntax: Syntax,
    spec: TypeSpec,
    prior: Tilde,
    loop: Compound | None,
    *,
    is_scalar: Callable[[str], bool],
    free_index: Callable[[], str],
) -> Walk | None:
    """The walk of a prior over elements of its variate, of rank 1; None if it is none for certain.

    Centre and scale are the last two arguments of the prior, which may stand in the loop.
    `is_scalar` tells whether a variable of a name is a scalar there, and `free_index` makes the
    name of an index that the program does not use.
    """
    if spec.rank != 1:
        return None
    (size,) = spec.array or spec.dims
    reader = _Reader(syntax, syntax.word(prior.variate.first), size)
    others = [part for k, part in enumerate(prior.arguments) if k != len(prior.arguments) - 2]
    if any(reader.places(part) for part in others):
        return None
    location = prior.arguments[-2]
    if loop is not None:
        return reader.in_loop(prior, location, loop)
    return reader.in_slice(prior, location, is_scalar, free_index)


@dataclass
class _Reader:
    """Reads the indices of one variable."""

    syntax: Syntax
    name: str
    size: Range

    def places(self, tokens: Range) -> list[int]:
        """The tokens of a range that are the variable."""
        return [k for k in range(*tokens) if self.syntax.word(k) == self.name]

    def in_loop(self, prior: Tilde, location: Range, loop: Compound) -> Walk | None:
        """The walk of `for (t in 2:n) x[t] ~ normal(x[t - 1], tau)`."""
        index, ends = self.syntax.loop_variable(loop), self.syntax.loop_ends(loop)
        element = self.syntax.index(prior.variate)
        ahead = None if element is None else self._shift(element, index)
        if element is None or ahead is None or len(ends) != 2 or not self._ends(ends[1], ahead):
            return None
        lags = list(self._lags(location, lambda inside: self._shift(inside, index)))
        if not lags or any(lag is None or lag >= ahead for lag in lags):
            return None
        text = self.syntax.text
        return Walk(text(loop.heads[0]), text(element), text(location))

    def in_slice(
        self,
        prior: Tilde,
        location: Range,
        is_scalar: Callable[[str], bool],
        free_index: Callable[[], str],
    ) -> Walk | None:
        """The walk of `x[2:n] ~ normal(x[1:(n - 1)], tau)`, whose other variables are scalars."""
        element = self.syntax.index(prior.variate)
        first = None if element is None else self._slice(element)
        if element is None or first is None or first[0] < 2 or not self._ends(first[1], 0):
            return None
        if not self._is_scalar_around(location, is_scalar):
            return None
        starts = list(self._lags(location, self._start))
        if not starts or any(start is None or start >= first[0] for start in starts):
            return None
        index, text = free_index(), self.syntax.source.text
        parts, done = [], self.syntax.start(location.first)
        for place, start in zip(self.places(location), starts, strict=True):
            assert start is not None
            parts.append(text[done : self.syntax.tokens[place].end])
            parts.append(f"[{index} - {first[0] - start}]")
            done = self.syntax.tokens[self.syntax.partner[place + 1]].end
        parts.append(text[done : self.syntax.span(location)[1]])
        last = self.syntax.text(self.size)
        return Walk(f"{index} in {first[0]}:{last}", index, "".join(parts))

    def _is_scalar_around(self, location: Range, is_scalar: Callable[[str], bool]) -> bool:
        """Whether all but the slices of the variable are scalars, their sums and products."""
        inside = {
            k
            for place in self.places(location)
            if self.syntax.word(place + 1) == "["
            for k in range(place, self.syntax.partner[place + 1] + 1)
        }
        for k in range(*location):
            if k in inside:
                continue
            token, word = self.syntax.tokens[k], self.syntax.word(k)
            if token.kind == "name" and (self.syntax.word(k + 1) == "(" or not is_scalar(word)):
                return False
            if token.kind != "name" and token.kind != "number" and word not in "()+-*":
                return False
        return True

    def _lags(self, location: Range, read: Callable[[Range], int | None]) -> Iterator[int | None]:
        """What each index of the variable in the centre says; None for one that says nothing."""
        for place in self.places(location):
            if self.syntax.word(place + 1) != "[":
                yield None
                continue
            inside = Range(place + 2, self.syntax.partner[place + 1])
            yield read(inside) if len(self.syntax.split(inside)) <= 1 else None

    def _shift(self, inside: Range, index: str) -> int | None:
        """k of `t + k`, `t - k` or `t`."""
        words = self.syntax.words(inside)
        if words == [index]:
            return 0
        if len(words) == 3 and words[0] == index and words[1] in "+-" and words[2].isdigit():
            return int(words[1] + words[2])
        return None

    def _slice(self, inside: Range) -> tuple[int, Range] | None:
        """First number and last expression of `2:n` or `2:`."""
        ends = self.syntax.split(inside, ":")
        if len(ends) != 2:
            return None
        words = self.syntax.words(ends[0])
        return (int(words[0]), ends[1]) if len(words) == 1 and words[0].isdigit() else None

    def _start(self, inside: Range) -> int | None:
        """First number of a slice, 1 where it is left out."""
        if self.syntax.word(inside.first) == ":":
            return 1
        found = self._slice(inside)
        return None if found is None else found[0]

    def _ends(self, last: Range, ahead: int) -> bool:
        """Whether an index that ends there, with so much added, ends at the last element."""
        words, size = self.syntax.words(self.syntax.bare(last)), self.syntax.words(self.size)
        return words in ([], size) if ahead == 0 else words == [*size, "-", str(ahead)]


def terms_of_sum(syntax: Syntax, value: Range) -> list[tuple[Range, bool]]:
    """Split a sum into its terms; the second value says whether a term is subtracted.

    An expression that is no sum, such as a choice or a comparison, is its only term.
    """
    if any(syntax.word(token) in _LOOSER for token in syntax.outermost(value)):
        return [(value, False)]
    terms: list[tuple[Range, bool]] = []
    first, negative = value.first, False
    for token in syntax.outermost(value):
        if syntax.word(token) not in ("+", "-") or token == first:
            continue
        before = syntax.tokens[token - 1]
        if before.kind == "mark" and before.text not in (")", "]", "}", "'"):
            continue
        terms.append((Range(first, token), negative))
        first, negative = token + 1, syntax.word(token) == "-"
    return [*terms, (Range(first, value.stop), negative)]

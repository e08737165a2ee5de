"""Priors that have mass outside of the declared support of their parameters.

For a prior of a parameter with bounds a and b, the missing factor is 1 / P(a < theta < b), so that

    log Z (normalised) = log Z (as written) − log P(a < theta < b).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

from stanct.stan.arithmetic import constant
from stanct.stan.densities import Densities, Density, one_line
from stanct.stan.nodes import Range, Tilde, TypeSpec
from stanct.stan.supports import FAMILIES, MULTIVARIATE, Family, mass
from stanct.stan.truncations import Bound, Cut, HalfPrior, Writer, cuts, length, product

_ORDERED = frozenset({"ordered", "positive_ordered"})
_BOUNDABLE = frozenset({"real", "vector", "row_vector", "matrix"})
_BOUNDS = frozenset({"lower", "upper"})
_WRAPPERS = frozenset({"to_vector", "to_row_vector", "to_array_1d"})
_CHOOSING = frozenset({"if", "while"})
# Negligible log factor of one element. A variate hardly has a million elements.
_NOTHING = 1e-9
_WORD = re.compile(r"\w+")


def _is_arc(low: Bound | None, high: Bound | None, period: float) -> bool:
    """Whether bounds leave less than a circle, as far as the text tells."""
    if low is None or high is None:
        return False
    ends = constant(low.text), constant(high.text)
    return None not in ends and ends[1] - ends[0] < period * (1 - _NOTHING)  # pyright: ignore[reportOperatorIssue, reportOptionalOperand]


def cuts_off(spec: TypeSpec) -> bool:
    """Whether the values of a type are a part of those without constraints that has a volume."""
    return spec.base in _ORDERED or (
        spec.base in _BOUNDABLE and bool(_BOUNDS & spec.constraints.keys())
    )


def _is_truncated(density: Density) -> bool:
    return isinstance(density.statement, Tilde) and density.statement.truncated


class HalfPriors:
    """Finds the half priors of one program by its densities."""

    def __init__(self, densities: Densities) -> None:
        self._densities, self._syntax = densities, densities.syntax
        self._shapes = densities.shapes
        self._specs = densities.program.parameter_types
        self._several = self._with_several()

    def found(self) -> Iterator[HalfPrior]:
        """Yield the half priors in the order of the text."""
        for density in self._densities.found:
            stands = density.added or _is_truncated(density)
            if stands and not self._densities.program.defines(density.family):
                half = self._half_prior(density)
                if half is not None:
                    yield half

    def with_own(self) -> set[str]:
        """Return the parameters with a density of their own, normalised if that is not `added`."""
        found = set[str]()
        for density in self._densities.found:
            name = self._reference(density.variate) if density.alone else None
            tilde = density.added or isinstance(density.statement, Tilde)
            if name is not None and (tilde or self._half_prior(density) is None):
                found.add(name)
        return found

    def _with_several(self) -> set[str]:
        """Return parameters with a density of the whole, and another of the whole or a part."""
        plain = [
            density
            for density in self._densities.found
            if density.added and not any(c.word in _CHOOSING for c in density.inside)
        ]
        names = [name for d in plain if (name := self._reference(d.variate)) is not None]
        whole = {self._syntax.word(d.variate.first) for d in plain if d.variate.is_one}
        return {name for name in names if names.count(name) > 1 and name in whole}

    def _is_prior(self, density: Density) -> bool:
        """Return whether each execution of a statement refers to different elements.

        `for (n in 1:N) mu ~ normal(y[n], 1);` is a likelihood of y with the two sides exchanged.
        """
        words = {*self._syntax.words(density.variate)}
        loops = {self._syntax.loop_variable(c) for c in density.inside if c.word == "for"}
        scalar = self._rank(density.variate, density) == 0
        ranks = [self._rank(argument, density) for argument in density.arguments]
        return loops <= words and not (scalar and any(ranks))

    # One prior

    def _half_prior(self, density: Density) -> HalfPrior | None:
        if density.family in MULTIVARIATE:
            return self._of_vector(density)
        cut = self._cut(density)
        if cut is None:
            return None
        if cut.spec.base in _ORDERED:
            return self._of_ordered(density, cut)
        depends = () if cut.centred else self._depends(density, cut.bounds)
        if depends and self._is_censored(cut.name, density, depends):
            return None
        value = self._value(density, cut)
        if value is not None and value < _NOTHING:
            return None
        where = " and ".join(
            f"{side} the declared bound {bound.text}"
            for side, bound in (("below", cut.low), ("above", cut.high))
            if bound is not None
        )
        if _is_truncated(density):
            return self._truncated_elsewhere(density, cut, where, depends)
        if cut.conditional:
            where = f"{where}, unless that is an end of the family's support,"
        writer = self._writer(density, cut)
        each, truncation, added = writer.each(), writer.truncation(), ""
        repeats = self._counts(density, cut.spec) if writer.is_repeated else []
        total, value = self._total(density, cut.spec, each, value, repeats)
        if each is not None and not truncation:
            added = f"{self._sum(density)} += {product(repeats, each)};"
        remedy = self._remedy(density, truncation, added)
        value = None if depends else value
        return HalfPrior(cut.name, density, where, depends, total, value, remedy, truncation, added)

    def _truncated_elsewhere(
        self, density: Density, cut: Cut, where: str, depends: tuple[str, ...]
    ) -> HalfPrior | None:
        """Return the half prior of a parameter whose bounds are within the truncation."""
        statement = density.statement
        assert isinstance(statement, Tilde)
        if cut.spec.base in _ORDERED or cut.conditional:
            return None
        kept = [
            None if end is None else self._text(end) for end in (statement.lower, statement.upper)
        ]
        bounds = cut.low, cut.high
        ends = [b.text if b else end for b, end in zip(bounds, kept, strict=True)]
        inside, whole = self._log_mass(density, *ends), self._log_mass(density, *kept)
        is_one = density.variate.is_one and not cut.spec.rank
        value = None
        if None not in (inside, whole) and is_one and not (density.inside or depends):
            value = whole - inside  # pyright: ignore[reportOperatorIssue]
        closing = self._syntax.partner[statement.tilde + 2]
        text = self._text(Range(statement.tokens.first, closing + 1))
        remedy = f"{text} T[{ends[0] or ''}, {ends[1] or ''}];"
        return HalfPrior(cut.name, density, where, depends, value=value, remedy=remedy)

    def _sum(self, density: Density) -> str:
        return self._densities.sum_of(density.statement) or "target"

    def _remedy(self, density: Density, truncation: str, added: str) -> str | None:
        text = self._text(density.statement.tokens)
        if truncation:
            return f"{text.removesuffix(';').rstrip()}{truncation};"
        return f"{text} {added}" if added else None

    def _reference(self, variate: Range) -> str | None:
        """Return the parameter that a variate is, whole or indexed; None for other expressions."""
        syntax = self._syntax
        variate = syntax.bare(variate)
        while syntax.word(variate.first) in _WRAPPERS:
            inside = syntax.call(variate)
            if inside is None:
                return None
            variate = syntax.bare(inside)
        word, token = syntax.word(variate.first), variate.first + 1
        name = self._densities.renamed.get(word, word)
        while token < variate.stop and syntax.word(token) == "[":
            token = syntax.partner[token] + 1
        return name if name in self._specs and token == variate.stop else None

    def _parameter(self, density: Density) -> str | None:
        """Return the parameter of which a density is the prior, if it has no other."""
        name = self._reference(density.variate)
        return None if name in self._several or not self._is_prior(density) else name

    def _cut(self, density: Density) -> Cut | None:
        """Return how the support of a parameter cuts off mass of its prior; None if it does not."""
        name, family = self._parameter(density), FAMILIES.get(density.family)
        if name is None or family is None:
            return None
        spec = self._specs[name]
        low, high = self._bound(density, spec, "lower"), self._bound(density, spec, "upper")
        if spec.base not in _BOUNDABLE | _ORDERED:
            return None
        conditional = False
        if math.isfinite(family.period) and not _is_arc(low, high, family.period):
            low = high = None
        else:
            low, low_if = cuts(low, self._end(density, family, "lower"), 1)
            high, high_if = cuts(high, self._end(density, family, "upper"), -1)
            conditional = low_if or high_if
        bounds = tuple(bound for bound in (low, high) if bound is not None)
        if not bounds and spec.base not in _ORDERED:
            return None
        centred = len(bounds) == 1 and self._is_centre(density, family, bounds[0])
        return Cut(name, spec, low, high, conditional, centred)

    def _end(self, density: Density, family: Family, side: str) -> float | str:
        """Return an end of the support: a number, or the text of what sets it."""
        low = side == "lower"
        tokens = getattr(density.statement, side, None)  # of a truncation
        argument = family.low_argument if low else family.high_argument
        if tokens is None:
            if argument is None:
                return family.low if low else family.high
            if argument >= len(density.arguments):
                return "?"
            tokens = density.arguments[argument]
        text = self._text(tokens)
        number = constant(text)
        return text if number is None else number

    def _bound(self, density: Density, spec: TypeSpec, side: str) -> Bound | None:
        if side == "lower" and spec.base == "positive_ordered":
            return Bound(None, "0", 0)
        tokens = spec.constraints.get(side)
        if tokens is None:
            return None
        text = self._text(tokens)
        if constant(text) in (math.inf, -math.inf):
            return None
        shape = self._shapes.shape(tokens, self._shapes.globals())
        rank, variate = None if shape is None else shape.rank, density.variate
        if rank and not variate.is_one:
            alike = rank == spec.rank and self._syntax.index(variate) is not None
            rank = self._rank(variate, density) if alike else None
            if rank is not None:
                text = text if tokens.is_one else f"({text})"
                text += self._text(Range(variate.first + 1, variate.stop))
        return Bound(tokens, text, rank)

    def _is_centre(self, density: Density, family: Family, bound: Bound) -> bool:
        """Return whether a symmetric family is cut at its centre."""
        if family.standard:
            return constant(bound.text) == 0
        if family.centre is None or family.centre >= len(density.arguments):
            return False
        centre = self._text(density.arguments[family.centre])
        number = constant(centre)
        return centre == bound.text or (number is not None and number == constant(bound.text))

    def _depends(self, density: Density, bounds: Sequence[Bound]) -> tuple[str, ...]:
        ends = (bound.tokens for bound in bounds if bound.tokens is not None)
        return tuple(sorted(self._densities.roots_in(*density.arguments, *ends)))

    def _is_censored(self, name: str, density: Density, depends: Sequence[str]) -> bool:
        """Return whether a parameter represents a censored observation, and occurs nowhere else.

        The mass outside of its bounds is then left out on purpose. That is not so where a density
        of constants is cut off at a parameter with a prior.
        """
        if not self._depends(density, ()) and set(depends) <= self._densities.in_variates:
            return False
        others = [
            other.statement
            for other in self._densities.found
            if other.statement is not density.statement
        ]
        others += self._densities.increments
        return not any(name in self._densities.roots_in(other.tokens) for other in others)

    def _value(self, density: Density, cut: Cut) -> float | None:
        """Return the missing log factor of one element, or None if a number is not in the text."""
        if cut.centred:
            return math.log(2)
        ends = [None if bound is None else bound.text for bound in (cut.low, cut.high)]
        log_mass = self._log_mass(density, *ends)
        return None if log_mass is None else -log_mass

    def _log_mass(self, density: Density, low: str | None, high: str | None) -> float | None:
        """Return the log of the mass between ends, or None if a number is not in the text."""
        ends = low or "negative_infinity()", high or "positive_infinity()"
        texts = [*map(self._text, density.arguments), *ends]
        numbers = [number for text in texts if (number := constant(text)) is not None]
        if len(numbers) < len(texts):
            return None
        *known, start, end = numbers
        inside = mass(density.family, known, start, end)
        return None if inside is None else math.log(inside)

    def _total(
        self,
        density: Density,
        spec: TypeSpec,
        each: str | None,
        value: float | None,
        counts: list[str],
    ) -> tuple[str | None, float | None]:
        """Return the correction of all elements, in Stan and as a number."""
        if each is None:
            single = not (density.inside or spec.array or spec.dims)
            return None, value if single and density.variate.is_one else None
        runs = [length(self._syntax, loop) for loop in density.inside if loop.word == "for"]
        local = density.scope.keys() - self._shapes.globals().keys()
        known = [run for run in runs if run is not None]
        words = {word for text in (each, *counts, *known) for word in _WORD.findall(text)}
        chosen = any(loop.word in _CHOOSING for loop in density.inside)
        if chosen or words & local or len(known) < len(runs):
            heads = "; ".join(self._text(head) for c in density.inside for head in c.heads)
            return f"{product(counts, each)} whenever the statement runs ({heads})", None
        counts = [*known, *counts]
        numbers = [constant(count) for count in counts]
        if value is None or None in numbers:
            return product(counts, each), None
        return product(counts, each), value * math.prod(number or 0.0 for number in numbers)

    def _counts(self, density: Density, spec: TypeSpec) -> list[str]:
        """Return the factors of the number of elements of a variate."""
        if any(self._syntax.word(token) == "[" for token in range(*density.variate)):
            return [f"size({self._text(density.variate)})"]
        return [self._text(size) for size in (*spec.array, *spec.dims)]

    # Vectors

    def _of_ordered(self, density: Density, cut: Cut) -> HalfPrior | None:
        """Return the half prior of an ordered vector, one of K! equally probable orders."""
        spec, bounds = cut.spec, cut.bounds
        (size,) = map(self._text, spec.dims)
        number = constant(size)
        if number is not None and number < 2 and not bounds:
            return None
        alike = all(
            (shape := self._shapes.shape(argument, density.scope)) is not None and shape.rank == 0
            for argument in density.arguments
        )
        is_whole = self._text(density.variate) == cut.name and not spec.array
        if not (alike and is_whole) or density.inside or len(bounds) > 1:
            return self._of_elements(density, cut)
        each, value = f"lgamma({size} + 1)", None
        if number is not None:
            value = math.lgamma(number + 1)
        where = "outside of the declared order"
        if bounds:
            if not cut.centred and self._depends(density, bounds):
                return self._of_elements(density, cut)
            half = self._writer(density, cut).each()
            if half is None:
                return None
            below = self._value(density, cut)
            each = f"{each} + {product([size], half)}"
            value = None if value is None or below is None else value + (number or 0) * below
            where = f"below 0 and {where}"
        added = f"{self._sum(density)} += {each};"
        remedy = self._remedy(density, "", added)
        return HalfPrior(cut.name, density, where, (), each, value, remedy, "", added)

    def _of_elements(self, density: Density, cut: Cut) -> HalfPrior | None:
        """Return the half prior of elements of an ordered vector that have priors of their own.

        There is mass outside of the order for certain only where several elements have mass
        everywhere, and nothing is said of their differences.
        """
        seen, name, family = self._densities, cut.name, FAMILIES[density.family]
        if family.low_argument is not None or name in seen.by_hand:
            return None
        own = [one for one in seen.found if name in seen.roots_in(one.variate)]
        if any(_is_truncated(one) or self._reference(one.variate) != name for one in own):
            return None
        words = self._syntax.words(density.variate)
        is_loop = any(compound.word == "for" for compound in density.inside)
        if not (is_loop or own[1:] or words[-1] != "]" or ":" in words):
            return None
        depends = tuple(one for one in self._depends(density, ()) if one != name)
        if depends and self._is_censored(name, density, depends):
            return None
        return HalfPrior(name, density, "outside of the declared order", depends)

    def _of_vector(self, density: Density) -> HalfPrior | None:
        """Return the multivariate half prior of a vector; its factor has no closed form."""
        name = self._parameter(density)
        if name is None:
            return None
        spec = self._specs[name]
        sides = [
            side for side in ("lower", "upper") if self._bound(density, spec, side) is not None
        ]
        if not sides and spec.base not in _ORDERED:
            return None
        bounds = [spec.constraints[side] for side in sides if side in spec.constraints]
        depends = tuple(sorted(self._densities.roots_in(*density.arguments, *bounds)))
        if depends and self._is_censored(name, density, depends):
            return None
        return HalfPrior(name, density, "outside of the declared support", depends)

    def _writer(self, density: Density, cut: Cut) -> Writer:
        others = [self._rank(argument, density) for argument in density.arguments]
        others += [bound.rank for bound in cut.bounds]
        return Writer(density, cut, self._rank(density.variate, density), others, self._syntax)

    def _rank(self, tokens: Range, density: Density) -> int | None:
        """Return the rank of an expression in the statement of a density."""
        shape = self._shapes.shape(tokens, density.scope)
        return None if shape is None else shape.rank

    def _text(self, tokens: Range) -> str:
        """Return a range of the program on one line, without comments."""
        return one_line(self._syntax, tokens)

"""Detection of normalising constants and priors that a program leaves out.

The integral of a program's density is the evidence only if the program is a normalised joint
density of data and parameters. `real<lower=0> s; s ~ normal(0, 1);` is not normalised: half of that
prior's mass lies outside of the declared bound, so that log Z is too small by log 2. This does not
affect posteriors, but it does affect evidences and Bayes factors.

Every reported omission is real, or is marked as one that cannot be checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from types import MappingProxyType
from typing import Any

from stanct.stan.arithmetic import Known
from stanct.stan.branches import taken
from stanct.stan.by_hand import ByHand
from stanct.stan.densities import Densities, Density, one_line
from stanct.stan.dependence import Dependence
from stanct.stan.half_priors import HalfPriors, cuts_off
from stanct.stan.nodes import Call, Declare, Range, TypeSpec
from stanct.stan.omission import Kind, Omission, differences
from stanct.stan.own_constants import Lack, OwnConstant, OwnConstants
from stanct.stan.parts import parts_of, repeated, without_prior
from stanct.stan.program import Program
from stanct.stan.rewrite import edited
from stanct.stan.supports import is_compact
from stanct.stan.surfaces import on_surfaces
from stanct.stan.truncations import HalfPrior
from stanct.stan.volumes import volume

# What may lack a constant: a parameter without a prior, by its name, and a prior.
_Lacking = str | HalfPrior
NEGLIGIBLE = 1e-4
"""Corrections of log Z smaller than this are not reported."""


def omissions(program: Program, known: Known = MappingProxyType({})) -> tuple[Omission, ...]:
    """Find what a program leaves out, in the order of its text.

    On a path between two programs this is what one of them leaves out, and not the other. What the
    base leaves out changes the log of the ratio the other way. `known` are numbers of the
    data, and by them which branches are taken.
    """
    if program.ends is not None:
        return differences(omissions(program.ends.full), omissions(program.ends.base))
    finder = _Finder(taken(program, known), known)
    found = [
        *finder.half_priors(), *finder.on_surfaces(), *finder.parameters(), *finder.increments(),
        *finder.rejections(), *finder.transformed(), *finder.unchecked(),
    ]  # fmt: skip
    return tuple(omission for _, omission in sorted(found, key=lambda pair: pair[0]))


def renormalised(program: Program) -> Program:
    """Return the program with its half priors normalised, where a constant suffices.

    Draws and posterior expectations are unchanged, and log Z grows by the corrections. Priors
    whose missing factor depends on parameters are left alone, because the factor would change the
    posterior.
    """
    halves = _Finder(program, {}).renormalisable()
    return edited(program, [edit for half in halves for edit in half.edits(program)])


class _Finder:
    """Finds the omissions of one program, each with its offset in the text."""

    def __init__(self, program: Program, known: Known) -> None:
        self.program, self.syntax = program, program.syntax
        self.densities = Densities(program)
        self._numbers = OwnConstants(self.densities, known)
        self._doubled = self._with_several()
        # Parameters in increments by hand, and those of which something is made that has a density.
        by_hand = [*self.densities.increments, *self.densities.jacobians]
        self._by_hand = self.densities.roots_in(*(one.value for one in by_hand))
        self._made = set[str]()
        # Parameters that only the likelihood has by hand, as the weights of a mixture.
        dependence = Dependence(program)
        told = dependence.tells_apart and dependence.has_likelihood and not self.densities.adders
        self._likely = dependence.uncovered if told else frozenset[str]()
        halves = HalfPriors(self.densities)
        self._own = halves.with_own()
        self._halves = [
            half
            for half in halves.found()
            if self._key(half.density) not in self._doubled
            and (half.value is None or abs(half.value) >= NEGLIGIBLE)
        ]
        self._corrected = set[_Lacking]()
        self._doubtful: dict[_Lacking, int] = {}
        self._constants = self._match()

    def _match(self) -> list[OwnConstant]:
        """Find which priors the program's own constants correct, and return the other constants."""
        own = self._numbers
        lacks: dict[Lack, _Lacking] = {}
        for half in self._halves:
            text, runs, _ = (half.total or "").partition(" whenever")
            read = own.read(text, half.density.inside if runs else ())
            if not half.total:
                read = math.nan if half.value is None else half.value, False
            # What changes with parameters is no constant of the program's, unless they are bounds:
            # two parameters in order may have one together.
            changes = not self.densities.in_bounds.issuperset(half.depends_on)
            is_open = not changes and (read[1] or math.isnan(read[0]))
            is_whole = half.density.variate.is_one
            count = own.elements(half.name) if is_whole and not half.density.inside else 0
            each = read[0] / count if count else math.nan
            lacks[Lack(half.density.statement, read[0], is_open, each)] = half
        for name, spec in self.program.parameter_types.items():
            if self._is_flat(name) and is_compact(spec):
                text = volume(self.densities, name, spec)[0]
                read = (math.nan, True) if text is None else own.read(text)
                lacks[Lack(None, *read)] = name
        filled, left = own.match([*lacks])
        self._corrected = {lacks[lack] for lack in filled}
        left = [one for one in left if one.is_fixed]
        by_hand = [one.tokens for one in self.densities.increments]
        left = [one for one in left if one.statement.tokens not in by_hand]
        told = [lacks[one] for one in lacks.keys() - filled if one.is_open] if left else []
        self._doubtful = {one: self._line(left[0].statement.tokens) for one in told}
        return [] if told else left

    def _is_flat(self, name: str) -> bool:
        seen = self.densities
        by_hand = seen.by_hand - self._likely
        return name not in seen.in_variates | by_hand | seen.in_bounds

    def _line(self, tokens: Range) -> int:
        return self.syntax.source.place(self.syntax.start(tokens.first)).line

    def renormalisable(self) -> list[HalfPrior]:
        """Return the half priors that a constant normalises."""
        told = self._corrected | self._doubtful.keys()
        return [half for half in self._halves if not (half.depends_on or half in told)]

    def _omission(
        self, tokens: Range, kind: Kind, names: tuple[str, ...], sentence: str, **more: Any
    ) -> tuple[int, Omission]:
        offset = self.syntax.start(tokens.first)
        place = self.syntax.source.place(offset)
        text = one_line(self.syntax, tokens)
        if more.get("value") is None and more.get("correction"):
            more["value"] = self._value_of(more["correction"])
        return offset, Omission(kind, names, place.path, place.line, text, sentence, **more)

    def _unchecked(
        self, tokens: Range, names: Iterable[str], sentence: str
    ) -> tuple[int, Omission]:
        return self._omission(tokens, "missing_constant", tuple(sorted(names)), sentence)

    def _value_of(self, text: str) -> float | None:
        """The value of an expression; None if neither the program's text nor data tell it."""
        value, is_open = self._numbers.read(text)
        return None if is_open or math.isnan(value) else value

    # Priors with mass outside of the bounds

    def half_priors(self) -> Iterator[tuple[int, Omission]]:
        """Yield the priors that are not normalised on the declared support."""
        for half in self._halves:
            tokens = half.density.statement.tokens
            if half in self._doubtful:
                said = f"The prior of `{half.name}` has mass {half.where}"
                yield self._doubt(tokens, half.name, said, self._doubtful[half])
            if half in self._corrected | self._doubtful.keys():
                continue
            yield self._omission(
                tokens, "half_prior", (half.name,), half.sentence,
                correction=half.correction, value=half.value, remedy=half.remedy,
            )  # fmt: skip
        for densities in self._doubled.values():
            last = densities[-1]
            place = self.syntax.source.place(self.syntax.start(densities[0].statement.tokens.first))
            variate, name = self.syntax.text(last.variate), self.syntax.word(last.variate.first)
            both = "both are its prior" if name in self.densities.parameters else "that is meant"
            yield self._unchecked(
                last.statement.tokens,
                self.densities.roots_in(last.variate) or [name],
                f"`{variate}` has a density in line {place.line} already: if {both}, "
                "their product is not normalised, and its constant is not known.",
            )

        for density, name in repeated(self.densities):
            yield self._unchecked(
                density.statement.tokens,
                [name],
                f"A loop adds this prior of `{name}` several times: their product is not "
                "normalised, and its constant is not known.",
            )

    def _doubt(self, tokens: Range, name: str, said: str, line: int) -> tuple[int, Omission]:
        return self._unchecked(
            tokens,
            [name],
            f"{said.rstrip(',')}: whether line {line} adds the constant that is missing cannot be "
            "checked.",
        )

    def on_surfaces(self) -> Iterator[tuple[int, Omission]]:
        """Yield the priors that are densities of all vectors, and not of those on a surface."""
        for density, name, sentence, more in on_surfaces(self.densities):
            tokens = density.statement.tokens
            yield self._omission(tokens, "on_surface", (name,), sentence, **more)

    def rejections(self) -> Iterator[tuple[int, Omission]]:
        """Yield the rejections of places by parameters alone, which are no part of a likelihood."""
        for statement, inside in self.densities.surrounded():
            is_rejection = isinstance(statement, Call) and statement.name == "reject"
            if is_rejection and (names := self.densities.decided_by(inside)):
                yield self._unchecked(
                    statement.tokens,
                    names,
                    "This rejects places by their parameters alone. Their density is 0: whether "
                    "the prior is normalised without them cannot be checked.",
                )

    def _key(self, density: Density) -> tuple[str, ...]:
        loops = [self.syntax.text(head) for c in density.inside for head in c.heads]
        words = self.syntax.words(density.variate)
        return (*words, "|", *loops)

    def _with_several(self) -> dict[tuple[str, ...], list[Density]]:
        """Return the densities of variates that have several, by variate and loops."""
        named = {*self.densities.parameters, *self.program.data_names}
        plain = [
            density
            for density in self.densities.found
            if density.added
            and all(c.word in ("for", "block", "profile") for c in density.inside)
            and self.syntax.word(density.variate.first) in named
            and density.variate.stop - density.variate.first in (1, 4)
        ]
        counts = Counter(map(self._key, plain))
        found: dict[tuple[str, ...], list[Density]] = {}
        for density in plain:
            if counts[self._key(density)] > 1:
                found.setdefault(self._key(density), []).append(density)
        return found

    # Parameters without a prior

    def parameters(self) -> Iterator[tuple[int, Omission]]:
        """Yield the parameters that are the variate of no density."""
        seen = self.densities
        for statement, token, spec in self.program.parameter_declarations():
            name = self.syntax.word(token)
            if name in self._corrected:
                continue
            if name in self._doubtful:
                said = f"`{name}` has no prior, and its density is flat"
                yield self._doubt(statement.tokens, name, said, self._doubtful[name])
            elif name not in seen.used:
                yield self._unused(statement, name, spec)
            elif self._is_flat(name):
                yield from self._flat(statement, name, spec)
            else:
                yield from self._in_part(statement, name, spec)

    def _unused(self, statement: Declare, name: str, spec: TypeSpec) -> tuple[int, Omission]:
        said = f"`{name}` occurs in no statement that adds to the target"
        if is_compact(spec):
            said = f"{said}: its density is flat."
            correction, value, _ = volume(self.densities, name, spec)
            if value is not None and abs(value) < NEGLIGIBLE:
                correction, value = None, 0.0
        else:
            said = f"{said}, and its support is unbounded: log Z is infinite."
            correction = value = None
        return self._omission(
            statement.tokens, "unused_parameter", (name,), said,
            correction=correction, value=value, improper=not is_compact(spec),
        )  # fmt: skip

    def _improper(self, statement: Declare, name: str, what: str) -> tuple[int, Omission]:
        return self._omission(
            statement.tokens,
            "improper",
            (name,),
            f"`{what}` has no prior, and its support is unbounded: a flat prior there is improper, "
            "and log Z is no evidence.",
            improper=True,
        )

    def _in_part(
        self, statement: Declare, name: str, spec: TypeSpec
    ) -> Iterator[tuple[int, Omission]]:
        parts = parts_of(self.densities, self._numbers, name, spec)
        place = without_prior(self._numbers, spec, parts) if parts else None
        if place is not None and not is_compact(spec):
            yield self._improper(statement, name, f"{name}[{place}]")
        elif parts and "ordered" in spec.base and name not in {one.name for one in self._halves}:
            yield self._unchecked(
                parts[0].density.statement.tokens,
                [name],
                f"Parts of `{name}` have priors of their own: whether these are normalised on "
                "ordered vectors cannot be checked.",
            )

    def _flat(
        self, statement: Declare, name: str, spec: TypeSpec
    ) -> Iterator[tuple[int, Omission]]:
        if not is_compact(spec):
            yield self._improper(statement, name, name)
            return
        correction, value, remedy = volume(self.densities, name, spec)
        if value is not None and abs(value) < NEGLIGIBLE:
            return
        said = f"`{name}` has no prior: its density is 1 on the declared support"
        if correction is None:
            said = f"{said}, whose volume is not known here."
        elif value is None:
            said = f"{said}, without the constant that makes it a uniform distribution."
        else:
            off = "large" if value < 0 else "small"
            said = f"{said}, so that log Z is too {off} by {abs(value):.4f}."
        yield self._omission(
            statement.tokens, "flat_prior", (name,), said,
            correction=correction, value=value, remedy=remedy,
        )  # fmt: skip

    def unchecked(self) -> Iterator[tuple[int, Omission]]:
        """Yield the parameters with bounds that have a prior, but in no statement of its own."""
        seen = self.densities
        for statement, token, spec in self.program.parameter_declarations():
            name = self.syntax.word(token)
            told = self._by_hand | self._own | self._made
            hidden = name in (seen.in_variates | seen.by_hand) - told
            value = volume(self.densities, name, spec)[1] if is_compact(spec) else None
            is_unit = value is not None and abs(value) < NEGLIGIBLE
            if hidden and cuts_off(spec) and not is_unit:
                yield self._unchecked(
                    statement.tokens,
                    [name],
                    f"`{name}` has no prior in a statement of its own, such as `{name} ~ ...;`: "
                    "whether it is normalised on the declared support cannot be checked.",
                )

    def transformed(self) -> Iterator[tuple[int, Omission]]:
        """Yield the densities of what is made of parameters, which may lack a Jacobian."""
        for density in self.densities.found:
            roots = self.densities.roots_in(density.variate)
            if density.added and roots - self._by_hand and self.densities.is_made(density.variate):
                self._made |= roots
                text = one_line(self.syntax, density.variate)
                yield self._unchecked(
                    density.statement.tokens,
                    roots,
                    f"This is a density of `{text}`, and not of a parameter: whether a Jacobian "
                    "or a constant is missing cannot be checked.",
                )

    # Hand-written increments

    def increments(self) -> Iterator[tuple[int, Omission]]:
        """Yield the increments of the target that call no density."""
        finder = ByHand(self.densities)
        for statement in self.densities.increments:
            yield self._unchecked(
                statement.tokens,
                self.densities.roots_in(statement.value),
                "This increment calls no density: whether its constant is complete cannot be "
                "checked.",
            )
        for statement in self.program.statements("transformed parameters", "model"):
            names = self.densities.roots_in(statement.tokens)
            if statement in self.densities.increments or not names:
                continue
            if finder.is_added_by(statement):
                self._made |= names
                yield self._unchecked(
                    statement.tokens,
                    names,
                    "This is no sum of densities alone: whether it is normalised cannot be "
                    "checked.",
                )
        for tokens in dict.fromkeys(one.statement.tokens for one in self._constants):
            yield self._unchecked(
                tokens,
                (),
                "This adds a constant that is not what the priors lack: whether it normalises "
                "the program cannot be checked.",
            )

"""Hierarchies that the user wrote in their non-centred form, and their centred one.

`alpha = mu + tau * raw` with `raw ~ std_normal()` samples raw. Where the data say much of every
alpha, raw and tau lie on a ridge, and the centred form `alpha ~ normal(mu, tau)` has none. As
N(raw | 0, 1) draw = N(alpha | mu, tau) dalpha, log Z and the posterior are the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from stanct.stan.program import Program
from stanct.stan.reader import Parts, Reader
from stanct.stan.rewrite import Edit, apply
from stanct.stan.syntax import Assign, Compound, Declare, Range, Statement, Tilde


class _Definition(NamedTuple):
    """Where a transformed parameter gets its value.

    Tokens of its name in its declaration and, if that is another statement, where it is assigned;
    those of the value; and the loop over its elements, if it is defined in one.
    """

    name: int
    left: int | None
    value: Range
    loop: Compound | None


@dataclass(frozen=True)
class ByHand:
    """A parameter `raw` that is the standardised form of a transformed parameter `name`.

    Location, "0" where there is none, and scale; the statement `raw ~ std_normal()`; and where
    `name` gets its value.
    """

    raw: str
    name: str
    parts: Parts
    prior: Tilde = field(repr=False)
    definition: _Definition = field(repr=False)


def written_by_hand(program: Program) -> tuple[ByHand, ...]:
    """Every hierarchy of a program that can be given its centred form, in order of definition."""
    return tuple(_Centring(program).found.values())


def centred(program: Program, names: Sequence[str] | None = None) -> Program:
    """The program in which standardised parameters are replaced by what they define.

    `names` are those of `raw` in ``alpha = mu + tau * raw``; by default all that are found.
    """
    # One after another, because each change moves what the others found.
    for name in names if names is not None else list(_Centring(program).found):
        finder = _Centring(program)
        if name in finder.found:
            text = apply(program.expanded, finder.edits(finder.found[name]))
            program = Program.from_source(text, name=program.name, path=program.path)
    return program


class _Centring(Reader):
    """Finds hierarchies in their non-centred form and writes the centred one."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.priors = self._standard_priors()
        self.uses = self._counted_uses()
        self.found: dict[str, ByHand] = {}
        declared: dict[str, int] = {}
        for number, statement in enumerate([] if self.reads_target else self.transformed):
            for definition in self._definitions(statement, declared):
                one = self._read(number, definition)
                if one is not None:
                    self.found[one.raw] = one

    # What can be changed

    def _standard_priors(self) -> dict[str, Tilde]:
        """Parameters with a standard normal prior at the top of the model, and its statement."""
        found: dict[str, Tilde] = {}
        for prior in map(self._prior, self.syntax.statements("model")):
            if prior is None or prior.truncated:
                continue
            arguments = [self.syntax.words(part) for part in prior.arguments]
            standard = prior.distribution == "std_normal" and not arguments
            standard |= prior.distribution == "normal" and arguments == [["0"], ["1"]]
            words = self.syntax.words(prior.variate)
            if standard and len(words) == 1 and words[0] in self.parameters:
                found[words[0]] = prior
        return found

    def _counted_uses(self) -> Counter[str]:
        """How often a name stands outside of the generated quantities."""
        outside = range(*self.syntax.block_range("generated quantities"))
        return Counter(
            token.text
            for k, token in enumerate(self.syntax.tokens)
            if token.kind == "name" and k not in outside
        )

    def _definitions(self, statement: Statement, declared: dict[str, int]) -> Iterator[_Definition]:
        """Definitions of whole transformed parameters, and of all elements in a loop."""
        if isinstance(statement, Declare):
            for token, value in statement.names:
                declared[self.syntax.word(token)] = token
                if value is not None:
                    yield _Definition(token, None, value, None)
            return
        loop = None
        if isinstance(statement, Compound) and statement.word == "for":
            loop, body = statement, self._body(statement)
            if len(body) != 1:
                return
            statement = body[0]
        if not isinstance(statement, Assign) or not self._is_plain(statement):
            return
        name = self.syntax.word(statement.left.first)
        if name not in declared:
            return
        words = self.syntax.words(statement.left)
        whole = (
            words == [name]
            if loop is None
            else self._is_whole_loop(name, self.scope[name], words, loop)
        )
        if whole:
            yield _Definition(declared[name], statement.left.first, statement.value, loop)

    def _is_plain(self, statement: Assign) -> bool:
        """Whether an assignment is `=` and not `+=` or the like."""
        return self.syntax.word(statement.left.stop) == "="

    def _read(self, number: int, definition: _Definition) -> ByHand | None:
        """The hierarchy of a definition, if it is one that can be turned."""
        name = self.syntax.word(definition.name)
        spec, loop = self.scope[name], definition.loop
        sets = sum(name in self._sets(statement) for statement in self.transformed)
        once = sets == (1 if definition.left is None else 2)
        if not once or spec.constraints or (loop is None and spec.array):
            return None
        for raw in sorted(self._names(definition.value) & self.priors.keys()):
            # Its declaration, its prior and this definition, and no other use.
            if self.uses[raw] == 3 and self._same_type(name, raw):
                parts = self._affine(number, definition, raw)
                if parts is not None:
                    return ByHand(raw, name, parts, self.priors[raw], definition)
        return None

    def _affine(self, number: int, definition: _Definition, raw: str) -> Parts | None:
        """Location and scale where a definition is `location + scale * raw`."""
        name, loop = self.syntax.word(definition.name), definition.loop
        spec, text = self.scope[name], self.syntax.text
        local = {self.syntax.loop_variable(loop)} if loop else set[str]()
        found = self._terms(definition.value, raw, local)
        if found is None:
            return None
        location, scales = found
        scaling = set[str]().union(*map(self._names, scales))
        names = scaling.union(*map(self._names, location))
        if not names <= self.scope.keys() | local or names & {name, raw}:
            return None
        # What they stand for in the model must be what they were here.
        late = any(self._sets(statement) & names for statement in self.transformed[number:])
        if late or not self._depends_on_parameters(scaling):
            return None
        ranks = self._rank(location, local), self._rank(scales, local)
        if max(ranks) > (0 if loop else spec.rank):
            return None
        sizes = (*spec.array, *spec.dims)
        return Parts(
            text(sizes[0]) if sizes else None,
            None if loop is None else text(loop.heads[0]),
            "".join(local),
            " + ".join(map(text, location)) or "0",
            self._product(scales, local),
            ranks,
        )

    def _same_type(self, name: str, raw: str) -> bool:
        """Whether the transformed parameter has the type of the parameter, without bounds."""
        mine, other = self.scope[name], self.parameters[raw][2]
        return (
            not other.constraints
            and other.base in ("real", "vector")
            and mine.rank == other.rank <= 1
            and self.syntax.declared_type(mine) == self.syntax.declared_type(other)
        )

    def _terms(
        self, value: Range, raw: str, local: set[str]
    ) -> tuple[list[Range], list[Range]] | None:
        """Summands of the location, and factors of the scale, of `location + scale * raw`."""
        location: list[Range] = []
        scales: list[Range] | None = None
        for part in self.syntax.split(self.syntax.bare(value), "+"):
            if raw not in self._names(part):
                location.append(part)
                continue
            factors = self._factors(self.syntax.bare(part))
            mine = [factor for factor in factors if raw in self._names(factor)]
            if scales is not None or len(mine) != 1 or not self._is_raw(mine[0], raw, local):
                return None
            scales = [factor for factor in factors if factor is not mine[0]]
        if not scales or not all(map(self._is_positive, scales)):
            return None
        return location, scales

    def _factors(self, tokens: Range) -> list[Range]:
        """Factors of a product; one if there is anything but `*` and `.*` outside of brackets."""
        marks = [k for k in self.syntax.outermost(tokens) if self.syntax.tokens[k].kind == "mark"]
        if any(self.syntax.word(k) not in ("*", ".*", "(", "[", ")", "]") for k in marks):
            return [tokens]
        cuts = [k for k in marks if self.syntax.word(k) in ("*", ".*")]
        return [Range(a + 1, b) for a, b in pairwise([tokens.first - 1, *cuts, tokens.stop])]

    def _is_raw(self, tokens: Range, raw: str, local: set[str]) -> bool:
        words = self.syntax.words(tokens)
        return words == [raw] if not local else words == [raw, "[", *local, "]"]

    def _rank(self, parts: Sequence[Range], local: set[str]) -> int:
        """The largest rank among expressions; 2 where one is unknown or no column vector."""
        largest = 0
        for part in parts:
            rank = self._shape(part, local)
            known = rank == 0 or (rank == 1 and self._is_vector(part))
            largest = max(largest, 2 if rank is None or not known else rank)
        return largest

    def _product(self, factors: Sequence[Range], local: set[str]) -> str:
        """The factors of the scale; two vectors are multiplied element by element."""
        text, vectors = "", 0
        for factor in factors:
            rank = self._shape(factor, local) or 0
            mark = "" if not text else " .* " if vectors and rank else " * "
            text, vectors = f"{text}{mark}{self._factor(factor)}", vectors + rank
        return text

    # What is written

    def edits(self, one: ByHand) -> list[Edit]:
        """All changes that give one parameter its centred form."""
        span, definition, parts = self.syntax.span, one.definition, one.parts
        _, token, _ = self.parameters[one.raw]
        edits = [Edit(*span(Range(token, token + 1)), one.name)]
        for place in (definition.name, definition.left):
            if place is not None:
                edits.append(Edit(*span(Range(place, place + 1)), one.raw))
        index = "" if parts.head is None else f"[{parts.element}]"
        below = parts.scale if parts.scale.isidentifier() else f"({parts.scale})"
        above = f"{one.name}{index}"
        if parts.location != "0":
            simple = parts.location.isidentifier()
            away = parts.location if simple else f"({parts.location})"
            above = f"({above} - {away})"
        mark = "./" if parts.ranks[1] else "/"
        edits.append(Edit(*span(definition.value), f"{above} {mark} {below}"))
        prior = f"{one.name}{index} ~ normal({parts.location}, {parts.scale});"
        if parts.head is not None:
            prior = f"for ({parts.head}) {prior}"
        return [*edits, Edit(*span(one.prior.tokens), prior)]

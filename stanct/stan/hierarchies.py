"""Hierarchies in their two forms: parameters whose centre and scale are parameters themselves.

`theta ~ normal(mu, tau)` is *centred*. With theta = mu + tau raw and raw ~ std_normal it is
*non-centred*. The second form changes the coordinates and nothing else,

    N(theta | mu, tau) dtheta = N(raw | 0, 1) draw,

so that log Z, the draws of theta and all that follows from them stay as they are. NUTS moves
through the first form where the data say much of every theta, and through the second where they say
little: there the first one is a funnel. Walks are hierarchies too; see `stanct.stan.walks`. The
prior may also be written as `target += normal_lpdf(theta | mu, tau)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from stanct.stan.nodes import Compound, Range, Statement, Tilde, TypeSpec
from stanct.stan.program import Program
from stanct.stan.reader import Parts, Reader
from stanct.stan.rewrite import Edit, edited
from stanct.stan.walks import Walk, find_walk

# Families of location and scale, which are the last two arguments, and what a standard one is.
_STANDARD = {
    "normal": "std_normal()",
    "student_t": "student_t({}, 0, 1)",
    "cauchy": "cauchy(0, 1)",
    "double_exponential": "double_exponential(0, 1)",
    "logistic": "logistic(0, 1)",
}
_CHOLESKY = "multi_normal_cholesky"
# What may end a turn of a loop before all its statements were run.
_LEAVES = ("break", "continue", "return")


@dataclass(frozen=True)
class Hierarchy:
    """A parameter with a prior whose scale is a parameter.

    `statement` gives it its prior, at the top of the model or in this `loop` there. `walk` says how
    elements follow from those before them, and `parts` are None where they have a covariance
    matrix.
    """

    name: str
    statement: Tilde = field(repr=False)
    loop: Compound | None = field(repr=False)
    line: int
    walk: Walk | None = field(default=None, repr=False)
    parts: Parts | None = field(default=None, repr=False)

    @property
    def distribution(self) -> str:
        """Name of the prior's family."""
        return self.statement.distribution


def hierarchies(program: Program) -> tuple[Hierarchy, ...]:
    """Every parameter that can be given the other form, in the order of their priors."""
    finder = _Finder(program)
    return tuple(finder.found.values())


def non_centred(program: Program, names: Sequence[str] | None = None) -> Program:
    """The program with hierarchies in their non-centred form, by default all that there are.

    A parameter `theta` becomes a transformed parameter of the same name, and `theta_raw` takes its
    place among the parameters.
    """
    # One after another: where one hierarchy stands on another, each finds the other's definition.
    while True:
        finder = _Finder(program)
        chosen = [h for h in finder.found.values() if names is None or h.name in names]
        if not chosen:
            return program
        program = edited(program, finder.edits(chosen[0]))


class _Finder(Reader):
    """Finds the hierarchies of a program and writes their other form."""

    def __init__(self, program: Program) -> None:
        super().__init__(program)
        self.found: dict[str, Hierarchy] = {}
        for statement in program.syntax.statements("model"):
            for tilde, loop in self._priors(statement):
                name = self.syntax.word(tilde.variate.first)
                if name not in self.found and self._may_fit(name, tilde):
                    self._add(name, tilde, loop)

    # What can be changed

    def _priors(self, statement: Statement) -> Iterator[tuple[Tilde, Compound | None]]:
        """A prior at the top of the model, or those that every turn of a loop there comes to."""
        if (prior := self._prior(statement)) is not None:
            yield prior, None
        if not (isinstance(statement, Compound) and statement.word == "for"):
            return
        if not set(_LEAVES).isdisjoint(self.syntax.words(statement.tokens)):
            return
        for inner in self._body(statement):
            if (prior := self._prior(inner)) is not None:
                yield prior, statement

    def _add(self, name: str, prior: Tilde, loop: Compound | None) -> None:
        """Enter a hierarchy or a walk, if the prior is one."""
        found = None
        if not self._fits(name, prior, loop):
            found = self._walk(name, prior, loop)
            if found is None:
                return
        place = self.syntax.source.place(self.syntax.start(prior.tokens.first))
        parts = self._parts(name, prior, loop, found)
        self.found[name] = Hierarchy(name, prior, loop, place.line, found, parts)

    def _parts(
        self, name: str, prior: Tilde, loop: Compound | None, walk: Walk | None
    ) -> Parts | None:
        """Location and scale of every element."""
        if prior.distribution == _CHOLESKY:
            return None
        spec, text = self.parameters[name][2], self.syntax.text
        sizes = (*spec.array, *spec.dims)
        size = text(sizes[0]) if sizes else None
        location, scale = map(text, prior.arguments[-2:])
        if walk is not None:
            return Parts(size, walk.head, walk.element, walk.location, scale, (0, 0))
        if loop is not None:
            head = loop.heads[0]
            return Parts(size, text(head), self.syntax.loop_variable(loop), location, scale, (0, 0))
        first, second = (self._shape(part, set()) or 0 for part in prior.arguments[-2:])
        return Parts(size, None, "", location, scale, (first, second))

    def _may_fit(self, name: str, prior: Tilde) -> bool:
        """Whether the parameter's type, the prior's family and all bounds allow the other form."""
        if name not in self.parameters or prior.truncated or self.reads_target:
            return False
        declaration, _, spec = self.parameters[name]
        if spec.base not in ("real", "vector") or spec.rank > 1:
            return False
        if not set(spec.constraints) <= {"offset", "multiplier"}:
            return False
        if spec.constraints and len(declaration.names) > 1:
            return False
        known = prior.distribution in (*_STANDARD, _CHOLESKY) and not self._is_users_own(prior)
        return known and not self._bounds_others(name)

    def _is_users_own(self, prior: Tilde) -> bool:
        """Whether the prior calls the user's own overload of one of Stan's densities."""
        return any(
            self.syntax.word(one.name) == f"{prior.distribution}_lpdf"
            and len(one.arguments) == 1 + len(prior.arguments)
            for one in self.syntax.functions
        )

    def _fits(self, name: str, prior: Tilde, loop: Compound | None) -> bool:
        """Whether the prior is one of all elements, each by itself."""
        spec, words = self.parameters[name][2], self.syntax.words(prior.variate)
        if loop is None:
            if words != [name]:
                return False
        elif not self._is_whole_loop(name, spec, words, loop) or prior.distribution == _CHOLESKY:
            return False
        if prior.distribution == _CHOLESKY and (spec.base != "vector" or spec.rank != 1):
            return False
        return self._arguments_fit(name, prior, loop)

    def _walk(self, name: str, prior: Tilde, loop: Compound | None) -> Walk | None:
        """The walk of the prior, if it is one."""
        if prior.distribution == _CHOLESKY:
            return None
        location, scale = prior.arguments[-2:]
        local = {self.syntax.loop_variable(loop)} if loop else set[str]()
        names = {name, *self._names(location), *self._names(scale)}
        if not names <= self.scope.keys() | local or self._assigned_late(names - {name}, name):
            return None
        if not (self._depends_on_parameters(self._names(scale)) and self._is_positive(scale)):
            return None
        if self._shape(scale, local) != 0 or (loop and self._shape(location, local) != 0):
            return None
        return find_walk(
            self.syntax, self.parameters[name][2], prior, loop,
            is_scalar=lambda word: word in self.scope and self.scope[word].rank == 0,
            free_index=self._free_index,
        )  # fmt: skip

    def _arguments_fit(self, name: str, prior: Tilde, loop: Compound | None) -> bool:
        """Whether centre and scale are known before the model, and a parameter sets the scale."""
        location, scale = prior.arguments[-2:]
        local = {self.syntax.loop_variable(loop)} if loop else set()
        known = self.scope.keys() | local
        for argument in (location, scale):
            names = self._names(argument)
            if name in names or not names <= known:
                return False
            if self._assigned_late(names, name):
                return False
        if not self._depends_on_parameters(self._names(scale)):
            return False
        if prior.distribution == _CHOLESKY:
            return self._is_vector(location) and self._is_cholesky_factor(scale)
        return self._is_positive(scale) and all(
            self._goes_with(name, argument, local, loop) for argument in (location, scale)
        )

    def _goes_with(
        self, name: str, argument: Range, local: set[str], loop: Compound | None
    ) -> bool:
        """Whether centre or scale has a shape that the definition can add or multiply."""
        spec = self.parameters[name][2]
        rank = self._shape(argument, local)
        if rank == 0:
            return True
        if rank != 1 or loop is not None or spec.rank == 0:
            return False
        return bool(spec.array) or self._is_vector(argument)

    # What is written

    def edits(self, hierarchy: Hierarchy) -> list[Edit]:
        """All changes that give one parameter its other form."""
        raw = self._free_name(hierarchy.name)
        return [
            *self._declaration(hierarchy.name, raw),
            self._definition(hierarchy, raw),
            self._standard(hierarchy, raw),
        ]

    def _free_name(self, name: str) -> str:
        words = {token.text for token in self.syntax.tokens}
        raw, number = f"{name}_raw", 1
        while raw in words:
            number += 1
            raw = f"{name}_raw{number}"
        return raw

    def _declaration(self, name: str, raw: str) -> list[Edit]:
        _, token, spec = self.parameters[name]
        tokens = self.syntax.tokens
        edits = [Edit(tokens[token].start, tokens[token].end, raw)]
        if spec.constraints:
            base = spec.base_range.first
            closing = max(bound.stop for bound in spec.constraints.values())
            edits.append(Edit(tokens[base].end, tokens[closing].end, ""))
        return edits

    def _definition(self, hierarchy: Hierarchy, raw: str) -> Edit:
        """The transformed parameter that takes the parameter's name."""
        name = hierarchy.name
        _, _, spec = self.parameters[name]
        lines = self._lines(hierarchy, raw, spec)
        at = self._insertion(name)
        if at < len(self.transformed):
            start = self.syntax.start(self.transformed[at].tokens.first)
            return Edit(start, start, "".join(f"{line}\n  " for line in lines))
        text = "".join(f"  {line}\n" for line in lines)
        block = self.program.blocks.get("transformed parameters")
        if block is not None:
            start = self.syntax.start(block.closing)
            return Edit(start, start, text)
        start = self.syntax.start(self.program.blocks["model"].keyword)
        return Edit(start, start, f"transformed parameters {{\n{text}}}\n")

    def _lines(self, hierarchy: Hierarchy, raw: str, spec: TypeSpec) -> list[str]:
        prior, loop, name = hierarchy.statement, hierarchy.loop, hierarchy.name
        location, scale = (self._factor(part) for part in prior.arguments[-2:])
        declared = self.syntax.declared_type(spec)
        if prior.distribution == _CHOLESKY:
            return [f"{declared} {name} = {location} + {scale} * {raw};"]
        initial, head, j = "", "", ""
        ranks = [self._shape(part, set()) for part in prior.arguments[-2:]]
        if hierarchy.walk is not None:
            initial, location = f" = {raw}", hierarchy.walk.location
            head, j = hierarchy.walk.head, hierarchy.walk.element
        elif loop is not None:
            head, j = self.syntax.text(loop.heads[0]), self.syntax.loop_variable(loop)
        elif spec.array:
            j = self._free_index()
            head = f"{j} in 1:{self.syntax.text(spec.array[0])}"
            location, scale = (
                f"{text}[{j}]" if rank else text
                for text, rank in zip((location, scale), ranks, strict=True)
            )
        if head:
            line = f"for ({head}) {name}[{j}] = {location} + {scale} * {raw}[{j}];"
            return [f"{declared} {name}{initial};", line]
        times = ".*" if ranks[1] else "*"
        return [f"{declared} {name} = {location} + {scale} {times} {raw};"]

    def _standard(self, hierarchy: Hierarchy, raw: str) -> Edit:
        """The prior of the standardised parameter."""
        prior = hierarchy.statement
        more = ", ".join(self.syntax.text(part) for part in prior.arguments[:-2])
        standard = _STANDARD.get(prior.distribution, "std_normal()").format(more)
        variate = self.syntax.text(prior.variate).replace(hierarchy.name, raw, 1)
        return Edit(*self.syntax.span(prior.tokens), f"{variate} ~ {standard};")

"""A program that computes the log prior and the log likelihood of each observation at draws.

The generated quantities repeat the model block. Each prior term goes into one sum, and each
likelihood term to the observation that is its variate.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from stanct.common.errors import ProgramError
from stanct.stan.dependence import Dependence
from stanct.stan.distributions import SUFFIX
from stanct.stan.nodes import Increment, Range, Statement, Tilde
from stanct.stan.program import Program
from stanct.stan.render import block_text, library
from stanct.stan.rewrite import Edit, Rewriter
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.syntax import walk_within

_DENSITY = re.compile(r"(?P<name>\w+)_lp[dm]f$")
# The variate of these is one observation although it is a container, or rows are not apart.
_WHOLE = re.compile(
    r"(multi_|wishart|inv_wishart|lkj_|laplace_|gaussian_dlm)|"
    r"(dirichlet|multinomial|multinomial_logit|dirichlet_multinomial)$|\w+_glm$"
)
_BLOCKS = ("functions", "data", "transformed data", "parameters", "transformed parameters")


@dataclass(frozen=True)
class Pointwise:
    """The program, with the user's data and parameters, and what it computes.

    `log_prior` is a generated quantity, and `log_likelihood` the vectors of log likelihoods by the
    observed variable: empty if some term is not a sum over observations that can be told apart.
    """

    code: str
    log_prior: str
    log_likelihood: dict[str, str]


@dataclass(frozen=True)
class _Place:
    """A statement of the model with what it sees, and the conditions under which it runs."""

    statement: Statement
    scope: Scope
    looped: bool
    conditions: tuple[Range, ...]


def pointwise(program: Program, prefix: str) -> Pointwise:
    """Write the program of one without `~` in its model block, such as the density program.

    Raises `ProgramError` where prior and likelihood cannot be told apart, or the model uses
    `target()`.
    """
    return _Writer(program, prefix).written()


class _Writer:
    def __init__(self, program: Program, prefix: str) -> None:
        self.program, self.prefix, self.syntax = program, prefix, program.syntax
        self.dependence = Dependence(program)
        self.rewriter = Rewriter(program, prefix, Shapes(program.syntax))
        self.globals = self.rewriter.shapes.globals()
        self.data = program.fixed_names
        self.observed: dict[str, str] = {}
        self.complete = self.dependence.likelihood_call is None

    def written(self) -> Pointwise:
        everywhere = Range(0, len(self.syntax.tokens))
        for token in self.syntax.calls(everywhere, lambda name: name == "target"):
            raise self._refusal(token, "the model reads its own target")
        self.rewriter.normalise_names()
        places = list(self._places())
        for place in places:
            if isinstance(place.statement, Tilde):
                raise self._refusal(place.statement.tokens.first, "`~` is left in the model")
            if isinstance(place.statement, Increment):
                self._increment(place)
        for place in places:
            self._refuse_truncated(place)
        names = {name: f"{self.prefix}log_lik_{name}" for name in self.observed}
        return Pointwise(
            self._text(names), f"{self.prefix}log_prior", names if self.complete else {}
        )

    def _places(self) -> Iterator[_Place]:
        model = self.syntax.statements("model")
        seen = self.rewriter.shapes.walk(model, self.globals)
        for (statement, scope), (_, inside) in zip(seen, walk_within(model), strict=True):
            conditions = [h for one in inside if one.word in ("if", "while") for h in one.heads]
            looped = any(one.word == "for" for one in inside)
            yield _Place(statement, scope, looped, tuple(conditions))

    def _increment(self, place: _Place) -> None:
        statement = place.statement
        assert isinstance(statement, Increment)
        parts = {term.part for term in self.dependence.terms(statement)}
        if len(parts) > 1:
            raise self._refusal(statement.tokens.first, "one sum has prior and likelihood")
        if parts == {"prior"}:
            self.rewriter.redirect(statement, place.scope, f"{self.prefix}log_prior")
            return
        found = self._observation(statement, place)
        if found is None:
            # The term is kept in the text, so that its locals stay in use, but not counted.
            self.complete = False
            self.rewriter.redirect(statement, place.scope, f"{self.prefix}log_rest")
            return
        name, index = found
        self.observed[name] = f"{self.prefix}log_lik_{name}"
        if index is None:
            self._loop(statement, place, name)
        else:
            self.rewriter.redirect(statement, place.scope, f"{self.observed[name]}[{index}]")

    def _observation(self, statement: Increment, place: _Place) -> tuple[str, str | None] | None:
        """The observed variable and its index, None for all of them; None if that is unclear."""
        calls = list(self._densities(statement.value))
        variates = {self.syntax.text(variate) for _, variate, _ in calls}
        if len(variates) != 1:
            return None
        function, variate, call = calls[0]
        name = self.syntax.word(variate.first)
        if name not in self.data:
            return None
        spec, whole = self.globals[name], _WHOLE.match(function) is not None
        if variate.is_one:
            alone = call == statement.value and not place.looped and not place.conditions
            if spec.rank == 0 and not whole:
                return name, "1"
            plain = spec.rank == 1 and function in SUFFIX and not whole
            return (name, None) if alone and plain else None
        index = self._single_index(variate)
        rank = len(spec.array) if whole else spec.rank
        return (name, index) if index is not None and rank == 1 else None

    def _single_index(self, variate: Range) -> str | None:
        """The index in `y[index]`, if it is one scalar."""
        index = self.syntax.index(variate)
        text = "" if index is None else self.syntax.text(index)
        return text if re.fullmatch(r"\w+", text) else None

    def _densities(self, value: Range) -> Iterator[tuple[str, Range, Range]]:
        """Each call of a density: its distribution, its variate, and the whole call."""
        for token in self.syntax.calls(value, lambda name: _DENSITY.match(name) is not None):
            inside = self.syntax.inside(token + 1)
            variate, _ = self.syntax.conditioned(inside)
            name = _DENSITY.sub(r"\g<name>", self.syntax.word(token))
            yield name, variate, Range(token, inside.stop + 1)

    def _loop(self, statement: Increment, place: _Place, name: str) -> None:
        """Write one call for all elements of a vector as a loop over them."""
        n = f"{self.prefix}n"
        first = statement.value.first
        _, arguments = self.syntax.conditioned(self.syntax.inside(first + 1))
        lines, elements = [], []
        for number, argument in enumerate(arguments, 1):
            text = self.rewriter.expression(argument)
            shape = self.rewriter.shapes.shape(argument, place.scope)
            if shape is None or shape.rank > 1:
                self.complete = False
                return
            if shape.rank == 1 and not argument.is_one and not shape.integer:
                own = f"{self.prefix}argument_{number}"
                lines.append(f"vector[size({name})] {own} = to_vector({text});")
                text = own
            bare = text if re.fullmatch(r"\w+", text) else f"({text})"
            elements.append(f"{bare}[{n}]" if shape.rank else text)
        function = self.syntax.word(first)
        given = f" | {', '.join(elements)}" if elements else ""
        lines.append(f"for ({n} in 1:size({name})) {{")
        lines.append(f"  {self.observed[name]}[{n}] += {function}({name}[{n}]{given});")
        lines.append("}")
        body = "".join(f"\n  {line}" for line in lines)
        self.rewriter.edits.append(Edit(*self.syntax.span(statement.tokens), f"{{{body}\n}}"))

    def _refuse_truncated(self, place: _Place) -> None:
        """Refuse prior terms that stand under a condition on an observation.

        Where a likelihood is truncated, the density program writes its normaliser so, and by its
        form that is no likelihood.
        """
        if not isinstance(place.statement, Increment):
            return
        if any(term.part == "likelihood" for term in self.dependence.terms(place.statement)):
            return
        names = {word for head in place.conditions for word in self.syntax.words(head)}
        if names & set(self.observed):
            raise self._refusal(place.statement.tokens.first, "a likelihood is truncated")

    def _refusal(self, token: int, reason: str) -> ProgramError:
        return self.syntax.refusal(
            token,
            reason,
            f"Prior and likelihood cannot be told apart here: {reason}.",
            "Write `log_lik` in the generated quantities.",
        )

    def _text(self, names: dict[str, str]) -> str:
        model = block_text(self.rewriter, "model", 4)
        blocks = []
        for name in _BLOCKS:
            text = block_text(self.rewriter, name)
            if name == "functions":
                text = "\n".join(
                    t for t in (library(self.rewriter.functions, self.prefix), text) if t
                )
            if text:
                blocks.append(f"{name} {{\n{text}\n}}")
        vectors = []
        for name, own in names.items():
            size = f"size({name})" if self.globals[name].rank else "1"
            vectors.append(f"  vector[{size}] {own} = zeros_vector({size});")
        rest = [] if self.complete else [f"  real {self.prefix}log_rest = 0;"]
        quantities = [f"  real {self.prefix}log_prior = 0;", *vectors, *rest]
        inside = "\n".join([*quantities, "  {", model, "  }"])
        return "\n".join([*blocks, "model {", "}", f"generated quantities {{\n{inside}\n}}", ""])

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
from stanct.stan.rows import coefficients_of
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.syntax import walk_within

_DENSITY = re.compile(r"(?P<name>\w+)_lp[dm]f$")
# Probabilities of what is known of a censored observation.
_CENSORED = re.compile(r"(?P<name>\w+)_lc?cdf$")
# The variate of these is one observation although it is a container.
_WHOLE = re.compile(
    r"(multi_|wishart|inv_wishart|lkj_|laplace_|gaussian_dlm)|"
    r"(dirichlet|multinomial|multinomial_logit|dirichlet_multinomial)$"
)
_BLOCKS = ("functions", "data", "transformed data", "parameters", "transformed parameters")


@dataclass(frozen=True)
class Pointwise:
    """The program, with the user's data and parameters, and what it computes.

    `log_prior` is a generated quantity, and `log_likelihood` the vectors of log likelihoods by the
    observed variable: empty if some term is not a sum over observations that can be told apart.
    `whole` has such terms, as they are written, each with the reason.
    """

    code: str
    log_prior: str
    log_likelihood: dict[str, str]
    whole: dict[str, str]


class _WholeError(Exception):
    """Why a term is not a sum over observations that can be told apart."""


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
        self.whole: dict[str, str] = {}
        if (call := self.dependence.likelihood_call) is not None:
            self.whole[self.syntax.word(call)] = "it adds to the target itself"

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
            self._text(names), f"{self.prefix}log_prior", {} if self.whole else names, self.whole
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
        try:
            self._observations(statement, place)
        except _WholeError as reason:
            # The term is kept in the text, so that its locals stay in use, but not counted.
            self.whole[self.syntax.text(statement.value)] = str(reason)
            self.rewriter.redirect(statement, place.scope, f"{self.prefix}log_rest")

    def _observations(self, statement: Increment, place: _Place) -> None:
        """Give a term to the observation that is its variate, or each element to its own."""
        calls = list(self._calls(statement.value, _DENSITY))
        calls = calls or list(self._calls(statement.value, _CENSORED))
        variates = {self.syntax.text(variate) for _, variate, _ in calls}
        if len(variates) != 1:
            raise _WholeError("it has several variates" if calls else "it is no known density")
        function, variate, call = calls[0]
        name = self.syntax.word(variate.first)
        if name not in self.data:
            raise _WholeError(f"`{variates.pop()}` is not a variable of the data")
        spec, whole = self.globals[name], _WHOLE.match(function) is not None
        own = f"{self.prefix}log_lik_{name}"
        if variate.is_one and (spec.rank or whole):
            if call != statement.value or place.looped:
                raise _WholeError(f"`{name}` as a whole stands in a sum or in a loop")
            if spec.rank != 1 or function not in SUFFIX or whole:
                raise _WholeError(f"`{function}` of a whole `{name}` has no row for each value")
            code = self._loop(statement, place, name, function, own)
            self.rewriter.edits.append(Edit(*self.syntax.span(statement.tokens), code))
        else:
            index = "1" if variate.is_one else self._single_index(variate)
            rank = len(spec.array) if whole else spec.rank
            if index is None or rank > 1:
                raise _WholeError(f"`{variates.pop()}` is not one observation")
            self.rewriter.redirect(statement, place.scope, f"{own}[{index}]")
        self.observed[name] = own

    def _single_index(self, variate: Range) -> str | None:
        """The index in `y[index]`, if it is one scalar."""
        index = self.syntax.index(variate)
        text = "" if index is None else self.syntax.text(index)
        return text if re.fullmatch(r"\w+", text) else None

    def _calls(self, value: Range, kind: re.Pattern[str]) -> Iterator[tuple[str, Range, Range]]:
        """Each call of a density: its distribution, its variate, and the whole call."""
        for token in self.syntax.calls(value, lambda name: kind.match(name) is not None):
            inside = self.syntax.inside(token + 1)
            variate, _ = self.syntax.conditioned(inside)
            yield (
                kind.sub(r"\g<name>", self.syntax.word(token)),
                variate,
                Range(token, inside.stop + 1),
            )

    def _loop(self, statement: Increment, place: _Place, name: str, family: str, own: str) -> str:
        """One call for all elements of a vector as a loop over them.

        A generalised linear model is called with one row, as `y[n:n]`.
        """
        n, first, shared = f"{self.prefix}n", statement.value.first, coefficients_of(family)
        function, index = self.syntax.word(first), f"{n}:{n}" if shared else n
        _, arguments = self.syntax.conditioned(self.syntax.inside(first + 1))
        lines, elements = [], []
        for number, argument in enumerate(arguments):
            text = self.rewriter.expression(argument)
            if number in shared:
                elements.append(text)
                continue
            shape = self.rewriter.shapes.shape(argument, place.scope)
            if shape is None or shape.rank > 1 + bool(shared):
                raise _WholeError(f"it is not known which part of `{text}` belongs to which value")
            if shape.rank == 1 and not argument.is_one and not shape.integer:
                named = f"{self.prefix}argument_{number + 1}"
                lines.append(f"vector[size({name})] {named} = to_vector({text});")
                text = named
            bare = text if re.fullmatch(r"\w+", text) else f"({text})"
            elements.append(f"{bare}[{index}]" if shape.rank else text)
        given = f" | {', '.join(elements)}" if elements else ""
        lines.append(f"for ({n} in 1:size({name})) {{")
        lines.append(f"  {own}[{n}] += {function}({name}[{index}]{given});")
        lines.append("}")
        body = "".join(f"\n  {line}" for line in lines)
        return f"{{{body}\n}}"

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
        rest = [f"  real {self.prefix}log_rest = 0;"] if self.whole else []
        quantities = [f"  real {self.prefix}log_prior = 0;", *vectors, *rest]
        inside = "\n".join([*quantities, "  {", model, "  }"])
        return "\n".join([*blocks, "model {", "}", f"generated quantities {{\n{inside}\n}}", ""])

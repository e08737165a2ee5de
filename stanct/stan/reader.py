"""What the two forms of a hierarchy ask of a program: shapes, signs, and what is set when."""

from __future__ import annotations

import re
from typing import NamedTuple

from stanct.stan.nodes import Compound, Declare, Increment, Range, Statement, Tilde, TypeSpec
from stanct.stan.program import Program
from stanct.stan.shapes import Shapes
from stanct.stan.syntax import walk

_DENSITY = re.compile(r"(\w+)_lu?pdf")


class Parts(NamedTuple):
    """Location and scale of a hierarchy's elements, as expressions with their ranks.

    `size` is the number of elements, None for a scalar. `head` is what stands in the parentheses of
    the `for` over the elements, and `element` the index there. Without a loop `head` is None, and
    location and scale are those of all elements.
    """

    size: str | None
    head: str | None
    element: str
    location: str
    scale: str
    ranks: tuple[int, int]

    def lines(self, location: str, scale: str, index: str) -> list[str]:
        """Statements that declare two arrays of these names, and put every element into them.

        `index` is a name that the program does not use. Elements that follow no rule of the
        hierarchy, such as the first one of a walk, get 0 and 1.
        """
        size = self.size or "1"
        declared = [
            f"array[{size}] real {location} = rep_array(0.0, {size});",
            f"array[{size}] real {scale} = rep_array(1.0, {size});",
        ]
        if self.head is not None:
            at, head, texts = self.element, self.head, (self.location, self.scale)
        else:
            at, head = index, f"{index} in 1:{size}"
            texts = tuple(
                f"({text})[{at}]" if rank else text
                for text, rank in zip((self.location, self.scale), self.ranks, strict=True)
            )
        body = f"{location}[{at}] = {texts[0]}; {scale}[{at}] = {texts[1]};"
        return [*declared, f"for ({head}) {{ {body} }}"]


class Reader:
    """Reads expressions of a program for the rewriting of its hierarchies."""

    def __init__(self, program: Program) -> None:
        self.program, self.syntax = program, program.syntax
        self.shapes = Shapes(program.syntax)
        self.scope = self.shapes.globals()
        self.parameters = {
            self.syntax.word(token): (statement, token, spec)
            for statement, token, spec in program.parameter_declarations()
        }
        self.transformed = list(self.syntax.statements("transformed parameters"))
        # A program that reads its own log density has another one in other coordinates.
        everywhere = Range(0, len(self.syntax.tokens))
        self.reads_target = bool(self.syntax.calls(everywhere, lambda name: name == "target"))

    def _prior(self, statement: Statement) -> Tilde | None:
        """A `~`, or `target += normal_lpdf(theta | mu, tau);` as one; None for others."""
        if isinstance(statement, Tilde):
            return statement
        if not isinstance(statement, Increment) or statement.accumulator != "target":
            return None
        call, inside = statement.value.first, self.syntax.call(statement.value)
        family = _DENSITY.fullmatch(self.syntax.word(call))
        if family is None or inside is None:
            return None
        variate, arguments = self.syntax.conditioned(inside)
        return Tilde(statement.tokens, variate, call, family[1], arguments, False, None, None)

    # Signs and shapes

    def _is_positive(self, tokens: Range) -> bool:
        """Whether an expression cannot be negative: a product of factors that cannot.

        With a negative scale the program as written has no density, and the other form has one.
        """
        syntax = self.syntax
        outer = list(syntax.outermost(tokens))
        if any(syntax.word(k) in ("?", "-", "%", "^", ".^", "\\", "'") for k in outer):
            return False
        for separator in ("+", "*", ".*", "/", "./"):
            parts = syntax.split(tokens, separator)
            if len(parts) > 1:
                return all(self._is_positive(part) for part in parts)
        first = syntax.word(tokens.first)
        if syntax.tokens[tokens.first].kind == "number" and tokens.is_one:
            return float(first) > 0
        if (bare := syntax.bare(tokens)) != tokens:
            return self._is_positive(bare)
        if (inside := syntax.call(tokens)) is not None:
            if first in ("exp", "inv_logit", "log1p_exp"):
                return True
            return first in ("sqrt", "inv_sqrt", "inv", "inv_square", "square", "rep_vector") and (
                first == "square" or self._is_positive(next(iter(syntax.split(inside)), inside))
            )
        alone = tokens.is_one or syntax.index(tokens) is not None
        return alone and self._is_positive_variable(first)

    def _is_positive_variable(self, name: str) -> bool:
        """Whether a variable is declared with a lower bound that is a number from 0."""
        spec = self.scope.get(name)
        bound = None if spec is None else spec.constraints.get("lower")
        if bound is not None:
            words = self.syntax.words(bound)
            return len(words) == 1 and words[0][0].isdigit()
        # A transformed parameter that is set once, where it is declared.
        if sum(name in self._sets(statement) for statement in self.transformed) != 1:
            return False
        values = [
            value
            for statement in self.transformed
            if isinstance(statement, Declare)
            for other, value in self.syntax.assigned(statement)
            if other == name
        ]
        return any(map(self._is_positive, values))

    def _is_cholesky_factor(self, tokens: Range) -> bool:
        """Whether an expression is a Cholesky factor for certain."""
        words = self.syntax.words(tokens)
        if len(words) == 1:
            spec = self.scope.get(words[0])
            return spec is not None and not spec.array and spec.base.startswith("cholesky_factor")
        inside = self.syntax.call(tokens)
        if words[0] != "diag_pre_multiply" or inside is None:
            return False
        parts = self.syntax.split(inside)
        return (
            len(parts) == 2 and self._is_positive(parts[0]) and self._is_cholesky_factor(parts[1])
        )

    def _is_vector(self, tokens: Range) -> bool:
        """Whether an expression is a column vector for certain: sums and products of such ones."""
        if self.syntax.words(tokens)[:2] == ["rep_vector", "("]:
            return self.syntax.call(tokens) is not None
        containers = [
            spec for word in self.syntax.names(tokens) if (spec := self.scope.get(word)) is not None
        ]
        ranked = [spec for spec in containers if spec.rank]
        return (
            {"[", "'", "?"}.isdisjoint(self.syntax.words(tokens))
            and bool(ranked)
            and all(spec.base == "vector" and not spec.array for spec in ranked)
        )

    def _shape(self, tokens: Range, local: set[str]) -> int | None:
        """Rank of an expression at the model's top, or in a loop over `local`; None if unknown."""
        scope = dict(self.scope)
        for name in local:
            scope[name] = TypeSpec("int", (), {}, (), (), tokens)
        found = self.shapes.shape(tokens, scope)
        return None if found is None else found.rank

    # Loops

    def _body(self, loop: Compound) -> list[Statement]:
        """The statements of a loop, without the braces around them."""
        body = list(loop.body)
        while len(body) == 1 and isinstance(body[0], Compound) and body[0].word == "block":
            body = list(body[0].body)
        return body

    def _is_whole_loop(self, name: str, spec: TypeSpec, words: list[str], loop: Compound) -> bool:
        """Whether `for (j in 1:J) name[j] ~ …` runs over every element."""
        if spec.rank != 1:
            return False
        variable, ends = self.syntax.loop_variable(loop), self.syntax.loop_ends(loop)
        (size,) = spec.array or spec.dims
        return (
            words == [name, "[", variable, "]"]
            and len(ends) == 2
            and self.syntax.words(ends[0]) == ["1"]
            and self.syntax.words(ends[1]) == self.syntax.words(size)
        )

    # Which statements set and need a variable

    def _assigned_late(self, names: set[str], name: str) -> bool:
        """Whether a transformed parameter among the names is set after the first use of `name`."""
        at = self._insertion(name)
        return any(self._sets(statement) & names for statement in self.transformed[at:])

    def _insertion(self, name: str) -> int:
        """Number of the first statement of the transformed parameters that uses the parameter."""
        for number, statement in enumerate(self.transformed):
            if name in self._names(statement.tokens):
                return number
        return len(self.transformed)

    def _sets(self, statement: Statement) -> set[str]:
        """Variables that a statement declares or assigns."""
        found: set[str] = set()
        for inner in walk([statement]):
            if not isinstance(inner, Compound):
                found |= self.syntax.declared(inner)
            found |= {name for name, _ in self.syntax.assigned(inner)}
        return found

    def _depends_on_parameters(self, names: set[str]) -> bool:
        reached, seen = set(names), set[str]()
        while reached - seen:
            seen |= reached
            for statement in self.transformed:
                if self._sets(statement) & seen:
                    reached |= self._names(statement.tokens)
        return bool(reached & self.parameters.keys())

    def _bounds_others(self, name: str) -> bool:
        """Whether the declaration of another parameter needs this one."""
        return any(
            name in self._names(bound)
            for other, (_, _, spec) in self.parameters.items()
            if other != name
            for bound in spec.constraints.values()
        )

    # Texts

    def _names(self, tokens: Range) -> set[str]:
        """Names of variables in a range; names of functions that are called do not count."""
        return {
            self.syntax.word(token)
            for token in range(*tokens)
            if self.syntax.tokens[token].kind == "name" and self.syntax.word(token + 1) != "("
        }

    def _factor(self, tokens: Range) -> str:
        """An expression that can stand in a product."""
        text = self.syntax.text(tokens)
        alone = not any(
            self.syntax.tokens[token].kind == "mark" and self.syntax.word(token) not in "()[]{}"
            for token in self.syntax.outermost(tokens)
        )
        return text if alone else f"({text})"

    def _free_index(self) -> str:
        words = {token.text for token in self.syntax.tokens}
        return next(index for index in ("i", "j", "k", "n", "index_of_raw") if index not in words)

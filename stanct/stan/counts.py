"""Mass functions of count data whose constants are computed once, not with every gradient.

The log factorials of data cost more than the rest of a Poisson or a binomial regression. `~` drops
them, but the generated programs need them. Where the counts are whole arrays of the data, the
transformed data block sums the log factorials, and library functions of stanct take this sum as
their last argument. A sum heeds the branch in which the counts are used: counts that no branch
looks at may be impossible.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest

from stanct.stan.nodes import Compound, Range, Statement
from stanct.stan.shapes import ELEMENTWISE, Scope, Shapes
from stanct.stan.syntax import Syntax

_FACTORIALS = ("log_factorials_{0}", "sum(lgamma(to_vector({0}) + 1))")
_CHOICES = ("log_choices_{1}_{0}", "sum(lchoose({1}, {0}))")
_FUNCTIONS = {
    "poisson_lpmf": (1, _FACTORIALS),
    "poisson_log_lpmf": (1, _FACTORIALS),
    "binomial_lpmf": (2, _CHOICES),
    "binomial_logit_lpmf": (2, _CHOICES),
}
# Functions that stand in the model block only.
_MODEL_ONLY = ("_lp", "_lupdf", "_lupmf", "target")
_COLUMNS = frozenset(
    {"real", "int", "vector", "simplex", "ordered", "positive_ordered", "sum_to_zero_vector"}
)


@dataclass
class Counts:
    """The sums of constants that a generated program needs, from names to Stan expressions."""

    syntax: Syntax
    shapes: Shapes
    prefix: str
    sums: dict[str, str] = field(default_factory=dict[str, str])

    def __post_init__(self) -> None:
        globals_ = self.shapes.globals()
        # An integer at the top level is data.
        self._arrays = {
            name for name, spec in globals_.items() if spec.base == "int" and len(spec.array) == 1
        }
        syntax = self.syntax
        self._elementwise = ELEMENTWISE - {syntax.word(one.name) for one in syntax.functions}
        blocks = map(syntax.declarations, ("data", "transformed data"))
        self._data = {syntax.word(name) for _, name in chain(*blocks)}
        # The condition under which each statement runs, or None if data alone do not decide it.
        self._conditions: dict[int, tuple[str, ...] | None] = {}
        self._note(syntax.statements("model"), ())

    def _note(self, statements: Sequence[Statement], given: tuple[str, ...] | None) -> None:
        for statement in statements:
            self._conditions[id(statement)] = given
            if not isinstance(statement, Compound):
                continue
            if statement.word in ("for", "while"):
                self._note(statement.body, None)
            elif statement.word != "if":
                self._note(statement.body, given)
            else:
                before = given
                for head, body in zip_longest(statement.heads, statement.body):
                    decided = self._decided(head) if head else ""
                    if before is None or decided is None:
                        before = None
                        self._note([body], None)
                    else:
                        self._note([body], (*before, decided) if decided else before)
                        before = (*before, f"!{decided}")

    def _decided(self, head: Range) -> str | None:
        """Return the text of a condition that is an integer made of data alone, or None."""
        syntax, shape = self.syntax, self.shapes.shape(head, self.shapes.globals())
        names = [token for token in range(*head) if syntax.tokens[token].kind == "name"]
        of_data = all(
            syntax.word(name) in self._data
            or (syntax.word(name + 1) == "(" and not syntax.word(name).endswith(_MODEL_ONLY))
            for name in names
        )
        text = " ".join(syntax.text(head).split())
        if not (of_data and shape is not None and shape.integer) or "//" in text:
            return None
        return text if head.is_one else f"({text})"

    def last_argument(
        self, function: str, arguments: Sequence[str], statement: Statement
    ) -> str | None:
        """Return the name of the sum that stanct's version of a mass function needs, or None.

        The variate is the first argument, and the statement the one that calls the function, or the
        loop for all turns of which it is called once.
        """
        conditions = self._conditions.get(id(statement))
        if function not in _FUNCTIONS or conditions is None:
            return None
        counts, (name, value) = _FUNCTIONS[function]
        given = arguments[:counts]
        if len(arguments) != counts + 1 or not self._arrays.issuperset(given):
            return None
        name, value = self.prefix + name.format(*given), value.format(*given)
        if conditions:
            value = f"{' && '.join(conditions)} ? {value} : 0"
        while self.sums.setdefault(name, value) != value:
            name += "_"  # e.g. N_a with b and N with a_b
        return name

    def is_vector(self, tokens: Range, scope: Scope) -> bool:
        """Return whether an expression is certainly a column vector, as the functions require."""
        shape = self.shapes.shape(tokens, scope)
        if shape is None or shape.rank != 1:
            return False
        token = tokens.first
        while token < tokens.stop:
            word, kind = self.syntax.word(token), self.syntax.tokens[token].kind
            if word in ("'", "{") or (kind == "name" and not self._is_column(token, scope)):
                return False
            if word == "[":
                before = self.syntax.tokens[token - 1]
                if token == tokens.first or not (before.kind == "name" or before.text in ")]"):
                    return False
                # The type of an index does not matter.
                token = self.syntax.partner[token]
            token += 1
        return True

    def _is_column(self, name: int, scope: Scope) -> bool:
        """Return whether a name is a scalar, a column, or maps columns to columns."""
        word, behind = self.syntax.word(name), self.syntax.word(name + 1)
        spec = scope.get(word)
        if spec is None:
            return word in self._elementwise
        return not spec.array and (
            spec.base in _COLUMNS or (spec.base == "matrix" and behind != "[")
        )

"""Mass functions of count data whose constants are computed once, not with every gradient.

The log factorials of data cost more than the rest of a Poisson or a binomial regression. `~` drops
them, but the generated programs need them. Where the counts are whole arrays of the data they are
summed in the transformed data, and functions of ours take the sum as their last argument.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stanct.stan.shapes import ELEMENTWISE, Scope, Shapes
from stanct.stan.syntax import Range, Syntax

_FACTORIALS = ("log_factorials_{0}", "sum(lgamma(to_vector({0}) + 1))")
_CHOICES = ("log_choices_{1}_{0}", "sum(lchoose({1}, {0}))")
_FUNCTIONS = {
    "poisson_lpmf": (1, _FACTORIALS),
    "poisson_log_lpmf": (1, _FACTORIALS),
    "binomial_lpmf": (2, _CHOICES),
    "binomial_logit_lpmf": (2, _CHOICES),
}
_COLUMNS = frozenset(
    {"real", "int", "vector", "simplex", "ordered", "positive_ordered", "sum_to_zero_vector"}
)


@dataclass
class Counts:
    """The sums that a generated program needs.

    Attributes
    ----------
    syntax, shapes
        Of the user's program.
    prefix
        Of every name of ours.
    sums
        Names of the sums to their expressions, filled by `last_argument`.
    """

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

    def last_argument(self, function: str, arguments: Sequence[str]) -> str | None:
        """Name the sum that our function of this name needs; None where Stan's own must stay.

        Parameters
        ----------
        function
            Of Stan.
        arguments
            The variate first.
        """
        if function not in _FUNCTIONS:
            return None
        counts, (name, value) = _FUNCTIONS[function]
        given = arguments[:counts]
        if len(arguments) != counts + 1 or not self._arrays.issuperset(given):
            return None
        name = self.prefix + name.format(*given)
        self.sums[name] = value.format(*given)
        return name

    def is_vector(self, tokens: Range, scope: Scope) -> bool:
        """Tell whether an expression is surely a column vector, as our functions need it."""
        shape = self.shapes.shape(tokens, scope)
        if shape is None or shape.rank != 1:
            return False
        for token in range(*tokens):
            word = self.syntax.word(token)
            if word in ("'", "{") or (word == "[" and not self._is_index(token)):
                return False
            if self.syntax.tokens[token].kind != "name":
                continue
            spec = scope.get(word)
            if spec is None:
                if word not in ELEMENTWISE:
                    return False
            elif spec.base == "matrix":
                if spec.array or self.syntax.word(token + 1) == "[":
                    return False
            elif spec.base not in _COLUMNS or (spec.array and spec.base != "int"):
                return False
        return True

    def _is_index(self, opening: int) -> bool:
        """Tell whether a bracket stands behind what it takes elements of."""
        before = self.syntax.word(opening - 1)
        return self.syntax.tokens[opening - 1].kind == "name" or before in (")", "]")

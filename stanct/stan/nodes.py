"""What Stan source is parsed into: ranges of tokens, types, statements, functions and blocks."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

SCALAR_TYPES = frozenset({"int", "real", "complex"})
VECTOR_TYPES = frozenset(
    {"vector", "row_vector", "complex_vector", "complex_row_vector", "ordered"}
    | {"positive_ordered", "simplex", "unit_vector", "sum_to_zero_vector"}
)
MATRIX_TYPES = frozenset(
    {"matrix", "complex_matrix", "cholesky_factor_corr", "cholesky_factor_cov", "corr_matrix"}
    | {"cov_matrix", "column_stochastic_matrix", "row_stochastic_matrix", "sum_to_zero_matrix"}
)
TYPES = SCALAR_TYPES | VECTOR_TYPES | MATRIX_TYPES | {"tuple"}
ASSIGNMENTS = frozenset({"=", "+=", "-=", "*=", "/=", ".*=", "./="})


class Range(NamedTuple):
    """Tokens `first`, ..., `stop - 1`."""

    first: int
    stop: int

    @property
    def is_one(self) -> bool:
        """Whether it is a single token."""
        return self.stop - self.first == 1


@dataclass(frozen=True, slots=True)
class TypeSpec:
    """A sized or unsized type as written.

    `elements` are the types of a tuple. `array` and `dims` are the sizes in `array[...]` and after
    the base type, empty ranges if unsized. `constraints` maps `lower`, `upper`, `offset` and
    `multiplier` to the tokens of the expression. `base_range` has the type without `array[...]`.
    """

    base: str
    array: tuple[Range, ...]
    constraints: dict[str, Range]
    dims: tuple[Range, ...]
    elements: tuple[TypeSpec, ...]
    base_range: Range

    @property
    def rank(self) -> int:
        """Number of single indices that lead to a scalar. Tuples count as scalars."""
        own = 1 if self.base in VECTOR_TYPES else 2 if self.base in MATRIX_TYPES else 0
        return len(self.array) + own


@dataclass(slots=True)
class Statement:
    """Any statement; `tokens` runs through its semicolon or closing brace."""

    tokens: Range


@dataclass(slots=True)
class Declare(Statement):
    """`type a = 1, b;`: `names` holds each name's token and its initial value."""

    type: TypeSpec
    names: list[tuple[int, Range | None]]


@dataclass(slots=True)
class Tilde(Statement):
    """`variate ~ distribution(arguments) T[lower, upper];`; `tilde` is the token of `~`."""

    variate: Range
    tilde: int
    distribution: str
    arguments: list[Range]
    truncated: bool
    lower: Range | None
    upper: Range | None


@dataclass(slots=True)
class Increment(Statement):
    """`target += value;` or `jacobian += value;`."""

    accumulator: str
    value: Range


@dataclass(slots=True)
class Assign(Statement):
    """`left = value;` and the compound assignments."""

    left: Range
    value: Range


@dataclass(slots=True)
class Call(Statement):
    """`name(...);`, including calls of print, reject and fatal_error."""

    name: str


@dataclass(slots=True)
class Simple(Statement):
    """`return`, `break` or `continue`, given by `word`; a lone semicolon has an empty `word`."""

    word: str
    value: Range


@dataclass(slots=True)
class Compound(Statement):
    """A block, `profile`, `if` (with all its branches), `while` or `for`.

    `heads` holds the conditions or the loop's header, in order.
    """

    word: str
    heads: list[Range] = field(default_factory=list[Range])
    body: list[Statement] = field(default_factory=list[Statement])


@dataclass(slots=True)
class Function:
    """A user-defined function; `name` is the token of its name, and `returns` is None for void."""

    tokens: Range
    returns: TypeSpec | None
    name: int
    arguments: list[tuple[TypeSpec, int]]
    body: Statement


@dataclass(slots=True)
class ProgramBlock:
    """A program block: its `keyword` token, its braces, and its contents."""

    name: str
    keyword: int
    opening: int
    closing: int
    statements: list[Statement] = field(default_factory=list[Statement])
    functions: list[Function] = field(default_factory=list[Function])

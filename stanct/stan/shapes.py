"""Distinction of scalars and containers in Stan expressions, without a type checker.

stanc decides from types how it truncates a vectorised `~`, and whether `target +=` sums its
argument. `Shapes` answers the same question where names and operators suffice, and returns None
elsewhere. The generator then falls back on overloaded functions that let stanc decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stanct.stan.nodes import Compound, Declare, Function, Range, Statement, TypeSpec
from stanct.stan.syntax import Syntax

# Functions that return a scalar for any arguments ...
_SCALAR_NAMES = """
    cols determinant distance dot_product dot_self e hmm_marginal int_step integrate_1d
    log_determinant log_determinant_spd log_mix log_sum_exp machine_precision max mean min
    negative_infinity norm1 norm2 not_a_number num_elements pi positive_infinity prod rank
    reduce_sum reduce_sum_static rows sd size sqrt2 squared_distance sum target to_int trace
    trace_gen_quad_form trace_quad_form variance
"""
_DENSITY_ENDINGS = ("_lpdf", "_lpmf", "_lupdf", "_lupmf", "_lcdf", "_lccdf", "_cdf", "_ccdf")
# ... that return a container of one or two dimensions ...
_VECTOR_NAMES = """
    cumulative_sum diagonal linspaced_array linspaced_vector log_softmax one_hot_vector ones_array
    ones_int_array ones_vector rep_row_vector rep_vector softmax to_array_1d to_row_vector
    to_vector zeros_array zeros_int_array zeros_vector
"""
_MATRIX_NAMES = "diag_matrix identity_matrix rep_matrix to_array_2d to_matrix"
# ... and functions that work element by element.
_ELEMENTWISE_NAMES = """
    Phi Phi_approx abs acos acosh asin asinh atan atan2 atanh bessel_first_kind
    bessel_second_kind beta binary_log_loss cbrt ceil choose cos cosh digamma erf erfc exp exp2
    expm1 falling_factorial fdim floor fma fmax fmin fmod gamma_p gamma_q hypot inc_beta inv
    inv_Phi inv_cloglog inv_erfc inv_logit inv_sqrt inv_square is_inf is_nan lambert_w0
    lambert_wm1 lbeta lchoose ldexp lgamma lmgamma lmultiply log log10 log1m log1m_exp
    log1m_inv_logit log1p log1p_exp log2 log_diff_exp log_falling_factorial log_inv_logit
    log_inv_logit_diff log_modified_bessel_first_kind log_rising_factorial logit
    modified_bessel_first_kind modified_bessel_second_kind multiply_log owens_t pow
    rising_factorial round sin sinh sqrt square step tan tanh tgamma trigamma trunc
"""
_TO_SCALAR = frozenset(_SCALAR_NAMES.split())
_TO_CONTAINER = dict.fromkeys(_VECTOR_NAMES.split(), 1) | dict.fromkeys(_MATRIX_NAMES.split(), 2)
ELEMENTWISE = frozenset(_ELEMENTWISE_NAMES.split())
_COMPARISONS = frozenset({"==", "!=", "<", "<=", ">", ">=", "&&", "||", "!"})
_ARITHMETIC = frozenset({"+", "-", "*", "/", "^", "%", "%/%", "\\", ".*", "./", ".^"})
_MATRIX_PRODUCTS = frozenset({"*", "/", "\\"})

Scope = dict[str, TypeSpec]


@dataclass(frozen=True, slots=True)
class Shape:
    """The rank of an expression, and whether its elements are integers, None if unknown.

    The rank is the number of indices that lead to a scalar: 0 for a scalar, 1 for a vector or a
    flat array, 2 or more for anything else.
    """

    rank: int
    integer: bool | None = None


class Shapes:
    """Shapes of the expressions of one program."""

    def __init__(self, syntax: Syntax) -> None:
        self._syntax = syntax
        self._returns: dict[str, set[Shape | None]] = {}
        for function in syntax.functions:
            spec = function.returns
            shape = None
            if spec is not None and spec.base != "tuple":
                shape = Shape(spec.rank, spec.base == "int")
            self._returns.setdefault(syntax.word(function.name), set()).add(shape)

    def globals(self) -> Scope:
        """Return the top-level variables of the data, parameters and transformed blocks."""
        scope: Scope = {}
        for name in ("data", "transformed data", "parameters", "transformed parameters"):
            for statement in self._syntax.statements(name):
                self._declare(statement, scope)
        return scope

    def arguments(self, function: Function) -> Scope:
        """Return the variables that a function's body sees at its start."""
        return {self._syntax.word(name): spec for spec, name in function.arguments}

    def walk(
        self, statements: Sequence[Statement], scope: Scope
    ) -> Iterator[tuple[Statement, Scope]]:
        """Yield each statement, outer before inner, with the variables it can see."""
        scope = dict(scope)
        for statement in statements:
            yield statement, scope
            self._declare(statement, scope)
            if isinstance(statement, Compound):
                inner = dict(scope)
                if statement.word == "for":
                    self._declare_loop(statement, inner)
                yield from self.walk(statement.body, inner)

    def shape(self, tokens: Range, scope: Scope) -> Shape | None:
        """Return the shape of an expression, or None if it cannot be determined."""
        word = self._syntax.word
        if tokens.first >= tokens.stop:
            return None
        outer = list(self._syntax.outermost(tokens))
        marks = [word(token) for token in outer]
        if "?" in marks:
            return self._conditional(tokens, outer, marks, scope)
        if any(mark in _COMPARISONS for mark in marks):
            return Shape(0, True)
        operators = [token for token in outer if word(token) in _ARITHMETIC]
        if not operators:
            return self._term(tokens, scope)
        return self._arithmetic(tokens, operators, scope)

    def _declare(self, statement: Statement, scope: Scope) -> None:
        if isinstance(statement, Declare):
            for name, _ in statement.names:
                scope[self._syntax.word(name)] = statement.type

    def _declare_loop(self, loop: Compound, scope: Scope) -> None:
        name = self._syntax.loop_variable(loop)
        if len(self._syntax.loop_ends(loop)) == 2:
            scope[name] = TypeSpec("int", (), {}, (), (), loop.heads[0])
        else:
            scope.pop(name, None)

    def _conditional(
        self, tokens: Range, outer: list[int], marks: list[str], scope: Scope
    ) -> Shape | None:
        question = outer[marks.index("?")]
        colons = [token for token in outer if token > question and self._syntax.word(token) == ":"]
        if len(colons) != 1:
            return None
        first = self.shape(Range(question + 1, colons[0]), scope)
        second = self.shape(Range(colons[0] + 1, tokens.stop), scope)
        if first is None or second is None or first.rank != second.rank:
            return None
        return first if first.integer == second.integer else Shape(first.rank)

    def _arithmetic(self, tokens: Range, operators: list[int], scope: Scope) -> Shape | None:
        binary, last = list[int](), tokens.first - 1
        for operator in operators:
            # An operator directly after another one, or at the start, is a sign.
            if operator > last + 1:
                binary.append(operator)
            last = operator
        word = self._syntax.word
        additive = [operator for operator in binary if word(operator) in ("+", "-")]
        if additive:
            return self._sum(self._syntax.cut(tokens, additive), scope)
        signs = [operator for operator in operators if operator not in binary]
        operands = [
            Range(part.first + sum(part.first <= sign < part.stop for sign in signs), part.stop)
            for part in self._syntax.cut(tokens, binary)
        ]
        shapes = [self._term(operand, scope) for operand in operands]
        known = [shape for shape in shapes if shape is not None]
        if len(known) < len(shapes):
            return None
        ranks = [shape.rank for shape in known]
        products = any(word(token) in _MATRIX_PRODUCTS for token in operators)
        rank: int | None = max(ranks)
        if products and sum(rank > 0 for rank in ranks) > 1:
            rank = _product(ranks) if all(word(token) == "*" for token in binary) else None
        if rank is None:
            return None
        integers = {shape.integer for shape in known}
        powers = any(word(token) in ("^", ".^") for token in operators)
        integer = None if None in integers else not powers and integers == {True}
        return Shape(rank, integer)

    def _sum(self, terms: Sequence[Range], scope: Scope) -> Shape | None:
        """Return the shape of a sum. One container term suffices to determine the rank."""
        shapes = [self.shape(term, scope) for term in terms]
        known = [shape for shape in shapes if shape is not None]
        rank = max((shape.rank for shape in known), default=0)
        if len(known) < len(shapes) and rank == 0:
            return None
        integers = {None if shape is None else shape.integer for shape in shapes}
        return Shape(rank, None if None in integers else integers == {True})

    def _term(self, tokens: Range, scope: Scope) -> Shape | None:
        """Return the shape of an expression that has no operators outside of brackets."""
        syntax = self._syntax
        word, first, stop = syntax.word(tokens.first), tokens.first, tokens.stop
        if first >= stop:
            return None
        kind = syntax.tokens[first].kind
        after = first + 1
        shape: Shape | None
        if kind == "number":
            shape = Shape(0, not any(mark in word for mark in ".eEi"))
        elif word in ("(", "[", "{"):
            inside, after = Range(first + 1, syntax.partner[first]), syntax.partner[first] + 1
            if word == "(":
                shape = self.shape(inside, scope)
            else:
                shape = self._literal(word, inside, scope)
                # After a literal, the shape is known only if nothing but transpositions follows.
                shape = shape if all(syntax.word(k) == "'" for k in range(after, stop)) else None
        elif kind == "name" and syntax.word(after) == "(" and after < stop:
            shape = self._call(first, scope)
            after = syntax.partner[after] + 1
        elif kind == "name" and word in scope:
            spec, after = self.variable(first, scope)
            shape = None if spec.base == "tuple" else Shape(spec.rank, spec.base == "int")
        else:
            return None
        while after < stop and shape is not None:
            if syntax.word(after) == "[":
                shape = self._indexed(shape, Range(after + 1, syntax.partner[after]), scope)
                after = syntax.partner[after] + 1
            elif syntax.word(after) == "'":
                after += 1
            else:
                return None
        return shape

    def variable(self, first: int, scope: Scope) -> tuple[TypeSpec, int]:
        """The type of a variable, or of the member of a tuple, and the token behind its name."""
        spec, after = scope[self._syntax.word(first)], first + 1
        while spec.base == "tuple" and not spec.array and self._syntax.word(after)[:1] == ".":
            spec, after = spec.elements[int(self._syntax.word(after)[1:]) - 1], after + 1
        return spec, after

    def _literal(self, bracket: str, inside: Range, scope: Scope) -> Shape:
        """Return the shape of `[...]`, a row vector or a matrix, or of `{...}`, an array."""
        if bracket == "[":
            return Shape(2) if "[" in self._syntax.word(inside.first) else Shape(1)
        elements = self._syntax.split(inside)
        first = self.shape(elements[0], scope) if elements else None
        scalars = first is not None and first.rank == 0
        return Shape(1 if scalars else 2)

    def _indexed(self, shape: Shape, indices: Range, scope: Scope) -> Shape | None:
        rank = shape.rank
        for index in self._syntax.split(indices):
            marks = [self._syntax.word(token) for token in self._syntax.outermost(index)]
            if not marks or (":" in marks and "?" not in marks):
                continue
            inner = self.shape(index, scope)
            if inner is None:
                return None
            rank -= inner.rank == 0
        return Shape(rank, shape.integer) if rank >= 0 else None

    def _call(self, name_token: int, scope: Scope) -> Shape | None:
        syntax = self._syntax
        name = syntax.word(name_token)
        arguments = syntax.inside(name_token + 1)
        if name in self._returns:
            # Several shapes come from overloads. Stan's few overloads of such a name are ignored.
            overloads = self._returns[name]
            return next(iter(overloads)) if len(overloads) == 1 else None
        if name in _TO_SCALAR or name.endswith(_DENSITY_ENDINGS):
            return Shape(0)
        if name in _TO_CONTAINER:
            return Shape(_TO_CONTAINER[name])
        if name in ELEMENTWISE:
            shapes = [self.shape(part, scope) for part in syntax.split(arguments)]
            known = [shape.rank for shape in shapes if shape is not None]
            return Shape(max(known, default=0)) if len(known) == len(shapes) else None
        return None


def _product(ranks: Sequence[int]) -> int | None:
    """Return the rank of a product of scalars, vectors and matrices; None if it is ambiguous."""
    rank = 0
    for factor in ranks:
        if rank == factor == 1:
            return None  # a scalar or a matrix
        rank = max(rank, factor) if 0 in (rank, factor) else min(rank, factor)
    return rank

"""Construction of each parameter type from Stan's unconstrained vector, as in Stan >= 2.37.

`ParameterWriter` writes the code for one program. `size` returns how many unconstrained numbers a
parameter takes, `write` returns the Stan statements that compute the parameter and its log
Jacobian, and `unconstrained_type` returns the type that declares the parameter without its
constraint. The transforms are the functions in `templates/functions`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from stanct.stan.nodes import MATRIX_TYPES, Range, TypeSpec
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.syntax import Syntax

WIDTH = 78
_MARGIN = 4
_INDENT = "  "

# Constrained types and the plain type that holds their values.
_PLAIN = {
    "ordered": "vector",
    "positive_ordered": "vector",
    "simplex": "vector",
    "unit_vector": "vector",
    "sum_to_zero_vector": "vector",
    "cholesky_factor_corr": "matrix",
    "cholesky_factor_cov": "matrix",
    "corr_matrix": "matrix",
    "cov_matrix": "matrix",
    "column_stochastic_matrix": "matrix",
    "row_stochastic_matrix": "matrix",
    "sum_to_zero_matrix": "matrix",
}
_SQUARE = frozenset({"cholesky_factor_corr", "corr_matrix", "cov_matrix"})
_COMPLEX = frozenset({"complex", "complex_vector", "complex_row_vector", "complex_matrix"})
# Array dimensions for which there are functions of bounds of unknown shape.
_MOST_INDICES = 3
# The Jacobian of these transforms is constant, and Stan leaves it out.
_WITHOUT_JACOBIAN = frozenset({"sum_to_zero_vector", "sum_to_zero_matrix"})
_FUNCTION = {"sum_to_zero_vector": "sum_to_zero"}


def times(*factors: str) -> str:
    """Write a product of integer expressions, with numbers multiplied out."""
    number, rest = 1, list[str]()
    for factor in factors:
        if factor.isdecimal():
            number *= int(factor)
        else:
            rest.append(_atom(factor))
    if number == 0 or not rest:
        return str(number)
    return " * ".join(([str(number)] if number != 1 else []) + rest)


def plus(*terms: str) -> str:
    """Write a sum of integer expressions, with the sum of all numbers at its end."""
    number = sum(int(term) for term in terms if term.isdecimal())
    rest = [term for term in terms if not term.isdecimal()]
    return " + ".join(rest + ([str(number)] if number or not rest else []))


def minus(left: str, right: str) -> str:
    """Write a difference of integer expressions."""
    if left.isdecimal() and right.isdecimal() and int(left) >= int(right):
        return str(int(left) - int(right))
    if right == "0":
        return left
    less = re.fullmatch(r"(\w+) - (\d+)", left)
    if less and right.isdecimal():
        return f"{less[1]} - {int(less[2]) + int(right)}"
    return f"{_atom(left)} - {_atom(right)}"


def _half_of_product(left: str, right: str) -> str:
    if left.isdecimal() and right.isdecimal():
        return str(int(left) * int(right) // 2)
    # `%/%` binds tighter than `*`.
    return f"({times(left, right)}) %/% 2"


def _before(place: str) -> str:
    """Write the index one before `place`, which may end in an added or subtracted number."""
    ends = re.fullmatch(r"(.*) ([+-]) (\d+)", place)
    number = int(ends[2] + ends[3]) - 1 if ends else -1
    head = ends[1] if ends else place
    return f"{head} {'+' if number > 0 else '-'} {abs(number)}" if number else head


def _atom(expression: str) -> str:
    return expression if re.fullmatch(r"\w+", expression) else f"({expression})"


@dataclass
class ParameterWriter:
    """Writes the statements that turn the unconstrained vector into parameters.

    `scope` has the variables that bounds and sizes may name. `functions` collects the library
    functions that the statements call, without prefix. With `jacobian` they add to the log
    Jacobian.
    """

    syntax: Syntax
    shapes: Shapes
    scope: Scope
    prefix: str
    functions: set[str] = field(default_factory=set[str])
    jacobian: bool = True

    def unconstrained_type(self, spec: TypeSpec) -> str:
        """Return the base type and sizes of a declaration without its constraint."""
        if spec.base == "tuple":
            inside = ", ".join(self._array(e) + self.unconstrained_type(e) for e in spec.elements)
            return f"tuple({inside})"
        base, dims = _PLAIN.get(spec.base, spec.base), [self.syntax.text(d) for d in spec.dims]
        if base == "matrix" and len(dims) == 1:
            dims *= 2
        return f"{base}[{', '.join(dims)}]" if dims else base

    def _array(self, spec: TypeSpec) -> str:
        sizes = ", ".join(self.syntax.text(size) for size in spec.array)
        return f"array[{sizes}] " if sizes else ""

    def size(self, spec: TypeSpec) -> str:
        """Return the number of unconstrained elements of a parameter, as a Stan expression."""
        sizes = [self.syntax.text(size) for size in spec.array]
        return times(*sizes, self.element_size(spec)) if sizes else self.element_size(spec)

    def element_size(self, spec: TypeSpec) -> str:
        """Return the number of unconstrained elements of one array element."""
        base, dims = spec.base, [self.syntax.text(size) for size in spec.dims]
        if base == "tuple":
            return plus(*(self.size(element) for element in spec.elements))
        if base == "real":
            return "1"
        if base in _COMPLEX:
            return times("2", *dims)
        if base in ("simplex", "sum_to_zero_vector"):
            return minus(dims[0], "1")
        if base in ("cholesky_factor_corr", "corr_matrix"):
            return _half_of_product(dims[0], minus(dims[0], "1"))
        if base == "cov_matrix":
            return _half_of_product(dims[0], plus(dims[0], "1"))
        if base == "cholesky_factor_cov":
            rows, cols = dims[0], dims[-1]
            square = _half_of_product(cols, plus(cols, "1"))
            return square if rows == cols else plus(square, times(minus(rows, cols), cols))
        if base == "column_stochastic_matrix":
            return times(minus(dims[0], "1"), dims[1])
        if base == "row_stochastic_matrix":
            return times(dims[0], minus(dims[1], "1"))
        if base == "sum_to_zero_matrix":
            return times(minus(dims[0], "1"), minus(dims[1], "1"))
        return times(*dims)

    def write(self, name: str, name_token: int, spec: TypeSpec, behind: str) -> list[str]:
        """Return the Stan lines that compute one parameter and add to the log Jacobian.

        `behind` is the index in the unconstrained vector at which the next parameter begins.
        """
        self._check(name, name_token, spec)
        return [part for line in self._parameter(name, spec, behind) for part in wrapped(line)]

    def _parameter(self, name: str, spec: TypeSpec, behind: str) -> list[str]:
        start = f"{self.prefix}at_{name}"
        if spec.base == "tuple" or (spec.array and not self._vectorises(spec)):
            position = f"{self.prefix}p"

            def write(element: str, part: TypeSpec, indices: tuple[str, ...]) -> list[str]:
                size = self.element_size(part)
                lines = self._one(element, part, position, plus(position, size), indices)
                return [*lines, f"{position} += {size};"]

            lines = self.over_elements(name, spec, write)
            return ["{", f"{_INDENT}int {position} = {start};", *indented(lines), "}"]
        if spec.array:
            return self._real_array(name, spec, start, behind)
        return self._one(name, spec, start, behind, ())

    def _check(self, name: str, name_token: int, spec: TypeSpec) -> None:
        wrong = {"int": "an integer", "void": "void"}.get(spec.base)
        if wrong:
            told = f"`{name}` is {wrong}, which Stan cannot sample."
            raise self.syntax.error(name_token, told)
        needed = 0
        if spec.base in MATRIX_TYPES - _SQUARE - {"cholesky_factor_cov"}:
            needed = 2
        elif spec.base not in ("real", "complex", "tuple"):
            needed = 1
        sizes = (*spec.array, *spec.dims)
        if len(spec.dims) < needed or any(size.first >= size.stop for size in sizes):
            raise self.syntax.error(name_token, f"`{name}` is declared without its sizes.")
        for element in spec.elements:
            self._check(name, name_token, element)

    def _vectorises(self, spec: TypeSpec) -> bool:
        """Return whether a type is a one-dimensional array of reals with scalar bounds."""
        if spec.base != "real" or len(spec.array) != 1:
            return False
        bounds = [self.shapes.shape(bound, self.scope) for bound in spec.constraints.values()]
        return all(shape is not None and shape.rank == 0 for shape in bounds)

    def _real_array(self, name: str, spec: TypeSpec, start: str, behind: str) -> list[str]:
        size = self.syntax.text(spec.array[0])
        slice_ = self._slice(start, behind)
        if not spec.constraints:
            return [f"{name} = to_array_1d({slice_});"]
        function, bounds = self.bounds(spec)

        def write(source: str) -> list[str]:
            value = self.call(f"{function}_vector", [source, *bounds])
            added = self._add(f"{function}_vector", source, bounds)
            return [f"{name} = to_array_1d({value});", *added]

        return self._narrow(write, slice_, f"vector[{size}]", scoped=False)

    def _narrow(
        self,
        write: Callable[[str], list[str]],
        source: str,
        source_type: str,
        *,
        scoped: bool,
    ) -> list[str]:
        """Give the unconstrained values a name of their own if the lines would be too long."""
        lines = write(source)
        alone = len(lines) < 2 and self.jacobian
        if alone or max(map(len, lines)) + _MARGIN <= WIDTH:
            return lines
        # The embedded engine treats equal names in different scopes as one variable.
        y = self.prefix + ("scalar" if source_type == "real" else "y")
        lines = [f"{source_type} {y} = {source};", *write(y)]
        return lines if scoped else ["{", *indented(lines), "}"]

    def over_elements(
        self,
        target: str,
        spec: TypeSpec,
        write: Callable[[str, TypeSpec, tuple[str, ...]], list[str]],
        taken: Callable[[TypeSpec, tuple[str, ...]], int] = lambda *_: 0,
        indices: tuple[str, ...] = (),
    ) -> list[str]:
        """Write lines for each part of a tuple, and each element of an array in loops.

        `write` takes an element, its type and the indices of its array. `taken` tells how many
        innermost dimensions it takes without a loop.
        """
        every = tuple(f"{self.prefix}i{len(indices) + k + 1}" for k in range(len(spec.array)))
        mine = every[: len(every) - taken(spec, every)]
        element = f"{target}[{', '.join(mine)}]" if mine else target
        if spec.base == "tuple":
            lines = [
                line
                for k, part in enumerate(spec.elements, 1)
                for line in self.over_elements(f"{element}.{k}", part, write, taken, indices + mine)
            ]
        else:
            lines = write(element, spec, mine)
        for index, size in reversed(list(zip(mine, spec.array, strict=False))):
            head = f"for ({index} in 1 : {self.syntax.text(size)}) {{"
            lines = [head, *indented(lines), "}"] if lines else []
        return lines

    def _one(
        self, target: str, spec: TypeSpec, start: str, behind: str, indices: tuple[str, ...]
    ) -> list[str]:
        """Write a parameter, or an element of an array, from elements `start` to `behind` − 1."""
        dims = [self.syntax.text(size) for size in spec.dims]
        if spec.base in _COMPLEX:
            return self._complex(target, spec.base, dims, start, behind)
        if spec.base == "real":
            source, source_type = f"{self.prefix}x[{start}]", "real"
        else:
            size = self.element_size(spec)
            source, source_type = self._slice(start, behind), f"vector[{size}]"

        def write(source: str) -> list[str]:
            return self._transformed(target, spec, dims, source, indices)

        if spec.base == "simplex":
            return self._simplex(target, dims[0], source, scoped=bool(indices))
        # Only an element of an array is written inside a loop, which is a scope of its own.
        return self._narrow(write, source, source_type, scoped=bool(indices))

    def _transformed(
        self, target: str, spec: TypeSpec, dims: list[str], source: str, indices: tuple[str, ...]
    ) -> list[str]:
        """Write the transform of `source` and its log Jacobian."""
        if spec.base in ("real", "vector", "row_vector", "matrix"):
            value = source
            added: list[str] = []
            if spec.constraints:
                function, bounds = self.bounds(spec, indices)
                value = self.call(function, [source, *bounds])
                added = self._add(function, source, bounds)
            if spec.base == "row_vector":
                value += "'"
            elif spec.base == "matrix":
                value = f"to_matrix({value}, {', '.join(dims)})"
            return [f"{target} = {value};", *added]
        function = _FUNCTION.get(spec.base, spec.base)
        arguments = list[str]()
        if _PLAIN[spec.base] == "matrix":
            arguments = dims if spec.base in _SQUARE else [dims[0], dims[-1]]
        lines = [f"{target} = {self.call(function, [source, *arguments])};"]
        if spec.base not in _WITHOUT_JACOBIAN:
            lines += self._add(function, source, arguments)
        return lines

    def _simplex(self, target: str, size: str, source: str, *, scoped: bool) -> list[str]:
        """Write a simplex and its log Jacobian, which share one vector that sums to zero."""
        value = self.call("sum_to_zero", [source])
        if not self.jacobian:
            return [f"{target} = softmax({value});"]
        name = f"{self.prefix}centred"
        lines = [f"vector[{size}] {name} = {value};", f"{target} = softmax({name});"]
        lines += self._add("softmax", name, [])
        return lines if scoped else ["{", *indented(lines), "}"]

    def _complex(
        self, target: str, base: str, dims: list[str], start: str, behind: str
    ) -> list[str]:
        """Write a complex parameter. Real and imaginary parts alternate in the vector."""
        x, i = f"{self.prefix}x", f"{self.prefix}k"
        if base == "complex":
            return [f"{target} = to_complex({x}[{start}], {x}[{start} + 1]);"]
        pair = self._slice(start, behind)
        parts = f"{self.prefix}parts"
        halves = f"to_complex({parts}[1, {i}], {parts}[2, {i}])"
        count = times(*dims)
        lines = [f"matrix[2, {count}] {parts} = to_matrix({pair}, 2, {count});"]
        if base == "complex_matrix":
            rows, row, col = dims[0], f"{self.prefix}row", f"{self.prefix}col"
            lines.append(f"int {i} = 1;")
            lines += [
                f"for ({col} in 1 : {dims[1]}) {{",
                f"  for ({row} in 1 : {rows}) {{",
                f"    {target}[{row}, {col}] = {halves};",
                f"    {i} += 1;",
                "  }",
                "}",
            ]
        else:
            lines += [f"for ({i} in 1 : {count}) {{", f"  {target}[{i}] = {halves};", "}"]
        return ["{", *indented(lines), "}"]

    def _slice(self, start: str, behind: str) -> str:
        return f"{self.prefix}x[{start} : {_before(behind)}]"

    def bounds(self, spec: TypeSpec, indices: tuple[str, ...] = ()) -> tuple[str, list[str]]:
        """Return the transform's function and its bounds, for one element of an array."""
        keys = tuple(side for side in ("lower", "upper") if side in spec.constraints)
        function = f"{'_'.join(keys)}_bound"
        if not keys:
            function, keys = "offset_multiplier", ("offset", "multiplier")
        default = {"offset": "0", "multiplier": "1"}
        own_rank = spec.rank - len(spec.array)
        found = [
            self._bound(spec.constraints[key], spec, indices)
            if key in spec.constraints
            else (default[key], 0)
            for key in keys
        ]
        texts, containers = [text for text, _ in found], [rank > 0 for _, rank in found]
        if any(containers) and own_rank > 0:
            size = self.element_size(spec)
            texts = [
                (text if spec.base == "vector" else f"to_vector({text})")
                if container
                else f"rep_vector({text}, {size})"
                for text, container in zip(texts, containers, strict=True)
            ]
        if own_rank > 0:
            function += "_vectors" if any(containers) else "_vector"
        return function, texts

    def _bound(self, bound: Range, spec: TypeSpec, indices: tuple[str, ...]) -> tuple[str, int]:
        text, own_rank = self.syntax.text(bound), spec.rank - len(spec.array)
        shape = self.shapes.shape(bound, self.scope)
        if spec.rank == 0:
            return text, 0
        if shape is None and len(indices) > _MOST_INDICES:
            raise self.syntax.refusal(
                bound.first,
                "a bound of unknown shape",
                f"Whether the bound `{text}` is a scalar or a container cannot be told.",
                "Let a function of your own return it, whose type then tells.",
            )
        if shape is None:
            # Functions for both types let Stan decide. It takes a scalar, or one bound for each.
            if indices:
                text = self.call("layer" if own_rank > 0 else "element", [text, *indices])
            if own_rank > 0:
                text = self.call("spread", [text, self.element_size(spec)])
            return text, own_rank
        outer = shape.rank - own_rank
        if outer <= 0 or not indices:
            return text, shape.rank
        name = text if re.fullmatch(r"\w+", text) else f"({text})"
        return f"{name}[{', '.join(indices[:outer])}]", own_rank

    def call(self, function: str, arguments: list[str]) -> str:
        """Write the call of a library function, and record the function for the program."""
        self.functions.add(function)
        return f"{self.prefix}{function}({', '.join(arguments)})"

    def _add(self, function: str, source: str, arguments: list[str]) -> list[str]:
        if not self.jacobian:
            return []
        stem = "sphere" if function == "unit_vector" else function
        call = self.call(f"{stem}_lj", [source, *arguments])
        return [f"{self.prefix}log_jacobian += {call};"]


def indented(lines: list[str]) -> list[str]:
    """Indent lines by one level."""
    return [_INDENT + line for line in lines]


def wrapped(statement: str) -> list[str]:
    """Break a line that is too long before its assignment operator."""
    if len(statement) + _MARGIN <= WIDTH or " = " not in statement.replace("+=", "="):
        return [statement]
    indent = statement[: len(statement) - len(statement.lstrip())]
    head, operator, value = re.split(r" (\+?=) ", statement, maxsplit=1)
    return [head, f"{indent}{_INDENT}{operator} {value}"]

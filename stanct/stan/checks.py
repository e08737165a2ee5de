"""Explicit checks of the constraints of variables that become local.

Stan checks the constraints of a block's variables, but does not allow constrained local variables.
A violated constraint rejects the point, as in Stan's own checks. Each test covers as many elements
as possible, because every branch that depends on parameters costs the embedded engine microseconds.
"""

from __future__ import annotations

from stanct.stan.constraints import ParameterWriter
from stanct.stan.nodes import Declare, TypeSpec
from stanct.stan.rewrite import Rewriter

_BOUNDABLE = frozenset({"real", "vector", "row_vector", "matrix"})
_MARKS = {"lower": ">=", "upper": "<="}
_INFINITE = {"lower": "negative_infinity()", "upper": "positive_infinity()"}
_TESTS = {"lower": "is_above", "upper": "is_below"}
# Number of innermost array dimensions that one test can cover.
_TAKEN = {"real": 2, "vector": 1, "row_vector": 1, "simplex": 1}
_NAMED = {
    "ordered": "ordered",
    "positive_ordered": "positive and ordered",
    "simplex": "a simplex",
    "unit_vector": "a unit vector",
    "sum_to_zero_vector": "a vector that sums to zero",
    "sum_to_zero_matrix": "a matrix that sums to zero",
    "cholesky_factor_corr": "a Cholesky factor of a correlation matrix",
    "cholesky_factor_cov": "a Cholesky factor of a covariance matrix",
    "corr_matrix": "a correlation matrix",
    "cov_matrix": "a covariance matrix",
    "column_stochastic_matrix": "column stochastic",
    "row_stochastic_matrix": "row stochastic",
}


def make_local(rewriter: Rewriter, writer: ParameterWriter) -> list[str]:
    """Make the transformed parameters local. Return the lines that check their constraints."""
    syntax = rewriter.program.syntax
    lines: list[str] = []
    for statement in syntax.statements("transformed parameters"):
        if not isinstance(statement, Declare):
            continue
        spec = statement.type
        names = [syntax.word(name) for name, _ in statement.names]
        checks = [line for name in names for line in check_lines(name, spec, writer)]
        plain = writer.unconstrained_type(spec)
        if checks or spec.constraints or plain.split("[")[0] != spec.base:
            rewriter.edits.append(rewriter.retyped(spec.base_range, plain))
        lines += checks
    rewriter.functions |= writer.functions
    return lines


def check_lines(name: str, spec: TypeSpec, writer: ParameterWriter) -> list[str]:
    """Write the statements that reject if a variable breaks its constraint; none if it has none.

    The writer writes the bounds, and collects the library functions that are called.
    """

    def write(element: str, part: TypeSpec, indices: tuple[str, ...]) -> list[str]:
        return _one(name, element, part, writer, indices)

    def taken(part: TypeSpec, indices: tuple[str, ...]) -> int:
        return _taken(part, writer, indices)

    return writer.over_elements(name, spec, write, taken)


def _taken(spec: TypeSpec, writer: ParameterWriter, indices: tuple[str, ...]) -> int:
    """Return how many innermost array dimensions need no loop, because one test covers them."""
    taken = min(len(spec.array), _TAKEN.get(spec.base, 0))
    if taken and spec.base in _BOUNDABLE and _has_bounds(spec):
        function, bounds = writer.bounds(spec, indices)
        if function.endswith("_vectors") or any(i in bound for i in indices for bound in bounds):
            return 0
    return taken


def _has_bounds(spec: TypeSpec) -> bool:
    """Return whether a declaration has a lower or an upper bound."""
    return bool({"lower", "upper"} & spec.constraints.keys())


def _one(
    name: str, element: str, spec: TypeSpec, writer: ParameterWriter, indices: tuple[str, ...]
) -> list[str]:
    """Write the test of one element, or of all elements of the dimensions without an index."""
    taken = len(spec.array) - len(indices)
    if spec.base in _NAMED:
        test = (
            writer.call("is_column_stochastic_matrix", [writer.call("columns", [element])])
            if taken
            else writer.call(f"is_{spec.base}", [element])
        )
        return _reject(f"!{test}", f"{name} is not {_NAMED[spec.base]}.")
    if spec.base not in _BOUNDABLE or not _has_bounds(spec):
        return []
    function, bounds = writer.bounds(spec, indices)
    if spec.rank == len(indices):
        test = _scalar_test(element, spec, bounds)
    elif taken and spec.base == "vector":
        sides = [side for side in _INFINITE if side in spec.constraints]
        known = dict(zip(sides, bounds, strict=True))
        test = writer.call("all_between", [element, *(_INFINITE | known).values()])
    else:
        test = _vector_test(_as_vector(element, spec, taken), spec, function, bounds, writer)
    return _reject(f"!{test}", f"{name} is outside of its bounds.")


def _scalar_test(element: str, spec: TypeSpec, bounds: list[str]) -> str:
    marks = [mark for side, mark in _MARKS.items() if side in spec.constraints]
    kept = [
        f"{element} {mark} {_operand(bound)}" for mark, bound in zip(marks, bounds, strict=True)
    ]
    return f"({' && '.join(kept)})"


def _vector_test(
    values: str, spec: TypeSpec, function: str, bounds: list[str], writer: ParameterWriter
) -> str:
    tests = [test for side, test in _TESTS.items() if side in spec.constraints]
    if function.endswith("_vectors"):
        calls = [
            writer.call(f"{test}_each", [values, bound])
            for test, bound in zip(tests, bounds, strict=True)
        ]
        return calls[0] if len(calls) == 1 else f"({' && '.join(calls)})"
    return writer.call(tests[0] if len(tests) == 1 else "is_between", [values, *bounds])


def _as_vector(element: str, spec: TypeSpec, taken: int) -> str:
    """Write an expression for all scalars of a container as one vector."""
    if spec.base == "vector":
        return element
    if taken == 2 or (taken and spec.base == "row_vector"):
        element = f"to_matrix({element})"
    return f"to_vector({element})"


def _operand(bound: str) -> str:
    loose = any(mark in bound for mark in "?<>=&|")
    return f"({bound})" if loose else bound


def _reject(condition: str, message: str) -> list[str]:
    return [f"if ({condition}) {{", f'  reject("{message}");', "}"]

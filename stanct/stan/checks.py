"""Explicit checks of constraints: Stan checks a block's variables, but takes no constrained locals.

A violated constraint rejects the point, as it does where Stan itself checks.
"""

from __future__ import annotations

from stanct.stan.constraints import ParameterWriter, indented
from stanct.stan.syntax import TypeSpec

_BOUNDED = frozenset({"real", "vector", "row_vector", "matrix"})
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


def check_lines(name: str, spec: TypeSpec, writer: ParameterWriter) -> list[str]:
    """Write the statements that reject where a variable breaks its constraint; none is common.

    Parameters
    ----------
    name
        The variable.
    spec
        Its declared type.
    writer
        Knows the shapes of the bounds, and collects the library functions that are called.
    """
    return _elements(name, name, spec, writer, ())


def _elements(
    name: str, target: str, spec: TypeSpec, writer: ParameterWriter, indices: tuple[str, ...]
) -> list[str]:
    mine = tuple(f"{writer.prefix}i{len(indices) + k + 1}" for k in range(len(spec.array)))
    element = f"{target}[{', '.join(mine)}]" if mine else target
    if spec.base == "tuple":
        lines = [
            line
            for k, part in enumerate(spec.elements)
            for line in _elements(name, f"{element}.{k + 1}", part, writer, indices + mine)
        ]
    else:
        lines = _one(name, element, spec, writer, mine)
    if not lines:
        return []
    for index, size in zip(reversed(mine), reversed(spec.array), strict=True):
        head = f"for ({index} in 1 : {writer.syntax.text(size)}) {{"
        lines = [head, *indented(lines), "}"]
    return lines


def _one(
    name: str, element: str, spec: TypeSpec, writer: ParameterWriter, indices: tuple[str, ...]
) -> list[str]:
    if spec.base in _NAMED:
        test = writer.call(f"is_{spec.base}", [element])
        return _reject(f"!{test}", f"{name} is not {_NAMED[spec.base]}.")
    if spec.base not in _BOUNDED or not {"lower", "upper"} & spec.constraints.keys():
        return []
    function, bounds = writer.bounds(spec, indices)
    kept: list[str] = []
    limits = [("lower", ">=", "is_above"), ("upper", "<=", "is_below")]
    present = [limit for limit in limits if limit[0] in spec.constraints]
    for (_, comparison, test), bound in zip(present, bounds, strict=True):
        if spec.base == "real":
            kept.append(f"{element} {comparison} {_operand(bound)}")
        else:
            values = element if spec.base == "vector" else f"to_vector({element})"
            suffix = "_each" if function.endswith("_vectors") else ""
            kept.append(writer.call(test + suffix, [values, bound]))
    test = kept[0] if len(kept) == 1 and spec.base != "real" else f"({' && '.join(kept)})"
    return _reject(f"!{test}", f"{name} is outside of its bounds.")


def _operand(bound: str) -> str:
    loose = any(mark in bound for mark in "?<>=&|")
    return f"({bound})" if loose else bound


def _reject(condition: str, message: str) -> list[str]:
    return [f"if ({condition}) {{", f'  reject("{message}");', "}"]

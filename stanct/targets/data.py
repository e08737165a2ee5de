"""Reads the user's data and checks them against the program's data block."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import math
import operator
import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import stanio

from stanct.errors import DataError
from stanct.settings import near
from stanct.stan.program import Declaration, Program

_DEEPEST = 64  # dimensions of an array
_LARGEST_INT = 2**31 - 1
_MOST_LISTED = 20  # variables that one message names

DataSource = str | os.PathLike[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class StanData:
    """Data that fit a program.

    Attributes
    ----------
    text
        JSON object in Stan's data format.
    origin
        File from which the data were read, or ``"data"``.
    """

    text: str = field(repr=False)
    origin: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the JSON text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def unused(self, program: Program) -> tuple[str, ...]:
        """Names of the variables that the program does not declare."""
        return tuple(name for name in self.values if name not in program.data_names)

    @property
    def values(self) -> dict[str, Any]:
        """The variables as decoded from JSON."""
        return json.loads(self.text)

    def extended(self, extra: Mapping[str, Any]) -> str:
        """Return the JSON text of the data with further variables."""
        addition = stanio.dump_stan_json(dict(extra)).strip()
        inner = self.text.strip()[1:-1].strip()
        return f"{{{inner}{', ' if inner else ''}{addition[1:]}"


def read_data(source: DataSource, program: Program) -> StanData:
    """Read data from a JSON file or a mapping and check names, shapes and bounds.

    Parameters
    ----------
    source
        Path of a JSON file, or a mapping of variable names to numbers, lists or arrays; None for no
        data.
    program
        Program whose data block declares the variables.

    Raises
    ------
    DataError
        The file is missing or not a JSON object, or a variable is missing, has the wrong shape,
        holds something that is not a finite number, or lies outside its declared bounds. An error
        about a variable has the line of its declaration.
    """
    data = _load(source, {d.name for d in program.data if d.type == "tuple"})
    values = data.values
    known: dict[str, Any] = {}
    declared = {declaration.name: declaration for declaration in program.data}
    for name, value in values.items():
        _check_finite(name, value, declared.get(name), program, data.origin)
    for declaration in program.data:
        if declaration.name not in values:
            nearest = near(declaration.name, data.unused(program))
            raise error_at(
                declaration,
                program,
                f"`{declaration.name}` is declared here, but {data.origin} does not give it.",
                f"Did you mean `{nearest}`, which {data.origin} has?"
                if nearest
                else _wanted(program, data),
            )
        _check_value(declaration, values[declaration.name], known, program, data.origin)
        known[declaration.name] = values[declaration.name]
    return data


def _wanted(program: Program, data: StanData) -> str:
    """What the data lack, one variable a line, with types and sizes as declared."""
    missing = [one for one in program.data if one.name not in data.values]
    lines = [f"    {_type(one, program)} {one.name}" for one in missing[:_MOST_LISTED]]
    if len(missing) > _MOST_LISTED:
        lines.append(f"    and {len(missing) - _MOST_LISTED} more")
    has = ", ".join(sorted(data.values))
    first = (
        f"Add to {data.origin}, which has {has}:"
        if has
        else "Pass these data, as a JSON file or a mapping:"
    )
    return "\n".join([first, *lines])


def _type(declaration: Declaration, program: Program) -> str:
    """The declared type as it is written; only its name where the file must not be quoted."""
    if not _is_quoted(declaration, program):
        return declaration.type
    sizes = declaration.array_dims
    array = f"array[{', '.join(sizes)}] " if sizes else ""
    return array + " ".join(program.syntax.text(declaration.spec.base_range).split())


def _is_quoted(declaration: Declaration, program: Program) -> bool:
    """Whether errors may quote the file that declares a variable."""
    first = program.syntax.start(declaration.spec.base_range.first)
    return program.syntax.source.place(first).excerpt is not None


def explain(message: str, program: Program, data: StanData) -> DataError:
    """Turn the engine's message about data into an error at the variable's declaration."""
    named = re.findall(r"(?:variable name=|check: |data variable )(\w+)", message)
    mentioned = [*named, *re.findall(r"\w+", message)]
    names = {declaration.name: declaration for declaration in program.data}
    # The engine writes bounds with six decimals even for integers.
    text = re.sub(r"(\d)\.000000\b", r"\1", message).strip().rstrip(".")
    text = program.syntax.source.told(text)[0].rstrip(".")
    remedy = f"Correct {data.origin} or the declaration."
    for name in mentioned:
        if name in names:
            return error_at(
                names[name], program, f"Stan refuses `{name}` of {data.origin}: {text}.", remedy
            )
    return DataError(f"Stan refuses {data.origin}: {text}.", path=program.path, remedy=remedy)


_NO_JSON = (TypeError, ValueError, OverflowError, RecursionError)


def _is_json(value: Any) -> bool:
    try:
        stanio.dump_stan_json({"value": _listed(value)})
    except _NO_JSON:
        return False
    return True


def _load(source: DataSource, tuples: Collection[str] = ()) -> StanData:
    """Read data. Python's tuples are arrays, but for the variables that are tuples in Stan."""
    if source is None:
        return StanData("{}", "data")
    if isinstance(source, Mapping):
        try:
            own = {name: v if name in tuples else _listed(v) for name, v in source.items()}
            return StanData(stanio.dump_stan_json(own), "data")
        except _NO_JSON as cause:
            name = next((name for name, value in source.items() if not _is_json(value)), "?")
            raise DataError(
                f"`{name}` of the data cannot be written as JSON: {cause}.",
                remedy="Use numbers, lists and NumPy arrays.",
            ) from cause
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"Data of the type {type(source).__name__!r} cannot be read.",
            remedy="Pass the path of a JSON file, a mapping of variable names to values, or None.",
        )
    if str(source).lstrip().startswith("{"):
        raise DataError(
            "The data are JSON text, where the path of a file or a mapping belongs.",
            remedy="Pass json.loads(text).",
        )
    path = Path(source)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as cause:
        raise DataError(
            "There is no such data file." if isinstance(cause, FileNotFoundError) else str(cause),
            path=str(path),
            remedy=f"Check the path; it is looked up from {Path.cwd()}.",
        ) from cause
    try:
        loaded = json.loads(text)
    except json.JSONDecodeError as cause:
        lines = text.splitlines() or [""]
        excerpt = lines[min(cause.lineno, len(lines)) - 1]
        raise DataError(
            f"This is not JSON: {cause.msg}.",
            path=str(path),
            line=cause.lineno,
            column=cause.colno if len(excerpt) <= 120 else None,
            excerpt=excerpt if len(excerpt) <= 120 else None,
            remedy="Write the data as one JSON object, variable name to value.",
        ) from cause
    except (ValueError, RecursionError) as cause:
        deep = isinstance(cause, RecursionError)
        seen = "lists nested too deeply" if deep else "an integer of thousands of digits"
        raise DataError(
            f"The file holds {seen}.", path=str(path), remedy="Correct the file."
        ) from cause
    if not isinstance(loaded, dict):
        raise DataError(
            f"The file holds a JSON {type(loaded).__name__}, not an object.",
            path=str(path),
            remedy='Write {"N": 3, "y": [1, 2, 3]}.',
        )
    return StanData(text, str(path))


def _listed(value: Any) -> Any:
    """The value with lists in the place of tuples."""
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _check_finite(
    name: str, value: Any, declaration: Declaration | None, program: Program, origin: str
) -> None:
    """Refuse NaN, infinities and null; the engine reads none, and no density is finite there."""
    found = _not_finite(value)
    if found is None:
        return
    index, words = found
    where = f"[{','.join(map(str, index))}]" if index else ""
    message = f"`{name}{where}` is {words} in {origin}."
    if declaration is None:
        raise DataError(message, remedy=f"Leave `{name}` out; the program does not declare it.")
    remedy = "Data are finite numbers: leave missing values out, or declare them as parameters."
    raise error_at(declaration, program, message, remedy)


def _not_finite(value: Any, index: tuple[Any, ...] = ()) -> tuple[tuple[Any, ...], str] | None:
    """Return the place of the first value that is no finite number, and what it is; or None."""
    if value is None:
        return index, "null"
    if len(index) > _DEEPEST:
        return index[:3], "a list nested too deeply"
    if isinstance(value, dict | list):
        # Most variables are regular arrays of finite numbers, for which this is quick.
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if isinstance(value, list) and np.isfinite(np.asarray(value, dtype=float)).all():
                return None
        items = value.items() if isinstance(value, dict) else enumerate(value, 1)
        parts = (_not_finite(item, (*index, key)) for key, item in items)
        return next((part for part in parts if part is not None), None)
    try:
        number = float(value)
    except ValueError:
        return None
    except OverflowError:
        return index, "a number too large for a computer's"
    words = "NaN" if number != number else "infinite"
    return None if math.isfinite(number) else (index, words)


def _check_value(
    declaration: Declaration, value: Any, known: Mapping[str, Any], program: Program, origin: str
) -> None:
    """Check a variable as far as its declaration can be evaluated; Stan checks the rest."""
    if declaration.type == "tuple" or declaration.type.startswith("complex"):
        return
    name = declaration.name
    try:
        array = np.asarray(value, dtype=float)
    except (TypeError, ValueError):
        raise error_at(
            declaration,
            program,
            f"`{name}` of {origin} is not a rectangular array of numbers.",
            "Give all rows the same length and write numbers only.",
        ) from None
    fractions = array[array != np.round(array)]
    if declaration.type == "int" and fractions.size:
        raise error_at(
            declaration,
            program,
            f"`{name}` is declared int, but {origin} has {fractions[0]}.",
            "Write whole numbers, or declare it real.",
        )
    large = array[np.abs(array) > _LARGEST_INT]
    if declaration.type == "int" and large.size:
        raise error_at(
            declaration,
            program,
            f"`{name}` is declared int, but {origin} has {large[0]:.0f}.",
            f"Stan's integers end at {_LARGEST_INT}: declare it real.",
        )
    _check_shape(declaration, array, known, program, origin)
    for side, fails, words in (("lower", np.less, "below"), ("upper", np.greater, "above")):
        limit = _evaluate(declaration.constraints.get(side, ""), known)
        if limit is None or not array.size:
            continue
        wrong = fails(array, limit)
        if wrong.any():
            where = "" if array.ndim == 0 else str([int(i[0]) + 1 for i in np.nonzero(wrong)])
            raise error_at(
                declaration,
                program,
                f"`{name}{where.replace(' ', '')}` is {array[wrong].flat[0]:g} in {origin}, "
                f"{words} the declared {side} bound {limit:g}.",
                f"Correct {origin} or the bound.",
            )


def _check_shape(
    declaration: Declaration,
    array: np.ndarray,
    known: Mapping[str, Any],
    program: Program,
    origin: str,
) -> None:
    sizes = declaration.dims
    if declaration.type in _SQUARE and len(sizes) == 1:
        sizes = (*sizes, *sizes)
    written = (*declaration.array_dims, *sizes)
    expected = [_evaluate(size, known) for size in written]
    if array.size == 0 and (0 in expected or None in expected):
        return
    matches = len(expected) == array.ndim and all(
        size is None or size == seen for size, seen in zip(expected, array.shape, strict=True)
    )
    if not matches:
        pairs = zip(written, expected, strict=True)
        wanted = ", ".join(
            text if size is None or text == f"{size:g}" else f"{text} = {size:g}"
            for text, size in pairs
        )
        if not _is_quoted(declaration, program):
            wanted = ", ".join("?" if size is None else f"{size:g}" for size in expected)
        shape = " x ".join(str(n) for n in array.shape)
        raise error_at(
            declaration,
            program,
            f"`{declaration.name}` is declared with "
            f"{f'size [{wanted}]' if expected else 'no size (one number)'}, but {origin} has "
            f"{f'an array of {shape}' if array.ndim else 'one number'}.",
            f"Correct {origin} or the sizes that the declaration uses.",
        )


_SQUARE = {"cov_matrix", "corr_matrix", "cholesky_factor_corr", "cholesky_factor_cov"}
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}


def _evaluate(expression: str, known: Mapping[str, Any]) -> float | None:
    """Evaluate a size or a bound; None if that takes more than arithmetic."""
    try:
        return _value(ast.parse(expression, mode="eval").body, known)
    except (SyntaxError, ValueError, KeyError, TypeError, RecursionError, MemoryError):
        return None


def _value(node: ast.expr, known: Mapping[str, Any]) -> float:
    match node:
        case ast.Constant(value=int() | float() as number):
            return number
        case ast.Name(id=name) if isinstance(known[name], int | float):
            return known[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_value(operand, known)
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            return _OPERATORS[type(op)](_value(left, known), _value(right, known))
        case _:
            raise ValueError("more than arithmetic")


def error_at(declaration: Declaration, program: Program, message: str, remedy: str) -> DataError:
    """Return an error at a variable's declaration, for the caller to raise."""
    lines = program.source.splitlines()
    own = declaration.path == program.path and 0 < declaration.line <= len(lines)
    return DataError(
        message,
        path=declaration.path,
        line=declaration.line,
        column=declaration.column,
        excerpt=lines[declaration.line - 1] if own else None,
        remedy=remedy,
    )

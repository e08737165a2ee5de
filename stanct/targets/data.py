"""Reads the user's data and checks them against the program's data block."""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import stanio

from stanct.common.errors import DataError, shortened
from stanct.common.settings import near
from stanct.stan.arithmetic import evaluated
from stanct.stan.program import Declaration, Ends, Program
from stanct.targets.values import fault_in, ragged, read_json, without_booleans

_LARGEST_INT = 2**31 - 1
_MOST_LISTED = 20  # variables that one message names
# The first line with a value, as R's dump() writes it.
_R_DUMP = re.compile(r"""(\s|#.*\n)*["'`]?[A-Za-z.][\w.]*["'`]?\s*(<-|=)\s""")

DataSource = str | os.PathLike[str] | Mapping[str, Any] | None


@dataclass(frozen=True)
class StanData:
    """Data that fit a program: JSON in Stan's format, and the file or ``"data"`` they came from."""

    text: str = field(repr=False)
    origin: str

    @property
    def sha256(self) -> str:
        """SHA-256 of the JSON text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def name(self) -> str:
        """The file, or "the data", as messages name them."""
        return "the data" if self.origin == "data" else self.origin

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
    """Read data from a JSON file or a mapping and check names, shapes and bounds; None stands for
    no data. In both, true is 1 and false is 0.

    A `DataError` about a variable has the line of its declaration.
    """
    data = _load(source, program)
    values = data.values
    known: dict[str, Any] = {}
    for declaration in program.data:
        if declaration.name not in values:
            nearest = near(declaration.name, data.unused(program))
            told = f"`{declaration.name}` is declared here, but {data.origin} does not give it."
            meant = f"Did you mean `{nearest}`, which {data.origin} has?"
            raise error_at(declaration, program, told, meant if nearest else _wanted(program, data))
        _Check(declaration, program, data.origin).of(values[declaration.name], known)
        known[declaration.name] = values[declaration.name]
    return data


def joined_data(source: DataSource, base: StanData | None, ends: Ends) -> DataSource:
    """Data of a program that joins two: with those of the base under their names in it.

    Raises `DataError` if a size or a bound of the parameters is not the same in both.
    """
    if base is None:
        return source
    own, others = _load(source, ends.full).values, base.values
    for name, other in ends.data.items():
        if name == other and name in own and own[name] != others[name]:
            mine, theirs = (shortened(repr(one[name]), 40) for one in (own, others))
            raise DataError(
                f"`{name}` is {mine} for {ends.full.label} and {theirs} for {ends.base.label}, and "
                "parameters depend on it.",
                remedy="Parameters of the two programs need the same sizes and bounds.",
            )
    return {**{other: others[name] for name, other in ends.data.items()}, **own}


def _wanted(program: Program, data: StanData) -> str:
    """What the data lack, one variable a line, with types and sizes as declared."""
    missing = [one for one in program.data if one.name not in data.values]
    lines = [f"    {one.written(program.syntax)} {one.name}" for one in missing[:_MOST_LISTED]]
    if len(missing) > _MOST_LISTED:
        lines.append(f"    and {len(missing) - _MOST_LISTED} more")
    has = ", ".join(sorted(data.values))
    first = (
        f"Add to {data.origin}, which has {has}:"
        if has
        else "Pass these data, as a JSON file or a mapping:"
    )
    return "\n".join([first, *lines])


def explain(message: str, program: Program, data: StanData) -> DataError:
    """Turn the engine's message about data into an error at the variable's declaration."""
    named = re.findall(r"(?:variable name=|check: |data variable )(\w+)", message)
    mentioned = [*named, *re.findall(r"\w+", message)]
    names = {declaration.name: declaration for declaration in program.data}
    # The engine writes bounds with six decimals even for integers.
    text = re.sub(r"(\d)\.000000\b", r"\1", message).strip().rstrip(".")
    if "bad_alloc" in text or "length_error" in text:
        return DataError(
            f"With {data.origin}, the variables of {program.label} need more memory than there is.",
            remedy="Declare fewer or smaller ones.",
        )
    remedy = f"Correct {data.origin} or the declaration."
    for name in mentioned:
        if name in names:
            return error_at(
                names[name], program, f"Stan refuses `{name}` of {data.origin}: {text}.", remedy
            )
    return DataError(f"Stan refuses {data.origin}: {text}.", path=program.path, remedy=remedy)


def _instead(source: Any, program: Program) -> str:
    """What to pass in place of data of another type."""
    names = ", ".join(f"{name!r}: ..." for name in program.data_names[:4])
    if hasattr(source, "columns") and hasattr(source, "to_dict"):
        size = next((d.name for d in program.data if d.type == "int" and not d.array_dims), "N")
        return (
            "Pass its columns by name, and the sizes that the program declares: "
            f'{{"{size}": len(frame), **frame.to_dict("list")}}.'
        )
    if names:
        return f"Pass a dictionary, {{{names}}}, or the path of a JSON file."
    return "The program has no data: pass None."


def _load(source: DataSource, program: Program) -> StanData:
    """Read data and check their values. Python's tuples are arrays, but for Stan's tuples."""
    if source is None:
        return StanData("{}", "data")
    if isinstance(source, Mapping):
        _check_finite(source, program, "data")
        tuples = {d.name for d in program.data if d.type == "tuple"}
        own = {name: v if name in tuples else _listed(v) for name, v in source.items()}
        text = stanio.dump_stan_json(own)
        if "true" in text or "false" in text:
            text = json.dumps(without_booleans(json.loads(text)))
        return StanData(text, "data")
    if not isinstance(source, str | os.PathLike):
        raise DataError(
            f"Data of the type {type(source).__name__!r} cannot be read.",
            remedy=_instead(source, program),
        )
    if str(source).lstrip().startswith("{"):
        raise DataError(
            "The data are JSON text, where the path of a file or a mapping belongs.",
            remedy="Pass json.loads(text).",
        )
    text, loaded = _read(Path(source))
    _check_finite(loaded, program, str(Path(source)))
    if "true" in text or "false" in text:  # Stan takes them for no numbers
        text = json.dumps(without_booleans(loaded))
    return StanData(text, str(Path(source)))


def _read(path: Path) -> tuple[str, dict[str, Any]]:
    """The text of a JSON file, and the object in it."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as cause:
        raise DataError(
            f"The data file is not in UTF-8, as byte {cause.start + 1} shows.",
            path=str(path),
            remedy="Save it as UTF-8, the encoding of JSON.",
        ) from cause
    except (OSError, ValueError) as cause:
        raise DataError(
            "There is no such data file." if isinstance(cause, FileNotFoundError) else str(cause),
            path=str(path),
            remedy=f"Check the path; it is looked up from {Path.cwd()}.",
        ) from cause
    try:
        loaded = read_json(text)
    except json.JSONDecodeError as cause:
        if _R_DUMP.match(text):
            raise DataError(
                "These data are in R's dump format.",
                path=str(path),
                remedy=f'Convert them in R: e <- new.env(); sys.source("{path.name}", e); '
                'jsonlite::write_json(as.list(e), "data.json", auto_unbox = TRUE, digits = NA)',
            ) from cause
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
    if not isinstance(loaded, dict):
        frame = isinstance(loaded, list) and any(isinstance(row, dict) for row in loaded)
        raise DataError(
            f"The file holds a JSON {type(loaded).__name__}, not an object.",
            path=str(path),
            remedy='Write {"N": 3, "y": [1, 2, 3]}.'
            + " From R: c(list(N = nrow(frame)), as.list(frame))." * frame,
        )
    return text, loaded


def _listed(value: Any) -> Any:
    """The value with lists in the place of tuples."""
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _check_finite(values: Mapping[str, Any], program: Program, origin: str) -> None:
    """Refuse what is no finite number; the engine reads none, and no density is finite there."""
    declared = {declaration.name: declaration for declaration in program.data}
    for name, value in values.items():
        if not isinstance(name, str):
            raise DataError(
                f"{name!r} cannot be the name of a variable of {origin}.",
                remedy="Names are texts, as in {'N': 3}.",
            )
        declaration = declared.get(name)
        kind = "tuple" if declaration is None else declaration.type
        fault = fault_in(value, complex_too=kind == "tuple" or kind.startswith("complex"))
        if fault is None:
            continue
        message = f"`{_indexed(name, fault.place)}` is {fault.words} in {origin}."
        if declaration is not None:
            raise error_at(declaration, program, message, fault.remedy)
        leave = f"Leave `{name}` out; the program does not declare it."
        raise DataError(message, remedy=leave)


def _indexed(name: str, index: Sequence[Any]) -> str:
    """The name of an element of a variable, with indices from 1."""
    name = shortened(name, 60)
    return f"{name}[{','.join(shortened(str(k), 40) for k in index)}]" if index else name


def _first(name: str, wrong: np.ndarray) -> str:
    """The name of the first element of a variable at which this array holds."""
    return _indexed(name, [int(k) + 1 for k in np.argwhere(wrong)[0]])


@dataclass(frozen=True)
class _Check:
    """Checks a variable as far as its declaration can be evaluated; Stan checks the rest."""

    declaration: Declaration
    program: Program
    origin: str

    def of(self, value: Any, known: Mapping[str, Any]) -> None:
        declared, name, origin = self.declaration, self.declaration.name, self.origin
        if declared.type == "tuple" or declared.type.startswith("complex"):
            return
        try:
            array = np.asarray(value, dtype=float)
        except (TypeError, ValueError):
            self._named(value)
            found = ragged(value)
            where = ""
            if found is not None:
                here, seen, other, there = found
                where = (
                    f": `{_indexed(name, here)}` has {seen}, and `{_indexed(name, other)}` {there}"
                )
            told = f"`{name}` of {origin} is not a rectangular array of numbers{where}."
            remedy = "Give all rows the same length and write numbers only."
            raise self._error(told, remedy) from None
        if declared.type == "int":
            self._integers(array)
            self._written(value)
        self._shape(array, known)
        for side, fails, words in (("lower", np.less, "below"), ("upper", np.greater, "above")):
            limit = evaluated(declared.constraints.get(side, ""), known)
            if limit is None or not (wrong := fails(array, limit)).any():
                continue
            raise self._error(
                f"`{_first(name, wrong)}` is {array[wrong].flat[0]:g} in {origin}, "
                f"{words} the declared {side} bound {limit:g}.",
                f"Correct {origin} or the bound.",
            )

    def _named(self, value: Any) -> None:
        """Refuse objects, as which R writes data frames, lists with names, and NULL."""
        name, it = self.declaration.name, f"`{self.declaration.name}` of {self.origin}"
        if value == {}:
            told = f"{it} is an empty object, as R writes NULL."
            raise self._error(told, "Write numbers, or [] for none: in R numeric(0).")
        if isinstance(value, dict):
            told = f"{it} is an object with names, and no array of numbers."
            raise self._error(told, f"Write [1, 2]: from R, unlist({name}, use.names = FALSE).")
        if isinstance(value, list) and any(isinstance(row, dict) for row in value):
            told = f"{it} has rows that are objects, as R writes data frames."
            raise self._error(told, f"Write rows of numbers: from R, as.matrix({name}).")

    def _error(self, message: str, remedy: str) -> DataError:
        return error_at(self.declaration, self.program, message, remedy)

    def _integers(self, array: np.ndarray) -> None:
        large = f"Stan's integers end at {_LARGEST_INT}: declare it real."
        for wrong, remedy in (
            (array != np.round(array), "Write whole numbers, or declare it real."),
            (np.abs(array) > _LARGEST_INT, large),
        ):
            if wrong.any():
                value = array[wrong].flat[0]
                raise self._error(
                    f"`{_first(self.declaration.name, wrong)}` is declared int, but {self.origin} "
                    f"has {int(value) if value == round(value) else value}.",
                    remedy,
                )

    def _written(self, value: Any) -> None:
        """Refuse whole numbers that are written as real ones, such as 3.0, as CmdStan does."""
        if np.asarray(value).dtype.kind != "f" or not np.size(value):
            return
        flat = np.asarray(value, object)
        wrong = np.array([isinstance(one, float) for one in flat.flat]).reshape(flat.shape)
        number = flat[wrong].flat[0]
        raise self._error(
            f"`{_first(self.declaration.name, wrong)}` is declared int, but {self.origin} has "
            f"{number}, which Stan reads as a real number.",
            f"Write {int(number)}: in Python by int(...), or by .astype(int) of an array, in R by "
            "as.integer(...).",
        )

    def _shape(self, array: np.ndarray, known: Mapping[str, Any]) -> None:
        declared = self.declaration
        sizes = declared.dims
        if declared.type in SQUARE and len(sizes) == 1:
            sizes = (*sizes, *sizes)
        written = (*declared.array_dims, *sizes)
        expected = [evaluated(size, known) for size in written]
        if array.size == 0 and (0 in expected or None in expected):
            return
        if len(expected) == array.ndim and all(
            size is None or size == seen for size, seen in zip(expected, array.shape, strict=True)
        ):
            return
        wanted = ", ".join(
            text if size is None or text == f"{size:g}" else f"{text} = {size:g}"
            for text, size in zip(written, expected, strict=True)
        )
        shape = " x ".join(str(n) for n in array.shape)
        of_r = _BOXED if array.shape == (1,) and not expected else ""
        if not array.ndim and expected == [1]:
            of_r = f" From R, write I({declared.name})."
        raise self._error(
            f"`{declared.name}` is declared with "
            f"{f'size [{wanted}]' if expected else 'no size (one number)'}, but {self.origin} has "
            f"{f'an array of {shape}' if array.ndim else 'one number'}.",
            f"Correct {self.origin} or the sizes that the declaration uses.{of_r}",
        )


# R has no single numbers.
_BOXED = " From R, write it with jsonlite's auto_unbox = TRUE."
SQUARE = {"cov_matrix", "corr_matrix", "cholesky_factor_corr", "cholesky_factor_cov"}


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

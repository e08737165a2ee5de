"""Representation of a user's Stan program: its blocks, data and parameters."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from stanct.common.errors import ProgramError
from stanct.stan.nodes import Declare, Function, ProgramBlock, Simple, Statement, Tilde, TypeSpec
from stanct.stan.source import SourceText
from stanct.stan.syntax import Syntax, walk

NO_PARAMETERS = "no parameters"
"""Reason for which a program without parameters is refused, whatever the kind."""


@dataclass(frozen=True)
class Declaration:
    """A variable of the data or parameters block, with sizes and constraints as written.

    `array_dims` are the sizes in `array[...]`, and `dims` those after the base type. Line and
    column are those of the name in the user's file, counted from 1.
    """

    name: str
    type: str
    array_dims: tuple[str, ...]
    dims: tuple[str, ...]
    constraints: Mapping[str, str] = field(hash=False)
    line: int
    column: int
    path: str
    spec: TypeSpec = field(repr=False, compare=False)

    def written(self, syntax: Syntax) -> str:
        """Return the type as it is written, on one line."""
        array = f"array[{', '.join(self.array_dims)}] " if self.array_dims else ""
        return array + " ".join(syntax.text(self.spec.base_range).split())

    def error(self, message: str, remedy: str) -> ProgramError:
        """Build the error that points at the name."""
        place = {"path": self.path, "line": self.line, "column": self.column}
        return ProgramError(message, **place, remedy=remedy)


@dataclass(frozen=True)
class Ends:
    """The programs at β = 1 and at β = 0 between which a path leads.

    `data` maps the names of the base's data to those in the joined program.
    """

    full: Program
    base: Program
    data: Mapping[str, str] = field(hash=False)

    @property
    def apart(self) -> bool:
        """Whether the base has data of its own."""
        return any(name != other for name, other in self.data.items())


@dataclass(frozen=True)
class Program:
    """A Stan program, parsed but not changed.

    Make one with `Program.from_file` or `Program.from_source`.

    Attributes
    ----------
    name, path
        Stem of the file, or the name given with the text, whose path is None.
    source, expanded, syntax
        The text before and after the expansion of `#include`, and tokens and statements of the
        latter.
    data, parameters
        The declared variables, in order.
    ends
        The programs that this one joins, if it holds a path between two (`stanct.stan.between`).
    """

    name: str
    path: str | None
    source: str = field(repr=False)
    expanded: str = field(repr=False)
    syntax: Syntax = field(repr=False, compare=False)
    data: tuple[Declaration, ...]
    parameters: tuple[Declaration, ...]
    ends: Ends | None = field(default=None, repr=False)

    @classmethod
    def from_file(
        cls, path: str | os.PathLike[str], *, include_paths: Sequence[str | os.PathLike[str]] = ()
    ) -> Program:
        """Read a program from a file in UTF-8.

        `#include`d files are looked up in the include paths, and then in the file's own folder.
        Raises `ProgramError` if the file is missing or not text, has no parameters, or cannot be
        read as Stan.
        """
        file, given = Path(path), os.fspath(path)
        try:
            if file.is_dir():
                raise ProgramError(
                    "This is a folder." if given else "There is no program in empty text.",
                    path=given or None,
                    remedy="Pass the path of a .stan file, or the text of a program.",
                )
            source = file.read_text(encoding="utf-8-sig")  # editors of Windows begin with a mark
        except FileNotFoundError as cause:
            raise ProgramError(
                "There is no such file.",
                path=str(file),
                remedy=f"Check the path; it is looked up from {Path.cwd()}.",
            ) from cause
        except (OSError, ValueError) as cause:
            raise ProgramError(
                f"The file cannot be read: {cause}.",
                path=str(file),
                remedy="Pass a Stan program in UTF-8.",
            ) from cause
        return cls.from_source(source, name=file.stem, path=str(file), include_paths=include_paths)

    @classmethod
    def from_source(
        cls,
        source: str,
        *,
        name: str = "model",
        path: str | None = None,
        include_paths: Sequence[str | os.PathLike[str]] = (),
    ) -> Program:
        """Read a program from its text.

        With `path`, the file that the text came from, its folder is searched for `#include`d files
        after the include paths. Raises `ProgramError` if it has no parameters, or cannot be read as
        Stan.
        """
        folders = [Path(folder) for folder in include_paths]
        if path is not None:
            folders.append(Path(path).parent)
        text = SourceText.expand(source, path or f"{name}.stan", folders)
        syntax = Syntax(text)
        data = _declarations(syntax, "data")
        parameters = _declarations(syntax, "parameters")
        if not parameters:
            block = syntax.blocks.get("parameters")
            raise syntax.refusal(
                block.keyword if block else 0,
                NO_PARAMETERS,
                "The program has no parameters, so there is nothing to temper.",
                "Declare what is to be sampled in a `parameters` block.",
            )
        return cls(name, path, source, text.text, syntax, data, parameters)

    @property
    def blocks(self) -> Mapping[str, ProgramBlock]:
        """The program's blocks by name, in order."""
        return self.syntax.blocks

    @cached_property
    def source_hash(self) -> str:
        """SHA-256 of the expanded text, in hexadecimal."""
        return hashlib.sha256(self.expanded.encode()).hexdigest()

    @property
    def label(self) -> str:
        """Path of the file, or `name` with the suffix `.stan` if there is no file."""
        return self.path or f"{self.name}.stan"

    @property
    def file_name(self) -> str:
        """Name of the file without folders, in ASCII."""
        return re.sub(r"[^ -~]", "?", Path(self.label).name)

    @property
    def data_names(self) -> tuple[str, ...]:
        """Names of the data block's variables, in order."""
        return tuple(variable.name for variable in self.data)

    @property
    def parameter_names(self) -> tuple[str, ...]:
        """Names of the parameters, in order."""
        return tuple(variable.name for variable in self.parameters)

    @cached_property
    def parameter_types(self) -> Mapping[str, TypeSpec]:
        """Types of the parameters by name, in order."""
        return {variable.name: variable.spec for variable in self.parameters}

    @cached_property
    def fixed_names(self) -> frozenset[str]:
        """Names of data and transformed data."""
        return frozenset((*self.data_names, *self._declared("transformed data")))

    @cached_property
    def variable_names(self) -> frozenset[str]:
        """Names of parameters and transformed parameters."""
        return frozenset((*self.parameter_names, *self._declared("transformed parameters")))

    @cached_property
    def derived_names(self) -> frozenset[str]:
        """Names of the transformed parameters and the generated quantities."""
        blocks = ("transformed parameters", "generated quantities")
        return frozenset(name for block in blocks for name in self._declared(block))

    def _declared(self, name: str) -> Iterator[str]:
        """Yield the names that a block declares for all of it."""
        return (self.syntax.word(token) for _, token in self.syntax.declarations(name))

    @cached_property
    def functions(self) -> Mapping[str, Sequence[Function]]:
        """The functions of the functions block by name; those of one name differ in arguments."""
        found = dict[str, list[Function]]()
        for function in self.syntax.functions:
            found.setdefault(self.syntax.word(function.name), []).append(function)
        return found

    def defines(self, family: str) -> bool:
        """Return whether a function of the program is a density or a mass function of a family."""
        return any(family + ending in self.functions for ending in ("_lpdf", "_lpmf"))

    def calling(self, is_meant: Callable[[Function], bool]) -> frozenset[str]:
        """Return the functions that are meant, and those that call them, directly or not."""
        found, before = set[str](), -1
        while before < len(found):
            before = len(found)
            for name, several in self.functions.items():
                called = (found.intersection(self.syntax.names(one.body.tokens)) for one in several)
                if any(map(is_meant, several)) or any(called):
                    found.add(name)
        return frozenset(found)

    def variates_in(self, function: Function, is_density: Callable[[str], bool]) -> set[str]:
        """Return the words that stand in the variate of a density in a function's body."""
        syntax, body = self.syntax, function.body
        ranges = [one.variate for one in walk([body]) if isinstance(one, Tilde)]
        for token in syntax.calls(body.tokens, is_density):
            ranges.append(syntax.conditioned(syntax.inside(token + 1))[0])
        return {word for tokens in ranges for word in syntax.words(tokens)}

    def statements(self, *blocks: str) -> Iterator[Statement]:
        """Yield every statement of these blocks, also those inside of others."""
        for name in blocks:
            yield from walk(self.syntax.statements(name))

    def parameter_declarations(self) -> Iterator[tuple[Declare, int, TypeSpec]]:
        """Yield the statement, the token of the name, and the type of each parameter."""
        for statement, name in self.syntax.declarations("parameters"):
            yield statement, name, statement.type


def _declarations(syntax: Syntax, block_name: str) -> tuple[Declaration, ...]:
    declarations: list[Declaration] = []
    for statement in syntax.statements(block_name):
        if isinstance(statement, Simple) and not statement.word:
            continue
        if not isinstance(statement, Declare):
            told = f"The `{block_name}` block holds a statement; it takes declarations only."
            raise syntax.error(statement.tokens.first, told)
        spec = statement.type
        for name, value in statement.names:
            if value is not None:
                raise syntax.error(
                    name,
                    f"`{syntax.word(name)}` is given a value in the `{block_name}` block.",
                    f"Move it to `transformed {block_name}`.",
                )
            place = syntax.source.place(syntax.start(name))
            declarations.append(
                Declaration(
                    name=syntax.word(name),
                    type=spec.base,
                    array_dims=tuple(syntax.text(size) for size in spec.array),
                    dims=tuple(syntax.text(size) for size in spec.dims),
                    constraints={k: syntax.text(v) for k, v in spec.constraints.items()},
                    line=place.line,
                    column=place.column,
                    path=place.path,
                    spec=spec,
                )
            )
    return tuple(declarations)

"""The program of a path between two models: it holds the densities of both.

The two programs have the same parameters. With log p_1 of the full one and log p_0 of the base,
the joined program adds log p_0 as its prior and log p_1 − log p_0 as its likelihood, so that the
likelihood to the power β leads from p_0 to p_1. Yao, Cademartori, Vehtari & Gelman (2020) write
such paths into one program by hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from stanct.common.errors import ProgramError, first_few
from stanct.stan.checks import make_local
from stanct.stan.constraints import ParameterWriter
from stanct.stan.program import Declaration, Ends, Program
from stanct.stan.render import block_text, comment_before, library, render
from stanct.stan.rewrite import Edit, Rewriter, edited
from stanct.stan.shapes import Shapes
from stanct.stan.syntax import free_prefix, walk

_ANNOTATION = re.compile(r"[ \t]*//[ \t]*stanct[ \t]*:[^\r\n]*")
_DENSITY = re.compile(r"_l(?:u?p[dm]f|c?cdf|p)$")
_OUR, _BASE = "path_", "base_"


def between(full: Program, base: Program, *, apart: bool = False) -> Program:
    """Join two programs to the one whose path leads from the base to the full program.

    With `apart`, the base has data of its own, whose names then begin with ``base_``, but for those
    on which sizes and bounds of parameters depend.

    Raises
    ------
    ProgramError
        The parameters differ, one name stands for two things, or a program adds to the target
        otherwise than in the statements of its model block.
    """
    for program in (full, base):
        _refuse_hidden_terms(program)
    _check_parameters(full, base)
    shared = _sizes(full)
    _check_sizes(full, base, shared)
    names = {name: name for name in base.data_names}
    if apart:
        prefix = free_prefix(_BASE, full.syntax, base.syntax)
        names = {name: name if name in shared else prefix + name for name in names}
    else:
        _check_data(full, base)
    renamed = _renamed(base, full, names)
    ends = Ends(full, base, names)
    text = _joined(full, renamed, ends)
    name = f"{full.name}_from_{base.name}"
    return replace(Program.from_source(text, name=name), ends=ends)


def record_of(ends: Ends | None) -> dict[str, Any] | None:
    """Texts from which `recorded` makes the joined program again; None for any other program."""
    if ends is None:
        return None
    texts = [
        {"program": one.expanded, "name": one.name, "path": one.path}
        for one in (ends.full, ends.base)
    ]
    return {"full": texts[0], "base": texts[1], "apart": ends.apart}


def recorded(record: Mapping[str, Any]) -> Program:
    """The joined program that `record_of` describes."""
    # Without the path, so that no `#include` that someone wrote there finds a file.
    full, base = (
        replace(Program.from_source(one["program"], name=one["name"]), path=one["path"])
        for one in (record["full"], record["base"])
    )
    return between(full, base, apart=record["apart"])


# What is compared


def _refuse_hidden_terms(program: Program) -> None:
    """Refuse terms of the target that are no statements of the model block."""
    syntax = program.syntax
    hidden = syntax.block_range("transformed parameters")
    for token in range(syntax.block_range("functions").stop, len(syntax.tokens)):
        word = syntax.word(token)
        called = syntax.word(token + 1) == "("
        if (called and (word == "target" or word.endswith(("_lp", "_jacobian")))) or (
            word in ("target", "jacobian")
            and syntax.word(token + 1) == "+="
            and hidden.first <= token < hidden.stop
        ):
            raise syntax.refusal(
                token,
                f"`{word}` on a path between two programs",
                f"A path between two programs cannot tell to which of them `{word}` adds.",
                "Write its terms as statements of the model block.",
            )


def _check_parameters(full: Program, base: Program) -> None:
    """Refuse parameters that differ in name, type, size or bounds."""
    for one, other in ((full, base), (base, full)):
        for missing in one.parameters:
            if missing.name not in other.parameter_names:
                raise missing.error(
                    f"`{missing.name}` is a parameter of {one.label} and not of {other.label}.",
                    "A path between two programs needs the same parameters in both. Declare it in "
                    f"{other.label}, too, with a proper prior, which leaves the evidence of that "
                    "program as it is.",
                )
    theirs = {one.name: one for one in base.parameters}
    for mine in full.parameters:
        if _kind(mine) != _kind(theirs[mine.name]):
            raise _differ(mine, full, base, "parameter", "Declare it alike in both.")


def _check_data(full: Program, base: Program) -> None:
    """Refuse one name for two things among data that both programs take from one file."""
    mine = {one.name: one for one in full.data}
    declared = set(_declared(full)) - set(mine)
    for theirs in base.data:
        if theirs.name in mine and _type(theirs) != _type(mine[theirs.name]):
            raise _differ(
                mine[theirs.name], full, base, "variable of the data",
                "Declare it alike in both, or pass the base's own data as base_data=.",
            )  # fmt: skip
        if theirs.name in declared:
            raise theirs.error(
                f"`{theirs.name}` is a variable of the data here, and something else in "
                f"{full.label}.",
                "Rename one of them, or pass the base's own data as base_data=.",
            )


def _check_sizes(full: Program, base: Program, shared: frozenset[str]) -> None:
    """Refuse sizes and bounds of parameters by transformed data that may differ."""
    made = [_of_statements(one, one.syntax.statements("transformed data")) for one in (full, base)]
    own = shared & {name for names in made for name in names}
    texts = [one.syntax.words(one.syntax.block_range("transformed data")) for one in (full, base)]
    if own and texts[0] != texts[1]:
        raise ProgramError(
            f"Parameters depend on {first_few([f'`{name}`' for name in sorted(own)])}, which "
            f"{full.label} and {base.label} compute by different transformed data.",
            path=full.path,
            remedy="Make the blocks `transformed data` alike, or pass these numbers as data.",
        )


def _differ(
    mine: Declaration, full: Program, base: Program, what: str, remedy: str
) -> ProgramError:
    told = f"The {what} `{mine.name}` is declared in another way in {base.label} than in"
    return mine.error(f"{told} {full.label}.", remedy)


def _kind(one: Declaration) -> tuple[object, ...]:
    """Type, sizes and bounds of a parameter; offset and multiplier change no density of it."""
    bounds = {k: _bare(v) for k, v in one.constraints.items() if k in ("lower", "upper")}
    return *_type(one), bounds


def _type(one: Declaration) -> tuple[object, ...]:
    sizes = tuple(map(_bare, (*one.array_dims, "|", *one.dims)))
    return one.type, sizes


def _bare(text: str) -> str:
    return re.sub(r"\s+", "", text)


def _sizes(program: Program) -> frozenset[str]:
    """Names on which the declarations of parameters depend."""
    found = (
        text
        for one in program.parameters
        for text in (*one.array_dims, *one.dims, *one.constraints.values())
    )
    return frozenset(re.findall(r"[A-Za-z]\w*", " ".join(found)))


# What is renamed


def _declared(program: Program) -> Iterator[str]:
    """Names that a program declares anywhere, those of its functions by their stem."""
    for block in program.blocks.values():
        for function in block.functions:
            yield _stem(program.syntax.word(function.name))
            yield from (program.syntax.word(name) for _, name in function.arguments)
            yield from _of_statements(program, [function.body])
        yield from _of_statements(program, block.statements)


def _of_statements(program: Program, statements: Iterable[Any]) -> Iterator[str]:
    for statement in walk(list(statements)):
        yield from program.syntax.declared(statement)


def _renamed(base: Program, full: Program, data: Mapping[str, str]) -> Program:
    """The base without functions that both have, and with names of its own for what differs."""
    texts = [full.syntax.words(one.tokens) for one in full.syntax.functions]
    twins = [one for one in base.syntax.functions if base.syntax.words(one.tokens) in texts]
    shared = {_stem(base.syntax.word(one.name)) for one in twins}
    base = edited(base, [Edit(*base.syntax.span(one.tokens), "") for one in twins])
    words = {_stem(token.text) for token in full.syntax.tokens if token.kind == "name"}
    kept = {*base.data_names, *base.parameter_names, *shared}
    prefix = free_prefix(_BASE, full.syntax, base.syntax)
    new = {name: prefix + name for name in set(_declared(base)) - kept if name in words}
    new |= {name: other for name, other in data.items() if other != name}
    edits: list[Edit] = []
    for token in base.syntax.tokens:
        stem = _stem(token.text)
        if token.kind == "name" and stem in new:
            edits.append(Edit(token.start, token.start + len(stem), new[stem]))
    return edited(base, edits)


def _stem(name: str) -> str:
    """A name without the ending by which Stan calls a density."""
    return _DENSITY.sub("", name)


# What is written


def _joined(full: Program, base: Program, ends: Ends) -> str:
    """The text of the joined program; names of `base` are those of no other thing in `full`."""
    prefix = free_prefix(_OUR, full.syntax, base.syntax)
    mine, theirs = (_rewriter(one, prefix, end) for one, end in ((full, "full"), (base, "base")))
    writer = ParameterWriter(base.syntax, theirs.shapes, theirs.shapes.globals(), prefix)
    checks = make_local(theirs, writer)
    used = mine.functions | theirs.functions | writer.functions
    data = [one for one in base.data if one.name not in full.data_names]
    kinds = ("parameters", "transformed parameters", "generated quantities")
    return render(
        "between.stan.jinja",
        full,
        prefix,
        comment=comment_before(full, next(iter(full.blocks))),
        full=ends.full.file_name,
        base=ends.base.file_name,
        functions=_lines(library(used, prefix), *_both(mine, theirs, "functions")),
        data=_lines(block_text(mine, "data"), _declarations(base, data)),
        transformed_data=_lines(*_both(mine, theirs, "transformed data")),
        **{kind.replace(" ", "_"): block_text(mine, kind) for kind in kinds},
        full_model=block_text(mine, "model", 4),
        base_transformed=block_text(theirs, "transformed parameters", 4),
        checks=checks,
        base_model=block_text(theirs, "model", 4),
    )


def _both(mine: Rewriter, theirs: Rewriter, block: str) -> tuple[str, str]:
    return block_text(mine, block), block_text(theirs, block)


def _lines(*parts: str) -> str:
    return "\n".join(part for part in parts if part.strip())


def _rewriter(program: Program, prefix: str, end: str) -> Rewriter:
    rewriter = Rewriter(program, prefix, Shapes(program.syntax))
    rewriter.normalise_names()
    rewriter.model(f"{prefix}log_{end}")
    # In the joined program, one statement of each end is prior or likelihood.
    for found in _ANNOTATION.finditer(program.expanded):
        rewriter.word_edits.append(Edit(found.start(), found.end(), ""))
    return rewriter


def _declarations(program: Program, wanted: Iterable[Declaration]) -> str:
    """The lines that declare these variables of the data."""
    return "\n".join(f"  {one.written(program.syntax)} {one.name};" for one in wanted)

"""From a `Program` and a kind to the text of a tempered Stan program.

Python computes names, sizes and decisions; the templates in `templates/` choose and repeat. No
compiler runs here and no file is written.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stanct.constraints import ParameterWriter, plus
from stanct.errors import ProgramError, StanctError
from stanct.program import Program
from stanct.resources import resource_folder
from stanct.rewrite import Edit, Rewriter
from stanct.shapes import Shapes
from stanct.syntax import Increment

KINDS = ("density", "joint")
"""The kinds of program that `generate` writes."""

_OUR_NAME = re.compile(r"\bct_(?=\w)")
_LIBRARY_CALL = re.compile(r"\bct_(\w+)\(")


def generate(program: Program, kind: str, *, prefix: str = "ct_") -> str:
    """Write a tempered program.

    Parameters
    ----------
    program
        The user's program.
    kind
        `"density"`: the user's program with every normalising constant kept, nothing else changed.
        `"joint"`: joint continuous tempering in whitened coordinates; the header of the text
        states its density, its `data` block what it needs.
    prefix
        With which every name of ours begins.

    Returns
    -------
    str
        Stan code for stanc 2.37 or later.

    Raises
    ------
    StanctError
        No such kind, or a prefix that cannot begin a Stan name.
    ProgramError
        The program uses a name with the prefix, or a construct that this kind cannot transform.
    """
    if kind not in KINDS:
        raise StanctError(
            f"There is no kind {kind!r} of generated program.",
            remedy="The kinds are " + ", ".join(map(repr, KINDS)) + ".",
        )
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*_", prefix):
        raise StanctError(
            f"{prefix!r} cannot be the prefix of Stan names.",
            remedy='Pass letters, digits and a final underscore, e.g. prefix="tempered_".',
        )
    _reserve(program, prefix)
    return _density(program, prefix) if kind == "density" else _joint(program, prefix)


def _reserve(program: Program, prefix: str) -> None:
    for token in program.syntax.tokens:
        if token.kind == "name" and token.text.startswith(prefix):
            other = "tempered_" if prefix != "tempered_" else "stanct_"
            raise program.syntax.source.error(
                token.start,
                f"`{token.text}` uses the reserved prefix `{prefix}`.",
                f'Rename it, or pass prefix="{other}".',
            )


def _density(program: Program, prefix: str) -> str:
    rewriter = Rewriter(program, prefix, Shapes(program.syntax))
    rewriter.normalise_names()
    rewriter.keep_constants()
    rewriter.model("target")
    library = _library(rewriter.functions, prefix)
    functions = program.blocks.get("functions")
    if library and functions:
        place = program.syntax.tokens[functions.opening].end
        rewriter.edits.append(Edit(place, place, "\n" + library))
        library = ""
    return _render(
        "density.stan.jinja",
        program,
        prefix,
        library=library,
        code=rewriter.text().rstrip(),
    )


def _joint(program: Program, prefix: str) -> str:
    shapes = Shapes(program.syntax)
    rewriter = Rewriter(program, prefix, shapes)
    rewriter.normalise_names()
    rewriter.keep_constants()
    rewriter.model(f"{prefix}log_p")
    extra_target = _adjust_target(rewriter)
    writer = ParameterWriter(program.syntax, shapes, shapes.globals(), prefix)
    fills: list[str] = []
    sizes: list[tuple[str, str]] = []
    for statement, name, spec in program.parameter_declarations():
        fills += writer.write(program.syntax.word(name), name, spec)
        sizes.append((program.syntax.word(name), writer.size(spec)))
        first, last = spec.base_range.first, spec.base_range.stop - 1
        tokens = program.syntax.tokens
        if name == statement.names[0][0]:
            plain = writer.unconstrained_type(spec)
            rewriter.edits.append(Edit(tokens[first].start, tokens[last].end, plain))
    used = rewriter.functions | writer.functions
    return _render(
        "joint.stan.jinja",
        program,
        prefix,
        transforms=_library(used, prefix),
        tempering=_library({"bias_value", "log_mass"}, prefix),
        functions=_block(rewriter, "functions"),
        data=_block(rewriter, "data"),
        transformed_data=_block(rewriter, "transformed data"),
        parameters=_block(rewriter, "parameters"),
        transformed_parameters=_block(rewriter, "transformed parameters"),
        model=_block(rewriter, "model", 4),
        generated_quantities=_block(rewriter, "generated quantities"),
        comment=_comment_before(program, next(iter(program.blocks))),
        starts=_starts(sizes, prefix),
        fills=fills,
        extra_target=extra_target,
    )


def _starts(sizes: Sequence[tuple[str, str]], prefix: str) -> list[tuple[str, str]]:
    """Name where each parameter begins; the last entry is one past the end."""
    starts, behind = list[tuple[str, str]](), "1"
    for name, size in sizes:
        starts.append((f"{prefix}at_{name}", behind))
        behind = plus(f"{prefix}at_{name}", size)
    return [*starts, (f"{prefix}end", behind)]


def _adjust_target(rewriter: Rewriter) -> bool:
    """Handle what reads or moves the target behind our back.

    Returns whether user functions ending in `_lp` add to Stan's own target, which the joint
    program then has to collect.
    """
    program, prefix = rewriter.program, rewriter.prefix
    syntax = program.syntax
    adds = False
    functions = program.blocks.get("functions")
    functions_end = functions.closing if functions else -1
    for index, token in enumerate(syntax.tokens):
        if token.kind != "name" or syntax.word(index + 1) not in ("(", "+="):
            continue
        if index < functions_end:
            if token.text == "target" and syntax.word(index + 1) == "(":
                raise _cannot(rewriter, index, "`target()` read inside a function")
            continue
        if token.text.endswith("_jacobian"):
            raise _cannot(rewriter, index, f"the call of `{token.text}`")
        if token.text.endswith("_lp"):
            adds = True
    own = f"({prefix}log_jacobian + {prefix}log_p" + (" + target())" if adds else ")")
    for index, token in enumerate(syntax.tokens):
        if index > functions_end and token.text == "target" and syntax.word(index + 1) == "(":
            if index < _first_token(program, "model"):
                raise _cannot(rewriter, index, "`target()` read outside of the model block")
            end = syntax.tokens[index + 2].end
            rewriter.word_edits.append(Edit(token.start, end, own))
    _redirect_jacobian(rewriter)
    return adds


def _redirect_jacobian(rewriter: Rewriter) -> None:
    block = rewriter.program.blocks.get("transformed parameters")
    scope = rewriter.shapes.globals()
    for statement, seen in rewriter.shapes.walk(block.statements if block else (), scope):
        if isinstance(statement, Increment):
            rewriter.redirect(statement, seen, f"{rewriter.prefix}log_jacobian")


def _first_token(program: Program, block_name: str) -> int:
    block = program.blocks.get(block_name)
    return block.opening if block else len(program.syntax.tokens)


def _cannot(rewriter: Rewriter, token: int, what: str) -> ProgramError:
    syntax = rewriter.program.syntax
    return syntax.source.error(
        syntax.start(token),
        f"The joint program cannot express {what}.",
        'Use kind="density", which keeps it as it is.',
    )


def _library(functions: Iterable[str], prefix: str) -> str:
    """Return the library functions of these names and all that they call, callees first."""
    ordered: list[str] = []

    def add(name: str) -> None:
        if name not in ordered:
            for callee in _callees(name):
                add(callee)
            ordered.append(name)

    for name in sorted(functions):
        add(name)
    texts = [_function_text(name) for name in ordered]
    # A comment introduces a function; overloads and log Jacobians follow without one.
    parts = [f"\n{text}" if text.startswith("//") else text for text in texts]
    text = _OUR_NAME.sub(prefix, "".join(parts)).lstrip("\n")
    return "\n".join("  " + line if line else line for line in text.rstrip().split("\n"))


@cache
def _function_text(name: str) -> str:
    file = resource_folder("templates") / "functions" / f"{name}.stanfunctions"
    return file.read_text(encoding="utf-8")


@cache
def _callees(name: str) -> tuple[str, ...]:
    called = _LIBRARY_CALL.findall(_function_text(name))
    return tuple(dict.fromkeys(callee for callee in called if callee != name))


def _block(rewriter: Rewriter, name: str, indent: int = 2) -> str:
    """Return a block's inside as whole lines, shifted right where they stand left of `indent`.

    A comment between the blocks comes first; that in front of the first block is the header's.
    """
    program = rewriter.program
    if name not in program.blocks:
        return ""
    lines = rewriter.inside(name).split("\n")
    if lines[0].strip():
        # Code behind the opening brace has lost its line's indentation.
        margin = next((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), 0)
        lines[0] = " " * margin + lines[0].strip()
    lead = _comment_before(program, name) if name != next(iter(program.blocks)) else ""
    return "\n".join(_shifted(lead.split("\n"), indent) + _shifted(lines, indent))


def _shifted(lines: list[str], indent: int) -> list[str]:
    """Drop blank lines at both ends, and shift the rest right as far as `indent`."""
    lines = [line.rstrip() for line in lines]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    shift = indent - min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return [" " * max(shift, 0) + line if line else line for line in lines]


def _comment_before(program: Program, block_name: str) -> str:
    """Return the comments between the block before and this one."""
    keyword = program.blocks[block_name].keyword
    tokens = program.syntax.tokens
    start = tokens[keyword - 1].end if keyword else 0
    return program.expanded[start : tokens[keyword].start].strip()


@cache
def _environment() -> Environment:
    return Environment(
        loader=FileSystemLoader(resource_folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def _render(template: str, program: Program, prefix: str, **values: object) -> str:
    from stanct import __version__

    file_name = re.sub(r"[^ -~]", "?", Path(program.label).name)
    return (
        _environment()
        .get_template(template)
        .render(ct=prefix, version=__version__, file_name=file_name, program=program, **values)
    )

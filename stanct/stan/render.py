"""Assembly of generated programs from templates, the Stan library and the user's blocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from itertools import accumulate, pairwise, takewhile

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from stanct.common.resources import resource_folder
from stanct.common.version import __version__
from stanct.stan.constraints import WIDTH
from stanct.stan.nodes import Declare
from stanct.stan.program import Program
from stanct.stan.rewrite import Rewriter

# What adds a density to a sum.
_ADDED = re.compile(r"(\s*\w+ \+= (\w+_lp[dm]f)\()([^;]*)(\);)")
_LONG_NAME = 17  # of a function whose arguments stanc does not align with its parenthesis
_OUR_NAME = re.compile(r"\bct_(?=\w)")
_FAMILY = re.compile(r"(_vectors?|_each)?(_lj)?$")
_LIBRARY_CALL = re.compile(r"\bct_(\w+)\(")


def library(functions: Iterable[str], prefix: str) -> str:
    """Return the text of library functions and of all functions that they call, callees first.

    Functions of one family, such as `lower_bound`, `lower_bound_lj` and `lower_bound_vector`, are
    grouped under the comment of the family.
    """
    families: dict[str, list[str]] = {}
    for name in sorted(_with_callees(functions)):
        families.setdefault(_FAMILY.sub("", name), []).append(name)
    ordered: list[str] = []

    def add(family: str) -> None:
        if family not in ordered:
            for name in families[family]:
                for callee in _callees(name):
                    if _FAMILY.sub("", callee) != family:
                        add(_FAMILY.sub("", callee))
            ordered.append(family)

    for family in families:
        add(family)
    parts: list[str] = []
    for family in ordered:
        texts = [_function_text(name) for name in families[family]]
        comment = _family_comment(family)
        if comment and not texts[0].startswith("//"):
            parts.append(f"\n{comment}")
        # A function with a comment of its own is separated by a blank line.
        parts += [f"\n{text}" if text.startswith("//") else text for text in texts]
    text = _OUR_NAME.sub(prefix, "".join(parts)).lstrip("\n")
    return "\n".join("  " + line if line else line for line in text.rstrip().split("\n"))


def _with_callees(functions: Iterable[str]) -> set[str]:
    found = set[str]()
    waiting = list(functions)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += _callees(name)
    return found


def _family_comment(family: str) -> str:
    """Return the leading comment in the file that bears a family's name, if there is one."""
    file = resource_folder("templates") / "functions" / f"{family}.stanfunctions"
    lines = file.read_text(encoding="utf-8").split("\n") if file.is_file() else []
    comment = list(takewhile(lambda line: line.startswith("//"), lines))
    return "".join(f"{line}\n" for line in comment)


@cache
def _function_text(name: str) -> str:
    file = resource_folder("templates") / "functions" / f"{name}.stanfunctions"
    return file.read_text(encoding="utf-8")


@cache
def _callees(name: str) -> tuple[str, ...]:
    called = _LIBRARY_CALL.findall(_function_text(name))
    return tuple(dict.fromkeys(callee for callee in called if callee != name))


def block_text(rewriter: Rewriter, name: str, indent: int = 2) -> str:
    """Return the body of a block as whole lines, indented by at least `indent`.

    A comment before the block comes first. The comment before the first block belongs to the
    header.
    """
    program = rewriter.program
    if name not in program.blocks:
        return ""
    lines = rewriter.inside(name).split("\n")
    if lines[0].strip():
        # Code after the opening brace has lost its line's indentation.
        margin = next((len(line) - len(line.lstrip()) for line in lines[1:] if line.strip()), 0)
        lines[0] = " " * margin + lines[0].strip()
    lead = comment_before(program, name) if name != next(iter(program.blocks)) else ""
    shifted = [part for line in _shifted(lines, indent) for part in folded(line)]
    return "\n".join(_shifted(lead.split("\n"), indent) + shifted)


def model_text(rewriter: Rewriter, indent: int = 2) -> str:
    """Return the body of the model block, in braces if it declares variables."""
    model = rewriter.program.syntax.statements("model")
    if not (rewriter.declares or any(isinstance(one, Declare) for one in model)):
        return block_text(rewriter, "model", indent)
    margin = " " * indent
    return f"{margin}{{\n{block_text(rewriter, 'model', indent + 2)}\n{margin}}}"


def _shifted(lines: list[str], indent: int) -> list[str]:
    """Drop blank lines at both ends, and indent the rest by at least `indent`."""
    lines = [line.rstrip() for line in lines]
    while lines and not lines[0]:
        del lines[0]
    while lines and not lines[-1]:
        del lines[-1]
    shift = indent - min((len(line) - len(line.lstrip()) for line in lines if line), default=0)
    return [" " * max(shift, 0) + line if line else line for line in lines]


def folded(line: str) -> list[str]:
    """Break a call that is added to a sum, where it is longer than the lines of stanc's layout."""
    found = _ADDED.fullmatch(line)
    if len(line) <= WIDTH or found is None:
        return [line]
    head, name, inside, behind = found.groups()
    depths = accumulate((c in "([{") - (c in ")]}") for c in inside)
    ends = [k + 1 for k, d in enumerate(depths) if d == 0 and inside[k : k + 2] in ("| ", ", ")]
    pieces = [inside[a:b].strip() for a, b in pairwise([0, *ends, len(inside)])]
    margin = len(head) if len(name) < _LONG_NAME else head.index("=") + 4
    lines = [head + pieces[0]]
    for piece in pieces[1:]:
        if len(lines[-1]) + 1 + len(piece) + 2 * (piece is pieces[-1]) <= WIDTH:
            lines[-1] += f" {piece}"
        else:
            lines.append(" " * margin + piece)
    lines[-1] += behind
    return lines if max(map(len, lines)) <= WIDTH else [line]


def comment_before(program: Program, block_name: str) -> str:
    """Return the comments between the previous block and this one."""
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


def render(template: str, program: Program, prefix: str, **values: object) -> str:
    """Render a template. It inserts `values` and never parses them as a template."""
    return (
        _environment()
        .get_template(template)
        .render(ct=prefix, version=__version__, program=program, **values)
    )


def render_export(name: str, values: Mapping[str, object]) -> str:
    """Render a file that goes with an exported program, such as `run.py`."""
    template = _environment().get_template(f"export/{name}.jinja")
    return template.render(version=__version__, **values)

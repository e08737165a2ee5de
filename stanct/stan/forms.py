"""All forms of a program's hierarchies: which there are, and the program in any of them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from stanct.stan.centring import centred, written_by_hand
from stanct.stan.hierarchies import hierarchies, non_centred
from stanct.stan.program import Program
from stanct.stan.reader import Parts
from stanct.stan.rewrite import Edit, edited
from stanct.stan.syntax import free_prefix

_LOOK = "look_"


@dataclass(frozen=True)
class Block:
    """A parameter of the user's that can be sampled in two forms.

    `values` is the variable whose elements have location and scale: the parameter itself in its
    centred form, and what it defines in its non-centred one. `centred` says which of them the user
    wrote.
    """

    name: str
    values: str
    centred: bool
    parts: Parts | None = field(repr=False)


def blocks(program: Program) -> tuple[Block, ...]:
    """Every parameter of a program as written that can be sampled in two forms."""
    return (
        *(Block(one.name, one.name, True, one.parts) for one in hierarchies(program)),
        *(Block(one.raw, one.name, False, one.parts) for one in written_by_hand(program)),
    )


def in_form(program: Program, turned: Collection[str]) -> Program:
    """The program with these parameters in the other form than the one that the user wrote."""
    if not turned:
        return program
    mine = [one.name for one in blocks(program) if one.name in turned and one.centred]
    return non_centred(centred(program, [name for name in turned if name not in mine]), mine)


def looking(program: Program, seen: tuple[Block, ...]) -> Program:
    """A form of a program whose generated quantities are location and scale of every element.

    Their names are those of `look_names`.
    """
    prefix = free_prefix(_LOOK, program.syntax)
    lines = [
        line
        for number, block in enumerate(seen)
        if block.parts is not None
        for line in block.parts.lines(*look_names(program, number), f"{prefix}i")
    ]
    text = "".join(f"  {line}\n" for line in lines)
    tokens, block = program.syntax.tokens, program.blocks.get("generated quantities")
    if block is None:
        end = len(program.expanded)
        edit = Edit(end, end, f"\ngenerated quantities {{\n{text}}}\n")
    else:
        edit = Edit(tokens[block.opening].end, tokens[block.closing].start, f"\n{text}")
    return edited(program, [edit])


def look_names(program: Program, number: int) -> tuple[str, str]:
    """Names of location and scale of one block, which no form of the program uses."""
    prefix = f"{free_prefix(_LOOK, program.syntax)}{number}_"
    return f"{prefix}location", f"{prefix}scale"

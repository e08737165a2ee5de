"""Generation of the text of a tempered Stan program from a `Program` and a kind.

Python computes names, sizes and decisions. The templates in `templates/` contain only conditions
and loops. No compiler runs here and no file is written.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from stanct.common.errors import StanctError
from stanct.common.names import KINDS
from stanct.common.settings import listing
from stanct.stan.prior_likelihood import prior_likelihood, weighted
from stanct.stan.program import Program
from stanct.stan.render import folded, library, render
from stanct.stan.rewrite import Edit, Rewriter
from stanct.stan.shapes import Shapes
from stanct.stan.whitened import extended_hamiltonian, joint, pseudo_extended

BETWEEN = ("density", "prior_likelihood", "weighted")
"""Kinds of generated program on a path between two programs."""


def generate(
    program: Program,
    kind: str,
    *,
    prefix: str = "ct_",
    fixed: bool = False,
    powers: bool = False,
    summed: bool = False,
) -> str:
    """Write a tempered program.

    Parameters
    ----------
    program
        The user's program.
    kind
        `"density"`: the user's program with every normalising constant kept and no other change.
        `"joint"`: joint continuous tempering in whitened coordinates.
        `"pseudo_extended"`: N copies of the whitened coordinates, each with its own inverse
        temperature.
        `"prior_likelihood"`: the user's parameters block, with only the likelihood tempered; the
        path of a program that joins two (`stanct.stan.between`).
        `"extended_hamiltonian"`: the whitened coordinates and a tempering variable ξ that moves
        between walls. β(ξ) is 1 on a plateau, and there is no base density.
        `"weighted"`: the likelihood raised to a weight that is passed as data, for mini-batches.
        The header of each generated program states its density. Its `data` block declares the
        inputs.
    prefix
        Prefix of every name that stanct adds to the program.
    fixed, powers
        Of `"pseudo_extended"`: whether the inverse temperatures are data, and not estimated; and
        whether copies follow powers of the target, and not the path from a base.
    summed
        Of `"prior_likelihood"`: whether a variable, `log_prior` after the prefix, has the sum of
        the prior in any case.

    Returns
    -------
    str
        Stan code for stanc 2.37 or later.

    Raises
    ------
    StanctError
        The kind does not exist, or the prefix cannot begin a Stan name.
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
    if program.ends is not None and kind not in BETWEEN:
        raise StanctError(
            f"A path between two programs has no program of the kind {kind!r}.",
            remedy=f"Its kinds are {listing(map(repr, BETWEEN))}. For {kind!r}, leave out base=.",
        )
    _reserve(program, prefix)
    if kind == "pseudo_extended":
        return pseudo_extended(program, prefix, fixed=fixed, powers=powers)
    if kind == "prior_likelihood":
        return prior_likelihood(program, prefix, summed=summed)
    return _WRITERS[kind](program, prefix)


def usual_kind(program: Program) -> str:
    """The kind of generated program where none is named."""
    return "joint" if program.ends is None else "prior_likelihood"


def _reserve(program: Program, prefix: str) -> None:
    for token in program.syntax.tokens:
        if token.kind == "name" and token.text.startswith(prefix):
            other = "tempered_" if prefix != "tempered_" else "stanct_"
            raise program.syntax.source.refusal(
                token.start,
                "a name with the reserved prefix",
                f"`{token.text}` uses the reserved prefix `{prefix}`.",
                f'Rename it, or pass prefix="{other}".',
            )


def _density(program: Program, prefix: str) -> str:
    rewriter = Rewriter(program, prefix, Shapes(program.syntax))
    rewriter.normalise_names()
    rewriter.keep_constants()
    rewriter.model("target")
    helpers = library(rewriter.functions, prefix)
    functions = program.blocks.get("functions")
    if helpers and functions:
        place = program.syntax.tokens[functions.opening].end
        rewriter.edits.append(Edit(place, place, f"\n{helpers}\n"))
        helpers = ""
    own = set(program.expanded.split("\n"))
    lines = [
        part
        for line in rewriter.text().strip("\n").split("\n")
        for part in ([line] if line in own else folded(line))
    ]
    return render(
        "density.stan.jinja", program, prefix, library=helpers, code="\n".join(lines).rstrip()
    )


_WRITERS: Mapping[str, Callable[[Program, str], str]] = {
    "density": _density,
    "joint": joint,
    "pseudo_extended": pseudo_extended,
    "prior_likelihood": prior_likelihood,
    "extended_hamiltonian": extended_hamiltonian,
    "weighted": weighted,
}

"""Calls that read Stan's target, or add to it outside of the accumulators, and those of solvers.

In a generated program the model's terms go to accumulators, so Stan's target holds only the terms
that user-defined functions ending in `_lp` add. `target()` must keep the value that it has in the
user's program.
"""

from __future__ import annotations

from collections.abc import Mapping

from stanct.stan.nodes import Range
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit, Rewriter

SOLVERS = frozenset(
    {f"ode_{way}{tol}" for way in ("rk45", "bdf", "adams", "ckrk") for tol in ("", "_tol")}
    | {"integrate_ode", "integrate_ode_rk45", "integrate_ode_bdf", "integrate_ode_adams"}
    | {"ode_adjoint_tol_ctl", "dae", "dae_tol", "algebra_solver", "algebra_solver_newton"}
    | {"solve_newton", "solve_newton_tol", "solve_powell", "solve_powell_tol"}
)
"""Stan's solvers of differential and algebraic equations."""


def calls_of_lp_functions(program: Program) -> bool:
    """Return whether the program's blocks call functions that add to Stan's target."""
    syntax = program.syntax
    behind = Range(syntax.block_range("functions").stop, len(syntax.tokens))
    return bool(syntax.calls(behind, lambda name: name.endswith("_lp")))


def touches_target(program: Program) -> bool:
    """Return whether the model reads the target, or the program calls functions ending in `_lp`."""
    model = program.syntax.block_range("model")
    reads = program.syntax.calls(model, lambda name: name == "target")
    return bool(reads) or calls_of_lp_functions(program)


def redirect_reads(rewriter: Rewriter, added: str, collected: Mapping[str, str]) -> None:
    """Preserve the value of `target()` in the blocks; refuse functions that read it.

    `added` is what Stan's target has besides the accumulators, and `collected` the sum of these by
    block, "0" if there are none.
    """
    syntax = rewriter.program.syntax
    for token in syntax.calls(syntax.block_range("functions"), lambda name: name == "target"):
        raise syntax.refusal(
            token,
            "`target()` read by a function",
            "A function reads the target, of which this kind of program has only a part.",
            "Read `target()` in the model block, and pass its value to the function.",
        )
    for block, total in collected.items():
        own = f"({total} + {added})" if added else f"({total})" if " " in total else total
        reads = syntax.calls(syntax.block_range(block), lambda name: name == "target")
        for token in reads if total != "0" else ():
            start, end = syntax.span(Range(token, token + 3))
            rewriter.word_edits.append(Edit(start, end, own))


def solves_equations(program: Program) -> bool:
    """Whether a program calls one of the `SOLVERS` anywhere.

    The time of such a density depends on the parameters, and may grow without a bound far away: a
    rate of decay of exp(15) makes an explicit solver a hundred thousand times slower than one of 1.
    """
    everywhere = Range(0, len(program.syntax.tokens))
    return bool(program.syntax.calls(everywhere, SOLVERS.__contains__))

"""Generation of the kinds whose parameters are whitened unconstrained vectors.

These kinds are `joint`, `pseudo_extended` and `extended_hamiltonian`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stanct.stan.checks import make_local
from stanct.stan.constraints import ParameterWriter, plus
from stanct.stan.counts import Counts
from stanct.stan.loops import LoopSums
from stanct.stan.nodes import Declare, Increment, TypeSpec
from stanct.stan.program import Program
from stanct.stan.render import block_text, comment_before, library, model_text, render
from stanct.stan.rewrite import Rewriter
from stanct.stan.shapes import Shapes
from stanct.stan.syntax import walk
from stanct.stan.target_calls import calls_of_lp_functions, redirect_reads, touches_target


def joint(program: Program, prefix: str) -> str:
    """Write the joint program, with one copy of the parameters and one inverse temperature."""
    return _one_copy(program, prefix, "joint.stan.jinja")


def extended_hamiltonian(program: Program, prefix: str) -> str:
    """Write the extended-Hamiltonian program, whose β is 1 on a plateau of ξ."""
    return _one_copy(program, prefix, "extended_hamiltonian.stan.jinja")


def _one_copy(program: Program, prefix: str, template: str) -> str:
    rewriter, writer = _prepare(program, prefix)
    extra_target = _adjust_target(rewriter, "target()")
    values = _common(rewriter, writer)
    return render(
        template,
        program,
        prefix,
        **values,
        tempering=library(rewriter.functions | {"between_knots", "log_mass"}, prefix),
        parameters=block_text(rewriter, "parameters"),
        transformed_parameters=block_text(rewriter, "transformed parameters"),
        model=model_text(rewriter),
        extra_target=extra_target,
    )


def pseudo_extended(
    program: Program, prefix: str, *, fixed: bool = False, powers: bool = False
) -> str:
    """Write the pseudo-extended program, with N copies of the parameters in one loop.

    See `codegen.generate` for `fixed` and `powers`.
    """
    rewriter, writer = _prepare(program, prefix)
    extra_target = _adjust_target(rewriter, f"target() - {prefix}target_before")
    _refuse_repetition(rewriter)
    tempering = set[str]() if powers else {"weighted"}
    if not (powers or fixed):
        tempering |= {"between_knots", "log_mass"}
    chosen = _chosen_copy(rewriter)
    checks = make_local(rewriter, writer)
    values = _common(rewriter, writer)
    without_jacobian = ParameterWriter(
        program.syntax, rewriter.shapes, writer.scope, prefix, jacobian=False
    )
    chosen_fills: list[str] = []
    for (_, name, spec), behind in _with_ends(program, prefix):
        chosen_fills += without_jacobian.write(program.syntax.word(name), name, spec, behind)
    return render(
        "pseudo_extended.stan.jinja",
        program,
        prefix,
        **values,
        tempering=library(rewriter.functions | tempering, prefix),
        fixed=fixed,
        powers=powers,
        parameters=block_text(rewriter, "parameters", 4),
        transformed_parameters=block_text(rewriter, "transformed parameters", 4),
        checks=checks,
        model=block_text(rewriter, "model", 4),
        extra_target=extra_target,
        chosen_parameters=block_text(chosen, "parameters"),
        chosen_fills=chosen_fills,
        chosen_transformed_parameters=block_text(chosen, "transformed parameters"),
    )


def _prepare(program: Program, prefix: str) -> tuple[Rewriter, ParameterWriter]:
    """Make the edits that all these kinds share, except for calls that touch `target()`."""
    shapes = Shapes(program.syntax)
    rewriter = Rewriter(program, prefix, shapes)
    rewriter.normalise_names()
    rewriter.keep_constants()
    rewriter.counts = Counts(program.syntax, shapes, prefix)
    writer = ParameterWriter(program.syntax, shapes, shapes.globals(), prefix)
    if touches_target(program):
        rewriter.model(f"{prefix}log_p")
    else:
        LoopSums(rewriter, sums=True).write(f"{prefix}log_p")
    return rewriter, writer


def _common(rewriter: Rewriter, writer: ParameterWriter) -> dict[str, object]:
    """Write the parameters as functions of the unconstrained vector, and the shared blocks."""
    program, prefix = rewriter.program, rewriter.prefix
    fills: list[str] = []
    # The name and value of each parameter's first index; the last is one past the end.
    starts, start = list[tuple[str, str]](), "1"
    for (statement, name, spec), behind in _with_ends(program, prefix):
        word = program.syntax.word(name)
        fills += writer.write(word, name, spec, behind)
        starts.append((f"{prefix}at_{word}", start))
        start = plus(f"{prefix}at_{word}", writer.size(spec))
        if name == statement.names[0][0]:
            plain = writer.unconstrained_type(spec)
            rewriter.edits.append(rewriter.retyped(spec.base_range, plain))
    return {
        "whitened": True,
        "transforms": library(writer.functions - rewriter.functions, prefix),
        "functions": block_text(rewriter, "functions"),
        "data": block_text(rewriter, "data"),
        "transformed_data": block_text(rewriter, "transformed data"),
        "constants": rewriter.counts.sums if rewriter.counts else {},
        "generated_quantities": block_text(rewriter, "generated quantities"),
        "comment": comment_before(program, next(iter(program.blocks))),
        "starts": [*starts, (f"{prefix}end", start)],
        "fills": fills,
    }


def _chosen_copy(rewriter: Rewriter) -> Rewriter:
    """Return the edits that recompute the transformed parameters without adding to the target."""
    program = rewriter.program
    chosen = Rewriter(program, rewriter.prefix, rewriter.shapes)
    chosen.normalise_names()
    for statement in walk(program.syntax.statements("transformed parameters")):
        if isinstance(statement, Increment):
            chosen.edits.append(chosen.removal(statement))
    return chosen


def _refuse_repetition(rewriter: Rewriter) -> None:
    """Raise an error if generated quantities cannot recompute the transformed parameters."""
    syntax = rewriter.program.syntax
    tokens = syntax.block_range("transformed parameters")
    for token in syntax.calls(tokens, lambda name: name == "target" or name.endswith("_lp")):
        name = syntax.word(token)
        raise syntax.refusal(
            token,
            f"`{'target()' if name == 'target' else '_lp'}` called in transformed parameters",
            f"The pseudo_extended program has to compute the transformed parameters again in "
            f"generated quantities, where Stan forbids the call of `{name}`.",
            "Add its terms in the model block, and compute its value by a plain function.",
        )


def _with_ends(
    program: Program, prefix: str
) -> Iterator[tuple[tuple[Declare, int, TypeSpec], str]]:
    """Pair each parameter with the name of the index after it in the unconstrained vector."""
    declarations = list(program.parameter_declarations())
    starts = [f"{prefix}at_{program.syntax.word(name)}" for _, name, _ in declarations]
    return zip(declarations, [*starts[1:], f"{prefix}end"], strict=False)


def _adjust_target(rewriter: Rewriter, added: str) -> bool:
    """Redirect log Jacobians to an accumulator, and preserve the value of `target()`.

    Returns whether user-defined functions still add to Stan's own target, as `added` says in Stan.
    """
    adds = calls_of_lp_functions(rewriter.program)
    log_jacobian, log_p = f"{rewriter.prefix}log_jacobian", f"{rewriter.prefix}log_p"
    collected = {"transformed parameters": log_jacobian, "model": f"{log_jacobian} + {log_p}"}
    redirect_reads(rewriter, added if adds else "", collected)
    syntax = rewriter.program.syntax
    tokens = syntax.block_range("transformed parameters")
    for call in syntax.calls(tokens, lambda name: name.endswith("_jacobian")):
        raise syntax.refusal(
            call,
            "a call of a `_jacobian` function",
            f"This kind of program cannot weight the log Jacobian that `{syntax.word(call)}` adds.",
            "Write `jacobian +=` in transformed parameters, or declare a parameter with the "
            "constraint, or leave out method= and engine=.",
        )
    statements = syntax.statements("transformed parameters")
    for statement, seen in rewriter.shapes.walk(statements, rewriter.shapes.globals()):
        if isinstance(statement, Increment):
            rewriter.redirect(statement, seen, log_jacobian)
    return adds

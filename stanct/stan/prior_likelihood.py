"""Generation of the kinds that separate the likelihood from the prior.

`prior_likelihood`: the path p(theta) L(theta)^beta from the prior to the posterior.
`weighted`: p(theta) L(theta)^w with the weight w as data, for mini-batches.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from stanct.stan.dependence import Dependence, Term
from stanct.stan.program import Program
from stanct.stan.render import block_text, comment_before, library, model_text, render
from stanct.stan.rewrite import Edit, Rewriter
from stanct.stan.shapes import Scope, Shapes
from stanct.stan.syntax import Declare, Increment, Statement, Tilde, walk
from stanct.stan.target_calls import redirect_reads, touches_target

_CLOSING = re.compile(r"(\n[ \t]*//[^\n]*)+(?=\n[ \t]*\n)")
_INSTEAD = 'use kind="joint", whose base is always proper'


def prior_likelihood(program: Program, prefix: str, *, summed: bool = False) -> str:
    """Write the program in which only the likelihood is tempered.

    The parameters block stays as it is. See `codegen.generate` for `summed`.
    """
    dependence = Dependence(program)
    _refuse(program, dependence)
    _refuse_mixed(program, dependence)
    if program.ends is None:
        _refuse_improper(program, dependence)
    rewriter, prior = _split(program, prefix, dependence, f"{prefix}log_prior"), ""
    collected = summed or program.ends is not None
    alone = [] if collected else _priors_alone(program, dependence)
    if alone:
        likelihood = [one for one in program.syntax.statements("model") if one not in alone]
        priors = _split(program, prefix, dependence, "target")
        priors.edits += _cuts(program, likelihood)
        rewriter.edits += _cuts(program, alone)
        rewriter.functions |= priors.functions
        prior = block_text(priors, "model")
    return render(
        "prior_likelihood.stan.jinja",
        program,
        prefix,
        whitened=False,
        prior=prior,
        model=model_text(rewriter),
        transforms=library(rewriter.functions, prefix),
        tempering=library({"between_knots", "log_mass"}, prefix),
        generated_quantities=block_text(rewriter, "generated quantities"),
        **_blocks(program, rewriter),
    )


def _blocks(program: Program, rewriter: Rewriter) -> dict[str, str]:
    """The blocks that both kinds of program have, and the comment before them."""
    kinds = ("functions", "data", "transformed data", "parameters", "transformed parameters")
    return {
        **{kind.replace(" ", "_"): block_text(rewriter, kind) for kind in kinds},
        "comment": comment_before(program, next(iter(program.blocks))),
    }


def weighted(program: Program, prefix: str) -> str:
    """Write the program with a weighted likelihood, without generated quantities.

    The prior may be improper, because the weights are positive.
    """
    dependence = Dependence(program)
    _refuse(program, dependence)
    _refuse_mixed(program, dependence)
    # A weight on the wrong part would change the posterior.
    for token in dependence.unattributed:
        raise program.syntax.refusal(
            token,
            "a term that may be prior or likelihood",
            "This term depends on data and on parameters, and no density tells which part it is.",
            "Mark it `// stanct: prior` or `// stanct: likelihood` at the end of its line.",
        )
    accumulated = touches_target(program)
    prior = f"{prefix}log_prior" if accumulated else "target"
    rewriter = _split(program, prefix, dependence, prior)
    return render(
        "weighted.stan.jinja",
        program,
        prefix,
        accumulated=accumulated,
        model=block_text(rewriter, "model"),
        transforms=library(rewriter.functions, prefix),
        **_blocks(program, rewriter),
    )


def _priors_alone(program: Program, dependence: Dependence) -> list[Statement]:
    """The statements of the model with all of the prior, if they stand without the others.

    They hold no likelihood, and need no local variable of the model block.
    """
    syntax = program.syntax
    statements = syntax.statements("model")
    local = {
        syntax.word(name) for one in statements if isinstance(one, Declare) for name, _ in one.names
    }
    alone, others = list[Statement](), set[str]()
    for statement in statements:
        parts = {
            term.part
            for one in walk([statement])
            if isinstance(one, Tilde | Increment)
            for term in dependence.terms(one)
        }
        if parts == {"prior"} and local.isdisjoint(syntax.names(statement.tokens)):
            alone.append(statement)
        else:
            others |= parts
    return [] if "prior" in others or touches_target(program) else alone


def _cuts(program: Program, statements: Sequence[Statement]) -> list[Edit]:
    """Edits that remove statements of the model block, with the comments above and behind them.

    Lines of comments between a statement and an empty line are the statement's.
    """
    text, syntax = program.expanded, program.syntax
    block = program.blocks["model"]
    behind, last = syntax.tokens[block.opening].end, syntax.tokens[block.closing].start
    edits = list[Edit]()
    for statement in syntax.statements("model"):
        start, end = behind, syntax.span(statement.tokens)[1]
        line_end = text.find("\n", end, last)
        rest = text[end : max(line_end, end)].strip()
        behind = line_end if line_end >= 0 and (not rest or rest.startswith("//")) else end
        if closing := _CLOSING.match(text, behind, last):
            behind = closing.end()
        if statement in statements:
            edits.append(Edit(start, behind, ""))
    return edits


def _split(program: Program, prefix: str, dependence: Dependence, prior: str) -> Rewriter:
    """Redirect the terms of the model to an accumulator of the likelihood, and to `prior`."""
    rewriter = Rewriter(program, prefix, Shapes(program.syntax))
    rewriter.normalise_names()
    rewriter.keep_constants()
    accumulators = {"prior": prior, "likelihood": f"{prefix}log_likelihood"}
    model = program.syntax.statements("model")
    for statement, scope in rewriter.shapes.walk(model, rewriter.shapes.globals()):
        if isinstance(statement, Tilde):
            part = dependence.terms(statement)[0].part
            rewriter.tilde(statement, scope, accumulators[part])
        elif isinstance(statement, Increment):
            terms = dependence.terms(statement)
            if len(terms) == 1 and accumulators[terms[0].part] == "target":
                continue
            if len(terms) == 1:
                rewriter.redirect(statement, scope, accumulators[terms[0].part])
            else:
                _distribute(rewriter, statement, scope, terms, accumulators)
    collected = {"transformed parameters": "0", "model": " + ".join(accumulators.values())}
    redirect_reads(rewriter, "target()", collected)
    return rewriter


def _refuse(program: Program, dependence: Dependence) -> None:
    syntax = program.syntax
    call = dependence.likelihood_call
    if call is not None:
        raise syntax.refusal(
            call,
            "a function that adds to the target is given data",
            f"`{syntax.word(call)}` is given data, and adds to the target what cannot be split.",
            "Write its terms in the model block, or as `target += f(...)` of a plain function; "
            "mark the call `// stanct: prior` if it adds no likelihood.",
        )
    if not dependence.has_likelihood:
        block = program.blocks.get("model")
        raise syntax.refusal(
            block.keyword if block else 0,
            "no likelihood",
            "No statement of the model is a likelihood: the variate of none depends on data.",
            "Mark what is likelihood by `// stanct: likelihood` at the end of its line, or "
            f"{_INSTEAD}.",
        )


def _refuse_mixed(program: Program, dependence: Dependence) -> None:
    for token in dependence.mixed:
        raise program.syntax.refusal(
            token,
            "prior and likelihood in one term",
            "This term holds densities of data and densities of parameters alone, which cannot be "
            "taken apart.",
            "Add the prior to the target by a statement of its own, or mark the whole term "
            f"`// stanct: likelihood` at the end of its line, or {_INSTEAD}.",
        )


def _refuse_improper(program: Program, dependence: Dependence) -> None:
    syntax = program.syntax
    for name in dependence.without_prior():
        token = next(k for _, k in syntax.declarations("parameters") if syntax.word(k) == name)
        raise syntax.refusal(
            token,
            "a parameter without prior",
            f"`{name}` has no prior and no bounded support, so the prior at β = 0 is improper.",
            f"Give it one, such as `{name} ~ normal(0, 1);` (mark a statement that was taken for "
            f"likelihood by `// stanct: prior`), or {_INSTEAD}.",
        )


def _distribute(
    rewriter: Rewriter,
    statement: Increment,
    scope: Scope,
    terms: list[Term],
    accumulators: dict[str, str],
) -> None:
    """Split an increment into one per term, and keep the comments between the terms."""
    syntax = rewriter.program.syntax
    shapes = [rewriter.shapes.shape(term.tokens, scope) for term in terms]
    ranks = {None if shape is None else min(shape.rank, 1) for shape in shapes}
    if len(ranks) > 1 or None in ranks:
        raise syntax.refusal(
            statement.tokens.first,
            "prior and likelihood in one sum",
            "This increment adds prior and likelihood terms of which it cannot be told whether "
            "they are scalars or containers.",
            "Write one `target +=` for the prior and one for the likelihood, or mark the statement "
            "`// stanct: prior` or `// stanct: likelihood`.",
        )
    opening, closing = "", ""
    if ranks == {1}:
        shape = shapes[0] if len(set(shapes)) == 1 else None
        opening, closing = f"{rewriter.summation(shape)}(", ")"
    text, tokens = rewriter.program.expanded, syntax.tokens
    start = tokens[statement.tokens.first].start
    head, indent, tail = rewriter.room(statement, rewriter.edits)
    behind = start
    for term in terms:
        first, last = tokens[term.tokens.first], tokens[term.tokens.stop - 1]
        sign = "-" if term.negative else ""
        new = f"{head}{accumulators[term.part]} += {sign}{opening}"
        rewriter.edits.append(Edit(behind, first.start, new))
        rewriter.edits.append(Edit(last.end, last.end, closing))
        behind = last.end
        operator = tokens[term.tokens.stop]
        comments = " ".join(
            part.strip()
            for part in (
                text[behind : operator.start],
                text[operator.end : tokens[term.tokens.stop + 1].start]
                if operator.text != ";"
                else "",
            )
            if part.strip()
        )
        head = f";{' ' + comments if comments else ''}\n{indent}"
    end = tokens[statement.tokens.stop - 1].end
    rewriter.edits.append(Edit(end, end, tail))

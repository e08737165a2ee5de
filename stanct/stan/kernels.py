"""Priors that a program writes by hand as kernels of the standard normal, without its constant."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass

from stanct.stan.densities import Densities, one_line
from stanct.stan.nodes import Range, Statement, TypeSpec
from stanct.stan.rewrite import Edit, edited
from stanct.stan.truncations import product
from stanct.stan.walks import terms_of_sum

# −θ²/2 without spaces, for a whole parameter θ.
_SQUARES = (
    *("{0}^2", "{0}*{0}", "square({0})", "dot_self({0})", "sum(square({0}))", "sum({0}^2)"),
    *("sum({0}.*{0})", "dot_product({0},{0})", "{0}'*{0}"),
)
_HALVES = ("-0.5*{0}", "-.5*{0}", "-0.5*({0})", "-{0}/2", "-({0})/2", "-{0}/2.0")
_KERNELS = tuple(half.format(square) for half, square in itertools.product(_HALVES, _SQUARES))
_OFTEN = ("for", "while", "if")


@dataclass(frozen=True, eq=False)
class Kernel:
    """The kernel of a standard normal density, and the parameter whose only prior it is.

    `lack` is the log of the factor that it lacks, in Stan.
    """

    name: str
    term: Range
    statement: Statement
    lack: str


def kernels(seen: Densities) -> Iterator[Kernel]:
    """Yield the kernels that stand for themselves as the priors of parameters without bounds.

    A program without data is a density of its own, of which no term is a prior.
    """
    if not seen.program.data:
        return
    specs = seen.program.parameter_types
    for statement, inside in seen.surrounded():
        value = seen.value_of_sum(statement)
        if value is None or any(one.word in _OFTEN for one in inside):
            continue
        for term, negative in terms_of_sum(seen.syntax, value):
            text = re.sub(r"\s", "", one_line(seen.syntax, term))
            text = f"-{text}" if negative else text
            for name in seen.names(term) & specs.keys():
                whole = text in {kernel.format(name) for kernel in _KERNELS}
                if whole and _is_unbounded(specs[name]) and _is_only_prior(seen, name, term):
                    sizes = [one_line(seen.syntax, size) for size in specs[name].dims]
                    yield Kernel(name, term, statement, product(sizes, "-0.5 * log(2 * pi())"))


def _is_unbounded(spec: TypeSpec) -> bool:
    plain = spec.base in ("real", "vector", "row_vector") and not spec.array
    return plain and not {"lower", "upper"} & spec.constraints.keys()


def _is_only_prior(seen: Densities, name: str, term: Range) -> bool:
    """Whether the parameter has no other one, which the program without this term tells."""
    rest = Densities(edited(seen.program, [Edit(*seen.syntax.span(term), "0")]))
    return name not in rest.in_variates | rest.by_hand | rest.in_bounds

"""Parameters that a proper prior holds, however wide it is."""

from __future__ import annotations

from stanct.stan.densities import Densities
from stanct.stan.nodes import Tilde


def held(seen: Densities) -> set[str]:
    """Return the parameters that as a whole have a proper prior, given those in its arguments.

    That is one of Stan's densities. No parameter is among them whose prior depends on itself.
    """
    given: dict[str, set[str]] = {}
    for density in seen.found:
        name = seen.syntax.word(density.variate.first)
        is_whole = density.variate.is_one
        plain = all(c.word in ("block", "profile") for c in density.inside)
        stands = density.added or isinstance(density.statement, Tilde)
        if is_whole and plain and stands and not seen.program.defines(density.family):
            given.setdefault(name, set()).update(*map(seen.names, density.arguments))
    on_surface = {
        name
        for name, spec in seen.program.parameter_types.items()
        if spec.base.startswith("sum_to_zero")
    }
    left = {
        name: seen.roots(names) & given.keys()
        for name, names in given.items()
        if name in seen.parameters - on_surface
    }
    found = set[str]()
    while ready := {name for name, roots in left.items() if not roots & left.keys()}:
        found |= ready
        left = {name: roots for name, roots in left.items() if name not in ready}
    return found - seen.by_hand

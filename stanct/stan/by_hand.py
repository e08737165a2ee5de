"""What a program adds to its target by hand, so that no family tells its constant.

A sum of densities is normalised, term by term, and so is a mixture of densities with weights. With
a factor, a kernel among its terms, or a kernel in a function, it need not be.
"""

from __future__ import annotations

from collections.abc import Callable

from stanct.stan.arithmetic import constant
from stanct.stan.densities import DENSITY, PROBABILITY, Densities
from stanct.stan.nodes import Assign, Call, Function, Increment, Range, Simple, Statement, Tilde
from stanct.stan.syntax import walk
from stanct.stan.walks import terms_of_sum


class ByHand:
    """Finds what is no sum of densities in one program."""

    def __init__(self, densities: Densities) -> None:
        self._densities, self._syntax = densities, densities.syntax
        self._functions = densities.program.functions
        self._known: dict[str, bool] = {}

    def is_added_by(self, statement: Statement) -> bool:
        """Whether a statement adds something of the parameters that may lack a constant."""
        seen = self._densities
        if isinstance(statement, Tilde):
            return not self._is_whole_family(statement.distribution)
        if isinstance(statement, Call):
            return not self._is_whole_function(statement.name)
        value = seen.value_of_sum(statement)
        return value is not None and not self._is_whole(value, self._is_free)

    def _is_free(self, term: Range) -> bool:
        seen = self._densities
        return not seen.roots(seen.names_past_sizes(term)) or seen.names(term) <= seen.sums

    def _is_whole(self, value: Range, is_free: Callable[[Range], bool]) -> bool:
        """Whether an expression is a sum of log densities and of terms that are free."""
        choices = self._choices(value)
        if choices != [value]:
            return all(self._is_whole(part, is_free) for part in choices)
        for term, negative in terms_of_sum(self._syntax, self._syntax.bare(value)):
            bare = self._syntax.bare(term)
            if bare != term and not negative and not is_free(term):
                if not self._is_whole(bare, is_free):
                    return False
            elif not is_free(term) and not self._is_density(term, negative, is_free):
                return False
        return True

    def _is_density(self, term: Range, negative: bool, is_free: Callable[[Range], bool]) -> bool:
        called = [name for name, _ in self._densities.calls(term)]
        name, inside = self._syntax.word(term.first), self._syntax.call(term)
        inner = self._densities.has_density(term)
        if not any(map(DENSITY.fullmatch, called)) and any(map(PROBABILITY.fullmatch, called)):
            return True  # truncation or censoring
        if negative:
            return False
        if inside is None:
            # A variable, whole or indexed, that holds densities.
            alone = term.is_one or self._syntax.index(term) is not None
            return alone and inner
        parts = self._syntax.split(inside)
        if name == "log_mix":
            return all(self._is_whole(part, is_free) for part in parts[1:]) or len(parts) == 2
        if name == "log_sum_exp" and parts[1:]:
            return all(map(self._is_weighted, parts)) and not all(map(self._is_lone, parts))
        if name == "log_sum_exp" and self._is_without_weights(parts[0]):
            return False
        if name == "sum":
            return self._is_whole(parts[0], is_free)
        if name.startswith("reduce_sum"):
            return self._is_whole_function(self._syntax.word(parts[0].first))
        if DENSITY.fullmatch(name) or name in self._functions:
            return self._is_whole_function(name) and inner
        return (inner and name in ("log_sum_exp", "target")) or name.startswith("hmm_")

    def _is_weighted(self, value: Range) -> bool:
        """Whether a component of a mixture has a weight, which may be a mass or a variable."""
        terms = terms_of_sum(self._syntax, self._syntax.bare(value))
        called = [[name for name, _ in self._densities.calls(term)] for term, _ in terms]
        continuous = [any(name.endswith("pdf") for name in names) for names in called]
        return not all(continuous)

    def _is_lone(self, value: Range) -> bool:
        """Whether an expression is a density or a mass and nothing else."""
        is_density = DENSITY.fullmatch(self._syntax.word(value.first)) is not None
        return is_density and self._syntax.call(value) is not None

    def _is_without_weights(self, components: Range) -> bool:
        """Whether a variable holds components that have none, as where all begin as densities.

        Forward algorithms do, whose first state has no probabilities.
        """
        name, seen = self._syntax.word(components.first), self._densities
        values = [value for to, value in seen.assigned if to == name]
        choices = [part for value in values for part in self._choices(value)]
        grows = any(
            isinstance(one, Assign)
            and self._syntax.word(one.left.first) == name
            and self._syntax.word(one.left.stop) != "="
            for one in seen.program.statements("transformed parameters", "model")
        )
        return not grows and any(map(self._is_lone, choices))

    def _choices(self, value: Range) -> list[Range]:
        choice = self._syntax.split(value, "?")
        return [value] if len(choice) != 2 else self._syntax.split(choice[1], ":")

    # Functions of the user's

    def _is_whole_function(self, name: str) -> bool:
        """Whether what a function adds or returns is a sum of densities; Stan's own ones are."""
        match = DENSITY.fullmatch(name)
        name = f"{match['family']}_l{match['of']}" if match else name
        if name not in self._known:
            self._known[name] = True  # where it calls itself
            self._known[name] = all(map(self._is_whole_body, self._functions.get(name, ())))
        return self._known[name]

    def _is_whole_family(self, name: str) -> bool:
        return all(self._is_whole_function(f"{name}_{of}") for of in ("lpdf", "lpmf"))

    def _is_whole_body(self, function: Function) -> bool:
        given = {self._syntax.word(token) for _, token in function.arguments}
        calls = [name for name, _ in self._densities.calls(function.body.tokens)]
        has_density = any(map(DENSITY.fullmatch, calls)) or any(n in self._functions for n in calls)

        def is_free(term: Range) -> bool:
            words = self._syntax.words(term)
            local = has_density and len(words) == 1 and words[0] not in given
            return local or constant(self._syntax.text(term)) is not None

        for inner in walk([function.body]):
            if isinstance(inner, Tilde):
                if not self._is_whole_family(inner.distribution):
                    return False
            elif isinstance(inner, Increment) or (
                isinstance(inner, Simple) and inner.word == "return"
            ):
                value = inner.value
                if value.stop > value.first and not self._is_whole(value, is_free):
                    return False
            elif isinstance(inner, Call) and not self._is_whole_function(inner.name):
                return False
        return True

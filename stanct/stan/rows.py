"""Expressions and loops of one sum over rows: what each row reads, and how some rows are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from copy import deepcopy
from typing import Any, NamedTuple

from stanct.stan.constraints import minus
from stanct.stan.distributions import SUFFIX
from stanct.stan.nodes import Assign, Compound, Range, Simple, Statement, TypeSpec
from stanct.stan.program import Program
from stanct.stan.rewrite import Edit
from stanct.stan.shapes import ELEMENTWISE, Scope, Shapes
from stanct.stan.syntax import walk

_ADDITIVE = frozenset({"+", "-"})
_PRODUCTS = frozenset({"*", "/", "^", "%", "%/%", "\\", ".*", "./", ".^"})
_CHOICES = frozenset({"?", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "!"})
_BY_ROW = ELEMENTWISE | {"to_vector", "to_array_1d"}
_FILLS = frozenset({"rep_vector", "rep_array"})
# Distributions of one scalar in each row, and of one vector in each row: the ranks that arguments
# have which are the same in all rows.
_OF_VECTORS = {
    "multi_normal": (1, 2),
    "multi_normal_cholesky": (1, 2),
    "multi_normal_prec": (1, 2),
    "multi_student_t": (0, 1, 2),
}
_WITH_VECTORS = {"categorical": (1,), "categorical_logit": (1,)} | dict.fromkeys(
    ("ordered_logistic", "ordered_probit"), (0, 1)
)
# Generalised linear models with the same vectors in all rows as their second and third argument.
_OF_WHOLE = frozenset({"categorical_logit_glm", "ordered_logistic_glm"})
# Given containers, Stan adds up probabilities of this form too.
_SUMMED = re.compile(r"(?P<family>\w+?)_l(?:u?p[dm]f|c?cdf)")
_NOT_BY_ROW = re.compile(
    r"(wishart|inv_wishart|lkj_|laplace_|gaussian_dlm|multi_gp|dirichlet|multinomial)|"
    r"(wiener|hypergeometric|discrete_range)$"
)


class StaysError(Exception):
    """Why a statement is no sum over rows."""


class Form(NamedTuple):
    """Whether an expression has an element for each row, and its rank."""

    by_row: bool
    rank: int


class Rows:
    """The rows of one sum, and how its statements use the variables around it.

    `count` is the number of rows in Stan, empty before the first statement. `uses` has those of
    each variable: `"slice"` of a whole one and `"index"` of `X[:, 2]` where some rows can be read
    alone, `"row"` in a loop over rows, and `"whole"`. Those in `local` have only the rows of a
    slice, and those in `assigned` are from outside of a loop that assigns them.
    """

    def __init__(self, program: Program, shapes: Shapes, start: str, end: str) -> None:
        self._syntax, self._shapes = program.syntax, shapes
        self._start, self._end = start, end
        self.count = ""
        self.uses: dict[str, list[tuple[str, Range]]] = {}
        self.local: set[str] = set()
        self.assigned: set[str] = set()
        self._specs: dict[str, TypeSpec] = {}
        self._edits: list[Edit] = []

    def state(self) -> tuple[Any, ...]:
        """What `restore` takes."""
        return deepcopy(self.uses), self.count, list(self._edits), dict(self._specs)

    def restore(self, state: tuple[Any, ...]) -> None:
        """Forget what was found since."""
        self.uses, self.count, self._edits, self._specs = state

    def note(self, token: int, kind: str, index: Range | None = None) -> None:
        """Record a use of the variable at a token."""
        name = self._syntax.word(token)
        self.uses.setdefault(name, []).append((kind, index or Range(token, token + 1)))

    def is_whole(self, name: str) -> bool:
        """Return whether the sum reads more of a variable than its rows."""
        return any(kind == "whole" for kind, _ in self.uses.get(name, ()))

    def is_sized(self, name: str) -> bool:
        """Return whether a variable has an element for each row."""
        spec = self._specs.get(name)
        return spec is not None and self._size(spec) == self.count

    def can_be_cut(self, name: str) -> bool:
        """Return whether `reduce_sum` can cut a variable into slices: an array, used by row."""
        array = name in self._specs and bool(self._specs[name].array)
        return array and self.is_sized(name) and not self.is_whole(name)

    def edits(self) -> list[Edit]:
        """The changes that restrict the sum to the rows from start to end."""
        edits, part = list(self._edits), f"{self._start} : {self._end}"
        for name, uses in self.uses.items():
            for kind, place in uses:
                end = self._syntax.tokens[place.stop - 1].end
                if name in self.local:
                    if kind == "row":
                        edits.append(Edit(end, end, f" - {self._start} + 1"))
                elif kind == "slice":
                    edits.append(Edit(end, end, f"[{part}]"))
                elif kind == "index":
                    start = self._syntax.start(place.first)
                    edits.append(Edit(start, max(start, end), part))
        return edits

    # Statements

    def density(
        self, family: str, variate: Range, arguments: Sequence[Range], scope: Scope
    ) -> None:
        """Take a density or a probability whose variate has a value in each row."""
        if family not in SUFFIX or _NOT_BY_ROW.match(family) or self._is_users(family):
            raise StaysError(f"`{family}` is not known as a sum over rows")
        spec = scope.get(self._syntax.word(variate.first))
        if not self.count:
            size = None if spec is None else self._size(spec)
            if size is None:
                raise StaysError("its variate is not a variable with an element for each row")
            self.count = size
        if not self.form(variate, scope).by_row:
            raise StaysError("its variate has no element for each row")
        if family in _OF_VECTORS and (spec is None or not spec.array):
            raise StaysError("its variate is one vector")
        coefficients = coefficients_of(family)
        for k, argument in enumerate(arguments):
            if k in coefficients:
                self.whole(argument, scope)
                continue
            form = self.form(argument, scope)
            ranks = _OF_VECTORS.get(family) or _WITH_VECTORS.get(family) or (0,)
            if not form.by_row and form.rank not in ranks:
                raise StaysError(f"`{self._text(argument)}` cannot be told apart by row")

    def term(self, value: Range, scope: Scope) -> None:
        """Take a term of the target: a density, a vector, or the sum of one."""
        word, inside = self._syntax.word(value.first), self._syntax.call(value)
        match = _SUMMED.fullmatch(word)
        if match and inside is not None:
            self.density(match["family"], *self._syntax.conditioned(inside), scope)
            return
        value = inside if word == "sum" and inside is not None else value
        sizes = [self.count] if self.count else self._sizes(value, scope)
        state, why = self.state(), "it is no density and no sum over a vector"
        for size in sizes:
            self.count = size
            try:
                if self.form(value, scope).by_row:
                    return
            except StaysError as reason:
                why = str(reason)
            self.restore(state)
            state = self.state()
        raise StaysError(why)

    def _sizes(self, value: Range, scope: Scope) -> list[str]:
        specs = (scope.get(self._syntax.word(token)) for token in range(*value))
        return list(dict.fromkeys(size for spec in specs if spec and (size := self._size(spec))))

    def loop(self, loop: Compound, scope: Scope, without: Sequence[Range] = ()) -> None:
        """Take a loop over the rows, in which each row assigns nothing that another one reads."""
        head, word = loop.heads[0], self._syntax.word
        bounds = self._syntax.split(Range(head.first + 2, head.stop), ":")
        if len(bounds) != 2:
            raise StaysError("the loop runs over a container")
        lower, upper = map(self._text, bounds)
        before = minus(lower, "1")
        count = _plain(minus(upper, before))
        if self.count and count != self.count:
            raise StaysError("the loop has another number of rows")
        self.count, variable = count, word(head.first)
        inner = {variable}
        if any(_breaks(one) for one in loop.body):
            raise StaysError("`break` ends the loop early")
        for one in walk(loop.body):
            inner |= self._syntax.declared(one)
        skipped = {token for tokens in without for token in range(*tokens)}
        turn = minus(variable, before).split()
        for token in range(loop.heads[0].stop, loop.tokens.stop):
            name = word(token)
            if token in skipped or name in inner or word(token + 1) == "(" or name not in scope:
                continue
            index = Range(token + 2, token + 2 + len(turn))
            row = (
                word(token + 1) == "["
                and self._syntax.words(index) == turn
                and word(index.stop) in ("]", ",")
            )
            self._specs[name] = scope[name]
            self.note(token, "row" if row and self.is_sized(name) else "whole", index)
        for one in walk(loop.body):
            if isinstance(one, Assign) and word(one.left.first) not in inner:
                name = word(one.left.first)
                rows = [place.first - 2 for kind, place in self.uses[name] if kind == "row"]
                if one.left.first not in rows or self.is_whole(name):
                    raise StaysError(f"`{name}` is assigned in one row and may be read in another")
                self.assigned.add(name)
        first, last = self._start, self._end
        if before != "0":
            self.whole(bounds[0], scope)
            offset = before if re.fullmatch(r"\w+", before) else f"({before})"
            first, last = f"{first} + {offset}", f"{last} + {offset}"
        self._replace(bounds[0], first)
        self._replace(bounds[1], last)

    # Expressions

    def whole(self, tokens: Range, scope: Scope) -> None:
        """Take an expression that is the same in all rows."""
        for token in range(*tokens):
            name = self._syntax.word(token)
            if self._is_name(token) and name in scope and self._syntax.word(token + 1) != "(":
                self._specs[name] = scope[name]
                self.note(token, "whole")

    def form(self, tokens: Range, scope: Scope) -> Form:
        """Take an expression, and tell whether it has an element for each row."""
        word = self._syntax.word
        outer = list(self._syntax.outermost(tokens))
        if any(word(token) in _CHOICES for token in outer):
            return self._same(tokens, scope)
        binary, last = list[int](), tokens.first - 1
        for token in outer:
            if word(token) in _ADDITIVE | _PRODUCTS:
                if token > last + 1:
                    binary.append(token)
                last = token
        if not binary:
            if word(tokens.first) in _ADDITIVE:
                return self.form(Range(tokens.first + 1, tokens.stop), scope)
            return self._term(tokens, scope)
        additive = [token for token in binary if word(token) in _ADDITIVE]
        ends = additive or binary
        parts = self._syntax.cut(tokens, ends)
        if additive:
            return self._element_by_element(tokens, parts, scope)
        form = self.form(parts[0], scope)
        for operator, part in zip(map(word, binary), parts[1:], strict=True):
            if operator == "*" and form == (True, 2):
                self.whole(part, scope)
                form = Form(True, 1 if self._rank(part, scope) == 1 else 2)
                continue
            other = self.form(part, scope)
            if form.by_row or other.by_row:
                mixed = any(not one.by_row and one.rank for one in (form, other))
                vectors = operator in "*/\\" and form.rank and other.rank
                if mixed or vectors:
                    raise StaysError(f"`{self._text(tokens)}` cannot be told apart by row")
            form = Form(form.by_row or other.by_row, max(form.rank, other.rank))
        return form if form.by_row else Form(False, self._rank(tokens, scope))

    def _element_by_element(self, whole: Range, parts: Sequence[Range], scope: Scope) -> Form:
        forms = [self.form(part, scope) for part in parts]
        by_row = any(form.by_row for form in forms)
        if not by_row:
            return Form(False, self._rank(whole, scope))
        for form, part in zip(forms, parts, strict=True):
            if not form.by_row and form.rank:
                raise StaysError(f"`{self._text(part)}` cannot be told apart by row")
        return Form(True, max(form.rank for form in forms))

    def _same(self, tokens: Range, scope: Scope) -> Form:
        self.whole(tokens, scope)
        return Form(False, self._rank(tokens, scope))

    def _rank(self, tokens: Range, scope: Scope) -> int:
        shape = self._shapes.shape(tokens, scope)
        if shape is None:
            raise StaysError(f"the size of `{self._text(tokens)}` is not known")
        return shape.rank

    def _term(self, tokens: Range, scope: Scope) -> Form:
        """Take an expression without operators outside of brackets."""
        syntax, first = self._syntax, tokens.first
        if (bare := syntax.bare(tokens)) != tokens:
            return self.form(bare, scope)
        if syntax.call(tokens) is not None:
            return self._call(syntax.word(first), tokens, scope)
        spec = scope.get(syntax.word(first))
        if self._is_name(first) and spec is not None:
            self._specs[syntax.word(first)] = spec
            if tokens.stop == first + 1:
                if self._size(spec) != self.count:
                    return self._same(tokens, scope)
                self.note(first, "slice")
                return Form(True, spec.rank)
            if syntax.index(tokens) is not None:
                return self._indexed(first, tokens, scope)
        return self._same(tokens, scope)

    def _indexed(self, name: int, tokens: Range, scope: Scope) -> Form:
        """Take `X[:, k]`, or `a[group]` with the groups of the rows."""
        syntax, inside = self._syntax, Range(name + 2, tokens.stop - 1)
        rank = self._rank(tokens, scope)
        parts = syntax.split(inside)
        words = syntax.words(parts[0]) if parts else []
        if self.is_sized(syntax.word(name)) and words in ([], [":"]):
            self.note(name, "index", parts[0] if words else Range(inside.first, inside.first))
            for part in parts[1:]:
                self.whole(part, scope)
            return Form(True, rank)
        if parts and _plain("".join(words)) == "1:" + self.count.replace(" ", ""):
            self.note(name, "whole")
            self._replace(parts[0], f"{self._start} : {self._end}")
            for part in parts[1:]:
                self.whole(part, scope)
            return Form(True, rank)
        for k, part in enumerate(parts):
            if ":" in (syntax.word(token) for token in syntax.outermost(part)):
                break
            form = self.form(part, scope)
            if form == (True, 1):
                self.note(name, "whole")
                for other in parts[k + 1 :]:
                    self.whole(other, scope)
                return Form(True, rank)
            if form.rank:
                break
        return self._same(tokens, scope)

    def _call(self, name: str, tokens: Range, scope: Scope) -> Form:
        arguments = self._syntax.split(Range(tokens.first + 2, tokens.stop - 1))
        if name in _FILLS and len(arguments) == 2:
            fills = _plain(self._text(arguments[1])) == self.count
            if fills and not self._same(arguments[0], scope).rank:
                self._replace(arguments[1], f"{self._end} - {self._start} + 1")
                return Form(True, 1)
        elif name in _BY_ROW and not self._is_users(name):
            form = self._element_by_element(tokens, arguments, scope)
            if not form.by_row or name in ELEMENTWISE or form.rank == 1:
                return form
            raise StaysError(f"`{name}` mixes rows")
        return self._same(tokens, scope)

    # Words

    def declare(self, name: int, spec: TypeSpec, scope: Scope) -> None:
        """Take the declaration of a variable, which then has the rows of a slice alone."""
        self._specs[self._syntax.word(name)] = spec
        self.note(name, "slice")
        for size in [*spec.array, *spec.dims][1:]:
            self.whole(size, scope)
        self._replace((spec.array or spec.dims)[0], f"{self._end} - {self._start} + 1")

    def _replace(self, tokens: Range, text: str) -> None:
        self._edits.append(Edit(*self._syntax.span(tokens), text))

    def _size(self, spec: TypeSpec) -> str | None:
        sizes = spec.array or spec.dims
        return _plain(self._text(sizes[0])) if sizes and spec.base != "tuple" else None

    def _text(self, tokens: Range) -> str:
        return self._syntax.text(tokens)

    def _is_name(self, token: int) -> bool:
        return self._syntax.tokens[token].kind == "name"

    def _is_users(self, name: str) -> bool:
        own = {self._syntax.word(one.name) for one in self._syntax.functions}
        endings = ("", "_lpdf", "_lpmf", "_lcdf", "_lccdf")
        return any(name + ending in own for ending in endings)


def coefficients_of(family: str) -> tuple[int, ...]:
    """The places of the arguments of a generalised linear model that are the same in all rows."""
    if not family.endswith("_glm"):
        return ()
    design = int(family == "binomial_logit_glm")
    return (design + 1, design + 2) if family in _OF_WHOLE else (design + 2,)


def _breaks(statement: Statement) -> bool:
    """Return whether a statement of a loop ends the loop."""
    if isinstance(statement, Compound):
        inner = statement.word in ("for", "while")
        return not inner and any(map(_breaks, statement.body))
    return isinstance(statement, Simple) and statement.word in ("break", "return")


def _plain(size: str) -> str:
    """A number of rows without parentheses and without a guard against negative ones."""
    while match := re.fullmatch(r"max\(0, ([^()]*)\)|\(([^()]*)\)", size):
        size = match[1] or match[2]
    return size

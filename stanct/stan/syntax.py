"""Parsing of Stan source into tokens, blocks and statements, each with its place in the text.

There is no expression grammar: an expression is a range of tokens with matched brackets. The parser
reads what every stanc since 2.26 reads, skips comments and layout, and needs no compiler. Whether a
program is valid is left to stanc.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from stanct.common.errors import ProgramError, UnsupportedError
from stanct.stan.nodes import (
    ASSIGNMENTS,
    SCALAR_TYPES,
    TYPES,
    Assign,
    Call,
    Compound,
    Declare,
    Function,
    Increment,
    ProgramBlock,
    Range,
    Simple,
    Statement,
    Tilde,
    TypeSpec,
)
from stanct.stan.source import SourceText
from stanct.stan.tokens import DEEPEST_NESTING, matched_brackets, tokenize

BLOCK_NAMES = (
    "functions", "data", "transformed data", "parameters", "transformed parameters", "model",
    "generated quantities",
)  # fmt: skip


class Syntax:
    """The tokens, blocks and statements of one program, without white space and comments.

    `partner` maps the token of each opening bracket to that of the closing one.
    """

    def __init__(self, source: SourceText) -> None:
        self.source = source
        self.tokens = tokenize(source)
        self.partner = matched_brackets(source, self.tokens)
        self.blocks: dict[str, ProgramBlock] = {}
        self._next = 0
        self._depth = 0
        while self._next < len(self.tokens):
            self._read_block()

    def word(self, token: int) -> str:
        """Return the text of a token; empty after the last one."""
        return self.tokens[token].text if 0 <= token < len(self.tokens) else ""

    def start(self, token: int) -> int:
        """Return the offset of a token; after the last one, the end of the text."""
        return self.tokens[token].start if token < len(self.tokens) else len(self.source.text)

    def text(self, tokens: Range) -> str:
        """Return the source text of a range of tokens, including comments."""
        if tokens.stop <= tokens.first:
            return ""
        start, end = self.span(tokens)
        return self.source.text[start:end]

    def words(self, tokens: Range) -> list[str]:
        """Return the texts of a range of tokens."""
        return [token.text for token in self.tokens[tokens.first : tokens.stop]]

    def span(self, tokens: Range) -> tuple[int, int]:
        """Return the offsets at which the text of a range of tokens begins and ends."""
        return self.start(tokens.first), self.tokens[tokens.stop - 1].end

    def names(self, tokens: Range) -> list[str]:
        """Return the names in a range of tokens, those of called functions too."""
        found = self.tokens[tokens.first : tokens.stop]
        return [token.text for token in found if token.kind == "name"]

    def bare(self, tokens: Range) -> Range:
        """Return a range without the parentheses around all of it."""
        while self.word(tokens.first) == "(" and self.partner[tokens.first] == tokens.stop - 1:
            tokens = Range(tokens.first + 1, tokens.stop - 1)
        return tokens

    def loop_variable(self, loop: Compound) -> str:
        """Return the name of a loop's variable."""
        return self.word(loop.heads[0].first)

    def loop_ends(self, loop: Compound) -> list[Range]:
        """Return the two bounds of a loop over a range, or the container of any other loop."""
        return self.split(Range(loop.heads[0].first + 2, loop.heads[0].stop), ":")

    def inside(self, opening: int) -> Range:
        """Return the tokens between an opening bracket and its partner."""
        return Range(opening + 1, self.partner[opening])

    def calls(self, tokens: Range, is_meant: Callable[[str], bool]) -> list[int]:
        """Return the tokens at which functions are called whose names are meant."""
        word = self.word
        return [k for k in range(*tokens) if is_meant(word(k)) and word(k + 1) == "("]

    def statements(self, block: str) -> list[Statement]:
        """Return the statements of a block; none if the program lacks it."""
        return self.blocks[block].statements if block in self.blocks else []

    def declarations(self, block: str) -> Iterator[tuple[Declare, int]]:
        """Yield the statement and the token of each name that a block declares for all of it."""
        for statement in self.statements(block):
            if isinstance(statement, Declare):
                yield from ((statement, name) for name, _ in statement.names)

    @property
    def functions(self) -> list[Function]:
        """The user-defined functions."""
        return self.blocks["functions"].functions if "functions" in self.blocks else []

    def block_range(self, block: str) -> Range:
        """Return the tokens between the braces of a block; none if the program lacks it."""
        return self.inside(self.blocks[block].opening) if block in self.blocks else Range(0, 0)

    @property
    def before_parameters(self) -> str:
        """The source text of the functions and the data, transformed ones too."""
        blocks = (self.blocks.get(name) for name in BLOCK_NAMES[:3])
        texts = (self.text(Range(one.keyword, one.closing + 1)) for one in blocks if one)
        return "\n".join(texts)

    def assigned(self, statement: Statement) -> list[tuple[str, Range]]:
        """Return each variable that a statement gives a value, whole or in part, and the value."""
        if isinstance(statement, Assign):
            return [(self.word(statement.left.first), statement.value)]
        pairs = statement.names if isinstance(statement, Declare) else ()
        return [(self.word(token), value) for token, value in pairs if value is not None]

    def declared(self, statement: Statement) -> set[str]:
        """Return the variables that a statement declares; a loop declares its own."""
        if isinstance(statement, Compound):
            return {self.loop_variable(statement)} if statement.word == "for" else set()
        pairs = statement.names if isinstance(statement, Declare) else ()
        return {self.word(token) for token, _ in pairs}

    def index(self, tokens: Range) -> Range | None:
        """Return what stands in the brackets of `name[...]`; None for any other expression."""
        return self._behind_name(tokens, "[")

    def call(self, tokens: Range) -> Range | None:
        """Return what stands in the parentheses of `name(...)`; None for any other expression."""
        return self._behind_name(tokens, "(")

    def _behind_name(self, tokens: Range, bracket: str) -> Range | None:
        opening = tokens.first + 1
        alone = self.partner.get(opening) == tokens.stop - 1 and self.word(opening) == bracket
        return self.inside(opening) if alone and self.tokens[tokens.first].kind == "name" else None

    def declared_type(self, spec: TypeSpec, bounds: Sequence[str] = ()) -> str:
        """Return a type as it is declared, with these of its bounds, such as "lower"."""
        array = ", ".join(map(self.text, spec.array))
        sizes = ", ".join(map(self.text, spec.dims))
        kept = ", ".join(f"{side}={self.text(spec.constraints[side])}" for side in bounds)
        return "".join((
            f"array[{array}] " if spec.array else "",
            spec.base,
            f"<{kept}>" if kept else "",
            f"[{sizes}]" if spec.dims else "",
        ))  # fmt: skip

    def error(self, token: int, message: str, remedy: str | None = None) -> ProgramError:
        """Build the error that points at a token."""
        return self.source.error(self.start(token), message, remedy)

    def refusal(
        self, token: int, reason: str, message: str, remedy: str | None = None
    ) -> UnsupportedError:
        """Build the error for legal code at a token that cannot be transformed."""
        return self.source.refusal(self.start(token), reason, message, remedy)

    def split(self, tokens: Range, separator: str = ",") -> list[Range]:
        """Split a range at the separators outside of brackets."""
        cuts = [token for token in self.outermost(tokens) if self.word(token) == separator]
        return self.cut(tokens, cuts) if tokens.first < tokens.stop else []

    def cut(self, tokens: Range, cuts: Sequence[int]) -> list[Range]:
        """Split a range at some of its tokens, which no part has."""
        firsts = [tokens.first, *(token + 1 for token in cuts)]
        return [Range(*ends) for ends in zip(firsts, (*cuts, tokens.stop), strict=True)]

    def conditioned(self, tokens: Range) -> tuple[Range, list[Range]]:
        """The variate and the arguments of `y | mu, sigma`, the second empty without a bar."""
        variate, *rest = self.split(tokens, "|") or [tokens]
        return variate, self.split(rest[0]) if rest else []

    def arguments(self, inside: Range) -> list[Range]:
        """The arguments between the parentheses of a call, with a variate before a bar."""
        return [part for half in self.split(inside, "|") for part in self.split(half)]

    def outermost(self, tokens: Range) -> Iterator[int]:
        """Yield the tokens of a range outside of brackets, including the outermost opening ones."""
        token = tokens.first
        while token < tokens.stop:
            yield token
            token = self.partner.get(token, token) + 1

    def _read_block(self) -> None:
        keyword = self._next
        name = self.word(keyword)
        if name in ("transformed", "generated"):
            self._next += 1
            name = f"{name} {self.word(self._next)}"
        opening = self._next + 1
        if name not in BLOCK_NAMES or self.word(opening) != "{":
            told = f"Expected a program block, found `{name}`."
            raise self.error(keyword, told, "The blocks are " + ", ".join(BLOCK_NAMES) + ".")
        if self.blocks and BLOCK_NAMES.index(name) <= BLOCK_NAMES.index(list(self.blocks)[-1]):
            raise self.error(
                keyword,
                f"The block `{name}` stands behind `{list(self.blocks)[-1]}`.",
                "Write each block once, in the order " + ", ".join(BLOCK_NAMES) + ".",
            )
        block = ProgramBlock(name, keyword, opening, self.partner[opening])
        self._next = opening + 1
        while self._next < block.closing:
            if name == "functions":
                block.functions.append(self._read_function())
            else:
                block.statements.append(self._read_statement())
        self._next = block.closing + 1
        self.blocks[name] = block

    def _read_function(self) -> Function:
        first = self._next
        returns, name = (None, first + 1) if self.word(first) == "void" else self._read_type(first)
        opening = name + 1
        self._refuse_sizes(name)
        if not self._is_name(name) or self.word(opening) != "(":
            raise self._unexpected(name, "Expected a function definition")
        arguments: list[tuple[TypeSpec, int]] = []
        for argument in self.split(Range(opening + 1, self.partner[opening])):
            type_first = argument.first + (self.word(argument.first) == "data")
            spec, stop = self._read_type(type_first)
            self._refuse_sizes(stop)
            if stop + 1 != argument.stop or not self._is_name(stop):
                raise self._unexpected(stop, "Expected the name of an argument")
            arguments.append((spec, stop))
        self._next = self.partner[opening] + 1
        body = self._read_statement()
        return Function(Range(first, self._next), returns, name, arguments, body)

    # Types

    def _read_type(self, first: int) -> tuple[TypeSpec, int]:
        """Read a sized or unsized type; the second value is the token after it."""
        array: list[Range] = []
        token = first
        if self.word(token) == "array" and self.word(token + 1) == "[":
            closing = self.partner[token + 1]
            array = self.split(Range(token + 2, closing)) or [Range(closing, closing)]
            token = closing + 1
        base, base_first = self.word(token), token
        if base not in TYPES:
            raise self._unexpected(token, "Expected a type")
        token += 1
        if base == "tuple":
            if self.word(token) != "(":
                raise self._unexpected(token, "Expected `(` and the tuple's types")
            elements: list[TypeSpec] = []
            # The commas inside `<lower=0, upper=1>` forbid splitting at commas.
            closing, token = self.partner[token], token + 1
            while token < closing:
                element, token = self._read_type(token)
                elements.append(element)
                if token != closing and self.word(token) != ",":
                    raise self._unexpected(token, "Expected `,` or `)` in the tuple's types")
                token += token != closing
            whole = Range(base_first, closing + 1)
            return TypeSpec(base, tuple(array), {}, (), tuple(elements), whole), closing + 1
        constraints: dict[str, Range] = {}
        if self.word(token) == "<":
            constraints, token = self._read_constraints(token)
        dims: list[Range] = []
        if self.word(token) == "[" and base not in SCALAR_TYPES:
            dims = self.split(Range(token + 1, self.partner[token]))
            token = self.partner[token] + 1
        whole = Range(base_first, token)
        return TypeSpec(base, tuple(array), constraints, tuple(dims), (), whole), token

    def _read_constraints(self, opening: int) -> tuple[dict[str, Range], int]:
        closing = opening + 1
        while self.word(closing) != ">":
            if self.word(closing) in ("", ";", "}", ")", "]"):
                raise self.error(opening, "This `<` is never closed by `>`.")
            closing = self.partner.get(closing, closing) + 1
        constraints: dict[str, Range] = {}
        for part in self.split(Range(opening + 1, closing)):
            keyword = self.word(part.first)
            known = keyword in ("lower", "upper", "offset", "multiplier")
            if not known or self.word(part.first + 1) != "=" or part.stop - part.first < 3:
                told = "Expected lower=, upper=, offset= or multiplier="
                raise self._unexpected(part.first, told)
            constraints[keyword] = Range(part.first + 2, part.stop)
        return constraints, closing + 1

    def _starts_declaration(self, token: int) -> bool:
        word = self.word(token)
        if word == "array":
            opens = self.word(token + 1) == "["
            return opens and self.word(self.partner[token + 1] + 1) in TYPES
        if word == "tuple":
            return self.word(token + 1) == "("
        return word in TYPES

    def _read_statement(self) -> Statement:
        self._depth += 1
        if self._depth > DEEPEST_NESTING:
            raise self.error(self._next, "Statements are nested too deeply to be read.")
        try:
            return self._read_compound() or self._read_simple()
        finally:
            self._depth -= 1

    def _read_compound(self) -> Statement | None:
        first, word = self._next, self.word(self._next)
        if word == "{" and self._is_block(first):
            return self._read_body(first, first, "block", [])
        if word == "profile" and self.word(first + 1) == "(":
            opening = self.partner[first + 1] + 1
            if self.word(opening) != "{":
                raise self._unexpected(opening, "Expected `{` behind profile(...)")
            return self._read_body(first, opening, "profile", [Range(first + 2, opening - 1)])
        if word in ("while", "for") and self.word(first + 1) == "(":
            head = self._read_head(first + 1)
            body = self._read_statement()
            return Compound(Range(first, self._next), word, [head], [body])
        if word == "if" and self.word(first + 1) == "(":
            heads, bodies = [self._read_head(first + 1)], [self._read_statement()]
            while self.word(self._next) == "else":
                self._next += 1
                if self.word(self._next) == "if" and self.word(self._next + 1) == "(":
                    heads.append(self._read_head(self._next + 1))
                    bodies.append(self._read_statement())
                else:
                    bodies.append(self._read_statement())
                    break
            return Compound(Range(first, self._next), "if", heads, bodies)
        return None

    def _read_head(self, opening: int) -> Range:
        self._next = self.partner[opening] + 1
        return Range(opening + 1, self.partner[opening])

    def _read_body(self, first: int, opening: int, word: str, heads: list[Range]) -> Compound:
        closing = self.partner[opening]
        statement = Compound(Range(first, closing + 1), word, heads)
        self._next = opening + 1
        while self._next < closing:
            statement.body.append(self._read_statement())
        self._next = closing + 1
        return statement

    def _is_block(self, opening: int) -> bool:
        """Return whether a brace opens a block, and not an array literal as in `{1, 2} ~ ...`."""
        inside = range(opening + 1, self.partner[opening])
        return len(inside) == 0 or any(
            self.word(token) in (";", "if", "for", "while", "profile")
            or (self.word(token) == "{" and self.word(token + 1) == "}")
            for token in inside
        )

    def _read_simple(self) -> Statement:
        first, word = self._next, self.word(self._next)
        semicolon = first
        while self.word(semicolon) != ";":
            if semicolon >= len(self.tokens) or self.word(semicolon) in ("}", ")", "]"):
                last = max(semicolon - 1, first)
                raise self.error(last, f"`;` is missing behind `{self.word(last)}`.")
            semicolon = self.partner.get(semicolon, semicolon) + 1
        self._next = semicolon + 1
        tokens = Range(first, semicolon + 1)
        if word in (";", "break", "continue", "return"):
            value = Range(min(first + 1, semicolon), semicolon)
            return Simple(tokens, word.strip(";"), value)
        if self._starts_declaration(first):
            return self._read_declaration(tokens)
        if word in ("target", "jacobian") and self.word(first + 1) == "+=":
            return Increment(tokens, word, Range(first + 2, semicolon))
        for token in self.outermost(Range(first, semicolon)):
            if self.word(token) == "~":
                return self._read_tilde(tokens, token)
            if self.word(token) in ASSIGNMENTS:
                left, value = Range(first, token), Range(token + 1, semicolon)
                if left.first < left.stop and value.first < value.stop:
                    return Assign(tokens, left, value)
        if self._is_name(first) and self.word(first + 1) == "(":
            return Call(tokens, word)
        for token in self.outermost(Range(first, semicolon)):
            if self.word(token) == "<" and self.word(token + 1) == "-":
                new = "`target += …`, without `lp__` on the right" if word == "lp__" else "`=`"
                told = "`<-` is no longer an assignment."
                raise self.error(token, told, f"Write {new} instead.")
        raise self._unexpected(first, "Expected a statement")

    def _read_declaration(self, tokens: Range) -> Declare:
        spec, token = self._read_type(tokens.first)
        names: list[tuple[int, Range | None]] = []
        for part in self.split(Range(token, tokens.stop - 1)):
            name = part.first
            if not self._is_name(name) or name >= part.stop:
                raise self._unexpected(name, "Expected the name of a variable")
            if self.word(name + 1) == "[" and name + 1 < part.stop:
                stop = self.partner[name + 1] + 1
                sizes = self.text(Range(name + 1, stop))
                value = f" {self.text(Range(stop, part.stop))}" if stop < part.stop else ""
                new = f"array{sizes} {self.text(spec.base_range)} {self.word(name)}{value};"
                raise self.error(
                    name + 1,
                    f"`{self.word(name)}{sizes}` uses the array syntax that Stan 2.33 removed.",
                    f"Write `{new}`.",
                )
            if name + 1 == part.stop:
                names.append((name, None))
            elif self.word(name + 1) == "=" and name + 2 < part.stop:
                names.append((name, Range(name + 2, part.stop)))
            else:
                raise self._unexpected(name + 1, "Expected `,`, `=` or `;`")
        if not names:
            raise self._unexpected(token, "Expected the name of a variable")
        return Declare(tokens, spec, names)

    def _read_tilde(self, tokens: Range, tilde: int) -> Tilde:
        name, opening = tilde + 1, tilde + 2
        if tilde == tokens.first or not self._is_name(name) or self.word(opening) != "(":
            raise self._unexpected(name, "Expected a distribution such as `normal(...)`")
        closing, semicolon = self.partner[opening], tokens.stop - 1
        arguments = self.split(Range(opening + 1, closing))
        variate = Range(tokens.first, tilde)
        statement = Tilde(tokens, variate, tilde, self.word(name), arguments, False, None, None)
        if closing + 1 == semicolon:
            return statement
        bracket = closing + 2
        if self.word(closing + 1) != "T" or self.word(bracket) != "[":
            raise self._unexpected(closing + 1, "Expected `;` or a truncation `T[..., ...]`")
        bounds = self.split(Range(bracket + 1, self.partner[bracket]))
        if self.partner[bracket] + 1 != semicolon or len(bounds) > 2:
            raise self._unexpected(bracket, "Expected a truncation `T[lower, upper]`")
        statement.truncated = True
        if bounds and bounds[0].first < bounds[0].stop:
            statement.lower = bounds[0]
        if len(bounds) == 2 and bounds[1].first < bounds[1].stop:
            statement.upper = bounds[1]
        return statement

    def _is_name(self, token: int) -> bool:
        return token < len(self.tokens) and self.tokens[token].kind == "name"

    def _unexpected(self, token: int, expectation: str) -> ProgramError:
        found = f"`{self.word(token)}`" if token < len(self.tokens) else "the end of the program"
        return self.error(token, f"{expectation}, found {found}.")

    def _refuse_sizes(self, stop: int) -> None:
        """Refuse a type of a function with sizes behind it, such as `vector[]`, before `stop`."""
        closing = stop - 1 if self.word(stop) != "[" else self.partner[stop]
        if self.word(closing) == "]":
            opening = next(one for one, other in self.partner.items() if other == closing)
            sizes = "".join(map(self.word, range(opening + 1, closing)))
            new = f"{self.word(opening - 1)} {self.word(closing + 1)}"
            told = f"`{self.word(opening - 1)}[{sizes}]` is no type of a function."
            if not sizes.strip(","):
                new = f"array[{sizes}] {new}"
            raise self.error(opening, told, f"Write `{new}`.")


def parsed(source: str) -> Syntax:
    """Return the syntax of a text, includes resolved."""
    return Syntax(SourceText.expand(source, "program"))


def free_prefix(prefix: str, *programs: Syntax) -> str:
    """Return a prefix with which no word of the programs begins."""
    words = {token.text for one in programs for token in one.tokens}
    while any(word.startswith(prefix) for word in words):
        prefix = f"x{prefix}"
    return prefix


def walk(statements: Sequence[Statement]) -> Iterator[Statement]:
    """Yield every statement, outer before inner, in the order of the text."""
    return (statement for statement, _ in walk_within(statements))


def walk_within(
    statements: Sequence[Statement], inside: tuple[Compound, ...] = ()
) -> Iterator[tuple[Statement, tuple[Compound, ...]]]:
    """Yield every statement as `walk` does, with the compound ones around it, outermost first."""
    for statement in statements:
        yield statement, inside
        if isinstance(statement, Compound):
            yield from walk_within(statement.body, (*inside, statement))

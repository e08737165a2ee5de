"""Tokenisation of Stan source, and matching of its brackets."""

from __future__ import annotations

import re
from typing import NamedTuple

from stanct.stan.source import SourceText

_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\f\r\n]+ | //[^\r\n]* | /\*.*?\*/)
  | (?P<name>[A-Za-z][A-Za-z0-9_]*)
  | (?P<number>(?:\d+(?:_\d+)*(?:\.(?:\d+(?:_\d+)*)?)?|\.\d+(?:_\d+)*)
       (?:[eE][+-]?\d+(?:_\d+)*)?i?)
  | (?P<string>"[^"\r\n]*")
  | (?!/\*)(?P<mark>\.\*=|\./=|%/%|\.\*|\./|\.\^|\|\||&&|==|!=|<=|>=|\+=|-=|\*=|/=
       |[-+*/^%\\<>=!?:~,;|(){}\[\]'.])
    """,
    re.VERBOSE | re.DOTALL,
)

_CLOSING = {"(": ")", "[": "]", "{": "}"}
DEEPEST_NESTING = 150
"""Maximum nesting depth of brackets and of statements. Deeper code is refused."""


class Token(NamedTuple):
    """One token; `start` and `end` are offsets into the expanded text."""

    kind: str
    text: str
    start: int
    end: int


def tokenize(source: SourceText) -> list[Token]:
    """Return the tokens of a program, without white space and comments."""
    text, offset, tokens = source.text, 0, list[Token]()
    while offset < len(text):
        match = _TOKEN.match(text, offset)
        if match is None:
            raise _unreadable(source, offset)
        kind = match.lastgroup or ""
        if kind != "space":
            tokens.append(Token(kind, match.group(), offset, match.end()))
        offset = match.end()
    return tokens


def _unreadable(source: SourceText, offset: int) -> Exception:
    text = source.text
    if text.startswith("/*", offset):
        return source.error(offset, "This comment is never closed by `*/`.")
    if text[offset] == '"':
        return source.error(offset, "This string does not end on its line.")
    if text.startswith("#include", offset):
        told = "This #include names no file, or has no space before the name."
        return source.error(offset, told, "Write `#include file.stan`.")
    if text[offset] == "#":
        return source.error(offset, "`#` starts no comment in Stan.", "Write `//` instead.")
    return source.error(offset, f"The character {text[offset]!r} has no meaning in Stan.")


def matched_brackets(source: SourceText, tokens: list[Token]) -> dict[int, int]:
    """Return a mapping from the index of each opening bracket's token to the closing one's."""
    partner: dict[int, int] = {}
    opened: list[int] = []
    for index, token in enumerate(tokens):
        if token.kind != "mark":
            continue
        if token.text in _CLOSING:
            opened.append(index)
            if len(opened) > DEEPEST_NESTING:
                raise source.error(token.start, "Brackets are nested too deeply to be read.")
        elif token.text in (")", "]", "}"):
            if not opened:
                raise source.error(token.start, f"`{token.text}` closes nothing.")
            opening = tokens[opened[-1]]
            if _CLOSING[opening.text] != token.text:
                place = source.place(opening.start)
                raise source.error(
                    token.start,
                    f"`{token.text}` does not match the `{opening.text}` of line {place.line}.",
                )
            partner[opened.pop()] = index
    if opened:
        opening = tokens[opened[-1]]
        raise source.error(opening.start, f"This `{opening.text}` is never closed.")
    return partner

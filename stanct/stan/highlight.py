"""Syntax highlighting of Stan code, for notebooks and pages.

Pygments has a lexer for Stan, but it does not know `tuple` and `profile`, highlights `multiplier`
only directly after `<`, and treats `#include` as a comment (Pygments 2.21).
"""

from __future__ import annotations

import html
import re

_KEYWORDS = (
    "functions|data|transformed|parameters|model|generated|quantities|for|in|while|if|else|return|"
    "break|continue|profile|print|reject|fatal_error|target|jacobian|lower|upper|offset|multiplier"
)
_TYPES = (
    "int|real|complex|void|array|tuple|vector|row_vector|matrix|complex_vector|complex_row_vector|"
    "complex_matrix|ordered|positive_ordered|simplex|unit_vector|sum_to_zero_vector|"
    "sum_to_zero_matrix|cholesky_factor_corr|cholesky_factor_cov|corr_matrix|cov_matrix|"
    "row_stochastic_matrix|column_stochastic_matrix"
)
_PIECE = re.compile(
    rf"""(?P<comment>//[^\n]*|/\*.*?\*/)
      | (?P<string>"[^"\n]*")
      | \b(?P<keyword>{_KEYWORDS})\b
      | \b(?P<type>{_TYPES})\b
      | (?P<name>[A-Za-z]\w*)
      | (?P<number>(?:\d[\d_]*\.?[\d_]*|\.\d[\d_]*)(?:[eE][+-]?\d+)?)""",
    re.VERBOSE | re.DOTALL,
)
_STYLES = {
    "comment": "color:#768390;font-style:italic",
    "keyword": "color:#9060c8;font-weight:600",
    "type": "color:#2f6fd0",
    "number": "color:#a85a00",
    "string": "color:#1a7f4b",
}


def highlighted(code: str) -> str:
    """Return Stan code as escaped HTML, with ``<span class="stan-…">`` around coloured text."""
    return _coloured(code, {kind: f'class="stan-{kind}"' for kind in _STYLES})


def _coloured(code: str, attributes: dict[str, str]) -> str:
    parts, end = [], 0
    for match in _PIECE.finditer(code):
        parts.append(html.escape(code[end : match.start()]))
        text, kind = match.group(), match.lastgroup or ""
        text = html.escape(text)
        parts.append(f"<span {attributes[kind]}>{text}</span>" if kind in attributes else text)
        end = match.end()
    return "".join([*parts, html.escape(code[end:])])


class StanCode(str):
    """The text of a Stan program, which notebooks display with syntax highlighting."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        # Notebooks lack the style sheet of the pages, so each span carries its own style.
        styles = {kind: f'style="{style}"' for kind, style in _STYLES.items()}
        return f'<pre style="font-family:monospace">{_coloured(self, styles)}</pre>'

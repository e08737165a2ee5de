"""Stan code that notebooks show in colour."""

from __future__ import annotations

import html


class StanCode(str):
    """The text of a Stan program: a string that a notebook highlights, where Pygments is there."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        try:
            from pygments import highlight
            from pygments.formatters import HtmlFormatter
            from pygments.lexers import StanLexer
        except ImportError:
            return f"<pre>{html.escape(self)}</pre>"
        return highlight(str(self), StanLexer(), HtmlFormatter(noclasses=True))

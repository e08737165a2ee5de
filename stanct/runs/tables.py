"""How results look in a notebook, and the checks of a run as a table."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from stanct.runs.verdicts import Check

if TYPE_CHECKING:
    import pandas as pd

# Rows of the table of a run in a notebook.
MOST_ROWS = 20


class Checks(tuple[Check, ...]):
    """The checks of a run: a tuple that shows itself as a table."""

    __slots__ = ()

    @property
    def table(self) -> pd.DataFrame:
        """One row for each check: its fields, what it is `of`, and the kind of `bound`."""
        import pandas as pd

        rows = [(c.passed, c.of, c.value, c.threshold, c.bound, c.message, c.remedy) for c in self]
        columns = ["passed", "of", "value", "threshold", "bound", "message", "remedy"]
        return pd.DataFrame(rows, index=[c.name for c in self], columns=columns)

    def __repr__(self) -> str:
        return "\n".join(map(repr, self))

    def _repr_html_(self) -> str:
        columns = ["check", "verdict", "what was seen", "what to do"]
        rows = [
            [c.title, "ok" if c.passed else "failed", c.message, "" if c.passed else c.remedy]
            for c in self
        ]
        if all(c.passed for c in self):
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        return html_table(columns, rows)


def html_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table of plain texts, which follows the notebook's own style."""
    head = "".join(f"<th style='text-align:left'>{html.escape(name)}</th>" for name in columns)
    body = "".join(
        "<tr>"
        + "".join(f"<td style='text-align:left'>{html.escape(text)}</td>" for text in row)
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def in_html(words: str, checks: Checks, summary: pd.DataFrame | None) -> str:
    """A run for a notebook: its words, the checks that failed, and the head of its summary."""
    lines = "".join(f"<p>{html.escape(line)}</p>" for line in words.splitlines())
    failed = Checks(check for check in checks if not check.passed)
    table = "" if summary is None else summary.head(MOST_ROWS).to_html(float_format="%.4g")
    return f"{lines}{failed._repr_html_() if failed else ''}{table}"

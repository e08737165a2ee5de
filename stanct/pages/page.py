"""Self-contained HTML pages: one file, no network, light and dark, pictures as inline SVG."""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from warnings import catch_warnings, filterwarnings

import matplotlib as mpl
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

from stanct.common.drafts import write_whole
from stanct.common.resources import resource_folder, writing
from stanct.common.settings import check_page_file
from stanct.common.version import __version__
from stanct.estimates import digits as of_errors
from stanct.plots.canvas import INK, QUIET, RULE

# The page's colours replace those of a picture, so that it follows light and dark mode.
_PAGE_COLOURS = {INK: "var(--ink)", QUIET: "var(--quiet)", RULE: "var(--rule)"}


LONG_WORD = 16
"""Characters of a word that a narrow column cannot take in one line."""


class HtmlPage(str):
    """The text of a page: a string that notebooks show as the page."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"HtmlPage of {len(self.encode()) / 1000:.0f} kB"

    def _repr_html_(self) -> str:
        # A frame separates the page's style sheet from the notebook's.
        style = "width:100%;height:48rem;border:1px solid #8884"
        return f'<iframe title="stanct" style="{style}" srcdoc="{html.escape(self)}"></iframe>'

    def write(self, file: str | os.PathLike[str]) -> Path:
        """Write the page to a file, whole or not at all; `StanctError` if it cannot be written."""
        path = check_page_file(file)
        with writing("The page", path, "Choose a file that you can write."):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, self.encode(errors="xmlcharrefreplace"))
        return path


@dataclass(frozen=True)
class Picture:
    """A figure of a page: inline SVG, a heading, and a caption that explains how to read it."""

    title: str
    caption: str
    svg: Markup


@dataclass(frozen=True)
class Cell:
    """A table cell: the text shown, and the value by which it is sorted; words have no value."""

    text: str
    value: float | None = None


@dataclass(frozen=True)
class Row:
    """A row of a table; `colour` is that of a chain, if any."""

    name: str
    cells: tuple[Cell, ...]
    colour: str = ""


@dataclass(frozen=True)
class Table:
    """A table with named rows; the first of `columns` is the heading of the names."""

    caption: str
    columns: tuple[str, ...]
    rows: tuple[Row, ...]


def number(value: float, digits: int = 4) -> str:
    """Format a number with `digits` significant digits and a typographic minus sign."""
    value = float(value)
    if math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value.is_integer() and abs(value) < 1e9:
        return f"{value:.0f}".replace("-", "−")
    if not 1e-4 <= abs(value) < 1e6:
        text = f"{value:.{digits - 1}e}"
    else:
        places = digits - 1 - math.floor(math.log10(abs(value)))
        text = f"{value:.{max(0, min(places, 6))}f}"
    return text.replace("-", "−")


def with_error(value: float, error: float) -> str:
    """Format a value and its standard error to two digits of the error: −1081.030 ± 0.043."""
    if not (math.isfinite(value) and math.isfinite(error)) or error <= 0:
        return f"{number(value, 6)} ± {number(error, 2)}"
    return of_errors.with_error(value, error).replace("-", "−", int(value < 0))


def cell(value: float, digits: int = 4) -> Cell:
    """Make a table cell of one number."""
    return Cell(number(value, digits), float(value))


def picture(axes: Axes, title: str, caption: str, prefix: str) -> Picture:
    """Convert the figure of Matplotlib axes to inline SVG, whose ids the prefix makes unique."""
    figure, buffer = axes.get_figure(root=True), io.StringIO()
    assert figure is not None
    # Text stays text, which is smaller, uses the page's font, and can be searched. The browser
    # draws letters that Matplotlib's font lacks.
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": prefix}), catch_warnings():
        filterwarnings("ignore", "Glyph .* missing from")
        _lay_out(figure)
        figure.savefig(
            buffer, format="svg", transparent=True, metadata=dict.fromkeys(("Date", "Creator"))
        )
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = re.sub(r"font: [^;\"]*?(\d+(?:\.\d+)?)px[^;\"]*", r"font-size: \1px", svg)
    for colour, variable in _PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    label = f'<svg role="img" aria-label="{html.escape(title)}"'
    return Picture(title, caption, Markup(svg.replace("<svg", label, 1)))


def _lay_out(figure: Figure) -> None:
    """Place the parts of a figure as `savefig` would, which draws all of it once more for that."""
    if (engine := figure.get_layout_engine()) is not None:
        FigureCanvasSVG(figure)
        engine.execute(figure)
        figure.set_layout_engine("none")


def signed(text: str) -> str:
    """Replace the hyphens before numbers in a text by minus signs."""
    return re.sub(r"(?<![\w.])-(?=[\d∞])", "−", text)


def breakable(text: object) -> str:
    """A text that, if it is one long word, may break behind an underscore: a method's name."""
    word = str(text)
    if len(word) < LONG_WORD or " " in word:
        return word
    return Markup(str(Markup.escape(word)).replace("_", "_<wbr>"))


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(resource_folder("templates") / "pages"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=True,
    )
    environment.filters["signed"] = signed
    environment.filters["breakable"] = breakable
    return environment


def render_page(template: str, **values: object) -> HtmlPage:
    """Fill a template of `templates/pages`, which escapes every value that is not `Markup`.

    The page's security policy allows only its own script and no network access.
    """
    folder = resource_folder("templates") / "pages"
    script = (folder / "page.js").read_text(encoding="utf-8")
    digest = hashlib.sha256(script.encode()).digest()
    return HtmlPage(
        _environment()
        .get_template(template)
        .render(
            version=__version__,
            style=Markup((folder / "page.css").read_text(encoding="utf-8")),
            script=Markup(script),
            script_hash=base64.b64encode(digest).decode(),
            **values,
        )
    )

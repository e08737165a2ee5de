"""Sphinx: pages in Markdown, formulas in MathML, the reference from docstrings; no network."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

import stanct

project = "stanct"
author = "The stanct authors"
release = version = stanct.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.autosummary", "sphinx.ext.napoleon"]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
exclude_patterns = ["*/README.md", "examples", "stan_models", "*/examples", "*/stan_models"]

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autosummary_generate = False
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"stanct {release}"
html_static_path = ["_static"]
html_css_files = ["stanct.css"]
html_show_copyright = False
html_show_sourcelink = False
html_copy_source = False
html_math_renderer = "mathml"


def _inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _block(translator: Any, node: nodes.math_block) -> None:
    formula = convert(node.astext(), display="block")
    translator.body.append(f'<div class="formula" tabindex="0">{formula}</div>')
    raise nodes.SkipNode


def _bars(
    _app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """The bars of |ξ| are no substitution of reStructuredText."""
    lines[:] = [line if "``" in line else line.replace("|", r"\|") for line in lines]


def _colon(
    _app: Sphinx, what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """What comes before a colon in the first line of a property is not its type."""
    if what == "property" and lines:
        lines[0] = lines[0].replace(": ", " – ", 1)


def _together(
    _app: Sphinx, _what: str, _name: str, _thing: Any, _options: Any, lines: list[str]
) -> None:
    """Of two attributes that are told together, the first is not the type of the second."""
    lines[:] = [re.sub(r"(?<=^:ivar )(\w+), (?=\w+:)", "\\1,\u200b", line) for line in lines]


def _opened(_app: Sphinx, _page: str, _template: str, context: dict[str, Any], _tree: Any) -> None:
    """A picture opens alone, and as large as it is."""
    body = context.get("body", "")
    context["body"] = re.sub(r'<img [^>]*src="(\S+)"[^>]*>', r'<a href="\1">\g<0></a>', body)


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which browsers draw by themselves."""
    app.connect("autodoc-process-docstring", _colon, priority=400)
    app.connect("autodoc-process-docstring", _bars)
    app.connect("autodoc-process-docstring", _together, priority=600)
    app.connect("html-page-context", _opened)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))

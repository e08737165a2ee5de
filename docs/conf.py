"""Sphinx: pages in Markdown, formulas in MathML, the reference from docstrings; no network."""

from __future__ import annotations

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


def setup(app: Sphinx) -> None:
    """Formulas become MathML, which browsers draw by themselves."""
    app.connect("autodoc-process-docstring", _bars)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))

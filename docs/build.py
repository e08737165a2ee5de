"""Build the documentation: one command, no network.

    python docs/build.py [--out docs/_build]
    python docs/build.py --notebook tour.ipynb     # the page docs/notebook.md alone

Runs the code of every page, puts what it printed below it, and lets Sphinx make the pages, for
which a warning is an error. The pictures are drawn by that code. Needs `pip install -e '.[docs]'`.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from stanct.cli.main import main as stanct_command

HERE = Path(__file__).resolve().parent

WIDTH = 80
"""Characters of a line of output that a page shows without scrolling."""
BLOCK = re.compile(r"^```(python|notebook|sh|stan)\n(.*?)^```\n", re.DOTALL | re.MULTILINE)

FILES = re.compile(r"\b(?:examples|stan_models)/[\w/.-]+\.(?:stan|json|csv)\b")
"""Programs and data that the code of a page names."""
ARCHIVE = "stanct-examples.zip"
"""All of these, under the paths by which pages name them."""


def pages() -> list[Path]:
    """The pages, relative to this folder."""
    return sorted(p.relative_to(HERE) for p in HERE.rglob("*.md") if "_build" not in p.parts)


@contextlib.contextmanager
def workplace(folder: Path) -> Iterator[None]:
    """A folder where a page's code finds the examples and its own modules, and leaves its pictures.

    The numbers on the pages are the embedded engine's, also where there is a CmdStan.
    """
    for name in ("examples", "stan_models"):
        if not (folder / name).exists():
            (folder / name).symlink_to(HERE.parent / name)
    before, home = Path.cwd(), os.environ.get("CMDSTAN")
    os.chdir(folder)
    sys.path.insert(0, str(folder))
    os.environ["CMDSTAN"] = str(HERE / "no-cmdstan-here")
    try:
        yield
    finally:
        os.chdir(before)
        sys.path.remove(str(folder))
        os.environ.pop("CMDSTAN")
        if home is not None:
            os.environ["CMDSTAN"] = home


def with_outputs(text: str, cells: list[dict[str, str]] | None = None) -> str:
    """A page whose blocks of code, run in the current folder, are followed by what they print.

    The outputs of a notebook's cells are added to `cells`, by MIME type.
    """
    names: dict[str, Any] = {}

    def run(block: re.Match[str]) -> str:
        language, code = block.groups()
        if language == "notebook":
            shown = _cell(code, names)
            if cells is not None:
                cells.append(shown)
            return f"```python\n{code}```\n\n{_on_the_page(shown)}"
        shown = {"python": _python, "sh": _command, "stan": _file}[language](code, names)
        return block[0] + (f"\n```text\n{_filled(shown)}\n```\n" if shown.strip() else "")

    return BLOCK.sub(run, text)


def named_files(text: str) -> list[str]:
    """Programs and data that the blocks of code of a page name, in order."""
    return list(
        dict.fromkeys(name for block in BLOCK.finditer(text) for name in FILES.findall(block[0]))
    )


def with_files(text: str, depth: int = 0) -> str:
    """A page that offers its programs and data before the block of code that first names one."""
    named = named_files(text)
    if not named:
        return text
    start = next(block.start() for block in BLOCK.finditer(text) if FILES.search(block[0]))
    links = ", ".join(f"{{download}}`{name}`" for name in named)
    archive = f"{{download}}`{ARCHIVE} <{'../' * depth}{ARCHIVE}>`"
    told = f"*Files: {links}. {archive} has those of all pages, under the same paths.*\n\n"
    return text[:start] + told + text[start:]


def write_archive(file: Path) -> None:
    """Write the programs and data of all pages into one archive."""
    named = {name for page in pages() for name in named_files((HERE / page).read_text("utf-8"))}
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name in sorted(named):
            archive.write(HERE.parent / name, name)


def _filled(text: str) -> str:
    """The text with its sentences wrapped, and its tables as they are."""
    lines = []
    for line in text.rstrip().splitlines():
        head, body = re.match(r"((?:ok|FAIL)? *)(.*)", line).groups()  # type: ignore[union-attr]
        hang = " " * len(head)
        wrapped = textwrap.wrap(body, WIDTH - len(head), subsequent_indent=hang)
        lines += [line] if "  " in body or len(line) <= WIDTH else [head + "\n".join(wrapped)]
    return "\n".join(lines)


def _cell(code: str, names: dict[str, Any]) -> dict[str, str]:
    """Runs a notebook's cell; what a notebook gets of the last expression, by MIME type."""
    tree = ast.parse(code)
    last = tree.body.pop()
    assert isinstance(last, ast.Expr), "The last line of a cell must be an expression."
    with contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, "<page>", "exec"), names)
        value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
    shown = {"text/plain": repr(value)}
    if hasattr(value, "_repr_html_"):
        shown["text/html"] = value._repr_html_()
    return shown


def _on_the_page(shown: dict[str, str]) -> str:
    if "text/html" not in shown:
        return f"```text\n{shown['text/plain']}\n```\n"
    return f'```{{raw}} html\n<div class="cell">\n{shown["text/html"]}\n</div>\n```\n'


def as_notebook(text: str, cells: list[dict[str, str]]) -> dict[str, Any]:
    """A page as a Jupyter notebook, format 4.5, with the outputs of its cells."""
    parts: list[dict[str, Any]] = []
    outputs, end = iter(cells), 0
    for block in BLOCK.finditer(text):
        # A role of the site says where to find this very notebook.
        if between := re.sub(
            r" \{download\}[^.]*\.ipynb[^.]*\.", "", text[end : block.start()]
        ).strip():
            parts.append({"cell_type": "markdown", "source": between})
        number = sum("outputs" in part for part in parts) + 1
        result = {"output_type": "execute_result", "data": next(outputs), "metadata": {}}
        parts.append(
            {
                "cell_type": "code",
                "source": block[2].rstrip(),
                "execution_count": number,
                "outputs": [{**result, "execution_count": number}],
            }
        )
        end = block.end()
    if rest := text[end:].strip():
        parts.append({"cell_type": "markdown", "source": rest})
    return {
        "cells": [{"id": f"cell-{n}", "metadata": {}, **part} for n, part in enumerate(parts)],
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _python(code: str, names: dict[str, Any]) -> str:
    """Runs lines of Python, and shows the last expression as a prompt does.

    Code whose first line names a file is written to that file instead, for later code to import.
    """
    if (module := re.match(r"# (\w+\.py)\n", code)) is not None:
        Path(module[1]).write_text(code, encoding="utf-8")
        importlib.invalidate_caches()
        return ""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        exec(compile(tree, "<page>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<page>", "eval"), names)
            if value is not None and "matplotlib" not in type(value).__module__:
                print(value if type(value) is str else repr(value))
    return output.getvalue()


def _command(code: str, _names: dict[str, Any]) -> str:
    """Runs `stanct` commands in this process."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(io.StringIO()):
        for line in code.replace("\\\n", " ").splitlines():
            name, *words = shlex.split(line)
            if name != "stanct" or stanct_command(words):
                raise RuntimeError(f"This command of a page failed: {line}")
    return output.getvalue()


def _file(code: str, _names: dict[str, Any]) -> str:
    """Writes a program into the file that its first line names."""
    found = re.match(r"// (\S+\.stan)\n", code)
    if found is None:
        raise RuntimeError("The first line of a page's program must be its name: // model.stan")
    Path(found[1]).write_text(code, encoding="utf-8")
    return ""


def make_source(folder: Path) -> None:
    """The pages with the outputs of their code, and the pictures, in a folder for Sphinx."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    shutil.copy(HERE / "conf.py", folder)
    shutil.copytree(HERE / "_static", folder / "_static")
    write_archive(folder / ARCHIVE)
    for page in pages():
        (folder / page).parent.mkdir(exist_ok=True)
        text, cells = (HERE / page).read_text(encoding="utf-8"), []
        with workplace((folder / page).parent):
            shown = with_outputs(with_files(text, len(page.parts) - 1), cells)
        (folder / page).write_text(shown, encoding="utf-8")
        if cells:
            write_notebook((folder / page).with_suffix(".ipynb"), text, cells)


def write_notebook(file: Path, text: str, cells: list[dict[str, str]]) -> None:
    """Write a page as an executed notebook."""
    file.write_text(json.dumps(as_notebook(text, cells), indent=1), encoding="utf-8")


def make_notebook(file: Path) -> None:
    """Execute the page of a notebook alone."""
    text, cells = (HERE / "notebook.md").read_text(encoding="utf-8"), []
    with tempfile.TemporaryDirectory() as folder, workplace(Path(folder)):
        with_outputs(text, cells)
    write_notebook(file, text, cells)


def make_pages(source: Path, out: Path) -> int:
    """Sphinx on a folder of `make_source`; its exit status."""
    options = ["-W", "--keep-going", "-q", "-E", "-b", "html"]
    command = [sys.executable, "-m", "sphinx", *options, str(source), str(out)]
    return subprocess.run(command, check=False).returncode


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=HERE / "_build", metavar="FOLDER")
    parser.add_argument("--notebook", type=Path, metavar="FILE", help="write this alone")
    options = parser.parse_args()
    if options.notebook is not None:
        make_notebook(options.notebook.resolve())
        return 0
    out = options.out.resolve()
    make_source(out / "source")
    status = make_pages(out / "source", out / "html")
    # Whatever walks the checkout, such as the builder of the sdist, would follow the links.
    for link in (out / "source").rglob("*"):
        if link.is_symlink():
            link.unlink()
    if status == 0:
        print(out / "html" / "index.html")
    return status


if __name__ == "__main__":
    sys.exit(main())

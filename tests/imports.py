"""Reads all imports of the package from its source, inside functions too."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

PACKAGE = "stanct"


def module_name(path: Path, root: Path) -> str:
    """The dotted name of a file of the package that lies below `root`."""
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def modules(root: Path) -> dict[str, Path]:
    """Every module of the package below `root`, name to file."""
    return {module_name(path, root): path for path in sorted((root / PACKAGE).rglob("*.py"))}


@cache
def imported_names(package: str, text: str) -> tuple[str, ...]:
    """Dotted names that a text imports as a module of a package, by any kind of import statement.

    Seen are `import a.b`, `from a import b` and relative forms, at the top level, inside functions
    and classes, under `TYPE_CHECKING`, and calls of `import_module` and `__import__` with a text.
    """
    return tuple(_imported_names(package, ast.parse(text)))


def _imported_names(package: str, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                start = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{start}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call):
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in ("import_module", "__import__") and node.args:
                first = node.args[0]
                if isinstance(first, ast.Constant) and isinstance(first.value, str):
                    yield first.value


def graph(root: Path) -> dict[str, set[str]]:
    """Which modules of the package each of them imports, by dotted names."""
    known = modules(root)
    found: dict[str, set[str]] = {name: set() for name in known}
    for name, path in known.items():
        package = name if path.name == "__init__.py" else name.rpartition(".")[0]
        for imported in imported_names(package, path.read_text(encoding="utf-8")):
            while imported and imported not in known:
                imported = imported.rpartition(".")[0]
            if imported and imported != name:
                found[name].add(imported)
    return found


def circles(arrows: Mapping[str, set[str]]) -> list[list[str]]:
    """Groups of modules that import each other in a circle (Tarjan 1972)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(arrows[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            at = stack.index(name)
            group = stack[at:]
            del stack[at:]
            if len(group) > 1:
                found.append(sorted(group))

    for name in sorted(arrows):
        if name not in index:
            visit(name)
    return found


def counts(root: Path) -> dict[str, int]:
    """How many modules, arrows between them, and modules that lie on a circle there are."""
    arrows = graph(root)
    return {
        "modules": len(arrows),
        "arrows": sum(map(len, arrows.values())),
        "circles": len(circles(arrows)),
        "modules on circles": sum(map(len, circles(arrows))),
    }


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{counts(Path(sys.argv[1] if len(sys.argv) > 1 else '.'))}\n")

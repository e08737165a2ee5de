"""What all papers share: the work and the product of a figure, other examples, and the look."""

from __future__ import annotations

import functools
import importlib.util
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter
from parts import Parts

from stanct.plots.canvas import CHAIN_COLOURS, INK, QUIET, drawing

EXAMPLES = Path(__file__).resolve().parents[1]
sys.path.append(str(EXAMPLES / "boltzmann"))
from boltzmann_machine import BoltzmannMachine  # noqa: E402

BLUE, ORANGE, GREEN, PURPLE, OLIVE, RED = CHAIN_COLOURS[:6]
__all__ = [
    "BLUE", "EXAMPLES", "GREEN", "INK", "OLIVE", "ORANGE", "PURPLE", "QUIET", "RED",
    "BoltzmannMachine", "Item", "Made", "Work", "beta_axis", "example", "legend",
    "panels", "present", "seeds", "short_numbers", "titled",
]  # fmt: skip


@dataclass(frozen=True)
class Work:
    """How a figure is to be made.

    Attributes
    ----------
    quick
        The short form: seconds, and too few draws to compare with the paper.
    seed
        All parts get seeds of their own from this one.
    parts
        Makes and keeps the parts.
    repeats
        Repetitions instead of the figure's own number; None for that.
    data
        Folder with data that the package does not have; None without it.
    lengths
        Lengths of chains instead of the figure's own; empty for those.
    """

    quick: bool
    seed: int
    parts: Parts
    repeats: int | None = None
    data: Path | None = None
    lengths: tuple[int, ...] = ()

    def times(self, full: int, quick: int = 1) -> int:
        """The number of repetitions."""
        return self.repeats or (quick if self.quick else full)

    def judged(self, says: str, verdict: str) -> str:
        """What was found, with the verdict on it, which the short form is too short for."""
        stop = "" if says.endswith(".") else "."
        return says + (f"{stop} The short form is too short to judge." if self.quick else verdict)


@dataclass(frozen=True)
class Made:
    """A finished figure: its numbers, its picture, and what agrees with the paper."""

    rows: Sequence[dict[str, Any]]
    figure: Figure
    says: str


@dataclass(frozen=True)
class Item:
    """A figure or a table of a paper, and the function that makes it.

    Attributes
    ----------
    takes
        Which options of the command line mean something for it: "parts" for those about parts and
        their seeds, "repeats", "data" and "lengths".
    """

    name: str
    title: str
    make: Callable[[Work], Made]
    takes: tuple[str, ...] = ("parts",)


def seeds(seed: int, count: int) -> list[int]:
    """Independent seeds; more of them do not change the first ones."""
    children = np.random.SeedSequence(seed).spawn(count)
    return [int(child.generate_state(1)[0] % 2**30) for child in children]


def present(results: Sequence[dict[str, Any] | None]) -> list[dict[str, Any]]:
    """The results that there are."""
    return [result for result in results if result is not None]


@functools.cache
def example(folder: str, script: str = "run") -> Any:
    """A script of another example as a module.

    Its neighbours are imported by plain names, so its folder goes onto the search path.
    """
    path = EXAMPLES / folder / f"{script}.py"
    sys.path.append(str(path.parent))
    name = f"example_{folder}_{script}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up the module of a class here
    spec.loader.exec_module(module)
    return module


def panels(
    rows: int, columns: int, size: tuple[float, float], **shared: Any
) -> tuple[Figure, np.ndarray]:
    """A figure of styled panels, which are in an array of shape (rows, columns)."""
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **shared)
    for one in axes.flat:
        drawing(one)
    return figure, axes


def titled(axes: Axes, title: str, x: str = "", y: str = "") -> None:
    """Title and labels in the size of all pictures."""
    axes.set_title(title, loc="left", fontsize=9.5, color=INK)
    axes.set_xlabel(x, fontsize=9, color=INK)
    axes.set_ylabel(y, fontsize=9, color=INK)


def beta_axis(axes: Axes) -> None:
    """β on a scale that shows the steep start of a path."""
    axes.set_xscale("symlog", linthresh=0.001)
    axes.set_xticks([0, 0.001, 0.01, 0.1, 1], ["0", ".001", ".01", ".1", "1"])
    axes.set_xlim(0, 1)


def legend(axes: Sequence[Axes], **options: Any) -> None:
    """A legend in the first panel that has something to name."""
    for one in axes:
        if one.get_legend_handles_labels()[0]:
            one.legend(frameon=False, **{"fontsize": 8, **options})
            return


def short_numbers(axes: Axes) -> None:
    """Ticks at 1, 2 and 5 of each decade on logarithmic axes, with thousands and millions short."""

    def short(value: float, _place: float = 0) -> str:
        for size, letter in ((1e6, " M"), (1e3, " k")):
            if value >= size:
                return f"{value / size:g}{letter}"
        return f"{value:g}"

    for axis in (axes.xaxis, axes.yaxis):
        if axis.get_scale() != "log":
            continue
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=12))
        axis.set_major_formatter(short)
        axis.set_minor_formatter(NullFormatter())

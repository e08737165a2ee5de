"""Pictures of a run as files."""

from __future__ import annotations

import importlib
import inspect
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from stanct.common.errors import StanctError
from stanct.common.names import PICTURES
from stanct.common.settings import check_page_file
from stanct.runs.run import Run

DOTS = 150
"""Dots to the inch."""


def write_picture(
    run: Run, kind: str, file: str | os.PathLike[str], options: Mapping[str, Any]
) -> Path:
    """Write the picture that a method of the run draws, such as ``plot_trace`` for ``"trace"``. The
    ending of the file tells the format. The options are arguments of the method.
    """
    path = check_page_file(file)
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix.removeprefix(".").lower() not in known:
        raise StanctError(
            f"{path.name} ends with no format of pictures.",
            remedy=f"There are {', '.join(sorted(known))}: use e.g. {path.stem}.png.",
        )
    if kind not in PICTURES:
        raise StanctError(f"There is no picture {kind!r}.", remedy=f"Use {', '.join(PICTURES)}.")
    draw = getattr(run, f"plot_{kind}")
    for name in options:
        if name not in inspect.signature(draw).parameters:
            raise StanctError(
                f"The picture {kind!r} takes no {name}.",
                remedy="trace, pair and posterior take names, and posterior takes prior.",
            )
    with np.errstate(all="ignore"):
        drawn = draw(**options)
        # ArviZ 1.x returns a collection, 0.x axes.
        figure = drawn if hasattr(drawn, "savefig") else np.ravel(drawn)[0].figure
        figure.savefig(path, dpi=DOTS)
    # One that pyplot knows would be shown in a notebook, too.
    if isinstance(figure, Figure):
        importlib.import_module("matplotlib.pyplot").close(figure)
    return path

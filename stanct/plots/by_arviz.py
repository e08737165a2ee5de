"""Pictures of draws by ArviZ, with names as users write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates.arviz_bridge import density, drawn
from stanct.estimates.naming import Names, by_interest, label, places_of
from stanct.plots.canvas import SECOND
from stanct.runs.run import Run

_LAYOUT = {"backend_kwargs": {"layout": "constrained"}}
_TRACE = {"compact": False, **_LAYOUT}
_POINTS = {"alpha": 0.35, "s": 12, "lw": 0}
_POSTERIOR = {"hdi_prob": 0.95, "round_to": 3, "textsize": 10, **_LAYOUT}
_PAIR = {"marginals": True, "textsize": 10, "scatter_kwargs": _POINTS, **_LAYOUT}
FUNCTIONS: dict[str, tuple[str, dict[str, Any], str]] = {  # of ArviZ 0.x with options, and of 1.x
    "trace": ("plot_trace", _TRACE, "plot_trace_dist"),
    "pair": ("plot_pair", _PAIR, "plot_pair"),
    "posterior": ("plot_posterior", _POSTERIOR, "plot_dist"),
}
MOST = {"trace": 5, "pair": 4, "posterior": 6}
"""Scalars that a picture shows where no names are given."""
MOST_NAMED = 40
"""A picture of more scalars could not be read, and Matplotlib would take minutes."""


def first_names(run: Run, most: int) -> list[str]:
    """Names of the scalars that a reader asks for first."""
    order = by_interest(run.variables, run.provenance.get("parameters", ()))
    return [label(*place) for place in places_of(run.variables, order)[:most]]


def picture_of(kind: str, run: Run, names: Names = None, **options: Any) -> Any:
    """Let ArviZ draw ``"trace"``, ``"pair"`` or ``"posterior"``, and return what it returns.

    By default a few variables or scalars are drawn that a reader asks for first. ArviZ gets the
    options.

    Raises
    ------
    StanctError
        There is no such variable, or the names stand for too many scalars.
    """
    draws = named_draws(run, first_names(run, MOST[kind]) if names is None else names)
    if kind == "pair" and len(draws) < 2:
        raise StanctError(
            f"A picture of pairs needs two scalars, and has {', '.join(draws)}.",
            remedy="plot_posterior() shows one.",
        )
    old, usual, new = FUNCTIONS[kind]
    count = len(draws)
    if kind == "pair":
        usual = {**usual, "figsize": (2.3 * count + 0.6, 2.1 * count + 0.6)}
    elif kind == "posterior":
        rows, columns = -(-count // 3), min(count, 3)
        usual = {**usual, "grid": (rows, columns), "figsize": (3.6 * columns, 2.9 * rows)}
    return drawn(old, usual, new, draws, options)


def named_draws(run: Run, names: Names) -> dict[str, Array]:
    """Equally weighted draws of scalars by their names, shape (chains, draws) each."""
    places = places_of(run.variables, names or ())
    if len(places) > MOST_NAMED:
        raise StanctError(
            f"The names stand for {len(places)} scalars, and a picture shows {MOST_NAMED}.",
            remedy=f"Name some of their components, such as {label(*places[0])!r}.",
        )
    # As many as there are about independent ones: fewer would look rough, and more would repeat.
    share = np.exp(run.target_log_weights - run.target_log_weights.max())
    count = int(share.sum() ** 2 / np.square(share).sum() / len(share))
    draws = run.draws_pd([label(*place) for place in places], draws=max(1, count))
    shape = len(np.unique(draws["chain__"].to_numpy())), -1
    return {label(*place): np.reshape(draws[label(*place)].to_numpy(), shape) for place in places}


def with_prior(axes: Any, prior: Mapping[str, Array]) -> None:
    """Add the density of the prior to ArviZ's pictures of the posterior, where they lie."""
    for one in np.ravel(axes):
        name = one.get_title()
        if name not in prior:
            continue
        low, high = one.get_xlim()
        wide = high - low
        grid, height = density(prior[name], low - wide / 2, high + wide / 2)
        one.plot(grid, height, color=SECOND, ls="--", label="prior")
        one.set_xlim(grid[0], grid[-1])
        one.legend(frameon=False)

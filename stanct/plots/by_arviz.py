"""Pictures of draws by ArviZ, with names as users write them."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates.arviz_bridge import NARROW, density, drawn
from stanct.estimates.modality import modalities
from stanct.estimates.naming import Names, by_interest, label, places_of
from stanct.plots.canvas import INK, SECOND
from stanct.runs.run import Run

_LAYOUT = {"backend_kwargs": {"layout": "constrained"}}
_TRACE = {"compact": False, **_LAYOUT}
_POINTS = {"alpha": 0.35, "s": 12, "lw": 0}
# Words below the picture tell the mean and the intervals.
_WORDLESS = {"hdi_prob": "hide", "point_estimate": None}
_POSTERIOR = {**_WORDLESS, "textsize": 10, **_LAYOUT}
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
INTERVAL, MOST_PIECES = 0.95, 3
"""Probability of the intervals of highest density, and how many the words below a picture list."""
SHALLOW, LEAST_SHARE = 0.5, 0.01
"""Height of a valley over the lower of its humps, and share of a hump, for a piece of its own."""


TAIL, GRID, SMOOTH = 0.005, 400, "scott"
"""Share of the prior beyond each end of its curve, places of that, and the rule for its kernel."""


def first_names(run: Run, most: int) -> list[str]:
    """Names of the scalars that a reader asks for first."""
    order = by_interest(run.variables, run.provenance.get("parameters", ()))
    return [label(*place) for place in places_of(run.variables, order)[:most]]


def picture_of(kind: str, run: Run, names: Names = None, **options: Any) -> Any:
    """Let ArviZ draw ``"trace"``, ``"pair"`` or ``"posterior"``, and return what it returns.

    By default a few variables or scalars are drawn that a reader asks for first. ArviZ gets the
    options.
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
        usual = {**usual, "grid": (rows, columns), "figsize": (3.6 * columns, 3.1 * rows)}
        if options.keys() & {*_WORDLESS, "multimodal"}:
            usual = {name: value for name, value in usual.items() if name not in _WORDLESS}
    axes = drawn(old, usual, new, draws, options)
    if not options:
        _narrowed(kind, axes, draws)
    if kind == "posterior" and usual.keys() >= _WORDLESS.keys():
        _worded(axes, draws)
    return axes


def _narrowed(kind: str, axes: Any, draws: Mapping[str, Array]) -> None:
    """Redraw ArviZ's densities of scalars with humps, which are as wide as these lie apart."""
    grid, count = np.asarray(axes, object), len(draws)
    shape = {"trace": (count, 2), "pair": (count, count)}.get(kind)
    if shape is not None and grid.shape != shape:  # not the axes of ArviZ 0.x
        return
    if kind == "trace":
        grid[-1, 1].set_xlabel("draw")
    own = {"trace": lambda: grid[:, 0], "pair": grid.diagonal}.get(kind, grid.ravel)()
    for panel, values in zip(own, draws.values(), strict=False):
        if not isinstance(panel, Axes) or not _has_humps(values):
            continue
        parts = values if kind == "trace" else [values]
        if len(panel.lines) == len(parts):
            for line, part in zip(panel.lines, parts, strict=True):
                line.set_data(*density(part))
            panel.relim()
            panel.autoscale()


def _has_humps(values: Array) -> bool:
    """Whether the dip test finds several humps in equally weighted draws, (chains, draws)."""
    (test,) = modalities({"": values}, np.zeros(values.shape), {"": np.array(values.size)}, [""])
    return test.is_multimodal


def _worded(axes: Any, draws: Mapping[str, Array]) -> None:
    """Add means and intervals of highest density to ArviZ's pictures of the posterior."""
    for one in np.ravel(axes):
        name = one.get_title() if isinstance(one, Axes) else ""
        if name not in draws:
            continue
        pieces = highest_density(draws[name], INTERVAL)
        for low, high in pieces:
            one.plot([low, high], [0, 0], lw=4, color=INK, solid_capstyle="butt", clip_on=False)
        told = [f"{low:.3g} to {high:.3g}" for low, high in pieces[:MOST_PIECES]]
        more = f", {len(pieces) - MOST_PIECES} more" if len(pieces) > MOST_PIECES else ""
        one.set_xlabel(f"mean {draws[name].mean():.3g}; 95 % HDI\n{', '.join(told)}{more}")


def highest_density(values: Array, probability: float) -> list[tuple[float, float]]:
    """The intervals of highest density, several where the dip test finds humps, lowest first.

    Each ends at draws. A hump with less than a hundredth of the draws has none of its own, nor has
    one that a shallow valley parts from the next. `values`, equally weighted, have shape (chains,
    draws).
    """
    flat, count = np.sort(values, axis=None), values.size
    if not _has_humps(values):
        within = int(np.ceil(probability * count)) - 1
        first = int((flat[within:] - flat[: count - within]).argmin())
        return [(float(flat[first]), float(flat[first + within]))]
    grid, height = density(flat)
    order = np.argsort(-height)
    share = np.cumsum(height[order]) / height.sum()
    inside = np.zeros(len(grid), bool)
    inside[order[: 1 + np.searchsorted(share, probability)]] = True
    for low, high in itertools.pairwise(_runs(inside)):
        hump = min(height[slice(*low)].max(), height[slice(*high)].max())
        inside[low[1] : high[0]] = height[low[1] : high[0]].min() > SHALLOW * hump
    half = (grid[1] - grid[0]) / 2
    pieces = [
        flat[(flat >= grid[a] - half) & (flat <= grid[b - 1] + half)] for a, b in _runs(inside)
    ]
    return [(float(its[0]), float(its[-1])) for its in pieces if its.size > LEAST_SHARE * flat.size]


def _runs(inside: Array) -> list[tuple[int, int]]:
    """Where each run of True begins and ends."""
    edges = np.flatnonzero(np.diff(np.concatenate([[False], inside, [False]]).astype(int)))
    return [(int(a), int(b)) for a, b in zip(edges[::2], edges[1::2], strict=True)]


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
    """Add the density of the prior to ArviZ's pictures of the posterior.

    They become wider for it, by as much as they are wide to each side at most.
    """
    for one in np.ravel(axes):
        name = one.get_title()
        if name not in prior:
            continue
        low, high = one.get_xlim()
        ends = np.quantile(prior[name], [TAIL, 1 - TAIL])
        first, last = min(low, ends[0]), max(high, ends[1])
        rule = NARROW if _has_humps(prior[name]) else SMOOTH
        grid, height = density(prior[name], first, last, rule)
        wide = high - low
        x = np.linspace(max(first, low - wide), min(last, high + wide), GRID)
        one.plot(x, np.interp(x, grid, height, 0, 0), color=SECOND, ls="--", label="prior")
        one.set_xlim(x[0], x[-1])
        one.legend(frameon=False)

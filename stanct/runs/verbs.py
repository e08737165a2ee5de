"""What a result does with the rooms above it: it shows itself, opens its page, and goes on.

The only module through which results reach plots, pages and samplers, and only when they are asked.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from stanct.common.arrays import Array
from stanct.common.errors import StanctError, first_few
from stanct.estimates.naming import Names, label, places_of, variable

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from stanct.pages.page import HtmlPage

PRIOR_DRAWS = 500
"""Draws of each chain of the prior."""

# Pictures that some runs have no material for: the function of `stanct.plots`, and why.
_OWN = {
    "path": ("free_energy", "Runs of this kind have no path."),
    "modes": ("modes", "No search looked for modes."),
    "weights": ("weight_histogram", "All of its draws have the same weight."),
}

# What methods, pages and saved runs use of a run. A prompt that completes names leaves them out.
_INSIDE = {
    "arrays", "at_base", "bare_evidence", "base", "base_delta", "chain_counts", "data", "delta",
    "ended_early", "engine", "estimator", "extra_estimates", "facts", "curves", "file_format",
    "has_posterior", "is_thinned", "kept", "load", "lost_remedy", "made_by", "method_settings",
    "rao_blackwell_curve", "rao_blackwell_evidence", "rows", "remedy", "running_cost",
    "running_log_z", "shows", "smooth_bias", "standardised", "statistics", "stored",
    "target_log_weights", "thermodynamic_evidence", "time_limit", "tours", "z", "count_evidence",
    "bias", "counts", "island", "mode_columns", "mode_means", "pilot_columns",
    "picked", "unconstrained", "heavy_optima", "optima_columns", "alike", "pictures",
}  # fmt: skip


class Prompted:
    """A result whose names a prompt completes."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name not in _INSIDE]


class Reported:
    """A result that has a page."""

    def report(
        self, file: str | os.PathLike[str] | None = None, *, names: Names = None
    ) -> HtmlPage:
        """Return an HTML page with the result, its uncertainty and its diagnostics.

        The page is self-contained: it needs no network and follows the reader's light or dark
        setting.

        Parameters
        ----------
        file
            File to write the page to; by default none.
        names
            Variables or scalars of a run that its page shows, such as ``["mu", "beta[1,2]"]``. By
            default all, those first that a reader asks for first.

        Returns
        -------
        HtmlPage
            Text of the page, which a notebook renders.

        Raises
        ------
        StanctError
            The file cannot be written, or there is no such variable.
        """
        # Matplotlib is slow to load.
        from stanct.pages.opening import page_of

        page = page_of(self, names)
        if file is not None:
            page.write(file)
        return page


class Pictured:
    """A run that draws pictures of itself.

    Those of draws are ArviZ's, of equally weighted draws: each returns what ArviZ returns, and
    hands further options to ArviZ. `names` are variables or scalars, such as ``"mu"`` or
    ``["tau", "beta[1,2]"]``; by default a few that a reader asks for first. The others return
    Matplotlib axes. `save_plot` writes any of them to a file. Every picture that this run has no
    material for raises `StanctError`.
    """

    def save_plot(self, kind: str, file: str | os.PathLike[str], **options: Any) -> Path:
        """Write the picture that a method draws, such as `plot_pair` for ``"pair"``, to a file.

        Parameters
        ----------
        kind
            ``"trace"``, ``"pair"``, ``"posterior"``, ``"path"``, ``"modes"`` or ``"weights"``.
        file
            Its ending tells the format, such as png, pdf or svg.
        **options
            Arguments of the method, such as ``names=["mu", "tau"]``.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        StanctError
            There is no such picture, the ending is no format, the file cannot be written, the
            method lacks an option, or the run has no material for the picture.
        """
        from stanct.plots.files import write_picture

        run: Any = self
        return write_picture(run, kind, file, options)

    def plot_trace(self, names: Names = None, **options: Any) -> Any:
        """Plot the densities of scalars by chain, and their values along the chains.

        ArviZ's `plot_trace`, in 1.x `plot_trace_dist`, gets the options.
        """
        return self._by_arviz("trace", names, options)

    def plot_pair(self, names: Names = None, **options: Any) -> Any:
        """Plot scalars against each other, with their densities: a corner plot.

        ArviZ's `plot_pair` gets the options, such as ``figsize=(6, 6)`` or ``kind="kde"``.
        """
        return self._by_arviz("pair", names, options)

    def plot_posterior(self, names: Names = None, *, prior: bool = False, **options: Any) -> Any:
        """Plot the densities of scalars, with their means and 95 % intervals of highest density.

        Where modes lie apart, an interval has several pieces. It is not the one between quantiles
        that `summary` has.

        With `prior`, also the density of the prior is drawn, which is sampled first (`prior`).
        ArviZ's `plot_posterior`, in 1.x `plot_dist`, gets the options, such as ``figsize=(6, 3)``.
        """
        if not prior:
            return self._by_arviz("posterior", names, options)
        from stanct.api.prior import prior_draws
        from stanct.plots.by_arviz import MOST, first_names, with_prior

        run: Any = self
        places = places_of(run.variables, names or first_names(run, MOST["posterior"]))
        before = prior_draws(run, PRIOR_DRAWS, None, False, [name for name, _ in places])
        if lacking := [label(*one) for one in places if one[0] not in before]:
            raise StanctError(
                f"The prior of {first_few(lacking)} cannot be drawn: the program tells it only "
                "together with the likelihood.",
                remedy="Name others (names=), or leave out prior=True.",
            )
        chosen = [label(*one) for one in places]
        axes = self._by_arviz("posterior", chosen, options)
        with_prior(axes, {name: variable(before, name) for name in chosen})
        return axes

    def plot_path(self, axes: Axes | None = None) -> Axes:
        """Plot log z(β) along the path from the base to the program, with 95 % bands.

        What is plotted is its difference from a straight line, so that errors show.
        """
        return self._drawn("path", axes)

    def plot_modes(self, axes: Axes | None = None) -> Axes:
        """Plot the weight of each mode that the search found, with its 95 % interval."""
        return self._drawn("modes", axes)

    def plot_weights(self, axes: Axes | None = None) -> Axes:
        """Plot a histogram of the weights of the draws."""
        return self._drawn("weights", axes)

    def prior(
        self, draws: int = PRIOR_DRAWS, *, seed: int | None = None, progress: bool = False
    ) -> dict[str, Array]:
        """Sample the prior of the program, and return equally weighted draws.

        The default method samples the program without its likelihood, which takes seconds. A term
        is likelihood where its variate depends on data.

        Parameters
        ----------
        draws
            Draws of each chain.
        seed
            By default that of the run.

        Returns
        -------
        dict
            Name of each parameter and transformed parameter to shape (chains, draws, ...).

        Raises
        ------
        StanctError
            There is no Stan program, prior and likelihood cannot be told apart, or the prior is
            improper.
        """
        from stanct.api.prior import prior_draws

        run: Any = self
        return prior_draws(run, draws, seed, progress)

    def _by_arviz(self, kind: str, names: Names, options: Mapping[str, Any]) -> Any:
        from stanct.plots.by_arviz import picture_of

        run: Any = self
        return picture_of(kind, run, names, **options)

    @property
    def pictures(self) -> tuple[str, ...]:
        """Names of the methods that have material in this run."""
        run: Any = self
        known = [*run.shows, *["modes"] * (run.mode_columns is not None)]
        own = [f"plot_{kind}" for kind, (name, _) in _OWN.items() if name in known]
        return ("plot_trace", "plot_pair", "plot_posterior", *own)

    def _drawn(self, kind: str, axes: Axes | None) -> Axes:
        name, why = _OWN[kind]
        if f"plot_{kind}" not in self.pictures:
            raise StanctError(
                f"There is nothing to draw. {why}", remedy=f"It has {', '.join(self.pictures)}."
            )
        from stanct import plots

        run: Any = self
        return getattr(plots, name)(run, axes)


class Extendable:
    """A result that can go on."""

    def extend(
        self,
        draws: int,
        *,
        target: Any = None,
        threads: int | None = None,
        executor: Executor | str | None = None,
        progress: bool = True,
    ) -> Self:
        """Go on with this run, which may have been loaded, and return the longer one.

        Base, bias, ladder and step sizes stay as they are, and the estimates use all draws. Chains
        go on from their last draws. Those of ``joint`` and ``pseudo_extended`` first warm up again,
        because their metric is not stored. All rungs of ``parallel_tempering`` start at the last
        draw at β = 1, and the scans of a warm-up are left out. ``power_posterior`` warms up at each
        power again. ``ais`` anneals new particles. Runs of ``adiabatic``, ``tact`` and
        ``stanct.bridge`` cannot be extended. The random streams
        follow from the run's seed, so a loaded run gets the same draws as the saved one.

        Parameters
        ----------
        draws
            Further draws of each chain.
        target
            The run's target, needed only where it is a Python function.
        threads, executor, progress
            As in `stanct.sample`.

        Raises
        ------
        SamplingError
            The method cannot go on, or an option or the target is wrong.
        """
        from stanct.api.extending import extended

        run: Any = self
        return extended(
            run, draws, target=target, threads=threads, executor=executor, progress=progress
        )

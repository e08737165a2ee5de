"""What a result does with the rooms above it: it opens its page, and it goes on.

The only module through which results reach pages and samplers, and only when they are asked.
"""

from __future__ import annotations

import os
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from stanct.pages.page import HtmlPage


class Reported:
    """A result that has a page."""

    def report(self, file: str | os.PathLike[str] | None = None) -> HtmlPage:
        """Return an HTML page with the result, its uncertainty and its diagnostics.

        The page is self-contained: it needs no network and follows the reader's light or dark
        setting.

        Parameters
        ----------
        file
            File to write the page to; by default none.

        Returns
        -------
        HtmlPage
            Text of the page, which a notebook renders.

        Raises
        ------
        StanctError
            The file cannot be written.
        """
        # Matplotlib is slow to load.
        from stanct.pages.opening import page_of

        page = page_of(self)
        if file is not None:
            page.write(file)
        return page


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

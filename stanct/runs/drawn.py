"""Tables of a run's draws."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates.arviz_bridge import inference_data
from stanct.estimates.naming import Names, listed, place_of, variable
from stanct.estimates.weighted import frame, rows_of

if TYPE_CHECKING:
    import pandas as pd


class Drawn:
    """A run whose draws are written as tables."""

    def draws_xr(self, names: Names = None, *, draws: int | None = None, seed: int = 0) -> Any:
        """Equally weighted draws as an xarray ``Dataset``.

        Its dimensions are chain, draw and those of the variables. `draws` and `seed` are those of
        `to_arviz`, and `names` is that of `summary`.
        """
        every = self._equal(self._rows(draws, seed), names)
        chosen = every if names is None else {n: variable(every, n) for n in listed(names)}
        group = inference_data({"posterior": chosen}, {})["posterior"]
        return group.to_dataset() if hasattr(group, "to_dataset") else group

    def draws_pd(
        self,
        names: Names = None,
        *,
        draws: int | None = None,
        seed: int = 0,
        weighted: bool = False,
    ) -> pd.DataFrame:
        """Equally weighted draws as a DataFrame with columns such as ``b[1,2]``.

        As in CmdStanPy, ``chain__``, ``iter__`` and ``draw__`` count from 1. Where the run knows
        several modes, so does ``mode__``, the mode of the draw (`mode_of_draws`). `draws` and
        `seed` are those of `to_arviz`, and `names` is that of `summary`. `weighted` takes all draws
        as they are, with their weights, of sum 1, in ``weight__``.

        Raises
        ------
        StanctError
            There is no such variable, or a number of weighted draws is asked for.
        """
        run: Any = self
        beside = run._mode_numbers("mode__")
        if not weighted:
            rows = self._rows(draws, seed)
            return frame(self._equal(rows, names), names, rows_of(beside, rows))
        if draws is not None:
            raise StanctError(
                "Weighted draws are all draws of the run, so their number cannot be chosen.",
                remedy="Leave out draws, or weighted.",
            )
        weights = np.exp(run.target_log_weights - run.target_log_weights.max())
        return frame(run.variables, names, beside | {"weight__": weights / weights.sum()})

    def _equal(self, rows: Array, names: Names = None) -> dict[str, Array]:
        """These rows of the variables that the names are of; of all by default."""
        run: Any = self
        named = run.variables if names is None else listed(names)
        needed = {place_of(run.variables, name)[0] for name in named}
        picked = {name: values for name, values in run.variables.items() if name in needed}
        return rows_of(picked, rows)

    def _rows(self, draws: int | None, seed: int) -> Array:
        """Rows of equal weight: all of them if the weights are equal already."""
        run: Any = self
        chains, kept = run.target_log_weights.shape
        if draws is None and not np.ptp(run.target_log_weights):
            return np.tile(np.arange(kept), (chains, 1))
        return run.picked(draws, seed)

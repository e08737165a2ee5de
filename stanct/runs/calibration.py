"""`Calibration`: how runs on simulated data agree with how the data were made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.special import chdtr, chdtrc, logit, ndtr, ndtri

from stanct.runs.many import Many
from stanct.runs.verbs import Reported

if TYPE_CHECKING:
    import pandas as pd

# A test fails if so small a share of right programs fails any of the tests.
LEVEL = 0.01
# Ranks and probabilities are at least this far from 0 and 1, which draws cannot tell from it.
CLIP = 1e-4
# Fewest data sets that count, and the least share of those made: runs that failed may be those
# that would have failed the tests.
FEWEST, LEAST_SHARE = 8, 0.9


@dataclass(frozen=True)
class Calibration(Reported):
    """Results of `calibrate`.

    Attributes
    ----------
    ranks
        For every scalar with a true value, the share of the posterior below it: a column by
        `MODEL: NAME`, a row for each data set that the model made.
    probabilities
        Posterior probabilities of the models, a column for each and a row for each data set.
    made_by
        Which model made each data set.
    prior
        Prior probabilities of the models.
    runs
        All results of each model, by name.
    """

    ranks: pd.DataFrame = field(repr=False)
    probabilities: pd.DataFrame = field(repr=False)
    made_by: pd.Series = field(repr=False)
    prior: Mapping[str, float]
    runs: Mapping[str, Many] = field(repr=False)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """One row for each test: `data_sets`, `statistic`, `p_value` and `passed`.

        The ranks r_i of a scalar are compared with the uniform distribution by Kolmogorov and
        Smirnov's statistic, and their spread by Σ Φ⁻¹(r_i)², which is χ² distributed (Cook, Gelman
        & Rubin 2006). A model has probabilities p_i, and made the data sets where m_i = 1. With h_i
        = 1 and with h_i = logit p_i, Σ h_i (p_i − m_i) / √Σ h_i² p_i (1 − p_i) is a standard normal
        (Cox 1958): the level and the slope of its calibration. All tests together fail in one of a
        hundred right programs (Bonferroni).
        """
        import pandas as pd
        from scipy.stats import kstest  # scipy.stats takes longer to load than all else here

        rows: dict[str, tuple[int, float, float]] = {}
        for name, column in self.ranks.items():
            values = column.dropna().to_numpy(float)
            if values.size:
                found: Any = kstest(values, "uniform")
                rows[f"rank of {name}"] = values.size, float(found.statistic), float(found.pvalue)
                squares = float(np.square(ndtri(np.clip(values, CLIP, 1 - CLIP))).sum())
                tails = chdtrc(values.size, squares), chdtr(values.size, squares)
                p_value = float(min(2 * min(tails), 1))
                rows[f"spread of the ranks of {name}"] = values.size, squares, p_value
        for name, column in self.probabilities.items() if len(self.prior) > 1 else ():
            p = column.dropna()
            if p.empty:
                continue
            made = (self.made_by[p.index] == name).to_numpy(float)
            p = np.clip(p.to_numpy(float), CLIP, 1 - CLIP)
            for label, h in (("level", np.ones(p.size)), ("slope", logit(p))):
                spread = float(np.sqrt(np.square(h) @ (p * (1 - p))))
                score = float(h @ (p - made)) / spread
                p_value = float(2 * ndtr(-abs(score)))
                rows[f"{label} of the probability of {name}"] = p.size, score, p_value
        table = pd.DataFrame.from_dict(
            rows, orient="index", columns=["data_sets", "statistic", "p_value"]
        )
        table["passed"] = table["p_value"] > LEVEL / max(len(table), 1)
        return table

    @property
    def passed(self) -> bool:
        """Whether there are tests, enough data sets count, and every test passed.

        At least eight data sets must count, and nine tenths of those that were made. Others have
        no result, because their runs failed or were not made before an interrupt.
        """
        return self._enough and not self.failed

    @property
    def counted(self) -> int:
        """Number of data sets with a result of every model, on which the tests rest."""
        tables = [many.table for many in self.runs.values()]
        done = [set(table.index[(table["error"] == "").to_numpy(bool)]) for table in tables]
        return len(set.intersection(*done))

    @property
    def failed(self) -> list[str]:
        """Names of the tests that failed."""
        tests = self.tests
        return [str(n) for n, ok in zip(tests.index, tests["passed"], strict=True) if not ok]

    @property
    def _enough(self) -> bool:
        enough = self.counted >= max(FEWEST, LEAST_SHARE * len(self.made_by))
        return enough and not self.tests.empty

    @property
    def verdict(self) -> str:
        """The result in words."""
        if self.failed:
            return f"failed: {', '.join(self.failed)}"
        if self.tests.empty:
            return "nothing was tested"
        return "all passed" if self._enough else "too few data sets count"

    @property
    def unreliable(self) -> int:
        """Number of runs with an error or with a failed check, which the tests include."""
        return sum(len(many.table) - len(many.reliable) for many in self.runs.values())

    def __repr__(self) -> str:
        made, counted = len(self.made_by), self.counted
        sets = f"{made}" if counted == made else f"{counted} of {made}"
        return (
            f"Calibration of {', '.join(self.prior)} on {sets} data sets: {len(self.tests)} tests, "
            f"{self.verdict}; {self.unreliable} runs with a failed check"
        )

    def _repr_html_(self) -> str:
        return self.report()._repr_html_()

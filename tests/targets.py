"""Programs with exact answers, shared by the tests of the samplers.

`LINE` and `SKEWED` are conjugate, so their evidences and posterior moments are closed forms;
`TWO_MODES` is a normalised mixture times a constant.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.special import gammaln
from scipy.stats import multivariate_normal


@dataclass(frozen=True)
class Exact:
    """A program, its data, log Z, and posterior means by variable name."""

    source: str
    data: dict[str, Any] | None
    log_z: float
    means: dict[str, Any] = field(default_factory=dict)


def _line() -> Exact:
    """y = X b + noise with known noise sd 0.5 and b ~ N(0, I): Gaussian evidence and posterior."""
    design = np.array([[1.0, x] for x in (-1.2, -0.4, 0.1, 0.8, 2.0)])
    y = np.array([0.3, 0.9, 0.2, 1.7, 2.9])
    covariance = design @ design.T + 0.25 * np.eye(5)
    precision = np.eye(2) + design.T @ design / 0.25
    source = """
    data { int N; matrix[N, 2] X; vector[N] y; }
    parameters { vector[2] b; }
    model { b ~ std_normal(); y ~ normal(X * b, 0.5); }
    generated quantities { real sum_b = sum(b); }
    """
    b = np.linalg.solve(precision, design.T @ y / 0.25)
    return Exact(
        source,
        {"N": 5, "X": design, "y": y},
        float(multivariate_normal.logpdf(y, np.zeros(5), covariance)),  # pyright: ignore[reportArgumentType]
        {"b": b, "sum_b": b.sum()},
    )


def _skewed() -> Exact:
    """Poisson counts with a Gamma(1.5, 0.5) rate: skewed on the log scale, few observations."""
    counts = np.array([0, 1])
    shape, rate = 1.5, 0.5
    total, n = counts.sum(), counts.size
    log_z = (
        shape * np.log(rate)
        - gammaln(shape)
        + gammaln(shape + total)
        - (shape + total) * np.log(rate + n)
        - gammaln(counts + 1).sum()
    )
    source = """
    data { int N; array[N] int<lower=0> y; }
    parameters { real<lower=0> r; }
    model { r ~ gamma(1.5, 0.5); y ~ poisson(r); }
    """
    means = {"r": (shape + total) / (rate + n)}
    return Exact(source, {"N": n, "y": counts}, float(log_z), means)


LINE = _line()
SKEWED = _skewed()
TWO_MODES = Exact(
    """
    parameters { vector[2] x; }
    model {
      target += 3.5 + log_mix(0.7, normal_lpdf(x[1] | -6, 1), normal_lpdf(x[1] | 6, 0.5));
      x[2] ~ normal(0.5 * x[1], 1);
    }
    """,
    None,
    3.5,
    {"x": np.array([0.7 * -6 + 0.3 * 6, 0.5 * (0.7 * -6 + 0.3 * 6)])},
)

# A normal cut by rejection: Z is its mass on x > 0.5, trap 7 of hard support.
CUT = Exact(
    """
    parameters { real x; }
    model { if (x < 0.5) reject("outside"); x ~ normal(0, 1); }
    """,
    None,
    -1.1759117615936185,
    {"x": 1.1410777035},
)

"""Eleven posteriors with exact evidences, and the same densities in R for bridgesampling.

The R functions take the unconstrained parameters `x` in Stan's order and the list `data`. Their
values include the Jacobians, as Stan's do. They share no code with the Stan programs.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import betaln, gammaln
from scipy.stats import multivariate_normal, norm

EXAMPLES = Path(__file__).resolve().parent.parent


@dataclass(frozen=True)
class Posterior:
    """A Stan program with data, its exact log Z, and its unconstrained log density in R."""

    stan: str
    data: dict[str, Any]
    log_z: float
    r: str


def _example(folder: str, program: str, r: str) -> Posterior:
    place = EXAMPLES / folder
    data = json.loads((place / f"{folder}.data.json").read_text(encoding="utf-8"))
    truth = json.loads((place / "truth.json").read_text(encoding="utf-8"))
    text = (place / f"{program}.stan").read_text(encoding="utf-8")
    return Posterior(text, data, truth["log_z"], r)


def _regression() -> Posterior:
    x = np.array([-1.2, -0.4, 0.1, 0.8, 2.0])
    y = np.array([0.3, 0.9, 0.2, 1.7, 2.9])
    covariance = 1 + np.outer(x, x) + 0.25 * np.eye(5)
    return Posterior(
        """
        data { int N; vector[N] x; vector[N] y; }
        parameters { vector[2] b; }
        model { b ~ std_normal(); y ~ normal(b[1] + b[2] * x, 0.5); }
        """,
        {"N": 5, "x": x.tolist(), "y": y.tolist()},
        float(multivariate_normal.logpdf(y, np.zeros(5), covariance)),  # pyright: ignore[reportArgumentType]
        "sum(dnorm(x, log = TRUE)) + sum(dnorm(data$y, x[1] + x[2] * data$x, 0.5, log = TRUE))",
    )


def _poisson() -> Posterior:
    y = np.array([0, 1])
    log_z = 1.5 * np.log(0.5) - gammaln(1.5) + gammaln(2.5) - 2.5 * np.log(2.5)
    return Posterior(
        """
        data { int N; array[N] int y; }
        parameters { real<lower=0> r; }
        model { r ~ gamma(1.5, 0.5); y ~ poisson(r); }
        """,
        {"N": 2, "y": y.tolist()},
        float(log_z),
        "dgamma(exp(x), 1.5, 0.5, log = TRUE) + sum(dpois(data$y, exp(x), log = TRUE)) + x[1]",
    )


def _normal() -> Posterior:
    """Unknown mean and precision with the conjugate prior; y | prior is a Student t."""
    y = np.array([1.2, 0.3, -0.7, 2.2, 1.9, 0.4, 1.1, 0.8])
    n, mean, a, b, k = y.size, y.mean(), 2.0, 1.0, 0.5
    rate = b + 0.5 * np.square(y - mean).sum() + 0.5 * k * n * mean**2 / (k + n)
    shape = a + n / 2
    log_z = (
        gammaln(shape) - gammaln(a) + a * np.log(b) - shape * np.log(rate)
        + 0.5 * np.log(k / (k + n)) - n / 2 * np.log(2 * np.pi)
    )  # fmt: skip
    return Posterior(
        """
        data { int N; vector[N] y; }
        parameters { real mu; real<lower=0> tau; }
        model {
          tau ~ gamma(2, 1);
          mu ~ normal(0, 1 / sqrt(0.5 * tau));
          y ~ normal(mu, 1 / sqrt(tau));
        }
        """,
        {"N": n, "y": y.tolist()},
        float(log_z),
        """{
          tau <- exp(x[2])
          dgamma(tau, 2, 1, log = TRUE) + x[2] + dnorm(x[1], 0, 1 / sqrt(0.5 * tau), log = TRUE) +
            sum(dnorm(data$y, x[1], 1 / sqrt(tau), log = TRUE))
        }""",
    )


def _binomial() -> Posterior:
    found = _example(
        "beta_binomial",
        "beta_binomial",
        """{
          p <- plogis(x[1])
          dbeta(p, 9, 0.75, log = TRUE) + dbinom(data$k, data$n, p, log = TRUE) +
            log(p) + log1p(-p)
        }""",
    )
    n, k = found.data["n"], found.data["k"]
    log_choose = gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)
    exact = log_choose + betaln(9 + k, 0.75 + n - k) - betaln(9, 0.75)
    assert abs(exact - found.log_z) < 1e-6
    return found


SCHOOLS = """{
  tau <- exp(x[2])
  theta <- %s
  dnorm(x[1], 0, 5, log = TRUE) + dcauchy(tau, 0, 5, log = TRUE) + log(2) + x[2] +
    sum(dnorm(%s, log = TRUE)) + sum(dnorm(data$y, theta, data$sigma, log = TRUE))
}"""

NON_CENTRED = SCHOOLS % ("x[1] + tau * x[3:10]", "x[3:10]")
CENTRED = SCHOOLS % ("x[3:10]", "x[3:10], x[1], tau")

RADON = """{
  s <- exp(x[c(1, 3, 5)])
  n_beta <- x[6:7]
  n_alpha <- x[8:92]
  alpha <- x[2] + s[1] * n_alpha
  beta <- x[4] + s[2] * n_beta
  mean <- alpha[data$county] + data$floor_measure * beta[1] + data$log_uranium * beta[2]
  sum(dcauchy(s, 0, 2.5, log = TRUE) + log(2)) + sum(x[c(1, 3, 5)]) +
    sum(dnorm(x[c(2, 4, 6:92)], log = TRUE)) + sum(dnorm(data$log_radon, mean, s[3], log = TRUE))
}"""

POSTERIORS = {
    "regression": _regression(),
    "poisson": _poisson(),
    "normal": _normal(),
    "beta_binomial": _binomial(),
    "eight_schools": _example("eight_schools", "non_centred", NON_CENTRED),
    "centred_schools": _example("eight_schools", "centred", CENTRED),
    "radon": _example("radon", "radon", RADON),
    "gaussian20": Posterior(
        """
        parameters { vector[20] x; }
        model {
          x[1] ~ std_normal();
          for (d in 2:20) x[d] ~ normal(0.95 * x[d - 1], sqrt(1 - 0.95 ^ 2));
        }
        """,
        {},
        0.0,
        "dnorm(x[1], log = TRUE) + "
        "sum(dnorm(x[2:20], 0.95 * x[1:19], sqrt(1 - 0.95^2), log = TRUE))",
    ),
    "heavy_tails": Posterior(
        "parameters { vector[10] x; } model { x ~ student_t(5, 0, 1); }",
        {},
        0.0,
        "sum(dt(x, 5, log = TRUE))",
    ),
    "skewed": Posterior(
        "parameters { vector<lower=0>[5] s; } model { s ~ exponential(1); }",
        {},
        0.0,
        "sum(dexp(exp(x), log = TRUE)) + sum(x)",
    ),
    "hard_edge": Posterior(
        """
        parameters { real x; }
        model { if (x < 0.5) reject("outside"); x ~ std_normal(); }
        """,
        {},
        float(norm.logsf(0.5)),
        "if (x[1] < 0.5) -Inf else dnorm(x[1], log = TRUE)",
    ),
}  # fmt: skip

"""Regressions, and parameters with constraints."""

from __future__ import annotations

import numpy as np
from quadrature import Array, in_parts, integrate
from scipy.special import gammaln
from scipy.stats import multivariate_normal, norm
from target import LOG_2PI, Target, element, family, rounded


@family
def regression(rng: np.random.Generator) -> Target:
    """A conjugate linear regression with correlated columns."""
    d = int(rng.integers(2, 70))
    n, noise = int(rng.integers(d // 2 + 1, 4 * d)), rounded(rng.uniform(0.3, 2), 2)
    mixing = np.eye(d) + rng.uniform(0, 2) * np.ones((d, d)) / np.sqrt(d)
    design = rounded(rng.normal(size=(n, d)) @ mixing, 2)
    y = rounded(design @ rng.normal(size=d) * 0.4 + noise * rng.normal(size=n), 2)
    covariance = design @ design.T + noise**2 * np.eye(n)
    stan = """
data { int n; int d; matrix[n, d] X; vector[n] y; real noise; }
parameters { vector[d] b; }
model {
  b ~ std_normal();
  y ~ normal(X * b, noise);
}
"""
    data = {"n": n, "d": d, "X": design, "y": y, "noise": noise}
    log_z = float(multivariate_normal(np.zeros(n), covariance).logpdf(y))
    mean = float(design[:, 0] @ np.linalg.solve(covariance, y))
    return Target(stan, data, log_z, element("b", 0), mean, 1e-7)


@family
def separation(rng: np.random.Generator) -> Target:
    """A logistic regression with two coefficients whose data a line separates."""
    n, scale = int(rng.integers(6, 40)), rounded(rng.uniform(2, 15), 1)
    x = rounded(rng.normal(size=n) * rng.uniform(0.3, 2), 2)
    y = 1 * (x > rounded(np.quantile(x, rng.uniform(0.2, 0.8)), 2) + 0.001)
    sign = 2 * y - 1

    def log_f(a: Array, b: Array) -> Array:
        log_p = -np.logaddexp(0, -sign * (a[:, None] + b[:, None] * x)).sum(axis=1)
        return log_p + norm.logpdf(a, 0, scale) + norm.logpdf(b, 0, scale)

    sides = [(-10 * scale, 10 * scale)] * 2
    found = integrate(in_parts(log_f, 20000), lambda a, b: b, sides, 501)
    stan = """
data { int n; vector[n] x; array[n] int y; real scale; }
parameters { real a; real b; }
model {
  a ~ normal(0, scale);
  b ~ normal(0, scale);
  y ~ bernoulli_logit(a + b * x);
}
"""
    data = {"n": n, "x": x, "y": y, "scale": scale}
    return Target(stan, data, found.log_z, element("b"), found.mean, found.tolerance)


@family
def ode(rng: np.random.Generator) -> Target:
    """Logistic growth with two parameters. The program solves it, the exact answer knows it."""
    n, noise = int(rng.integers(3, 12)), rounded(rng.uniform(0.1, 0.5), 2)
    times = rounded(np.sort(rng.uniform(0.2, 8, n)) + 0.01 * np.arange(n), 2)

    def log_curve(log_rate: Array, log_capacity: Array) -> Array:
        growth = np.exp(-np.exp(log_rate) * times)
        return log_capacity - np.log1p((np.exp(log_capacity) - 1) * growth)

    y = rounded(log_curve(rng.normal(-0.3, 0.7), rng.normal(1, 0.7)) + noise * rng.normal(size=n))

    def log_f(log_rate: Array, log_capacity: Array) -> Array:
        residual = (y - log_curve(log_rate[:, None], log_capacity[:, None])) / noise
        log_p = -0.5 * np.square(residual).sum(axis=1) - n * (0.5 * LOG_2PI + np.log(noise))
        return log_p + norm.logpdf(log_rate) + norm.logpdf(log_capacity, 1, 1)

    found = integrate(in_parts(log_f, 20000), lambda r, k: r, [(-9, 9), (-8, 10)], 401)
    stan = """
functions {
  vector growth(real t, vector y, real rate, real capacity) {
    return rate * y .* (1 - y / capacity);
  }
}
data { int n; array[n] real t; vector[n] y; real noise; }
parameters { real log_rate; real log_capacity; }
model {
  array[n] vector[1] state = ode_rk45_tol(
    growth, [1.0]', 0, t, 1e-8, 1e-8, 100000, exp(log_rate), exp(log_capacity));
  log_rate ~ std_normal();
  log_capacity ~ normal(1, 1);
  for (i in 1:n) y[i] ~ normal(log(state[i][1]), noise);
}
"""
    data = {"n": n, "t": times, "y": y, "noise": noise}
    return Target(
        stan, data, found.log_z, element("log_rate"), found.mean, max(found.tolerance, 1e-5)
    )


@family
def simplex(rng: np.random.Generator) -> Target:
    """A Dirichlet prior, often sparse, and multinomial counts."""
    size = int(rng.integers(2, 15))
    prior = rounded(rng.uniform(0.1, 3, size), 2)
    y = rng.multinomial(int(rng.integers(0, 60)), rng.dirichlet(prior))
    n, after = y.sum(), prior + y
    log_z = (
        (gammaln(n + 1) - gammaln(y + 1).sum() + gammaln(prior.sum()) - gammaln(prior).sum())
        + gammaln(after).sum()
        - gammaln(after.sum())
    )
    stan = """
data { int K; vector[K] prior; array[K] int y; }
parameters { simplex[K] p; }
model {
  p ~ dirichlet(prior);
  y ~ multinomial(p);
}
"""
    data = {"K": size, "prior": prior, "y": y}
    return Target(stan, data, float(log_z), element("p", 0), float(after[0] / after.sum()))


@family
def rates(rng: np.random.Generator) -> Target:
    """Gamma rates with Poisson counts, some of them near zero."""
    size, shape = int(rng.integers(1, 31)), rounded(rng.uniform(0.3, 3), 2)
    exposure = rounded(rng.uniform(0.2, 5, size), 2)
    y = rng.poisson(exposure * rng.gamma(shape, 1, size))
    log_z = (gammaln(shape + y) - gammaln(shape) - gammaln(y + 1) + y * np.log(exposure)).sum() - (
        shape + y
    ) @ np.log1p(exposure)
    stan = """
data { int K; real shape; vector[K] exposure; array[K] int y; }
parameters { vector<lower=0>[K] r; }
model {
  r ~ gamma(shape, 1);
  y ~ poisson(exposure .* r);
}
"""
    data = {"K": size, "shape": shape, "exposure": exposure, "y": y}
    mean = (shape + y[0]) / (1 + exposure[0])
    return Target(stan, data, float(log_z), element("r", 0), float(mean))

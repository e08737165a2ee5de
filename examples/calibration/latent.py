"""Latent variables: walks, autoregressions, answers to items, groups of trials, points on lines."""

from __future__ import annotations

import itertools

import numpy as np
from quadrature import Array, in_parts, integrate, log_concave, log_trapezoid
from scipy.special import betaln, gammaln, logsumexp, softmax
from scipy.stats import norm
from target import LOG_2PI, Target, element, family, rounded


def _log_normal(y: Array, covariance: Array) -> tuple[Array, Array]:
    """The log densities of y under N(0, C), and C⁻¹ y, for C of shape (..., n, n)."""
    solved = np.linalg.solve(covariance, np.broadcast_to(y, covariance.shape[:-1])[..., None])
    log_det = np.linalg.slogdet(covariance)[1]
    return -0.5 * (solved[..., 0] @ y + log_det + y.size * LOG_2PI), solved[..., 0]


@family
def walk(rng: np.random.Generator) -> Target:
    """A random walk of unknown scale seen with noise: given the scale all is Gaussian."""
    n, noise, scale = int(rng.integers(5, 41)), rounded(rng.uniform(0.3, 1.5), 2), 1.0
    steps = np.append(rng.normal(), rng.uniform(0.05, 1) * rng.normal(size=n - 1))
    y = rounded(steps.cumsum() + noise * rng.normal(size=n))
    shared = np.minimum(*np.meshgrid(np.arange(n), np.arange(n)))
    wanted = rng.choice(["tau", "x"])

    def given(log_tau: Array) -> tuple[Array, Array]:
        """log p(y | tau), and the mean of the wanted quantity."""
        tau = np.exp(log_tau)
        walked = 9 + tau[:, None, None] ** 2 * shared
        log_p, solved = _log_normal(y, walked + noise**2 * np.eye(n))
        last = (walked[:, -1] * solved).sum(axis=1)
        return log_p, {"tau": tau, "x": last}[wanted]

    found = integrate(
        in_parts(lambda u: given(u)[0] + u - np.exp(u) / scale - np.log(scale), 500),
        in_parts(lambda u: given(u)[1], 500),
        [(-40, 5)],
        1001,
    )
    stan = """
data { int n; vector[n] y; real noise; real scale; }
parameters { real<lower=0> tau; vector[n] x; }
model {
  tau ~ exponential(1 / scale);
  x[1] ~ normal(0, 3);
  x[2:n] ~ normal(x[1:(n - 1)], tau);
  y ~ normal(x, noise);
}
"""
    data = {"n": n, "y": y, "noise": noise, "scale": scale}
    quantity = element("tau") if wanted == "tau" else element("x", n - 1)
    return Target(stan, data, found.log_z, quantity, found.mean, found.tolerance)


@family
def autoregression(rng: np.random.Generator) -> Target:
    """An autoregression of unknown scales seen with noise of unknown scale, by a Kalman filter."""
    n, phi = int(rng.integers(8, 31)), rng.uniform(-0.95, 0.98)
    sigma, tau = np.exp(rng.uniform(np.log(0.1), np.log(2), 2))
    x = [rng.normal(scale=sigma / np.sqrt(1 - phi**2))]
    while len(x) < n:
        x.append(phi * x[-1] + sigma * rng.normal())
    y = rounded(np.array(x) + tau * rng.normal(size=n))

    # These coordinates go slowly where the mass is, and fast along the tails.
    def log_scale_of(w: Array) -> Array:
        return w - np.exp(-w)

    def log_f(v: Array, *scales: Array) -> Array:
        u = np.sinh(v)
        phi = np.tanh(u)
        total = np.log(np.cosh(v)) - np.log(2) - 2 * np.log(np.cosh(u))
        for w in scales:
            log_scale = log_scale_of(w)
            total = total + log_scale - np.exp(log_scale) + np.log1p(np.exp(-w))
        drift, noise = (np.exp(2 * log_scale_of(w)) for w in scales)
        mean, variance = np.zeros_like(u), drift * np.cosh(u) ** 2
        for value in y:
            seen = variance + noise
            total = total - 0.5 * ((value - mean) ** 2 / seen + np.log(seen) + LOG_2PI)
            mean = phi * (mean + variance / seen * (value - mean))
            variance = phi**2 * variance * noise / seen + drift
        return total

    wanted = str(rng.choice(["phi", "tau"]))
    found = integrate(
        in_parts(log_f, 50_000),
        lambda v, _, w: np.tanh(np.sinh(v)) if wanted == "phi" else np.exp(log_scale_of(w)),
        [(-3, 3), (-3.2, 3.5), (-3.2, 3.5)],
        *(101, 101, 101),
    )
    stan = """
data { int n; vector[n] y; }
parameters {
  real<lower=-1, upper=1> phi;
  real<lower=0> sigma;
  real<lower=0> tau;
  vector[n] x;
}
model {
  phi ~ uniform(-1, 1);
  sigma ~ exponential(1);
  tau ~ exponential(1);
  x[1] ~ normal(0, sigma / sqrt(1 - square(phi)));
  x[2:n] ~ normal(phi * x[1:(n - 1)], sigma);
  y ~ normal(x, tau);
}
"""
    data = {"n": n, "y": y}
    return Target(stan, data, found.log_z, element(wanted), found.mean, found.tolerance)


@family
def items(rng: np.random.Generator) -> Target:
    """Answers of persons to items that discriminate one way or the other, whose signs may flip."""
    persons, number = int(rng.integers(4, 26)), int(rng.integers(3, 9))
    easy = rounded(rng.normal(size=number))
    place, scale = 0.3, rounded(rng.uniform(0.8, 2.5), 2)
    ability = rng.uniform(0.2, 2) * rng.normal(size=persons)
    y = 1 * (rng.logistic(size=(persons, number)) < ability[:, None] + easy)
    nodes = np.linspace(-9, 9, 181)
    right = y.sum(axis=1)

    def log_f(a: Array) -> Array:
        slope = a[:, None] * nodes  # (points, nodes)
        no = -np.logaddexp(0, slope[..., None] + easy).sum(axis=-1) + norm.logpdf(nodes)
        total = norm.logpdf(a, place, scale) + (y @ easy).sum()
        counts, times = np.unique(right, return_counts=True)
        for count, time in zip(counts, times, strict=True):
            total = total + time * log_trapezoid(no + count * slope, nodes[1] - nodes[0])
        return total

    found = integrate(in_parts(log_f, 200), lambda a: a, [(-12 * scale, 12 * scale)], 801)
    stan = """
data { int N; int J; array[N, J] int y; row_vector[J] easy; real place; real scale; }
parameters { real a; vector[N] theta; }
model {
  a ~ normal(place, scale);
  theta ~ std_normal();
  for (i in 1:N) y[i] ~ bernoulli_logit(a * theta[i] + easy);
}
"""
    data = {"N": persons, "J": number, "y": y, "easy": easy, "place": place, "scale": scale}
    return Target(stan, data, found.log_z, element("a"), found.mean, found.tolerance)


@family
def binomial_groups(rng: np.random.Generator) -> Target:
    """Trials in groups of very different sizes, with normal log odds."""
    return binomial(rng, int(rng.integers(3, 21)))


def binomial(rng: np.random.Generator, groups: int) -> Target:
    """Trials in so many groups: the integral of poisson_groups."""
    spread = rng.uniform(0.2, 2)
    trials = rng.choice([1, 2, 5, 20, 100], groups)
    odds = rng.normal() + spread * rng.normal(size=groups)
    y = rng.binomial(trials, 1 / (1 + np.exp(-odds)))
    count, trial = y[:, None], trials[:, None]
    constant = (gammaln(trials + 1) - gammaln(y + 1) - gammaln(trials - y + 1)).sum()

    def log_tau_of(w: Array) -> Array:
        # As in poisson_groups.
        return w - np.exp(-w)

    def log_f(mu: Array, w: Array) -> Array:
        log_tau = log_tau_of(w)
        tau = np.exp(log_tau)
        mode = mu + np.zeros((groups, 1))
        for _ in range(60):
            p = 1 / (1 + np.exp(-mode))
            slope = count - trial * p - (mode - mu) / tau**2
            mode = mode + np.clip(slope / (trial * p * (1 - p) + 1 / tau**2), -1, 1)
        log_groups = log_concave(
            lambda x: (
                count[..., None] * x
                - trial[..., None] * np.logaddexp(0, x)
                - 0.5 * ((x - mu[:, None]) / tau[:, None]) ** 2
            ),
            mode,
            np.broadcast_to(np.sqrt(2 * 41) * tau, mode.shape),
            41,
        )
        log_groups = (log_groups - 0.5 * LOG_2PI - log_tau).sum(axis=0)
        log_prior = norm.logpdf(mu, 0, 2) + log_tau - tau + np.log1p(np.exp(-w))
        return constant + log_groups + log_prior

    wanted = str(rng.choice(["mu", "tau"]))
    found = integrate(
        in_parts(log_f, 500),
        lambda mu, w: mu if wanted == "mu" else np.exp(log_tau_of(w)),
        [(-16, 16), (-3.2, 3.5)],
        *(161, 81),
    )
    stan = """
data { int J; array[J] int y; array[J] int trials; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model {
  mu ~ normal(0, 2);
  tau ~ exponential(1);
  theta ~ normal(mu, tau);
  y ~ binomial_logit(trials, theta);
}
"""
    data = {"J": groups, "y": y, "trials": trials}
    return Target(stan, data, found.log_z, element(wanted), found.mean, found.tolerance)


@family
def lines(rng: np.random.Generator) -> Target:
    """Points on one of two lines whose slopes have a common prior, by enumeration and over tau."""
    n, noise = int(rng.integers(4, 9)), rounded(rng.uniform(0.3, 1), 2)
    x = rounded(rng.normal(size=n))
    slopes = rng.normal() + rng.uniform(0.2, 3) * rng.normal(size=2)
    on = rng.integers(2, size=n)
    y = rounded(slopes[on] * x + rng.normal(size=2)[on] + noise * rng.normal(size=n))
    first = np.array(list(itertools.product([False, True], repeat=n)))  # (allocations, n)
    together = first[:, :, None] == first[:, None, :]
    own = first.sum(axis=1)
    log_prior = betaln(2 + own, 2 + n - own) - betaln(2, 2)

    def given(log_tau: Array) -> tuple[Array, Array]:
        """log p(y | tau), and the mean square of the first slope."""
        variance = np.exp(2 * log_tau)[:, None, None, None]
        products = np.outer(x, x)
        covariance = products * (1 + variance * together) + 4 * together + noise**2 * np.eye(n)
        log_p, solved = _log_normal(y, covariance)
        log_p = log_p + log_prior
        of_slope = x * (1 + variance[..., 0] * first)
        inverse = np.linalg.solve(covariance, of_slope[..., None])[..., 0]
        mean = (of_slope * solved).sum(axis=-1)
        square = mean**2 + 1 + variance[..., 0, 0] - (of_slope * inverse).sum(axis=-1)
        return logsumexp(log_p, axis=1), (softmax(log_p, axis=1) * square).sum(axis=1)

    found = integrate(
        in_parts(lambda u: given(u)[0] + u - np.exp(u), 50),
        in_parts(lambda u: given(u)[1], 50),
        [(-40, 4)],
        201,
    )
    stan = """
data { int n; vector[n] x; vector[n] y; real noise; }
parameters { real<lower=0, upper=1> share; real m; real<lower=0> tau; vector[2] a; vector[2] b; }
model {
  share ~ beta(2, 2);
  m ~ std_normal();
  tau ~ exponential(1);
  a ~ normal(0, 2);
  b ~ normal(m, tau);
  for (i in 1:n)
    target += log_mix(share, normal_lpdf(y[i] | a[1] + b[1] * x[i], noise),
                      normal_lpdf(y[i] | a[2] + b[2] * x[i], noise));
}
"""
    data = {"n": n, "x": x, "y": y, "noise": noise}
    quantity = lambda v: v["b"][..., 0] ** 2  # noqa: E731
    return Target(stan, data, found.log_z, quantity, found.mean, found.tolerance)

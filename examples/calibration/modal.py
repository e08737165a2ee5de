"""Targets with several modes."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from quadrature import Array, in_parts, integrate
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm
from target import LOG_2PI, Target, element, family, rotation, rounded

sys.path.append(str(Path(__file__).resolve().parents[1] / "boltzmann"))
from boltzmann_machine import BoltzmannMachine

STAN_MODELS = Path(__file__).resolve().parents[2] / "stan_models"


@family
def mixture(rng: np.random.Generator) -> Target:
    """Gaussians of random shapes, weights and separations."""
    d, count = int(rng.integers(1, 8)), int(rng.integers(2, 7))
    weights = rng.dirichlet(np.full(count, 2.0))
    centres = rng.uniform(1, 8) * rng.normal(size=(count, d))
    covariances = np.array([_covariance(rng, d, rng.uniform(0.4, 2)) for _ in range(count)])
    log_z = rounded(rng.normal(0, 5))
    stan = """
data { int d; int K; simplex[K] w; array[K] vector[d] m; array[K] matrix[d, d] S; real c; }
parameters { vector[d] x; }
model {
  vector[K] lp;
  for (k in 1:K) lp[k] = log(w[k]) + multi_normal_lpdf(x | m[k], S[k]);
  target += c + log_sum_exp(lp);
}
"""
    data = {"d": d, "K": count, "w": weights, "m": centres, "S": covariances, "c": log_z}
    return Target(stan, data, float(log_z), element("x", 0), float(weights @ centres[:, 0]))


def _covariance(rng: np.random.Generator, d: int, scale: float) -> Array:
    axes = rotation(rng, d)
    covariance = (axes * (scale**2 * rng.uniform(0.2, 3, d))) @ axes.T
    return 0.5 * (covariance + covariance.T)


@family
def widths(rng: np.random.Generator) -> Target:
    """Two to four round Gaussians of very different widths, apart in 8 to 15 dimensions."""
    d, count = int(rng.integers(8, 16)), int(rng.integers(2, 5))
    weights = rng.dirichlet(np.full(count, 3.0))
    # Were they of any width, a narrow one would have less than a millionth of the draws near it.
    scales = rounded(np.exp(rng.uniform(-2, 1) + rng.uniform(0, 0.7, count)), 2)
    reach = scales.max() * np.sqrt(d)
    centres = rounded(reach * rng.uniform(0.5, 2, (count, 1)) * _directions(rng, count, d))
    log_z = rounded(rng.normal(0, 5))
    stan = """
data { int d; int K; simplex[K] w; array[K] vector[d] m; vector[K] s; real c; }
parameters { vector[d] x; }
model {
  vector[K] lp;
  for (k in 1:K) lp[k] = log(w[k]) + normal_lpdf(x | m[k], s[k]);
  target += c + log_sum_exp(lp);
}
"""
    data = {"d": d, "K": count, "w": weights, "m": centres, "s": scales, "c": log_z}
    return Target(stan, data, float(log_z), element("x", 0), float(weights @ centres[:, 0]))


@family
def prior_scale(rng: np.random.Generator) -> Target:
    """A wide prior, and modes of the likelihood at its scale, the heaviest far out."""
    d, count, scale = (
        int(rng.integers(1, 5)),
        int(rng.integers(2, 5)),
        rounded(rng.uniform(8, 30), 1),
    )
    weights = rng.dirichlet(np.ones(count))
    centres = rounded(scale * rng.uniform(0.2, 1.6, (count, 1)) * _directions(rng, count, d), 2)
    width = rounded(rng.uniform(0.5, 2), 2)
    total = scale**2 + width**2
    log_parts = np.log(weights) - 0.5 * (
        d * np.log(2 * np.pi * total) + (centres**2).sum(1) / total
    )
    mean = softmax(log_parts) @ centres[:, 0] * scale**2 / total
    stan = """
data { int d; int K; simplex[K] w; array[K] vector[d] m; real scale; real width; }
parameters { vector[d] x; }
model {
  vector[K] lp;
  x ~ normal(0, scale);
  for (k in 1:K) lp[k] = log(w[k]) + normal_lpdf(x | m[k], width);
  target += log_sum_exp(lp);
}
"""
    data = {"d": d, "K": count, "w": weights, "m": centres, "scale": scale, "width": width}
    return Target(stan, data, float(logsumexp(log_parts)), element("x", 0), float(mean))


def _directions(rng: np.random.Generator, count: int, d: int) -> Array:
    draws = rng.normal(size=(count, d))
    return draws / np.linalg.norm(draws, axis=1, keepdims=True)


@family
def labels(rng: np.random.Generator) -> Target:
    """A location mixture with exchangeable components, by enumeration of all allocations."""
    count = int(rng.integers(2, 4))
    n = int(rng.integers(5, {2: 12, 3: 8}[count]))
    scale = rounded(rng.uniform(2, 6), 1)
    y = rounded(rng.choice(rng.uniform(1, 4) * np.arange(count), n) + rng.normal(size=n) - 1, 2)
    allocations = np.array(list(itertools.product(range(count), repeat=n)))
    log_p = np.full(len(allocations), -n * np.log(count) - 0.5 * n * LOG_2PI - 0.5 * y @ y)
    for k in range(count):
        own = allocations == k
        variance = 1 / (own.sum(axis=1) + 1 / scale**2)
        place = variance * (own @ y)
        log_p += 0.5 * (np.log(variance / scale**2) + place**2 / variance)
        if k == 0:
            square = place**2 + variance
    stan = """
data { int n; int K; vector[n] y; real scale; }
parameters { vector[K] mu; }
model {
  mu ~ normal(0, scale);
  for (i in 1:n) {
    vector[K] lp;
    for (k in 1:K) lp[k] = normal_lpdf(y[i] | mu[k], 1) - log(K);
    target += log_sum_exp(lp);
  }
}
"""
    data = {"n": n, "K": count, "y": y, "scale": scale}
    quantity = lambda v: v["mu"][..., 0] ** 2  # noqa: E731
    return Target(stan, data, float(logsumexp(log_p)), quantity, float(softmax(log_p) @ square))


@family
def harmonic(rng: np.random.Generator) -> Target:
    """A sinusoid of unknown frequency: linear in its amplitudes given the frequency."""
    n, noise = int(rng.integers(8, 30)), rounded(rng.uniform(0.5, 1.5), 2)
    times = rounded(np.sort(rng.uniform(0, n, n)), 2)
    wave = rng.uniform(0.3, 2.8) * times
    y = rounded(
        rng.uniform(0.2, 1.5) * np.cos(wave + rng.uniform(0, 6)) + noise * rng.normal(size=n)
    )
    low, high = 0.1, 3.1

    def log_f(omega: Array) -> Array:
        phase = omega[:, None] * times
        design = np.stack([np.cos(phase), np.sin(phase)], axis=2)  # (points, n, 2)
        precision = np.eye(2) + np.swapaxes(design, 1, 2) @ design / noise**2
        cross = np.einsum("pni,n->pi", design, y) / noise**2
        fit = np.einsum("pi,pi->p", cross, np.linalg.solve(precision, cross[..., None])[..., 0])
        log_det = np.linalg.slogdet(precision)[1]
        norm_y = n * (LOG_2PI + 2 * np.log(noise)) + y @ y / noise**2
        return 0.5 * (fit - log_det - norm_y) - np.log(high - low)

    found = integrate(log_f, lambda omega: omega, [(low, high)], 40001)
    stan = f"""
data {{ int n; vector[n] t; vector[n] y; real noise; }}
parameters {{ real<lower={low}, upper={high}> omega; real a; real b; }}
model {{
  omega ~ uniform({low}, {high});
  a ~ std_normal();
  b ~ std_normal();
  y ~ normal(a * cos(omega * t) + b * sin(omega * t), noise);
}}
"""
    data = {"n": n, "t": times, "y": y, "noise": noise}
    return Target(stan, data, found.log_z, element("omega"), found.mean, found.tolerance)


@family
def boltzmann(rng: np.random.Generator) -> Target:
    """The relaxation of a Boltzmann machine, by enumeration of its states."""
    machine = BoltzmannMachine.random(
        int(rng.integers(5, 13)), rng, scale=rng.uniform(2, 6), bias_sd=rng.uniform(0.05, 0.4)
    )
    exact = machine.relaxed(machine.exact())
    stan = (STAN_MODELS / "boltzmann" / "boltzmann.stan").read_text(encoding="utf-8")
    return Target(stan, machine.stan_data(), exact.log_z, element("x", 0), float(exact.mean[0]))


@family
def changepoint(rng: np.random.Generator) -> Target:
    """Poisson counts whose rate changes once: the place is enumerated, the rates are conjugate."""
    n = int(rng.integers(10, 60))
    place = int(rng.integers(2, n - 1))
    y = rng.poisson(np.where(np.arange(n) < place, *rng.gamma(2, 2, 2)))
    before = np.arange(1, n)
    left = np.cumsum(y)[:-1]
    right = y.sum() - left

    def log_gamma_poisson(total: Array, number: Array) -> Array:
        return 2 * np.log(0.5) + gammaln(2 + total) - (2 + total) * np.log(0.5 + number)

    log_p = log_gamma_poisson(left, before) + log_gamma_poisson(right, n - before)
    log_p = log_p - np.log(n - 1) - gammaln(y + 1).sum()
    mean = softmax(log_p) @ ((2 + left) / (0.5 + before))
    stan = """
data { int n; array[n] int y; }
parameters { real<lower=0> early; real<lower=0> late; }
model {
  vector[n - 1] lp;
  early ~ gamma(2, 0.5);
  late ~ gamma(2, 0.5);
  for (s in 1:(n - 1))
    lp[s] = poisson_lpmf(y[1:s] | early) + poisson_lpmf(y[(s + 1):n] | late) - log(n - 1);
  target += log_sum_exp(lp);
}
"""
    data = {"n": n, "y": y}
    return Target(stan, data, float(logsumexp(log_p)), element("early"), float(mean))


@family
def cauchy_data(rng: np.random.Generator) -> Target:
    """The place and scale of a few Cauchy observations far apart, by quadrature."""
    n, prior = int(rng.integers(2, 9)), rounded(rng.uniform(5, 20), 1)
    y = rounded(rng.uniform(1, 8) * rng.standard_normal(n) + rng.choice([-4, 4], n), 2)

    def log_f(x: Array, log_s: Array) -> Array:
        scaled = (y - x[:, None]) / np.exp(log_s)[:, None]
        log_p = -np.log1p(scaled**2).sum(axis=1) - n * (np.log(np.pi) + log_s)
        return log_p + norm.logpdf(x, 0, prior) + norm.logpdf(log_s, 0, 0.5)

    found = integrate(log_f, lambda x, log_s: x, [(-10 * prior, 10 * prior), (-10, 10)], 1001)
    stan = """
data { int n; vector[n] y; real prior; }
parameters { real x; real log_s; }
model {
  x ~ normal(0, prior);
  log_s ~ normal(0, 0.5);
  y ~ cauchy(x, exp(log_s));
}
"""
    data = {"n": n, "y": y, "prior": prior}
    return Target(stan, data, found.log_z, element("x"), found.mean, found.tolerance)


@family
def process(rng: np.random.Generator) -> Target:
    """Length scale and noise of a Gaussian process: few points may be wiggles or noise."""
    n = int(rng.integers(5, 16))
    x = rounded(np.sort(rng.uniform(-4, 4, n)), 2)
    gaps = np.square(x[:, None] - x)
    kernel = np.exp(-0.5 * gaps / rng.uniform(0.3, 2) ** 2)
    covariance = kernel + rng.uniform(0.1, 0.7) ** 2 * np.eye(n)
    y = rounded(np.linalg.cholesky(covariance) @ rng.normal(size=n))

    def log_f(log_length: Array, log_noise: Array) -> Array:
        matrix = np.exp(-0.5 * gaps * np.exp(-2 * log_length)[:, None, None])
        matrix += (np.exp(2 * log_noise) + 1e-6)[:, None, None] * np.eye(n)
        lower = np.linalg.cholesky(matrix)
        solved = np.linalg.solve(lower, np.broadcast_to(y[:, None], (*log_length.shape, n, 1)))
        log_det = np.log(np.diagonal(lower, axis1=1, axis2=2)).sum(axis=1)
        log_p = -0.5 * (np.square(solved).sum(axis=(1, 2)) + n * LOG_2PI) - log_det
        return log_p + norm.logpdf(log_length) + norm.logpdf(log_noise, -1, 1)

    found = integrate(in_parts(log_f, 4000), lambda u, v: u, [(-9, 9), (-10, 8)], 201)
    stan = """
data { int n; array[n] real x; vector[n] y; }
parameters { real log_length; real log_noise; }
model {
  log_length ~ std_normal();
  log_noise ~ normal(-1, 1);
  y ~ multi_normal_cholesky(rep_vector(0, n), cholesky_decompose(add_diag(
    gp_exp_quad_cov(x, 1, exp(log_length)), exp(2 * log_noise) + 1e-6)));
}
"""
    data = {"n": n, "x": x, "y": y}
    return Target(stan, data, found.log_z, element("log_length"), found.mean, found.tolerance)

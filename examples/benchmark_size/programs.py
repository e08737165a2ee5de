"""Programs of any size with their exact log Z."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_expit, logsumexp

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "calibration"))
from grouped import poisson_groups

import stanct


class Sized(NamedTuple):
    """A program, its data, its exact log Z, and the options of its run."""

    stan: str
    data: dict[str, Any]
    log_z: float
    options: dict[str, Any]


GAUSSIAN = """
data { int D; vector[D] s; }
parameters { vector[D] x; }
model { x ~ normal(0, s); }
"""
CHAIN = """
data { int D; real r; }
parameters { vector[D] x; }
model {
  x[1] ~ std_normal();
  x[2:D] ~ normal(r * x[1:(D - 1)], sqrt(1 - square(r)));
}
"""
FACTORS = """
data { int D; int K; matrix[D, K] load; }
parameters { vector[K] f; vector[D] x; }
model {
  f ~ std_normal();
  x ~ normal(load * f, 0.5);
}
"""
PROCESS = """
data { int N; vector[N] t; vector[N] y; real width; }
transformed data {
  matrix[N, N] L = cholesky_decompose(
    add_diag(gp_exp_quad_cov(to_array_1d(t), 1.0, width), 1e-8));
}
parameters { real<lower=0> height; real<lower=0> noise; vector[N] z; }
model {
  height ~ normal(0, 1) T[0, ];
  noise ~ normal(0, 1) T[0, ];
  z ~ std_normal();
  y ~ normal(height * (L * z), noise);
}
"""
LOGISTIC = """
data { int N; int K; matrix[N, K] X; array[N] int<lower=0, upper=1> y; }
parameters { real a; vector[K] b; }
model {
  a ~ std_normal();
  b ~ std_normal();
  y ~ bernoulli_logit_glm(X, a, b);
}
"""


# Points at which the likelihood of the regression is computed at once.
BATCH = 20


def gaussian(size: int) -> Sized:
    """Independent normals whose scales span four powers of ten."""
    scales = 10 ** np.random.default_rng(size).uniform(-2, 2, size)
    few = {"draws": 400} if size > 2_000 else {}  # each draw of all numbers has 80 kB
    return Sized(GAUSSIAN, {"D": size, "s": scales}, 0.0, few)


def chain(size: int) -> Sized:
    """A stationary autoregression of the first order, with correlation .9 of neighbours."""
    return Sized(CHAIN, {"D": size, "r": 0.9}, 0.0, {})


def factors(size: int) -> Sized:
    """Five factors that move all other parameters."""
    load = np.random.default_rng(size).normal(0, 0.5, (size - 5, 5)).round(3)
    return Sized(FACTORS, {"D": size - 5, "K": 5, "load": load}, 0.0, {})


def groups(size: int) -> Sized:
    """A centred Poisson hierarchy, integrated group by group."""
    found = poisson_groups(np.random.default_rng(size), size)
    return Sized(found.stan, dict(found.data), found.log_z, {})


def process(size: int) -> Sized:
    """A Gaussian process at so many times, with its height and noise among the parameters.

    In the eigenvectors of the kernel all observations are independent, given height and noise. The
    two are integrated on a grid.
    """
    rng = np.random.default_rng(size)
    times, width = np.linspace(0, 1, size), 0.1
    kernel = np.exp(-0.5 * np.square((times[:, None] - times) / width)) + 1e-8 * np.eye(size)
    values, vectors = np.linalg.eigh(kernel)
    values = np.maximum(values, 0)
    y = vectors @ (np.sqrt(values) * rng.standard_normal(size)) + 0.3 * rng.standard_normal(size)
    squares = np.square(vectors.T @ y)
    low, high = np.log([0.05, 0.2]), np.log([8.0, 0.5])
    grid = [np.linspace(a, b, 301) for a, b in zip(low, high, strict=True)]
    log_f = np.empty((301, 301))
    for i, height in enumerate(np.exp(grid[0])):
        variance = height**2 * values[:, None] + np.exp(2 * grid[1])
        log_likelihood = -0.5 * (squares[:, None] / variance + np.log(2 * np.pi * variance)).sum(0)
        log_prior = -0.5 * (height**2 + np.exp(2 * grid[1])) - np.log(np.pi / 2)
        log_f[i] = log_likelihood + log_prior + grid[0][i] + grid[1]
    steps = np.log([axis[1] - axis[0] for axis in grid]).sum()
    data = {"N": size, "t": times, "y": y, "width": width}
    return Sized(PROCESS, data, float(logsumexp(log_f) + steps), {})


def logistic(size: int, **options: Any) -> Sized:
    """A logistic regression on five covariates, integrated by importance sampling."""
    rng = np.random.default_rng(size)
    covariates = rng.normal(size=(size, 5)).round(2)
    design = np.column_stack([np.ones(size), covariates])
    truth = np.array([-1.0, 0.5, -0.5, 0.2, 0.0, 1.0])
    y = (rng.uniform(size=size) < 1 / (1 + np.exp(-design @ truth))).astype(int)
    mode = truth.copy()
    for _ in range(20):
        p = 1 / (1 + np.exp(-design @ mode))
        precision = (design * (p * (1 - p))[:, None]).T @ design + np.eye(6)
        step = np.linalg.solve(precision, design.T @ (y - p) - mode)
        mode += step
    root = np.linalg.cholesky(np.linalg.inv(precision))
    signs = 2 * y - 1
    ratios = []
    # Weights vary like the square root of 1 / size, and this many of them err by some 1e-4.
    for _ in range(400_000_000 // size // BATCH):
        noise = rng.standard_normal((BATCH, 6))
        points = mode + noise @ root.T
        log_p = log_expit(signs * (points @ design.T)).sum(axis=1)
        log_p -= 0.5 * np.square(points).sum(axis=1)
        ratios.append(log_p + 0.5 * np.square(noise).sum(axis=1) + np.log(np.diag(root)).sum())
    log_z = float(logsumexp(ratios) - np.log(np.size(ratios)))
    return Sized(LOGISTIC, {"N": size, "K": 5, "X": covariates, "y": y}, log_z, options)


def summed(size: int) -> Sized:
    """The same regression by `reduce_sum`, on CmdStan with two threads.

    With many rows a gradient takes a fifth of a second, and the run is short. Its base is CmdStan's
    Laplace approximation, because pilots would take longer than the run.
    """
    options: dict[str, Any] = {"method": "joint", "engine": "cmdstan", "threads": 2}
    options["reduce_sum"] = True
    if size > 100_000:
        short = {"method": stanct.Joint(bootstrap=0), "base": "laplace", "chains": 2}
        options |= {**short, "draws": 150, "warmup": 150}
    return logistic(size, **options)


PROGRAMS: dict[str, Callable[[int], Sized]] = {
    "gaussian": gaussian,
    "chain": chain,
    "factors": factors,
    "groups": groups,
    "process": process,
    "logistic": logistic,
    "summed": summed,
}
SIZES = {
    "gaussian": (10, 100, 1_000, 10_000),
    "chain": (100, 1_000),
    "factors": (100, 1_000),
    "groups": (100, 1_000),
    "process": (100, 1_000),
    "logistic": (10_000, 1_000_000),
    "summed": (10_000, 1_000_000),
}

"""Hierarchies: many groups under a few shared parameters."""

from __future__ import annotations

import numpy as np
from quadrature import Array, in_parts, integrate, log_concave
from scipy.special import gammaln, logsumexp, softmax
from scipy.stats import norm
from target import LOG_2PI, Target, element, family, rounded

NORMAL_HIERARCHY = {
    "centred": ("vector[J] theta;", "", "theta ~ normal(mu, tau);"),
    "offset": ("vector<offset=mu, multiplier=tau>[J] theta;", "", "theta ~ normal(mu, tau);"),
    "raw": (
        "vector[J] raw;",
        "transformed parameters { vector[J] theta = mu + tau * raw; }",
        "raw ~ std_normal();",
    ),
}


def hierarchy(rng: np.random.Generator, form: str) -> Target:
    """Normal groups with known errors: given tau all is Gaussian."""
    groups, scale = int(rng.integers(4, 25)), rounded(rng.uniform(0.5, 4), 1)
    errors, spread = rounded(rng.uniform(0.4, 2, groups), 2), rng.uniform(0.05, 1.5)
    y = rounded(rng.normal(0, 2) + np.hypot(spread, errors) * rng.normal(size=groups))
    wanted, prior = rng.choice(["mu", "tau", "theta"]), 9.0

    def given(log_tau: Array) -> tuple[Array, Array]:
        """log p(y | tau), and the mean of the wanted quantity."""
        tau = np.exp(log_tau)
        precision = 1 / (errors**2 + tau[:, None] ** 2)
        variance = 1 / (1 / prior + precision.sum(axis=1))
        mu = variance * (precision @ y)
        log_p = 0.5 * (
            np.log(precision).sum(axis=1)
            - groups * LOG_2PI
            - precision @ y**2
            + mu**2 / variance
            + np.log(variance / prior)
        )
        shrink = errors[0] ** 2 * precision[:, 0]
        theta = shrink * mu + (1 - shrink) * y[0]
        return log_p, {"mu": mu, "tau": tau, "theta": theta}[wanted]

    found = integrate(
        lambda u: given(u)[0] + np.log(2) + norm.logpdf(np.exp(u), 0, scale) + u,
        lambda u: given(u)[1],
        [(-40, 5)],
        4001,
    )
    declared, transformed, model = NORMAL_HIERARCHY[form]
    stan = f"""
data {{ int J; vector[J] y; vector[J] sigma; real scale; }}
parameters {{ real mu; real<lower=0> tau; {declared} }}
{transformed}
model {{
  mu ~ normal(0, 3);
  target += normal_lpdf(tau | 0, scale) - normal_lccdf(0 | 0, scale);
  {model}
  y ~ normal(theta, sigma);
}}
"""
    data = {"J": groups, "y": y, "sigma": errors, "scale": scale}
    quantity = element("theta", 0) if wanted == "theta" else element(str(wanted))
    return Target(stan, data, found.log_z, quantity, found.mean, found.tolerance)


@family
def hierarchy_centred(rng: np.random.Generator) -> Target:
    return hierarchy(rng, "centred")


@family
def hierarchy_offset(rng: np.random.Generator) -> Target:
    return hierarchy(rng, "offset")


@family
def hierarchy_raw(rng: np.random.Generator) -> Target:
    return hierarchy(rng, "raw")


SPARSE_MEANS = {
    "centred": ("vector[p] b;", "", "b ~ normal(0, lambda * tau);"),
    "offset": ("vector<multiplier=lambda * tau>[p] b;", "", "b ~ normal(0, lambda * tau);"),
    "raw": (
        "vector[p] raw;",
        "transformed parameters { vector[p] b = raw .* lambda * tau; }",
        "raw ~ std_normal();",
    ),
}


def horseshoe(rng: np.random.Generator, form: str) -> Target:
    """Sparse normal means: given tau the coefficients are independent, each with its own scale."""
    p, scale = int(rng.integers(1, 9)), rounded(rng.uniform(0.3, 2), 1)
    errors = rounded(rng.uniform(0.3, 1.2, p), 2)
    y = rounded(np.where(rng.random(p) < 0.4, rng.normal(0, 4, p), 0) + errors * rng.normal(size=p))
    log_lambda = np.linspace(-40, 40, 401)
    log_prior = np.log(2 / np.pi) - np.logaddexp(0, 2 * log_lambda) + log_lambda

    def given(log_tau: Array) -> tuple[Array, Array]:
        """log p(y | tau), and the mean of the first coefficient."""
        total = mean = np.zeros(log_tau.shape)
        for k in range(p):
            variance = np.exp(2 * (log_tau[:, None] + log_lambda))
            log_joint = log_prior + norm.logpdf(y[k], 0, np.sqrt(errors[k] ** 2 + variance))
            total = total + logsumexp(log_joint, axis=1) + np.log(log_lambda[1] - log_lambda[0])
            if k == 0:
                shrunk = y[0] * variance / (variance + errors[0] ** 2)
                mean = (softmax(log_joint, axis=1) * shrunk).sum(axis=1)
        return total, mean

    found = integrate(
        lambda u: given(u)[0] + np.log(2) + norm.logpdf(np.exp(u), 0, scale) + u,
        lambda u: given(u)[1],
        [(-40, 4)],
        401,
    )
    declared, transformed, model = SPARSE_MEANS[form]
    stan = f"""
data {{ int p; vector[p] y; vector[p] sigma; real scale; }}
parameters {{ real<lower=0> tau; vector<lower=0>[p] lambda; {declared} }}
{transformed}
model {{
  target += normal_lpdf(tau | 0, scale) - normal_lccdf(0 | 0, scale);
  target += cauchy_lpdf(lambda | 0, 1) + p * log2();
  {model}
  y ~ normal(b, sigma);
}}
"""
    data = {"p": p, "y": y, "sigma": errors, "scale": scale}
    return Target(stan, data, found.log_z, element("b", 0), found.mean, found.tolerance)


@family
def horseshoe_centred(rng: np.random.Generator) -> Target:
    return horseshoe(rng, "centred")


@family
def horseshoe_offset(rng: np.random.Generator) -> Target:
    return horseshoe(rng, "offset")


@family
def horseshoe_raw(rng: np.random.Generator) -> Target:
    return horseshoe(rng, "raw")


def poisson_groups(
    rng: np.random.Generator, groups: int, points: tuple[int, int] = (41, 81)
) -> Target:
    """Counts in groups with normal log rates: an integral over (mu, log tau) of group integrals."""
    tau = rng.uniform(0.2, 1.2)
    exposures = rng.choice([0.5, 1.0, 2.0, 4.0], groups)
    y = rng.poisson(exposures * np.exp(rng.normal(0.5, 0.7) + tau * rng.normal(size=groups)))
    pairs, number = np.unique(np.stack([y, exposures]), axis=1, return_counts=True)
    count, exposure = (row[:, None] for row in pairs)
    constant = float(y @ np.log(exposures) - gammaln(y + 1).sum())

    def log_tau_of(w: Array) -> Array:
        # The density of log tau falls in proportion to tau, and that of w much faster.
        return w - np.exp(-w)

    def log_f(mu: Array, w: Array) -> Array:
        log_tau = log_tau_of(w)
        tau = np.exp(log_tau)
        mode = np.log((count + 0.5) / exposure) + 0 * mu
        for _ in range(60):
            # Newton's method on a concave function, with steps that cannot overshoot by far.
            rate = exposure * np.exp(mode)
            slope = count - rate - (mode - mu) / tau**2
            mode = mode + np.clip(slope / (rate + 1 / tau**2), -1, 1)
        place, width = mu[:, None], tau[:, None]
        log_groups = log_concave(
            lambda x: (
                count[..., None] * x
                - exposure[..., None] * np.exp(x)
                - 0.5 * ((x - place) / width) ** 2
            ),
            mode,
            np.broadcast_to(np.sqrt(2 * 41) * tau, mode.shape),
            61,
        )
        log_groups = log_groups - 0.5 * LOG_2PI - log_tau
        log_prior = norm.logpdf(mu, 0, 2) + log_tau - tau + np.log1p(np.exp(-w))
        return constant + number @ log_groups + log_prior

    found = integrate(
        in_parts(log_f, 500),
        lambda mu, w: np.exp(log_tau_of(w)),
        [(-16, 16), (-3.2, 3.5)],
        *points,
    )
    stan = """
data { int J; array[J] int y; vector[J] exposure; }
parameters { real mu; real<lower=0> tau; vector[J] theta; }
model {
  mu ~ normal(0, 2);
  tau ~ exponential(1);
  theta ~ normal(mu, tau);
  y ~ poisson_log(theta + log(exposure));
}
"""
    data = {"J": groups, "y": y, "exposure": exposures}
    return Target(stan, data, found.log_z, element("tau"), found.mean, found.tolerance)


@family
def poisson_100(rng: np.random.Generator) -> Target:
    return poisson_groups(rng, 100)


@family
def poisson_1000(rng: np.random.Generator) -> Target:
    return poisson_groups(rng, 1000)

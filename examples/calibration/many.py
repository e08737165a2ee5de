"""Targets with many modes in many dimensions, or with one that is hard to find.

They are run where they are named (`run.py --families gaussians`), not with all families. In those
that end in ``unnamed``, and in `slabs` and `light`, the program writes its mixture as the log of a
sum of exponentials, so that no text tells of its components.
"""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
from quadrature import Array
from scipy.special import logsumexp
from scipy.stats import ortho_group, wishart
from target import FAMILIES, LOG_2PI, Family, Target, element, rounded

# Wells are integrated on so many points along each coordinate, from −REACH to REACH.
REACH, ALONG, EACH_WAY = 5.0, 20_001, 801
_GAUSSIANS = """
data { int K; int D; simplex[K] w; array[K] vector[D] m; array[K] matrix[D, D] L; real c; }
parameters { vector[D] x; }
model {
  vector[K] lp;
  for (k in 1:K) lp[k] = log(w[k]) + multi_normal_cholesky_lpdf(x | m[k], L[k]);
  target += c + log_sum_exp(lp);
}
"""


def gaussians(rng: np.random.Generator) -> Target:
    """Two to sixty Gaussians of random covariances in 5 to 60 dimensions."""
    d, count = int(rng.integers(5, 61)), int(rng.integers(2, 61))
    weights, spread = rng.dirichlet(np.full(count, 3.0)), rng.uniform(3, 10)
    normal = rng.random() < 0.5
    shape = (count, d)
    centres = (
        spread * rng.normal(size=shape) if normal else rng.uniform(-2 * spread, 2 * spread, shape)
    )
    kind = int(rng.integers(3))
    factors = [np.linalg.cholesky(_covariance(rng, d, kind)) for _ in range(count)]
    log_z = rounded(rng.normal(0, 5))
    data = {"K": count, "D": d, "w": weights, "m": centres, "L": factors, "c": log_z}
    return Target(_GAUSSIANS, data, float(log_z), element("x", 0), float(weights @ centres[:, 0]))


def _covariance(rng: np.random.Generator, d: int, kind: int) -> Array:
    """A covariance of one of three kinds: Wishart, turned, or round."""
    if kind == 0:
        return wishart.rvs(d + 2, np.eye(d) / 3, random_state=rng)
    if kind == 1:
        axes = ortho_group.rvs(d, random_state=rng)
        return (axes * np.exp(rng.normal(0, 1, d))) @ axes.T
    return np.eye(d) * np.exp(rng.normal(0, 0.4))


def two_widths(rng: np.random.Generator) -> Target:
    """Two round Gaussians of different widths, far apart in 5 to 30 dimensions."""
    d, share, ratio = int(rng.integers(5, 31)), rng.uniform(0.2, 0.8), rng.uniform(1.2, 4)
    centres = rng.uniform(3, 10) * np.array([-1, 1])[:, None] * np.abs(rng.normal(1, 0.5, d))
    wide = rng.uniform(0.5, 2)
    log_z = rounded(rng.normal(0, 5))
    stan = """
data { int D; real p; array[2] vector[D] m; array[2] real s; real c; }
parameters { vector[D] x; }
model { target += c + log_mix(p, normal_lpdf(x | m[1], s[1]), normal_lpdf(x | m[2], s[2])); }
"""
    data = {"D": d, "p": share, "m": centres, "s": [wide, wide / ratio], "c": log_z}
    mean = share * centres[0, 0] + (1 - share) * centres[1, 0]
    return Target(stan, data, float(log_z), element("x", 0), float(mean))


def spikes(rng: np.random.Generator) -> Target:
    """A spike on a slab, 3 to 30 times narrower, at its centre or beside it, 2 to 20 dimensions."""
    d, ratio = int(rng.integers(2, 21)), np.exp(rng.uniform(np.log(3), np.log(30)))
    share, wide = rng.uniform(0.05, 0.99), rng.uniform(0.1, 3)
    beside = (rng.random() < 0.5) * rng.uniform(0, 1) * wide * rng.normal(size=d)
    log_z = rounded(rng.normal(0, 5))
    stan = """
data { int D; real p; real wide; real narrow; vector[D] m; real c; }
parameters { vector[D] x; }
model { target += c + log_mix(p, normal_lpdf(x | m, narrow), normal_lpdf(x | 0, wide)); }
"""
    data = {"D": d, "p": share, "wide": wide, "narrow": wide / ratio, "m": beside, "c": log_z}
    return Target(stan, data, float(log_z), element("x", 0), float(share * beside[0]))


def spike_unnamed(rng: np.random.Generator) -> Target:
    """Targets of `spike` whose programs name no component."""
    return _unnamed(FAMILIES["spike"](rng))


def spikes_unnamed(rng: np.random.Generator) -> Target:
    """Targets of `spikes` whose programs name no component."""
    return _unnamed(spikes(rng))


def _unnamed(target: Target) -> Target:
    density = r"(normal_lpdf\([^()]*\))"
    stan = re.sub(rf"log_mix\((\w+), {density}, {density}\)", r"mixed(\1, \2, \3)", target.stan)
    mixed = """functions {
  real mixed(real p, real a, real b) {
    return fmax(a, b) + log(p * exp(a - fmax(a, b)) + (1 - p) * exp(b - fmax(a, b)));
  }
}
"""
    return replace(target, stan=mixed + stan)


def slabs(rng: np.random.Generator) -> Target:
    """Two or three round Gaussians, each with a slab of its own, 2 to 12 times as wide."""
    d, count, wide = int(rng.integers(2, 11)), int(rng.integers(2, 4)), rng.uniform(0.3, 2)
    centres = _around(rng, d, rng.uniform(2, 6, (count, 1)) * wide)
    scales = np.append(wide / np.exp(rng.uniform(np.log(2), np.log(12), count)), [wide] * count)
    return _with_a_t(rng, rng.dirichlet(np.full(2 * count, 2.0)), [*centres, *centres], scales)


def light(rng: np.random.Generator) -> Target:
    """One to three Gaussians with most of the mass, below the tails of a t, in 4 to 9 dimensions.

    The tails of the t are higher everywhere but in a ball around each of the others.
    """
    d, count, wide = int(rng.integers(4, 10)), int(rng.integers(1, 4)), rng.uniform(0.2, 1)
    share, freedom = rng.uniform(0.5, 0.95), rng.uniform(3, 10)
    centres = _around(rng, d, rng.uniform(4, 16, (count, 1)) * wide)
    scales = wide * np.exp(rng.uniform(-0.3, 1, count))
    weights = share * rng.dirichlet(np.full(count, 3.0))
    return _with_a_t(rng, weights, centres, scales, freedom, wide)


def _around(rng: np.random.Generator, d: int, distance: Array) -> Array:
    """Places at a distance from the origin, in units of √d, shape (K, d)."""
    places = rng.normal(size=(distance.size, d))
    return distance * np.sqrt(d) * places / np.linalg.norm(places, axis=1, keepdims=True)


def _with_a_t(
    rng: np.random.Generator, weights: Array, centres: list[Array] | Array, scales: Array,
    freedom: float = 1.0, wide: float = 1.0,
) -> Target:  # fmt: skip
    """Round Gaussians, and a t around the origin with the rest of the weight, if there is one."""
    log_z, centres = rounded(rng.normal(0, 5)), np.array(centres)
    stan = """
data {
  int d; int K; vector[K] w; array[K] vector[d] m; vector[K] s; real nu; matrix[d, d] S; real c;
}
parameters { vector[d] x; }
model {
  vector[K + 1] lp = rep_vector(-1e300, K + 1);
  for (k in 1:K) lp[k] = log(w[k]) + normal_lpdf(x | m[k], s[k]);
  if (sum(w) < 1 - 1e-9)
    lp[K + 1] = log1m(sum(w)) + multi_student_t_lpdf(x | nu, rep_vector(0, d), S);
  target += c + max(lp) + log(sum(exp(lp - max(lp))));
}
"""
    count, d = centres.shape
    spread = wide**2 * np.eye(d)
    data = {"d": d, "K": count, "w": weights, "m": centres, "s": scales, "nu": freedom,
            "S": spread, "c": log_z}  # fmt: skip
    return Target(stan, data, float(log_z), element("x", 0), float(weights @ centres[:, 0]))


def wells(rng: np.random.Generator) -> Target:
    """Two to twenty wells on lines of their own, beside as many normals."""
    n = int(rng.integers(2, 21))
    depth, tilt = rng.uniform(2.5, 6, n), rng.uniform(-0.6, 0.6, n)
    x = np.linspace(-REACH, REACH, ALONG)
    log_f = tilt[:, None] * x + depth[:, None] * x**2 - x**4
    log_mass = logsumexp(log_f, axis=1) + np.log(x[1] - x[0])
    stan = """
data { int n; vector[n] tilt; vector[n] depth; }
parameters { vector[n] x; vector[n] y; }
model {
  target += sum(tilt .* x + depth .* square(x) - square(square(x)));
  target += -0.5 * dot_self(y);
}
"""
    data = {"n": n, "tilt": tilt, "depth": depth}
    log_z = float(log_mass.sum() + 0.5 * n * LOG_2PI)
    mean = float(np.exp(log_f[0] - logsumexp(log_f[0])) @ x)
    return Target(stan, data, log_z, element("x", 0), mean)


def wells_in_pairs(rng: np.random.Generator) -> Target:
    """Two to ten pairs of wells. The two of a pair are coupled, and pairs are independent."""
    n = int(rng.integers(2, 11))
    depth, tilt = rng.uniform(1.5, 5, (2, n)), rng.uniform(-0.6, 0.6, (2, n))
    pull = rng.uniform(-1, 1, n)
    x = np.linspace(-REACH, REACH, EACH_WAY)
    each = tilt[..., None] * x + depth[..., None] * x**2 - x**4
    log_z, mean = 0.0, 0.0
    for k in range(n):
        log_f = each[0, k][:, None] + each[1, k] + pull[k] * x[:, None] * x
        log_mass = logsumexp(log_f)
        log_z += float(log_mass + 2 * np.log(x[1] - x[0]))
        if k == 0:
            mean = float(np.exp(log_f - log_mass).sum(axis=1) @ x)
    stan = """
data { int n; array[2] vector[n] tilt; array[2] vector[n] depth; vector[n] pull; }
parameters { vector[n] x; vector[n] y; }
model {
  target += sum(tilt[1] .* x + depth[1] .* square(x) - square(square(x)));
  target += sum(tilt[2] .* y + depth[2] .* square(y) - square(square(y)));
  target += sum(pull .* x .* y);
}
"""
    data = {"n": n, "tilt": tilt, "depth": depth, "pull": pull}
    return Target(stan, data, log_z, element("x", 0), mean)


MANY: dict[str, Family] = {
    one.__name__: one
    for one in (
        *(gaussians, two_widths, spikes, wells, wells_in_pairs),
        *(spike_unnamed, spikes_unnamed, slabs, light),
    )
}
"""The families of this module by name."""

"""Shapes and tails that are hard for moves or for a Gaussian base."""

from __future__ import annotations

import numpy as np
from quadrature import Array, integrate
from scipy.integrate import trapezoid
from scipy.special import gammaln
from scipy.stats import norm, t
from target import LOG_2PI, Target, element, family, rotation, rounded


@family
def banana(rng: np.random.Generator) -> Target:
    """A Gaussian bent along its first axis, rotated; bending and rotation keep volumes."""
    d, wide = int(rng.integers(2, 7)), rounded(rng.uniform(1, 4), 2)
    bend, narrow = rounded(rng.uniform(0.1, 1), 2), rounded(rng.uniform(0.3, 1), 2)
    axes, log_z = rotation(rng, d), rounded(rng.normal(0, 5))
    stan = """
data { int d; matrix[d, d] Q; real wide; real narrow; real bend; real c; }
parameters { vector[d] x; }
model {
  vector[d] y = Q * x;
  target += c + normal_lpdf(y[1] | 0, wide) + normal_lpdf(y[2] | bend * square(y[1]), narrow);
  target += std_normal_lpdf(y[3:d]);
}
"""
    data = {"d": d, "Q": axes, "wide": wide, "narrow": narrow, "bend": bend, "c": log_z}
    mean = axes[1, 0] * bend * wide**2
    return Target(stan, data, float(log_z), element("x", 0), float(mean))


@family
def funnel(rng: np.random.Generator) -> Target:
    """Neal's funnel of random width and dimension."""
    d, width = int(rng.integers(1, 11)), rounded(rng.uniform(1, 3), 2)
    centre, log_z = rounded(rng.normal()), rounded(rng.normal(0, 5))
    stan = """
data { int d; real centre; real width; real c; }
parameters { real v; vector[d] x; }
model {
  v ~ normal(centre, width);
  x ~ normal(0, exp(0.5 * v));
  target += c;
}
"""
    data = {"d": d, "centre": centre, "width": width, "c": log_z}
    return Target(stan, data, float(log_z), element("v"), float(centre))


@family
def tails_t(rng: np.random.Generator) -> Target:
    """Independent t densities with 1.5 to 8 degrees of freedom; the quantity is a probability."""
    return _tails(rng, rng.uniform(1.5, 8, int(rng.integers(1, 11))))


@family
def tails_cauchy(rng: np.random.Generator) -> Target:
    """Independent Cauchy densities."""
    return _tails(rng, np.ones(int(rng.integers(1, 6))))


def _tails(rng: np.random.Generator, freedom: Array) -> Target:
    d, log_z = freedom.size, rounded(rng.normal(0, 5))
    freedom, places, scales = (
        rounded(freedom, 2),
        rounded(rng.normal(0, 3, d)),
        rng.gamma(3, 0.5, d),
    )
    scales = rounded(scales + 0.05, 2)
    edge = float(places[0] + scales[0] * rng.uniform(-2, 2))
    stan = """
data { int d; vector[d] nu; vector[d] m; vector[d] s; real c; }
parameters { vector[d] x; }
model {
  x ~ student_t(nu, m, s);
  target += c;
}
"""
    data = {"d": d, "nu": freedom, "m": places, "s": scales, "c": log_z}
    mean = float(t.sf((edge - places[0]) / scales[0], freedom[0]))
    return Target(stan, data, float(log_z), lambda v: 1.0 * (v["x"][..., 0] > edge), mean)


@family
def spike(rng: np.random.Generator) -> Target:
    """A narrow Gaussian inside a wide one: a phase transition that deepens with the dimension."""
    d, ratio = int(rng.integers(1, 9)), rng.uniform(3, 15)
    share, wide = rounded(rng.uniform(0.2, 0.8), 2), rounded(rng.uniform(1, 4), 2)
    narrow, centre = rounded(wide / ratio), rounded(wide * rng.normal(size=d))
    log_z = rounded(rng.normal(0, 5))
    stan = """
data { int d; vector[d] m; real wide; real narrow; real share; real c; }
parameters { vector[d] x; }
model {
  target += c + log_mix(share, normal_lpdf(x | m, narrow), normal_lpdf(x | 0, wide));
}
"""
    data = {"d": d, "m": centre, "wide": wide, "narrow": narrow, "share": share, "c": log_z}
    mean = float(share * centre[0])
    return Target(stan, data, float(log_z), element("x", 0), mean, narrowing=wide / narrow)


@family
def shells(rng: np.random.Generator) -> Target:
    """One or two thin spherical shells, by an integral over the radius."""
    d, count = int(rng.integers(2, 7)), int(rng.integers(1, 3))
    radius, width = rounded(rng.uniform(1, 3), 2), rounded(rng.uniform(0.1, 0.4), 2)
    centres, weights = (
        rounded(rng.normal(0, 2.5, (count, d)), 2),
        rng.dirichlet(np.full(count, 4.0)),
    )
    area = np.log(2) + 0.5 * d * np.log(np.pi) - gammaln(0.5 * d)
    found = integrate(
        lambda r: area + (d - 1) * np.log(r) + norm.logpdf(r, radius, width),
        lambda r: r,
        [(1e-12, radius + 10 * width)],
        40001,
    )
    stan = """
data { int d; int K; simplex[K] w; array[K] vector[d] m; real radius; real width; }
parameters { vector[d] x; }
model {
  vector[K] lp;
  for (k in 1:K) lp[k] = log(w[k]) + normal_lpdf(sqrt(dot_self(x - m[k])) | radius, width);
  target += log_sum_exp(lp);
}
"""
    data = {"d": d, "K": count, "w": weights, "m": centres, "radius": radius, "width": width}
    return Target(
        stan, data, found.log_z, element("x", 0), float(weights @ centres[:, 0]), found.tolerance
    )


@family
def skewed(rng: np.random.Generator) -> Target:
    """Independent skew normal densities, each cut off by the bounds of its parameter."""
    d, log_z = int(rng.integers(1, 9)), rounded(rng.normal(0, 5))
    places, scales = rounded(rng.normal(size=d)), rounded(rng.gamma(3, 0.5, d) + 0.05, 2)
    skews = rounded(rng.normal(0, 6, d), 2)
    low = rounded(places - scales * rng.uniform(0, 3, d), 2)
    high = rounded(places + scales * rng.uniform(0.2, 3, d), 2)
    # Where the density is highest lies between the bounds, or at one of them.
    grid = np.linspace(low, high, 20001)
    density = norm.pdf(z := (grid - places) / scales) * norm.cdf(skews * z) * 2 / scales
    mass = trapezoid(density, grid, axis=0)
    mean = trapezoid(density[:, 0] * grid[:, 0], grid[:, 0]) / mass[0]
    stan = """
data { int d; vector[d] m; vector[d] s; vector[d] skew; vector[d] low; vector[d] high; real c; }
parameters { vector<lower=low, upper=high>[d] x; }
model {
  x ~ skew_normal(m, s, skew);
  target += c;
}
"""
    data = {
        "d": d, "m": places, "s": scales, "skew": skews, "low": low, "high": high, "c": log_z
    }  # fmt: skip
    total = float(log_z + np.log(mass).sum())
    return Target(stan, data, total, element("x", 0), float(mean), 1e-6)


@family
def ill_conditioned(rng: np.random.Generator) -> Target:
    """A Gaussian whose variances span up to eight orders of magnitude, rotated."""
    d, orders = int(rng.integers(2, 61)), rng.uniform(1, 8)
    axes = rotation(rng, d)
    precision = (axes * np.logspace(-0.5 * orders, 0.5 * orders, d)) @ axes.T
    precision, centre = 0.5 * (precision + precision.T), rounded(rng.normal(size=d))
    stan = """
data { int d; matrix[d, d] P; vector[d] m; }
parameters { vector[d] x; }
model { target += -0.5 * quad_form(P, x - m); }
"""
    data = {"d": d, "P": precision, "m": centre}
    variance = float(axes[0] ** 2 @ np.logspace(0.5 * orders, -0.5 * orders, d))
    return Target(
        stan,
        data,
        0.5 * d * LOG_2PI,
        lambda v: (v["x"][..., 0] - centre[0]) ** 2,
        variance,
        1e-6,
    )

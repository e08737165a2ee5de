"""Targets with a period to be found: velocities of a star with one planet."""

from __future__ import annotations

import numpy as np
from quadrature import Array
from scipy.special import logsumexp
from target import LOG_2PI, Target, element, family, rounded

# Days of the observations, and how many times the shortest period is the longest.
SPAN, RANGE = 1000.0, 100.0
# The most frequencies, times eccentricities, times phases, at which a sum has its terms.
AT_ONCE = 400_000
# Places that lie so many nats below the best add nothing.
DEPTH = 25.0

_DATA = """
data { int N; vector[N] t; vector[N] v; vector[N] s; real shortest; real scale; }
"""
_CIRCLES = {
    "amplitude": """
parameters {
  real<lower=0> K;
  real<lower=0, upper=2 * pi()> phase;
  real v0;
  real<lower=log(shortest), upper=log(100 * shortest)> log_P;
}
model {
  K ~ rayleigh(scale);
  phase ~ uniform(0, 2 * pi());
  v0 ~ normal(0, 10);
  log_P ~ uniform(log(shortest), log(100 * shortest));
  v ~ normal(v0 + K * cos(2 * pi() * t / exp(log_P) - phase), s);
}
""",
    "linear": """
parameters { real a; real b; real v0; real<lower=log(shortest), upper=log(100 * shortest)> log_P; }
model {
  vector[N] x = 2 * pi() * t / exp(log_P);
  a ~ normal(0, scale);
  b ~ normal(0, scale);
  v0 ~ normal(0, 10);
  log_P ~ uniform(log(shortest), log(100 * shortest));
  v ~ normal(v0 + a * cos(x) + b * sin(x), s);
}
""",
}
_ELLIPSE = """
functions {
  real eccentric_anomaly(real M, real e) {
    real E = M + e * sin(M);
    for (i in 1:8) E = E - (E - e * sin(E) - M) / (1 - e * cos(E));
    return E;
  }
}
data { int N; vector[N] t; vector[N] v; vector[N] s; real shortest; real scale; }
parameters {
  real a;
  real b;
  real v0;
  real<lower=log(shortest), upper=log(100 * shortest)> log_P;
  real<lower=0, upper=0.8> e;
  real<lower=0, upper=2 * pi()> M0;
}
model {
  a ~ normal(0, scale);
  b ~ normal(0, scale);
  v0 ~ normal(0, 10);
  log_P ~ uniform(log(shortest), log(100 * shortest));
  e ~ uniform(0, 0.8);
  M0 ~ uniform(0, 2 * pi());
  for (n in 1:N) {
    real E = eccentric_anomaly(fmod(2 * pi() * t[n] / exp(log_P) + M0, 2 * pi()), e);
    real c = (cos(E) - e) / (1 - e * cos(E));
    real d = sqrt(1 - square(e)) * sin(E) / (1 - e * cos(E));
    v[n] ~ normal(v0 + a * (c + e) + b * d, s[n]);
  }
}
"""


@family
def orbit(rng: np.random.Generator) -> Target:
    """A dozen or two velocities, whose period has a prior over two decades and dozens of peaks."""
    data = _velocities(rng, 0.0)
    stan = _DATA + _CIRCLES[str(rng.choice(sorted(_CIRCLES)))]
    answers = []
    for count in (100_001, 200_001):
        f = np.linspace(1 / RANGE, 1, count) / data["shortest"]
        x = 2 * np.pi * f[:, None] * data["t"]
        log_m, offset = _given(data, np.cos(x), np.sin(x))
        answers.append(_summed(log_m - np.log(f), offset, float(np.log(f[1] - f[0]))))
    return _target(stan, data, answers)


@family
def orbit_eccentric(rng: np.random.Generator) -> Target:
    """The same for an ellipse, in six dimensions."""
    data = _velocities(rng, rng.uniform(0, 0.6))
    return _target(_ELLIPSE, data, [_on_ellipses(data, fine) for fine in (1, 2)])


def _velocities(rng: np.random.Generator, e: float) -> dict[str, Array]:
    """Data of a random orbit."""
    n = int(rng.integers(12, 24))
    t = rounded(np.sort(rng.uniform(0, SPAN, n)), 2)
    s = rounded(rng.uniform(0.4, 0.8) * rng.uniform(0.8, 1.2, n))
    shortest = rounded(rng.uniform(2, 10), 1)
    period = shortest * RANGE ** rng.uniform(0.05, 0.8)
    amplitude = float(rng.uniform(2, 8) * s.mean())
    anomaly = 2 * np.pi * t / period + rng.uniform(0, 2 * np.pi)
    c, d = _shapes(anomaly, e)
    turn = rng.uniform(0, 2 * np.pi)
    v = amplitude * (np.cos(turn) * (c + e) + np.sin(turn) * d)
    v = rounded(v + rng.normal(0, 3) + s * rng.normal(size=n))
    return {"N": n, "t": t, "v": v, "s": s, "shortest": shortest, "scale": 4.0}


def _shapes(anomaly: Array, e: Array | float) -> tuple[Array, Array]:
    """Cosine and sine of the true anomaly from the mean one."""
    mean = np.remainder(anomaly, 2 * np.pi)
    at = mean + e * np.sin(mean)
    for _ in range(8):
        at = at - (at - e * np.sin(at) - mean) / (1 - e * np.cos(at))
    below = 1 - e * np.cos(at)
    return (np.cos(at) - e) / below, np.sqrt(1 - np.square(e)) * np.sin(at) / below


def _given(data: dict[str, Array], one: Array, other: Array) -> tuple[Array, Array]:
    """log of the mass over a, b and the offset given their factors, and the offset's mean.

    The factors have shape (n, N), the results shape (n,).
    """
    precise = 1 / np.square(data["s"])
    prior = 1 / np.square([data["scale"], data["scale"], 10.0])
    columns = (one, other, np.ones_like(one))
    inner = np.empty((len(one), 3, 3))
    outer = np.empty((len(one), 3))
    for i in range(3):
        outer[:, i] = (columns[i] * precise) @ data["v"]
        for k in range(i, 3):
            inner[:, i, k] = inner[:, k, i] = np.einsum(
                "ij,ij,j->i", columns[i], columns[k], precise
            )
        inner[:, i, i] += prior[i]
    best = np.linalg.solve(inner, outer[..., None])[..., 0]
    log_m = 0.5 * np.einsum("ij,ij->i", outer, best) - 0.5 * np.linalg.slogdet(inner)[1]
    log_m += 0.5 * np.log(prior).sum() + 0.5 * np.log(precise).sum()
    log_m += -0.5 * data["N"] * LOG_2PI - 0.5 * precise @ np.square(data["v"])
    return log_m - np.log(np.log(RANGE)), best[:, 2]


def _on_ellipses(data: dict[str, Array], fine: int) -> tuple[float, float]:
    """log Z and the offset's mean by a sum over frequency, eccentricity and phase."""
    wide = np.linspace(1 / RANGE, 1, 8001) / data["shortest"]
    width, found, best = wide[1] - wide[0], [], -np.inf
    # Frequencies at which no ellipse of a coarse mesh comes near the best need no fine one.
    rough = [_slices(data, part, 8, 16)[0] for part in np.array_split(wide, 40)]
    top = np.concatenate(rough)
    kept = wide[top > top.max() - DEPTH]
    count = 4 * fine
    offsets = (np.arange(count) + 0.5) / count - 0.5
    f = (kept[:, None] + width * offsets).ravel()
    f = f[(f > wide[0]) & (f < wide[-1])]
    for part in np.array_split(f, max(len(f) // 100, 1)):
        log_m, mean = _slices(data, part, 20 * fine, 32 * fine)
        found.append((log_m - np.log(part), mean))
        best = max(best, found[-1][0].max())
    log_m, mean = (np.concatenate(one) for one in zip(*found, strict=True))
    return _summed(log_m, mean, float(np.log(width / count)))


def _slices(data: dict[str, Array], f: Array, shapes: int, phases: int) -> tuple[Array, Array]:
    """log of the mean over eccentricities and phases at frequencies, and the offset's mean."""
    nodes, weights = np.polynomial.legendre.leggauss(shapes)
    e = 0.4 * (nodes + 1)
    m = 2 * np.pi * (np.arange(phases) + 0.5) / phases
    x = 2 * np.pi * f[:, None, None, None] * data["t"] + m[:, None]
    c, d = _shapes(x, e[:, None, None])
    flat = (-1, data["N"])
    log_m, mean = _given(data, (c + e[:, None, None]).reshape(flat), d.reshape(flat))
    log_w = log_m.reshape(len(f), -1) + np.repeat(np.log(weights / 2 / phases), phases)
    total = logsumexp(log_w, axis=1)
    share = np.exp(log_w - total[:, None])
    return total, (share * mean.reshape(len(f), -1)).sum(axis=1)


def _summed(log_m: Array, mean: Array, log_step: float) -> tuple[float, float]:
    share = np.exp(log_m - log_m.max())
    return float(log_m.max() + np.log(share.sum()) + log_step), float(share @ mean / share.sum())


def _target(stan: str, data: dict[str, Array], answers: list[tuple[float, float]]) -> Target:
    """The target with the finer answers, and how far the coarser ones are off."""
    off = float(np.abs(np.subtract(*answers)).max())
    return Target(stan, data, *answers[1][:1], element("v0"), answers[1][1], max(off, 1e-9))

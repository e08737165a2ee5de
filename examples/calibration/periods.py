"""Targets with periods to be found: velocities of a star with one planet or two."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from quadrature import Array
from scipy.special import logsumexp
from target import LOG_2PI, Target, element, family, rounded

# Days of the observations, and how many times the shortest period is the longest.
SPAN, RANGE = 1000.0, 100.0
# The most frequencies, times eccentricities, times phases, at which a sum has its terms.
AT_ONCE = 400_000
# Places that lie so many nats below the best add nothing.
DEPTH = 18.0
# A sum over frequencies has at most so much of a turn, from first to last day, between its terms.
WIDEST = 0.03
# Anomalies lie between so many entries of a table, for each eccentricity.
ENTRIES = 1 << 14

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
  vector eccentric_anomaly(vector M, real e) {
    vector[num_elements(M)] E = M + e * sin(M);
    for (i in 1:3) {
      vector[num_elements(M)] bend = e * sin(E);
      vector[num_elements(M)] slope = 1 - e * cos(E);
      vector[num_elements(M)] off = (E - bend - M) ./ slope;
      E -= off ./ (1 - 0.5 * off .* bend ./ slope);
    }
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
  vector[N] E = eccentric_anomaly(2 * pi() * t / exp(log_P) + M0, e);
  vector[N] near = 1 - e * cos(E);
  v ~ normal(v0 + a * ((cos(E) - e) ./ near + e) + b * sqrt(1 - square(e)) * sin(E) ./ near, s);
}
"""
_PAIR = """
data {
  int N; int I; vector[N] t; vector[N] v; vector[N] s; array[N] int by;
  real shortest; real longest; real scale;
}
parameters {
  vector<lower=log(shortest), upper=log(longest)>[2] log_P;
  vector[2] a;
  vector[2] b;
  vector[I] v0;
}
model {
  log_P ~ uniform(log(shortest), log(longest));
  a ~ normal(0, scale);
  b ~ normal(0, scale);
  v0 ~ normal(0, 10);
  vector[N] rest = v - v0[by];
  for (p in 1:2) {
    vector[N] x = 2 * pi() * t / exp(log_P[p]);
    rest -= a[p] * cos(x) + b[p] * sin(x);
  }
  rest ~ normal(0, s);
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


@family
def orbit_pair(rng: np.random.Generator) -> Target:
    """Two circular orbits and up to eight instruments, in 7 to 14 dimensions."""
    instruments = int(rng.integers(1, 9))
    n = int(rng.integers(12, 31)) + 2 * instruments
    t = rounded(np.sort(rng.uniform(0, 120, n)), 2)
    s = rounded(rng.uniform(0.4, 0.8) * rng.uniform(0.8, 1.2, n))
    by = rng.integers(1, instruments + 1, n)
    shortest, longest = 3.0, 90.0
    periods = shortest * (longest / shortest) ** rng.uniform(0.05, 0.9, 2)
    amplitudes = rng.uniform(2, 8, 2) * s.mean()
    waves = amplitudes * np.cos(2 * np.pi * t[:, None] / periods - rng.uniform(0, 2 * np.pi, 2))
    v = rounded(rng.normal(0, 3, instruments)[by - 1] + waves.sum(axis=1) + s * rng.normal(size=n))
    data = {"N": n, "I": instruments, "t": t, "v": v, "s": s, "by": by,
            "shortest": shortest, "longest": longest, "scale": 4.0}  # fmt: skip
    answers = []
    for count in (1001, 1401):
        f = np.linspace(1 / longest, 1 / shortest, count)
        log_f = np.log(f)
        log_w = -log_f
        log_w[[0, -1]] -= np.log(2)
        log_m = _of_pairs(data, f) + log_w[:, None] + log_w
        area = 2 * np.log(f[1] - f[0]) - 2 * np.log(np.log(longest / shortest))
        mean = -0.5 * (log_f[:, None] + log_f)
        answers.append(_summed(log_m.ravel(), mean.ravel(), float(area)))
    return replace(
        _target(_PAIR, data, answers), quantity=lambda found: found["log_P"].mean(axis=-1)
    )


def _of_pairs(data: dict[str, Array], f: Array) -> Array:
    """log of the mass over all but the two periods for each pair of frequencies, shape (n, n)."""
    count, v = f.size, data["v"]
    offsets = 10.0 * (data["by"][:, None] == np.arange(1, data["I"] + 1))
    lower = np.linalg.cholesky(np.diag(np.square(data["s"])) + offsets @ offsets.T)
    x = 2 * np.pi * np.outer(data["t"], f)
    waves = data["scale"] * np.stack([np.cos(x), np.sin(x)], axis=-1).reshape(v.size, -1)
    white, own = np.linalg.solve(lower, waves), np.linalg.solve(lower, v)
    inner = (white.T @ white).reshape(count, 2, count, 2).transpose(0, 2, 1, 3)
    outer = (white.T @ own).reshape(count, 2)
    each = inner[np.arange(count), np.arange(count)]
    base = -0.5 * own @ own - np.log(np.diag(lower)).sum() - 0.5 * v.size * LOG_2PI
    found = np.empty((count, count))
    for i in range(count):
        beside = np.broadcast_to(each[i], each.shape)
        rows = np.concatenate([beside, inner[i]], axis=-1)
        below = np.concatenate([np.swapaxes(inner[i], 1, 2), each], axis=-1)
        matrix = np.concatenate([rows, below], axis=-2) + np.eye(4)
        pull = np.concatenate([np.broadcast_to(outer[i], outer.shape), outer], axis=-1)
        best = np.linalg.solve(matrix, pull[..., None])[..., 0]
        found[i] = base + 0.5 * (pull * best).sum(axis=1) - 0.5 * np.linalg.slogdet(matrix)[1]
    return found


def _velocities(rng: np.random.Generator, e: float) -> dict[str, Array]:
    """Data of a random orbit."""
    n = int(rng.integers(10, 41))
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
    count = fine * int(np.ceil(width * SPAN / WIDEST))
    offsets = (np.arange(count) + 0.5) / count - 0.5
    f = (kept[:, None] + width * offsets).ravel()
    f = f[(f > wide[0]) & (f < wide[-1])]
    for part in np.array_split(f, max(len(f) // 100, 1)):
        log_m, mean = _slices(data, part, 20 * fine, 32 * fine)
        found.append((log_m - np.log(part), mean))
        best = max(best, found[-1][0].max())
    log_m, mean = (np.concatenate(one) for one in zip(*found, strict=True))
    return _summed(log_m, mean, float(np.log(width / count)))


@cache
def _table(shapes: int) -> tuple[Array, Array, tuple[Array, Array]]:
    """Eccentricities with their weights, and for each what `_shapes` returns."""
    nodes, weights = np.polynomial.legendre.leggauss(shapes)
    e = 0.4 * (nodes + 1)
    return e, weights, _shapes(2 * np.pi * np.arange(ENTRIES + 2) / ENTRIES, e[:, None])


def _slices(data: dict[str, Array], f: Array, shapes: int, phases: int) -> tuple[Array, Array]:
    """log of the mean over eccentricities and phases at frequencies, and the offset's mean."""
    e, weights, entries = _table(shapes)
    m = 2 * np.pi * (np.arange(phases) + 0.5) / phases
    turns = f[:, None, None] * data["t"] + m[:, None] / (2 * np.pi)
    at, beyond = np.divmod(ENTRIES * np.remainder(turns, 1), 1)
    at = at.astype(int)
    c, d = (
        np.swapaxes(one[:, at] + beyond * (one[:, at + 1] - one[:, at]), 0, 1) for one in entries
    )
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

"""Targets of the literature on sampling and evidence, as Stan programs with data and exact log Z.

A target is a function without arguments in `TARGETS`. `exact.py` has the quadratures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import exact
import numpy as np
from exact import Array
from scipy.stats import wishart

HERE = Path(__file__).resolve().parent
BLESSING = "Blessing et al. 2024"
# The seeds of the Wishart covariances, as the authors' code draws them from the key 0.
COVARIANCES = (640586756, 787925181, 847758820, 1004431212, 104709528,
               456249760, 423454496, 830240829, 258520753, 527718730)  # fmt: skip


@dataclass(frozen=True)
class Target:
    """A program and its answer.

    Attributes
    ----------
    stan, data
        Text of the program, and its data.
    log_z
        Exact log Z; None where there is none, because the density is improper.
    source
        Where the target is from.
    tolerance
        Standard error of `log_z`.
    """

    stan: str = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)
    log_z: float | None
    source: str
    tolerance: float = 0.0


TARGETS: dict[str, Callable[[], Target]] = {}


def target(function: Callable[[], Target]) -> Callable[[], Target]:
    """Enter a function under its own name."""
    TARGETS[function.__name__] = function
    return function


def jax_uniform(shape: tuple[int, int], bound: float) -> Array:
    """Uniform numbers in ±bound: ``jax.random.uniform(PRNGKey(0), shape)`` of JAX before 0.5.

    Threefry of Salmon et al. (2011) in twenty rounds, on counters of 32 bits.
    """
    count = int(np.prod(shape))
    x, y = np.arange(count, dtype=np.uint32).reshape(2, -1)
    key = np.array([0, 0, 0x1BD11BDA], np.uint32)
    for block in range(5):
        for turn in ((13, 15, 26, 6), (17, 29, 16, 24))[block % 2]:
            x = x + y
            y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
        x = x + key[(block + 1) % 3]
        y = y + key[(block + 2) % 3] + np.uint32(block + 1)
    bits = np.concatenate([x, y]) >> np.uint32(9)
    unit = (bits | np.uint32(0x3F800000)).view(np.float32) - np.float32(1)
    return (2 * bound * unit.astype(float) - bound).reshape(shape)


# ---- Blessing et al. (2024) and what they take from others


@target
def funnel10() -> Target:
    stan = """
parameters { real v; vector[9] x; }
model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }
"""
    return Target(stan, {}, 0.0, f"Neal 2003; {BLESSING}")


@target
def manywell32() -> Target:
    stan = """
parameters { vector[16] d; vector[16] v; }
model {
  target += sum(0.5 * d + 6 * square(d) - square(square(d)));
  target += -0.5 * dot_self(v);
}
"""
    return Target(stan, {}, exact.wells(16), f"Midgley et al. 2022; {BLESSING}")


@target
def brownian32() -> Target:
    stan = """
data { int T; int N; array[N] int at; vector[N] y; }
parameters { real<lower=0> innovation; real<lower=0> noise; vector[T] x; }
model {
  innovation ~ lognormal(0, 2);
  noise ~ lognormal(0, 2);
  x[1] ~ normal(0, innovation);
  x[2:T] ~ normal(x[1:T - 1], innovation);
  y ~ normal(x[at], noise);
}
"""
    y = [0.21592641, 0.118771404, -0.07945447, 0.037677474, -0.27885845, -0.1484156, -0.3250906,
         -0.22957903, -0.44110894, -0.09830782, -0.8786016, -0.83736074, -0.7384849, -0.8939254,
         -0.7774566, -0.70238715, -0.87771565, -0.51853573, -0.6948214, -0.6202789]  # fmt: skip
    at = [*range(1, 11), *range(21, 31)]
    data = {"T": 30, "N": 20, "at": at, "y": y}
    log_z = exact.brownian(np.array(at), np.array(y))
    return Target(stan, data, log_z, f"Inference Gym; {BLESSING}")


def _regression(name: str, prior: str, log_z: float | None, tolerance: float, note: str) -> None:
    """A logistic regression. Its log Z is one of importance sampling with many draws."""

    def made() -> Target:
        stan = f"""
data {{ int N; int D; matrix[N, D] X; array[N] int<lower=0, upper=1> y; }}
parameters {{ vector[D] w; }}
model {{ {prior}y ~ bernoulli_logit(X * w); }}
"""
        key = name.split("_")[0].rstrip("0123456789")
        with np.load(HERE / "observed.npz") as held:
            x, y = held[key], held[f"{key}_y"]
        x = np.c_[np.ones(len(x)), x.astype(float)]
        data = {"N": x.shape[0], "D": x.shape[1], "X": x, "y": y.astype(int)}
        return Target(stan, data, log_z, f"{BLESSING}{note}", tolerance)

    TARGETS[name] = made


_regression("credit25", "", -504.48755, 0.0027, "")
_regression("sonar61", "w ~ std_normal(); ", -108.37866, 0.0060, "")
_regression("ionosphere35", "w ~ std_normal(); ", -111.61303, 0.0019, "")
_regression("cancer31", "w ~ normal(0, 10); ", -77.59600, 0.0164, ", with a prior")
_regression("cancer31_flat", "", None, 0.0, ", whose data are separable: improper")


@target
def seeds26() -> Target:
    stan = """
data { int I; array[I] int n; array[I] int r; vector[I] x1; vector[I] x2; }
parameters { real<lower=0> tau; real a0; real a1; real a2; real a12; vector[I] b; }
model {
  tau ~ gamma(0.01, 0.01);
  a0 ~ normal(0, 10);
  a1 ~ normal(0, 10);
  a2 ~ normal(0, 10);
  a12 ~ normal(0, 10);
  b ~ normal(0, 1 / sqrt(tau));
  r ~ binomial_logit(n, a0 + a1 * x1 + a2 * x2 + a12 * x1 .* x2 + b);
}
"""
    data = {
        "I": 21,
        "n": [39, 62, 81, 51, 39, 6, 74, 72, 51, 79, 13, 16, 30, 28, 45, 4, 12, 41, 30, 51, 7],
        "r": [10, 23, 23, 26, 17, 5, 53, 55, 32, 46, 10, 8, 10, 8, 23, 0, 3, 22, 15, 32, 3],
        "x1": [0] * 11 + [1] * 10,
        "x2": [0] * 5 + [1] * 6 + [0] * 5 + [1] * 5,
    }
    return Target(stan, data, -73.40174, f"Crowder 1978; {BLESSING}", 0.0089)


def _mixture(name: str, centres: tuple[int, int, float], density: str) -> None:
    """Equal components at uniform centres: their number, dimension and bound."""

    def made() -> Target:
        count, d, bound = centres
        data: dict[str, Any] = {"K": count, "D": d, "mu": jax_uniform((count, d), bound)}
        shapes = ""
        if "S[" in density:
            data["S"] = [
                np.linalg.cholesky(wishart.rvs(df=d + 2, scale=np.eye(d), random_state=seed))
                for seed in COVARIANCES
            ]
            shapes = " array[K] matrix[D, D] S;"
        stan = f"""
data {{ int K; int D; array[K] vector[D] mu;{shapes} }}
parameters {{ vector[D] x; }}
model {{
  vector[K] lp;
  for (k in 1:K) lp[k] = {density};
  target += log_sum_exp(lp) - log(K);
}}
"""
        return Target(stan, data, 0.0, BLESSING)

    TARGETS[name] = made


for _d in (2, 50, 200):
    _mixture(f"mog40_{_d}", (40, _d, 40.0), "normal_lpdf(x | mu[k], 1)")
    _mixture(f"mos10_{_d}", (10, _d, 10.0), "student_t_lpdf(x | 2, mu[k], 1)")
    _mixture(f"gmm10_{_d}", (10, _d, 10.0), "multi_normal_cholesky_lpdf(x | mu[k], S[k])")


@target
def rings2() -> Target:
    stan = """
transformed data { real end = 4.5 * pi(); }
parameters { vector[2] x; }
model {
  real r = sqrt(dot_self(x));
  target += r <= end ? log(cos(r) + 1.001) : end - r;
}
"""
    return Target(stan, {}, exact.rings(), f"{BLESSING}, code")


# ---- Physics


def _chain(length: int) -> None:
    def made() -> Target:
        stan = """
data { int N; real a; real beta; }
transformed data { real ds = 1.0 / (N + 1); }
parameters { vector[N] phi; }
model {
  target += -beta * a / (2 * ds)
            * (square(phi[1]) + square(phi[N]) + sum(square(phi[2:N] - phi[1:N - 1])));
  target += -beta * ds / (4 * a) * sum(square(1 - square(phi)));
}
"""
        data = {"N": length, "a": 0.1, "beta": 20.0}
        return Target(stan, data, exact.chain(length, 0.1, 20.0), "Gabrié et al. 2022")

    TARGETS[f"phi4_{length}"] = made


_chain(32)
_chain(100)


# ---- Nested sampling


@target
def eggbox2() -> Target:
    stan = """
parameters { vector<lower=0, upper=10 * pi()>[2] x; }
model { x ~ uniform(0, 10 * pi()); target += pow(2 + cos(x[1] / 2) * cos(x[2] / 2), 5); }
"""
    return Target(stan, {}, exact.eggbox(), "Feroz et al. 2009")


def _cube(name: str, d: int, bounds: tuple[float, float], body: str, source: str,
          log_z: Callable[[], float]) -> None:  # fmt: skip
    """A likelihood `body` of x under a uniform prior on a cube."""

    def made() -> Target:
        low, high = bounds
        stan = f"""
functions {{
  real loggamma_lpdf(real x, real m, real s) {{
    real z = (x - m) / s;
    return z - exp(z) - log(s);
  }}
}}
data {{ int D; }}
transformed data {{
  vector[D] c = rep_vector(0, D);
  vector[D] asym;
  c[1] = 3.5;
  for (i in 1:D) asym[i] = 0.1 / (4 * i - 3);
}}
parameters {{ vector<lower={low}, upper={high}>[D] x; }}
model {{
  x ~ uniform({low}, {high});
  {body}
}}
"""
        return Target(stan, {"D": d}, log_z(), source)

    TARGETS[name] = made


_SHELLS = """target += log_sum_exp(normal_lpdf(sqrt(dot_self(x - c)) | 2, 0.1),
                        normal_lpdf(sqrt(dot_self(x + c)) | 2, 0.1));"""
for _d in (2, 5, 10, 20):
    _cube(f"shells{_d}", _d, (-6, 6), _SHELLS, "Feroz et al. 2009", lambda d=_d: exact.shells(d))
_LOGGAMMA = """target += log_mix(0.5, loggamma_lpdf(x[1] | 1.0 / 3, 1.0 / 30),
                    loggamma_lpdf(x[1] | 2.0 / 3, 1.0 / 30));
  target += log_mix(0.5, normal_lpdf(x[2] | 1.0 / 3, 1.0 / 30),
                    normal_lpdf(x[2] | 2.0 / 3, 1.0 / 30));
  for (i in 3:D) {
    if (i <= (D + 2) %/% 2) target += loggamma_lpdf(x[i] | 2.0 / 3, 1.0 / 30);
    else target += normal_lpdf(x[i] | 2.0 / 3, 1.0 / 30);
  }"""
for _d in (2, 10, 30):
    _cube(f"loggamma{_d}", _d, (0, 1), _LOGGAMMA, "Beaujean & Caldwell 2013",
          lambda d=_d: exact.loggamma(d))  # fmt: skip
_ROSENBROCK = """target += -dot_self(1 - x[1:D - 1])
            - 100 * dot_self(x[2:D] - square(x[1:D - 1]));"""
for _d in (2, 10):
    _cube(f"rosenbrock{_d}", _d, (-5, 5), _ROSENBROCK, "UltraNest, MultiNest",
          lambda d=_d: exact.rosenbrock(d))  # fmt: skip
_PAIR = "target += log_sum_exp(-5e3 * dot_self(x - 0.4), -5e3 * dot_self(x - 0.6));"
_SHELL = "target += -0.5 * square((dot_self(x - 0.5) - square(0.4)) / 0.004);"
for _d in (2, 10):
    _cube(f"multigauss{_d}", _d, (0, 1), _PAIR, "UltraNest, problems",
          lambda d=_d: float(np.log(2) + d / 2 * np.log(2e-4 * np.pi)))  # fmt: skip
    _cube(f"shell_thin{_d}", _d, (0, 1), _SHELL, "UltraNest, problems",
          lambda d=_d: exact.thin_shell(d))  # fmt: skip
_cube("asymgauss20", 20, (0, 1), "target += -0.5 * dot_self((x - 0.5) ./ asym);",
      "UltraNest, problems", exact.asymmetric)  # fmt: skip
for _name, _shift in (("spike_slab20", 0.0), ("spike_slab20_shifted", 0.031)):
    _cube(_name, 20, (-0.5, 0.5), f"""target += log_sum_exp(
    log(100) + normal_lpdf(x | {_shift}, 0.01), normal_lpdf(x | 0, 0.1));""",
          "Skilling 2006, section 9", lambda: exact.slab(20))  # fmt: skip


# ---- Others


@target
def unid() -> Target:
    stan = """
data { int n; int y; }
parameters { real<lower=0, upper=1> p1; real<lower=0, upper=1> p2; }
model { p1 ~ uniform(0, 1); p2 ~ uniform(0, 1); y ~ binomial(n, p1 * p2); }
"""
    data = {"n": 100_000, "y": 50_000}
    return Target(stan, data, exact.product(100_000, 50_000), "Surjanovic et al. 2023, Pigeons")


@target
def gmm25() -> Target:
    stan = """
parameters { vector[2] x; }
model {
  vector[25] lp;
  for (i in 1:5) {
    for (j in 1:5) {
      lp[5 * (i - 1) + j] = normal_lpdf(x[1] | 2 * i - 6, sqrt(0.03))
                            + normal_lpdf(x[2] | 2 * j - 6, sqrt(0.03));
    }
  }
  target += log_sum_exp(lp) - log(25);
}
"""
    return Target(stan, {}, 0.0, "Zhang et al. 2020; BlackJAX sampling book")


@target
def rv_period() -> Target:
    rng = np.random.default_rng(20240601)
    t = np.sort(rng.uniform(0, 200, 24))
    y = 3.0 + 1.6 * np.sin(2 * np.pi * t / 17.3 + 1.1) + rng.normal(0, 1, 24)
    t, y = np.round(t, 4), np.round(y, 4)
    stan = """
data { int N; vector[N] t; vector[N] y; }
parameters { real<lower=log(1), upper=log(1000)> log_P; real a; real b; real v0; }
model {
  vector[N] phase = 2 * pi() * t / exp(log_P);
  log_P ~ uniform(log(1), log(1000));
  a ~ normal(0, 3);
  b ~ normal(0, 3);
  v0 ~ normal(0, 10);
  y ~ normal(v0 + a * cos(phase) + b * sin(phase), 1);
}
"""
    data = {"N": 24, "t": t, "y": y}
    return Target(stan, data, exact.period(t, y), "after Price-Whelan et al. 2017")


@target
def banana2() -> Target:
    stan = """
parameters { real x; real y; }
model { x ~ normal(0, 10); y ~ normal(0.03 * (square(x) - 100), 1); }
"""
    return Target(stan, {}, 0.0, "Inference Gym")


@target
def cross2() -> Target:
    stan = """
parameters { real x; real y; }
model { target += -square(x * y) / 2 - 0.005 * (square(x) + square(y)); }
"""
    return Target(stan, {}, exact.cross(), "after Inference Gym's quartic")


@target
def separable2() -> Target:
    x = np.round(np.random.default_rng(3).normal(size=30), 3)
    stan = """
data { int N; vector[N] x; array[N] int<lower=0, upper=1> y; }
parameters { real a; real b; }
model { y ~ bernoulli_logit(a + b * x); }
"""
    data = {"N": 30, "x": x, "y": (x > 0.1).astype(int)}
    return Target(stan, data, None, "separable data and a flat prior: improper")

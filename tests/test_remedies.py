"""Each remedy mends: a run that fails a check passes it once it is done as the check advises.

Every check of every kind of run has a case here, or a reason why it has none.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, target_of
from sampled import sampled
from states import STATES
from targets import CUT, LINE, SKEWED, TWO_MODES
from test_two_stages import Y, outside_necks

import stanct
from stanct.runs.run import Run
from stanct.runs.verdicts import KINDS as OF_CHECKS
from stanct.runs.verdicts import Check

# Makes a run, or the same with another seed.
Make = Callable[[int], Run]

FUNNEL = """
parameters { real v; vector[4] x; }
model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }
"""
STIFF = "parameters { vector[2] x; } model { x ~ normal(0, [0.3, 3]'); }"
NORMAL = "parameters { vector[2] x; } model { x[1] ~ normal(0, 1); x[2] ~ normal(3, 2); }"
PARTS = """
parameters { real x; }
model { target += log_mix(0.35, normal_lpdf(x | -3, 0.5), normal_lpdf(x | 3, 0.8)); }
"""
WIDE_APART = """
parameters { vector[2] x; }
model { target += log_mix(0.9, normal_lpdf(x | 0, 0.05), normal_lpdf(x | 10, 3)); }
"""
APART_IN_THREE = """
parameters { vector[3] x; }
model { target += log_mix(0.3, normal_lpdf(x | -6, 1), normal_lpdf(x | 5, 0.5)); }
"""
REGRESSION = """
data { real y; }
parameters { real v; real x; }
model { v ~ normal(0, 1); x ~ normal(0, exp(v / 2)); y ~ normal(x, 1); }
"""
SPLIT = """
data { vector[2] y; }
parameters { real x; }
model { x ~ normal(0, 5); y[1] ~ normal(x ^ 2, 0.3); y[2] ~ normal(x, 3); }
"""
SHARP = "data { real y; } parameters { real a; } model { a ~ std_normal(); y ~ normal(a, 0.01); }"
IMPROPER = """
data { real y; } parameters { real a; }
model { target += -log1p(abs(a)); y ~ normal(a, 1); }
"""
BANANA = """
parameters { vector[2] x; }
model { x[1] ~ normal(0, 3); x[2] ~ normal(x[1] ^ 2, 0.3); }
"""
BENT = BANANA.replace("vector[2]", "vector[10]").replace("x[2]", "x[2:10]")
NO_PRIOR = "parameters { real<lower=0> s; } model { target += normal_lpdf(1 | 0, s); }"
WITH_PRIOR = NO_PRIOR.replace("model {", "model { s ~ lognormal(0, 1);")
POLES = "parameters { real<lower=0, upper=1> p; } model { p ~ beta(0.05, 0.05); }"
LOGIT = """
parameters { real y; }
model { target += 0.05 * (log_inv_logit(y) + log1m_inv_logit(y)) - lbeta(0.05, 0.05); }
"""
PLAIN = "parameters { vector[2] x; } model { x ~ std_normal(); }"
NOISE = "parameters { vector[20] x; } model { x ~ std_normal(); }"
WAITS = "parameters { vector<lower=0>[8] x; } model { x ~ exponential(1); }"
UNITS = {n: stanct.GaussianBase(np.zeros(n), np.eye(n)) for n in (1, 2, 8)}
CAUCHY = "parameters { vector[2] x; } model { x ~ cauchy(1, 2); }"
FAR = stanct.GaussianBase(np.full(2, 20.0), np.eye(2))
WIDE = stanct.GaussianBase(LINE.means["b"] + 0.3, 0.15 * np.eye(2))
NARROW = stanct.GaussianBase(LINE.means["b"] + 0.2, 0.0004 * np.eye(2))
BELOW, ABOVE = (stanct.GaussianBase(np.array([at]), np.eye(1)) for at in (-1.0, -0.5))
AROUND = stanct.GaussianBase(np.zeros(5), np.diag([3.0, 5, 5, 5, 5]))
CONDITION = np.linalg.inv(np.eye(2) + 4 * (LINE.data or {})["X"].T @ (LINE.data or {})["X"])
EXACT = stanct.GaussianBase(LINE.means["b"], np.linalg.cholesky(CONDITION))
INSIDE = stanct.GaussianBase(np.full(2, 0.05), 0.2 * np.eye(2))
TWICE = stanct.GaussianBase(np.zeros(2), 2 * np.eye(2))
OVER = stanct.GaussianBase(np.zeros(2), 3 * np.eye(2))
BESIDE = stanct.GaussianBase(np.full(2, 3.0), np.eye(2))
EDGE = stanct.GaussianBase(np.array([0.6]), 0.3 * np.eye(1))
DECLARED = CUT.source.replace("real x", "real<lower=0.5> x")


def made(method: str, source: str = LINE.source, data: Any = None, **settings: Any) -> Make:
    given = LINE.data if source == LINE.source else data
    if method in ("gibbs", "joint"):
        # An atom would mend some of these runs by itself, and so would CmdStan's warm-up.
        settings = {"atom": 0.0, "engine": "embedded", **settings}
    target = cache(lambda: target_of(source, given))
    return cache(lambda seed: sampled(method, target(), seed=seed, progress=False, **settings))


SEEN = {"T": 12, "y": Y}


@cache
def line_draws(draws: int, persistence: float) -> dict[str, Any]:
    """Draws of the posterior of `LINE` along autoregressive chains."""
    rng, design = np.random.default_rng(5), (LINE.data or {})["X"]
    root = np.linalg.cholesky(np.linalg.inv(np.eye(2) + 4 * design.T @ design))
    noise = rng.standard_normal((4, draws, 2))
    z = noise.copy()
    for t in range(1, draws):
        z[:, t] = persistence * z[:, t - 1] + np.sqrt(1 - persistence**2) * noise[:, t]
    return {"b": LINE.means["b"] + z @ root.T}


def bridged(
    fit: dict[str, Any], source: str = LINE.source, data: Any = LINE.data, **options: Any
) -> Make:
    chosen = {"search": False, "reshuffles": 0, **options}
    if options.get("escalate"):
        chosen |= {"draws": options.get("draws", 200), "progress": False}
    return cache(lambda seed: stanct.bridge(stanct.temper(source), data, fit, seed=seed, **chosen))


def drawn(source: str, shape: tuple[int, int], seed: int = 1) -> dict[str, Any]:
    """Exact draws of programs without data."""
    rng = np.random.default_rng(seed)
    if source == NOISE:
        return {"x": rng.standard_normal((*shape, 20))}
    if source == WAITS:
        return {"x": rng.exponential(size=(*shape, 8))}
    if source == TWO_MODES.source:  # the one mode only
        first = rng.normal(-6, 1, shape)
        return {"x": np.stack([first, rng.normal(0.5 * first, 1)], axis=-1)}
    first = 3 * rng.standard_normal((*shape, 1))
    others = 1 if source == BANANA else 9
    return {
        "x": np.concatenate([first, first**2 + 0.3 * rng.standard_normal((*shape, others))], -1)
    }


def half(fit: dict[str, Any]) -> dict[str, Any]:
    """A fit of which one chain stands apart."""
    b = fit["b"].copy()
    b[0] += 1.5
    return {"b": b}


@dataclass(frozen=True)
class Case:
    """A run that fails a check, words of the remedy, and the run that follows it."""

    failing: Make
    remedy: str
    mended: Make


# 4 chains of 400 nearly independent draws, and of 100 very sticky ones.
GOOD, STICKY = line_draws(400, 0.3), line_draws(100, 0.98)
LP = np.random.default_rng(2).normal(size=(4, 400))
RATES = {"r": np.random.default_rng(3).gamma(2.5, 1 / 2.5, (4, 400))}
ROUNDED = {"r": np.where(RATES["r"] < 0.2, 0.0, RATES["r"])}
FEW = drawn(BANANA, (4, 50), 8)


@cache
def blind(seed: int) -> Run:
    """Chains of one mode, beside the survey of pilots that saw two."""
    half = target_of(TWO_MODES.source.replace("0.7", "1 - 1e-12"))
    found: Any = both(seed)
    settings: dict[str, Any] = {"atom": 0.0, "draws": 200, "warmup": 150, "progress": False}
    base = found.base.whitening
    lost = sampled("joint", half, base=base, engine="embedded", seed=seed, **settings)
    return replace(lost, provenance={**lost.provenance, "survey": found.provenance["survey"]})


def tact(source: str, dimension: int, **settings: Any) -> Make:
    chosen = {"draws": 300, "warmup": 300, "base": UNITS[dimension], **settings}
    return made("tact", source, **chosen)


def flow(source: str = LINE.source, base: Any = WIDE, **settings: Any) -> Make:
    chosen = {"draws": 64, "warmup": 32, "duration": 10.0, **settings}
    return made("adiabatic", source, base=base, **chosen)


# Runs that several checks share.
both = made("gibbs", TWO_MODES.source, base="mixture", draws=200, warmup=100, atom=0.1)
UNDECLARED = made("gibbs", CUT.source, base=BELOW, draws=300, warmup=100)
SUPPORTED = made("gibbs", DECLARED, base=ABOVE, draws=300, warmup=100)
THREE_RUNGS = made("parallel_tempering", base=FAR, draws=200, warmup=60, rungs=3)
MANY_RUNGS = made("parallel_tempering", base=FAR, draws=100, warmup=60, rungs=40)
LADDER = made("parallel_tempering", base=WIDE, draws=400, warmup=60)
CUT_LADDER = made("parallel_tempering", CUT.source, base=BELOW, draws=200, warmup=60)
WHOLE_LADDER = made("parallel_tempering", DECLARED, base=ABOVE, draws=200, warmup=60)
FEW_POWERS = made("power_posterior", rungs=4, draws=60, warmup=150)
POWERS = made("power_posterior", rungs=10, draws=200, warmup=150)
COARSE = made("ais", base=WIDE, draws=32, temperatures=3)
FINE = made("ais", base=WIDE, draws=256, temperatures=30)
CUT_PARTICLES = made("ais", CUT.source, base=BELOW, draws=64)
COPIES: dict[str, Any] = {"draws": 100, "warmup": 150, "bootstrap": 0}
OF_TARGET: dict[str, Any] = {
    "copies": 2,
    "draws": 600,
    "instrument": "target",
    "engine": "embedded",
}
STUDENT = "parameters { real x; } model { x ~ student_t(3, 0, 1); }"
SHALLOW = made("pseudo_extended", base=WIDE, max_depth=1, **COPIES)
DEEP = made("pseudo_extended", base=WIDE, **{**COPIES, "draws": 400})
CUT_COPIES = made("pseudo_extended", CUT.source, base=BELOW, **COPIES)
WHOLE_COPIES = made("pseudo_extended", DECLARED, base=ABOVE, **COPIES)
APART, TOGETHER = (made("pseudo_extended", base=base, **COPIES) for base in (FAR, "pilot"))
REFITTED = made("joint", base=FAR, bootstrap=2, draws=400)
STUCK = made("joint", base=FAR, bootstrap=0, draws=200, warmup=150)
BRIEF = flow(base=BESIDE, duration=3.0, refresh=0.5)
LONG_FLOW = flow(base=BESIDE, duration=40.0, refresh=0.5)
HASTY = tact(PARTS, 1, draws=50)
PATIENT = tact(PARTS, 1, draws=2000)
ONE_OF_TWO = made("adiabatic", WIDE_APART, draws=32, warmup=16)
HEATED = made("tact", APART_IN_THREE, draws=100, warmup=100)
BENT_FIT = bridged(drawn(BENT, (4, 50), 2), BENT, None, reshuffles=4)
BENT_RUN = bridged(drawn(BENT, (4, 50), 2), BENT, None, escalate=True, draws=100)
UNTEMPERED = "Nothing was tempered: the base is the target"

CASES: dict[str, Case] = {
    # a path on which chains move
    "round_trips": Case(
        STUCK,
        r"Refit the base in more rounds \(bootstrap=2\).*draws=400",
        REFITTED,
    ),
    "r_hat": Case(
        made("gibbs", base=WIDE, transitions=1, path_length=0.05, draws=80, warmup=100),
        r"Run longer chains \(draws=, --draws\)",
        made("gibbs", base=WIDE, transitions=1, path_length=0.05, draws=2000, warmup=100),
    ),
    "improper": Case(
        made("joint", NO_PRIOR, base=UNITS[1], draws=200, warmup=150),
        "Give `s` a proper prior",
        made("joint", WITH_PRIOR, base=UNITS[1], draws=200, warmup=150),
    ),
    "rounding": Case(
        made("joint", POLES, base="laplace", draws=200, warmup=150),
        "Declare the logit",
        made("joint", LOGIT, base="laplace", draws=200, warmup=150),
    ),
    "tails": Case(
        made("joint", CAUCHY, draws=300, warmup=150),
        r"Use base='modes' and a method that draws from its base",
        made("simulated_tempering", CAUCHY, draws=600, base="modes"),
    ),
    "effective_size": Case(
        made("gibbs", base=WIDE, transitions=1, path_length=0.05, draws=80, warmup=100),
        r"Run longer chains \(draws=, --draws\)",
        made("gibbs", base=WIDE, draws=600, warmup=100),
    ),
    "pareto_k": Case(
        made("gibbs", base=NARROW, draws=300, warmup=100),
        r"A few draws dominate: refit the base in more rounds \(bootstrap=2\)",
        made("gibbs", base=NARROW, draws=300, warmup=100, bootstrap=2),
    ),
    "estimators": Case(STUCK, r"Refit the base in more rounds \(bootstrap=2\)", REFITTED),
    "target_se": Case(
        made("gibbs", base=WIDE, target_se=0.04, draws=300, max_draws=250, warmup=100),
        r"Allow more \(max_draws=\)",
        made("gibbs", base=WIDE, target_se=0.04, draws=300, max_draws=4000, warmup=100),
    ),
    "divergences": Case(
        made("gibbs", FUNNEL, base=AROUND, draws=100, warmup=100, target_accept=0.3),
        "Raise target_accept to 0.95",
        made("gibbs", FUNNEL, base=AROUND, draws=100, warmup=100, target_accept=0.95),
    ),
    "modes": Case(blind, "pass base='mixture' to a method that draws from its base", both),
    # a support that the program does not declare
    "support": Case(UNDECLARED, "Declare the target's support", SUPPORTED),
    "base": Case(UNDECLARED, "Declare the target's support", SUPPORTED),
    "rejections": Case(UNDECLARED, "a support that the declarations do not state", SUPPORTED),
    # transitions
    "max_depth": Case(
        made("joint", base=WIDE, bootstrap=0, draws=200, warmup=150, max_depth=1),
        "Raise max_depth",
        made("joint", base=WIDE, bootstrap=0, draws=200, warmup=150, max_depth=6),
    ),
    # ladders
    "round_trips of a ladder": Case(
        made("parallel_tempering", base=FAR, draws=200, warmup=60),
        r"Refit the base in more rounds \(bootstrap=2\)",
        made("parallel_tempering", base=FAR, draws=200, warmup=60, bootstrap=2),
    ),
    "pareto_k of a ladder": Case(THREE_RUNGS, r"Use more rungs \(rungs=\)", MANY_RUNGS),
    "swaps of a ladder": Case(THREE_RUNGS, r"Use more rungs \(rungs=\)", MANY_RUNGS),
    "directions of a ladder": Case(THREE_RUNGS, r"Use more rungs \(rungs=\)", MANY_RUNGS),
    "tempered of a ladder": Case(
        made("parallel_tempering", base=EXACT, draws=60, warmup=60), UNTEMPERED, LADDER
    ),
    "r_hat of a ladder": Case(
        made("parallel_tempering", FUNNEL, base=AROUND, draws=60, warmup=32),
        r"Run longer chains \(draws=, --draws\)",
        made("parallel_tempering", FUNNEL, base=AROUND, draws=2000, warmup=100),
    ),
    "effective_size of a ladder": Case(
        made("parallel_tempering", base=WIDE, draws=40, warmup=60),
        r"Run longer chains \(draws=, --draws\)",
        LADDER,
    ),
    "acceptance of a ladder": Case(
        made("parallel_tempering", base=TWICE, draws=200, warmup=32, rungs=10),
        "longer warm-up",
        made("parallel_tempering", base=TWICE, draws=200, warmup=300, rungs=10),
    ),
    "divergences of a ladder": Case(
        made("parallel_tempering", FUNNEL, base=AROUND, draws=300, warmup=100, target_accept=0.3),
        "Raise target_accept",
        made("parallel_tempering", FUNNEL, base=AROUND, draws=300, warmup=100, target_accept=0.9),
    ),
    "rejections of a ladder": Case(
        CUT_LADDER, "a support that the declarations do not state", WHOLE_LADDER
    ),
    "support of a ladder": Case(CUT_LADDER, "Declare the target's support", WHOLE_LADDER),
    # powers of the likelihood
    "r_hat of powers": Case(
        made("power_posterior", SPLIT, {"y": [9.0, 3.0]}, rungs=3, draws=60, warmup=150),
        "use the default method, which crosses between modes",
        made("auto", SPLIT, {"y": [9.0, 3.0]}, draws=200, warmup=150),
    ),
    "effective_size of powers": Case(
        made("power_posterior", rungs=4, draws=30, warmup=150),
        r"Run longer chains \(draws=, --draws\)",
        POWERS,
    ),
    "directions of powers": Case(
        made("power_posterior", rungs=3, draws=200, warmup=150),
        r"Use more powers \(rungs=\)",
        POWERS,
    ),
    # No other check of this run fails.
    "pareto_k of powers": Case(
        made("power_posterior", SHARP, {"y": 3.0}, rungs=3, draws=200, warmup=150),
        r"Use more powers \(rungs=\)",
        made("power_posterior", SHARP, {"y": 3.0}, rungs=12, draws=200, warmup=150),
    ),
    # Longer chains made this one fail by more.
    "thermodynamic of powers": Case(FEW_POWERS, r"Use more powers \(rungs=\)", POWERS),
    "divergences of powers": Case(
        made(
            "power_posterior",
            REGRESSION,
            {"y": 1.0},
            rungs=3,
            draws=60,
            warmup=150,
            target_accept=0.3,
        ),
        "Raise target_accept to 0.95 or 0.99",
        made(
            "power_posterior",
            REGRESSION,
            {"y": 1.0},
            rungs=3,
            draws=60,
            warmup=150,
            target_accept=0.99,
        ),
    ),
    "prior_mass of powers": Case(
        made("power_posterior", IMPROPER, {"y": 1.0}, rungs=3, draws=60, warmup=150),
        "Normalise the priors that `TemperedModel.omissions` names",
        made(
            "power_posterior",
            IMPROPER.replace("-log1p(abs(a))", "std_normal_lpdf(a)"),
            {"y": 1.0},
            rungs=3,
            draws=60,
            warmup=150,
        ),
    ),
    # particles
    "effective_size of particles": Case(COARSE, "Use more temperatures, then more particles", FINE),
    "pareto_k of particles": Case(COARSE, "Use more temperatures, then more particles", FINE),
    "std_error of particles": Case(
        made("ais", base=FAR, draws=64, temperatures=4),
        "Use more temperatures, then more particles",
        made("ais", base=FAR, draws=128, temperatures=1000),
    ),
    "tempered of particles": Case(made("ais", base=EXACT, draws=32), UNTEMPERED, FINE),
    "acceptance of particles": Case(
        made("ais", FUNNEL, base=AROUND, draws=32, warmup=2, temperatures=10),
        "longer warm-up",
        made("ais", FUNNEL, base=AROUND, draws=32, warmup=300, temperatures=10),
    ),
    "divergences of particles": Case(
        made("ais", FUNNEL, base=AROUND, draws=64, temperatures=30, target_accept=0.3),
        "Raise target_accept",
        made("ais", FUNNEL, base=AROUND, draws=64, temperatures=30, target_accept=0.9),
    ),
    "rejections of particles": Case(
        CUT_PARTICLES,
        "a support that the declarations do not state",
        made("ais", DECLARED, base=ABOVE, draws=64),
    ),
    # copies
    "hand_overs of copies": Case(
        made("pseudo_extended", base=WIDE, **{**COPIES, "draws": 20}),
        r"Run longer chains \(draws=, --draws\)",
        DEEP,
    ),
    "r_hat of copies": Case(
        SHALLOW,
        r"Run longer chains \(draws=, --draws\)",
        made("pseudo_extended", base=WIDE, max_depth=1, **{**COPIES, "draws": 2000}),
    ),
    "effective_size of copies": Case(
        made("pseudo_extended", base=WIDE, **{**COPIES, "draws": 20}),
        r"Run longer chains \(draws=, --draws\)",
        DEEP,
    ),
    "overlap of copies": Case(APART, "a base that reaches the target.*base='pilot'", TOGETHER),
    "pareto_k of copies": Case(APART, "a base that reaches the target.*base='pilot'", TOGETHER),
    "tempered of copies": Case(made("pseudo_extended", base=EXACT, **COPIES), UNTEMPERED, DEEP),
    "max_depth of copies": Case(SHALLOW, "Raise max_depth", DEEP),
    "support of copies": Case(CUT_COPIES, "Declare the target's support", WHOLE_COPIES),
    "beta_bounds of copies": Case(
        made("pseudo_extended", base=WIDE, log_zeta=30.0, **OF_TARGET),
        r"Fix them \(fixed_beta=\), .* a smaller log_zeta=",
        made("pseudo_extended", base=WIDE, log_zeta=LINE.log_z, **OF_TARGET),
    ),
    "instrument of copies": Case(
        made("pseudo_extended", STUDENT, base=UNITS[1], fixed_beta=(0.2, 0.2), **OF_TARGET),
        r"use larger β \(beta_bounds=, fixed_beta=\)",
        made("pseudo_extended", STUDENT, base=UNITS[1], fixed_beta=(0.9, 0.9), **OF_TARGET),
    ),
    # the adiabatic flow
    "stalled of a flow": Case(flow(max_steps=30), "or raise max_steps", flow(max_steps=20_000)),
    "lost of a flow": Case(
        flow(CUT.source, EDGE), "a base inside the support", flow(DECLARED, ABOVE)
    ),
    "effective_size of a flow": Case(flow(), "Use a longer duration", flow(duration=40.0)),
    "pareto_k of a flow": Case(BRIEF, "Use a longer duration", LONG_FLOW),
    "std_error of a flow": Case(BRIEF, "Use a longer duration", LONG_FLOW),
    "hysteresis of a flow": Case(BRIEF, "Use a longer duration", LONG_FLOW),
    "kinetic of a flow": Case(BRIEF, "Use a longer duration", LONG_FLOW),
    "energy of a flow": Case(
        flow(STIFF, OVER, step=0.3), "Use a smaller step", flow(STIFF, OVER, step=0.03)
    ),
    "modes of a flow": Case(
        ONE_OF_TWO, "or method='simulated_tempering'", made("simulated_tempering", WIDE_APART)
    ),
    # thermostats
    "modes of thermostats": Case(
        HEATED, "Use the default method", made("auto", APART_IN_THREE, draws=200)
    ),
    "r_hat of thermostats": Case(HASTY, r"Run longer chains \(draws=, --draws\)", PATIENT),
    "effective_size of thermostats": Case(HASTY, r"Run longer chains \(draws=, --draws\)", PATIENT),
    "resets of thermostats": Case(
        tact(NORMAL, 2, tempering=False, step=2.0),
        r"Shorten the step \(step=\)",
        tact(NORMAL, 2, tempering=False, step=0.3),
    ),
    "thermostat of thermostats": Case(
        tact(NORMAL, 2, tempering=False, step=0.6),
        r"Shorten the step \(step=",
        tact(NORMAL, 2, tempering=False, step=0.3),
    ),
    "tempering_thermostat of thermostats": Case(
        tact(PARTS, 1, tempering_step=0.6, draws=200),
        r"Shorten the step \(step=, tempering_step=\)",
        tact(PARTS, 1, tempering_step=0.1, draws=200),
    ),
    "rejections of thermostats": Case(
        tact(CUT.source, 1, step=0.5, draws=100),
        "a support that the declarations do not state",
        tact(DECLARED, 1, step=0.3, draws=100),
    ),
    "patience of thermostats": Case(
        tact(NORMAL, 2, patience=1, draws=100),
        r"allow more looks \(patience=\)",
        tact(NORMAL, 2, draws=100),
    ),
    "trips of thermostats": Case(
        tact(PARTS, 1, draws=20, warmup=10),
        r"Or run longer chains \(draws=\)",
        PATIENT,
    ),
    "bias of thermostats": Case(
        tact("parameters { vector[8] x; } model { x ~ std_normal(); }", 8, draws=200, warmup=0),
        r"Learn the bias for longer \(warmup=\)",
        tact("parameters { vector[8] x; } model { x ~ std_normal(); }", 8, draws=200, warmup=300),
    ),
    # fits made elsewhere
    "mixing of a fit": Case(bridged(STICKY), "Fit again with more draws", bridged(GOOD)),
    "r_hat of a fit": Case(
        bridged(half(GOOD)), "escalate=True", bridged(half(GOOD), escalate=True)
    ),
    "lost of a fit": Case(
        bridged(ROUNDED, SKEWED.source, SKEWED.data),
        r"write it with more digits \(sig_figs=18\)",
        bridged(RATES, SKEWED.source, SKEWED.data),
    ),
    "program of a fit": Case(
        bridged({**GOOD, "lp__": LP}), "of another program or of other data", bridged(GOOD)
    ),
    "divergences of a fit": Case(
        bridged({**GOOD, "divergent__": LP > 2}),
        "adapt_delta=0.99 or in another form",
        bridged({**GOOD, "divergent__": LP > 20}),
    ),
    "unseen of a fit": Case(
        bridged(drawn(TWO_MODES.source, (4, 400)), TWO_MODES.source, None, search=True),
        "escalate=True",
        bridged(
            drawn(TWO_MODES.source, (4, 400)), TWO_MODES.source, None, search=True, escalate=True
        ),
    ),
    "pareto_k_base": Case(
        made("independence", PLAIN, base=INSIDE, draws=2500),
        "method='simulated_tempering'",
        made("simulated_tempering", PLAIN, base=INSIDE, draws=2500),
    ),
    "effective_size of a fit": Case(
        bridged(drawn(WAITS, (2, 50)), WAITS, None),
        "Fit again with more draws",
        bridged(drawn(WAITS, (4, 200)), WAITS, None),
    ),
    "halves of a fit": Case(
        bridged(drawn(NOISE, (2, 50), 59), NOISE, None),
        "Fit again with more draws",
        bridged(drawn(NOISE, (4, 200)), NOISE, None),
    ),
    "pareto_k of a fit": Case(
        bridged(FEW, BANANA, None),
        "Fit again with more draws",
        bridged(drawn(BANANA, (4, 800)), BANANA, None),
    ),
    "pareto_k_base of a fit": Case(
        bridged(FEW, BANANA, None), "escalate=True", bridged(FEW, BANANA, None, escalate=True)
    ),
    "std_error of a fit": Case(BENT_FIT, "escalate=True", BENT_RUN),
    "reshuffled of a fit": Case(BENT_FIT, "escalate=True", BENT_RUN),
    "two_stages": Case(
        cache(lambda seed: outside_necks(seed=seed)),
        "Use the default method",
        made("auto", STATES, SEEN),
    ),
    "estimators of a fit": Case(
        bridged(drawn(BENT, (4, 50), 23), BENT, None), "escalate=True", BENT_RUN
    ),
}
"""By the check and, after "of", the kind of run."""


SEEDS = range(1, 17)


@LONG
@pytest.mark.parametrize("name", CASES)
def test_the_remedy_mends_the_check(name: str) -> None:
    """Luck decides which checks of a short run fail, so that seeds are tried until this one does.

    The remedy must mend one of the first two runs that fail it.
    """
    case, check = CASES[name], name.split(" of ")[0]
    left = 2
    for seed in SEEDS:
        failed = {c.name: c for c in case.failing(seed).diagnostics if not c.passed}
        if check not in failed:
            continue
        told = failed[check].remedy
        assert re.search(case.remedy, told), told
        if check not in case.mended(seed).warnings:
            return
        left -= 1
        assert left, f"The remedy mends no run: {told}"
    pytest.fail(f"No run fails {check}.")


REASONS = {
    "interrupted": "Nothing is wrong with such a run: the same call again makes the rest.",
    "max_seconds": "tests/test_deadline.py gives more time to runs that were cut short.",
    "proper_prior": "tests/test_verdicts.py has it for every kind of run.",
    "normalised": "As proper_prior.",
    "search": "tests/test_search.py and tests/test_far.py have searches without an end.",
    "score": "tests/test_score.py has right fits and approximations.",
    "thermodynamic of a path": "Where it fails, other checks fail first: no run of seconds showed "
    "it alone.",
    "thermodynamic of a ladder": "As of a path. Few rungs fail by their directions first.",
    "divergences of copies": "The check and its words are those of a path.",
    "rejections of copies": "The check and its words are those of a path.",
    "few_tours of a path": "tests/test_tours.py has such runs. A longer run may find further heavy "
    "tours, and fail again.",
    "two_stages of a ladder": "The check and its words are those of a path.",
    "two_stages of particles": "The check and its words are those of a path.",
    "two_stages of powers": "The check and its words are those of a path.",
    "base of copies": "tests/test_copies.py plants copies that miss a part of the base.",
    "modes of copies": "tests/test_pseudo_extended_sampling.py plants it. Its words are a flow's.",
    "modes of powers": "As of copies.",
    "max_depth of powers": "The check and its words are those of a path.",
    "lost of powers": "Under every prior that was tried, Stan's sampler diverged and lost none.",
    "plateau of thermostats": "A chain that is hardly ever at temperature 1 fails by patience.",
}
"""Checks without a case, of every kind of run or of the one named."""

KINDS = {
    "TemperedRun": "a path", "LadderRun": "a ladder", "PowerRun": "powers",
    "ParticleRun": "particles", "PseudoExtendedRun": "copies", "AdiabaticRun": "a flow",
    "PowerCopiesRun": "copies", "TactRun": "thermostats", "BridgeRun": "a fit",
}  # fmt: skip


def named() -> Iterator[str]:
    """Names of checks in the package's text."""
    for path in Path(stanct.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name)):
                continue
            makers = ("Check", "check", "least", "most")
            if node.func.id in makers or node.func.id.endswith("_check"):
                given = node.args[:2]
                yield from (
                    one.value
                    for one in given
                    if isinstance(one, ast.Constant) and isinstance(one.value, str)
                )


def is_beyond_and_passed(check: Check) -> bool:
    """Whether the words of a limit are wrong: minimum or maximum."""
    if check.bound == "minimum":
        # A base of the run's own may be the target.
        beyond = check.value < check.threshold and check.name != "tempered"
        return beyond if check.passed else check.value > check.threshold
    # Even weights and gaps within errors pass with any value.
    exceptions = ("pareto_k", "pareto_k_base", "thermostat", "tempering_thermostat")
    beyond = check.value > check.threshold and check.name not in exceptions
    return beyond if check.passed else check.value < check.threshold


def test_every_check_is_a_minimum_or_a_maximum() -> None:
    assert {*named()} == {*OF_CHECKS}
    own = [Check("own", value, 5.0, value > 5, "", "") for value in (4.0, 6.0)]
    assert [check.bound for check in own] == ["minimum", "minimum"]
    other = [Check("own", value, 5.0, value < 5, "", "") for value in (4.0, 6.0)]
    assert [check.bound for check in other] == ["maximum", "maximum"]


@LONG
def test_every_check_of_every_run_has_a_case_or_a_reason() -> None:
    has = set()
    seen = set()
    for name, case in CASES.items():
        for make in (case.failing, case.mended):
            run = make(SEEDS[0])
            kind = KINDS[type(run).__name__]
            seen |= {f"{check.name} of {kind}" for check in run.diagnostics}
            assert not [check for check in run.diagnostics if is_beyond_and_passed(check)]
        kind = KINDS[type(case.failing(SEEDS[0])).__name__]
        has.add(f"{name.split(' of ')[0]} of {kind}")
        assert " of " not in name or f" of {kind}" in name
    known = {one.split(" of ")[0] for one in seen}
    assert known <= {*named()}
    assert {*named()} <= known | {*REASONS}
    assert seen - has == {one for one in seen if one in REASONS or one.split(" of ")[0] in REASONS}

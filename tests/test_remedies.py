"""Each remedy mends: a run that fails a check passes it once it is done as the check advises."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from targets import CUT, LINE

import stanct
from stanct.runs.run import Run

Make = Callable[[], Run]

FUNNEL = """
parameters { real v; vector[4] x; }
model { v ~ normal(0, 3); x ~ normal(0, exp(v / 2)); }
"""
FAR = stanct.GaussianBase(np.full(2, 20.0), np.eye(2))
WIDE = stanct.GaussianBase(LINE.means["b"] + 0.3, 0.15 * np.eye(2))
NARROW = stanct.GaussianBase(LINE.means["b"] + 0.2, 0.0004 * np.eye(2))
BELOW, ABOVE = (stanct.GaussianBase(np.array([at]), np.eye(1)) for at in (-1.0, -0.5))
AROUND = stanct.GaussianBase(np.zeros(5), np.diag([3.0, 5, 5, 5, 5]))
DECLARED = CUT.source.replace("real x", "real<lower=0.5> x")


def made(method: str, source: str = LINE.source, data: Any = None, **settings: Any) -> Make:
    given = LINE.data if source == LINE.source else data
    if method in ("gibbs", "joint"):
        # An atom would mend some of these runs by itself, and so would CmdStan's warm-up.
        settings = {"atom": 0.0, "engine": "embedded", **settings}
    return cache(lambda: sampled(method, target_of(source, given), **SHORT, **settings))


SHORT: dict[str, Any] = {"seed": 1, "progress": False}


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


def bridged(fit: dict[str, Any], **options: Any) -> Make:
    return cache(
        lambda: stanct.bridge(
            stanct.temper(LINE.source), LINE.data, fit, search=False, seed=1, **options
        )
    )


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
GOOD, STICKY = line_draws(1600, 0.3), line_draws(100, 0.98)

# Runs that several checks share.
UNDECLARED = made("gibbs", CUT.source, base=BELOW, draws=300, warmup=100)
SUPPORTED = made("gibbs", DECLARED, base=ABOVE, draws=300, warmup=100)
THREE_RUNGS = made("parallel_tempering", base=FAR, draws=200, warmup=60, rungs=3)
MANY_RUNGS = made("parallel_tempering", base=FAR, draws=200, warmup=60, rungs=40)
COARSE = made("ais", base=WIDE, draws=32, temperatures=3)
FINE = made("ais", base=WIDE, draws=256, temperatures=30)
REFITTED = made("joint", base=FAR, bootstrap=2, draws=400)
LONGER = made("joint", base=FAR, bootstrap=2, draws=800)

CASES: dict[str, Case] = {
    # a path on which chains move
    "round_trips": Case(
        made("joint", base=FAR, bootstrap=0, draws=200, warmup=150),
        r"Refit the base in more rounds \(bootstrap=2\).*draws=400",
        REFITTED,
    ),
    "r_hat": Case(
        made("gibbs", base=WIDE, transitions=1, path_length=0.05, draws=50, warmup=100),
        r"Run longer chains \(draws=\)",
        made("gibbs", base=WIDE, transitions=1, path_length=0.05, draws=4000, warmup=100),
    ),
    "effective_size": Case(
        made("gibbs", base=WIDE, draws=20, warmup=100),
        r"Run longer chains \(draws=\)",
        made("gibbs", base=WIDE, draws=600, warmup=100),
    ),
    "pareto_k": Case(
        made("gibbs", base=NARROW, draws=300, warmup=100),
        r"A few draws dominate: refit the base in more rounds \(bootstrap=2\)",
        made("gibbs", base=NARROW, draws=300, warmup=100, bootstrap=2),
    ),
    "estimators": Case(REFITTED, r"Run longer chains \(draws=\)", LONGER),
    "target_se": Case(
        made("gibbs", base=WIDE, target_se=0.04, draws=300, max_draws=250, warmup=100),
        r"Allow more \(max_draws=\)",
        made("gibbs", base=WIDE, target_se=0.04, draws=300, max_draws=4000, warmup=100),
    ),
    # a support that the program does not declare
    "support": Case(
        UNDECLARED,
        "Declare the target's support",
        SUPPORTED,
    ),
    "base": Case(
        UNDECLARED,
        "Declare the target's support",
        SUPPORTED,
    ),
    "rejections": Case(
        UNDECLARED,
        "a support that the declarations do not state",
        SUPPORTED,
    ),
    # transitions
    "max_depth": Case(
        made("joint", base=WIDE, bootstrap=0, draws=200, warmup=150, max_depth=1),
        "Raise max_depth",
        made("joint", base=WIDE, bootstrap=0, draws=200, warmup=150, max_depth=6),
    ),
    "divergences of a ladder": Case(
        made("parallel_tempering", FUNNEL, base=AROUND, draws=300, warmup=100, target_accept=0.3),
        "Raise target_accept",
        made("parallel_tempering", FUNNEL, base=AROUND, draws=300, warmup=100, target_accept=0.9),
    ),
    "divergences of particles": Case(
        made("ais", FUNNEL, base=AROUND, draws=64, temperatures=30, target_accept=0.3),
        "Raise target_accept",
        made("ais", FUNNEL, base=AROUND, draws=64, temperatures=30, target_accept=0.9),
    ),
    # ladders
    "round_trips of a ladder": Case(
        made("parallel_tempering", base=FAR, draws=200, warmup=60),
        r"Refit the base in more rounds \(bootstrap=2\)",
        made("parallel_tempering", base=FAR, draws=200, warmup=60, bootstrap=2),
    ),
    "swaps": Case(
        THREE_RUNGS,
        r"Use more rungs \(rungs=\)",
        MANY_RUNGS,
    ),
    "directions": Case(
        THREE_RUNGS,
        "Use more rungs or longer chains",
        MANY_RUNGS,
    ),
    "effective_size of a ladder": Case(
        made("parallel_tempering", base=WIDE, draws=20, warmup=60),
        r"Run longer chains \(draws=\)",
        made("parallel_tempering", base=WIDE, draws=400, warmup=60),
    ),
    "directions of powers": Case(
        made("power_posterior", rungs=3, draws=200, warmup=150),
        r"Use more powers \(rungs=\)",
        made("power_posterior", rungs=10, draws=200, warmup=150),
    ),
    # particles
    "effective_size of particles": Case(
        COARSE,
        "Use more temperatures, then more particles",
        FINE,
    ),
    "pareto_k of particles": Case(
        COARSE,
        "Use more temperatures, then more particles",
        FINE,
    ),
    "std_error of particles": Case(
        made("ais", base=FAR, draws=64, temperatures=4),
        "Use more temperatures, then more particles",
        made("ais", base=FAR, draws=128, temperatures=300),
    ),
    # copies
    "hand_overs": Case(
        made("pseudo_extended", base=WIDE, draws=20, warmup=150, bootstrap=0),
        r"Run longer chains \(draws=\)",
        made("pseudo_extended", base=WIDE, draws=400, warmup=150, bootstrap=0),
    ),
    # fits made elsewhere
    "mixing": Case(bridged(STICKY), "Fit again with more draws", bridged(GOOD)),
    "mixing, tempered": Case(
        bridged(STICKY), "escalate=True", bridged(STICKY, escalate=True, draws=400, progress=False)
    ),
    "r_hat of a fit": Case(
        bridged(half(GOOD)),
        "escalate=True",
        bridged(half(GOOD), escalate=True, draws=400, progress=False),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_remedy_mends_the_check(name: str) -> None:
    case, check = CASES[name], name.split(",")[0].split(" of ")[0]
    failed = {c.name: c for c in case.failing().diagnostics if not c.passed}
    assert check in failed
    assert re.search(case.remedy, failed[check].remedy), failed[check].remedy
    assert check not in case.mended().warnings

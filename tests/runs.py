"""Small runs of every kind, for the tests of plots and pages."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import numpy as np
from conftest import SEED, target_of
from sampled import sampled
from targets import LINE

from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.runs.run import Run
from stanct.runs.tempered import TemperedRun

SHORT: dict[str, dict[str, Any]] = {
    "joint": {"draws": 300, "warmup": 300},
    "parallel_tempering": {"draws": 200, "warmup": 100},
    "ais": {"draws": 64},
    "gibbs": {"draws": 300, "warmup": 100},
    "pseudo_extended": {"draws": 200, "warmup": 200, "copies": 2},
    "tact": {"draws": 300, "warmup": 300},
    "adiabatic": {"draws": 32, "warmup": 16},
}
"""Settings of a run of each kind that takes a second or so."""
KINDS = tuple(SHORT)


def line_run(method: str, **settings: Any) -> Any:
    """A short run of one method on `LINE`; one without settings is sampled once."""
    return _line_run(method, settings) if settings else dataclasses.replace(_plain(method))


@cache
def _plain(method: str) -> Any:
    return _line_run(method, {})


def _line_run(method: str, settings: dict[str, Any]) -> Any:
    target = target_of(LINE.source, LINE.data)
    given: dict[str, Any] = {"seed": SEED, "progress": False} | settings
    return sampled(method, target, **{**SHORT.get(method, {}), **given})


def far_run(**settings: Any) -> TemperedRun:
    """A run that must fail: 200 draws from a base twenty standard deviations away, not refitted."""
    base = GaussianBase(np.full(2, 20.0), np.eye(2))
    chosen: dict[str, Any] = {"draws": 200, "base": base, "bootstrap": 0} | settings
    return line_run("joint", **chosen)


def large_run(run: TemperedRun) -> TemperedRun:
    """4 × 2,500 draws of 92 parameters along a path whose weights are exact."""
    rng = np.random.default_rng(SEED)
    chains, draws, dimension = 4, 2500, 92
    z = rng.standard_normal((chains, draws, dimension))
    beta = np.abs(np.cumsum(rng.normal(0, 0.3, (chains, draws)), axis=1) % 2 - 1)
    delta = 0.2 * z[..., 0] + 0.02
    z[..., 0] -= 0.2 * beta
    statistics = {
        "accept_stat__": rng.random((chains, draws)),
        "n_leapfrog__": np.full((chains, draws), 31),
        "divergent__": np.zeros((chains, draws)),
    }
    return dataclasses.replace(
        run,
        z=z,
        beta=beta,
        delta=delta,
        base_delta=0.2 * rng.standard_normal(4 * chains * draws) + 0.02,
        base=GaussianBase(np.zeros(dimension), np.eye(dimension)),
        bias=Bias.linear(0.0),
        variables={"x": z, "y": np.exp(z)},
        statistics=statistics,
        kept=np.arange(draws),
        provenance={**run.provenance, "parameters": ["x"]},
    )


class Unknown(Run):
    """A kind of run that no panel knows: draws and nothing else."""

    file_format = "unknown"

    @property
    def target_log_weights(self) -> np.ndarray:
        return np.zeros(self.z.shape[:2])

    def _checks(self) -> tuple:
        return ()

    def _shape(self) -> str:
        return "some draws"


EVIL = "<script>alert(1)</script> \"'& {{ 7 * 7 }} {% x %} $\\mu$ 漢字 σ"
"""Text that must come out of a page as it went in."""


def hostile_run(run: TemperedRun) -> TemperedRun:
    """A run whose program, parameters and files are called `EVIL`."""
    return dataclasses.replace(
        run,
        variables={EVIL: run.variables["b"], "b": run.variables["b"]},
        programs={"density": f"// {EVIL}\nreal x;", EVIL: "real y;"},
        provenance={
            **run.provenance,
            "program": f"models/{EVIL}.stan",
            "data_origin": f"{EVIL}.json",
            "parameters": [EVIL, "b"],
        },
    )


class Swinging(Unknown):
    """A kind of run from outside the package that says what it shows, and counts."""

    @property
    def betas(self) -> np.ndarray:
        return np.array([0.0, 0.25, 1.0])

    @property
    def shows(self) -> tuple[str, ...]:
        return ("pair", "schedule")

    def facts(self) -> dict[str, float]:
        return {"Longest swing": 1.25}

    def chain_counts(self) -> dict[str, np.ndarray]:
        return {"swings": np.arange(self.chains) + 70}


def unknown_run(run: TemperedRun, kind: type[Unknown] = Unknown) -> Unknown:
    """The draws of a run as one of an unknown kind without evidence."""
    names = [f.name for f in dataclasses.fields(Run)]
    return kind(**{name: getattr(run, name) for name in names})

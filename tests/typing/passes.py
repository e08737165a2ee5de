"""Calls that a type checker must accept, and what it must know of their results."""

from __future__ import annotations

from typing import Any, assert_type

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

import stanct
from stanct.pages.page import HtmlPage
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bracket import Bracket
from stanct.runs.bridge import BridgeRun
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.ladder import LadderRun
from stanct.runs.particle import ParticleRun
from stanct.runs.power_copies import PowerCopiesRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import Run
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun


def pictures(model: stanct.TemperedModel) -> None:
    """What an editor completes behind ``run.`` is known to it."""
    run = model.sample({"y": 1})
    assert_type(run.plot_path(), Axes)
    assert_type(run.plot_modes(), Axes)
    assert_type(run.plot_weights(), Axes)
    run.plot_trace("mu")
    run.plot_pair(["mu", "beta[1,2]"], figsize=(4, 4))
    run.plot_posterior(["mu"], prior=True)
    assert_type(run.draws_pd(["mu", "beta[1]"]), pd.DataFrame)
    assert_type(run.summary("mu"), pd.DataFrame)
    assert_type(run.report(names="mu"), HtmlPage)
    assert_type(run.pictures, tuple[str, ...])


def by_model(model: stanct.TemperedModel, name: str, method: stanct.Method[Any]) -> None:
    assert_type(model.sample(), TemperedRun)
    assert_type(model.sample(None), TemperedRun)
    assert_type(model.sample({"y": 1}, chains=4, draws=100, seed=1), TemperedRun)
    assert_type(model.sample(None, method="gibbs", target_se=0.1), TemperedRun)
    assert_type(model.sample(method="simulated_tempering"), TemperedRun)
    assert_type(model.sample(None, method="parallel_tempering"), LadderRun)
    assert_type(model.sample(None, method="pseudo_extended"), PseudoExtendedRun)
    assert_type(model.sample(None, method="ais"), ParticleRun)
    assert_type(model.sample(None, method="adiabatic"), AdiabaticRun)
    assert_type(model.sample(None, method="tact"), TactRun)
    assert_type(model.sample(None, stanct.Joint(max_depth=8)), TemperedRun)
    assert_type(model.sample(None, stanct.Gibbs(transitions=8)), TemperedRun)
    assert_type(model.sample(None, stanct.SimulatedTempering(rungs=20)), TemperedRun)
    assert_type(model.sample(None, stanct.ParallelTempering(rungs=None)), LadderRun)
    assert_type(model.sample(None, stanct.AIS()), ParticleRun)
    assert_type(model.sample(None, stanct.Adiabatic(refresh=None)), AdiabaticRun)
    assert_type(model.sample(None, stanct.TACT(start=np.zeros(2))), TactRun)
    assert_type(model.sample(method=stanct.AIS(resample=True), threads=2), ParticleRun)
    assert_type(model.sample(None, name), Run)
    assert_type(model.bidirectional(None, {"x": 1.0}, stanct.AIS(), draws=64), Bracket)
    model.sample(None, method, base="laplace", checkpoint="folder", progress=False)


def by_target(target: stanct.FunctionTarget, base: stanct.GaussianBase) -> None:
    assert_type(stanct.sample(target, stanct.PseudoExtended(copies=3)), PseudoExtendedRun)
    powers = stanct.PseudoExtended(instrument="target", beta_bounds=(0.2, 1))
    assert_type(stanct.sample(target, powers), PowerCopiesRun)
    assert_type(stanct.sample(target, stanct.AIS(), base=base), ParticleRun)
    assert_type(stanct.sample(target, "gibbs", base=base), Run)


def by_a_fit(model: stanct.TemperedModel, frame: pd.DataFrame) -> None:
    draws = {"x": np.zeros((4, 100))}
    assert_type(stanct.bridge("model.stan", None, frame, seed=1), BridgeRun)
    assert_type(stanct.bridge(model, {"y": 1}, ["1.csv", "2.csv"], search=False), BridgeRun)
    assert_type(stanct.bridge(model, None, draws, escalate=True, chains=2), EvidenceRun)
    assert_type(model.sample(None, base=draws), TemperedRun)


class Own(stanct.Method[TemperedRun]):
    """A method of the user's own."""

    def run(self, job: stanct.Job) -> TemperedRun:
        raise NotImplementedError


def by_a_method_of_ones_own(model: stanct.TemperedModel) -> None:
    assert_type(model.sample(None, Own(), seed=3), TemperedRun)

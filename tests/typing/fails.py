"""Calls that a type checker must refuse: on every line that is marked, and on no other."""

from __future__ import annotations

import stanct


def by_model(model: stanct.TemperedModel) -> None:
    model.sample(None, chians=4)  # error
    model.sample(None, draws="many")  # error
    model.sample(None, chains=None)  # error
    model.sample(None, progress="yes")  # error
    model.sample(None, transitions=8)  # error
    model.sample(None, stanct.Gibbs)  # error
    model.sample(None, method=stanct.AIS)  # error
    model.sample(None, stanct.Gibbs(), 4)  # error
    model.sample(method="gibs")  # error
    model.sample(method="gibbs", transitions=8)  # error
    model.bidirectional(None, {"x": 1.0}, temperatures=100)  # error
    model.bidirectional(None, {"x": 1.0}, stanct.Gibbs())  # error


def by_target(target: stanct.FunctionTarget) -> None:
    stanct.sample(target, chians=4)  # error
    stanct.sample(target, stanct.Gibbs)  # error
    stanct.sample(target, "gibbs", transitions=8)  # error
    stanct.sample("model.stan", "gibbs")  # error


def by_a_fit(model: stanct.TemperedModel) -> None:
    stanct.bridge(model, None, 3)  # error
    stanct.bridge(model, None, "fit.csv", draws=100)  # error
    stanct.bridge(model, None, "fit.csv", escalate=True, chians=2)  # error


def methods() -> None:
    stanct.Gibbs(transition=8)  # error
    stanct.Gibbs(transitions="a")  # error
    stanct.Gibbs(transitions=1.5)  # error
    stanct.Gibbs(8)  # error
    stanct.PseudoExtended(copies=None)  # error
    stanct.ParallelTempering(reversible="no")  # error
    stanct.Gibbs().transitions = 3  # error

"""Step sizes of the chains: as adapted by default, shorter after many rejections."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT
from targets import LINE

import stanct
from stanct.engines.cmdstan import CmdStan
from stanct.engines.homes import Home
from stanct.samplers._chains import FEWEST, SHORT_STEPS, TOLERATED, StepSizes
from stanct.samplers._nuts import NutsDraws
from stanct.stan.program import Program

SCHOOLS = ROOT / "examples" / "eight_schools"


def block(rejected: int, size: int = 200) -> NutsDraws:
    acceptance = np.full((4, size // 4), 0.9)
    acceptance.ravel()[:rejected] = 0.05
    nothing = np.zeros((4, size // 4, 0))
    return NutsDraws(nothing, nothing, nothing, {"accept_stat__": acceptance})


def test_steps_stay_as_adapted_while_few_are_rejected() -> None:
    steps = StepSizes()
    for _ in range(100):
        steps.heed(block(0))
    for _ in range(int(FEWEST + TOLERATED * 200 * 110)):
        steps.heed(block(1))
    assert not steps.short and steps.factor() == 1


def test_steps_are_short_for_good_once_more_are_rejected() -> None:
    steps = StepSizes()
    steps.heed(block(FEWEST))
    assert steps.factor() == 1
    steps.heed(block(2))
    factors = []
    for _ in range(2 * len(SHORT_STEPS)):
        factors.append(steps.factor())
        steps.heed(block(0))
    assert sorted(factors) == sorted(2 * SHORT_STEPS) and factors[:3] == factors[3:]


def factors_of(run: Any) -> set[float]:
    steps = run.statistics["stepsize__"] / run.provenance["step_size"]
    return set(np.round(np.unique(steps), 4).tolist())


@LONG
@pytest.mark.cmdstan
def test_only_a_funnel_has_short_steps(cmdstan_home: Home, seed: int) -> None:
    """A thousand draws of a chain see the neck, whatever the base and the rounds."""
    engine, method = CmdStan(cmdstan_home), stanct.Joint()
    data = json.loads((SCHOOLS / "eight_schools.data.json").read_text(encoding="utf-8"))
    funnel = stanct.temper(SCHOOLS / "centred.stan", hierarchies="as written")
    shared: dict[str, Any] = {"warmup": 200, "progress": False, "seed": seed, "engine": engine}
    found = factors_of(funnel.sample(data, method, draws=1000, **shared))
    assert set(SHORT_STEPS) <= found, found
    # tests/test_cmdstan.py compiles a tempered form of this program, too.
    easy = stanct.TemperedModel(Program.from_source(LINE.source, name="model"))
    assert factors_of(easy.sample(LINE.data, method, draws=300, **shared)) == {1.0}


def test_compiled_kernels_halve_steps_in_a_funnel_instead(seed: int) -> None:
    """No transition is rejected, and one that comes down into the neck takes far more gradients."""
    data = json.loads((SCHOOLS / "eight_schools.data.json").read_text(encoding="utf-8"))
    funnel = stanct.temper(SCHOOLS / "centred.stan", hierarchies="as written")
    shared: dict[str, Any] = {"engine": "embedded", "progress": False}
    run = funnel.sample(data, stanct.Joint(), seed=seed, draws=1500, warmup=200, **shared)
    assert factors_of(run) == {1.0}
    statistics = run.statistics
    assert np.mean(statistics["accept_stat__"] < 0.1) < 1e-3
    neck = (np.log(run.variables["tau"]) < -0.5) & (run.beta > 0.5)
    assert neck.mean() > 1e-3
    points = 2.0 ** statistics["treedepth__"]
    spent = statistics["n_leapfrog__"] / points
    assert spent[neck].mean() > 3 * np.median(spent) > 0

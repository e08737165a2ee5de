"""Optima that are known ones with other labels, where labels may be exchanged."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from scipy.special import logsumexp
from scipy.stats import norm

import stanct
from stanct.bases.ascents import Counted, Optimum
from stanct.bases.exchanges import Exchange, exchanges, labelled, twins
from stanct.bases.loop import Proposal, State
from stanct.bases.modes import Ascents
from stanct.bases.particles import with_modes
from stanct.path.curvature import hessian
from stanct.targets.density import Density

Y = np.array([-2.1, -1.9, -2.3, 3.0, 3.4, 2.7])
MIXED = """
data {{ vector[6] y; }}
parameters {{ {kind} mu; }}
model {{
  mu ~ normal({prior});
  for (i in 1:6) {{
    vector[size(mu)] each;
    for (k in 1:size(mu)) each[k] = normal_lpdf(y[i] | mu[k], {sd}) - log(size(mu));
    target += log_sum_exp(each);
  }}
}}
"""
TWO = MIXED.format(kind="vector[2]", prior="0, 5", sd=0.1)


@dataclass(frozen=True, kw_only=True)
class OneTwin(Ascents):
    """Ascents of which all but the best end are forgotten."""

    def make(self, state: State) -> Proposal:
        found = super().make(state)
        looked = found.known["search"]
        best = max(looked.optima, key=lambda one: one.log_mass)
        return replace(found, known={"search": with_modes(looked, [best])})


def log_z() -> float:
    """Of the mixture of two, by a sum over a grid."""
    x = np.linspace(-8, 8, 1601)
    each = norm.logpdf(Y[:, None], x, 0.1)
    prior = norm.logpdf(x, 0, 5)[:, None] + norm.logpdf(x, 0, 5)
    both = np.logaddexp(each[:, :, None], each[:, None, :]) - np.log(2)
    return float(logsumexp(both.sum(axis=0) + prior) + 2 * np.log(x[1] - x[0]))


def sampled(source: str, recipe: stanct.Recipe, seed: int) -> Any:
    target = target_of(source, {"y": Y})
    return stanct.sample(target, base=recipe, seed=seed, draws=500, progress=False)


def stage(run: Any) -> dict[str, Any]:
    (found,) = [one for one in run.provenance["road"] if one["maker"] == "exchanges"]
    return found


def at(density: Density, place: Any) -> Optimum:
    """An optimum at a place, where none need be."""
    place = np.array(place, float)
    precision = -hessian(density.log_density_gradients, place)
    return Optimum(place, density.log_density(place), precision)


def found_for(source: str, place: Any, data: Any = None) -> list[Exchange]:
    density = target_of(source, data).density
    rng = np.random.default_rng(0)
    one = Optimum(np.array(place, float), 0.0, np.eye(density.dimension))
    return exchanges(Counted(density), density, one, rng)


def pairs(found: list[Exchange]) -> set[tuple[str, tuple[int, int]]]:
    return {(" ".join(one.names), one.labels) for one in found}


def test_a_twin_that_ascents_missed_is_added(seed: int) -> None:
    recipe, exact = stanct.recipe().adding(OneTwin()), log_z()
    for child in (seed, seed + 1):
        run = sampled(TWO, recipe, child)
        assert abs(run.evidence.log_z - exact) < min(5 * run.evidence.std_error, 0.1)
        assert stage(run)["parts"] == 1 and "1 more optimum" in stage(run)["said"]
        assert run.optima["seen"].tolist()[1:] == [0]
        # Without the maker the test has its point: half of the mass is missed in silence.
        missed = sampled(TWO, recipe.without("exchanges"), child)
        assert missed.evidence.log_z == pytest.approx(exact - np.log(2), abs=0.1)


@pytest.mark.parametrize("prior", ["0, 5", "0, [5, 5.01]'"])
def test_nothing_changes_where_no_twin_is_missing(prior: str, seed: int) -> None:
    """Either all are found, or there are none."""
    source = MIXED.format(kind="vector[2]", prior=prior, sd=1)
    recipe = stanct.recipe()
    runs = [sampled(source, one, seed) for one in (recipe, recipe.without("exchanges"))]
    assert runs[0].evidence == runs[1].evidence and runs[0].gradients == runs[1].gradients
    assert stage(runs[0])["parts"] == stage(runs[0])["gradients"] == 0
    assert len(runs[0].optima) == 2
    assert ("no labels" in stage(runs[0])["said"]) == ("5.01" in prior)


def test_twins_are_no_twins_where_an_order_or_a_prior_tells_them_apart() -> None:
    ordered = MIXED.format(kind="ordered[2]", prior="0, 5", sd=1)
    assert not found_for(ordered, [-2, 1], {"y": Y})
    assert found_for(TWO, [-2, 3], {"y": Y})
    # All have the same optimum, at which an exchange changes nothing.
    same = "parameters {{ vector[2] x; }} model {{ x ~ normal(0, {}); }}"
    assert not found_for(same.format("[1, 1.001]'"), [0, 0])
    assert found_for(same.format("1"), [0, 0])


def test_labels_of_several_parameters_are_exchanged_together() -> None:
    source = """
    parameters { array[3] real<lower=0> s; simplex[3] w; matrix[3, 2] b; vector[3] z; }
    model {
      s ~ gamma(3, exp(b[:, 1]));
      w ~ dirichlet([2, 2, 2]');
      b[:, 1] ~ normal(0, w);
      b[:, 2] ~ normal([0, 0, 1]', 1);
      z ~ normal([1, 1, 2]', 1);
    }
    """
    assert pairs(found_for(source, np.full(14, 0.3))) == {("z", (0, 1)), ("s w b", (0, 1))}
    names = target_of(source).density.names
    assert labelled(names)["b"].tolist() == [[6, 9], [7, 10], [8, 11]]
    assert set(labelled((*names, "long.1", "x.1.1", *(f"long.{k}" for k in range(2, 8))))) == {
        "s", "w", "b", "z"
    }  # fmt: skip


def test_all_orders_of_three_labels_follow_from_one() -> None:
    source = MIXED.format(kind="vector[3]", prior="0, 5", sd=1)
    density = target_of(source, {"y": np.array([-9.0, -9.2, 0.1, 0.3, 8.0, 8.4])}).density
    one, counted = at(density, [-9, 0.2, 8.1]), Counted(density)
    found = exchanges(counted, density, one, np.random.default_rng(0))
    assert len(found) == 3 and counted.evaluated < 30 and not counted.spent
    new = twins(counted, density, one, [one], found, 5)
    assert new is not None and len({tuple(of.place) for of in (one, *new)}) == 6
    for of in new:
        assert of.log_mass == pytest.approx(one.log_mass, abs=1e-6) and not of.seen
        order = np.argsort(of.place)
        np.testing.assert_allclose(of.precision[np.ix_(order, order)], one.precision, atol=1e-6)
    assert twins(counted, density, one, [one], found, 4) is None
    assert twins(counted, density, one, [one, *new], found, 0) == []


def test_more_twins_than_are_wanted_are_left_out_aloud(seed: int) -> None:
    recipe = stanct.recipe().adding(OneTwin()).changing("exchanges", most=0)
    run = sampled(TWO, recipe, seed)
    assert stage(run)["parts"] == 0 and "others are left out" in stage(run)["said"]
    assert "may be exchanged" in run.steps.set_index("step").loc["exchanges", "found"]

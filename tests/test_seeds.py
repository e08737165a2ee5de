"""Random streams by name: reproducible, distinct, and independent of each other."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from analytic import gaussian
from sampled import sampled

from stanct.common.seeds import Seeds, fresh_seed, stan_seed
from stanct.samplers import METHODS
from stanct.samplers._job import Job

NAMES: list[tuple[str | int, ...]] = [
    (),
    ("",),
    ("a",),
    ("b",),
    ("a", "b"),
    ("b", "a"),
    ("ab",),
    ("a/b",),
    ("a, b",),
    ("a', 'b",),
    ("a", ""),
    ("a", 0),
    ("a", 1),
    ("a", "1"),
    ("a", 11),
    ("a", 1, 1),
    (1,),
    ("chain", 2),
    ("chain 2",),
]


def numbers(seeds: Seeds, *name: str | int) -> list[int]:
    return seeds.stream(*name).integers(2**63, size=4).tolist()


def test_a_stream_is_its_seed_and_its_name() -> None:
    assert numbers(Seeds(7), "chain", 2) == numbers(Seeds(7), "chain", 2)
    assert numbers(Seeds(7), "chain", 2) != numbers(Seeds(8), "chain", 2)
    # These numbers hold on every machine and in every version, so that runs can be repeated.
    assert Seeds(7)("chain", 2).generate_state(2).tolist() == [2531909339, 3914059687]


def test_other_names_are_other_streams() -> None:
    seeds = Seeds(20261121)
    found = [numbers(seeds, *name) for name in NAMES]
    assert [
        (NAMES[i], NAMES[j]) for i, j in combinations(range(len(NAMES)), 2) if found[i] == found[j]
    ] == []


def test_a_stream_is_not_that_of_the_bare_seed_or_its_children() -> None:
    root = np.random.SeedSequence(5)
    others = [root, *root.spawn(100)]
    mine = Seeds(5)("chain", 0).generate_state(4).tolist()
    assert mine not in [other.generate_state(4).tolist() for other in others]


def test_streams_do_not_correlate() -> None:
    """Neighbouring names and seeds: of 45 correlations none is above 4.5 errors."""
    count = 20_000
    draws = [Seeds(1).stream("chain", k).standard_normal(count) for k in range(6)]
    draws += [Seeds(k).stream("chain", 0).standard_normal(count) for k in range(2, 6)]
    apart = np.triu(np.corrcoef(draws), 1)
    assert 0 < np.abs(apart).max() < 4.5 / np.sqrt(count)


def test_asking_for_others_changes_nothing() -> None:
    alone = Seeds(3)
    first = numbers(alone, "chain", 0)
    crowded = Seeds(3)
    for k in range(50):
        crowded("stage", k).spawn(3)
        crowded.stream("other", k).random(10)
    assert numbers(crowded, "chain", 0) == first
    assert alone("a").spawn(2)[1].generate_state(1) == crowded("a").spawn(2)[1].generate_state(1)


def test_seeds_for_stan_are_in_its_range() -> None:
    found = [stan_seed(Seeds(k)("warm-up")) for k in range(2000)]
    assert min(found) >= 1 and max(found) <= 2**31 - 2 and len(set(found)) > 1990
    assert 0 <= fresh_seed() < 2**32 and fresh_seed() != fresh_seed()


SHORT: dict[str, dict[str, Any]] = {
    "joint": {"draws": 50, "warmup": 150, "bootstrap": 0},
    "pseudo_extended": {"draws": 50, "warmup": 150, "bootstrap": 0, "copies": 2},
    "gibbs": {"draws": 50, "warmup": 32},
    "simulated_tempering": {"draws": 50, "warmup": 32},
    "parallel_tempering": {"draws": 50, "warmup": 32},
    "ais": {"draws": 32, "temperatures": 10},
    "adiabatic": {"draws": 16, "warmup": 16, "duration": 5.0, "step": 0.2},
    "tact": {"draws": 20, "warmup": 20},
}


@pytest.mark.parametrize("method", SHORT)
def test_a_new_stage_changes_no_other_stage_s_draws(
    method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Streams that a method did not ask for before are taken first; nothing else moves."""
    case = gaussian(2)
    settings = {"base": case.base, "seed": 4, "progress": False, "chains": 2, **SHORT[method]}
    as_it_is = sampled(method, case.target, **settings)
    run = METHODS[method].run

    def with_a_stage(chosen: Any, job: Job) -> Any:
        job.seeds.stream("a new stage").random(100)
        job.seeds("a new stage", 1).spawn(5)
        return run(chosen, job)

    monkeypatch.setattr(METHODS[method], "run", with_a_stage)
    with_one_more = sampled(method, case.target, **settings)
    assert np.array_equal(as_it_is.variables["x"], with_one_more.variables["x"])


@pytest.mark.parametrize("method", ["gibbs", "parallel_tempering", "ais", "adiabatic", "tact"])
def test_one_more_chain_changes_no_other_chain_s_start(method: str) -> None:
    """A chain's stream has the chain's number, not its place among all that were asked for."""
    seen: list[list[str]] = []
    asked: list[str] = []

    class Listening(Seeds):
        def __call__(self, *name: str | int) -> np.random.SeedSequence:
            asked.append(repr(name))
            return super().__call__(*name)

    case = gaussian(2)
    settings = {"base": case.base, "seed": 4, "progress": False, **SHORT[method]}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stanct.api.sampling.Seeds", Listening)
        for chains in (2, 3):
            asked.clear()
            sampled(method, case.target, chains=chains, **settings)
            seen.append(list(asked))
    few, many = seen
    assert set(few) < set(many)
    assert all(name.endswith(", 2)") for name in set(many) - set(few))
    assert len(few) == len(set(few)) and len(many) == len(set(many)), "a name is used twice"

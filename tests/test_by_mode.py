"""What runs say of each mode alone: where it lies, its draws, and summaries of them."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import target_of
from runs import line_run
from sampled import sampled
from targets import TWO_MODES

from stanct.common.errors import StanctError
from stanct.estimates.averages import expectation
from stanct.estimates.modes import mode_shares
from stanct.runs.surveyed import _differs

SURVEY = {
    "place": [[-5.0], [5.0], [40.0]],
    "spread": [[1.0], [0.5], [1.0]],
    "log_evidence": [0.0, -1.0, -2.0],
    "starts": 10,
    "radius": 10.0,
    "unseen": 0.0,
}
EXACT = {(1, "x"): -5.0, (1, "y"): 26.0, (2, "x"): 5.0, (2, "y"): 25.25}
"""Means of x and y = x² in the modes N(−5, 1) and N(5, 1/2); a third one has no draws."""


def weighted_run(seed: int, **variables: str) -> Any:
    """Weighted draws of two modes, half a standard deviation off; `variables` rename x and y."""
    rng = np.random.default_rng(seed)
    left = rng.random((4, 1000)) < 0.5
    spread = np.where(left, 1.0, 0.5)
    noise = rng.standard_normal(left.shape)
    x = np.where(left, -5, 5) + spread * (noise + 0.5)
    weights = -0.5 * noise - 0.125 + np.where(left, np.log(0.8), np.log(0.2))
    like = line_run("ais")
    facts = {**like.provenance, "survey": SURVEY, "parameters": ["x"]}
    names = {"x": "x", "y": "y"} | variables
    return dataclasses.replace(
        like, z=x[..., None], variables={names["x"]: x, names["y"]: x**2}, base=None,
        log_weights=weights, island=1, provenance=facts,
    )  # fmt: skip


def test_means_by_mode_are_exact() -> None:
    off = []
    for seed in range(10):
        run = weighted_run(seed)
        table = run.summary(by="mode")
        assert table.index.names == ["mode", "name"]
        assert list(table.index) == [(k, name) for k in (1, 2, 3) for name in "xy"]
        assert table.loc[3].isna().all(axis=None) and not table.loc[[1, 2]].isna().any(axis=None)
        off += [(table.loc[at, "mean"] - mean) / table.loc[at, "std_error"]
                for at, mean in EXACT.items()]  # fmt: skip
        assert table.loc[(1, "x"), "sd"] == pytest.approx(1.0, abs=0.15)
        assert table.loc[(2, "x"), "q50"] == pytest.approx(5.0, abs=0.1)
        where = run.modes[["x", "y"]]
        pd.testing.assert_frame_equal(where, table["mean"].unstack(), check_names=False)
    assert np.abs(off).max() < 4 and 0.5 < np.sqrt(np.mean(np.square(off))) < 1.6


def test_errors_of_weights_count_tours() -> None:
    """They are those of averages, and not those of draws without regenerations."""
    run = line_run("simulated_tempering")
    x = run.base.unwhiten(run.z)
    middle, spread = x.mean(axis=(0, 1)), 0.05 * x.std(axis=(0, 1))
    two = {"place": [list(middle - spread), list(middle + spread)], "spread": [list(spread)] * 2}
    survey = {**SURVEY, **two, "log_evidence": [0.0, 0.0]}
    halves = dataclasses.replace(run, provenance={**run.provenance, "survey": survey})
    share = mode_shares(survey, run.z, run.base.unwhiten, run.target_log_weights)[..., 0]
    own, alone = run.expect(lambda _: share), expectation(share, run.target_log_weights, 1.0)
    assert halves.pilot_columns["std_error"][0] == pytest.approx(float(own.std_error), rel=1e-6)
    assert own.std_error > alone.std_error


def test_the_mode_of_each_draw() -> None:
    run = weighted_run(1)
    x = run.variables["x"]
    assert np.array_equal(run.mode_of_draws, np.where(x < 0, 1, 2))
    frame = run.draws_pd("x", draws=50, seed=2)
    assert list(frame.columns) == ["chain__", "iter__", "draw__", "mode__", "x"]
    assert (frame["mode__"] == np.where(frame["x"] < 0, 1, 2)).all()
    assert frame["mode__"].nunique() == 2
    found = run.to_arviz(log_likelihood=False)
    right = np.where(found["posterior"]["x"].values < 0, 1, 2)
    assert np.array_equal(found["sample_stats"]["mode"].values, right)
    lost = np.where(x > 0, -np.inf, run.log_weights)
    blind = dataclasses.replace(run, log_weights=lost)
    assert set(blind.mode_of_draws[x > 0]) == {0}
    assert np.isnan(blind.modes["x"][2]) and blind.modes["x"][1] == run.modes["x"][1]


@pytest.mark.usefixtures("words_alone")
def test_the_table_has_what_is_asked_for_first() -> None:
    run = weighted_run(1, x="weight", y="y_rep")
    own = ["weight", "std_error", "log_z", "log_z_std_error", "chains"]
    assert list(run.modes.columns) == [*own, "y_rep"]  # a weight is that of the mode
    assert run.modes["weight"][1] == run.mode_columns["weight"][0]
    many = {f"log_lik_{k}": run.variables["y_rep"] for k in range(9)} | {"b": run.z.repeat(4, -1)}
    wide = dataclasses.replace(run, variables=many)
    means = [*(f"b[{k}]" for k in (1, 2, 3, 4)), "log_lik_0", "log_lik_1"]
    assert list(wide.modes.columns) == [*own, *means]
    assert "mean of b[4]" in str(wide.report())


def test_the_table_shows_what_tells_modes_apart() -> None:
    """Of eight scalars only the last two differ between the modes; an indicator does, too."""
    run = weighted_run(1)
    noise = np.random.default_rng(2).standard_normal((4, 1000, 7))
    values = {"a": noise, "x": run.variables["x"], "side": (run.variables["x"] > 0) * 1.0}
    wide = dataclasses.replace(run, variables=values)
    assert list(wide.mode_means) == ["x", "side", "a[1]", "a[2]", "a[3]", "a[4]"]


def test_no_mean_stands_where_no_draw_lies() -> None:
    """A mode of which a chain could not tell two peaks, a lognormal one, and counts."""
    rng = np.random.default_rng(5)
    minor = rng.random((4, 1000)) < 0.1
    x = np.where(minor, 9.0, 1.0) + 0.2 * rng.standard_normal(minor.shape)
    skewed = np.exp(2 * rng.standard_normal(minor.shape))
    values = {"x": x, "skewed": skewed, "count": rng.poisson(1.5, minor.shape).astype(float)}
    one = {name: value[:1] for name, value in SURVEY.items() if isinstance(value, list)}
    optima = {
        "place": [[1.0], [9.0], [20.0]], "spread": [[0.2], [0.2], [0.2]],
        "log_mass": [0.0, -2.2, -9.0], "seen": [7, 2, 1], "ends": 3,
    }  # fmt: skip
    like = line_run("ais")
    facts = {**like.provenance, "survey": {**SURVEY, **one, "optima": optima}, "parameters": ["x"]}
    run: Any = dataclasses.replace(
        like, z=x[..., None], variables=values, base=None, log_weights=np.zeros(x.shape),
        island=1, provenance=facts,
    )  # fmt: skip
    table = run.modes
    assert np.isnan(table["x"][1]) and run.summary("x", by="mode")["mean"].iloc[0] > 1.4
    assert table["skewed"][1] == skewed.mean() and table["count"][1] == values["count"].mean()
    assert table["optima"][1] == 2  # the third is too light
    found = run.optima
    assert list(found.columns) == ["weight", "std_error", "mode", "log_mass", "seen"]
    assert found["seen"].tolist() == [7, 2, 1] and found["mode"].tolist() == [1, 1, 1]
    assert found["weight"].to_numpy() == pytest.approx([(~minor).mean(), minor.mean(), 0])
    assert found["std_error"][2] == pytest.approx(np.sqrt(0.1 * 0.9 / x.size), rel=0.5)
    (check,) = (one for one in run.diagnostics if one.name == "search")
    assert (
        check.passed
        and check.value == 7
        and "7 of 10 ascents that arrived ended at" in check.message
    )


def test_scalars_in_which_optima_differ() -> None:
    """Two places a quarter of a standard deviation apart are alike; weights count."""
    rng = np.random.default_rng(3)
    values, zeros = 0.04 * rng.standard_normal((4, 500)), np.zeros((4, 500))
    assert not _differs(np.array([0.30, 0.31]), values, zeros)
    assert _differs(np.array([0.30, 0.36]), values, zeros)
    assert not _differs(np.array([0.30]), values, zeros)
    narrow = np.where(np.abs(values) < 0.005, 0.0, -np.inf)
    assert _differs(np.array([0.30, 0.31]), values, narrow)


def test_wide_mass_around_a_mode_counts_with_it() -> None:
    """In the table, for each draw, and in the evidence; its check looks at each part alone."""
    run = weighted_run(1)
    parts = {"place": [[5.0], [-5.0], [5.2]], "spread": [[0.5], [1.0], [1.5]]}
    survey = {**SURVEY, **parts, "log_evidence": [-1.5, -1.0, -1.0], "owner": [0, 1, 0]}
    wide = dataclasses.replace(run, provenance={**run.provenance, "survey": survey})
    x, table = run.variables["x"], wide.modes
    assert table is not None and len(table) == 2  # the heaviest first, with what is around it
    assert np.array_equal(wide.mode_of_draws, np.where(x > 0, 1, 2))
    assert table["weight"].to_numpy() == pytest.approx([0.2, 0.8], abs=0.1)
    assert table["weight"].sum() == pytest.approx(1)
    weights = np.exp(run.log_weights) / np.exp(run.log_weights).sum()
    assert table["weight"][1] == pytest.approx(weights[x > 0].sum())
    masses = np.logaddexp(-1.5, -1.0), -1.0
    assert wide.mode_columns["pilot_log_z"] == pytest.approx(masses)
    assert wide.pilot_columns["mode"].tolist() == [1, 2, 1]
    # The spike is lost where all draws lie in the wide mass around it.
    apart = {"spread": [[1e-9], [1.0], [1.5]], "log_evidence": [0.0, 0.0, -1.0]}
    lost = dataclasses.replace(run, provenance={**run.provenance, "survey": survey | apart})
    (told,) = (one for one in lost.diagnostics if one.name == "modes")
    assert not told.passed and "A part of mode 1 has 0" in told.message
    assert "2 modes known" in told.message


def test_weights_are_those_of_the_draws_of_a_mode() -> None:
    """Also where modes overlap."""
    run = weighted_run(1)
    near = {"place": [[-5.0], [-4.0], [5.0]], "spread": [[1.0], [1.0], [0.5]]}
    survey = {**SURVEY, **near}
    over = dataclasses.replace(run, provenance={**run.provenance, "survey": survey})
    weights = np.exp(run.log_weights) / np.exp(run.log_weights).sum()
    shares = [weights[over.mode_of_draws == mode].sum() for mode in (1, 2, 3)]
    assert over.modes["weight"].to_numpy() == pytest.approx(shares)


def test_who_knows_no_modes_says_so() -> None:
    run = weighted_run(1)
    none = {name: value for name, value in run.provenance.items() if name != "survey"}
    bare = dataclasses.replace(run, provenance=none)
    assert bare.modes is None and bare.mode_of_draws is None and bare.mode_means == {}
    with pytest.raises(StanctError, match=r"knows no modes.*\n?.*base='modes'"):
        bare.summary(by="mode")
    with pytest.raises(StanctError, match="by must be 'mode' or None, not 'chain'"):
        run.summary(by="chain")
    assert list(bare.draws_pd("x").columns) == ["chain__", "iter__", "draw__", "x"]
    assert "mode" not in bare.to_arviz(log_likelihood=False)["sample_stats"]


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("auto", {"draws": 400, "thin": 2}),
        ("ais", {"draws": 384, "resample": True}),
        ("pseudo_extended", {"draws": 300, "copies": 3}),
        ("parallel_tempering", {"draws": 400}),
    ],
)
def test_every_kind_of_run(method: str, settings: dict[str, Any]) -> None:
    target = target_of(TWO_MODES.source)
    run: Any = sampled(method, target, seed=5, progress=False, **settings)
    table = run.summary("x", by="mode")
    for mode, at in ((1, [-6, -3]), (2, [6, 3])):
        found = table.loc[mode]
        assert np.all(np.abs(found["mean"] - at) < 4 * found["std_error"])
        assert np.all(found["std_error"] < 0.3)
        assert run.modes.loc[mode, ["x[1]", "x[2]"]].to_numpy() == pytest.approx(found["mean"])
    found = run.optima.loc[1:2].set_index("mode")
    assert found["x[1]"].to_numpy() == pytest.approx([-6, 6], abs=0.01)
    assert found["log_mass"].to_numpy() == pytest.approx(3.5 + np.log([0.7, 0.3]), abs=0.01)
    assert run.optima["seen"].sum() == run.provenance["survey"]["starts"]
    assert run.modes["optima"].tolist() == [1, 1] and not run.modes.isna().any(axis=None)
    frame = run.draws_pd()
    assert (frame["mode__"] == np.where(frame["x[1]"] < 0, 1, 2)).all()
    assert (frame["mode__"] == 2).mean() == pytest.approx(run.modes["weight"][2], abs=0.1)

"""`inits=` and `search_radius=`: the search starts where it is told, and finds what lies there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from analytic import gaussian
from conftest import target_of

import stanct
from stanct.bases.fits import fit_base
from stanct.bases.known import Hints
from stanct.cli.main import main
from stanct.common.errors import SamplingError
from stanct.engines.embedded import Nuts
from stanct.targets.inits import places_of

# Two modes, far apart, the far one of mass 3 and the near one of mass 1, which no function names.
FAR = """
parameters { real<lower=-1> x; }
model {
  real near = normal_lpdf(x | 10, 1);
  real far = log(3) + normal_lpdf(x | 20000, 2);
  real most = fmax(near, far);
  target += most + log(exp(near - most) + exp(far - most));
}
"""
PLAIN = FAR.replace("<lower=-1>", "").replace("20000", "10000")


def sampled(text: str, **options: Any) -> Any:
    return stanct.temper(text).sample(None, seed=1, draws=500, progress=False, **options)


def test_the_search_alone_does_not_find_a_mode_so_far_away() -> None:
    run = sampled(PLAIN)
    assert run.evidence.log_z == pytest.approx(0, abs=0.05)


@pytest.mark.parametrize(
    "options", [{"inits": {"x": 9_990}}, {"search_radius": 20_000.0}], ids=["inits", "radius"]
)
def test_told_of_it_the_run_has_both(options: dict[str, Any]) -> None:
    run = sampled(PLAIN, **options)
    assert abs(run.evidence.log_z - np.log(4)) < 4 * run.evidence.std_error < 0.1
    share = run.expect(lambda v: v["x"] > 5_000)
    assert abs(share.value - 0.75) < 4 * share.std_error < 0.15
    assert run.provenance["settings"]["search_radius"] == options.get("search_radius")


def test_inits_are_in_the_program_s_own_space(tmp_path: Path) -> None:
    """Where x is bounded, the unconstrained place is log(x + 1)."""
    file = tmp_path / "inits.json"
    file.write_text(json.dumps([{"x": 3}, {"x": 7}]), encoding="utf-8")
    places = places_of(target_of(FAR), [{"x": 1}, file, str(file)])
    assert np.ravel(places) == pytest.approx(np.log([2, 4, 8, 4, 8]))


def test_beyond_the_dimensions_of_the_search_pilots_start_there() -> None:
    size = 251
    target = target_of(
        f"""parameters {{ vector[{size}] x; }}
        model {{
          target += log_sum_exp(std_normal_lpdf(x), log(3) + normal_lpdf(x | 40, 1));
        }}"""
    )
    found = [
        fit_base(
            target, "low_rank", chains=2, seed=np.random.SeedSequence(1), nuts=Nuts(), hints=hints
        )
        for hints in (None, Hints(places=(np.full(size, 39.0),)))
    ]
    assert [fit.separated for fit in found] == [False, True]
    assert found[1].base.mean == pytest.approx(np.full(size, 20), abs=5)


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, inits = tmp_path / "far.stan", tmp_path / "inits.json"
    model.write_text(PLAIN, encoding="utf-8")
    inits.write_text(json.dumps({"x": 9_990}), encoding="utf-8")
    words = ["evidence", str(model), "--inits", str(inits), "--search-radius", "50"]
    assert main([*words, "--draws", "200", "--seed", "1", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out)["log_z"] == pytest.approx(np.log(4), abs=0.1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"inits": {}}, "Init 1 has no value of `x`"),
        ({"inits": {"X": 3}}, "Init 1 has no value of `x`, but one of `X`"),
        ({"inits": [{"x": 1}, {"x": -2}]}, "Init 2 is no point of the program"),
        ({"inits": {"x": [1, 2]}}, "Init 1 is no point of the program"),
        ({"inits": {"x": float("nan")}}, "Init 1 has a value of `x` that is not finite"),
        ({"inits": []}, "inits must be a mapping"),
        ({"inits": 3}, "inits must be a mapping"),
        ({"inits": "nowhere.json"}, r"The inits of nowhere\.json cannot be read"),
        ({"inits": {"x": 1}, "base": "laplace"}, "the base 'laplace' makes none"),
        ({"search_radius": 9.0, "base": stanct.GaussianBase(np.zeros(1), np.eye(1))}, "your own"),
        ({"search_radius": 0.0}, "search_radius must be"),
        ({"init": {"x": 1}}, r"Did you mean inits=\.\.\."),
    ],
)
def test_what_cannot_be_an_init(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        sampled(FAR, **options)


def test_a_function_has_no_inits() -> None:
    with pytest.raises(SamplingError, match="inits need a Stan program"):
        stanct.sample(gaussian(2).target, inits={"x": [0, 0]})


def test_what_an_init_does_not_name_is_random() -> None:
    """y and z are within 2 of 0 in the unconstrained space, and inits differ there."""
    text = "parameters { real x; real<lower=0> y; vector[2] z; } model { }"
    places = np.array(places_of(target_of(text), [{"x": 7.0, "z": [8, 9]}, {"x": 7.0}]))
    assert places[0, [0, 2, 3]] == pytest.approx([7, 8, 9]) and places[1, 0] == 7
    rest = np.array([places[0, 1], *places[1, 1:]])
    assert np.all(np.abs(rest) <= 2) and np.unique(rest).size == 4


def test_a_run_says_what_became_of_an_init() -> None:
    run = sampled(PLAIN, inits=[{"x": 9_990}, {"x": 12}])
    found = run.steps.set_index("step").loc["ascents", "found"]
    assert found.endswith(
        "; from init 1 at the best; from init 2 at one with a log mass 1.1 below the best"
    )
    assert run.optima["seen"].min() >= 1


def test_inits_of_a_hierarchy() -> None:
    text = """
    parameters { real mu; real<lower=0> tau; vector[2] theta; }
    model { mu ~ normal(0, 1); tau ~ gamma(5, 5); theta ~ normal(mu, tau); }
    """
    init = {"mu": 0, "tau": 1, "theta": [0.5, 0.5]}
    run = stanct.temper(text).sample(None, inits=init, seed=1, draws=300, progress=False)
    assert run.provenance["reparametrised"] == ["theta"]
    assert abs(run.evidence.log_z) < 0.2
    with pytest.raises(SamplingError, match=r"sampled in another form.*hierarchies='as written'"):
        stanct.temper(text, hierarchies="non-centred").sample(None, inits=init)

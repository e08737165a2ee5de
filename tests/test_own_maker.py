"""The maker on the page "Write your own maker": short, asked, paid, judged, and shown."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT, target_of
from targets import LINE, Exact
from test_ridges import BANANA

import stanct
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase

PAGE = ROOT / "docs" / "own_maker.md"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The page's first block of code as a module."""
    found = re.search(r"^```python\n(# patches\.py\n.*?)^```", PAGE.read_text("utf-8"), re.S | re.M)
    assert found is not None
    folder = tmp_path_factory.mktemp("own")
    (folder / "patches.py").write_text(found[1], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("patches")
    del sys.modules["patches"]


def sampled_by(recipe: stanct.Recipe, exact: Exact, seed: int, **options: Any) -> Any:
    target = target_of(exact.source, exact.data)
    return stanct.sample(target, base=recipe, seed=seed, progress=False, **options)


def stage_of(run: Any, maker: str) -> dict[str, Any]:
    (found,) = [stage for stage in run.provenance["road"] if stage["maker"] == maker]
    return found


def test_it_has_fewer_than_sixty_lines(own: ModuleType) -> None:
    assert own.__file__ is not None
    assert len(Path(own.__file__).read_text("utf-8").splitlines()) < 60


@pytest.mark.usefixtures("words_alone")
def test_it_is_asked_paid_and_shown(own: ModuleType, seed: int) -> None:
    """Of five seeds in six its parts are kept, so that those of one in three are."""
    recipe = stanct.recipe().without("given", "ridges").adding(own.Patches(places=8))
    for child in (seed, seed + 1, seed + 2):
        run = sampled_by(recipe, Exact(BANANA, None, 0.0, {}), child)
        stage = stage_of(run, "patches")
        paid = sum(one["gradients"] for one in run.provenance["road"])
        assert stage["gradients"] == 8
        assert run.provenance["stage_gradients"]["base"] == pytest.approx(paid, abs=40)
        assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.2
        if stage["parts"]:
            break
    assert 4 < stage["parts"] <= 8
    assert isinstance(run.base, MixtureBase) and len(run.base.parts) == stage["parts"] + 1
    steps = run.steps.set_index("step")
    assert steps.loc["patches", "gradients"] == 8 and "draws count" in steps.loc["patches", "found"]
    assert "Gaussians along the draws" in str(run.report())
    (record,) = [m for m in run.provenance["recipe"]["makers"] if m["maker"] == "patches"]
    assert record == {"maker": "patches", "places": 8, "fewest": 8, "step": 0.3}


def test_it_is_not_asked_where_draws_suffice(own: ModuleType, seed: int) -> None:
    run = sampled_by(stanct.recipe().adding(own.Patches()), LINE, seed, draws=100)
    assert "patches" not in [stage["maker"] for stage in run.provenance["road"]]


def test_a_poor_maker_spoils_nothing(seed: int) -> None:
    """Its part is far away, so that no more draws count, and the base stays."""

    class Astray(stanct.Maker):
        name = "astray"

        def make(self, state: stanct.State) -> stanct.Proposal:
            far = GaussianBase(np.full(len(state.fits[0].mean), 50.0), np.eye(2))
            return stanct.Proposal(parts=((0.5, far),), gradients=1)

    plain = sampled_by(stanct.recipe(), LINE, seed, draws=100)
    run = sampled_by(stanct.recipe().adding(Astray()), LINE, seed, draws=100)
    assert stage_of(run, "astray")["parts"] == 0
    assert stage_of(run, "astray")["said"].endswith("not kept")
    assert np.array_equal(run.delta, plain.delta) and run.gradients == plain.gradients + 1


def test_parts_join_those_along_ridges(seed: int) -> None:
    class Beside(stanct.Maker):
        name = "beside"
        judged = False

        def make(self, state: stanct.State) -> stanct.Proposal:
            return stanct.Proposal(parts=((0.5, GaussianBase(np.full(2, 3.0), np.eye(2))),))

    recipe, exact = stanct.recipe().without("given"), Exact(BANANA, None, 0.0, {})
    plain, run = (
        sampled_by(one, exact, seed, draws=50) for one in (recipe, recipe.adding(Beside()))
    )
    assert stage_of(plain, "ridges")["parts"] > 1
    assert len(run.base.parts) == len(plain.base.parts) + 1


def test_a_maker_may_propose_a_base_of_another_kind(seed: int) -> None:
    class Known(stanct.Maker):
        name = "known"

        def make(self, state: stanct.State) -> stanct.Proposal:
            base, log_z = state.base()
            return stanct.Proposal(instead=(MixtureBase.of([1.0], [base.dense()]), log_z))

    # As good as what was there, and therefore not kept.
    run = sampled_by(stanct.recipe().adding(Known()), LINE, seed, draws=100)
    assert isinstance(run.base, GaussianBase)


def test_what_cannot_be_a_recipe_is_refused(own: ModuleType) -> None:
    with pytest.raises(stanct.SamplingError, match="maker"):
        stanct.recipe().without("ridge")
    with pytest.raises(stanct.SamplingError, match="recipe"):
        stanct.recipe("mode")
    with pytest.raises(stanct.SamplingError, match="places must be a whole number"):
        own.Patches(places=1)
    target = target_of(LINE.source, LINE.data)
    with pytest.raises(stanct.SamplingError, match="measured a mode"):
        stanct.sample(target, base=stanct.recipe().without("pilots"), seed=1, progress=False)

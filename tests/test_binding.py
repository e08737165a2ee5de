"""Any numbers can be reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import target_of
from runs import line_run
from sampled import sampled

import stanct
from stanct.common.errors import SamplingError
from stanct.pages.panels import Panel
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import MixtureBase

PAIR = "data { int N; } parameters { vector[N] x; } model { x ~ normal(0, 1); }"


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of two programs, saved as `line` and `pair`."""
    folder = tmp_path_factory.mktemp("both")
    line_run("gibbs").save(folder / "line")
    settings = {"draws": 300, "warmup": 100, "seed": 1, "progress": False}
    sampled("gibbs", target_of(PAIR, {"N": 3}), **settings).save(folder / "pair")
    return folder


def test_a_run_whose_generated_quantities_reject_all_is_loaded(tmp_path: Path) -> None:
    source = (
        "parameters { real x; } model { x ~ normal(0, 1); }"
        'generated quantities { real y; if (x < 1e9) reject("never"); y = 1; }'
    )
    base = GaussianBase(np.zeros(1), np.eye(1))
    options: dict[str, Any] = {"base": base, "draws": 50, "seed": 1, "progress": False}
    run = stanct.sample(target_of(source), stanct.Independence(), **options)
    run.save(tmp_path / "run")
    assert np.isnan(stanct.load(tmp_path / "run").variables["x"]).all()


DRAWN = Panel.picture

# Numbers

BAD = {
    "infinite": lambda a: np.full(a.shape, np.inf),
    "half infinite": lambda a: np.where(np.arange(a.shape[1])[:, None] % 2, np.inf, a),
    "none": lambda a: np.full(a.shape, np.nan),
    "huge": lambda a: np.where(a > 0, 1e308, -1e308),
    "far": lambda a: 1e17 + np.round(a),
    "tiny": lambda a: a * 5e-324,
    "empty": lambda a: a[..., :0],
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", BAD)
def test_a_report_of_any_numbers(
    both: Path, kind: str, words_alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other pictures are of weights and of β, which are the run's own."""
    undrawn = Panel.picture
    monkeypatch.setattr(
        Panel,
        "picture",
        lambda panel, *given, **asked: (
            DRAWN(panel, *given, **asked)
            if panel.section == "posterior"
            else undrawn(panel, *given, **asked)
        ),
    )
    run = stanct.load(both / "pair")
    x = BAD[kind](run.variables["x"])
    odd = dataclasses.replace(run, variables={"x": x})  # pyright: ignore[reportCallIssue]
    page = odd.report()
    assert page.count("<svg role") == 1 < page.count("<svg aria")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("factor", [1e300, -1e300, 1e-300])
def test_huge_differences_of_densities(both: Path, factor: float) -> None:
    run: Any = stanct.load(both / "pair")
    odd = dataclasses.replace(run, base_delta=run.base_delta * factor)
    assert not odd.is_reliable or np.isfinite(odd.evidence.std_error)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": np.array(1.0)},
        {"weights": np.array([0.5, 0.6])},
        {"weights": np.array([1.5, -0.5])},
        {"places": np.zeros((2, 3))},
        {"roots": np.zeros((2, 2, 2))},
        {"roots": np.ones((2, 2, 2))},
        {"roots": np.full((2, 2, 2), np.inf)},
        {"roots": np.eye(2)[None]},
    ],
)
def test_arrays_that_are_no_mixture(change: dict[str, np.ndarray]) -> None:
    one = GaussianBase(np.zeros(2), np.eye(2))
    sound = {
        "weights": np.full(2, 0.5),
        "places": np.zeros((2, 2)),
        "roots": np.stack([np.eye(2)] * 2),
    }
    assert MixtureBase(one, **sound).dimension == 2
    with pytest.raises(SamplingError, match="mixture"):
        MixtureBase(one, **(sound | change))


def test_errors_whose_squares_are_no_numbers(both: Path) -> None:
    run: Any = stanct.load(both / "pair")
    wide = dataclasses.replace(run.evidence, std_error=5e200, within_error=3e200, between_error=0.0)
    assert wide.base_error == pytest.approx(4e200) and repr(wide)

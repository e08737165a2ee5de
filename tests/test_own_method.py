"""The method on the page "Write your own method": short, correct, and usable like built-in ones."""

from __future__ import annotations

import importlib
import multiprocessing
import re
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import ROOT
from targets import LINE, TWO_MODES, Exact
from test_execution import assert_same

import stanct
from stanct.work import checkpoint

PAGE = ROOT / "docs" / "own_method.md"
# Shifted from the posterior of `LINE` and several times as wide, so that the path is long.
WIDE = stanct.GaussianBase(np.array([0.3, 1.4]), np.eye(2))
SHORT: dict[str, Any] = {"draws": 120, "warmup": 60, "chains": 3, "seed": 4, "progress": False}


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The page's first block of code as a module that worker processes can import."""
    found = re.search(
        r"^```python\n(# elliptical\.py\n.*?)^```", PAGE.read_text("utf-8"), re.S | re.M
    )
    assert found is not None
    folder = tmp_path_factory.mktemp("own")
    (folder / "elliptical.py").write_text(found[1], encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        yield importlib.import_module("elliptical")
    del sys.modules["elliptical"]


def model_of(exact: Exact, folder: Path) -> stanct.TemperedModel:
    (folder / "program.stan").write_text(exact.source, encoding="utf-8")
    return stanct.temper(folder / "program.stan")


@pytest.fixture
def line(own: ModuleType, tmp_path: Path) -> Any:
    """A short run of a regression with options of its own."""
    model = model_of(LINE, tmp_path)
    return lambda **options: model.sample(LINE.data, own.Elliptical(), **{**SHORT, **options})


def test_it_has_fewer_than_sixty_lines(own: ModuleType) -> None:
    assert own.__file__ is not None
    assert len(Path(own.__file__).read_text("utf-8").splitlines()) < 60


@pytest.mark.parametrize(
    ("exact", "base"), [(LINE, WIDE), (TWO_MODES, "pilot")], ids=["line", "modes"]
)
def test_it_is_right(own: ModuleType, tmp_path: Path, seed: int, exact: Exact, base: Any) -> None:
    model = model_of(exact, tmp_path)
    run = model.sample(exact.data, own.Elliptical(), base=base, seed=seed, progress=False)
    assert abs(run.evidence.log_z - exact.log_z) < 4 * run.evidence.std_error < 0.3
    for name, mean in exact.means.items():
        found = run.expect(name)
        assert np.all(np.abs(found.value - mean) < 4 * found.std_error)
        assert np.all(found.std_error < 0.5)
    assert run.is_reliable and run.method == "elliptical"


def test_a_bad_setting_is_refused(own: ModuleType, line: Any) -> None:
    with pytest.raises(stanct.SamplingError, match=r"moves must be .* Did you mean moves=1\?"):
        own.Elliptical(moves=0)
    with pytest.raises(stanct.SamplingError, match=r"did you mean Elliptical\(moves=\.\.\.\)\?"):
        line(moves=5)
    with pytest.raises(stanct.SamplingError, match=r"Did you mean chains=\.\.\.\?"):
        line(chians=4)
    with pytest.raises(stanct.SamplingError, match="warmup must be a whole number of at least 8"):
        line(warmup=2)


def test_processes_draw_what_threads_draw(line: Any) -> None:
    alone = line(threads=1)
    assert_same(line(threads=3), alone)
    context = multiprocessing.get_context("forkserver")
    with ProcessPoolExecutor(2, mp_context=context) as workers:
        assert_same(line(executor=workers), alone)
    assert not np.array_equal(line(seed=5).z, alone.z)


class Killed(BaseException):
    """Stands for a kill: nothing in stanct handles it."""


class Limited:
    """The page's work, until so many blocks are done; then it fails."""

    def __init__(self, own: ModuleType, blocks: int, failure: type[BaseException]) -> None:
        self.work, self.left, self.failure = own.work, blocks, failure

    def __call__(self, *arguments: Any) -> Any:
        if self.left == 0:
            raise self.failure
        self.left -= 1
        return self.work(*arguments)


@pytest.mark.parametrize("blocks", [1, 8, 14])
def test_a_killed_run_ends_like_one_that_was_not(
    line: Any, own: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, blocks: int
) -> None:
    monkeypatch.setattr(checkpoint, "SOONEST", 0.0)
    whole = line()
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(own, "work", Limited(own, blocks, Killed))
        line(checkpoint=tmp_path / "folder", threads=1)
    # Three chains of two blocks of warm-up and three of draws: none is made twice.
    rest = Limited(own, 15 - blocks, Killed)
    monkeypatch.setattr(own, "work", rest)
    assert_same(line(checkpoint=tmp_path / "folder", threads=1), whole)
    assert rest.left == 0


def test_an_interrupt_keeps_what_is_finished(
    line: Any, own: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own, "work", Limited(own, 11, KeyboardInterrupt))
    run = line(threads=1)
    assert run.draws < SHORT["draws"] and "interrupted" in run.warnings


def test_it_is_saved_and_reported(line: Any, tmp_path: Path) -> None:
    run = line()
    run.report(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "elliptical" in page and "<svg" in page
    run.save(tmp_path / "saved")
    assert_same(stanct.load(tmp_path / "saved"), run)


def test_it_samples_a_function(own: ModuleType) -> None:
    target = stanct.FunctionTarget(
        stanct.FunctionDensity(lambda x: (2.5 - 0.5 * float(x @ x) - np.log(2 * np.pi), -x), 2)
    )
    base = stanct.GaussianBase(np.full(2, 0.3), 1.4 * np.eye(2))
    run = stanct.sample(target, own.Elliptical(), base=base, **SHORT)
    assert abs(run.evidence.log_z - 2.5) < 4 * run.evidence.std_error < 0.2

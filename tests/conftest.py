"""Fixtures shared by all tests, and the one seed that they start from."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import FOUND, Browser, chromium
from markupsafe import Markup

from stanct.bases import modes, scans
from stanct.bases import search as searching
from stanct.engines import homes
from stanct.pages.page import Picture
from stanct.pages.panels import Panel
from stanct.stan.program import Program
from stanct.targets.data import StanData, read_data
from stanct.targets.density import Density
from stanct.targets.function_target import FunctionDensity
from stanct.targets.program_target import ProgramTarget

ROOT = Path(__file__).resolve().parent.parent
# Tests use these, too.
sys.path += [str(ROOT / "examples" / name) for name in ("boltzmann", "sweep")]

# A shell that runs the tests in the background makes them and their children ignore interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
# Many processes of these tests import the package, and pytest rewrites the tests for longer than it
# imports them.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Worker processes import this file again, in an environment that it has already changed.
GIVEN_CMDSTAN = os.environ.setdefault("STANCT_TEST_CMDSTAN", os.environ.get("CMDSTAN", ""))
os.environ.pop("CMDSTAN", None)
if GIVEN_CMDSTAN:
    os.environ["CMDSTAN"] = GIVEN_CMDSTAN
FOUND_CMDSTAN = homes.find()
# Only tests that ask for `cmdstan_home` use it: "auto" means embedded in all others, and in the
# processes that they start.
os.environ["CMDSTAN"] = str(ROOT / "no-cmdstan-here")
LONG = pytest.mark.skipif(
    "STANCT_TEST_LONG" not in os.environ, reason="takes long; set STANCT_TEST_LONG"
)
# The files that take longest begin first, so that no process is left with one of them at the end.
LONGEST = (
    "docs", "examples", "papers", "nested", "deadline", "resolution", "native", "auto", "execution",
    "two_stages", "scouts", "package", "chains", "remedies",
)  # fmt: skip
SEED = int(os.environ.get("STANCT_TEST_SEED", "20261121"))


def remembered(search: Callable[..., Any]) -> Callable[..., Any]:
    """Search for the modes of a program once, and not in every run with the same seed.

    It takes longer than most runs of these tests. A search that anything could change is another
    one. Tests of the search itself call it by its own name.
    """
    found: dict[Any, Any] = {}

    def known(density: Density, seed: Any, **given: Any) -> Any:
        places = tuple(np.asarray(place).tobytes() for place in given["places"])
        rest = [given[name] for name in ("radius", "reach", "effort", "scan", "outskirts")]
        named = {**vars(scans), **vars(searching)}.items()
        constants = [(name, value) for name, value in named if name.isupper()]
        key = repr([density.recipe.key, seed.state, places, rest, constants])
        if key not in found:
            found[key] = search(density, seed, **given)
        return found[key]

    return known


modes.search = remembered(modes.search)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {f"test_{name}": number for number, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(place)))


class Scanned(FunctionDensity):
    """A density in Python that has the log densities of many points at once."""

    def __init__(
        self,
        gradient: Callable[[np.ndarray], tuple[float, np.ndarray]],
        log_densities: Callable[[np.ndarray], np.ndarray],
        dimension: int,
    ) -> None:
        super().__init__(gradient, dimension)
        self._log_densities = log_densities

    def log_densities(self, points: np.ndarray) -> np.ndarray:
        return self._log_densities(points)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(SEED)


@pytest.fixture(scope="module")
def uncompared() -> Iterator[None]:
    """Runs by name are not compared with draws in two stages, which takes longer than short runs
    do. tests/test_two_stages.py is about the comparison."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("stanct.samplers._job.noting_two_stages", lambda run, *_: run)
        yield


@pytest.fixture
def words_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports whose words are read have no pictures, which take most of the time."""

    def undrawn(panel: Panel, run: Any, **asked: Any) -> Picture:
        drawn = Markup('<svg aria-label="{}"/>').format(panel.title)
        return Picture(panel.title, panel.caption, drawn)

    monkeypatch.setattr(Panel, "picture", undrawn)


@pytest.fixture(scope="session")
def seed() -> int:
    return SEED


def target_of(source: str, data: dict | None = None, name: str = "model") -> ProgramTarget:
    """A target from program text."""
    program = Program.from_source(source, name=name)
    checked: StanData = read_data(data, program)
    return ProgramTarget(program, checked)


@pytest.fixture(scope="session")
def cmdstan_home() -> homes.Home:
    home = FOUND_CMDSTAN
    if home is None:
        pytest.skip("no CmdStan on this machine: stanct install-cmdstan")
    return home


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if not FOUND:
        pytest.skip("no Chromium on this machine: apt install chromium")
    with chromium() as running:
        yield running

"""Progress bars on a terminal that works, and on every kind of stderr that does not."""

from __future__ import annotations

import io
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from stanct.bases import modes, particles
from stanct.work import progress
from stanct.work.progress import Bar


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is captured counts as a terminal."""
    monkeypatch.setattr(progress, "_can_draw", lambda: True)


@pytest.mark.usefixtures("terminal")
def test_a_bar_on_stderr(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(10, "draws", unit="draw", shown=True) as bar:
        bar.note("warming up")
        time.sleep(0.12)
        bar.update(10)
    text = capsys.readouterr().err
    assert "draws: 10 of 10 draws (100%), 0 s; warming up" in text
    assert text.endswith("\r") and "\n" not in text  # nothing is left of the line
    with Bar(10, "draws", unit="draw", shown=False) as bar:
        bar.update(10)
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("terminal")
def test_a_stage_that_reports_nothing_is_seen_to_go_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Never silent for two seconds, also between stages, and no line is wider than the screen."""
    with Bar(0, "run", shown=True):
        with Bar(24, "base", unit="start", shown=True) as bar:
            bar.note("searching " * 30)
            time.sleep(2.2)
        time.sleep(1.3)
    lines = [line.strip() for line in capsys.readouterr().err.split("\r") if line.strip()]
    assert sum(line.startswith("base: ") for line in lines) >= 3
    assert any(line == "run: 3 s; after base" for line in lines)
    assert max(map(len, lines)) < 80 and "2 s; searching" in "".join(lines)


@pytest.mark.usefixtures("terminal")
def test_the_time_left_is_told(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock["now"])
    with Bar(4000, "draws", unit="draw", shown=True) as bar:
        clock["now"] = 5.0
        bar.update(1000)
        progress.say_above("Forecast: soon")
    text = capsys.readouterr().err
    assert "draws: 1,000 of 4,000 draws (25%), 5 s, about 15 s left" in text
    # The line is wiped before another is printed above it.
    assert "left\r" + " " * len("draws: 1,000 of 4,000 draws (25%), 5 s, about 15 s left") in text
    assert "\rForecast: soon\n" in text


def test_parts_of_a_stage_have_shares_and_seconds_of_their_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock["now"])
    bar = Bar(0, "base", shown=False)
    bar.begin("ascents", 1, 3)
    bar.phase(200, "evaluation")
    clock["now"] = 10.0
    bar.update(50)
    assert bar.text == "base 1/3, ascents: 50 of 200 evaluations (25%), 10 s, about 30 s left"
    bar.begin("pathfinder", 2, 3)
    bar.expect(20)
    bar.update(18)
    clock["now"] = 13.0
    assert bar.text == "base 2/3, pathfinder: 18 of 20 (90%), 3 s, about 0 s left"
    bar.phase(100, "draw")
    clock["now"] = 15.0
    bar.update(10)
    assert bar.text == "base 2/3, pathfinder: 10 of 100 draws (10%), 2 s"
    bar.begin("pilots", 3, 3)
    assert bar.text == "base 3/3, pilots: 0 s"


def test_lines_now_and_then_off_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten seconds apart at least, and farther apart the longer a stage takes."""
    clock = {"now": 0.0}
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock["now"])
    monkeypatch.setattr(progress._line, "_told", float("-inf"))
    with Bar(5, "base", unit="start", shown=True) as bar:
        for _ in range(5):
            clock["now"] += 1
            bar.update()
    assert capsys.readouterr().err == ""  # a short run says nothing
    with Bar(2000, "draws", unit="draw", shown=True) as bar:
        bar.note("warming up")
        for _ in range(2000):
            clock["now"] += 1
            bar.update()
    lines = capsys.readouterr().err.splitlines()
    told = "draws: 5 of 2,000 draws (0%), 5 s, about 1995 s left; warming up"
    assert lines[0] == told
    seconds = [int(line.split(", ")[1].removesuffix(" s")) for line in lines]
    assert seconds[1] - seconds[0] == 10 and 100 < seconds[-1] - seconds[-2] < 200
    assert len(lines) < 50 and "\r" not in "".join(lines)


@pytest.mark.parametrize("wrong", ["closed", "broken", "absent", "slow to fail"])
def test_a_stderr_that_fails_is_forgotten(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream(io.StringIO):
        calls = 0

        def isatty(self) -> bool:
            return super().isatty() or True  # which raises once it is closed

        def write(self, text: str) -> int:
            self.calls += 1
            if wrong == "broken" or self.calls > 3:
                raise BrokenPipeError
            return len(text)

    stream: Any = Stream()
    if wrong == "closed":
        stream.close()
    monkeypatch.setattr(sys, "stderr", None if wrong == "absent" else stream)
    with Bar(10, "draws", unit="draw", shown=True) as bar:
        for _ in range(10):
            bar.note("on")
            bar.update()
    if wrong == "broken":
        assert stream.calls == 1


@pytest.mark.usefixtures("terminal")
def test_updates_cost_nothing_to_speak_of(capsys: pytest.CaptureFixture[str]) -> None:
    with Bar(20_000, "draws", unit="draw", shown=True) as bar:
        begun = time.thread_time()
        for _ in range(20_000):
            bar.update()
        assert (time.thread_time() - begun) / 20_000 < 100e-6
    assert len(capsys.readouterr().err) < 100_000


def test_stages_of_the_search_are_named_and_do_not_promise_too_much(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The purse ends both: the curvature of some of fifty modes, and ascents after annealing."""
    bar, told = Bar(0, "base", shown=False), list[str]()
    fit: Any = SimpleNamespace(around=False, mean=np.zeros(7))
    found = SimpleNamespace(fit=fit, around=None, strays=None, gradients=10, evaluations=0)
    looked = SimpleNamespace(
        has_thousands=False, whole=False, settled=False, fits=[fit] * 50, optima=(), ends=50,
        particles=0,
    )  # fmt: skip
    state: Any = SimpleNamespace(
        target=SimpleNamespace(density=SimpleNamespace(dimension=7, borrow=None)), search=looked,
        seeds=SimpleNamespace(particles=np.random.SeedSequence(1), look=np.random.SeedSequence(1)),
        purse=SimpleNamespace(may_spend=lambda share: 100.0), nuts=SimpleNamespace(threads=1),
        bar=bar,
    )  # fmt: skip
    monkeypatch.setattr(modes, "measured", lambda *_, **__: found)
    assert modes.Curvature().make(state).made == bar.total == 11

    def annealed(*_: Any, **__: Any) -> Any:
        told.append(bar.text)
        return SimpleNamespace(points=np.zeros((1, 7)), gradients=200)

    def climbed(*_: Any, **__: Any) -> Any:
        told.append(bar.text)
        return looked

    monkeypatch.setattr(particles, "Counted", lambda *_: SimpleNamespace(spent=0, evaluated=0))
    monkeypatch.setattr(particles, "effort_of", lambda target: 1.0)
    monkeypatch.setattr(particles, "reach_of", lambda target: 1.0)
    monkeypatch.setattr(particles.Particles, "_far", lambda *_: (looked, False))
    monkeypatch.setattr(particles, "wide_of", lambda optima: None)
    monkeypatch.setattr(particles, "annealed_scouts", annealed)
    monkeypatch.setattr(particles, "with_ends_of", climbed)
    particles.Particles().make(state)
    assert [one.partition("; ")[2] for one in told] == [
        "annealing", "ascents from where they ended"
    ]  # fmt: skip

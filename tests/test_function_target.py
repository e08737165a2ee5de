"""Targets given by Python functions: their own exceptions reach the user."""

from __future__ import annotations

import re
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanct
from stanct import (
    FunctionDensity,
    FunctionTarget,
    GaussianBase,
    StochasticTarget,
    load,
    sample,
)
from stanct.common.arrays import Array
from stanct.common.errors import SamplingError, StanctError
from stanct.targets.function_target import FunctionWarning

BASE = GaussianBase(np.zeros(2), np.eye(2))


def always(x: Array) -> tuple[float, Array]:
    raise ZeroDivisionError("my own mistake")


def far_out(x: Array) -> tuple[float, Array]:
    if x[0] > 1:
        raise ValueError("no such place")
    return float(-0.5 * x @ x), -x


@pytest.mark.parametrize("method", ["gibbs", "parallel_tempering", "joint"])
def test_a_function_that_fails_tells_why_before_any_work(method: str) -> None:
    target = FunctionTarget(FunctionDensity(always, 2))
    with pytest.raises(ZeroDivisionError, match="my own mistake") as caught:
        sample(target, method, base=BASE, engine="embedded", progress=False)
    told = "".join(traceback.format_exception(caught.value))
    assert "in always" in told and 'raise ZeroDivisionError("my own mistake")' in told
    assert "The above exception" not in told and "During handling" not in told
    assert "a draw of the base, and it raised at all of" in told and "return -inf" in told


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda x: (1.0, 2.0), r"gradient of shape \(\), not \(2,\)"),
        (lambda x: (1.0, np.zeros(3)), r"gradient of shape \(3,\)"),
        (lambda x: 1.0, r"returns 1\.0, which is no number with a gradient"),
        (lambda x: ("a", x), r"could not convert string to float: 'a'\. Let it return the log"),
        (lambda x: (1.0, x, x), "too many values to unpack"),
        (lambda x: None, "returns None, which is no number"),
        (lambda x: (1.0, x * 1j), "the gradient is complex"),
        (lambda x: (1.0, ["a", "b"]), "could not convert string to float"),
        (lambda x: (1.0, [object(), 2]), "which is no number with a gradient"),
    ],
)
def test_what_it_returns_is_checked(returned, words: str) -> None:
    with pytest.raises(SamplingError, match=words):
        sample(FunctionTarget(FunctionDensity(returned, 2)), "gibbs", base=BASE, progress=False)


def test_the_first_exception_is_shown_and_the_others_are_counted() -> None:
    density = FunctionDensity(far_out, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        run = sample(
            FunctionTarget(density), "gibbs", base=BASE, draws=100, warmup=32, seed=1,
            threads=1, progress=False,
        )  # fmt: skip
    (told,) = [str(w.message) for w in caught if w.category is FunctionWarning]
    assert "in far_out" in told and "ValueError: no such place" in told
    assert isinstance(density.failure, ValueError) and run.draws == 100


class Dying:
    """A standard normal that fails from some call on."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def __call__(self, x: Array) -> tuple[float, Array]:
        self.left -= 1
        if self.left < 0:
            raise ValueError("dead")
        return float(-0.5 * x @ x), -x


@pytest.mark.filterwarnings("ignore::stanct.targets.function_target.FunctionWarning")
@pytest.mark.parametrize(
    ("method", "calls", "words"),
    [
        ("independence", 60, r"log z\(β\) is not finite"),
        ("independence", 1060, "vanishes, or is rejected, at all of 128 draws"),
        ("simulated_tempering", 900, "at all draws of the path"),
        ("parallel_tempering", 400, "No swap of two rungs could be tried"),
    ],
)
def test_a_function_that_dies_ends_the_run(method: str, calls: int, words: str) -> None:
    target = FunctionTarget(FunctionDensity(Dying(calls), 2))
    options: dict[str, Any] = {"draws": 64, "chains": 2, "seed": 1, "progress": False}
    if method != "independence":
        options["warmup"] = 64
    with pytest.raises(SamplingError, match=words) as caught:
        sample(target, method, base=BASE, threads=1, **options)
    _told(caught.value)


@pytest.mark.filterwarnings("ignore::stanct.targets.function_target.FunctionWarning")
def test_a_function_that_dies_later_leaves_no_log_z() -> None:
    """Where one chain has met it alive, and the other never has."""
    target = FunctionTarget(FunctionDensity(Dying(400), 2))
    options: dict[str, Any] = {"draws": 64, "warmup": 64, "chains": 2, "seed": 1}
    run: Any = sample(target, "gibbs", base=BASE, threads=1, progress=False, **options)
    assert {"rejections", "support"} <= set(run.warnings) and "not known" in run.evidence.unknown


def _told(error: StanctError) -> None:
    """The function's own exception is the cause, with its traceback, and the message has it."""
    assert re.search(r"exception at \d+ of \d+ calls.*: ValueError: dead\.", str(error))
    told = "".join(traceback.format_exception(error))
    assert isinstance(error.__cause__, ValueError) and 'raise ValueError("dead")' in told


@pytest.mark.filterwarnings("ignore::stanct.targets.function_target.FunctionWarning")
@pytest.mark.parametrize(("method", "calls"), [("auto", 51), ("auto", 299), ("joint", 299)])
def test_a_function_that_dies_tells_its_own_exception(method: str, calls: int) -> None:
    """For the second run too, with the same function, and not for what is wrong besides."""
    dying = Dying(calls)
    density = FunctionDensity(dying, 2)
    for _ in range(2):
        dying.left = calls
        with pytest.raises(StanctError) as caught:
            sample(FunctionTarget(density), method, base=BASE, draws=64, seed=1, progress=False)
        _told(caught.value)
    with pytest.raises(StanctError, match="chains") as caught:
        sample(FunctionTarget(density), method, base=BASE, chains=0, progress=False)
    assert caught.value.__cause__ is None and "dead" not in str(caught.value)


def test_a_stochastic_function_that_dies_tells_its_own_exception() -> None:
    """Where it dies while a chain is hot, which a run in four escapes: then its checks fail."""
    for seed in range(1, 9):
        dying = Dying(1000)
        target = StochasticTarget(lambda x, rng, dying=dying: dying(x), 2)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                run = sample(target, "tact", chains=1, draws=64, seed=seed, progress=False)
        except StanctError as error:
            return _told(error)
        assert "rejections" in run.warnings
    pytest.fail("No run ended.")


@pytest.mark.filterwarnings("ignore::stanct.targets.function_target.FunctionWarning")
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_function_that_dies_late_leaves_checks_that_fail(tmp_path: Path) -> None:
    """It lives through the warm-up, and is dead at all draws of the base."""
    target = FunctionTarget(FunctionDensity(Dying(3500), 2))
    run: Any = sample(
        target, "gibbs", base=BASE, draws=64, warmup=64, chains=2, seed=1, threads=1, progress=False
    )
    assert not np.isfinite(run.base_delta).any() and np.isfinite(run.delta).any()
    assert run.thermodynamic_evidence.std_error == np.inf
    assert {"support", "thermodynamic"} <= {*run.warnings}
    run.save(tmp_path / "dead")  # what a run is left with can be read again
    assert load(tmp_path / "dead").diagnostics == run.diagnostics


def test_a_log_density_whose_squares_overflow_is_refused() -> None:
    def huge(x: np.ndarray) -> tuple[float, np.ndarray]:
        return 1e308 * float(np.exp(-x @ x)), -x

    target = stanct.FunctionTarget(stanct.FunctionDensity(huge, 2))
    base = stanct.GaussianBase(np.zeros(2), np.eye(2))
    for method in ("auto", "gibbs", "adiabatic"):
        with pytest.raises(stanct.SamplingError, match=r"of the size 1e\+308 at draws of the base"):
            stanct.sample(target, method=method, base=base, seed=1, progress=False)

"""Programs of absurd size: an answer within seconds, or a clear limit in a few lines."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import target_of

from stanct import load, sample, temper
from stanct.api import preparing
from stanct.cli import commands, main
from stanct.common.errors import DataError, EngineError, ProgramError, SamplingError, StanctError
from stanct.engines import homes
from stanct.path.gaussian import GaussianBase
from stanct.runs.evidence_run import EvidenceRun
from stanct.samplers import _variables
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.targets.data import explain, read_data
from stanct.targets.density import Density
from stanct.targets.program_target import check_program

MODEL = "parameters {{ real x; }} model {{ {} }}"
SECONDS = 20.0


def refusal(source: str) -> str:
    start = time.process_time()
    with pytest.raises(ProgramError) as caught:
        check_program(Program.from_source(source))
    assert time.process_time() - start < SECONDS
    return str(caught.value)


HUGE = "generated quantities {{ vector[{0}] v = rep_vector(x, {0}); real w = x; }}"


def test_variables_larger_than_memory_are_refused_before_any_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target = target_of(MODEL.format("x ~ normal(0, 1);") + HUGE.format(1000))
    monkeypatch.setattr(preparing, "memory", lambda: 1e6)  # 3.2 MB of draws
    options: dict[str, Any] = {"draws": 100, "seed": 1, "progress": False}
    with pytest.raises(SamplingError, match=r"4 × 100 draws take 0\.0 GB.*(?s:.)*keep="):
        sample(target, "gibbs", **options)
    monkeypatch.setattr(type(target), "variables", _full)
    with pytest.raises(SamplingError, match="does not fit into memory: 12 GiB"):
        sample(target, "gibbs", thin=10, **options)


def _full(*given: Any) -> Any:
    raise MemoryError("12 GiB")


def test_more_memory_than_there_is_for_one_draw() -> None:
    program = Program.from_source(MODEL.format("") + HUGE.format(2_000_000_000))
    error = explain("std::bad_alloc", program, read_data({}, program))
    assert "need more memory than there is" in str(error) and "smaller" in str(error)


def test_kept_variables_take_no_room_for_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    target = target_of(MODEL.format("x ~ normal(0, 1);") + HUGE.format(500))
    sizes: list[int] = []
    compute = Density._variables

    def seen(self: Density, columns: Any, width: int, rng: Any, points: Any) -> Any:
        sizes.append(width * len(points))
        return compute(self, columns, width, rng, points)

    monkeypatch.setattr(Density, "_variables", seen)
    monkeypatch.setattr(_variables, "MOST_AT_ONCE", 8 * 502 * 10)
    base = GaussianBase(np.zeros(1), np.eye(1))
    run = sample(target, "gibbs", base=base, draws=64, keep=["w"], seed=1, progress=False)
    assert max(sizes) <= 5020 and run.variables["w"].shape == (4, 64)


def test_few_notes_are_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "many.stan"
    path.write_text(MODEL.format("target += -x^2;\n" * 1000))
    assert main.main(["temper", str(path)]) == 0
    notes = capsys.readouterr().err.splitlines()
    assert len(notes) == commands.MOST_NOTES + 1 and "and 980 more" in notes[-1]


def test_long_literals_have_none() -> None:
    numbers = ", ".join(f"-{k}" for k in range(30_000))
    source = f"transformed data {{ vector[30000] a = [{numbers}]'; }} {MODEL.format('')}"
    assert Program.from_source(source).blocks


def test_ten_thousand_statements() -> None:
    start = time.process_time()
    program = Program.from_source(MODEL.format("x ~ normal(0, 1); " * 10_000))
    for kind in ("density", "joint", "pseudo_extended"):
        generate(program, kind)
    assert time.process_time() - start < SECONDS


def test_what_nests_too_deeply_for_the_engine_is_not_blamed_on_the_data(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(homes, "find", lambda: None)  # a CmdStan would compile it
    target = target_of(MODEL.format("if (x > 1) x ~ normal(0, 1); else " * 1000 + ";"))
    with pytest.raises(EngineError, match=r"The embedded engine cannot run this program.*nesting"):
        _ = target.density


def test_an_empty_array_that_the_engine_does_not_know_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The remedy works."""
    monkeypatch.setattr(homes, "find", lambda: None)
    source = (
        "data {{ int n; array[n] int y; }} parameters {{ real m; }} "
        "model {{ m ~ normal(0, 1); {} y ~ poisson(exp(m)); }}"
    )
    empty = {"n": 0, "y": []}
    with pytest.raises(EngineError, match=r"empty, put `if \(n > 0\)` before.*CmdStan"):
        _ = target_of(source.format(""), empty).density
    guarded = target_of(source.format("if (n > 0)"), empty).density
    assert guarded.log_density_gradient(np.zeros(1))[0] == pytest.approx(-0.918938533)


def test_a_hundred_thousand_dimensions() -> None:
    start = time.process_time()
    target = target_of("parameters { vector[100000] x; } model { x ~ normal(0, 1); }")
    every: list[dict[str, Any]] = [{"method": "joint"}, {"method": "gibbs", "base": "pilot"}]
    for settings in every:
        with pytest.raises(SamplingError, match=r"has 100000 unconstrained .* 10100 at most"):
            sample(target, engine="auto", progress=False, **settings)
    assert time.process_time() - start < SECONDS


@pytest.mark.parametrize(
    "source",
    [
        f"parameters {{ real x; }} model {{ x ~ normal(0, 1) {'y ' * 50_000}; }}",
        f"parameters {{ real {'x' * 100_000}; }} model {{ y ~ foo(1); }}",
        f'parameters {{ real x; }} model {{ print("{"a" * 10**6}"); x ~ bad(1); }}',
        f"#include {'long' * 50_000}\nparameters {{ real x; }}",
    ],
)
def test_no_message_is_longer_than_a_few_lines(source: str) -> None:
    assert len(refusal(source)) < 3000


@pytest.mark.parametrize("character", ["q", "/b"])
def test_long_words_of_users_are_cut(character: str, tmp_path: Path) -> None:
    """Paths, names and values of the user's stand in messages, whose length is limited once."""
    long: Any = character * 10**5
    model = temper("data { int n; } " + MODEL.format("x ~ normal(0, 1);"))
    asked: list[Any] = [
        lambda: temper(f"/{long}.stan"),
        lambda: temper("#include a.stan\n" + MODEL.format(""), include_paths=[f"/{long}"]),
        lambda: model.sample(f"/{long}.json"),
        lambda: model.sample({long: 1}),
        lambda: model.sample({"n": 1, long: float("nan")}),
        lambda: model.sample({"n": 1}, method=long),
        lambda: model.sample({"n": 1}, seed=long),
        lambda: model.sample({"n": 1}, keep=[long]),
        lambda: model.sample({"n": 1}, checkpoint=f"/{long}"),
        lambda: model.sample({"n": 1}, inits=f"/{long}"),
        lambda: load(f"/{long}"),
    ]
    for ask in asked:
        with pytest.raises(StanctError) as caught:
            ask()
        assert len(str(caught.value)) < 700


def test_halves_of_characters() -> None:
    with pytest.raises(ProgramError) as caught:
        temper("/\ud800.stan")
    assert str(caught.value).encode()


def test_the_caret_stays_under_its_column() -> None:
    told = refusal("parameters { real x; } model { " + "x ~ normal(0, 1); " * 40 + "x ~ ; }")
    excerpt, caret = told.split("\n")[1:3]
    assert excerpt[caret.index("^") :].startswith("; }")
    assert len(excerpt) < 120


def test_a_long_list_of_names_is_cut() -> None:
    program = Program.from_source("data { int N; } " + MODEL.format(""))
    with pytest.raises(DataError, match="`N` is declared here") as caught:
        read_data({f"name{k}": 1 for k in range(5000)}, program)
    assert len(str(caught.value)) < 3000
    assert len(str(StanctError("a" * 10**6, remedy="b" * 10**6))) < 5000


@pytest.mark.parametrize("constant", ["-1e12", "1e15"])
def test_a_large_constant_is_only_rounded(constant: str) -> None:
    """The moments of δ once took all draws for outside of the support."""
    source = f"parameters {{ vector[2] x; }} model {{ x ~ std_normal(); target += {constant}; }}"
    run = sample(target_of(source), "simulated_tempering", draws=100, seed=1, progress=False)
    assert isinstance(run, EvidenceRun)
    evidence = run.evidence
    assert abs(evidence.log_z - float(constant)) <= 4 * evidence.std_error
    assert evidence.std_error < 1e-9 * abs(float(constant))
    assert run.expect("x").value == pytest.approx([0, 0], abs=0.5)

"""The lines that repeat a run name what made its model, and the class of its method."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest
from test_execution import BASE

import stanct
from stanct.cli.main import main
from stanct.common.settings import Whole
from stanct.pages.reproduction import command_line, python_lines

PROGRAM = """#include part.stan
model { target += std_normal_lpdf(x); }"""


@dataclass(frozen=True, kw_only=True)
class Slower(stanct.Gibbs):
    """A method of the user's own."""

    pauses: Annotated[int, Whole(0)] = 0


@dataclass(frozen=True, kw_only=True)
class Nameless(stanct.Method[Any]):
    def run(self, job: Any) -> Any:
        raise AssertionError("It must not come to this.")


@dataclass(frozen=True, kw_only=True)
class Named(Nameless):
    name: ClassVar[str] = "named"


def model_in(folder: Path, **made: Any) -> stanct.TemperedModel:
    (folder / "parts").mkdir()
    (folder / "parts" / "part.stan").write_text("parameters { real x; }")
    (folder / "model.stan").write_text(PROGRAM)
    return stanct.temper(folder / "model.stan", include_paths=[folder / "parts"], **made)


def test_how_the_model_was_made(tmp_path: Path) -> None:
    model = model_in(tmp_path, prefix="my_", hierarchies="as written")
    short: Any = {"draws": 16, "warmup": 32, "seed": 1, "progress": False, "base": "laplace"}
    run: Any = model.sample(None, stanct.Gibbs(transitions=2), **short)
    command = command_line(run) or ""
    parts = str(tmp_path / "parts")
    assert f"--include-path {parts} " in command and "--prefix my_" in command
    assert "--hierarchies as-written" in command
    lines = python_lines(run) or ""
    assert f"prefix='my_', include_paths=['{parts}'])" in lines
    lines = lines.replace("'laplace'", "'laplace', progress=False")
    there: dict[str, Any] = {}
    exec(lines, there)
    assert there["run"].evidence == run.evidence
    assert main([*command.split()[1:], "--quiet"]) == 0


def test_a_method_of_the_users_own_class(tmp_path: Path) -> None:
    short: Any = {"draws": 16, "warmup": 32, "seed": 1, "progress": False, "base": "laplace"}
    run: Any = model_in(tmp_path).sample(None, Slower(pauses=3, transitions=2), **short)
    assert command_line(run) is None
    lines = python_lines(run) or ""
    assert "    Slower(pauses=3, transitions=2)," in lines and "stanct.Gibbs" not in lines
    assert "# Slower is the class of your method" in lines
    built_in: Any = stanct.sample(model_in_one(), stanct.Gibbs(), **short)
    assert "stanct.Gibbs()" in (python_lines(built_in) or "")


def model_in_one() -> Any:
    from conftest import target_of

    return target_of("parameters { real x; } model { target += std_normal_lpdf(x); }")


@pytest.mark.parametrize(
    ("method", "words"),
    [(Nameless(), "Nameless has no `name`"), (Named(), "Named has no `default_draws`")],
)
def test_a_method_that_lacks_something_says_so(method: Any, words: str) -> None:
    with pytest.raises(stanct.SamplingError, match=rf"{words}.*ClassVar"):
        stanct.sample(model_in_one(), method, base=BASE)


def test_the_command_line_names_the_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "model.stan").write_text(
        "data { real y; } parameters { real x; } model { target += normal_lpdf(x | y, 1); }"
    )
    (tmp_path / "data.json").write_text('{"y": 1, "z": 2}')
    files = ["evidence", str(tmp_path / "model.stan"), str(tmp_path / "data.json")]
    assert main([*files, "--method", "gibbs", "--set", "draws=8"]) == 1
    assert "goes with every method" in (told := capsys.readouterr().err)
    assert "Did you mean --draws?" in told
    short = ["--method", "gibbs", "--draws", "16", "--warmup", "32", "--quiet"]
    assert main([*files, *short, "--base", "laplace", "--seed", "1"]) == 0
    assert "does not declare `z`" in capsys.readouterr().err

"""`temper` reads a path or a text, and says which one it could not read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stanct
from stanct.common.errors import ProgramError, StanctError

TEXT = "parameters { real x; }\nmodel { x ~ normal(0, 1); }\n"


def test_text_and_path_are_one_program(tmp_path: Path) -> None:
    path = tmp_path / "one.stan"
    path.write_text(TEXT, encoding="utf-8")
    texts = (TEXT, TEXT.replace("\n", " "))
    for model in (stanct.temper(path), stanct.temper(str(path)), *map(stanct.temper, texts)):
        assert model.density().log_density_gradient(np.zeros(1))[0] == pytest.approx(
            -0.9189, abs=1e-4
        )
    assert stanct.temper(TEXT).program.source_hash == stanct.temper(path).program.source_hash
    assert "model.stan" in repr(stanct.temper(TEXT))


def test_text_may_include_files_of_given_folders(tmp_path: Path) -> None:
    (tmp_path / "prior.stan").write_text("x ~ normal(0, 1);\n", encoding="utf-8")
    text = "parameters { real x; }\nmodel {\n#include prior.stan\n}\n"
    model = stanct.temper(text, include_paths=[tmp_path])
    assert "normal" in model.stan_code("density")


@pytest.mark.parametrize(
    ("program", "kind", "message"),
    [
        ("no_such.stan", ProgramError, r"no_such\.stan: There is no such file"),
        (TEXT.replace("~", "~~"), ProgramError, r"model\.stan:2"),
        ("model { }", ProgramError, "no parameters"),
        (3, StanctError, "a path or a text, and not of the type 'int'"),
    ],
)
def test_what_is_neither(program: Any, kind: type[StanctError], message: str) -> None:
    with pytest.raises(kind, match=message):
        stanct.temper(program)

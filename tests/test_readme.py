"""README: its Python block runs, and its commands are those of CI."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import LONG, ROOT

import stanct

README = (ROOT / "README.md").read_text(encoding="utf-8")


@LONG
def test_python_block(tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every line of the README's Python runs as written, from the checkout's folder."""
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)
    assert "radon_run" in code
    code = code.replace('"radon_run"', repr(str(tmp_path / "radon_run")))
    code = code.replace('"radon.html"', repr(str(tmp_path / "radon.html")))
    monkeypatch.chdir(ROOT)
    names: dict = {"print": lambda text: None}
    exec(code, names)
    run = names["run"]
    assert abs(run.evidence.log_z + 1081.0216905) < 4 * run.evidence.std_error
    assert run.evidence.std_error <= 0.1
    assert abs(run.expect("mu_alpha").value - 1.4613325) < 4 * run.expect("mu_alpha").std_error
    assert "checks passed." in (tmp_path / "radon.html").read_text(encoding="utf-8")
    again = stanct.load(tmp_path / "radon_run")
    assert np.array_equal(again.z, run.z)


def test_ci_runs_the_readme_s_test_command() -> None:
    commands = re.findall(r"```sh\n(.*?)\n```", README, flags=re.S)
    assert len(commands) == 2
    assert commands[1] in (ROOT / ".ci" / "run").read_text()

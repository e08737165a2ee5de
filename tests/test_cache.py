"""The cache of what CmdStan compiled: what others could have made or what is cut is not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_cmdstan import SOURCE, compiler
from test_cmdstan import home as home  # a fixture

from stanct.engines.cache import CACHE_VARIABLE
from stanct.engines.cmdstan import CmdStan
from stanct.engines.homes import Home
from stanct.errors import EngineError


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize("way", ["cache", "above", "link"])
def test_what_someone_else_could_have_replaced_is_not_run(
    home: Home, tmp_path: Path, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder above that others can write lets them put another in the place of the cache."""
    compiler(monkeypatch, [])
    above = tmp_path / "above"
    (above / "mine").mkdir(parents=True)
    monkeypatch.setenv(CACHE_VARIABLE, str(above / "mine" / "cache"))
    if way == "link":
        (tmp_path / "way").symlink_to(above / "mine")
        monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "way" / "cache"))
    executable = CmdStan(home).compiled(SOURCE)
    assert executable.resolve().parents[1] == above / "mine" / "cache"
    (above / "mine" / "cache" if way == "cache" else above).chmod(0o777)
    with pytest.raises(EngineError, match=r"could have replaced it.*(?s:.)*STANCT_CACHE"):
        CmdStan(home).compiled(SOURCE)
    (above / "mine" / "cache" if way == "cache" else above).chmod(0o1777)  # as /tmp
    assert CmdStan(home).compiled(SOURCE) == executable


def test_a_damaged_executable_is_built_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    executable = CmdStan(home).compiled(SOURCE)
    executable.write_text(SOURCE[:-9])
    assert CmdStan(home).compiled(SOURCE).read_text() == SOURCE and len(calls) == 2
    executable.with_name("model.sha256").unlink()  # as an earlier version left it
    assert CmdStan(home).compiled(SOURCE).read_text() == SOURCE and len(calls) == 2
    assert executable.with_name("model.sha256").exists()

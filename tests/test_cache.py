"""The cache of what CmdStan compiled: what others could have made or what is cut is not run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from test_cmdstan import SOURCE, compiler
from test_cmdstan import home as home  # a fixture

from stanct.common import compiling
from stanct.engines.cache import CACHE_VARIABLE
from stanct.engines.cmdstan import CmdStan
from stanct.engines.homes import Home


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
def test_folders_of_the_cache_are_the_users_own_whatever_the_umask(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "own" / "cache"))
    monkeypatch.setattr(compiling.config, "CACHE_DIR", str(tmp_path / "own" / "numba"))
    compiler(monkeypatch, [])
    before = os.umask(0o000)
    try:
        executable, loops = CmdStan(home).compiled(SOURCE), compiling._prepared_folder()
    finally:
        os.umask(before)
    assert loops is not None
    for folder in (*executable.parents[:3], loops, *loops.parents[:2]):
        assert folder.is_relative_to(tmp_path / "own") and folder.stat().st_mode & 0o077 == 0


def test_what_killed_builds_left_is_removed_after_a_day(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "cache"
    monkeypatch.setenv(CACHE_VARIABLE, str(folder))
    compiler(monkeypatch, [])
    young, old = folder / ".building-young", folder / ".building-old"
    young.mkdir(parents=True)
    old.mkdir()
    os.utime(old, (0, 0))
    executable = CmdStan(home).compiled(SOURCE)
    assert {path.name for path in folder.iterdir()} == {young.name, executable.parent.name}


def test_a_new_program_may_be_compiled_in_a_folder_as_tmp(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, [])
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)
    assert CmdStan(home).compiled(SOURCE).is_relative_to(tmp_path / "cache")

"""The cache of what CmdStan compiled: what others could have made or what is cut is not run."""

from __future__ import annotations

import grp
import os
import pwd
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_cmdstan import SOURCE, compiler
from test_cmdstan import home as home  # a fixture

from stanct import compiling
from stanct.engines import cache
from stanct.engines.cache import CACHE_VARIABLE
from stanct.engines.cmdstan import CmdStan
from stanct.engines.homes import Home
from stanct.errors import EngineError
from stanct.resources import _is_private


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


def test_a_home_that_cannot_be_written_has_its_cache_elsewhere(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    own, temporary = tmp_path / "own", tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.delenv(CACHE_VARIABLE)
    monkeypatch.setattr(cache, "user_cache_path", lambda *_, **__: own)
    monkeypatch.setattr(cache.tempfile, "gettempdir", lambda: str(temporary))
    own.touch()  # no folder can be made there
    executable = CmdStan(home).compiled(SOURCE)
    assert executable.is_relative_to(temporary)
    own.unlink()  # what has been built is used wherever it is
    assert CmdStan(home).compiled(SOURCE) == executable and len(calls) == 1
    (executable.parents[1] / executable.parent.name).rename(temporary / "away")
    assert CmdStan(home).compiled(SOURCE).is_relative_to(own)


def test_a_damaged_executable_is_built_again(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    executable = CmdStan(home).compiled(SOURCE)
    executable.write_text(SOURCE[:-9])
    assert CmdStan(home).compiled(SOURCE).read_text() == SOURCE and len(calls) == 2
    executable.with_name("model.sha256").unlink()  # as an earlier version left it
    assert CmdStan(home).compiled(SOURCE).read_text() == SOURCE and len(calls) == 2
    assert executable.with_name("model.sha256").exists()


ME, OTHER = os.geteuid(), 54321


@pytest.fixture
def shared(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for the cache that a group can write, as the umask 002 makes all folders."""
    folder = tmp_path / "shared"
    folder.mkdir()
    folder.chmod(0o775)
    monkeypatch.setenv(CACHE_VARIABLE, str(folder / "own" / "cache"))
    before = os.umask(0o002)
    _is_private.cache_clear()
    yield folder
    os.umask(before)
    _is_private.cache_clear()


def accounts(
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    *,
    name: str = "me",
    members: tuple[str, ...] = (),
    primary: bool = True,
    also: int | None = None,
) -> list[int]:
    """Let this user be `me`, with a group of the number; returned are the look-ups of all users."""
    asked: list[int] = []

    def user(uid: int, group: int) -> Any:
        return SimpleNamespace(pw_uid=uid, pw_gid=group, pw_name="me" if uid == ME else "other")

    mine = user(ME, number if primary else number + 1)
    users = [mine, user(OTHER, number + 2 if also is None else also)]

    def everybody() -> list[Any]:
        asked.append(number)
        return users

    group = SimpleNamespace(gr_gid=number, gr_name=name, gr_mem=list(members))
    monkeypatch.setattr(pwd, "getpwuid", lambda _: mine)
    monkeypatch.setattr(pwd, "getpwall", everybody)
    monkeypatch.setattr(grp, "getgrgid", lambda _: group)
    return asked


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize("members", [(), ("me",)])
def test_a_group_of_the_user_alone_may_write(
    home: Home, shared: Path, members: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = accounts(monkeypatch, shared.stat().st_gid, members=members)
    compiler(monkeypatch, [])
    executable = CmdStan(home).compiled(SOURCE)
    assert CmdStan(home).compiled(SOURCE) == executable
    assert len(asked) == 1
    monkeypatch.setattr(compiling.config, "CACHE_DIR", str(shared / "own" / "numba"))
    loops = compiling._prepared_folder()
    assert loops is not None
    for folder in (*executable.parents[:3], loops, *loops.parents[:2]):  # whatever the umask
        assert folder.is_relative_to(shared / "own") and folder.stat().st_mode & 0o077 == 0


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
@pytest.mark.parametrize("why", ["member", "not primary", "another's", "name", "all", "list"])
def test_other_groups_may_not_and_nothing_is_compiled(
    home: Home, shared: Path, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = shared.stat().st_gid
    accounts(
        monkeypatch,
        group,
        name="users" if why == "name" else "me",
        members=("me", "other") if why == "member" else (),
        primary=why != "not primary",
        also=group if why == "another's" else None,
    )
    if why == "all":
        shared.chmod(0o777)
    if why == "list":  # of users beside owner and group, for all of whom the group's bits stand
        monkeypatch.setattr(os, "getxattr", lambda *_: b"list", raising=False)
    calls: list[dict] = []
    compiler(monkeypatch, calls)
    with pytest.raises(EngineError, match=r"could have replaced it.*shared is theirs"):
        CmdStan(home).compiled(SOURCE)
    assert calls == []
    assert not list((shared / "own" / "cache").iterdir())


@pytest.mark.skipif(os.name != "posix", reason="other systems have other rights")
def test_a_new_program_may_be_compiled_in_a_folder_as_tmp(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler(monkeypatch, [])
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o1777)
    assert CmdStan(home).compiled(SOURCE).is_relative_to(tmp_path / "cache")

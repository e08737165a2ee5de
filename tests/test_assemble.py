"""The assembled CmdStan home: failures are reported, and nothing half-installed remains."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
import zipfile
from collections import namedtuple
from pathlib import Path

import pytest
from conftest import ROOT

from stanct.cli.main import main
from stanct.common.errors import EngineError
from stanct.engines import assemble as module
from stanct.engines.assemble import HOME_NAME, assemble, is_assembled, is_current

SOURCES = ROOT / "stanct" / "engines" / "cmdstan_home"
# Stands in for make: writes what the installation looks for, so that no test compiles.
MODEL = """#!/bin/sh
for word in "$@"; do case "$word" in file=*.csv) touch "${word#file=}";; esac; done
"""
MAKE = f"""#!/bin/sh
case "$*" in
  *bernoulli*)
    cd examples/bernoulli; touch bernoulli.hpp
    printf '%s' '{MODEL}' > bernoulli; chmod +x bernoulli ;;
  *build*) SECOND ;;
esac
"""


def script(path: Path, text: str) -> Path:
    path.write_text(text)
    path.chmod(0o755)
    return path


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small wheel with the layout of httpstan's, expected by its hash; tools that do nothing."""
    path = tmp_path / "httpstan-4.17.0.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("include/stan/version.hpp", "include/pybind11/x.h", "lib/libtbb.so", "stanc"):
            archive.writestr(f"httpstan/{name}", "text")
    expect(path, monkeypatch)
    monkeypatch.setenv("MAKE", str(script(tmp_path / "make", MAKE.replace("SECOND", ":"))))
    monkeypatch.setenv("CXX", "true")
    return path


def expect(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    monkeypatch.setattr(module, "_expected_hash", lambda: digest)


# Copies as `cp` of coreutils does: it fails if the file came into being after it looked.
COPY = """#!/bin/sh
to=$2; [ -d "$to" ] && to=$to/$(basename "$1")
if [ -e "$to" ]; then cat "$1" > "$to"; else sleep 0.5; set -C; cat "$1" > "$to"; fi
"""
COMPILER = """#!/bin/sh
while [ $# -gt 0 ]; do [ "$1" = -o ] && echo whole > "$2"; shift; done
"""


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
def test_two_first_builds_share_a_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    header = tmp_path / "include" / "stan" / "model" / "model_header.hpp"
    header.parent.mkdir(parents=True)
    header.write_text("text")
    shutil.copy(SOURCES / "makefile", tmp_path)
    (tmp_path / "tools").mkdir()
    script(tmp_path / "tools" / "cp", COPY)
    compiler = script(tmp_path / "tools" / "compiler", COMPILER)
    monkeypatch.setenv("PATH", str(tmp_path / "tools"), prepend=os.pathsep)
    goal = "build/plain/header/stan/model/model_header.hpp.gch"
    command = ["make", f"CXX={compiler}", "CXX_TYPE=gcc", goal]
    makes = [
        subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        for _ in range(2)
    ]
    told = [make.communicate(timeout=60)[0] for make in makes]
    assert [make.returncode for make in makes] == [0, 0], told
    assert (tmp_path / goal).read_text() == "whole\n"
    assert (tmp_path / goal).with_suffix("").read_text() == "text"


def assert_nothing_left(home: Path) -> None:
    assert not home.exists()
    assert [p.name for p in home.parent.iterdir() if p.name.startswith(f".{home.name}-")] == []


def assert_nothing_else(home: Path) -> None:
    """Beside a home only its lock may lie, which some versions of filelock leave behind."""
    assert {p.name for p in home.parent.iterdir()} - {f".{HOME_NAME}.lock"} == {HOME_NAME}


def test_a_home_is_whole_and_made_once(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / "dot" / HOME_NAME
    told: list[str] = []
    assert assemble(home, wheel=wheel, report=told.append) == home
    assert is_assembled(home) and is_current(home)
    assert "CMDSTAN_VERSION := 2.39.0" in (home / "makefile").read_text()
    assert os.access(home / "bin" / "stanc", os.X_OK)
    assert (home / "include" / "stan" / "version.hpp").exists()
    assert not (home / "include" / "pybind11").exists()
    assert not (home / "examples" / "bernoulli" / "bernoulli").exists()
    assert_nothing_else(home)
    assemble(home, wheel=tmp_path / "missing", report=told.append)
    assert told[-1] == f"{home} is complete; nothing to do."


def test_it_says_how_far_it_is(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SILENCE", 0.2)
    slow = MAKE.replace("SECOND", 'echo "c++ -c -o one"; sleep 1')
    script(Path(os.environ["MAKE"]), slow)
    told: list[str] = []
    assemble(tmp_path / "home", wheel=wheel, report=told.append)
    assert sum(line.endswith(" s so far") for line in told) >= 2


def test_a_home_of_other_sources_is_replaced(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / HOME_NAME
    assemble(home, wheel=wheel)
    marker = home / module.MARKER
    marker.write_text(marker.read_text().replace(module._digest(), "older"))
    (home / "stale").touch()
    assemble(home, wheel=wheel)
    assert is_current(home) and not (home / "stale").exists()


def test_only_sources_count(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """New words on the home's page are no reason to compile for minutes; a new makefile is."""
    sources = shutil.copytree(module._SOURCES, tmp_path / "sources")
    monkeypatch.setattr(module, "_SOURCES", sources)
    home = tmp_path / HOME_NAME
    assemble(home, wheel=wheel)
    (sources / "README.md").write_text("New words.")
    assert is_current(home)
    (sources / "makefile").write_text("new:")
    assert not is_current(home)


def test_the_wrong_wheel(wheel: Path, tmp_path: Path) -> None:
    with wheel.open("ab") as stream:
        stream.write(b"x")
    with pytest.raises(EngineError, match=r"is not the wheel.*SHA-256 is [0-9a-f]{64}, expected"):
        assemble(tmp_path / "dot" / HOME_NAME, wheel=wheel)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


@pytest.mark.parametrize(
    ("variable", "words"),
    [("MAKE", r"No make was found.*absent"), ("CXX", r"No C\+\+ compiler was found.*absent")],
)
def test_missing_tools(
    variable: str, words: str, wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "absent")
    with pytest.raises(EngineError, match=words) as caught:
        assemble(tmp_path / HOME_NAME, wheel=wheel)
    assert "apt-get install g++ make" in str(caught.value)


def test_a_platform_without_a_wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.platform, "machine", lambda: "riscv64")
    with pytest.raises(EngineError, match=r"no wheel for \S+ riscv64.*official CmdStan"):
        assemble(tmp_path / HOME_NAME)


def test_a_folder_that_cannot_be_written(wheel: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(EngineError, match=r"cannot be written: .*--dir.*CMDSTAN=FOLDER"):
        assemble(tmp_path / "file" / "below" / HOME_NAME, wheel=wheel)


def test_a_folder_of_someone_else(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / HOME_NAME
    home.mkdir()
    (home / "theirs").touch()
    with pytest.raises(EngineError, match="exists and was not made by stanct"):
        assemble(home, wheel=wheel, replace=True)
    assert (home / "theirs").exists()


def test_a_small_disk(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: usage(9, 9, 5e8))
    with pytest.raises(EngineError, match=r"0\.5 GB free; the home needs 2 GB"):
        assemble(tmp_path / "dot" / HOME_NAME, wheel=wheel)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


def test_a_disk_that_fills_up(wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_args: object, **_settings: object) -> None:
        raise OSError(28, "No space left on device", "include/Eigen")

    monkeypatch.setattr(zipfile.ZipFile, "extract", full)
    with pytest.raises(EngineError, match=r"include/Eigen could not be written: No space left"):
        assemble(tmp_path / "dot" / HOME_NAME, wheel=wheel)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


def test_a_build_that_fails(wheel: Path, tmp_path: Path) -> None:
    failing = "echo 'fatal error: No space left on device'; exit 2"
    script(Path(os.environ["MAKE"]), MAKE.replace("SECOND", failing))
    with pytest.raises(EngineError, match=r"(?s)status 2:.*No space left.*Make room on the disk"):
        assemble(tmp_path / "dot" / HOME_NAME, wheel=wheel)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


def test_a_home_whose_models_do_not_run(wheel: Path, tmp_path: Path) -> None:
    broken = MAKE.replace("SECOND", ":").replace(
        "for word", "echo cannot load libtbb; exit 1; for word"
    )
    script(Path(os.environ["MAKE"]), broken)
    with pytest.raises(EngineError, match=r"(?s)does not run.*cannot load libtbb"):
        assemble(tmp_path / "dot" / HOME_NAME, wheel=wheel)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


def test_a_replacement_that_fails_leaves_the_old_home(wheel: Path, tmp_path: Path) -> None:
    home = tmp_path / HOME_NAME
    assemble(home, wheel=wheel)
    script(Path(os.environ["MAKE"]), MAKE.replace("SECOND", "exit 2"))
    with pytest.raises(EngineError, match="status 2"):
        assemble(home, wheel=wheel, replace=True)
    assert is_current(home)


def test_a_killed_installation(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Killed in its build: no home, and the next installation sweeps what was left."""
    home = tmp_path / "dot" / HOME_NAME
    sleeping = MAKE.replace("SECOND", f"touch {tmp_path}/building; exec sleep 60")
    script(Path(os.environ["MAKE"]), sleeping)
    code = (
        "import sys; from pathlib import Path; import stanct.engines.assemble as a; "
        f"a._expected_hash = lambda: {hashlib.sha256(wheel.read_bytes()).hexdigest()!r}; "
        f"a.assemble(Path({str(home)!r}), wheel=Path({str(wheel)!r}))"
    )
    child = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "building").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    with pytest.raises(EngineError, match="Another installation into"):
        assemble(home, wheel=wheel)
    os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    assert not home.exists() and list(home.parent.glob(f".{HOME_NAME}-*"))
    script(Path(os.environ["MAKE"]), MAKE.replace("SECOND", ":"))
    assemble(home, wheel=wheel)
    assert_nothing_else(home)


def test_no_pip_or_no_index(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    with pytest.raises(
        EngineError, match=r"(?s)could not download httpstan==4\.17\.0.*--wheel FILE"
    ):
        assemble(tmp_path / "dot" / HOME_NAME)
    assert_nothing_left(tmp_path / "dot" / HOME_NAME)


def test_the_command(wheel: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["install-cmdstan", "--dir", str(tmp_path / "home"), "--wheel", str(wheel)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    assert captured.out == f"CmdStan 2.39.0 (assembled by stanct) in {tmp_path / 'home'}\n"
    assert f"export CMDSTAN={tmp_path / 'home'}" in captured.err
    shutil.rmtree(tmp_path / "home")
    wheel.write_bytes(b"")
    assert main(arguments) == 1
    assert capsys.readouterr().err.startswith("stanct: httpstan-4.17.0.whl is not the wheel")


@pytest.mark.parametrize("flags", ["fpu sse2 avx fma avx2 bmi2", "avx avx2x fma", "avx avx2", None])
def test_models_suit_the_processor(
    wheel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str | None
) -> None:
    """What models share is built for it, and so are all models that follow."""
    told = tmp_path / "cpuinfo"
    if flags:
        told.write_text(f"vendor_id\t: x\nflags\t\t: {flags}\n\nflags : none\n")
    suit = module._suit_processor
    monkeypatch.setattr(module, "_suit_processor", lambda folder: suit(folder, told))
    # As `make` would, before it builds.
    log = MAKE.replace("SECOND", f"cp make/local {tmp_path}/seen || true")
    monkeypatch.setenv("MAKE", str(script(tmp_path / "telling", log)))
    local = assemble(tmp_path / "homes", wheel=wheel) / "make" / "local"
    wide = flags is not None and "bmi2" in flags
    assert local.exists() == (tmp_path / "seen").exists() == wide
    assert not wide or "\nSTAN_AVX2 = TRUE\n" in local.read_text()

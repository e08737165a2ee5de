"""Assembles a CmdStan home from PyPI alone.

The wheel of httpstan holds all of CmdStan but its command line: stanc, the headers of Stan, Math,
Boost, Eigen, SUNDIALS and TBB, and their libraries. The folder `cmdstan_home` beside this file
holds the rest.

The home is built and tested in a temporary folder beside its final place and renamed at the end. A
broken, interrupted or concurrent installation is therefore never visible.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

from stanct.common.errors import EngineError

STAN_VERSION = "2.39.0"
# cmdstanpy prefers folders `cmdstan-<number>` to other names, so an official CmdStan always wins.
HOME_NAME = "cmdstan-stanct"
MARKER = "stanct.json"

_REQUIREMENT = "httpstan==4.17.0"
_WHEELS = {
    ("Linux", "x86_64"): "b05349967ad19a6970d4392732653b8ad98839cb3cb7a7e8a493ae70a264988e",
    ("Darwin", "arm64"): "f1559fce9ae4aaff28e5faaad368591a43d158869b378fc0ed2fea9731ee8510",
}
_LOCAL = """\
# This machine's processor has AVX2. Without the next line, executables run on older ones, too.
STAN_AVX2 = TRUE
"""
_SOURCES = Path(__file__).parent / "cmdstan_home"
_NEEDED_BYTES = 2_000_000_000
# Seconds between lines that say how far a step is.
_SILENCE = 10.0
_TOOLS_REMEDY = (
    "Install a C++17 compiler and GNU make: `apt-get install g++ make` on Debian and Ubuntu, "
    "`dnf install gcc-c++ make` on Fedora, `xcode-select --install` on macOS."
)


def default_home() -> Path:
    """Return the folder in which cmdstanpy finds the assembled home by default."""
    return Path.home() / ".cmdstan" / HOME_NAME


def is_assembled(home: Path) -> bool:
    """Return whether `home` is a complete assembled home rather than an official CmdStan."""
    return (home / MARKER).is_file()


def is_current(home: Path) -> bool:
    """Return whether an assembled home was made from the sources of this version of stanct."""
    marker = json.loads((home / MARKER).read_text(encoding="utf-8"))
    return marker["wheel"] == _REQUIREMENT and marker["sources"] == _digest()


def _digest() -> str:
    """Return the SHA-256 of what is added to the wheel, without its README."""
    told = hashlib.sha256(_LOCAL.encode())
    for path in sorted(_SOURCES.rglob("*")):
        if path.is_file() and path.name != "README.md":
            told.update(f"{path.relative_to(_SOURCES).as_posix()}\0".encode() + path.read_bytes())
    return told.hexdigest()


def assemble(
    home: Path | None = None,
    *,
    wheel: Path | None = None,
    jobs: int | None = None,
    replace: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Path:
    """Assemble a CmdStan home, in which a small model was compiled and run; return its folder.

    By default it is the one in which cmdstanpy looks. The SHA-256 of a `wheel` that was already
    downloaded is checked all the same. `jobs` compile at a time, by default one per core and at
    most 4, as each takes 2 GB of memory. With `replace` it is built even if this version exists.
    `report` gets a line at the start of each step, and every ten seconds within it.
    """
    home = (home or default_home()).expanduser().absolute()
    if is_assembled(home) and is_current(home) and not replace:
        report(f"{home} is complete; nothing to do.")
        return home
    if home.exists() and not is_assembled(home):
        raise EngineError(
            f"{home} exists and was not made by stanct.",
            remedy="Pass another folder with --dir, or remove it yourself.",
        )
    sha256 = _expected_hash()
    make = _find_make()
    with _workshop(home) as folder:
        wheel = _checked(wheel or _download(folder, report), sha256)
        report(f"Unpacking {wheel.name}")
        _unpack(wheel, folder)
        _suit_processor(folder)
        jobs = jobs or min(4, os.cpu_count() or 1)
        report(f"Compiling what all models share, {jobs} at a time (some minutes)")
        _make(folder, "build", make, report, f"JOBS={jobs}")
        _try(folder, make, report)
        marker = {"stan": STAN_VERSION, "wheel": _REQUIREMENT, "sources": _digest()}
        (folder / MARKER).write_text(json.dumps(marker) + "\n")
        _put_in_place(folder, home)
    report(f"{home} is complete.")
    return home


def _expected_hash() -> str:
    machine = (platform.system(), platform.machine())
    if machine not in _WHEELS:
        raise EngineError(
            f"httpstan has no wheel for {' '.join(machine)}.",
            remedy="Install an official CmdStan; see https://mc-stan.org/install.",
        )
    return _WHEELS[machine]


def _find_make() -> str:
    """Return the name of make, after a look for it and for a compiler."""
    make = os.environ.get("MAKE", "make")
    if shutil.which(make) is None:
        raise EngineError(f"No make was found (looked for {make!r}).", remedy=_TOOLS_REMEDY)
    names = [os.environ["CXX"]] if os.environ.get("CXX") else ["g++", "clang++"]
    if not any(map(shutil.which, names)):
        told = f"No C++ compiler was found (looked for {', '.join(names)})."
        raise EngineError(told, remedy=_TOOLS_REMEDY)
    return make


@contextlib.contextmanager
def _workshop(home: Path) -> Iterator[Path]:
    """Lock and yield a temporary folder beside `home`; remove leftovers of killed installations."""
    from filelock import FileLock, Timeout  # runs do not need it

    parent = home.parent
    try:
        parent.mkdir(parents=True, exist_ok=True)
        lock = FileLock(parent / f".{home.name}.lock").acquire(timeout=0)
    except Timeout as error:
        raise EngineError(
            f"Another installation into {home} is running.", remedy="Wait until it has ended."
        ) from error
    except OSError as error:
        raise EngineError(
            f"{parent} cannot be written: {error.strerror}.",
            remedy="Pass a folder of your own with --dir, and tell cmdstanpy of it: "
            "export CMDSTAN=FOLDER.",
        ) from error
    with lock:
        for left in parent.glob(f".{home.name}-*"):
            shutil.rmtree(left, ignore_errors=True)
        free = shutil.disk_usage(parent).free
        if free < _NEEDED_BYTES:
            raise EngineError(
                f"{parent} has {free / 1e9:.1f} GB free; the home needs "
                f"{_NEEDED_BYTES / 1e9:.0f} GB.",
                remedy="Make room, or pass another folder with --dir.",
            )
        folder = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=parent))
        try:
            yield folder
        except OSError as error:
            raise EngineError(
                f"{error.filename or folder} could not be written: {error.strerror}.",
                remedy="Nothing was installed. Make room, or pass another folder with --dir.",
            ) from error
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _download(folder: Path, report: Callable[[str], None]) -> Path:
    report(f"Downloading {_REQUIREMENT} with pip")
    target = folder / "wheel"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--disable-pip-version-check", "--only-binary=:all:", "--python-version", "3.13"]
    command += ["--implementation", "cp", "--dest", str(target), _REQUIREMENT]
    status, told = _ran(command, folder, report)
    wheels = list(target.glob("*.whl"))
    if status != 0 or len(wheels) != 1:
        raise EngineError(
            f"pip could not download {_REQUIREMENT}:\n{_tail(told)}\n",
            remedy="Check the index that pip uses, or download the wheel elsewhere "
            "(cp313, for this platform) and pass it with --wheel FILE.",
        )
    return wheels[0]


def _checked(wheel: Path, sha256: str) -> Path:
    try:
        with wheel.open("rb") as stream:
            found = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise EngineError(f"{wheel} cannot be read: {error.strerror}.") from error
    if found != sha256:
        raise EngineError(
            f"{wheel.name} is not the wheel that stanct was checked with: its SHA-256 is {found}, "
            f"expected {sha256}.",
            remedy="Download it again; if it is the same, do not trust the index.",
        )
    return wheel


def _unpack(wheel: Path, folder: Path) -> None:
    shutil.copytree(_SOURCES, folder, dirs_exist_ok=True)
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.startswith(("httpstan/include/", "httpstan/lib/", "httpstan/stanc")) and (
                not name.startswith(("httpstan/include/pybind11/", "httpstan/stanc.py"))
            ):
                archive.extract(name, folder / "unpacked")
    unpacked = folder / "unpacked" / "httpstan"
    for name in ("include", "lib"):
        (unpacked / name).rename(folder / name)
    (folder / "bin").mkdir(exist_ok=True)
    stanc = folder / "bin" / "stanc"
    (unpacked / "stanc").rename(stanc)
    stanc.chmod(0o755)
    shutil.rmtree(folder / "unpacked")
    shutil.rmtree(folder / "wheel", ignore_errors=True)


def _suit_processor(folder: Path, description: Path = Path("/proc/cpuinfo")) -> None:
    """Write `make/local` with ``STAN_AVX2`` if Linux reports AVX2 and FMA, as most x86-64
    processors since 2013.
    """
    try:
        told = description.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return
    found = re.search(r"^flags\s*:(.*)$", told, re.MULTILINE)
    if found and {"avx2", "fma"} <= set(found[1].split()):
        (folder / "make").mkdir()
        (folder / "make" / "local").write_text(_LOCAL, encoding="utf-8")


def _try(folder: Path, make: str, report: Callable[[str], None]) -> None:
    """Compile and run a small model; a home that cannot do so is not put in place."""
    report("Compiling and running a model")
    model = folder / "examples" / "bernoulli" / "bernoulli"
    _make(folder, "examples/bernoulli/bernoulli", make, report)
    command = [str(model), "sample", "num_samples=20", "num_warmup=20"]
    command += ["data", f"file={model}.data.json", "output", f"file={folder}/draws.csv"]
    status, told = _ran(command, folder, report)
    if status != 0:
        raise EngineError(f"A compiled model does not run:\n{_tail(told)}")
    # Its run path names this folder, which is about to be renamed.
    for left in (model, model.with_suffix(".hpp"), folder / "draws.csv", folder / "log.txt"):
        left.unlink()


def _ran(command: list[str], folder: Path, report: Callable[[str], None]) -> tuple[int, str]:
    """Run a command and say how long it takes; return its status and output."""
    began, log = time.monotonic(), folder / "log.txt"
    with (
        log.open("w") as told,
        subprocess.Popen(command, cwd=folder, stdout=told, stderr=subprocess.STDOUT) as process,
    ):
        try:
            while process.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(_SILENCE)
                    break
                report(f"  {time.monotonic() - began:.0f} s so far")
        except BaseException:
            process.kill()
            raise
    return process.returncode, log.read_text(errors="replace")


def _make(folder: Path, goal: str, make: str, report: Callable[[str], None], *more: str) -> None:
    command = [make, *more, goal]
    status, told = _ran(command, folder, report)
    if status == 0:
        return
    remedy = "Nothing was installed. " + (
        "Make room on the disk."
        if "No space left on device" in told
        else "Try another compiler: CXX=clang++ stanct install-cmdstan."
    )
    raise EngineError(
        f"`{' '.join(command)}` failed with status {status}:\n{_tail(told)}\n", remedy=remedy
    )


def _put_in_place(folder: Path, home: Path) -> None:
    if home.exists():
        home.rename(folder.with_name(folder.name + "-old"))
    folder.rename(home)
    shutil.rmtree(folder.with_name(folder.name + "-old"), ignore_errors=True)


def _tail(text: str, lines: int = 15) -> str:
    return "\n".join(text.strip().splitlines()[-lines:])

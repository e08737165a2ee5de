"""Log densities of programs that a CmdStan compiled, in this process.

`bridge.cpp` beside this file gives a compiled program BridgeStan's C interface. The CmdStan's own
compiler, flags and libraries build it, so that nothing else is needed.
"""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
import signal
import subprocess
from importlib.metadata import version
from pathlib import Path

import bridgestan

from stanct.common.errors import EngineError
from stanct.engines.cache import discard, kept
from stanct.engines.homes import Home

_VERSION = version("bridgestan")
_BRIDGE = Path(__file__).parent / "bridge.cpp"
# Symbols of one program must not stand for those of another, or of the embedded engine.
_SHARED = ("-fPIC", "-shared", "-Wl,-Bsymbolic")


def compiled_model(source: str, data: str, home: Home) -> bridgestan.StanModel:
    """Return a program with its data, compiled by a CmdStan or taken from the cache.

    A program compiles in about a minute. Each model is to be used by one thread at a time. Raises
    `EngineError` if stanc or the C++ compiler rejects it, and `RuntimeError` if Stan rejects the
    data.
    """
    library = _library(source, home)
    try:
        return bridgestan.StanModel(library, data, capture_stan_prints=False, warn=False)
    except OSError as error:
        discard(library)
        _library.cache_clear()
        raise EngineError(
            f"The compiled program {library} cannot be loaded: {error}.",
            remedy="It was deleted: run again, and it is compiled anew.",
        ) from error


@functools.lru_cache(64)
def _library(source: str, home: Home) -> Path:
    bridge = _BRIDGE.read_text(encoding="utf-8")
    told = [source, bridge, _VERSION, str(home.path), home.version, home.settings]
    return kept(told, "model.so", functools.partial(_build, source, home))


def _build(source: str, home: Home, workshop: Path) -> None:
    """Compile a program to `model.so` in a folder."""
    program, whole = workshop / "model.stan", workshop / "whole.cpp"
    program.write_text(source, encoding="utf-8")
    whole.write_text(f'#include "model.hpp"\n#include "{_BRIDGE}"\n', encoding="utf-8")
    _output([home.path / "bin" / "stanc", f"--o={workshop / 'model.hpp'}", program], home)
    # Every thread needs an autodiff tape of its own.
    told = _output(["make", "--no-print-directory", "compile_info", "STAN_THREADS=TRUE"], home)
    # The executable's main function stays away.
    compiler, *words = [w for w in shlex.split(told.splitlines()[-1]) if not w.endswith(".o")]
    numbers = zip(("MAJOR", "MINOR", "PATCH"), _VERSION.split("."), strict=True)
    _output(
        [
            *(compiler, *_SHARED),
            *(f"-DBS_{name}={number}" for name, number in numbers),
            *(["-isystem", "include"] if home.assembled else []),
            *("-o", workshop / "model.so", whole, *words),
        ],
        home,
    )
    for path in (whole, workshop / "model.hpp"):
        path.unlink()


def end_compilers() -> None:
    """End the commands that compile programs in other threads, with the processes they started."""
    for process in list(_compilers):
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)


_compilers: set[subprocess.Popen[str]] = set()


def _output(words: list[str | Path], home: Home) -> str:
    """Run a command in the CmdStan's folder and return its output."""
    with subprocess.Popen(
        words,
        cwd=home.path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # a compiler has processes of its own, which end with it
    ) as process:
        _compilers.add(process)
        try:
            told, _ = process.communicate()
        except BaseException:
            end_compilers()
            raise
        finally:
            _compilers.discard(process)
    if process.returncode:
        last = "\n".join(told.strip().splitlines()[-8:])
        raise EngineError(
            f"{home} could not compile the program's log density.\n{last}\n",
            remedy="If its own examples fail too, install it again: "
            "stanct install-cmdstan --replace.",
        )
    return told

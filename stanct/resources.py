"""The folders that ship with the code, folders that others can write, and full memory or disks."""

from __future__ import annotations

import errno
import functools
import itertools
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from stanct.errors import SamplingError, StanctError

_MOST_LINKS = 40


def resource_folder(name: str) -> Path:
    """Return the folder `templates` or `stan_models`.

    In a wheel the folder lies inside the package. In a checkout it lies beside the package.
    """
    package = Path(__file__).resolve().parent
    for folder in (package / name, package.parent / name):
        if folder.is_dir():
            return folder
    raise StanctError(
        f"stanct's own folder {name!r} is missing beside {package}.",
        remedy="Reinstall stanct: pip install --force-reinstall stanct",
    )


def memory() -> float:
    """Memory of this machine in bytes; infinite where it is not known."""
    try:
        return float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return float("inf")


@contextmanager
def within_memory() -> Iterator[None]:
    """Let a lack of memory in the body be a `SamplingError`."""
    try:
        yield
    except MemoryError as cause:
        raise SamplingError(
            f"The run does not fit into memory: {str(cause).rstrip('.') or 'no more is left'}.",
            remedy="Name the variables to keep (keep=), ask for fewer draws, or keep them in files "
            "(store=FOLDER).",
        ) from cause


def remedy_for(cause: OSError, usual: str) -> str:
    """What to do about a file that cannot be written: the usual remedy, or to make room."""
    # NumPy says only how much of an array was not written.
    cut = cause.errno is None and "requested and" in str(cause)
    if cut or cause.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC)):
        return "The disk is full: make room on it, or choose another one."
    return usual


def exposed(path: Path) -> Path | None:
    """Return what lets someone but this user and the administrator have written a file or folder.

    That is the path itself, or a folder above it in which it could be replaced, or a link on the
    way; None if there is no such part. What is exposed must not be run. A group that has this user
    alone may write.
    """
    if os.name != "posix":
        return None
    here, *rest = (Path(part) for part in path.absolute().parts)
    links = 0
    while True:
        found = here.lstat()
        link = stat.S_ISLNK(found.st_mode)
        # In a folder such as /tmp, users can only replace what is theirs.
        shared = rest and found.st_mode & stat.S_ISVTX
        writable = not (link or shared) and _is_open(here, found)
        links += link
        if found.st_uid not in (0, os.geteuid()) or writable or links > _MOST_LINKS:
            return here
        if link:
            rest = [*map(Path, here.readlink().parts), *rest]
            here = here.parent
        if not rest:
            return None
        here, rest = Path(os.path.normpath(here / rest[0])), rest[1:]


def _is_open(path: Path, found: os.stat_result) -> bool:
    """Whether someone but its owner and this user may write a file or folder."""
    if not found.st_mode & stat.S_IWGRP or found.st_mode & stat.S_IWOTH:
        return bool(found.st_mode & stat.S_IWOTH)
    with suppress(AttributeError, OSError):  # other systems have no such lists, or others
        # The bits of the group are then those of all users whom the list names.
        if os.getxattr(path, "system.posix_acl_access"):
            return True
    return not _is_private(found.st_gid, os.geteuid())


@functools.lru_cache
def _is_private(number: int, user: int) -> bool:
    """Whether a group is the primary one of a user, and of nobody else.

    The accounts of a network need not be in the list of all accounts. The group must therefore have
    the user's name, as systems name the groups that they make for one user.
    """
    import grp  # Windows has neither
    import pwd

    try:
        account, group = pwd.getpwuid(user), grp.getgrgid(number)
    except KeyError:
        return False
    return (
        account.pw_gid == number
        and group.gr_name == account.pw_name
        and set(group.gr_mem) <= {account.pw_name}
        and all(other.pw_uid == user for other in pwd.getpwall() if other.pw_gid == number)
    )


def make_own_folder(path: Path) -> None:
    """Make a folder and what is missing above it; only this user can enter, whatever the umask.

    Raises
    ------
    OSError
        The folder cannot be made.
    """
    missing = itertools.takewhile(lambda folder: not folder.exists(), (path, *path.parents))
    for folder in reversed([*missing]):
        folder.mkdir(mode=0o700, exist_ok=True)

"""What holds the files of a saved run together: a digest of each, and a seal on all that is told.

A folder that was damaged, or mixed from several, is found out here. What was saved by stanct and is
whole needs no other checks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

# Bytes at each end of an array's own file that its digest covers. To read all of it would take the
# time that mapping saves.
_END = 2**16
_BLOCK = 2**20


def digest(path: Path) -> str:
    """Length of a file in bytes, and its SHA-256; of an ``.npy`` file, that of both of its ends."""
    found, size = hashlib.sha256(), path.stat().st_size
    with path.open("rb") as file:
        if path.suffix == ".npy":
            found.update(file.read(_END))
            file.seek(max(_END, size - _END))
        while block := file.read(_BLOCK):
            found.update(block)
    return f"{size}:{found.hexdigest()}"


def sealed(head: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON values of `run.json` with their SHA-256 among them, as ``"seal"``."""
    told = json.loads(json.dumps({k: v for k, v in head.items() if k != "seal"}))
    text = json.dumps(told, sort_keys=True)
    return told | {"seal": hashlib.sha256(text.encode()).hexdigest()}


def check_seal(head: Mapping[str, Any]) -> None:
    """Raise `ValueError` if `run.json` was changed; earlier versions did not seal it."""
    if "seal" in head and sealed(head)["seal"] != head["seal"]:
        raise ValueError("run.json is not as it was saved")


def check_digests(folder: Path, digests: Mapping[str, str], files: Sequence[str]) -> None:
    """Raise `ValueError` for a file that is not the one that was saved.

    Parameters
    ----------
    digests
        What `run.json` says, by the name of the file.
    files
        The files of the run.
    """
    if {*digests} != {*files}:
        name = min({*digests} ^ {*files})
        raise ValueError(f"run.json has not one digest for {name!r}")
    for name in files:
        # A file of another length is not read: it may be a very long one.
        length = f"{(folder / name).stat().st_size}:"
        if not digests[name].startswith(length) or digest(folder / name) != digests[name]:
            raise ValueError(f"{name} is not the file that was saved with its run.json")

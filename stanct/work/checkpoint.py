"""Checkpoints: folders with the results of a run, from which a killed run can continue.

A run is a fixed sequence of expensive steps. Each step is a function of the seed and of earlier
results. A `Journal` records every result under the name of its step. A run that is started again
repeats all cheap work and takes recorded results from the journal. It ends bit for bit as an
uninterrupted run.

The folder holds `checkpoint.json`, which identifies the run, and numbered segments. A segment is
written to a temporary file, synchronised and renamed, so a kill loses only results that were not in
a segment yet. Nothing is pickled: a record holds arrays, JSON values, and this package's classes by
name.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import io
import json
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from stanct.common.arrays import read_archive
from stanct.common.drafts import write_whole
from stanct.common.errors import CheckpointError
from stanct.common.resources import remedy_for

FORMAT = "stanct checkpoint 2"
HEAD = "checkpoint.json"

# Time between segments: least seconds, share of the run's time so far, most seconds.
SOONEST, SHARE, LATEST = 1.0, 0.02, 60.0

Key = tuple[int, int, int]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written; the run goes on without it."""


class Journal:
    """The recorded results of one run, in memory and in a folder.

    The folder is new or empty, or a checkpoint of the same run. `identity` are JSON values that are
    equal for equal runs; a seed of None is that of the checkpoint, or a fresh one. `before` is
    called before each segment is written, so that what it refers to is on the disk. Raises
    `CheckpointError` if the folder holds something else, is in use, or cannot be written.
    """

    def __init__(self, folder: str | os.PathLike[str], identity: Mapping[str, Any]) -> None:
        self._folder = Path(folder)
        self._found: dict[Key, tuple[str, Any]] = {}
        self._steps: dict[str, tuple[str, Any]] = {}
        self._arrays: list[np.ndarray] = []
        self._begun = self._flushed = time.monotonic()
        self._warned = self._sealed = False
        self.before: Callable[[], object] = lambda: None
        from filelock import FileLock  # most runs have no checkpoint

        # Not bound to a thread, because any thread may end the run.
        self._lock = FileLock(self._folder / "lock", thread_local=False)
        try:
            self._claim()
            self.identity = self._agree(dict(identity))
            self._segments = self._read()
        except BaseException as cause:
            self._lock.release()
            if not isinstance(cause, OSError):
                raise
            raise CheckpointError(
                f"The checkpoint {self._folder} cannot be used: {cause}.",
                remedy=remedy_for(cause, "Choose a folder that you can write."),
            ) from cause

    def close(self) -> None:
        """Write pending results and release the folder."""
        self.flush()
        self._lock.release()

    def find(self, key: Key, label: str) -> Any:
        """Return the result of a step, or None if it was not recorded."""
        if key not in self._found:
            return None
        known, value = self._found.pop(key)
        if known != label:
            raise CheckpointError(
                f"Step {key[0]} of the checkpoint {self._folder} is {known!r}, not {label!r}.",
                remedy="Delete the folder and run again.",
            )
        return decode(*value)

    def put(self, key: Key, label: str, value: Any) -> None:
        """Record a result; it reaches the disk with the next segment."""
        if self._sealed:
            return
        # Taken apart at once: what a caller changes in place later must not reach the record.
        tree = encode(value, self._arrays)
        for name in _classes(tree):
            _check_class(name)
        self._steps[",".join(map(str, key))] = (label, tree)
        now = time.monotonic()
        if now - self._flushed > min(max(SOONEST, SHARE * (now - self._begun)), LATEST):
            self.flush()

    def seal(self) -> None:
        """Record nothing more; later steps belong to a run that was cut short."""
        self.flush()
        self._sealed = True

    def flush(self) -> None:
        """Write all pending results as one segment; if that fails, warn once and keep them."""
        if not self._steps:
            return
        named = {str(k): array for k, array in enumerate(self._arrays)}
        text = np.frombuffer(json.dumps(self._steps).encode(), np.uint8)
        buffer = io.BytesIO()
        np.savez(buffer, allow_pickle=False, steps=text, **named)
        try:
            self.before()
            _write(self._folder / f"segment-{self._segments:06d}.npz", buffer.getvalue())
        except OSError as cause:
            if not self._warned:
                warnings.warn(
                    f"The checkpoint {self._folder} cannot be written: {cause}. The run goes on "
                    "and will try again; a kill loses what has not reached the folder.",
                    CheckpointWarning,
                    stacklevel=2,
                )
            self._warned = True
        else:
            self._segments += 1
            self._steps.clear()
            self._arrays.clear()
        self._flushed = time.monotonic()

    def _claim(self) -> None:
        """Lock the folder against other processes; the lock ends with its process."""
        from filelock import Timeout

        self._folder.mkdir(parents=True, exist_ok=True)
        names = {path.name for path in self._folder.iterdir()} - {"lock"}
        if names and HEAD not in names and not all(name.startswith(".new-") for name in names):
            raise CheckpointError(
                f"{self._folder} holds other files, so it cannot become a checkpoint.",
                remedy="Choose a new or empty folder.",
            )
        try:
            self._lock.acquire(timeout=0)
        except Timeout as cause:
            raise CheckpointError(
                f"Another run is using the checkpoint {self._folder}.",
                remedy="Wait for it, or choose another folder.",
            ) from cause

    def _agree(self, identity: dict[str, Any]) -> dict[str, Any]:
        """Write the identity, or compare it with the stored one; return it with its seed."""
        path = self._folder / HEAD
        if not path.exists():
            if identity["seed"] is None:
                identity["seed"] = int(np.random.SeedSequence().generate_state(1)[0])
            text = json.dumps({"format": FORMAT, **identity}, indent=2) + "\n"
            _write(path, text.encode())
            return identity
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            known = stored.pop("format")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as cause:
            raise CheckpointError(f"{path} is not a checkpoint's.") from cause
        if known != FORMAT:
            raise CheckpointError(f"{self._folder} holds a {known!r}, not a {FORMAT!r}.")
        if identity["seed"] is None:
            identity["seed"] = stored.get("seed")
        wanted = json.loads(json.dumps(identity))
        for name in {**wanted, **stored}:
            if wanted.get(name) != stored.get(name):
                raise CheckpointError(
                    f"The checkpoint {self._folder} belongs to another run: its "
                    f"{name.replace('_', ' ')} is {stored.get(name)!r}, this run's is "
                    f"{wanted.get(name)!r}.",
                    remedy="Repeat the command that began it, or choose another folder.",
                )
        return identity

    def _read(self) -> int:
        """Read all segments and return their number."""
        paths = sorted(self._folder.glob("segment-*.npz"))
        for path in paths:
            self._found |= _segment(path)
        return len(paths)


def _segment(path: Path) -> dict[Key, tuple[str, Any]]:
    """Read one segment: labels, and values that are still encoded."""
    found: dict[Key, tuple[str, Any]] = {}
    try:
        stored = read_archive(path)
        arrays = [stored[str(k)] for k in range(len(stored) - 1)]
        for name, (label, tree) in json.loads(stored["steps"].tobytes()).items():
            step, lane, block = map(int, name.split(","))
            found[step, lane, block] = (label, (tree, arrays))
    except Exception as cause:
        raise CheckpointError(
            f"{path} is damaged: {cause}.",
            remedy="Delete this file and run again: what it held is computed anew.",
        ) from cause
    return found


def _write(path: Path, content: bytes) -> None:
    # Nobody else writes here. What a kill left is written over.
    write_whole(path, content, f".new-{path.name}")


def encode(value: Any, arrays: list[np.ndarray]) -> Any:
    """A JSON tree of a value, whose arrays are appended to `arrays`.

    It may consist of None, numbers, strings, arrays, sequences, mappings with strings as keys,
    NumPy's random generators, and this package's dataclasses and named tuples.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        arrays.append(np.array(value, order="C"))
        return {"array": len(arrays) - 1}
    if isinstance(value, np.random.Generator):
        return {"generator": value.bit_generator.state}
    if isinstance(value, Mapping):
        return {"mapping": {name: encode(item, arrays) for name, item in value.items()}}
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
        return _named(value, fields, arrays)
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _named(value, value._asdict(), arrays)  # pyright: ignore[reportAttributeAccessIssue]
    if isinstance(value, list | tuple):
        kind = "list" if isinstance(value, list) else "tuple"
        return {kind: [encode(item, arrays) for item in value]}
    raise TypeError(f"A checkpoint cannot hold a {type(value).__name__}.")


def as_recorded(value: Any) -> Any:
    """A value as it comes back from a checkpoint: sums of arrays in another order may differ."""
    arrays: list[np.ndarray] = []
    return decode(encode(value, arrays), arrays)


def fingerprint(value: Any) -> str:
    """Return the SHA-256 of a value that a checkpoint can hold."""
    arrays: list[np.ndarray] = []
    text = json.dumps(encode(value, arrays), sort_keys=True)
    parts = [text.encode(), *(f"{a.dtype} {a.shape}".encode() + a.tobytes() for a in arrays)]
    return hashlib.sha256(b"\0".join(parts)).hexdigest()


def _named(value: Any, fields: Mapping[str, Any], arrays: list[np.ndarray]) -> dict[str, Any]:
    return {
        "class": _name(type(value)),
        "fields": {k: encode(v, arrays) for k, v in fields.items()},
    }


def _classes(tree: Any) -> Iterator[str]:
    """Names of all classes in an encoded value."""
    if not isinstance(tree, Mapping):
        return
    if "class" in tree:
        yield tree["class"]
    parts = tree.get("fields") or tree.get("mapping") or {}
    for item in [*parts.values(), *tree.get("list", []), *tree.get("tuple", [])]:
        yield from _classes(item)


def _check_class(named: str) -> None:
    """Raise `CheckpointError` if a class is not stanct's."""
    if named.partition(":")[0].partition(".")[0] != "stanct":
        raise CheckpointError(
            f"A checkpoint cannot hold {named!r}, because the class is not stanct's.",
            remedy="Let the lanes and blocks of your method be tuples, lists, mappings and arrays.",
        )


@functools.cache
def _record(named: str) -> Any:
    """The record of this name that stanct has loaded; no file is trusted to import."""
    _check_class(named)
    module, _, name = named.partition(":")
    kind = vars(sys.modules[module]).get(name) if module in sys.modules else None
    if isinstance(kind, type) and _name(kind) == named and _is_record(kind):
        return kind
    raise CheckpointError(f"A checkpoint names {named!r}, which is no record of stanct's.")


def _is_record(kind: type) -> bool:
    return dataclasses.is_dataclass(kind) or (issubclass(kind, tuple) and hasattr(kind, "_fields"))


def _name(kind: type) -> str:
    return f"{kind.__module__}:{kind.__qualname__}"


def decode(tree: Any, arrays: list[np.ndarray]) -> Any:
    """Return the value that `encode` turned into a JSON tree and arrays."""
    if not isinstance(tree, dict):
        return tree
    if "array" in tree:
        return arrays[tree["array"]].copy()
    if "generator" in tree:
        generator = np.random.Generator(np.random.PCG64())
        generator.bit_generator.state = tree["generator"]
        return generator
    if "mapping" in tree:
        return {name: decode(item, arrays) for name, item in tree["mapping"].items()}
    if "class" in tree:
        return _record(tree["class"])(**{k: decode(v, arrays) for k, v in tree["fields"].items()})
    items = [decode(item, arrays) for item in next(iter(tree.values()))]
    return items if "list" in tree else tuple(items)

"""Checkpoints: their contents, the runs that may use them, kills, and full disks."""

from __future__ import annotations

import errno
import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from analytic import gaussian
from conftest import LONG, target_of
from killing import survived
from sampled import sampled
from test_execution import BASE, PROGRAM, assert_same, draws

from stanct.bases.fits import FittedBase
from stanct.common.errors import CheckpointError
from stanct.kernels import make_gibbs_out, make_table
from stanct.path.gaussian import GaussianBase
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.work import checkpoint
from stanct.work.checkpoint import CheckpointWarning, Journal, as_recorded, fingerprint
from stanct.work.execution import executing

pytestmark = pytest.mark.usefixtures("uncompared")
IDENTITY = {"method": "test", "seed": 3, "settings": {"draws": 10}}


@pytest.fixture(scope="module")
def target():
    return target_of(PROGRAM, {"y": 1.5})


@pytest.fixture
def short(target) -> Any:
    return lambda **settings: sampled(
        "gibbs",
        target,
        **{"base": BASE, "seed": 5, "draws": 120, "warmup": 32, "bootstrap": 1, "progress": False},
        **settings,
    )


@LONG
def test_a_run_killed_again_and_again_ends_like_one_that_was_not(tmp_path: Path) -> None:
    survived(tmp_path, "gibbs", "parallel_tempering", "smc", "joint")


def test_values_come_back_as_they_were(rng) -> None:
    rng.standard_normal(3)
    value = {
        "start": FittedBase(GaussianBase(np.array([1.0, 2.0]), np.eye(2)), -0.1, 7),
        "table": make_table(2),
        "out": make_gibbs_out(3, 2),
        "list": [None, True, 2, 0.1 + 0.2, "é", np.inf, (1, 2)],
        "small": np.float64(1 / 3),
        "rng": rng,
    }
    back = as_recorded(value)
    assert back["start"].base.scale is not value["start"].base.scale
    assert np.array_equal(back["start"].base.scale, np.eye(2)) and back["start"].log_zeta == -0.1
    assert type(back["out"]) is type(value["out"]) and back["list"] == value["list"]
    assert back["small"] == 1 / 3
    assert np.array_equal(back["rng"].standard_normal(9), rng.standard_normal(9))
    assert as_recorded(np.ones((2, 3, 4)).transpose(2, 0, 1)).flags.c_contiguous
    assert fingerprint(value["start"]) == fingerprint(back["start"]) != fingerprint(value["table"])


def test_only_what_is_known_is_held(monkeypatch: pytest.MonkeyPatch) -> None:
    @dataclass
    class Foreign:
        x: int

    class Pair(NamedTuple):
        x: int

    for value in (Foreign(1), Pair(1)):
        with pytest.raises(CheckpointError, match="not stanct's"):
            as_recorded(value)
    with pytest.raises(TypeError, match="cannot hold a set"):
        as_recorded({"a": {1}})
    with pytest.raises(CheckpointError, match="no record"):
        checkpoint.decode({"class": "stanct.cli.main:main", "fields": {}}, [])


def test_a_record_that_could_not_be_read_is_not_written(tmp_path: Path) -> None:
    @dataclass
    class Lane:
        x: int

    journal = Journal(tmp_path / "here", {"seed": 1})
    with pytest.raises(CheckpointError, match=r"Lane'.*not stanct's.*tuples, lists"):
        journal.put((0, 0, 0), "step", {"class": [1, (2, Lane(3))]})
    journal.put((0, 0, 0), "step", {"class": [1, (2, 3)]})
    journal.close()
    again = Journal(tmp_path / "here", {"seed": 1})
    assert again.find((0, 0, 0), "step") == {"class": [1, (2, 3)]}
    again.close()


def test_a_finished_run_comes_back_without_a_gradient(
    short, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = short(checkpoint=tmp_path)
    monkeypatch.setattr("stanct.work.execution._moved", None)
    assert_same(short(checkpoint=str(tmp_path)), done)


def test_the_seed_is_the_checkpoints(target, tmp_path: Path) -> None:
    first, again = (
        sampled(
            "gibbs", target, base=BASE, draws=60, warmup=32, progress=False, checkpoint=tmp_path
        )
        for _ in range(2)
    )
    assert_same(first, again)
    assert again.provenance["settings"]["seed"] == first.provenance["settings"]["seed"]


def test_another_run_is_refused(short, target, tmp_path: Path) -> None:
    short(checkpoint=tmp_path, threads=2)
    other = GaussianBase(BASE.mean, 1.1 * BASE.scale)
    for settings, words in [
        ({"seed": 6}, "seed is 5, this run's is 6"),
        ({"draws": 121}, "settings is"),
        ({"base": other}, "settings is"),
    ]:
        given = {"base": BASE, "seed": 5, "draws": 120, "warmup": 32, "progress": False, **settings}
        with pytest.raises(CheckpointError, match=words):
            sampled("gibbs", target, checkpoint=tmp_path, **given)
    for source, data, words in [
        (PROGRAM, {"y": 1.6}, "data sha256 is"),
        (PROGRAM.replace("2);", "2.5);", 1), {"y": 1.5}, "program sha256 is"),
    ]:
        with pytest.raises(CheckpointError, match=words):
            draws("gibbs", target_of(source, data), checkpoint=tmp_path)
    with pytest.raises(CheckpointError, match="method is 'gibbs'"):
        draws("ais", target, checkpoint=tmp_path)


def test_another_python_function_is_refused(tmp_path: Path) -> None:
    for log_z, refused in [(7.5, False), (7.6, True)]:
        case = gaussian(2, log_z)
        there = FunctionTarget(FunctionDensity(case.function, 2))
        if refused:
            with pytest.raises(CheckpointError, match="log densities at probes"):
                draws("ais", there, checkpoint=tmp_path)
        else:
            draws("ais", there, checkpoint=tmp_path)


def test_a_version_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, {**IDENTITY, "versions": {"stanct": "0.1"}}).close()
    with pytest.raises(CheckpointError, match="versions is"):
        Journal(tmp_path, {**IDENTITY, "versions": {"stanct": "0.2"}})


def test_one_run_at_a_time(tmp_path: Path) -> None:
    first = Journal(tmp_path, IDENTITY)
    with pytest.raises(CheckpointError, match="Another run is using"):
        Journal(tmp_path, IDENTITY)
    first.close()
    Journal(tmp_path, IDENTITY).close()


def test_folders_that_cannot_serve(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(CheckpointError, match="holds other files"):
        Journal(tmp_path, IDENTITY)
    with pytest.raises(CheckpointError, match="cannot be used"):
        Journal(tmp_path / "letter.txt" / "below", IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["letter.txt"]
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "checkpoint.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"is not a checkpoint's"):
        Journal(tmp_path / "new", IDENTITY)


def test_a_damaged_segment_is_named_and_can_be_deleted(short, tmp_path: Path) -> None:
    done = short(checkpoint=tmp_path)
    segment = sorted(tmp_path.glob("segment-*"))[1]
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 255
    segment.write_bytes(content)
    with pytest.raises(CheckpointError, match=rf"{segment.name} is damaged.*Delete this file"):
        short(checkpoint=tmp_path)
    segment.unlink()
    assert_same(short(checkpoint=tmp_path), done)
    assert_same(short(checkpoint=tmp_path), done)


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> dict[str, bool]:
    """While `full`, no file can be synchronised; the first file of a checkpoint still can."""
    disk, synchronise = {"full": True}, os.fsync

    def fsync(file: int) -> None:
        here = Path(f"/proc/self/fd/{file}")
        if disk["full"] and "segment" in (str(here.readlink()) if here.exists() else "segment"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        synchronise(file)

    monkeypatch.setattr(os, "fsync", fsync)
    return disk


def test_a_full_disk_does_not_stop_the_run(short, tmp_path: Path, full_disk) -> None:
    with pytest.warns(CheckpointWarning, match=r"No space left.*will try again") as caught:
        done = short(checkpoint=tmp_path)
    assert len(caught) == 1
    assert_same(done, short())
    assert {path.name for path in tmp_path.iterdir()} - {"lock"} == {"checkpoint.json"}


@pytest.mark.parametrize(
    "name",
    ["stanct.cli.main:main", "stanct.__main__:x", "stanct.cli.doctor:Finding", "os:system"],
)
def test_records_name_no_code(name: str) -> None:
    """Names are looked up among loaded records: nothing is imported, and no function is called."""
    before = set(sys.modules)
    with pytest.raises(CheckpointError, match=r"no record of stanct's|class is not stanct's"):
        checkpoint.decode({"class": name, "fields": {}}, [])
    assert set(sys.modules) == before


def test_records_are_found_while_other_threads_import(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loaded modules are not gone through: another thread may add one meanwhile."""

    class Growing(dict):
        def __iter__(self):
            raise RuntimeError("dictionary changed size during iteration")

        keys = values = items = __iter__

    base = GaussianBase.from_covariance(np.zeros(2), np.eye(2))
    arrays: list[np.ndarray] = []
    tree = checkpoint.encode(base, arrays)
    checkpoint._record.cache_clear()
    with monkeypatch.context() as changed:
        changed.setattr(sys, "modules", Growing(sys.modules))
        again = checkpoint.decode(tree, arrays)
    assert isinstance(again, GaussianBase)
    assert np.array_equal(again.mean, base.mean)


@pytest.mark.parametrize("steps", ["[" * 100_000, '{"0,0": 1}', "[1, 2]", "{"])
def test_damaged_segments_are_named(tmp_path: Path, steps: str) -> None:
    Journal(tmp_path, IDENTITY).close()
    np.savez(tmp_path / "segment-000000.npz", steps=np.frombuffer(steps.encode(), np.uint8))
    with pytest.raises(CheckpointError, match=r"segment-000000\.npz is damaged"):
        Journal(tmp_path, IDENTITY)
    for text in ("[" * 100_000, "[1]", '{"format": 3}', "9" * 5000):
        (tmp_path / "checkpoint.json").write_text(text)
        with pytest.raises(CheckpointError, match=r"is not a checkpoint's|holds a"):
            Journal(tmp_path, IDENTITY)


def test_what_waited_is_written_when_there_is_room(target, tmp_path: Path, full_disk) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        with executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run:
            run.blocks("count", lambda lane, size: size, [[0]], [1, 2])
            assert not list(tmp_path.glob("segment-*"))
            full_disk["full"] = False
            assert run.once("more", lambda: 7) == 7
    assert not list(tmp_path.glob(".new-*")) and len(list(tmp_path.glob("segment-*"))) == 1
    with executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run:
        assert run.blocks("count", lambda lane, size: 1 / 0, [[0]], [1, 2]) == ([[1, 2]], False)
        with pytest.raises(CheckpointError, match=r"Step 1 .* is 'more', not 'less'"):
            run.once("less", lambda: 1)


def test_after_an_interrupt_nothing_is_recorded(target, tmp_path: Path) -> None:
    def stop(lane: list[int], size: int) -> int:
        lane[0] += 1
        if lane[0] == 2:
            raise KeyboardInterrupt
        return size

    with executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run:
        blocks, interrupted = run.blocks("count", stop, [[0]], [5, 6], final=True)
        assert (blocks, interrupted) == ([[5]], True)
        assert run.once("sum", lambda: sum(blocks[0])) == 5
    with executing(target, "test", {}, seed=1, checkpoint=tmp_path, progress=False) as run:
        blocks, interrupted = run.blocks("count", lambda lane, size: size, [[0]], [5, 6])
        assert (blocks, interrupted) == ([[5, 6]], False)
        assert run.once("sum", lambda: sum(blocks[0])) == 11

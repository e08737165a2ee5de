"""Saved runs: nothing in a folder is trusted, and no instant of saving loses a run."""

from __future__ import annotations

import contextlib
import copy
import errno
import io
import itertools
import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from runs import KINDS, line_run

import stanct
from stanct import load
from stanct.errors import SavedRunError, StanctError
from stanct.runs import storage
from stanct.runs.run import Run


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved") / "line"
    line_run("gibbs").save(folder)
    return folder


@pytest.fixture
def whole(saved: Path, tmp_path: Path) -> Path:
    """A saved run with its digests."""
    return Path(shutil.copytree(saved, tmp_path / "whole"))


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A saved run as earlier versions saved it: no digest tells that a file was changed."""
    folder = Path(shutil.copytree(saved, tmp_path / "line"))
    _forget_digests(folder)
    return folder


def _forget_digests(folder: Path) -> None:
    _change(folder, lambda head: head.pop("digests"))


@pytest.mark.parametrize("method", KINDS)
def test_every_kind_comes_back(method: str, tmp_path: Path) -> None:
    run = line_run(method)
    run.save(tmp_path / "run")
    again = load(tmp_path / "run")
    assert type(again) is type(run)
    for name in run.arrays:
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))
    assert [check.name for check in again.diagnostics] == [check.name for check in run.diagnostics]
    # Where draws are whitened, nothing can be said without a base.
    base = run.base.arrays()
    arrays: dict[str, Any] = {k: v for k, v in _arrays(tmp_path / "run").items() if k not in base}
    _forget_digests(tmp_path / "run")
    np.savez(tmp_path / "run" / "draws.npz", **arrays)
    if run.needs_base:
        with pytest.raises(SavedRunError, match="the arrays of its base are missing"):
            load(tmp_path / "run")
    else:
        assert load(tmp_path / "run").diagnostics


# Names in run.json


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", "", "a.b", "x" * 99, 3])
def test_names_cannot_leave_the_folder(folder: Path, name: object) -> None:
    (folder.parent / "secret.stan").write_text("parameters { real secret; }")
    _change(folder, lambda head: head["programs"].append(name))
    with pytest.raises(SavedRunError, match="cannot be the name of a run's program"):
        load(folder)


def test_a_run_writes_no_program_beside_its_folder(folder: Path, tmp_path: Path) -> None:
    run = load(folder)
    object.__setattr__(run, "programs", {"../victim": "text"})
    (tmp_path / "victim.stan").write_text("precious")
    with pytest.raises(SavedRunError, match="cannot be the name"):
        run.save(tmp_path / "other")
    assert (tmp_path / "victim.stan").read_text() == "precious"


@pytest.mark.parametrize("name", ["density.stan", "data.json", "draws.npz"])
def test_links_out_of_the_folder_are_not_followed(folder: Path, name: str) -> None:
    (folder / name).rename(folder.parent / name)
    (folder / name).symlink_to(folder.parent / name)
    with pytest.raises(SavedRunError, match="is missing, or is no file"):
        load(folder)


# Texts


def _change(folder: Path, change: Callable[[dict], object]) -> None:
    head = json.loads((folder / "run.json").read_text())
    change(head)
    (folder / "run.json").write_text(json.dumps(head))


SURVEY = {
    **{"place": [[0.0]], "spread": [[1.0]], "log_evidence": [0.0]},
    **{"starts": 1, "radius": 1.0, "unseen": 0.0, "complete": True},
}


def test_a_sound_survey_is_read(folder: Path) -> None:
    _change(folder, lambda head: head["provenance"].update(survey=SURVEY))
    assert load(folder).diagnostics


@pytest.mark.parametrize(
    "change",
    [
        lambda head: head["provenance"].pop("settings"),
        lambda head: head["provenance"].pop("gradients"),
        lambda head: head["provenance"].update(settings=3),
        lambda head: head["provenance"].update(program=["x"]),
        lambda head: head.update(provenance=[1]),
        lambda head: head.update(programs=5),
        lambda head: head["provenance"].update(stopping="soon"),
        lambda head: head["provenance"].update(stopping={"reason": "limit"}),
        lambda head: head["provenance"].update(survey={"place": "here"}),
        lambda head: head["provenance"].update(confirmed={"log_z": "1", "method": "gibbs"}),
        lambda head: head["provenance"]["settings"].pop("draws"),
        lambda head: head["provenance"]["settings"].update(draws="many"),
        lambda head: head["provenance"]["method_settings"].update(bootstrap=[1]),
        lambda head: head["provenance"].update(gradients=float("nan")),
        lambda head: head["provenance"].update(survey=SURVEY | {"place": [1.0]}),
        lambda head: head["provenance"].update(
            survey={**SURVEY, "place": 1.0, "spread": 1.0, "log_evidence": 0.0}
        ),
        lambda head: head["provenance"].update(survey=SURVEY | {"log_evidence": []}),
        lambda head: head["provenance"].update(survey=SURVEY | {"log_evidence": [[0.0]]}),
        lambda head: head["provenance"].update(survey=SURVEY | {"spread": [[1.0, 1.0]]}),
        lambda head: head.update(format=["x"]),
    ],
)
def test_missing_and_wrong_settings(folder: Path, change: Callable[[dict], object]) -> None:
    _change(folder, change)
    with pytest.raises(SavedRunError):
        _ = load(folder).diagnostics


def _keys(value: Any, *above: str) -> Iterator[tuple[str, ...]]:
    for key in value if isinstance(value, dict) else ():
        yield (*above, key)
        yield from _keys(value[key], *above, key)


WRONG = ("../x", [], math.nan, 10**30, None, {"a": [1]}, -math.inf, True, [None], [[10**400]], "\0")


def _in_turn(values: Sequence[Any], count: int) -> Iterator[list[Any]]:
    """So many of the values, others each time."""
    endless = itertools.cycle(values)
    while True:
        yield list(itertools.islice(endless, count))


def _use(run: Any) -> None:
    assert run.evidence.log_z and str(run.diagnostics) and run.warnings is not None
    assert repr(run) and run.facts() and len(run.timing)
    assert all(table is None or len(table) for table in (run.modes, run.forecast))
    assert len(run.draws_pd(draws=2)) and len(run.summary())


def test_any_wrong_value_is_an_error_of_the_saved_run_or_none(folder: Path) -> None:
    _change(folder, lambda head: head["provenance"].update(survey=SURVEY))
    text = (folder / "run.json").read_text()
    some = _in_turn(WRONG, 3)
    for key in _keys(json.loads(text)):
        for wrong in next(some):
            head = found = json.loads(text)
            for name in key[:-1]:
                found = found[name]
            found[key[-1]] = wrong
            (folder / "run.json").write_text(json.dumps(head))
            with contextlib.suppress(SavedRunError):
                _use(load(folder))


@pytest.mark.parametrize(
    ("change", "place"),
    [
        (
            lambda h: h["provenance"]["survey"]["log_evidence"].append("x"),
            r"survey.log_evidence\[1\]",
        ),
        (
            lambda h: h["provenance"]["survey"].update(spread=[[1.0, 0.0]]),
            r"survey.spread\[0\]\[1\]",
        ),
        (lambda h: h["provenance"]["survey"].update(log_evidence=[10**400]), "survey.log_evidence"),
        (lambda h: h.update(method=["gibbs"]), "run.json.method"),
        (lambda h: h.update(engine="a\nb"), "run.json.engine"),
        (lambda h: h.update(atom="much"), "run.json.atom"),
        (lambda h: h["provenance"].pop("seconds"), "provenance.seconds is missing"),
        (lambda h: h["provenance"]["settings"].update(seed=-1), "provenance.settings.seed"),
        (lambda h: h["provenance"].update(versions=[1]), "provenance.versions"),
        (lambda h: h["provenance"]["forecasts"][0].pop("at"), r"forecasts\[0\].at is missing"),
    ],
)
def test_what_is_wrong_in_a_text_is_named(
    folder: Path, change: Callable[[dict], object], place: str
) -> None:
    _change(folder, lambda head: head["provenance"].update(survey=copy.deepcopy(SURVEY)))
    _change(folder, change)
    with pytest.raises(SavedRunError, match=rf"damaged run: .*{place}.*Restore the folder"):
        load(folder)


def test_long_integers_are_numbers(folder: Path) -> None:
    survey = SURVEY | {"place": [[10**30, 0]], "spread": [[10**30, 1]], "log_evidence": [10**30]}
    _change(folder, lambda head: head["provenance"].update(survey=survey))
    modes = load(folder).modes
    assert modes is not None and len(modes) == 1


@pytest.mark.parametrize(
    "text", ["[" * 100_000, "[1]", '{"N": ' + "9" * 5000 + "}", "\xff", '{"N": 1']
)
def test_damaged_texts(folder: Path, text: str) -> None:
    (folder / "data.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SavedRunError, match="damaged run"):
        load(folder)
    (folder / "run.json").write_bytes(text.encode("latin-1"))
    with pytest.raises(SavedRunError, match="not a saved run"):
        load(folder)


def test_texts_are_bounded(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stanct.runs.storage.LONGEST_TEXT", 100)
    with pytest.raises(SavedRunError, match="not a saved run"):
        load(folder)
    (folder / "data.json").write_text('{"y": ' + " " * 3_000_000 + "1}", encoding="utf-8")
    monkeypatch.setattr("stanct.runs.storage.LONGEST_TEXT", 2_100_000)
    with pytest.raises(SavedRunError, match="longer than 2 MiB"):
        load(folder)


# Archives


def _arrays(folder: Path) -> dict[str, np.ndarray]:
    with np.load(folder / "draws.npz") as found:
        return dict(found)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("z", lambda z: z[0]),
        ("z", lambda z: z[..., :1]),
        ("z", lambda z: np.where(z > 0, np.nan, z)),
        ("z", lambda z: z[:, :0]),
        ("delta", lambda delta: delta[:, 1:]),
        ("delta", lambda delta: delta * np.nan),
        ("beta", lambda beta: beta[1:]),
        ("base_delta", lambda delta: delta[None]),
        ("base_scale", lambda scale: scale[:1]),
        ("base_mean", lambda mean: mean[:1]),
        ("bias_value", lambda value: value[:1]),
        ("variable b", lambda b: b[:, :5]),
        ("variable b", lambda b: b[:2]),
        ("statistic accept_stat__", lambda s: s[:, :5]),
        ("z", lambda z: z.astype(str)),
        ("z", None),
        ("base_mean", None),
        ("kept", lambda kept: kept[::-1]),
        ("statistic divergent__", None),
        ("delta", lambda delta: np.where(delta > 0, np.inf, delta)),
        ("delta", lambda delta: -np.inf * np.ones(delta.shape)),
        ("base_delta", lambda delta: np.full(delta.shape, -np.inf)),
        ("base_mean", lambda mean: np.full(mean.shape, np.inf)),
        ("base_mean", lambda mean: mean.astype(complex)),
        ("base_scale", lambda scale: 0 * scale),
        ("bias_value", lambda value: value + 1j),
        ("bias_beta", lambda beta: beta[::-1]),
        ("beta", lambda beta: beta + 0.5),
        ("beta", lambda beta: 0 * beta),
        ("z", lambda z: z > 0),
    ],
)
def test_arrays_that_do_not_belong_together(
    folder: Path, name: str, change: Callable[[np.ndarray], np.ndarray] | None
) -> None:
    arrays = _arrays(folder)
    found = arrays.pop(name)
    if change is not None:
        arrays[name] = change(found)
    np.savez(folder / "draws.npz", allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SavedRunError, match="damaged run"):
        load(folder)


CHANGES: tuple[Callable[[np.ndarray], np.ndarray], ...] = (
    lambda a: np.full(a.shape, np.inf),
    lambda a: np.full(a.shape, 1e308),
    lambda a: a.astype(">f8"),
    lambda a: a[1:],
    lambda a: np.full(a.shape, 1j),
    lambda a: a[..., :0],
    lambda a: -np.asarray(a, float),
    lambda a: np.zeros(a.shape, np.float16),
    lambda a: np.asarray(2.0),
    lambda a: np.full(a.shape, -np.inf),
    lambda a: a.T,
)


@pytest.mark.filterwarnings("ignore")
def test_any_wrong_array_is_an_error_of_the_saved_run_or_none(folder: Path) -> None:
    arrays, some = _arrays(folder), _in_turn(CHANGES, 4)
    for name, found in arrays.items():
        for change in next(some):
            changed: dict[str, Any] = arrays | {name: change(found)}
            np.savez(folder / "draws.npz", **changed)
            with contextlib.suppress(SavedRunError):
                _use(load(folder))


@pytest.mark.parametrize("name", ["strange", "base_weights", "log_prior", "variable ", "a\nb"])
def test_arrays_of_no_run(folder: Path, name: str) -> None:
    arrays: dict[str, Any] = _arrays(folder) | {name: np.ones(3)}
    np.savez(folder / "draws.npz", **arrays)
    with pytest.raises(SavedRunError, match=r"which no run of its kind has|damaged run"):
        load(folder)


def test_complex_numbers_are_no_draws(folder: Path) -> None:
    arrays = _arrays(folder)
    arrays["delta"] = arrays["delta"].astype(complex)
    np.savez(folder / "draws.npz", allow_pickle=False, **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SavedRunError, match="'delta' holds complex numbers"):
        load(folder)


def test_objects_are_not_unpickled(folder: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, ("touch trapped",)

    arrays = _arrays(folder) | {"z": np.array([Trap()], dtype=object)}
    np.savez(folder / "draws.npz", **arrays)  # pyright: ignore[reportArgumentType]
    with pytest.raises(SavedRunError, match="not an array of numbers"):
        load(folder)


def test_an_archive_takes_no_more_memory_than_it_is_long(folder: Path) -> None:
    """Neither by a header that promises too much, nor by compression."""
    header = io.BytesIO()
    told = {"descr": "<f8", "fortran_order": False, "shape": (10**13, 2)}
    np.lib.format.write_array_header_1_0(header, told)
    with zipfile.ZipFile(folder / "draws.npz", "w") as archive:
        archive.writestr("z.npy", header.getvalue() + bytes(100))
    with pytest.raises(SavedRunError, match="not whole"):
        load(folder)
    np.savez_compressed(folder / "draws.npz", z=np.zeros((4, 10**6, 2)))
    with pytest.raises(SavedRunError, match="longer than the file"):
        load(folder)


@pytest.mark.parametrize("where", [0.1, 0.5, 0.9, 0.999])
def test_cut_archives(folder: Path, where: float) -> None:
    whole = (folder / "draws.npz").read_bytes()
    (folder / "draws.npz").write_bytes(whole[: int(where * len(whole))])
    with pytest.raises(SavedRunError, match="damaged"):
        load(folder)


def test_a_flipped_bit_of_the_draws(folder: Path) -> None:
    content = bytearray((folder / "draws.npz").read_bytes())
    content[len(content) // 2] ^= 16
    (folder / "draws.npz").write_bytes(content)
    with pytest.raises(SavedRunError, match="damaged"):
        load(folder)


# Saving over a run

KILLED = """
import os, sys, numpy as np, stanct
from pathlib import Path
import stanct.runs.exchange as exchange
folder = sys.argv[1]

def before(function):
    def called(*args, **settings):
        if left[0] == 0:
            os._exit(137)
        left[0] -= 1
        return function(*args, **settings)
    return called

exchange._synchronise = before(exchange._synchronise)
exchange.shutil.rmtree = before(exchange.shutil.rmtree)
Path.rename = before(Path.rename)
Path.write_text = before(Path.write_text)
np.savez = before(np.savez)

for step in range(40):
    left = [40]
    child = os.fork()  # so that the package is imported once
    if child == 0:
        run = stanct.load(folder)
        object.__setattr__(run, "engine", "the new one")
        left = [step]
        run.save(folder)
        os._exit(0)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(status, stanct.load(folder).engine, flush=True)
    if status == 0:
        break
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.parametrize(
    "cause",
    [OSError(errno.ENOSPC, "No space left on device"), OSError("1000 requested and 96 written")],
)
def test_a_full_disk_is_named(
    cause: OSError, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NumPy's own error has no number."""
    run = load(folder)

    def full(*_given: Any, **_more: Any) -> None:
        raise cause

    monkeypatch.setattr(np, "savez", full)
    with pytest.raises(SavedRunError, match="The disk is full: make room on it, or choose another"):
        run.save(folder)
    cause.errno = errno.EACCES
    with pytest.raises(SavedRunError, match="Save it in a folder that you can write"):
        run.save(tmp_path / "other")
    monkeypatch.undo()
    assert np.array_equal(load(folder).draws, run.draws)


def test_a_kill_at_any_step_of_saving_leaves_a_whole_run(folder: Path) -> None:
    """The old one or the new one, also to the next save."""
    old = load(folder).engine
    command = [sys.executable, "-W", "ignore", "-c", KILLED, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = [line.split(" ", 1) for line in done.stdout.splitlines()]
    seen = [engine for _, engine in lines]
    assert [status for status, _ in lines] == ["137"] * (len(lines) - 1) + ["0"], done.stderr
    assert seen[0] == old and seen[-1] == "the new one" and len(seen) > 10
    assert seen == sorted(seen, key=lambda engine: engine != old)
    load(folder).save(folder)
    assert isinstance(load(folder), Run)
    # Neither what killed processes had begun is left, nor what they had put aside.
    assert [path.name for path in folder.parent.iterdir()] == ["line"]


OTHER = """
import sys
import stanct
run = stanct.load(sys.argv[1])
print("ready", flush=True)
while True:
    run.save(sys.argv[2])
"""


def test_other_processes_may_save_and_load_at_once(folder: Path) -> None:
    final = folder.parent / "final"
    run = load(folder)
    run.save(final)
    others = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", OTHER, str(folder), str(final)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    try:
        for other in others:
            assert other.stdout is not None and other.stdout.readline() == "ready\n"
        for _ in range(40):
            assert load(final).draws == run.draws
            run.save(final)
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.communicate()
    assert load(final).draws == run.draws


def test_a_folder_that_vanishes_while_it_is_looked_at(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path) -> Iterator[Path]:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "iterdir", gone)
    assert storage.check_save_folder(folder) == folder


def test_a_folder_that_vanishes_before_it_is_compared(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(path: Path, other: str) -> bool:
        raise FileNotFoundError(path)

    monkeypatch.setattr(Path, "samefile", gone)
    assert storage.check_save_folder(folder) == folder


@pytest.mark.parametrize("path", ["a" * 300, "a\0b", b"x", 3, None])
def test_what_no_file_can_be_called(folder: Path, path: Any, tmp_path: Path) -> None:
    run = load(folder)
    uses: list[Callable[[Any], object]] = [run.save, load, type(run).load, stanct.salvage]
    if path is not None:
        uses.append(run.report)
    for use in uses:
        with pytest.raises(StanctError, match=r"cannot be a path: |is the path of a folder, not"):
            use(path)
    model = stanct.temper("parameters { real x; } model { x ~ std_normal(); }")
    for name in ("store", "checkpoint") if path is not None else ():
        option: dict[str, Any] = {name: path}
        with pytest.raises(StanctError, match=f"{name} must be the path of a folder, or None"):
            model.sample(None, "gibbs", **option)


def test_what_is_saved_is_synchronised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run, seen = load(folder), list[str]()
    original = os.fsync

    def fsync(handle: int) -> None:
        seen.append(str(Path(f"/proc/self/fd/{handle}").readlink()))
        original(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    run.save(folder)
    names = {Path(path).name for path in seen}
    assert {"run.json", "draws.npz", "data.json", "density.stan", folder.parent.name} <= names


def test_what_stands_beside_a_run_stays(tmp_path: Path) -> None:
    run = line_run("gibbs")
    folder = tmp_path / "run"
    run.save(folder)
    before = sorted(path.name for path in folder.iterdir())
    (folder / "notes.txt").write_text("mine", encoding="utf-8")
    (folder / "pictures" / "first").mkdir(parents=True)
    (folder / "pictures" / "first" / "a.png").write_bytes(b"png")
    (folder / "latest").symlink_to("notes.txt")
    for _ in range(2):
        run.save(folder)
    assert (folder / "notes.txt").read_text(encoding="utf-8") == "mine"
    assert (folder / "pictures" / "first" / "a.png").read_bytes() == b"png"
    assert (folder / "latest").readlink() == Path("notes.txt")
    # Files of another run before it do not stay.
    (folder / "joint.stan").write_text("model { }", encoding="utf-8")
    head = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    head["programs"].append("joint")
    (folder / "run.json").write_text(json.dumps(head), encoding="utf-8")
    run.save(folder)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*before, "notes.txt", "pictures", "latest"]
    )
    again: Any = load(folder)
    assert again.evidence == run.evidence


@pytest.mark.skipif(sys.platform == "win32", reason="links need rights")
def test_a_link_to_a_run_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = line_run("gibbs")
    (tmp_path / "link").symlink_to("run")
    run.save(tmp_path / "link")  # dangling until then
    run.save(tmp_path / "link")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "run" / "run.json").is_file()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "run"]
    monkeypatch.chdir(tmp_path / "run")
    with pytest.raises(SavedRunError, match=r"current folder.*inside it"):
        run.save(".")

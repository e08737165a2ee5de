"""What a run keeps of its draws, and draws that go to disk as they are made."""

from __future__ import annotations

import json
import os
import shutil
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import LONG, SEED, target_of
from killing import survived
from sampled import sampled
from test_execution import assert_same

import stanct
from stanct.cli.main import main
from stanct.common.arrays import is_mapped, whole_file
from stanct.common.errors import CheckpointError, SamplingError, SavedRunError
from stanct.work import checkpoint
from stanct.work.shelf import Shelf

PROGRAM = """
data { int D; }
parameters { vector[D] x; real m; }
transformed parameters { real total = sum(x); }
model { x ~ normal(m, 1); m ~ normal(1, 0.5); }
generated quantities { real noise = normal_rng(total, 1); }
"""
METHODS = ("joint", "gibbs", "simulated_tempering", "independence")
CHAINS, DRAWS, THIN = 2, 330, 7


def run_of(method: str = "gibbs", *, size: int = 2, spread: float = 1.3, **settings: Any) -> Any:
    """A short run, whose base is near the target."""
    base = stanct.GaussianBase(np.full(size + 1, 0.9), spread * np.eye(size + 1))
    warmup = {} if method == "independence" else {"warmup": 150}
    given = {"chains": CHAINS, "draws": DRAWS, "seed": SEED, "base": base, "progress": False}
    return sampled(method, target_of(PROGRAM, {"D": size}), **{**given, **warmup, **settings})


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return {method: run_of(method) for method in METHODS}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stored") / "run"
    run_of(thin=THIN, store=folder)
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "run"))


# What is kept


@pytest.mark.parametrize("method", METHODS)
def test_log_z_does_not_depend_on_what_is_kept(
    method: str, whole: dict[str, Any], tmp_path: Path
) -> None:
    run, rows = whole[method], np.arange(0, DRAWS, THIN)
    thin = run_of(method, thin=THIN, keep=["x", "m"])
    stored = run_of(method, thin=THIN, store=tmp_path / "here")
    for other in (thin, stored):
        assert other.evidence.log_z == run.evidence.log_z
        assert other.evidence.std_error == run.evidence.std_error
        assert other.draws == DRAWS and np.array_equal(other.kept, rows)
        for name in ("beta", "delta"):
            assert np.array_equal(getattr(other, name), getattr(run, name))
        assert np.array_equal(other.z, run.z[:, rows])
        np.testing.assert_allclose(other.variables["x"], run.variables["x"][:, rows], rtol=1e-13)
    assert list(thin.variables) == ["x", "m"]
    assert list(stored.variables) == ["x", "m", "total", "noise"]
    assert is_mapped(stored.z) and not is_mapped(thin.z)
    assert {path.name for path in (tmp_path / "here").iterdir()} == {
        "run.json", "data.json", "draws.npz", "array-0.npy", "density.stan",
        *(["joint.stan"] if method == "joint" else []),
    }  # fmt: skip


def test_stopping_at_an_error_sees_the_kept_draws(tmp_path: Path) -> None:
    aim = {"target_se": 0.05, "draws": 200}
    run = run_of(spread=1.1, **aim)
    assert run_of(spread=1.1, store=tmp_path / "a", **aim).evidence == run.evidence
    assert run_of(spread=1.1, thin=3, **aim).evidence.log_z == run.evidence.log_z
    assert run.provenance["stopping"]["reason"] == "reached"


@pytest.mark.usefixtures("words_alone")
def test_averages_are_of_the_kept_draws_and_say_so(whole: dict[str, Any]) -> None:
    run, thin = whole["gibbs"], run_of(thin=THIN)
    kept = thin.kept.size
    every, few = run.expect("x"), thin.expect("x")
    weights = np.exp(run.log_weights()[:, thin.kept])
    by_hand = np.einsum("cn,cnk->k", weights, run.variables["x"][:, thin.kept]) / weights.sum()
    np.testing.assert_allclose(few.value, by_hand, rtol=1e-12)
    # Every seventh draw knows less: its error bars are wider, and cover what all draws say.
    assert np.all(few.std_error > 1.2 * every.std_error)
    assert np.all(np.abs(few.value - every.value) < 4 * few.std_error)
    assert np.all(thin.summary(["x"])["ess_bulk"] < 2 * CHAINS * kept)
    assert f"2 chains of 330 draws ({kept} with x)" in repr(thin)
    assert thin.facts()["draws of each chain with x"] == kept
    assert "Draws of each chain with x" in thin.report()
    assert "with x" not in repr(run) and "draws of each chain with x" not in run.facts()
    assert thin.resample(9, seed=1)["x"].shape == (CHAINS, 9, 2)
    tempered = thin.to_arviz(draws=10)["tempered"]
    assert tempered["x"].shape == (CHAINS, kept, 2)
    assert {check.name for check in thin.diagnostics} == {check.name for check in run.diagnostics}


def test_the_base_is_checked_by_the_kept_draws() -> None:
    """A base check with weights of other draws would fail on a good run."""
    run = run_of(draws=3000, thin=2)
    assert next(check for check in run.diagnostics if check.name == "base").passed
    moved = run.beta[:, run.kept] > 0
    assert moved.shape == run.z.shape[:2]
    with np.errstate(all="ignore"):
        delta = run.base.delta(run.z, target_of(PROGRAM, {"D": 2}).density.log_densities(
            run.base.unwhiten(run.z).reshape(-1, 3)).reshape(moved.shape))  # fmt: skip
    np.testing.assert_allclose(delta, run.delta[:, run.kept], rtol=1e-9)


def test_a_thinned_run_goes_on(folder: Path) -> None:
    run: Any = stanct.load(folder)
    longer = run.extend(100, progress=False)
    assert longer.draws == DRAWS + 100
    assert np.array_equal(longer.kept, [*run.kept, *(DRAWS + np.arange(0, 100, THIN))])
    assert np.array_equal(longer.z[:, : run.kept.size], run.z)
    assert longer.expect("x").value == pytest.approx(run.expect("x").value, abs=1)


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("parallel_tempering", {"thin": 2}, "keeps all its draws in memory, so thin= has no"),
        ("ais", {"store": "here"}, "use method 'auto', 'joint', 'gibbs'"),
        ("gibbs", {"store": "here", "checkpoint": "there"}, "Leave out checkpoint="),
        ("gibbs", {"thin": 100}, "would leave x of 3 draws. Pass thin=41 or less"),
        ("gibbs", {"thin": 0}, "thin must be a whole number"),
        ("gibbs", {"keep": "x"}, "keep must be a list of names of variables"),
        ("gibbs", {"keep": []}, "keep must be names of variables"),
        ("gibbs", {"keep": ["totl"]}, "Did you mean 'total'"),
    ],
)
def test_what_cannot_be_kept(method: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SamplingError, match=message):
        run_of(method, warmup=32, **options)


def test_thinning_that_is_a_setting_of_the_method_is_told_so() -> None:
    model = stanct.temper("parameters { real x; } model { x ~ std_normal(); }")
    with pytest.raises(SamplingError, match=r"Pass stanct.TACT\(thin=2\), a setting of its own"):
        model.sample(None, "tact", thin=2, progress=False)


# Files


def test_memory_does_not_grow_with_stored_draws(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stanct.samplers._variables.MOST_AT_ONCE", 2**17)

    def most(draws: int, **options: Any) -> float:
        tracemalloc.start()
        run_of("independence", size=100, spread=1.05, draws=draws, chains=1, **options)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak / 1e6

    few, many = (most(n, store=tmp_path / str(n)) for n in (1000, 5000))
    grown = 4000 * 101 * 8 / 1e6  # z alone
    assert many - few < 0.5 * grown
    assert most(5000) - most(1000) > 2 * grown


def test_a_loaded_run_maps_its_draws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = run_of("independence", size=40, draws=2000, store=tmp_path / "a")
    stanct.load(tmp_path / "a")  # imports what it needs
    tracemalloc.start()
    again: Any = stanct.load(tmp_path / "a")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 0.75 * (run.z.nbytes + run.variables["x"].nbytes)
    assert again.evidence == run.evidence
    assert is_mapped(again.variables["x"]) and not is_mapped(again.variables["m"])
    inside = np.array(again.variables["x"])
    wanted = again.expect(lambda _: inside)
    monkeypatch.setattr("stanct.estimates.weighted.MOST_AT_ONCE", 4000 * 7)  # seven columns
    monkeypatch.setattr("stanct.common.arrays.MOST_AT_ONCE", 300 * 80)  # 300 rows
    found = again.expect("x")
    np.testing.assert_allclose(found.value, wanted.value, rtol=1e-12)
    np.testing.assert_allclose(found.std_error, wanted.std_error, rtol=1e-9)
    np.testing.assert_allclose(found.effective_size, wanted.effective_size, rtol=1e-9)
    object.__setattr__(again, "variables", {"x": inside[..., :9]})
    table = again.summary()
    object.__setattr__(again, "variables", {"x": stanct.load(tmp_path / "a").variables["x"]})
    np.testing.assert_allclose(again.summary().iloc[:9], table, rtol=1e-9)


def test_a_stored_run_is_saved_by_links(folder: Path, tmp_path: Path) -> None:
    run: Any = stanct.load(folder)
    run.save(tmp_path / "other")
    assert (tmp_path / "other" / "array-0.npy").samefile(folder / "array-0.npy")
    assert_same(stanct.load(tmp_path / "other"), run)
    # Another file at that place is not mistaken for the run's.
    shutil.rmtree(folder)
    folder.mkdir()
    other = np.load(tmp_path / "other" / "array-0.npy")
    np.save(folder / "array-0.npy", other + 1)
    assert whole_file(run.z) is None
    run.save(tmp_path / "third")
    assert_same(stanct.load(tmp_path / "third"), run)
    run.save(tmp_path / "third")
    stanct.load(tmp_path / "third").save(tmp_path / "third")
    assert_same(stanct.load(tmp_path / "third"), run)


def test_where_links_cannot_be_made_files_are_copied(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError("no links here")

    monkeypatch.setattr(os, "link", link)
    run = stanct.load(folder)
    run.save(tmp_path / "other")
    assert not (tmp_path / "other" / "array-0.npy").samefile(folder / "array-0.npy")
    assert_same(stanct.load(tmp_path / "other"), run)


@LONG
def test_a_killed_run_is_read_and_goes_on(tmp_path: Path) -> None:
    survived(tmp_path, "stored_gibbs", "stored_joint")


def test_an_early_end_leaves_a_checkpoint(
    tmp_path: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, calls = Shelf.taken, 0

    def interrupted(*given: Any, **named: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 6:
            raise KeyboardInterrupt
        return taken(*given, **named)

    monkeypatch.setattr(Shelf, "taken", interrupted)
    run = run_of(store=tmp_path / "here")
    monkeypatch.undo()
    assert run.ended_early and 0 < run.draws < DRAWS and is_mapped(run.z)
    full = whole["gibbs"]
    assert np.array_equal(run.z, full.z[:, : run.draws])
    with pytest.raises(SavedRunError, match=r"It is a checkpoint: repeat"):
        stanct.load(tmp_path / "here")
    run.save(tmp_path / "early")  # of a part of the file
    read = run_of(store=tmp_path / "here", max_seconds=0)
    assert np.array_equal(read.z, run.z)
    assert_same(run_of(store=tmp_path / "here"), full)
    assert np.array_equal(stanct.load(tmp_path / "early").z, full.z[:, : run.draws])
    with pytest.raises(SavedRunError, match="holds a finished run"):
        run_of(store=tmp_path / "here")


def test_draws_reach_the_disk_before_the_checkpoint_that_counts_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    order: list[str] = []
    write, synchronise = checkpoint._write, Shelf.synchronise
    monkeypatch.setattr(checkpoint, "SOONEST", 0.0)
    monkeypatch.setattr(checkpoint, "SHARE", 0.0)
    monkeypatch.setattr(
        checkpoint, "_write", lambda path, text: (order.append(path.name), write(path, text))
    )
    monkeypatch.setattr(
        Shelf, "synchronise", lambda shelf: (order.append("draws"), synchronise(shelf))
    )
    run_of(store=tmp_path / "here")
    first = order.index("draws")
    assert first > 0 and len(order) > first + 4
    assert all(order[k - 1] == "draws" for k in range(first + 1, len(order), 2))


# What someone else may have made of a folder


def _head(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    head = json.loads((folder / "run.json").read_text())
    change(head)
    (folder / "run.json").write_text(json.dumps(head))


def _archive(folder: Path, **arrays: np.ndarray) -> None:
    with np.load(folder / "draws.npz") as found:
        named = dict(found)
    np.savez(folder / "draws.npz", **{**named, **arrays})


def _bytes(change: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    def damage(folder: Path) -> None:
        path = folder / "array-0.npy"
        path.write_bytes(change(path.read_bytes()))

    return damage


def _linked(folder: Path) -> None:
    (folder / "array-0.npy").rename(folder.parent / "array-0.npy")
    (folder / "array-0.npy").symlink_to(folder.parent / "array-0.npy")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_bytes(lambda text: text[:-8]), "not as long as it says"),
        (_bytes(lambda text: text + b"\0" * 8), "not as long as it says"),
        (_bytes(lambda text: text[:50]), "damaged run"),
        (_bytes(lambda text: b""), "damaged run"),
        (_bytes(lambda text: text.replace(b"'<f8'", b"'|O8'")), "not an array of numbers"),
        (_bytes(lambda text: text.replace(b"(48, 2, 3)", b"(-8, 2, 3)")), "damaged run"),
        (_bytes(lambda text: text.replace(b"(48, 2, 3)", b"(8**9,2,3)")), "damaged run"),
        (_bytes(lambda text: text.replace(b"False", b"True ")), "not an array of numbers"),
        (_linked, "is missing, or is no file"),
        (lambda folder: (folder / "array-0.npy").unlink(), "is missing, or is no file"),
        (lambda folder: _head(folder, lambda h: h.update(files={"z": ["../x", True]})), "cannot"),
        (lambda folder: _head(folder, lambda h: h.update(files={"z": [3, True]})), "cannot be"),
        (lambda folder: _head(folder, lambda h: h.update(files={"z": "here"})), "damaged run"),
        (lambda folder: _head(folder, lambda h: h.update(files=[1])), "damaged run"),
    ],
)
def test_a_damaged_store_is_an_error(
    folder: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(folder)
    with pytest.raises(SavedRunError, match=message):
        stanct.load(folder)


@pytest.mark.parametrize("damage", ["short", "link"])
def test_a_damaged_file_of_draws(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Shelf, "finish", _stopped)
    with pytest.raises(RuntimeError, match="here"):
        run_of(store=tmp_path / "here")
    monkeypatch.undo()
    file, victim = tmp_path / "here" / "draws-0.npy", tmp_path / "victim"
    if damage == "short":
        file.write_bytes(file.read_bytes()[:-100])
    else:
        victim.write_text("precious")
        file.unlink()
        file.symlink_to(victim)
    with pytest.raises(CheckpointError, match=r"too short|cannot be stored"):
        run_of(store=tmp_path / "here")
    assert damage == "short" or victim.read_text() == "precious"


def _stopped(*_: object) -> None:
    raise RuntimeError("here")


def test_a_kill_between_the_last_two_renames(
    folder: Path, whole: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The checkpoint is then aside, and the same call goes on with it."""
    shutil.rmtree(folder)
    monkeypatch.setattr(Shelf, "finish", _stopped)
    with pytest.raises(RuntimeError, match="here"):
        run_of(store=folder)
    monkeypatch.undo()
    folder.rename(folder.parent / f".{folder.name}.old")
    monkeypatch.setattr(Shelf, "taken", _stopped)  # no draw is made again
    assert_same(run_of(store=folder), whole["gibbs"])


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model.stan").write_text(PROGRAM)
    (tmp_path / "data.json").write_text('{"D": 2}')
    words = ["evidence", str(tmp_path / "model.stan"), str(tmp_path / "data.json")]
    words += ["--method", "gibbs", "--draws", "100", "--seed", "3", "--quiet", "--json"]
    words += ["--base", "laplace", "--hierarchies", "as-written"]
    main(words)
    plain = json.loads(capsys.readouterr().out)
    main([*words, "--thin", "4", "--keep", "m", "--store", str(tmp_path / "here")])
    found = json.loads(capsys.readouterr().out)
    assert found["log_z"] == plain["log_z"]
    assert (plain["kept_draws"], found["kept_draws"], found["draws"]) == (100, 25, 100)
    assert list(stanct.load(tmp_path / "here").variables) == ["m"]
    assert main([*words, "--store", str(tmp_path / "here")]) == 1
    assert "holds a finished run" in capsys.readouterr().err

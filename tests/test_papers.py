"""Figures and tables of the papers: names, kept pictures, short forms, and what they rest on."""

from __future__ import annotations

import csv
import importlib
import itertools
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT

PAPERS = ROOT / "examples" / "papers"
README = (PAPERS / "README.md").read_text(encoding="utf-8")
MODULES = (
    "run", "parts", "common", "betancourt", "graham_storkey", "nemeth", "luo", "ladders", "walkers",
    "relaxations", "decoders", "radon_evidence",
)  # fmt: skip


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the example, and forget all of them after the test."""
    monkeypatch.syspath_prepend(PAPERS)
    for name in MODULES:
        sys.modules.pop(name, None)
    yield importlib.import_module
    for name in MODULES:
        sys.modules.pop(name, None)


def table_of_figures() -> list[list[str]]:
    """The cells of the README's table of all figures."""
    lines = README.partition("## All figures and tables")[2].partition("\n## ")[0].splitlines()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")
    ]
    return rows[1:]


def test_the_table_has_every_name_and_no_other(
    papers: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    papers("run").main(["--list"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(papers("run").ITEMS) and len(listed) > 20
    named = [match for row in table_of_figures() for match in re.findall(r"^`([\w-]+)`$", row[1])]
    assert sorted(named) == sorted(listed)


def test_every_row_says_what_is_there_or_what_is_missing() -> None:
    """Rows with a command have seconds of both forms and a picture; the others give a reason."""
    rows = table_of_figures()
    assert all(len(row) == 6 for row in rows)
    for figure, name, quick, full, says, picture in rows:
        if name == "none":
            assert (quick, full, picture) == ("", "", "") and len(says) > 40, figure
        else:
            assert re.match(r"\d+ s$", quick) and re.search(r"\d", full), figure
            assert (PAPERS / picture.strip("`")).is_file() or picture.startswith("not kept"), figure


def test_kept_pictures_are_small_and_shown() -> None:
    pictures = sorted((PAPERS / "gallery").glob("*.png"))
    assert pictures
    for picture in pictures:
        assert picture.stat().st_size <= 100_000, picture.name
        assert f"](gallery/{picture.name})" in README, picture.name
        assert picture.with_suffix(".csv").is_file()
    shown = set(re.findall(r"\]\(gallery/([\w-]+\.png)\)", README))
    assert shown == {picture.name for picture in pictures}


def test_a_short_form_and_going_on(
    papers: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Annealing on three ladders; a part cut off in the file is made again, the others are kept."""
    main, arguments = papers("run").main, ["amc-figure-6", "--quick", "--out", str(tmp_path)]
    main(arguments)
    said = capsys.readouterr().out
    kept = tmp_path / "amc-figure-6.quick.parts.jsonl"
    lines = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    table = (tmp_path / "amc-figure-6.csv").read_text(encoding="utf-8")
    assert (tmp_path / "amc-figure-6.png").read_bytes().startswith(b"\x89PNG")
    assert (tmp_path / "amc-figure-6.txt").read_text(encoding="utf-8").strip() in said
    rows = list(csv.DictReader(table.splitlines()))
    worst: dict[str, float] = {}
    for row in rows:
        gap = abs(float(row["mean of θ"]) - float(row["exact"]))
        worst[row["ladder"]] = max(worst.get(row["ladder"], 0.0), gap)
    assert worst["25 of equal KL"] < 0.02 < 0.1 < min(worst["25 even"], worst["100 even"])
    kept.write_text("".join(lines[:2]) + lines[2][:50], encoding="utf-8")
    main([*arguments, "--resume"])
    again = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    assert again[:2] == lines[:2] and len(again) == 3
    assert (tmp_path / "amc-figure-6.csv").read_text(encoding="utf-8") == table


@LONG
@pytest.mark.parametrize(
    "name", [row[1].strip("`") for row in table_of_figures() if row[1] != "none"]
)
def test_all_short_forms(name: str, tmp_path: Path) -> None:
    """Every command of the table runs, and writes its three files."""
    command = [sys.executable, str(PAPERS / "run.py"), name, "--quick", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    table = (tmp_path / f"{name}.csv").read_text(encoding="utf-8")
    assert table.count("\n") >= 2 and (tmp_path / f"{name}.txt").stat().st_size > 50
    assert (tmp_path / f"{name}.png").stat().st_size < 150_000


def test_a_wrong_name_or_executor_is_refused(
    papers: Callable[[str], ModuleType], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main = papers("run").main
    with pytest.raises(SystemExit):
        main(["gs-figure-99"])
    assert "not 'gs-figure-99'" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no executor 'cluster'"):
        main(["amc-figure-5", "--executor", "cluster", "--out", str(tmp_path)])


def test_parts_of_another_version_are_made_anew(
    papers: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = papers("parts")
    file, jobs = tmp_path / "parts", [{"value": 2.0, "seed": 1}]
    parts.Parts(file).all(square, jobs)
    parts.Parts(file).all(square, jobs)
    assert len(file.read_text(encoding="utf-8").splitlines()) == 1
    monkeypatch.setattr(parts.inspect, "getsource", lambda _: "def square(): ...")
    parts.Parts(file).all(square, jobs)
    assert len(file.read_text(encoding="utf-8").splitlines()) == 2


def square(value: float, seed: int) -> dict[str, Any]:
    """A part for the next test."""
    return {"square": np.float64(value**2), "draws": np.random.default_rng(seed).random(3)}


def test_parts_do_not_depend_on_the_worker(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """Serial and concurrent parts are the same; `only` leaves out what it does not name."""
    parts = papers("parts")
    jobs = [{"value": 0.1 * k, "seed": k} for k in range(6)]
    alone = parts.Parts(tmp_path / "alone").all(square, jobs)
    with ThreadPoolExecutor(3) as pool:
        assert parts.Parts(tmp_path / "pool", pool).all(square, jobs) == alone
    some = parts.Parts(tmp_path / "some", None, ('"seed": 4',)).all(square, jobs)
    assert some == [None, None, None, None, alone[4], None]
    with pytest.raises(SystemExit, match=r"every part.*square [0-9a-f]{8} .*\"seed\": 0"):
        parts.Parts(tmp_path / "none", None, ("cube",)).all(square, jobs)


def test_the_path_of_the_beta_binomial(papers: Callable[[str], ModuleType]) -> None:
    """log z is the published one, E[ΔV] its derivative, and the equal ladder is equal."""
    ladders = papers("ladders")
    beta = np.array([0.01, 0.1, 0.5, 1.0])
    np.testing.assert_allclose(
        ladders.log_z(beta), [-5.168723, -11.500454, -14.958572, -17.108582], atol=2e-6
    )
    h = 1e-5
    slope = (ladders.log_z(beta + h) - ladders.log_z(beta - h)) / (2 * h)
    np.testing.assert_allclose(ladders.mean_delta(beta), -slope, rtol=1e-5)
    equal = ladders.LADDERS["25 of equal KL"]
    steps = [ladders.divergence(a, b) for a, b in itertools.pairwise(equal)]
    assert equal.size == 25 and equal[0] == 0 and equal[-1] == 1
    np.testing.assert_allclose(steps, steps[0], rtol=1e-5)


def test_exact_draws_of_a_machine(papers: Callable[[str], ModuleType]) -> None:
    """Means and products of the signs are within 4.5 standard errors of the sum over states."""
    from stanct.bases.boltzmann import BoltzmannMachine

    rng = np.random.default_rng(3)
    machine = BoltzmannMachine.random(7, rng, scale=2.0)
    exact, count = machine.exact(), 40_000
    signs = papers("relaxations").exact_signs(machine, count, rng)
    np.testing.assert_allclose(signs.mean(axis=0), exact.mean, atol=4.5 / np.sqrt(count))
    second = exact.covariance + np.outer(exact.mean, exact.mean)
    np.testing.assert_allclose(signs.T @ signs / count, second, atol=4.5 / np.sqrt(count))


def test_walkers_have_the_right_moments(papers: Callable[[str], ModuleType]) -> None:
    """Two modes of unequal weight and width: the mean is within five standard errors."""
    data = {"weight": [0.3, 0.7], "centre": [[0.0, 0.0], [2.5, 1.0]], "sigma": [0.8, 0.5]}
    walk = papers("walkers").walk
    for method in ("RAM", "EE", "PT"):
        runs = [walk(method, "b", data, 10_000, seed)[0].mean(axis=0) for seed in range(6)]
        error = np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
        assert np.all(np.abs(np.mean(runs, axis=0) - [1.75, 0.7]) < 5 * error), method
        assert np.all(error < 0.08), method

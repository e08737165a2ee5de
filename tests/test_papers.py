"""Figures and tables of the papers: names, kept pictures, short forms, and what they rest on."""

from __future__ import annotations

import contextlib
import csv
import importlib
import importlib.util
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
from conftest import LONG, ROOT
from threadpoolctl import threadpool_info, threadpool_limits

import stanct
from stanct import kernels
from stanct.path.bias import PowerBias

PAPERS = ROOT / "examples" / "papers"
README = (PAPERS / "README.md").read_text(encoding="utf-8")
MODULES = (
    "run", "parts", "common", "betancourt", "boltzmann_errors", "graham_storkey", "nemeth", "luo",
    "ladders", "contact_flow", "contact_figures", "factor_graph", "flow_runs", "walkers",
    "relaxations", "decoders", "radon_evidence", "decoder_chains", "decoder_nets",
    "decoder_training", "networks", "network_table", "plane_copies", "copy_costs", "gobbo",
    "horseshoes", "joint_hmc", "line_hmc",
)  # fmt: skip


IMPORTED: dict[str, ModuleType] = {}


@pytest.fixture
def papers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], ModuleType]]:
    """Import a module of the example; other files' tests find none of them, as other examples have
    modules of the same names."""
    monkeypatch.syspath_prepend(PAPERS)
    for name in MODULES:
        sys.modules.pop(name, None)
    sys.modules.update(IMPORTED)
    yield importlib.import_module
    for name in MODULES:
        if module := sys.modules.pop(name, None):
            IMPORTED[name] = module


def table_of_figures() -> list[list[str]]:
    """The cells of the README's table of all figures."""
    lines = README.partition("## All figures and tables")[2].partition("\n## ")[0].splitlines()
    rows = [
        [cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| ")
    ]
    return rows[1:]


def named() -> list[str]:
    """The names to which the table's last column links."""
    links = [
        re.fullmatch(r"\[`([\w-]+)`\]\(figures/\1\.md\)", row[3]) for row in table_of_figures()
    ]
    return [link[1] for link in links if link]


def test_the_table_has_every_name_and_no_other(
    papers: Callable[[str], ModuleType], capsys: pytest.CaptureFixture[str]
) -> None:
    papers("run").main(["--list"])
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == list(papers("run").ITEMS) and len(listed) > 20
    assert sorted(named()) == sorted(listed)


def test_every_row_has_a_verdict_and_a_page_that_repeats_it() -> None:
    """A page begins with the picture and the verdict, and has a command and the times."""
    rows = table_of_figures()
    assert all(len(row) == 4 for row in rows)
    for figure, verdict, says, page in rows:
        assert verdict in ("agrees", "partly", "differs", "missing") and says, figure
        if page == "none":
            assert verdict == "missing", figure
            continue
        name = page.split("`")[1]
        text = (PAPERS / "figures" / f"{name}.md").read_text(encoding="utf-8")
        title, picture, words, *_ = text.split("\n\n")
        assert title == f"# {figure}"
        assert re.fullmatch(rf"!\[.+\]\(\.\./gallery/{name}\.png\)", picture), figure
        assert re.match(rf"Verdict: \*\*{verdict}\*\*\.(\s|$)", words), figure
        assert f"\n    python run.py {name}" in text, figure
        assert re.search(r"^Short form: \d+ s\. Full form: .*\d", text, re.M), figure


def test_no_cell_of_the_gallery_is_long() -> None:
    for page in (PAPERS / "README.md", *(PAPERS / "figures").glob("*.md")):
        for line in page.read_text(encoding="utf-8").splitlines():
            if line.startswith("|"):
                assert max(len(cell.split()) for cell in line.split("|")) <= 25, (page.name, line)


def test_links_of_the_gallery_lead_somewhere() -> None:
    for page in (PAPERS / "README.md", *(PAPERS / "figures").glob("*.md")):
        for link in re.findall(r"\]\(([^)#]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).is_file(), (page.name, link)


def test_kept_pictures_are_small_and_shown() -> None:
    pictures = sorted((PAPERS / "gallery").glob("*.png"))
    assert sorted(picture.stem for picture in pictures) == sorted(named())
    for picture in pictures:
        assert picture.stat().st_size <= 100_000, picture.name
        assert picture.with_suffix(".csv").is_file()


@LONG
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
    picture = (tmp_path / "amc-figure-6.png").read_bytes()
    assert picture.startswith(b"\x89PNG") and len(picture) < 150_000
    assert (tmp_path / "amc-figure-6.txt").read_text(encoding="utf-8").strip() in said
    rows = list(csv.DictReader(table.splitlines()))
    worst: dict[tuple[str, str], float] = {}
    for row in rows:
        gap, key = abs(float(row["mean of θ"]) - float(row["exact"])), row["ladder"]
        worst[key, row["transitions"]] = max(worst.get((key, row["transitions"]), 0.0), gap)
    two = [worst[key, "2"] for key in ("25 of equal KL", "100 even", "25 even")]
    assert two[0] < 0.08 < 0.15 < two[1] < 0.3 < two[2]
    assert worst["25 of equal KL", "10"] < 0.02
    kept.write_text("".join(lines[:2]) + lines[2][:50], encoding="utf-8")
    main([*arguments, "--resume"])
    again = kept.read_text(encoding="utf-8").splitlines(keepends=True)
    assert again[:2] == lines[:2] and len(again) == len(lines) == 6
    assert (tmp_path / "amc-figure-6.csv").read_text(encoding="utf-8") == table


@LONG
@pytest.mark.parametrize("name", [name for name in named() if name != "amc-figure-6"])
def test_all_short_forms(papers: Callable[[str], ModuleType], name: str, tmp_path: Path) -> None:
    """Every command of the table runs, and writes its three files. The test above has one of them.

    They share what they import and compile. The one that loads JAX has a process of its own.
    """
    arguments = [name, "--quick", "--out", str(tmp_path)]
    if name == "tact-table-1-networks":
        command = [sys.executable, str(PAPERS / "run.py"), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    else:
        papers("run").main(arguments)
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
    with pytest.raises(SystemExit):
        main([])
    assert "error: give a name; --list prints them all" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="no executor 'cluster'"):
        main(["amc-figure-6", "--executor", "cluster", "--out", str(tmp_path)])


@pytest.mark.parametrize(
    "options",
    [["--executor", "foo"], ["--executor", "dask"], ["--executor", "dask:nowhere"],
     ["--only", "NONE"], ["--only", "25 even"], ["--workers", "0"], ["--data", "nowhere"]],
)  # fmt: skip
def test_a_refused_command_leaves_finished_parts(
    papers: Callable[[str], ModuleType], options: list[str], tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setitem(sys.modules, "dask.distributed", None)  # as if it were not installed
    kept = tmp_path / "amc-figure-6.quick.parts.jsonl"
    kept.write_text("finished\n", encoding="utf-8")
    with pytest.raises(SystemExit):
        papers("run").main(["amc-figure-6", "--quick", "--out", str(tmp_path), *options])
    assert kept.read_text(encoding="utf-8") == "finished\n"


def test_a_failure_before_the_first_part_leaves_finished_parts(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """A folder that was named and lacks the images is refused, and nothing is drawn instead."""
    for name in ("tact-table-1", "tact-table-1-networks"):
        kept = tmp_path / f"{name}.quick.parts.jsonl"
        kept.write_text("finished\n", encoding="utf-8")
        with pytest.raises(SystemExit, match="Fashion-MNIST is not here"):
            papers("run").main([name, "--quick", "--data", str(tmp_path), "--out", str(tmp_path)])
        assert kept.read_text(encoding="utf-8") == "finished\n"


def test_without_jax_its_table_is_refused_before_any_work(
    papers: Callable[[str], ModuleType], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "jax" else find(name)
    )
    kept = tmp_path / "tact-table-1-networks.quick.parts.jsonl"
    kept.write_text("finished\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"pip install 'stanct\[papers\]'"):
        papers("run").main(["tact-table-1-networks", "--quick", "--out", str(tmp_path)])
    assert kept.read_text(encoding="utf-8") == "finished\n"


def test_without_resume_all_parts_are_made_anew(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    parts = papers("parts")
    file, jobs = tmp_path / "parts", [{"value": 2.0, "seed": k} for k in (1, 2)]
    parts.Parts(file).all(square, jobs)
    anew = parts.Parts(file, anew=True)
    anew.all(square, jobs[:1])
    anew.all(square, jobs[1:])
    lines = file.read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["result"]["square"] for line in lines] == [4.0, 4.0]


def threads_of_blas() -> dict[str, list[int]]:
    found = [one["num_threads"] for one in threadpool_info() if one["user_api"] == "blas"]
    return {"threads": found}


def test_linear_algebra_has_one_thread(
    papers: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever makes a part."""
    parts = papers("parts")
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with (
        threadpool_limits(2, "blas"),
        ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool,
    ):
        assert set(threads_of_blas()["threads"]) == {2}
        for text, _ in (
            parts.timed(threads_of_blas, {}),
            pool.submit(parts.timed, threads_of_blas, {}).result(),
        ):
            assert set(json.loads(text)["threads"]) == {1}


@LONG
def test_draws_of_beta_follow_their_density(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    """In ten bins for each ζ; draws with an atom at β = 0 do not, as they must not."""
    graham_storkey = papers("graham_storkey")
    work = papers("common").Work(True, 1, papers("parts").Parts(tmp_path / "parts"))
    made = graham_storkey.bounds(work)
    scores = {row["log ζ"]: row["largest score of ten bins of draws"] for row in made.rows}
    assert len(scores) == 2 and max(scores.values()) < 4
    draws = graham_storkey.bimodal_draws(4, 500, 0.0, 1, 0.1)
    beta = np.linspace(0, 1, 101)
    density = np.array([row["p(β)"] for row in made.rows[:101]])
    assert graham_storkey.largest_score(np.array(draws["beta"]), beta, density) > 4


def test_widths_of_the_posterior(papers: Callable[[str], ModuleType]) -> None:
    """Of a chain, and of weighted draws: the exact ones have .0175 and a third beyond it."""
    flow_runs, rng = papers("flow_runs"), np.random.default_rng(3)
    a, b = papers("ladders").shapes(1.0)
    exact = rng.beta(a, b, 20_000)
    assert pytest.approx(0.0175, abs=1e-4) == flow_runs.EXACT_SD
    mean, sd, away = flow_runs.widths({"chain": exact.reshape(4, -1)})
    assert abs(mean - flow_runs.EXACT_MEAN) < 5 * sd / np.sqrt(20_000)
    assert sd == pytest.approx(flow_runs.EXACT_SD, rel=0.03)
    assert away == pytest.approx(flow_runs.exact_tails(), abs=0.02)
    doubled = {"theta": np.append(exact, 9.0), "theta_log_weights": [*np.zeros(20_000), -np.inf]}
    np.testing.assert_allclose(flow_runs.widths(doubled), (mean, sd, away))


def test_texts_are_whole_sentences(papers: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """A full stop stands before "The short form", and what was not run is not named."""
    run, work = papers("run"), papers("common").Work
    for name in ("pe-table-1", "tact-table-1", "gs-figure-2"):
        short = run.ITEMS[name].make(work(True, 1, Canned(0), 1, tmp_path)).says
        assert re.search(r"[^.]\. The short form is too short", short), short
        assert "nan" not in run.ITEMS[name].make(work(False, 1, Canned(2), 1, tmp_path)).says
    with pytest.raises(SystemExit, match=r"Neither .*omni-iwae nor .* has a decoder_params\.npz"):
        run.main(["gs-figure-7", "--quick", "--data", str(tmp_path), "--out", str(tmp_path)])


SLOW_PART = """
import time
from pathlib import Path

def part(number, folder):
    if number:
        Path(folder, f"begun{number}").touch()
        try:
            time.sleep(60)
        except KeyboardInterrupt:
            pass  # a run of stanct returns the draws that it has
    return {"number": number}
"""
SLOW_FIGURE = """
import sys
import run, slow_part
from common import Item

def make(work):
    work.parts.all(slow_part.part, [{"number": n, "folder": sys.argv[1]} for n in (0, 1)])

if __name__ == "__main__":
    run.ITEMS["slow"] = Item("slow", "A part that does not end", make)
    run.main(["slow", "--out", sys.argv[1], *sys.argv[2:]])
"""


@pytest.mark.parametrize(
    ("executor", "number"),
    [("serial", signal.SIGTERM), pytest.param("serial", signal.SIGINT, marks=LONG),
     pytest.param("processes", signal.SIGINT, marks=LONG),
     pytest.param("dask", signal.SIGINT, marks=LONG)],
)  # fmt: skip
def test_an_interrupted_part_is_not_kept(
    executor: str, number: signal.Signals, tmp_path: Path
) -> None:
    """Ctrl-C reaches all processes of a terminal; what they return then is no finished part."""
    if executor == "dask":
        pytest.importorskip("distributed")
    (tmp_path / "slow_part.py").write_text(SLOW_PART, encoding="utf-8")
    (tmp_path / "slow.py").write_text(SLOW_FIGURE, encoding="utf-8")
    command = [sys.executable, "slow.py", str(tmp_path), "--executor", executor]
    command += [] if executor == "serial" else ["--workers", "2"]
    path = os.pathsep.join([str(PAPERS), str(tmp_path)])
    running = subprocess.Popen(
        command, cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE,
        text=True, start_new_session=True,
    )  # fmt: skip
    kept, until = tmp_path / "slow.parts.jsonl", time.monotonic() + 60
    while not ((tmp_path / "begun1").exists() and kept.exists() and kept.stat().st_size):
        assert running.poll() is None and time.monotonic() < until, running.communicate()[1]
        time.sleep(0.05)
    os.killpg(running.pid, number)
    _, said = running.communicate(timeout=30)
    assert running.returncode == 128 + number, said
    assert "Interrupted. Finished parts" in said and ": 1." in said and "--resume" in said
    assert "Traceback" not in said and len(said.splitlines()) < 5, said
    (line,) = kept.read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["result"] == {"number": 0}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--repeats", "0"], "--repeats: '0' is not a whole number from 1 on"),
        (["--repeats", "-2"], "--repeats: '-2' is not"),
        (["--seed", "-3"], "--seed: '-3' is not a whole number from 0 on"),
        (["--workers", "0"], "--workers: '0' is not"),
        (["--out", "/proc/x"], "--out: cannot make the folder /proc/x: "),
        (["--out", "{file}"], "--out: cannot make the folder"),
        (["--data", "{file}"], "--data: there is no folder"),
    ],
)
def test_wrong_options_are_refused_before_any_work(
    papers: Callable[[str], ModuleType],
    options: list[str],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "file").touch()
    options = [option.format(file=tmp_path / "file") for option in options]
    with pytest.raises(SystemExit) as refused:
        papers("run").main(["amc-figure-6", "--quick", "--out", str(tmp_path), *options])
    assert refused.value.code == 2 and said in capsys.readouterr().err
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("amc-figure-1 --repeats 7 --data {folder} --workers 5 --only NOTHING",
         "amc-figure-1 takes no --only and no --workers and no --repeats and no --data; "
         "--workers needs --executor processes or dask"),
        ("amc-figure-1 --seed 3 --resume", "amc-figure-1 takes no --resume and no --seed"),
        ("amc-figure-6 --repeats 2", "amc-figure-6 takes no --repeats"),
        ("amc-figure-6 --lengths 2", "amc-figure-6 takes no --lengths"),
        ("gs-figure-6 --executor dask", "gs-figure-6 takes no --executor"),
        ("amc-figure-6 --executor dask:h:1 --workers 2",
         "--workers needs --executor processes or dask"),
    ],
)  # fmt: skip
def test_options_that_mean_nothing_for_a_figure_are_refused(
    papers: Callable[[str], ModuleType],
    options: str,
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    given = options.format(folder=tmp_path).split()
    with pytest.raises(SystemExit) as refused:
        papers("run").main([*given, "--quick", "--out", str(tmp_path / "out")])
    (line,) = capsys.readouterr().err.splitlines()
    assert refused.value.code == 2 and line.endswith(f": error: {said}")
    assert not (tmp_path / "out").exists()


class StoppedError(Exception):
    """Raised in place of work."""


class Asked:
    """Work that notes what a figure asks of it, and ends when it comes to its parts."""

    quick, seed, repeats = True, 1, None

    def __init__(self) -> None:
        self.of: set[str] = set()

    def times(self, full: int, quick: int = 1) -> int:
        self.of.add("repeats")
        return min(full, quick)

    def judged(self, *_: str) -> str:
        return ""

    def __getattr__(self, name: str) -> Any:
        self.of.add(name)
        if name == "parts":
            raise StoppedError
        return () if name == "lengths" else None


def test_figures_take_the_options_that_they_ask_for(
    papers: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The list of each is complete, and has no other."""
    untrained = SimpleNamespace(
        pixels=4,
        generated=lambda count: (None, np.ones((count, 4))),
        bounds=lambda images, rng: (np.zeros(len(images)), np.zeros(len(images))),
    )
    monkeypatch.setattr(papers("decoders"), "network", lambda folder: untrained)
    for name, item in papers("run").ITEMS.items():
        work = Asked()
        with contextlib.suppress(StoppedError):
            item.make(work)
        assert work.of == set(item.takes), name


def test_one_kind_of_part_alone(papers: Callable[[str], ModuleType], tmp_path: Path) -> None:
    """Of a figure with two kinds of parts, `only` may leave out all of either kind."""
    file, jobs = tmp_path / "parts", [{"value": 2.0, "seed": 1}]
    some = papers("parts").Parts(file, None, ("square",))
    ((first,), other) = some.kinds((square, jobs), (cube, jobs))
    assert first["square"] == 4.0 and other == [None]
    other, ((second,)) = (
        papers("parts").Parts(file, None, ("cube",)).kinds((cube, jobs), (square, jobs))
    )
    assert other[0]["cube"] == 8.0 and second["square"] == 4.0
    with pytest.raises(SystemExit, match="--only leaves out every part"):
        papers("parts").Parts(tmp_path / "none", None, ("root",)).kinds((square, jobs))


def test_how_well_an_rmse_is_known(papers: Callable[[str], ModuleType]) -> None:
    """From the number of runs: of pairs of RMSEs with the same truth, nine in ten agree or more."""
    nemeth, rng = papers("nemeth"), np.random.default_rng(4)
    for runs in (4, 20):
        known, low, high = nemeth.agreeing(runs)
        errors = np.sqrt(np.mean(np.square(rng.standard_normal((20_000, runs))), axis=1))
        theirs = np.sqrt(np.mean(np.square(rng.standard_normal((20_000, 20))), axis=1))
        assert known == pytest.approx(errors.std(), rel=0.06)
        inside = np.mean((errors / theirs > low) & (errors / theirs < high))
        assert 0.91 < inside < 0.975, runs
    row = dict.fromkeys(nemeth.MOMENTS, 1.0) | {f"paper {m}": 1.0 for m in nemeth.MOMENTS}
    rows = [row | {"method": "HMC", "scenario": "a", "runs": runs} for runs in (4, 20)]
    told = "".join(nemeth.words_of_table_1(rows))
    assert "RMSE of 4 runs is known to 35%" in told and "from 0.46 to 2.17 agree" in told
    assert "RMSE of 20 runs is known to 16%" in told and "from 0.64 to 1.56 agree" in told
    assert "20 runs" not in "".join(nemeth.words_of_table_1(rows[:1])).partition("the paper")[0]


def test_words_of_small_numbers(papers: Callable[[str], ModuleType]) -> None:
    """One repetition on one system; the draws that weighted ones count as; means of a course."""
    errors = papers("boltzmann_errors")
    assert errors.longest_runs([], 1, 1).startswith("1 repetition in all, on 1 system. ")
    assert errors.longest_runs([], 20, 10).startswith("20 repetitions in all, on 10 systems. ")
    effective = papers("flow_runs").effective_draws
    assert effective({"theta_log_weights": [0.0, 0.0, -np.inf]}) == pytest.approx(2.0)
    course = [(float(k), float(k % 4)) for k in range(1, 9)]
    np.testing.assert_allclose(papers("radon_evidence").thousands(course), [[4, 1.5], [8, 1.5]])


def test_no_point_is_cut_off(papers: Callable[[str], ModuleType]) -> None:
    """Far points of the horseshoes' pictures, on the axis that is logarithmic beyond ±.1."""
    horseshoes = papers("horseshoes")
    gaps = {("prostate", "shared 5", 0.75): [-3.9, -0.2, 0.01]}
    row = {"data": "prostate", "method": "shared 5", "β": 0.75, "less HMC": -1.4,
           "standard error of that": 1.2}  # fmt: skip
    (axes,) = horseshoes.differences([row], gaps).axes
    low, high = axes.get_ylim()
    assert low < -4.2 and high > 0.05


@pytest.mark.parametrize("line", ["garbage", "[1]", '{"part": "a"}'])
def test_a_line_that_is_no_part_is_named(
    papers: Callable[[str], ModuleType], line: str, tmp_path: Path
) -> None:
    kept = tmp_path / "amc-figure-6.quick.parts.jsonl"
    kept.write_text(line + "\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"Line 1 of .*amc-figure-6.*is not a part"):
        papers("run").main(["amc-figure-6", "--quick", "--resume", "--out", str(tmp_path)])
    assert kept.read_text(encoding="utf-8") == line + "\n"


def test_words_that_no_part_has_are_refused_before_any_work(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    run = papers("run")
    for name, item in run.ITEMS.items():
        if "parts" not in item.takes:
            continue
        options = [name, "--only", "no such word", "--out", str(tmp_path)]
        with pytest.raises(SystemExit, match="--only leaves out"):
            run.main([*options, "--quick"])
        with pytest.raises(SystemExit, match="--only leaves out"):
            run.main([*options, *(["--data", str(tmp_path)] if "data" in item.takes else [])])
    assert not [file for file in tmp_path.iterdir() if file.stat().st_size]


def canned(job: dict[str, Any]) -> Any:
    """What the part of a job could be, with numbers that mean nothing."""
    job = dict(job)
    if methods := job.pop("methods", None):
        return [canned(job | {"method": method}) for method in methods]
    numbers = dict.fromkeys(
        ("gradients", "cpu", "seconds", "log_z", "mean", "covariance", "cost", "accuracy",
         "log_predictive"), 1.5,
    )  # fmt: skip
    return numbers | {
        "moments": [1.0, 2.0, 3.0, 4.0], "mse": [1.0, 2.0], "points": [[0.0, 1.0]], "label": "x",
        "images": "x", "draws": 10, "system": job.get("number"), "data": job.get("name"), **job,
    }  # fmt: skip


class Canned:
    """Parts of which there is only the one with this number."""

    def __init__(self, number: int) -> None:
        self.number = number

    def all(self, _: object, jobs: list[dict[str, Any]]) -> list[Any]:
        number = self.number % len(jobs)
        return [canned(job) if k == number else None for k, job in enumerate(jobs)]

    def kinds(self, *wanted: tuple[object, list[dict[str, Any]]]) -> list[Any]:
        return [self.all(*pair) for pair in wanted]


@pytest.mark.parametrize(
    "name",
    ["gs-figure-2", "pe-table-1", "pe-table-2", "pe-figure-4", "pe-figure-5", "pe-figure-7",
     "pe-figure-8", "tact-table-1", "tact-table-1-networks"],
)  # fmt: skip
@pytest.mark.parametrize(
    "number", [0, pytest.param(3, marks=LONG), pytest.param(11, marks=LONG), -1]
)
def test_figures_of_a_single_part(
    papers: Callable[[str], ModuleType], name: str, number: int, tmp_path: Path
) -> None:
    """These work with whatever parts --only leaves; the others need all, and say so."""
    run, work = papers("run"), papers("common").Work
    made = run.ITEMS[name].make(work(False, 1, Canned(number), 1, tmp_path))
    assert len(made.rows) >= 1 and len(made.says) > 50
    run.write(made, tmp_path, name)


def test_a_figure_that_needs_all_parts_says_so_before_any_work(
    papers: Callable[[str], ModuleType], tmp_path: Path
) -> None:
    options = ["--quick", "--out", str(tmp_path), "--only"]
    for name, word in (("gs-bounds", '"log_zeta": 1.5'), ("amc-figure-7", "25 even"),
                       ("tact-figure-1", '"sghmc"'), ("tact-figure-2", "needles"),
                       ("gs-figure-3", "radon "), ("gs-figure-4", "chunk")):  # fmt: skip
        with pytest.raises(SystemExit, match=r"needs all of its \d+ parts, and --only leaves out"):
            papers("run").main([name, *options, word])


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


def test_the_key_of_a_part_holds_what_it_calls(papers: Callable[[str], ModuleType]) -> None:
    """Functions of its own module and of others, with and without a cache, and whole scripts."""
    texts = papers("parts")._texts

    def named(function: Any) -> set[str]:
        return set(re.findall(r"^(?:def|class) (\w+)", "\n".join(texts(function)), re.M))

    mixture = named(papers("nemeth").mixture_run)
    assert {"mixture_run", "mixture_of", "mixture_powers", "walk"} <= mixture
    assert not mixture & {"temper", "sample", "default_rng"}
    machines = named(papers("graham_storkey").boltzmann_run)
    assert {"boltzmann_run", "system", "base_for", "sampled"} <= machines
    table = named(papers("network_table").network_runs)
    assert {"drawn", "Recurrent", "Convolutional", "likelihood", "adam", "momentum_sgd"} <= table
    script = (ROOT / "examples/boltzmann/run.py").read_text(encoding="utf-8")
    assert script in texts(papers("graham_storkey").boltzmann_run)


def square(value: float, seed: int) -> dict[str, Any]:
    """A part for the next test."""
    return {"square": np.float64(value**2), "draws": np.random.default_rng(seed).random(3)}


def cube(value: float, seed: int) -> dict[str, Any]:
    """Another part."""
    return {"cube": value**3, "seed": seed}


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
    assert equal.size == 26 and equal[0] == 0 and equal[-1] == 1
    np.testing.assert_allclose(steps, steps[0], rtol=1e-5)


def test_the_contact_flow_keeps_its_hamiltonian(
    papers: Callable[[str], ModuleType], monkeypatch: pytest.MonkeyPatch
) -> None:
    """log Z along the flow is the exact one, and a step twice as long has four times the error."""
    flows, rng = papers("contact_flow"), np.random.default_rng(1)
    mixture = flows.two_modes(0.95, 2.0, 0.5, 2.5)
    start = 2.5 * rng.standard_normal(20), rng.standard_normal(20)
    grid = np.linspace(-18, 18, 20_001)
    for beta in (0.01, 0.3, 0.9):
        weights = np.exp(-mixture.potential(grid, beta))
        exact = np.average(mixture.delta(grid)[0], weights=weights)
        assert mixture.mean(np.array(beta)) == pytest.approx(exact, abs=2e-3)
        log_z = np.log(weights.sum() * (grid[1] - grid[0]))
        assert mixture.log_z(np.array(beta)) == pytest.approx(log_z, abs=2e-3)
    cooled = flows.flow(mixture, *start, 3000)
    assert 0 < cooled.arrived.mean() < 1
    assert np.abs(cooled.log_z - mixture.log_z(cooled.beta)).max() < 2e-3
    y = np.full(3, 3.0), np.array([-1.0, 0.5, 1.5])
    errors = []
    for step in (0.01, 0.02):
        monkeypatch.setattr(flows, "STEP", step)
        course = flows.flow(flows.BETA_BINOMIAL, *y, int(60 / step))
        assert course.arrived.all()
        gaps = course.log_z - flows.exact_log_z(course.beta)
        errors.append(np.sqrt(np.mean(np.square(gaps))))
    assert errors[0] < 0.01 and 2.5 < errors[1] / errors[0] < 6


def test_a_flow_of_few_draws_of_hmc(papers: Callable[[str], ModuleType]) -> None:
    """The mean of ΔV by HMC is the exact one, and a trajectory on it has nearly the exact log Z."""
    flows, ladders = papers("contact_flow"), papers("ladders")
    for beta, y in ((0.01, 0.7), (1.0, -1.26)):
        found = [
            flows.hmc_mean(200, seed)(np.array([beta]), np.array([y]))[0] for seed in range(20)
        ]
        error = np.std(found, ddof=1) / np.sqrt(20)
        assert abs(np.mean(found) - ladders.mean_delta(beta)) < 4.5 * error
        assert error < 0.05 * ladders.mean_delta(beta)
    start = np.array([3.0]), np.array([1.0])
    course = flows.flow(flows.BETA_BINOMIAL, *start, 3000, mean=flows.hmc_mean(100, 1))
    assert course.arrived.all()
    assert np.abs(course.log_z - ladders.log_z(course.beta)).max() < 0.5


def test_the_effective_share_of_one_chain(papers: Callable[[str], ModuleType]) -> None:
    """Of an autoregression it is (1 − φ) / (1 + φ), and of a chain in one mode that mode's."""
    luo, rng = papers("luo"), np.random.default_rng(5)
    for phi in (0.0, 0.5, 0.9):
        noise, values = rng.standard_normal(40_000), np.zeros(40_000)
        for k in range(1, values.size):
            values[k] = phi * values[k - 1] + noise[k]
        assert luo.share_of_one(values) == pytest.approx((1 - phi) / (1 + phi), rel=0.15)
    middle = np.clip(rng.standard_normal(20_000), -2.4, 2.4)
    chain = np.concatenate([rng.standard_normal(5000) - 6, middle])
    assert luo.share_of_one(chain) < 0.05
    length, share = luo.longest_stay(chain)
    assert length == 20_000 and share == pytest.approx(1.0, abs=0.15)


def test_one_copy_is_taken_by_its_weight(papers: Callable[[str], ModuleType]) -> None:
    """Copies with no weight are never taken, and the others as often as their weights say."""
    rng = np.random.default_rng(6)
    weights = np.tile([0.5, 0.0, 0.2, 0.3], (20_000, 1))
    taken = papers("copy_costs").one_of_each(weights, rng)
    shares = np.bincount(taken, minlength=4) / taken.size
    np.testing.assert_allclose(shares, weights[0], atol=0.016)
    assert shares[1] == 0


def test_the_paper_s_forms_on_relaxations(papers: Callable[[str], ModuleType]) -> None:
    """A linear bias of slope log ζ, none learned, and no atom."""
    graham_storkey, errors = papers("graham_storkey"), papers("boltzmann_errors")
    for name in set(errors.FORMS) - {errors.HMC}:
        method, ours = graham_storkey.form_of_the_paper(name, 7.0)
        assert method.bias == ((0.0, 0.0), (1.0, 7.0)) and method.bootstrap == 0
        assert ours == method.name and getattr(method, "atom", 0.0) == 0.0


@LONG
def test_joint_by_hmc(papers: Callable[[str], ModuleType]) -> None:
    """Its gradient is that of its energy, and log Z and the mean of a small machine are found."""
    joint_hmc, graham_storkey = papers("joint_hmc"), papers("graham_storkey")
    machine, fit = graham_storkey.system(-1).machine, graham_storkey.base_for(-1, 0, 1)
    base, truth = fit.base, graham_storkey.system(-1).truth
    rng = np.random.default_rng(4)
    where = rng.standard_normal(base.dimension + 1)
    fixed = (np.ascontiguousarray(machine.factor), machine.biases, base.mean,
             np.ascontiguousarray(base.scale), 3.0)  # fmt: skip
    slope, unused = np.empty(where.size), np.empty(where.size)
    joint_hmc._energy(where, *fixed, slope)
    for axis, step in enumerate(1e-5 * np.eye(where.size)):
        ends = [joint_hmc._energy(where + s * step, *fixed, unused)[0] for s in (1, -1)]
        assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope[axis], abs=1e-5)
    found = [joint_hmc.joint_by_hmc(machine, base, fit.log_zeta, 3000, seed) for seed in (1, 2, 3)]
    log_z = np.array([run[2] for run in found])
    assert log_z.mean() == pytest.approx(truth.log_z, abs=0.15)
    x, log_weights, _, gradients = found[0]
    weights = np.exp(log_weights - log_weights.max())
    mean = np.average(x.reshape(-1, base.dimension), axis=0, weights=weights.ravel())
    sd = np.sqrt(np.diag(truth.covariance))
    assert np.all(np.abs(mean - truth.mean) < 0.4 * sd) and gradients == 240_004


def test_hmc_on_the_line(papers: Callable[[str], ModuleType]) -> None:
    """Its gradient is that of its energy, tempered chains have both masses, and plain ones one."""
    line_hmc, slope, unused = papers("line_hmc"), np.empty(2), np.empty(2)
    for tempered in (True, False):
        line_hmc._energy(-6.5, 0.7, tempered, slope)
        for axis, step in enumerate(1e-5 * np.eye(2)):
            ends = [line_hmc._energy(-6.5 + s * step[0], 0.7 + s * step[1], tempered, unused)[0]
                    for s in (1, -1)]  # fmt: skip
            assert (ends[0] - ends[1]) / 2e-5 == pytest.approx(slope[axis], abs=1e-6)
    made = papers("graham_storkey").hmc_draws(16, 2500, 1)
    weights = np.exp(made["log_weights"] - made["log_weights"].max())
    assert np.average(made["x"] < 0, weights=weights) == pytest.approx(0.6, abs=0.07)
    assert made["log_z"].mean() == pytest.approx(0.0, abs=0.1)
    left = (made["plain"] < 0).mean(axis=1)
    assert np.minimum(left, 1 - left).max() < 0.05 and 0 < (left > 0.5).sum() < left.size


def test_the_machine_of_the_authors(papers: Callable[[str], ModuleType]) -> None:
    """Numbers of the file `params_and_moms.npz` in the repository of Nemeth et al."""
    machine = papers("relaxations").authors_machine()
    assert machine.weights.shape == (28, 28)
    assert machine.weights[0, 1] == pytest.approx(0.6235342842109213, rel=1e-12)
    assert machine.biases[0] == pytest.approx(0.12775974788679412, rel=1e-12)


def test_exact_draws_of_a_machine(papers: Callable[[str], ModuleType]) -> None:
    """Means and products of the signs are within 4.5 standard errors of the sum over states."""
    from boltzmann_machine import BoltzmannMachine

    rng = np.random.default_rng(3)
    machine = BoltzmannMachine.random(7, rng, scale=2.0)
    exact, count = machine.exact(), 40_000
    signs = papers("relaxations").exact_signs(machine, count, rng)
    np.testing.assert_allclose(signs.mean(axis=0), exact.mean, atol=4.5 / np.sqrt(count))
    second = exact.covariance + np.outer(exact.mean, exact.mean)
    np.testing.assert_allclose(signs.T @ signs / count, second, atol=4.5 / np.sqrt(count))


@LONG
def test_walkers_have_the_right_moments(papers: Callable[[str], ModuleType]) -> None:
    """Two modes of unequal weight and width: the mean is within five standard errors."""
    data = {"weight": [0.3, 0.7], "centre": [[0.0, 0.0], [2.5, 1.0]], "sigma": [0.8, 0.5]}
    walk = papers("walkers").walk
    for method in ("RAM", "EE", "PT"):
        runs = [walk(method, "b", data, 10_000, seed)[0].mean(axis=0) for seed in range(6)]
        error = np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
        assert np.all(np.abs(np.mean(runs, axis=0) - [1.75, 0.7]) < 5 * error), method
        assert np.all(error < 0.08), method


def random_network(papers: Callable[[str], ModuleType]) -> Any:
    """A decoder of two codes and nine pixels, and an encoder that is nearly the prior."""
    rng = np.random.default_rng(4)

    def layer(inputs: int, outputs: int, scale: float) -> tuple[np.ndarray, np.ndarray]:
        return scale * rng.standard_normal((inputs, outputs)), 0.3 * rng.standard_normal(outputs)

    return papers("decoder_nets").Network(
        (layer(2, 6, 1.2), layer(6, 6, 0.8), layer(6, 9, 1.2)),
        (layer(9, 6, 0.5), layer(6, 6, 0.5)), (layer(6, 2, 0.3),), (layer(6, 2, 0.1),),
    )  # fmt: skip


@LONG
def test_many_images_at_once(papers: Callable[[str], ModuleType]) -> None:
    """log p(y) of eight images by all samplers, by quadrature over two codes."""
    chains, network = papers("decoder_chains"), random_network(papers)
    codes, images = network.generated(8)
    line = np.linspace(-8, 8, 161)
    grid = np.stack(np.meshgrid(line, line), axis=-1).reshape(-1, 2)
    exact = np.array([np.logaddexp.reduce(network.log_joint(grid, y)) for y in images])
    exact += 2 * np.log(line[1] - line[0])
    rng = np.random.default_rng(5)
    single, log_zeta = network.bounds(images, rng)
    assert np.all(single < exact) and np.abs(log_zeta - exact).max() < 1.5

    def rows(count: int) -> Any:
        return chains.Rows.of(network, images, log_zeta, count)

    found = {}
    up = rows(64)
    found["AIS"] = chains.annealed(up, 40, 0.3, rng).reshape(8, -1)
    start = (codes.repeat(64, axis=0) - up.mean) / up.sd
    # All particles of an image start at the one exact code, which they have to forget.
    back = chains.annealed(rows(64), 300, 0.3, rng, start).reshape(8, -1)
    values = {"AIS": np.log(np.exp(found["AIS"]).mean(axis=1)),
              "back": -np.log(np.exp(back).mean(axis=1))}  # fmt: skip
    bias, ends = chains.Bias.linear(0.0), np.array([50, 1500])
    ladder = chains.LadderBias.linear(chains.sigmoidal_ladder(20), 0.0)
    for name, move, law in (
        ("gibbs", chains.gibbs(rows(4), 0.3, rng), bias),
        ("simulated", chains.simulated(rows(4), 20, 0.3, rng), ladder),
        ("joint", chains.joint(rows(4), 3.0, 0.3, rng), bias),
    ):
        line_of, single_chains = chains.running_log_z(move, law, ends, 4)
        assert line_of.shape == (2, 8) and single_chains.shape == (4, 8)
        values[name] = line_of[-1]
    for name, value in values.items():
        gaps = value + log_zeta - exact
        assert np.abs(gaps).max() < 0.3, (name, gaps)
        assert abs(gaps.mean()) < 0.06, (name, gaps)


def test_training_raises_the_bound(papers: Callable[[str], ModuleType]) -> None:
    """The gradient of the bound is that of differences, and a few updates raise it by nats."""
    training = papers("decoder_training")
    plan = training.Plan(2, 5, 150, 4e-3)
    rng = np.random.default_rng(1)
    pictures = training.strokes(300, rng)
    assert pictures.shape == (300, 144) and 0.05 < pictures.mean() < 0.3
    weights = [w.astype(float) for w in training.first_weights(plan, 144, rng)]

    def bound() -> tuple[float, list[np.ndarray]]:
        return training.ascent(weights, pictures[:20], np.random.default_rng(3))

    _, gradient = bound()
    for layer in (0, 2, 4, 6, 7, 8, 10, 13):
        place = np.unravel_index(np.abs(gradient[layer]).argmax(), gradient[layer].shape)
        ends = []
        for step in (1e-4, -2e-4):
            weights[layer][place] += step
            ends.append(bound()[0])
        weights[layer][place] += 1e-4
        slope = (ends[0] - ends[1]) / 2e-4
        assert gradient[layer][place] == pytest.approx(slope, rel=2e-2), layer
    network, last = training.train(pictures, plan, 1)
    first = training.ascent(training.first_weights(plan, 144, rng), pictures[:50], rng)[0]
    assert last > first + 20
    assert network.bounds(pictures[:50], rng)[1].mean() > -45


@LONG
def test_copies_in_the_plane(papers: Callable[[str], ModuleType]) -> None:
    """The gradient of the copies' density, and moments of two modes with copies at β = .2."""
    plane, mixture_of = papers("plane_copies"), papers("walkers").mixture_of
    data = {"weight": [0.3, 0.7], "centre": [[0.0, 0.0], [2.5, 1.0]], "sigma": [0.4, 0.5]}
    mixture = mixture_of(data)
    x = np.random.default_rng(2).standard_normal((3, 2))
    gradient, level = np.empty((3, 2)), np.empty(3)
    value = plane.copies_density(x, gradient, level, 0.3, mixture)
    moved = x.copy()
    moved[1, 0] += 1e-6
    slope = (plane.copies_density(moved, np.empty((3, 2)), level, 0.3, mixture) - value) / 1e-6
    assert gradient[1, 0] == pytest.approx(slope, rel=1e-4)
    runs = [plane.copies_hmc(seed, 2, 0.2, (4000, 400), mixture)[0] for seed in range(6)]
    error = np.std(runs, axis=0, ddof=1) / np.sqrt(len(runs))
    exact = [1.75, 0.7, 0.3 * 0.16 + 0.7 * (6.25 + 0.25), 0.3 * 0.16 + 0.7 * 1.25]
    assert np.all(np.abs(np.mean(runs, axis=0) - exact) < 5 * error) and np.all(error < 0.1)


def test_copies_in_the_plane_are_those_of_stanct(papers: Callable[[str], ModuleType]) -> None:
    """The density of Table 2 is the extended density of powers of the target."""
    plane, mixture_of = papers("plane_copies"), papers("walkers").mixture_of
    mixture20 = papers("common").example("mixture20")
    data = mixture20.scenario_data("b")
    density = stanct.temper(mixture20.HERE / "mixture20.stan").target(data).density
    bias, fixed = PowerBias.between(0.0, (0.1, 1.0)), np.full(3, 0.3)
    ours = kernels.make_extended(density, mixture20.BASE, bias, 3, fixed)
    gaps = []
    for z in np.random.default_rng(3).standard_normal((5, 3, 2)):
        x, level, gradient = mixture20.BASE.unwhiten(z), np.empty(3), np.empty(6)
        value = plane.copies_density(x, np.empty((3, 2)), level, 0.3, mixture_of(data))
        found = kernels.evaluate_extended(
            ours, z.ravel(), gradient, np.empty(3), kernels.make_scratch(2)
        )
        gaps.append(found - value)
    assert np.ptp(gaps) < 1e-8


def test_scale_of_the_paper_s_copies(papers: Callable[[str], ModuleType]) -> None:
    """With that ζ both bounds of β are equally likely under a normal density of unit covariance."""
    relaxations = papers("relaxations")
    low, high = relaxations.BOUNDS
    chosen, log_zeta = relaxations.copies_of("powers 2", None, 24, 3.0)
    assert chosen.instrument == "target" and chosen.beta_bounds == (low, high)
    density = [
        b * (3.0 - log_zeta) + 12 * (1 - b) * np.log(2 * np.pi) - 12 * np.log(b)
        for b in (low, high)
    ]
    assert density[0] == pytest.approx(density[1])
    code, log_zeta = relaxations.copies_of("code 5", None, 24, 3.0)
    assert (code.copies, code.beta_bounds, log_zeta) == (5, (0.1, 0.9), 0.0)


@LONG
def test_copies_that_share_scales_change_their_posterior(
    papers: Callable[[str], ModuleType],
) -> None:
    """The factor E[L^β | scales] on draws of the posterior gives what such copies give."""
    horseshoes = papers("horseshoes")
    lasso, beta, rng = papers("common").example("lasso_horseshoe"), 0.75, np.random.default_rng(8)
    data = lasso.split(*lasso.simulate(40, 8, 1), 3, 1)
    block, _ = lasso.plain("horseshoe", data, 3000, 5)
    tau, slab = (block.variables[name].ravel()[::4] for name in ("tau", "slab"))
    local2 = np.square(block.variables["lambda"].reshape(-1, data["d"])[::4])
    width = 4.0 * slab[:, None]
    scale = tau[:, None] * np.sqrt(width * local2 / (width + tau[:, None] ** 2 * local2))
    z, alpha = rng.standard_normal((1000, data["d"])), 5.0 * rng.standard_normal(1000)
    sign = 2 * data["y"] - 1
    factor = np.empty(tau.size)
    for k, one in enumerate(scale):
        logits = alpha[:, None] + (z * one) @ data["x"].T
        factor[k] = np.exp(-beta * np.logaddexp(0, -sign * logits).sum(axis=1)).mean()
    log_tau = np.log(tau)
    wanted = np.average(log_tau, weights=factor)
    error = np.sqrt(np.sum((factor / factor.sum() * (log_tau - wanted)) ** 2))
    copies, _ = horseshoes.shared_copies("shared 2", beta, data, 3000, 6)
    found = np.log(copies.variables["tau"]).mean()
    assert abs(found - wanted) < 4 * error
    assert found - log_tau.mean() > 6 * error


def test_copies_are_beside_hmc_on_the_same_split(
    papers: Callable[[str], ModuleType],
) -> None:
    """Splits differ by far more than samplers do, so the errors are those of differences."""
    horseshoes = papers("horseshoes")
    found = [
        {"data": "colon", "method": method, "beta": beta, "split": split, "gradients": cost,
         "log_predictive": level + gap + 0.01 * split}
        for method, beta, gap, cost in (("HMC", None, 0.0, 100), ("PE 2", 0.5, -0.3, 400))
        for split, level in enumerate((-2.0, -4.0, -9.0))
    ]  # fmt: skip
    found[-1]["log_predictive"] += 0.03
    gaps = horseshoes._gaps(found)
    np.testing.assert_allclose(gaps["colon", "PE 2", 0.5], (-0.3, -0.3, -0.27))
    plain, copies = (horseshoes._row(those, gaps) for those in (found[:3], found[3:]))
    assert np.isnan(plain["less HMC"]) and copies["standard error"] > 1
    np.testing.assert_allclose(copies["less HMC"], -0.29)
    np.testing.assert_allclose(copies["standard error of that"], 0.01)
    assert "-0.290 ± 0.010 (PE 2, β 0.5)" in horseshoes._beside_hmc(gaps)
    assert "4.0 to 4.0 times" in horseshoes._cost([plain, copies])
    (axes,) = horseshoes.differences([plain, copies], gaps).axes
    low, high = axes.get_ylim()
    assert high - low < 1


def test_every_pair_of_methods_is_compared(papers: Callable[[str], ModuleType]) -> None:
    """The words of Graham & Storkey's Figure 2 compare methods at about equal cost."""
    errors = {
        ("joint", 6e5): 1.0, ("parallel_tempering", 8e5): 0.5, ("ais", 5e5): 1.4, ("ais", 4e6): 0.6,
    }  # fmt: skip
    rows = [
        {
            "method": name,
            "gradients": cost,
            "CPU s": 1.0,
            "log_z": error,
            "mean": 1.0,
            "covariance": 1.0,
        }
        | {f"{key} SE": 0.1 for key in ("log_z", "mean", "covariance")}
        for (name, cost), error in errors.items()
    ]
    beside_others = papers("boltzmann_errors").beside_others
    told = beside_others(rows, "gradients")
    assert "joint is behind parallel tempering for log Z" in told
    assert "parallel tempering is ahead of AIS for log Z" in told
    assert "joint is ahead of AIS for log Z" in told  # as of AIS's shorter runs


def test_the_extended_hamiltonian_finds_the_other_mode(
    papers: Callable[[str], ModuleType],
) -> None:
    gobbo = papers("gobbo")
    xi = np.array([-1.1, -0.6, 0.1, 0.5, 0.9])
    slope = (gobbo.coupling(xi + 1e-6)[0] - gobbo.coupling(xi - 1e-6)[0]) / 2e-6
    np.testing.assert_allclose(gobbo.coupling(xi)[1], slope, atol=1e-6)
    made = gobbo.dynamics_run(True, 64, 4000, 3000, 7)
    assert abs(made["share"] - 0.6) < 4 * made["error"] < 0.3
    assert gobbo.dynamics_run(False, 64, 400, 0, 7)["share"] == 0.0

"""The command line as users see it: stdout, stderr, exit status."""

from __future__ import annotations

import errno
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from conftest import LONG, ROOT
from targets import SKEWED, TWO_MODES

import stanct
from stanct.cli import commands
from stanct.cli.main import main
from stanct.common.names import METHOD_NAMES
from stanct.runs import screen

DATA = {"N": 2, "y": [0, 1]}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "counts.stan"
    path.write_text(SKEWED.source)
    (tmp_path / "counts.data.json").write_text(json.dumps(DATA))
    return path


def test_evidence_json(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], seed: int
) -> None:
    save = tmp_path / "run"
    arguments = ["evidence", str(model), str(tmp_path / "counts.data.json"), "--json"]
    arguments += ["--seed", str(seed), "--draws", "600", "--save", str(save)]
    assert main(arguments) == 0
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert captured.out.count("\n") == 1
    page = (ROOT / "docs" / "from_r.md").read_text("utf-8")
    told = " ".join(re.findall(r"^\| (`.*?) \| ", page, re.M))
    wanted = set(re.findall(r"`(\w+)`", told))
    assert {"log_z", "warnings", "seed"} < wanted <= set(found)
    assert abs(found["log_z"] - SKEWED.log_z) < 4 * found["std_error"] < 0.4
    assert found["engine"] == "embedded" and found["gradients"] > 2000
    saved = stanct.load(save)
    assert isinstance(saved, stanct.EvidenceRun) and saved.evidence.log_z == found["log_z"]
    assert main(["draws", str(save), "--names", "r", "--draws", "500"]) == 0
    drawn = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert list(drawn) == ["chain__", "iter__", "draw__", "r"] and len(drawn) == 2000
    r = np.asarray(drawn["r"], float)
    assert abs(r.mean() - saved.expect("r").value) < 5 * r.std() / 500**0.5
    assert main(["draws", str(save), "--out", str(tmp_path / "new" / "draws.csv")]) == 0
    assert len(pd.read_csv(tmp_path / "new" / "draws.csv")) > 100
    capsys.readouterr()
    assert main(["summary", str(save), "--names", "r", "--prob", "0.5"]) == 0
    row = pd.read_csv(io.StringIO(capsys.readouterr().out), index_col="name").loc["r"]
    assert np.mean(r < row["q25"]) == pytest.approx(0.25, abs=0.06)
    assert np.mean(r < row["q75"]) == pytest.approx(0.75, abs=0.06)
    assert found["posterior"]["r"]["mean"] == pytest.approx(row["mean"])
    assert main(["draws", str(save), "--names", "r", "--weighted", "--quiet"]) == 0
    every: Any = pd.read_csv(io.StringIO(capsys.readouterr().out))
    assert len(every) == found["chains"] * found["draws"]
    assert every["weight__"].sum() == pytest.approx(1)
    assert (every["r"] * every["weight__"]).sum() == pytest.approx(found["posterior"]["r"]["mean"])
    assert main(["draws", str(save), "--weighted", "--draws", "9"]) == 1
    assert "their number cannot be chosen" in capsys.readouterr().err
    assert main(["draws", str(save), "--names", "r", "--draws", "10000"]) == 0
    assert "40,000 rows are copies of" in capsys.readouterr().err


def test_modes_for_other_programs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their rows in JSON, and in a summary; `mode__` of the draws agrees with their weights."""
    program, save = tmp_path / "two.stan", tmp_path / "run"
    program.write_text(TWO_MODES.source)
    words = ["evidence", str(program), "--json", "--seed", "1", "--draws", "400", "--quiet"]
    assert main([*words, "--save", str(save)]) == 0
    found = json.loads(capsys.readouterr().out)["modes"]
    assert [row["mode"] for row in found] == [1, 2]
    assert {"weight", "std_error", "log_z", "log_z_std_error", "x[1]"} < set(found[0])
    assert found[0]["weight"] == pytest.approx(0.7, abs=5 * found[0]["std_error"])
    assert main(["draws", str(save), "--weighted", "--quiet"]) == 0
    every: Any = pd.read_csv(io.StringIO(capsys.readouterr().out))
    weights = every.groupby("mode__")["weight__"].sum()
    assert weights.to_numpy() == pytest.approx([row["weight"] for row in found])
    assert main(["summary", str(save), "--by", "mode", "--quiet"]) == 0
    table: Any = pd.read_csv(io.StringIO(capsys.readouterr().out), index_col=["mode", "name"])
    assert table["mean"][1, "x[1]"] == pytest.approx(found[0]["x[1]"])


def test_json_has_null_for_what_it_lacks(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One chain has no error between chains."""
    data = str(model.with_name("counts.data.json"))
    arguments = ["evidence", str(model), data, "--json", "--quiet", "--chains", "1"]
    assert main([*arguments, "--draws", "100", "--seed", "1"]) == 0
    found = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert found["between_error"] is None
    assert found["sampler"] in [step["method"] for step in found["steps"]]
    unknown = {"one": {"log_z": -np.inf, "std_error": np.nan}, "chains": (1.5, np.inf)}
    plain = {"one": {"log_z": None, "std_error": None}, "chains": [1.5, None]}
    assert commands._in_json(unknown) == plain


@pytest.mark.parametrize("as_json", [False, True])
def test_a_method_without_evidence_says_so(
    model: Path, capsys: pytest.CaptureFixture[str], as_json: bool
) -> None:
    """The posterior is printed all the same; in JSON no log Z is better than a false one."""
    arguments = ["evidence", str(model), str(model.with_name("counts.data.json")), "--quiet"]
    arguments += ["--method", "tact", "--draws", "16", "--warmup", "100", "--seed", "1"]
    assert main([*arguments, *["--json"] * as_json]) == 0
    out = capsys.readouterr().out
    if as_json:
        found = json.loads(out)
        assert "log_z" not in found and found["sampler"] == "tact" and found["draws"] == 16
        assert "effective_size" in found["warnings"]
    else:
        assert out.startswith("No log Z: tact estimates no evidence.\n") and "Posterior" in out


def test_evidence_for_people(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = str(model.with_name("counts.data.json"))
    status = main(["evidence", str(model), data, "--draws", "100", "--seed", "1", "--quiet"])
    captured = capsys.readouterr()
    assert status == 0
    assert captured.out.startswith("log Z = -")
    done, believed, then = (captured.out.index(f"\n{w}") for w in ("Done", "Believe it?", "Next"))
    assert done < believed < then < captured.out.index("r_hat")
    plain = " ".join(captured.out.split())
    assert ", seed 1. The default took " in plain and "4 chains of " in plain
    assert "std_error" in captured.out and "\nr " in captured.out and "95%" in captured.out
    assert "%|" not in captured.err  # no progress bar


def test_temper_to_stdout_and_folder(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["temper", str(model)]) == 0
    assert "ct_log_weight_target" in capsys.readouterr().out
    assert main(["temper", str(model), "--kind", "density", "--out", str(tmp_path / "made")]) == 0
    path = Path(capsys.readouterr().out.strip())
    assert path == tmp_path / "made" / "counts_density.stan"
    assert "target += gamma_lpdf(r | 1.5, 0.5);" in path.read_text()


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    out = capsys.readouterr().out
    assert "embedded: stanli" in out and ": works" in out and stanct.__version__ in out


@pytest.mark.parametrize(
    ("source", "data", "words"),
    [
        (None, {}, "counts.stan: There is no such file"),
        ("parameters { real x }", {}, "counts.stan:1:"),
        ("parameters { real x; } model { x ~ normol(0, 1); }", {}, 'distribution \n?"normol"'),
        ("data { int N; } model { }", {"N": 1}, "no parameters"),
        ("parameters { real ct_u; } model { }", {}, "counts.stan:1:19: `ct_u` uses the reserved"),
        (SKEWED.source, {"N": 2}, "counts.stan:2:41: `y` is declared here"),
        (SKEWED.source, {"N": 2, "y": [1]}, r"counts.stan:2:41: `y` is declared with size \[N = 2"),
        (SKEWED.source, {"N": 2, "y": [1, -1]}, r"`y\[2\]` is -1 in .*, below the declared lower"),
    ],
    ids=["missing", "syntax", "type", "parameters", "prefix", "data", "shape", "range"],
)
def test_bad_input(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    source: str | None,
    data: dict,
    words: str,
) -> None:

    model, file = tmp_path / "counts.stan", tmp_path / "counts.data.json"
    if source is not None:
        model.write_text(source)
    file.write_text(json.dumps(data))
    started = time.perf_counter()
    assert main(["evidence", str(model), str(file), "--quiet"]) == 1
    assert time.perf_counter() - started < 5
    captured = capsys.readouterr()
    assert captured.out == ""
    assert re.search(words, captured.err), captured.err
    assert "Traceback" not in captured.err
    assert len(captured.err.splitlines()) > 1  # the remedy or the excerpt


def test_a_folder_that_is_not_a_run_is_refused_before_any_work(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(tmp_path / "counts.data.json")
    assert main(["evidence", str(model), data, "--save", str(tmp_path)]) == 1
    assert "not overwritten" in capsys.readouterr().err


OFTEN = """
import sys
from stanct.work import progress
progress.EVERY = 1.0
from stanct.cli.main import main
sys.exit(main())
"""


@LONG
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGINT")
def test_interrupt_reports_the_finished_draws(model: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-c", OFTEN, "evidence", str(model)]
    command += [str(tmp_path / "counts.data.json"), "--json", "--draws", "2000000", "--seed", "1"]
    command += ["--save", str(tmp_path / "run")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    # Off a terminal a line says every so many seconds how many draws are done.
    seen = []
    while not seen or not re.match(r"(joint|independence): [\d,]{3,} of [\d,]+ draws", seen[-1]):
        seen.append(process.stderr.readline())
        assert seen[-1], seen
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    found = json.loads(out)
    assert "interrupted" in found["warnings"] and found["draws"] >= 50
    assert abs(found["log_z"] - SKEWED.log_z) < 5 * found["std_error"]
    assert stanct.load(tmp_path / "run").draws == found["draws"]


def test_a_dash_stands_for_no_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "plain.stan"
    path.write_text("parameters { real x; } model { x ~ std_normal(); }", encoding="utf-8")
    short = ["--draws", "20", "--seed", "1", "--quiet", "--engine", "embedded", "--json"]
    assert main(["evidence", str(path), "-", *short]) == 0
    assert abs(json.loads(capsys.readouterr().out)["log_z"]) < 0.1


@LONG
@pytest.mark.skipif(sys.platform == "win32", reason="sends SIGTERM")
def test_sigterm_without_draws_is_told(tmp_path: Path) -> None:
    path = tmp_path / "endless.stan"
    path.write_text(
        "parameters { real x; } model { int k = 0; while (k < 1) k = 0; x ~ normal(k, 1); }",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "stanct", "evidence", str(path), "--timing"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    time.sleep(12)  # until it evaluates the density
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 143 and "ended by SIGTERM. No draws were finished" in err


@LONG
def test_strict_and_report(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A run of eight draws fails its checks: a warning by default, status 3 under --strict."""
    arguments = ["evidence", str(model), str(tmp_path / "counts.data.json"), "--seed", "1"]
    short = [*arguments, "--draws", "8", "--warmup", "150", "--method", "joint", "--quiet"]
    short += ["--set", "bootstrap=0", "--engine", "embedded"]
    assert main([*short, "--report", str(tmp_path / "short.html")]) == 0
    captured = capsys.readouterr()
    assert "Warning, round_trips" in captured.err and "Warning" not in captured.out
    assert "Not to be trusted" in (tmp_path / "short.html").read_text(encoding="utf-8")
    assert main([*short, "--strict"]) == 3
    assert capsys.readouterr().out.startswith("log Z ")
    assert main([*arguments, "--draws", "1000", "--strict", "--quiet"]) == 0
    capsys.readouterr()
    assert main([*short, "--report", str(tmp_path)]) == 1
    assert "is a folder" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["--save", "--report"])
def test_numbers_outlive_an_output_that_cannot_be_written(
    output: str,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    arguments = ["evidence", str(model), str(tmp_path / "counts.data.json"), "--seed", "1"]
    short = [*arguments, "--method", "gibbs", "--draws", "50", "--warmup", "150", "--quiet"]
    place = tmp_path / "there"
    with monkeypatch.context() as full:
        full.setattr(Path, "open", _refusing(Path.open))
        assert main([*short, output, str(place)]) == 1
    told = capsys.readouterr()
    assert told.out.startswith("log Z = ") and "No space left" in told.err
    monkeypatch.setattr(os, "access", lambda *_: False)
    monkeypatch.setattr(commands, "_finish", lambda *_: pytest.fail("the run began"))
    assert main([*short, output, str(place)]) == 1
    assert "takes no new files" in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("as_json", [False, True])
def test_a_signal_after_the_last_draw_loses_no_log_z(
    number: signal.Signals,
    as_json: bool,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def struck(*_: Any) -> str:
        os.kill(os.getpid(), number)
        time.sleep(10)
        return pytest.fail("the signal was not heard")

    monkeypatch.setattr(commands, "failures", struck)
    arguments = ["evidence", str(model), str(tmp_path / "counts.data.json"), "--seed", "1"]
    arguments += ["--method", "gibbs", "--draws", "50", "--warmup", "150", "--quiet"]
    arguments += ["--save", str(tmp_path / "run"), *["--json"] * as_json]
    if number == signal.SIGINT:
        assert main(arguments) == 130
    else:
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        assert ended.value.code == 143
    told = capsys.readouterr()
    run = stanct.load(tmp_path / "run")
    assert isinstance(run, stanct.EvidenceRun)
    found = json.loads(told.out)["log_z"] if as_json else float(told.out.split()[3])
    assert found == pytest.approx(run.evidence.log_z, abs=1e-3)
    assert f"The run was finished, and is in {tmp_path / 'run'}." in told.err


@pytest.mark.parametrize("encoding", [pytest.param("ascii", marks=LONG), "cp1252"])
def test_every_encoding_shows_the_table(encoding: str, model: Path, tmp_path: Path) -> None:
    """Of what an encoding lacks a question mark is shown."""
    done = _evidence(model, tmp_path, {"PYTHONIOENCODING": encoding}, subprocess.PIPE)
    assert done.returncode == 0 and b"Error" not in done.stderr
    assert (b" ? " if encoding == "ascii" else b" \xb1 ") in done.stdout
    assert b"std_error" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_stdout_is_told(model: Path, tmp_path: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = _evidence(model, tmp_path, {}, full)
    assert done.returncode == 1
    assert (
        done.stderr.decode() == "stanct: The output cannot be written: No space left on device.\n"
    )


@LONG
def test_a_run_is_saved_although_nobody_reads_its_log_z(model: Path, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as unread:
        done = _evidence(model, tmp_path, {}, unread, "--save", str(tmp_path / "run"))
    assert done.returncode == 141 and b"Error" not in done.stderr
    assert isinstance(stanct.load(tmp_path / "run"), stanct.EvidenceRun)


@LONG
def test_a_closed_stdout_is_no_error(model: Path, tmp_path: Path) -> None:
    script = (
        "import sys; sys.stdout = None; "
        "from stanct.cli.main import main; sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["evidence", str(model), str(tmp_path / "counts.data.json"), *GIBBS]
    done = subprocess.run([sys.executable, "-c", script, *arguments], capture_output=True)
    assert done.returncode == 0 and b"Error" not in done.stderr


GIBBS = ["--seed", "1", "--method", "gibbs", "--draws", "200", "--warmup", "150", "--quiet"]


def _evidence(
    model: Path, folder: Path, environment: dict[str, str], stdout: Any, *more: str
) -> subprocess.CompletedProcess[bytes]:
    arguments = ["evidence", str(model), str(folder / "counts.data.json"), *GIBBS, *more]
    return subprocess.run(
        [sys.executable, "-m", "stanct", *arguments],
        env=os.environ | environment,
        stdout=stdout,
        stderr=subprocess.PIPE,
        check=False,
    )


def _refusing(original: Callable[..., Any]) -> Callable[..., Any]:
    """`Path.open` on a full disk."""

    def opened(path: Path, mode: str = "r", **options: Any) -> Any:
        if "w" in mode:
            raise OSError(errno.ENOSPC, "No space left on device")
        return original(path, mode, **options)

    return opened


def test_the_same_command_goes_on_from_its_checkpoint(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = str(model.with_name("counts.data.json"))
    command = ["evidence", str(model), data, "--method", "gibbs", "--draws", "100", "--json"]
    command += ["--quiet", "--checkpoint", str(tmp_path / "going")]
    found = []
    for more in ([], ["--executor", "threads:2", "--timing"]):
        began = time.monotonic()
        assert main([*command, *more]) == 0
        wall = time.monotonic() - began
        told = capsys.readouterr()
        found.append(json.loads(told.out))
        del found[-1]["seconds"]
    assert found[0] == found[1]
    rows = re.findall(r"^(\w+) +([\d.]+) s +(\d+)%$", told.err, flags=re.M)
    assert [row[0] for row in rows[:2]] == ["start", "base"] and rows[-1][0] == "results"
    assert 97 <= sum(int(row[2]) for row in rows) <= 103
    assert sum(float(row[1]) for row in rows) == pytest.approx(wall, abs=0.1 * len(rows))
    assert main([*command, "--executor", "process"]) == 1
    assert "There is no executor 'process'. Write 'processes:4'" in capsys.readouterr().err
    assert main([*command, "--seed", "1"]) == 1
    assert "belongs to another run: its seed is" in capsys.readouterr().err


def fit_of_counts(folder: Path, shift: float = 0.0) -> list[str]:
    """CSV files of exact draws of the posterior, with lp__ of the program or of another one."""
    rng = np.random.default_rng(5)
    files = []
    for chain in range(2):
        r = rng.gamma(2.5, 1 / 2.5, 600)
        lp = 2.5 * np.log(r) - 2.5 * r + shift * r
        rows = [f"{a:.8g},{b:.8g}" for a, b in zip(lp, r, strict=True)]
        files.append(folder / f"counts_{chain}.csv")
        files[-1].write_text("\n".join(["# model = counts", "lp__,r", *rows]) + "\n")
    return list(map(str, files))


def test_bridge(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, files = str(tmp_path / "counts.data.json"), fit_of_counts(tmp_path)
    save, page = tmp_path / "run", tmp_path / "bridge.html"
    arguments = ["bridge", str(model), data, *files, "--seed", "1", "--json"]
    assert main([*arguments, "--save", str(save), "--report", str(page)]) == 0
    found = json.loads(capsys.readouterr().out)
    assert abs(found["log_z"] - SKEWED.log_z) < 4 * found["std_error"] < 0.1
    assert 1200 < found["gradients"] < 40_000  # one at each draw, and those of the search
    assert found["warnings"] == [] and found["draws"] == 600
    saved = stanct.load(save)
    assert isinstance(saved, stanct.BridgeRun) and saved.lp.shape == (2, 600)
    assert "plain bridge" in page.read_text(encoding="utf-8")


def test_bridge_warns_and_escalates(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lp__ of another program fails a check; --strict makes that the exit status."""
    data, files = str(tmp_path / "counts.data.json"), fit_of_counts(tmp_path, shift=1)
    arguments = ["bridge", str(model), data, *files, "--seed", "1", "--no-search", "--quiet"]
    assert main([*arguments, "--strict"]) == 3
    captured = capsys.readouterr()
    assert "Warning, program: " in captured.err and "bridge compared the draws" in captured.out
    assert main([*arguments, "--escalate", "--method", "gibbs"]) == 0
    captured = capsys.readouterr()
    assert "gibbs moved parameters" in captured.out and "Not to be trusted" in captured.out
    assert "Warning, program: The fit's lp__ less the program's log density" in captured.err


def test_bridge_without_data(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "normal.stan"
    path.write_text("parameters { real x; } model { x ~ std_normal(); }")
    x = np.random.default_rng(1).standard_normal(400)
    (tmp_path / "x.csv").write_text("\n".join(["x", *map(str, x)]) + "\n")
    assert main(["bridge", str(path), "-", str(tmp_path / "x.csv"), "--seed", "1"]) == 0
    assert capsys.readouterr().out.startswith("log Z = ")


def test_json_of_a_comparison_has_null_for_infinity(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    huge = stanct.BayesFactor(2000.0, 1.0).record()
    found = type("Found", (), {"record": lambda self: {"bayes_factors": [huge]}})()
    monkeypatch.setattr(commands.comparison, "compare", lambda *_, **__: found)
    assert main(["compare", "a", "b", "--json"]) == 0
    told = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert told["bayes_factors"][0]["value"] is None


def test_a_fit_may_be_a_table(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another separator, with words in it, as the help says."""
    with pytest.raises(SystemExit):
        main(["bridge", "--help"])
    assert "CSV table of all draws" in " ".join(capsys.readouterr().out.split())
    r = np.random.default_rng(5).gamma(2.5, 1 / 2.5, 800)
    table = tmp_path / "draws.csv"
    table.write_text("\n".join(["r;note", *(f"{x};ok" for x in r)]) + "\n")
    data = str(tmp_path / "counts.data.json")
    assert main(["bridge", str(model), data, str(table), "--seed", "1", "--no-search"]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert ": 1 chain of 800 draws" in told and "chains cannot be compared" in told


def test_shells_complete_commands(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["completion", "bash"]) == 0
    printed = capsys.readouterr().out
    assert "--target-se" in printed
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert main(["completion", "fish"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith("complete -c stanct -n ") for line in lines)
    assert not any(line.replace("\\'", "").count("'") % 2 for line in lines)
    within = [line for line in lines if "'__fish_seen_subcommand_from evidence'" in line]
    assert any("-l target-se -r" in line for line in within)
    assert any("-l strict -d" in line for line in within)
    assert any("-l method -x -a" in line and "gibbs" in line for line in within)
    assert sum(" -a extend" in line for line in lines) == 1
    assert main(["completion", "zsh"]) == 1
    assert "stanct[completion]" in capsys.readouterr().err


def test_output_that_nobody_reads_ends_the_command_quietly(tmp_path: Path) -> None:
    model = tmp_path / "model.stan"
    model.write_text("parameters { real x; } model { x ~ normal(0, 1); }", encoding="utf-8")
    command = [sys.executable, "-m", "stanct", "temper", str(model)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(), told) == (141, "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["evidnce", "a.stan"], "There is no command 'evidnce'. Did you mean evidence?"),
        (["a.stan"], "Did you mean stanct evidence a.stan?"),
        (["evidence", "a.stan", "--method", "gibs"], "Did you mean gibbs?"),
        (["evidence", "a.stan", "--drws", "3"], "Did you mean --draws?"),
        (["evidence", "a.stan", "--data", "b.json"], "A program is run by stanct evidence"),
        (["temper", "a.stan", "b.json", "--seed", "3"], "A program is run by stanct evidence"),
        (["sample", "a.stan", "b.json"], "A program is run by stanct evidence"),
        (["compare", "a", "--seed", "3"], "has it."),
        (
            ["evidence", "a.stan", "--out", "x"],
            "by --save FOLDER, and a page is written by --report",
        ),
        (["plot", "run", "tracee"], "Did you mean trace?"),
        (["zzz"], "There are temper, evidence, bridge"),
    ],
)
def test_a_misspelt_word_is_told_with_what_it_may_mean(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert told in said and said.count("\n") == 1


def test_plot(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "run"
    sampled = ["evidence", str(model), str(tmp_path / "counts.data.json"), "--seed", "1"]
    assert main([*sampled, "--draws", "100", "--quiet", "--save", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert f"stanct plot {saved} posterior" in shown
    assert main(["plot", str(saved), "posterior", "--names", "r", "--prior"]) == 0
    written = Path(capsys.readouterr().out.strip())
    assert written == tmp_path / "run_posterior.png"
    assert written.read_bytes()[:4] == b"\x89PNG"
    assert main(["plot", str(saved), "path", "--out", str(tmp_path / "p.svg")]) == 0
    assert "<svg" in (tmp_path / "p.svg").read_text()
    for wrong, told in (
        (["trace", "--names", "rr"], "Did you mean 'r'"),
        (["path", "--names", "r"], "takes no names"),
        (["trace", "--out", "p.doc"], "no format of pictures"),
        (["modes", "--names", "r"], "takes no names"),
    ):
        assert main(["plot", str(saved), *wrong]) == 1
        assert told in capsys.readouterr().err


def test_the_screen_has_words_for_every_method() -> None:
    assert {*METHOD_NAMES} - {"auto"} <= screen._DONE.keys()

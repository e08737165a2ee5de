"""The default on the standard targets of the literature: errors, costs, and what the checks say.

    python run.py --seeds 1 2 3 --out table.csv            # every target: an hour
    python run.py --targets funnel10 gmm25 --seeds 1       # some
    python run.py --table table.csv                        # the table alone

Every run has a process of its own, which `--seconds` of processor time end. Rows that the file has
are not made again. The exit status is 1 if a run is silently wrong: off by more than four errors,
or with an evidence where there is none, and no check fails.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from targets import TARGETS, Target

FIELDS = ("target", "dimension", "seed", "exact", "log_z", "std_error", "error", "errors_off",
          "gradients", "cpu_seconds", "failed_checks", "modes", "no_result")  # fmt: skip
Row = dict[str, Any]
MOST = 4.0


def sampled(target: Target, seed: int) -> Row:
    """One run of the default, with nothing set."""
    import stanct

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "target.stan"
        path.write_text(target.stan, encoding="utf-8")
        model = stanct.temper(path)
        dimension = model.density(target.data).dimension
        run = model.sample(target.data, seed=seed, progress=False)
    found = run.evidence
    row: Row = {
        "dimension": dimension, "exact": target.log_z, "gradients": run.gradients,
        "failed_checks": " ".join(run.warnings), "modes": len(run.modes),
    }  # fmt: skip
    if math.isnan(found.log_z):
        return row
    row |= {"log_z": found.log_z, "std_error": found.std_error}
    if target.log_z is not None:
        row["error"] = found.log_z - target.log_z
        row["errors_off"] = row["error"] / float(np.hypot(found.std_error, target.tolerance))
    return row


def limited(name: str, seed: int, seconds: int) -> Row:
    """The same in a process of its own; where it gives no row, why."""
    command = [sys.executable, __file__, "--targets", name, "--seeds", str(seed), "--alone"]
    done = subprocess.run(
        command,
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5)),
        capture_output=True,
        text=True,
        check=False,
    )
    rows = [line[4:] for line in done.stdout.splitlines() if line.startswith("ROW ")]
    if done.returncode == 0 and rows:
        return json.loads(rows[-1])
    why = (done.stderr.strip().splitlines() or [""])[-1][:200]
    return {"no_result": f"none in {seconds} CPU s" if done.returncode < 0 else why}


def silent(row: Row) -> bool:
    """Whether a row is wrong and no check says so."""
    if row["no_result"] or row["failed_checks"]:
        return False
    return not row["errors_off"] or abs(float(row["errors_off"])) > MOST


def table(rows: list[Row]) -> str:
    """A line of Markdown for each target."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["target"]].append(row)
    lines = ["| target | D | exact | runs | log Z | RMSE | mean error bar | most errors off "
             "| gradients | CPU s | failed checks | silent |", "|" + "---|" * 12]  # fmt: skip
    return "\n".join([*lines, *(line(name, groups[name]) for name in TARGETS if name in groups)])


def line(name: str, rows: list[Row]) -> str:
    """The runs of a target: means of those that gave a number, and what the others say."""
    said = [row["no_result"] or row["failed_checks"].replace(" ", ", ") for row in rows]
    words = "; ".join(f"{said.count(one)} × {one}" for one in dict.fromkeys(said) if one)

    def column(key: str) -> Any:
        return np.array([float(row[key]) for row in rows if row[key] != ""])

    def mean(key: str, form: str) -> str:
        return format(column(key).mean(), form) if len(column(key)) else ""

    off, error = column("errors_off"), column("error")
    cells = [
        name, mean("dimension", ".0f"), mean("exact", ".4f"), len(rows), mean("log_z", ".4f"),
        f"{np.sqrt(np.mean(error**2)):.4f}" if len(error) else "", mean("std_error", ".4f"),
        f"{off[np.argmax(abs(off))]:+.1f}" if len(off) else "", mean("gradients", ",.0f"),
        mean("cpu_seconds", ".1f"), words, sum(map(silent, rows)),
    ]  # fmt: skip
    return "| " + " | ".join(map(str, cells)) + " |"


def read(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def main() -> None:
    """Make the rows that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("table.csv"))
    parser.add_argument("--seconds", type=int, default=150, help="of processor time for a run")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.alone:
        target = TARGETS[options.targets[0]]()
        before = time.process_time()
        row = sampled(target, options.seeds[0])
        print("ROW", json.dumps(row | {"cpu_seconds": round(time.process_time() - before, 1)}))
        return
    file = options.table or options.out
    rows = read(file) if file.exists() else []
    if options.table is None:
        done = {(row["target"], row["seed"]) for row in rows}
        for seed in options.seeds:
            for name in options.targets:
                if (name, str(seed)) in done:
                    continue
                new = {"target": name, "seed": seed} | limited(name, seed, options.seconds)
                with file.open("a", newline="", encoding="utf-8") as out:
                    writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
                    if not rows:
                        writer.writeheader()
                    writer.writerow(new)
                rows = read(file)
                print(
                    *(f"{key}={value[:12]}" for key, value in rows[-1].items() if value), flush=True
                )
    print(table(rows))
    sys.exit(any(map(silent, rows)))


if __name__ == "__main__":
    main()

"""Error, error bar and cost of stanct's default beside other tools, in one run on one machine.

    pip install -r requirements.txt        # BlackJAX, dynesty, UltraNest and PyMC
    python run.py --out rows.csv           # all targets, three seeds: an hour
    python run.py --targets mixture20 --peers stanct dynesty --seeds 1
    python run.py --table rows.csv         # the tables alone

Each tool has a process of its own for each target, with one thread. The first seed is run twice,
and the first of these does not count: it compiles. Nested samplers compile before, with one point.
A tool that gives no answer within `--limit` seconds is named with that. Rows that the file has are
not made again.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from peers import COMPILED, PEERS
from targets import TARGETS

FIELDS = ("target", "peer", "seed", "error", "std_error", "gradients", "densities", "seconds",
          "failed")  # fmt: skip
ONE = {name: "1" for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")}
ONE["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"


def measured(name: str, peer: str, seeds: Iterable[int]) -> None:
    """Print a line of JSON for each seed; this runs in a process of its own."""
    target = TARGETS[name]()
    warm = peer in COMPILED
    if warm:
        COMPILED[peer](target)(np.zeros(target.dimension))
    for number, seed in enumerate(seeds):
        for counts in (False, True)[warm or number > 0 :]:
            began = time.process_time()
            found = PEERS[peer](target, seed)
            if counts:
                row = {
                    "target": name, "peer": peer, "seed": seed,
                    "error": found.log_z - target.log_z, "std_error": found.std_error,
                    "gradients": found.gradients, "densities": found.densities,
                    "seconds": round(time.process_time() - began, 3), "failed": "",
                }  # fmt: skip
                print("ROW", json.dumps(row), flush=True)


def made(name: str, peer: str, seeds: Iterable[int], limit: float) -> list[dict[str, object]]:
    """The rows of one tool on one target, with a reason where there is no answer."""
    command = [sys.executable, __file__, "--one", name, peer, "--seeds", *map(str, seeds)]
    environment = os.environ | ({} if peer == "stanct" else ONE)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=limit, check=False
        )
        out, why = done.stdout, (done.stderr.strip().splitlines() or [""])[-1][:100]
    except subprocess.TimeoutExpired as late:
        out, why = (late.stdout or b"").decode(), f"no answer in {limit:g} s"
    rows = [json.loads(line[4:]) for line in out.splitlines() if line.startswith("ROW ")]
    return rows or [{"target": name, "peer": peer, "failed": why or "no answer"}]


def tables(rows: list[dict[str, str]]) -> str:
    """A table for each group of targets; variance × time is relative to that of stanct."""
    groups: dict[str, dict[str, list[dict[str, str]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        groups[row["target"].split("_")[0]][row["peer"]].append(row)
    lines: list[str] = []
    for group, by_peer in groups.items():
        lines += [f"\n### {group}\n",
                  "| tool | runs | RMSE | mean error bar | gradients | log densities | CPU s "
                  "| variance × CPU |", "|" + "---|" * 8]  # fmt: skip
        unit = np.nan
        for peer in sorted(by_peer, key=list(PEERS).index):
            good = [row for row in by_peer[peer] if not row["failed"]]
            if not good:
                lines.append(f"| {peer} | 0 | {by_peer[peer][0]['failed']} | | | | | |")
                continue
            error, bar, gradients, densities, seconds = (
                np.array([float(row[name]) for row in good])
                for name in ("error", "std_error", "gradients", "densities", "seconds")
            )
            price = float(np.mean(error**2) * seconds.mean())
            all_of = len(by_peer[peer])
            runs = f"{len(good)}" if len(good) == all_of else f"{len(good)} of {all_of}"
            unit = price if peer == "stanct" else unit
            shown = "–" if np.isnan(bar).all() else f"{np.nanmean(bar):.3f}"
            ratio = "–" if np.isnan(unit) else f"{price / unit:,.1f}"
            lines.append(
                f"| {peer} | {runs} | {np.sqrt(np.mean(error**2)):.3f} | {shown} "
                f"| {gradients.mean():,.0f} | {densities.mean():,.0f} | {seconds.mean():.1f} "
                f"| {ratio} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Make the rows that are missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=list(PEERS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--table", type=Path, metavar="FILE")
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measured(*options.one, options.seeds)
        return
    file = options.table or options.out
    known: list[dict[str, str]] = []
    if file.exists():
        with file.open(newline="", encoding="utf-8") as lines:
            known = list(csv.DictReader(lines))
    if options.table is None:
        done = {(row["target"], row["peer"]) for row in known}
        with file.open("a", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
            if not known:
                writer.writeheader()
            for name in options.targets:
                for peer in options.peers:
                    if (name, peer) not in done:
                        new = made(name, peer, options.seeds, options.limit)
                        writer.writerows(new)
                        out.flush()
                        known += [{k: str(row.get(k, "")) for k in FIELDS} for row in new]
    print(tables(known))


if __name__ == "__main__":
    main()

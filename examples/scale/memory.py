"""What a run of 1,000 parameters takes in memory and on disk, by what it was asked to keep.

Each run is in a process of its own, on an independent Gaussian with four chains. The script prints
the most memory that the process had beyond that before the run, while sampling and while a summary
of all parameters was made; the size of the saved run; the memory after it was loaded elsewhere; and
log Z, which must not depend on what is kept.

    python memory.py [--draws 1000 4000] [--size 1000]
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import stanct
from stanct.path.low_rank import LowRankBase

PROGRAM = """
data { int D; }
parameters { vector[D] x; }
transformed parameters { real total = sum(x); }
model { x ~ normal(1, 2); }
"""
KEPT: dict[str, dict[str, object]] = {
    "all": {},
    "thin=10": {"thin": 10},
    "store": {"store": "stored"},
    "store, thin=10": {"store": "stored", "thin": 10},
    "store, thin=10, keep total": {"store": "stored", "thin": 10, "keep": ["total"]},
}
COLUMNS = ("draws of each chain", "kept", "MB in memory", "MB for a summary", "MB on disk",
           "MB after loading", "log Z")  # fmt: skip


def most() -> float:
    """The most memory that this process has had, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measured(kept: str, draws: int, size: int, folder: Path) -> dict[str, object]:
    """One run, in this process."""
    options = dict(KEPT[kept])
    if "store" in options:
        options["store"] = str(folder / "stored")
    model = stanct.temper(PROGRAM)
    nothing = np.zeros((size, 0))
    base = LowRankBase(np.ones(size), np.full(size, 1.95), nothing, np.zeros(0))
    settings = {"seed": 1, "warmup": 150, "threads": 1, "progress": False, "engine": "embedded"}
    method = stanct.Joint(bootstrap=0)
    # What is loaded and compiled once does not count.
    first = model.sample({"D": size}, method, base=base, draws=20, **settings)
    first.summary(["total"])
    first.save(folder / "first")
    before = most()
    run = model.sample({"D": size}, method, base=base, draws=draws, **settings, **options)
    log_z = run.evidence.log_z
    sampled = most() - before
    run.summary(["total"] if "keep" in options else ["x"])
    run.save(folder / "saved")
    return {"sampled": sampled, "summary": most() - before, "log_z": log_z}


def loaded(folder: Path) -> float:
    """The memory that a loaded run and its log Z take, in MB, in this process."""
    for name in ("first", "saved"):
        before = most()
        run = stanct.load(folder / name)
        assert isinstance(run, stanct.EvidenceRun)
        run.evidence  # noqa: B018
    return most() - before


def answer(*arguments: object) -> str:
    """The last line that this script prints in another process."""
    command = [sys.executable, __file__, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\n")[
        -2
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--draws", type=int, nargs="+", default=[1000, 4000])
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--load", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        kept, draws, folder = options.one
        print(json.dumps(measured(kept, int(draws), options.size, Path(folder))))
        return
    if options.load:
        print(loaded(Path(options.load)))
        return
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|", flush=True)
    for draws in options.draws:
        for kept in KEPT:
            with tempfile.TemporaryDirectory() as name:
                folder = Path(name)
                found = json.loads(answer("--one", kept, draws, folder, "--size", options.size))
                disk = sum(path.stat().st_size for path in (folder / "saved").iterdir()) / 1e6
                again = float(answer("--load", folder))
            cells = (f"{draws:,}", kept, f"{found['sampled']:.0f}", f"{found['summary']:.0f}",
                     f"{disk:.1f}", f"{again:.0f}", f"{found['log_z']:.9f}")  # fmt: skip
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()

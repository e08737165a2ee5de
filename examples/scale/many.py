"""Radon in many places: one program and many data sets, on processes that are killed twice.

The script draws data sets of eight counties each from the radon program, and samples all of them
in another process. It kills that process and its workers when a third and when two thirds of the
results are on the disk, and starts it again. In the end no result may be missing or there twice,
and data sets sampled alone must give the same numbers. Some are then sampled by one and by two
workers, in turn, for the speed-up.

    python many.py [--count 1000] [--executor processes:2] [--folder places]
    python many.py --speed-up                   # only that
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

import stanct

HERE = Path(__file__).resolve().parent
COUNTIES, HOMES, DRAWS = 8, 60, 400
ALONE = 5  # data sets that are sampled alone too
TIMED, TIMES = 60, 2  # data sets by one and by two workers, and how often


def place(number: int) -> dict[str, object]:
    """Data of one place."""
    rng = np.random.default_rng([7, number])
    county = np.sort(rng.integers(1, COUNTIES + 1, HOMES))
    floor = (rng.uniform(size=HOMES) < 0.2).astype(float)
    uranium = rng.normal(0, 0.5, COUNTIES)[county - 1]
    level = rng.normal(1.3, 0.3, COUNTIES)[county - 1]
    radon = level - 0.6 * floor + 0.5 * uranium + 0.75 * rng.normal(size=HOMES)
    sizes = {"N": HOMES, "J": COUNTIES, "county": county.tolist()}
    values = {"floor_measure": floor, "log_uranium": uranium, "log_radon": radon}
    return {**sizes, **{name: value.tolist() for name, value in values.items()}}


def sampled(count: int, executor: str | None, folder: Path | None) -> stanct.Many:
    """All places, or those that the folder lacks."""
    model = stanct.temper(HERE.parent / "radon" / "radon.stan")
    data = {f"place{number}": place(number) for number in range(count)}
    return model.sample_many(
        data, executor=executor, folder=folder, seed=1, draws=DRAWS, variables=["mu_alpha"],
        progress=False,
    )  # fmt: skip


def lines(folder: Path) -> list[dict[str, object]]:
    """The results on the disk; a line that a kill has cut is none."""
    file = folder / "results.jsonl"
    found = []
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return [row for row in found if "log_z" in row or "error" in row]


def killed_twice(command: list[str], folder: Path, count: int) -> None:
    """Begin the work, kill it with its workers, twice, and let it end the third time."""
    for share in (1 / 3, 2 / 3):
        child = subprocess.Popen(command, start_new_session=True)
        while len(lines(folder)) < share * count and child.poll() is None:
            time.sleep(0.2)
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()
        print(f"killed with {len(lines(folder))} results on the disk", flush=True)
    subprocess.run(command, check=True)


def speed_up(count: int) -> None:
    """Compare one worker with two, in turn, with their start, on so many data sets."""
    seconds: dict[str, list[float]] = {"processes:1": [], "processes:2": []}
    for _ in range(TIMES):
        for workers, times in seconds.items():
            began = time.perf_counter()
            sampled(count, workers, None)
            times.append((time.perf_counter() - began) / count)
    one, two = (float(np.median(times)) for times in seconds.values())
    print(f"{one:.2f} s each with one worker, {two:.2f} with two: {one / two:.2f} times as fast")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--executor", default="processes:2")
    parser.add_argument("--folder", type=Path, default=Path("places"))
    parser.add_argument("--speed-up", action="store_true", help="only compare one worker with two")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        sampled(options.count, options.executor, options.folder)
        return 0
    if options.speed_up:
        speed_up(TIMED)
        return 0
    command = [sys.executable, __file__, "--child", "--count", str(options.count)]
    command += ["--executor", options.executor, "--folder", str(options.folder)]
    began = time.perf_counter()
    killed_twice(command, options.folder, options.count)
    seconds = time.perf_counter() - began
    table = sampled(options.count, None, options.folder).table  # reads what is there
    rows, names = len(lines(options.folder)), {row["name"] for row in lines(options.folder)}
    spent = int(table["gradients"].sum())
    print(f"{rows} results of {len(names)} data sets in {seconds:.0f} s, {spent:,} gradients")
    failed = (table["failed"].astype(str) != "").sum()
    errors = (table["error"].astype(str) != "").sum()
    print(f"{errors} without a result, {failed} with a failed check, median error of log Z "
          f"{table['std_error'].median():.3f}")  # fmt: skip
    alone = sampled(ALONE, None, None).table
    same = alone["log_z"].equals(table["log_z"].loc[alone.index])
    print(f"{ALONE} sampled alone, numbers alike: {same}", flush=True)
    speed_up(min(TIMED, options.count))
    return int(not same or rows != options.count or len(names) != options.count)


if __name__ == "__main__":
    sys.exit(main())

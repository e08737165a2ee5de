"""What does each maker of the default's base pay? Runs without it, on the same targets and seeds.

A maker is left out of the runs on whose road it was: where it added parts to what the default
knew. The table has a line for each maker: those runs, their gradients with and without it, the
ratio of gradients × SE² of log Z (above 1 where the maker pays; the mean over runs of the ratio's
logarithm), shares of log Z and means within 1.96 standard errors, and runs that are silently off by
more than three. Rows are added to the file as they finish, and the same command goes on from there.

    python ablation.py --out ablation.csv --repeats 2
    python ablation.py --out ablation.csv --makers ridges tails --families banana tails_t
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import scoring
from families import BY_NAME, FAMILIES
from run import LESS, Task, run
from scoring import Row

# Errors of log Z below this are those of rounding, and say nothing of cost.
LEAST_SE = 1e-4
COLUMNS = (
    "left out", "runs", "gradients with", "without", "gradients × SE², without / with",
    "within with", "without", "silent with", "without",
)  # fmt: skip


def on_the_road(row: Row) -> list[str]:
    """What can be left out of a run: makers that added parts to what it knew."""
    made = {part.split(":")[0] for part in row.parts.split()}
    also = {"wide part"} if "mixture" in row.base.lower() else set()
    if "ascents" in made:
        also |= {"scans", "outskirts"}
    return [name for name in LESS if name in made | also]


def line(name: str, pairs: Sequence[tuple[Row, Row]]) -> str:
    """The line of the table for one maker, from rows with and without it."""
    sides = list(zip(*pairs, strict=True))
    cost = [[row.gradients for row in side] for side in sides]
    error = [[max(row.log_z_se, LEAST_SE) for row in side] for side in sides]
    work = np.log(np.array(cost)) + 2 * np.log(np.array(error))
    within = [np.mean(np.abs([row.scores for row in side]) <= 1.96) for side in sides]
    silent = [sum(row.silent for row in side) for side in sides]
    return (
        f"| {name} | {len(pairs)} | {sum(cost[0]):,} | {sum(cost[1]):,} "
        f"| {np.exp(np.mean(work[1] - work[0])):.2f} | {within[0]:.0%} | {within[1]:.0%} "
        f"| {silent[0]} | {silent[1]} |"
    )


def table(rows: Sequence[Row]) -> str:
    """The table of finished rows."""
    done = {(row.family, row.seed, row.method): row for row in rows if not row.failed}
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{' --- |' * len(COLUMNS)}"]
    for name in LESS:
        label = Task("", "default", 0, without=name).label
        pairs = [
            (done[family, seed, "default"], row)
            for (family, seed, method), row in done.items()
            if method == label and (family, seed, "default") in done
        ]
        if pairs:
            lines.append(line(name, pairs))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    add = parser.add_argument
    add("--out", type=Path, required=True, help="CSV file of finished runs")
    add("--families", nargs="+", choices=BY_NAME, default=list(FAMILIES))
    add("--makers", nargs="+", choices=LESS, default=list(LESS), help="what may be left out")
    add("--repeats", type=int, default=2, help="targets of each family")
    add("--first", type=int, default=7530001, help="seed of the first repetition")
    add("--table", action="store_true", help="print the table of the file and do no runs")
    options = parser.parse_args()
    done = {(row.family, row.seed, row.method): row for row in scoring.read_rows(options.out)}
    with scoring.appending(options.out) as write:

        def row_of(task: Task) -> Row:
            found = done.get((task.family, task.seed, task.label))
            if found is None:
                found = done[task.family, task.seed, task.label] = run(task)
                write(found)
            return found

        for seed in range(options.first, options.first + options.repeats * (not options.table)):
            for family in options.families:
                whole = row_of(Task(family, "default", seed))
                for name in on_the_road(whole):
                    if name in options.makers:
                        row_of(Task(family, "default", seed, without=name))
    print(table([*done.values()]))


if __name__ == "__main__":
    np.seterr(all="ignore")
    main()

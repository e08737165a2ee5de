"""Are the error bars honest? Every repetition draws a new target whose answers are exact.

The table has a line for each family and method. Its columns are explained in README.md. The exit
status is 0 if each method passes: its error bars cover, few runs warn, and hardly any run is wrong
without a warning. Finished runs are added to the file of `--out` at once, and the same command goes
on from there.

    python run.py --out runs.csv                        # all families, hours
    python run.py --families mixture labels --methods joint gibbs ais
    python run.py --quick                               # a minute
    python run.py --plant base --families mixture       # a fault that must be found
    python run.py --table runs.csv                      # the table in Markdown
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import operator
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import plants
import scoring
from families import BY_NAME, FAMILIES, FIXED, drawn
from scoring import Limits, Row
from tqdm import tqdm

import stanct
from stanct.runs.verdicts import OF_THE_PROGRAM  # what the text tells is not counted

METHODS: dict[str, stanct.Method[Any] | None] = {
    "default": None,
    "joint": stanct.Joint(),
    "gibbs": stanct.Gibbs(),
    "simulated_tempering": stanct.SimulatedTempering(),
    "parallel_tempering": stanct.ParallelTempering(),
    "pseudo_extended": stanct.PseudoExtended(),
    "ais": stanct.AIS(),
}
MAKERS = (
    "curvature", "pathfinder", "tails", "given", "ridges", "scouts", "wide", "products",
    "particles", "exchanges",
)  # fmt: skip
# The default without one of its makers, or without a part of what it does.
LESS: dict[str, Callable[[stanct.Recipe], stanct.Recipe]] = {
    **{name: operator.methodcaller("without", name) for name in MAKERS},
    "scans": lambda all_: all_.changing("ascents", scan=False),
    "outskirts": lambda all_: all_.changing("ascents", outskirts=False),
    "wide part": lambda all_: replace(all_, wide_share=0.0),
}
QUICK = ("hierarchy_raw", "mixture", "labels", "banana", "regression", "separation", "rates")
QUICK_LENGTH: dict[str, Any] = {"draws": 500, "warmup": 300}
# So few runs can only show what is badly wrong.
QUICK_LIMITS = Limits(least=0.75, calm=0.6, silent=0.1)


@dataclass(frozen=True)
class Task:
    """A run that is wanted. The seed draws the target and is that of the run."""

    family: str
    method: str
    seed: int
    plant: str | None = None
    quick: bool = False
    without: str = ""

    @property
    def key(self) -> tuple[str, str, int]:
        """What identifies its row."""
        return self.family, self.label, self.seed

    @property
    def label(self) -> str:
        """The method's name in the table."""
        notes = [*([self.plant] if self.plant else []), *["quick"] * self.quick]
        notes += [f"without {self.without}"] * bool(self.without)
        return f"{self.method} ({', '.join(notes)})" if notes else self.method


def run(task: Task) -> Row:
    """Draw the target, sample it, and compare. A failure is a row too."""
    started = time.process_time()
    try:
        target = drawn(task.family, task.seed)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{task.family}.stan"
            path.write_text(target.stan, encoding="utf-8")
            model = stanct.temper(path)
            options = plants.options_of(
                task.plant, METHODS[task.method], model.density(target.data).dimension
            )
            if task.without:
                options["base"] = LESS[task.without](stanct.recipe())
            if task.quick and task.method != "ais":
                options |= QUICK_LENGTH
            made: Any = model.sample(
                target.data, seed=task.seed, engine="embedded", progress=False, **options
            )
            if made.provenance["interrupted"]:
                raise KeyboardInterrupt
            evidence, mean = plants.evidence_of(task.plant, made), made.expect(target.quantity)
        numbers = {
            "log_z_error": evidence.log_z - target.log_z,
            "log_z_se": evidence.std_error,
            "mean_error": float(mean.value) - target.mean,
            "mean_se": float(mean.std_error),
        }
        if not np.isfinite(list(numbers.values())).all():
            return Row(*task.key, failed=f"not finite: {numbers}")
        return Row(
            *task.key,
            **numbers,
            tolerance=target.tolerance,
            warnings=" ".join(name for name in made.warnings if name not in OF_THE_PROGRAM),
            beyond=int(target.narrowing > finest(made)),
            gradients=made.gradients,
            cpu_seconds=round(time.process_time() - started, 2),
            **road(made),
        )
    except Exception as problem:
        words = " ".join(f"{type(problem).__name__}: {problem}".split())
        return Row(*task.key, failed=words[:300])


def road(made: stanct.Run) -> dict[str, str]:
    """The columns of a row that say how a run came about."""
    found = made.road

    def listed(counts: Mapping[str, int]) -> str:
        return " ".join(f"{name}:{count}" for name, count in counts.items() if count)

    return {
        "base": found.base,
        "parts": listed(found.parts),
        "methods": " ".join(step["method"] for step in found.methods),
        "stages": listed(found.gradients),
    }


def finest(made: stanct.Run) -> float:
    """How narrow a spike the run says that it would have found; any, if it says nothing."""
    facts = made.facts()
    return facts.get("how many times narrower a spike inside a mode may be", np.inf)


def finished(tasks: Sequence[Task], jobs: int) -> Iterator[Row]:
    """The rows of the tasks, in the order in which they finish."""
    if jobs == 1:
        yield from map(run, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context) as workers:
        futures = [workers.submit(run, task) for task in tasks]
        try:
            yield from (future.result() for future in as_completed(futures))
        finally:
            workers.shutdown(wait=False, cancel_futures=True)


def parsed(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with those filled in that the others imply."""
    parser = argparse.ArgumentParser(description="Calibration of stanct's error bars.")
    add = parser.add_argument
    add("--methods", nargs="+", choices=METHODS, default=["default"])
    add("--families", nargs="+", choices=[*BY_NAME, *FIXED], help="all of FAMILIES by default")
    add("--repeats", type=int, help="targets of each family; 8 by default")
    add("--first", type=int, help="seed of the first repetition; by default one nobody has seen")
    add("--quick", action="store_true", help="few families and short runs")
    add("--jobs", type=int, default=1, help="processes")
    add("--out", type=Path, help="CSV file of finished runs")
    add("--plant", choices=plants.PLANTS, help="a fault that must be found")
    add("--table", type=Path, metavar="FILE", help="print the table of a CSV file and do no runs")
    for name, text in (
        ("least", "share of errors within 1.96 SE, of runs without a warning"),
        ("calm", "share of runs without a warning"),
        ("silent", "largest share of runs off by more than 3 SE without a warning"),
    ):
        add(f"--{name}", type=float, help=text)
    options = parser.parse_args(arguments)
    limits = QUICK_LIMITS if options.quick else Limits()
    given = {name: getattr(options, name) for name in ("least", "calm", "silent")}
    options.limits = Limits(**{n: getattr(limits, n) if v is None else v for n, v in given.items()})
    options.families = options.families or (QUICK if options.quick else tuple(FAMILIES))
    options.repeats = options.repeats or (2 if options.quick else 8)
    return options


def first_seed(options: argparse.Namespace, known: Sequence[Row]) -> int:
    """The asked seed, or that of the file, or a fresh one."""
    if options.first is not None:
        return options.first
    if known:
        return min(row.seed for row in known)
    return int.from_bytes(os.urandom(3), "big") * 100


def calibrate(options: argparse.Namespace) -> bool:
    """Do the runs that the file lacks, print the table, and say whether every method passes."""
    known = [] if options.out is None else scoring.read_rows(options.out)
    first = first_seed(options, known)
    groups = [
        [
            Task(family, method, first + k, options.plant, options.quick)
            for k in range(options.repeats)
        ]
        for family in options.families
        for method in options.methods
    ]
    done = {(row.family, row.method, row.seed): row for row in known}
    wanted = [task for group in groups for task in group if task.key not in done]
    print(f"Seeds {first} to {first + options.repeats - 1}.")
    print(scoring.as_text(scoring.HEADINGS), flush=True)
    shown = 0
    with (
        scoring.appending(options.out) as add,
        tqdm(total=len(wanted), unit="run", disable=None) as bar,
    ):
        for row in itertools.chain([None], finished(wanted, options.jobs)):
            if row is not None:
                add(row)
                done[row.family, row.method, row.seed] = row
                bar.update()
            while shown < len(groups) and all(task.key in done for task in groups[shown]):
                own = [done[task.key] for task in groups[shown]]
                line = scoring.cells(scoring.score(own, options.limits.calm))
                bar.write(scoring.as_text(line), file=sys.stdout)
                sys.stdout.flush()
                shown += 1
    passed = True
    for label in dict.fromkeys(group[0].label for group in groups):
        own = [done[task.key] for group in groups for task in group if task.label == label]
        found = scoring.verdict(own, options.limits)
        passed &= found.passed
        print("\n".join([*found.lines, "PASSED" if found.passed else "FAILED"]))
    return passed


if __name__ == "__main__":
    options = parsed(None)
    if options.table is not None:
        scores = scoring.scores_of(scoring.read_rows(options.table), options.limits.calm)
        print(scoring.as_markdown(scores))
        sys.exit()
    np.seterr(all="ignore")
    sys.exit(0 if calibrate(options) else 1)

"""Exported programs in every kind, run by plain CmdStan, beside the exact log Z.

For each program and kind the script calls `model.export`, and runs the `run.py` of the folder in a
process of its own, and its `run.R` on the same draws where R is there. It makes a run of the draws
by `stanct.import_run`, and writes its page. It needs CmdStan: run `stanct install-cmdstan` first. A
program takes CmdStan about a minute to compile. A cell that an earlier call has finished is read
from its folder.

    python run.py [--out exports] [--programs radon ...] [--kinds joint ...] [--seed 1]

With `--engine`, stanct itself samples the same programs, with as many draws as the scripts make at
most. `--threads` gives CmdStan threads for sums over rows by `reduce_sum`, shared by four chains.

    python run.py --engine embedded
    python run.py --engine cmdstan --threads 8 --programs boltzmann --kinds joint
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

import stanct
from stanct.api.exporting import AIM, CHAINS, MOST_DRAWS
from stanct.common.resources import resource_folder
from stanct.engines import homes

# Kinds, and the methods that sample them.
KINDS = {
    "joint": stanct.Joint(),
    "prior_likelihood": stanct.Joint(path="prior"),
    "pseudo_extended": stanct.PseudoExtended(),
    "extended_hamiltonian": stanct.ExtendedHamiltonian(),
}
# What a script prints where its log Z may be wrong.
WARNED = ("Do not trust", "leads one to expect", "few draws carried")
EXAMPLES = Path(__file__).resolve().parents[1]
# Two labellings of the components, of which the posterior has both.
MIXTURE = """
data {
  int<lower=1> N;
  vector[N] y;
}
parameters {
  vector[2] mu;
}
model {
  mu ~ normal(0, 5);
  for (n in 1 : N) {
    target += log_mix(0.4, normal_lpdf(y[n] | mu[1], 1), normal_lpdf(y[n] | mu[2], 1));
  }
}
"""


class Case(NamedTuple):
    """A program as a path or text, its data, and its exact log Z."""

    program: Path | str
    data: Any
    log_z: float


def shipped(program: Path, data: str) -> Case:
    """A program with its data and its `truth.json` beside it."""
    truth = json.loads(program.with_name("truth.json").read_text())
    return Case(program, program.with_name(f"{data}.data.json"), truth["log_z"])


def mixture() -> Case:
    """Thirty values of two components; the plane of both means is summed on a grid."""
    rng = np.random.default_rng(1)
    y = np.where(rng.uniform(size=30) < 0.4, -2.0, 2.0) + rng.normal(size=30)
    grid = np.linspace(-8, 8, 1601)
    one = -0.5 * (y - grid[:, None]) ** 2 - 0.5 * np.log(2 * np.pi)
    prior = -0.5 * (grid / 5) ** 2 - np.log(5 * np.sqrt(2 * np.pi))
    log_p = prior[:, None] + prior
    for value in one.T:
        log_p += np.logaddexp(np.log(0.4) + value[:, None], np.log(0.6) + value)
    step = 2 * np.log(grid[1] - grid[0])
    return Case(MIXTURE, {"N": y.size, "y": y}, float(logsumexp(log_p) + step))


def models(name: str) -> Path:
    return resource_folder("stan_models") / name / f"{name}.stan"


CASES: dict[str, Callable[[], Case]] = {
    "eight_schools": lambda: shipped(EXAMPLES / "eight_schools" / "centred.stan", "eight_schools"),
    "radon": lambda: shipped(EXAMPLES / "radon" / "radon.stan", "radon"),
    "mixture": mixture,
    "simplex": lambda: shipped(models("simplex_counts"), "simplex_counts"),
    "boltzmann": lambda: shipped(models("boltzmann"), "boltzmann"),
}


class Cell(NamedTuple):
    """log Z of a cell with its error, what else is to be said of it, and whether it is doubted."""

    log_z: float
    error: float
    others: tuple[str, ...] = ()
    warned: bool = False


def run_cell(folder: Path, case: Case, kind: str, seed: int) -> None:
    """Export a program, and keep what its own scripts print, and the page of its draws."""
    before = {path: path.read_text() for path in folder.glob("*.stan")}
    stanct.temper(case.program).export(folder, case.data, kind, seed=seed)
    for path, text in before.items():
        built = path.with_suffix("")
        if built.exists() and path.read_text() == text:
            built.touch()  # CmdStan builds what is older than its text
    shutil.rmtree(folder / "output", ignore_errors=True)
    found = homes.find()
    environment = {**os.environ, **({"CMDSTAN": str(found.path)} if found else {})}
    printed = called(folder, [sys.executable, "run.py"], environment)
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"processor {seconds.ru_utime + seconds.ru_stime:.0f} s so far\n"
    (folder / "printed.txt").write_text(printed + spent)
    if shutil.which("Rscript"):
        files = sorted(str(path.relative_to(folder)) for path in folder.glob("output/*.csv"))
        (folder / "by_r.txt").write_text(called(folder, ["Rscript", "run.R", *files]))


def called(folder: Path, words: list[str], environment: dict[str, str] | None = None) -> str:
    """What a script prints."""
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{' '.join(words[:2])} in {folder} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def by_scripts(folder: Path, case: Case, kind: str, seed: int) -> Cell:
    """log Z as `run.py` prints it, as `run.R` does, and as the run of its draws has it."""
    if not (folder / "printed.txt").exists():
        run_cell(folder, case, kind, seed)
    printed = (folder / "printed.txt").read_text()
    warned = any(words in printed for words in WARNED)
    warned |= "that failed" in (folder / "README.md").read_text()
    by_r = folder / "by_r.txt"
    other = " ± ".join(number_of(by_r.read_text())) if by_r.exists() else "not run"
    run = stanct.import_run(folder, folder / "output", seed=seed)
    run.report(folder / "page.html")
    again = f"{run.evidence.log_z:.4f} ± {run.evidence.std_error:.4f}"
    log_z, error = map(float, number_of(printed))
    return Cell(log_z, error, (other, again, ", ".join(run.warnings)), warned)


def number_of(printed: str) -> tuple[str, str]:
    """log Z and its error in what a script has printed."""
    found = re.search(r"= (\S+), standard error ([\d.e+-]+)", printed)
    assert found, printed
    return found[1], found[2]


def by_engine(engine: str, case: Case, kind: str, seed: int, threads: int | None) -> Cell:
    """log Z by stanct itself."""
    run = stanct.temper(case.program, reduce_sum=threads is not None).sample(
        case.data,
        method=KINDS[kind],
        engine=engine,
        threads=threads,
        chains=CHAINS,
        target_se=AIM,
        max_draws=MOST_DRAWS,
        seed=seed,
        progress=False,
    )
    evidence = run.evidence
    others = (f"{run.chains} × {run.draws:,}", ", ".join(run.warnings))
    return Cell(evidence.log_z, evidence.std_error, others, bool(run.warnings))


def verdict_of(cell: Cell, exact: float) -> tuple[str, str, bool]:
    """Errors by which a cell is off, what that means, and whether it is right."""
    z = (cell.log_z - exact) / cell.error
    right = abs(z) <= 3 and cell.error <= 0.1
    verdict = "right" if right else "error above 0.1" if abs(z) <= 3 else "missed"
    verdict += ", warned" if cell.warned else ", IN SILENCE" if verdict == "missed" else ""
    return f"{z:+.1f}", verdict, right


def table_row(*cells: str) -> None:
    print("| " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="log Z of exported programs by plain CmdStan.")
    parser.add_argument("--out", type=Path, default=Path("exports"))
    parser.add_argument("--programs", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--engine", choices=("embedded", "cmdstan"), help="stanct's own run")
    parser.add_argument("--threads", type=int, help="of CmdStan, for programs by reduce_sum")
    options = parser.parse_args()
    others = ("draws", "failed") if options.engine else ("run.R", "import_run", "failed")
    table_row("program", "kind", "exact", "log Z", "z", "verdict", *others)
    table_row("---", "---", "--:", "--:", "--:", *(["---"] * (1 + len(others))))
    rights = []
    for name in options.programs:
        case = CASES[name]()
        for kind in options.kinds:
            if options.engine:
                cell = by_engine(options.engine, case, kind, options.seed, options.threads)
            else:
                cell = by_scripts(options.out / f"{name}_{kind}", case, kind, options.seed)
            z, verdict, right = verdict_of(cell, case.log_z)
            rights.append(right)
            found = f"{cell.log_z:.4f} ± {cell.error:.4f}"
            table_row(name, kind, f"{case.log_z:.4f}", found, z, verdict, *cell.others)
    print(f"\n{sum(rights)} of {len(rights)} right: within 3 errors, of .1 at most")


if __name__ == "__main__":
    main()

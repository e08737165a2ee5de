"""Exported programs in every kind, run by plain CmdStan, beside the exact log Z.

For each program and kind the script calls `model.export`, runs the `run.py` of the folder in a
process of its own, and reads the log Z that it prints. It needs CmdStan: run `stanct
install-cmdstan` first. A program takes CmdStan about a minute to compile. A cell that an earlier
call has finished is read from its folder.

    python run.py [--out exports] [--programs radon ...] [--kinds joint ...] [--seed 1]
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import logsumexp

import stanct
from stanct.common.resources import resource_folder
from stanct.engines import homes

KINDS = ("joint", "prior_likelihood", "pseudo_extended", "extended_hamiltonian")
# What a script prints where its log Z may be wrong.
WARNED = ("Do not trust", "leads one to expect", "Checks of that run failed")
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


def run_cell(folder: Path, case: Case, kind: str, seed: int) -> None:
    """Export a program, and keep what its own script prints in `printed.txt`."""
    before = {path: path.read_text() for path in folder.glob("*.stan")}
    stanct.temper(case.program).export(folder, case.data, kind, seed=seed)
    for path, text in before.items():
        built = path.with_suffix("")
        if built.exists() and path.read_text() == text:
            built.touch()  # CmdStan builds what is older than its text
    found = homes.find()
    environment = {**os.environ, **({"CMDSTAN": str(found.path)} if found else {})}
    done = subprocess.run(
        [sys.executable, "run.py"], cwd=folder, capture_output=True, text=True, env=environment
    )
    if done.returncode:
        raise SystemExit(f"{folder / 'run.py'} failed:\n{done.stderr[-2000:]}")
    seconds = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = f"processor {seconds.ru_utime + seconds.ru_stime:.0f} s so far\n"
    (folder / "printed.txt").write_text(done.stdout + spent)


def row(name: str, kind: str, folder: Path, exact: float) -> tuple[str, bool]:
    """A line of the table, and whether the cell is right."""
    printed = (folder / "printed.txt").read_text()
    found = re.search(r"= (\S+), standard error (\S+)", printed)
    assert found, printed
    log_z, error = map(float, found.groups())
    warned = any(words in printed for words in WARNED)
    z = (log_z - exact) / error
    right = abs(z) <= 3 and error <= 0.1
    verdict = "right" if right else "error above 0.1" if abs(z) <= 3 else "missed"
    verdict += ", warned" if warned else ", IN SILENCE" if verdict == "missed" else ""
    cells = (name, kind, f"{exact:.4f}", f"{log_z:.4f} ± {error:.4f}", f"{z:+.1f}", verdict)
    return "| " + " | ".join(cells) + " |", right


def main() -> None:
    parser = argparse.ArgumentParser(description="log Z of exported programs by plain CmdStan.")
    parser.add_argument("--out", type=Path, default=Path("exports"))
    parser.add_argument("--programs", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    print("| program | kind | exact | log Z | z | verdict |\n|---|---|--:|--:|--:|---|")
    rights = []
    for name in options.programs:
        case = CASES[name]()
        for kind in options.kinds:
            folder = options.out / f"{name}_{kind}"
            if not (folder / "printed.txt").exists():
                run_cell(folder, case, kind, options.seed)
            line, right = row(name, kind, folder, case.log_z)
            rights.append(right)
            print(line, flush=True)
    print(f"\n{sum(rights)} of {len(rights)} right: within 3 errors, of .1 at most")


if __name__ == "__main__":
    main()

"""CmdStan's `log_prob` on generated programs, beside their formula.

For programs of posteriordb with data, the script compares log densities that CmdStan's `log_prob`
prints at random points with the formula in the header of the program, computed by the embedded
engine from the density program. A compilation costs most by what is common to all programs, so
several are compiled to one executable, without optimisation; a variable of the environment chooses
the program. It needs a CmdStan by `stanct install-cmdstan`.

    python examples/sweep/log_probs.py FOLDER [--kind joint] [--after 30] [--first 20]
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np
from row_sums import cases
from sweep import Case, load_data
from verify import whitened

from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import CompilerMessageError, Recipe
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget

KINDS = ("joint", "pseudo_extended", "extended_hamiltonian")
TOGETHER = 10  # programs of one executable
TOLERANCE = 1e-9
CHOICE = "STANCT_MODEL"
CHOOSE = """
stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* out) {{
  switch (std::stoi(std::getenv("{choice}"))) {{
{cases}
  }}
  throw std::invalid_argument("There is no such program.");
}}
stan::math::profile_map& get_stan_profile_data() {{
  static stan::math::profile_map none;
  return none;
}}
"""


@dataclass(frozen=True)
class Asked:
    """A program with data, points in its unconstrained space, and the formula's log densities."""

    name: str
    recipe: Recipe
    points: Array
    wanted: Array


def asked(case: Case, kind: str, count: int) -> Asked | None:
    """What is asked of a case; None where the formula is finite at no point."""
    program = Program.from_file(case.program, include_paths=case.includes)
    data = load_data(case.data) if case.data else None
    target = ProgramTarget(program, read_data(data, program))
    with np.errstate(invalid="ignore", over="ignore"):
        recipes, found = whitened(target, kind, np.random.default_rng(1), 2 * count)
        kept = [(at, value) for number, at, value in found if number == 0 and np.isfinite(value)]
    if not kept:
        return None
    points, wanted = zip(*kept[:count], strict=True)
    return Asked(case.program.stem, recipes[0], np.stack(points), np.array(wanted))


def all_asked(folder: str, kind: str, count: int) -> Iterator[Asked]:
    """What is asked of the programs of a folder that have such points."""
    for case in cases(folder, None):
        try:
            one = asked(case, kind, count)
        except (StanctError, CompilerMessageError) as error:
            print(f"{case.program.stem}: {' '.join(str(error).split())[:120]}", flush=True)
            continue
        if one is not None:
            yield one


class Executable:
    """Several programs, compiled together by a CmdStan."""

    def __init__(self, engine: CmdStan, folder: Path, sources: Sequence[str]) -> None:
        self._home, self._folder = engine.home.path, folder
        parts = ["#include <stan/model/model_header.hpp>", "#define USING_R"]
        choices = list[str]()
        for k, source in enumerate(sources):
            program, code = folder / f"p{k}.stan", folder / f"p{k}.hpp"
            program.write_text(source)
            self._told([str(self._home / "bin" / "stanc"), f"--o={code}", str(program)])
            parts += [f"#define stan_model program_{k}", f'#include "{code}"', "#undef stan_model"]
            made = f"*new p{k}_model_namespace::p{k}_model(data, seed, out)"
            choices.append(f"  case {k}: return {made};")
        parts.append(CHOOSE.format(choice=CHOICE, cases="\n".join(choices)))
        whole, self.path = folder / "all.cpp", folder / "all"
        whole.write_text("\n".join(parts))
        compiler, *flags = self._compiler()
        self._told([compiler, str(whole), *self._objects(), *flags, "-o", str(self.path)])

    def _compiler(self) -> list[str]:
        told = self._told(["make", "--no-print-directory", "compile_info", "O=0"])
        return [*shlex.split(told.splitlines()[-1]), "-isystem", "include"]

    def _objects(self) -> list[str]:
        told = self._told(["make", "--no-print-directory", "print-OBJECTS"])
        return shlex.split(told.partition("=")[2])

    def _told(self, words: list[str]) -> str:
        done = subprocess.run(words, cwd=self._home, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{words[0]} failed:\n{(done.stdout + done.stderr)[-3000:]}")
        return done.stdout

    def log_prob(self, number: int, one: Asked) -> Array:
        """Log densities of one of the programs, as CmdStan's `log_prob` writes them."""
        data, points, out = (self._folder / name for name in ("data.json", "at.json", "out.csv"))
        data.write_text(one.recipe.data)
        points.write_text(json.dumps({"params_r": one.points.tolist()}))
        words = [str(self.path), "log_prob", f"unconstrained_params={points}"]
        words += ["data", f"file={data}", "output", f"file={out}", "sig_figs=17"]
        done = subprocess.run(
            words, env={**os.environ, CHOICE: str(number)}, capture_output=True, text=True
        )
        if done.returncode:
            print(f"{one.name}: {(done.stdout + done.stderr)[-300:]}")
            return np.full(len(one.points), np.nan)
        rows = [row for row in out.read_text().splitlines() if not row.startswith("#")]
        return np.array([float(row.split(",")[0]) for row in rows[1:]])


def difference(value: Array, wanted: Array) -> float:
    """The largest relative difference of log densities."""
    return float(np.max(np.abs(value - wanted) / (1 + np.abs(wanted))))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", help="programs with data, or posteriordb")
    parser.add_argument("--kind", choices=KINDS, default="joint")
    parser.add_argument("--after", type=int, default=0, help="pass over so many programs")
    parser.add_argument("--first", type=int, default=50, help="end after so many more")
    parser.add_argument("--points", type=int, default=20)
    options = parser.parse_args(arguments)
    engine, away = CmdStan.here(), list[float]()
    every = all_asked(options.folder, options.kind, options.points)
    found = islice(every, options.after, options.after + options.first)
    while group := list(islice(found, TOGETHER)):
        with tempfile.TemporaryDirectory() as folder:
            made = Executable(engine, Path(folder), [one.recipe.source for one in group])
            for number, one in enumerate(group):
                away.append(difference(made.log_prob(number, one), one.wanted))
                told = f"{one.wanted.size} points, largest difference {away[-1]:.1e}"
                print(f"{one.name}: {told}", flush=True)
    wrong = sum(not one < TOLERANCE for one in away)
    print(f"{len(away)} programs, {wrong} differ, largest difference {max(away, default=0):.1e}")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

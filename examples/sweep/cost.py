"""The cost of tempering beside the user's own program, for each program of a folder with data.

    python examples/sweep/cost.py FOLDER [--copies 4] [--engine cmdstan]

Times are processor times, the least of several interleaved repetitions. They are those of gradients
in compiled kernels on the embedded engine, or within trajectories of programs compiled by CmdStan.
Python takes no part in them. Other users of the memory can still affect them, most where a gradient
needs megabytes.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from sweep import Case, find_cases, load_data
from tqdm import tqdm
from worker import NoAnswerError, Worker

from stanct import kernels
from stanct.common.arrays import Array
from stanct.common.errors import EngineError, ProgramError, StanctError
from stanct.engines.cmdstan import CmdStan
from stanct.engines.embedded import Recipe
from stanct.kernels import SIGNATURE, make_extended, make_scratch
from stanct.path.bias import Bias, CopyBias
from stanct.path.gaussian import GaussianBase
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget, make_density
from stanct.targets.recipes import joint_recipe, pseudo_extended_recipe

BOUND = 1.10
FLOOR = 20.0
# Standard deviation of the diagonal base.
SCALE = 0.3
_REPETITIONS = 9
_SECONDS = 0.01
# For trajectories, whose times include the start and the end of a process.
_TRAJECTORY_REPETITIONS = 5
_TRAJECTORY_SECONDS = 0.2
# Step size of trajectories that are only timed.
_STEP = 1e-9


@dataclass(frozen=True)
class Cost:
    """Times of one program with its data.

    Attributes
    ----------
    case
        Name of the case.
    dimension
        Number of unconstrained parameters D.
    original
        Time of one gradient of the user's program, in microseconds. CmdStan compiles this program
        by its defaults, and generated programs as stanct does.
    density
        Time of a gradient of the density program, which keeps the constants that `~` drops,
        relative to `original`.
    joint
        Time of a gradient of joint tempering with a diagonal base, relative to `original`.
    pseudo_extended
        Time of a gradient of pseudo-extended copies, relative to the user's program evaluated at
        all copies.
    """

    case: str
    dimension: int
    original: float
    density: float
    joint: float
    pseudo_extended: float


def measure(case: Case, *, copies: int = 4, engine: CmdStan | None = None) -> Cost | str:
    """Time the gradients of a program with data, and of the programs generated from it.

    Parameters
    ----------
    copies
        Number of copies N in the pseudo-extended program.
    engine
        CmdStan, whose programs are timed at the origin; None for the embedded engine, whose
        gradients are timed at points drawn near the origin.

    Returns
    -------
    Cost or str
        The string says why there is nothing to measure, such as a kind that is refused.
    """
    try:
        program = Program.from_file(case.program)
        target = ProgramTarget(program, read_data(case.data and load_data(case.data), program))
        recipe = Recipe(program.expanded, target.data.text)
        original = make_density(recipe, program, target.data)
        dimension = original.dimension
        base = GaussianBase(np.zeros(dimension), np.diag(np.full(dimension, SCALE)))
        knots = np.array([0.0, 1.0])
        bias = Bias(knots, knots)
        of_copies = CopyBias(knots, knots, -knots)
        if engine is not None:
            recipes = [
                recipe,
                target.density_recipe,
                joint_recipe(target, base, bias),
                pseudo_extended_recipe(target, base, of_copies, copies, None),
            ]
            own, whole, one, all_copies = _compiled_times(engine, recipes)
            own_at_all = copies * own
        else:
            density = make_density(target.density_recipe, program, target.data)
            z = np.random.default_rng(1).normal(size=(copies, dimension))
            if not all(np.isfinite(original.log_density(SCALE * copy)) for copy in z):
                return "The log density is not finite where it is timed; it may end half way."
            own, whole, one, own_at_all, all_copies = _times(
                [
                    _gradients(original, SCALE * z[:1]),
                    _gradients(density, SCALE * z[:1]),
                    _extended_gradients(target.density, base, bias, z[:1]),
                    _gradients(original, SCALE * z),
                    _extended_gradients(target.density, base, of_copies, z),
                ]
            )
    except StanctError as error:
        return str(error)
    ratios = whole / own, one / own, all_copies / own_at_all
    return Cost(case.name, dimension, 1e6 * own, *ratios)


def _times(repeats: Sequence[Callable[[int], None]]) -> list[float]:
    """Return the processor time of one repetition, in seconds, for each function of a count."""
    least = [np.inf] * len(repeats)
    counts = [1] * len(repeats)
    for repetition in range(_REPETITIONS + 2):
        for k, repeat in enumerate(repeats):
            repeat(1 + counts[k] // 10)  # refills the caches, which the others have overwritten
            start = time.process_time()
            repeat(counts[k])
            seconds = (time.process_time() - start) / counts[k]
            if repetition:  # the first may include compilation
                least[k] = min(least[k], seconds)
                counts[k] = int(np.clip(_SECONDS / max(least[k], 1e-7), 1, 100_000))
    return least


def _gradients(density: Density, points: Array) -> Callable[[int], None]:
    """Return a function that repeats the gradients of a density at points, shape (n, D)."""
    call, value, gradient = SIGNATURE(density.address), np.zeros(1), np.zeros(points.shape[1])

    def repeat(times: int) -> None:
        kernels.repeat_density(call, density.handle, points, value, gradient, times)

    return repeat


def _extended_gradients(
    density: Density, base: GaussianBase, bias: Bias | CopyBias, z: Array
) -> Callable[[int], None]:
    """Return a function that repeats the gradient of a joint or pseudo-extended density.

    The copies are at z, shape (N, D), all with u = 1.
    """
    copies = len(z)
    extended = make_extended(density, base, bias, copies, np.zeros(0))
    w, scratch = np.append(z, np.ones(copies)), make_scratch(base.dimension)
    gradient, delta = np.zeros(w.size), np.zeros(copies)

    def repeat(times: int) -> None:
        kernels.repeat_extended(extended, w, gradient, delta, scratch, times)

    return repeat


def _compiled_times(engine: CmdStan, recipes: Sequence[Recipe]) -> list[float]:
    """Return the processor time of one gradient of each program, in seconds.

    The times follow from trajectories of two lengths. The first program is the user's own.
    """
    plain = replace(engine, optimise=False)
    engines = [plain, *[engine] * (len(recipes) - 1)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        jobs = zip(engines, recipes, strict=True)
        list(pool.map(lambda job: job[0].compiled(job[1].source), jobs))
    lengths = [_trajectory_length(*job) for job in zip(engines, recipes, strict=True)]
    least = np.full((len(recipes), 2), np.inf)
    for _ in range(_TRAJECTORY_REPETITIONS):
        for k, (own, recipe, length) in enumerate(zip(engines, recipes, lengths, strict=True)):
            seconds = [trajectory_seconds(own, recipe, steps) for steps in (length, 2 * length)]
            least[k] = np.minimum(least[k], seconds)
    return list(np.diff(least)[:, 0] / lengths)


def _trajectory_length(engine: CmdStan, recipe: Recipe) -> int:
    """Return a number of steps that takes at least `_TRAJECTORY_SECONDS`."""
    length, start = 1, trajectory_seconds(engine, recipe, 1)
    while trajectory_seconds(engine, recipe, length) - start < _TRAJECTORY_SECONDS:
        length *= 4
    return length


def trajectory_seconds(engine: CmdStan, recipe: Recipe, steps: int) -> float:
    """Return the processor time, in seconds, of a process that takes one static trajectory.

    The steps are so short that the trajectory stays at its start, the origin of the
    unconstrained space. The times of two lengths differ by those of the gradients alone.

    Raises
    ------
    EngineError
        The program does not compile, or its density is not finite at the origin.
    """
    settings = [
        *("sample", "num_samples=1", "num_warmup=0", "adapt", "engaged=0", "algorithm=hmc"),
        *(f"stepsize={_STEP}", "engine=static", f"int_time={(steps + 0.5) * _STEP}"),
    ]
    executable = engine.compiled(recipe.source)
    with tempfile.TemporaryDirectory(prefix="stanct-") as folder:
        (Path(folder) / "data.json").write_text(recipe.data, encoding="utf-8")
        tail = ["init=0", "data", "file=data.json", "random", "seed=1", "output", "refresh=0"]
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            [executable, *settings, *tail],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise EngineError(f"CmdStan failed.\n{done.stdout}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def measure_all(
    cases: Iterable[Case], *, copies: int = 4, engine: CmdStan | None = None, seconds: float = 120
) -> Iterator[Cost]:
    """Measure every case that can be measured, in a separate process that may crash."""
    with Worker(partial(measure, copies=copies, engine=engine), seconds) as worker:
        for case in cases:
            try:
                cost = worker(case)
            except NoAnswerError:
                continue
            if isinstance(cost, Cost):
                yield cost


def longest_program(cases: Iterable[Case]) -> tuple[Path, int, float]:
    """Find the longest program that can be read.

    Returns
    -------
    path, lines, seconds
        Its file, its number of lines, and the processor time to read it and generate its joint
        program.

    Raises
    ------
    StanctError
        No program can be read.
    """
    paths = {case.program for case in cases}
    lines = {path: path.read_text(encoding="utf-8", errors="replace").count("\n") for path in paths}
    for path in sorted(paths, key=lambda path: (-lines[path], path)):
        try:
            least = np.inf
            for _ in range(5):
                start = time.process_time()
                generate(Program.from_file(path), "joint")
                least = min(least, time.process_time() - start)
        except ProgramError:
            continue
        return path, lines[path], least
    raise StanctError(
        "None of the programs can be read.", remedy="Pass a folder of whole Stan programs."
    )


def report(costs: Sequence[Cost], *, copies: int) -> str:
    """Summarise the costs of programs with a gradient of at least `FLOOR` microseconds.

    The table lists the programs with the most expensive joint program first.
    """
    slow = [cost for cost in costs if cost.original >= FLOOR]
    lines = [f"{len(costs)} measured, {len(slow)} with a gradient of {FLOOR:g} us or more."]
    labels = {"density": "all constants", "joint": "joint"}
    labels["pseudo_extended"] = f"{copies} copies, each"
    for kind, label in labels.items():
        ratios = np.array([getattr(cost, kind) for cost in slow])
        if ratios.size:
            kept = int(np.sum(ratios <= BOUND))
            lines.append(
                f"{label}: {kept} of {ratios.size} within {BOUND:.2f} times the original; "
                f"median {np.median(ratios):.2f}, largest {ratios.max():.2f}."
            )
    if slow:
        frame = pd.DataFrame([asdict(cost) for cost in slow]).sort_values("joint", ascending=False)
        lines.append(frame.to_string(index=False, float_format=lambda x: f"{x:.2f}"))
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", help="Stan programs, at any depth")
    parser.add_argument("--copies", type=int, default=4, metavar="N", help="of pseudo_extended")
    parser.add_argument("--engine", choices=["embedded", "cmdstan"], default="embedded")
    parser.add_argument("--seconds", type=float, help="for one program; default 120, CmdStan 900")
    options = parser.parse_args()
    engine = CmdStan.here() if options.engine == "cmdstan" else None
    limit = options.seconds or (120 if engine is None else 900)
    path, lines, seconds = longest_program(find_cases(options.folder))
    print(f"{path}, {lines} lines: read and written as joint in {1e3 * seconds:.0f} ms.")
    bar = tqdm(find_cases(options.folder, with_data=True), unit=" programs", disable=None)
    costs: list[Cost] = []
    try:
        costs.extend(measure_all(bar, copies=options.copies, engine=engine, seconds=limit))
    finally:
        print(report(costs, copies=options.copies))


if __name__ == "__main__":
    main()

"""What generated programs cost beside the user's own: `stanct cost`.

Times are those of the processor, the least of several interleaved repetitions: through the C
interface of the embedded engine, or within a trajectory of a program that CmdStan compiled, so that
Python takes no part. What else uses the memory still does, most where a gradient needs megabytes.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from stanct.cmdstan import CmdStan
from stanct.data import read_data
from stanct.density import Density
from stanct.embedded import Recipe
from stanct.errors import ProgramError, StanctError
from stanct.isolation import NoAnswerError, Worker
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.sweep import Case, load_data
from stanct.target import Target, make_density, whitening_data

Array = np.ndarray

BOUND = 1.10
FLOOR = 20.0
_REPETITIONS = 9
_SECONDS = 0.01
# For a trajectory, whose process starts and ends too.
_TRAJECTORY_REPETITIONS = 5
_TRAJECTORY_SECONDS = 0.2


@dataclass(frozen=True)
class Cost:
    """Times of one program with its data.

    Attributes
    ----------
    case
        Its name.
    dimension
        D, the number of unconstrained parameters.
    original
        Time of one gradient of the user's program, in microseconds; with CmdStan as that compiles
        it by default, the generated ones as `stanct` does.
    density
        That of the density program, which keeps the constants that `~` drops, relative to it.
    joint
        That of the joint program with a diagonal base, relative to the user's.
    pseudo_extended
        That of the pseudo-extended program, relative to the user's and to the number of copies.
    """

    case: str
    dimension: int
    original: float
    density: float
    joint: float
    pseudo_extended: float


def measure(case: Case, *, copies: int = 4, engine: CmdStan | None = None) -> Cost | str:
    """Time the gradients of a program with data, and of those generated from it.

    Parameters
    ----------
    copies
        N of the pseudo-extended program.
    engine
        A CmdStan whose programs are timed at the origin; the embedded engine's if None, at a point
        drawn near it.

    Returns
    -------
    Cost or str
        The latter says why there is nothing to measure, such as a kind that is refused.
    """
    try:
        program = Program.from_file(case.program)
        target = Target(program, read_data(case.data and load_data(case.data), program))
        original = make_density(Recipe(program.expanded, target.data.text), program, target.data)
        dimension = original.dimension
        extra = {
            **whitening_data(np.zeros(dimension), np.full(dimension, 0.3)),
            "K": 2,
            "bias_beta": np.array([0.0, 1.0]),
            "bias": np.array([0.0, 1.0]),
            "log_g": np.array([0.0, -1.0]),
            "N": copies,
            "estimate_beta": 1,
            "fixed_beta": [],
        }
        data = target.data.extended({target.prefix + name: value for name, value in extra.items()})
        recipes = [
            Recipe(program.expanded, target.data.text),
            target.density_recipe,
            *(Recipe(target.code(kind), data) for kind in ("joint", "pseudo_extended")),
        ]
        if engine is not None:
            own, whole, one, all_copies = _compiled_times(engine, recipes)
        else:
            density, joint, pseudo_extended = (
                make_density(recipe, program, target.data) for recipe in recipes[1:]
            )
            z = np.random.default_rng(1).normal(size=(copies, dimension))
            if not all(np.isfinite(original.log_density(0.3 * copy)) for copy in z):
                return "The log density is not finite where it is timed; it may end half way."
            points = [0.3 * z[0], 0.3 * z[0], np.append(z[0], 1.0), np.append(z, np.ones(copies))]
            own, whole, one, all_copies = _times(
                [original, density, joint, pseudo_extended], points
            )
    except StanctError as error:
        return str(error)
    ratios = whole / own, one / own, all_copies / own / copies
    return Cost(case.name, dimension, 1e6 * own, *ratios)


def _times(densities: Sequence[Density], points: Sequence[Array]) -> list[float]:
    """Seconds of processor time of one gradient, for each density at its point."""
    calls = [_call(d, x) for d, x in zip(densities, points, strict=True)]
    least = [np.inf] * len(calls)
    counts = [1] * len(calls)
    for repetition in range(_REPETITIONS + 1):
        for k, call in enumerate(calls):
            start = time.process_time()
            for _ in range(counts[k]):
                call()
            seconds = (time.process_time() - start) / counts[k]
            if repetition == 0:
                counts[k] = int(np.clip(_SECONDS / max(seconds, 1e-7), 1, 2000))
            else:
                least[k] = min(least[k], seconds)
    return least


def _compiled_times(engine: CmdStan, recipes: Sequence[Recipe]) -> list[float]:
    """Seconds of processor time of one gradient of each program, by trajectories of two lengths.

    The first is the user's own.
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
            seconds = [own.trajectory_seconds(recipe, steps) for steps in (length, 2 * length)]
            least[k] = np.minimum(least[k], seconds)
    return list(np.diff(least)[:, 0] / lengths)


def _trajectory_length(engine: CmdStan, recipe: Recipe) -> int:
    """Steps enough for a process to last."""
    length, start = 1, engine.trajectory_seconds(recipe, 1)
    while engine.trajectory_seconds(recipe, length) - start < _TRAJECTORY_SECONDS:
        length *= 4
    return length


def _call(density: Density, x: Array) -> partial[int]:
    """Bind the C function of a density to a point."""
    point, gradient = np.ascontiguousarray(x, float), np.empty(density.dimension)
    pointer = ctypes.POINTER(ctypes.c_double)
    function = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_bool,
        ctypes.c_bool,
        pointer,
        pointer,
        pointer,
        ctypes.c_void_p,
    )(density.address)
    value = ctypes.c_double()
    arrays = [array.ctypes.data_as(pointer) for array in (point, gradient)]
    return partial(
        function, density.handle, True, True, arrays[0], ctypes.byref(value), arrays[1], None
    )


def measure_all(
    cases: Iterable[Case], *, copies: int = 4, engine: CmdStan | None = None, seconds: float = 120
) -> Iterator[Cost]:
    """Measure every case that can be measured, each in a process that a crash does not end."""
    with Worker(partial(measure, copies=copies, engine=engine), seconds) as worker:
        for case in cases:
            try:
                cost = worker(case)
            except NoAnswerError:
                continue
            if isinstance(cost, Cost):
                yield cost


def longest_program(cases: Iterable[Case]) -> tuple[Path, int, float]:
    """The longest program that can be read: file, lines, seconds to read it and write `joint`.

    Raises
    ------
    StanctError
        There is none.
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
    """A table of the programs whose gradient takes long enough to compare, worst first."""
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

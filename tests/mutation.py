"""Changes modules in one place at a time, and counts which changes the tests notice.

    python tests/mutation.py --sample 40 --seed 1

prints the score of each module and every change that no test noticed. It needs the extra
`mutation`. Each change is made in a copy of the package, and the quick tests of that module run
there, until one fails. A test that takes too long has noticed the change.
"""

from __future__ import annotations

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue

try:
    _trees, _changes, _operators = (
        import_module(f"cosmic_ray.{name}") for name in ("ast", "mutating", "plugins")
    )
except ModuleNotFoundError:
    raise SystemExit("It needs cosmic-ray: pip install -e '.[test,mutation]'") from None

ROOT = Path(__file__).resolve().parent.parent
COPIED = ("stanct", "templates", "stan_models", "tests", "pyproject.toml", "ARCHITECTURE.md")

ESTIMATES = ("test_pinned", "test_estimates", "test_mutants", "test_path")
KERNELS = ("test_warmup", "test_kernels", "test_mutants")
TESTS: dict[str, tuple[str, ...]] = {
    "estimates/path.py": ESTIMATES,
    "estimates/ladder.py": (
        "test_pinned",
        "test_mutants",
        "test_estimates",
        "test_parallel_tempering",
    ),
    "estimates/copies.py": ("test_pinned", "test_copies", "test_mutants"),
    "estimates/thermodynamic.py": ("test_pinned", "test_mutants", "test_thermodynamic"),
    "estimates/mean_weight.py": ("test_pinned", "test_mutants", "test_ais", "test_adiabatic"),
    "estimates/averages.py": ("test_pinned", "test_mutants", "test_estimates", "test_tours"),
    "estimates/tours.py": ("test_pinned", "test_mutants", "test_tours"),
    "estimates/weighted.py": ("test_pinned", "test_estimates", "test_tempered_run"),
    "estimates/bridge.py": (
        "test_pinned",
        "test_bridge",
    ),
    "path/bias.py": ("test_pinned", "test_mutants", "test_path", "test_base", "test_estimates"),
    "path/course.py": ("test_pinned", "test_path", "test_rounds"),
    "path/gaussian.py": ("test_pinned", "test_base", "test_bases"),
    "path/conditional.py": ("test_nested", "test_curvature"),
    "path/curvature.py": ("test_curvature",),
    "path/nested.py": ("test_nested",),
    "bases/incremental.py": ("test_nested",),
    "bases/nested.py": ("test_nested",),
    "path/low_rank.py": (
        "test_pinned",
        "test_bases",
        "test_wide",
    ),
    "path/mixture.py": (
        "test_pinned",
        "test_bases",
    ),
    "kernels/annealing.py": KERNELS,
    "kernels/hmc.py": KERNELS,
    "kernels/nuts.py": KERNELS,
    "kernels/tempering.py": KERNELS,
    "kernels/warmup.py": KERNELS,
    "runs/diagnostics.py": ("test_pinned", "test_diagnostics", "test_mutants", "test_tempered_run"),
    "runs/path_checks.py": ("test_pinned", "test_diagnostics", "test_mutants", "test_tempered_run"),
    "runs/storage.py": ("test_storage", "test_store"),
    "samplers/_rounds.py": ("test_pinned", "test_rounds", "test_mutants"),
    "samplers/_annealing.py": ("test_pinned", "test_mutants", "test_ais"),
    "samplers/_precision.py": ("test_precision",),
    "work/checkpoint.py": ("test_mutants", "test_checkpoint"),
}
"""Modules, and the files of tests that must notice a change of them, the quickest first."""

SLOW = (
    "test_a_kill_at_any_step_of_saving_leaves_a_whole_run",
    "test_a_run_killed_again_and_again_ends_like_one_that_was_not",
)
"""Tests that take too long to be repeated for every change."""

EQUIVALENT: dict[tuple[str, str], str] = {
    (
        "runs/storage.py",
        "text = json.dumps(sealed(head), indent= 1)",
    ): "JSON reads the same, however far it is indented.",
    (
        "estimates/thermodynamic.py",
        "pairs = np.maximum(labels - 1, 0) // 2 + (labels != 0)",
    ): "No label is negative.",
    (
        "estimates/averages.py",
        "result[:, k] = column[order][np.minimum(at, order.size ^ 1)]",
    ): "The sum over all weights is the last cumulative one, so no index is past the last.",
    (
        "path/bias.py",
        "rest = np.where(there, 0.5, (uniforms[0] - share) / np.where(there, 2, 1 - share))",
    ): "What is divided is not used at the atom.",
    (
        "estimates/averages.py",
        "result[:, k] = column[order][np.minimum(at, order.size // 1)]",
    ): "The sum over all weights is the last cumulative one, so no index is past the last.",
    (
        "estimates/averages.py",
        "if np.ndim(self.value) <= 0:",
    ): "No array has a negative number of axes.",
    (
        "runs/storage.py",
        "def provenance(self) -> Mapping[str, Any]: ...",
    ): "A member of a protocol, which only the type checker reads.",
    (
        "path/bias.py",
        "piece = (cumulative < mark).sum(axis=-1)",
    ): "No uniform number meets the end of a piece in all digits.",
    (
        "estimates/path.py",
        "if near is not None and excess(near ** 1) * excess(near + 1) < 0:",
    ): "Where the near bracket is not taken, the wide one has the same root.",
    (
        "samplers/_precision.py",
        "return bool(draws @ errors / (draws @ draws) >= STALLED)",
    ): "No slope of errors equals the limit in all digits.",
    (
        "estimates/thermodynamic.py",
        "rest = np.where(inside, estimator.delta, -1.0) - np.interp(beta, grid, slope)",
    ): "What is not inside is left out of the strata.",
    (
        "estimates/thermodynamic.py",
        "rest = np.where(inside, estimator.delta, 1.0) - np.interp(beta, grid, slope)",
    ): "What is not inside is left out of the strata.",
    (
        "path/bias.py",
        "raw = 1 / (1 + np.exp(+4 * np.linspace(-1, 1, temperatures + 1)))",
    ): "The curve is symmetric, and rescaling turns it round.",
    (
        "runs/storage.py",
        "if places.ndim > 2 or places.shape != spreads.shape or masses.shape != places.shape[:1]:",
    ): "What reads the places refuses other shapes, too.",
    (
        "samplers/_annealing.py",
        "SPACING = 4",
    ): "How far apart reverse particles start is free.",
    (
        "samplers/_precision.py",
        "FIRST_LOOK = 199",
    ): "Where a run looks first is free.",
    (
        "estimates/copies.py",
        "beta = [1.0] if self.fixed_beta is None else [ 0.0, *self.fixed_beta]",
    ): "Where the search of a root starts; it has only one.",
    (
        "estimates/copies.py",
        "if np.abs(step).max() != 0.01:",
    ): "How many plain steps come before Newton's; the root is the same.",
    (
        "runs/path_checks.py",
        "f\"Split R-hat of β is {rate:.3f}: chains {'dis' if rate >= 1.05 else ''}agree on it.\",",
    ): "No R-hat equals the limit in all digits.",
}
"""Changes that no test can notice: the module and the changed line, to the reason."""


@dataclass(frozen=True)
class Place:
    """One possible change of a module: the operator's occurrence in it, counted from 0."""

    module: str
    operator: str
    occurrence: int

    def mutant(self) -> Mutant | None:
        """The changed module; None if nothing changes."""
        source = _source(self.module)
        text = (
            _changes.mutate_code(source, _operators.get_operator(self.operator)(), self.occurrence)
            or source
        )
        pairs = zip(source.splitlines(), text.splitlines(), strict=False)
        for line, (before, after) in enumerate(pairs, 1):
            if before != after:
                return Mutant(self.module, line, before.strip(), after.strip(), text)
        return None


@dataclass(frozen=True)
class Mutant:
    """A changed module.

    Attributes
    ----------
    module
        Path below `stanct`.
    line
        Number of the first changed line.
    before, after
        That line.
    text
        The whole module with the change.
    """

    module: str
    line: int
    before: str
    after: str
    text: str

    def __str__(self) -> str:
        return f"{self.module}:{self.line}\n  - {self.before}\n  + {self.after}"


def _source(module: str) -> str:
    return (ROOT / "stanct" / module).read_text(encoding="utf-8")


def places(module: str) -> Iterator[Place]:
    """All changes of a module that a test could notice; see `_unseen`."""
    source = _source(module)
    nodes, skipped = list(_trees.ast_nodes(_trees.get_ast(source))), _unseen(source)
    for name in _operators.operator_names():
        kind = _operators.get_operator(name)
        if kind.arguments():
            continue
        operator = kind()
        starts = [start for node in nodes for start, _ in operator.mutation_positions(node)]
        for occurrence, start in enumerate(starts):
            if not any(first <= start < last for first, last in skipped):
                yield Place(module, name, occurrence)


def _unseen(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """From first to last, annotations, what is printed of records, and that they are frozen."""
    found: list[ast.expr | None] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef):
            found.append(node.returns)
        if isinstance(node, ast.arg | ast.AnnAssign):
            found.append(node.annotation)
        if isinstance(node, ast.keyword) and node.arg in ("repr", "frozen"):
            found.append(node.value)
    return [
        ((one.lineno, one.col_offset), (one.end_lineno or 0, one.end_col_offset or 0))
        for one in found
        if one is not None
    ]


def survives(mutant: Mutant, folder: Path, seconds: float) -> bool:
    """Whether no test notices a change; the folder holds a copy of the project."""
    victim = folder / "stanct" / mutant.module
    original = victim.read_text(encoding="utf-8")
    victim.write_text(mutant.text, encoding="utf-8")
    try:
        return _passes(folder, mutant.module, seconds)
    finally:
        victim.write_text(original, encoding="utf-8")


def _passes(folder: Path, module: str, seconds: float) -> bool:
    files = [f"tests/{name}.py" for name in TESTS[module]]
    words = ["-m", "pytest", "-q", "-x", "-n", "0", "-p", "no:cacheprovider"]
    words += ["-k", " and ".join(f"not {name}" for name in SLOW)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    if module.startswith("kernels/"):
        environment["NUMBA_DISABLE_JIT"] = "1"
    try:
        done = subprocess.run(
            [sys.executable, *words, *files],
            cwd=folder,
            env=environment,
            capture_output=True,
            timeout=seconds,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


def tried(chosen: Sequence[Mutant], jobs: int, seconds: float) -> list[tuple[Mutant, bool]]:
    """Each change, and whether it survived."""
    with tempfile.TemporaryDirectory() as top, ThreadPoolExecutor(jobs) as pool:
        free: SimpleQueue[Path] = SimpleQueue()
        for k in range(jobs):
            folder = Path(top, str(k))
            for name in COPIED:
                place = ROOT / name
                copy = shutil.copytree if place.is_dir() else shutil.copy
                folder.mkdir(exist_ok=True)
                copy(place, folder / name)
            free.put(folder)

        def work(mutant: Mutant) -> tuple[Mutant, bool]:
            folder = free.get()
            try:
                alive = survives(mutant, folder, seconds)
            finally:
                free.put(folder)
            _say(f"{'survived' if alive else 'killed  '} {mutant}" if alive else "killed", alive)
            return mutant, alive

        return list(pool.map(work, chosen))


def _say(text: str, alive: bool) -> None:
    sys.stderr.write(f"{text}\n" if alive else ".")
    sys.stderr.flush()


def _counts(found: Sequence[tuple[Mutant, bool]]) -> tuple[int, int]:
    """How many changes were noticed, and how many no test can notice."""
    alive = [mutant for mutant, survived in found if survived]
    equivalent = [mutant for mutant in alive if (mutant.module, mutant.after) in EQUIVALENT]
    return len(found) - len(alive), len(equivalent)


def report(found: Sequence[tuple[Mutant, bool]]) -> str:
    """The score of each module, and what survived."""
    lines = [f"{'module':32}tried  killed  equivalent"]
    for module in [*sorted({mutant.module for mutant, _ in found}), ""]:
        own = [pair for pair in found if module in ("", pair[0].module)]
        killed, equivalent = _counts(own)
        lines.append(f"{module or 'all':32}{len(own):5}  {killed:6}  {equivalent:10}")
    killed, equivalent = _counts(found)
    counted = len(found) - equivalent
    lines.append(f"Score: {killed / max(counted, 1):.0%} of {counted} changes that matter.")
    for mutant, survived in found:
        if survived:
            reason = EQUIVALENT.get((mutant.module, mutant.after), "no test noticed it")
            lines.append(f"{mutant}\n  {reason}")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count which changes the tests notice.")
    parser.add_argument("--module", action="append", choices=tuple(TESTS), help="default: all")
    parser.add_argument("--sample", type=int, help="number of changes; default: every one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seconds", type=float, default=300, help="limit of one change")
    options = parser.parse_args()
    every = [place for module in options.module or TESTS for place in places(module)]
    drawn = every
    if options.sample is not None:
        drawn = random.Random(options.seed).sample(every, min(options.sample, len(every)))
    sys.stderr.write(f"{len(drawn)} of {len(every)} changes\n")
    chosen = [mutant for mutant in (place.mutant() for place in drawn) if mutant is not None]
    sys.stdout.write(report(tried(chosen, options.jobs, options.seconds)) + "\n")


if __name__ == "__main__":
    main()

"""How cost and error grow with the number of parameters and of observations.

Each program runs by the default in a process of its own, and its exact log Z is known. The script
prints seconds of wall and of processor time, gradients, the error of log Z, and the most memory
that the process had.

    python run.py                                 # all sizes: an hour on two cores
    python run.py --programs gaussian --sizes 10 1000 --seeds 3

`gaussian`, `chain` and `factors` are normalised, with independent, neighbouring and common
correlations. `groups` is a Poisson hierarchy, `process` a Gaussian process, both with as many
parameters as their size says. `logistic` is a regression with so many rows, and `summed` the same
by `reduce_sum` with two threads, which needs CmdStan.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import time

from programs import PROGRAMS, SIZES

import stanct

COLUMNS = ("program", "size", "seed", "log Z − exact", "failed checks", "gradients", "wall s",
           "CPU s", "µs/gradient", "MB")  # fmt: skip


def measured(program: str, size: int, seed: int) -> dict[str, object]:
    """One run, in this process."""
    case = PROGRAMS[program](size)
    options = dict(case.options)
    model = stanct.temper(case.stan, reduce_sum=options.pop("reduce_sum", False))
    model.target(case.data)  # translates and compiles
    began = time.perf_counter()
    spent = _processor()
    run = model.sample(case.data, options.pop("method", "auto"), seed=seed, progress=False,
                       **options)  # fmt: skip
    wall, spent = time.perf_counter() - began, _processor() - spent
    evidence = run.evidence
    return {
        "program": program,
        "size": size,
        "seed": seed,
        "error": evidence.log_z - case.log_z,
        "std_error": evidence.std_error,
        "failed": [check.name for check in run.diagnostics if not check.passed],
        "gradients": run.gradients,
        "wall": wall,
        "processor": spent,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def _processor() -> float:
    """Seconds of processor time of this process and of those it waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(part.ru_utime + part.ru_stime for part in used)


def row(found: dict[str, object]) -> str:
    """One line of the table."""
    each = 1e6 * found["processor"] / max(found["gradients"], 1)
    cells = (
        found["program"],
        f"{found['size']:,}",
        found["seed"],
        f"{found['error']:+.4f} ± {found['std_error']:.4f}",
        ", ".join(found["failed"]) or "none",
        f"{found['gradients']:,}",
        f"{found['wall']:.1f}",
        f"{found['processor']:.1f}",
        f"{each:.1f}",
        f"{found['megabytes']:,.0f}",
    )
    return "| " + " | ".join(map(str, cells)) + " |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS))
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        program, size, seed = options.one
        print(json.dumps(measured(program, int(size), int(seed))))
        return 0
    print("| " + " | ".join(COLUMNS) + " |")
    print("|---" * len(COLUMNS) + "|", flush=True)
    failures = 0
    for program in options.programs:
        for size in options.sizes or SIZES[program]:
            for seed in range(options.first, options.first + options.seeds):
                command = [sys.executable, __file__, "--one", program, str(size), str(seed)]
                done = subprocess.run(command, capture_output=True, text=True, check=False)
                if done.returncode:
                    failures += 1
                    print(f"| {program} | {size:,} | {seed} | {done.stderr.strip()[-200:]} |")
                    continue
                print(row(json.loads(done.stdout.splitlines()[-1])), flush=True)
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())

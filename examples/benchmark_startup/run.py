"""How long a user waits: import, help, the first run after an install, and later runs.

    python run.py                                    # medians of five, of this environment
    python run.py --python .venv/bin/python OLD/.venv/bin/python --repeats 5

The second form measures several environments in turn, so that a busy machine is busy for all of
them. A first run has no machine code of earlier ones, which is looked for in an empty folder. Byte
code is there, as pip makes it. The run is `stanct evidence` on the radon model. Seconds are wall
time.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

RADON = Path(__file__).resolve().parents[1] / "radon"
RUN = ("-m", "stanct", "evidence", str(RADON / "radon.stan"), str(RADON / "radon.data.json"),
       "--seed", "1")  # fmt: skip
STEPS: dict[str, tuple[str, ...]] = {
    "import stanct": ("-c", "import stanct"),
    "stanct --help": ("-m", "stanct", "--help"),
    "first run": RUN,
    "later run": RUN,
}


def seconds(python: str, arguments: tuple[str, ...], kept: Path) -> float:
    """Wall time of a command whose machine code is in a folder."""
    places = {**os.environ, "NUMBA_CACHE_DIR": str(kept)}
    began = time.perf_counter()
    # Elsewhere, because a package `stanct` in the folder would be imported in place of the other.
    done = subprocess.run(
        [str(Path(python).absolute()), *arguments],
        cwd=kept,
        env=places,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"{python} {' '.join(arguments)}\n{done.stderr}")
    return time.perf_counter() - began


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--python", nargs="+", default=[sys.executable], help="environments")
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    found: dict[str, dict[str, list[float]]] = {
        python: {step: [] for step in STEPS} for python in options.python
    }
    for python in found:  # byte code of an editable install is made when it is first imported
        with tempfile.TemporaryDirectory() as fresh:
            seconds(python, STEPS["stanct --help"], Path(fresh))
            seconds(python, RUN, Path(fresh))
    for _ in range(options.repeats):
        for python, times in found.items():
            with tempfile.TemporaryDirectory() as fresh:
                kept = Path(fresh)
                for step, arguments in STEPS.items():
                    times[step].append(seconds(python, arguments, kept))
    print("| environment | " + " | ".join(STEPS) + " | first − later |")
    print("|---" * (len(STEPS) + 2) + "|")
    for python, times in found.items():
        medians = [statistics.median(times[step]) for step in STEPS]
        waits = statistics.median(
            first - later
            for first, later in zip(times["first run"], times["later run"], strict=True)
        )
        cells = [python, *(f"{value:.2f} s" for value in medians), f"{waits:.1f} s"]
        print("| " + " | ".join(cells) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())

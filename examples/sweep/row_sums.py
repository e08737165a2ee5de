"""Programs by `reduce_sum` beside the originals: log densities and gradients at random points.

For each program with data the script lets stanct write its sums over rows by `reduce_sum`, and
compares log density and gradient at points from a standard normal. Without threads Stan computes
all rows in one slice, so the script also calls the functions for two slices of each sum. Programs
without such a sum are listed with the line and the reason.

    python examples/sweep/row_sums.py FOLDER [--points 100] [--names radon ...] [--first 20]
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sweep import Case, find_cases, load_data

import stanct
from stanct.common.errors import StanctError
from stanct.stan.program import Program
from stanct.stan.row_sums import row_sums

TOLERANCE = 1e-8
CALL = re.compile(r"reduce_sum\((\w+), (\w+),\s+max\(1, (.+?) %/% \d+\),\s*([^;]*)\);")


def in_two_slices(program: str) -> str:
    """The program with each sum as that of two slices of its rows."""

    def calls(match: re.Match[str]) -> str:
        function, sliced, count, rest = match.groups()
        half = f"({count}) %/% 2"
        ends = (("1", half), (f"{half} + 1", count))
        return (
            " + ".join(
                f"{function}({sliced}[{first} : {last}] | {first}, {last}, {rest})"
                for first, last in ends
            )
            + ";"
        )

    return CALL.sub(calls, program)


def difference(case: Case, program: Program, points: int) -> tuple[float, int]:
    """The largest relative difference, and the number of points where the density is finite."""
    data = load_data(case.data) if case.data else None
    own = stanct.temper(case.program, include_paths=case.includes).density(data)
    texts = (program.expanded, in_two_slices(program.expanded))
    assert "reduce_sum" not in texts[1]
    others = [stanct.temper(text).density(data) for text in texts]
    rng, largest, finite = np.random.default_rng(1), 0.0, 0
    for point in rng.normal(size=(points, own.dimension)):
        value, gradient = own.log_density_gradient(point)
        finite += bool(np.isfinite(value))
        for other in others:
            found, slope = other.log_density_gradient(point)
            if not np.isfinite(value):
                largest = largest if found == value else np.inf
                continue
            expected = np.array([value, *gradient])
            away = np.abs(np.array([found, *slope]) - expected).max()
            largest = max(largest, float(away / max(1, np.abs(expected).max())))
    return largest, finite


def cases(folder: str, names: list[str] | None) -> Iterator[Case]:
    """One case for each program of a folder."""
    seen = set[Path]()
    for case in find_cases(folder, with_data=True):
        if case.program not in seen and (names is None or case.program.stem in names):
            seen.add(case.program)
            yield case


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", metavar="FOLDER", help="programs with data, or posteriordb")
    parser.add_argument("--points", type=int, default=100)
    parser.add_argument("--names", nargs="+", help="these programs alone")
    parser.add_argument("--first", type=int, default=0, help="end after so many with a sum")
    options = parser.parse_args()
    compared, wrong = 0, 0
    for case in cases(options.folder, options.names):
        name = case.program.stem
        try:
            found = row_sums(Program.from_file(case.program, include_paths=case.includes))
            largest, finite = difference(case, found.program, options.points)
        except StanctError as error:
            print(f"{name}: {' '.join(str(error).split())[:300]}", flush=True)
            continue
        compared += 1
        wrong += largest > TOLERANCE
        print(f"{name}: {finite} points, largest difference {largest:.1e}", flush=True)
        for place, why in found.kept:
            print(f"  line {place.line} stays as it is: {why}")
        if compared == options.first:
            break
    print(f"{compared} programs by reduce_sum, {wrong} with another density")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())

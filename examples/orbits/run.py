"""Number of planets by evidence, and the evidence challenge of Nelson et al. (2020).

    python run.py --out rows.csv                         # K2-24 by all tools: some minutes
    python run.py --out rows.csv --stars 1 2 --tools exact stanct --planets 1 --seeds 1 2 3
    python run.py --table rows.csv                       # the tables alone

Rows that the file has are not made again. UltraNest has to be installed.
"""

from __future__ import annotations

import argparse
import csv
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from circles import Circles
from stars import HERE, Star, challenge

FIELDS = ("star", "planets", "tool", "seed", "log_z", "std_error", "gradients",
          "densities", "seconds", "warnings")  # fmt: skip
Row = dict[str, Any]


def by_stanct(star: Star | Circles, seed: int) -> Row:
    """The default, with nothing set."""
    import stanct

    run = stanct.temper(star.program).sample(star.stan_data(), seed=seed, progress=False)
    found = run.bare_evidence
    return {
        "log_z": found.log_z, "std_error": found.std_error, "gradients": run.gradients,
        "densities": run.provenance["evaluations"], "warnings": " ".join(run.warnings),
    }  # fmt: skip


def by_ultranest(star: Circles, seed: int) -> Row:
    """Its default with 400 live points, and slices of 2 D steps where there is a period."""
    import ultranest
    from ultranest import stepsampler

    logging.getLogger("ultranest").setLevel(logging.ERROR)
    np.random.seed(seed)  # noqa: NPY002  it has no other way
    sampler = ultranest.ReactiveNestedSampler(
        star.names, star.log_likelihood, star.from_cube, vectorized=True
    )
    if star.planets:
        sampler.stepsampler = stepsampler.SliceSampler(
            nsteps=2 * len(star.names),
            generate_direction=stepsampler.generate_mixture_random_direction,
        )
    found = sampler.run(min_num_live_points=400, show_status=False, viz_callback=False)
    return {
        "log_z": found["logz"], "std_error": found["logzerr"], "densities": found["ncall"]
    }  # fmt: skip


def by_quadrature(star: Star | Circles, seed: int) -> Row:
    """The exact answer on the finer of two grids, and how far the coarser one is off."""
    del seed
    if isinstance(star, Circles):
        rough, exact = star.exact(501, 24), star.exact(751, 32)
    else:
        rough, exact = star.exact(0.8), star.exact()
    return {"log_z": exact, "std_error": abs(exact - rough)}


TOOLS: dict[str, Callable[[Any, int], Row]] = {
    "exact": by_quadrature,
    "stanct": by_stanct,
    "UltraNest": by_ultranest,
}


def made(options: argparse.Namespace, known: list[Row]) -> Iterable[Row]:
    """The rows that are missing, as they come."""
    done = {tuple(str(row[name]) for name in FIELDS[:4]) for row in known}
    for seed in options.seeds:
        for planets in options.planets:
            for name in options.stars:
                for tool in options.tools:
                    exact = tool == "exact"
                    key = (name, str(planets), tool, "" if exact else str(seed))
                    of_challenge = name != "K2-24"
                    if ((exact and planets > 1) or tool == "UltraNest") and of_challenge:
                        continue
                    if key in done:
                        continue
                    done.add(key)
                    star = (
                        challenge(int(name), planets) if of_challenge
                        else Circles(planets)
                    )  # fmt: skip
                    began = time.process_time()
                    row = TOOLS[tool](star, seed)
                    row["seconds"] = round(time.process_time() - began, 1)
                    yield row | dict(zip(FIELDS[:4], key, strict=True))


def read(file: Path) -> list[Row]:
    with file.open(newline="", encoding="utf-8") as lines:
        return list(csv.DictReader(lines))


def tables(rows: list[Row]) -> str:
    """K2-24 by all tools, and the challenge's data sets beside what its participants found."""
    lines = ["| planets | tool | runs | log Z | spread of runs | stated error | calls | CPU s |",
             "|" + "---|" * 8]  # fmt: skip
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[name] for name in ("star", "planets", "tool"))].append(row)
    for (star, planets, tool), group in sorted(groups.items(), key=_order):
        if star == "K2-24":
            log_z, error, seconds = (_column(group, n) for n in ("log_z", "std_error", "seconds"))
            calls = sum(_column(group, name).mean() for name in ("gradients", "densities"))
            spread = f"{log_z.std(ddof=1):.3f}" if len(group) > 1 else ""
            lines.append(
                f"| {planets} | {tool} | {'' if tool == 'exact' else len(group)} "
                f"| {log_z.mean():.3f} | {spread} | {error.mean():.3f} "
                f"| {f'{calls:,.0f}' if calls else ''} | {seconds.mean():.0f} |"
            )
    for planets in ("1", "2"):
        lines += _challenged(planets, groups)
    return "\n".join(lines)


def _order(item: tuple[tuple[str, ...], list[Row]]) -> tuple[Any, ...]:
    star, planets, tool = item[0]
    return star, planets, list(TOOLS).index(tool)


def _column(group: list[Row], name: str) -> np.ndarray:
    return np.array([float(row[name] or 0) for row in group])


def _challenged(planets: str, groups: dict[tuple[str, ...], list[Row]]) -> list[str]:
    """Errors of each method in nats and in units of its stated error, over the data sets.

    For two planets they are errors from the mean of stanct's own runs.
    """
    truth: dict[str, float] = {}
    for star in map(str, range(1, 7)):
        own = groups[star, planets, "exact" if planets == "1" else "stanct"]
        if own:
            truth[star] = _column(own, "log_z").mean()
    found: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for row in read(HERE / "challenge" / "published.csv"):
        if row["planets"] == planets and row["star"] in truth:
            error = float(row["log_z"]) - truth[row["star"]]
            found[row["method"]].append((error, float(row["std_error"] or "nan")))
    for star, exact in truth.items():
        for row in groups[star, planets, "stanct"]:
            found["stanct"].append((float(row["log_z"]) - exact, float(row["std_error"])))
    lines = [f"\nThe challenge, planets: {planets}\n",
             "| method | values | RMS error | mean stated error | RMS of error / stated error "
             "| largest |", "|" + "---|" * 6]  # fmt: skip
    for method, errors in sorted(found.items(), key=lambda item: np.square(item[1]).sum(axis=0)[0]):
        off, stated = np.array(errors).T
        ratio = off / stated
        shown = ["–"] * 3 if np.isnan(stated).all() else [
            f"{np.nanmean(stated):.3f}", f"{np.sqrt(np.nanmean(ratio**2)):.1f}",
            f"{np.nanmax(np.abs(ratio)):.1f}",
        ]  # fmt: skip
        lines.append(f"| {method} | {len(errors)} | {np.sqrt(np.mean(off**2)):.3f} "
                     f"| {' | '.join(shown)} |")  # fmt: skip
    return lines if found else []


def main() -> None:
    """Make the rows that are missing, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--stars", nargs="+", default=["K2-24"], help="K2-24, or 1 to 6")
    parser.add_argument("--planets", nargs="+", type=int, default=[0, 1, 2])
    parser.add_argument("--tools", nargs="+", choices=TOOLS, default=list(TOOLS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--out", type=Path, default=Path("rows.csv"))
    parser.add_argument("--table", type=Path, metavar="FILE")
    options = parser.parse_args()
    file = options.table or options.out
    known = read(file) if file.exists() else []
    if options.table is None:
        with file.open("a", newline="", encoding="utf-8") as out:
            writer = csv.DictWriter(out, FIELDS, restval="", lineterminator="\n")
            if not known:
                writer.writeheader()
            for row in made(options, known):
                writer.writerow(row)
                out.flush()
                known.append({name: str(row.get(name, "")) for name in FIELDS})
    print(tables(known))


if __name__ == "__main__":
    main()

"""Evidences of the posteriors in a copy of posteriordb, and their means beside its reference means.

    git clone https://github.com/stan-dev/posteriordb
    python run.py posteriordb                             # all with reference means
    python run.py posteriordb --names arK-arK --confirm   # log Z by a second method too

Runs have the default settings, and end after `--max-seconds`. They are added to a file as they
finish. A command that was interrupted goes on from there when you repeat it. Each row has the
number of means within 1.96 errors of the reference, with the errors of both sides combined. A
program whose prior is improper has no evidence. Its row has a log Z up to a constant only.
"""

from __future__ import annotations

import argparse
import json
import time
import zipfile
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

import stanct
from stanct.common.errors import StanctError

WITHIN = 1.96


@dataclass(frozen=True)
class Row:
    """What the default found for one posterior."""

    name: str
    failed: str = ""
    parameters: int = 0
    means: int = 0
    within: int = 0
    worst: str = ""
    worst_z: float = 0.0
    proper: bool = True
    log_z: float = 0.0
    std_error: float = 0.0
    confirmed: str = ""
    gradients: int = 0
    seconds: float = 0.0
    warnings: str = ""


@dataclass(frozen=True)
class Posterior:
    """Texts of one posterior of the database."""

    name: str
    program: Path
    data: dict[str, Any]
    reference: dict[str, Any]


def posteriors(folder: Path) -> dict[str, Path]:
    """Files with reference means, by name of the posterior."""
    means = folder / "posterior_database" / "reference_posteriors" / "summary_statistics"
    return {
        path.stem: path for path in sorted((means / "mean_value" / "mean_value").glob("*.json"))
    }


def posterior(folder: Path, reference: Path) -> Posterior:
    """Read one posterior."""
    root = folder / "posterior_database"
    about = {}
    for path in (root / "posteriors").glob("*.json"):
        found = json.loads(path.read_text(encoding="utf-8"))
        if found.get("reference_posterior_name") == reference.stem:
            about = found
            break
    data_name, model_name = about["data_name"], about["model_name"]
    with zipfile.ZipFile(root / "data" / "data" / f"{data_name}.json.zip") as archive:
        data = json.loads(archive.read(archive.namelist()[0]))
    program = root / "models" / "stan" / f"{model_name}.stan"
    return Posterior(
        reference.stem, program, data, json.loads(reference.read_text(encoding="utf-8"))
    )


def compared(one: Posterior, options: dict[str, Any], *, confirm: bool = False) -> Row:
    """Run one posterior by the default, and compare its means; with `confirm`, log Z too."""
    started = time.perf_counter()
    model = stanct.temper(one.program)
    run: Any = model.sample(one.data, progress=False, **options)
    second = _second(model, one, run, options) if confirm else ""
    seconds = time.perf_counter() - started
    table, reference = run.summary(), one.reference
    scores = {
        name: (table.loc[name, "mean"] - mean) / np.hypot(table.loc[name, "std_error"], error)
        for name, mean, error in zip(
            reference["names"], reference["mean_value"], reference["mcse_mean"], strict=True
        )
        if name in table.index
    }
    worst = max(scores, key=lambda name: abs(scores[name]))
    return Row(
        one.name,
        parameters=run.z.shape[-1],
        means=len(scores),
        within=sum(bool(abs(z) <= WITHIN) for z in scores.values()),
        worst=worst,
        worst_z=float(scores[worst]),
        proper=not any(omission.improper for omission in model.omissions),
        log_z=run.evidence.log_z,
        std_error=run.evidence.std_error,
        confirmed=second,
        gradients=run.gradients,
        seconds=seconds,
        warnings=", ".join(run.warnings),
    )


def _second(model: stanct.TemperedModel, one: Posterior, run: Any, options: dict[str, Any]) -> str:
    """log Z by another method, with a search of its own."""
    other = "parallel_tempering" if run.method == "simulated_tempering" else "simulated_tempering"
    own = options | {"seed": options["seed"] + 1}
    found: Any = model.sample(one.data, other, progress=False, **own)
    return f"{found.evidence.log_z:.3f} ± {found.evidence.std_error:.3f}"


def line(row: Row) -> str:
    """A row of the table."""
    if row.failed:
        return f"| {row.name} | | | | {row.failed} | | | | |"
    log_z = f"{row.log_z:.3f} ± {row.std_error:.3f}"
    return (
        f"| {row.name} | {row.parameters} | {row.within} of {row.means} "
        f"| {row.worst_z:+.1f} ({row.worst}) | {log_z if row.proper else f'improper ({log_z})'} "
        f"| {row.confirmed} | {row.gradients:,} | {row.seconds:.0f} | {row.warnings} |"
    )


HEAD = (
    "| posterior | D | within | worst z | log Z | second method | gradients | s | warnings |\n|"
    + " --- |" * 9
)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("folder", type=Path, help="a copy of the repository posteriordb")
    parser.add_argument("--out", type=Path, default=Path("posteriors.jsonl"))
    parser.add_argument(
        "--names", nargs="+", help="posteriors; all with reference means by default"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-seconds", type=float, default=90)
    parser.add_argument("--confirm", action="store_true", help="a second method for log Z too")
    asked = parser.parse_args()
    known = posteriors(asked.folder)
    names = asked.names or list(known)
    if missing := [name for name in names if name not in known]:
        parser.error(f"no reference means of {', '.join(missing)} in {asked.folder}")
    rows: dict[str, Row] = {}
    if asked.out.exists():
        for text in asked.out.read_text(encoding="utf-8").splitlines():
            row = Row(**json.loads(text))
            rows[row.name] = row
    options = {
        "seed": asked.seed,
        "max_seconds": asked.max_seconds,
    }
    print(HEAD, flush=True)
    for name in names:
        if name not in rows:
            try:
                rows[name] = compared(
                    posterior(asked.folder, known[name]), options, confirm=asked.confirm
                )
            except StanctError as problem:
                rows[name] = Row(name, failed=str(problem).splitlines()[0])
            with asked.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(rows[name])) + "\n")
        print(line(rows[name]), flush=True)
    done = [rows[name] for name in names if not rows[name].failed]
    calm = [row for row in done if not row.warnings]
    for label, some in (("all", done), ("without a warning", calm)):
        means, within = sum(row.means for row in some), sum(row.within for row in some)
        if means:
            print(f"{len(some)} posteriors, {label}: {within} of {means} means within {WITHIN}"
                  f" errors ({within / means:.1%})")  # fmt: skip


if __name__ == "__main__":
    main()

"""Twenty isolated modes: errors of plain NUTS, pseudo-extended MCMC and joint tempering.

The script repeats section 4.1 of Nemeth et al. (2019). It prints root mean square errors of four
moments over repeated runs beside the paper's Table 1. The picture shows one run of each method.

    python run.py --quick                  # one short run of four methods, under a minute
    python run.py --resume runs.jsonl      # 20 runs of 50,000 iterations: hours, see README.md
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from tqdm import tqdm

import stanct
from stanct.engines.embedded import Nuts, run_nuts

HERE = Path(__file__).resolve().parent
TEMPERED = {
    **{f"PE {copies}": stanct.PseudoExtended(copies=copies) for copies in (2, 5, 10, 20)},
    "joint": stanct.Joint(bootstrap=0),
}
METHODS = ("HMC", *TEMPERED)
SCENARIOS = {"a": "equal weights, σ² = 1/100", "b": "weights 1/r, σ² = r/20"}
SHOWN = 2000  # draws in each panel of the picture
BLUE, ORANGE = "#0072b2", "#d55e00"  # Okabe & Ito's palette

# The paper has no base, so this one is wider than the square that holds the modes. With sd 3 the
# errors of N = 5 would be a third larger.
BASE = stanct.GaussianBase(np.array([5.0, 5.0]), 5.0 * np.eye(2))


@dataclass(frozen=True)
class Job:
    """One run: its scenario, method, length and seed."""

    scenario: str
    method: str
    draws: int
    warmup: int
    seed: int


@dataclass(frozen=True)
class Outcome:
    """Estimated moments, shape (4,), equally weighted draws, shape (shown, 2), and costs."""

    job: Job
    moments: np.ndarray
    points: np.ndarray
    gradients: int
    seconds: float


def scenario_data(name: str) -> dict:
    """Weights, centres and scales of the modes in a scenario.

    In `SCENARIOS` r is the distance of a mode's centre from (5, 5).
    """
    centre = np.array(json.loads((HERE / "centres.json").read_text(encoding="utf-8"))["centre"])
    if name == "a":
        weight, sigma = np.full(len(centre), 1 / len(centre)), np.full(len(centre), 0.1)
    else:
        distance = np.linalg.norm(centre - 5, axis=1)
        weight, sigma = 1 / distance / np.sum(1 / distance), np.sqrt(distance / 20)
    return {"K": len(centre), "weight": weight, "centre": centre, "sigma": sigma}


def exact_moments(data: dict) -> np.ndarray:
    """E[x₁], E[x₂], E[x₁²] and E[x₂²], shape (4,)."""
    squares = np.square(data["centre"]) + np.square(data["sigma"])[:, None]
    return np.concatenate([data["weight"] @ data["centre"], data["weight"] @ squares])


def work(job: Job) -> Outcome:
    """Do one run, in whatever process calls this."""
    started = time.perf_counter()
    model, data = stanct.temper(HERE / "mixture20.stan"), scenario_data(job.scenario)
    if job.method == "HMC":
        start = np.random.default_rng(job.seed).uniform(0, 10, size=(1, 2))
        block, gradients = run_nuts(
            model.target(data).density_recipe,
            start,
            seed=job.seed + 1,
            warmup=job.warmup,
            draws=job.draws,
            nuts=Nuts(threads=1),
        )
        points = block.variables["x"][0]
        moments = moments_of({"x": points}).mean(axis=0)
    else:
        run = model.sample(
            data,
            TEMPERED[job.method],
            chains=1,
            draws=job.draws,
            warmup=job.warmup,
            seed=job.seed,
            base=BASE,
            log_zeta=0.0,
            threads=1,
            engine="embedded",
            progress=False,
        )
        gradients = run.gradients
        moments = run.expect(moments_of).value
        points = run.resample(min(SHOWN, job.draws), seed=job.seed)["x"][0]
    shown = points[np.linspace(0, len(points) - 1, min(SHOWN, len(points))).astype(int)]
    return Outcome(job, moments, shown, gradients, time.perf_counter() - started)


def done(jobs: list[Job], processes: int, kept: Path | None) -> Iterator[Outcome]:
    """Yield the outcomes of all jobs: first those in the file `kept`, then new ones as they finish.

    New outcomes are appended to the file.
    """
    left = set(jobs)
    for line in whole_lines(kept) if kept and kept.exists() else ():
        values = json.loads(line)
        job = Job(**values.pop("job"))
        if job in left:
            left.remove(job)
            arrays = {name: np.array(values.pop(name)) for name in ("moments", "points")}
            yield Outcome(job, **arrays, **values)
    # Threads would wait for each other, because chains run Python code between their blocks.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        for future in as_completed([pool.submit(work, job) for job in jobs if job in left]):
            outcome = future.result()
            if kept:
                with kept.open("a", encoding="utf-8") as file:
                    file.write(json.dumps(asdict(outcome), default=np.ndarray.tolist) + "\n")
            yield outcome


def whole_lines(path: Path) -> list[str]:
    """The complete lines of a file. A last line that a killed run left unfinished is removed."""
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    if lines and not lines[-1].endswith("\n"):
        path.write_text("".join(lines[:-1]), encoding="utf-8")
        lines.pop()
    return lines


def moments_of(draws: dict) -> np.ndarray:
    """x₁, x₂, x₁² and x₂² on the last axis."""
    return np.concatenate([draws["x"], np.square(draws["x"])], axis=-1)


def report(outcomes: list[Outcome], paper: dict[str, list[float]], exact: np.ndarray) -> None:
    """Print the rows of one scenario."""
    for method in METHODS:
        mine = [outcome for outcome in outcomes if outcome.job.method == method]
        if not mine:
            continue
        errors = np.array([outcome.moments for outcome in mine]) - exact
        rmse = np.sqrt(np.square(errors).mean(axis=0))
        old = " ".join(f"{value:6.2f}" for value in paper[method]) if method in paper else ""
        print(
            f"  {method:<6} {' '.join(f'{value:6.2f}' for value in rmse)}   {old:<27}  "
            f"{np.mean([outcome.gradients for outcome in mine]):12,.0f} "
            f"{np.mean([outcome.seconds for outcome in mine]):8.1f}"
        )


def draw(outcomes: list[Outcome], scenarios: list[str], methods: list[str]) -> Figure:
    """One run of each method in each scenario, with crosses at the centres of the modes."""
    size = (2.1 * len(methods) + 0.5, 2.25 * len(scenarios) + 0.3)
    figure = Figure(figsize=size, layout="constrained")
    panels = figure.subplots(len(scenarios), len(methods), sharex=True, sharey=True, squeeze=False)
    for row, scenario in zip(panels, scenarios, strict=True):
        centre = scenario_data(scenario)["centre"]
        for axes, method in zip(row, methods, strict=True):
            first = next(
                o for o in outcomes if (o.job.scenario, o.job.method) == (scenario, method)
            )
            axes.plot(*centre.T, "+", color=ORANGE, ms=7, mew=1, zorder=1)
            axes.plot(*first.points.T, ".", color=BLUE, ms=2.5, mew=0, alpha=0.6, zorder=2)
            axes.set(xlim=(-1, 11), ylim=(-1, 11), aspect="equal", xticks=(0, 5, 10))
            axes.set(yticks=(0, 5, 10))
            if scenario == scenarios[0]:
                axes.set_title(method.replace("PE ", "PE, N = "), fontsize=10)
        row[0].set_ylabel(f"({scenario})  x₂")
    for axes in panels[-1]:
        axes.set_xlabel("x₁")
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Errors of a mixture's moments.")
    parser.add_argument("--quick", action="store_true", help="one short run of four methods")
    parser.add_argument("--runs", type=int, default=20, help="runs of each method")
    parser.add_argument("--draws", type=int, default=50_000, help="iterations after warm-up")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--scenarios", nargs="+", choices=SCENARIOS, default=list(SCENARIOS))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--out", type=Path, default=Path("mixture20.png"), help="the picture")
    parser.add_argument("--resume", type=Path, help="file of finished runs, to go on from")
    options = parser.parse_args()
    warmup = 1000
    if options.quick:
        options.runs, options.draws, warmup = 1, 500, 300
        options.methods = ["HMC", "PE 2", "PE 5", "joint"]
    truth = json.loads((HERE / "truth.json").read_text(encoding="utf-8"))

    kinds = [(s, m) for s in options.scenarios for m in options.methods]
    seeds = np.random.SeedSequence(options.seed).generate_state(len(kinds) * options.runs)
    jobs = [
        Job(*kind, options.draws, warmup, int(seed))
        for kind, seed in zip(kinds * options.runs, seeds % 2**30, strict=True)
    ]
    finished = done(jobs, options.processes, options.resume)
    outcomes = list(tqdm(finished, total=len(jobs), unit="run", leave=False))
    outcomes.sort(key=lambda outcome: jobs.index(outcome.job))

    print(f"RMSE over {options.runs} runs of {options.draws:,} iterations, then the paper's")
    head = " ".join(f"{name:>6}" for name in ("E[x₁]", "E[x₂]", "E[x₁²]", "E[x₂²]"))
    for name in options.scenarios:
        exact = exact_moments(scenario_data(name))
        assert np.allclose(exact, truth["moments"][name], atol=1e-6)
        print(f"\n({name}) {SCENARIOS[name]}")
        print(f"  {'':<6} {head}   {head}   {'gradients':>12} {'seconds':>8}")
        mine = [outcome for outcome in outcomes if outcome.job.scenario == name]
        report(mine, truth["rmse_of_the_paper"][name], exact)
    draw(outcomes, options.scenarios, options.methods).savefig(options.out, dpi=150)
    print(f"\nThe picture is in {options.out}.")

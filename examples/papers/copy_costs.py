"""Nemeth et al. (2019), supplement: draws of the extended target, and what N copies cost.

Copies have the paper's instrument here: powers γ^β of the unnormalised target, with g ∝ 1.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import (
    BLUE,
    EXAMPLES,
    INK,
    ORANGE,
    QUIET,
    RED,
    Made,
    Work,
    example,
    panels,
    present,
    seeds,
    short_numbers,
    titled,
)
from matplotlib.axes import Axes
from relaxations import relaxation_run
from scipy.stats import norm

import stanct
from stanct.engines.embedded import Nuts, run_nuts

# Modes of the mixture are up to three apart with σ = .1, which is half a nat at β = .002.
MIXTURE_BOUNDS = (0.002, 1.0)
SHOWN = 2000
MOMENTS = ("E[x₁]", "E[x₂]", "E[x₁²]", "E[x₂²]")
NARROW = 0.05  # the fixed β of Figure 6


def mixture_powers(copies: int, scenario: str, draws: int, seed: int) -> dict[str, Any]:
    """Part: four moments of the paper's copies on the mixture of twenty Gaussians."""
    mixture = example("mixture20")
    model = stanct.temper(mixture.HERE / "mixture20.stan")
    data = mixture.scenario_data(scenario)
    method = stanct.PseudoExtended(
        copies=copies, instrument="target", beta_bounds=MIXTURE_BOUNDS, bootstrap=0
    )
    started = time.process_time()
    run = model.sample(
        data, method, chains=1, draws=draws, warmup=min(1000, draws), seed=seed, base=mixture.BASE,
        log_zeta=0.0, engine="embedded", threads=1, progress=False,
    )  # fmt: skip
    seconds = time.process_time() - started
    moments = run.expect(mixture.moments_of).value
    points = run.resample(min(SHOWN, draws), seed=seed)["x"][0]
    each = mixture.moments_of({"x": run.variables["x"].reshape(draws, copies, 2)})
    taken = one_of_each(np.exp(run.copy_log_weights[0]), np.random.default_rng(seed))
    return {"copies": copies, "scenario": scenario, "moments": moments, "points": points,
            "one copy": each[np.arange(draws), taken].mean(axis=0), "cost": run.gradients,
            "seconds": seconds}  # fmt: skip


def one_of_each(weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The number of one copy of each draw, taken with the probability of its weight.

    `weights` has shape (draws, N), and its rows add up to 1.
    """
    below = np.cumsum(weights, axis=1)
    picked = (rng.random((len(weights), 1)) * below[:, -1:] > below).sum(axis=1)
    return np.minimum(picked, weights.shape[1] - 1)


def from_both(draws: int, seed: int) -> dict[str, Any]:
    """Part: NUTS from the target on the line, and from the extended target of two copies."""
    model = stanct.temper(EXAMPLES / "papers" / "two_narrow_modes.stan")
    block, _ = run_nuts(
        model.target().density_recipe, np.array([[-1.0]]), seed=seed, warmup=500, draws=draws,
        nuts=Nuts(),
    )  # fmt: skip
    base = stanct.GaussianBase(np.zeros(1), np.eye(1))
    method = stanct.PseudoExtended(copies=2, fixed_beta=(NARROW, NARROW), instrument="target")
    run = model.sample(
        method=method, base=base, log_zeta=0.0, engine="embedded", chains=1, draws=draws,
        seed=seed, progress=False,
    )  # fmt: skip
    right = run.expect(lambda values: values["x"] > 0)
    return {"nuts": block.variables["x"].ravel(), "copies": run.z.reshape(draws, 2),
            "weights": np.exp(run.copy_log_weights[0]), "right": right.value,
            "error": right.std_error}  # fmt: skip


def figure_6(work: Work) -> Made:
    """Draws from a target with two narrow modes, and from the extended target of two copies."""
    job = {"draws": 1000 if work.quick else 10_000, "seed": seeds(work.seed, 1)[0]}
    (made,) = work.parts.every(from_both, [job])
    nuts, copies, weights = (np.array(made[key]) for key in ("nuts", "copies", "weights"))
    shown = min(1000, job["draws"])
    figure, axes = panels(1, 3, (11.0, 3.4))
    axes[0, 0].plot(nuts[:shown], ".", color=RED, ms=2.5, mew=0)
    grid = np.linspace(-3.5, 3.5, 301)
    density = 0.5 * norm.pdf(grid, -1, np.sqrt(0.1)) + 0.5 * norm.pdf(grid, 1, np.sqrt(0.02))
    power = density**NARROW
    extended = density[:, None] * power + power[:, None] * density
    axes[0, 1].contour(grid, grid, extended, 12, colors=QUIET, linewidths=0.6)
    axes[0, 1].plot(*copies[:60].T, "-", color=ORANGE, lw=0.7, label="60 draws in order")
    axes[0, 1].plot(*copies[:2000].T, ".", color=BLUE, ms=2, mew=0, alpha=0.6)
    reach = 1.05 * max(3.5, float(np.abs(copies[:2000]).max()))
    axes[0, 1].set(xlim=(-reach, reach), ylim=(-reach, reach), aspect="equal")
    axes[0, 1].legend(frameon=False, fontsize=8, loc="upper left")
    heavier = copies[np.arange(len(copies)), weights.argmax(axis=1)]
    axes[0, 2].plot(heavier[:shown], ".", color=BLUE, ms=2.5, mew=0)
    for one in axes[0, ::2]:
        one.set_ylim(-2.5, 2.5)
        one.axhline(0, color=INK, lw=0.5)
    titled(axes[0, 0], "(a) from the target", "draw", "x")
    titled(axes[0, 1], f"(b) two copies, β = {NARROW:g}", "x$_1$", "x$_2$")
    titled(axes[0, 2], "(c) the heavier copy", "draw", "x")
    rows = [
        {"draws of": "the target", "weight of x > 0": float((nuts > 0).mean()),
         "standard error": float("nan"), "changes of mode": int(_changes(nuts))},
        {"draws of": "two copies", "weight of x > 0": made["right"],
         "standard error": made["error"], "changes of mode": int(_changes(heavier))},
    ]  # fmt: skip
    says = (
        f"NUTS from the target gives x > 0 the weight {rows[0]['weight of x > 0']:.3f}, and from "
        f"the extended target of two copies {made['right']:.3f} ± {made['error']:.3f} (exact 0.5), "
        f"with {rows[1]['changes of mode']} changes of mode in {job['draws']:,} draws."
    )
    verdict = (
        " The target is that of Figure 1. Copies follow its power .05 here, whereas Figure 1 has "
        "a wide normal in its place. The supplement's own picture was not at hand."
    )
    return Made(rows, figure, work.judged(says, verdict))


def _changes(x: np.ndarray) -> int:
    return np.count_nonzero(np.diff(np.sign(x)))


def _costs(axes: Axes, found: Sequence[dict[str, Any]], key: str, labels: dict) -> list[dict]:
    """Plot MSE × seconds of each run against N, and return rows with means over runs."""
    rows = []
    for place, (value, label) in enumerate(labels.items()):
        mine = [made for made in found if made[key] == value]
        if not mine:
            continue
        products = np.array([made["error"] * made["seconds"] for made in mine])
        error = products.std(ddof=1) / np.sqrt(products.size) if products.size > 1 else 0.0
        axes.semilogy(np.full(products.size, place), products, "o", color=QUIET, ms=3.5, alpha=0.7)
        axes.semilogy([place - 0.25, place + 0.25], 2 * [products.mean()], color=BLUE, lw=2)
        rows.append({"N": label, "runs": products.size,
                     "MSE": float(np.mean([made["error"] for made in mine])),
                     "seconds": float(np.mean([made["seconds"] for made in mine])),
                     "gradients": float(np.mean([made["cost"] for made in mine])),
                     "MSE × seconds": float(products.mean()),
                     "standard error": float(error)})  # fmt: skip
    short_numbers(axes)
    axes.set_xticks(range(len(labels)), list(map(str, labels.values())))
    axes.set_xlim(-0.5, len(labels) - 0.5)
    return rows


def _compared(rows: Sequence[dict[str, Any]]) -> str:
    """MSE × seconds of each N in words."""
    return ", ".join(
        f"{r['MSE × seconds']:.3g} ± {r['standard error']:.2g} (N = {r['N']})" for r in rows
    )


TIME = (
    " Seconds are those of the processor, with the warm-up, and were measured on a machine that "
    "other work shared. Lines are means over runs. The supplement's own picture was not at hand."
)


def figure_7(work: Work) -> Made:
    """Mean square error × time of the paper's copies on twenty modes, against N."""
    sizes = (2, 5) if work.quick else (2, 5, 10, 20)
    draws = 300 if work.quick else 10_000
    own = seeds(work.seed, work.times(20, 2))
    jobs = [{"copies": size, "scenario": scenario, "draws": draws, "seed": seed}
            for size in sizes for scenario in "ab" for seed in own]  # fmt: skip
    found = present(work.parts.all(mixture_powers, jobs))
    figure, axes = panels(1, 2, (8.0, 3.4), sharey=True)
    rows, words = [], []
    for one, scenario in zip(axes[0], "ab", strict=True):
        exact = example("mixture20").exact_moments(example("mixture20").scenario_data(scenario))
        mine = [{**made, "error": np.square(np.subtract(made["moments"], exact))[:2].mean()}
                for made in found if made["scenario"] == scenario]  # fmt: skip
        costs = _costs(one, mine, "copies", {size: size for size in sizes})
        rows += [{"scenario": scenario, **row} for row in costs]
        words.append(f"In ({scenario}) MSE × seconds is {_compared(costs)}.")
        titled(one, f"({scenario})", "N", "MSE of E[x] × seconds" if scenario == "a" else "")
    says = f"{min(r['runs'] for r in rows)} runs each of {draws:,} draws. {' '.join(words)}"
    return Made(rows, figure, work.judged(says, TIME))


def figure_8(work: Work) -> Made:
    """Mean square error × time of the paper's copies on a relaxation, against N."""
    sizes = (2, 5) if work.quick else (2, 5, 10)
    draws = 300 if work.quick else 10_000
    own = seeds(work.seed, work.times(10, 2))
    jobs = [{"method": f"powers {size}", "quick": work.quick, "draws": draws, "seed": seed}
            for size in sizes for seed in own]  # fmt: skip
    found = present(work.parts.all(relaxation_run, jobs))
    figure, axes = panels(1, 2, (8.0, 3.4))
    rows, words = [], []
    for k, (one, moment) in enumerate(zip(axes[0], ("E[x]", "E[x²]"), strict=True)):
        mine = [{**made, "error": made["mse"][k]} for made in found]
        costs = _costs(one, mine, "method", {f"powers {size}": size for size in sizes})
        rows += [{"moment": moment, **row} for row in costs]
        words.append(f"For {moment} MSE × seconds is {_compared(costs)}.")
        titled(one, f"MSE of {moment} × seconds", "N")
    says = f"{min(r['runs'] for r in rows)} runs each of {draws:,} draws. {' '.join(words)}"
    return Made(rows, figure, work.judged(says, TIME))


def estimators(work: Work) -> Made:
    """Scenario (b) with the weighted average of all copies, and with one copy of each draw."""
    sizes = (2, 5) if work.quick else (2, 5, 10, 20)
    draws = 300 if work.quick else 10_000
    own = seeds(work.seed, work.times(8, 2))
    jobs = [{"copies": size, "scenario": "b", "draws": draws, "seed": seed}
            for size in sizes for seed in own]  # fmt: skip
    found = present(work.parts.all(mixture_powers, jobs))
    mixture = example("mixture20")
    exact = mixture.exact_moments(mixture.scenario_data("b"))
    text = (mixture.HERE / "truth.json").read_text(encoding="utf-8")
    paper = json.loads(text)["rmse_of_the_paper"]["b"]
    rows = []
    for size in sizes:
        mine = [made for made in found if made["copies"] == size]
        for key, name in (("moments", "all copies, (3)"), ("one copy", "one copy of each draw")):
            values = [made[key] for made in mine if key in made]
            if values:
                errors = np.sqrt(np.square(np.array(values) - exact).mean(axis=0))
                rows.append(
                    {"N": size, "estimate": name, "runs": len(values), "draws": draws}
                    | {f"RMSE of {m}": e for m, e in zip(MOMENTS, errors, strict=True)}
                    | {f"paper {m}": e for m, e in zip(MOMENTS, paper[f"PE {size}"], strict=True)}
                )  # fmt: skip
    figure, axes = panels(1, 4, (12.0, 3.3))
    for one, moment in zip(axes[0], MOMENTS, strict=True):
        for (name, colour), shift in zip(
            (("all copies, (3)", BLUE), ("one copy of each draw", ORANGE)), (-0.08, 0.08),
            strict=True,
        ):  # fmt: skip
            line = [r for r in rows if r["estimate"] == name]
            x = np.array([sizes.index(r["N"]) for r in line]) + shift
            y = np.array([r[f"RMSE of {moment}"] for r in line]) * np.sqrt(draws / 50_000)
            spread = y / np.sqrt(2 * max([r["runs"] for r in line], default=1))
            one.errorbar(x, y, 2 * spread, fmt="o", ms=4, color=colour, label=name)
        theirs = [paper[f"PE {size}"][MOMENTS.index(moment)] for size in sizes]
        one.plot(range(len(sizes)), theirs, "_", ms=16, mew=2, color=INK, label="paper, 50,000")
        one.set_yscale("log")
        short_numbers(one)
        one.set_xticks(range(len(sizes)), list(map(str, sizes)))
        titled(
            one, moment, "N", f"RMSE, times √({draws:,} / 50,000)" if moment == MOMENTS[0] else ""
        )
    handles, labels = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, frameon=False, fontsize=8)
    says = "; ".join(
        f"N = {r['N']}, {r['estimate']}: "
        + " / ".join(f"{r[f'RMSE of {moment}']:.3g}" for moment in MOMENTS)
        for r in rows
    )
    says = f"RMSE of {', '.join(MOMENTS)} over {len(own)} runs of {draws:,} draws. {says}."
    verdict = (
        " The paper has runs of 50,000 draws, whose errors are .45 of these if errors fall with "
        "the root of the length. Bars are two standard errors of the RMSE. The text's equation (3) "
        "averages all copies with their weights. The authors' code keeps one copy of each draw."
    )
    return Made(rows, figure, work.judged(says, verdict))

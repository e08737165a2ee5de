"""Nemeth, Lindsten, Filippone & Hensman (2019), *Pseudo-extended Markov chain Monte Carlo*."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
from common import (
    BLUE,
    EXAMPLES,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    RED,
    Item,
    Made,
    Work,
    example,
    panels,
    present,
    seeds,
    titled,
)
from copy_costs import (
    MIXTURE_BOUNDS,
    MOMENTS,
    estimators,
    figure_6,
    figure_7,
    figure_8,
    mixture_powers,
)
from horseshoes import figure_5, figure_9, figure_10
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from plane_copies import copies_hmc
from relaxations import FIXED, figure_3, figure_4
from scipy.stats import norm
from walkers import mixture_of, walk

import stanct
from stanct.engines.embedded import Nuts, run_nuts

MARKS = ("o", "s", "^", "D")
PAPER = {
    "RAM": {"a": (0.09, 0.10, 0.90, 1.30), "b": (0.04, 0.04, 0.26, 0.34)},
    "EE": {"a": (0.11, 0.14, 1.14, 1.48), "b": (0.07, 0.09, 0.75, 0.84)},
    "PT": {"a": (0.18, 0.28, 1.82, 2.89), "b": (0.12, 0.13, 1.15, 1.22)},
}
RUNS_OF_THE_PAPER = 20
WALKERS = tuple(PAPER)
WIDE = stanct.GaussianBase(np.zeros(1), np.sqrt(2.0) * np.eye(1))


def called(method: str) -> str:
    """A method in words; "powers" are the paper's copies, and "PE" those along a path."""
    kind, _, copies = method.partition(" ")
    if not copies:
        return method
    return f"PE, N = {copies}" + (", path" if kind == "PE" else "")


def two_modes(x: np.ndarray) -> np.ndarray:
    """The density of two_narrow_modes.stan."""
    return 0.5 * norm.pdf(x, -1, np.sqrt(0.1)) + 0.5 * norm.pdf(x, 1, np.sqrt(0.02))


def two_copies(draws: int, seed: int) -> dict[str, Any]:
    """Part: plain NUTS on two modes, and on the extended density of two copies."""
    model = stanct.temper(EXAMPLES / "papers" / "two_narrow_modes.stan")
    block, _ = run_nuts(
        model.target().density_recipe, np.array([[-1.0]]), seed=seed, warmup=500, draws=draws,
        nuts=Nuts(),
    )  # fmt: skip
    run = model.sample(
        method=stanct.PseudoExtended(copies=2, fixed_beta=(0.0, 0.0), bootstrap=0), base=WIDE,
        log_zeta=0.0, engine="embedded", chains=1, draws=draws, seed=seed, progress=False,
    )  # fmt: skip
    copies = run.base.unwhiten(run.z.reshape(-1, 1)).reshape(draws, 2)
    right = run.expect(lambda values: values["x"] > 0)
    return {"nuts": block.variables["x"].ravel(), "copies": copies,
            "weights": np.exp(run.target_log_weights).reshape(draws, 2),
            "right": right.value, "error": right.std_error}  # fmt: skip


def figure_1(work: Work) -> Made:
    """Two modes on the line are one connected region for two copies."""
    job = {"draws": 1000 if work.quick else 10_000, "seed": seeds(work.seed, 1)[0]}
    (made,) = work.parts.every(two_copies, [job])
    nuts, copies, weights = (np.array(made[key]) for key in ("nuts", "copies", "weights"))
    grid = np.linspace(-3, 3, 301)
    target, wide = two_modes(grid), norm.pdf(grid, 0, np.sqrt(2))
    figure, axes = panels(1, 3, (11.0, 3.4))
    axes[0, 0].hist(nuts, 60, range=(-3, 3), density=True, color=RED, alpha=0.4, label="NUTS")
    axes[0, 0].plot(grid, target, color=INK, lw=1.2, label="π(x)")
    axes[0, 0].plot(grid, wide, "--", color=ORANGE, lw=1.2, label="q(x)")
    extended = 0.5 * (target[:, None] * wide + wide[:, None] * target)
    axes[0, 1].contour(grid, grid, extended, 12, colors=INK, linewidths=0.6)
    axes[0, 1].plot(*copies[:2000].T, ".", color=BLUE, ms=2, mew=0, alpha=0.6)
    axes[0, 1].set_aspect("equal")
    heights, edges, _ = axes[0, 2].hist(
        copies.ravel(), 60, range=(-3, 3), density=True, alpha=0.5, weights=weights.ravel(),
        color=BLUE, label="weighted",
    )  # fmt: skip
    axes[0, 2].plot(grid, target, color=INK, lw=1.2, label="π(x)")
    for one in axes[0, ::2]:
        one.legend(frameon=False, fontsize=8)
    titled(axes[0, 0], "(a) target and plain NUTS", "x", "density")
    titled(axes[0, 1], "(b) two copies", "x$_1$", "x$_2$")
    titled(axes[0, 2], "(c) weighted draws of both", "x", "density")
    middle = (edges[1:] + edges[:-1]) / 2
    plain, _ = np.histogram(nuts, edges, density=True)
    rows = [
        {"x": x, "π(x)": p, "NUTS": n, "pseudo-extended": h}
        for x, p, n, h in zip(middle, two_modes(middle), plain, heights, strict=True)
    ]
    says = (
        f"Plain NUTS gives x > 0 the weight {(nuts > 0).mean():.3f}, two copies give it "
        f"{made['right']:.3f} ± {made['error']:.3f} (exact 0.5). The target is "
        "½ N(−1, 0.1) + ½ N(1, 0.02) and q is N(0, 2)."
    )
    verdict = " As in the paper, the two modes hang together in the plane of both copies."
    return Made(rows, figure, work.judged(says, verdict))


def mixture_run(method: str, scenario: str, draws: int, seed: int) -> dict[str, Any]:
    """Part: four moments of one run on the mixture of twenty Gaussians."""
    mixture = example("mixture20")
    if method in WALKERS:
        points, cost = walk(method, scenario, mixture.scenario_data(scenario), draws, seed)
        moments = np.concatenate([points.mean(axis=0), np.square(points).mean(axis=0)])
        return {"method": method, "scenario": scenario, "moments": moments, "cost": cost,
                "points": points[:: max(1, draws // 1000)]}  # fmt: skip
    if method.startswith("powers"):
        made = mixture_powers(int(method.split()[1]), scenario, draws, seed)
        return {"method": method, **made}
    done = mixture.work(mixture.Job(scenario, method, draws, min(1000, draws), seed))
    return {"method": method, "scenario": scenario, "moments": done.moments,
            "points": done.points, "cost": done.gradients}  # fmt: skip


def fixed_beta_run(
    copies: int, scenario: str, draws: int, seed: int, beta: float
) -> dict[str, Any]:
    """Part: four moments of copies with the paper's own instrument γ^β, by compiled HMC."""
    moments, cost = copies_hmc(
        seed, copies, beta, (draws, draws // 10),
        mixture_of(example("mixture20").scenario_data(scenario)),
    )  # fmt: skip
    return {"copies": copies, "scenario": scenario, "beta": beta, "moments": moments, "cost": cost}


def exact_moments(scenario: str) -> np.ndarray:
    """The four moments of a scenario."""
    mixture = example("mixture20")
    return mixture.exact_moments(mixture.scenario_data(scenario))


def figure_2(work: Work) -> Made:
    """10,000 iterations of HMC and of two copies on both mixtures."""
    draws = 500 if work.quick else 10_000
    jobs = [{"method": method, "scenario": scenario, "draws": draws, "seed": seed}
            for scenario, seed in zip("ab", seeds(work.seed, 2), strict=True)
            for method in ("HMC", "powers 2", "PE 2")]  # fmt: skip
    found = work.parts.every(mixture_run, jobs)
    mixture = example("mixture20")
    figure, axes = panels(2, 3, (9.2, 6.2), sharex=True, sharey=True)
    rows = []
    for one, made in zip(axes.flat, found, strict=True):
        data = mixture.scenario_data(made["scenario"])
        points = np.array(made["points"])
        one.plot(*data["centre"].T, "+", color=ORANGE, ms=7)
        one.plot(*points.T, ".", color=BLUE, ms=2.5, mew=0, alpha=0.6)
        one.set(xlim=(-1, 11), ylim=(-1, 11), aspect="equal")
        titled(one, f"({made['scenario']}) {called(made['method'])}",
               "x$_1$" if made["scenario"] == "b" else "",
               "x$_2$" if made["method"] == "HMC" else "")  # fmt: skip
        away = np.linalg.norm(points[:, None] - data["centre"], axis=2) < 3 * data["sigma"]
        rows.append({"scenario": made["scenario"], "method": called(made["method"]),
                     "modes visited of 20": int(away.any(axis=0).sum()),
                     **dict(zip(MOMENTS, made["moments"], strict=True))})  # fmt: skip
    says = "Modes visited, of twenty: " + ", ".join(
        f"{r['modes visited of 20']} by {r['method']} in ({r['scenario']})" for r in rows
    )
    verdict = (
        ". Copies follow powers of the target, as in the paper, with β from "
        f"{MIXTURE_BOUNDS[0]:g} to 1, or stanct's path from a wide Gaussian. The paper says that "
        "HMC stays in few modes of (a) and two copies reach all. Up to 2,000 draws are shown."
    )
    return Made(rows, figure, work.judged(says, verdict))


def rmse(found: list[dict[str, Any]], scenario: str) -> np.ndarray:
    """Root mean square errors of the four moments over runs."""
    errors = np.array([made["moments"] for made in found]) - exact_moments(scenario)
    return np.sqrt(np.square(errors).mean(axis=0))


def table_1(work: Work) -> Made:
    """RMSE of four moments by all eight samplers and joint tempering, in both scenarios."""
    text = (EXAMPLES / "mixture20" / "truth.json").read_text(encoding="utf-8")
    paper = json.loads(text)["rmse_of_the_paper"]
    sizes = (2,) if work.quick else (2, 5, 10, 20)
    methods = (*WALKERS, "HMC", *(f"powers {n}" for n in sizes), *(f"PE {n}" for n in sizes))
    if not work.quick:
        methods = (*methods, "joint")
    own = seeds(work.seed, work.times(20, 2))
    jobs = [{"method": method, "scenario": scenario, "draws": 1000 if work.quick else 50_000,
             "seed": seed}
            for scenario in "ab" for method in methods for seed in own]  # fmt: skip
    found = present(work.parts.all(mixture_run, jobs))
    rows = []
    for scenario in "ab":
        for method in methods:
            mine = [m for m in found if (m["method"], m["scenario"]) == (method, scenario)]
            if not mine:
                continue
            copies = method.replace("powers", "PE")
            theirs = PAPER.get(method, {}).get(scenario) or paper[scenario].get(copies)
            rows.append(
                {"scenario": scenario, "method": called(method), "runs": len(mine),
                 "densities or gradients": float(np.mean([m["cost"] for m in mine]))}
                | dict(zip(MOMENTS, rmse(mine, scenario), strict=True))
                | {f"paper {name}": theirs[k] if theirs else np.nan
                   for k, name in enumerate(MOMENTS)}
            )  # fmt: skip
    return Made(rows, beside_the_paper(rows), work.judged(*words_of_table_1(rows)))


def beside_the_paper(rows: list[dict[str, Any]]) -> Figure:
    """The errors of the first table, ours and the paper's."""
    figure, axes = panels(1, 2, (9.5, 3.6), sharey=True)
    for one, scenario in zip(axes[0], "ab", strict=True):
        mine = [r for r in rows if r["scenario"] == scenario]
        for place, row in enumerate(mine):
            ours = np.array([row[name] for name in MOMENTS])
            theirs = np.array([row[f"paper {name}"] for name in MOMENTS])
            for shift, k in zip(np.linspace(-0.27, 0.27, 4), range(4), strict=True):
                one.semilogy(place + shift, ours[k], MARKS[k], color=BLUE, ms=4)
                one.semilogy(place + shift, theirs[k], MARKS[k], color=ORANGE, ms=6, mfc="none",
                             mew=1.2)  # fmt: skip
        names = [r["method"].replace("PE, ", "").replace(", ", "\n") for r in mine]
        one.set_xticks(range(len(mine)), names, fontsize=7.5)
        titled(one, f"({scenario})", "", "RMSE of four moments" if scenario == "a" else "")
    keys = [Line2D([], [], color=INK, marker=mark, ls="", ms=4, label=name)
            for mark, name in zip(MARKS, MOMENTS, strict=True)]  # fmt: skip
    keys += [Line2D([], [], color=BLUE, marker="o", ls="", ms=4, label="ours"),
             Line2D([], [], color=ORANGE, marker="o", ls="", ms=6, mfc="none",
                    label="paper")]  # fmt: skip
    figure.legend(handles=keys, loc="outside right center", frameon=False, fontsize=8)
    return figure


def agreeing(runs: int, theirs: int = RUNS_OF_THE_PAPER) -> tuple[float, float, float]:
    """How well an RMSE of some runs is known, relative, and the ratios to another that agree.

    The relative standard error of an RMSE of n runs is 1/√(2n) if errors are Gaussian, and ratios
    within two standard errors of 1 agree, in logs.
    """
    known = 1 / np.sqrt(2 * runs)
    spread = float(np.exp(2 * np.hypot(known, 1 / np.sqrt(2 * theirs))))
    return float(known), 1 / spread, spread


def words_of_table_1(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """What was found, and the verdict on it."""
    counts = sorted({r["runs"] for r in rows})
    says = f"Runs per cell: {' to '.join(map(str, dict.fromkeys((counts[0], counts[-1]))))}. "
    ratios = [
        (r["method"], r["scenario"], [r[name] / r[f"paper {name}"] for name in MOMENTS])
        for r in rows
    ]
    says += "Ours divided by the paper's, smallest and largest of the four moments: " + ", ".join(
        f"{method} ({scenario}) {min(ratio):.2f} to {max(ratio):.2f}"
        for method, scenario, ratio in ratios if np.isfinite(ratio).all()
    )  # fmt: skip
    verdict = ". "
    for runs in counts:
        known, low, high = agreeing(runs)
        verdict += (
            f"An RMSE of {runs} run{'s' * (runs > 1)} is known to {known:.0%}, and the paper's of "
            f"{RUNS_OF_THE_PAPER} to {agreeing(RUNS_OF_THE_PAPER)[0]:.0%}, so that ratios from "
            f"{low:.2f} to {high:.2f} agree. "
        )
    verdict += (
        "EE and PT have five temperatures from 1 to 60, and RAM's scale is 4; the "
        "paper's settings were not at hand. The errors of HMC depend on where its chains start. "
        "Copies follow powers of the target, as in the paper, where no path is named, with β from "
        f"{MIXTURE_BOUNDS[0]:g} to 1. The authors' code has .001 to 1, inside a box."
    )
    return says, verdict


def errors_by_beta(rows: list[dict[str, Any]]) -> Figure:
    """The errors of the second table against the fixed β."""
    figure, axes = panels(1, 2, (9.8, 3.6), sharey=True)
    colours: dict[int, str] = {2: BLUE, 5: ORANGE, 10: GREEN, 20: PURPLE}
    lines = (("-", 1.4), ("--", 1.4), ("-", 0.7), ("--", 0.7))
    for one, scenario in zip(axes[0], "ab", strict=True):
        for size, colour in colours.items():
            mine = [r for r in rows if (r["scenario"], r["N"]) == (scenario, size)]
            for name, mark, (dash, width) in zip(MOMENTS, MARKS, lines, strict=True):
                one.semilogy([r["β"] for r in mine], [r[name] for r in mine], dash, marker=mark,
                             ms=3.5, color=colour, lw=width)  # fmt: skip
        titled(one, f"({scenario})", "fixed β", "RMSE of four moments" if scenario == "a" else "")
    sizes = sorted({r["N"] for r in rows})
    keys = [Line2D([], [], color=colours[n], lw=1.4, label=f"N = {n}") for n in sizes]
    keys += [Line2D([], [], color=INK, ls=dash, lw=width, marker=mark, ms=3.5, label=name)
             for name, mark, (dash, width) in zip(MOMENTS, MARKS, lines, strict=True)]  # fmt: skip
    figure.legend(handles=keys, loc="outside right center", frameon=False, fontsize=8)
    return figure


def table_2(work: Work) -> Made:
    """RMSE of four moments with β fixed at .1 to .9, and N = 2, 5, 10, 20 copies."""
    sizes, betas = ((2,), (0.1, 0.5)) if work.quick else ((2, 5, 10, 20), FIXED)
    own = seeds(work.seed, work.times(20))
    jobs = [{"copies": size, "scenario": scenario, "draws": 500 if work.quick else 50_000,
             "seed": seed, "beta": beta}
            for size in sizes for scenario in "ab" for beta in betas for seed in own]  # fmt: skip
    found = present(work.parts.all(fixed_beta_run, jobs))
    rows = []
    for scenario in "ab":
        for size in sizes:
            for beta in betas:
                mine = [m for m in found if (m["copies"], m["scenario"], m["beta"])
                        == (size, scenario, beta)]  # fmt: skip
                if mine:
                    cost = float(np.mean([m["cost"] for m in mine]))
                    rows.append({"scenario": scenario, "N": size, "β": beta, "runs": len(mine),
                                 "gradients": cost,
                                 **dict(zip(MOMENTS, rmse(mine, scenario),
                                            strict=True))})  # fmt: skip
    figure = errors_by_beta(rows)
    best = {s: min((r for r in rows if r["scenario"] == s), key=lambda r: r[MOMENTS[0]])
            for s in "ab" if any(r["scenario"] == s for r in rows)}  # fmt: skip
    says = f"{min(r['runs'] for r in rows)} runs per cell. " + " ".join(
        f"In ({s}) the smallest RMSE of E[x₁] is {r[MOMENTS[0]]:.2f}, with N = {r['N']} and "
        f"β = {r['β']:g}." for s, r in best.items()
    )  # fmt: skip
    text = (EXAMPLES / "mixture20" / "truth.json").read_text(encoding="utf-8")
    paper = json.loads(text)["rmse_of_the_paper"]
    estimated = ", ".join(
        f"{paper[s][f'PE {size}'][0]:g} in ({s}) with N = {size}" for s in "ab" for size in sizes
    )
    verdict = (
        f" The paper's Table 1 has, with estimated β, {estimated}. In (a) no fixed β comes near "
        "that, because the widest gap between modes is a barrier of 18 nats even at β = .1. "
        "Copies have the paper's instrument γ^β here and start in the unit square. The numbers of "
        "its Table 2 were not at hand."
    )
    return Made(rows, figure, work.judged(says, verdict))


ITEMS = (
    Item("pe-figure-1", "Nemeth et al., Figure 1: two modes and two copies", figure_1),
    Item("pe-figure-2", "Nemeth et al., Figure 2: draws from twenty isolated modes", figure_2),
    Item(
        "pe-table-1",
        "Nemeth et al., Table 1: errors of moments, eight samplers",
        table_1,
        ("parts", "repeats"),
    ),
    Item(
        "pe-table-1-estimators",
        "Nemeth et al., Table 1 (b): all copies, or one",
        estimators,
        ("parts", "repeats"),
    ),
    Item(
        "pe-table-2", "Nemeth et al., Table 2: the same with fixed β", table_2, ("parts", "repeats")
    ),
    Item("pe-figure-3", "Nemeth et al., Figure 3: draws of a relaxation in a plane", figure_3),
    Item(
        "pe-figure-4",
        "Nemeth et al., Figure 4: errors on a relaxation, fixed β",
        figure_4,
        ("parts", "repeats"),
    ),
    Item(
        "pe-figure-5",
        "Nemeth et al., Figure 5: horseshoes on gene expressions",
        figure_5,
        ("parts", "repeats", "data"),
    ),
    Item("pe-figure-6", "Nemeth et al., Figure 6: draws from the extended target", figure_6),
    Item(
        "pe-figure-7",
        "Nemeth et al., Figure 7: error × time on twenty modes, N",
        figure_7,
        ("parts", "repeats"),
    ),
    Item(
        "pe-figure-8",
        "Nemeth et al., Figure 8: error × time on a relaxation, N",
        figure_8,
        ("parts", "repeats"),
    ),
    Item(
        "pe-figure-9",
        "Nemeth et al., Figure 9: marginal posteriors of coefficients",
        figure_9,
        ("parts", "data"),
    ),
    Item(
        "pe-figure-10",
        "Nemeth et al., Figure 10: predictions of prostate samples",
        figure_10,
        ("parts", "repeats", "data"),
    ),
)

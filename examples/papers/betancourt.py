"""Betancourt (2014), *Adiabatic Monte Carlo*: level sets, and the Beta–Binomial of section III.

Here are the figures of the example, of annealing and of tempering. Those of the contact flow are in
`contact_figures.py`, and what the paper says of the flow in practice is in `flow_runs.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from common import (
    BLUE,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    Item,
    Made,
    Work,
    panels,
    seeds,
    titled,
)
from contact_figures import figure_2, figure_3, figure_4, figure_8, figure_9
from flow_runs import EXACT_MEAN, THETA, density_over_beta, expectations, metastabilities
from ladders import LADDERS, anneal, divergence, log_z, mean_rate, shapes, temper, trips
from scipy.stats import beta as beta_distribution

COLOURS = dict(zip(LADDERS, (ORANGE, PURPLE, BLUE), strict=True))
TRANSITIONS = (2, 10)  # at each temperature: the paper's number, and a longer one
SHOWN = 2000  # transitions of tempering in the picture


def figure_1(work: Work) -> Made:
    """Level sets of the Hamiltonian of a mixture: between two modes their topology changes."""
    q, p = np.meshgrid(np.linspace(-5, 5, 201), np.linspace(-4, 4, 161))
    figure, axes = panels(1, 2, (7.6, 3.0), sharey=True)
    rows = []
    for one, centre, title in zip(
        axes[0], (0.0, 2.5), ("(a) one mode", "(b) two modes"), strict=True
    ):

        def potential(x: Any, centre: float = centre) -> Any:
            return -np.logaddexp(-0.5 * (x - centre) ** 2, -0.5 * (x + centre) ** 2) + np.log(2)

        energy = potential(q) + 0.5 * p**2
        top = float(potential(0.0))
        one.contour(q, p, energy, levels=np.linspace(0.3, 9, 14), colors=QUIET, linewidths=0.7)
        if centre:
            one.contour(q, p, energy, levels=[top], colors=ORANGE, linewidths=1.8)
        path = trajectory(potential, centre + 1.2, 0.9)
        one.plot(*path.T, color=BLUE, lw=1.8)
        titled(one, title, "q", "p" if one is axes[0][0] else "")
        split = int(energy[energy.shape[0] // 2, q.shape[1] // 2] > 1.5)
        rows.append({"modes at ±": centre, "energy at q = 0": top,
                     "level set at energy 1.5 in pieces": 1 + split,
                     "smallest q of the trajectory": float(path[:, 0].min()),
                     "largest q of the trajectory": float(path[:, 0].max())})  # fmt: skip
    both = rows[1]
    says = (
        "A trajectory (blue) of one mode goes once around its level set. With modes at ±2.5 the "
        f"level sets below the energy {both['energy at q = 0']:.2f} (orange) fall into two pieces. "
        "The trajectory from the right mode stays between q = "
        f"{both['smallest q of the trajectory']:.1f} and "
        f"{both['largest q of the trajectory']:.1f}, and the other piece of its level set takes a "
        "trajectory of its own."
    )
    return Made(rows, figure, says)


def trajectory(potential: Any, q: float, p: float) -> np.ndarray:
    """Hamilton's flow from a point by leapfrog steps of .02 for ten units of time."""
    path = np.empty((501, 2))
    for n in range(path.shape[0]):
        path[n] = q, p
        for _ in range(2):  # half kicks around a drift, twice a point
            p -= 0.005 * slope(potential, q)
            q += 0.01 * p
            p -= 0.005 * slope(potential, q)
    return path


def slope(potential: Any, q: float) -> float:
    """The derivative of a potential by differences."""
    return float(potential(q + 1e-4) - potential(q - 1e-4)) / 2e-4


def figure_5(work: Work) -> Made:
    """The example: prior and posterior, the density over β, and log Z(β)."""
    figure, axes = panels(1, 3, (10.5, 3.2))
    prior, posterior = (beta_distribution.pdf(THETA, *shapes(b)) for b in (0.0, 1.0))
    axes[0, 0].fill_between(THETA, prior, color=ORANGE, alpha=0.4, lw=0, label="β = 0, base")
    axes[0, 0].fill_between(THETA, posterior, color=BLUE, alpha=0.5, lw=0, label="β = 1, target")
    axes[0, 0].set_ylim(0, 30)
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper center")
    titled(axes[0, 0], "(a) base and target", "θ", "density")
    density_over_beta(axes[0, 1])
    titled(axes[0, 1], "(b) density of θ at each β", "β", "θ")
    grid = np.linspace(0, 1, 2001)
    axes[0, 2].plot(grid, log_z(grid), color=INK, lw=1.4)
    titled(axes[0, 2], "(c) log Z(β)", "β", "nats")
    betas = np.array([0.0, 0.001, 0.01, 0.05, 0.1, 0.5, 1.0])
    rows = [{"β": b, "mean of θ": float(mean_rate(b)), "log Z": float(log_z(b))} for b in betas]
    overlap = float(np.trapezoid(np.minimum(prior, posterior), THETA))
    first = {name: divergence(*betas[:2]) for name, betas in LADDERS.items()}
    says = (
        f"Base and target share {overlap:.1e} of their mass. The mean of θ falls from "
        f"{mean_rate(0.0):.2f} to {mean_rate(1.0):.2f}, and is at {mean_rate(0.05):.2f} at "
        f"β = .05. log Z falls by {-log_z(1.0):.1f} nats, {log_z(0.01) / log_z(1.0):.0%} of it "
        f"before β = .01 and {log_z(0.1) / log_z(1.0):.0%} before β = .1. The first step of the "
        "three ladders of Figures 6 and 7 is "
        + ", ".join(f"{kl:.3g} nats ({name})" for name, kl in first.items())
        + " of KL divergence."
    )
    return Made(rows, figure, says)


def annealed(ladder: str, particles: int, moves: int, seed: int) -> dict[str, Any]:
    """Part: means and spreads along a ladder, and the paths of six particles."""
    theta = anneal(ladder, particles, moves, seed)
    cumulative = beta_distribution.cdf(theta, *shapes(LADDERS[ladder]))
    return {"ladder": ladder, "moves": moves, "mean": theta.mean(axis=0),
            "inside": (np.abs(cumulative - 0.5) < 0.475).mean(axis=0),
            "error": theta.std(axis=0) / np.sqrt(particles), "paths": theta[:6]}  # fmt: skip


def figure_6(work: Work) -> Made:
    """Simulated annealing by random-walk Metropolis on three ladders."""
    particles = 2000 if work.quick else 20_000
    jobs = [
        {"ladder": name, "particles": particles, "moves": moves, "seed": seed}
        for moves, own in zip(TRANSITIONS, (seeds(work.seed, 3), seeds(work.seed, 6)[3:]),
                              strict=True)
        for name, seed in zip(LADDERS, own, strict=True)
    ]  # fmt: skip
    figure, axes = panels(2, 3, (10.5, 5.6), sharex=True, sharey=True)
    rows = []
    for one, made in zip(axes.flat, work.parts.every(annealed, jobs), strict=True):
        name, betas = made["ladder"], LADDERS[made["ladder"]]
        mean, error = np.array(made["mean"]), np.array(made["error"])
        density_over_beta(one)
        one.plot(betas, np.array(made["paths"]).T, color=COLOURS[name], lw=0.6, alpha=0.7)
        one.plot(betas, mean, "o", ms=2.5, color=INK)
        top = made["moves"] == TRANSITIONS[0]
        titled(one, f"({'abc'[list(LADDERS).index(name)]}) {name}" if top else "",
               "" if top else "β",
               f"θ, {made['moves']} transitions a step" if name == "25 even" else "")  # fmt: skip
        spread = beta_distribution.std(*shapes(betas))
        rows += [
            {"ladder": name, "transitions": made["moves"], "β": b, "mean of θ": m,
             "standard error": e, "exact": x, "off, in sd": (m - x) / s,
             "in the central 95 %": share}
            for b, m, e, x, s, share in zip(betas, mean, error, mean_rate(betas), spread,
                                            made["inside"], strict=True)
        ]  # fmt: skip
    lines = [
        f"{moves} transitions: " + "; ".join(
            told_annealing([r for r in rows if (r["ladder"], r["transitions"]) == (name, moves)])
            for name in LADDERS
        )
        for moves in TRANSITIONS
    ]  # fmt: skip
    says = "Means of θ along the ladder, with " + ". With ".join(lines) + "."
    verdict = (
        " The paper has two transitions and no numbers. The proposal has 2.4 exact standard "
        "deviations of logit θ at each β, which the paper calls optimal in one dimension."
    )
    return Made(rows, figure, work.judged(says, verdict))


def told_annealing(rows: list[dict[str, Any]]) -> str:
    """How far one ladder's means are off, and from where on they stay within a tenth of an sd."""
    away = [k for k, row in enumerate(rows) if abs(row["off, in sd"]) > 0.1]
    last = rows[-1]
    if not away:
        end = "never by more than .1 sd"
    elif away[-1] + 1 == len(rows):
        end = f"and still {last['mean of θ'] - last['exact']:+.3f} at β = 1"
    else:
        end = f"and by less than .1 sd from β = {rows[away[-1] + 1]['β']:.2g} on"
    worst = max(rows, key=lambda row: abs(row["mean of θ"] - row["exact"]))
    gap = worst["mean of θ"] - worst["exact"]
    share = last["in the central 95 %"]
    return (
        f"{rows[0]['ladder']} are off by up to {gap:+.3f}, at β = {worst['β']:.2g}, {end}, with "
        f"{share:.0%} of the particles in the central 95 % at β = 1"
    )


def tempered(ladder: str, sweeps: int, moves: int, seed: int) -> dict[str, Any]:
    """Part: one tempered chain, with its first rungs and what it finds at β = 1."""
    theta, rungs, accepted = temper(ladder, sweeps, moves, seed)
    top = LADDERS[ladder].size - 1
    cold = theta[rungs == top]
    reached = np.flatnonzero(rungs == top)
    return {
        "ladder": ladder, "accepted": accepted, "trips": trips(rungs, top),
        "first": int(reached[0]) + 1 if reached.size else None,
        "mean": cold.mean() if cold.size else np.nan, "rungs": rungs[:SHOWN],
        "theta": theta[:SHOWN],
    }  # fmt: skip


def figure_7(work: Work) -> Made:
    """Simulated tempering with jumps between neighbours, whose bias is the exact log z."""
    sweeps, repeats = (10_000 if work.quick else 50_000), work.times(100, 5)
    own = seeds(work.seed, repeats)
    jobs = [
        {"ladder": name, "sweeps": sweeps, "moves": TRANSITIONS[0], "seed": seed}
        for name in LADDERS
        for seed in own
    ]
    found = work.parts.every(tempered, jobs)
    figure, axes = panels(2, 3, (10.5, 5.8))
    rows = []
    for column, name in enumerate(LADDERS):
        mine = [made for made in found if made["ladder"] == name]
        first = np.array([made["first"] or np.inf for made in mine])
        means = np.array([made["mean"] for made in mine], float)
        gaps = means[np.isfinite(means)] - EXACT_MEAN
        rows.append({
            "ladder": name, "chains": len(mine),
            "jumps accepted": float(np.mean([made["accepted"] for made in mine])),
            "at β = 1 within 300": float((first <= 300).mean()),
            "at β = 1 within 1,000": float((first <= 1000).mean()),
            "median first visit of β = 1": float(np.median(first)),
            "never there": int(np.isinf(first).sum()),
            "round trips a chain": float(np.mean([made["trips"] for made in mine])),
            "RMSE of the mean of θ": float(np.sqrt(np.mean(gaps**2))) if gaps.size else np.nan,
        })  # fmt: skip
        betas, middle = LADDERS[name], mine[int(np.argsort(first)[len(mine) // 2])]
        density_over_beta(axes[0, column])
        axes[0, column].plot(betas[np.array(middle["rungs"])], middle["theta"], "-o", ms=1.5,
                             lw=0.3, color=COLOURS[name], alpha=0.7)  # fmt: skip
        titled(axes[0, column], f"({'abc'[column]}) {name}", "β", "θ" if not column else "")
        axes[1, column].plot(betas[np.array(middle["rungs"])], color=COLOURS[name], lw=0.6)
        axes[1, column].set_yscale("symlog", linthresh=0.001)
        axes[1, column].set_yticks([0, 0.001, 0.01, 0.1, 1], ["0", ".001", ".01", ".1", "1"])
        axes[1, column].set_ylim(-0.0001, 1.5)
        titled(axes[1, column], "", "jump", "β" if not column else "")
    says = (
        "Chains that came to β = 1 within 300 and within 1,000 jumps: "
        + ", ".join(
            f"{r['at β = 1 within 300']:.0%} and {r['at β = 1 within 1,000']:.0%} ({r['ladder']})"
            for r in rows
        )
        + ". The median first visit is at jump "
        + ", ".join(f"{r['median first visit of β = 1']:,.0f} ({r['ladder']})" for r in rows)
        + f". In {sweeps:,} jumps a chain makes "
        + ", ".join(f"{r['round trips a chain']:.1f} ({r['ladder']})" for r in rows)
        + " round trips."
    )
    verdict = (
        " The RMSE of the mean of θ at β = 1 is "
        + ", ".join(f"{r['RMSE of the mean of θ']:.5f}" for r in rows)
        + f". Each picture is the first {SHOWN:,} jumps of the chain with the median first visit. "
        "Chains begin with 25 transitions at β = 0, as the paper's do, and make two between jumps. "
        "Their bias is the exact log z. The paper does not say how long its chains are."
    )
    return Made(rows, figure, work.judged(says, verdict))


ITEMS = (
    Item(
        "amc-figure-1", "Betancourt, Figure 1: level sets with one mode and with two", figure_1, ()
    ),
    Item("amc-figure-2", "Betancourt, Figure 2: a trajectory of the contact flow", figure_2),
    Item("amc-figure-3", "Betancourt, Figure 3: a metastable equilibrium", figure_3),
    Item("amc-figure-4", "Betancourt, Figure 4: metastabilities of cooling and heating", figure_4),
    Item("amc-figure-5", "Betancourt, Figure 5: base, target and log Z(β)", figure_5, ()),
    Item("amc-figure-6", "Betancourt, Figure 6: simulated annealing on three ladders", figure_6),
    Item(
        "amc-figure-7",
        "Betancourt, Figure 7: simulated tempering on three ladders",
        figure_7,
        ("parts", "repeats"),
    ),
    Item("amc-figure-8", "Betancourt, Figure 8: one trajectory, and its pace", figure_8),
    Item("amc-figure-9", "Betancourt, Figure 9: log Z(β) along one trajectory", figure_9),
    Item("amc-expectations", "Betancourt, II.C: an ensemble and its expectations", expectations),
    Item("amc-metastability", "Betancourt, II.C: heat, resample, cool", metastabilities),
)

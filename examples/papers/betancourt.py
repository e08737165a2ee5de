"""Betancourt (2014), *Adiabatic Monte Carlo*: the Beta–Binomial of section III.

The figures are those of annealing, of tempering and of the flow on three ladders. The papers' pages
were not at hand, so which panel stands in which figure follows from their contents alone.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
from common import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
    Item,
    Made,
    Work,
    example,
    panels,
    seeds,
    titled,
)
from ladders import LADDERS, anneal, divergence, log_z, mean_delta, mean_rate, shapes, temper, trips
from matplotlib.axes import Axes
from scipy.optimize import minimize
from scipy.stats import beta as beta_distribution

import stanct

COLOURS = dict(zip(LADDERS, (ORANGE, PURPLE, BLUE), strict=True))
EXACT_MEAN = float(mean_rate(1.0))
EXACT_SD = float(beta_distribution.std(*shapes(1.0)))
THETA = np.linspace(0.0, 1.0, 1001)[1:-1]


def beta_axis(axes: Axes) -> None:
    """β on a scale that shows the steep start of the path."""
    axes.set_xscale("symlog", linthresh=0.001)
    axes.set_xticks([0, 0.001, 0.01, 0.1, 1], ["0", ".001", ".01", ".1", "1"])
    axes.set_xlim(0, 1)


def posterior(axes: Axes, values: np.ndarray, colour: str, label: str = "") -> None:
    """A histogram of θ over its exact posterior density."""
    axes.hist(values, bins=60, range=(0.12, 0.32), density=True, color=colour, alpha=0.45,
              label=label)  # fmt: skip
    axes.plot(np.linspace(0.12, 0.32, 300), posterior_density(), color=INK, lw=1)
    axes.set_yticks([])


def posterior_density() -> np.ndarray:
    """The exact posterior density of θ at 300 points from .12 to .32."""
    return beta_distribution.pdf(np.linspace(0.12, 0.32, 300), *shapes(1.0))


def figure_1(work: Work) -> Made:
    """Level sets of the Hamiltonian of a mixture: between two modes their topology changes."""
    q, p = np.meshgrid(np.linspace(-5, 5, 201), np.linspace(-4, 4, 161))
    figure, axes = panels(1, 2, (7.6, 3.0), sharey=True)
    rows = []
    for one, centre, title in zip(axes[0], (0.0, 2.5), ("one mode", "two modes"), strict=True):

        def potential(x: Any, centre: float = centre) -> Any:
            return -np.logaddexp(-0.5 * (x - centre) ** 2, -0.5 * (x + centre) ** 2) + np.log(2)

        energy = potential(q) + 0.5 * p**2
        top = float(potential(0.0))
        one.contour(q, p, energy, levels=np.linspace(0.3, 9, 14), colors=BLUE, linewidths=0.8)
        if centre:
            one.contour(q, p, energy, levels=[top], colors=ORANGE, linewidths=1.8)
        titled(one, title, "q", "p" if one is axes[0][0] else "")
        below = int(energy[energy.shape[0] // 2, q.shape[1] // 2] > 0.8)
        rows.append({"modes at ±": centre, "energy at q = 0": top,
                     "level sets at energy 0.8 in": 1 + below})  # fmt: skip
    says = (
        f"With modes at ±2.5 the level sets below the energy {rows[1]['energy at q = 0']:.2f} fall "
        "into two pieces (orange: the boundary). A trajectory cannot leave its piece, which is why "
        "Hamiltonian Monte Carlo stays in one mode. The paper's first figure is about the same."
    )
    return Made(rows, figure, says)


def figure_5(work: Work) -> Made:
    """The three ladders: where the rungs lie, and how far apart neighbours are."""
    figure, axes = panels(1, 3, (10.5, 3.1))
    for b, colour in zip(
        (0, 0.001, 0.01, 0.1, 1.0), (INK, PURPLE, ORANGE, GREEN, BLUE), strict=True
    ):
        density = beta_distribution.pdf(THETA, *shapes(b))
        axes[0, 0].plot(THETA, density / density.max(), color=colour, lw=1.2, label=f"β = {b:g}")
    axes[0, 0].set_ylim(0, 1.4)
    axes[0, 0].legend(frameon=False, fontsize=7.5, ncols=3, loc="upper center")
    titled(axes[0, 0], "(a) from prior to posterior", "θ", "density, scaled")
    rows = []
    for place, (name, betas) in enumerate(LADDERS.items()):
        up = np.array([divergence(*pair) for pair in itertools.pairwise(betas)])
        axes[0, 1].plot(betas, np.full(betas.size, -place), "|", color=COLOURS[name], ms=16)
        axes[0, 2].semilogy(np.arange(1, betas.size), up, color=COLOURS[name], lw=1.4, label=name)
        rows += [{"ladder": name, "rung": n + 1, "β": betas[n], "next β": betas[n + 1],
                  "KL to the next": up[n]} for n in range(up.size)]  # fmt: skip
    beta_axis(axes[0, 1])
    axes[0, 1].set_yticks([0, -1, -2], list(LADDERS))
    axes[0, 1].set_ylim(-2.5, 0.5)
    titled(axes[0, 1], "(b) the rungs", "β")
    axes[0, 2].legend(frameon=False, fontsize=7.5)
    titled(axes[0, 2], "(c) KL(π$_i$ ‖ π$_{i+1}$)", "rung i", "nats")
    first = {name: next(r for r in rows if r["ladder"] == name) for name in LADDERS}
    says = (
        f"The first step of 25 even rungs is {first['25 even']['KL to the next']:.1f} nats, that "
        f"of 100 even ones {first['100 even']['KL to the next']:.1f}, and each of 25 equal ones "
        f"{first['25 of equal KL']['KL to the next']:.3f}. Half of the equal rungs lie below "
        f"β = {LADDERS['25 of equal KL'][12]:.3f}. As in the paper, nearly all of the path happens "
        "near the prior, where even ladders have no rungs."
    )
    return Made(rows, figure, says)


def annealed(ladder: str, particles: int, moves: int, seed: int) -> dict[str, Any]:
    """Part: means and spreads along a ladder, and the final θ of 2,000 particles."""
    theta = anneal(ladder, particles, moves, seed)
    return {"ladder": ladder, "moves": moves, "mean": theta.mean(axis=0),
            "error": theta.std(axis=0) / np.sqrt(particles), "end": theta[:2000, -1]}  # fmt: skip


def figure_6(work: Work) -> Made:
    """Simulated annealing by random-walk Metropolis, with 200 moves of each particle in all."""
    particles = 2000 if work.quick else 50_000
    jobs = [
        {"ladder": name, "particles": particles, "moves": 200 // betas.size, "seed": seed}
        for (name, betas), seed in zip(LADDERS.items(), seeds(work.seed, 3), strict=True)
    ]
    figure, axes = panels(1, 2, (8.4, 3.2))
    grid = np.concatenate([[0.0], np.geomspace(1e-4, 1, 400)])
    axes[0, 0].plot(grid, mean_rate(grid), color=INK, lw=1, label="exact")
    rows = []
    for made in work.parts.every(annealed, jobs):
        name, betas = made["ladder"], LADDERS[made["ladder"]]
        mean, error = np.array(made["mean"]), np.array(made["error"])
        axes[0, 0].plot(betas, mean, "o-", ms=3, lw=0.8, color=COLOURS[name], label=name)
        axes[0, 1].hist(made["end"], bins=60, range=(0.12, 0.4), density=True, histtype="step",
                        color=COLOURS[name], lw=1.3, label=name)  # fmt: skip
        rows += [
            {
                "ladder": name,
                "moves at a rung": made["moves"],
                "β": b,
                "mean of θ": m,
                "standard error": e,
                "exact": x,
            }
            for b, m, e, x in zip(betas, mean, error, mean_rate(betas), strict=True)
        ]
    theta = np.linspace(0.12, 0.4, 300)
    axes[0, 1].plot(theta, beta_distribution.pdf(theta, *shapes(1.0)), color=INK, lw=1)
    axes[0, 1].set_yticks([])
    beta_axis(axes[0, 0])
    axes[0, 0].legend(frameon=False, fontsize=8)
    axes[0, 1].legend(frameon=False, fontsize=8)
    titled(axes[0, 0], "(a) mean of θ along the ladder", "β", "θ")
    titled(axes[0, 1], "(b) θ at β = 1, and its posterior", "θ")
    worst = {}
    for row in rows:
        gap = abs(row["mean of θ"] - row["exact"])
        worst[row["ladder"]] = max(worst.get(row["ladder"], 0.0), gap)
    ends = {r["ladder"]: (r["mean of θ"] - r["exact"]) / r["standard error"] for r in rows}
    says = (
        "Largest deviation of the mean of θ along the ladder: "
        + ", ".join(f"{value:.4f} with {name}" for name, value in worst.items())
        + ". At β = 1 the means are off by "
        + ", ".join(f"{value:+.1f}" for value in ends.values())
        + " standard errors."
    )
    verdict = (
        " As in the paper, the even ladders lag behind at the start of the path, and rungs of "
        "equal KL follow it. Ours recover by the end, because our random walk is scaled to each "
        "rung and the density has one mode."
    )
    return Made(rows, figure, work.judged(says, verdict))


def tempered(ladder: str, sweeps: int, moves: int, seed: int) -> dict[str, Any]:
    """Part: one tempered chain, with its first rungs and its θ at β = 1."""
    theta, rungs, accepted = temper(ladder, sweeps, moves, seed)
    top = LADDERS[ladder].size - 1
    cold = theta[rungs == top]
    return {
        "ladder": ladder, "accepted": accepted, "trips": trips(rungs, top), "cold": cold.size,
        "mean": cold.mean() if cold.size else np.nan, "rungs": rungs[:5000] / top,
        "theta": cold[:3000],
    }  # fmt: skip


def figure_7(work: Work) -> Made:
    """Simulated tempering with jumps between neighbours, whose bias is the exact log z."""
    sweeps, repeats = (20_000 if work.quick else 200_000), work.times(20, 3)
    own = seeds(work.seed, repeats)
    jobs = [
        {"ladder": name, "sweeps": sweeps, "moves": 5, "seed": seed}
        for name in LADDERS
        for seed in own
    ]
    found = work.parts.every(tempered, jobs)
    figure, axes = panels(2, 3, (10.0, 4.8))
    rows = []
    for column, name in enumerate(LADDERS):
        mine = [made for made in found if made["ladder"] == name]
        means = np.array([made["mean"] for made in mine])
        rmse = float(np.sqrt(np.nanmean((means - EXACT_MEAN) ** 2)))
        rows.append({
            "ladder": name, "chains": len(mine), "sweeps": sweeps,
            "jumps accepted": float(np.mean([made["accepted"] for made in mine])),
            "round trips a chain": float(np.mean([made["trips"] for made in mine])),
            "chains that never reached β = 1": int(np.isnan(means).sum()),
            "RMSE of the mean of θ": rmse,
        })  # fmt: skip
        axes[0, column].plot(mine[0]["rungs"], color=COLOURS[name], lw=0.5)
        axes[0, column].set_ylim(-0.03, 1.03)
        titled(axes[0, column], name, "sweep", "rung / last rung" if not column else "")
        posterior(axes[1, column], np.array(mine[0]["theta"]), COLOURS[name])
        titled(axes[1, column], "", "θ at β = 1")
    says = (
        "Round trips of a chain: "
        + ", ".join(f"{r['round trips a chain']:.1f} with {r['ladder']}" for r in rows)
        + f" in {sweeps:,} sweeps. "
        + "The RMSE of the mean of θ is "
        + ", ".join(f"{r['RMSE of the mean of θ']:.5f}" for r in rows)
        + ". Our chains have the exact log z as their bias, so no error comes from learning it."
    )
    verdict = (
        " As in the paper, even ladders are held up: with 25 rungs by the first step, whose "
        "ends hardly overlap, and with 100 by the diffusion through all the others. Rungs of "
        f"equal KL make most round trips ({rows[-1]['round trips a chain']:.0f})."
    )
    return Made(rows, figure, work.judged(says, verdict))


def flow(
    duration: float, draws: int, warmup: int, seed: int, refresh: float | None
) -> dict[str, Any]:
    """Part: adiabatic trajectories from the prior to the posterior and back."""
    adiabatic = example("adiabatic")
    run = stanct.sample(
        stanct.FunctionTarget(stanct.FunctionDensity(adiabatic.log_posterior, 1), "beta_binomial"),
        # Trajectories take some hundred steps, apart from those that never arrive.
        stanct.Adiabatic(duration=duration, refresh=refresh, max_steps=4000),
        base=stanct.GaussianBase(np.zeros(1), np.eye(1)),
        chains=4, draws=draws, warmup=warmup, seed=seed, progress=False,
    )  # fmt: skip
    theta = adiabatic.rate(run.variables["x"])[0][..., 0]
    record: dict[str, Any] = {
        "duration": duration, "refresh": refresh, "gradients": run.gradients,
        "stalled": run.counts[:, 1, 2].sum() / (run.chains * run.draws),
        "betas": run.betas, "learned": run.means,
        "log_z": run.bare_evidence.log_z, "std_error": run.bare_evidence.std_error,
        "flow": run.flow_curve().log_z, "delta": run.delta[0, :32], "kinetic": run.kinetic[0, :12],
        "log_weights": run.node_log_weights[0, :32], "theta": theta.ravel(),
        "theta_log_weights": run.target_log_weights.ravel(),
        "cooled": run.curve().log_z, "heated": run.heated_curve().log_z,
        "heated_log_z": run.heated_evidence,
    }  # fmt: skip
    if refresh is None:
        picked = run.metropolis(seed=seed)
        record["chain"] = np.take_along_axis(theta, picked, axis=1)
        record["moved"] = float((np.diff(picked, axis=1) != 0).mean())
    return record


def smoothed(x: np.ndarray, y: np.ndarray, error: np.ndarray, at: np.ndarray) -> np.ndarray:
    """A Gaussian process through noisy points, its scales by maximum likelihood."""
    centre, spread = y.mean(), y.std()
    target, noise = (y - centre) / spread, np.square(error / spread) + 1e-8

    def kernel(a: np.ndarray, b: np.ndarray, scales: np.ndarray) -> np.ndarray:
        return np.exp(2 * scales[0] - 0.5 * ((a[:, None] - b) / np.exp(scales[1])) ** 2)

    def loss(scales: np.ndarray) -> float:
        factor = np.linalg.cholesky(kernel(x, x, scales) + np.diag(noise))
        solved = np.linalg.solve(factor, target)
        return float(0.5 * solved @ solved + np.log(np.diag(factor)).sum())

    start = np.array([0.0, np.log(np.ptp(x) / 3)])
    best = minimize(loss, start, bounds=[(-3, 5), (np.log(np.ptp(x) / 50), np.log(10 * np.ptp(x)))])
    weights = np.linalg.solve(kernel(x, x, best.x) + np.diag(noise), target)
    return centre + spread * (kernel(at, x, best.x) @ weights)


def noisy_means(made: dict[str, Any]) -> tuple[np.ndarray, np.ndarray]:
    """Weighted means of ΔV over 32 trajectories at the nodes, and their standard errors."""
    delta, log_weights = (np.array(made[key], float) for key in ("delta", "log_weights"))
    weights = np.where(np.isfinite(log_weights), np.exp(log_weights), 0.0)
    weights /= weights.sum(axis=0)
    delta = np.where(np.isfinite(delta), delta, 0.0)
    mean = (weights * delta).sum(axis=0)
    return mean, np.sqrt((np.square(weights) * np.square(delta - mean)).sum(axis=0))


def figure_8(work: Work) -> Made:
    """The adiabatic flow: its trajectories, E_β[ΔV] smoothed by a Gaussian process, and log Z."""
    job = {"duration": 10.0 if work.quick else 80.0, "draws": 32 if work.quick else 128,
           "warmup": 16 if work.quick else 128, "seed": seeds(work.seed, 1)[0],
           "refresh": 3.0}  # fmt: skip
    (made,) = work.parts.every(flow, [job])
    betas = np.array(made["betas"])
    mean, error = noisy_means(made)
    warped = np.log(betas + 1e-3)
    smooth = np.exp(smoothed(warped, np.log(mean), error / mean, warped))
    exact = mean_delta(betas)
    figure, axes = panels(1, 4, (12.5, 3.1))
    axes[0, 0].plot(betas, np.array(made["kinetic"], float).T, color=BLUE, lw=0.6)
    axes[0, 1].errorbar(betas, mean / exact - 1, error / exact, fmt=".", ms=3, lw=0.6, color=QUIET,
                        label="32 trajectories")  # fmt: skip
    axes[0, 1].plot(betas, smooth / exact - 1, color=ORANGE, lw=1.6, label="Gaussian process")
    axes[0, 1].axhline(0, color=INK, lw=0.8)
    axes[0, 1].set_ylim(top=0.75)  # room for the legend
    axes[0, 1].legend(frameon=False, fontsize=7.5, loc="upper left")
    axes[0, 2].plot(betas, np.array(made["flow"]) - log_z(betas), color=BLUE, label="flow")
    axes[0, 2].plot(betas, np.array(made["cooled"]) - log_z(betas), color=GREEN, label="weighted")
    axes[0, 2].axhline(0, color=INK, lw=0.8)
    axes[0, 2].legend(frameon=False, fontsize=7.5)
    axes[0, 3].hist(made["theta"], bins=40, range=(0.12, 0.32), weights=relative(made),
                    density=True, color=BLUE, alpha=0.45)  # fmt: skip
    axes[0, 3].plot(np.linspace(0.12, 0.32, 300), posterior_density(), color=INK, lw=1)
    axes[0, 3].set_yticks([])
    for one in axes[0, :3]:
        beta_axis(one)
    titled(axes[0, 0], "(a) twelve trajectories", "β", "kinetic energy")
    titled(axes[0, 1], "(b) relative error of E$_β$[ΔV]", "β")
    titled(axes[0, 2], "(c) error of log Z(β)", "β", "nats")
    titled(axes[0, 3], "(d) θ at β = 1, weighted", "θ")
    rows = [
        {
            "β": b,
            "E[ΔV] exact": x,
            "E[ΔV] of 32": m,
            "standard error": e,
            "smoothed": s,
            "log Z exact": z,
            "log Z of the flow": f,
            "log Z weighted": w,
        }
        for b, x, m, e, s, z, f, w in zip(
            betas,
            exact,
            mean,
            error,
            smooth,
            log_z(betas),
            made["flow"],
            made["cooled"],
            strict=True,
        )
    ]
    late = betas > 0.001
    rough, fine = (np.sqrt(np.mean(np.square((v - exact) / exact)[late])) for v in (mean, smooth))
    found = weighted_mean(made)
    says = (
        f"log Z(1) is {made['log_z']:.3f} ± {made['std_error']:.3f} by weights and "
        f"{made['flow'][-1]:.3f} along the flow; exact −17.109. The mean of θ is {found:.4f}, "
        f"exact {EXACT_MEAN:.4f}. A Gaussian process in log β through the means of 32 trajectories "
        f"lowers their root mean square relative error of {rough:.3f} to {fine:.3f} (beyond "
        f"β = .001). At β = 1 it is {abs(smooth[-1] / exact[-1] - 1):.1%} off, and the means "
        f"themselves {abs(mean[-1] / exact[-1] - 1):.1%}. "
        f"All took {made['gradients']:,} gradients."
    )
    verdict = (
        " As in the paper, trajectories reach the posterior without a ladder. In one dimension "
        "they cost much more than tempering on a good ladder does."
    )
    return Made(rows, figure, work.judged(says, verdict))


def figure_9(work: Work) -> Made:
    """Heat, resample, cool: what the flow reaches with and without fresh momenta on its way."""
    durations = (20.0,) if work.quick else (10.0, 20.0, 40.0, 80.0)
    draws, warmup = (12, 16) if work.quick else (128, 64)
    jobs = [
        {"duration": d, "draws": draws, "warmup": warmup, "seed": seed, "refresh": refresh}
        for refresh in (None, 3.0)
        for d, seed in zip(durations, seeds(work.seed, len(durations)), strict=True)
    ]
    found = work.parts.every(flow, jobs)
    figure, axes = panels(1, 3, (11.0, 3.2))
    for made in found:
        if made["duration"] == durations[-1]:
            betas = np.array(made["betas"])
            colour, name = (ORANGE, "never") if made["refresh"] is None else (BLUE, "at times")
            # Heating starts at the posterior, so its curve is drawn from there.
            heated = np.array(made["heated"], float) - log_z(betas)
            axes[0, 0].plot(betas, np.array(made["cooled"]) - log_z(betas), color=colour, lw=1.4,
                            label=f"cooling, resampled {name}")  # fmt: skip
            axes[0, 0].plot(betas, heated - heated[-1], "--", color=colour, lw=1.2,
                            label=f"heating, resampled {name}")  # fmt: skip
    rows = [
        {
            "duration": made["duration"],
            "momentum resampled": "never" if made["refresh"] is None else "every 3",
            "gradients": made["gradients"], "log Z": made["log_z"],
            "standard error": made["std_error"], "lost when heating": made["stalled"],
            "accepted": made.get("moved", np.nan),
            **dict(zip(("mean of θ", "sd of θ", "more than one exact sd away"), widths(made),
                       strict=True)),
        }
        for made in found
    ]  # fmt: skip
    halves = rows[: len(durations)], rows[len(durations) :]
    for half, colour, name in zip(halves, (ORANGE, BLUE), ("never", "at times"), strict=True):
        x = [r["duration"] for r in half]
        error = [1.96 * r["standard error"] for r in half]
        axes[0, 1].errorbar(
            x, [r["log Z"] for r in half], error, fmt="o-", ms=3, lw=1, color=colour, capsize=2,
            label=f"resampled {name}",
        )  # fmt: skip
    axes[0, 1].axhline(float(log_z(1.0)), color=INK, lw=0.8)
    for one in axes[0, :2]:
        one.legend(frameon=False, fontsize=7.5)
    axes[0, 0].axhline(0, color=QUIET, lw=0.8)
    beta_axis(axes[0, 0])
    last = found[len(durations) - 1], found[-1]
    posterior(axes[0, 2], np.array(last[0]["chain"]).ravel(), ORANGE, "Metropolis")
    axes[0, 2].hist(last[1]["theta"], bins=30, range=(0.12, 0.32), density=True, histtype="step",
                    weights=relative(last[1]), color=BLUE, label="weighted")  # fmt: skip
    axes[0, 2].legend(frameon=False, fontsize=7.5)
    axes[0, 2].set_xticks([0.15, 0.2, 0.25, 0.3])
    titled(axes[0, 0], f"(a) error of log Z(β), duration {durations[-1]:g}", "β", "nats")
    titled(axes[0, 1], "(b) log Z, 95 % intervals", "duration of a trajectory")
    titled(axes[0, 2], f"(c) θ at β = 1, duration {durations[-1]:g}", "θ")
    bare, fresh = halves[0][-1], halves[1][-1]
    says = (
        f"Without fresh momenta {bare['lost when heating']:.0%} of the trajectories that heat from "
        f"the posterior never arrive at the prior, and log Z is {bare['log Z']:.2f} ± "
        f"{bare['standard error']:.2f} at duration {bare['duration']:g} (exact −17.11). The "
        f"Metropolis step accepts {bare['accepted']:.0%} of the proposals. Its θ has mean "
        f"{bare['mean of θ']:.4f} (exact {EXACT_MEAN:.4f}) and sd {bare['sd of θ']:.4f} (exact "
        f"{EXACT_SD:.4f}), and {bare['more than one exact sd away']:.0%} of it is more than one "
        f"exact sd away from the exact mean, where {exact_tails():.0%} is exact. With momenta "
        f"resampled every 3 units of time {fresh['lost when heating']:.0%} are lost, log Z is "
        f"{fresh['log Z']:.2f} ± {fresh['standard error']:.2f}, and the weighted θ has mean "
        f"{fresh['mean of θ']:.4f} and sd {fresh['sd of θ']:.4f}, from "
        f"{len(found[-1]['theta'])} arrivals that count as "
        f"{effective_draws(found[-1]):.0f}. {beside_exact(halves[1])}"
    )
    verdict = (
        " This is the metastability of the paper: no trajectory from the prior reaches a part of "
        "the posterior, heating from there stalls, and resampling on the way cures that. The mean "
        "of θ does not show it, but its width does: the Metropolis draws are too wide. Resampling "
        "at the prior is an exact draw here, so each proposal is independent of the last one, "
        "whereas the paper resamples the momentum alone."
    )
    return Made(rows, figure, work.judged(says, verdict))


def beside_exact(rows: Sequence[dict[str, Any]]) -> str:
    """log Z at each duration, and how many standard errors it is above or below the exact one."""
    told = []
    for row in rows:
        score = (row["log Z"] - float(log_z(1.0))) / row["standard error"]
        told.append(f"{row['log Z']:.2f} ({score:+.1f}) at duration {row['duration']:g}")
    return (
        "log Z with fresh momenta, and in brackets how many standard errors it is above the exact "
        f"value, is {', '.join(told)}."
    )


def effective_draws(made: dict[str, Any]) -> float:
    """The effective number of weighted arrivals, by their weights alone."""
    weights = relative(made)
    return float(weights.sum() ** 2 / np.square(weights).sum())


def relative(made: dict[str, Any]) -> np.ndarray:
    """Weights of the arrivals, the largest one 1."""
    log_weights = np.array(made["theta_log_weights"], float)
    return np.exp(log_weights - log_weights.max())


def widths(made: dict[str, Any]) -> tuple[float, float, float]:
    """Mean and sd of θ, and the share more than one exact sd away: of the chain, or weighted."""
    chain = "chain" in made
    theta = np.ravel(made["chain"] if chain else made["theta"])
    weights = np.ones(theta.size) if chain else relative(made)
    mean = np.average(theta, weights=weights)
    square = np.average((theta - mean) ** 2, weights=weights)
    away = np.average(np.abs(theta - EXACT_MEAN) > EXACT_SD, weights=weights)
    return float(mean), float(np.sqrt(square)), float(away)


def exact_tails() -> float:
    """The posterior's own share of θ more than one sd away from its mean."""
    ends = EXACT_MEAN - EXACT_SD, EXACT_MEAN + EXACT_SD
    return float(1 - np.diff(beta_distribution.cdf(ends, *shapes(1.0)))[0])


def weighted_mean(made: dict[str, Any]) -> float:
    """The weighted mean of θ."""
    return float(np.average(made["theta"], weights=relative(made)))


ITEMS = (
    Item(
        "amc-figure-1", "Betancourt, Figure 1: level sets with one mode and with two", figure_1, ()
    ),
    Item("amc-figure-5", "Betancourt, Figure 5: the path, and three ladders on it", figure_5, ()),
    Item("amc-figure-6", "Betancourt, Figure 6: simulated annealing on three ladders", figure_6),
    Item(
        "amc-figure-7",
        "Betancourt, Figure 7: simulated tempering on three ladders",
        figure_7,
        ("parts", "repeats"),
    ),
    Item("amc-figure-8", "Betancourt, Figure 8: adiabatic trajectories and log Z", figure_8),
    Item("amc-figure-9", "Betancourt, Figure 9: heat, resample, cool; hysteresis", figure_9),
)

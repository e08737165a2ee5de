"""What section II.C of Betancourt (2014) says of the flow in practice, by stanct's own sampler.

An ensemble of trajectories estimates E_β[ΔV], a Gaussian process smooths it, and momenta drawn
afresh on the way overcome metastabilities.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from common import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    QUIET,
    Made,
    Work,
    beta_axis,
    example,
    panels,
    seeds,
    titled,
)
from contact_flow import BETA_BINOMIAL, LAST, PATIENCE, STARTS, flow, starts
from ladders import log_z, mean_delta, mean_rate, shapes
from matplotlib.axes import Axes
from scipy.optimize import minimize
from scipy.stats import beta as beta_distribution

import stanct

EXACT_MEAN = float(mean_rate(1.0))
EXACT_SD = float(beta_distribution.std(*shapes(1.0)))
THETA = np.linspace(0.0, 1.0, 1001)[1:-1]


def density_over_beta(axes: Axes) -> None:
    """The density of θ at each β in shades, scaled to the same height, with its 95 % interval."""
    betas = np.concatenate([np.linspace(0, 0.001, 40), np.geomspace(0.00103, 1, 260)])
    shades = beta_distribution.pdf(THETA[:, None], *shapes(betas))
    shades /= shades.max(axis=0)
    axes.pcolormesh(betas, THETA, shades, cmap="Greys", vmax=1.6, rasterized=True)
    for end in (0.025, 0.975):
        axes.plot(betas, beta_distribution.ppf(end, *shapes(betas)), color=QUIET, lw=0.8)
    axes.grid(False)
    beta_axis(axes)
    axes.set_ylim(0, 1)


def posterior(axes: Axes, values: np.ndarray, colour: str, label: str = "") -> None:
    """A histogram of θ over its exact posterior density."""
    axes.hist(values, bins=60, range=(0.12, 0.32), density=True, color=colour, alpha=0.45,
              label=label)  # fmt: skip
    axes.plot(np.linspace(0.12, 0.32, 300), posterior_density(), color=INK, lw=1)
    axes.set_yticks([])


def posterior_density() -> np.ndarray:
    """The exact posterior density of θ at 300 points from .12 to .32."""
    return beta_distribution.pdf(np.linspace(0.12, 0.32, 300), *shapes(1.0))


def ensemble(
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


def told_flow(warped: np.ndarray, means: np.ndarray, seed: int) -> str:
    """The error of log Z along trajectories that follow these means of ΔV, at log(β + .001)."""

    def mean(beta: np.ndarray, _: np.ndarray) -> np.ndarray:
        return np.interp(np.log(beta + 1e-3), warped, means)

    made = flow(BETA_BINOMIAL, *starts(seed), PATIENCE, mean=mean)
    error = np.where(made.beta < LAST, np.abs(made.log_z - log_z(made.beta)), 0).max(axis=0)
    return (
        f"{int(made.arrived.sum())} of {STARTS} arrive, with a largest error of log Z of "
        f"{np.median(error[made.arrived]):.2f} nats in the median"
    )


def expectations(work: Work) -> Made:
    """The adiabatic flow: its trajectories, E_β[ΔV] smoothed by a Gaussian process, and log Z."""
    job = {"duration": 10.0 if work.quick else 80.0, "draws": 32 if work.quick else 128,
           "warmup": 16 if work.quick else 128, "seed": seeds(work.seed, 1)[0],
           "refresh": 3.0}  # fmt: skip
    (made,) = work.parts.every(ensemble, [job])
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
        f"themselves {abs(mean[-1] / exact[-1] - 1):.1%}. Of trajectories that follow the "
        f"smoothed means {told_flow(warped, smooth, job['seed'])}; of those that follow the means "
        f"themselves {told_flow(warped, mean, job['seed'])}. "
        f"All took {made['gradients']:,} gradients."
    )
    verdict = (
        " As in the paper, trajectories reach the posterior without a ladder. In one dimension "
        "they cost much more than tempering on a good ladder does."
    )
    return Made(rows, figure, work.judged(says, verdict))


def metastabilities(work: Work) -> Made:
    """Heat, resample, cool: what the flow reaches with and without fresh momenta on its way."""
    durations = (20.0,) if work.quick else (10.0, 20.0, 40.0, 80.0)
    draws, warmup = (12, 16) if work.quick else (128, 64)
    jobs = [
        {"duration": d, "draws": draws, "warmup": warmup, "seed": seed, "refresh": refresh}
        for refresh in (None, 3.0)
        for d, seed in zip(durations, seeds(work.seed, len(durations)), strict=True)
    ]
    found = work.parts.every(ensemble, jobs)
    figure, axes = panels(1, 3, (11.0, 3.6))
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
    axes[0, 1].set_xticks(durations)
    axes[0, 1].legend(frameon=False, fontsize=7.5)
    names = axes[0, 0].get_legend_handles_labels()
    figure.legend(*names, title="(a)", loc="outside lower center", ncols=4, frameon=False,
                  fontsize=7.5, title_fontsize=7.5)  # fmt: skip
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

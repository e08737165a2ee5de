"""Figures 2 to 4, 8 and 9 of Betancourt (2014), each drawn from runs of the contact flow."""

from __future__ import annotations

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
    panels,
    seeds,
    titled,
)
from contact_flow import (
    BETA_BINOMIAL,
    FIRST,
    LAST,
    PATIENCE,
    STARTS,
    Course,
    flow,
    hmc_mean,
    starts,
    two_modes,
)
from flow_runs import density_over_beta
from ladders import deviation, log_z, shapes
from matplotlib.figure import Figure
from scipy.special import digamma, expit, logit
from scipy.stats import beta as beta_distribution

from stanct.plots.canvas import drawing

# From a wide normal density to two modes, the right one with a twentieth of the mass.
WEIGHT, CENTRE, SD, BASE_SD = 0.95, 2.0, 0.5, 2.5
LONGEST = 8000  # steps of a trajectory that never arrives
MASSES = (1.0, 0.04)  # of the trajectories of Figure 8
LONGEST_LINE = 15_000  # steps of the slowest of all starts
LEVELS = (FIRST, 0.05, 0.3, LAST)


def mixture_flow(count: int, heating: bool, seed: int, stride: int) -> dict[str, Any]:
    """Part: trajectories from exact draws of one end of the path between one mode and two."""
    path, rng = two_modes(WEIGHT, CENTRE, SD, BASE_SD), np.random.default_rng(seed)
    if heating:
        sides = np.where(rng.random(count) < WEIGHT, -1.0, 1.0)
        start = CENTRE * sides + SD * rng.standard_normal(count)
    else:
        start = BASE_SD * rng.standard_normal(count)
    made = flow(path, start, rng.standard_normal(count), LONGEST, heating=heating)
    return {"q": made.q[::stride], "p": made.p[::stride], "beta": made.beta[::stride],
            "log_z": made.log_z[::stride], "arrived": made.arrived}  # fmt: skip


def courses(made: dict[str, Any]) -> Course:
    """A part's trajectories as arrays."""
    return Course(*(np.array(made[key]) for key in ("q", "p", "beta", "log_z", "arrived")))


def figure_2(work: Work) -> Made:
    """One cooling trajectory through the level sets at four β."""
    job = {"count": 4, "heating": False, "seed": seeds(work.seed, 1)[0], "stride": 1}
    (made,) = work.parts.every(mixture_flow, [job])
    path, found = two_modes(WEIGHT, CENTRE, SD, BASE_SD), courses(made)
    one = int(np.flatnonzero(found.arrived)[0])
    last = int(np.argmax(found.beta[:, one] >= LAST)) + 1
    q, p, beta = (values[:last, one] for values in (found.q, found.p, found.beta))
    figure = Figure(figsize=(10.5, 3.4), layout="constrained")
    whole = figure.add_subplot(1, 3, (1, 2))
    drawing(whole)
    grid = np.meshgrid(np.linspace(-7, 7, 281), np.linspace(-3.2, 3.2, 161))
    rows = []
    for place, level in enumerate(LEVELS):
        energy = 0.5 * grid[1] ** 2 + path.potential(grid[0], level)
        here = int(np.argmin(np.abs(logit(beta) - logit(level))))
        height = 0.5 * p[here] ** 2 + float(path.potential(q[here], beta[here]))
        shift = 14.5 * place
        levels = energy.min() + np.linspace(0.3, 4.9, 6)
        whole.contour(grid[0] + shift, grid[1], energy, levels, colors=QUIET, linewidths=0.5)
        whole.contour(grid[0] + shift, grid[1], energy, levels=[height], colors=ORANGE,
                      linewidths=1.8)  # fmt: skip
        near = np.abs(logit(beta) - logit(level)) < 1.5
        whole.plot(q[near] + shift, p[near], color=BLUE, lw=2.2, zorder=5)
        whole.plot(q[here] + shift, p[here], "o", ms=6, color=BLUE, zorder=6)
        name = {FIRST: "β = 0", LAST: "β = 1"}.get(level, f"β = {level:g}")
        whole.text(shift, 3.35, name, ha="center", fontsize=9, color=INK)
        rows.append({"β": beta[here], "q": q[here], "p": p[here], "energy of its level set": height,
                     "minus log Z": -float(path.log_z(beta[here]))})  # fmt: skip
    whole.grid(False)
    whole.set(xlim=(-8, 51.5), ylim=(-3.4, 4.1), xticks=[])
    titled(whole, "(a) level sets in the plane of q and p, and the trajectory at each", "", "p")
    side = figure.add_subplot(1, 3, 3)
    drawing(side)
    side.plot(np.arange(last) * 0.01, beta, color=BLUE, lw=1.4)
    side.set_ylim(-0.03, 1.03)
    titled(side, "(b) β of the trajectory", "time", "β")
    drift = float(np.abs(found.log_z[:last, one] - path.log_z(beta)).max())
    says = (
        f"One trajectory goes from β = 0 to 1 in {last * 0.01:.1f} units of time, without a "
        "ladder. Orange is the level set on which it is at that β, and blue the trajectory for "
        "1.5 units of γ on either side. Its contact Hamiltonian stays within "
        f"{drift:.4f} nats of zero. The target has two modes with .95 and .05 of the mass."
    )
    return Made(rows, figure, says)


def figure_3(work: Work) -> Made:
    """A trajectory whose momentum goes to zero in a minimum of V_B + β ΔV."""
    job = {"count": 40, "heating": False, "seed": seeds(work.seed, 2)[1], "stride": 5}
    (made,) = work.parts.every(mixture_flow, [job])
    path, found = two_modes(WEIGHT, CENTRE, SD, BASE_SD), courses(made)
    stalled = np.flatnonzero(~found.arrived & (found.q[-1] > 1) & (found.beta[-1] > 0.1))
    one = int(stalled[np.argmin(np.abs(found.beta[-1, stalled] - 0.85))])
    q, p, beta = (values[:, one] for values in (found.q, found.p, found.beta))
    time = np.arange(beta.size) * 0.05
    end = float(beta[-1])
    figure, axes = panels(1, 3, (10.8, 3.2))
    grid = np.linspace(-4.5, 4.5, 601)
    rows = []
    for level, colour in ((0.1 * end, QUIET), (0.5 * end, GREEN), (end, INK)):
        values = path.potential(grid, level)
        shown = np.where(values < 9, values, np.nan)  # below the legend
        axes[0, 0].plot(grid, shown, color=colour, lw=1.3, label=f"β = {level:.2f}")
        here = int(np.argmax(beta >= min(level, 0.9999 * end)))
        height = float(path.potential(q[here], beta[here])) + 0.5 * p[here] ** 2
        least = grid[grid > 0][np.argmin(values[grid > 0])]
        rows.append({"β": level, "time": time[here], "q": q[here], "p": p[here],
                     "total energy": height, "right minimum at": least,
                     "V there": float(path.potential(least, level)),
                     "ΔV there": float(path.delta(least)[0]),
                     "mean of ΔV": float(path.mean(np.array(level)))})  # fmt: skip
    total = path.potential(q, beta) + 0.5 * p**2
    axes[0, 0].plot(q, total, color=BLUE, lw=0.8)
    axes[0, 0].plot(q[-1], total[-1], "o", color=BLUE, ms=5)
    axes[0, 0].set_ylim(0, 10.5)
    axes[0, 0].legend(frameon=False, fontsize=8, loc="upper center", ncols=3)
    titled(axes[0, 0], "(a) V$_B$ + β ΔV, and the trajectory's energy", "q", "nats")
    axes[0, 1].plot(time, p, color=BLUE, lw=0.9)
    titled(axes[0, 1], "(b) the momentum", "time", "p")
    axes[0, 2].plot(time, beta, color=ORANGE, lw=1.4)
    axes[0, 2].set_ylim(0, 1)
    titled(axes[0, 2], "(c) the inverse temperature", "time", "β")
    last = rows[-1]
    says = (
        f"The trajectory cools into the right mode, whose ΔV is {last['ΔV there']:.2f} at its "
        f"minimum where the mean of ΔV is {last['mean of ΔV']:.2f}. The friction is positive "
        f"there. At time {time[-1]:.0f} it rests at q = {last['q']:.2f}, with the minimum at "
        f"{last['right minimum at']:.2f}, |p| = {abs(p[-1]):.1e} and β = {end:.3f}. The "
        f"largest |p| in the last tenth of the time is {np.abs(p[-len(p) // 10 :]).max():.1e}."
    )
    return Made(rows, figure, says)


def figure_4(work: Work) -> Made:
    """Which trajectories stall when they cool and when they heat."""
    count = 100 if work.quick else 400
    jobs = [
        {"count": count, "heating": heating, "seed": seed, "stride": 20}
        for heating, seed in zip((False, True), seeds(work.seed, 4)[2:], strict=True)
    ]
    figure, axes = panels(1, 2, (9.4, 3.8), sharey=True)
    rows = []
    for one, made, name in zip(
        axes[0], work.parts.every(mixture_flow, jobs), ("cooling", "heating"), strict=True
    ):
        found = courses(made)
        gamma = logit(np.clip(found.beta, FIRST, LAST))
        for k in range(40):
            arrived = bool(found.arrived[k])
            one.plot(gamma[:, k], found.q[:, k], color=BLUE if arrived else ORANGE, lw=0.4,
                     alpha=0.6)  # fmt: skip
            if not arrived:
                one.plot(gamma[-1, k], found.q[-1, k], "o", ms=4, color=ORANGE)
        one.plot([], [], color=BLUE, label="arrives")
        one.plot([], [], "-o", ms=4, color=ORANGE, label="stalls")
        one.legend(frameon=False, fontsize=8, loc="lower left")
        marks = np.array([FIRST, 0.01, 0.1, 0.5, 0.9, LAST])
        one.set_xticks(logit(marks), ["0", ".01", ".1", ".5", ".9", "1"])
        start = "from β = 0" if name == "cooling" else "from β = 1"
        titled(one, f"{name}, {start}", "β", "q" if name == "cooling" else "")
        stalled = ~found.arrived
        rows.append({
            "transition": name, "trajectories": count, "stalled": float(stalled.mean()),
            "stalled at q > 0": float((found.q[-1][stalled] > 0).mean()),
            "arrived at q > 0": float((found.q[-1][found.arrived] > 0).mean()),
            "largest error of log Z": float(
                np.abs(found.log_z - two_modes(WEIGHT, CENTRE, SD, BASE_SD).log_z(found.beta)).max()
            ),
        })  # fmt: skip
    cool, heat = rows
    says = (
        f"Of {count} cooling trajectories {cool['stalled']:.0%} stall, "
        f"{cool['stalled at q > 0']:.0%} of them at q > 0, in the mode with less mass. Of {count} "
        f"heating ones {heat['stalled']:.0%} stall, {1 - heat['stalled at q > 0']:.0%} of them at "
        "q < 0, in the mode with more. Of the cooling ones that arrive "
        f"{cool['arrived at q > 0']:.0%} are at q > 0, where the target has {1 - WEIGHT:.0%}. "
        f"Stalled means not arrived in {LONGEST * 0.01:.0f} units of time. 40 of each are drawn."
    )
    return Made(rows, figure, says)


def adiabatic_run(mean_of: int, mass: float, start: int, seed: int) -> dict[str, Any]:
    """Part: one trajectory of the Beta–Binomial, with E_β[ΔV] exact (0) or by HMC draws a step."""
    y, p = (each[[start]] for each in starts(seed))
    mean = hmc_mean(mean_of, seed + start) if mean_of else None
    made = flow(BETA_BINOMIAL, y, np.sqrt(mass) * p, PATIENCE, mass=mass, mean=mean)
    columns = {"y": made.q, "p": made.p, "beta": made.beta, "log_z": made.log_z}
    return {"mean_of": mean_of, "mass": mass, "arrived": bool(made.arrived[0]),
            **{key: values[:, 0] for key, values in columns.items()}}  # fmt: skip


def adiabatic_error(mean_of: int, start: int, seed: int) -> dict[str, Any]:
    """Part: whether a trajectory of mass 1 arrives, and its largest error of log Z."""
    made = adiabatic_run(mean_of, 1.0, start, seed)
    error = np.abs(np.array(made["log_z"]) - log_z(np.array(made["beta"])))
    return {"arrived": made["arrived"], "error": float(error.max())}


def adiabatic_shares(mass: float, seed: int) -> dict[str, Any]:
    """Part: for each start, its steps, and its share of the way in γ that is in equilibrium.

    E_β[ΔV] is exact. Equilibrium is the central 95 % of θ at the present β.
    """
    y, p = starts(seed)
    made = flow(BETA_BINOMIAL, y, np.sqrt(mass) * p, LONGEST_LINE, mass=mass)
    course = told_course({"y": made.q, "p": made.p, "beta": made.beta, "mass": mass})
    moving = made.beta < LAST
    pace = course["dγ/dt"] * moving
    return {"arrived": made.arrived, "steps": moving.sum(axis=0),
            "way": (course["inside"] * pace).sum(axis=0) / pace.sum(axis=0)}  # fmt: skip


def told_course(made: dict[str, Any]) -> dict[str, Any]:
    """How near one trajectory stays to its density, and how fast its temperature moves."""
    y, p, beta = (np.array(made[key]) for key in ("y", "p", "beta"))
    a, b = shapes(beta)
    return {
        "β": beta, "θ": expit(y), "dγ/dt": p**2 / made["mass"],
        "sd from the mean": (y - (digamma(a) - digamma(b))) / deviation(beta),
        "inside": np.abs(beta_distribution.cdf(expit(y), a, b) - 0.5) < 0.475,
    }  # fmt: skip


def figure_8(work: Work) -> Made:
    """Two trajectories over the density of θ at each β, and the pace of their temperature.

    They have the start whose way with mass 1 is in equilibrium as much as that of the median start.
    """
    (seed,) = seeds(work.seed, 1)
    shares = work.parts.every(adiabatic_shares, [{"mass": mass, "seed": seed} for mass in MASSES])
    start = int(np.argsort(shares[0]["way"])[STARTS // 2])
    jobs = [{"mean_of": 10 if work.quick else 100, "mass": mass, "start": start, "seed": seed}
            for mass in MASSES]  # fmt: skip
    figure, axes = panels(2, 3, (12.0, 6.0), sharex=True)
    rows, told = [], []
    for place, made in enumerate(work.parts.every(adiabatic_run, jobs)):
        line = axes[place]
        course = told_course(made)
        beta, pace, away = (course[key] for key in ("β", "dγ/dt", "sd from the mean"))
        late = np.flatnonzero((beta > 0.02) & (beta < 0.9))
        slow = int(late[np.argmax(np.abs(away[late]))])
        density_over_beta(line[0])
        for one, key, colour in zip(
            line, ("θ", "dγ/dt", "sd from the mean"), (BLUE, ORANGE, GREEN), strict=True
        ):
            one.plot(beta, course[key], color=colour, lw=1.0)
            one.axvline(beta[slow], color=INK, lw=0.9, ls=":")
        line[2].axhline(0, color=QUIET, lw=0.8)
        beta_axis(line[0])
        name, x = f"mass {made['mass']:g}", "β" if place else ""
        titled(line[0], f"(a) θ over its density, {name}", x, "θ")
        titled(line[1], f"(b) pace of the temperature, dγ/dt, {name}", x)
        titled(line[2], f"(c) logit θ, in sd from its mean, {name}", x)
        near, far = (pace[late][s].mean() for s in (np.abs(away[late]) < 1, np.abs(away[late]) > 2))
        inside = course["inside"]
        rows += [{"mass": made["mass"], "time": 0.01 * k}
                 | {key: float(course[key][k]) for key in ("β", "θ", "dγ/dt", "sd from the mean")}
                 for k in range(0, beta.size, 5)]  # fmt: skip
        told.append(
            f"With {name} the trajectory {'arrives' if made['arrived'] else 'does not arrive'} "
            f"after {beta.size - 1:,} steps of .01. θ is in the central 95 % of its density for "
            f"{np.average(inside, weights=pace):.0%} of the way in γ. For β from .02 to .9 the "
            f"mean pace is {near:.2f} within one sd of the mean and {far:.2f} more than two away. "
            f"At the dotted line, β = {beta[slow]:.2g}, the trajectory is {away[slow]:+.1f} sd "
            f"away and its pace is {pace[slow]:.1e}. {told_shares(shares[place])}"
        )
    says = " ".join(told) + f" E[ΔV] is the mean of {jobs[0]['mean_of']} draws of HMC at each step."
    verdict = " It is exact for the other starts. The paper does not say what its mass is."
    return Made(rows, figure, work.judged(says, verdict))


def told_shares(made: dict[str, Any]) -> str:
    """How many of all starts arrive, and how much of their way they are in equilibrium."""
    steps, way = np.array(made["steps"]), np.array(made["way"])
    return (
        f"Of {STARTS} starts {int((steps < PATIENCE).sum())} arrive within {PATIENCE:,} steps and "
        f"{int(np.sum(made['arrived']))} within {LONGEST_LINE:,}, and their way is in the central "
        f"95 % for {np.median(way):.0%} in the median and for {way.min():.0%} at the least."
    )


def figure_9(work: Work) -> Made:
    """log Z(β) along one trajectory by equation (4), and its error."""
    sizes = (0, 10) if work.quick else (0, 100, 1000)
    (seed,) = seeds(work.seed, 1)
    jobs = [{"mean_of": n, "mass": 1.0, "start": 0, "seed": seed} for n in sizes]
    found = work.parts.every(adiabatic_run, jobs)
    others = [{"mean_of": sizes[1], "start": k, "seed": seed}
              for k in range(2 if work.quick else 12)]  # fmt: skip
    errors = [m["error"] for m in work.parts.every(adiabatic_error, others) if m["arrived"]]
    figure, axes = panels(2, 1, (6.4, 5.0), sharex=True, height_ratios=(2, 1))
    grid = np.concatenate([np.linspace(0, 0.001, 20), np.geomspace(0.00103, 1, 300)])
    axes[0, 0].plot(grid, log_z(grid), color=INK, lw=3, alpha=0.35, label="exact")
    rows = []
    for made, colour in zip(found, (GREEN, ORANGE, BLUE), strict=False):
        beta, along = np.array(made["beta"]), np.array(made["log_z"])
        error = along - log_z(beta)
        name = f"E[ΔV] of {made['mean_of']:,} draws" if made["mean_of"] else "exact E[ΔV]"
        axes[0, 0].plot(beta, along, color=colour, lw=1, label=name)
        axes[1, 0].plot(beta, error, color=colour, lw=1)
        rows.append({"E[ΔV] of HMC draws": made["mean_of"], "steps": beta.size - 1,
                     "last β": beta[-1], "log Z there": along[-1], "error there": error[-1],
                     "largest error": float(np.abs(error).max())})  # fmt: skip
    axes[1, 0].axhline(0, color=QUIET, lw=0.8)
    beta_axis(axes[1, 0])
    axes[0, 0].legend(frameon=False, fontsize=8)
    titled(axes[0, 0], "log Z(β) along one trajectory", "", "nats")
    titled(axes[1, 0], "its error", "β", "nats")
    says = (
        f"log Z falls by {-float(log_z(1.0)):.1f} nats, {-float(log_z(1.0)) / np.log(10):.1f} "
        "orders of magnitude. The largest error along the trajectory is "
        + ", ".join(
            f"{r['largest error']:.3f} nats "
            + (f"(E[ΔV] of {r['E[ΔV] of HMC draws']:,} draws of HMC)" if r["E[ΔV] of HMC draws"]
               else "(exact E[ΔV])")
            for r in rows
        )
        + ", and at its end "
        + ", ".join(f"{r['error there']:+.3f}" for r in rows)
        + f". With {sizes[1]} draws {len(errors)} of {len(others)} starts arrive within "
        f"{PATIENCE:,} steps. The largest error along each of them is {np.median(errors):.3f} nats "
        f"in the median and {max(errors):.3f} at most."
    )  # fmt: skip
    verdict = " The paper does not say how many draws of HMC it has at each step."
    return Made(rows, figure, work.judged(says, verdict))

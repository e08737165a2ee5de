"""Luo, Wang, Yang, Zhu & Wang (2018), *Thermostat-assisted continuously-tempered HMC*."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from common import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PURPLE,
    QUIET,
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
from network_table import asked_for, table_1_networks
from scipy.stats import norm

import stanct
from stanct.estimates.mixing import effective_size
from stanct.runs.tact import LAMBDA, THERMOSTAT, XI, XI_THERMOSTAT

COLOURS = {
    "tact": BLUE, "no_tempering": ORANGE, "no_thermostat": GREEN, "sghmc": RED, "hills": PURPLE,
}  # fmt: skip
LAGS, TRACE = 200, 600
SPACINGS = (1, 5, 10)  # in draws, of the chains whose effective sizes are told
MIDDLES = (-2.5, 2.5)  # between the three modes on the line
CALLED = {"tact": "TACT-HMC", "sghmc": "SGHMC", "no_tempering": "SGNHT"}
# Table 1 of the paper, accuracy in % at 0, 20 and 30 % permuted labels.
PERMUTED = (0.0, 0.2, 0.3)
PAPER = {
    "Adam": (83.39, 80.27, 80.63),
    "momentum SGD": (83.95, 82.64, 81.70),
    "SGHMC": (84.53, 82.62, 81.56),
    "SGNHT": (84.48, 82.63, 81.60),
    "TACT-HMC, T ≤ 9": (84.85, 82.95, 81.77),
}
ESS_OF_THE_PAPER = 21_096.0  # of 100,000 draws; 60.2 % of SGHMC's and 50.9 % of SGNHT's
PAPER_EFFECTIVE = {
    "tact": ESS_OF_THE_PAPER, "sghmc": ESS_OF_THE_PAPER / 0.602,
    "no_tempering": ESS_OF_THE_PAPER / 0.509,
}  # fmt: skip


def tact_run(target: str, variant: str, draws: int, warmup: int, seed: int) -> dict[str, Any]:
    """Part: what the figures show of one variant on one synthetic target under noise."""
    tact = example("tact")
    method = tact.TACT if variant == "hills" else tact.VARIANTS[variant]
    if variant == "hills":
        method = replace(method, bias="hills")
    start = tact.TARGETS[target]
    run = stanct.temper(Path(tact.HERE) / f"{target}.stan").sample(
        method=replace(method, start=start), chains=4, draws=draws, warmup=warmup, seed=seed,
        base=stanct.GaussianBase(np.zeros(start.size), np.eye(start.size)), progress=False,
    )  # fmt: skip
    found, exact = tact.histogram(run), tact.truth(target)
    baths = {}
    for column in (THERMOSTAT, XI_THERMOSTAT):
        values = run.trace[..., column]
        size = max(float(effective_size(values)), 1.0) if values.std() > 0 else 1.0
        baths[str(column)] = {
            "expected error": run.thermostat_errors[column - THERMOSTAT],
            "mean": values.mean(), "sd": values.std(), "error": values.std() / np.sqrt(size),
            "expected": run.thermostat_means[column - THERMOSTAT],
            "sample": values.ravel()[:: max(1, values.size // 5000)],
        }  # fmt: skip
    xi, edges = np.histogram(np.abs(run.trace[..., XI]), 50, (0, 5 / 3), density=True)
    return {
        "target": target, "variant": variant, "gradients": run.gradients, "histogram": found,
        "exact": exact, "distance": 0.5 * float(np.abs(found - exact).sum()),
        "effective": {
            str(gap): float(effective_size(run.z[:, ::gap, 0])) / run.z[:, ::gap, 0].size
            for gap in SPACINGS
        },
        "effective of one": {
            str(gap): [share_of_one(chain[::gap]) for chain in run.z[..., 0]] for gap in SPACINGS
        },
        "stay": [longest_stay(chain) for chain in run.z[..., 0]] if target == "three" else [],
        "path": run.z[0, :: max(1, draws // 2500), 0], "running": running_means(run.trace),
        "autocorrelation": tact.autocorrelation(run.z[..., 0], LAGS), "baths": baths,
        "temperature": 1 / run.trace[0, :TRACE, LAMBDA], "plateau": run.plateau_share,
        "xi": xi, "xi_edges": edges, "bias": run.bias, "warnings": run.warnings,
        "offset": run.provenance["energy_offset"],
    }  # fmt: skip


def share_of_one(values: np.ndarray) -> float:
    """The paper's effective size of one chain over its length, 1 / (1 + 2 Σ ρ(k)).

    The chain is centred on its own mean. The sum ends before the first pair of autocorrelations
    whose sum is not positive, as beyond it they are noise.
    """
    centred = values - values.mean()
    spectrum = np.abs(np.fft.rfft(centred, 2 * centred.size)) ** 2
    found = np.fft.irfft(spectrum)[: centred.size]
    rho = found / found[0]
    pairs = rho[: rho.size // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    return float(1 / (2 * pairs[: ends[0] if ends.size else pairs.size].sum() - 1))


def longest_stay(values: np.ndarray) -> list[float]:
    """Length of a chain's longest stretch in one of three modes, and its share of one in ten."""
    mode = np.digitize(values, MIDDLES)
    ends = np.concatenate([[0], np.flatnonzero(np.diff(mode)) + 1, [mode.size]])
    longest = int(np.argmax(np.diff(ends)))
    stretch = values[ends[longest] : ends[longest + 1] : SPACINGS[-1]]
    share = share_of_one(stretch) if stretch.size >= 20 else np.nan
    return [float(ends[longest + 1] - ends[longest]), share]


def running_means(trace: np.ndarray) -> list[list[float]]:
    """Means of both thermostats over the looks of the first chain, at 200 of them."""
    ends = np.unique(np.geomspace(1, trace.shape[1], 200).astype(int))
    sums = [np.cumsum(trace[0, :, column]) for column in (THERMOSTAT, XI_THERMOSTAT)]
    return [ends.tolist(), *((one[ends - 1] / ends).tolist() for one in sums)]


def jobs_of(work: Work, target: str, variants: tuple[str, ...]) -> list[dict[str, Any]]:
    """The jobs of one target."""
    draws = (800 if target == "three" else 200) if work.quick else 25_000
    return [{"target": target, "variant": variant, "draws": draws,
             "warmup": 300 if work.quick else 2000, "seed": seeds(work.seed, 1)[0]}
            for variant in variants]  # fmt: skip


def runs(work: Work, jobs: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The parts of one target by variant."""
    return {made["variant"]: made for made in work.parts.every(tact_run, jobs)}


def row(made: dict[str, Any], best: float) -> dict[str, Any]:
    """The numbers of one variant on one target."""
    return {
        "target": made["target"], "variant": made["variant"], "distance": made["distance"],
        "times TACT-HMC's": made["distance"] / best, "effective share": made["effective"]["1"],
        "of single chains": float(np.mean(made["effective of one"]["1"])),
        "of single chains, one draw in 5": float(np.mean(made["effective of one"]["5"])),
        "of single chains, one draw in 10": float(np.mean(made["effective of one"]["10"])),
        "share at T = 1": made["plateau"], "gradients": made["gradients"],
        "warnings": " ".join(made["warnings"]),
    }  # fmt: skip


def figure_1(work: Work) -> Made:
    """Three modes on the line: histograms, and five panels on the sampler itself."""
    found = runs(work, jobs_of(work, "three", ("tact", "no_tempering", "no_thermostat", "sghmc")))
    names, full = example("tact").NAMES, found["tact"]
    figure, axes = panels(2, 4, (13.5, 5.8))
    edges = np.linspace(-9, 9, 73)
    for one, variant in zip(axes[0], ("tact", "no_tempering", "no_thermostat"), strict=False):
        made = found[variant]
        one.stairs(np.array(made["histogram"]) / 0.25, edges, fill=True, color=COLOURS[variant],
                   alpha=0.6)  # fmt: skip
        one.stairs(np.array(made["exact"]) / 0.25, edges, color=INK, lw=1)
        titled(one, f"(a) {names[variant]}", "x", "density" if variant == "tact" else "")
    axes[0, 3].plot(full["path"], ".", ms=2, mew=0, color=BLUE)
    titled(axes[0, 3], "(b I) one chain", "draw, thinned", "x")
    looks, *means = full["running"]
    for (key, bath), mean, colour, step in zip(
        full["baths"].items(), means, (BLUE, ORANGE), (0.1, 0.05), strict=True
    ):
        grid = np.linspace(bath["expected"] - 4 * step, bath["expected"] + 4 * step, 200)
        label = "of x" if int(key) == THERMOSTAT else "of ξ"
        axes[1, 0].semilogx(looks, mean, color=colour, lw=1.3, label=label)
        axes[1, 0].axhline(bath["expected"], color=RED, lw=0.8, ls="--")
        axes[1, 1].hist(bath["sample"], 50, density=True, color=colour, alpha=0.5, label=label)
        axes[1, 1].plot(grid, norm.pdf(grid, bath["expected"], step), color=colour, lw=1.5)
    titled(axes[1, 0], "(b II) thermostats, running means", "looks", "thermostat")
    titled(axes[1, 1], "(b III) thermostats, and equation (6)", "thermostat", "density")
    for variant in ("tact", "no_tempering", "sghmc"):
        made = found[variant]
        axes[1, 2].plot(
            made["autocorrelation"], color=COLOURS[variant],
            label=f"{CALLED.get(variant, names[variant])}: "
            f"{np.mean(made['effective of one']['10']):.0%}, {made['effective']['10']:.1%}",
        )  # fmt: skip
    figure.supxlabel(
        "(b IV): shares of effective draws, of one draw in ten: first 1 / (1 + 2 Σ ρ(k)) of one "
        "chain, as in the paper, then that of four chains together, whose means may differ.",
        fontsize=8.5, color=INK,
    )  # fmt: skip
    titled(axes[1, 2], "(b IV) autocorrelation of x", "lag in draws")
    axes[1, 3].plot(full["temperature"], color=QUIET, lw=0.7)
    axes[1, 3].axhline(1, color=RED, lw=0.8)
    titled(axes[1, 3], "(b V) temperature of one chain", "look", "T")
    for one in axes[1, :3]:
        one.legend(frameon=False, fontsize=8)
    axes[1, 0].legend(frameon=False, fontsize=8, loc="center right")
    rows = [
        row(made, full["distance"])
        | {
            "effective of 100,000": 1e5 * made["effective"]["1"],
            "paper": PAPER_EFFECTIVE.get(name, np.nan),
        }
        for name, made in found.items()
    ]
    return Made(rows, figure, work.judged(*words_of_figure_1(rows, found)))


def words_of_figure_1(
    rows: list[dict[str, Any]], found: dict[str, dict[str, Any]]
) -> tuple[str, str]:
    """What was found, and what the paper has beside it."""
    bath = found["tact"]["baths"][str(THERMOSTAT)]
    distances = ", ".join(f"{r['variant']} {r['distance']:.3f}" for r in rows)
    told = [
        f"{CALLED[variant]} " + ", ".join(
            f"{min(shares):.0%} to {max(shares):.0%}"
            for shares in found[variant]["effective of one"].values()
        )
        for variant in CALLED
    ]  # fmt: skip
    together = ", ".join(f"{CALLED[v]} {found[v]['effective']['1']:.2%}" for v in CALLED)
    says = (
        f"Total variation between histogram and truth: {distances}. The thermostat of x has mean "
        f"{bath['mean']:.4f} ± {bath['error']:.4f} and sd {bath['sd']:.3f}, where "
        f"{bath['expected']:.4f} ± {bath['expected error']:.4f} and 0.100 are expected. "
        f"The time at T = 1 is {found['tact']['plateau']:.1%} (20 % expected). By the paper's "
        "formula, n / (1 + 2 Σ ρ(k)) of one chain, the effective share of four single chains is, "
        f"of all draws, one in five and one in ten: {'; '.join(told)}. Of all four chains "
        f"together, whose means may differ, it is {together}."
    )
    stays = found["no_tempering"]["stay"]
    says += (
        " The longest stretches of SGNHT in one mode have "
        + ", ".join(f"{length:,.0f}" for length, _ in stays)
        + " draws, and one in ten of them have shares of "
        + ", ".join(f"{share:.0%}" for _, share in stays)
        + "."
    )
    cost, plain = (found[variant]["gradients"] for variant in ("tact", "sghmc"))
    verdict = (
        f" The paper has {ESS_OF_THE_PAPER / 1e5:.1%} for TACT-HMC, 60.2 % of SGHMC's and 50.9 % "
        "of SGNHT's. Its formula is blind to modes that a chain never visits. A draw of ours is "
        f"ten steps after the last one. TACT-HMC took {cost / 1e6:.1f} M gradients and SGHMC "
        f"{plain / 1e6:.1f} M. Our targets are our own, because the paper shows its in pictures "
        "alone."
    )
    return says, verdict


def figure_2(work: Work) -> Made:
    """Needles and rings in the plane: exact density and histograms."""
    figure, axes = panels(2, 4, (10.5, 5.4), sharex=True, sharey=True)
    names, rows = example("tact").NAMES, []
    jobs = [jobs_of(work, target, ("tact", "no_tempering", "no_thermostat"))
            for target in ("needles", "rings")]  # fmt: skip
    work.parts.whole((tact_run, jobs[0] + jobs[1]))
    for line, mine in zip(axes, jobs, strict=True):
        target, found = mine[0]["target"], runs(work, mine)
        exact = np.array(found["tact"]["exact"])
        images = {"exact": exact} | {
            names[variant]: np.array(made["histogram"]) for variant, made in found.items()
        }
        for one, (title, image) in zip(line, images.items(), strict=True):
            one.imshow(np.sqrt(image.T), origin="lower", extent=(-9, 9, -9, 9), cmap="Blues",
                       vmin=0, vmax=np.sqrt(exact.max()) * 1.2)  # fmt: skip
            one.grid(False)
            titled(one, title, "x$_1$" if target == "rings" else "",
                   f"{target}, x$_2$" if title == "exact" else "")  # fmt: skip
        rows += [row(made, found["tact"]["distance"]) for made in found.values()]
    says = "Total variation between histogram and truth: " + ", ".join(
        f"{r['target']}, {r['variant']} {r['distance']:.3f}" for r in rows
    )
    verdict = (
        ". As in the paper, a chain without tempering stays where it starts, and one without a "
        "thermostat is too wide. Both targets are our own."
    )
    return Made(rows, figure, work.judged(says, verdict))


def figure_3(work: Work) -> Made:
    """λ(ξ), the learned bias against quadrature, and how often each ξ is visited."""
    found = runs(work, jobs_of(work, "three", ("tact", "hills")))
    coupling = stanct.Coupling()
    xi = np.linspace(0, coupling.wall, 401)
    distance = np.maximum(xi - coupling.plateau, 0) / (coupling.reach - coupling.plateau)
    lam = 1 / (1 + distance**coupling.power)
    x = np.linspace(-40, 40, 8001)
    density = stanct.temper(Path(example("tact").HERE) / "three.stan").density()
    log_density = density.log_densities(x[:, None])
    free = -np.array([np.logaddexp.reduce(v * log_density) for v in lam])
    mean = np.array([np.average(-log_density, weights=np.exp(v * (log_density - log_density.max())))
                     for v in lam])  # fmt: skip
    visits, energy = np.array(found["tact"]["bias"])
    middle = (np.arange(visits.size) + 0.5) * coupling.wall / visits.size
    energy = np.where(visits > 0, energy, np.nan)
    offset = float(np.nanmean(energy[middle < coupling.plateau])) - mean[0]
    learned = energy - offset
    height = np.array(found["hills"]["bias"])[1]
    figure, axes = panels(1, 4, (13.0, 3.2))
    axes[0, 0].plot(xi, lam, color=BLUE, label="λ")
    axes[0, 0].plot(xi, 1 / lam / 10, color=ORANGE, label="T / 10")
    axes[0, 0].axvspan(0, coupling.plateau, color=BLUE, alpha=0.12, lw=0, label="T = 1")
    axes[0, 0].axvline(coupling.wall, color=RED, ls="--", lw=1.2, label="wall of W")
    titled(axes[0, 0], "(a) coupling", "ξ")
    axes[0, 1].plot(middle, learned, ".", ms=4, color=BLUE, label="learned")
    axes[0, 1].plot(xi, mean, color=INK, lw=1, label="exact")
    titled(axes[0, 1], "(b) mean energy: biasing force / λ′", "ξ", "nats")
    # The energies of the dynamics are those above an offset, which tilts the free energy.
    free = free - lam * found["hills"]["offset"]
    scale = np.interp(middle, xi, free)
    tempered = np.exp(-(free - free[0]) / 5)
    expected = tempered[xi <= coupling.plateau].sum() / tempered.sum()
    relative = (height.max() - height) - np.nanmean((height.max() - height)[middle < 1 / 3])
    axes[0, 2].plot(middle, relative, ".", ms=4, color=PURPLE, label="minus the hills")
    axes[0, 2].plot(xi, 0.8 * (free - free[0]), "--", color=INK, lw=1,
                    label="4/5 of the free energy")  # fmt: skip
    titled(axes[0, 2], "(c) metadynamics", "ξ", "nats")
    for variant, label in (("tact", "force"), ("hills", "hills")):
        axes[0, 3].stairs(
            found[variant]["xi"],
            found[variant]["xi_edges"],
            color=COLOURS[variant],
            lw=1.3,
            label=f"{label}, T = 1: {found[variant]['plateau']:.1%}",
        )
    axes[0, 3].axhline(1 / coupling.wall, color=INK, lw=0.8)
    axes[0, 3].set_ylim(0, None)
    titled(axes[0, 3], "(d) visits, and the even ones", "ξ", "density")
    for one in axes[0]:
        one.legend(frameon=False, fontsize=7.5)
    rows = [
        {
            "ξ": a,
            "λ": np.interp(a, xi, lam),
            "mean energy learned": b,
            "exact": np.interp(a, xi, mean),
            "free energy": c,
            "minus the hills": d,
        }
        for a, b, c, d in zip(middle, learned, scale - free[0], relative, strict=True)
    ]
    hot = middle > coupling.plateau
    gap = float(np.nanmean(np.abs(learned - np.interp(middle, xi, mean))[hot]))
    lag = float(np.abs(relative - 0.8 * (scale - free[0])).max())
    says = (
        f"The learned mean energy is within {gap:.3f} nats of quadrature on average beyond the "
        f"plateau. Chains are at T = 1 for {found['tact']['plateau']:.1%} of the time with the "
        f"adaptive force (even visits: 20 %) and for {found['hills']['plateau']:.1%} with "
        f"metadynamics, whose hills converge to 4/5 of the free energy and leave {expected:.1%}. "
        f"The hills are off by up to {lag:.2f} nats from that. The hottest temperature is "
        f"{1 / lam[-1]:.1f}."
    )
    verdict = (
        " λ(ξ) is the paper's, and both biases do what they are meant to. Metadynamics is in its "
        "well-tempered form here. On the plateau no energy acts on ξ, and hills make wells there "
        "that a chain without friction neither leaves nor enters; ours gives ξ friction there."
    )
    return Made(rows, figure, work.judged(says, verdict))


def perceptron(
    method: str, permuted: float, seed: int, steps: int, folder: str, rows: int | None
) -> dict[str, Any]:
    """Part: test accuracy of one method at one share of permuted labels."""
    mlp = example("tact_mlp")
    asked_for(folder)
    done = mlp.carry_out(mlp.Job(method, permuted, seed, steps, Path(folder), rows))
    return {"method": method, "permuted": permuted, "accuracy": 100 * done.accuracy,
            "draws": done.draws, "label": mlp.images(Path(folder), rows).label}  # fmt: skip


def table_1(work: Work) -> Made:
    """Accuracy of a perceptron whose labels are permuted, by optimisers and samplers."""
    mlp = example("tact_mlp")
    methods = (*mlp.OPTIMISERS, *mlp.SAMPLERS)
    shares = PERMUTED[-1:] if work.quick else PERMUTED
    jobs = [{"method": method, "permuted": share, "seed": seed,
             "steps": 200 if work.quick else 2000, "rows": 1000 if work.quick else None,
             "folder": str(work.data or mlp.FOLDER)}
            for seed in seeds(work.seed, work.times(3)) for method in methods
            for share in shares]  # fmt: skip
    found = present(work.parts.all(perceptron, jobs))
    shares = tuple(s for s in shares if any(m["permuted"] == s for m in found))
    figure, axes = panels(1, len(shares), (3.4 * len(shares) + 1.2, 3.3), sharey=True)
    rows = []
    for one, share in zip(axes[0], shares, strict=True):
        for place, method in enumerate(methods):
            values = np.array([m["accuracy"] for m in found
                               if (m["method"], m["permuted"]) == (method, share)])  # fmt: skip
            values = values[np.isfinite(values)]
            theirs = PAPER.get(method, (np.nan,) * 3)[PERMUTED.index(share)]
            ours, paper = ("ours", "paper, on EMNIST") if not place else (None, None)
            one.plot(values, np.full(values.size, -place), "o", ms=4, color=BLUE, alpha=0.7,
                     label=ours)  # fmt: skip
            one.plot(theirs, -place, "|", ms=12, mew=2, color=ORANGE, ls="", label=paper)
            rows.append(
                {
                    "permuted labels": share,
                    "method": method,
                    "runs": values.size,
                    "accuracy %": float(values.mean()) if values.size else np.nan,
                    "standard error": float(values.std(ddof=1) / np.sqrt(values.size))
                    if values.size > 1
                    else np.nan,
                    "paper, MLP on EMNIST": theirs,
                }
            )
        one.set_yticks(-np.arange(len(methods)), methods, fontsize=8)
        titled(one, f"{share:.0%} permuted labels", "accuracy in %")
    handles = axes[0, 0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside lower right", ncols=2, frameon=False, fontsize=8)
    kinds = sorted({m["label"] for m in found})
    says = f"{'; '.join(kinds)}. Accuracy in %: " + "; ".join(
        f"{share:.0%} permuted: " + ", ".join(
            f"{r['method']} {r['accuracy %']:.2f}"
            + (f" ± {r['standard error']:.2f}" if r["runs"] > 1 else "")
            for r in rows if r["permuted labels"] == share and r["runs"])
        for share in shares
    )  # fmt: skip
    verdict = (
        ". The bars are the paper's values on EMNIST, which was not at hand, so only the order can "
        "be compared. There TACT-HMC is ahead of the other samplers by .2 to .4 points, and where "
        "labels are permuted momentum SGD is level with SGHMC and SGNHT."
        + " A single run of each cannot order the methods; examples/tact_mlp has three."
        * (max(r["runs"] for r in rows) == 1)
    )
    return Made(rows, figure, work.judged(says, verdict))


ITEMS = (
    Item("tact-figure-1", "Luo et al., Figure 1: three modes on the line under noise", figure_1),
    Item("tact-figure-2", "Luo et al., Figure 2: needles and rings under noise", figure_2),
    Item("tact-figure-3", "Luo et al., Figure 3: the coupling λ(ξ) and the bias", figure_3),
    Item(
        "tact-table-1",
        "Luo et al., Table 1: a perceptron and permuted labels",
        table_1,
        ("parts", "repeats", "data"),
    ),
    Item(
        "tact-table-1-networks",
        "Luo et al., Table 1: LSTM and CNN",
        table_1_networks,
        ("parts", "repeats", "data"),
    ),
)

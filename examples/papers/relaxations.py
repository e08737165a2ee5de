"""Relaxations of Boltzmann machines: exact draws, and Figures 3 and 4 of Nemeth et al. (2019)."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np
from common import (
    BLUE,
    EXAMPLES,
    GREEN,
    ORANGE,
    QUIET,
    BoltzmannMachine,
    Made,
    Work,
    example,
    legend,
    panels,
    present,
    seeds,
    short_numbers,
    titled,
)
from matplotlib.figure import Figure

import stanct
from stanct.engines.embedded import Nuts, run_nuts

ROWS = 256  # states of one half that are summed at once
FIXED = tuple(round(0.1 * k, 1) for k in range(1, 10))
# Bounds of estimated β with the paper's instrument: our own, and those of the authors' code.
BOUNDS, CODE_BOUNDS = (0.3, 1.0), (0.1, 0.9)
TEMPERATURES, PARTICLES = 1000, 496  # of AIS
MACHINE = (
    "The machine with 28 units is the one of which the authors' code draws exact samples. The file "
    "on which its samplers run has another one, in 26 dimensions."
)


def authors_machine() -> BoltzmannMachine:
    """The machine with 28 units of Graham & Storkey's Figure 5, and of Nemeth et al.'s exact draws.

    Their notebook draws it from NumPy's old generator with the seed 201702: first an orthogonal
    matrix by Stewart's reflections, then eigenvalues and biases.
    """
    rng, units = np.random.RandomState(201702), 28
    axes, signs = np.eye(units), np.zeros(units)
    for k in range(units - 2, -1, -1):
        vector = rng.randn(units - k)
        sign = 1.0 if vector[0] >= 0 else -1.0
        length = sign * np.linalg.norm(vector)
        signs[k] = -sign
        vector[0] += length
        axes[k:] -= np.outer(vector, vector @ axes[k:]) / (length * vector[0])
    signs[-1] = 1.0 if rng.rand() > 0.5 else -1.0
    axes *= signs[:, None]
    values = 6.0 * np.tanh(2.0 * rng.normal(size=units))
    biases = 0.1 * rng.normal(size=units)
    weights = (axes * values) @ axes.T
    np.fill_diagonal(weights, 0.0)
    return BoltzmannMachine(weights, biases)


def all_signs(units: int) -> np.ndarray:
    """All states of this many units, shape (2^units, units)."""
    states = np.arange(2**units, dtype=np.int64)[:, None]
    return 2.0 * ((states >> np.arange(units)) & 1) - 1.0


def exact_signs(machine: BoltzmannMachine, count: int, rng: np.random.Generator) -> np.ndarray:
    """Independent draws of the machine's states, shape (count, B).

    The units are split in halves a and b. The marginal of a is summed over all states of b, and
    then b is drawn given a. This takes 2^B exponentials, and little memory.
    """
    half = machine.units // 2
    first, last = slice(None, half), slice(half, None)
    a, b = all_signs(half), all_signs(machine.units - half)
    energies = [
        0.5 * np.einsum("ij,ij->i", signs @ machine.weights[part, part], signs)
        + signs @ machine.biases[part]
        for signs, part in ((a, first), (b, last))
    ]
    coupling = machine.weights[first, last] @ b.T
    log_marginal = np.empty(len(a))
    for start in range(0, len(a), ROWS):
        block = a[start : start + ROWS] @ coupling + energies[1]
        top = block.max(axis=1)
        block -= top[:, None]
        np.exp(block, out=block)
        log_marginal[start : start + ROWS] = top + np.log(block.sum(axis=1))
    log_marginal += energies[0]
    weights = np.exp(log_marginal - log_marginal.max())
    picked = rng.choice(len(a), count, p=weights / weights.sum())
    rest = np.empty((count, machine.units - half))
    for state in np.unique(picked):
        log_given = a[state] @ coupling + energies[1]
        given = np.exp(log_given - log_given.max())
        mine = np.flatnonzero(picked == state)
        rest[mine] = b[rng.choice(len(b), mine.size, p=given / given.sum())]
    return np.concatenate([a[picked], rest], axis=1)


def relaxed_draws(
    machine: BoltzmannMachine, signs: np.ndarray, rng: np.random.Generator
) -> np.ndarray:
    """x | s ~ N(Qᵀ s, I), shape (count, D)."""
    means = signs @ machine.factor
    return means + rng.standard_normal(means.shape)


def leading_plane(machine: BoltzmannMachine) -> np.ndarray:
    """The two directions in which Qᵀ s spreads most, shape (D, 2)."""
    _, axes = np.linalg.eigh(machine.factor.T @ machine.factor)
    return axes[:, [-1, -2]]


@functools.cache
def relaxation(quick: bool) -> Any:
    """The authors' machine with 28 units, or a small one, with a wide base and the fitted one.

    The fitted base has the moments of mean-field fits, as in Graham & Storkey. The wide one adds
    their mean variance in every direction. It is for copies, whose base the paper does not have.
    """
    systems = example("boltzmann", "systems")
    if quick:
        chosen = systems.generated(8, 1)
    else:
        machine = authors_machine()
        chosen = systems.System("28 units", machine, machine.relaxed(machine.exact()))
    fit = chosen.machine.mean_field(np.random.default_rng(0))
    covariance = fit.base.covariance
    wide = covariance + np.trace(covariance) / len(covariance) * np.eye(len(covariance))
    return chosen, stanct.GaussianBase.from_covariance(fit.base.mean, wide), fit


def copies_of(
    method: str, beta: float | None, dimension: int, log_zeta: float
) -> tuple[stanct.PseudoExtended[Any], float]:
    """Copies by their name in the parts, and their log ζ.

    "PE 2" are two copies along a path from the base. "powers 2" and "code 2" are two copies of the
    paper, which follow powers of the target. Those of the authors' code have ζ = 1 for the density
    as it stands in the program. For ours, ζ makes both bounds of β equally likely if the target
    were one of its modes, which have unit covariance.
    """
    kind, _, number = method.partition(" ")
    copies = int(number)
    fixed = None if beta is None else (beta,) * copies
    if kind == "PE":
        chosen = stanct.PseudoExtended(
            copies=copies, fixed_beta=fixed, bootstrap=int(fixed is None)
        )
        return chosen, log_zeta
    low, high = BOUNDS if kind == "powers" else CODE_BOUNDS
    log_zeta -= 0.5 * dimension * (np.log(2 * np.pi) + np.log(high / low) / (high - low))
    powers = stanct.PseudoExtended(
        copies=copies, fixed_beta=fixed, instrument="target",
        beta_bounds=(low, high) if fixed is None else None,
    )  # fmt: skip
    return powers, float(log_zeta) if kind == "powers" else 0.0


TEMPERING = {
    "joint": stanct.Joint(bootstrap=0), "ST": stanct.SimulatedTempering(bootstrap=0),
    "AIS": stanct.AIS(temperatures=TEMPERATURES, island=16),
}  # fmt: skip


def relaxation_run(
    method: str, quick: bool, draws: int, seed: int, beta: float | None = None
) -> dict[str, Any]:
    """Part: moments and a projection of one run on a Boltzmann machine relaxation."""
    chosen, base, fit = relaxation(quick)
    machine, dimension = chosen.machine, chosen.machine.dimension
    model = stanct.temper(EXAMPLES.parent / "stan_models" / "boltzmann" / "boltzmann.stan")
    rng = np.random.default_rng(seed)
    started = time.process_time()
    if method == "exact":
        x, weights, cost = relaxed_draws(machine, exact_signs(machine, draws, rng), rng), None, 0
    elif method == "HMC":
        start = base.unwhiten(rng.standard_normal((1, dimension)))
        block, cost = run_nuts(
            model.target(machine.stan_data()).density_recipe, start, seed=seed, warmup=1000,
            draws=draws, nuts=Nuts(),
        )  # fmt: skip
        x, weights = block.variables["x"].reshape(-1, dimension), None
    else:
        settings: dict[str, Any] = {"base": fit.base, "log_zeta": fit.log_zeta, "draws": draws}
        if method not in TEMPERING:
            chosen_method, log_zeta = copies_of(method, beta, dimension, fit.log_zeta)
            settings = {"base": base, "log_zeta": log_zeta, "draws": draws}
        else:
            chosen_method = TEMPERING[method]
        if method == "AIS":
            settings["draws"] = 32 if quick else PARTICLES
        else:
            settings["warmup"] = min(1000, draws)
        run = model.sample(
            machine.stan_data(), chosen_method, **settings, chains=1, engine="embedded", seed=seed,
            progress=False,
        )  # fmt: skip
        x = run.variables["x"].reshape(-1, dimension)
        log_weights = run.target_log_weights.ravel()
        weights, cost = np.exp(log_weights - log_weights.max()), run.gradients
    seconds = time.process_time() - started
    if weights is None:
        weights = np.full(len(x), 1 / len(x))
    weights = weights / weights.sum()
    errors = (
        weights @ x - chosen.truth.mean,
        weights @ x**2 - np.diag(chosen.truth.covariance) - chosen.truth.mean**2,
    )
    picked = rng.choice(len(x), min(draws, 10_000), p=weights)
    plane = leading_plane(machine)
    return {
        "method": method, "beta": beta, "cost": cost, "seconds": seconds,
        "mse": [float(np.mean(np.square(error))) for error in errors],
        "points": np.round(x[picked[:3000]] @ plane, 2),
    }  # fmt: skip


KINDS = {
    "HMC": "HMC", "joint": "GS (joint)", "ST": "ST", "AIS": "AIS", "PE 2": "N = 2, path",
    "powers 2": "N = 2", "powers 5": "N = 5", "powers 10": "N = 10", "code 2": "N = 2, code",
    "code 5": "N = 5, code", "code 10": "N = 10, code", "exact": "exact",
}  # fmt: skip
"""Names in the pictures. Copies are the paper's unless a path is named."""


COLOURS = {0: QUIET, 2: BLUE, 5: ORANGE, 10: GREEN}


def figure_3(work: Work) -> Made:
    """Draws of a relaxation in a plane: exact, by other samplers, and by two copies."""
    draws = 1000 if work.quick else 10_000
    kinds = (("exact", None), ("HMC", None), ("joint", None), ("ST", None), ("AIS", None),
             ("PE 2", None), ("code 2", None), ("powers 2", None), ("powers 2", 0.5))  # fmt: skip
    jobs = [{"method": method, "quick": work.quick, "draws": draws, "seed": seed, "beta": beta}
            for (method, beta), seed in zip(kinds, seeds(work.seed, 9), strict=True)]  # fmt: skip
    found = work.parts.every(relaxation_run, jobs)
    figure, axes = panels(3, 3, (9.0, 8.6), sharex=True, sharey=True)
    rows, drawn = [], 32 if work.quick else PARTICLES
    for one, made in zip(axes.flat, found, strict=True):
        one.plot(*np.array(made["points"]).T, ".", color=BLUE, ms=1.8, mew=0, alpha=0.6)
        beta = made["beta"]
        name = KINDS[made["method"]] + ("" if beta is None else f", β = {beta}")
        titled(one, name, "direction 1" if one in axes[-1] else "",
               "direction 2" if one in axes[:, 0] else "")  # fmt: skip
        rows.append({"method": name, "draws": drawn if made["method"] == "AIS" else draws,
                     "gradients": made["cost"], "MSE of E[x]": made["mse"][0],
                     "MSE of E[x²]": made["mse"][1]})  # fmt: skip
    says = f"{draws:,} draws each, and {drawn} of AIS. Mean square errors of E[x]: "
    says += ", ".join(f"{r['MSE of E[x]']:.2f} ({r['method']})" for r in rows)
    plain = rows[1]["MSE of E[x]"]
    along, with_code, with_ours = (rows[k]["MSE of E[x]"] / plain for k in (5, 6, 7))
    squares = [r["MSE of E[x²]"] for r in rows]
    verdict = (
        ". Two copies of the paper, which follow powers of the target with estimated β, have "
        f"{with_code:.2f} times the error of HMC with the bounds of the authors' code and "
        f"{with_ours:.2f} times it with ours; copies along a path have {along:.2f} times it. The "
        f"mean square errors of E[x²] are {squares[1]:.3g} (HMC), {squares[6]:.2g} (code), "
        f"{squares[7]:.3g} (ours) and {squares[5]:.3g} (path), so that by this measure the code's "
        "copies are ahead of the other copies. The paper reports that copies reach clusters that "
        f"HMC misses. {MACHINE} GS, ST and AIS have the moments of "
        "mean-field fits as their base, as in the authors' code, and joint tempering by NUTS "
        f"stands for GS. AIS has {TEMPERATURES:,} temperatures. Each panel is one run, and shows "
        "at most 3,000 draws, equally weighted. β of the code are between .1 and .9, with the "
        "density as it stands. Ours are between .3 and 1 with a scale of their own, from trials on "
        "this machine, see Figure 4."
    )
    return Made(rows, figure, work.judged(says, verdict))


def figure_4(work: Work) -> Made:
    """Errors on a relaxation with β estimated, fixed at .1 to .9, and by other samplers."""
    sizes, betas = ((2,), (0.5,)) if work.quick else ((2, 5, 10), FIXED)
    draws = 300 if work.quick else 10_000
    kinds = [(f"{kind} {size}", None) for size in sizes for kind in ("code", "powers")]
    kinds += [(f"powers {size}", beta) for size in sizes for beta in betas]
    others = ("PE 2", *TEMPERING, "HMC")
    kinds += [(method, None) for method in others]
    own = seeds(work.seed, work.times(10))
    jobs = [{"method": method, "quick": work.quick, "draws": draws, "seed": seed, "beta": beta}
            for method, beta in kinds for seed in own]  # fmt: skip
    found = present(work.parts.all(relaxation_run, jobs))
    rows: list[dict[str, Any]] = []
    for panel, name in enumerate(("E[x]", "E[x²]")):
        for method, beta in kinds:
            mine = [m for m in found if (m["method"], m["beta"]) == (method, beta)]
            if not mine:
                continue
            logs = 0.5 * np.log([m["mse"][panel] for m in mine])
            error = logs.std(ddof=1) / np.sqrt(len(mine)) if len(mine) > 1 else 0.0
            copies = method.split()[0] in ("code", "powers", "PE")
            rows.append({"moment": name, "method": KINDS[method],
                         "β": beta or ("estimated" if copies else ""),
                         "runs": len(mine), "RMSE": float(np.exp(logs.mean())),
                         "standard error of its log": float(error),
                         "gradients": float(np.mean([m["cost"] for m in mine]))})  # fmt: skip
    return Made(rows, errors_by_method(rows), work.judged(*_words_of_figure_4(rows, draws)))


def errors_by_method(rows: list[dict[str, Any]]) -> Figure:
    """RMSEs on a logarithmic axis for estimated β, fixed β, and other samplers."""

    def column(row: dict[str, Any]) -> str:
        if isinstance(row["β"], float):
            return f"{row['β']:g}".removeprefix("0")
        if row["method"].startswith("N"):
            return {"code": "code", "path": "path"}.get(row["method"].rpartition(", ")[2], "ours")
        return row["method"].removesuffix(" (joint)")

    names = [column(row) for row in rows]
    figure, axes = panels(1, 2, (11.0, 3.6))
    columns = [c for c in ("code", "ours") if c in names]
    columns += sorted({c for c in names if c[0] == "."})
    columns += [c for c in ("path", "GS", "ST", "AIS", "HMC") if c in names]
    for one, moment in zip(axes[0], ("E[x]", "E[x²]"), strict=True):
        named = set()
        for row, name in zip(rows, names, strict=True):
            if row["moment"] != moment:
                continue
            copies = row["method"].startswith("N") and name != "path"
            size = int(row["method"].split(",")[0].removeprefix("N = ")) if copies else 0
            middle, factor = row["RMSE"], np.exp(2 * row["standard error of its log"])
            one.errorbar(
                columns.index(name) + {5: 0.2, 10: 0.4}.get(size, 0.0), middle,
                [[middle - middle / factor], [middle * factor - middle]], fmt="o", ms=4, capsize=2,
                label=None if size in named or not size else f"N = {size}", color=COLOURS[size],
            )  # fmt: skip
            named.add(size)
        one.set_yscale("log")
        short_numbers(one)
        one.set_xticks(range(len(columns)), columns, fontsize=8)
        titled(one, f"RMSE of {moment}", "estimated β, fixed β, and other samplers")
    legend(axes[0])
    return figure


def _words_of_figure_4(rows: list[dict[str, Any]], draws: int) -> tuple[str, str]:
    """What was found, and the verdict on it."""
    counts = sorted({r["runs"] for r in rows})
    first = [r for r in rows if r["moment"] == "E[x]"]

    def told(r: dict[str, Any], name: str) -> str:
        factor = np.exp(2 * r["standard error of its log"])
        return f"{r['RMSE']:.2g} ({name}, ×÷ {factor:.1f})"

    says = (
        f"{' or '.join(map(str, counts))} runs per cell of {draws:,} draws. RMSEs of E[x] are "
        "geometric means over runs, and in brackets is the factor of two standard errors: "
    )
    says += ", ".join(told(r, r["method"]) for r in first if not isinstance(r["β"], float)) + "."
    every = [r for r in first if isinstance(r["β"], float)]
    found = [min((r for r in every if r["method"] == name), key=lambda r: r["RMSE"])
             for name in dict.fromkeys(r["method"] for r in every)]  # fmt: skip
    says += " The best fixed β: "
    says += ", ".join(
        told(r, f"{r['method']}, β = {r['β']:g}, {r['runs']} runs") for r in found
    ) + "."  # fmt: skip
    verdict = (
        f" Bars are two standard errors. {MACHINE} “Code” "
        "are the bounds of β in the authors' code, .1 and .9, with the density as it stands. It is "
        "so high that most β stay near .9. “Ours” are between .3 and 1, and the target is divided "
        "by a number that makes both bounds about equally likely for one mode. The errors depend "
        "on it: in trials with β between .1 and 1, single runs at seven scales had mean square "
        "errors of E[x] from .5 to 18. GS, ST and AIS have the moments of mean-field fits as their "
        f"base, as in the authors' code. AIS has {PARTICLES} particles and {TEMPERATURES:,} "
        "temperatures. The medians of ten runs in the authors' poster, read off its picture, are "
        "RMSEs of E[x] of 1.05, .34, .16, .13, .10, .125, .25, .62 and 2.7 for N = 2 and β from .1 "
        "to .9, .21 with estimated β, .21 (GS), .25 (ST), .48 (AIS) and 2.1 (HMC)."
    )
    return says, verdict

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
    Made,
    Work,
    example,
    legend,
    panels,
    present,
    seeds,
    titled,
)

import stanct
from stanct.bases.boltzmann import BoltzmannMachine
from stanct.engines.embedded import Nuts, run_nuts

ROWS = 256  # states of one half that are summed at once
FIXED = tuple(round(0.1 * k, 1) for k in range(1, 10))
BOUNDS = (0.3, 1.0)  # of estimated β with the paper's instrument


def authors_machine() -> BoltzmannMachine:
    """The machine with 28 units of Graham & Storkey's Figure 5 and of Nemeth et al.

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
    """The authors' machine with 28 units, or a small one, with a wide base.

    The base is the mean-field one, wider by its mean variance in every direction. A narrower base
    hides modes, and the paper has none.
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
    return chosen, stanct.GaussianBase.from_covariance(fit.base.mean, wide), fit.log_zeta


def sampler(
    method: str, beta: float | None, dimension: int, log_zeta: float
) -> tuple[stanct.Method[Any], float]:
    """A method by its name in the parts, and its log ζ.

    "PE 2" are two copies along a path from the base, and "powers 2" two copies of the paper, which
    follow powers of the target. ∫γ^β of the latter is not known. Their ζ makes both bounds of β
    equally likely if the target were one of its modes, which have unit covariance.
    """
    kind, _, number = method.partition(" ")
    if kind == "joint":
        return stanct.Joint(bootstrap=0), log_zeta
    copies = int(number)
    fixed = None if beta is None else (beta,) * copies
    if kind == "PE":
        chosen = stanct.PseudoExtended(
            copies=copies, fixed_beta=fixed, bootstrap=int(fixed is None)
        )
        return chosen, log_zeta
    low, high = BOUNDS
    log_zeta -= 0.5 * dimension * (np.log(2 * np.pi) + np.log(high / low) / (high - low))
    powers = stanct.PseudoExtended(
        copies=copies, fixed_beta=fixed, instrument="target",
        beta_bounds=BOUNDS if fixed is None else None,
    )  # fmt: skip
    return powers, float(log_zeta)


def relaxation_run(
    method: str, quick: bool, draws: int, seed: int, beta: float | None = None
) -> dict[str, Any]:
    """Part: moments and a projection of one run on a Boltzmann machine relaxation."""
    chosen, base, log_zeta = relaxation(quick)
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
        chosen_method, log_zeta = sampler(method, beta, dimension, log_zeta)
        run = model.sample(
            machine.stan_data(), chosen_method, base=base, log_zeta=log_zeta, chains=1,
            engine="embedded", draws=draws, warmup=min(1000, draws), seed=seed, progress=False,
        )  # fmt: skip
        x = run.variables["x"].reshape(-1, dimension)
        weights, cost = np.exp(run.target_log_weights).ravel(), run.gradients
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
    "HMC": "HMC", "joint": "joint", "PE 2": "N = 2, path", "powers 2": "N = 2",
    "powers 5": "N = 5", "powers 10": "N = 10", "exact": "exact",
}  # fmt: skip
"""Names in the pictures. Copies are the paper's unless a path is named."""


def figure_3(work: Work) -> Made:
    """Draws of a relaxation in a plane: exact, HMC, joint tempering, and two copies."""
    draws = 1000 if work.quick else 10_000
    kinds = (("exact", None), ("HMC", None), ("joint", None), ("PE 2", None), ("powers 2", None),
             ("powers 2", 0.5))  # fmt: skip
    jobs = [{"method": method, "quick": work.quick, "draws": draws, "seed": seed, "beta": beta}
            for (method, beta), seed in zip(kinds, seeds(work.seed, 6), strict=True)]  # fmt: skip
    found = work.parts.every(relaxation_run, jobs)
    figure, axes = panels(2, 3, (9.5, 6.2), sharex=True, sharey=True)
    rows = []
    for one, made in zip(axes.flat, found, strict=True):
        one.plot(*np.array(made["points"]).T, ".", color=BLUE, ms=1.8, mew=0, alpha=0.6)
        beta = made["beta"]
        name = KINDS[made["method"]] + ("" if beta is None else f", β = {beta}")
        titled(one, name, "direction 1" if one in axes[-1] else "",
               "direction 2" if one in axes[:, 0] else "")  # fmt: skip
        rows.append({"method": name, "draws": draws, "gradients": made["cost"],
                     "MSE of E[x]": made["mse"][0], "MSE of E[x²]": made["mse"][1]})  # fmt: skip
    says = f"{draws:,} draws each. Mean square errors of E[x]: " + ", ".join(
        f"{r['MSE of E[x]']:.2f} ({r['method']})" for r in rows
    )
    plain, copies = rows[1]["MSE of E[x]"], rows[4]["MSE of E[x]"]
    verdict = (
        f". Two copies of the paper, which follow powers of the target with estimated β, have "
        f"{copies / plain:.2f} times the error of HMC. The paper reports that copies reach "
        "clusters that HMC misses. The machine is the paper's, with 28 units, and joint tempering "
        "stands for its GS. Its panels of ST and AIS are not here. Each panel is one chain from "
        "one start, and shows at most 3,000 draws, equally weighted. Estimated β are between .3 "
        "and 1, which trials on this machine had shown to be better than .1 and 1, see Figure 4."
    )
    return Made(rows, figure, work.judged(says, verdict))


def figure_4(work: Work) -> Made:
    """Errors on a relaxation with β estimated, fixed at .1 to .9, and by other samplers."""
    sizes, betas = ((2,), (0.5, None)) if work.quick else ((2, 5, 10), (*FIXED, None))
    draws = 300 if work.quick else 10_000
    kinds = [(f"powers {size}", beta) for size in sizes for beta in betas]
    kinds += [("PE 2", None), ("joint", None), ("HMC", None)]
    own = seeds(work.seed, work.times(10))
    jobs = [{"method": method, "quick": work.quick, "draws": draws, "seed": seed, "beta": beta}
            for method, beta in kinds for seed in own]  # fmt: skip
    found = present(work.parts.all(relaxation_run, jobs))
    figure, axes = panels(1, 2, (9.5, 3.6))
    colours = {"powers 2": BLUE, "powers 5": ORANGE, "powers 10": GREEN}
    columns = [*betas, "PE 2", "joint", "HMC"]
    rows: list[dict[str, Any]] = []
    for panel, name in enumerate(("E[x]", "E[x²]")):
        named = set()
        for method, beta in kinds:
            mine = [m for m in found if (m["method"], m["beta"]) == (method, beta)]
            if not mine:
                continue
            place = columns.index(beta if method in colours else method)
            place += {"powers 5": 0.2, "powers 10": 0.4}.get(method, 0.0)
            logs = np.log([m["mse"][panel] for m in mine])
            error = logs.std(ddof=1) / np.sqrt(len(mine)) if len(mine) > 1 else 0.0
            label = None if method in named or method not in colours else KINDS[method]
            axes[0, panel].errorbar(
                place, logs.mean(), 2 * error, fmt="o", ms=4, capsize=2, label=label,
                color=colours.get(method, QUIET),
            )  # fmt: skip
            named.add(method)
            rows.append({"moment": name, "method": KINDS[method],
                         "β": beta or ("" if method in ("joint", "HMC") else "estimated"),
                         "runs": len(mine), "log MSE": float(logs.mean()),
                         "standard error": float(error),
                         "gradients": float(np.mean([m["cost"] for m in mine]))})  # fmt: skip
        ticks = ["est." if b is None else b if b in ("joint", "HMC") else "path"
                 if b == "PE 2" else f"{b:g}" for b in columns]  # fmt: skip
        axes[0, panel].set_xticks(range(len(columns)), ticks, fontsize=8)
        titled(axes[0, panel], f"log mean square error of {name}", "fixed β, and other samplers")
    legend(axes[0])
    return Made(rows, figure, work.judged(*_words_of_figure_4(rows, draws)))


def _words_of_figure_4(rows: list[dict[str, Any]], draws: int) -> tuple[str, str]:
    """What was found, and the verdict on it."""
    counts = sorted({r["runs"] for r in rows})
    says = f"{' or '.join(map(str, counts))} runs per cell of {draws:,} draws."
    first = [r for r in rows if r["moment"] == "E[x]"]
    for r in first:
        if r["β"] == "estimated" or r["method"] in ("joint", "HMC"):
            estimated = " and estimated β" if r["β"] == "estimated" else ""
            says += (
                f" The log mean square error of E[x] is {r['log MSE']:.2f} ± "
                f"{r['standard error']:.2f} with {r['method']}{estimated}."
            )
    for name in ("N = 2", "N = 5", "N = 10"):
        fixed = [r for r in first if r["method"] == name and isinstance(r["β"], float)]
        if fixed:
            best = min(fixed, key=lambda r: r["log MSE"])
            says += (
                f" Of the fixed β with {name}, {best['β']:g} has the smallest one, "
                f"{best['log MSE']:.2f} ± {best['standard error']:.2f}."
            )
    verdict = (
        " Bars are two standard errors. The machine and the instrument are the paper's. Estimated "
        "β are between .3 and 1, and the target is divided by a number that makes both bounds "
        "about equally likely for one mode. The paper's own scale was not at hand, and the errors "
        "depend on it: in trials with β between .1 and 1, single runs at seven scales had mean "
        "square errors of E[x] from .5 to 18. The values of the paper's figure were not at hand as "
        "numbers. It also has ST and AIS."
    )
    return says, verdict

"""Which samples are cancer? Sparse logistic regressions by three samplers.

The samplers are plain NUTS, pseudo-extended MCMC and joint continuous tempering. The layout is that
of section 4.3 of Nemeth et al. (2019): a random fifth of the samples is held out, and the log
predictive density of their classes compares the samplers.

    python run.py --quick                # simulated data, one split, seconds
    python run.py FOLDER                 # the data sets found in FOLDER; see README.md
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from genes import FILES, read, simulate, split
from matplotlib.figure import Figure
from tqdm import tqdm

import stanct
from stanct.engines.embedded import DrawBlock, Nuts, run_nuts

HERE = Path(__file__).resolve().parent
PRIORS = ("horseshoe", "lasso")
TEMPERED = {"PE 2": stanct.PseudoExtended(copies=2), "joint": stanct.Joint()}
METHODS = ("HMC", *TEMPERED)
COLOURS = {"HMC": "#999999", "PE 2": "#0072b2", "joint": "#d55e00"}  # Okabe & Ito's palette
CHAINS, WARMUP = 4, 500


@dataclass(frozen=True)
class Result:
    """What one method found on one split.

    `log_predictive` is the log predictive density of the held-out samples. `log_z` and `std_error`
    are NaN for plain NUTS, which gives no evidence.
    """

    data: str
    prior: str
    method: str
    log_predictive: float
    log_z: float
    std_error: float
    gradients: int


def settings_of(prior: str, data: dict) -> dict:
    """Constants of the prior, with a global scale that expects three genes to matter.

    The scale is that of Piironen & Vehtari (2017).
    """
    wanted = min(3, data["d"] - 1)
    scale = wanted / (data["d"] - wanted) * 2 / np.sqrt(data["n"])
    constants = {"scale_intercept": 5.0, "scale_global": scale}
    if prior == "horseshoe":
        constants |= {"slab_scale": 2.0, "slab_df": 100.0}
    return constants


def plain(prior: str, data: dict, draws: int, seed: int) -> tuple[DrawBlock, int]:
    """Draws of plain NUTS, and their gradients."""
    settings = settings_of(prior.partition("_")[0], data)
    target = stanct.temper(HERE / f"{prior}.stan").target(data | settings)
    rng = np.random.default_rng(seed)
    return run_nuts(
        target.density_recipe,
        rng.uniform(-2, 2, size=(CHAINS, target.density.dimension)),
        seed=seed,
        warmup=WARMUP,
        draws=draws,
        nuts=Nuts(target_accept=0.9),  # as in the tempered methods
    )


def tempered(
    prior: str, method: stanct.Method[stanct.EvidenceRun], data: dict, draws: int, seed: int
) -> stanct.EvidenceRun:
    """Run a tempered method."""
    return stanct.temper(HERE / f"{prior}.stan").sample(
        data | settings_of(prior, data),
        method,
        chains=CHAINS,
        draws=draws,
        warmup=WARMUP,
        seed=seed,
        engine="embedded",
        progress=False,
    )


def sample(name: str, prior: str, method: str, data: dict, draws: int, seed: int) -> Result:
    """Run one method on one split."""
    log_z = std_error = np.nan
    if method == "HMC":
        block, gradients = plain(prior, data, draws, seed)
        predictive = np.exp(block.variables["log_predictive"]).mean(axis=(0, 1))
    else:
        run = tempered(prior, TEMPERED[method], data, draws, seed)
        predictive = run.expect(lambda values: np.exp(values["log_predictive"])).value
        gradients, log_z, std_error = run.gradients, run.evidence.log_z, run.evidence.std_error
    return Result(name, prior, method, float(np.log(predictive).sum()), log_z, std_error, gradients)


def table(results: list[Result]) -> None:
    """Print means over the splits, and log Z of the first split."""
    print(
        f"{'data':<10} {'prior':<10} {'method':<6} {'log predictive':>18} {'log Z':>18} gradients"
    )
    for name, prior, method in dict.fromkeys((r.data, r.prior, r.method) for r in results):
        mine = [r for r in results if (r.data, r.prior, r.method) == (name, prior, method)]
        found = np.array([r.log_predictive for r in mine])
        spread = f" ± {found.std(ddof=1) / np.sqrt(found.size):6.3f}" if found.size > 1 else ""
        first = mine[0]
        log_z = "" if np.isnan(first.log_z) else f"{first.log_z:9.3f} ± {first.std_error:.3f}"
        print(
            f"{name:<10} {prior:<10} {method:<6} {f'{found.mean():9.3f}{spread}':>18} {log_z:>18} "
            f"{np.mean([r.gradients for r in mine]):9,.0f}"
        )


def draw(results: list[Result]) -> Figure:
    """Log predictive densities, one panel for each data set.

    A dot is a split, and a bar is the mean over the splits.
    """
    names = list(dict.fromkeys(r.data for r in results))
    figure = Figure(figsize=(1 + 3.2 * len(names), 3.4), layout="constrained")
    panels = figure.subplots(1, len(names), squeeze=False)[0]
    priors = [p for p in PRIORS if any(r.prior == p for r in results)]
    for axes, name in zip(panels, names, strict=True):
        for place, prior in enumerate(priors):
            for shift, method in zip((-0.25, 0.0, 0.25), METHODS, strict=True):
                mine = [r for r in results if (r.data, r.prior, r.method) == (name, prior, method)]
                values = np.array([r.log_predictive for r in mine])
                at = place + shift
                label = method.replace("PE 2", "PE, N = 2") if place == 0 else None
                axes.plot(np.full(values.size, at), values, "o", color=COLOURS[method], ms=4.5,
                          alpha=0.7, mew=0, label=label)  # fmt: skip
                axes.plot([at - 0.08, at + 0.08], 2 * [values.mean()], color=COLOURS[method], lw=2)
        axes.set(xticks=range(len(priors)), xticklabels=priors, xlim=(-0.5, len(priors) - 0.5))
        axes.set_title(name, loc="left", fontsize=10)
        axes.margins(y=0.12)
    panels[0].set_ylabel("log predictive density, held-out samples")
    panels[0].legend(frameon=False, fontsize=8)
    return figure


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Held-out log predictive densities.")
    parser.add_argument(
        "folder", nargs="?", type=Path, help="has any of " + ", ".join(FILES.values())
    )
    parser.add_argument("--quick", action="store_true", help="simulated data, one split")
    parser.add_argument("--sets", nargs="+", choices=FILES, help="by default all in FOLDER")
    parser.add_argument("--priors", nargs="+", choices=PRIORS, default=list(PRIORS))
    parser.add_argument("--genes", type=int, default=50, help="genes kept in each split")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--draws", type=int, default=1000, help="draws of each of four chains")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path("lasso_horseshoe.png"), help="the picture")
    options = parser.parse_args()
    if options.quick:
        options.splits, options.draws, options.genes = 1, 250, 10
        sets = {"simulated": simulate(60, 40, options.seed)}
    elif options.folder is None or not options.folder.is_dir():
        parser.error("pass the folder of the data sets, which README.md lists, or --quick")
    else:
        names = options.sets or [k for k, v in FILES.items() if (options.folder / v).is_file()]
        if not names:
            parser.error(f"{options.folder} has none of {', '.join(FILES.values())}")
        sets = {name: read(options.folder, name) for name in names}

    seeds = np.random.SeedSequence(options.seed).generate_state(options.splits) % 2**30
    plan = [
        (name, prior, int(seed), method)
        for name in sets
        for prior in options.priors
        for seed in seeds
        for method in METHODS
    ]
    results = []
    for name, prior, seed, method in tqdm(plan, unit="run", leave=False):
        data = split(*sets[name], options.genes, seed)
        results.append(sample(name, prior, method, data, options.draws, seed))
    table(results)
    draw(results).savefig(options.out, dpi=150)
    print(f"The picture is in {options.out}.")

"""Horseshoes on gene expressions (Nemeth et al. 2019, section 4.3), with Figures 5, 9 and 10.

"PE 2" are two copies of all parameters along a path from a fitted base. "shared 2" are those of the
authors' code: two copies of the coefficients that share the scales s, and that follow powers of the
likelihood, from the prior on. Given s, copies that do not count are integrated out and leave the
factor z(s) = ∫ p(x | s) L(x, s)^β dx each. Draws of s therefore follow the posterior times
z(s)^(N − 1), and not the posterior.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
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
    example,
    legend,
    panels,
    present,
    seeds,
    titled,
)
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import stanct

Kind = tuple[str, float | None]
Gaps = dict[tuple[str, str, Any], list[float]]  # by data, method and β
SHARED = tuple((f"shared {n}", b) for n in (2, 5) for b in (None, 0.25, 0.5, 0.75))
KEPT, SHOWN = 1000, 6  # draws of each part, and coefficients in the picture


def split_of(name: str, folder: str | None, genes: int, seed: int) -> dict[str, Any]:
    """Training and test samples of a data set; simulated ones without a folder."""
    lasso = example("lasso_horseshoe")
    samples = lasso.simulate(60, 40, 1) if folder is None else lasso.read(Path(folder), name)
    return lasso.split(*samples, genes, seed)


def shared_copies(method: str, beta: float | None, data: dict, draws: int, seed: int) -> Any:
    """Draws of the authors' copies by NUTS, and their gradients."""
    settings = {"N": int(method.split()[1]), "fixed_power": beta or 0.0}
    return example("lasso_horseshoe").plain("horseshoe_copies", data | settings, draws, seed)


def gene_run(
    *,
    name: str, method: str, beta: float | None, split: int, folder: str | None, draws: int,
    genes: int,
) -> dict[str, Any]:  # fmt: skip
    """Part: log predictive density of held-out samples under a horseshoe, on one random split."""
    lasso, data = example("lasso_horseshoe"), split_of(name, folder, genes, split)
    if method.startswith("shared"):
        block, gradients = shared_copies(method, beta, data, draws, split)
        each = np.exp(block.variables["log_predictive"]).mean(axis=(0, 1))
        predictive = float(np.log(each).sum())
    else:
        key = method
        if method != "HMC":
            copies, key = int(method.split()[1]), f"{method} {beta}"
            fixed = None if beta is None else (beta,) * copies
            lasso.TEMPERED[key] = stanct.PseudoExtended(copies=copies, fixed_beta=fixed)
        found = lasso.sample(name, "horseshoe", key, data, draws, split)
        predictive, gradients = found.log_predictive, found.gradients
    return {"data": name, "method": method, "beta": beta, "split": split,
            "log_predictive": predictive, "gradients": gradients}  # fmt: skip


def coefficient_run(
    *, name: str, method: str, split: int, folder: str | None, draws: int, genes: int
) -> dict[str, Any]:
    """Part: equally weighted draws of all coefficients and of log τ on one random split."""
    data, rng = split_of(name, folder, genes, split), np.random.default_rng(split)
    lasso = example("lasso_horseshoe")
    if method == "HMC":
        block, gradients = lasso.plain("horseshoe", data, draws, split)
        beta, tau = block.variables["beta"].reshape(-1, genes), block.variables["tau"]
    elif method.startswith("PE"):
        copies = stanct.PseudoExtended(copies=int(method.split()[1]))
        run = lasso.tempered("horseshoe", copies, data, draws, split)
        gradients, values = run.gradients, run.resample(draws, seed=split)
        beta, tau = values["beta"].reshape(-1, genes), values["tau"]
    else:
        block, gradients = shared_copies(method, None, data, draws, split)
        copies = int(method.split()[1])
        weight = block.variables["weight"].reshape(-1, copies)
        picked = (weight.cumsum(axis=1) > rng.random((len(weight), 1))).argmax(axis=1)
        every = block.variables["beta"].reshape(-1, genes, copies)
        beta, tau = every[np.arange(len(every)), :, picked], block.variables["tau"]
    kept = np.linspace(0, len(beta) - 1, min(KEPT, len(beta))).astype(int)
    return {"method": method, "gradients": gradients, "beta": np.round(beta[kept], 3),
            "mean": beta.mean(axis=0), "sd": beta.std(axis=0, ddof=1),
            "log_tau": float(np.log(tau).mean())}  # fmt: skip


def _beta(method: str, beta: float | None) -> Any:
    """β in words."""
    return "none" if method == "HMC" else "estimated" if beta is None else beta


def figure_5(work: Work) -> Made:
    """Log predictive densities of gene expressions: HMC, and PE with estimated and fixed β."""
    kinds: list[Kind] = [("HMC", None), ("PE 2", None)] if work.quick else [
        ("HMC", None), *((f"PE {n}", b) for n in (2, 5) for b in (None, 0.25, 0.5, 0.75))
    ]  # fmt: skip
    return _predictions(work, ("colon", "leukemia", "prostate"), kinds, (
        "The data are those of the authors' code. The paper keeps all genes, and gives all "
        "samplers the same time. Ours have the same number of draws, and the 50 genes that "
        "separate the classes best in the training samples. The paper's copies share the scales, "
        "see Figure 10."
    ))  # fmt: skip


def figure_10(work: Work) -> Made:
    """Log predictive densities of prostate samples: HMC, and the authors' copies."""
    kinds: list[Kind] = [("HMC", None), *(SHARED[:2] if work.quick else SHARED)]
    return _predictions(work, ("prostate",), kinds, (
        "Copies share the scales s and follow powers of the likelihood, as in the authors' code. "
        "That changes the posterior: with fixed β, each of the N − 1 copies that do not count "
        "leaves a factor z(s) = ∫ p(x | s) L(x, s)^β dx. In the mean the distance from HMC grows "
        "with N and with β, and so does its standard error. Copies of all parameters leave no such "
        "factor, see Figure 5. The authors' code has all genes, expects 200 of them to matter, and "
        "has a slab with three degrees of freedom. Ours has the 50 genes that separate the classes "
        "best in the training samples, expects three, and has a hundred degrees."
    ))  # fmt: skip


def _predictions(work: Work, names: Sequence[str], kinds: Sequence[Kind], told: str) -> Made:
    """Log predictive densities of some data sets by some kinds of samplers."""
    folder = None if work.data is None else str(work.data)
    names = ("simulated",) if folder is None else names
    jobs = [{"name": name, "method": method, "beta": beta, "split": split, "folder": folder,
             "draws": 100 if work.quick else 1000, "genes": 5 if work.quick else 50}
            for split in seeds(work.seed, work.times(10)) for name in names
            for method, beta in kinds]  # fmt: skip
    found = present(work.parts.all(gene_run, jobs))
    names = tuple(n for n in names if any(m["data"] == n for m in found))
    gaps = _gaps(found)
    rows = [_row(those, gaps) for name in names for kind in kinds
            if (those := _those(found, name, kind))]  # fmt: skip
    source = "SIMULATED data" if folder is None else "gene expressions"
    plain = [r for r in rows if r["method"] == "HMC"]
    says = f"Horseshoes on {source}. The log predictive density of HMC is " + ", ".join(
        f"{r['log predictive density']:.2f} ({r['data']})" for r in plain
    )
    says += "."
    verdict = f" {_beside_hmc(gaps)}{_cost(rows)}{told}"
    return Made(rows, differences(rows, gaps), work.judged(says, verdict))


def _gaps(found: list[dict[str, Any]]) -> Gaps:
    """Log predictive densities of copies less that of HMC on the same split, by data and kind."""
    plain = {(m["data"], m["split"]): m["log_predictive"] for m in found if m["method"] == "HMC"}
    gaps: Gaps = {}
    for m in found:
        if m["method"] != "HMC" and (m["data"], m["split"]) in plain:
            gap = m["log_predictive"] - plain[m["data"], m["split"]]
            gaps.setdefault((m["data"], m["method"], _beta(m["method"], m["beta"])), []).append(gap)
    return gaps


def _error(values: Sequence[float]) -> float:
    """The standard error of a mean."""
    return float(np.std(values, ddof=1) / np.sqrt(len(values))) if len(values) > 1 else np.nan


def _those(found: list[dict[str, Any]], name: str, kind: Kind) -> list[dict[str, Any]]:
    """The results of one data set by one kind of sampler."""
    return [m for m in found if (m["data"], m["method"], m["beta"]) == (name, *kind)]


def _row(those: list[dict[str, Any]], gaps: Gaps) -> dict[str, Any]:
    """Means over the splits of one data set by one kind of sampler."""
    name, method = those[0]["data"], those[0]["method"]
    beta = _beta(method, those[0]["beta"])
    values, gap = [m["log_predictive"] for m in those], gaps.get((name, method, beta), [])
    return {"data": name, "method": method, "β": beta, "splits": len(those),
            "log predictive density": float(np.mean(values)), "standard error": _error(values),
            "gradients": float(np.mean([m["gradients"] for m in those])),
            "less HMC": float(np.mean(gap)) if gap else np.nan,
            "standard error of that": _error(gap)}  # fmt: skip


def differences(rows: Sequence[dict[str, Any]], gaps: Gaps) -> Figure:
    """How far copies are from HMC on each split, with means and bars of two standard errors."""
    names = list(dict.fromkeys(r["data"] for r in rows))
    figure, axes = panels(1, len(names), (1.5 + 3.4 * len(names), 3.6), sharey=True)
    for one, name in zip(axes[0], names, strict=True):
        mine = [r for r in rows if r["data"] == name and r["method"] != "HMC"]
        for place, row in enumerate(mine):
            each = gaps.get((name, row["method"], row["β"]), [])
            one.plot(np.full(len(each), place - 0.15), each, "o", ms=3.5, color=QUIET, alpha=0.7)
            error = 2 * np.nan_to_num(row["standard error of that"])
            one.errorbar(place + 0.1, row["less HMC"], error or None, fmt="s", ms=4.5, color=BLUE,
                         capsize=2)  # fmt: skip
        one.axhline(0, color=INK, lw=0.8)
        if bent := any(abs(gap) > 0.5 for each in gaps.values() for gap in each):
            one.set_yscale("symlog", linthresh=0.1)
            ticks = (-3, -1, -0.3, -0.1, 0, 0.1, 0.3)
            one.set_yticks(ticks, [f"{t:g}" for t in ticks])
            one.margins(y=0.08)  # in logs Matplotlib leaves points on the edge
        labels = [
            called(r["method"]) + ("\n" + str(r["β"]).replace("estimated", "est.")) for r in mine
        ]
        one.set_xticks(range(len(labels)), labels, fontsize=7.5)
        one.set_xlim(-0.6, len(labels) - 0.4)
        label = "log predictive density less HMC's" + ",\nlinear up to ±.1, then in logs" * bent
        titled(one, name, "", label if one is axes[0][0] else "")
    return figure


def _beside_hmc(gaps: Gaps) -> str:
    """How far the copies are from HMC on the same split, over all data sets and splits."""
    pooled: dict[tuple[str, Any], list[float]] = {}
    for (_, method, beta), each in gaps.items():
        pooled.setdefault((method, beta), []).extend(each)
    if not pooled or any(len(one) < 2 for one in pooled.values()):
        return ""
    told = ", ".join(
        f"{np.mean(one):+.3f} ± {_error(one):.3f} ({called(method)}, β {beta})"
        for (method, beta), one in pooled.items()
    )
    return (
        f"On the same split, over all data sets and splits, copies differ from HMC by {told}. "
        "Circles are splits, and squares their means, with bars of two standard errors. "
    )


def _cost(rows: Sequence[dict[str, Any]]) -> str:
    """The gradients of copies in units of HMC's on the same data."""
    plain = {r["data"]: r["gradients"] for r in rows if r["method"] == "HMC"}
    ratios = [r["gradients"] / plain[r["data"]] for r in rows
              if r["method"] != "HMC" and r["data"] in plain]  # fmt: skip
    if not ratios:
        return ""
    return f"Copies took {min(ratios):.1f} to {max(ratios):.1f} times the gradients of HMC. "


def figure_9(work: Work) -> Made:
    """Marginal posteriors of coefficients by HMC, by the authors' copies, and by full copies."""
    folder = None if work.data is None else str(work.data)
    genes = 5 if work.quick else 50
    names = {"HMC": "HMC", "shared 2": "N = 2", "shared 5": "N = 5", "PE 5": "N = 5, path"}
    jobs = [{"name": "simulated" if folder is None else "prostate", "method": method,
             "split": seeds(work.seed, 1)[0], "folder": folder,
             "draws": 100 if work.quick else 2000, "genes": genes}
            for method in names]  # fmt: skip
    found = work.parts.every(coefficient_run, jobs)
    shown = np.argsort(-np.abs(found[0]["mean"]))[:SHOWN]
    figure, axes = panels(2, 3, (9.5, 5.2))
    rows: list[dict[str, Any]] = []
    for one, gene in zip(axes.flat, shown, strict=False):
        _marginal(one, [(names[made["method"]], np.array(made["beta"])[:, gene]) for made in found])
        titled(one, f"rank {gene + 1} by |t|", "coefficient" if one in axes[-1] else "",
               "density" if one in axes[:, 0] else "")  # fmt: skip
        rows += [{"rank by |t|": int(gene) + 1, "method": names[made["method"]],
                  "mean": made["mean"][gene], "sd": made["sd"][gene],
                  "mean of log τ": made["log_tau"], "gradients": made["gradients"]}
                 for made in found]  # fmt: skip
    for one in axes.flat[len(shown) :]:
        one.set_visible(False)
    legend(list(axes.flat))
    plain = found[0]
    gaps = {
        names[made["method"]]: np.max(
            np.abs(np.subtract(made["mean"], plain["mean"])) / np.array(plain["sd"])
        )
        for made in found[1:]
    }
    source = "SIMULATED data" if folder is None else "prostate"
    says = (
        f"Horseshoe on {source}, {genes} genes, one split. Of all coefficients, the largest "
        "difference of a posterior mean from HMC's is "
        + ", ".join(f"{gap:.2f} sd ({name})" for name, gap in gaps.items())
        + ". The mean of log τ is "
        + ", ".join(f"{m['log_tau']:.2f} ({names[m['method']]})" for m in found)
        + ". Gradients: "
        + ", ".join(f"{m['gradients'] / 1e6:.1f} M ({names[m['method']]})" for m in found) + "."
    )  # fmt: skip
    verdict = (
        " The panels have the largest means by HMC. Copies share the scales, as in the authors' "
        "code, and “path” has copies of all parameters. Gradients of the former are of all N "
        "copies at once. Copies that share the scales change their posterior, see Figure 10. The "
        "supplement's own picture was not at hand."
    )
    return Made(rows, figure, work.judged(says, verdict))


def called(method: str) -> str:
    """A method in words."""
    return method.replace("shared ", "N = ")


def _marginal(axes: Axes, draws: Sequence[tuple[str, np.ndarray]]) -> None:
    """Histograms of one coefficient by each method."""
    low, high = np.quantile(np.concatenate([values for _, values in draws]), [0.005, 0.995])
    edges = np.linspace(low, high, 31)
    for (name, values), colour in zip(draws, (INK, BLUE, ORANGE, GREEN), strict=True):
        axes.hist(values, edges, density=True, histtype="step", color=colour, label=name)

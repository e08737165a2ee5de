"""Evidence of the radon model (Graham & Storkey 2017, section 7.3): each chain as it grows."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import numpy as np
from common import BLUE, EXAMPLES, INK, QUIET, RED, Made, Work, panels, seeds, titled

import stanct
from stanct.plots.canvas import interval

RADON_LOG_Z = -1081.0217
RADON_DATA = EXAMPLES / "radon" / "radon.data.json"


# Steps of the variational fit, and over how many of them its course and its bound are averaged.
STEPS, EVERY, LAST = 20_000, 250, 1000


class MeanField(NamedTuple):
    """A diagonal Gaussian, its bound on log Z, and the course of the bound: seconds and values."""

    mean: np.ndarray
    sd: np.ndarray
    bound: float
    course: list[tuple[float, float]]


def mean_field(density: Any, steps: int, seed: int) -> MeanField:
    """Mean-field ADVI by Adam."""
    started, course = time.perf_counter(), []
    entropy = 0.5 * density.dimension * (1 + np.log(2 * np.pi))
    rng, size = np.random.default_rng(seed), density.dimension
    place = np.concatenate([np.zeros(size), np.full(size, -1.0)])
    first, second, kept = np.zeros(2 * size), np.zeros(2 * size), np.zeros(2 * size)
    values = []
    for k in range(1, steps + 1):
        noise = rng.standard_normal(size)
        sd = np.exp(place[size:])
        value, slope = density.log_density_gradient(place[:size] + sd * noise)
        gradient = np.concatenate([slope, slope * noise * sd + 1])
        if not np.isfinite(gradient).all():
            continue
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient**2
        rate = 0.05 * min(1.0, 2 * (1 - k / steps))
        place += rate * first / (1 - 0.9**k) / (np.sqrt(second / (1 - 0.999**k)) + 1e-8)
        values.append(value + np.log(sd).sum() + entropy)
        if k > steps // 2:
            kept += place / (steps - steps // 2)
        if k % EVERY == 0:
            course.append((time.perf_counter() - started, float(np.mean(values[-EVERY:]))))
    return MeanField(kept[:size], np.exp(kept[size:]), float(np.mean(values[-1000:])), course)


def radon(kind: str, chains: int, draws: int, seed: int) -> dict[str, Any]:
    """Part: joint tempering of the radon model, log Z of each chain as it grows.

    "advi" fits a diagonal base by ADVI, and then, as in the paper, samples again from a diagonal
    base with the moments of the first run. "pilot" is stanct's own base.
    """
    model = stanct.temper(EXAMPLES / "radon" / "radon.stan")
    data = RADON_DATA
    common: dict[str, Any] = {
        "engine": "embedded", "chains": chains, "draws": draws, "seed": seed, "progress": False
    }  # fmt: skip
    started, made = time.perf_counter(), []
    fit: dict[str, Any] = {"base": "pilot"}
    course: list[tuple[float, float]] = []
    if kind == "advi":
        found = mean_field(model.target(data).density, STEPS, seed)
        course = found.course
        fit = {"base": stanct.GaussianBase(found.mean, np.diag(found.sd)), "log_zeta": found.bound}
    for step in range(2 if kind == "advi" else 1):
        begun = time.perf_counter()
        run = model.sample(data, stanct.Joint(bootstrap=int(kind != "advi")), **common, **fit)
        ends = np.unique(np.geomspace(20, draws, 40).astype(int))
        made.append({
            "base": kind + (", refitted" if step else ""), "ends": ends, "draws": draws,
            "from": begun - started, "seconds": time.perf_counter() - begun,
            "running": run.running_log_z(ends.tolist()), "log_z": run.bare_evidence.log_z,
            "std_error": run.bare_evidence.std_error, "gradients": run.gradients,
            "bound": fit.get("log_zeta"), "warnings": run.warnings,
        })  # fmt: skip
        x = run.base.unwhiten(run.z.reshape(-1, run.base.dimension))
        weights = np.exp(run.target_log_weights - run.target_log_weights.max()).ravel()
        mean = np.average(x, axis=0, weights=weights)
        sd = np.sqrt(np.average((x - mean) ** 2, axis=0, weights=weights))
        fit = {"base": stanct.GaussianBase(mean, np.diag(sd)), "log_zeta": run.bare_evidence.log_z}
    return {"runs": made, "course": course}


def radon_ais(temperatures: int, particles: int, seed: int) -> dict[str, Any]:
    """Part: annealed importance sampling of the radon model from ADVI's base, as in the paper."""
    model, data = stanct.temper(EXAMPLES / "radon" / "radon.stan"), RADON_DATA
    found = mean_field(model.target(data).density, STEPS, seed)
    run = model.sample(
        data, stanct.AIS(temperatures=temperatures), chains=1, draws=particles, seed=seed,
        base=stanct.GaussianBase(found.mean, np.diag(found.sd)), log_zeta=found.bound,
        progress=False,
    )  # fmt: skip
    return {"log_z": run.bare_evidence.log_z, "std_error": run.bare_evidence.std_error,
            "gradients": run.gradients}  # fmt: skip


def thousands(course: list[tuple[float, float]]) -> np.ndarray:
    """The course of the bound in means over as many steps as the bound itself, shape (n, 2)."""
    whole = np.array(course).reshape(-1, LAST // EVERY, 2)
    return np.stack([whole[:, -1, 0], whole[..., 1].mean(axis=1)], axis=1)


def figure_3(work: Work) -> Made:
    """Radon: log Z of each chain against the run's time, from two bases, with AIS beside it."""
    size = {"chains": 2, "draws": 200} if work.quick else {"chains": 10, "draws": 2500}
    kinds = ("advi",) if work.quick else ("advi", "pilot")
    jobs = [{"kind": kind, **size, "seed": seed}
            for kind, seed in zip(kinds, seeds(work.seed, 2), strict=False)]  # fmt: skip
    job = {"temperatures": 100 if work.quick else 10_000, "particles": 64 if work.quick else 96,
           "seed": seeds(work.seed, 4)[3]}  # fmt: skip
    work.parts.whole((radon, jobs), (radon_ais, [job]))
    parts = work.parts.every(radon, jobs)
    found = [made for part in parts for made in part["runs"]]
    (ais,) = work.parts.every(radon_ais, [job])
    figure, axes = panels(1, 1 + len(found), (3.4 * (1 + len(found)) + 0.6, 3.4))
    course = thousands(parts[0]["course"])
    bound, *others = axes[0]
    bound.plot(*course.T, color=BLUE, lw=1.2, label="bound")
    bound.axhline(
        course[-1, 1], color=QUIET, lw=1, ls=":", label=f"its last value, {course[-1, 1]:.2f}"
    )
    bound.axhline(RADON_LOG_Z, color=INK, lw=1, label="exact")
    # The first steps are thousands of nats lower.
    settled = course[len(course) // 20 :, 1]
    bound.set_ylim(settled.min() - 1, RADON_LOG_Z + 1)
    bound.legend(frameon=False, fontsize=7.5, loc="center left", bbox_to_anchor=(0.02, 0.72))
    titled(bound, "ADVI", "seconds", "bound on log Z")
    rows = []
    for one, made in zip(others, found, strict=True):
        running = np.array(made["running"])
        time_of = made["from"] + made["seconds"] * np.array(made["ends"]) / made["draws"]
        mean = running.mean(axis=0)
        error = running.std(axis=0, ddof=1) / np.sqrt(len(running))
        for chain in running:
            one.plot(time_of, chain, color=QUIET, lw=0.5, alpha=0.7)
        interval(one, time_of, mean, error, BLUE, label="mean of chains")
        one.axhline(RADON_LOG_Z, color=INK, lw=1, label="exact")
        one.axhline(ais["log_z"], color=RED, lw=1, ls="--", label="AIS")
        if made["bound"] is not None and made["from"]:
            one.set_xlim(left=0)
        titled(one, made["base"], "seconds", "log Z")
        one.set_ylim(RADON_LOG_Z - 2, RADON_LOG_Z + 2)
        rows += [
            {
                "base": made["base"],
                "seconds": t,
                "draws": n,
                "mean of log Z": m,
                "standard error": e,
            }
            for t, n, m, e in zip(time_of, made["ends"], mean, error, strict=True)
        ]
    others[0].legend(frameon=False, fontsize=7.5)
    says = (
        f"ADVI's bound is {found[0]['bound']:.2f}, the mean of the last {LAST:,} of its {STEPS:,} "
        "steps. log Z: "
        + "; ".join(f"{m['log_z']:.3f} ± {m['std_error']:.3f} from {m['base']} "
                    f"({m['gradients'] / 1e6:.1f} M gradients, {m['seconds']:.0f} s, "
                    f"{', '.join(m['warnings']) or 'no warning'})" for m in found)
        + f"; AIS with {job['temperatures']:,} temperatures {ais['log_z']:.3f} ± "
        f"{ais['std_error']:.3f} ({ais['gradients'] / 1e6:.1f} M gradients); exact {RADON_LOG_Z}."
    )  # fmt: skip
    verdict = (
        " As in the paper, AIS agrees. The second run, whose base has the moments of the first, is "
        "longer, so that the standard errors do not say which base is the better one. Seconds "
        "before a run's first draw are spread over its draws, because a run does not say when each "
        "draw was made. Between two runs the moments of the first are computed, and its draws are "
        "checked. Estimates more than two nats off are outside the last panels. The first panel "
        f"has means of ADVI's bound over {LAST:,} steps, and the last of them is the bound. It is "
        f"{course[-1, 1] - course[-2, 1]:.2f} above the one before it. The errors above are those "
        "of the evidence. Bands and the CSV file have the standard deviation over chains, divided "
        "by the root of their number. "
        "Seconds there count from the start of the variational fit."
    )
    return Made(rows, figure, work.judged(says, verdict))

"""Graham & Storkey (2017), *Continuously tempered Hamiltonian Monte Carlo*."""

from __future__ import annotations

import functools
import time
from typing import Any

import line_hmc
import numpy as np
from boltzmann_errors import (
    FORMS,
    GIBBS,
    HMC,
    JOINT,
    LADDER,
    MEASURES,
    METHODS,
    beside_the_paper,
    errors_by_cost,
    longest_runs,
    mean_errors,
)
from common import (
    BLUE,
    EXAMPLES,
    INK,
    ORANGE,
    RED,
    BoltzmannMachine,
    Item,
    Made,
    Work,
    example,
    panels,
    present,
    seeds,
    titled,
)
from decoders import figure_4, figure_4_thousand, figure_6, figure_7
from factor_graph import figure_3a
from joint_hmc import joint_by_hmc
from radon_evidence import figure_3
from relaxations import authors_machine, exact_signs, leading_plane, relaxed_draws
from scipy.integrate import trapezoid
from scipy.special import expit
from scipy.stats import norm

import stanct
from stanct.estimates.mixing import effective_size
from stanct.path.bias import Bias

X = np.linspace(-90, 90, 9001)


def base_of_the_paper() -> stanct.GaussianBase:
    """The Gaussian with the mean and the variance of the bimodal target."""
    return stanct.GaussianBase(np.array([-1.6]), np.array([[7.97747]]))


def bimodal_draws(
    chains: int, draws: int, log_zeta: float, seed: int, atom: float
) -> dict[str, Any]:
    """Part: joint continuous tempering on the two modes by stanct."""
    model = stanct.temper(EXAMPLES / "bimodal" / "bimodal.stan")
    run = model.sample(
        method=stanct.Joint(bootstrap=0, atom=atom), chains=chains, draws=draws, seed=seed,
        base=base_of_the_paper(), log_zeta=log_zeta, engine="embedded", progress=False,
    )  # fmt: skip
    left = run.expect(lambda values: values["x"] < 0)
    return {
        "x": run.variables["x"].reshape(chains, draws), "beta": run.beta,
        "log_weights": run.log_weights(), "log_z": run.bare_evidence.log_z,
        "std_error": run.bare_evidence.std_error, "left": left.value, "left_error": left.std_error,
    }  # fmt: skip


def hmc_draws(chains: int, draws: int, seed: int) -> dict[str, Any]:
    """Part: HMC of fixed length on (x, u) and on x alone, from draws of the base."""
    rng, law = np.random.default_rng(seed), Bias.linear(0.0)
    x, u, delta, plain = (np.empty((chains, draws)) for _ in range(4))
    for c in range(chains):
        start = float(base_of_the_paper().unwhiten(rng.standard_normal((1, 1)))[0, 0])
        own = int(rng.integers(2**31))
        x[c], u[c], delta[c], _ = line_hmc.chain(own, start, rng.logistic(), draws, True)
        plain[c] = line_hmc.chain(own, start, 0.0, draws, False)[0]
    at_target, at_base = (law.log_weights(delta, beta) for beta in (1.0, 0.0))
    log_z = np.logaddexp.reduce(at_target, axis=1) - np.logaddexp.reduce(at_base, axis=1)
    return {"x": x, "beta": expit(u), "log_weights": at_target, "log_z": log_z, "plain": plain}


def potentials(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """φ and ψ of the bimodal target at points x."""
    log_base = base_of_the_paper().log_density(np.reshape(x, (-1, 1))).reshape(np.shape(x))
    log_left = np.log(0.6) + norm.logpdf(x, -8, 1)
    return -np.logaddexp(log_left, np.log(0.4) + norm.logpdf(x, 8, 2)), -log_base


def energy(x: np.ndarray, u: np.ndarray) -> np.ndarray:
    """Potential energy of (x, u) with β = logistic(u) and log ζ = 0."""
    phi, psi = potentials(x)
    beta = expit(u)
    return beta * phi + (1 - beta) * psi - np.log(beta) - np.log1p(-beta)


def figure_1(work: Work) -> Made:
    """Two modes: the joint energy with a trajectory, weighted draws, and both histograms.

    Draws are by HMC of fixed length, as in the paper. The words have stanct's own sampler, too.
    """
    draws = 1000 if work.quick else 2500
    job = {"chains": 4, "draws": draws, "log_zeta": 0.0, "seed": seeds(work.seed, 1)[0],
           "atom": stanct.Joint().atom}  # fmt: skip
    (own,) = work.parts.every(bimodal_draws, [job])
    (made,) = work.parts.every(hmc_draws, [{"chains": 8, "draws": draws, "seed": job["seed"]}])
    x, beta, log_weights, plain = (np.array(made[k]) for k in ("x", "beta", "log_weights", "plain"))
    figure, axes = panels(2, 2, (9.0, 5.6))
    target, base = (np.exp(-potential) for potential in potentials(X))
    axes[0, 0].plot(X, target, color=BLUE, label="target")
    axes[0, 0].plot(X, base, color=ORANGE, label="base")
    axes[0, 0].legend(frameon=False, fontsize=8)
    titled(axes[0, 0], "(a) target and base", "x", "density")
    grid_x, grid_u = np.meshgrid(np.linspace(-20, 20, 161), np.linspace(-10, 10, 161))
    height = energy(grid_x, grid_u)
    axes[0, 1].contourf(grid_x, grid_u, np.minimum(height, 40), 30, cmap="magma_r")
    paths = line_hmc.trajectories(work.seed, np.array([-8.0, 0.5]), 200, 1000, 0.02)
    crossing = np.flatnonzero(paths[..., 0].max(axis=1) > 8)
    path = paths[crossing[0]]
    drift = path_energy_error(path, 0.02)
    axes[0, 1].plot(*path.T, "-", color="#39ff8c", lw=1.4)
    axes[0, 1].plot(*path[0], "o", color="#39ff8c", ms=4)
    titled(axes[0, 1], "(b) energy of (x, u) and one trajectory", "x", "u")
    grid_x, grid_b = np.meshgrid(np.linspace(-20, 20, 201), np.linspace(0.001, 0.999, 161))
    phi, psi = potentials(grid_x)
    density = np.exp(-grid_b * phi - (1 - grid_b) * psi)
    axes[1, 0].pcolormesh(grid_x, grid_b, density, cmap="Greys", vmax=0.25, rasterized=True)
    w = np.exp(log_weights - log_weights.max())
    axes[1, 0].scatter(x[0, :1000], beta[0, :1000], s=8 * w[0, :1000] + 0.6, color=BLUE, lw=0)
    titled(axes[1, 0], "(c) one chain, points as large as w$_1$", "x", "β")
    axes[1, 1].hist(plain[0], 40, range=(-20, 20), density=True, color=RED, alpha=0.4,
                    label="HMC, one chain")  # fmt: skip
    axes[1, 1].hist(x.ravel(), 80, range=(-20, 20), weights=w.ravel(), density=True, color=BLUE,
                    alpha=0.5, label="tempered, weighted")  # fmt: skip
    axes[1, 1].plot(X, target, color=INK, lw=1)
    axes[1, 1].legend(frameon=False, fontsize=8, loc="upper right")
    titled(axes[1, 1], "(d) histograms", "x", "density")
    for one in axes.flat:
        one.set_xlim(-20, 20)
    stuck = (plain < 0).mean(axis=1)
    masses = np.array([np.average(x[c] < 0, weights=w[c]) for c in range(len(x))])
    rows = [{"chain": c + 1, "HMC, share of x < 0": stuck[c], "tempered, share of x < 0": masses[c],
             "exact": 0.6} for c in range(len(x))]  # fmt: skip
    log_z = np.array(made["log_z"])
    errors = [each.std(ddof=1) / np.sqrt(len(x)) for each in (masses, log_z)]
    says = (
        f"{len(masses)} tempered chains of HMC give x < 0 the weight {masses.mean():.3f} ± "
        f"{errors[0]:.3f} (exact 0.6) and log Z = {log_z.mean():.3f} ± {errors[1]:.3f} (exact 0). "
        "Plain HMC gives it "
        f"{', '.join(f'{s:.2f}' for s in stuck)}. stanct's own sampler, NUTS with a learned bias "
        f"and an atom, gives {own['left']:.3f} ± {own['left_error']:.3f} and log Z = "
        f"{own['log_z']:.3f} ± {own['std_error']:.3f}. Of 200 trajectories of 20 units of time "
        f"from the left mode {crossing.size} reach the middle of the right one, and the first of "
        f"these is drawn. Its energy varies by {drift:.3f}."
    )
    verdict = (
        " As in the paper, it goes from one mode to the other where u is small, plain HMC stays in "
        "one mode, and the weighted draws have both. HMC has 20 steps of length 1, as in the "
        "authors' notebook."
    )
    return Made(rows, figure, work.judged(says, verdict))


def path_energy_error(path: np.ndarray, dt: float) -> float:
    """Range of the total energy along a trajectory, with momenta from central differences."""
    p = (path[2:] - path[:-2]) / (2 * dt)
    total = energy(path[1:-1, 0], path[1:-1, 1]) + 0.5 * np.square(p).sum(axis=1)
    return float(np.ptp(total))


def largest_score(draws: np.ndarray, beta: np.ndarray, density: np.ndarray) -> float:
    """The largest |z| of ten bins of β, given draws of shape (chains, draws) and their density.

    A spike at β = 0 counts, too: it is in the first bin.
    """
    edges = np.linspace(0, 1, 11)
    cumulative = np.concatenate([[0.0], np.cumsum(0.5 * (density[1:] + density[:-1]))])
    masses = np.diff(np.interp(edges, beta, cumulative / cumulative[-1]))
    scores = []
    for low, high, mass in zip(edges[:-1], edges[1:], masses, strict=True):
        inside = ((draws >= low) & (draws < high)).astype(float)
        error = inside.std() / np.sqrt(effective_size(inside))
        scores.append(abs(inside.mean() - mass) / error)
    return float(max(scores))


def bounds(work: Work) -> Made:
    """The β-marginal p(β) ∝ z(β)/ζ^β of two modes, with its upper and its two lower bounds.

    The paper's draws of β have no atom at 0, so that ours have none here.
    """
    zetas = (0.0, 1.5)
    jobs = [{"chains": 4, "draws": 500 if work.quick else 2500, "log_zeta": zeta, "seed": seed,
             "atom": 0.0}
            for zeta, seed in zip(zetas, seeds(work.seed, 2), strict=True)]  # fmt: skip
    found = work.parts.every(bimodal_draws, jobs)
    phi, psi = potentials(X)
    beta = np.linspace(0, 1, 101)
    z = trapezoid(np.exp(-beta[:, None] * phi - (1 - beta[:, None]) * psi), X)
    forth = float(trapezoid(np.exp(-psi) * (phi - psi), X))  # KL(base ‖ target), log Z = 0
    back = float(trapezoid(np.exp(-phi) * (psi - phi), X))
    figure, axes = panels(1, 2, (9.0, 3.4), sharey=False)
    rows, worst = [], []
    for one, zeta, made in zip(axes[0], zetas, found, strict=True):
        tilt = np.exp(-zeta * beta)
        total = trapezoid(z * tilt, beta)
        curves = {
            "p(β)": z * tilt / total,
            "upper": tilt / total,
            "lower, KL(base ‖ target)": tilt * np.exp(-beta * forth) / total,
            "lower, KL(target ‖ base)": tilt * np.exp(-(1 - beta) * back) / total,
        }
        values = np.array(made["beta"]).ravel()
        one.hist(values, 25, range=(0, 1), density=True, color=BLUE, alpha=0.3, label="draws")
        worst.append(largest_score(np.array(made["beta"]), beta, curves["p(β)"]))
        for (name, curve), style in zip(curves.items(), ("-", "--", ":", "-."), strict=True):
            one.plot(beta, curve, style, color=INK if name == "p(β)" else ORANGE, lw=1.4,
                     label=name)  # fmt: skip
        titled(one, f"log ζ = {zeta:g}, log Z = 0", "β", "density")
        rows += [{"log ζ": zeta, "β": b, **{name: float(c[k]) for name, c in curves.items()},
                  "largest score of ten bins of draws": worst[-1]}
                 for k, b in enumerate(beta)]  # fmt: skip
    axes[0, 1].legend(frameon=False, fontsize=7.5)
    slack = 1e-6
    held = all(
        max(r["lower, KL(base ‖ target)"], r["lower, KL(target ‖ base)"]) <= r["p(β)"] + slack
        and r["p(β)"] <= r["upper"] + slack for r in rows
    )  # fmt: skip
    says = (
        f"With log Z = 0, KL(base ‖ target) is {forth:.2f} and KL(target ‖ base) {back:.2f} nats, "
        f"by quadrature. At 101 values of β and two of log ζ the bounds "
        f"{'hold' if held else 'FAIL'}. In ten bins of β, the draws of joint tempering differ "
        f"from p(β) by at most {worst[0]:.1f} standard errors with log ζ = {zetas[0]:g}, and by at "
        f"most {worst[1]:.1f} with {zetas[1]:g}. They have no atom at β = 0 (`atom=0`), as p(β) "
        "has none; the default puts a twentieth of the draws there."
    )
    verdict = " The paper has these bounds as formulas, without a picture."
    return Made(rows, figure, work.judged(says, verdict))


@functools.cache
def system(number: int) -> Any:
    """A system of Figure 2: 0 to 4 are published, 5 to 9 generated, and −1 is a small one."""
    systems = example("boltzmann", "systems")
    if number < 0:
        return systems.generated(8, 1)
    return systems.published(number) if number < 5 else systems.generated(30, 1000 + number)


@functools.cache
def base_for(number: int, repeat: int, seed: int) -> Any:
    """The mean-field base of one repetition on a system."""
    rng = np.random.default_rng([seed, number + 1, repeat])
    return system(number).machine.mean_field(rng)


def boltzmann_run(number: int, repeat: int, method: str, length: int, seed: int) -> dict[str, Any]:
    """Part: errors of one run relative to the base's, with gradients and processor seconds.

    AIS has `length` temperatures and 32 particles. The others have `length` times their shortest
    run.
    """
    boltzmann = example("boltzmann")
    model = stanct.temper(EXAMPLES.parent / "stan_models" / "boltzmann" / "boltzmann.stan")
    chosen = system(number)
    base = base_for(number, repeat, seed)
    own = np.random.SeedSequence([seed, number + 1, repeat, list(METHODS).index(method), length])
    scale = boltzmann.errors(chosen, base.log_zeta, base.base.mean, base.base.covariance)
    run_seed = int(own.generate_state(1)[0] % 2**30)
    started = time.process_time()
    if method == "ais":
        run = model.sample(
            chosen.machine.stan_data(), stanct.AIS(temperatures=length, island=16), chains=1,
            draws=32, seed=run_seed, base=base.base, log_zeta=base.log_zeta, progress=False,
        )  # fmt: skip
        found = boltzmann.errors(
            chosen, run.bare_evidence.log_z,
            *boltzmann.moments(run.variables["x"], run.target_log_weights),
        )  # fmt: skip
        gradients = run.gradients
    else:
        found, gradients = boltzmann.sampled(model, chosen, base, method, length, run_seed)
    return {
        "system": number, "repeat": repeat, "method": method, "length": length,
        "gradients": gradients, "cpu": time.process_time() - started,
        **dict(zip(MEASURES, found / scale, strict=True)),
    }  # fmt: skip


def form_of_the_paper(name: str, log_zeta: float) -> tuple[stanct.Method, str]:
    """A method as the paper has it, and the one of ours whose number of draws it takes.

    The bias is linear with slope log ζ, and not learned. β = 0 has no atom. Simulated tempering has
    the 1,001 rungs of the authors' notebook, a sigmoid of even numbers from −4 to 4, and each draw
    of the rung takes all of them into account.
    """
    linear = ((0.0, 0.0), (1.0, log_zeta))
    if name == LADDER:
        rungs = expit(np.linspace(-4, 4, 1001))
        rungs = (rungs - rungs[0]) / (rungs[-1] - rungs[0])
        method = stanct.SimulatedTempering(rungs=tuple(rungs), bias=linear, bootstrap=0)
        return method, "simulated_tempering"
    kind, ours = {
        GIBBS: (stanct.Gibbs, "gibbs"), JOINT: (stanct.Joint, "joint")
    }[name]  # fmt: skip
    return kind(bias=linear, atom=0.0, bootstrap=0), ours


def paper_run(number: int, repeat: int, form: str, length: int, seed: int) -> dict[str, Any]:
    """Part: a run of a method in the paper's form, in the form of the others.

    log Z is that of the chains alone, as in the paper.
    """
    boltzmann = example("boltzmann")
    chosen, base = system(number), base_for(number, repeat, seed)
    place = len(METHODS) + list(FORMS).index(form)
    state = np.random.SeedSequence([seed, number + 1, repeat, place, length])
    own = int(state.generate_state(1)[0] % 2**30)
    scale = boltzmann.errors(chosen, base.log_zeta, base.base.mean, base.base.covariance)
    started = time.process_time()
    if form == HMC:
        moves = 350 + 900 * length  # as many gradients as Gibbs takes
        x, log_weights, log_z, gradients = joint_by_hmc(
            chosen.machine, base.base, base.log_zeta, moves, own
        )
    else:
        method, ours = form_of_the_paper(form, base.log_zeta)
        model = stanct.temper(EXAMPLES.parent / "stan_models" / "boltzmann" / "boltzmann.stan")
        run = model.sample(
            chosen.machine.stan_data(), method, chains=boltzmann.CHAINS, engine="embedded",
            seed=own, base=base.base, log_zeta=base.log_zeta, progress=False,
            **boltzmann.chosen(ours, length)[1],
        )  # fmt: skip
        x, log_weights = run.variables["x"], run.target_log_weights
        log_z, gradients = run.bare_evidence.log_z, run.gradients
    found = boltzmann.errors(chosen, log_z, *boltzmann.moments(x, log_weights))
    return {
        "system": number, "repeat": repeat, "method": form, "length": length,
        "gradients": gradients, "cpu": time.process_time() - started,
        **dict(zip(MEASURES, found / scale, strict=True)),
    }  # fmt: skip


def figure_2(work: Work) -> Made:
    """Errors on Boltzmann machine relaxations against gradients and against processor time."""
    numbers = (-1,) if work.quick else tuple(range(10))
    lengths = work.lengths or ((1,) if work.quick else (1, 3, 10))
    temperatures = (100,) if work.quick else (1000, 5000, 10_000)
    jobs = [
        {"number": number, "repeat": repeat, "method": method, "length": length, "seed": work.seed}
        for repeat in range(work.times(10))
        for number in numbers
        for method in METHODS
        for length in (temperatures if method == "ais" else lengths)
    ]
    theirs = [
        {"number": number, "repeat": repeat, "form": form, "length": length, "seed": work.seed}
        for repeat in range(work.times(10))
        for number in numbers
        for form in FORMS
        for length in lengths
    ]
    made, as_in_the_paper = work.parts.kinds((boltzmann_run, jobs), (paper_run, theirs))
    found = present(made) + [
        result | {"method": job["form"]}
        for job, result in zip(theirs, as_in_the_paper, strict=True)
        if result is not None
    ]
    rows = mean_errors(found)
    runs = len({(r["system"], r["repeat"]) for r in found})
    says = longest_runs(rows, runs, len({r["system"] for r in found}))
    return Made(rows, errors_by_cost(rows), work.judged(says, beside_the_paper(rows)))


def relaxation_draws(units: int, count: int, seed: int) -> dict[str, Any]:
    """Part: exact draws of a relaxation, in the plane of its two longest directions."""
    rng = np.random.default_rng(seed)
    machine = authors_machine() if units == 28 else BoltzmannMachine.random(units, rng)
    signs = exact_signs(machine, count, rng)
    plane = leading_plane(machine)
    x = relaxed_draws(machine, signs, rng)
    return {"points": x @ plane, "dimension": machine.dimension,
            "states": len(np.unique(signs, axis=0))}  # fmt: skip


def figure_5(work: Work) -> Made:
    """Exact draws of a relaxation with 28 units, projected onto two directions."""
    job = {"units": 20 if work.quick else 28, "count": 2000 if work.quick else 10_000,
           "seed": seeds(work.seed, 1)[0]}  # fmt: skip
    (made,) = work.parts.every(relaxation_draws, [job])
    points = np.array(made["points"])
    figure, axes = panels(1, 1, (6.0, 4.2))
    axes[0, 0].plot(*points.T, ".", color=BLUE, ms=2, mew=0, alpha=0.6)
    axes[0, 0].set_aspect("equal")
    titled(
        axes[0, 0],
        f"{len(points):,} exact draws, {job['units']} units",
        "direction 1",
        "direction 2",
    )
    rows = [{"direction 1": a, "direction 2": b} for a, b in points[:200]]
    says = (
        f"{len(points):,} independent draws of a relaxation of {job['units']} units in "
        f"{made['dimension']} dimensions, projected onto the two directions in which the machine's "
        f"states spread most. The draws come from {made['states']:,} different states; their "
        f"standard deviations are {points[:, 0].std():.1f} and {points[:, 1].std():.1f}, where "
        "those of one mode are 1."
    )
    verdict = (
        " As in the paper, the projection shows many separate clusters. The machine is the "
        "authors': their notebook has its seed, 201702, and how its numbers are drawn. The draws "
        "are our own. The CSV file has the first 200 points."
    )
    return Made(rows, figure, work.judged(says, verdict))


ITEMS = (
    Item("gs-figure-1", "Graham & Storkey, Figure 1: two modes on the line", figure_1),
    Item(
        "gs-figure-2",
        "Graham & Storkey, Figure 2: Boltzmann machine relaxations",
        figure_2,
        ("parts", "repeats", "lengths"),
    ),
    Item("gs-figure-3a", "Graham & Storkey, Figure 3 (a): factor graph of radon", figure_3a, ()),
    Item("gs-figure-3", "Graham & Storkey, Figure 3: evidence of the radon model", figure_3),
    Item(
        "gs-figure-4",
        "Graham & Storkey, Figure 4: evidence of a decoder's images",
        figure_4,
        ("parts", "repeats", "data"),
    ),
    Item(
        "gs-figure-4-thousand",
        "Graham & Storkey, Figure 4: a thousand images",
        figure_4_thousand,
        ("parts", "repeats", "data"),
    ),
    Item("gs-figure-5", "Graham & Storkey, Figure 5: exact draws of a relaxation", figure_5),
    Item(
        "gs-figure-6",
        "Graham & Storkey, Figure 6: images that a decoder generates",
        figure_6,
        ("repeats", "data"),
    ),
    Item(
        "gs-figure-7",
        "Graham & Storkey, Figure 7: images of the second decoder",
        figure_7,
        ("repeats", "data"),
    ),
    Item("gs-bounds", "Graham & Storkey, (23), (40), (43): bounds on p(β)", bounds),
)

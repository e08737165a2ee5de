"""Gobbo & Leimkuhler (2015), *Extended Hamiltonian approach to continuous tempering*.

The extended Hamiltonian H = λ(ξ) U(x) + W(ξ) + ½ (|p|² + p_ξ²) has λ = 1 for |ξ| ≤ ξ₀, and falls to
λ_min at ξ₁ by a smooth step. Langevin dynamics moves x and ξ, metadynamics learns W, and draws with
|ξ| ≤ ξ₀ follow the target. The target here is the bimodal density of Graham & Storkey's Figure 1,
because none of the paper's was at hand.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from common import BLUE, INK, ORANGE, QUIET, Item, Made, Work, panels, seeds, titled
from scipy.stats import norm

PLATEAU, REACH, WALL, LEAST = 1 / 3, 1.0, 4 / 3, 0.04
STEP, FRICTION = 0.15, 0.5
HEIGHT, WIDTH, SOFTENING, BINS = 0.02, 0.12, 6.0, 100
CENTRES = (np.arange(BINS) + 0.5) * WALL / BINS


def energy(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """U and its derivative for 0.6 N(−8, 1²) + 0.4 N(8, 2²)."""
    left, right = x + 8, (x - 8) / 2
    log_left, log_right = np.log(0.6) - 0.5 * left**2, np.log(0.2) - 0.5 * right**2
    log_p = np.logaddexp(log_left, log_right)
    slope = np.exp(log_left - log_p) * left + np.exp(log_right - log_p) * right / 2
    return 0.5 * np.log(2 * np.pi) - log_p, slope


def coupling(xi: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """λ(ξ) and its derivative."""
    s = np.clip((np.abs(xi) - PLATEAU) / (REACH - PLATEAU), 0, 1)
    slope = -(1 - LEAST) * 6 * s * (1 - s) / (REACH - PLATEAU) * np.sign(xi)
    return 1 - (1 - LEAST) * (3 * s**2 - 2 * s**3), slope


@dataclass
class Walkers:
    """Walkers that share one learned bias W, a sum of hills on a grid of |ξ|."""

    x: np.ndarray
    xi: np.ndarray
    rng: np.random.Generator
    tempered: bool = True
    bias: np.ndarray = field(default_factory=lambda: np.zeros(BINS))

    def __post_init__(self) -> None:
        self.p, self.q = self.rng.standard_normal((2, self.x.size))

    def kick(self) -> None:
        """Half a step of all forces on the momenta."""
        value, slope = energy(self.x)
        lam, along = coupling(self.xi)
        self.p -= 0.5 * STEP * lam * slope
        if self.tempered:
            pull = np.interp(np.abs(self.xi), CENTRES, np.gradient(self.bias, CENTRES))
            self.q -= 0.5 * STEP * 0.2 * (along * value + np.sign(self.xi) * pull)

    def drift(self) -> None:
        """Half a step of the positions, with elastic walls at ±WALL; ξ is five times as heavy."""
        self.x += 0.5 * STEP * self.p
        if self.tempered:
            self.xi += 0.5 * STEP * self.q
            out = np.abs(self.xi) > WALL
            self.xi[out] = np.sign(self.xi[out]) * 2 * WALL - self.xi[out]
            self.q[out] = -self.q[out]

    def step(self) -> None:
        """A step of BAOAB (Leimkuhler & Matthews 2013), with the exact friction in its middle."""
        kept = np.exp(-FRICTION * STEP)
        self.kick()
        self.drift()
        noise = self.rng.standard_normal((2, self.x.size)) * np.sqrt(1 - kept**2)
        self.p = kept * self.p + noise[0]
        self.q = kept * self.q + np.sqrt(0.2) * noise[1]
        self.drift()
        self.kick()

    def learn(self) -> None:
        """A hill of well-tempered metadynamics from each walker, with images at 0 and the wall."""
        place = np.abs(self.xi)
        height = HEIGHT * np.exp(-np.interp(place, CENTRES, self.bias) / SOFTENING)
        for image in (place, -place, 2 * WALL - place):
            away = (CENTRES[:, None] - image) / WIDTH
            self.bias += (height * np.exp(-0.5 * away**2)).sum(axis=1) / place.size * 8


def dynamics_run(
    tempered: bool, walkers: int, steps: int, learning: int, seed: int
) -> dict[str, Any]:
    """Part: learn the bias, freeze it, and collect x and ξ of walkers that start in one mode."""
    rng = np.random.default_rng(seed)
    group = Walkers(8 + 2 * rng.standard_normal(walkers), np.zeros(walkers), rng, tempered)
    for k in range(learning if tempered else 0):
        group.step()
        if k % 10 == 0:
            group.learn()
    edges = np.linspace(-15, 15, 121)
    counts, visits = np.zeros(edges.size - 1), np.zeros(BINS)
    left, cold = np.zeros(walkers), np.zeros(walkers)
    for _ in range(steps):
        group.step()
        here = np.abs(group.xi) <= PLATEAU
        counts += np.histogram(group.x[here], edges)[0]
        visits += np.histogram(np.abs(group.xi), BINS, (0, WALL))[0]
        left += here & (group.x < 0)
        cold += here
    # Walkers share the frozen bias alone, so their ratio has the error of independent ones.
    share = float(left.sum() / cold.sum())
    error = float(np.sqrt(np.square(left - share * cold).sum()) / cold.sum())
    return {"tempered": tempered, "bias": group.bias, "visits": visits / visits.sum() * BINS,
            "counts": counts / counts.sum() / 0.25, "share": share, "error": error,
            "cold": float(cold.mean() / steps)}  # fmt: skip


def dynamics(work: Work) -> Made:
    """The coupling, the learned bias, visits of ξ, and the draws on the plateau."""
    jobs = [{"tempered": tempered, "walkers": 64 if work.quick else 256,
             "steps": 3000 if work.quick else 20_000, "learning": 3000 if work.quick else 20_000,
             "seed": seeds(work.seed, 1)[0]} for tempered in (True, False)]  # fmt: skip
    with_it, without = work.parts.every(dynamics_run, jobs)
    xi, x = np.linspace(0, WALL, 401), np.linspace(-80, 80, 8001)
    lam = coupling(xi)[0]
    free = -np.array([np.logaddexp.reduce(-value * energy(x)[0]) for value in lam])
    free -= free[0]
    bias = np.array(with_it["bias"])
    learned = bias[CENTRES < PLATEAU].mean() - bias
    limit = SOFTENING / (SOFTENING + 1) * np.interp(CENTRES, xi, free)
    figure, axes = panels(1, 4, (13.0, 3.2))
    axes[0, 0].plot(xi, lam, color=BLUE)
    titled(axes[0, 0], "(a) λ(ξ)", "ξ")
    axes[0, 1].plot(CENTRES, learned, ".", ms=4, color=BLUE, label="minus the learned bias")
    axes[0, 1].plot(CENTRES, limit, "--", color=INK, lw=1, label="its limit")
    titled(axes[0, 1], "(b) metadynamics", "ξ", "nats")
    expected = np.exp(-np.interp(CENTRES, xi, free) - bias)
    expected /= expected.mean()
    axes[0, 2].stairs(with_it["visits"], np.linspace(0, WALL, BINS + 1), color=BLUE)
    axes[0, 2].plot(CENTRES, expected, color=INK, lw=1, label="exp(−F − W)")
    axes[0, 2].set_ylim(0, None)
    titled(axes[0, 2], "(c) visits of ξ", "ξ", "relative to even ones")
    edges, grid = np.linspace(-15, 15, 121), np.linspace(-15, 15, 601)
    for made, colour, label in ((without, ORANGE, "λ = 1"), (with_it, BLUE, "|ξ| ≤ ξ$_0$")):
        axes[0, 3].stairs(made["counts"], edges, color=colour, label=label)
    exact = 0.6 * norm.pdf(grid, -8, 1) + 0.4 * norm.pdf(grid, 8, 2)
    axes[0, 3].plot(grid, exact, color=INK, lw=1, label="exact")
    titled(axes[0, 3], "(d) draws", "x", "density")
    for one in axes[0, 1:]:
        one.legend(frameon=False, fontsize=7.5)
    axes[0, 0].axvline(PLATEAU, color=QUIET, lw=0.8)
    rows = [{"ξ": a, "minus the bias": b, "limit": c, "visits": d, "expected visits": e}
            for a, b, c, d, e in zip(CENTRES, learned, limit, with_it["visits"], expected,
                                     strict=True)]  # fmt: skip
    gap = np.abs(np.array(with_it["visits"]) / expected - 1)
    says = (
        f"Draws on the plateau give x < 0 the weight {with_it['share']:.3f} ± "
        f"{with_it['error']:.3f} (exact 0.6); Langevin dynamics alone, which starts at x > 0, "
        f"{without['share']:.3f}. Walkers are on the plateau for {with_it['cold']:.1%} of the "
        f"time. The learned bias is within {np.abs(learned - limit).max():.2f} nats of its "
        "limit, 6/7 of the free energy, and visits are within "
        f"{np.median(gap):.1%} of exp(−F − W) at the median ξ."
    )
    verdict = (
        " Langevin moves and a learned bias make the extended Hamiltonian a sampler of the target, "
        "as Graham & Storkey tell. stanct.TACT(thermostat=None, bias='hills') moves in this way, "
        "too. None of the paper's pictures was at hand, and the target is our own."
    )
    return Made(rows, figure, work.judged(says, verdict))


ITEMS = (Item("gl-dynamics", "Gobbo & Leimkuhler: Langevin moves and a learned bias", dynamics),)

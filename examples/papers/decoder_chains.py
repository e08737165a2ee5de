"""Samplers of codes for many images at once: AIS, both its directions, and three temperings.

One row is one chain of one image. All rows move together, so that each leapfrog step is three
products of matrices forward and three back. Rows are in the coordinates z of their encoder's
Gaussian, x = m + s z, so that the base is N(0, I). Energies are those of the paper's section 7.4:
ψ = ½|z|², φ = −log p(m + s z, y) − Σ log s + log ζ, and δ = φ − ψ. The bias β log ζ is inside δ.
Step sizes and numbers of steps are fixed, as in the authors' notebooks.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from decoder_nets import Network
from scipy.special import expit

from stanct.path.bias import Bias, LadderBias, sigmoidal_ladder

STEPS = 10  # of a trajectory


@dataclass
class Rows:
    """Images, one row for each chain, and what their energies need, in single precision."""

    layers: tuple[tuple[np.ndarray, np.ndarray], ...]
    images: np.ndarray
    mean: np.ndarray
    sd: np.ndarray
    offset: np.ndarray
    gradients: int = 0

    @classmethod
    def of(cls, network: Network, images: np.ndarray, log_zeta: np.ndarray, chains: int) -> Rows:
        """`chains` rows for each image, those of an image next to each other."""
        mean, sd = network.base(images)
        offset = log_zeta - np.log(sd).sum(axis=1)

        def rows(values: np.ndarray) -> np.ndarray:
            return values.repeat(chains, axis=0).astype(np.float32)

        layers = tuple((w.astype(np.float32), b.astype(np.float32)) for w, b in network.decoder)
        return cls(layers, rows(images), rows(mean), rows(sd), offset.repeat(chains))

    def evaluate(self, z: np.ndarray, *, energy: bool) -> tuple[np.ndarray, np.ndarray | None]:
        """The gradient of φ in z, of the shape of `z`, and δ in double precision if wanted."""
        (w1, b1), (w2, b2), (w3, b3) = self.layers
        x = self.mean + self.sd * z
        first = np.tanh(x @ w1 + b1)
        second = np.tanh(first @ w2 + b2)
        logits = second @ w3
        logits += b3
        delta = None
        if energy:
            # −log p(y | x) = Σ log(1 + exp(∓ logit)), with the sign of the pixel.
            log_odds = logits * (1 - 2 * self.images)
            likely = np.maximum(log_odds, 0) + np.log1p(np.exp(-np.abs(log_odds)))
            squares = 0.5 * (np.square(x).sum(axis=1) - np.square(z).sum(axis=1))
            delta = likely.sum(axis=1, dtype=float) + squares + self.offset
        np.negative(logits, out=logits)
        np.exp(logits, out=logits)
        logits += 1
        np.reciprocal(logits, out=logits)
        logits -= self.images
        back = logits @ w3.T
        back *= 1 - np.square(second)
        back = back @ w2.T
        back *= 1 - np.square(first)
        self.gradients += len(z)
        return self.sd * (x + back @ w1.T), delta


@dataclass
class State:
    """Positions of all rows, with δ and the gradient of φ there."""

    z: np.ndarray
    gradient: np.ndarray
    delta: np.ndarray

    @classmethod
    def at(cls, rows: Rows, z: np.ndarray) -> State:
        """The state at positions."""
        z = z.astype(np.float32)
        gradient, delta = rows.evaluate(z, energy=True)
        assert delta is not None
        return cls(z, gradient, delta)

    def replace(self, other: State, there: np.ndarray) -> None:
        """Take the rows of another state where `there`."""
        self.z[there] = other.z[there]
        self.gradient[there] = other.gradient[there]
        self.delta[there] = other.delta[there]


def move(
    rows: Rows, state: State, beta: np.ndarray, step: float, rng: np.random.Generator
) -> float:
    """One transition of HMC for every row at its own β; returns the mean acceptance."""
    warm = beta.astype(np.float32)[:, None]

    def force(z: np.ndarray, gradient: np.ndarray) -> np.ndarray:
        return z + warm * (gradient - z)

    def energy(z: np.ndarray, delta: np.ndarray, p: np.ndarray) -> np.ndarray:
        return beta * delta + 0.5 * (np.square(z) + np.square(p)).sum(axis=1, dtype=float)

    p = rng.standard_normal(state.z.shape, dtype=np.float32)
    before = energy(state.z, state.delta, p)
    z, gradient, delta = state.z.copy(), state.gradient, None
    p = p - 0.5 * step * force(z, gradient)
    for k in range(STEPS):
        z = z + step * p
        gradient, delta = rows.evaluate(z, energy=k == STEPS - 1)
        p = p - (step if k < STEPS - 1 else 0.5 * step) * force(z, gradient)
    assert delta is not None
    chance = np.exp(np.minimum(before - energy(z, delta, p), 0))
    chance[~np.isfinite(chance)] = 0
    state.replace(State(z, gradient, delta), rng.random(len(chance)) < chance)
    return float(chance.mean())


def move_jointly(
    rows: Rows, state: State, u: np.ndarray, *, scale: float, step: float, rng: np.random.Generator
) -> float:
    """One transition of HMC on (z, u), β = logistic(u / scale), with `u` moved in place."""

    def forces(
        z: np.ndarray, u: np.ndarray, gradient: np.ndarray, delta: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        beta = expit(u / scale)
        slope = beta * (1 - beta) * delta - (1 - 2 * beta)
        warm = beta.astype(np.float32)[:, None]
        return z + warm * (gradient - z), slope / scale

    def energy(z: np.ndarray, u: np.ndarray, delta: np.ndarray, p: np.ndarray,
               v: np.ndarray) -> np.ndarray:  # fmt: skip
        beta = expit(u / scale)
        control = np.logaddexp(0, u / scale) + np.logaddexp(0, -u / scale)
        squares = (np.square(z) + np.square(p)).sum(axis=1, dtype=float) + np.square(v)
        return beta * delta + 0.5 * squares + control

    p = rng.standard_normal(state.z.shape, dtype=np.float32)
    v = rng.standard_normal(u.size)
    before = energy(state.z, u, state.delta, p, v)
    z, w, gradient, delta = state.z.copy(), u.copy(), state.gradient, state.delta
    for _ in range(STEPS):
        # Each half step of the momenta starts from the gradient that the last one ended with.
        on_z, on_u = forces(z, w, gradient, delta)
        p, v = p - 0.5 * step * on_z, v - 0.5 * step * on_u
        z, w = z + np.float32(step) * p, w + step * v
        gradient, found = rows.evaluate(z, energy=True)
        assert found is not None
        delta = found
        on_z, on_u = forces(z, w, gradient, delta)
        p, v = p - 0.5 * step * on_z, v - 0.5 * step * on_u
    chance = np.exp(np.minimum(before - energy(z, w, delta, p, v), 0))
    chance[~np.isfinite(chance)] = 0
    there = rng.random(len(chance)) < chance
    state.replace(State(z, gradient, delta), there)
    u[there] = w[there]
    return float(chance.mean())


def annealed(
    rows: Rows, temperatures: int, step: float, rng: np.random.Generator,
    codes: np.ndarray | None = None,
) -> np.ndarray:  # fmt: skip
    """Log weights of annealed importance sampling, shape (rows,).

    With `codes`, draws of the target in the coordinates z, particles go from the target to the
    base. Minus the log of their mean weight is then an upper bound on average.
    """
    ladder = sigmoidal_ladder(temperatures)
    start = rng.standard_normal(rows.mean.shape) if codes is None else codes
    state = State.at(rows, start)
    log_weights = np.zeros(len(start))
    ladder = ladder if codes is None else ladder[::-1]
    for last, beta in itertools.pairwise(ladder):
        log_weights -= (beta - last) * state.delta
        move(rows, state, np.full(len(start), beta), step, rng)
    return log_weights


def gibbs(rows: Rows, step: float, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """δ of all rows after each transition of Gibbs continuous tempering."""
    state, law = State.at(rows, rng.standard_normal(rows.mean.shape)), Bias.linear(0.0)
    beta = rng.random(len(state.z))
    while True:
        move(rows, state, beta, step, rng)
        beta = law.sample_beta(state.delta, rng.random((2, beta.size)))
        yield state.delta.copy()


def simulated(
    rows: Rows, temperatures: int, step: float, rng: np.random.Generator
) -> Iterator[np.ndarray]:
    """δ of all rows after each transition of simulated tempering."""
    ladder = sigmoidal_ladder(temperatures)
    state = State.at(rows, rng.standard_normal(rows.mean.shape))
    beta = rng.choice(ladder, len(state.z))
    while True:
        move(rows, state, beta, step, rng)
        # The largest of the log chances plus Gumbel noise is a draw of the rung.
        noise = rng.gumbel(size=(beta.size, ladder.size))
        beta = ladder[(noise - state.delta[:, None] * ladder).argmax(axis=1)]
        yield state.delta.copy()


def joint(rows: Rows, scale: float, step: float, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """δ of all rows after each transition of joint continuous tempering."""
    state = State.at(rows, rng.standard_normal(rows.mean.shape))
    u = scale * rng.standard_normal(len(state.z))
    while True:
        move_jointly(rows, state, u, scale=scale, step=step, rng=rng)
        yield state.delta.copy()


def running_log_z(
    deltas: Iterator[np.ndarray], bias: Bias | LadderBias, ends: np.ndarray, chains: int
) -> tuple[np.ndarray, np.ndarray]:
    """log Z − log ζ by Rao–Blackwell weights ([GS] 20), without a warm-up.

    Parameters
    ----------
    deltas
        δ of all rows, one transition after the other.
    ends
        Numbers of first draws, increasing.

    Returns
    -------
    pooled : shape (ends, images)
        From the chains of an image together.
    single : shape (chains, images)
        From all draws of each chain.
    """
    total: np.ndarray | None = None
    pooled = []
    for draw in range(1, int(ends[-1]) + 1):
        delta = next(deltas).reshape(-1, chains).T
        new = np.array([bias.log_weights(delta, beta) for beta in (0.0, 1.0)])
        total = new if total is None else np.logaddexp(total, new)
        if draw in ends:
            base, target = np.logaddexp.reduce(total, axis=1)
            pooled.append(target - base)
    assert total is not None
    return np.array(pooled), total[1] - total[0]

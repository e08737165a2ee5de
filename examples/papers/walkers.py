"""Three samplers of Nemeth et al.'s Table 1 that stanct does not have, on mixtures in the plane.

They are the repelling–attracting Metropolis algorithm (RAM; Tak, Meng & van Dyk 2018), the
equi-energy sampler (EE; Kou, Zhou & Wong 2006) and parallel tempering by random walks (PT), the
last two with the same temperatures and energies. Every run starts uniformly in the unit square.
"""

from __future__ import annotations

import numpy as np
from numba import njit

TEMPERATURES = np.array([1.0, 2.8, 7.7, 21.6, 60.0])
ENERGIES = np.array([0.2, 2.0, 6.3, 20.0, 63.2])
WALK = 0.25  # scale of a random walk, times the root of its temperature
JUMP = 0.1  # probability of a jump between chains instead of a step of the random walk
RAM_SCALE = {"a": 4.0, "b": 4.0}
LOG_TINY = -708.0  # RAM adds the smallest double to every density
MOST_TRIES = 100_000


@njit
def log_density(x, y, log_height, centre, half_precision):
    """The log density of a mixture with weights in `log_height`."""
    top = -np.inf
    for k in range(log_height.size):
        square = (x - centre[k, 0]) ** 2 + (y - centre[k, 1]) ** 2
        top = max(top, log_height[k] - half_precision[k] * square)
    total = 0.0
    for k in range(log_height.size):
        square = (x - centre[k, 0]) ** 2 + (y - centre[k, 1]) ** 2
        total += np.exp(log_height[k] - half_precision[k] * square - top)
    return top + np.log(total)


@njit
def _forced(x, y, here, sign, scale, mixture):
    """A forced move: repeated proposals until one is accepted downhill (−1) or uphill (+1)."""
    for tries in range(1, MOST_TRIES + 1):
        a = x + scale * np.random.standard_normal()  # noqa: NPY002 - numba's own generator
        b = y + scale * np.random.standard_normal()  # noqa: NPY002
        there = log_density(a, b, *mixture)
        gain = np.logaddexp(there, LOG_TINY) - np.logaddexp(here, LOG_TINY)
        if np.log(np.random.random()) < sign * gain:  # noqa: NPY002
            return a, b, there, tries
    return x, y, here, MOST_TRIES


@njit
def ram(seed, draws, warmup, scale, mixture):
    """Draws, shape (draws, 2), and the number of densities."""
    np.random.seed(seed)  # noqa: NPY002
    x, y = np.random.random(), np.random.random()  # noqa: NPY002
    here = log_density(x, y, *mixture)
    _, _, below, tries = _forced(x, y, here, -1.0, scale, mixture)
    found, calls = np.empty((draws, 2)), tries
    for n in range(-warmup, draws):
        a, b, low, tries = _forced(x, y, here, -1.0, scale, mixture)
        calls += tries
        a, b, there, tries = _forced(a, b, low, 1.0, scale, mixture)
        calls += tries
        _, _, aside, tries = _forced(a, b, there, -1.0, scale, mixture)
        calls += tries
        tiny_here, tiny_there = np.logaddexp(here, LOG_TINY), np.logaddexp(there, LOG_TINY)
        forth = min(0.0, tiny_here - np.logaddexp(below, LOG_TINY))
        back = min(0.0, tiny_there - np.logaddexp(aside, LOG_TINY))
        if np.log(np.random.random()) < there - here + forth - back:  # noqa: NPY002
            x, y, here, below = a, b, there, aside
        if n >= 0:
            found[n, 0], found[n, 1] = x, y
    return found, calls


@njit
def parallel(seed, draws, warmup, log_height, centre, half_precision):
    """Parallel tempering: with probability `JUMP` neighbours swap, else every chain walks."""
    np.random.seed(seed)  # noqa: NPY002
    chains = TEMPERATURES.size
    places = np.random.random((chains, 2))  # noqa: NPY002
    here = np.array([log_density(p[0], p[1], log_height, centre, half_precision) for p in places])
    found, calls = np.empty((draws, 2)), chains
    for n in range(-warmup, draws):
        if np.random.random() < JUMP:  # noqa: NPY002
            k = np.random.randint(chains - 1)  # noqa: NPY002
            gain = (1 / TEMPERATURES[k] - 1 / TEMPERATURES[k + 1]) * (here[k + 1] - here[k])
            if np.log(np.random.random()) < gain:  # noqa: NPY002
                for axis in range(2):
                    places[k, axis], places[k + 1, axis] = places[k + 1, axis], places[k, axis]
                here[k], here[k + 1] = here[k + 1], here[k]
        else:
            for k in range(chains):
                scale = WALK * np.sqrt(TEMPERATURES[k])
                a = places[k, 0] + scale * np.random.standard_normal()  # noqa: NPY002
                b = places[k, 1] + scale * np.random.standard_normal()  # noqa: NPY002
                there = log_density(a, b, log_height, centre, half_precision)
                calls += 1
                if np.log(np.random.random()) < (there - here[k]) / TEMPERATURES[k]:  # noqa: NPY002
                    places[k, 0], places[k, 1], here[k] = a, b, there
        if n >= 0:
            found[n, 0], found[n, 1] = places[0, 0], places[0, 1]
    return found, calls


@njit
def _ring(energy):
    """The number of an energy's ring."""
    ring = 0
    for k in range(1, ENERGIES.size):
        if energy >= ENERGIES[k]:
            ring = k
    return ring


@njit
def equi_energy(seed, draws, warmup, log_height, centre, half_precision):
    """The equi-energy sampler, from the hottest chain down to the target.

    Each chain follows exp(−max(h, H_i) / T_i), where h is the energy. With probability `JUMP` it
    proposes a past state of the next hotter chain that has an energy in the same ring.
    """
    np.random.seed(seed)  # noqa: NPY002
    chains, calls = TEMPERATURES.size, 0
    past, past_energy = np.empty((draws, 2)), np.empty(draws)
    members, sizes = np.empty((chains, draws), np.int64), np.zeros(chains, np.int64)
    for k in range(chains - 1, -1, -1):
        temperature, floor = TEMPERATURES[k], ENERGIES[k]
        x, y = np.random.random(), np.random.random()  # noqa: NPY002
        h = -log_density(x, y, log_height, centre, half_precision)
        own, own_energy = np.empty((draws, 2)), np.empty(draws)
        for n in range(-warmup, draws):
            ring = _ring(h)
            if k < chains - 1 and np.random.random() < JUMP and sizes[ring] > 0:  # noqa: NPY002
                picked = members[ring, np.random.randint(sizes[ring])]  # noqa: NPY002
                new = past_energy[picked]
                hotter, its_floor = TEMPERATURES[k + 1], ENERGIES[k + 1]
                gain = (max(h, floor) - max(new, floor)) / temperature
                gain -= (max(h, its_floor) - max(new, its_floor)) / hotter
                a, b = past[picked, 0], past[picked, 1]
            else:
                scale = WALK * np.sqrt(temperature)
                a = x + scale * np.random.standard_normal()  # noqa: NPY002
                b = y + scale * np.random.standard_normal()  # noqa: NPY002
                new = -log_density(a, b, log_height, centre, half_precision)
                calls += 1
                gain = (max(h, floor) - max(new, floor)) / temperature
            if np.log(np.random.random()) < gain:  # noqa: NPY002
                x, y, h = a, b, new
            if n >= 0:
                own[n, 0], own[n, 1], own_energy[n] = x, y, h
        past, past_energy = own, own_energy
        sizes[:] = 0
        for n in range(draws):
            ring = _ring(past_energy[n])
            members[ring, sizes[ring]] = n
            sizes[ring] += 1
    return past, calls


def mixture_of(data: dict) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Log heights, centres and half the precisions of a mixture's components."""
    sigma = np.asarray(data["sigma"], float)
    log_height = np.log(data["weight"]) - 2 * np.log(sigma) - np.log(2 * np.pi)
    return log_height, np.asarray(data["centre"], float), 0.5 / sigma**2


def walk(method: str, scenario: str, data: dict, draws: int, seed: int) -> tuple[np.ndarray, int]:
    """Draws of RAM, EE or PT, shape (draws, 2), and the number of densities.

    A fifth of `draws` more iterations come first; EE and PT have as many as `draws`.
    """
    mixture = mixture_of(data)
    if method == "RAM":
        return ram(seed, draws, draws // 5, RAM_SCALE[scenario], mixture)
    sampler = {"EE": equi_energy, "PT": parallel}[method]
    return sampler(seed, draws, draws, *mixture)

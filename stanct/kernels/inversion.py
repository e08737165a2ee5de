"""Draws of β given x by inversion, on a continuous path or on a ladder."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from stanct.common.arrays import Array
from stanct.common.compiling import compiled

# The least β that is no atom.
SMALLEST = 1e-300
# Where the exponent differs by less over a piece, the difference of the ends' exponentials has too
# few digits.
LEVEL = 1e-3
# A part of a piece that rounds to −1 would have a log of zero.
LEAST_PART = -1 + 1e-16


class BetaLaw(NamedTuple):
    """The bias at knots, shape (K,), on which the law of β given x depends apart from δ(x).

    `atom` is p₀, the weight of β = 0, 0 for none. `masses`, shape (K,), is working memory.
    """

    knots: Array
    values: Array
    atom: float
    masses: Array


def make_law(knots: Array, values: Array, atom: float = 0.0) -> BetaLaw:
    """Make the law of β under a bias, with its working memory."""
    return BetaLaw(knots, values, float(atom), np.zeros(knots.size))


@compiled
def draw_beta(delta: float, law: BetaLaw, choose: float, place: float) -> float:
    """Draw β given x for a piecewise-linear bias by inversion of two uniforms ([GS] 17).

    The atom has probability p₀ / (p₀ + (1 − p₀) M), and 1 where δ = +inf; no other β is then 0.
    """
    knots, values, masses, atom = law.knots, law.values, law.masses, law.atom
    if atom > 0 and delta == np.inf:
        return 0.0
    pieces = knots.size - 1
    top = -np.inf
    for k in range(knots.size):
        height = -knots[k] * delta - values[k]
        if height > top:
            top = height
    # The integral of exp over a piece, relative to the height of the top, by its ends.
    start, total = -knots[0] * delta - values[0] - top, 0.0
    low = math.exp(start)
    for k in range(pieces):
        end = -knots[k + 1] * delta - values[k + 1] - top
        high, size = math.exp(end), end - start
        if abs(size) < LEVEL:
            mean = low * (1 + size * (0.5 + size * (1 / 6 + size / 24)))
        else:
            mean = (high - low) / size
        total += (knots[k + 1] - knots[k]) * mean
        masses[k] = total
        start, low = end, high
    if atom > 0:
        share = 1 / (1 + math.exp(math.log((1 - atom) / atom) + top + math.log(total)))
        if choose < share:
            return 0.0
        choose = (choose - share) / (1 - share)
    piece = 0
    while piece < pieces - 1 and masses[piece] <= choose * total:
        piece += 1
    width = knots[piece + 1] - knots[piece]
    r = -width * delta - (values[piece + 1] - values[piece])
    if abs(r) < 1e-12:
        t = place
    else:
        v = 1 - place if r > 0 else place
        part = v * math.expm1(-abs(r))
        t = math.log1p(part if part > LEAST_PART else LEAST_PART) / -abs(r)
        t = 1 - t if r > 0 else t
    if t > 1:
        t = 1.0
    beta = knots[piece] + width * (t if t > 0 else 0.0)
    return SMALLEST if atom > 0 and beta < SMALLEST else beta


@compiled
def draw_rung(delta: float, law: BetaLaw, choose: float) -> int:
    """Draw the rung given x, P(n | x) ∝ exp(−β_n δ − b_n), from a uniform ([GS] 6)."""
    betas, values, masses = law.knots, law.values, law.masses
    top = -values[0]
    for n in range(betas.size):
        masses[n] = -values[n] - (betas[n] * delta if n > 0 else 0.0)
        top = max(top, masses[n])
    total = 0.0
    for n in range(betas.size):
        total += math.exp(masses[n] - top)
        masses[n] = total
    rung = 0
    while rung < betas.size - 1 and masses[rung] <= choose * total:
        rung += 1
    return rung

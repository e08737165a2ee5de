"""Seven targets with known evidences, written once for every tool.

Each is a likelihood under z ~ N(0, I), so that all tools begin with the same knowledge. The same
functions serve NumPy, JAX and PyTensor. Programs for NUTS and for stanct have the target alone.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
from scipy.special import erf, logsumexp

EXAMPLES = Path(__file__).resolve().parents[1]
LOG_2PI = math.log(2 * math.pi)
# NumPy as the functions below want it; `peers.py` makes the same of JAX and PyTensor.
NUMPY = SimpleNamespace(np=np, erf=erf, logsumexp=lambda a: logsumexp(a, axis=-1))


@dataclass(frozen=True, eq=False)
class Target:
    """A program with its data and log Z, and the same as a likelihood.

    Attributes
    ----------
    log_likelihood
        Takes a namespace with `np`, `erf` and `logsumexp`, and z, shape (..., D); shape (...).
    """

    group: str
    dimension: int
    program: Path
    data: dict[str, Any]
    log_z: float
    log_likelihood: Callable[[Any, Any], Any]


def radon() -> Target:
    """A hierarchy of 919 homes in 85 counties; its exact log Z is a quadrature's."""
    folder = EXAMPLES / "radon"
    data = json.loads((folder / "radon.data.json").read_text())
    homes, uranium, y = (
        np.array(data[name]) for name in ("floor_measure", "log_uranium", "log_radon")
    )
    county, groups = np.array(data["county"]) - 1, data["J"]

    def log_likelihood(of: Any, z: Any) -> Any:
        share = 0.5 * (1 + of.erf(z[..., :3] / math.sqrt(2)))
        scales = 2.5 * of.np.tan(0.5 * math.pi * share)  # half Cauchy
        alpha, beta, noise = scales[..., 0:1], scales[..., 1:2], scales[..., 2:3]
        slopes = z[..., 4:5] + beta * z[..., 5:7]
        effects = z[..., 3:4] + alpha * z[..., 7 : 7 + groups]
        fitted = effects[..., county] + slopes[..., 0:1] * homes + slopes[..., 1:2] * uranium
        squares = of.np.sum(of.np.square((y - fitted) / noise), axis=-1)
        return -0.5 * squares - y.size * (of.np.log(noise)[..., 0] + 0.5 * LOG_2PI)

    log_z = json.loads((folder / "truth.json").read_text())["log_z"]
    return Target("radon", 7 + groups, folder / "radon.stan", data, log_z, log_likelihood)


def mixture20() -> Target:
    """Twenty separated normals; z are the coordinates of a Gaussian around their square."""
    folder = EXAMPLES / "mixture20"
    centres = np.array(json.loads((folder / "centres.json").read_text())["centre"])
    count, sd, middle, width = len(centres), 0.1, 5.0, 3.5

    def log_likelihood(of: Any, z: Any) -> Any:
        x = middle + width * z
        square = sum(of.np.square((x[..., k : k + 1] - centres[:, k]) / sd) for k in (0, 1))
        log_p = of.logsumexp(-0.5 * square) - math.log(count) - LOG_2PI - 2 * math.log(sd)
        log_prior = -0.5 * of.np.sum(of.np.square(z), axis=-1) - LOG_2PI - 2 * math.log(width)
        return log_p - log_prior

    data = {"K": count, "weight": [1 / count] * count, "centre": centres.tolist(),
            "sigma": [sd] * count}  # fmt: skip
    return Target("mixture20", 2, folder / "mixture20.stan", data, 0.0, log_likelihood)


def boltzmann(number: int) -> Target:
    """A relaxed Boltzmann machine of Graham & Storkey; z are coordinates of its mean-field base."""
    sys.path.insert(0, str(EXAMPLES / "boltzmann"))
    from systems import PROGRAM, published

    system = published(number)
    factor, biases = system.machine.factor, system.machine.biases
    base = system.machine.mean_field(np.random.default_rng(0)).base
    mean, lower = base.mean, base.scale
    log_det = float(np.linalg.slogdet(lower)[1])
    product, shift = factor @ lower, factor @ mean + biases

    def log_likelihood(of: Any, z: Any) -> Any:
        size = of.np.abs(z @ product.T + shift)
        log_cosh = of.np.sum(size + of.np.log1p(of.np.exp(-2 * size)) - math.log(2), axis=-1)
        x = mean + z @ lower.T
        log_prior = -0.5 * of.np.sum(of.np.square(z), axis=-1) - 0.5 * mean.size * LOG_2PI
        return log_cosh - 0.5 * of.np.sum(of.np.square(x), axis=-1) + log_det - log_prior

    data = {k: np.asarray(v).tolist() for k, v in system.machine.stan_data().items()}
    return Target("boltzmann", mean.size, PROGRAM, data, system.truth.log_z, log_likelihood)


TARGETS: dict[str, Callable[[], Target]] = {
    "radon": radon,
    "mixture20": mixture20,
    **{f"boltzmann_{k}": lambda k=k: boltzmann(k) for k in range(5)},
}

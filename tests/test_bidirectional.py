"""Bidirectional Monte Carlo: brackets, their errors, and draws that are not exact."""

from __future__ import annotations

import numpy as np
import pytest
from analytic import gaussian
from sampled import sampled

import stanct
from stanct.common.errors import SamplingError, StanctError
from stanct.stan.program import Program
from stanct.targets.function_target import FunctionDensity, FunctionTarget

HIERARCHY = """
data { int J; int N; array[N] int g; vector[N] y; }
parameters { real mu; real<lower=0> tau; real<lower=0> s; vector[J] eta; }
model {
  mu ~ normal(0, 1);
  tau ~ normal(0, 1);
  s ~ normal(0, 1);
  eta ~ std_normal();
  y ~ normal(mu + tau * eta[g], s);
}
"""


def simulated(rng: np.random.Generator) -> tuple[dict, dict]:
    """Parameters from the prior, and data from them."""
    group = np.repeat(np.arange(4), 5)
    truth = {
        "mu": rng.standard_normal(),
        "tau": abs(rng.standard_normal()),
        "s": abs(rng.standard_normal()),
        "eta": rng.standard_normal(4),
    }
    mean = truth["mu"] + truth["tau"] * truth["eta"][group]
    y = mean + truth["s"] * rng.standard_normal(20)
    return {"J": 4, "N": 20, "g": group + 1, "y": y}, truth


def exact_log_z(y: np.ndarray) -> float:
    """Given both scales y is normal, with eigenvectors that do not depend on them.

    What is left is a quadrature over log τ and log s. The program's half normals lack their
    factors 2, and so does this.
    """
    blocks = y.reshape(4, 5)
    within = np.square(blocks - blocks.mean(axis=1, keepdims=True)).sum()
    between = 5 * np.square(blocks.mean(axis=1) - y.mean()).sum()
    grid = np.linspace(-7, 2, 400)
    tau, s = np.exp(grid)[:, None], np.exp(grid)
    small, middle, large = s**2 + 0 * tau, s**2 + 5 * tau**2, s**2 + 5 * tau**2 + 20
    likelihood = -0.5 * (
        16 * np.log(small) + 3 * np.log(middle) + np.log(large) + 20 * np.log(2 * np.pi)
        + within / small + between / middle + 20 * y.mean() ** 2 / large
    )  # fmt: skip
    prior = -np.log(2 * np.pi) - 0.5 * (tau**2 + s**2) + grid[:, None] + grid
    return float(np.logaddexp.reduce(likelihood + prior, axis=None) + 2 * np.log(grid[1] - grid[0]))


def test_simulated_hierarchical_data_are_bracketed(seed: int) -> None:
    data, truth = simulated(np.random.default_rng(3))
    model = stanct.TemperedModel(Program.from_source(HIERARCHY, name="hierarchy"))
    found = model.bidirectional(
        data,
        truth,
        stanct.AIS(temperatures=100),
        base="laplace",
        seed=seed,
        draws=96,
        progress=False,
    )
    log_z = exact_log_z(data["y"])
    assert found.lower - 4 * found.lower_error < log_z < found.upper + 4 * found.upper_error
    assert found.lower_error < 0.3 and found.upper_error < 0.3
    assert -4 * found.gap_error < found.gap < 0.5
    assert "≤ log Z ≤" in repr(found) and len(repr(found).splitlines()) <= 3


def test_short_schedules_err_on_their_own_sides(seed: int) -> None:
    case = gaussian(20)
    # As wide as the target: weights from a target to a wider base have heavy tails.
    base = stanct.GaussianBase(case.mean + np.sqrt(case.variance), np.diag(np.sqrt(case.variance)))
    *shorts, long = (
        sampled(
            "bidirectional", case.target,
            exact=lambda rng: case.mean + np.sqrt(case.variance) * rng.standard_normal(20),
            base=base, seed=seed + more, temperatures=count, draws=96, threads=1, progress=False,
        )
        for more, count in enumerate((4, 4, 4, 4, 4, 4, 4, 40))
    )  # fmt: skip
    # Single gaps have heavy tails.
    assert np.median([short.gap for short in shorts]) > long.gap + 0.2
    short = shorts[0]
    assert abs(long.upper - case.log_z) < 4 * long.upper_error < 0.6
    assert abs(long.lower - case.log_z) < 4 * long.lower_error < 0.6
    low, high = short.bounds(0.95)
    assert low == pytest.approx(short.lower - np.log(40)) and low < case.log_z < high
    assert long.gradients > long.forward.gradients > 0


def test_both_directions_are_unbiased() -> None:
    """The mean of the weights is Z and 1/Z, even with a handful of temperatures."""
    case = gaussian(2)
    sd = np.sqrt(case.variance)
    base = stanct.GaussianBase(case.mean + 0.7 * sd, np.diag(sd))
    ratios = []
    for k in range(30):
        found = sampled(
            "bidirectional", case.target,
            exact=lambda rng: case.mean + sd * rng.standard_normal(2), base=base, seed=k,
            temperatures=3, draws=16, island=8, chains=2, warmup=2, threads=1, progress=False,
        )  # fmt: skip
        ratios.append((np.exp(found.lower - case.log_z), np.exp(case.log_z - found.upper)))
    mean, error = np.mean(ratios, axis=0), np.std(ratios, axis=0) / np.sqrt(30)
    assert np.all(error < 0.06)
    assert np.all(np.abs(mean - 1) < 4 * error)


def test_impossible_draws(seed: int) -> None:
    case = gaussian(3)
    settings = {"base": case.base, "threads": 1, "progress": False, "seed": seed}
    with pytest.raises(SamplingError, match="shape"):
        sampled("bidirectional", case.target, exact=np.zeros(2), **settings)
    with pytest.raises(SamplingError, match="by name"):
        sampled("bidirectional", case.target, exact={"x": 1}, **settings)
    half = FunctionTarget(FunctionDensity(lambda x: (-np.inf, 0 * x), 3))
    with pytest.raises(SamplingError, match="vanishes"):
        sampled("bidirectional", half, exact=np.zeros(3), **settings)
    data, truth = simulated(np.random.default_rng(3))
    model = stanct.TemperedModel(Program.from_source(HIERARCHY, name="hierarchy"))
    with pytest.raises(SamplingError, match="no value of the program's parameters"):
        model.bidirectional(data, truth | {"tau": -1.0})
    with pytest.raises(SamplingError, match="There is no option 'rungs'"):
        model.bidirectional(data, truth, rungs=3)  # pyright: ignore[reportCallIssue]
    found = sampled(
        "bidirectional",
        case.target,
        exact=np.zeros(3),
        **settings,
        draws=32,
        temperatures=4,
        warmup=2,
    )
    with pytest.raises(StanctError, match="between 0 and 1"):
        found.bounds(95)

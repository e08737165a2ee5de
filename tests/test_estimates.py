"""Estimators against exact answers, with draws of the joint density made without MCMC.

The target is Z · N(μ, s²) and the base N(0, 1). Under the bias log z(β) the marginal of β is
uniform and x given β is normal, so exact independent draws of the joint density are at hand.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

from stanct.common.arrays import log_sum_exp
from stanct.estimates import digits
from stanct.estimates.averages import expectation, weighted_quantile
from stanct.estimates.mixing import effective_size
from stanct.estimates.path import Evidence, PathEstimator
from stanct.path.bias import Bias
from stanct.path.course import beta_grid


@dataclass(frozen=True)
class GaussianPath:
    """Base N(0, 1), target Z · N(mean, sd²); everything in closed form."""

    mean: float = 1.5
    sd: float = 0.4
    log_z: float = -7.0

    def log_target(self, x: np.ndarray) -> np.ndarray:
        return self.log_z + norm.logpdf(x, self.mean, self.sd)

    def delta(self, x: np.ndarray) -> np.ndarray:
        return norm.logpdf(x) - self.log_target(x)

    def moments(self, beta: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        precision = beta / self.sd**2 + 1 - beta
        return beta * self.mean / self.sd**2 / precision, precision**-0.5

    def curve(self, beta: np.ndarray) -> np.ndarray:
        mean, sd = self.moments(beta)
        exponent = -0.5 * (beta * self.mean**2 / self.sd**2 - mean**2 / sd**2)
        return beta * (self.log_z - np.log(self.sd)) + np.log(sd) + exponent

    def speed(self, beta: np.ndarray) -> np.ndarray:
        """The mean absolute deviation of δ at each β, by sums over a fine grid of x."""
        mean, sd = self.moments(beta)
        t = np.linspace(-9, 9, 4001)
        delta = self.delta(mean[:, None] + sd[:, None] * t)
        weights = norm.pdf(t) / norm.pdf(t).sum()
        return np.abs(delta - (delta @ weights)[:, None]) @ weights

    def draw(self, bias: Bias, shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
        """x from the joint density under `bias`, by inversion of the β-marginal on a fine grid."""
        grid = np.linspace(0, 1, 20_001)
        density = np.exp(self.curve(grid) - bias(grid))
        cumulative = np.concatenate([[0], np.cumsum((density[1:] + density[:-1]) / 2)])
        beta = np.interp(rng.random(shape), cumulative / cumulative[-1], grid)
        mean, sd = self.moments(beta)
        return mean + sd * rng.standard_normal(shape)


PATH = GaussianPath()
LINEAR = Bias.linear(-6.5)
TABLE = Bias.from_curve(beta_grid(), PATH.curve(beta_grid()), tolerance=0.3)


def estimator(
    rng: np.random.Generator, bias: Bias, *, base: int = 2000, draws: int = 1000
) -> tuple[PathEstimator, np.ndarray]:
    x = PATH.draw(bias, (4, draws), rng)
    return PathEstimator(PATH.delta(x), PATH.delta(rng.standard_normal(base)), bias), x


@pytest.mark.parametrize("bias", [LINEAR, TABLE], ids=["linear", "table"])
@pytest.mark.parametrize("base", [0, 2000], ids=["rao-blackwell", "bridge"])
def test_log_z_and_its_error(rng: np.random.Generator, bias: Bias, base: int) -> None:
    evidence = estimator(rng, bias, base=base)[0].evidence("exact draws")
    assert abs(evidence.log_z - PATH.log_z) < 4 * evidence.std_error
    assert evidence.std_error < 0.06
    assert ("bridge" in evidence.method) == (base > 0)


@pytest.mark.parametrize("base", [0, 500], ids=["rao-blackwell", "bridge"])
def test_errors_are_calibrated(rng: np.random.Generator, base: int) -> None:
    """Within-chain and base errors alone, on independent draws, must match the actual spread."""
    errors, claimed = [], []
    for _ in range(200):
        path = estimator(rng, LINEAR, base=base, draws=125)[0]
        errors.append(path.log_z(1.0) - PATH.log_z)
        claimed.append(np.hypot(*path.error(1.0)[:2]))
    ratio = np.std(errors) / np.mean(claimed)
    assert 0.85 < ratio < 1.15
    assert abs(np.mean(errors)) < 4 * np.std(errors) / np.sqrt(200) + 0.01


def test_bridge_never_needs_the_base_end_of_the_chain(rng: np.random.Generator) -> None:
    """With base draws the curve starts at 0 exactly, and the error is smaller than without."""
    path, _ = estimator(rng, LINEAR)
    alone = PathEstimator(path.delta, np.zeros(0), LINEAR)
    assert path.log_z(0.0) == pytest.approx(0, abs=1e-10)
    assert np.hypot(*path.error(1.0)[:2]) < alone.error(1.0)[0]


@pytest.mark.parametrize("base", [0, 2000], ids=["rao-blackwell", "bridge"])
def test_curve_along_the_path(rng: np.random.Generator, base: int) -> None:
    beta = np.array([0.0, 0.01, 0.2, 0.5, 0.9, 1.0])
    curve = estimator(rng, TABLE, base=base)[0].curve(beta)
    assert np.all(np.abs(curve.log_z - PATH.curve(beta)) < 4 * curve.std_error + 1e-9)
    assert np.all(curve.std_error < 0.06)


def test_the_curve_ends_in_the_evidence(rng: np.random.Generator) -> None:
    path, _ = estimator(rng, LINEAR, draws=100)
    end, evidence = path.curve(np.array([1.0])), path.evidence("curve")
    assert (end.log_z[0], end.std_error[0]) == (evidence.log_z, evidence.std_error)


def test_hard_support(rng: np.random.Generator) -> None:
    """A target cut to x > 0.5: the Rao–Blackwell ratio misses log q(S), the bridge does not."""
    cut = 0.5
    x = PATH.draw(LINEAR, (4, 40_000), rng)
    x = np.stack([row[row > cut][:8000] for row in x])
    base_x = rng.standard_normal(8000)
    base_delta = np.where(base_x > cut, PATH.delta(base_x), np.inf)
    truth = PATH.log_z + norm.logsf((cut - PATH.mean) / PATH.sd)
    evidence = PathEstimator(PATH.delta(x), base_delta, LINEAR).evidence("cut")
    assert abs(evidence.log_z - truth) < 4 * evidence.std_error
    assert evidence.std_error < 0.05
    alone = PathEstimator(PATH.delta(x), np.zeros(0), LINEAR).log_z(1.0)
    assert alone - truth == pytest.approx(-norm.logsf(cut), abs=0.1)


def test_influence_matches_finite_differences(rng: np.random.Generator) -> None:
    """Reweighting one draw slightly moves log ẑ by its influence over the sample's size."""
    path, _ = estimator(rng, Bias.linear(-10.0), base=50, draws=20)  # far off, so that C is not 1
    share = path.share
    assert abs(path.log_c) > 0.5
    chain, base = path.influence(0.7)
    step = 1e-5

    def log_z(chain_weight: np.ndarray, base_weight: np.ndarray) -> float:
        log_r = path.log_mass.ravel()
        base_log_r = path.bias.log_mass(path.base_delta)
        log_c = path.log_c
        g, base_g = chain_weight, base_weight
        for _ in range(200):  # Newton's method on the constraint that defines C
            g = 1 / (1 - share + share * np.exp(log_r - log_c))
            base_g = 1 / (1 - share + share * np.exp(base_log_r - log_c))
            excess = share * (chain_weight * g).sum() + (1 - share) * (base_weight * base_g).sum()
            slope = share * (chain_weight * g * (1 - (1 - share) * g)).sum()
            slope += (1 - share) * (base_weight * base_g * (1 - (1 - share) * base_g)).sum()
            log_c -= (excess - 1) / slope
        h = np.exp(-0.7 * path.delta.ravel()) * g
        base_h = np.exp(-0.7 * path.base_delta) * base_g
        return float(
            np.log(share * (chain_weight * h).sum() + (1 - share) * (base_weight * base_h).sum())
        )

    def tilted(size: int, index: int | None) -> np.ndarray:
        weight = np.full(size, 1 / size)
        if index is not None:
            weight *= 1 - step
            weight[index] += step
        return weight

    size, base_size = path.delta.size, path.base_delta.size
    start = log_z(tilted(size, None), tilted(base_size, None))
    for index in (0, 17, 63):
        moved = log_z(tilted(size, index), tilted(base_size, None))
        expected = chain.ravel()[index] - chain.mean()
        assert (moved - start) / step == pytest.approx(expected, rel=1e-3, abs=1e-4)
    for index in (0, 31):
        moved = log_z(tilted(size, None), tilted(base_size, index))
        assert (moved - start) / step == pytest.approx(
            base[index] - base.mean(), rel=1e-3, abs=1e-4
        )


@pytest.mark.parametrize(("beta", "mean", "sd"), [(1.0, 1.5, 0.4), (0.0, 0.0, 1.0)])
def test_expectation(rng: np.random.Generator, beta: float, mean: float, sd: float) -> None:
    path, x = estimator(rng, LINEAR)
    both = np.stack([x, np.square(x - mean)], axis=-1)
    found = expectation(both, path.log_weights(beta), beta)
    assert np.all(np.abs(found.value - [mean, sd**2]) < 4 * found.std_error)
    assert np.all(found.std_error < 0.1)


def test_between_chain_error_wins_when_chains_disagree(rng: np.random.Generator) -> None:
    values = rng.standard_normal((4, 500)) + np.array([0, 0, 0, 3.0])[:, None]
    found = expectation(values, np.zeros((4, 500)), 1.0)
    assert found.std_error >= values.mean(axis=1).std(ddof=1) / 2
    single = expectation(values[:1], np.zeros((1, 500)), 1.0)
    assert np.isfinite(single.std_error)


def test_the_larger_of_both_errors_is_reported(rng: np.random.Generator) -> None:
    """Over twenty short runs each of the two errors wins sometimes."""
    wins = []
    for _ in range(20):
        path, _ = estimator(rng, LINEAR, draws=50)
        evidence, base_error = path.evidence("short"), path.error(1.0)[1]
        larger = max(evidence.within_error, evidence.between_error)
        assert evidence.std_error == pytest.approx(np.hypot(larger, base_error))
        assert evidence.between_error == pytest.approx(np.std(evidence.chain_log_z, ddof=1) / 2)
        wins.append(evidence.between_error > evidence.within_error)
    assert 0 < sum(wins) < 20


def test_autocorrelation_widens_the_error(rng: np.random.Generator) -> None:
    noise = rng.standard_normal((4, 2000))
    chain = np.zeros_like(noise)
    for t in range(1, noise.shape[1]):
        chain[:, t] = 0.9 * chain[:, t - 1] + noise[:, t]
    # An AR(1) chain with coefficient 0.9 has 19 times fewer effective draws.
    assert effective_size(chain) == pytest.approx(8000 / 19, rel=0.35)


def test_weighted_quantile(rng: np.random.Generator) -> None:
    path, x = estimator(rng, LINEAR, draws=5000)
    found = weighted_quantile(x, path.log_weights(1.0), np.array([0.05, 0.5, 0.95]))
    assert found == pytest.approx(norm.ppf([0.05, 0.5, 0.95], 1.5, 0.4), abs=0.05)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (0.23, "log Z = -30.8442 ± 0.2300   (95 %: -31.295 to -30.393)"),
        (5.2e-4, "log Z = -30.84421 ± 0.00052   (95 %: -30.8452 to -30.8432)"),
        (3e-6, "log Z = -30.844212 ± 0.000003   (95 %: -30.84422 to -30.84421)"),
        (float("inf"), "log Z = -30.8442 ± inf   (95 %: -inf to inf)"),
    ],
)
def test_the_digits_of_log_z_follow_its_error(error: float, words: str) -> None:
    found = Evidence(-30.844212345, error, "m", error / 2, error / 3, 100, 0.1, (1.0,))
    assert repr(found).splitlines()[0] == words
    assert words.split("   ")[0] in found._repr_html_()
    assert found.base_error == pytest.approx(np.sqrt(0.75) * error)


def test_errors_below_rounding_are_not_written_as_zeros() -> None:
    assert [digits.decimals(error) for error in (0.3, 0.00123, 4e-7, 1e-14, np.inf)] == [
        4, 4, 6, 6, 4,
    ]  # fmt: skip
    assert digits.shown(4.2e-6, 6) == "0.000004"
    assert digits.shown(2e-10, 6) == "below 1e-6"
    assert digits.shown(0.0, 4) == "0.0000"


@pytest.mark.parametrize("shape", [(), (1,), (7,), (3, 5), (2, 3, 4)])
@pytest.mark.parametrize("holes", ["none", "-inf", "inf", "nan", "all -inf", "equal", "huge"])
def test_log_sum_exp_is_that_of_scipy(
    shape: tuple[int, ...], holes: str, rng: np.random.Generator
) -> None:
    values = np.asarray(30 * rng.standard_normal(shape))
    some = rng.random(shape) < 0.3
    if holes in ("-inf", "inf", "nan"):
        values = np.where(some, float(holes), values)
    elif holes != "none":
        values = np.full(shape, {"all -inf": -np.inf, "equal": 2.0, "huge": 1e300}[holes])
    for axis in (None, *range(len(shape))):
        with np.errstate(all="ignore"):
            wanted = np.asarray(logsumexp(values, axis=axis))
        found = log_sum_exp(values, axis)
        np.testing.assert_allclose(found, wanted, rtol=1e-14, strict=True)
    assert log_sum_exp(values[..., None][..., :0]) == -np.inf

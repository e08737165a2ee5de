"""log Z from copies: closed forms, honest errors, and hard support, on exact pseudo-extended draws.

A Gaussian target exp(LOG_Z) N(1, 0.7²) over the base N(0, 1) keeps the whole path Gaussian, so
independent draws of the extended target can be made without a chain: one copy is the target's, the
others are draws of the path.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax
from scipy.stats import norm

from stanct.common.arrays import Array
from stanct.estimates.copies import CopyEstimator, copy_log_weights
from stanct.path.bias import CopyBias

LOG_Z, MEAN, SD = -2.3, 1.0, 0.7
# Far from log z(β), so that nothing cancels by chance.
BIAS = CopyBias(np.array([0.0, 0.3, 1.0]), np.array([0.0, -0.2, -1.4]), np.array([0.0, -1.5, -0.6]))


def delta_of(x: Array) -> Array:
    return norm.logpdf(x) - norm.logpdf(x, MEAN, SD) - LOG_Z


def path(beta: Array) -> tuple[Array, Array, Array]:
    """Mean, standard deviation and log z of exp(−β φ − (1 − β) ψ)."""
    precision = beta / SD**2 + 1 - beta
    mean = beta * MEAN / SD**2 / precision
    square = beta * MEAN**2 / SD**2 - precision * mean**2
    return mean, precision**-0.5, beta * (LOG_Z - np.log(SD)) - 0.5 * (np.log(precision) + square)


def exact_draws(
    rng: np.random.Generator, shape: tuple[int, int, int], fixed: Array | None
) -> tuple[Array, Array]:
    """Independent draws of the extended target: δ and β, both of that shape."""
    # β of the path ∝ z(β) exp(−b(β)) g(β); that of the target's own copy ∝ g(β).
    grid = (np.arange(20000) + 0.5) / 20000
    prior = np.interp(grid, BIAS.beta, BIAS.log_prior)
    if fixed is None:
        beta = rng.choice(grid, size=shape, p=softmax(path(grid)[2] - BIAS(grid) + prior))
        chosen = rng.integers(shape[2], size=shape[:2])
    else:
        beta = np.broadcast_to(fixed, shape).copy()
        chosen = rng.choice(shape[2], size=shape[:2], p=softmax(BIAS(fixed) - path(fixed)[2]))
    mean, sd, _ = path(beta)
    x = rng.normal(mean, sd)
    first, second = np.indices(shape[:2])
    x[first, second, chosen] = rng.normal(MEAN, SD, size=shape[:2])
    if fixed is None:
        beta[first, second, chosen] = rng.choice(grid, size=shape[:2], p=softmax(prior))
    return delta_of(x), beta


@pytest.mark.parametrize("fixed", [None, [0.0, 0.4, 1.0], [0.1, 0.1]], ids=["free", "ends", "two"])
def test_evidence_and_its_error(fixed: list[float] | None, rng: np.random.Generator) -> None:
    beta = None if fixed is None else np.array(fixed)
    shape = (1, 300, 3 if fixed is None else len(fixed))
    scores, errors = [], []
    for _ in range(30):
        delta, _ = exact_draws(rng, shape, beta)
        estimator = CopyEstimator(delta, delta_of(rng.standard_normal(300)), BIAS, beta)
        # The draws are independent: no need of effective sizes.
        parts = [part.std() / np.sqrt(part.size) for part in estimator.influence]
        errors.append(np.hypot(*parts))
        scores.append((estimator.log_c[0] - LOG_Z) / errors[-1])
    assert abs(np.mean(scores)) < 4 / np.sqrt(30)
    assert 0.6 < np.sqrt(np.mean(np.square(scores))) < 1.4
    assert max(errors) < 0.05


@pytest.mark.parametrize("fixed", [None, [0.1, 0.1, 0.1]], ids=["free", "fixed"])
def test_copies_off_the_target_are_compared_with_the_base(
    fixed: list[float] | None, rng: np.random.Generator
) -> None:
    """Scores of exact draws are standard normal; those of copies that miss a tenth are large."""
    beta = None if fixed is None else np.array(fixed)
    scores = []
    for _ in range(30):
        delta, _ = exact_draws(rng, (1, 400, 3), beta)
        estimator = CopyEstimator(delta, delta_of(rng.standard_normal(1000)), BIAS, beta)
        scores.append(estimator.path_scores)
    assert np.abs(scores).max() < 4.5
    assert 0.7 < np.sqrt(np.square(scores).mean()) < 1.3
    delta, _ = exact_draws(rng, (1, 4000, 3), beta)
    kept = delta[:, (delta < np.quantile(delta, 0.9)).all(axis=(0, 2))]
    missing = CopyEstimator(kept, delta_of(rng.standard_normal(1000)), BIAS, beta)
    assert missing.path_scores.min() < -6
    assert missing.log_c[0] > LOG_Z + 0.02


def test_copies_with_different_fixed_beta_are_not_compared(rng: np.random.Generator) -> None:
    beta = np.array([0.1, 0.5])
    delta, _ = exact_draws(rng, (1, 100, 2), beta)
    estimator = CopyEstimator(delta, delta_of(rng.standard_normal(100)), BIAS, beta)
    assert estimator.path_scores.size == 0


def test_the_path_between(rng: np.random.Generator) -> None:
    """Where the path goes: log z(β) and the mean absolute deviation of δ, by quadrature."""
    delta, _ = exact_draws(rng, (1, 20000, 3), None)
    estimator = CopyEstimator(delta, delta_of(rng.standard_normal(20000)), BIAS)
    beta = np.array([0.0, 0.05, 0.5, 1.0])
    found = estimator.course(beta)
    mean, sd, exact = path(beta)
    assert found.log_z == pytest.approx(exact, abs=0.02)
    t = np.linspace(-9, 9, 4001)
    values = delta_of(mean[:, None] + sd[:, None] * t)
    weights = norm.pdf(t) / norm.pdf(t).sum()
    deviation = np.abs(values - (values @ weights)[:, None]) @ weights
    assert found.speed == pytest.approx(deviation, rel=0.03)


def test_weights_are_those_of_the_paper(rng: np.random.Generator) -> None:
    """Averages by the weights are the target's, and each draw's weights add up to one."""
    delta, beta = exact_draws(rng, (1, 20000, 3), None)
    weights = np.exp(copy_log_weights(delta, beta, BIAS))
    assert weights.sum(axis=2) == pytest.approx(1)
    expected = np.exp(-(1 - beta) * delta + BIAS(beta))
    assert weights == pytest.approx(expected / expected.sum(axis=2, keepdims=True))
    found = (weights * delta).sum(axis=2)
    t = np.linspace(-9, 9, 4001)
    exact = delta_of(MEAN + SD * t) @ norm.pdf(t) / norm.pdf(t).sum()
    error = found.std() / np.sqrt(found.size)
    assert abs(found.mean() - exact) < 4 * error < 0.05


def test_weights_without_the_noise_of_beta(rng: np.random.Generator) -> None:
    """Those of an estimator are the mean of the paper's over β given the copies."""
    delta, beta = exact_draws(rng, (1, 20000, 3), None)
    estimator = CopyEstimator(delta, np.zeros(1), BIAS)
    weights = np.exp(estimator.log_weights)
    assert weights.sum(axis=2) == pytest.approx(1)
    # By quadrature in β: given that copy j is the target's, β_j has the prior, the others the path.
    grid = (np.arange(20000) + 0.5) / 20000
    path = np.exp(
        -grid * delta[0, :5, :, None] - BIAS(grid) + np.interp(grid, BIAS.beta, BIAS.log_prior)
    )
    expected = np.exp(-delta[0, :5]) / path.mean(axis=-1)
    assert weights[0, :5] == pytest.approx(expected / expected.sum(axis=1, keepdims=True), rel=1e-6)
    mean, noisy = (weights * delta).sum(axis=2), np.exp(copy_log_weights(delta, beta, BIAS)) * delta
    assert abs(mean.mean() - noisy.sum(axis=2).mean()) < 4 * noisy.sum(axis=2).std() / 141
    assert mean.std() < noisy.sum(axis=2).std()


def test_weights_at_fixed_beta_are_those_of_the_paper(rng: np.random.Generator) -> None:
    fixed = np.array([0.0, 0.4, 1.0])
    delta, beta = exact_draws(rng, (2, 50, 3), fixed)
    estimator = CopyEstimator(delta, np.zeros(1), BIAS, fixed)
    assert np.array_equal(estimator.log_weights, copy_log_weights(delta, beta, BIAS))


def test_an_impossible_copy_at_the_base_weighs_nothing() -> None:
    """Fixed β = 0 lets a copy leave the target's support, at which δ = +inf."""
    delta, beta = np.array([[[np.inf, 0.3]]]), np.array([[[0.0, 1.0]]])
    assert np.exp(copy_log_weights(delta, beta, BIAS)) == pytest.approx(np.array([[[0.0, 1.0]]]))


def test_hard_support(rng: np.random.Generator) -> None:
    """A target on x > 0 of the base N(0, 1) has Z = 1/2; path and copies live there too."""
    z = np.abs(rng.standard_normal((2, 2000, 2)))
    base = np.where(rng.random(4000) < 0.5, 0.0, np.inf)
    estimator = CopyEstimator(np.zeros_like(z), base, CopyBias.linear(0.0))
    evidence = estimator.evidence("pseudo_extended")
    assert abs(evidence.log_z - np.log(0.5)) < 4 * evidence.std_error < 0.1


def test_overlap(rng: np.random.Generator) -> None:
    """One where base and target are the same, and less the farther they are apart."""
    same = CopyEstimator(np.zeros((2, 50, 3)), np.zeros(100), CopyBias.linear(0.0))
    assert same.overlap == pytest.approx(1)
    for far, least, most in ((1.0, 0.8, 0.95), (3.0, 0.35, 0.6), (5.0, 0.05, 0.17)):
        x, y = rng.normal(far, 1, (2, 200, 3)), rng.standard_normal(400)
        copies, base = (0.5 * far**2 - far * values for values in (x, y))
        assert least < CopyEstimator(copies, base, CopyBias.linear(0.0)).overlap < most


@pytest.mark.parametrize("fixed", [None, np.array([0.5, 1.0, 1.0])], ids=["free", "fixed"])
@pytest.mark.parametrize("gap", [40.0, 1e4, 1e6])
def test_without_overlap_nothing_is_known(
    gap: float, fixed: Array | None, rng: np.random.Generator
) -> None:
    copies = -gap + rng.standard_normal((2, 100, 3))
    found = CopyEstimator(copies, gap + rng.standard_normal(400), CopyBias.linear(0.0), fixed)
    evidence = found.evidence("pseudo_extended")
    assert not found.connected and found.overlap < 1e-8
    assert np.isnan(evidence.log_z) and evidence.std_error == np.inf
    assert evidence.effective_size == 0

"""Independent draws of a mixture, balanced over its components, and errors from their batches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pytest
from sampled import sampled
from scipy.special import logsumexp
from targets import TWO_MODES

import stanct
from stanct.common.arrays import Array
from stanct.estimates.averages import expectation
from stanct.estimates.path import PathEstimator
from stanct.estimates.tours import Tours, batches, effective_draws
from stanct.path.base import batch_of
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase
from stanct.path.mixture import BATCH, MixtureBase
from stanct.samplers._precision import Enough, Precision

PLACES, WIDTHS = np.array([-6.0, 0.0, 7.0]), np.array([1.0, 0.5, 1.0])
TARGET = np.array([0.5, 0.3, 0.2])
ATOM_ONLY = Bias(np.array([0.0, 1.0]), np.zeros(2), atom=0.05)


def mixture(weights: Array, wider: float = 1.0) -> MixtureBase:
    parts = [
        GaussianBase(np.array([m]), np.array([[wider * s]]))
        for m, s in zip(PLACES, WIDTHS, strict=True)
    ]
    return MixtureBase.of(weights, parts)


def log_target(x: Array, weights: Array) -> Array:
    logs = np.log(weights / WIDTHS) - 0.5 * np.square((x - PLACES) / WIDTHS)
    return np.asarray(logsumexp(logs, axis=-1)) - 0.5 * np.log(2 * np.pi)


class Found(NamedTuple):
    """Estimates of repeated runs, with errors of batches, and errors that know of none."""

    value: Array
    error: Array
    unaware: Array

    @property
    def ratios(self) -> tuple[float, float]:
        """The spread of the estimates over each mean error."""
        spread = self.value.std(ddof=1)
        return spread / self.error.mean(), spread / self.unaware.mean()


def repeated(
    rng: np.random.Generator, base: MixtureBase, weights: Array, *, thin: int = 1, cut: int = 0
) -> list[Found]:
    """log Z, the mean of x and the share of the last mode, by draws of the base with weights.

    Before the draws that are kept, of the four chains, so many are cut off.
    """
    rows: list[list[tuple[float, ...]]] = []
    for _ in range(120):
        z = np.stack([base.draw(rng, 400)[cut:] for _ in range(4)])
        x = base.unwhiten(z)
        delta = base.delta(z, log_target(x, weights))
        beta = (rng.random(delta.shape) > 0.05).astype(float)
        tours = [Tours.of(beta, ATOM_ONLY, batch) for batch in (batch_of(base), 1)]
        own = base.draw(rng, 1600)
        base_delta = base.delta(own, log_target(base.unwhiten(own), weights))
        log_z = [
            PathEstimator(base_delta[None, :4], base_delta, ATOM_ONLY, batch=batch)
            for batch in (batch_of(base), 1)
        ]
        at = np.arange(0, delta.shape[1], thin)
        log_weights, x = -delta[:, at], x[:, at, 0]
        found = [(log_z[0].log_z(1.0), *(one.error(1.0)[1] for one in log_z))]
        for values in (x, (x > 3.5).astype(float)):
            own_tours = [one and one.at(at) for one in tours]
            means = [expectation(values, log_weights, 1.0, tours=one) for one in own_tours]
            found.append((float(means[0].value), *(float(one.std_error) for one in means)))  # type: ignore[arg-type]
        rows.append(found)
    return [Found(*part.T) for part in np.moveaxis(np.array(rows), 1, 0)]


def test_each_batch_has_the_shares_of_the_components(seed: int) -> None:
    rng, weights = np.random.default_rng(seed), np.array([0.57, 0.401, 0.029])
    base = mixture(weights, 0.4)
    counts = []
    for _ in range(40):
        x = base.unwhiten(base.draw(rng, 5 * BATCH + 7))[:, 0]
        nearest = np.abs(x[:, None] - PLACES).argmin(axis=1)[: 5 * BATCH].reshape(5, BATCH)
        counts += [np.bincount(batch, minlength=3) for batch in nearest]
    off = np.array(counts) - BATCH * weights
    assert np.abs(off).max() < 1 + 1e-9
    # Who comes first in a batch is random, and so are the remainders of its shares.
    assert np.abs(off.mean(axis=0)).max() < 5 * 0.5 / np.sqrt(len(counts))
    assert batch_of(base) == BATCH and batch_of(mixture(weights).parts[0]) == 1


def test_errors_of_balanced_draws_are_those_that_they_have(seed: int) -> None:
    """Errors that take the draws as independent are three times too large for a mode's share."""
    base = mixture(np.array([0.48, 0.31, 0.21]), 1.05)
    log_z, mean, share = repeated(np.random.default_rng(seed), base, TARGET)
    for one in (mean, share):
        aware, unaware = one.ratios
        assert 0.65 < aware < 1.15 and unaware < 0.5 * aware
    assert 0.65 < log_z.ratios[0] < 1.2
    assert np.abs(share.value - 0.2).mean() < 3 * share.error.mean()
    assert np.mean(np.abs(share.value - 0.2) < 1.96 * share.error) > 0.9


@pytest.mark.parametrize(
    ("weights", "thin", "cut"),
    [((0.6, 0.396, 0.004), 1, 0), ((0.48, 0.31, 0.21), 3, 0), ((0.48, 0.31, 0.21), 1, 20)],
    ids=["rare", "thinned", "cut"],
)
def test_errors_are_not_too_small_where_batches_are_not_balanced(
    seed: int, weights: tuple[float, ...], thin: int, cut: int
) -> None:
    """A batch has hardly a draw of a rare component, and parts of batches are not balanced."""
    own = np.array(weights)
    target = own if own[2] < 0.1 else TARGET
    rng, base = np.random.default_rng(seed), mixture(own, 1.05)
    _, mean, share = repeated(rng, base, target, thin=thin, cut=cut)
    for one in (mean, share):
        aware, unaware = one.ratios
        assert aware < 1.2 and unaware <= aware
        assert aware > (0.25 if cut else 0.5)


def test_draws_that_make_up_for_each_other_count_more() -> None:
    batch = np.tile(np.repeat([-1.0, 1.0], BATCH // 2), 8)
    values = np.random.default_rng(1).normal(0, 0.05, (4, batch.size)) + batch
    tours = Tours(np.arange(values.size).reshape(values.shape), batches(batch.size, BATCH))
    alone = Tours(tours.number)
    assert effective_draws(values, tours) > 20 * values.size
    assert effective_draws(values, alone) < 2 * values.size
    assert effective_draws(np.tile(batch, (4, 1)), tours) <= values.size**2
    assert tours.at(np.arange(0, batch.size, 2)).batch is not None
    # One chain of few draws has no batches, and few of them that make up the error are not heard.
    assert batches(BATCH, BATCH) is None
    values[0, :BATCH] += 100
    assert tours.widened(values - values.mean(), 1.0) > 1


def test_looks_are_at_whole_batches() -> None:
    rule = Enough(0.02, 1000).precision(4, 10_000).by(BATCH)
    assert rule.first == 300 and rule.more(300, 0.01, (), 2000.0) == 50
    assert Precision(None, 130).by(BATCH).first == 130


def test_weights_of_modes_err_by_what_a_run_says(seed: int) -> None:
    """By draws of a base with the target's modes and not its weights: over runs, both are known."""
    target = stanct.temper(TWO_MODES.source).target(TWO_MODES.data)
    parts = [
        GaussianBase.from_covariance(
            np.array([m, 0.5 * m]), s**2 * np.array([[1, 0.5], [0.5, 0.25]]) + np.diag([0, 1])
        )
        for m, s in ((-6.0, 1.02), (6.0, 0.51))
    ]
    base = MixtureBase.of([0.68, 0.32], parts)
    found, log_z = [], []
    for k in range(25):
        run = sampled("independence", target, base=base, draws=400, seed=seed + k, progress=False)
        share = run.expect(lambda v: (v["x"][..., 0] > 0).astype(float))
        row = run.summary("x").loc["x[1]"]
        mean = run.expect("x")
        assert row["std_error"] == mean.std_error[0] and row["ess_bulk"] > run.z[..., 0].size
        found.append((float(share.value), float(share.std_error)))
        log_z.append((run.evidence.log_z, run.evidence.std_error))
    value, error = np.array(found).T
    assert np.sqrt(np.mean(np.square(value - 0.3))) / error.mean() == pytest.approx(0.8, abs=0.35)
    # That of as many independent draws.
    assert error.mean() < 0.4 * np.sqrt(0.3 * 0.7 / 1600)
    value, error = np.array(log_z).T
    assert np.sqrt(np.mean(np.square(value - 3.5))) / error.mean() == pytest.approx(0.8, abs=0.4)

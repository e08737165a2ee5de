"""Error bars against actual errors; `examples/calibration` is the long form."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of
from sampled import sampled
from targets import LINE, SKEWED, Exact

REPEATS = 40


@pytest.mark.parametrize("exact", [LINE, SKEWED], ids=["line", "skewed"])
def test_errors_of_log_z_and_of_a_mean_are_calibrated(exact: Exact, seed: int) -> None:
    """Coverage of 1.96 standard errors, and that they are not merely wide.

    With a true coverage of 95 % fewer than 33 of 40 happens once in 500; errors twice too small
    cover 67 %, twice too wide give scores of root mean square 0.5.
    """
    target = target_of(exact.source, exact.data)
    name, mean = next(iter(exact.means.items()))
    scores = []
    for child in np.random.SeedSequence(seed).generate_state(REPEATS):
        run = sampled(
            "joint", target, draws=200, warmup=200, base="laplace", seed=int(child), progress=False
        )
        log_z = (run.evidence.log_z - exact.log_z) / run.evidence.std_error
        found = run.expect(name)
        scores.append([log_z, np.ravel((found.value - mean) / found.std_error)[0]])
    z = np.abs(scores)
    assert np.all((z < 1.96).sum(axis=0) >= 33), z
    rms = np.sqrt(np.square(z).mean(axis=0))
    assert np.all((rms > 0.55) & (rms < 1.4)), rms

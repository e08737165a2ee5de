"""Shards of a Stan program add up to it; errors name the statement that does not add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import SEED, target_of
from sampled import sampled
from targets import LINE
from test_execution import pool
from test_tact import z_score

from stanct.common.errors import DataError, ProgramError, SamplingError
from stanct.samplers import _job
from stanct.targets import batches
from stanct.targets.minibatch import MiniBatch, program_batches

N = 40
NUMBERS = np.random.default_rng(3)
DATA: dict[str, Any] = {
    "N": N,
    "X": NUMBERS.standard_normal((N, 2)),
    "Xt": NUMBERS.standard_normal((2, N)),
    "y": NUMBERS.standard_normal(N),
    "n": NUMBERS.integers(0, 9, N),
}
REGRESSION = """
data { int<lower=0> N; matrix[N, 2] X; matrix[2, N] Xt; vector[N] y; }
parameters { vector[2] b; real<lower=0> s; }
model { b ~ normal(0, 1); s ~ exponential(1); y ~ normal(X * b + Xt' * b, s); }
"""
# The engine does not take empty arrays of whole numbers, and N >= 1 forbids them anyway.
COUNTS = """
data { int<lower=1> N; array[N] int n; vector[N] y; }
parameters { real a; real b; }
model {
  a ~ normal(0, 2);
  b ~ normal(a, 1);
  n ~ poisson_log(a + b * y);
}
"""


def batches_of(source: str, **settings: Any):
    target = target_of(source, DATA)
    chosen = {"size": 7, "control": False, **settings}
    reference = np.full(target.density.dimension, 0.2) if chosen["control"] else None
    return target, program_batches(
        target, MiniBatch("N", **chosen), reference, np.random.default_rng(SEED)
    )


@pytest.mark.parametrize(("source", "prior"), [(REGRESSION, True), (COUNTS, False)])
@pytest.mark.parametrize("control", [False, True])
def test_estimates_are_unbiased(source: str, prior: bool, control: bool) -> None:
    """Their average over batches is the log density, value and gradient, at any point."""
    target, batches = batches_of(source, control=control)
    assert (batches.prior is not None) == prior
    assert batches.sizes.sum() == N and set(batches.sizes) == {6, 7}
    lines, slopes = batches.corrections()
    for x in np.random.default_rng(SEED).standard_normal((3, batches.dimension)):
        value, gradient = target.density.log_density_gradient(x)
        share = batches.sizes / N
        found = [batches.estimate(j, x) for j in range(len(share))]
        values = np.array([v for v, _ in found])
        gradients = np.array([g for _, g in found])
        assert np.ptp(values) > 0.1
        if control:
            values, gradients = values + lines + slopes @ x, gradients + slopes
        assert share @ values == pytest.approx(value, rel=1e-10)
        assert share @ gradients == pytest.approx(gradient, rel=1e-8, abs=1e-8)


def test_batches_are_exact_at_the_reference() -> None:
    target, batches = batches_of(COUNTS, control=True)
    assert batches.reference is not None
    value, gradient = target.density.log_density_gradient(batches.reference)
    for j, (line, slope) in enumerate(zip(*batches.corrections(), strict=True)):
        found, ascent = batches.estimate(j, batches.reference)
        assert found + line + slope @ batches.reference == pytest.approx(value)
        assert ascent + slope == pytest.approx(gradient, abs=1e-8)


def test_posterior_by_mini_batches() -> None:
    """A conjugate regression, 40 observations in batches of 4: exact means and variances."""
    data = {"N": N, "X": DATA["X"], "y": DATA["y"]}
    found = sampled(
        "tact", target_of(LINE.source, data), minibatch=MiniBatch("N", 8), base="laplace",
        draws=1500, warmup=200, seed=SEED, progress=False,
    )  # fmt: skip
    precision = np.eye(2) + 4 * DATA["X"].T @ DATA["X"]
    mean = np.linalg.solve(precision, 4 * DATA["X"].T @ DATA["y"])
    sd = np.sqrt(np.diag(np.linalg.inv(precision)))
    for k in range(2):
        b = found.variables["b"][..., k]
        assert z_score((b - mean[k]) / sd[k], 0.0, 0.05) < 4
        assert z_score(((b - mean[k]) / sd[k]) ** 2, 1.0, 0.1) < 4
    assert found.noise.mean() > 0 and found.is_reliable, found.warnings


def test_shards_travel_to_processes() -> None:
    settings: dict[str, Any] = {
        "minibatch": MiniBatch("N", 8), "base": "laplace", "draws": 20, "warmup": 25, "seed": SEED,
        "progress": False, "chains": 2,
    }  # fmt: skip
    target = target_of(COUNTS, DATA)
    with pool(1) as workers:
        there = sampled("tact", target, executor=workers, **settings)
    here = sampled("tact", target, threads=2, **settings)
    assert (here.z == there.z).all() and (here.trace == there.trace).all()


def test_shards_are_loaded_once_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []
    real = batches._Cut.load
    monkeypatch.setattr(batches._Cut, "load", lambda cut: loaded.append(1) or real(cut))
    sampled(
        "tact", target_of(COUNTS, DATA), minibatch=MiniBatch("N", 8), base="laplace", draws=30,
        warmup=100, seed=SEED, progress=False, threads=2,
    )  # fmt: skip
    assert len(loaded) <= 1


def refused(source: str, name: str = "N") -> str:
    target = target_of(source, DATA)
    with pytest.raises((DataError, ProgramError, SamplingError)) as caught:
        program_batches(target, MiniBatch(name, 7), None, np.random.default_rng(SEED))
    return str(caught.value)


def test_centred_data_do_not_add_up() -> None:
    """The third statement is named, with its line and the array."""
    message = refused("""
data { int N; vector[N] y; }
transformed data { vector[N] centred = y - mean(y); }
parameters { real m; real s; }
model {
  m ~ normal(0, 1);
  s ~ normal(0, 1);
  centred ~ normal(m, exp(s));
}
""")
    assert "model.stan:8:" in message and "`centred`" in message
    assert "does not add up over the observations" in message


def test_time_series_do_not_add_up() -> None:
    message = refused("""
data { int N; vector[N] y; array[N] int n; }
parameters { real r; }
model {
  n ~ poisson_log(r);
  r ~ normal(0, 1);
  for (t in 2 : N) y[t] ~ normal(r * y[t - 1], 1);
}
""")
    assert "model.stan:7:" in message and "`y`" in message and "`n`" not in message


def test_a_mean_over_observations_does_not_add_up() -> None:
    message = refused("""
data { int N; vector[N] y; }
parameters { real m; }
model { target += -0.5 * dot_self(y - m) / N; }
""")
    assert "model.stan:4:" in message


@pytest.mark.parametrize(
    ("source", "name", "words"),
    [
        ("data { int N; vector[N] y; } parameters { vector[N] e; } model { y ~ normal(e, 1); }",
         "N", "`e` has a size that depends on `N`"),
        ("data { int N; } parameters { real x; } model { x ~ normal(N, 1); }",
         "N", "No data array has the size `N`"),
        ("data { int N; vector[N] y; } parameters { real x; } model { y ~ normal(x, 1); }",
         "M", "declares no size `M`"),
    ],
)  # fmt: skip
def test_sizes_that_count_something_else(source: str, name: str, words: str) -> None:
    assert words in refused(source, name)


def test_a_refusal_comes_before_any_base_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_job, "first_base", lambda *_, **__: pytest.fail("a base was fitted"))
    with pytest.raises(DataError, match="parameters of its own"):
        sampled(
            "tact",
            target_of(
                "data { int N; vector[N] y; } parameters { vector[N] e; } "
                "model { e ~ normal(0, 1); y ~ normal(e, 1); }",
                DATA,
            ),
            minibatch=MiniBatch("N", 7), progress=False,
        )  # fmt: skip


def test_a_size_of_n_minus_one_cannot_be_cut() -> None:
    source = """
    data { int N; vector[N] y; vector[N - 1] d; }
    parameters { real x; }
    model { y ~ normal(x, 1); d ~ normal(x, 1); }
    """
    target = target_of(source, {**DATA, "d": np.zeros(N - 1)})
    with pytest.raises(DataError, match=r"`d` depends on `N` otherwise than by one dimension"):
        program_batches(target, MiniBatch("N", 7), None, np.random.default_rng(SEED))


def test_a_wrong_split_is_found() -> None:
    """Weights of a program whose prior is marked as likelihood would be wrong; 0 data are not."""
    message = refused(
        COUNTS.replace("b ~ normal(a, 1);", "b ~ normal(a, 1); // stanct: likelihood")
    )
    assert "terms taken for likelihood are not what the observations add" in message


def test_too_few_observations() -> None:
    target = target_of(LINE.source, {"N": 2, "X": np.eye(2), "y": np.zeros(2)})
    with pytest.raises(SamplingError, match="nothing to cut"):
        program_batches(target, MiniBatch("N"), None, np.random.default_rng(1))
    with pytest.raises(SamplingError, match="size must be a whole number of at least 1"):
        MiniBatch("N", 0)

"""The functions taken from ArviZ have the same meaning in 0.x and 1.x."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from stanct.estimates.arviz_bridge import effective_size, inference_data, pareto_k, r_hat


@pytest.mark.parametrize("shape", [0.3, 0.9, 1.5])
def test_pareto_k_finds_the_tail_s_shape(rng: np.random.Generator, shape: float) -> None:
    log_weights = shape * rng.standard_exponential((4, 5000))
    assert pareto_k(log_weights) == pytest.approx(shape, abs=0.25)
    assert pareto_k(log_weights - 1000) == pytest.approx(shape, abs=0.25)


def test_equal_weights_have_no_tail() -> None:
    assert pareto_k(np.zeros((4, 100))) == -np.inf
    rounded = 1e-16 * np.arange(400.0).reshape(4, 100)
    assert pareto_k(rounded) == -np.inf
    capped = np.minimum(np.linspace(-5, 2, 400), 0.0)
    assert pareto_k(capped) == -np.inf


def test_too_few_weights_have_no_tail_that_could_be_told(rng: np.random.Generator) -> None:
    assert pareto_k(rng.standard_normal(24)) == np.inf
    assert np.isfinite(pareto_k(rng.standard_normal(25)))


def test_statistics_of_arrays_do_not_load_all_of_arviz() -> None:
    """All of ArviZ takes half a second, which a run without a container need not wait for."""
    code = (
        "import sys, numpy as np\n"
        "from stanct.estimates.arviz_bridge import effective_size, pareto_k, r_hat\n"
        "x = np.random.default_rng(1).standard_normal((2, 100))\n"
        "print(effective_size(x), r_hat(x), pareto_k(x), 'arviz' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert found.stdout.split()[-1] == "False", found.stderr


def test_effective_size_and_r_hat(rng: np.random.Generator) -> None:
    chains = rng.standard_normal((4, 1000))
    assert effective_size(chains) == pytest.approx(4000, rel=0.2)
    assert r_hat(chains) == pytest.approx(1, abs=0.01)
    chains[0] += 3
    assert effective_size(chains, method="bulk") < 20
    assert r_hat(chains) > 1.3
    assert effective_size(np.ones((4, 100))) == 400
    assert np.isnan(r_hat(np.ones((4, 100))))


def test_r_hat_of_one_chain(rng: np.random.Generator) -> None:
    """Its halves are compared, without a word from ArviZ."""
    chain = rng.standard_normal((1, 501))
    assert r_hat(chain) == pytest.approx(1, abs=0.03)
    assert r_hat(chain + np.linspace(0, 3, 501)) > 1.1


def test_inference_data_carries_groups_and_attributes(rng: np.random.Generator) -> None:
    x, weight = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5))
    groups = {"posterior": {"x": x}, "sample_stats": {"log_weight": weight}}
    container = inference_data(groups, {"log_z": -1.5})
    assert np.array_equal(container["posterior"]["x"].values, x)
    assert np.array_equal(container["sample_stats"]["log_weight"].values, weight)
    assert container["posterior"].attrs["log_z"] == -1.5

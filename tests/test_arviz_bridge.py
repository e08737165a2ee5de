"""The functions taken from ArviZ have the same meaning in 0.x and 1.x."""

from __future__ import annotations

import numpy as np

from stanct.estimates.arviz_bridge import inference_data


def test_inference_data_carries_groups_and_attributes(rng: np.random.Generator) -> None:
    x, weight = rng.standard_normal((2, 5, 3)), rng.standard_normal((2, 5))
    groups = {"posterior": {"x": x}, "sample_stats": {"log_weight": weight}}
    container = inference_data(groups, {"log_z": -1.5})
    assert np.array_equal(container["posterior"]["x"].values, x)
    assert np.array_equal(container["sample_stats"]["log_weight"].values, weight)
    assert container["posterior"].attrs["log_z"] == -1.5

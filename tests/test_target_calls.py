"""Uses of the target beside `~` and `target +=`: `jacobian +=`, and reads of `target()`."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from generated import PROGRAMS, SEED, load
from scipy import special, stats

from stanct.stan.codegen import generate
from stanct.stan.program import Program

DATA = {"N": 2, "y": [0.3, -0.5]}
# The terms of `jacobian +=` in jacobians.stan, in the model; the engine cannot run the statement.
BY_HAND = """
  target += sum(raw) + raw[1] + raw[2]; // high and low
  target += free[1] > 0 ? -sum(free) : 0.5 * sum(free);
  target += log_scale;
"""


def standard_base(dimension: int) -> dict[str, Any]:
    names = {"D": dimension, "base_mean": np.zeros(dimension).tolist(), "K": 2}
    names |= {"base_scale": np.ones((dimension, 1)).tolist(), "is_dense": 0, "bias": [0.0, 2.0]}
    names |= {"bias_beta": [0.0, 1.0], "xi_knots": [0.0, 1.0], "log_g": [0.0, 0.0]}
    return {"ct_" + name: value for name, value in names.items()}


def without_jacobian_statements(source: str) -> str:
    bare, count = re.subn(r"jacobian \+= [^;]*;", "{ }", source)
    assert count == 5
    return bare.replace("model {", "model {" + BY_HAND)


def reference(name: str) -> Any:
    """The density of a program from `tests/programs`, as far as the engine runs it."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    source = program.source
    if name == "jacobians":
        source = without_jacobian_statements(source)
    return load(generate(Program.from_source(source), "density"), DATA)


@pytest.mark.parametrize("name", ["jacobians", "target_reads"])
def test_joint(name: str) -> None:
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    density = reference(name)
    dimension = density.param_unc_num()
    joint = load(generate(program, "joint"), DATA | standard_base(dimension))
    rng = np.random.default_rng(SEED)
    for u in (-1.0, 0.3, 2.0):
        z = rng.normal(size=dimension) / 2
        log_p, gradient = density.log_density_gradient(z)
        beta, rest = special.expit(u), special.expit(-u)
        log_base = stats.norm.logpdf(z).sum()
        value = beta * (log_p - 2) + rest * log_base + np.log(beta * rest)
        found, found_gradient = joint.log_density_gradient(np.append(z, u))
        assert found == pytest.approx(value, rel=1e-12)
        by_z = beta * gradient - rest * z
        np.testing.assert_allclose(found_gradient[:-1], by_z, rtol=1e-10, atol=1e-10)


def test_pseudo_extended() -> None:
    """One copy at beta = 1 is the target itself."""
    density = reference("jacobians")
    dimension = density.param_unc_num()
    code = generate(Program.from_file(PROGRAMS / "jacobians.stan"), "pseudo_extended", fixed=True)
    extra = {"ct_N": 1, "ct_beta": [1.0], "ct_bias": [0.0]}
    model = load(code, DATA | standard_base(dimension) | extra)
    z = np.random.default_rng(SEED).normal(size=dimension) / 2
    log_p, gradient = density.log_density_gradient(z)
    found, found_gradient = model.log_density_gradient(z)
    assert found == pytest.approx(log_p, rel=1e-12)
    np.testing.assert_allclose(found_gradient, gradient, rtol=1e-10, atol=1e-10)

"""The generated programs of a target with all their data: the user's, base, bias and the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.engines.embedded import Recipe
from stanct.path.bias import Bias, CopyBias, PowerBias
from stanct.path.coupled import CoupledBias
from stanct.path.gaussian import GaussianBase
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.stan.syntax import free_prefix
from stanct.targets.data import StanData, read_data
from stanct.targets.program_target import ProgramTarget


def recipe(
    target: ProgramTarget, kind: str, variant: Mapping[str, bool] | None = None, /, **names: Any
) -> Recipe:
    """The program of a kind with the user's data and these, whose names lack the prefix."""
    extra = {target.prefix + name: value for name, value in names.items()}
    code = target.code(kind, **(variant or {}))
    return Recipe(code, target.data.extended(extra) if extra else target.data.text)


def prior_target(program: Program, data: StanData) -> ProgramTarget:
    """The prior alone as a target: the program with its likelihood to the power 0.

    Raises `ProgramError` where prior and likelihood cannot be told apart.
    """
    prefix = free_prefix("prior_", program.syntax)
    prior = Program.from_source(generate(program, "weighted", prefix=prefix), name=program.name)
    whole = read_data(json.loads(data.extended({f"{prefix}weight": 0.0})), prior)
    return ProgramTarget(prior, whole, prefix=free_prefix("ct_", prior.syntax))


def joint_recipe(target: ProgramTarget, base: GaussianBase, bias: Bias) -> Recipe:
    """The joint program with data, base and bias."""
    return recipe(target, "joint", **_base(base), **_bias(bias))


def pseudo_extended_recipe(
    target: ProgramTarget, base: GaussianBase, bias: CopyBias, copies: int, fixed_beta: Array | None
) -> Recipe:
    """The pseudo-extended program of N copies with data, base, bias and prior of β.

    With a `PowerBias` the copies follow powers of the target. `fixed_beta`, shape (N,), is the
    fixed β of the copies; None if they are estimated.
    """
    names: dict[str, Any] = {**_base(base), "N": copies}
    if isinstance(bias, PowerBias):
        names |= {"log_zeta": bias.log_zeta}
        names |= {"least_beta": bias.bounds[0], "most_beta": bias.bounds[1]}
    elif fixed_beta is not None:
        names["bias"] = bias(fixed_beta)
    else:
        names |= {**_bias(bias), "log_g": bias.log_prior}
    if fixed_beta is not None:
        names["beta"] = fixed_beta
    return recipe(target, "pseudo_extended", variant_of(bias, fixed_beta), **names)


def variant_of(bias: CopyBias, fixed_beta: Array | None) -> dict[str, bool]:
    """Which pseudo-extended program these need; see `stanct.stan.codegen.generate`."""
    return {"fixed": fixed_beta is not None, "powers": isinstance(bias, PowerBias)}


def prior_likelihood_recipe(
    target: ProgramTarget, bias: CoupledBias, *, summed: bool = False
) -> Recipe:
    """The program of the path from the prior with data and bias; see `codegen.generate`."""
    names = {"K": bias.beta.size, "bias_beta": bias.beta, "bias": bias.value}
    return recipe(target, "prior_likelihood", {"summed": summed}, **names)


def extended_hamiltonian_recipe(
    target: ProgramTarget, base: GaussianBase, bias: CoupledBias
) -> Recipe:
    """The extended-Hamiltonian program with data, coordinates, coupling and bias."""
    names = {"xi_knots": bias.knots, "beta_at": bias.beta, "bias": bias.value}
    return recipe(target, "extended_hamiltonian", **_base(base), K=bias.knots.size, **names)


def _bias(bias: Bias | CopyBias) -> dict[str, Any]:
    return {"K": bias.beta.size, "bias_beta": bias.beta, "bias": bias.value}


def _base(base: GaussianBase) -> dict[str, Any]:
    is_dense = np.count_nonzero(base.scale) > base.dimension
    return whitening_data(base.mean, base.scale if is_dense else np.diag(base.scale))


def whitening_data(mean: Array, scale: Array) -> dict[str, Any]:
    """The data of the whitened programs for m, shape (D,), and L; names have no prefix.

    `scale` is L, shape (D, D), or its diagonal, shape (D,), if L is diagonal.
    """
    is_dense = scale.ndim == 2
    return {
        "D": mean.size,
        "base_mean": mean,
        "is_dense": int(is_dense),
        "base_scale": scale if is_dense else scale[:, None],
    }

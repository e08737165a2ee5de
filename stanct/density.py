"""`Density`: a Stan program's log density and gradient on the unconstrained space.

Evaluated in-process through the BridgeStan C interface, which the embedded engine exports and
models compiled by BridgeStan export too.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Mapping
from typing import Any

import bridgestan
import numpy as np
import stanio
import stanli

from stanct import embedded
from stanct.embedded import Recipe

Array = np.ndarray


class Density:
    """The log density of a Stan program with its data, Jacobian of the transform included.

    `log_density(x)` is −φ(x) = log p(θ(x), y) + log |∂θ/∂x|. Constants are kept only where the
    program keeps them; the *density program* of `TemperedModel` keeps all.

    One object holds one engine handle. Log densities can be evaluated from any thread, but the
    engine does not promise that two threads may use one handle at once: give each its own
    `clone()`, which costs milliseconds. A pickled density carries its program and data and
    rebuilds itself, in another process or on another machine.

    Parameters
    ----------
    recipe
        Program text and data.
    """

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        mir = embedded.compile_program(recipe.source)
        try:
            self._model: bridgestan.StanModel = stanli.bridgestan_model(
                mir=mir, data=recipe.data, capture_stan_prints=False
            )
        except RuntimeError as cause:
            raise ValueError(str(cause)) from cause

    def __reduce__(self) -> tuple[type[Density], tuple[Recipe]]:
        return Density, (self.recipe,)

    def clone(self) -> Density:
        """The same density with an engine handle of its own."""
        return Density(self.recipe)

    @functools.cached_property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self._model.param_unc_num()

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the constrained parameters, e.g. ``theta.1.2``, last index slowest."""
        return tuple(self._model.param_names())

    @functools.cached_property
    def unconstrained_names(self) -> tuple[str, ...]:
        """Names of the unconstrained coordinates, shape (D,)."""
        return tuple(self._model.param_unc_names())

    def log_density(self, x: Array) -> float:
        """−φ at the unconstrained point `x` of shape (D,); −inf where Stan rejects the point."""
        try:
            value = self._model.log_density(np.ascontiguousarray(x, float))
        except RuntimeError:
            return -np.inf
        return value if value < np.inf else -np.inf

    def log_density_gradient(self, x: Array) -> tuple[float, Array]:
        """−φ and its gradient, shape (D,); (−inf, zeros) where Stan rejects the point."""
        try:
            value, gradient = self._model.log_density_gradient(np.ascontiguousarray(x, float))
        except RuntimeError:
            return -np.inf, np.zeros(self.dimension)
        return (value, gradient) if value < np.inf else (-np.inf, np.zeros(self.dimension))

    def log_densities(self, points: Array) -> Array:
        """−φ at every row of `points`, shapes (n, D) to (n,)."""
        return np.array([self.log_density(x) for x in points])

    def constrain(self, x: Array) -> Array:
        """The constrained parameters at the unconstrained `x`, in the order of `names`."""
        return self._model.param_constrain(np.ascontiguousarray(x, float))

    def variables(self, points: Array, seed: int) -> dict[str, Array]:
        """Parameters, transformed parameters and generated quantities at unconstrained points.

        Parameters
        ----------
        points : shape (n, D)
        seed
            Of the generated quantities' own random numbers.

        Returns
        -------
        dict
            Variable name to shape (n, ...). Where Stan rejects the transformed parameters or
            generated quantities of a point, they are NaN there.
        """
        names = self._model.param_names(include_tp=True, include_gq=True)
        rng = self._model.new_rng(seed)
        flat = np.full((len(points), len(names)), np.nan)
        for row, x in zip(flat, np.ascontiguousarray(points, float), strict=True):
            try:
                row[:] = self._model.param_constrain(x, include_tp=True, include_gq=True, rng=rng)
            except RuntimeError:
                row[: len(self.names)] = self.constrain(x)
        return _by_name(names, flat)

    def unconstrain(self, theta: Mapping[str, Any] | Array) -> Array:
        """The unconstrained point, shape (D,), of constrained parameters.

        Parameters
        ----------
        theta
            Parameter name to value, or the flat vector in the order of `names`.

        Raises
        ------
        ValueError
            A value is missing, has the wrong shape or lies outside its support.
        """
        try:
            if isinstance(theta, Mapping):
                return self._model.param_unconstrain_json(stanio.dump_stan_json(dict(theta)))
            return self._model.param_unconstrain(np.ascontiguousarray(theta, float))
        except RuntimeError as cause:
            raise ValueError(str(cause)) from cause

    @property
    def address(self) -> int:
        """Address of the C function ``bs_log_density_gradient`` for compiled kernels.

        Its type is int(handle, bool propto, bool jacobian, const double *x, double *log_density,
        double *gradient, char **error); pass true for both flags and a null error. It does not
        hold the interpreter lock. Valid as long as this object lives.
        """
        function = self._model.stanlib.bs_log_density_gradient
        return ctypes.cast(function, ctypes.c_void_p).value or 0

    @property
    def handle(self) -> int:
        """The model handle that goes first into the function at `address`."""
        return int(self._model.model or 0)


def _by_name(names: list[str], flat: Array) -> dict[str, Array]:
    """Split columns named like ``x.2.1`` into one array a variable."""
    places: dict[str, list[tuple[int, ...]]] = {}
    columns: dict[str, list[int]] = {}
    for column, name in enumerate(names):
        stem, *index = name.split(".")
        # The two halves of a complex number come as .real and .imag.
        place = tuple({"real": 0, "imag": 1}[i] if i.isalpha() else int(i) - 1 for i in index)
        places.setdefault(stem, []).append(place)
        columns.setdefault(stem, []).append(column)
    result = {}
    for stem, indices in places.items():
        shape = tuple(max(axis) + 1 for axis in zip(*indices, strict=True))
        values = np.empty((len(flat), *shape))
        for place, column in zip(indices, columns[stem], strict=True):
            values[(slice(None), *place)] = flat[:, column]
        result[stem] = values
    return result

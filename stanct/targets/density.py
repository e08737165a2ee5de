"""`Density`: a Stan program's log density and gradient on the unconstrained space.

Evaluated in-process through the BridgeStan C interface, which the embedded engine exports and
models compiled by BridgeStan export too.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

import bridgestan
import numpy as np
import stanio
import stanli

from stanct.arrays import Array
from stanct.engines import embedded
from stanct.engines.embedded import Recipe
from stanct.targets.lending import Shelves


class Density:
    """The log density of a Stan program with its data, Jacobian of the transform included.

    `log_density(x)` is −φ(x) = log p(θ(x), y) + log |∂θ/∂x|. Constants are kept only where the
    program keeps them, as the *density program* of `TemperedModel` does, or the recipe has them.

    One object holds one engine handle. Log densities can be evaluated from any thread, but the
    engine does not promise that two threads may use one handle at once: each takes a density of its
    own from `borrow`. A pickled density carries its program and data and rebuilds itself, in
    another process or on another machine.

    Parameters
    ----------
    recipe
        Program text, data, and a constant.
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
        self._dimension = self._model.param_unc_num()

    def __reduce__(self) -> tuple[type[Density], tuple[Recipe]]:
        return Density, (self.recipe,)

    @property
    def borrow(self) -> Callable[[], AbstractContextManager[Density]]:
        """Gives the same density with a handle that nobody else uses until it is given back.

        ``with density.borrow() as own: ...``. Can be pickled and called in another process; given
        back densities are kept there for the next caller.
        """
        return functools.partial(_lend, self.recipe)

    @property
    def dimension(self) -> int:
        """D, the number of unconstrained parameters."""
        return self._dimension

    @property
    def constant(self) -> float:
        """What the log density has beside that of the function at `address`."""
        return self.recipe.constant

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
        return value + self.constant if value < np.inf else -np.inf

    def log_density_gradient(self, x: Array) -> tuple[float, Array]:
        """−φ and its gradient, shape (D,); (−inf, zeros) where Stan rejects the point."""
        try:
            value, gradient = self._model.log_density_gradient(np.ascontiguousarray(x, float))
        except RuntimeError:
            return -np.inf, np.zeros(self.dimension)
        if not value < np.inf:
            return -np.inf, np.zeros(self.dimension)
        return value + self.constant, np.asarray(gradient)

    def log_densities(self, points: Array) -> Array:
        """−φ at every row of `points`, shapes (n, D) to (n,)."""
        return np.array([self.log_density(x) for x in points])

    def constrain(self, x: Array) -> Array:
        """The constrained parameters at the unconstrained `x`, in the order of `names`."""
        return np.asarray(self._model.param_constrain(np.ascontiguousarray(x, float)))

    def variables(self, points: Array, *, seed: int) -> dict[str, Array]:
        """Parameters, transformed parameters and generated quantities at unconstrained points.

        Parameters
        ----------
        points : shape (..., D)
        seed
            For the random numbers of generated quantities.

        Returns
        -------
        dict
            Name to shape (..., *dims). Where Stan rejects a point the values are NaN.
        """
        names = self._model.param_names(include_tp=True, include_gq=True)
        flat_points = np.reshape(points, (-1, self.dimension))
        values = np.full((len(flat_points), len(names)), np.nan)
        rng = self._model.new_rng(seed)
        for row, x in zip(values, flat_points, strict=True):
            try:
                row[:] = self._model.param_constrain(
                    np.ascontiguousarray(x), include_tp=True, include_gq=True, rng=rng
                )
            except RuntimeError:
                continue
        lead = np.shape(points)[:-1]
        return {
            name: values[:, columns].reshape(*lead, *columns.shape)
            for name, columns in _columns_by_variable(names).items()
        }

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
                text = stanio.dump_stan_json(dict(theta))
                return np.asarray(self._model.param_unconstrain_json(text))
            return np.asarray(self._model.param_unconstrain(np.ascontiguousarray(theta, float)))
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


# The densities of the last four recipes.
_shelves = Shelves[Density](4)


def _lend(recipe: Recipe) -> AbstractContextManager[Density]:
    return _shelves.lend(recipe.key, functools.partial(Density, recipe))


def _columns_by_variable(names: list[str]) -> dict[str, Array]:
    """Name of each variable to the columns of its elements, an integer array of its shape.

    Flat names are Stan's, e.g. ``theta.2.1`` with indices from 1.
    """
    places: dict[str, dict[tuple[int, ...], int]] = {}
    for column, flat in enumerate(names):
        name, *index = flat.split(".")
        if not all(part.isdigit() for part in index):  # e.g. z.real, an element of its own
            name, index = flat, []
        places.setdefault(name, {})[tuple(int(part) - 1 for part in index)] = column
    result = {}
    for name, elements in places.items():
        shape = tuple(max(index) + 1 for index in zip(*elements, strict=True))
        columns = np.empty(shape, int)
        for index, column in elements.items():
            columns[index] = column
        result[name] = columns
    return result

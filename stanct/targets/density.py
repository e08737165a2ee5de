"""`Density`: a Stan program's log density and gradient on the unconstrained space.

It is evaluated in this process through the BridgeStan C interface, which the embedded engine
exports, and to which `engines.native` links what a CmdStan compiled.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import bridgestan
import numpy as np
import stanio

from stanct.common.arrays import Array
from stanct.engines import embedded
from stanct.engines.embedded import CompilerMessageError, Recipe
from stanct.engines.homes import home_at
from stanct.engines.native import compiled_model
from stanct.engines.tape import stanli
from stanct.kernels import SIGNATURE
from stanct.kernels.points import densities_at, gradients_at, variables_at
from stanct.stan.program import Program
from stanct.targets.lending import Shelves
from stanct.work.interrupts import Pace, end_if_left_behind, in_threads

# BridgeStan's `bs_log_density` and `bs_param_unconstrain`; `bs_param_constrain` takes the arguments
# of `bs_log_density_gradient`. BridgeStan's own methods check and convert every argument, which
# takes longer than the density of a small program.
_VALUE = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_bool, ctypes.c_bool, *[ctypes.c_void_p] * 3
)
_ON_VALUES = ctypes.CFUNCTYPE(ctypes.c_int, *[ctypes.c_void_p] * 4)

# Calls for many points are shared out among threads if they take so many seconds.
LONG = 0.02


class Density:
    """The log density of a Stan program with its data, including the Jacobian of the transform.

    `log_density(x)` is −φ(x) = log p(θ(x), y) + log |∂θ/∂x|. Constants are kept only if the program
    keeps them, as the *density program* of `TemperedModel` does, or if the recipe has them.

    An object holds one engine handle, or takes the `model` that nobody else goes on using. Log
    densities can be evaluated from any thread, but the engine does not guarantee that two threads
    may use one handle at once. Each thread therefore takes its own density from `borrow`. A pickled
    density carries its recipe, and is rebuilt in another process or on another machine.

    Log densities raise `KeyboardInterrupt` in a thread that an interrupt or the deadline left
    behind, so that the work of such a thread ends. The function at `address` does not.
    """

    # Threads that share the points of one call, each with a handle of its own.
    at_once = 1

    def __init__(self, recipe: Recipe, model: bridgestan.StanModel | None = None) -> None:
        self.recipe = recipe
        try:
            self._model = model or _model(recipe)
        except RuntimeError as cause:
            raise ValueError(str(cause)) from cause
        self._dimension = self._model.param_unc_num()
        self._pace = Pace()
        # A single point, its gradient and its value, with their addresses.
        self._room = *np.zeros((2, self._dimension)), np.zeros(1)
        self._addresses = [array.ctypes.data for array in self._room]

    def __reduce__(self) -> tuple[type[Density], tuple[Recipe]]:
        return Density, (self.recipe,)

    def with_constant(self, constant: float) -> Density:
        """Return the density with another constant; it takes the place of this one."""
        return Density(replace(self.recipe, constant=constant), self._model)

    @property
    def borrow(self) -> Callable[[], AbstractContextManager[Density]]:
        """Context manager that yields the same density with an exclusive handle.

        Use it as ``with density.borrow() as own: ...``. It can be pickled and called in another
        process. Returned densities are kept there for the next caller.
        """
        return functools.partial(_lend, self.recipe)

    @property
    def dimension(self) -> int:
        """Number of unconstrained parameters D."""
        return self._dimension

    @property
    def numbers(self) -> int:
        """Numbers that all variables of the program have in one draw."""
        return int(self._model.param_num(include_tp=True, include_gq=True))

    @property
    def constant(self) -> float:
        """Constant to add to the value of the function at `address`."""
        return self.recipe.constant

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the constrained parameters, e.g. ``theta.1.2``, with the last index slowest."""
        return tuple(self._model.param_names())

    @functools.cached_property
    def variable_names(self) -> tuple[str, ...]:
        """Names of parameters, transformed parameters and generated quantities."""
        return tuple(self.variable_shapes)

    @functools.cached_property
    def variable_shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of parameters, transformed parameters and generated quantities, by name."""
        names = self._model.param_names(include_tp=True, include_gq=True)
        return {name: places.shape for name, places in _columns_by_variable(names).items()}

    @functools.cached_property
    def unconstrained_names(self) -> tuple[str, ...]:
        """Names of the D unconstrained coordinates, in their order.

        Stan names the elements of an array with the first index fastest, and lays them out with the
        first index slowest.
        """
        names = self._model.param_unc_names()
        ranks = {
            one.name: len(one.array_dims)
            for one in Program.from_source(self.recipe.source).parameters
            if one.array_dims
        }

        def place(flat: str) -> tuple[str, tuple[int, ...]]:
            name, *index = flat.split(".")
            numbers = (int(part) for part in index[: ranks.get(name, 0)] if part.isdigit())
            return name, tuple(numbers)

        # One parameter's elements follow each other.
        groups = itertools.groupby(names, key=lambda flat: flat.partition(".")[0])
        return tuple(flat for _, group in groups for flat in sorted(group, key=place))

    def log_density(self, x: Array) -> float:
        """Return −φ at the unconstrained point `x`, shape (D,); −inf if Stan rejects the point."""
        return self._at(x, self._value, ())

    def refusal(self, x: Array) -> str | None:
        """Return what Stan says where it rejects `x`; empty where −φ is not finite without it.

        None means that −φ is finite.
        """
        end_if_left_behind()
        try:
            value = self._model.log_density(np.ascontiguousarray(x, float))
        except RuntimeError as cause:
            return str(cause)
        return None if np.isfinite(value) else ""

    def log_density_gradient(self, x: Array) -> tuple[float, Array]:
        """Return −φ and its gradient, shape (D,); (−inf, zeros) if Stan rejects the point."""
        value = self._at(x, self._value_and_gradient, (self._addresses[1],))
        return value, self._room[1].copy() if value > -np.inf else np.zeros(self._dimension)

    def _at(self, x: Array, call: Callable[..., int], gradient: tuple[int, ...]) -> float:
        """The log density at one point, which a compiled loop would make dearer."""
        end_if_left_behind()
        self._room[0][:] = np.reshape(x, self._dimension)
        point, _, value = self._addresses
        failed = call(self.handle, True, True, point, value, *gradient, None)
        found = float(self._room[2][0])
        return found + self.constant if not failed and found < np.inf else -np.inf

    def log_densities(self, points: Array) -> Array:
        """Return −φ, shape (n,), at the rows of `points`, shape (n, D); −inf where Stan rejects."""
        x = np.ascontiguousarray(points, float).reshape(-1, self.dimension)
        values = np.empty(len(x))

        def work(own: Density, part: slice) -> None:
            densities_at(own._value, own.handle, x[part], values[part])

        self._shared_out(len(x), work)
        return np.where(values < np.inf, values + self.constant, -np.inf)

    def log_density_gradients(self, points: Array) -> tuple[Array, Array]:
        """Return −φ and its gradients at the rows of `points`, shapes (n,) and (n, D).

        They are −inf and zeros where Stan rejects a point.
        """
        x = np.ascontiguousarray(points, float).reshape(-1, self.dimension)
        values, gradients = np.empty(len(x)), np.empty_like(x)

        def work(own: Density, part: slice) -> None:
            call = own._value_and_gradient
            gradients_at(call, own.handle, x[part], values[part], gradients[part])

        self._shared_out(len(x), work)
        gradients[~np.isfinite(values)] = 0.0
        return np.where(values < np.inf, values + self.constant, -np.inf), gradients

    def _shared_out(self, count: int, work: Callable[[Density, slice], None]) -> None:
        """Call `work` with parts of so many points, in threads where they take long."""
        long = count * self._pace.each >= LONG
        shares = max(min(self.at_once, count), 1) if long else 1

        def share(k: int) -> None:
            end = (k + 1) * count // shares
            with self.borrow() if k else contextlib.nullcontext(self) as own:
                for part in own._pace.parts(end, k * count // shares):
                    work(own, part)

        if shares > 1:
            in_threads(share, shares, shares)
        else:
            share(0)

    @functools.cached_property
    def _value(self) -> Callable[..., int]:
        """The C function ``bs_log_density``; it does not hold the interpreter lock."""
        return _VALUE(_address(self._model.stanlib.bs_log_density))

    def constrain(self, x: Array) -> Array:
        """Return the constrained parameters at the unconstrained `x`, in the order of `names`."""
        return np.asarray(self._model.param_constrain(np.ascontiguousarray(x, float)))

    def variables(self, points: Array, *, seed: int) -> dict[str, Array]:
        """Compute all variables of the program at unconstrained points, shape (..., D).

        These are parameters, transformed parameters and generated quantities, whose random numbers
        have the seed. Values by name have shape (..., *dims), and are NaN where Stan rejects a
        point.
        """
        return self.in_turn(seed)(points)

    def in_turn(self, seed: int) -> Callable[[Array], dict[str, Array]]:
        """Return a function like `variables` whose random numbers go on from call to call."""
        names = self._model.param_names(include_tp=True, include_gq=True)
        return functools.partial(
            self._variables, _columns_by_variable(names), len(names), self._model.new_rng(seed)
        )

    def _variables(
        self, columns: Mapping[str, Array], width: int, rng: Any, points: Array
    ) -> dict[str, Array]:
        rows = np.ascontiguousarray(np.reshape(points, (-1, self.dimension)), float)
        values = np.empty((len(rows), width))
        for part in self._pace.parts(len(rows)):
            variables_at(self._constrain, self.handle, True, rows[part], values[part], rng.ptr)
        lead = np.shape(points)[:-1]
        return {
            name: values[:, places].reshape((*lead, *places.shape))
            for name, places in columns.items()
        }

    def unconstrain(self, theta: Mapping[str, Any] | Array) -> Array:
        """Return the unconstrained point, shape (D,), of constrained parameters.

        They are given by name, or as the flat vector in the order of `names`. Raises `ValueError`
        if a value is missing, has the wrong shape or lies outside its support.
        """
        try:
            if isinstance(theta, Mapping):
                text = stanio.dump_stan_json(dict(theta))
                return np.asarray(self._model.param_unconstrain_json(text))
            return np.asarray(self._model.param_unconstrain(np.ascontiguousarray(theta, float)))
        except RuntimeError as cause:
            raise ValueError(str(cause)) from cause

    def unconstrained(self, theta: Array) -> tuple[Array, Array]:
        """Return the unconstrained points of rows of parameters, and which rows have none.

        The parameters, shape (n, names), are in the order of `names`. The points have shape (n, D),
        and True of shape (n,) says which of them are not to be used.
        """
        theta = np.ascontiguousarray(theta, float)
        found = np.empty((len(theta), self.dimension))
        given, made, handle, call = theta.ctypes.data, found.ctypes.data, self.handle, self._invert
        step, width = theta.strides[0], found.strides[0]
        failed = [
            bool(call(handle, given + k * step, made + k * width, None)) for k in range(len(theta))
        ]
        return found, np.array(failed, bool)

    def there_and_back(self, points: Array) -> Array:
        """Return unconstrained points, shape (n, D), after a way to the parameters and back.

        What a parameter loses to rounding shows as a difference. A row is NaN where a parameter
        reached a bound. The lengths of unit vectors come back as 1.
        """
        rows = np.ascontiguousarray(points, float)
        theta = np.empty((len(rows), len(self.names)))
        for part in self._pace.parts(len(rows)):
            variables_at(self._constrain, self.handle, False, rows[part], theta[part], 0)
        found, failed = self.unconstrained(theta)
        found[failed] = np.nan
        return found

    @property
    def address(self) -> int:
        """Address of the C function ``bs_log_density_gradient`` for compiled kernels.

        Its type is int(handle, bool propto, bool jacobian, const double *x, double *log_density,
        double *gradient, char **error). Pass true for both flags and a null pointer for the error.
        The function does not hold the interpreter lock. The address is valid as long as this object
        lives.
        """
        return _address(self._model.stanlib.bs_log_density_gradient)

    @functools.cached_property
    def _value_and_gradient(self) -> Callable[..., int]:
        return SIGNATURE(self.address)

    @functools.cached_property
    def _constrain(self) -> Callable[..., int]:
        return SIGNATURE(_address(self._model.stanlib.bs_param_constrain))

    @functools.cached_property
    def _invert(self) -> Callable[..., int]:
        return _ON_VALUES(_address(self._model.stanlib.bs_param_unconstrain))

    @property
    def handle(self) -> int:
        """The model handle, which is the first argument of the function at `address`."""
        return int(self._model.model or 0)


def tried(recipe: Recipe) -> Density | None:
    """The density of a recipe; None where the engine cannot make it."""
    try:
        return Density(recipe)
    except (CompilerMessageError, ValueError, RuntimeError):
        return None


def _address(function: Any) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0


def _model(recipe: Recipe) -> bridgestan.StanModel:
    """The model by the CmdStan that the recipe names, or by the embedded engine."""
    if recipe.home:
        return compiled_model(recipe.source, recipe.data, home_at(Path(recipe.home)))
    mir = embedded.runnable(recipe.source)
    return stanli.bridgestan_model(mir=mir, data=recipe.data, capture_stan_prints=False)


# The densities of the last four recipes.
_shelves = Shelves[Density](4)


def _lend(recipe: Recipe) -> AbstractContextManager[Density]:
    return _shelves.lend(recipe.key, functools.partial(Density, recipe))


def _columns_by_variable(names: list[str]) -> dict[str, Array]:
    """Map the name of each variable to the columns of its elements, an array of its shape.

    Flat names are those of Stan, e.g. ``theta.2.1`` with indices from 1.
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

"""Densities given by Python functions, for the same samplers without a Stan program.

A ctypes callback gives the function the signature that compiled kernels call. Each call takes the
interpreter's lock and some microseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import LostExecutorError, SamplingError, StanctError, shortened
from stanct.kernels import SIGNATURE
from stanct.work.interrupts import end_if_left_behind


class FunctionWarning(UserWarning):
    """A target's function raised an exception, which counts as a rejected point."""


@dataclass
class _Noted:
    """How often functions were called and raised an exception in this process, and the last one."""

    calls: int = 0
    raised: int = 0
    last: BaseException | None = None


_noted = _Noted()


class FunctionDensity:
    """A log density on R^D given by a Python function.

    An exception in the function counts as a rejected point. The first one is shown as a warning,
    with its traceback; the last one is kept in `failure`. A log density of NaN or +inf is a
    rejected point too.

    Parameters
    ----------
    function
        Takes an unconstrained point, shape (D,), and returns −φ and its gradient, shape (D,). The
        function is called from several threads, one at a time.
    dimension
        Number of dimensions D.
    """

    def __init__(self, function: Callable[[Array], tuple[float, Array]], dimension: int) -> None:
        if dimension < 1:
            raise SamplingError(f"A density needs one or more dimensions, not {dimension}.")
        self.function = function
        self.dimension = dimension
        self.failure: BaseException | None = None
        self._callback = SIGNATURE(self._call)

    def __reduce__(self) -> tuple[type[FunctionDensity], tuple[Any, int]]:
        return FunctionDensity, (self.function, self.dimension)

    @property
    def borrow(self) -> Callable[[], contextlib.AbstractContextManager[FunctionDensity]]:
        """Context manager that yields this density, whose callback is safe in any thread.

        See `Density.borrow`. It can be pickled if the function can, which must be importable by
        name.
        """
        return functools.partial(contextlib.nullcontext, self)

    @property
    def address(self) -> int:
        """Address of the callback, valid as long as this object lives; see `Density.address`."""
        return ctypes.cast(self._callback, ctypes.c_void_p).value or 0

    @property
    def handle(self) -> int:
        """Zero, because the callback does not use a handle."""
        return 0

    @property
    def constant(self) -> float:
        """Zero, because the callback returns the whole log density."""
        return 0.0

    def _call(self, *arguments: int) -> int:
        """Evaluate the function with the arguments of `Density.address`; 1 at a rejected point."""
        _, _, _, x, value, gradient, _ = arguments
        _noted.calls += 1
        try:
            row = ctypes.c_double * self.dimension
            found, slope = self.function(np.array(row.from_address(x)))
            ctypes.c_double.from_address(value).value = float(found)
            np.ctypeslib.as_array(row.from_address(gradient))[:] = slope
        except BaseException as failure:
            self._note(failure)
            return 1
        return 0

    def _note(self, failure: BaseException) -> None:
        first, self.failure = self.failure is None, failure
        _noted.raised, _noted.last = _noted.raised + 1, failure
        if first:
            told = "".join(traceback.format_exception(failure))
            # A warning that is turned into an error cannot pass through compiled code.
            with contextlib.suppress(FunctionWarning):
                warnings.warn(
                    "The target's function raised an exception. Such points are rejected, and "
                    f"further exceptions are not shown.\n{told}",
                    FunctionWarning,
                    stacklevel=2,
                )

    def check(self, points: Array) -> None:
        """Call the function at points, shape (n, D), until it works at one, as it has to.

        Raises
        ------
        Exception
            The function's own, from the first point, if it raises one at every point. A note says
            where it was called.
        SamplingError
            The function does not return a number and a gradient of shape (D,).
        """
        first: Exception | None = None
        for x in points:
            try:
                returned = self.function(np.array(x, float))
            except Exception as failure:
                if first is None:
                    first = failure
                    BaseException.add_note(
                        first,
                        f"stanct called the target's function at {np.array2string(x, threshold=9)},"
                        f" a draw of the base, and it raised at all of {len(points)} draws. Where "
                        "the density is zero, let it return -inf.",
                    )
                continue
            self._check_returned(returned)
            return
        if first is not None:
            raise first

    def _check_returned(self, returned: Any) -> None:
        remedy = "Let it return the log density and its gradient."
        try:
            value, gradient = returned
            value = float(value)
            if np.iscomplexobj(gradient):
                raise TypeError("the gradient is complex")
            np.asarray(gradient, float)
        except (TypeError, ValueError) as cause:
            told = shortened(repr(returned), 60)
            raise SamplingError(
                f"The target's function returns {told}, which is no number with a gradient: "
                f"{cause}.",
                remedy=remedy,
            ) from cause
        if np.isfinite(value) and np.shape(gradient) != (self.dimension,):
            raise SamplingError(
                f"The target's function returns a gradient of shape {np.shape(gradient)}, not "
                f"{(self.dimension,)}.",
                remedy=remedy,
            )

    def log_density_gradient(self, x: Array) -> tuple[float, Array]:
        """Return −φ and its gradient, shape (D,); (−inf, zeros) at a rejected point."""
        end_if_left_behind()
        _noted.calls += 1
        try:
            value, gradient = self.function(np.array(x, float))
            value, gradient = float(value), np.asarray(gradient, float)
        except Exception as failure:
            self._note(failure)
            return -np.inf, np.zeros(self.dimension)
        return (value, gradient) if value < np.inf else (-np.inf, np.zeros(self.dimension))

    def log_density(self, x: Array) -> float:
        """Return −φ at the unconstrained point `x` of shape (D,); −inf at a rejected point."""
        return self.log_density_gradient(x)[0]

    def log_densities(self, points: Array) -> Array:
        """Return −φ, shape (n,), at the rows of `points`, shape (n, D)."""
        return np.array([self.log_density(x) for x in points])

    def log_density_gradients(self, points: Array) -> tuple[Array, Array]:
        """Return −φ and its gradients at the rows of `points`, shapes (n,) and (n, D)."""
        found = [self.log_density_gradient(x) for x in points]
        return np.array([value for value, _ in found]), np.array([slope for _, slope in found])


@contextlib.contextmanager
def telling_of(target: Any) -> Iterator[None]:
    """Let the exception of a target's function be the cause of the error that ends the body.

    A worker's exceptions stay in its process. The function is then called once here.
    """
    before, last = replace(_noted), _noted.last
    try:
        yield
    except LostExecutorError:
        raise
    except StanctError as error:
        if not isinstance(target, ProgramlessTarget):
            raise
        density = getattr(target, "density", None)
        if _noted.last is last and isinstance(density, FunctionDensity):
            density.log_density(np.zeros(density.dimension))
        failure = _noted.last
        if failure is None or failure is last or error is failure:
            raise
        raised, calls = _noted.raised - before.raised, _noted.calls - before.calls
        told = traceback.format_exception_only(failure)[-1].strip()
        error.message += (
            f" The target's function raised an exception at {raised} of {calls} calls. The last "
            f"one is the cause of this error: {shortened(told, 300).rstrip('.')}."
        )
        raise error from failure


class ProgramlessTarget:
    """The part of a target without program and data that runs record; its variable is ``x``."""

    label: str

    @property
    def programs(self) -> dict[str, str]:
        """Generated programs: none."""
        return {}

    @property
    def data_text(self) -> str:
        """JSON text of no data."""
        return "{}"

    @property
    def origin(self) -> dict[str, Any]:
        """Provenance of program and data."""
        empty = hashlib.sha256(b"{}").hexdigest()
        return {
            "program": self.label,
            "parameters": ["x"],
            "program_sha256": None,
            "data_names": [],
            "data_origin": "no data",
            "data_sha256": empty,
        }

    def variables(self, x: Array, seed: np.random.SeedSequence) -> Mapping[str, Array]:
        """Return the draws as the variable ``x``, shape (chains, draws, D)."""
        return {"x": x}

    def in_turn(self, seed: np.random.SeedSequence) -> Callable[[Array], Mapping[str, Array]]:
        """Return a function that gives rows of draws, shape (n, D), as the variable ``x``."""
        return lambda x: {"x": x}

    def without_generated(self, x: Array) -> Mapping[str, Array]:
        """Return the draws as the variable ``x``; nothing is generated from them."""
        return {"x": x}


@dataclass(frozen=True)
class FunctionTarget(ProgramlessTarget):
    """A target given by a `FunctionDensity`; its one variable is ``x`` of shape (D,).

    Without a program no base can be fitted: pass ``base=GaussianBase(...)``.

    Attributes
    ----------
    density
        The log density.
    label
        Name of the target in the run.
    """

    density: FunctionDensity
    label: str = "function"
    prefix: str = field(default="ct_", repr=False)

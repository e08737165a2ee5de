"""The embedded engine: stanli, a Stan compiler and runtime in one wheel.

This module runs stanc, NUTS, single-path Pathfinder and L-BFGS. Log densities are evaluated through
the BridgeStan interface in `stanct.targets.density`.

The engine always works with propto=true and jacobian=true. A program must therefore keep its
constants itself (`target += …_lpdf`), as the generated programs do.

Threads (observed with stanli 0.24): log densities through BridgeStan work from any thread. NUTS,
Pathfinder and L-BFGS need an autodiff tape, which exists only in the thread that loaded the library
and in the engine's own threads. Chains therefore run together in one call, and `tape` makes it
where there is one.
"""

from __future__ import annotations

import functools
import hashlib
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.errors import EngineError
from stanct.engines.plain_names import plainly_named
from stanct.engines.tape import on_tape, stanli
from stanct.stan.data_densities import OF_DATA, named_density_of_data
from stanct.stan.guards import guarded
from stanct.stan.stand_ins import with_stand_ins

ParameterShapes = Mapping[str, tuple[int, ...]]

NAME = "embedded"
# Draws by which Pathfinder judges each step of its ascent, unless it is told otherwise.
JUDGED = 10

# NUTS statistics in the engine's order, under their CmdStan names.
STATISTICS: tuple[str, ...] = tuple(stanli.SAMPLER_COLUMNS)

# The compiler inside the engine is one OCaml runtime, which serves one thread at a time.
_compiler_lock = threading.Lock()


class CompilerMessageError(Exception):
    """Stan's message about a program that it rejects; callers add the place and the remedy."""


@dataclass(frozen=True)
class Recipe:
    """Program text and data of a model, from which any process can rebuild it.

    Includes are resolved, and data are JSON text. The constant is added to the log density. `home`
    is the folder of the CmdStan that compiles the density; empty for the embedded engine.
    """

    source: str = field(repr=False)
    data: str = field(repr=False)
    constant: float = 0.0
    home: str = ""

    @functools.cached_property
    def key(self) -> str:
        """SHA-256 of source, data, constant and home."""
        told = f"{self.source}\0{self.data}\0{self.constant}\0{self.home}"
        return hashlib.sha256(told.encode()).hexdigest()


@dataclass(frozen=True)
class Nuts:
    """Settings of NUTS: the acceptance statistic to which warm-up tunes the step size, and the
    chains that run in parallel, on which the draws do not depend.
    """

    target_accept: float = 0.8
    max_depth: int = 10
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)


@dataclass(frozen=True)
class Adapted:
    """Step sizes, shape (chains,), diagonals of inverse metrics and last points, (chains, D)."""

    step_size: Array
    inv_metric: Array
    position: Array
    gradients: int


@dataclass(frozen=True)
class DrawBlock:
    """Consecutive draws of several chains.

    `variables` have shape (chains, draws, ...), and the NUTS statistics (chains, draws).
    """

    variables: dict[str, Array]
    statistics: dict[str, Array]

    def position(self, names: tuple[str, ...]) -> Array:
        """Join the last draws of the named unconstrained parameters, shape (chains, dimension).

        Matrices are joined column by column, as in Stan.
        """
        last = [np.moveaxis(self.variables[name][:, -1], 0, -1) for name in names]
        return np.concatenate([v.reshape(-1, v.shape[-1], order="F") for v in last]).T

    @property
    def gradients(self) -> int:
        """Leapfrog steps, one gradient each."""
        return int(self.statistics["n_leapfrog__"].sum())


def versions() -> dict[str, str]:
    """Return the version and the build of the engine."""
    return {"stanli": stanli.__version__, "build": stanli.build_id()}


def runnable(source: str) -> str:
    """Compile a program, as `compile_program` does, with what the engine needs to run it rightly.

    Raises `CompilerMessageError` for a program that is not legal Stan, and `RuntimeError` for one
    that would end the process. The generated text stays as the user reads it, and CmdStan needs
    none of it.
    """
    mir = compile_program(source)  # says what is wrong with the text itself
    fatal = named_density_of_data(source)
    if fatal:
        raise RuntimeError(f"stanli compile: {OF_DATA} {fatal}")
    changed = with_stand_ins(guarded(source))
    if changed == source:
        return mir
    try:
        return compile_program(changed)
    except CompilerMessageError:
        return mir


@functools.lru_cache(maxsize=64)
def compile_program(source: str) -> str:
    """Compile a program with stanc and return its intermediate code; results are cached.

    Raises `CompilerMessageError` with stanc's message, its line and caret.
    """
    with _compiler_lock:
        try:
            return plainly_named(stanli.stan_to_mir(source))
        except RuntimeError as cause:
            raise CompilerMessageError(str(cause).strip()) from cause


def warning(recipe: Recipe) -> str:
    """Return what the engine says of a program that it can run in part; empty if it runs all.

    Raises `CompilerMessageError` for a program that is not legal Stan, and `RuntimeError` if the
    engine cannot run it, or rejects the data.
    """
    mir = runnable(recipe.source)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", RuntimeWarning)
        stanli.Model(mir=mir, data=recipe.data)
    return "\n".join(str(one.message) for one in caught)


def _model(recipe: Recipe) -> Any:
    mir = runnable(recipe.source)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return stanli.Model(mir=mir, data=recipe.data)


class _Models(threading.local):
    """The last four models of this thread; a handle must not be used by two calls at once."""

    def __init__(self) -> None:
        self.get = functools.lru_cache(maxsize=4)(_model)


_models = _Models()


def run_nuts(
    recipe: Recipe, positions: Array, *, seed: int, warmup: int, draws: int, nuts: Nuts
) -> tuple[DrawBlock, int]:
    """Run NUTS chains; return their draws and the gradients spent, warm-up included."""
    fit = _sample(
        recipe,
        chains=len(positions),
        parallel_chains=nuts.threads,
        seed=seed,
        warmup=warmup,
        samples=draws,
        delta=nuts.target_accept,
        max_depth=nuts.max_depth,
        save_warmup=True,
        inits=positions,
    )
    return fit.block(warmup), fit.block(0).gradients


def pathfinder(
    recipe: Recipe, *, seed: int, draws: int, radius: float, judged: int = JUDGED
) -> DrawBlock:
    """Draw by single-path Pathfinder from one random start; the draws form one chain.

    The start is uniform within `radius` of the origin in every unconstrained coordinate. The
    Gaussian at each step of the ascent is judged by so many draws.

    The engine offers Pathfinder only as an initialisation of chains. One chain is therefore started
    for each draw. It takes one step of vanishing size, which leaves it where Pathfinder put it.
    """
    fit = _sample(
        recipe,
        chains=draws,
        parallel_chains=1,
        seed=seed,
        warmup=0,
        samples=1,
        pathfinder_init={"init_radius": radius, "num_elbo_draws": judged},
        adapt_engaged=False,
        step_size=1e-14,
        max_depth=1,
    )
    block = fit.block(0)
    return DrawBlock({name: np.swapaxes(v, 0, 1) for name, v in block.variables.items()}, {})


@dataclass(frozen=True)
class _Fit:
    """The parts of the engine's fit that stanct uses; it can be pickled, the engine's cannot."""

    variables: dict[str, Array]
    statistics: Array
    step_size: Array
    inv_metric: Array

    def block(self, first: int) -> DrawBlock:
        return DrawBlock(
            {name: values[:, first:] for name, values in self.variables.items()},
            {name: self.statistics[:, first:, k] for k, name in enumerate(STATISTICS)},
        )


def _sample(recipe: Recipe, **settings: Any) -> _Fit:
    return on_tape(_sample_here, recipe, settings)


@contextmanager
def heeding_interrupts() -> Iterator[None]:
    """Raise `KeyboardInterrupt` after the body if Ctrl-C was pressed in it without effect.

    The engine replaces the signal handler while chains run, and loses an interrupt that arrives
    shortly before they end. With short blocks that is most of the time. Python also drops an
    interrupt that is raised in a finaliser.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = socket.socketpair()
    with reader, writer:
        reader.setblocking(False)
        writer.setblocking(False)
        previous = signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(previous)
        try:
            signals = reader.recv(4096)
        except BlockingIOError:
            return
    if signal.SIGINT in signals:
        raise KeyboardInterrupt


def _sample_here(recipe: Recipe, settings: dict[str, Any]) -> _Fit:
    try:
        with heeding_interrupts():
            fit = _models.get(recipe).sample(refresh=0, **settings)
    except RuntimeError as cause:
        raise EngineError(
            f"The sampler could not start or go on. Stan says: {cause}.",
            remedy="Check that the density is finite near the origin of the unconstrained space.",
        ) from cause
    return _Fit(
        {name: fit.draws(name) for name in fit.variables},
        fit.sampler_stats,
        np.array(fit.step_size),
        np.array(fit.inv_metric),
    )

"""Compiles NUTS in a process of its own, so that a first run can look for its base meanwhile."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numpy as np
from numba import typeof

from stanct import compiling
from stanct.kernels.densities import make_extended
from stanct.kernels.evaluation import make_scratch
from stanct.kernels.extended import evaluate_extended
from stanct.kernels.nuts import Orbit, make_nuts_out, make_subtrees, nuts_draws
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase


class _Nowhere:
    """A density that has a type and is never called."""

    address = handle = 0
    constant = 0.0


def compile_ahead() -> None:
    """Let another process compile NUTS, unless its machine code is there or could not be kept.

    A loop that is wanted before that process is done waits for it.
    """
    alone = len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False
    if alone or compiling.is_kept(nuts_draws) or not sys.executable:
        return
    with _ONCE:
        if compiling.awaited():
            return
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import compiled_here; compiled_here()"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        waiting = threading.Thread(target=process.wait, daemon=True)
        waiting.start()
        compiling.await_from(waiting, (nuts_draws, evaluate_extended))


_ONCE = threading.Lock()


def compiled_here() -> None:
    """Compile NUTS in this process."""
    base = GaussianBase(np.zeros(1), np.eye(1))
    extended = make_extended(_Nowhere(), base, Bias.linear(0.0), 1, np.zeros(0))
    trees, scratch = make_subtrees(10, 2, 1), make_scratch(1)
    orbit = Orbit(extended, np.ones(2), trees, scratch)
    rng = np.random.Generator(np.random.PCG64(0))
    vector, delta = trees.vectors[0, 0], trees.scalars[0]
    for loop, arguments in (
        (evaluate_extended, (extended, vector, vector, delta, scratch)),
        (nuts_draws, (orbit, 1.0, 10, True, rng, make_nuts_out(0, 2, 1))),
    ):
        loop.compile(tuple(typeof(argument) for argument in arguments))

"""Compiles a method's loops in another process while a first run looks for its base."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
from numba import typeof

from stanct.common import compiling
from stanct.kernels.annealing import Schedule, anneal, make_population, make_tally
from stanct.kernels.contact import Flow, contact_flow, make_swarm
from stanct.kernels.densities import make_extended
from stanct.kernels.evaluation import State, evaluate, make_scratch
from stanct.kernels.extended import evaluate_extended
from stanct.kernels.hmc import Mover, Moves, make_table, tempered_move
from stanct.kernels.inversion import make_law
from stanct.kernels.noisy import Potential, energy_at, make_reading
from stanct.kernels.nuts import Orbit, make_nuts_out, make_subtrees, nuts_draws
from stanct.kernels.tact import Bias as Learned
from stanct.kernels.tact import Dynamics, TactOut, Walker, run_looks
from stanct.kernels.tempering import (
    Alternation,
    Scanning,
    gibbs_draws,
    ladder_scans,
    make_gibbs_out,
    make_ladder_out,
    make_rungs,
)
from stanct.path.bias import Bias
from stanct.path.gaussian import GaussianBase

_LOOPS: dict[str, Any] = {
    loop.__name__: loop
    for loop in (
        evaluate,
        evaluate_extended,
        nuts_draws,
        gibbs_draws,
        ladder_scans,
        anneal,
        tempered_move,
        contact_flow,
        energy_at,
        run_looks,
    )
}


class _Nowhere:
    """A density that has a type and is never called."""

    address = handle = 0
    constant = 0.0


def compile_ahead(names: Iterable[str]) -> None:
    """Let another process compile loops whose machine code is not there and can be kept.

    A loop that is wanted before it is compiled waits for it.
    """
    alone = len(os.sched_getaffinity(0)) == 1 if hasattr(os, "sched_getaffinity") else False
    if alone or not sys.executable:
        return
    with _ONCE:
        loops = [_LOOPS[name] for name in names]
        wanted = [loop for loop in loops if not compiling.is_kept_or_awaited(loop)]
        if not wanted:
            return
        called = ", ".join(repr(loop.__name__) for loop in wanted)
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", f"from {__name__} import compiled_here as f; f({called})"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        except OSError:
            return
        waiting = threading.Thread(target=process.wait, daemon=True)
        waiting.start()
        compiling.await_from(waiting, wanted)


_ONCE = threading.Lock()


def compiled_here(*names: str) -> None:
    """Compile loops in this process, in this order."""
    base, one, two = GaussianBase(np.zeros(1), np.eye(1)), np.zeros(1), np.zeros(2)
    extended = make_extended(_Nowhere(), base, Bias.linear(0.0), 1, np.zeros(0))
    problem, scratch, trees = extended.problem, make_scratch(1), make_subtrees(10, 2, 1)
    state, rng = State(one, one, one), np.random.Generator(np.random.PCG64(0))
    pair, three, eye, counts = (1.0, 1.0), np.zeros(3), np.eye(1), np.zeros(3, np.int64)
    potential = Potential(
        problem.call, counts, one, one, 0, True, one, eye, one, eye, pair,
    )  # fmt: skip
    mover = Mover(Moves(1.0, 1, 0.8, True), make_table(1), scratch)
    arguments: dict[str, tuple[Any, ...]] = {
        "evaluate": (problem, one, one, one, scratch),
        "evaluate_extended": (extended, one, one, one, scratch),
        "nuts_draws": (
            Orbit(extended, two, trees, scratch), 1.0, 10, True, rng, make_nuts_out(0, 2, 1),
        ),
        "gibbs_draws": (
            problem, state, Alternation(1.0, make_law(two, two), True, 1), mover, rng,
            make_gibbs_out(0, 1),
        ),
        "ladder_scans": (
            problem, make_rungs(np.zeros((2, 1))), Scanning(two, 1, True), mover, rng,
            make_ladder_out(0, 2, 1),
        ),
        "anneal": (
            problem, make_population(np.zeros((0, 1))), Schedule(two, 1), mover, rng, make_tally(),
        ),
        "tempered_move": (problem, state, 1.0, mover, rng),
        "contact_flow": (
            problem, Flow(1.0, 1.0, 1.0, 1.0, 1, two, two), make_swarm(np.zeros((0, 1)), 2),
            (0, 1), rng, scratch,
        ),
        "energy_at": (potential, one, rng, make_reading(1)),
        "run_looks": (
            potential, Walker(one, one, one, three, counts), Learned(one, one, one, one),
            Dynamics(
                pair, pair, pair, 1.0, 1.0, 1.0, 1.0, True, True, True, 1, True, (1.0, 1.0, 1.0),
                0.0, (1, 1),
            ),
            rng, TactOut(eye, one, eye, make_reading(1)),
        ),
    }  # fmt: skip
    for name in names:
        _LOOPS[name].compile(tuple(typeof(argument) for argument in arguments[name]))

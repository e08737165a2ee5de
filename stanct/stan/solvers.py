"""Which programs solve equations inside of their density.

The time of such a density depends on the parameters, and may grow without a bound far away: a rate
of decay of exp(15) makes an explicit solver a hundred thousand times slower than one of 1.
"""

from __future__ import annotations

from stanct.stan.nodes import Range
from stanct.stan.program import Program

SOLVERS = frozenset(
    {f"ode_{way}{tol}" for way in ("rk45", "bdf", "adams", "ckrk") for tol in ("", "_tol")}
    | {"integrate_ode", "integrate_ode_rk45", "integrate_ode_bdf", "integrate_ode_adams"}
    | {"ode_adjoint_tol_ctl", "dae", "dae_tol", "algebra_solver", "algebra_solver_newton"}
    | {"solve_newton", "solve_newton_tol", "solve_powell", "solve_powell_tol"}
)
"""Stan's solvers of differential and algebraic equations."""


def solves_equations(program: Program) -> bool:
    """Whether a program calls one of the `SOLVERS` anywhere."""
    everywhere = Range(0, len(program.syntax.tokens))
    return bool(program.syntax.calls(everywhere, SOLVERS.__contains__))

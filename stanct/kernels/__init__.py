"""Compiled inner loops, and the records that they take.

What is imported here is what other packages call. The loop of TACT-HMC has its own vocabulary and
is imported from `stanct.kernels.tact`.
"""

from stanct.kernels.ahead import compile_ahead
from stanct.kernels.annealing import (
    Population,
    Schedule,
    Tally,
    anneal,
    make_population,
    make_tally,
)
from stanct.kernels.contact import (
    Flow,
    Leg,
    Swarm,
    contact_flow,
    contact_step,
    flux_momentum,
    make_swarm,
)
from stanct.kernels.densities import (
    SIGNATURE,
    CallableDensity,
    Problem,
    make_extended,
    make_problem,
)
from stanct.kernels.evaluation import (
    DIVERGED,
    OK,
    REJECTED,
    State,
    delta_of,
    evaluate,
    log_tempered,
    make_scratch,
    make_state,
    repeat_density,
)
from stanct.kernels.extended import evaluate_extended, repeat_extended
from stanct.kernels.hmc import (
    Mover,
    Moves,
    Phase,
    StepTable,
    Trajectory,
    copy_table,
    leapfrog,
    make_table,
    pool_tables,
    refresh,
    step_at,
    tempered_move,
    transition,
)
from stanct.kernels.inversion import draw_beta, draw_rung, make_law
from stanct.kernels.nuts import (
    DELTA,
    LOG_DENSITY,
    POINT,
    STATE,
    Orbit,
    energy_lost,
    make_nuts_out,
    make_subtrees,
    nuts_draws,
)
from stanct.kernels.tempering import (
    Alternation,
    GibbsOut,
    LadderOut,
    Rungs,
    Scanning,
    gibbs_draws,
    ladder_scans,
    make_gibbs_out,
    make_ladder_out,
    make_rungs,
)

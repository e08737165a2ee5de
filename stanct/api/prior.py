"""Draws of the prior of a run's program, from the program with its likelihood to the power 0."""

from __future__ import annotations

from collections.abc import Sequence

from stanct.api.sampling import sample
from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.estimates.weighted import rows_of
from stanct.runs.inference import variables_at
from stanct.runs.run import Run
from stanct.stan.program import Program
from stanct.targets.data import StanData
from stanct.targets.recipes import prior_target


def prior_draws(
    run: Run, draws: int, seed: int | None, progress: bool, generated: Sequence[str] = ()
) -> dict[str, Array]:
    """Equally weighted draws of the prior, also of some generated quantities; see `Run.prior`."""
    if not run.programs:
        raise StanctError("The run has no Stan program, and so no prior that can be told apart.")
    density = Program.from_source(run.programs["density"], name=run.provenance["program"])
    data = StanData(run.data, run.provenance["data_origin"])
    seed = run.settings["seed"] if seed is None else seed
    prior = prior_target(density, data)
    found = sample(prior, seed=seed, draws=max(50, draws), progress=progress)
    if not found.verdict.for_draws:
        raise StanctError(
            f"The prior could not be sampled: {', '.join(found.verdict.draws)} failed.",
            remedy="Is it improper? See `stanct.temper(...).omissions`.",
        )
    rows = found.picked(draws, seed)
    own = rows_of(found.variables, rows)
    rest, x = set(generated) - own.keys(), found.unconstrained(rows)
    if not rest or x is None:
        return own
    every = variables_at(x, run.programs["density"], run.data)
    return own | {name: values for name, values in every.items() if name in rest}

"""Options of all methods: spelled, typed, documented and given their rules once."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from typing import Annotated, Any, TypedDict

from stanct.bases.loop import Recipe
from stanct.common.names import BASES, ENGINES
from stanct.common.settings import Choice, Flag, Folder, Instance, Real, Whole
from stanct.engines.cmdstan import CmdStan
from stanct.path.base import Base
from stanct.runs.foreign import Fit, is_fit, is_path_of_fit
from stanct.targets.inits import INITS, Inits
from stanct.work.pools import FORMS


def is_base(value: Any) -> bool:
    """Whether a value is a base of the user's own."""
    # An isinstance test against the protocol would compute properties such as a D × D matrix.
    return all(hasattr(type(value), name) for name in ("whiten", "unwhiten", "draw", "delta"))


def _is_base_or_fit(value: Any) -> bool:
    known = isinstance(value, Recipe) or is_base(value) or is_fit(value)
    return known or is_path_of_fit(value)


EXECUTOR = f"{FORMS}, or a concurrent.futures.Executor, such as Dask's client.get_executor()"


class Options(TypedDict, total=False):
    """Options of every method.

    Attributes
    ----------
    chains
        Number of independent chains, ladders or streams of particles; 4 by default.
    draws
        Kept iterations of each chain: 200 with 4 chains keep 800. The default depends on the
        method. Without `draws` and `target_se`, the method auto stops earlier where it has enough;
        see `Auto`.
    warmup
        Adaptation iterations of each chain. The default depends on the method.
    target_se
        Standard error of log Z at which to stop, in every method that estimates log Z. The check
        ``"target_se"`` says why the run stopped.
    max_draws
        Largest number of draws of each chain until `target_se` is reached, by default 20 × `draws`,
        which then serves only for this.
    seed
        Seed of all random streams. By default, a fresh seed is drawn and recorded. The draws do not
        depend on the number of threads, unless CmdStan's threads share a `reduce_sum`.
    base
        Name of the fit of the base, such as ``"pilot"``, ``"pathfinder"``, ``"laplace"`` or
        ``"advi"``, a base of your own, or a fit of the program that another tool made, in a form
        that `stanct.bridge` reads, but no path as text; then the base has the moments of its draws.
        `stanct.bases.fits.fit_base` describes the named fits, and `stanct.recipe` gives the makers
        of one, to change or to add to.
        ``"auto"``, the default, leaves the choice to the method, which is ``"pilot"`` for most.
    inits
        Places from which the search for modes also starts: a mapping of parameter names to values
        in the program's own space, the path of such a JSON file, or a list of these. Parameters are
        those of the program as you wrote it, which is then the form that is sampled. Those that an
        init does not name are random, uniform within 2 of 0 in the unconstrained space. `Run.steps`
        tells where the ascent from each init ended.
    search_radius
        Largest radius around the origin of the unconstrained space at which the search for modes
        starts; 100 by default, and 2 where the program solves equations. Modes farther out are
        found only from starts beyond. Of a parameter with two bounds, a radius of 10 is the whole
        range but for a twenty-thousandth at each end, and a larger one adds next to nothing. Both
        serve the bases ``"pilot"``, ``"low_rank"``, ``"mixture"`` and ``"modes"``; no search is
        made in more than 250 dimensions.
    log_zeta
        Guess at log Z that accompanies a base of your own. It only starts the bias.
    engine
        What runs the chains. ``"auto"``, the default, is the embedded engine, which compiles
        nothing, also where a CmdStan is installed. In the methods auto, joint, pseudo_extended and
        extended_hamiltonian, ``"cmdstan"`` or a `CmdStan` compiles the generated program and runs
        its own NUTS on it, which pays where `reduce_sum` shares long gradients among threads.
        ``"opencl"`` builds it for the first GPU, or else for the first OpenCL device;
        ``CmdStan.here(opencl=(1, 0))`` names a platform and a device.
    threads
        Number of chains that run at once; by default the number of cores. With CmdStan and a
        program that has `reduce_sum`, each chain has ``threads // chains`` threads. With an
        executor, the number of threads of each task that runs several chains in one worker: the
        search for the base, with its pilots and particles, and a power of ``power_posterior``.
    executor
        Runs the blocks of the chains in place of threads: any `concurrent.futures.Executor`,
        including Dask's ``client.get_executor()``, or the text ``"processes:4"``, ``"threads:4"``
        or ``"dask:tcp://host:port"``. The draws do not depend on the executor. One of its workers
        looks for the base. CmdStan runs in processes of its own and takes none.
    checkpoint
        Folder from which a killed run resumes when the same call is repeated. The folder remains
        after the run has finished; delete it once the run is saved.
    thin
        Of every so many draws one keeps x, in the methods auto, joint, gibbs, simulated_tempering
        and independence; 1 by default. log Z, β and δ use all draws. What is computed from x uses
        the kept ones, and its errors and effective sizes are theirs.
    keep
        Names of the variables of the program that the run keeps; all by default.
    store
        Folder, new or empty, to which the kept draws go as they are made, in the methods of `thin`.
        Memory then does not grow with them, and `z` and large variables of the run map files. Until
        the run ends, the folder is a checkpoint: repeat the call after a kill, or with
        ``max_seconds=0`` for the finished draws. At the end it is a saved run, for `stanct.load`.
    max_seconds
        Time in seconds after which the run ends with the draws that are finished, and a failed
        check ``"max_seconds"`` says so. It is an error if the time passes before every chain has
        draws that count. The user's variables take a little more time, and estimates and checks are
        made when they are asked for: with millions of draws, that takes seconds. With 0 and
        a checkpoint, the run has what the checkpoint holds.
    progress
        Whether the progress is shown on stderr: bars on a terminal, elsewhere a line now and then.
    """

    chains: Annotated[int, Whole(1)]
    draws: Annotated[int | None, Whole(1)]
    warmup: Annotated[int | None, Whole(0)]
    target_se: Annotated[float | None, Real(0)]
    max_draws: Annotated[int | None, Whole(8)]
    seed: Annotated[int | None, Whole(0)]
    base: Annotated[
        str | Base | Fit | Recipe,
        Choice(*BASES, fits=_is_base_or_fit, called="a base or a fit of your own"),
    ]
    inits: Annotated[Inits | None, Instance(Mapping | str | os.PathLike | list | tuple, INITS)]
    search_radius: Annotated[float | None, Real(0)]
    log_zeta: Annotated[float | None, Real()]
    engine: Annotated[
        str | CmdStan,
        Choice(*ENGINES, fits=lambda value: isinstance(value, CmdStan), called="a CmdStan"),
    ]
    threads: Annotated[int | None, Whole(1)]
    executor: Annotated[Executor | str | None, Instance(Executor | str, EXECUTOR)]
    checkpoint: Annotated[str | os.PathLike[str] | None, Folder()]
    thin: Annotated[int, Whole(1)]
    keep: Annotated[Sequence[str] | None, Instance(list | tuple, "a list of names of variables")]
    store: Annotated[str | os.PathLike[str] | None, Folder()]
    max_seconds: Annotated[float | None, Real(0, closed=True)]
    progress: Annotated[bool, Flag()]


ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("iter_sampling", "num_samples", "n_samples", "nsamples", "iter"), "draws"),
    **dict.fromkeys(("samples", "num_draws", "n_draws", "niter", "n_iter", "num_results"), "draws"),
    **dict.fromkeys(("iter_warmup", "num_warmup", "n_warmup", "tune", "burnin"), "warmup"),
    **dict.fromkeys(("num_chains", "n_chains", "nchains"), "chains"),
    **dict.fromkeys(("parallel_chains", "cores", "n_jobs", "threads_per_chain"), "threads"),
    **dict.fromkeys(("show_progress", "progressbar", "show_progressbar"), "progress"),
    **dict.fromkeys(("show_console", "verbose", "quiet", "refresh", "print_progress"), "progress"),
    **dict.fromkeys(("random_seed", "rng", "random_state"), "seed"),
    **dict.fromkeys(("init", "initvals", "initial_values", "start"), "inits"),
    **dict.fromkeys(("output_dir", "resume"), "checkpoint"),
    **dict.fromkeys(("thinning", "thin_by", "nthin", "n_thin"), "thin"),
    **dict.fromkeys(("pars", "var_names", "include"), "keep"),
    **dict.fromkeys(("timeout", "max_time", "time_limit", "seconds"), "max_seconds"),
    **dict.fromkeys(("dlogz", "tolerance", "tol"), "target_se"),
    **dict.fromkeys(("adapt_delta", "delta"), "target_accept"),
    **dict.fromkeys(("max_treedepth", "max_tree_depth"), "max_depth"),
}
"""What other tools call an option, or a setting of a method, to what it is called here."""

DEFAULTS: Mapping[str, Any] = {
    "chains": 4,
    "base": "auto",
    "engine": "auto",
    "thin": 1,
    "progress": True,
}
"""Defaults of the options that are the same for all methods."""

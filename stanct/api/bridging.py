"""`bridge`: the evidence from a fit that another program made, and a base from that fit."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Literal, Unpack, overload

import numpy as np

from stanct.api.model import TemperedModel
from stanct.api.sampling import measuring_prior, sample
from stanct.api.tempering import temper
from stanct.bases.pilots import Piloted
from stanct.bases.search import NOTHING, Search
from stanct.bases.unseen import unseen_modes
from stanct.common.arrays import Array, log_sum_exp
from stanct.common.errors import SamplingError, StanctError, counted
from stanct.common.seeds import Seeds, fresh_seed
from stanct.common.settings import Flag, Whole, check_fields, declared
from stanct.engines import embedded
from stanct.engines.embedded import Nuts
from stanct.estimates.bridge import (
    Bridge,
    bridges,
    fitted_normal,
    halves,
    reshuffled_halves,
    score_error,
    swapped_log_z,
)
from stanct.estimates.mixing import resampled
from stanct.path.base import Base
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.path.mixture import MixtureBase
from stanct.runs.bridge import BridgeRun
from stanct.runs.chain_files import BY_SAMPLING
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.foreign import Fit
from stanct.runs.unconstrained import sampled
from stanct.runs.verdicts import failures, mendable
from stanct.samplers._beyond import noting_beyond
from stanct.samplers._method import Method
from stanct.samplers._two_stages import noting_two_stages
from stanct.samplers.auto import Auto
from stanct.samplers.options import Options
from stanct.targets.data import DataSource
from stanct.targets.once import refuse_random_data
from stanct.targets.program_target import ProgramTarget
from stanct.work.blas import one_blas_thread
from stanct.work.ledger import Ledger, stamp

HalfPriors = Literal["as written", "renormalise"]
MOST_RESAMPLED = 0.05
"""Largest share of draws at which a chain is back at a point that it left."""
FEWEST_DRAWS = 50
"""Fewest draws of each chain of which two halves can be made."""
PER_DRAW = 50
"""Gradients that a draw of a fit has cost, about, with its share of the warmup."""
SCORED, MOST_SCORED = 4000, 100
"""Draws at which gradients are compared with the draws, and in how many dimensions at most."""
LEAST_SHARE = 0.1
"""Smallest weight of a mode in the mixture from which a tempered run starts."""


@dataclass(frozen=True)
class _Settings:
    """Settings of the bridge, each with its rule."""

    reshuffles: Annotated[int, Whole(0)] = 4
    search: Annotated[bool, Flag()] = True

    def __post_init__(self) -> None:
        check_fields(self)


@overload
def bridge(
    program: str | os.PathLike[str] | TemperedModel,
    data: DataSource,
    fit: Fit,
    *,
    reshuffles: int = 4,
    search: bool = True,
    half_priors: HalfPriors | None = None,
    escalate: Literal[False] = False,
    seed: int | None = None,
    progress: bool = False,
) -> BridgeRun:
    """Return the bridge, whatever its checks say."""


@overload
def bridge(
    program: str | os.PathLike[str] | TemperedModel,
    data: DataSource,
    fit: Fit,
    *,
    reshuffles: int = 4,
    search: bool = True,
    half_priors: HalfPriors | None = None,
    escalate: bool,
    method: Method[Any] | str | None = None,
    **options: Unpack[Options],
) -> EvidenceRun:
    """Return the bridge, or a tempered run where a check of the bridge fails."""


def bridge(
    program: str | os.PathLike[str] | TemperedModel,
    data: DataSource,
    fit: Fit,
    *,
    reshuffles: int = 4,
    search: bool = True,
    half_priors: HalfPriors | None = None,
    escalate: bool = False,
    method: Method[Any] | str | None = None,
    **options: Unpack[Options],
) -> EvidenceRun:
    """Estimate log Z from a fit that you already have, by bridge sampling.

    The evidence is that of the program as you wrote it; `stanct.api.model.TemperedModel.omissions`
    lists the constants that it leaves out. The estimate takes log densities alone, about
    (6 + 3 × `reshuffles`) for each draw. The search takes gradients: up to 30,000 in ascents, those
    of short NUTS chains where it finds something, and of some thousand draws, which tell of another
    density.
    With it, lines through a few draws also look for directions in which the density does not fall
    off. Where the program is Gaussian or independent given a few parameters, draws in two stages
    give a second log Z, for the gradients of some thousand draws.

    Parameters
    ----------
    program
        Path of the Stan program of the fit, or what `stanct.temper` made of it.
    data
        The data of the fit: path of a JSON file, a mapping, or None.
    fit
        A ``CmdStanMCMC``; one or several CmdStan CSV files, or a folder of them; ArviZ's
        ``InferenceData`` or ``DataTree``, or a netCDF file; a DataFrame of draws; or a mapping of
        parameter names to arrays of shape (chains, draws, ...) or (draws, ...). It must have all
        parameters, and equally weighted draws in the order in which they were made.
    reshuffles
        How often halves are drawn anew from blocks of the same draws, to see how log Z varies.
    search
        Whether to search from random starts for modes that the fit has missed. The draws alone
        cannot tell: without the search, the evidence of the visited modes passes all checks. Draws
        in two stages belong to the search.
    half_priors
        As in `stanct.temper`, for a path or a program's text. The draws of the fit stay right.
    escalate
        Whether to temper from the fit if a check fails. The result is then a tempered run, whose
        provenance has the bridge's log Z and warnings under ``"bridge"``. A failed check `program`
        stays in it, because no run tells whether the data or the fit are the wrong ones.
    method
        With `escalate`, the method; ``"auto"`` by default. The base is the Gaussian of the fit.
        Where the fit has missed modes, the default searches for all of them, also from the fit and
        from those, and other methods take a mixture of them as the base.
    options
        The seed and `progress`, and with `escalate` the options of `stanct.sample`.

    Raises
    ------
    StanctError
        The fit cannot be read, lacks a parameter of the program, or has too few draws; or a setting
        is unknown or cannot be right.
    ProgramError, DataError
        As in `stanct.temper` and `stanct.api.model.TemperedModel.sample`.

    References
    ----------
    Meng & Wong (1996); Meng & Schilling (2002), section 2.3; Frühwirth-Schnatter (2004); Micaletto
    & Vehtari (2025), arXiv 2508.14487.
    """
    settings = _Settings(reshuffles, search)
    seed = options.pop("seed", None)
    if not escalate:
        options.pop("progress", None)  # a bridge shows none
        _refuse_tempering({**options, **({} if method is None else {"method": method})})
    target = _as_written(_model(program, half_priors).target(data))
    refuse_random_data(target.program)
    with one_blas_thread():
        seed = fresh_seed() if seed is None else seed
        run, unseen = _Bridging(target, fit, settings, seed).run()
        run = measuring_prior(run, target)
    if not escalate or not mendable(run.diagnostics):
        return run
    return _escalated(target, run, unseen, method, options)


def _refuse_tempering(options: Mapping[str, Any]) -> None:
    """Refuse options of tempering."""
    if options:
        raise SamplingError(
            f"{next(iter(options))} is an option of tempering; the bridge alone has no use for it.",
            remedy="Pass escalate=True too, or leave it out.",
        )


def _model(
    program: str | os.PathLike[str] | TemperedModel, half_priors: HalfPriors | None
) -> TemperedModel:
    if not isinstance(program, TemperedModel):
        return temper(program, half_priors=half_priors or "as written")
    if half_priors is not None:
        raise SamplingError(
            "half_priors is for a program, and stanct.temper has read this one already.",
            remedy="Pass it to stanct.temper.",
        )
    return program


def _as_written(target: ProgramTarget) -> ProgramTarget:
    """The target in the user's own form, whose parameters the fit has."""
    written = target.program if target.written is None else target.written
    return replace(target, program=written, written=None, flexible=False)


class _Bridging:
    """One bridge from a fit to its evidence."""

    def __init__(self, target: ProgramTarget, fit: Fit, settings: _Settings, seed: int) -> None:
        self.target = target
        self.settings = settings
        self.seeds = Seeds(declared(Options)["seed"].checked("seed", seed))
        self.ledger = Ledger()
        self.draws = sampled(target, fit, self.seeds.stream("fit"))
        chains, draws, dimension = self.draws.x.shape
        if draws < FEWEST_DRAWS or chains * draws < 4 * dimension:
            raise StanctError(
                f"{counted(chains, 'chain')} of {draws} draws are too few for a bridge in "
                f"{dimension} dimensions.",
                remedy=f"It needs {FEWEST_DRAWS} draws of each chain and {4 * dimension} in all.",
            )
        if (again := resampled(self.draws.x)) > MOST_RESAMPLED:
            raise StanctError(
                f"{again:.0%} of the draws of {self.draws.origin} repeat others that are not their "
                "neighbours: they were resampled, as those of Pathfinder are.",
                remedy=BY_SAMPLING,
            )
        self.ledger.lap("reading")

    def densities(self, points: Array) -> Array:
        """−φ at unconstrained points, shape (n, D), by all threads; −inf where it is not finite."""
        self.ledger.evaluations += len(points)
        parts = np.array_split(points, os.cpu_count() or 1)
        with ThreadPoolExecutor(len(parts)) as threads:
            return np.concatenate(list(threads.map(self._densities, parts)))

    def _densities(self, points: Array) -> Array:
        with self.target.density.borrow() as own:
            return own.log_densities(points)

    def run(self) -> tuple[BridgeRun, Piloted | None]:
        """The finished bridge, and what the search found."""
        x, log_density, lp, lost = self._inside()
        chains, draws, dimension = x.shape
        first, second = halves(draws)

        def both(fitting: Array, estimating: Array, stream: np.random.Generator) -> Any:
            z = stream.standard_normal((chains * estimating.size, dimension))
            flat = x[:, fitting].reshape(-1, dimension)
            return bridges(flat, x[:, estimating], log_density[:, estimating], self.densities, z)

        rng = self.seeds.stream("normal")
        pairs = [both(*order, rng) for order in ((first, second), (second, first))]
        plain, warped = zip(*pairs, strict=True)
        reshuffled = []
        for number in range(self.settings.reshuffles):
            again = self.seeds.stream("reshuffled", number)
            one, other = reshuffled_halves(draws, again)
            pair = both(one, other, again)[1], both(other, one, again)[1]
            reshuffled.append(swapped_log_z(pair))
        self.ledger.lap("bridge")
        # The search runs on the embedded engine.
        searching = self.settings.search and not self.target.by_cmdstan
        unseen, looked = self._search(x.reshape(-1, dimension)) if searching else (None, NOTHING)
        base = fitted_normal(x.reshape(-1, dimension))
        score = self._score(x, base) if searching and dimension <= MOST_SCORED else None
        run = BridgeRun(
            method="bridge",
            engine=embedded.NAME,
            variables=self.target.variables(x, self.seeds("variables")),
            z=base.whiten(x),
            base=base,
            programs=self.target.programs,
            data=self.target.data_text,
            **_ratios("plain", plain),
            **_ratios("warp", warped),
            reshuffled=np.array(reshuffled),
            log_density=log_density,
            lp=lp,
            provenance={**self._provenance(chains, draws, lost, unseen, looked), "score": score},
        )
        searched = self.settings.search
        run = noting_beyond(run, self.target, self.ledger, by_gradients=searched)
        if searching:
            seed, paid = self.seeds("two stages"), PER_DRAW * chains * draws
            run = noting_two_stages(run, self.target, self.ledger, seed, spent=paid)
        return run, unseen

    def _inside(self) -> tuple[Array, Array, Array, float]:
        """Draws of finite log density, in chains of one length, these, lp, and the share lost."""
        x = self.draws.x
        lp = np.zeros((0, 0)) if self.draws.lp is None else self.draws.lp
        chains, draws, dimension = x.shape
        log_density = self.densities(x.reshape(-1, dimension)).reshape(chains, draws)
        kept = np.isfinite(log_density)
        shortest = int(kept.sum(axis=1).min())
        if shortest < draws / 2:
            raise StanctError(
                "The program's density vanishes at most draws of the fit.",
                remedy="Is this a fit of this program, with these data?",
            )
        if not kept.all():
            rows = [np.flatnonzero(one)[:shortest] for one in kept]

            def left(values: Array) -> Array:
                return np.array([one[own] for one, own in zip(values, rows, strict=True)])

            x, log_density, lp = left(x), left(log_density), left(lp) if lp.size else lp
        return x, log_density, lp, float(max(self.draws.lost, 1 - kept.mean()))

    def _score(self, x: Array, base: GaussianBase) -> dict[str, float] | None:
        """Whether gradients at some draws are those of the density that the draws have."""
        step = max(1, x.shape[1] * len(x) // SCORED)
        some = x[:, ::step]
        flat = some.reshape(-1, some.shape[-1])
        _, slopes = self.target.density.log_density_gradients(flat)
        self.ledger.gradients += len(flat)
        if not np.isfinite(slopes).all():
            return None
        z = base.whiten(some)
        worst, limit = score_error(z, (slopes @ base.scale).reshape(z.shape))
        return {"worst": worst, "limit": limit} if np.isfinite(limit) else None

    def _search(self, x: Array) -> tuple[Piloted, Search]:
        found, looked = unseen_modes(self.target, x, self.seeds("search"), Nuts())
        self.ledger.gradients += found.gradients
        self.ledger.evaluations += found.evaluations
        self.ledger.lap("search")
        return found, looked

    def _provenance(
        self, chains: int, draws: int, lost: float, unseen: Piloted | None, looked: Search
    ) -> dict[str, Any]:
        self.ledger.lap("variables")
        masses = [fit.log_evidence for fit in unseen.fits] if unseen else []
        searched = {
            "modes": len(masses),
            "log_mass": float(log_sum_exp(np.array(masses))) if masses else None,
            "ascents": looked.ascents + looked.astray,
            "radius": looked.radius,
        }
        return {
            **self.target.origin,
            "settings": {"chains": chains, "draws": draws, "seed": self.seeds.seed},
            "method_settings": asdict(self.settings),
            "fit": self.draws.origin,
            "lost": lost,
            "numbered": self.draws.numbered,
            "has_lp": self.draws.has_lp,
            "lost_in_files": self.draws.lost,
            "divergent": self.draws.divergent,
            "search": None if unseen is None else searched,
            "interrupted": False,
            **self.ledger.record(),
            **stamp(),
        }


def _ratios(name: str, pair: Sequence[Bridge]) -> dict[str, Array]:
    return {
        f"{name}_ratio": np.array([one.log_ratio for one in pair]),
        f"{name}_base_ratio": np.array([one.base_log_ratio for one in pair]),
    }


def _escalated(
    target: ProgramTarget,
    run: BridgeRun,
    unseen: Piloted | None,
    method: Method[Any] | str | None,
    options: Options,
) -> EvidenceRun:
    """Temper from the fit, and from the modes that it has missed."""
    start = _start(target, run, unseen, method)
    given: Options = {**start, "seed": run.settings["seed"], **options}
    tempered = sample(target, method or "auto", **given)
    if not isinstance(tempered, EvidenceRun):
        raise SamplingError(
            f"The method {tempered.method!r} estimates no evidence.",
            remedy="Pass another method, such as 'joint' or 'parallel_tempering'.",
        )
    failed = failures(run.diagnostics)
    record = {
        "log_z": run.bare_evidence.log_z,
        "warnings": [one.name for one in failed],
        "program": [asdict(one) for one in failed if one.name == "program"],
        "fit": str(run.provenance["fit"]),
    }
    return replace(tempered, provenance={**tempered.provenance, "bridge": record})


def _start(
    target: ProgramTarget, run: BridgeRun, unseen: Piloted | None, method: Method[Any] | str | None
) -> Options:
    """Where the tempered run begins: at the fit as its base, or at all modes that are known."""
    searches = method is None or method == "auto" or isinstance(method, Auto)
    if unseen is not None and unseen.fits and searches:
        # Where one mode was missed there may be more, which the default's own search finds.
        return {"inits": _places(target, run, unseen)}
    base, log_zeta = _first_base(run, unseen)
    return {"base": base, "log_zeta": log_zeta}


def _places(target: ProgramTarget, run: BridgeRun, unseen: Piloted) -> list[dict[str, Array]]:
    """The fit's most likely draw and the modes that it has missed, by names of parameters."""
    x = run.base.unwhiten(run.z).reshape(-1, run.z.shape[-1])
    points = np.array([x[run.log_density.argmax()], *(fit.mean for fit in unseen.fits)])
    values = target.variables(points[None], np.random.SeedSequence(0))  # parameters alone are used
    names = target.program.parameter_names
    return [{name: values[name][0, k] for name in names} for k in range(len(points))]


def _first_base(run: BridgeRun, unseen: Piloted | None) -> tuple[Base, float]:
    """The Gaussian of the fit, or a mixture with the modes that it has missed, and log ζ."""
    flat = run.base.unwhiten(run.z).reshape(-1, run.z.shape[-1])
    own = GaussianBase.from_covariance(*gaussian_moments(flat))
    log_z = run.bare_evidence.log_z
    if not np.isfinite(log_z):
        log_z = 0.0
    if unseen is None or not unseen.fits:
        return own, log_z
    masses = np.array([log_z, *(fit.log_evidence for fit in unseen.fits)])
    log_zeta = float(log_sum_exp(masses))
    others = [GaussianBase.from_covariance(fit.mean, fit.covariance) for fit in unseen.fits]
    # The masses are rough, and each mode must be visited to correct them.
    weights = np.maximum(np.exp(masses - log_zeta), LEAST_SHARE)
    return MixtureBase.of(weights, [own, *others]), log_zeta

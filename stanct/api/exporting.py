"""`export`: a folder with a generated program, its data and scripts, for use without stanct."""

from __future__ import annotations

import json
import math
import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from stanct.api.extending import target_of
from stanct.api.sampling import sample
from stanct.bases.fits import UNIFORM
from stanct.common.drafts import write_whole
from stanct.common.errors import StanctError
from stanct.common.names import KINDS
from stanct.common.resources import writing
from stanct.common.seeds import Seeds, fresh_seed
from stanct.common.settings import refuse_unknown, usable_path
from stanct.engines.cmdstan import values_at
from stanct.engines.embedded import Recipe
from stanct.estimates.pairs import PairEstimator
from stanct.path.bias import Bias
from stanct.path.coupled import CoupledBias
from stanct.path.course import beta_grid
from stanct.path.gaussian import GaussianBase, gaussian_moments
from stanct.runs.coupled import CoupledRun
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.runs.tempered import TemperedRun
from stanct.runs.verdicts import OF_THE_PROGRAM
from stanct.samplers._chains import ACCEPT, FROM_PRIOR_ACCEPT
from stanct.samplers._copies import prior_by_speed
from stanct.samplers._coupled import FromPrior, OnPlateau, Places
from stanct.samplers._nuts import control_of, generated_program
from stanct.samplers._rounds import BaseDraws, copies_inside, draws_inside
from stanct.samplers.extended_hamiltonian import ExtendedHamiltonian
from stanct.samplers.joint import Joint
from stanct.stan.codegen import usual_kind
from stanct.stan.render import render_export
from stanct.targets.program_target import ProgramTarget
from stanct.targets.recipes import recipe
from stanct.work.progress import say_above

FORMAT = "stanct export 1"
CHAINS, DRAWS, MOST_DRAWS = 4, 2500, 20_000
# Standard error of log Z that the scripts aim at, as far as the run that fits the bias tells, and
# above which an export says what else there is.
AIM, MOST_ERROR = 0.05, 0.1
# The check that fails where an error cannot be believed.
TAIL = "pareto_k"
# Kept draws of each chain in the run that fits base and bias.
PILOT_DRAWS, PILOT_WARMUP = 800, 300
# The base of the extended Hamiltonian where its own promises too little.
WIDE_BASE = "pilot"
# What an export from the prior says of a hierarchy that it has in its centred form.
_NON_CENTRED = (
    "The prior of a centred hierarchy is a funnel, through which the path leads: pass "
    "hierarchies='non-centred' to stanct.temper."
)
# Draws of the base that tell the share of it at which the density vanishes.
PROBES = 2000
# Quantities of the generated program between whose averages log Z lies, without prefix.
WEIGHTS = ("log_weight_target", "log_weight_base")
PAIRS: Mapping[str, tuple[str, str]] = {
    "joint": WEIGHTS,
    "prior_likelihood": WEIGHTS,
    "extended_hamiltonian": WEIGHTS,
    "pseudo_extended": ("log_above", "log_below"),
}


@dataclass(frozen=True)
class Exported:
    """What goes into a folder.

    Attributes
    ----------
    inits
        Values of the program's parameters at which chains begin; empty for CmdStan's own.
    constant, why, constant_error
        What is to be added to log Z of the header's formula, 0 mostly and None where it is not
        known, the reason, and the constant's standard error.
    draws, error
        Draws of each chain in the scripts, and the standard error of log Z that is expected of
        them, by the run that fitted the bias; NaN where none is.
    failed
        Checks that failed in the run that fitted base and bias.
    instead
        What promises more, in a sentence.
    survey
        The record of the modes that the run's search found, or of none.
    """

    target: ProgramTarget
    recipe: Recipe
    inits: list[dict[str, Any]] = field(default_factory=list)
    constant: float | None = 0.0
    why: str = ""
    constant_error: float = 0.0
    draws: int = DRAWS
    error: float = math.nan
    failed: tuple[str, ...] = ()
    instead: str = ""
    survey: Mapping[str, Any] | None = None

    @property
    def doubt(self) -> str:
        """Why the scripts may not give log Z, in sentences; empty if nothing speaks against it."""
        told = ""
        if TAIL in self.failed:
            told = "In the short run that fitted the bias, few draws carried log Z."
        elif self.error > MOST_ERROR:
            told = (
                "The short run that fitted the bias leads one to expect a standard error of "
                f"{self.error:.2g} in log Z."
            )
        return f"{told} {self.instead}".strip() if told else ""


@dataclass(frozen=True)
class _Fit:
    """Of what base and bias are made: the user's run, or the seeds of a short one."""

    run: Run | None
    seeds: Seeds
    progress: bool


def export(
    target: ProgramTarget,
    folder: str | os.PathLike[str],
    kind: str | None = None,
    *,
    run: Run | None = None,
    copies: int = 5,
    seed: int | None = None,
    progress: bool = True,
) -> Path:
    """Write a generated program with all that CmdStan needs; see `TemperedModel.export`."""
    kind = usual_kind(target.program) if kind is None else kind
    if kind not in KINDS:
        refuse_unknown("kind", kind, KINDS)
    target.code(kind)
    path = usable_path(folder)
    seeds = Seeds(fresh_seed() if seed is None else seed)
    if run is not None:
        own = target_of(run, target)
        assert isinstance(own, ProgramTarget)
        target = own
    fit = _Fit(run, seeds, progress)
    made = _MAKERS[kind](target, kind, fit, copies)
    if made.doubt:
        made = replace(made, instead=_instead(target, made.target, kind, replace(fit, run=None)))
        warnings.warn(made.doubt, stacklevel=3)
    _write(path, made, kind)
    return path


def _instead(target: ProgramTarget, sampled: ProgramTarget, kind: str, fit: _Fit) -> str:
    """What promises more than a kind of which a short run, in this form, had failures."""
    if kind == "prior_likelihood" and target.program.ends is None and sampled.written_centred:
        return _NON_CENTRED
    if kind != "joint" and target.program.ends is None:
        other = _from_base(target, "joint", fit, 1)
        if not other.doubt:
            return f'The kind "joint" promises an error of {other.error:.2g}.'
    return "stanct itself samples the program by its default method."


def _plain(target: ProgramTarget, kind: str, fit: _Fit, copies: int) -> Exported:
    """The kinds that need neither base nor bias."""
    weight = {"weight": 1.0} if kind == "weighted" else {}
    return Exported(target, recipe(target, kind, **weight))


def _from_base(target: ProgramTarget, kind: str, fit: _Fit, copies: int) -> Exported:
    """The kinds whose path begins at a base."""
    fitted, seeds = _fitted(target, fit), fit.seeds
    target, base = _form_of(target, fitted), fitted.base.dense()
    course = fitted.estimator.course(beta_grid(101))
    bias = course.bias(UNIFORM) if kind == "joint" else prior_by_speed(course)
    program, shapes = generated_program(target, base, bias, copies)
    rng = seeds.stream("starts")
    if kind == "joint":
        u = rng.logistic(size=(CHAINS, 1))
        places = np.concatenate([draws_inside(target, base, CHAINS, rng), u], axis=1)
    else:
        places = copies_inside(target, base, (CHAINS, copies), rng, free=True)
    delta = BaseDraws(target, base, seeds("base draws")).first(PROBES)
    share = float(np.isfinite(delta).mean())
    why = f"the program's density is above 0 at {share:.4g} of the base"
    inits = [values_at(place, shapes) for place in places]
    found = _enough(fitted, _pairs(fitted)) if kind == "joint" else (DRAWS, math.nan)
    why = why if share < 1 else ""
    return Exported(
        target, program, inits, math.log(share), why, 0.0, *found, _failed(fitted),
        survey=_surveyed(fitted, fit.run),
    )  # fmt: skip


def _surveyed(fitted: Run, run: Run | None) -> Mapping[str, Any] | None:
    """The modes that the search of a fit found, or that of the run from which its base comes."""
    given = None if run is None else run.provenance.get("survey")
    return fitted.provenance.get("survey", given)


def _pairs(run: TemperedRun) -> PairEstimator:
    """The estimator of the scripts, which have no draws of the base beside the path's."""
    assert isinstance(run.bias, Bias)
    beta, value = run.bias.beta, run.bias.value
    log_mass = CoupledBias(beta, beta, value, np.zeros(beta.size)).log_mass(-run.delta)
    return PairEstimator(-run.delta - log_mass, -log_mass)


def _failed(run: EvidenceRun) -> tuple[str, ...]:
    """Checks of the draws of a run that failed."""
    return tuple(name for name in run.warnings if name not in OF_THE_PROGRAM)


def _enough(run: EvidenceRun, pairs: PairEstimator) -> tuple[int, float]:
    """Draws of each chain that bring the error of log Z to AIM, and the error expected of them."""
    error = pairs.evidence(run.method).std_error * math.sqrt(run.chains * run.draws / CHAINS)
    wanted = (error / AIM) ** 2 if math.isfinite(error) else MOST_DRAWS
    draws = int(min(max(DRAWS, 500 * math.ceil(wanted / 500)), MOST_DRAWS))
    return draws, error / math.sqrt(draws)


def _promise(run: CoupledRun) -> tuple[bool, float]:
    """Whether few draws carry log Z, and the error that the scripts would have; less is better."""
    return TAIL in _failed(run), _enough(run, run.estimator)[1]


def _fitted(target: ProgramTarget, fit: _Fit) -> TemperedRun:
    """The run itself if its path begins at a Gaussian, or a short one from its moments."""
    run = fit.run
    if isinstance(run, TemperedRun) and run.base.is_gaussian and isinstance(run.bias, Bias):
        return run
    _say_again(fit, "whose base is one Gaussian, such as one by method='joint',")
    return sample(target, Joint(atom=0.0), **_options(fit))


def _say_again(fit: _Fit, serves: str) -> None:
    """Say that a short run follows, although the user has given one."""
    if fit.run is not None and fit.progress:
        say_above(
            f"A short run fits the bias: only a run {serves} has one for this kind. Yours gives "
            "the mean and covariance of its draws."
        )


def _options(fit: _Fit) -> dict[str, Any]:
    """Options of the run that fits base and bias."""
    run = fit.run
    options = {
        "chains": CHAINS,
        "draws": PILOT_DRAWS,
        "warmup": PILOT_WARMUP,
        "seed": fit.seeds.seed,
        "engine": "embedded",
        "progress": fit.progress,
    }
    if run is None:
        return options
    if run.base is None or run.z.ndim != 3:
        raise StanctError(
            f"The base of an export cannot come from a run of the method {run.method!r}.",
            remedy="Leave out run=, or pass a run by method='joint'.",
        )
    log_weights = run.target_log_weights
    weights = np.exp(log_weights - log_weights.max()).ravel()
    x = run.base.unwhiten(np.array(run.z)).reshape(weights.size, -1)
    base = GaussianBase.from_covariance(*gaussian_moments(x, weights=weights))
    log_zeta = run.bare_evidence.log_z if isinstance(run, EvidenceRun) else 0.0
    return {**options, "base": base, "log_zeta": log_zeta}


def _form_of(target: ProgramTarget, run: Run) -> ProgramTarget:
    """The target in the form that a run has sampled."""
    return target.in_form(set(run.provenance["reparametrised"]) - set(target.reparametrised))


def _coupled(target: ProgramTarget, kind: str, fit: _Fit, copies: int) -> Exported:
    """The kinds without a base: from the prior, and the extended Hamiltonian."""
    from_prior = kind == "prior_likelihood"
    own, run = Joint(path="prior") if from_prior else ExtendedHamiltonian(), fit.run
    if isinstance(run, CoupledRun) and run.method == own.name:
        fitted = run
    else:
        path = ", path='prior'" * from_prior
        _say_again(fit, f"by method={own.name!r}{path}")
        options = _options(fit)
        fitted = sample(target, own, **options)
        if not from_prior and "base" not in options and _promise(fitted) > (False, MOST_ERROR):
            # Of several modes, that of ADVI may have too small a share.
            fitted = min(fitted, sample(target, own, **options, base=WIDE_BASE), key=_promise)
    target = _form_of(target, fitted)
    program = (FromPrior if from_prior else OnPlateau)(target, fitted.base.dense())
    # Chains begin where those of the fit were, far apart.
    rows = np.linspace(0, fitted.draws - 1, CHAINS).round().astype(int)
    chains = np.arange(CHAINS) % fitted.chains
    t = fitted.t[chains, rows]
    u = control_of(t if from_prior else (1 + t) / 2)
    places = Places(fitted.base.unwhiten(fitted.z[chains, rows]), u)
    mass, why = fitted.provenance.get("log_prior_mass", 0.0), "log of the integral of the prior"
    mass_error = fitted.provenance.get("log_prior_mass_error", 0.0)
    if mass is None:
        why = "the integral of the prior is not known, and counts as 1"
    elif mass_error:
        why += f", by a run with a standard error of {mass_error:.2g}"
    code, inits = program.recipe(fitted.bias), program.inits(places)
    return Exported(
        target,
        code,
        inits,
        mass,
        why if mass != 0 else "",
        mass_error,
        *_enough(fitted, fitted.estimator),
        _failed(fitted),
        survey=_surveyed(fitted, run),
    )


_MAKERS: Mapping[str, Callable[..., Exported]] = {
    "density": _plain,
    "weighted": _plain,
    "joint": _from_base,
    "pseudo_extended": _from_base,
    "prior_likelihood": _coupled,
    "extended_hamiltonian": _coupled,
}


def _write(path: Path, made: Exported, kind: str) -> None:
    """Write the files of an export."""
    target, source = made.target, made.recipe.source
    prefix, name = target.prefix, re.sub(r"\W", "_", target.program.name)
    above, below = (prefix + one if one else "" for one in PAIRS.get(kind, ("", "")))
    values = {
        "program": f"{name}_{kind}.stan",
        "source": Path(target.program.label).name,
        "kind": kind,
        "log_z": "log Z" if target.program.ends is None else "log(Z_1 / Z_0)",
        "prefix": prefix,
        "draws": made.draws,
        "accept": FROM_PRIOR_ACCEPT if kind == "prior_likelihood" else ACCEPT,
        "starts": bool(made.inits),
        "extended": kind != "density",
        "above": above,
        "below": below,
        "weighted": PAIRS.get(kind) == WEIGHTS,
        "constant": made.constant,
        "why": made.why,
        "constant_error": made.constant_error,
        "doubt": made.doubt,
        "failed": made.failed,
        "lacks": [str(one) for one in target.omissions if one.correction or one.improper],
        "threads": re.search(r"\b(reduce_sum|reduce_sum_static|map_rect)\b", source) is not None,
    }
    record = {"format": FORMAT, "kind": kind, "target": target.record()}
    record |= {"log_prior_mass": made.constant, "log_prior_mass_error": made.constant_error}
    record |= {"survey": made.survey}
    files = {
        values["program"]: source,
        "data.json": made.recipe.data,
        "export.json": json.dumps(record),
        **{f"inits_{k}.json": json.dumps(one) for k, one in enumerate(made.inits, 1)},
        **{name: render_export(name, values) for name in ("README.md", "run.py", "run.R")},
    }
    with writing("The export", path, "Choose a folder that you can write."):
        path.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            write_whole(path / name, f"{text.rstrip()}\n".encode())

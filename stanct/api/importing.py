"""`import_run`: a run of the draws that CmdStan made from an exported program."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit

from stanct.api.exporting import FORMAT
from stanct.api.tempering import recorded_target
from stanct.common.arrays import Array
from stanct.common.errors import StanctError
from stanct.common.seeds import Seeds, fresh_seed
from stanct.engines.embedded import STATISTICS, DrawBlock
from stanct.path.bias import Bias, CopyBias
from stanct.path.coupled import CoupledBias
from stanct.path.gaussian import GaussianBase
from stanct.runs.coupled import CoupledRun
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.foreign import ForeignFit, read_draws
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.tempered import TemperedRun
from stanct.samplers._copies import BASE_DRAWS as COPY_BASE_DRAWS
from stanct.samplers._coupled import FromPrior, OnPlateau, Places
from stanct.samplers._job import Job, Plan
from stanct.samplers._method import Method, refuse_other_densities
from stanct.samplers._nuts import generated
from stanct.samplers.extended_hamiltonian import ExtendedHamiltonian
from stanct.samplers.joint import BASE_DRAWS, Joint
from stanct.samplers.pseudo_extended import PseudoExtended
from stanct.targets.program_target import ProgramTarget
from stanct.work.execution import executing

CMDSTAN = "cmdstan"
_AGAIN = "Pass a folder that model.export or `stanct export` wrote."


def import_run(
    folder: str | os.PathLike[str],
    files: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    seed: int | None = None,
) -> EvidenceRun:
    """Make a run of the draws of an exported program, with its checks, page and ArviZ.

    The densities are those of the embedded engine. Where the path has a base, independent draws of
    it are added, so that log Z is that of the bridge.

    Parameters
    ----------
    folder
        What `TemperedModel.export` wrote, of a kind that gives log Z.
    files
        CmdStan's CSV files, one for each chain, or a folder of them.
    seed
        Seed of the draws of the base; a fresh one by default.

    Raises
    ------
    StanctError
        The folder is no export, its program gives no log Z, or the files have other draws.
    """
    kind, target, given = _read(Path(folder))
    draws = read_draws(os.fspath(files) if isinstance(files, str | os.PathLike) else list(files))
    found = _Found(kind, target, given, draws)
    make, method = _MAKERS[kind], _METHODS[kind]()
    if isinstance(method, PseudoExtended):
        method = PseudoExtended(copies=int(given["N"]))
    chains, count = found.of_ours("u").shape[:2]
    plan = Plan(chains, count, 0, base=found.base)
    seed = fresh_seed() if seed is None else seed
    with executing(target, method.name, {}, seed=seed, progress=False) as execution:
        job = Job(method.name, method.record(), plan, target, None, execution, Seeds(seed))
        job.ledger.gradients += int(found.statistics["n_leapfrog__"].sum())
        kind_of_run, fields = make(job, found)
        return job.finish(
            kind_of_run,
            interrupted=False,
            engine=CMDSTAN,
            base=found.base,
            statistics=found.statistics,
            programs=generated(target, kind),
            **fields,
        )


def _read(folder: Path) -> tuple[str, ProgramTarget, dict[str, Any]]:
    """Kind and target of an export, and what its program has beside the user's data."""
    try:
        record = json.loads((folder / "export.json").read_text(encoding="utf-8"))
        if record["format"] != FORMAT:
            raise ValueError(f"the format {record['format']!r} is not known")
        target, kind = recorded_target(record["target"]), record["kind"]
        data = json.loads((folder / "data.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as cause:
        raise StanctError(f"{folder} is no export: {cause}.", remedy=_AGAIN) from cause
    if kind not in _MAKERS:
        raise StanctError(
            f"The program of the kind {kind!r} gives no log Z.",
            remedy="stanct.bridge takes draws of the user's own density.",
        )
    prefix = target.prefix
    own = {n.removeprefix(prefix): v for n, v in data.items() if n.startswith(prefix)}
    known = ("log_prior_mass", "log_prior_mass_error")
    return kind, target, own | {name: record[name] for name in known if name in record}


@dataclass(frozen=True)
class _Found:
    """The draws of an exported program, and its data."""

    kind: str
    target: ProgramTarget
    given: Mapping[str, Any]
    draws: ForeignFit

    @property
    def base(self) -> GaussianBase:
        """The base, or what only gives coordinates on the path from the prior."""
        if "base_mean" not in self.given:
            dimension = self.target.density.dimension
            return GaussianBase(np.zeros(dimension), np.eye(dimension))
        scale = np.array(self.given["base_scale"], float)
        whole = scale if self.given["is_dense"] else np.diag(scale[:, 0])
        return GaussianBase(np.array(self.given["base_mean"], float), whole)

    def array(self, name: str) -> Array:
        """A vector of the program's data."""
        return np.array(self.given[name], float)

    def of_ours(self, name: str) -> Array:
        """Draws of a name that the program adds, shape (chains, draws, ...)."""
        found = self.draws.variables.get(self.target.prefix + name)
        if found is None:
            raise StanctError(
                f"{self.draws.has} no `{self.target.prefix}{name}`.",
                remedy="Pass the files that the exported program wrote.",
            )
        # In the order in which a saved run has them, for the same sums to the last digit.
        return np.ascontiguousarray(found, float)

    @property
    def statistics(self) -> dict[str, Array]:
        """Statistics of NUTS."""
        found = self.draws.variables
        return {n: np.asarray(found[n]) for n in STATISTICS if n in found}

    @property
    def users(self) -> dict[str, Array]:
        """The user's variables."""
        named = {n: v for n, v in self.draws.variables.items() if not n.endswith("__")}
        return self.target.user_variables(named)

    def check(self, z: Array, delta: Array) -> None:
        """Raise an error unless δ is the target's, z of shape (n, D)."""
        densities = self.target.density.log_densities(self.base.unwhiten(z))
        refuse_other_densities(self.base.delta(z, densities), delta)


def _joint(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    z, delta = found.of_ours("z"), found.of_ours("delta")
    found.check(z[:, -1], delta[:, -1])
    return TemperedRun, {
        "z": z,
        "delta": delta,
        "beta": expit(found.of_ours("u")),
        "base_delta": job.base_delta(found.base, BASE_DRAWS * delta.size, "final"),
        "bias": Bias(found.array("bias_beta"), found.array("bias")),
        "variables": found.users,
    }


def _copies(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    z, delta = np.swapaxes(found.of_ours("z"), 2, 3), found.of_ours("delta")
    found.check(z[:, -1].reshape(-1, z.shape[-1]), delta[:, -1].ravel())
    names = ("bias_beta", "bias", "log_g")
    return PseudoExtendedRun, {
        "z": z,
        "delta": delta,
        "beta": expit(found.of_ours("u")),
        "base_delta": job.base_delta(
            found.base, COPY_BASE_DRAWS * job.chains * job.draws, "pseudo-extended"
        ),
        "bias": CopyBias(*(found.array(name) for name in names)),
        "x": found.base.unwhiten(z.reshape(job.chains, -1, z.shape[-1])),
    }


def _coupled(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    block = DrawBlock(dict(found.draws.variables), {})
    from_prior = found.kind == "prior_likelihood"
    knots, beta = ("bias_beta", "bias_beta") if from_prior else ("xi_knots", "beta_at")
    bias = CoupledBias(
        found.array(knots),
        found.array(beta),
        found.array("bias"),
        np.zeros(len(found.given[knots])),
    )
    program = (FromPrior if from_prior else OnPlateau)(found.target, found.base)
    places = Places(np.zeros((job.chains, found.base.dimension)), np.zeros(job.chains))
    fields = program.read(block, places, job.seeds.stream("unconstrained"))
    known = ("log_prior_mass", "log_prior_mass_error") if from_prior else ()
    facts = {name: found.given[name] for name in known if name in found.given}
    return CoupledRun, {**fields, "bias": bias, "variables": found.users, "facts": facts}


_MAKERS: Mapping[str, Callable[[Job, _Found], tuple[type[EvidenceRun], dict[str, Any]]]] = {
    "joint": _joint,
    "pseudo_extended": _copies,
    "prior_likelihood": _coupled,
    "extended_hamiltonian": _coupled,
}
_METHODS: Mapping[str, Callable[[], Method[Any]]] = {
    "joint": lambda: Joint(atom=0.0),
    "pseudo_extended": PseudoExtended,
    "prior_likelihood": lambda: Joint(path="prior"),
    "extended_hamiltonian": ExtendedHamiltonian,
}

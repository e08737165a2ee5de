"""`import_run`: a run of the draws that CmdStan made from an exported program."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import expit, log_expit

from stanct.api.exporting import FORMAT
from stanct.api.tempering import recorded_target
from stanct.common.arrays import Array
from stanct.common.errors import StanctError, counted
from stanct.common.seeds import Seeds, fresh_seed
from stanct.engines.embedded import STATISTICS, DrawBlock
from stanct.estimates.naming import label
from stanct.path.bias import Bias, CopyBias
from stanct.path.coupled import CoupledBias
from stanct.path.gaussian import GaussianBase, standard_log_density
from stanct.runs.coupled import CoupledRun
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.foreign import ROUNDING, ForeignFit, read_draws
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.tempered import TemperedRun
from stanct.samplers._copies import BASE_DRAWS as COPY_BASE_DRAWS
from stanct.samplers._coupled import FromPrior, OnPlateau, Places
from stanct.samplers._job import Job, Plan
from stanct.samplers._method import Method
from stanct.samplers._nuts import generated
from stanct.samplers.extended_hamiltonian import ExtendedHamiltonian
from stanct.samplers.joint import BASE_DRAWS, Joint
from stanct.samplers.pseudo_extended import PseudoExtended
from stanct.targets.program_target import ProgramTarget
from stanct.work.execution import executing

CMDSTAN, LEAST_DRAWS = "cmdstan", 10
_AGAIN = "Pass a folder that model.export or `stanct export` wrote."
_OWN_FILES = "Pass the files that the program in this folder wrote, with its data.json."


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

    Warns
    -----
    UserWarning
        Draws of the files are left out, as of a chain that was killed.
    """
    kind, target, given = _read(Path(folder))
    given_files = os.fspath(files) if isinstance(files, str | os.PathLike) else list(files)
    if not given_files:
        raise StanctError("No files of draws are given.", remedy=_OWN_FILES)
    draws = read_draws(given_files)
    found = _Found(kind, target, given, draws)
    make, method, copies = _MAKERS[kind], _METHODS[kind](), ()
    if isinstance(method, PseudoExtended):
        copies = (found.size("N"),)
        method = PseudoExtended(copies=copies[0])
    chains, count = found.of_ours("u", *copies).shape[:2]
    if count < LEAST_DRAWS:
        raise StanctError(
            f"{draws.has} {counted(count, 'draw')} of each chain.",
            remedy=f"A run needs {LEAST_DRAWS}, and its checks need hundreds.",
        )
    if draws.lost > 0:
        warnings.warn(f"Draws are left out of the run: {draws.origin}.", stacklevel=2)
    plan = Plan(chains, count, 0, base=found.base)
    seed = fresh_seed() if seed is None else seed
    with executing(target, method.name, {}, seed=seed, progress=False) as execution:
        job = Job(method.name, method.record(), plan, target, None, execution, Seeds(seed))
        job.ledger.found["imported"] = True
        if survey := given.get("survey"):
            job.ledger.found["survey"] = survey
        if draws.lost > 0:
            job.ledger.found["left_out"] = {"share": draws.lost, "of": draws.origin}
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
    known = ("log_prior_mass", "log_prior_mass_error", "survey")
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
        if self.kind == "prior_likelihood":
            dimension = self.target.density.dimension
            return GaussianBase(np.zeros(dimension), np.eye(dimension))
        scale = self.array("base_scale")
        whole = scale if self.size("is_dense") else np.diag(scale[:, 0])
        return GaussianBase(self.array("base_mean"), whole)

    def array(self, name: str) -> Array:
        """An array of the program's data."""
        if name not in self.given:
            raise StanctError(
                f"data.json of the export has no `{self.target.prefix}{name}`.", remedy=_AGAIN
            )
        return np.array(self.given[name], float)

    def size(self, name: str) -> int:
        """An integer of the program's data."""
        return int(self.array(name))

    def of_ours(self, name: str, *shape: int) -> Array:
        """Draws of a name that the program adds, shape (chains, draws, *shape)."""
        # In the order in which a saved run has them, for the same sums to the last digit.
        return np.ascontiguousarray(self._drawn(self.target.prefix + name, shape))

    def _drawn(self, name: str, shape: tuple[int, ...]) -> Array:
        """Draws of a variable of the program, all finite, shape (chains, draws, *shape)."""
        found = self.draws.variables.get(name)
        if found is None:
            raise StanctError(f"{self.draws.has} no `{name}`.", remedy=_OWN_FILES)
        values = np.asarray(found, float)
        if values.shape[2:] != shape:
            raise StanctError(
                f"{self.draws.has} `{name}` of the shape {values.shape[2:]}, and the export's is "
                f"of the shape {shape}.",
                remedy=_OWN_FILES,
            )
        bad = np.argwhere(~np.isfinite(values))
        if len(bad):
            chain, draw, *index = map(int, bad[0])
            raise StanctError(
                f"`{label(name, index)}` is no finite number in {self.draws.place(chain, draw)}.",
                remedy="Pass the file as CmdStan wrote it, or without this chain.",
            )
        return values

    @property
    def statistics(self) -> dict[str, Array]:
        """Statistics of NUTS."""
        return {name: self._drawn(name, ()) for name in STATISTICS}

    @property
    def parameters(self) -> dict[str, Array]:
        """The parameters of the target's form of the program, in its order."""
        shapes = self.target.parameter_shapes
        return {name: self._drawn(name, shape) for name, shape in shapes.items()}

    @property
    def users(self) -> dict[str, Array]:
        """The user's variables."""
        named = {n: v for n, v in self.draws.variables.items() if not n.endswith("__")}
        return self.target.user_variables(named | self.parameters)

    def check(self, z: Array, log_target: Array) -> None:
        """Raise an error unless the target has these log densities of z, of shape (n, D)."""
        own = self.target.density.log_densities(self.base.unwhiten(z))
        self._same(own + self.base.log_det_scale, log_target, "log densities")

    def check_weights(self, name: str, own: Array) -> None:
        """Raise an error unless the draws have these weights, (chains, draws), by the bias."""
        self._same(own[:, -1], self.of_ours(name, *own.shape[2:])[:, -1], "weights")

    def _same(self, own: Array, drawn: Array, what: str) -> None:
        if not np.allclose(own, drawn, rtol=ROUNDING, atol=ROUNDING):
            raise StanctError(
                f"{self.draws.has} other {what} at the last draws of the chains than the program, "
                "the data and the bias of the export give.",
                remedy=f"{_OWN_FILES} Later exports to the same folder have another bias.",
            )


def _joint(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    z, delta = found.of_ours("z", found.size("D")), found.of_ours("delta")
    found.check(z[:, -1], standard_log_density(z[:, -1]) - delta[:, -1])
    beta, bias = found.array("bias_beta"), found.array("bias")
    along = CoupledBias(beta, beta, bias, np.zeros(beta.size))
    found.check_weights("log_weight_base", -along.log_mass(-delta))
    return TemperedRun, {
        "z": z,
        "delta": delta,
        "beta": expit(found.of_ours("u")),
        "base_delta": job.base_delta(found.base, BASE_DRAWS * delta.size, "final"),
        "bias": Bias(beta, bias),
        "variables": found.users,
    }


def _copies(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    count, dimension = found.size("N"), found.size("D")
    z = np.swapaxes(found.of_ours("z", dimension, count), 2, 3)
    delta = found.of_ours("delta", count)
    last = z[:, -1].reshape(-1, dimension)
    found.check(last, standard_log_density(last) - delta[:, -1].ravel())
    beta = expit(found.of_ours("u", count))
    bias = CopyBias(*(found.array(name) for name in ("bias_beta", "bias", "log_g")))
    found.check_weights("log_weight", bias(beta) - (1 - beta) * delta)
    return PseudoExtendedRun, {
        "z": z,
        "delta": delta,
        "beta": beta,
        "base_delta": job.base_delta(
            found.base, COPY_BASE_DRAWS * job.chains * job.draws, "pseudo-extended"
        ),
        "bias": bias,
        "x": found.base.unwhiten(z.reshape(job.chains, -1, dimension)),
    }


def _coupled(job: Job, found: _Found) -> tuple[type[EvidenceRun], dict[str, Any]]:
    from_prior = found.kind == "prior_likelihood"
    if from_prior:
        ours, knots, beta = {"u": (), "log_likelihood": ()}, "bias_beta", "bias_beta"
    else:
        dimension = found.size("D")
        ours = {"u": (), "xi": (), "log_target": (), "z": (dimension,)}
        knots, beta = "xi_knots", "beta_at"
    draws = {found.target.prefix + n: found.of_ours(n, *shape) for n, shape in ours.items()}
    bias = CoupledBias(
        found.array(knots),
        found.array(beta),
        found.array("bias"),
        np.zeros(len(found.given[knots])),
    )
    program = (FromPrior if from_prior else OnPlateau)(found.target, found.base)
    places = Places(np.zeros((job.chains, found.base.dimension)), np.zeros(job.chains))
    block = DrawBlock({**found.parameters, **draws} if from_prior else draws, {})
    fields = program.read(block, places, job.seeds.stream("unconstrained"))
    found.check_weights("log_weight_base", fields["log_base"] - bias.log_mass(fields["value"]))
    found.check(fields["z"][:, -1], _log_target(found, bias, fields)[:, -1])
    known = ("log_prior_mass", "log_prior_mass_error") if from_prior else ()
    facts = {name: found.given[name] for name in known if name in found.given}
    return CoupledRun, {**fields, "bias": bias, "variables": found.users, "facts": facts}


def _log_target(found: _Found, bias: CoupledBias, fields: Mapping[str, Array]) -> Array:
    """log p of the draws, shape (chains, draws), natural log."""
    value = fields["value"]
    if found.kind == "extended_hamiltonian":
        return value
    # The prior is what the program's own log density has beside the rest.
    lp, u, t = found.draws.variables["lp__"], found.of_ours("u"), fields["t"]
    jacobian = log_expit(u) + log_expit(-u)
    return lp - jacobian + np.interp(t, bias.knots, bias.value) + (1 - t) * value


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

"""`temper`, the front door, and `TemperedModel`, what it returns."""

from __future__ import annotations

import difflib
import html
import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, overload

from stanct.engines import homes
from stanct.engines.cmdstan import CmdStan
from stanct.errors import SamplingError, StanctError
from stanct.runs.adiabatic_run import AdiabaticRun
from stanct.runs.bracket import Bracket
from stanct.runs.ladder_run import LadderRun
from stanct.runs.particle_run import ParticleRun
from stanct.runs.pseudo_extended_run import PseudoExtendedRun
from stanct.runs.run import Run
from stanct.runs.tact_run import TactRun
from stanct.runs.tempered_run import TemperedRun
from stanct.samplers import (
    adiabatic,
    ais,
    bidirectional,
    gibbs,
    joint,
    parallel_tempering,
    pseudo_extended,
    simulated_tempering,
    tact,
)
from stanct.stan.codegen import generate
from stanct.stan.highlight import StanCode
from stanct.stan.program import Program
from stanct.targets.data import DataSource, read_data
from stanct.targets.density import Density
from stanct.targets.program_target import Target, check_program

METHODS = {
    "adiabatic": adiabatic.sample,
    "ais": ais.sample,
    "joint": joint.sample,
    "gibbs": gibbs.sample,
    "parallel_tempering": parallel_tempering.sample,
    "pseudo_extended": pseudo_extended.sample,
    "simulated_tempering": simulated_tempering.sample,
    "tact": tact.sample,
}
# Methods that run NUTS, by CmdStan on a generated program.
BY_NUTS = ("joint", "pseudo_extended")
ENGINES = ("auto", "embedded", "cmdstan")


@dataclass(frozen=True)
class TemperedModel:
    """A Stan program that can be tempered; made by `temper`, immutable.

    Attributes
    ----------
    program
        The user's program, read and split.
    prefix
        With which every name in generated programs begins.
    """

    program: Program = field(repr=False)
    prefix: str = "ct_"

    def stan_code(self, kind: str = "joint") -> StanCode:
        """The generated program of one kind: a string, which notebooks show in colour.

        Parameters
        ----------
        kind
            ``"density"``, ``"joint"``, ``"pseudo_extended"``, ``"prior_likelihood"`` or
            ``"extended_hamiltonian"``; see `stanct.stan.codegen.generate`.

        Raises
        ------
        StanctError
            No such kind.
        ProgramError
            The program uses something that this kind cannot transform.
        """
        return StanCode(generate(self.program, kind, prefix=self.prefix))

    def diff(self, kind: str = "density") -> str:
        """What a generated program changes in the user's, includes expanded: a unified diff."""
        return "".join(
            difflib.unified_diff(
                self.program.expanded.rstrip("\n").splitlines(keepends=True),
                self.stan_code(kind).rstrip("\n").splitlines(keepends=True),
                self.program.label,
                f"{self.program.name}_{kind}.stan",
            )
        )

    def write(
        self, folder: str | os.PathLike[str], *, kinds: Sequence[str] = ("density", "joint")
    ) -> tuple[Path, ...]:
        """Write generated programs as ``<name>_<kind>.stan``, making the folder; returns paths."""
        texts = {kind: self.stan_code(kind) for kind in kinds}
        target = Path(folder)
        try:
            target.mkdir(parents=True, exist_ok=True)
            paths = []
            for kind, text in texts.items():
                path = target / f"{self.program.name}_{kind}.stan"
                path.write_text(text, encoding="utf-8")
                paths.append(path)
        except OSError as cause:
            raise StanctError(
                f"The programs cannot be written to {target}: {cause}.",
                remedy="Choose a folder that you can write.",
            ) from cause
        return tuple(paths)

    def target(self, data: DataSource = None) -> Target:
        """The program joined with data, which are checked: see `stanct.targets.data.read_data`."""
        return Target(self.program, read_data(data, self.program), self.prefix)

    def density(self, data: DataSource = None) -> Density:
        """The log density −φ and its gradient on the unconstrained space, all constants kept.

        Parameters
        ----------
        data
            Path of a JSON file, a mapping, or None.
        """
        return self.target(data).density

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["joint", "gibbs", "simulated_tempering"] = "joint",
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> TemperedRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["parallel_tempering"],
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> LadderRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["ais"],
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> ParticleRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["tact"],
        engine: str = "auto",
        **settings: Any,
    ) -> TactRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["pseudo_extended"],
        engine: str = "auto",
        **settings: Any,
    ) -> PseudoExtendedRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["adiabatic"],
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> AdiabaticRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: str,
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> Run: ...

    def sample(
        self,
        data: DataSource = None,
        *,
        method: str = "joint",
        engine: str | CmdStan = "auto",
        **settings: Any,
    ) -> Run:
        """Fit a base, sample, and return the run.

        Parameters
        ----------
        data
            Path of a JSON file, variable name to value, or None for a program without data.
        method
            ``"joint"``: joint continuous tempering by NUTS; ``"gibbs"``: Gibbs continuous tempering
            by compiled HMC; ``"simulated_tempering"``: the same on a ladder;
            ``"parallel_tempering"``: one chain a temperature, which swap places;
            ``"pseudo_extended"``: NUTS on several copies, each at its own temperature;
            ``"ais"``: annealed importance sampling, or SMC with ``resample=True``;
            ``"adiabatic"``: a contact Hamiltonian flow that moves β itself; ``"tact"``:
            thermostatted dynamics on mini-batches, without evidence. `settings` are those of
            ``stanct.samplers.<method>.sample``; chains, draws, warmup, seed, base, threads and
            progress go with every method.
        engine
            What runs NUTS in the methods joint and pseudo_extended: ``"cmdstan"`` or a `CmdStan`
            on the generated program; ``"embedded"``, compiled kernels on the embedded engine's
            density, as for all other methods; or ``"auto"``: CmdStan where one is found, else
            embedded. The run says which it was.

        Raises
        ------
        StanctError
            Before any work: bad data, unknown method, engine or setting.
        """
        if method not in METHODS:
            raise SamplingError(
                f"There is no method {method!r}.", remedy=f"Use one of {', '.join(METHODS)}."
            )
        _check_settings(method, METHODS[method], 1, settings)
        chosen = _engine(engine, method)
        if method in BY_NUTS:
            settings["engine"] = chosen
        return METHODS[method](self.target(data), **settings)

    def bidirectional(
        self, data: DataSource, exact: bidirectional.Exact, **settings: Any
    ) -> Bracket:
        """Bracket log Z of simulated data by annealing upwards and downwards.

        Parameters
        ----------
        data
            Simulated from the program.
        exact
            The parameters that they were simulated from, name to value: see
            `stanct.samplers.bidirectional.sample`, which also has the settings.

        Raises
        ------
        StanctError
            Before any work: bad data, parameters outside their support, unknown setting.
        """
        _check_settings("bidirectional", bidirectional.sample, 2, settings)
        return bidirectional.sample(self.target(data), exact, **settings)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{StanCode(self.program.source)._repr_html_()}"

    def __repr__(self) -> str:
        names = ", ".join(self.program.parameter_names)
        return f"TemperedModel of {self.program.label}: parameters {names}"


def temper(
    program: str | os.PathLike[str],
    *,
    include_paths: Sequence[str | os.PathLike[str]] = (),
    prefix: str = "ct_",
    check: bool = True,
) -> TemperedModel:
    """Read a Stan program and get it ready for tempering; nothing is compiled.

    Parameters
    ----------
    program
        Path of a Stan file.
    include_paths
        Folders in which ``#include`` looks before the program's own.
    prefix
        With which generated names begin; no name of the program may.
    check
        Let stanc check the program at once, which takes milliseconds.

    Raises
    ------
    ProgramError
        The file is missing, is not legal Stan, has no parameters, or uses a reserved name; with
        file, line and remedy.
    """
    model = TemperedModel(Program.from_file(program, include_paths=include_paths), prefix)
    if check:
        check_program(model.program)
    model.stan_code("density")
    return model


def _engine(engine: str | CmdStan, method: str) -> CmdStan | None:
    """The CmdStan that this name stands for, or the one given, if the method can use it."""
    if isinstance(engine, str) and engine not in ENGINES:
        raise SamplingError(
            f"There is no engine {engine!r}.", remedy=f"Use one of {', '.join(ENGINES)}."
        )
    if engine == "embedded" or (engine == "auto" and method not in BY_NUTS):
        return None
    if method not in BY_NUTS:
        raise SamplingError(
            f"Method {method!r} runs on the embedded engine alone: its moves are compiled kernels.",
            remedy=f"Leave out engine=, or use one of {', '.join(BY_NUTS)}.",
        )
    if engine == "auto":
        home = homes.find()
        return CmdStan(home) if home else None
    return CmdStan.here() if isinstance(engine, str) else engine


def _check_settings(
    method: str, sample: Callable[..., Any], first: int, settings: Mapping[str, Any]
) -> None:
    """Refuse a setting that a method lacks; its first parameters are no settings."""
    known = list(inspect.signature(sample).parameters)[first:]
    for name in settings:
        if name not in known:
            raise SamplingError(
                f"Method {method!r} has no setting {name!r}.",
                remedy=f"It has: {', '.join(known)}.",
            )

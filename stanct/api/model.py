"""`TemperedModel`: a Stan program that can be tempered."""

from __future__ import annotations

import difflib
import html
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, Unpack, overload

from stanct.api.calibration import Simulator, calibrate
from stanct.api.exporting import export
from stanct.api.many import sample_many
from stanct.api.sampling import sample
from stanct.common.errors import SamplingError
from stanct.common.resources import writing
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bracket import Bracket
from stanct.runs.calibration import Calibration
from stanct.runs.coupled import CoupledRun
from stanct.runs.ladder import LadderRun
from stanct.runs.many import Many
from stanct.runs.particle import ParticleRun
from stanct.runs.power import PowerRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import Run
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun
from stanct.samplers._method import Method
from stanct.samplers.ais import AIS
from stanct.samplers.bidirectional import Bidirectional, Exact
from stanct.samplers.options import Options
from stanct.stan.codegen import generate, usual_kind
from stanct.stan.omissions import Omission, omissions
from stanct.stan.program import Program
from stanct.targets.data import DataSource, StanData, joined_data, read_data
from stanct.targets.density import Density
from stanct.targets.program_target import ProgramTarget

Result = TypeVar("Result")


class StanCode(str):
    """The text of a Stan program, which notebooks show with its line breaks."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        return f'<pre style="font-family:monospace">{html.escape(self)}</pre>'


@dataclass(frozen=True)
class TemperedModel:
    """A Stan program that can be tempered; immutable, made by `temper`.

    Attributes
    ----------
    program
        The user's program, parsed.
    prefix
        Prefix of every name that generated programs add.
    written
        The program as the user wrote it, where `program` is another form of it.
    flexible
        Whether a run may sample another form of the program; see `temper`.
    made
        Arguments of `temper` that were not its defaults, name to value.
    base_data
        Data of the program from which a path between two leads, if it has data of its own.
    """

    program: Program = field(repr=False)
    prefix: str = "ct_"
    written: Program | None = field(default=None, repr=False)
    flexible: bool = field(default=False, repr=False)
    made: Mapping[str, Any] = field(default_factory=dict, repr=False)
    base_data: StanData | None = field(default=None, repr=False)

    @cached_property
    def omissions(self) -> tuple[Omission, ...]:
        """Normalising constants of the prior that the program, and thus its log Z, leaves out.

        See `stanct.stan.omissions.Omission`.
        """
        return omissions(self.program)

    def stan_code(self, kind: str | None = None) -> StanCode:
        """Return the generated program of one kind as a string, which notebooks show in colour.

        Parameters
        ----------
        kind
            ``"density"``, ``"joint"``, ``"pseudo_extended"``, ``"prior_likelihood"``,
            ``"extended_hamiltonian"`` or ``"weighted"``; see `stanct.stan.codegen.generate`. The
            default is ``"joint"``, and ``"prior_likelihood"`` on a path between two programs.

        Raises
        ------
        StanctError
            There is no such kind.
        ProgramError
            The program uses something that this kind cannot transform.
        """
        kind = usual_kind(self.program) if kind is None else kind
        return StanCode(generate(self.program, kind, prefix=self.prefix))

    def diff(self, kind: str = "density") -> str:
        """Return a unified diff from the user's program, includes expanded, to a generated one."""
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
        """Write generated programs as ``<name>_<kind>.stan`` to a folder; return their paths.

        The folder is made if needed.
        """
        texts = {kind: self.stan_code(kind) for kind in kinds}
        target = Path(folder)
        paths = {target / f"{self.program.name}_{kind}.stan": text for kind, text in texts.items()}
        with writing("The programs", target, "Choose a folder that you can write."):
            target.mkdir(parents=True, exist_ok=True)
            for path, text in paths.items():
                path.write_text(text, encoding="utf-8")
        return tuple(paths)

    def export(
        self,
        folder: str | os.PathLike[str],
        data: DataSource = None,
        kind: str | None = None,
        *,
        run: Run | None = None,
        copies: int = 5,
        seed: int | None = None,
        progress: bool = True,
    ) -> Path:
        """Write a folder with which CmdStan samples a generated program without stanct.

        It has the program, `data.json` with base and bias beside your data, initial values for four
        chains, a README, and `run.py` (cmdstanpy) and `run.R` (cmdstanr), which sample and print
        log Z with its error and averages over the posterior. `stanct.import_run` makes a run of the
        draws.

        Parameters
        ----------
        folder
            Made if needed. Files of the same names are replaced.
        data
            Path of a JSON file, a mapping, or None.
        kind
            As in `stan_code`.
        run
            A run of this program with these data, from which base and bias are taken, if its base
            is one Gaussian, or its method that of the kind. By default, and where it has only a
            base to give, which stderr says, a short run fits them now.
        copies
            Number of copies in ``"pseudo_extended"``.
        seed
            Seed of that run and of the initial values; a fresh one by default.
        progress
            Whether to show that run's progress on stderr.

        Returns
        -------
        Path
            The folder.

        Raises
        ------
        StanctError
            There is no such kind, the run has no base or other data, or a file cannot be written.
        ProgramError
            The program has no form of this kind.
        """
        how = {"run": run, "copies": copies, "seed": seed, "progress": progress}
        return export(self.target(data), folder, kind, **how)

    def target(self, data: DataSource = None) -> ProgramTarget:
        """The program joined with data, which are checked: see `stanct.targets.data.read_data`."""
        ends = self.program.ends
        if ends is not None:
            data = joined_data(data, self.base_data, ends)
        joined = read_data(data, self.program)
        return ProgramTarget(
            self.program, joined, self.prefix, self.written, self.flexible, self.made
        )

    def density(self, data: DataSource = None) -> Density:
        """Return the log density −φ on the unconstrained space, with gradient and all constants.

        Parameters
        ----------
        data
            Path of a JSON file, a mapping, or None.
        """
        return self.target(data).density

    @overload
    def sample(
        self, data: DataSource, method: Method[Result], **options: Unpack[Options]
    ) -> Result: ...

    @overload
    def sample(
        self, data: DataSource = None, *, method: Method[Result], **options: Unpack[Options]
    ) -> Result: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["auto", "joint", "gibbs", "simulated_tempering", "independence"] = "auto",
        **options: Unpack[Options],
    ) -> TemperedRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["parallel_tempering"],
        **options: Unpack[Options],
    ) -> LadderRun: ...

    @overload
    def sample(
        self, data: DataSource = None, *, method: Literal["ais"], **options: Unpack[Options]
    ) -> ParticleRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["power_posterior"],
        **options: Unpack[Options],
    ) -> PowerRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["pseudo_extended"],
        **options: Unpack[Options],
    ) -> PseudoExtendedRun: ...

    @overload
    def sample(
        self,
        data: DataSource = None,
        *,
        method: Literal["extended_hamiltonian"],
        **options: Unpack[Options],
    ) -> CoupledRun: ...

    @overload
    def sample(
        self, data: DataSource = None, *, method: Literal["adiabatic"], **options: Unpack[Options]
    ) -> AdiabaticRun: ...

    @overload
    def sample(
        self, data: DataSource = None, *, method: Literal["tact"], **options: Unpack[Options]
    ) -> TactRun: ...

    @overload
    def sample(self, data: DataSource, method: str, **options: Unpack[Options]) -> Run: ...

    def sample(
        self,
        data: DataSource = None,
        method: Method[Any] | str = "auto",
        **options: Unpack[Options],
    ) -> Any:
        """Fit a base, sample, and return the run.

        Parameters
        ----------
        data
            Path of a JSON file, a mapping of variable names to values, or None for a program
            without data.
        method
            A method with its settings, such as ``stanct.Gibbs(transitions=8)``, or a method's name
            for its defaults. ``"joint"``: joint continuous tempering by NUTS. ``"gibbs"``: Gibbs
            continuous tempering by compiled HMC. ``"simulated_tempering"``: the same on a ladder.
            ``"parallel_tempering"``: one chain for each temperature, with swaps.
            ``"pseudo_extended"``: NUTS on several copies, each at its own temperature. ``"ais"``:
            annealed importance sampling, or SMC with ``stanct.AIS(resample=True)``.
            ``"power_posterior"``: NUTS at every power of the likelihood, from the prior.
            ``"extended_hamiltonian"``: NUTS on powers of the target itself, without a base.
            ``"adiabatic"``: a contact Hamiltonian flow that moves β itself. ``"tact"``:
            thermostatted dynamics, also on mini-batches, without evidence.
        options
            Options of all methods: see `stanct.samplers.options.Options`.

        Raises
        ------
        StanctError
            The data are invalid, or a method, engine or option is unknown; raised before any work.
            See `stanct.sample` for other errors.
        """
        return sample(self.target(data), method, **options)

    def bidirectional(
        self, data: DataSource, exact: Exact, method: AIS | None = None, **options: Unpack[Options]
    ) -> Bracket:
        """Bracket log Z of simulated data by annealing upwards and downwards.

        Parameters
        ----------
        data
            Data simulated from the program.
        exact
            Values by name of the parameters from which the data were simulated; see
            `stanct.samplers.bidirectional.Bidirectional`.
        method
            Settings of the annealing; the defaults of `stanct.AIS` if None.
        options
            Options of all methods: see `stanct.samplers.options.Options`.

        Raises
        ------
        StanctError
            The data are invalid, parameters are outside their support, or an option is unknown;
            raised before any work.
        """
        if method is not None and not isinstance(method, AIS):
            raise SamplingError(
                f"method must be a stanct.AIS, or None, not {method!r}.",
                remedy="Did you mean method=stanct.AIS()?",
            )
        settings = {} if method is None else method.record()
        return sample(self.target(data), Bidirectional(exact=exact, **settings), **options)

    def sample_many(
        self,
        datasets: Mapping[str, DataSource] | Iterable[DataSource],
        method: Method[Any] | str = "auto",
        **options: Any,
    ) -> Many:
        """Sample the program with many data sets; see `stanct.sample_many`."""
        return sample_many(self, datasets, method, **options)

    def calibrate(self, simulator: Simulator, **options: Any) -> Calibration:
        """Test runs of the program on data that it could have made; see `stanct.calibrate`."""
        return calibrate({self.program.label: (self, simulator)}, **options)

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self))}</p>{StanCode(self.program.source)._repr_html_()}"

    def __repr__(self) -> str:
        names = ", ".join(self.program.parameter_names)
        return f"TemperedModel of {self.program.label}: parameters {names}"

"""The CmdStan engine. Only this module and `homes` import cmdstanpy.

The engine compiles generated programs into a cache and runs NUTS on them in blocks. A program with
`reduce_sum` is built with threads, which its chains share.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from stanct.common.arrays import Array
from stanct.common.deadline import heed, result, seconds_left
from stanct.common.errors import EngineError
from stanct.engines.cache import kept
from stanct.engines.embedded import STATISTICS, Adapted, DrawBlock, Nuts, ParameterShapes, Recipe
from stanct.engines.homes import INSTALL, Home, find, require_cmdstanpy, using
from stanct.engines.opencl import preferred

if TYPE_CHECKING:
    from cmdstanpy import CmdStanMCMC, CmdStanModel

# Significant digits that reproduce every double exactly.
_DIGITS = 17
# Time in seconds in which interrupted chains have to end.
_PATIENCE = 1.0


@dataclass(frozen=True)
class CmdStan:
    """NUTS on programs compiled by CmdStan.

    Attributes
    ----------
    home
        The CmdStan that compiles.
    opencl
        Build with OpenCL, which moves the functions for which Stan has kernels to a device:
        platform and number of the device, as `stanct doctor` lists them, or True for platform and
        number 0, which are CmdStan's own choice.
    optimise
        Compile with stanc's `--O1`, which makes gradients in many dimensions cheaper. A program
        whose optimised form does not compile is built without it, and so is every program with
        OpenCL.
    """

    home: Home
    opencl: bool | tuple[int, int] = False
    optimise: bool = True

    @property
    def NAME(self) -> str:  # noqa: N802 (as the constant of the module `embedded`)
        """Name of the engine in the records of runs."""
        return "cmdstan"

    @classmethod
    def here(cls, *, opencl: bool | tuple[int, int] = False) -> CmdStan:
        """Return the engine with this machine's CmdStan; ``opencl=True`` is the first device.

        Raises `EngineError` if CmdStan, cmdstanpy or an OpenCL device is missing.
        """
        require_cmdstanpy()
        home = find()
        if home is None:
            raise EngineError("No CmdStan was found on this machine.", remedy=INSTALL)
        return cls(home, preferred() if opencl is True else opencl)

    def compiled(self, source: str) -> Path:
        """Return the executable of a program, from the cache if it was built before.

        Raises `EngineError`, with the message, if stanc or the C++ compiler rejects the program, or
        someone else could have written the executable that is in the cache.
        """
        flags = self._flags(source)
        optimise = self.optimise and not self.opencl
        told = [
            source,
            *sorted(flags),
            *map(str, self._device),
            *["O1"] * optimise,
            str(self.home.path),
            self.home.version,
            self.home.settings,
        ]
        build = functools.partial(_build, source, flags, self.home, optimise=optimise)
        return kept(told, "model", functools.partial(_ended_with_us, build))

    def adapt(
        self,
        recipe: Recipe,
        positions: Array,
        shapes: ParameterShapes,
        *,
        seed: int,
        warmup: int,
        nuts: Nuts,
    ) -> Adapted:
        """Warm up NUTS chains: step size and diagonal metric by Stan's windows.

        All parameters of the program are unconstrained scalars, vectors and matrices, of `shapes`
        by name in their order, and begin at `positions`, shape (chains, dimension). Chain c uses
        Stan's random stream of the seed and chain id c + 1.
        """
        with self._run(
            recipe,
            [values_at(position, shapes) for position in positions],
            nuts,
            seed=seed,
            iter_warmup=warmup,
            iter_sampling=2,  # with 1 cmdstanpy 1.3 cannot count divergences
            adapt_delta=nuts.target_accept,
            save_warmup=True,
        ) as fit:
            return Adapted(
                step_size=np.array(fit.step_size),
                inv_metric=np.array(fit.inv_metric),
                position=_block(fit).position(tuple(shapes)),
                gradients=_leapfrogs(fit),
            )

    def draw(
        self,
        recipe: Recipe,
        positions: Array,
        shapes: ParameterShapes,
        *,
        step_size: float,
        inv_metric: Array,
        seed: int,
        draws: int,
        nuts: Nuts,
    ) -> DrawBlock:
        """Draw a block from given positions with step size and metric frozen.

        The parameters are as in `adapt`; `inv_metric` has shape (dimension,).
        """
        with self._run(
            recipe,
            [values_at(position, shapes) for position in positions],
            nuts,
            seed=seed,
            iter_warmup=0,
            iter_sampling=draws,
            adapt_engaged=False,
            step_size=step_size,
            inv_metric=inv_metric,
        ) as fit:
            return _block(fit)

    def run_nuts(
        self,
        recipe: Recipe,
        inits: Sequence[Mapping[str, Any]],
        *,
        seed: int,
        warmup: int,
        draws: int,
        nuts: Nuts,
    ) -> tuple[DrawBlock, int]:
        """Run NUTS chains; return their draws and the gradients spent, warm-up included.

        `inits` are the values of the program's parameters by name at which each chain begins.
        """
        with self._run(
            recipe,
            inits,
            nuts,
            seed=seed,
            iter_warmup=warmup,
            iter_sampling=draws,
            adapt_delta=nuts.target_accept,
            save_warmup=True,
        ) as fit:
            return _block(fit), _leapfrogs(fit)

    @property
    def _device(self) -> tuple[int, ...]:
        """Platform and number of the OpenCL device, if they are given."""
        return self.opencl if isinstance(self.opencl, tuple) else ()

    def _flags(self, source: str) -> dict[str, str | int]:
        threaded = re.search(r"\b(reduce_sum|reduce_sum_static|map_rect)\b", source) is not None
        flags = ["STAN_THREADS"] * threaded + ["STAN_OPENCL"] * bool(self.opencl)
        names = ("OPENCL_PLATFORM_ID", "OPENCL_DEVICE_ID")
        return dict.fromkeys(flags, "TRUE") | dict(zip(names, self._device, strict=False))

    @contextlib.contextmanager
    def _run(
        self, recipe: Recipe, inits: Sequence[Mapping[str, Any]], nuts: Nuts, **settings: Any
    ) -> Iterator[CmdStanMCMC]:
        """Sample in a temporary folder, which exists until the context ends."""
        chains = len(inits)
        if "STAN_THREADS" in self._flags(recipe.source):
            settings["threads_per_chain"] = max(1, nuts.threads // chains)
        with self._model(recipe) as (model, data), _ending_chains(data):
            yield model.sample(
                data=data,
                chains=chains,
                parallel_chains=min(chains, nuts.threads),
                inits=list(inits),
                max_treedepth=nuts.max_depth,
                sig_figs=_DIGITS,
                show_progress=False,
                output_dir=Path(data).parent,
                force_one_process_per_chain=True,
                timeout=seconds_left(),
                **settings,
            )

    @contextlib.contextmanager
    def _model(self, recipe: Recipe) -> Iterator[tuple[CmdStanModel, str]]:
        """Yield the compiled program and its data file in a temporary folder."""
        import cmdstanpy

        executable = self.compiled(recipe.source)
        heed()
        with (
            tempfile.TemporaryDirectory(prefix="stanct-") as folder,
            cmdstanpy.disable_logging(),
            using(self.home),
        ):
            data = Path(folder) / "data.json"
            data.write_text(recipe.data, encoding="utf-8")
            try:
                yield cmdstanpy.CmdStanModel(exe_file=executable), str(data)
            except TimeoutError:
                heed()
                raise
            except (RuntimeError, ValueError) as error:
                raise EngineError(
                    f"CmdStan failed.\n{_failure(Path(folder), str(error))}\n",
                    remedy="Check that the density is finite near the origin of the "
                    "unconstrained space.",
                ) from error


@contextlib.contextmanager
def _ending_chains(data: str) -> Iterator[None]:
    """End the processes that still read a data file if an interrupt or the deadline ends the body.

    A signal to this process alone does not reach them, and Python ends only after they do, because
    CmdStanPy waits for them in threads. Each that ends makes room for one that has not begun.
    """
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and (left := _processes(f"file={data} ")):
            _terminate(left)
        raise


def _terminate(processes: list[int]) -> None:
    """Ask processes to end, and give them a moment."""
    for process in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process, signal.SIGTERM)
    time.sleep(0.05)


def _processes(text: str) -> list[int]:
    """Other processes with a text in their arguments, with spaces behind them, by /proc or `ps`."""
    found = list[tuple[int, str]]()
    with contextlib.suppress(OSError):
        if Path("/proc/self/cmdline").exists():
            for place in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    told = place.read_bytes().decode(errors="replace").replace("\0", " ")
                    found.append((int(place.parent.name), told))
        else:
            command = ["ps", "-Aww", "-o", "pid=,args="]
            listed = subprocess.run(command, capture_output=True, text=True).stdout
            lines = (line.split(maxsplit=1) for line in listed.splitlines())
            found += [(int(process), *told) for process, *told in lines if told]
    return [process for process, told in found if text in f"{told} " and process != os.getpid()]


def _ended_with_us(build: Callable[[Path], None], workshop: Path) -> None:
    """Build in a folder; an interrupt and the deadline end the commands that work there."""
    with ThreadPoolExecutor(1) as pool:  # it waits for the thread, which waits for the commands
        built = pool.submit(build, workshop)
        try:
            result(built)
        except KeyboardInterrupt as stop:
            while not built.done():  # another try may follow the first
                _terminate(_processes(workshop.name))
            stop.add_note("CmdStan was compiling a program, which takes about a minute once.")
            raise


def _build(
    source: str, flags: Mapping[str, str | int], home: Home, workshop: Path, *, optimise: bool
) -> None:
    """Compile a program to `model` in a folder."""
    try:
        program = workshop / "model.stan"
        program.write_text(source, encoding="utf-8")
        _compile(program, flags, home, optimise=optimise)
        (workshop / "model.hpp").unlink(missing_ok=True)
    except (ValueError, RuntimeError) as error:
        raise EngineError(
            f"{home} could not compile the program.\n{error}\n",
            remedy="If its own examples fail too, install it again: "
            "stanct install-cmdstan --replace.",
        ) from error


def _compile(program: Path, flags: Mapping[str, str | int], home: Home, *, optimise: bool) -> None:
    import cmdstanpy

    stanc = {"O1": True} if optimise else {}
    try:
        with cmdstanpy.disable_logging(), using(home):
            cmdstanpy.compile_stan_file(program, stanc_options=stanc, cpp_options=dict(flags))
    except (ValueError, RuntimeError):
        # stanc's optimiser can write invalid C++ (stanc3 issue 1150).
        if not optimise:
            raise
        program.with_suffix(".hpp").unlink(missing_ok=True)
        _compile(program, flags, home, optimise=False)


def values_at(position: Array, shapes: ParameterShapes) -> dict[str, Any]:
    """Split one chain's unconstrained vector into parameters by name, matrices by columns."""
    values, first = {}, 0
    for name, shape in shapes.items():
        size = int(np.prod(shape))
        part = position[first : first + size]
        values[name] = part.reshape(shape, order="F").tolist() if shape else float(part[0])
        first += size
    return values


def _block(fit: CmdStanMCMC) -> DrawBlock:
    """Return the kept draws in the embedded engine's layout."""
    draws, chains = fit.num_draws_sampling, fit.chains
    variables = {
        name: np.asarray(values).reshape(chains, draws, *np.shape(values)[1:])
        for name, values in fit.stan_variables().items()
    }
    found = fit.method_variables()
    return DrawBlock(variables, {name: np.asarray(found[name]).T for name in STATISTICS})


def _leapfrogs(fit: CmdStanMCMC) -> int:
    """Gradients of all chains, warm-up included."""
    return int(fit.draws(inc_warmup=True)[..., fit.column_names.index("n_leapfrog__")].sum())


def _failure(folder: Path, message: str) -> str:
    """Return the end of the log of each chain that failed, and cmdstanpy's own message."""
    told = []
    for log in sorted(folder.glob("*stdout*.txt")):
        lines = log.read_text(errors="replace").strip().splitlines()
        if not any("Elapsed Time" in line for line in lines):
            number = re.search(r"_(\d+)-stdout", log.name)  # counted from 0
            told.append(f"chain {int(number[1]) + 1}:" if number else f"{log.name}:")
            told += [f"  {line}" for line in lines[-8:]]
    return "\n".join([*told, message])

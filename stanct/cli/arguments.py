"""What the commands of `stanct` take, and which function each of them calls."""

from __future__ import annotations

import argparse
import atexit
import difflib
import gc
import importlib
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NoReturn

from stanct.common.names import BASES, ENGINES, KINDS, METHOD_NAMES, PICTURES, UNRELIABLE
from stanct.common.version import __version__


class Parser(argparse.ArgumentParser):
    """A parser that says what a misspelt word may mean, in place of all that it might be."""

    _CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)", re.DOTALL)
    _OPTION = re.compile(r"unrecognized arguments: (.*)", re.DOTALL)

    def error(self, message: str) -> NoReturn:
        """Print the message, and what was meant if that can be told, and exit with status 2."""
        if chosen := self._CHOICE.search(message):
            known = chosen[2].replace("'", "").split(", ")
            told = message[: chosen.end(1) + 1]
            told = told.replace("argument COMMAND: invalid choice:", "There is no command")
            self.exit(2, f"{self.prog}: error: {told}. {self._meant(chosen[1], known)}\n")
        if unknown := self._OPTION.search(message):
            word = unknown[1].split()[0].partition("=")[0]
            known = {o: p.prog for p in self._all() for a in p._actions for o in a.option_strings}
            hint = f"{known[word]} has it." if word in known else self._meant(word, known)
            if word == "--data":
                hint = "Data follow the program, as in stanct evidence MODEL.stan DATA.json."
            self.exit(2, f"{self.prog}: error: {message}. {hint}\n")
        super().error(message)

    def _meant(self, word: str, known: Iterable[str]) -> str:
        names = list(known)
        if word.endswith(".stan") and "evidence" in names:
            return f"Did you mean stanct evidence {word}?"
        near = difflib.get_close_matches(word, names, 1)
        every = f"There are {', '.join(names)}." if len(names) < 16 else ""
        return f"Did you mean {near[0]}?" if near else every or f"See {self.prog} --help."

    def _all(self) -> list[argparse.ArgumentParser]:
        """This parser and those of its commands."""
        parts = [a.choices for a in self._actions if isinstance(a, argparse._SubParsersAction)]
        return [self, *(parser for part in parts for parser in part.values())]


def parser_of_commands() -> argparse.ArgumentParser:
    """The parser of the command line. Its results have the function to call as `run`."""
    parser = Parser(
        prog="stanct",
        description="Continuous tempering for any Stan program: sample across isolated modes, and "
        "get the evidence.",
    )
    parser.add_argument("--version", action="version", version=f"stanct {__version__}")
    subcommands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_temper(subcommands)
    _add_evidence(subcommands)
    _add_bridge(subcommands)
    _add_export(subcommands)
    _add_import(subcommands)
    _add_salvage(subcommands)
    _add_extend(subcommands)
    _add_compare(subcommands)
    _add_report(subcommands)
    _add_plot(subcommands)
    doctor = subcommands.add_parser(
        "doctor", help="show the engines, their versions, and what is missing"
    )
    doctor.set_defaults(run=_command("doctor"))
    _add_install(subcommands)
    completion = subcommands.add_parser(
        "completion",
        help="print a script that completes these commands in a shell",
        description="Print a script with which a shell completes commands and options. For bash: "
        "stanct completion bash > ~/.local/share/bash-completion/completions/stanct",
    )
    completion.add_argument("shell", choices=("bash", "fish", "zsh", "tcsh"))
    completion.set_defaults(run=lambda options: _commands().completion(parser, options.shell))
    return parser


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The function of this name in `stanct.cli.commands`, which is loaded when it is called."""
    return lambda options: getattr(_commands(), name)(options)


def _commands() -> Any:
    # A call for help needs none of what commands import.
    gc.disable()  # modules are no garbage, and looking for some among them takes half a second
    try:
        return importlib.import_module("stanct.cli.commands")
    finally:
        gc.enable()
        gc.freeze()
        atexit.register(gc.freeze)


def _add_program(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="Stan program, e.g. radon.stan")
    parser.add_argument(
        "--include-path",
        action="append",
        default=[],
        metavar="FOLDER",
        help="folder in which #include looks before the program's own; may be repeated",
    )
    parser.add_argument(
        "--prefix", default="ct_", help="prefix of generated names (default: %(default)s)"
    )


def _add_forms(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--half-priors",
        choices=("as-written", "renormalise"),
        default="as-written",
        help="whether to truncate priors with mass outside of their parameters' bounds",
    )
    parser.add_argument(
        "--hierarchies",
        choices=("auto", "as-written", "non-centred"),
        default="auto",
        help="form of parameters whose prior's scale is a parameter; with auto, the default, "
        "pilots choose",
    )
    parser.add_argument(
        "--base-program",
        metavar="FILE",
        help="Stan program with the same parameters, from which the path leads to MODEL: log Z is "
        "then the log of the ratio of the two",
    )
    parser.add_argument(
        "--base-data", metavar="FILE", help="JSON file of that program; DATA has its data otherwise"
    )


def _add_temper(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "temper",
        help="write a tempered Stan program",
        description="Generate a tempered program from MODEL: to stdout, or to files in a folder.",
    )
    _add_program(parser)
    _add_forms(parser)
    parser.add_argument(
        "--kind",
        choices=KINDS,
        help="what to generate (default: joint; density with --diff)",
    )
    parser.add_argument("--out", metavar="FOLDER", help="write <model>_<kind>.stan there")
    parser.add_argument(
        "--diff", action="store_true", help="show what changes in MODEL instead of the program"
    )
    parser.add_argument(
        "--check",
        action="store_true",
        help="check the generated program with stanc, and with --data compare log densities at "
        "random points, instead of showing the program",
    )
    parser.add_argument("--data", metavar="DATA", help="JSON file for --check")
    parser.add_argument(
        "--engine",
        choices=[engine for engine in ENGINES if engine != "opencl"],
        default="auto",
        help="second evaluator of --check; auto is CmdStan where one is found, which compiles for "
        "a minute (default: %(default)s)",
    )
    parser.set_defaults(run=_command("temper_program"))


def _add_evidence(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "evidence",
        help="estimate log Z with an error bar",
        description="Sample MODEL with DATA and print log Z. With --json one object goes to stdout "
        "and everything else to stderr.",
    )
    _add_program(parser)
    _add_forms(parser)
    parser.add_argument("data", metavar="DATA", nargs="?", help="JSON file; nothing or - for none")
    parser.add_argument("--method", choices=METHOD_NAMES, default="auto")
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the method, e.g. --method gibbs --set transitions=8; may be repeated",
    )
    _add_length(parser)
    _add_base(parser)
    _add_workers(parser)
    _add_folders(parser)
    _add_outputs(parser)
    parser.set_defaults(run=_command("evidence"))


def _add_length(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--seed", type=int, help="default: a fresh one, reported with the result")
    parser.add_argument("--chains", type=int, help="default: the method's own")
    parser.add_argument("--draws", type=int, help="kept draws of each chain")
    parser.add_argument(
        "--target-se",
        type=float,
        metavar="SE",
        help="sample until log Z has this standard error; for every method but tact",
    )
    parser.add_argument(
        "--max-draws",
        type=int,
        metavar="N",
        help="largest number of draws of each chain with --target-se",
    )
    parser.add_argument("--warmup", type=int, help="adaptation draws of each chain")
    parser.add_argument(
        "--max-seconds",
        type=float,
        metavar="SECONDS",
        help="end the run after this time with the draws that are finished",
    )


def _add_base(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--base",
        choices=BASES,
        default="auto",
        help="how the base is fitted; auto is pilot for all methods but tact; mixture is for "
        "simulated_tempering, parallel_tempering and ais (default: %(default)s)",
    )
    parser.add_argument(
        "--inits",
        action="append",
        metavar="FILE",
        help="JSON object of parameter names and values, or a list of them, from which the search "
        "for modes also starts; may be repeated",
    )
    parser.add_argument(
        "--search-radius",
        type=float,
        metavar="R",
        help="largest radius in the unconstrained space at which that search starts (default: 100)",
    )


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="record finished work there; after a kill the same command continues the run",
    )
    parser.add_argument(
        "--thin", type=int, metavar="K", help="keep the parameters of every K-th draw only"
    )
    parser.add_argument(
        "--keep", action="append", metavar="NAME", help="keep this variable; may be repeated"
    )
    parser.add_argument(
        "--store",
        metavar="FOLDER",
        help="write draws there as they are made; first a checkpoint, then a saved run",
    )


def _add_bridge(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "bridge",
        help="estimate log Z from a fit that you already have",
        description="Estimate log Z of MODEL with DATA by bridge sampling from the draws of FIT, "
        "which another program made. No gradient is taken but by the search for modes.",
    )
    _add_program(parser)
    parser.add_argument("data", metavar="DATA", help="JSON file of the fit's data; - for none")
    parser.add_argument(
        "fit",
        metavar="FIT",
        nargs="+",
        help="CmdStan's CSV files, a folder of them, or ArviZ's netCDF file",
    )
    parser.add_argument("--seed", type=int, help="default: a fresh one")
    parser.add_argument(
        "--reshuffles",
        type=int,
        default=4,
        metavar="N",
        help="how often to draw the halves anew, to see how log Z varies (default: %(default)s)",
    )
    parser.add_argument(
        "--no-search", action="store_true", help="do not search for modes that the fit has missed"
    )
    parser.add_argument(
        "--escalate", action="store_true", help="temper from the fit if a check fails"
    )
    parser.add_argument(
        "--method", choices=METHOD_NAMES, help="method of --escalate; default: chosen by the fit"
    )
    _add_outputs(parser)
    parser.set_defaults(
        run=_command("bridge_fit"),
        half_priors="as-written",
        hierarchies="as-written",
        base_program=None,
        base_data=None,
    )


def _add_export(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "export",
        help="write a tempered program with data and scripts, to run without stanct",
        description="Write a generated program of MODEL with DATA, base, bias, initial values, and "
        "scripts for cmdstanpy and cmdstanr that sample it and print log Z.",
    )
    _add_program(parser)
    _add_forms(parser)
    parser.add_argument("data", metavar="DATA", nargs="?", help="JSON file; nothing or - for none")
    parser.add_argument("--out", metavar="FOLDER", required=True, help="where to write it")
    parser.add_argument("--kind", choices=KINDS, help="default: joint")
    parser.add_argument(
        "--run", dest="run_folder", metavar="RUN", help="a saved run that has base and bias"
    )
    parser.add_argument(
        "--copies", type=int, default=5, help="copies of pseudo_extended (default: %(default)s)"
    )
    parser.add_argument("--seed", type=int, help="default: a fresh one")
    parser.set_defaults(run=_command("export_program"))


def _add_import(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "import",
        help="print log Z from the draws of an exported program",
        description="Make a run of the draws that CmdStan made from the export FOLDER, and print "
        "log Z and the posterior.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="what `stanct export` wrote")
    parser.add_argument("files", metavar="CSV", nargs="+", help="CmdStan's files, or their folder")
    parser.add_argument("--seed", type=int, help="default: a fresh one")
    _add_outputs(parser)
    parser.set_defaults(run=_command("import_draws"))


def _add_salvage(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "salvage",
        help="print log Z from the finished draws of a killed run",
        description="Print log Z from the draws that the checkpoint of a killed run holds. Nothing "
        "is sampled, and the run can still go on.",
    )
    parser.add_argument("checkpoint", metavar="FOLDER", help="the run's --checkpoint")
    _add_outputs(parser)
    parser.set_defaults(run=_command("salvage_run"))


def _add_extend(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "extend",
        help="go on with a saved run",
        description="Make further draws for the saved run RUN under its frozen settings, and print "
        "log Z from all draws. Without --save nothing is written.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder of the saved run")
    parser.add_argument(
        "--draws", type=int, required=True, metavar="N", help="further draws of each chain"
    )
    _add_workers(parser)
    _add_outputs(parser)
    parser.set_defaults(run=_command("extend_run"))


def _add_workers(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--threads",
        type=int,
        help="chains that run at once; default: all cores. With --executor: threads of a task that "
        "runs several chains, such as the search for the base",
    )
    parser.add_argument(
        "--executor",
        metavar="WORKERS",
        help="what moves the chains in place of threads: processes:4, threads:4 or "
        "dask:tcp://HOST:PORT",
    )


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--save", metavar="FOLDER", help="save the run there, replacing a run saved before"
    )
    parser.add_argument("--report", metavar="FILE", help="write the HTML report there")
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with status {UNRELIABLE} if a check failed; the default only warns",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--timing", action="store_true", help="say on stderr where the time went")
    parser.add_argument("--quiet", action="store_true", help="say nothing of the progress")


def _add_install(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "install-cmdstan",
        help="install CmdStan",
        description="Use an existing CmdStan; otherwise install an official one with cmdstanpy if "
        "GitHub can be reached; otherwise assemble one from PyPI, which takes some minutes.",
    )
    parser.add_argument("--from", dest="source", choices=("auto", "github", "pypi"), default="auto")
    parser.add_argument("--dir", type=Path, metavar="FOLDER", help="where to assemble it")
    parser.add_argument(
        "--wheel", type=Path, metavar="FILE", help="httpstan's wheel, if you have it"
    )
    parser.add_argument("--jobs", type=int, help="parallel compilations; default: cores, at most 4")
    parser.add_argument("--replace", action="store_true", help="install even if there is a CmdStan")
    parser.set_defaults(run=_command("install"))


def _add_compare(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "compare",
        help="Bayes factors and model probabilities of saved runs",
        description="Compare the models of runs on the same data by their evidences. Runs on "
        "different data are refused, and improper priors too, unless with --improper allow.",
    )
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folder of a saved run")
    parser.add_argument("--names", type=_listed, metavar="A,B", help="names of the models in order")
    parser.add_argument(
        "--prior", type=_weights, metavar="1,2", help="prior weights in order; default: equal"
    )
    parser.add_argument(
        "--observed",
        type=_listed,
        metavar="Y",
        help="data variables that must be equal; default: all that the programs share",
    )
    parser.add_argument("--improper", choices=("refuse", "allow"), default="refuse")
    parser.add_argument(
        "--loo", action="store_true", help="add leave-one-out elpd and stacking weights"
    )
    parser.add_argument("--out", metavar="FILE", help="write an HTML page there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_command("compare_runs"))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _weights(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _add_report(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "report",
        help="write the HTML report of a saved run",
        description="Write one HTML page that shows the result of a saved RUN, its uncertainty, "
        "and whether its checks passed.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder of a saved run")
    parser.add_argument("--out", metavar="FILE", help="default: RUN.html")
    _add_names(parser)
    parser.set_defaults(run=_command("report_run"))


def _add_names(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--names",
        nargs="+",
        metavar="NAME",
        help="variables or scalars, such as mu 'beta[1]'; default: a few that are asked for first",
    )


def _add_plot(subcommands: Any) -> None:
    parser = subcommands.add_parser(
        "plot",
        help="draw one picture of a saved run",
        description="Draw one picture of the saved RUN: trace, pair (corner) or posterior of "
        "scalars, log z along the path, the weights of the modes, or the weights of the draws.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder of a saved run")
    parser.add_argument("picture", choices=PICTURES)
    _add_names(parser)
    parser.add_argument(
        "--prior", action="store_true", help="add the prior, which is sampled first, to posterior"
    )
    parser.add_argument(
        "--out",
        metavar="FILE",
        help="its ending tells the format, such as png, pdf or svg (default: RUN_PICTURE.png)",
    )
    parser.set_defaults(run=_command("plot_run"))

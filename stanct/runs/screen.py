"""What a command prints of a run: log Z, what was done, whether to believe it, and what is next."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping

from stanct.common.errors import counted
from stanct.estimates.naming import FEW, by_interest, label, places_of
from stanct.estimates.weighted import scalars
from stanct.runs.decisions import decisions
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.run import Run
from stanct.runs.surveyed import LIGHT, OF_PEAKS, searched
from stanct.runs.verdicts import OF_THE_PROGRAM, Check, failures

WIDTH = 80
UNSEEN = (
    "No check can see a mode that neither the search nor any chain has visited, as a narrow one "
    "far away in many dimensions."
)
# Peaks and modes that are listed, and their columns; the scalars of a posterior in which all
# variables have many; components of what is derived.
MOST_PEAKS, MOST_COLUMNS, FEWEST_ROWS, FEW_DERIVED = 10, 7, 12, 3
_UNTOLD = {"log_z", "log_z_std_error", "pilot_log_z", "pilot_weight", "chains", "log_mass"}

# What each method does, as a predicate of its draws.
_DONE = {
    "independence": "drew independently from a fitted density, and weighted the draws",
    "joint": "moved parameters and the inverse temperature β together by NUTS",
    "gibbs": "moved parameters by HMC and drew the inverse temperature β in turn",
    "simulated_tempering": "moved parameters by HMC and stepped on a ladder of temperatures",
    "parallel_tempering": "moved one chain at each temperature, and swapped them",
    "pseudo_extended": "moved copies of the parameters, each at its own temperature, by NUTS",
    "ais": "annealed particles from a fitted density to the posterior",
    "smc": "annealed and resampled particles from a fitted density to the posterior",
    "power_posterior": "sampled every power of the likelihood, from the prior, by NUTS",
    "adiabatic": "moved trajectories from a fitted density to the posterior and back",
    "extended_hamiltonian": "moved parameters and a tempering variable together by NUTS",
    "tact": "moved parameters and temperature by thermostatted dynamics",
    "bridge": "compared the draws of the fit with those of a normal density fitted to them",
}
_FORMS = {
    "weight": "{:.3f}",
    "seen": "{:.0f}",
    "mode": "{:.0f}",
    "ess_bulk": "{:.0f}",
    "ess_tail": "{:.0f}",
    "r_hat": "{:.3f}",
}


def screen(run: Run, folder: str | None = None) -> Iterator[str]:
    """The parts of the screen, log Z first, because the others take time; `folder` has the run."""
    yield _log_z(run)
    yield "\n".join(_paragraphs(run, folder))
    if run.has_posterior:
        yield from _peaks(run)
        yield _posterior(run)


def leading(run: Run) -> list[Check]:
    """The first failed check that puts the draws in doubt, and the first for log Z alone."""
    first = {one.of: one for one in reversed(failures(run.diagnostics))}
    return list(first.values())


def _log_z(run: Run) -> str:
    if isinstance(run, EvidenceRun):
        known = str(run.evidence).partition("\n")[0]
        improper = "proper_prior" in run.warnings
        return f"{known}; no evidence: the prior is improper" if improper else known
    return f"No log Z: {run.made_by} estimates no evidence."


def _paragraphs(run: Run, folder: str | None) -> Iterator[str]:
    yield ""
    does = _DONE.get(run.method, "sampled")
    made = [
        f"{counted(run.chains, 'chain')} of {run.draws} draws", f"{run.gradients:,} gradients",
        f"{run.provenance['seconds']:.1f} s", f"seed {run.settings['seed']}",
    ]  # fmt: skip
    if run.provenance.get("imported"):
        made[2:] = [f"imported in {made[2]} with the {made[3]}"]
    if run.engine != "embedded":
        made.insert(3, f"engine {run.engine}")
    told = " ".join(decisions(run.provenance))
    yield _told("Done", f"Method {run.made_by} {does}: {', '.join(made)}. {told}")
    told = [run.verdict.in_words]
    if run.has_posterior:
        told += [searched(run), UNSEEN]
    yield _told("Believe it?", " ".join(filter(None, told)))
    yield from _next(run, folder)


def _next(run: Run, folder: str | None) -> Iterator[str]:
    """What to do first where checks failed, and commands that show more."""
    head = "Next"
    for failed in leading(run):
        yield _told(head, failed.remedy)
        head = ""
    if folder is None:
        yield _told(head, "Add --save FOLDER to keep the draws, and --report FILE for a page.")
        return
    named = shlex.quote(folder)
    commands = {
        f"stanct report {named}": "a page with pictures",
        f"stanct plot {named} posterior": "one picture",
        f"stanct compare {named} OTHER": "a Bayes factor",
        f'run = stanct.load("{folder}")': "in Python",
    }
    lacking = {one.name for one in failures(run.diagnostics)} & {*OF_THE_PROGRAM}
    if not isinstance(run, EvidenceRun) or run.provenance.get("ends") or lacking:
        del commands[f"stanct compare {named} OTHER"]
    width = max(map(len, commands))
    for command, words in commands.items():
        yield f"{head:<12} {command:<{width}}  {words}"
        head = ""


def _told(head: str, text: str) -> str:
    """A paragraph with its head in the margin."""
    margin = " " * 13
    lines = textwrap.wrap(text, WIDTH, initial_indent=margin, subsequent_indent=margin,
                          break_long_words=False, break_on_hyphens=False)  # fmt: skip
    return "\n".join([f"{head:<12} {lines[0].lstrip()}", *lines[1:]])


def _peaks(run: Run) -> Iterator[str]:
    """The peaks of the density that have draws, or the modes, where there are several.

    Peaks are shown where a mode holds more than one. The heaviest come first.
    """
    modes, named = run.mode_columns, ""
    if len(run.heavy_optima):
        found, known = run.optima, run.provenance["survey"]["optima"]["ends"]
        said, note = "Peaks (run.optima)", OF_PEAKS
    elif modes is not None and len(modes["weight"]) > 1:
        found, known, said, note = run.modes, len(modes["weight"]), "Modes (run.modes)", ""
        named = " rows" * bool(run.provenance["survey"].get("around"))  # of wide mass, too
    else:
        return
    assert found is not None
    shown = found.sort_values("weight", ascending=False, kind="stable")
    shown = shown[shown["weight"] >= min(LIGHT, shown["weight"].max())].iloc[:MOST_PEAKS]
    ahead = [name for name in found.columns if name not in _UNTOLD | {"optima"}]
    rows = shown[ahead[:MOST_COLUMNS]].to_dict("index")
    if len(rows) < known:
        said = f"{said}: the {len(rows)} heaviest of {known}{named}"
    table = in_columns({f"  {number}": row for number, row in rows.items()})
    yield f"\n{said}\n{table}" + (f"\n{note}" if note else "")


def mode_rows(run: Run) -> list[dict[str, float]] | None:
    """The rows of `Run.modes` with the number of each; None where the run knows no modes."""
    found = run.modes
    return None if found is None else found.reset_index().to_dict("records")


def posterior_rows(run: Run) -> dict[str, dict[str, float]]:
    """The rows of `Run.summary` that a reader asks for first, by name."""
    own = run.provenance.get("parameters", ())
    names = by_interest(run.variables, own)
    # Derived quantities are what many a program is written for.
    most = {name: FEW if name in own else FEW_DERIVED for name in names}
    small = [m for m in names if run.variables[m][0, 0].size <= most[m]]
    small = small or [label(*one) for one in places_of(run.variables, names)[:FEWEST_ROWS]]
    rows = scalars(*run.rows, small, **run.alike)
    # Constants, such as the first element of a Cholesky factor of correlations, are no estimates.
    return {name: row for name, row in rows.items() if row["sd"] > 0} or rows


def _posterior(run: Run) -> str:
    told = posterior_rows(run)
    rest = sum(run.variables[name][0, 0].size for name in run.variables) - len(told)
    more = f"{rest} more numbers are in run.summary()." if rest else ""
    return f"\nPosterior\n{in_columns(told)}\n{more}".rstrip()


def _head(name: str) -> str:
    return f"{name[1:]}%" if name[0] == "q" and name[1:2].isdigit() else name


def in_columns(rows: Mapping[str, Mapping[str, float]]) -> str:
    """Rows of a summary as text: few digits, and each column in one form."""
    table = [["", *(_head(head) for head in next(iter(rows.values())))]]
    for name, row in rows.items():
        table.append([name, *(_FORMS.get(k, "{:.4g}").format(v) for k, v in row.items())])
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ([line[0].ljust(widths[0]), *map(str.rjust, line[1:], widths[1:])] for line in table)
    return "\n".join(" ".join(line) for line in lines)

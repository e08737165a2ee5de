"""The panels of a report, with their captions and alternative texts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from stanct import plots
from stanct.common.errors import StanctError, counted
from stanct.estimates.naming import Names
from stanct.pages.page import Picture, number, picture, with_error
from stanct.plots.evidence import delta_means
from stanct.plots.material import HasBeta, HasCurves, HasRunningLogZ, HasSchedule, HasTrips
from stanct.plots.mixing import end_shares
from stanct.plots.posterior import MOST_MODES, MOST_SHOWN, shown_scalars
from stanct.plots.weights import base_misfit, coordinate_names, relative_weights
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.copies import CopyRun, hand_overs
from stanct.runs.evidence_run import EvidenceRun
from stanct.runs.ladder import LadderRun
from stanct.runs.run import Run
from stanct.runs.tact import THERMOSTAT, XI_THERMOSTAT, TactRun
from stanct.runs.tempered import TemperedRun


@dataclass(frozen=True)
class Panel:
    """One picture of a report.

    It stands in the `section` ``"evidence"``, ``"mixing"``, ``"weights"`` or ``"posterior"``.
    `draw` is a function of `stanct.plots`, and `words` makes the alternative text, with the run's
    numbers.
    """

    section: str
    title: str
    caption: str
    draw: Callable[..., Axes]
    words: Callable[..., str]

    @property
    def needs(self) -> str:
        """Name that the run's `shows` must contain."""
        return self.draw.__name__

    def picture(self, run: Any, **asked: Any) -> Picture:
        """Draw the panel for a run; `asked` is passed to `draw` and `words`."""
        axes = self.draw(run, **asked)
        return picture(axes, self.title, self.caption, self.words(run, **asked), self.needs)


def panels_of(run: Run) -> list[Panel]:
    """Panels for a run's `shows`, in order; raises `StanctError` for a name without one."""
    unknown = set(run.shows) - {panel.needs for panel in PANELS}
    if unknown:
        raise StanctError(
            f"The {type(run).__name__} says that it shows {', '.join(sorted(unknown))}, for which "
            "a report has no panel.",
            remedy=f"`shows` may name {', '.join(panel.needs for panel in PANELS)}.",
        )
    return [panel for panel in PANELS if panel.needs in run.shows]


def _free_energy_words(run: HasCurves) -> str:
    parts = []
    for label, curve in run.curves(np.array([0.0, 0.5, 1.0])).items():
        half = int(np.searchsorted(curve.beta, 0.5))
        parts.append(
            f"{label}: log z({number(curve.beta[half], 2)}) is "
            f"{with_error(curve.log_z[half], curve.std_error[half])} and log z(1) is "
            f"{with_error(curve.log_z[-1], curve.std_error[-1])}"
        )
    return f"Free-energy curve. {'. '.join(parts)}."


def _running_words(run: HasRunningLogZ) -> str:
    halves = run.running_log_z([run.draws // 2])[:, 0]
    low, high = run.bare_evidence.interval
    parts = [
        f"chain {c + 1} from {number(half, 6)} halfway to {number(end, 6)}"
        for c, (half, end) in enumerate(zip(halves, run.bare_evidence.chain_log_z, strict=True))
    ]
    inside = f"Reported 95 % interval {number(low, 6)} to {number(high, 6)}"
    return f"Running log Z by chain: {'; '.join(parts)}. {inside}."


def _stones_words(run: LadderRun) -> str:
    up, down = run.forward_evidence, run.backward_evidence
    return (
        f"Stepping stones up give log Z = {with_error(up.log_z, up.std_error)}, down "
        f"{with_error(down.log_z, down.std_error)}, the bridge "
        f"{with_error(run.bare_evidence.log_z, run.bare_evidence.std_error)}."
    )


def _way_words(run: AdiabaticRun) -> str:
    heated, error = run.heated_evidence
    cooled_stops, heated_stops = (stops.size for stops in run.stops)
    cooled = run.bare_evidence
    return (
        f"log Z by cooling is {with_error(cooled.log_z, cooled.std_error)}, by heating "
        f"{with_error(heated, error)}. Of {run.chains * run.draws} trajectories each way "
        f"{cooled_stops} that were cooled and {heated_stops} that were heated did not arrive."
    )


def _occupancy_words(run: HasBeta) -> str:
    base, target = end_shares(run)
    return f"Shares of the draws by β: {base:.0%} below 0.1 and {target:.0%} above 0.9."


def _trace_words(run: HasTrips) -> str:
    trips = run.chain_counts()["round trips"]
    listed = ", ".join(f"chain {c + 1}: {n}" for c, n in enumerate(trips))
    return f"Trace of β over {run.beta.shape[1]} iterations. Round trips: {listed}."


def _copy_words(run: CopyRun) -> str:
    changes = hand_overs(run.copy_log_weights)
    listed = ", ".join(f"chain {c + 1}: {n}" for c, n in enumerate(changes))
    return f"Heaviest of {run.copies} copies over {run.draws} iterations. Changes: {listed}."


def _temperature_words(run: TactRun) -> str:
    listed = ", ".join(f"chain {c + 1}: {n}" for c, n in enumerate(run.trips))
    return (
        f"Trace of λ over {run.trace.shape[1]} looks, {run.plateau_share:.0%} of them at λ = 1. "
        f"Trips to high temperature and back: {listed}."
    )


def _control_words(run: TactRun) -> str:
    wall = run.method_settings["coupling"]["wall"]
    return (
        f"Shares of |ξ| between 0 and {number(wall, 3)}: {run.plateau_share:.0%} of the looks were "
        "on the plateau, where T = 1."
    )


def _thermostat_words(run: TactRun) -> str:
    found = [run.trace[..., column].mean() for column in (THERMOSTAT, XI_THERMOSTAT)]
    parts = [
        f"{name} {number(mean, 3)}, expected {number(expected, 3)}"
        for name, mean, expected in zip(("θ", "ξ"), found, run.thermostat_means, strict=True)
    ]
    return f"Means of the thermostats: {'; '.join(parts)}."


def _expected_words(run: AdiabaticRun) -> str:
    parts = [
        f"{label}: {with_error(mean[-1], error[-1])}"
        for label, (mean, error) in delta_means(run).items()
    ]
    return f"Mean of δ at β = 1, learned {number(run.means[-1], 5)}; {', '.join(parts)}."


def _swap_words(run: LadderRun) -> str:
    rates = run.rejection.mean(axis=0)
    return (
        f"Rejected swaps between {rates.size} pairs of rungs: from {rates.min():.0%} to "
        f"{rates.max():.0%}; their sum, the barrier, is {run.barrier:.2f}."
    )


def _schedule_words(run: HasSchedule) -> str:
    middle = int(np.searchsorted(run.betas, 0.5))
    return f"{run.betas.size} inverse temperatures from 0 to 1; β = 0.5 is passed at step {middle}."


def _weight_words(run: EvidenceRun) -> str:
    relative = relative_weights(run)
    kish = relative.size / np.square(relative).mean()
    tail = run.bare_evidence.tail.in_words
    return (
        f"Histogram of {relative.size} weights: the largest is {number(relative.max(), 3)} times "
        f"the mean, they are worth {number(kish, 4)} equal ones"
        f"{f', {tail}' if tail else ''}."
    )


def _score_words(run: TemperedRun) -> str:
    found = run.at_base
    return (
        f"z-scores of the base check: largest for the mean {np.abs(found.mean).max():.1f}, for the "
        f"covariance {np.abs(found.covariance).max():.1f}, limit {found.limit:.1f}."
    )


def _base_words(run: Run) -> str:
    order, quantiles = base_misfit(run)
    names = coordinate_names(run)
    parts = [
        f"{names[i]} from {quantiles[0, i]:.1f} to {quantiles[4, i]:.1f}, median "
        f"{quantiles[2, i]:.1f}"
        for i in order[:3]
    ]
    return (
        "Worst-fitted coordinates, 95 % of the target in base standard deviations (the base: −2.0 "
        f"to 2.0): {'; '.join(parts)}."
    )


def _modes_words(run: Run) -> str:
    table = run.modes
    assert table is not None
    heaviest = table.sort_values("weight", ascending=False, kind="stable")[:MOST_MODES]
    parts = [f"mode {n}: {with_error(w, e)}" for n, w, e in zip(
        heaviest.index, heaviest["weight"], heaviest["std_error"], strict=True
    )]  # fmt: skip
    return f"Weights of {counted(len(table), 'mode')}. {'; '.join(parts)}."


def _pair_words(run: Run, names: Names = None) -> str:
    parts = [
        f"{m.label} ({'several humps' if m.is_multimodal else 'one hump'}, √n dip {m.score:.2f})"
        for m in shown_scalars(run, names)[:MOST_SHOWN]
    ]
    return f"Weighted draws of {', '.join(parts)}, coloured by chain."


PANELS: tuple[Panel, ...] = (
    Panel(
        "evidence",
        "Free-energy curve",
        "log z(β) from the base (0) to the target (log Z), less the straight line between them, "
        "with 95 % bands. Estimators that part ways have not converged.",
        plots.free_energy,
        _free_energy_words,
    ),
    Panel(
        "evidence",
        "Running log Z",
        "What each chain alone says of log Z as it goes on. Chains should end inside or around the "
        "grey interval, without a trend.",
        plots.running_log_z,
        _running_words,
    ),
    Panel(
        "evidence",
        "Stepping stones, up and down",
        "log z at every rung by two one-sided estimators, less the bridge's. They err in opposite "
        "directions where neighbouring rungs overlap too little.",
        plots.stepping_stones,
        _stones_words,
    ),
    Panel(
        "evidence",
        "Cooling and heating",
        "log z(β) by trajectories from the base to the target and by those back. Where the curves "
        "part, or where trajectories stop (ticks), the flow met a metastability.",
        plots.cooling_and_heating,
        _way_words,
    ),
    Panel(
        "evidence",
        "Mean of δ, cooling and heating",
        "What the flow met at its nodes of β, less the expectation that it was given. Cooling and "
        "heating part where one direction is held up by a metastability.",
        plots.expected_delta,
        _expected_words,
    ),
    Panel(
        "evidence",
        "Weights of the modes",
        "The share of all probability in each mode that the search found. Draws and pilots, which "
        "know one mode each, should agree; theirs are rough.",
        plots.modes,
        _modes_words,
    ),
    Panel(
        "mixing",
        "Time at each β",
        "How often each chain was at each inverse temperature. Both ends must be visited. "
        "Uniform is not needed: where modes lie apart more time goes where the path is fast.",
        plots.beta_occupancy,
        _occupancy_words,
    ),
    Panel(
        "mixing",
        "β along the chains",
        "One lane a chain, β = 0 at its foot. A good chain fills its lane; a gap is a time when it "
        "was stuck. Right: round trips from base to target and back.",
        plots.beta_trace,
        _trace_words,
    ),
    Panel(
        "mixing",
        "The heaviest copy",
        "One lane a chain: the copy that counts most at β = 1. A copy that keeps the lead for long "
        "is a chain that does not move.",
        plots.copy_trace,
        _copy_words,
    ),
    Panel(
        "mixing",
        "λ along the chains",
        "One lane a chain, λ = 1 (the target itself) at its top. A good chain goes up and down. "
        "Right: trips to high temperature and back.",
        plots.temperature_trace,
        _temperature_words,
    ),
    Panel(
        "mixing",
        "Time at each |ξ|",
        "How often each chain was at each value of the tempering variable. The learned bias makes "
        "it uniform; draws are kept in the grey band.",
        plots.control_occupancy,
        _control_words,
    ),
    Panel(
        "mixing",
        "Thermostats",
        "Running means of each chain. They must settle at the dashed lines; one that does not has "
        "too long a step for the noise of its gradients.",
        plots.thermostats,
        _thermostat_words,
    ),
    Panel(
        "mixing",
        "Rejected swaps",
        "For each pair of neighbouring rungs: bars are means, dots the ladders. Even heights are "
        "best; a pair near 100 % breaks the ladder.",
        plots.swap_rejection,
        _swap_words,
    ),
    Panel(
        "mixing",
        "Schedule of β",
        "The inverse temperatures that were passed.",
        plots.schedule,
        _schedule_words,
    ),
    Panel(
        "weights",
        "Weights at β = 1",
        "Weights of the draws over their mean; those below a millionth stand at the left edge. A "
        "long right tail (k above 0.7, unless weights are even) means that a few draws decide all.",
        plots.weight_histogram,
        _weight_words,
    ),
    Panel(
        "weights",
        "Base check",
        "Draws reweighted to the base must have its mean and covariance. z-scores should follow "
        "the dashed curve and stay within the dotted limits.",
        plots.base_scores,
        _score_words,
    ),
    Panel(
        "weights",
        "Base against target",
        "The unconstrained coordinates that the base fits worst: 50 and 95 % intervals of the "
        "target over those of the base (grey). A target wider than the base is the harder case.",
        plots.base_against_posterior,
        _base_words,
    ),
    Panel(
        "posterior",
        "Draws of a few parameters",
        "Draws resampled by weight. A dip test marks parameters with several humps, which come "
        "first; humps may belong to one mode. Clouds of one colour are places that only one chain "
        "has seen.",
        plots.pair,
        _pair_words,
    ),
)

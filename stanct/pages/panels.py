"""The panels of a report, with their captions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from stanct import plots
from stanct.common.errors import StanctError
from stanct.pages.page import Picture, picture
from stanct.runs.run import Run


@dataclass(frozen=True)
class Panel:
    """One picture of a report.

    It stands in the `section` ``"evidence"``, ``"mixing"``, ``"weights"`` or ``"posterior"``.
    `draw` is a function of `stanct.plots`.
    """

    section: str
    title: str
    caption: str
    draw: Callable[..., Axes]

    @property
    def needs(self) -> str:
        """Name that the run's `shows` must contain."""
        return self.draw.__name__

    def picture(self, run: Any, **asked: Any) -> Picture:
        """Draw the panel for a run; `asked` is passed to `draw`."""
        return picture(self.draw(run, **asked), self.title, self.caption, self.needs)


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


PANELS: tuple[Panel, ...] = (
    Panel(
        "evidence",
        "Free-energy curve",
        "log z(β) from the base (0) to the target (log Z), less the straight line between them, "
        "with 95 % bands. Estimators that part ways have not converged.",
        plots.free_energy,
    ),
    Panel(
        "evidence",
        "Running log Z",
        "What each chain alone says of log Z as it goes on. Chains should end inside or around the "
        "grey interval, without a trend.",
        plots.running_log_z,
    ),
    Panel(
        "evidence",
        "Stepping stones, up and down",
        "log z at every rung by two one-sided estimators, less the bridge's. They err in opposite "
        "directions where neighbouring rungs overlap too little.",
        plots.stepping_stones,
    ),
    Panel(
        "evidence",
        "Cooling and heating",
        "log z(β) by trajectories from the base to the target and by those back. Where the curves "
        "part, or where trajectories stop (ticks), the flow met a metastability.",
        plots.cooling_and_heating,
    ),
    Panel(
        "evidence",
        "Mean of δ, cooling and heating",
        "What the flow met at its nodes of β, less the expectation that it was given. Cooling and "
        "heating part where one direction is held up by a metastability.",
        plots.expected_delta,
    ),
    Panel(
        "evidence",
        "Weights of the modes",
        "The share of all probability in each mode that the search found. Draws and pilots, which "
        "know one mode each, should agree; theirs are rough.",
        plots.modes,
    ),
    Panel(
        "mixing",
        "Time at each β",
        "How often each chain was at each inverse temperature. Both ends must be visited. "
        "Uniform is not needed: where modes lie apart more time goes where the path is fast.",
        plots.beta_occupancy,
    ),
    Panel(
        "mixing",
        "β along the chains",
        "One lane a chain, β = 0 at its foot. A good chain fills its lane; a gap is a time when it "
        "was stuck. Right: round trips from base to target and back.",
        plots.beta_trace,
    ),
    Panel(
        "mixing",
        "The heaviest copy",
        "One lane a chain: the copy that counts most at β = 1. A copy that keeps the lead for long "
        "is a chain that does not move.",
        plots.copy_trace,
    ),
    Panel(
        "mixing",
        "λ along the chains",
        "One lane a chain, λ = 1 (the target itself) at its top. A good chain goes up and down. "
        "Right: trips to high temperature and back.",
        plots.temperature_trace,
    ),
    Panel(
        "mixing",
        "Time at each |ξ|",
        "How often each chain was at each value of the tempering variable. The learned bias makes "
        "it uniform; draws are kept in the grey band.",
        plots.control_occupancy,
    ),
    Panel(
        "mixing",
        "Thermostats",
        "Running means of each chain. They must settle at the dashed lines; one that does not has "
        "too long a step for the noise of its gradients.",
        plots.thermostats,
    ),
    Panel(
        "mixing",
        "Rejected swaps",
        "For each pair of neighbouring rungs: bars are means, dots the ladders. Even heights are "
        "best; a pair near 100 % breaks the ladder.",
        plots.swap_rejection,
    ),
    Panel(
        "mixing",
        "Schedule of β",
        "The inverse temperatures that were passed.",
        plots.schedule,
    ),
    Panel(
        "weights",
        "Weights at β = 1",
        "Weights of the draws over their mean; those below a millionth stand at the left edge. A "
        "long right tail (k above 0.7, unless weights are even) means that a few draws decide all.",
        plots.weight_histogram,
    ),
    Panel(
        "weights",
        "Base check",
        "Draws reweighted to the base must have its mean and covariance. z-scores should follow "
        "the dashed curve and stay within the dotted limits.",
        plots.base_scores,
    ),
    Panel(
        "weights",
        "Base against target",
        "The unconstrained coordinates that the base fits worst: 50 and 95 % intervals of the "
        "target over those of the base (grey). A target wider than the base is the harder case.",
        plots.base_against_posterior,
    ),
    Panel(
        "posterior",
        "Draws of a few parameters",
        "Draws resampled by weight. A dip test marks parameters with several humps, which come "
        "first; humps may belong to one mode. Clouds of one colour are places that only one chain "
        "has seen.",
        plots.pair,
    ),
)

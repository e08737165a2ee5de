"""Plots of a run: each function takes a run and the Matplotlib axes to draw on.

Without `axes` a function draws on the axes of a new figure. It returns the axes in either case. The
type of the argument `run` states what the function needs; `Run.shows` lists the functions that fit
a run. No function changes Matplotlib's global state. ArviZ's pictures are in
`stanct.plots.by_arviz`.
"""

from stanct.plots.evidence import (
    cooling_and_heating,
    expected_delta,
    free_energy,
    running_log_z,
    stepping_stones,
)
from stanct.plots.mixing import (
    beta_occupancy,
    beta_trace,
    control_occupancy,
    copy_trace,
    schedule,
    swap_rejection,
    temperature_trace,
    thermostats,
)
from stanct.plots.posterior import modes, pair
from stanct.plots.weights import base_against_posterior, base_scores, weight_histogram

__all__ = [
    "base_against_posterior",
    "base_scores",
    "beta_occupancy",
    "beta_trace",
    "control_occupancy",
    "cooling_and_heating",
    "copy_trace",
    "expected_delta",
    "free_energy",
    "modes",
    "pair",
    "running_log_z",
    "schedule",
    "stepping_stones",
    "swap_rejection",
    "temperature_trace",
    "thermostats",
    "weight_histogram",
]

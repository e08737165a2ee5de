"""Names that options take, apart from the modules that do what they name.

The command line reads them before anything heavy is loaded.
"""

from __future__ import annotations

METHOD_NAMES = (
    *("auto", "joint", "gibbs", "simulated_tempering", "parallel_tempering", "pseudo_extended"),
    *("ais", "power_posterior", "extended_hamiltonian", "independence", "adiabatic", "tact"),
)
"""Methods; see `stanct.samplers.METHODS`."""

GAUSSIAN_BASES = ("pilot", "pathfinder", "laplace", "low_rank", "advi")
"""Fits of a base for every method and every engine; see `stanct.bases.fits.fit_base`."""

MODES = "modes"
"""The fit by which a method that draws from its base gets a mixture where all modes are known."""

FITS = (*GAUSSIAN_BASES, "mixture", MODES)
"""Fits of a base for every engine."""

BASES = ("auto", *FITS)
"""What ``base=`` accepts."""

ENGINES = ("auto", "embedded", "cmdstan", "opencl")
"""What ``engine=`` accepts."""

KINDS = (
    *("density", "joint", "pseudo_extended", "prior_likelihood", "extended_hamiltonian"),
    "weighted",
)
"""The kinds of program that `stanct.stan.codegen.generate` can write."""

PICTURES = ("trace", "pair", "posterior", "path", "modes", "weights")
"""What ``stanct plot`` draws, by ``run.plot_trace`` and so on; the first three take names."""

INTERRUPTED = 130
"""Status with which a command ends after an interrupt."""

UNRELIABLE = 3
"""Status with which a command ends under ``--strict`` if a check failed."""

UNREAD = 141
"""Status with which a command ends if its output is no longer read, as by SIGPIPE in a shell."""

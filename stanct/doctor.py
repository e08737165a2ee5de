"""`stanct doctor`: what is installed, whether it works, and what to do if not."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import numpy as np

from stanct import __version__, embedded
from stanct.density import Density
from stanct.embedded import Recipe
from stanct.errors import StanctError
from stanct.resources import resource_folder

LIBRARIES = ("numpy", "scipy", "pandas", "arviz", "jinja2", "numba", "bridgestan", "stanli")

# log p(x) = log N(x; 1, 2) at x = 0, to see whether the engine computes.
_PROBE = "parameters { real x; } model { target += normal_lpdf(x | 1, 2); }"
_PROBE_VALUE = -1.7370857137646178


def examine() -> tuple[str, bool]:
    """Examine the installation.

    Returns
    -------
    report, healthy
        Text for people, and whether everything that stanct needs works.
    """
    lines = [
        f"stanct {__version__}, Python {platform.python_version()} on {platform.platform()}, "
        f"{os.cpu_count()} cores"
    ]
    healthy = True
    for name in LIBRARIES:
        try:
            lines.append(f"  {name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            healthy = False
            lines.append(f"  {name} is missing; install it: pip install {name}")
    for name in ("templates", "stan_models"):
        try:
            resource_folder(name)
        except StanctError as error:
            healthy = False
            lines.append(f"  {error}")
    lines.append("Engines")
    works, words = _embedded()
    lines.append(f"  embedded: {words}")
    lines.append("`--engine auto` uses the embedded engine.")
    return "\n".join(lines), healthy and works


def _embedded() -> tuple[bool, str]:
    try:
        value = Density(Recipe(_PROBE, "{}")).log_density(np.zeros(1))
    except (OSError, ValueError, embedded.CompilerMessageError) as error:
        return False, f"does not work ({error}); pip install --force-reinstall stanli"
    if abs(value - _PROBE_VALUE) > 1e-12:
        return False, f"computes {value} where {_PROBE_VALUE} is right; reinstall stanli"
    versions = embedded.versions()
    return True, f"stanli {versions['stanli']}, build {versions['build']}: works"

"""`stanct doctor`: what is installed, whether it works, and how to repair it."""

from __future__ import annotations

import importlib.metadata
import os
import platform

import numpy as np

from stanct.common.version import __version__
from stanct.engines import embedded, homes, opencl
from stanct.engines.assemble import is_current
from stanct.engines.embedded import Recipe
from stanct.targets.density import Density
from stanct.work.blas import blas_in_words

LIBRARIES = ("numpy", "scipy", "pandas", "arviz", "jinja2", "numba", "bridgestan", "stanli")

# log p(x) = log N(x; 1, 2) at x = 0, to test the engine.
_PROBE = "parameters { real x; } model { target += normal_lpdf(x | 1, 2); }"
_PROBE_VALUE = -1.7370857137646178


def examine() -> tuple[str, bool]:
    """Examine the installation; return a report, and whether all that stanct needs works."""
    lines = [
        f"stanct {__version__}, Python {platform.python_version()} on {platform.platform()}, "
        f"{os.cpu_count()} cores"
    ]
    lines += [f"  {name} {importlib.metadata.version(name)}" for name in LIBRARIES]
    lines.append(f"  BLAS: {blas_in_words()}; stanct works with one thread of each")
    lines.append("Engines")
    works, words = _embedded()
    lines.append(f"  embedded: {words}")
    lines.append(f"  cmdstan: {_cmdstan(homes.find())}")
    lines.append(f"  OpenCL: {_opencl()}")
    return "\n".join(lines), works


def _cmdstan(home: homes.Home | None) -> str:
    threads = f"{os.cpu_count()} cores for chains and for reduce_sum"
    if home is None:
        try:
            importlib.metadata.version("cmdstanpy")
        except importlib.metadata.PackageNotFoundError:
            return "none; add it: pip install 'stanct[cmdstan]' && stanct install-cmdstan"
        return "none; add it: stanct install-cmdstan"
    if home.assembled and not is_current(home.path):
        return f"{home}, by another version; renew it: stanct install-cmdstan --replace"
    return f"{home}; {threads}"


def _opencl() -> str:
    """List the OpenCL devices by platform and number, or say how to get one."""
    remedy = f"on Debian a CPU device comes with: apt-get install {opencl.PACKAGES}"
    found = opencl.devices()
    if found is None:
        return f"unknown, clinfo does not run; {remedy}"
    if not found:
        return f"no device; {remedy}"
    return "\n    ".join(["", *map(str, found)])


def _embedded() -> tuple[bool, str]:
    try:
        value = Density(Recipe(_PROBE, "{}")).log_density(np.zeros(1))
    except (OSError, ValueError, embedded.CompilerMessageError) as error:
        return False, f"does not work ({error}); pip install --force-reinstall stanli"
    if abs(value - _PROBE_VALUE) > 1e-12:
        return False, f"computes {value} where {_PROBE_VALUE} is right; reinstall stanli"
    versions = embedded.versions()
    return True, f"stanli {versions['stanli']}, build {versions['build']}: works"

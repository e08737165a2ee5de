"""Runs fast tests with the lowest versions of the dependencies that pyproject.toml allows.

    python tests/lowest.py [FOLDER]

makes a virtual environment with exactly these versions in FOLDER (`.venv-lowest` by default), and
runs the tests of `FAST` there. Each floor in pyproject.toml must have passed.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# Together these take a minute or two, and every dependency is used in one of them.
FAST = """
    arviz_bridge base checkpoint codegen comparison constants copies data density diagnostics
    estimates execution kernels lending mixing modality path program progress tact_kernels tail
    target target_calls tempered_run thermodynamic verify warmup
"""
# What these tests need beside the dependencies.
TOOLS = ("arviz-stats", "hypothesis", "pytest", "pytest-xdist")
# Old libraries use what newer ones beneath them have deprecated.
OLD = ("DeprecationWarning", "PendingDeprecationWarning", "FutureWarning")


def lowest(requirements: list[str]) -> dict[str, str]:
    """Name of each requirement to the lowest version that it allows."""
    found = {}
    for requirement in requirements:
        match = re.match(r"([\w-]+)>=([\d.]+)", requirement)
        if match is None:
            raise SystemExit(f"pyproject.toml: {requirement!r} has no lowest version.")
        found[match[1]] = match[2]
    return found


def main(folder: Path) -> int:
    """Make the environment and run the tests; returns their status."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    versions = lowest(project["dependencies"])
    extras = lowest(project["optional-dependencies"]["test"])
    versions |= {name: extras[name] for name in TOOLS}
    venv.create(folder, with_pip=True, clear=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    exact = [f"{name}=={version}" for name, version in versions.items()]
    subprocess.run([python, "-m", "pip", "install", "--quiet", *exact], check=True)
    # Compiled loops of another numba are not read, and not overwritten either.
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "MPLCONFIGDIR": str(folder / "matplotlib"),
    }
    tests = [f"tests/test_{name}.py" for name in FAST.split()]
    ignored = [word for warning in OLD for word in ("-W", f"default::{warning}")]
    command = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *ignored, *tests]
    return subprocess.run(command, cwd=ROOT, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / ".venv-lowest").absolute()))

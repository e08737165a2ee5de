"""Imports and help take no time, because nothing heavy is loaded for them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from conftest import ROOT

import stanct
from stanct.cli import commands
from stanct.common import names
from stanct.samplers import METHODS
from stanct.stan.codegen import _WRITERS

HEAVY = ("numpy", "scipy", "pandas", "arviz", "numba", "jinja2", "stanli", "stanct.api.sampling")


@pytest.mark.parametrize(
    "code",
    [
        "import stanct; stanct.__version__; dir(stanct)",
        "from stanct.cli.main import main\ntry:\n    main(['evidence', '--help'])\n"
        "except SystemExit:\n    pass",
    ],
    ids=["import", "help"],
)
def test_nothing_heavy_is_loaded(code: str) -> None:
    shown = f"{code}\nimport sys\nprint([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", shown], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_every_public_name_is_there() -> None:
    assert stanct.temper is not None and len(stanct.__all__) > 45
    for name in stanct.__all__:
        assert getattr(stanct, name) is not None, name
    with pytest.raises(AttributeError, match="tempers"):
        _ = stanct.tempers  # pyright: ignore


def test_names_are_those_of_what_they_name() -> None:
    assert tuple(METHODS) == names.METHOD_NAMES
    assert tuple(_WRITERS) == names.KINDS


def test_every_command_is_there() -> None:
    text = (ROOT / "stanct/cli/arguments.py").read_text(encoding="utf-8")
    found = re.findall(r'_command\("(\w+)"\)', text)
    assert len(found) >= 9
    assert all(callable(getattr(commands, name)) for name in found)


def test_commands_load_no_pictures() -> None:
    """What draws pages and fills containers takes a second, for which no number need wait."""
    code = (
        "import stanct.cli.commands, sys\n"
        "heavy = ('matplotlib', 'arviz', 'xarray', 'cmdstanpy', 'scipy.stats')\n"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"

"""Continuous tempering for any Stan program: sample across isolated modes, and get the evidence.

The names are listed in ``__init__.pyi``. Each is imported when it is first used, so that commands
which only print something start at once.
"""

import os
from pathlib import Path
from typing import Any

import lazy_loader

# A user without an entry in the system's list, as in containers: other packages look for a home
# when they are imported, and fail. Containers' own default is the root folder.
try:
    Path.home()
except RuntimeError:
    os.environ["HOME"] = os.sep

_imported, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    from stanct.work.interrupts import undivided  # loaded with the first name, not before

    with undivided():
        return _imported(name)

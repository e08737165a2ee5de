"""Continuous tempering for any Stan program: sample across isolated modes, and get the evidence.

The names are listed in ``__init__.pyi``. Each is imported when it is first used, so that commands
which only print something start at once.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

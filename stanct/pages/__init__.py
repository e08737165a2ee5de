"""HTML pages: the report of a run and the comparison of several runs."""

import importlib

from stanct.work.interrupts import undivided

with undivided():  # Ctrl-C in the middle of it would spoil all later pages
    importlib.import_module("matplotlib.figure")

"""HTML pages: the report of a run and the comparison of several runs."""

from stanct.work.interrupts import loaded

loaded("matplotlib.figure")  # Ctrl-C in the middle of it would spoil all later pages

"""The page of a result."""

from __future__ import annotations

from stanct.estimates.naming import Names
from stanct.pages.page import HtmlPage
from stanct.runs.calibration import Calibration
from stanct.runs.comparison import Comparison
from stanct.runs.many import Many
from stanct.runs.run import Run
from stanct.runs.verbs import Reported


def page_of(result: Reported, names: Names = None) -> HtmlPage:
    """Return the page of a run, with variables of these names, or of another kind of result."""
    # A page without figures does not wait for Matplotlib.
    match result:
        case Run():
            from stanct.pages.report import report_page

            return report_page(result, names)
        case Comparison():
            from stanct.pages.comparison import comparison_page

            return comparison_page(result)
        case Many():
            from stanct.pages.many import many_page

            return many_page(result.table, result.label, result.seed)
        case Calibration():
            from stanct.pages.calibration import calibration_page

            return calibration_page(result)
    raise TypeError(f"{type(result).__name__} has no page.")

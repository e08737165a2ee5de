"""HTML pages: the report of a run, the comparison of several."""

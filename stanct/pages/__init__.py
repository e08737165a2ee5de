"""HTML pages: the report of a run and the comparison of several runs."""

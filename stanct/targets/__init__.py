"""Targets: a Stan program with data, a Python function, or batches of either."""

"""The user's problem: a program with data, a Python function, or batches of either."""

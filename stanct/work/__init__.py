"""Execution of work: workers, checkpoints, progress bars, isolated processes."""

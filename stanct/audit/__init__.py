"""Checks of stanct itself: verification, sweeps, costs, the state of an installation."""

"""stanct looking at itself: verification, sweeps, costs, the state of an installation."""

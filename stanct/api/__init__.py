"""What users call: temper, sample, bridge, calibrate, and what comes before and after a run."""

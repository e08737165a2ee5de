"""Continuous tempering for any Stan program: sample across isolated modes, and get the evidence."""

from stanct.base import GaussianBase
from stanct.diagnostics import Check
from stanct.errors import (
    DataError,
    EngineError,
    ProgramError,
    SamplingError,
    SavedRunError,
    StanctError,
)
from stanct.estimates import Curve, Evidence, Expectation
from stanct.model import TemperedModel, temper
from stanct.results import TemperedRun, load

__version__ = "0.1.0"

__all__ = [
    "Check",
    "Curve",
    "DataError",
    "EngineError",
    "Evidence",
    "Expectation",
    "GaussianBase",
    "ProgramError",
    "SamplingError",
    "SavedRunError",
    "StanctError",
    "TemperedModel",
    "TemperedRun",
    "load",
    "temper",
]

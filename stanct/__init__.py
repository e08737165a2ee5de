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
from stanct.function_target import FunctionDensity, FunctionTarget
from stanct.ladder_results import LadderRun
from stanct.loading import load
from stanct.model import TemperedModel, temper
from stanct.particle_results import ParticleRun
from stanct.results import TemperedRun

__version__ = "0.1.0"

__all__ = [
    "Check",
    "Curve",
    "DataError",
    "EngineError",
    "Evidence",
    "Expectation",
    "FunctionDensity",
    "FunctionTarget",
    "GaussianBase",
    "LadderRun",
    "ParticleRun",
    "ProgramError",
    "SamplingError",
    "SavedRunError",
    "StanctError",
    "TemperedModel",
    "TemperedRun",
    "load",
    "temper",
]

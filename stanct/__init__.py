"""Continuous tempering for any Stan program: sample across isolated modes, and get the evidence."""

from stanct.errors import (
    DataError,
    EngineError,
    ProgramError,
    SamplingError,
    SavedRunError,
    StanctError,
)
from stanct.estimates.path import Curve, Evidence, Expectation
from stanct.model import TemperedModel, temper
from stanct.path.gaussian import GaussianBase
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bracket import Bracket
from stanct.runs.comparison import BayesFactor, Comparison, compare
from stanct.runs.diagnostics import Check
from stanct.runs.ladder import LadderRun
from stanct.runs.loading import load
from stanct.runs.particle import ParticleRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import EvidenceRun, Run
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun
from stanct.samplers.tact import Coupling, Hills
from stanct.targets.batches import StochasticTarget
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.minibatch import MiniBatch
from stanct.version import __version__

__all__ = [
    "AdiabaticRun",
    "BayesFactor",
    "Bracket",
    "Check",
    "Comparison",
    "Coupling",
    "Curve",
    "DataError",
    "EngineError",
    "Evidence",
    "EvidenceRun",
    "Expectation",
    "FunctionDensity",
    "FunctionTarget",
    "GaussianBase",
    "Hills",
    "LadderRun",
    "MiniBatch",
    "ParticleRun",
    "ProgramError",
    "PseudoExtendedRun",
    "Run",
    "SamplingError",
    "SavedRunError",
    "StanctError",
    "StochasticTarget",
    "TactRun",
    "TemperedModel",
    "TemperedRun",
    "__version__",
    "compare",
    "load",
    "temper",
]

"""Continuous tempering for any Stan program: sample across isolated modes, and get the evidence."""

from stanct.bridging import bridge
from stanct.calibration import calibrate
from stanct.errors import (
    DataError,
    EngineError,
    ProgramError,
    SamplingError,
    SavedRunError,
    StanctError,
)
from stanct.estimates.path import Curve, Evidence, Expectation
from stanct.many import Simulated, sample_many
from stanct.model import TemperedModel, temper
from stanct.path.gaussian import GaussianBase
from stanct.runs.adiabatic import AdiabaticRun
from stanct.runs.bracket import Bracket
from stanct.runs.bridge import BridgeRun
from stanct.runs.calibration import Calibration
from stanct.runs.comparison import BayesFactor, Comparison, compare
from stanct.runs.diagnostics import Check
from stanct.runs.ladder import LadderRun
from stanct.runs.loading import load
from stanct.runs.many import Many
from stanct.runs.particle import ParticleRun
from stanct.runs.power import PowerRun
from stanct.runs.pseudo_extended import PseudoExtendedRun
from stanct.runs.run import EvidenceRun, Run
from stanct.runs.tact import TactRun
from stanct.runs.tempered import TemperedRun
from stanct.salvaging import salvage
from stanct.samplers._job import Job
from stanct.samplers._method import Method
from stanct.samplers.adiabatic import Adiabatic
from stanct.samplers.ais import AIS
from stanct.samplers.auto import Auto
from stanct.samplers.gibbs import Gibbs
from stanct.samplers.independence import Independence
from stanct.samplers.joint import Joint
from stanct.samplers.parallel_tempering import ParallelTempering
from stanct.samplers.power_posterior import PowerPosterior
from stanct.samplers.pseudo_extended import PseudoExtended
from stanct.samplers.simulated_tempering import SimulatedTempering
from stanct.samplers.tact import TACT, Coupling, Hills
from stanct.sampling import sample
from stanct.targets.batches import StochasticTarget
from stanct.targets.function_target import FunctionDensity, FunctionTarget
from stanct.targets.minibatch import MiniBatch
from stanct.version import __version__

__all__ = [
    "AIS",
    "TACT",
    "Adiabatic",
    "AdiabaticRun",
    "Auto",
    "BayesFactor",
    "Bracket",
    "BridgeRun",
    "Calibration",
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
    "Gibbs",
    "Hills",
    "Independence",
    "Job",
    "Joint",
    "LadderRun",
    "Many",
    "Method",
    "MiniBatch",
    "ParallelTempering",
    "ParticleRun",
    "PowerPosterior",
    "PowerRun",
    "ProgramError",
    "PseudoExtended",
    "PseudoExtendedRun",
    "Run",
    "SamplingError",
    "SavedRunError",
    "Simulated",
    "SimulatedTempering",
    "StanctError",
    "StochasticTarget",
    "TactRun",
    "TemperedModel",
    "TemperedRun",
    "__version__",
    "bridge",
    "calibrate",
    "compare",
    "load",
    "salvage",
    "sample",
    "sample_many",
    "temper",
]

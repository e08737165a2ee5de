from .api.bridging import bridge
from .api.calibration import calibrate
from .api.importing import import_run
from .api.many import Simulated, sample_many
from .api.model import TemperedModel
from .api.sampling import sample
from .api.tempering import temper
from .bases.loop import Maker, Proposal, Recipe, State
from .bases.recipes import recipe
from .common.errors import (
    DataError,
    EngineError,
    ProgramError,
    SamplingError,
    SavedRunError,
    StanctError,
)
from .common.version import __version__
from .estimates.averages import Expectation
from .estimates.path import Curve, Evidence
from .path.gaussian import GaussianBase
from .runs.adiabatic import AdiabaticRun
from .runs.bracket import Bracket
from .runs.bridge import BridgeRun
from .runs.calibration import Calibration
from .runs.comparison import BayesFactor, Comparison, compare
from .runs.coupled import CoupledRun
from .runs.diagnostics import Check
from .runs.evidence_run import EvidenceRun
from .runs.ladder import LadderRun
from .runs.loading import load
from .runs.many import Many
from .runs.particle import ParticleRun
from .runs.power import PowerRun
from .runs.power_copies import PowerCopiesRun
from .runs.pseudo_extended import PseudoExtendedRun
from .runs.run import Run
from .runs.tact import TactRun
from .runs.tempered import TemperedRun
from .samplers._job import Job
from .samplers._method import Method
from .samplers.adiabatic import Adiabatic
from .samplers.ais import AIS
from .samplers.auto import Auto
from .samplers.extended_hamiltonian import ExtendedHamiltonian
from .samplers.gibbs import Gibbs
from .samplers.independence import Independence
from .samplers.joint import Joint
from .samplers.parallel_tempering import ParallelTempering
from .samplers.power_posterior import PowerPosterior
from .samplers.pseudo_extended import PseudoExtended
from .samplers.simulated_tempering import SimulatedTempering
from .samplers.tact import TACT, Coupling, Hills
from .targets.batches import StochasticTarget
from .targets.function_target import FunctionDensity, FunctionTarget
from .targets.minibatch import MiniBatch

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
    "CoupledRun",
    "Coupling",
    "Curve",
    "DataError",
    "EngineError",
    "Evidence",
    "EvidenceRun",
    "Expectation",
    "ExtendedHamiltonian",
    "FunctionDensity",
    "FunctionTarget",
    "GaussianBase",
    "Gibbs",
    "Hills",
    "Independence",
    "Job",
    "Joint",
    "LadderRun",
    "Maker",
    "Many",
    "Method",
    "MiniBatch",
    "ParallelTempering",
    "ParticleRun",
    "PowerCopiesRun",
    "PowerPosterior",
    "PowerRun",
    "ProgramError",
    "Proposal",
    "PseudoExtended",
    "PseudoExtendedRun",
    "Recipe",
    "Run",
    "SamplingError",
    "SavedRunError",
    "Simulated",
    "SimulatedTempering",
    "StanctError",
    "State",
    "StochasticTarget",
    "TactRun",
    "TemperedModel",
    "TemperedRun",
    "__version__",
    "bridge",
    "calibrate",
    "compare",
    "import_run",
    "load",
    "recipe",
    "sample",
    "sample_many",
    "temper",
]

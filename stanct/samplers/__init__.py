"""The methods, by the names that stand for their defaults."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stanct.samplers._method import Method
from stanct.samplers.adiabatic import Adiabatic
from stanct.samplers.ais import AIS
from stanct.samplers.auto import Auto
from stanct.samplers.extended_hamiltonian import ExtendedHamiltonian
from stanct.samplers.gibbs import Gibbs
from stanct.samplers.independence import Independence
from stanct.samplers.joint import Joint
from stanct.samplers.parallel_tempering import ParallelTempering
from stanct.samplers.power_posterior import PowerPosterior
from stanct.samplers.pseudo_extended import PseudoExtended
from stanct.samplers.simulated_tempering import SimulatedTempering
from stanct.samplers.tact import TACT

METHODS: Mapping[str, type[Method[Any]]] = {
    kind.name: kind
    for kind in (
        Auto,
        Joint,
        Gibbs,
        SimulatedTempering,
        ParallelTempering,
        PseudoExtended,
        AIS,
        PowerPosterior,
        ExtendedHamiltonian,
        Independence,
        Adiabatic,
        TACT,
    )
}

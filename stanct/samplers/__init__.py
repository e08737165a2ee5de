"""The methods, by the names that stand for their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from stanct.samplers._method import Method

_PLACES = {
    "auto": ("stanct.samplers.auto", "Auto"),
    "joint": ("stanct.samplers.joint", "Joint"),
    "gibbs": ("stanct.samplers.gibbs", "Gibbs"),
    "simulated_tempering": ("stanct.samplers.simulated_tempering", "SimulatedTempering"),
    "parallel_tempering": ("stanct.samplers.parallel_tempering", "ParallelTempering"),
    "pseudo_extended": ("stanct.samplers.pseudo_extended", "PseudoExtended"),
    "ais": ("stanct.samplers.ais", "AIS"),
    "power_posterior": ("stanct.samplers.power_posterior", "PowerPosterior"),
    "independence": ("stanct.samplers.independence", "Independence"),
    "adiabatic": ("stanct.samplers.adiabatic", "Adiabatic"),
    "tact": ("stanct.samplers.tact", "TACT"),
}


class _Methods(Mapping[str, type[Method[Any]]]):
    """Method classes by name. The module of each is loaded when the class is first wanted."""

    def __getitem__(self, name: str) -> type[Method[Any]]:
        module, kind = _PLACES[name]
        return getattr(import_module(module), kind)

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


METHODS = _Methods()

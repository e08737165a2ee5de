"""The methods, by the names that stand for their defaults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from typing import Any

from stanct.samplers._method import Method

_LOADED: dict[str, Callable[[], type[Method[Any]]]] = {
    "auto": lambda: import_module("stanct.samplers.auto").Auto,
    "joint": lambda: import_module("stanct.samplers.joint").Joint,
    "gibbs": lambda: import_module("stanct.samplers.gibbs").Gibbs,
    "simulated_tempering": lambda: (
        import_module("stanct.samplers.simulated_tempering").SimulatedTempering
    ),
    "parallel_tempering": lambda: (
        import_module("stanct.samplers.parallel_tempering").ParallelTempering
    ),
    "pseudo_extended": lambda: import_module("stanct.samplers.pseudo_extended").PseudoExtended,
    "ais": lambda: import_module("stanct.samplers.ais").AIS,
    "power_posterior": lambda: import_module("stanct.samplers.power_posterior").PowerPosterior,
    "extended_hamiltonian": lambda: (
        import_module("stanct.samplers.extended_hamiltonian").ExtendedHamiltonian
    ),
    "independence": lambda: import_module("stanct.samplers.independence").Independence,
    "adiabatic": lambda: import_module("stanct.samplers.adiabatic").Adiabatic,
    "tact": lambda: import_module("stanct.samplers.tact").TACT,
}


class _Methods(Mapping[str, type[Method[Any]]]):
    """Method classes by name. The module of each is loaded when the class is first wanted."""

    def __getitem__(self, name: str) -> type[Method[Any]]:
        return _LOADED[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(_LOADED)

    def __len__(self) -> int:
        return len(_LOADED)


METHODS = _Methods()

"""The methods, by the names that stand for their defaults."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from stanct.common.names import METHOD_NAMES
from stanct.samplers._method import Method


class _Methods(Mapping[str, type[Method[Any]]]):
    """Method classes by name. The module of each is loaded when the class is first wanted."""

    def __getitem__(self, name: str) -> type[Method[Any]]:
        if name not in METHOD_NAMES:
            raise KeyError(name)
        kinds = vars(import_module(f"stanct.samplers.{name}")).values()
        return next(k for k in kinds if isinstance(k, type) and vars(k).get("name") == name)

    def __iter__(self) -> Iterator[str]:
        return iter(METHOD_NAMES)

    def __len__(self) -> int:
        return len(METHOD_NAMES)


METHODS = _Methods()

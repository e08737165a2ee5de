"""`sampled` runs a method by name, for tests that vary its own settings and common options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import stanct
from stanct.samplers import METHODS
from stanct.samplers.bidirectional import Bidirectional

KINDS: dict[str, Any] = {**METHODS, "bidirectional": Bidirectional}


def split(method: str, settings: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A method's own settings, and the options that go with every method."""
    known = {f.name for f in fields(KINDS[method])}
    own = {name: value for name, value in settings.items() if name in known}
    return own, {name: value for name, value in settings.items() if name not in known}


def sampled(method: str, target: Any, **settings: Any) -> Any:
    """A run; settings of the method's own go into the method, the others to `stanct.sample`."""
    own, options = split(method, settings)
    return stanct.sample(target, KINDS[method](**own), **options)

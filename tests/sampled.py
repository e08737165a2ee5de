"""`sampled`: runs of methods by name, for tests that vary settings of both sorts."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import stanct
from stanct.samplers import METHODS
from stanct.samplers.bidirectional import Bidirectional

KINDS: dict[str, Any] = {**METHODS, "bidirectional": Bidirectional}


def sampled(method: str, target: Any, **settings: Any) -> Any:
    """A run; settings of the method's own go into the method, the others to `stanct.sample`."""
    kind = KINDS[method]
    own = {f.name for f in fields(kind)}
    chosen = kind(**{name: value for name, value in settings.items() if name in own})
    return stanct.sample(
        target, chosen, **{name: value for name, value in settings.items() if name not in own}
    )

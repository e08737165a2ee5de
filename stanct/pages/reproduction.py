"""What repeats a run: the command and the lines of Python, from the run's provenance."""

from __future__ import annotations

import inspect
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any

from stanct.model import METHODS
from stanct.runs.run import Run
from stanct.samplers.tact import Coupling, Hills

COMMON = (
    "chains", "draws", "warmup", "target_se", "max_draws", "max_seconds", "seed", "base",
    "log_zeta", "engine",
)  # fmt: skip
"""Settings that go with every method and change what a run draws."""
OPTIONS = ("chains", "draws", "warmup", "target_se", "max_draws", "max_seconds", "seed", "base",
           "engine")  # fmt: skip
"""Those that `stanct evidence` takes as options of their own."""
IMPLICIT = ("threads", "executor", "checkpoint", "progress")
"""Settings that change nothing of what a run draws."""


# Runs whose method goes by another name than its class.
_NAMES = {"smc": "ais"}


def class_name(method: str) -> str | None:
    """The name of a method's class in `stanct`; None where methods go by their names alone."""
    return None


def defaults(method: str) -> Mapping[str, object]:
    """The settings of a method with their defaults, parts as instances of their own classes."""
    parameters = inspect.signature(METHODS[method]).parameters
    found = {name: each.default for name, each in parameters.items() if name != "target"}
    parts: dict[str, object] = {"coupling": Coupling(), "hills": Hills()}
    return {name: parts.get(name, default) for name, default in found.items()}


def _method(run: Run) -> str | None:
    """The method's name in `METHODS`; None for one of the user's own."""
    name = _NAMES.get(run.method, run.method)
    return name if name in METHODS else None


def data_file(run: Run) -> str | None:
    """The data's file, empty for a program without data, None for data that were in memory."""
    origin = run.provenance["data_origin"]
    if origin in ("data", "no data"):
        return "" if run.data == "{}" else None
    return origin


def command_line(run: Run) -> str | None:
    """The command that repeats the run; None where only Python can."""
    method, data = _method(run), data_file(run)
    if not run.programs or data is None or method is None:
        return None
    common, own = _chosen(run, method)
    if common.get("base") == "given" or not set(common) <= set(OPTIONS):
        return None
    if not all(isinstance(value, bool | int | float | str) for value in own.values()):
        return None
    words = ["stanct", "evidence", run.provenance["program"], *([data] if data else [])]
    words += ["--method", method] if method != "joint" else []
    for name, value in own.items():
        words += ["--set", f"{name}={value}"]
    for name in OPTIONS:
        if name in common:
            words += [f"--{name.replace('_', '-')}", str(common[name])]
    return shlex.join(words)


def python_lines(run: Run) -> str | None:
    """Python that repeats the run; None where the target is no Stan program or the method ours."""
    method, data = _method(run), data_file(run)
    if not run.programs or method is None:
        return None
    common, own = _chosen(run, method)
    kind, settings = class_name(method), list(_settings(method, own))
    arguments = ["data" if data is None else repr(data or None)]
    if kind is None:
        arguments += [f"method={method!r}", *settings]
    else:
        arguments.append(f"stanct.{kind}({', '.join(settings)})")
    arguments += _settings(method, {k: v for k, v in common.items() if k != "base"})
    lines = [f"    {argument}," for argument in arguments]
    if common.get("base") == "given":
        lines.append("    base=base,  # the base that you passed")
    elif "base" in common:
        lines.append(f"    base={common['base']!r},")
    if "minibatch" in own:
        lines.insert(0, "    # minibatch is the MiniBatch that you passed")
    model = f"model = stanct.temper({run.provenance['program']!r})"
    return "\n".join(["import stanct", "", model, "run = model.sample(", *lines, ")"])


def _settings(method: str, chosen: Mapping[str, Any]) -> Iterator[str]:
    """Settings as arguments of a call; those that are dataclasses by their own differences."""
    usual = defaults(method)
    for name, value in chosen.items():
        default = usual.get(name)
        if name == "minibatch":
            yield "minibatch=minibatch"
        elif is_dataclass(default) and isinstance(value, Mapping):
            own = {field.name: getattr(default, field.name) for field in fields(default)}
            parts = [f"{k}={v!r}" for k, v in value.items() if k not in own or v != own[k]]
            yield f"{name}=stanct.{type(default).__name__}({', '.join(parts)})"
        else:
            yield f"{name}={value!r}"


def _chosen(run: Run, method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that differ from their defaults: those of every method, the method's own."""
    usual = defaults(method)
    # In runs that were saved before methods had settings of their own, both are one mapping.
    together = {**run.settings, **run.method_settings}
    chosen = {
        name: value
        for name, value in together.items()
        if name not in IMPLICIT and _json(value) != _json(usual.get(name))
    }
    common = {name: value for name, value in chosen.items() if name in COMMON}
    return common, {name: value for name, value in chosen.items() if name not in COMMON}


def _json(value: Any) -> Any:
    """A setting as a saved run has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value

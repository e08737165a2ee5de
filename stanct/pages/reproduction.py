"""What repeats a run: the command and the lines of Python, from the run's provenance."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, cast

from stanct.runs.run import Run
from stanct.samplers import METHODS
from stanct.sampling import DEFAULTS, Options

GIVEN = "given"
"""What provenance says of an object that was passed."""
IMPLICIT = ("threads", "executor", "checkpoint", "progress")
"""Settings that change nothing of what a run draws."""
# Runs whose method goes by another name than its class.
_NAMES = {"smc": "ais"}


def class_name(method: str) -> str:
    """The name of a method's class in `stanct`."""
    return METHODS[method].__name__


def own_defaults(method: str) -> Mapping[str, object]:
    """A method's own settings with their defaults."""
    kind = METHODS[method]()
    return {field.name: getattr(kind, field.name) for field in fields(kind)}


def common_defaults(method: str) -> Mapping[str, object]:
    """The settings that go with every method, with what a method takes for those not given."""
    kind = METHODS[method]
    return {
        **dict.fromkeys(Options.__annotations__),
        **DEFAULTS,
        "draws": kind.default_draws,
        "warmup": kind.default_warmup,
        "base": kind.default_base,
    }


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
    scalars = all(isinstance(value, bool | int | float | str | None) for value in own.values())
    if GIVEN in (*common.values(), *own.values()) or not scalars or "log_zeta" in common:
        return None
    words = ["stanct", "evidence", run.provenance["program"], *([data] if data else [])]
    words += ["--method", method] if method != "joint" else []
    for name, value in own.items():
        words += ["--set", f"{name}={value}"]
    for name, value in common.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def python_lines(run: Run) -> str | None:
    """Python that repeats the run; None where the target is no Stan program or the method ours."""
    method, data = _method(run), data_file(run)
    if not run.programs or method is None:
        return None
    common, own = _chosen(run, method)
    usual = own_defaults(method)
    settings = ", ".join(_setting(name, value, usual[name]) for name, value in own.items())
    arguments = ["data" if data is None else repr(data or None)]
    arguments.append(f"stanct.{class_name(method)}({settings})")
    arguments += [_setting(name, value, None) for name, value in common.items()]
    passed = [name for name, value in {**own, **common}.items() if _is_passed(value, usual, name)]
    lines = ["import stanct", "", f"model = stanct.temper({run.provenance['program']!r})"]
    lines += [f"# {name} is the one that you passed" for name in passed]
    return "\n".join([*lines, "run = model.sample(", *(f"    {a}," for a in arguments), ")"])


def _is_passed(value: Any, usual: Mapping[str, object], name: str) -> bool:
    """Whether a setting was an object that provenance describes and Python must pass again."""
    return value == GIVEN or (isinstance(value, Mapping) and not is_dataclass(usual.get(name)))


def _setting(name: str, value: Any, default: object) -> str:
    """A setting as the argument of a call; a dataclass by its own differences."""
    if _is_passed(value, {name: default}, name):
        return f"{name}={name}"
    if is_dataclass(default) and isinstance(value, Mapping):
        usual = asdict(cast(Any, default))
        parts = ", ".join(f"{k}={v!r}" for k, v in value.items() if v != usual.get(k))
        return f"{name}=stanct.{type(default).__name__}({parts})"
    return f"{name}={value!r}"


def _chosen(run: Run, method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that differ from their defaults: those of every method, the method's own."""
    common, own = common_defaults(method), own_defaults(method)
    # Older saved runs hold both in one mapping.
    found = {**run.settings, **run.method_settings}
    return (
        {
            name: found[name]
            for name, default in common.items()
            if found.get(name) is not None and found[name] != default and name not in IMPLICIT
        },
        {
            name: found[name]
            for name, default in own.items()
            if name in found and _json(found[name]) != _json(default)
        },
    )


def _json(value: Any) -> Any:
    """A setting as a saved run has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value

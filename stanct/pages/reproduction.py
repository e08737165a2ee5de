"""The command and the lines of Python that repeat a run, from the run's provenance."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import asdict, fields, is_dataclass
from typing import Any, cast

from stanct.runs.run import Run
from stanct.samplers import METHODS
from stanct.samplers.options import DEFAULTS, Options

GIVEN = "given"
"""Stands in provenance for an object that was passed."""
IMPLICIT = ("threads", "executor", "checkpoint", "progress")
"""Settings that do not change the draws of a run."""
# Runs whose recorded method name differs from that of its class.
_NAMES = {"smc": "ais"}


def own_defaults(method: str) -> Mapping[str, object]:
    """Return a method's own settings with their defaults."""
    kind = METHODS[method]()
    return {field.name: getattr(kind, field.name) for field in fields(kind)}


def common_defaults(method: str) -> Mapping[str, object]:
    """Return the settings common to all methods with a method's defaults."""
    kind = METHODS[method]
    return {
        **dict.fromkeys(Options.__annotations__),
        **DEFAULTS,
        "draws": kind.default_draws,
        "warmup": kind.default_warmup,
        "base": kind().automatic_base(),
    }


def _method(run: Run) -> str | None:
    """Return the name in `METHODS` of the method that was asked for; None for a user's own."""
    name = _NAMES.get(run.method, run.method)
    name = run.provenance.get("asked", {}).get("method", name)
    return name if name in METHODS else None


def data_file(run: Run) -> str | None:
    """Return the data file: empty for a program without data, None for data in memory."""
    origin = run.provenance["data_origin"]
    if origin in ("data", "no data"):
        return "" if run.data == "{}" else None
    return origin


def command_line(run: Run) -> str | None:
    """Return the command that repeats the run; None if only Python can repeat it."""
    method, data = _method(run), data_file(run)
    unlike = _path(run) is None or "extended" in run.provenance
    if not run.programs or data is None or method is None or unlike or _own_class(run):
        return None
    common, own = _chosen(run, method)
    scalars = all(isinstance(value, bool | int | float | str | None) for value in own.values())
    if GIVEN in (*common.values(), *own.values()) or not scalars or "log_zeta" in common:
        return None
    words = ["stanct", "evidence", _path(run), *([data] if data else [])]
    words += ["--method", method] if method != "auto" else []
    ends = run.provenance.get("ends")
    if ends:
        if ends["apart"] or ends["base"]["path"] is None:
            return None
        words += ["--base-program", ends["base"]["path"]]
    for name, value in _made(run).items():
        if name == "include_paths":
            words += [word for folder in value for word in ("--include-path", folder)]
        else:
            words += [f"--{name.replace('_', '-')}", value.replace("as written", "as-written")]
    for name, value in own.items():
        words += ["--set", f"{name}={value}"]
    for name, value in common.items():
        words += [f"--{name.replace('_', '-')}", str(value)]
    return shlex.join(words)


def python_lines(run: Run) -> str | None:
    """Python code that repeats the run; None without a Stan program and a built-in method."""
    method, data = _method(run), data_file(run)
    if not run.programs or method is None:
        return None
    common, own = _chosen(run, method)
    usual = own_defaults(method)
    settings = ", ".join(_setting(name, value, usual.get(name)) for name, value in own.items())
    arguments = ["data" if data is None else repr(data or None)]
    own_class = _own_class(run)
    arguments.append(f"{own_class or f'stanct.{METHODS[method].__name__}'}({settings})")
    arguments += [_setting(name, value, None) for name, value in common.items()]
    passed = [name for name, value in {**own, **common}.items() if _is_passed(value, usual, name)]
    made = "".join(f", {name}={value!r}" for name, value in _made(run).items())
    text, ends = _path(run) is None, run.provenance.get("ends")
    program = "text" if text else repr(_path(run))
    lines = ["import stanct", "", *["# text is that of your program"] * text]
    if ends:
        path, apart = ends["base"]["path"], ends["apart"]
        made += f", base={'null' if path is None else repr(path)}" + ", base_data=theirs" * apart
        lines += ["# null is the text of the base program"] * (path is None)
        lines += ["# theirs are the data of the base program"] * apart
    lines += [f"model = stanct.temper({program}{made})"]
    lines += [f"# {own_class} is the class of your method"] if own_class else []
    lines += [f"# {name} is the one that you passed" for name in passed]
    lines += ["run = model.sample(", *(f"    {a}," for a in arguments), ")"]
    longer = run.provenance.get("extended", {"draws": ()})["draws"]
    return "\n".join([*lines, *(f"run = run.extend({draws})" for draws in longer)])


def _path(run: Run) -> str | None:
    """Return the path of the user's program; None for a text."""
    told = run.provenance
    if ends := told.get("ends"):
        return ends["full"]["path"]
    return None if told.get("from_text") else told["program"]


def _own_class(run: Run) -> str:
    """Return the name of the method's class if it is the user's own; empty otherwise."""
    return run.provenance.get("method_class", "")


def _made(run: Run) -> Mapping[str, Any]:
    """Return the arguments with which the model was made; saved runs may lack them."""
    return run.provenance.get("tempered", {})


def _is_passed(value: Any, usual: Mapping[str, object], name: str) -> bool:
    """Return whether a setting was an object that must be passed again."""
    return value == GIVEN or (isinstance(value, Mapping) and not is_dataclass(usual.get(name)))


def _setting(name: str, value: Any, default: object) -> str:
    """Format a setting as an argument; a dataclass has only the fields that are not defaults."""
    if _is_passed(value, {name: default}, name):
        return f"{name}={name}"
    if is_dataclass(default) and isinstance(value, Mapping):
        usual = asdict(cast(Any, default))
        parts = ", ".join(f"{k}={v!r}" for k, v in value.items() if v != usual.get(k))
        return f"{name}=stanct.{type(default).__name__}({parts})"
    return f"{name}={value!r}"


def _chosen(run: Run, method: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the common and the method's own settings that differ from their defaults."""
    common, own = common_defaults(method), own_defaults(method)
    # Older saved runs hold both in one mapping.
    found = {**run.settings, **run.method_settings}
    if "extended" in run.provenance:  # the settings of its first draws
        found |= run.provenance["extended"]["settings"]
    if "asked" in run.provenance:  # the method that was asked for chose another
        asked = run.provenance["asked"]
        found = {**run.settings, **asked["options"], **asked["settings"]}
        common = {**common, "draws": None}  # the default stops by itself where there is no number
    return (
        {
            name: found[name]
            for name, default in common.items()
            if found.get(name) is not None
            and found[name] != default
            and name not in (*IMPLICIT, *own)
        },
        {
            name: found[name]
            for name, default in {**_added(run, own), **own}.items()
            if name in found and _json(found[name]) != _json(default)
        },
    )


def _added(run: Run, own: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that the user's own class adds; their defaults are not known."""
    return {name: ... for name in run.method_settings if name not in own and _own_class(run)}


def _json(value: Any) -> Any:
    """Return a setting in the form in which a saved run has it."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    return list(value) if isinstance(value, tuple) else value

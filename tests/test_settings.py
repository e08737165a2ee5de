"""Settings: the values that each rule accepts and refuses, and its error messages."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, TypedDict

import numpy as np
import pytest
from analytic import gaussian
from targets import LINE

import stanct
from stanct.api.sampling import method_with
from stanct.cli.main import main
from stanct.common.errors import SamplingError
from stanct.common.settings import (
    Choice,
    Flag,
    Instance,
    Numbers,
    Real,
    Rule,
    Whole,
    check_fields,
    declared,
    listing,
    near,
    refuse_unknown,
)
from stanct.samplers import METHODS
from stanct.samplers.bidirectional import Bidirectional
from stanct.samplers.options import DEFAULTS, Options
from stanct.stan.program import Program

NAN, INF = math.nan, math.inf


def is_dict(value: object) -> bool:
    return isinstance(value, dict)


COUNT, SHARE = Whole(2), Real(0, 1)


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (COUNT, [2, 10**30, np.int64(3), np.uint8(200)]),
        (SHARE, [0.5, 1e-300, np.float32(0.25), np.float64(0.9)]),
        (Real(0, 1, closed=True), [0, 1, 0.5, np.int64(1)]),
        (Real(0), [1, 1e300, np.float64(2)]),
        (Real(0, closed=True), [0, 0.0, 5]),
        (Real(), [-1e300, 0, 7]),
        (Flag(), [True, False, np.bool_(True)]),
        (Choice("auto", "none"), ["auto", "none"]),
        (Choice("auto", fits=is_dict, called="a dict"), ["auto", {}]),
        (Numbers(), [[], (1, 2.5), np.array([-1.0, 3.0]), range(3)]),
        (Numbers(0, 1), [[0, 1], np.array([0.5])]),
        (Numbers(0, count=2), [(0.0, 3.0), [np.float64(1), 2]]),
        (Instance(dict, "a dict"), [{}]),
        (Instance(str | Path, "a path"), ["here", Path("here")]),
    ],
)
def test_what_a_rule_takes(rule: Rule, values: list[Any]) -> None:
    assert [value for value in values if not rule.accepts(value)] == []


@pytest.mark.parametrize(
    ("rule", "values"),
    [
        (COUNT, [1, -3, 2.0, 2.5, "2", None, True, NAN, INF, np.float64(4), [2], 2j]),
        (SHARE, [0, 1, -0.5, 1.5, NAN, INF, "0.5", None, True, 0.5j, np.complex128(0.5), [0.5]]),
        (Real(0, 1, closed=True), [-1e-9, 1.0001, NAN, False]),
        (Real(0), [0, 0.0, -0.0, -1, INF, NAN, 10**400]),
        (Real(0, closed=True), [-1e-300, -INF, INF]),
        (Real(), [INF, -INF, NAN, "1", True, 10**400]),
        (Flag(), [0, 1, "yes", None]),
        (Choice("auto", "none"), ["Auto", "", None, 1, ["auto"]]),
        (Choice("auto", fits=is_dict, called="a dict"), ["dict", None, []]),
        (Numbers(), [1.0, "12", b"12", None, [1, "2"], [NAN], [True], [[1, 2]], {1, 2}]),
        (Numbers(), [np.array(1.0), np.eye(2), (value for value in (1, 2))]),
        (Numbers(0, 1), [[0, 1.1], [-0.1]]),
        (Numbers(0, count=2), [(1.0,), (1, 2, 3), (-1, 1), 1.0]),
        (Instance(dict, "a dict"), [[], None, dict]),
    ],
)
def test_what_a_rule_refuses(rule: Rule, values: list[Any]) -> None:
    assert [value for value in values if rule.accepts(value)] == []


@pytest.mark.parametrize(
    ("rule", "value", "nearest"),
    [
        (COUNT, 0, 2),
        (COUNT, 3.4, 3),
        (COUNT, "7", 7),
        (COUNT, "a", 2),
        (COUNT, NAN, 2),
        (COUNT, None, 2),
        (COUNT, True, 2),
        (SHARE, -0.25, 0.25),
        (SHARE, "0.5", 0.5),
        (SHARE, 1.5, None),
        (SHARE, "half", None),
        (Real(), "3", 3.0),
        (Real(), INF, None),
        (Real(0), -2, 2.0),
        (Real(0), 0, None),
        (Real(0), 10**400, None),
        (Real(0, 1, closed=True), 7, 1.0),
        (Real(0, 1, closed=True), -7, 0.0),
        (Flag(), 1, True),
        (Flag(), 0, False),
        (Flag(), "yes", True),
        (Flag(), "False", False),
        (Flag(), "off", False),
        (Flag(), None, False),
        (Choice("pilot", "laplace"), "Laplac", "laplace"),
        (Choice("pilot", "laplace"), "xyz", None),
        (Choice("pilot", "laplace"), 3, None),
        (Numbers(0, 1), [2.0], None),
        (Instance(dict, "a dict"), [], None),
    ],
)
def test_the_nearest_that_will_do(rule: Rule, value: Any, nearest: Any) -> None:
    found = rule.nearest(value)
    assert (found, type(found)) == (nearest, type(nearest))
    assert found is None or rule.accepts(found)


@pytest.mark.parametrize(
    ("rule", "value", "converted"),
    [
        (COUNT, np.int64(5), 5),
        (SHARE, np.float32(0.5), 0.5),
        (Real(0), 3, 3.0),
        (Flag(), np.bool_(False), False),
        (Numbers(), np.array([1, 2]), (1.0, 2.0)),
        (Numbers(), [3], (3.0,)),
        (Choice("pilot"), "pilot", "pilot"),
    ],
)
def test_numbers_get_their_type(rule: Rule, value: Any, converted: Any) -> None:
    """NumPy's scalars would be neither JSON nor the same compiled loop."""
    found = rule.convert(value)
    assert (found, type(found)) == (converted, type(converted))
    if isinstance(found, tuple):
        assert {type(number) for number in found} == {float}


@pytest.mark.parametrize(
    ("rule", "wanted"),
    [
        (Whole(3), "a whole number of at least 3"),
        (Real(), "a finite number"),
        (Real(0), "a finite number above 0"),
        (Real(0, closed=True), "a finite number of at least 0"),
        (Real(0, 1), "a number between 0 and 1"),
        (Real(0, 1, closed=True), "a number from 0 to 1"),
        (Flag(), "True or False"),
        (Choice("a"), "'a'"),
        (Choice("a", "b", "c"), "'a', 'b' or 'c'"),
        (Choice("a", "b", fits=is_dict, called="a dict"), "'a', 'b' or a dict"),
        (Numbers(), "numbers"),
        (Numbers(0), "numbers of at least 0"),
        (Numbers(0, 1), "numbers from 0 to 1"),
        (Numbers(0, count=2), "2 numbers of at least 0"),
        (Instance(dict, "a dict"), "a dict"),
    ],
)
def test_what_a_setting_must_be_in_words(rule: Rule, wanted: str) -> None:
    assert rule.wanted == wanted


@dataclass(frozen=True)
class Record:
    count: Annotated[int, Whole(1)] = 2
    size: Annotated[int | None, Whole(1)] = None
    share: Annotated[float, Real(0, 1)] = 0.8
    free: str = "no rule"


class Keywords(TypedDict, total=False):
    count: Annotated[int, Whole(1)]
    size: Annotated[int | None, Whole(1)]


def test_settings_are_found_where_they_are_declared() -> None:
    found = declared(Record)
    assert list(found) == ["count", "size", "share"]
    assert [setting.optional for setting in found.values()] == [False, True, False]
    assert [setting.default for setting in found.values()] == [2, None, 0.8]
    assert list(declared(Keywords)) == ["count", "size"] and declared(Keywords)["size"].optional


def test_fields_are_checked_and_converted() -> None:
    record = Record(np.int64(3), None, np.float32(0.5))  # pyright: ignore[reportArgumentType]
    check_fields(record)
    assert [type(getattr(record, f.name)) for f in fields(record)] == [int, type(None), float, str]


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"count": 0}, "count must be a whole number of at least 1, not 0. Did you mean count=1?"),
        ({"count": None}, "count must be a whole number of at least 1, not None."),
        (
            {"size": "b"},
            "size must be a whole number of at least 1, or None, not 'b'. Did you mean size=1?",
        ),
        (
            {"share": 1.0},
            "share must be a number between 0 and 1, not 1.0. Did you mean share=0.8?",
        ),
    ],
)
def test_one_kind_of_sentence(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(SamplingError) as refusal:
        check_fields(Record(**settings))
    assert str(refusal.value).startswith(words)


def test_what_has_no_near_match_may_be_none() -> None:
    setting = declared(Options)["executor"]
    with pytest.raises(SamplingError, match=r"not 4\. Did you mean executor=None\?$"):
        setting.checked("executor", 4)
    with ThreadPoolExecutor(1) as executor:
        assert setting.checked("executor", executor) is executor


def test_near_names() -> None:
    assert near("chians", ["draws", "chains"]) == "chains"
    assert near("CHAINS", ["chains"]) == "chains"
    assert near("xyz", ["chains"]) is None
    assert [listing("a"), listing("ab"), listing("abc")] == ["a", "a or b", "a, b or c"]
    with pytest.raises(SamplingError, match=r"^There is no fruit 'aple'\. Did you mean 'apple'\?$"):
        refuse_unknown("fruit", "aple", ["apple", "pear"])
    with pytest.raises(SamplingError, match=r"^There is no fruit 'x'\. There are apple, pear\.$"):
        refuse_unknown("fruit", "x", ["apple", "pear"])
    with pytest.raises(SamplingError, match=r"^There is no fruit 'x'\. Ask\.$"):
        refuse_unknown("fruit", "x", ["apple"], hint="Ask.")


@pytest.mark.parametrize("kind", [*METHODS.values(), Bidirectional], ids=lambda kind: kind.name)
def test_every_default_satisfies_its_rule(kind: Any) -> None:
    """A method's, with what it asks of every run; the user's own base comes without a default."""
    for name, setting in declared(kind).items():
        assert setting.checked(name, setting.default) == setting.default
    assert kind.default_draws >= kind.least_draws and kind.default_warmup >= kind.least_warmup
    assert declared(Options)["base"].checked("base", kind.default_base) == kind.default_base
    own = {f.name for f in fields(kind)}
    # Looks of TACT are thinned by a setting of its own; the option is refused there.
    assert own & set(declared(Options)) <= {"thin"} and (kind.name == "tact" or "thin" not in own)
    assert not ("thin" in own and kind.thins)
    # Fields that hold no value to check have no rule.
    assert own - set(declared(kind)) <= {"exact"}


def test_every_option_has_a_rule_that_its_default_satisfies() -> None:
    rules = declared(Options)
    assert set(rules) == set(Options.__annotations__)
    for name, setting in rules.items():
        default = DEFAULTS.get(name)
        assert setting.checked(name, default) == default


MODEL = stanct.TemperedModel(Program.from_source(LINE.source, name="line"))


def by_sample(method: Any, options: dict[str, Any]) -> Any:
    case = gaussian(1)
    given: dict[str, Any] = {"base": case.base, "progress": False, **options}
    return stanct.sample(case.target, method, **given)


def by_model(method: Any, options: dict[str, Any]) -> Any:
    given: dict[str, Any] = {"progress": False, **options}
    return MODEL.sample(LINE.data, method, **given)


WAYS = pytest.mark.parametrize("way", [by_sample, by_model])


@WAYS
@pytest.mark.parametrize(
    ("method", "own", "options", "wanted", "nearest"),
    [
        ("joint", {}, {"draws": 0}, "a whole number of at least 8, or None, not 0", "draws=8"),
        ("joint", {}, {"chains": -1}, "a whole number of at least 1, not -1", "chains=1"),
        ("joint", {}, {"seed": "a"}, "a whole number of at least 0, or None, not 'a'", "seed=0"),
        (
            "gibbs",
            {"bootstrap": 1.5},
            {},
            "a whole number of at least 0, not 1.5",
            "bootstrap=2",
        ),
        (
            "simulated_tempering",
            {"rungs": 3.5},
            {},
            "a whole number of at least 2, or inverse temperatures that increase from 0 to 1, or "
            "None, not 3.5",
            "rungs=4",
        ),
        (
            "joint",
            {},
            {"base": None},
            "'modes' or a base or a fit of your own, not None",
            "base='auto'",
        ),
    ],
    ids=lambda value: next(iter(value), None) if isinstance(value, dict) else None,
)
def test_refusals_read_alike(
    way: Any,
    method: str,
    own: dict[str, Any],
    options: dict[str, Any],
    wanted: str,
    nearest: str,
) -> None:
    (name,) = {**own, **options}
    with pytest.raises(SamplingError) as refusal:
        way(method_with(method, own), options)
    words = str(refusal.value)
    assert words.startswith(f"{name} must be ")
    assert words.endswith(f"{wanted}. Did you mean {nearest}?")


@WAYS
@pytest.mark.parametrize(
    ("method", "options", "words"),
    [
        ("joint", {"chians": 4}, "There is no option 'chians'. Did you mean chains=...?"),
        ("joint", {"Draws": 4}, "There is no option 'Draws'. Did you mean draws=...?"),
        ("joint", {"iter_sampling": 4}, "There is no option 'iter_sampling'. Did you mean draws="),
        (
            "gibbs",
            {"show_progress": 0},
            "There is no option 'show_progress'. Did you mean pro",
        ),
        (
            "joint",
            {"parallel_chains": 2},
            "There is no option 'parallel_chains'. Did you mean t",
        ),
        (
            "joint",
            {"adapt_delta": 0.9},
            "There is no option 'adapt_delta'. Did you mean stanct.Joint(target_accept=...)?",
        ),
        (
            "joint",
            {"max_treedepth": 9},
            "There is no option 'max_treedepth'. Did you mean stanct.Joint(max_depth=...)?",
        ),
        (
            "ais",
            {"init": {}},
            "There is no option 'init'. Did you mean inits=..., from which the search for modes "
            "starts?",
        ),
        (
            "auto",
            {"adapt_delta": 0.9},
            "There is no option 'adapt_delta'. auto has no such setting: did you mean "
            "method=stanct.Joint(target_accept=...)?",
        ),
        (
            "ais",
            {"max_depth": 9},
            "There is no option 'max_depth'. ais has no such setting: did you mean "
            "method=stanct.Joint(max_depth=...)?",
        ),
        ("joint", {"num_draws": 9}, "There is no option 'num_draws'. Did you mean draws=...?"),
        ("joint", {"verbose": 9}, "There is no option 'verbose'. Did you mean progress=...?"),
        (
            "gibbs",
            {"transitions": 8},
            "There is no option 'transitions'. It is a setting of the method: did you mean "
            "stanct.Gibbs(transitions=...)?",
        ),
        (
            stanct.Gibbs(),
            {"transition": 8},
            "There is no option 'transition'. Did you mean stanct.Gibbs(transitions=...)?",
        ),
        (
            "gibbs",
            {"max_step": 8},
            "There is no option 'max_step'. Did you mean stanct.Gibbs(max_steps=...)?",
        ),
        ("gibs", {}, "There is no method 'gibs'. Did you mean 'gibbs'?"),
        (
            stanct.Gibbs,
            {},
            "method must be a method or the name of one, not <class 'stanct.samplers.gibbs.Gibbs'>",
        ),
        (None, {}, "method must be a method or the name of one, not None. Did you mean method="),
        ("joint", {"log_zeta": "x"}, "log_zeta must be a finite number, or None, not 'x'."),
        ("joint", {"threads": 0}, "threads must be a whole number of at least 1, or None, not 0."),
        ("joint", {"progress": "no"}, "progress must be True or False, not 'no'. Did you mean pro"),
        ("joint", {"checkpoint": 3}, "checkpoint must be the path of a folder, or None, not 3."),
        (
            "joint",
            {"engine": "cmdstn"},
            "engine must be 'auto', 'embedded', 'cmdstan', 'opencl' ",
        ),
        (
            "tact",
            {"target_se": 0.1},
            "Method 'tact' makes a fixed number of draws and cannot stop ",
        ),
        ("ais", {"engine": "cmdstan"}, "Method 'ais' runs on the embedded engine alone"),
        ("ais", {"draws": 40}, "draws must be a multiple of island=32 and make two or more isla"),
        ("tact", {"log_zeta": 0.0}, "TACT-HMC estimates no evidence and has no use for log_zeta."),
    ],
    ids=lambda value: next(iter(value), None) if isinstance(value, dict) else None,
)
def test_what_is_refused_before_any_work(
    way: Any, method: Any, options: dict[str, Any], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stanct.api.sampling.executing", None)
    with pytest.raises(SamplingError) as refusal:
        way(method, options)
    assert str(refusal.value).startswith(words)


def test_a_method_is_frozen_and_takes_its_own_settings_by_name() -> None:
    method = stanct.Gibbs(transitions=np.int64(8))  # pyright: ignore[reportArgumentType]
    assert type(method.transitions) is int and method == stanct.Gibbs(transitions=8)
    with pytest.raises(AttributeError, match="transitions"):
        method.transitions = 9  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(SamplingError, match="go by name, not by place"):
        stanct.Gibbs(8)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SamplingError, match=r"no setting of Gibbs 'transition'.*'transitions'"):
        stanct.Gibbs(transition=8)  # pyright: ignore[reportCallIssue]
    with pytest.raises(SamplingError, match="transitions must be a whole number of at least 1"):
        stanct.Gibbs(transitions=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["transition=8"], "There is no gibbs setting 'transition'. Did you mean 'transitions'?"),
        (["draws=8"], "Did you mean --draws?"),
        (["transitions=many"], "transitions must be a whole number of at least 1, not 'many'."),
        (["bootstrap=1.5"], "bootstrap must be a whole number of at least 0, not 1.5. Did you mea"),
        (["transitions"], "--set takes NAME=VALUE, not 'transitions'. Use e.g. --set bootstrap=2."),
        (["transitions=8", "target-accept=2"], "target_accept must be a number between 0 and 1"),
    ],
)
def test_settings_on_the_command_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = tmp_path / "normal.stan"
    program.write_text("parameters { real x; } model { x ~ normal(0, 1); }")
    command = ["evidence", str(program), "--method", "gibbs", "--quiet"]
    assert main([*command, *(word for text in arguments for word in ("--set", text))]) == 1
    assert words in capsys.readouterr().err


def test_settings_from_the_command_line_reach_the_method(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "normal.stan"
    program.write_text("parameters { real x; } model { x ~ normal(0, 1); }")
    found: list[Any] = []

    def run(method: Any, job: Any) -> Any:
        found.append(method)
        raise SamplingError("seen")

    texts = ["copies=2", "fixed_beta=[0.5, 1]", "target-accept = 0.7", "max_depth=5"]
    monkeypatch.setattr(stanct.PseudoExtended, "run", run)
    arguments = ["evidence", str(program), "--method", "pseudo_extended", "--quiet"]
    assert main([*arguments, *(word for text in texts for word in ("--set", text))]) == 1
    assert found == [
        stanct.PseudoExtended(copies=2, fixed_beta=(0.5, 1.0), target_accept=0.7, max_depth=5)
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [("reversible=True", True), ("reversible=false", False), ("rungs=None", None)],
)
def test_constants_on_the_command_line(
    text: str, value: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "normal.stan"
    program.write_text("parameters { real x; } model { x ~ normal(0, 1); }")
    found: list[Any] = []

    def run(method: Any, job: Any) -> Any:
        found.append(getattr(method, text.partition("=")[0]))
        raise SamplingError("seen")

    monkeypatch.setattr(stanct.ParallelTempering, "run", run)
    arguments = ["evidence", str(program), "--method", "parallel_tempering", "--quiet"]
    assert main([*arguments, "--set", text]) == 1
    assert found == [value]


def test_numbers_that_compiled_code_cannot_count() -> None:
    words = r"transitions must be a whole number .* not 10000000000.* transitions=1000000000"
    with pytest.raises(SamplingError, match=words):
        stanct.Gibbs(transitions=10**19)

"""Bad data: each fault gives one error with the line of the declaration and a remedy."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from stanct.api.tempering import temper
from stanct.common.errors import DataError, ProgramError
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget

SOURCE = """data {
  int<lower=1> N;
  int<lower=0> K;
  array[N] int<lower=0, upper=3> y;
  matrix[N, K + 1] X;
  cov_matrix[2] S;
  vector<lower=0>[N] w;
}
parameters { real<lower=0> r; }
model { y ~ poisson(r); }
"""
GOOD = {
    "N": 2,
    "K": 1,
    "y": [0, 3],
    "X": [[1, 2], [3, 4]],
    "S": [[1, 0], [0, 1]],
    "w": [0.5, 1],
}
PROGRAM = Program.from_source(SOURCE, path="counts.stan")


def test_good_data_from_mapping_and_file(tmp_path: Path) -> None:
    arrays = GOOD | {"X": np.array(GOOD["X"]), "y": np.array(GOOD["y"])}
    mapping = read_data(arrays, PROGRAM)
    file = tmp_path / "counts.data.json"
    file.write_text(json.dumps(GOOD))
    from_file = read_data(file, PROGRAM)
    assert mapping.values == from_file.values == GOOD
    assert from_file.origin == str(file)
    assert len(from_file.sha256) == 64


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"w": ["NA", 1]}, r"`w\[1\]` is the text 'NA'(?s:.)*leave missing values out, or declare"),
        ({"y": ["a", "b"]}, r"the text 'a'(?s:.)*From R: as\.integer\(factor\(x\)\)"),
        ({"w": ["2024-01-01", "2024-01-02"]}, r"as\.numeric\(date\)"),
        ({"one": 1}, r"declared with size \[1\](?s:.)*has one number(?s:.)*From R, write I\(one\)"),
        ({"K": 1.0}, r"real number(?s:.)*in R by as\.integer"),
        (
            {"X": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]},
            r"rows that are objects(?s:.)*as\.matrix\(X\)",
        ),
        ({"w": {"a": 1, "b": 2}}, r"an object with names(?s:.)*unlist\(w, use\.names = FALSE\)"),
        ({"w": {}}, r"an empty object, as R writes NULL(?s:.)*numeric\(0\)"),
    ],
)
def test_data_as_r_writes_them(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Each fault has the remedy in R."""
    program = Program.from_source(SOURCE.replace("}", "vector[1] one; }", 1), path="counts.stan")
    file = tmp_path / "data.json"
    file.write_text(json.dumps(GOOD | {"one": [1]} | change))
    with pytest.raises(DataError, match=words):
        read_data(file, program)
    file.write_text(json.dumps([{"y": 1}, {"y": 2}]))
    with pytest.raises(DataError, match=r"not an object(?s:.)*as\.list\(frame\)"):
        read_data(file, program)


@pytest.mark.parametrize(
    ("change", "line", "words"),
    [
        ({"N": None}, 2, "`N` is declared here, but data does not give it"),
        ({"N": 0}, 2, "`N` is 0 in data, below the declared lower bound 1"),
        ({"N": 2.5}, 2, "`N` is declared int, but data has 2.5"),
        ({"N": 2.0}, 2, r"`N` is declared int, but data has 2\.0(?s:.)*Write 2: in Python by int"),
        ({"y": np.array([0.0, 3.0])}, 4, r"`y\[1\]` is declared int, but data has 0\.0.*real"),
        ({"y": [0, 1.0]}, 4, r"`y\[2\]` is declared int, but data has 1\.0(?s:.)*astype"),
        (
            {"N": [2]},
            2,
            r"no size \(one number\), but data has an array of 1\.(?s:.)*auto_unbox = TRUE",
        ),
        ({"y": [0, 3, 1]}, 4, r"size \[N = 2\], but data has an array of 3"),
        ({"y": [0, 4]}, 4, r"`y\[2\]` is 4 in data, above the declared upper bound 3"),
        ({"X": [[1, 2]]}, 5, r"size \[N = 2, K \+ 1 = 2\], but data has an array of 1 x 2"),
        (
            {"X": [[1, 2], [3]]},
            5,
            r"not a rectangular array of numbers: `X\[2\]` has 1 element, and `X\[1\]` 2 elements",
        ),
        ({"X": [[1, 2], 3]}, 5, r"`X\[2\]` has no elements of its own, and `X\[1\]` 2 elements"),
        ({"S": [[1, 0, 0]]}, 6, r"size \[2, 2\], but data has an array of 1 x 3"),
        ({"w": [1, "a"]}, 7, r"`w\[2\]` is the text 'a' in data"),
        ({"w": [1, "2.5"]}, 7, r"`w\[2\]` is the text '2.5' in data"),
        ({"w": [1, -0.5]}, 7, r"`w\[2\]` is -0.5"),
        ({"w": [1, np.nan]}, 7, r"`w\[2\]` is NaN in data"),
        ({"w": np.array([np.inf, 1])}, 7, r"`w\[1\]` is infinite in data"),
        ({"w": ["-Infinity", 1]}, 7, r"`w\[1\]` is infinite in data"),
        ({"w": [1, 10**400]}, 7, r"`w\[2\]` is a number too large"),
        ({"y": [0, 2.5]}, 4, r"`y\[2\]` is declared int, but data has 2.5"),
        ({"y": [0, 2**40]}, 4, r"`y\[2\]` is declared int, but data has 1099511627776"),
        ({"w": 1j}, 7, r"`w` is the complex number 1j in data(?s:.)*real part"),
        ({"w": [1, 2 + 1j]}, 7, r"`w\[2\]` is the complex number \(2\+1j\) in data"),
        ({"w": np.array([1, 1j])}, 7, r"`w\[1\]` is the complex number"),
        ({"w": [1, {2}]}, 7, r"`w\[2\]` is of the type 'set', which cannot be written as JSON"),
        ({"w": [1, Decimal(1)]}, 7, r"`w\[2\]` is of the type 'Decimal'"),
        ({"w": range(2)}, 7, r"`w` is of the type 'range'(?s:.)*numbers, lists"),
        ({"w": np.array([1, None])}, 7, r"`w\[2\]` is null in data"),
        ({"w": np.ma.masked_invalid([1.0, np.nan])}, 7, r"`w\[2\]` is null in data"),
        ({"w": np.array(["1", "x"])}, 7, r"`w\[1\]` is the text '1' in data"),
        ({"w": np.array(["2020-01-01"], "M8[D]")}, 7, r"`w\[1\]` is of the type 'datetime64'"),
        ({"w": pd.Series([1.0, np.nan])}, 7, r"`w\[2\]` is NaN in data"),
        ({"w": np.ones(2, np.longdouble)}, 7, r"`w\[1\]` is of the type 'longdouble'"),
        ({"w": pd.Series([1, pd.NA])}, 7, r"`w\[2\]` is of the type 'NAType'"),
        ({"N": np.nan}, 2, "`N` is NaN in data"),
        ({"N": 3_000_000_000}, 2, "`N` is declared int, but data has 3000000000.*(?s:.)*end at"),
        ({"X": [[1, 2], [3, None]]}, 5, r"`X\[2,2\]` is null in data"),
        ({"X": [[1, 2], [None]]}, 5, r"`X\[2,1\]` is null in data"),
    ],
)
def test_wrong_variable(change: dict, line: int, words: str) -> None:
    data = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(DataError, match=words) as caught:
        read_data(data, PROGRAM)
    text = str(caught.value)
    assert text.startswith(f"counts.stan:{line}:")
    assert "^" in text and caught.value.remedy


def test_what_is_missing_is_named_with_types_and_sizes() -> None:
    """All of it: a user who gives no data learns what the program wants in one go."""
    with pytest.raises(DataError) as caught:
        read_data(None, PROGRAM)
    lines = str(caught.value).splitlines()
    assert lines[3] == "Pass these data, as a JSON file or a mapping:"
    declared = [line.split(";")[0].strip() for line in SOURCE.splitlines()[1:7]]
    assert [line.strip() for line in lines[4:]] == declared
    with pytest.raises(DataError) as caught:
        read_data({name: GOOD[name] for name in ("N", "y", "X", "w")}, PROGRAM)
    assert caught.value.remedy is not None
    assert caught.value.remedy.splitlines()[0] == "Add to data, which has N, X, w, y:"
    assert caught.value.remedy.count("\n") == 2
    many = "data { " + " ".join(f"real x{n};" for n in range(30)) + " } parameters { real a; }"
    with pytest.raises(DataError, match=r"and 10 more$"):
        read_data(None, Program.from_source(many, path="many.stan"))


def test_what_only_stan_can_check_comes_back_at_the_declaration() -> None:
    """A covariance matrix that is not symmetric: the engine objects, we say where."""
    data = read_data(GOOD | {"S": [[1, 0.5], [0, 1]]}, PROGRAM)
    with pytest.raises(DataError, match=r"counts.stan:6:\d+: Stan refuses `S`"):
        _ = ProgramTarget(PROGRAM, data).density


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"N": 2,\n "K": }', r"data.json:2:\d+: This is not JSON"),
        ("N <- 3L\n", r"R's dump format\.\nConvert.*sys.source\(\"data.json\""),
        ('# by dump\n"y" <-\nstructure(c(1, 4), .Dim = 2L)', "R's dump format"),
        ("n = 3\ny <- c(1, 2)", "R's dump format"),
        ("[1, 2]", "holds a JSON list, not an object"),
        ('{"N": 2, "other": [1, NaN]}', r"`other\[2\]` is NaN.*\nLeave `other` out"),
        ('{"N": 2, "other": {"a": null}}', r"`other\[a\]` is null"),
        (
            '{"N": 2, "y": [0, 3], "N": 2}',
            r"counts.stan:2:.*`N` is given twice in .*\n(?s:.)*Leave",
        ),
        ('{"other": {"1": 2, "1": 3}}', r"`other\[1\]` is given twice"),
        ('{"N": "2"}', r"`N` is the text '2'"),
    ],
)
def test_bad_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        read_data(file, PROGRAM)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
def test_files_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    file = tmp_path / "data.json"
    file.write_text('{"é": 1, "N": 2}', encoding=encoding)
    with pytest.raises(DataError, match=r"not in UTF-8, as byte \d+ shows\.\nSave it as UTF-8"):
        read_data(file, PROGRAM)


def test_true_and_false_are_one_and_zero_wherever_they_stand(tmp_path: Path) -> None:
    source = "data { int a; array[2] int b; tuple(int, real) t; } parameters { real x; } model { }"
    program = Program.from_source(source)
    given = {"a": True, "b": [True, False], "t": {"1": False, "2": 1.5}}
    (tmp_path / "data.json").write_text(json.dumps(given))
    for data in (given, given | {"b": np.array([True, False])}, tmp_path / "data.json"):
        found = read_data(data, program)
        assert found.values == {"a": 1, "b": [1, 0], "t": {"1": 0, "2": 1.5}}
        assert "true" not in found.text and "false" not in found.text


def test_what_is_not_finite_in_tuples_and_complex_numbers_is_named() -> None:
    source = "data { tuple(int, vector[2]) t; complex c; } parameters { real x; } model { }"
    program = Program.from_source(source)
    good = {"t": {"1": 1, "2": [1, 2]}, "c": [1, 2]}
    read_data(good, program)
    with pytest.raises(DataError, match=r"`t\[2,1\]` is infinite"):
        read_data(good | {"t": {"1": 1, "2": [np.inf, 2]}}, program)
    with pytest.raises(DataError, match=r"`c\[2\]` is NaN"):
        read_data(good | {"c": [1, np.nan]}, program)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such data file"):
        read_data(tmp_path / "absent.json", PROGRAM)


def test_extended_data_keep_every_digit() -> None:
    data = read_data(GOOD, PROGRAM)
    text = data.extended({"ct_x": np.array([0.1 + 0.2, 1 / 3])})
    assert json.loads(text) == GOOD | {"ct_x": [0.1 + 0.2, 1 / 3]}
    empty = read_data(None, Program.from_source("parameters { real x; } model {}"))
    assert json.loads(empty.extended({"ct_D": 1})) == {"ct_D": 1}


def test_names_that_the_program_does_not_declare() -> None:
    program = Program.from_source("data { int count; } parameters { real x; }")
    data = read_data({"count": 3, "extra": 1}, program)
    assert data.unused(program) == ("extra",)
    with pytest.raises(DataError, match=r"Did you mean `counts`, which data has\?"):
        read_data({"counts": 3}, program)
    with pytest.raises(DataError, match="type 'int' cannot be read"):
        read_data(3, program)  # pyright: ignore[reportArgumentType]


def test_python_s_tuples_are_arrays() -> None:
    data = read_data(GOOD | {"y": (0, 3), "X": ((1, 2), [3, 4])}, PROGRAM)
    assert data.values["y"] == [0, 3] and data.values["X"] == [[1, 2], [3, 4]]
    pair = Program.from_source("data { tuple(int, real) t; } parameters { real x; } model { }")
    assert read_data({"t": (1, 2.5)}, pair).values["t"] == {"1": 1, "2": 2.5}


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (5, "Data of the type 'int' cannot be read"),
        ([1, 2], "Data of the type 'list' cannot be read"),
        ('{"N": 1}', "The data are JSON text"),
    ],
)
def test_what_is_neither_file_nor_mapping(source: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_data(source, PROGRAM)


def test_the_mark_of_windows_editors_is_no_part_of_a_text(tmp_path: Path) -> None:
    program, part, data = (tmp_path / name for name in ("m.stan", "part.stan", "d.json"))
    mark = b"\xef\xbb\xbf"
    program.write_bytes(mark + b"data { int n; }\r\nparameters {\r\n#include part.stan\r\n}\r\n")
    part.write_bytes(mark + b"real x;\r\n")
    data.write_bytes(mark + b'{"n": 3}')
    found = Program.from_file(program)
    assert [one.name for one in found.parameters] == ["x"]
    assert read_data(data, found).values["n"] == 3


def test_what_cannot_be_json_is_named() -> None:
    program = Program.from_source("data { int n; real y; } parameters { real x; }", name="m")
    with pytest.raises(DataError, match="`y` is of the type 'object', which cannot be written"):
        read_data({"n": 1, "y": object()}, program)
    with pytest.raises(DataError, match="1 cannot be the name of a variable of data"):
        read_data({"n": 1, 1: 2}, program)  # pyright: ignore[reportArgumentType]


def test_what_is_sound_is_read() -> None:
    whole = GOOD | {"other": [1 + 2j, {"a": 3}], "w": pd.Series([0.5, 1])}
    whole |= {"y": np.array([False, True]), "N": np.int8(2), "K": True}
    assert read_data(whole, PROGRAM).values["other"] == [[1, 2], {"a": 3}]


@pytest.mark.parametrize(
    ("path", "words"), [("", "no program in empty text"), (".", "This is a folder")]
)
def test_a_folder_is_no_program(path: str, words: str) -> None:
    with pytest.raises(ProgramError, match=words):
        temper(path)

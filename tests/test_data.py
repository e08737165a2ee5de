"""Bad data: each fault gives one error with the line of the declaration and a remedy."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from stanct.errors import DataError
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
    ("change", "line", "words"),
    [
        ({"N": None}, 2, "`N` is declared here, but data does not give it"),
        ({"N": 0}, 2, "`N` is 0 in data, below the declared lower bound 1"),
        ({"N": 2.5}, 2, "`N` is declared int, but data has 2.5"),
        ({"N": [2]}, 2, r"no size \(one number\), but data has an array of 1"),
        ({"y": [0, 3, 1]}, 4, r"size \[N = 2\], but data has an array of 3"),
        ({"y": [0, 4]}, 4, r"`y\[2\]` is 4 in data, above the declared upper bound 3"),
        ({"X": [[1, 2]]}, 5, r"size \[N = 2, K \+ 1 = 2\], but data has an array of 1 x 2"),
        ({"X": [[1, 2], [3]]}, 5, "not a rectangular array"),
        ({"S": [[1, 0, 0]]}, 6, r"size \[2, 2\], but data has an array of 1 x 3"),
        ({"w": [1, "a"]}, 7, "array of numbers"),
        ({"w": [1, -0.5]}, 7, r"`w\[2\]` is -0.5"),
    ],
)
def test_wrong_variable(change: dict, line: int, words: str) -> None:
    data = {name: value for name, value in (GOOD | change).items() if value is not None}
    with pytest.raises(DataError, match=words) as caught:
        read_data(data, PROGRAM)
    text = str(caught.value)
    assert text.startswith(f"counts.stan:{line}:")
    assert "^" in text and caught.value.remedy


def test_what_only_stan_can_check_comes_back_at_the_declaration() -> None:
    """A covariance matrix that is not symmetric: the engine objects, we say where."""
    data = read_data(GOOD | {"S": [[1, 0.5], [0, 1]]}, PROGRAM)
    with pytest.raises(DataError, match=r"counts.stan:6:\d+: Stan refuses `S`"):
        _ = ProgramTarget(PROGRAM, data).density


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"N": 2,\n "K": }', r"data.json:2:\d+: This is not JSON"),
        ("[1, 2]", "holds a JSON list, not an object"),
    ],
)
def test_bad_file(tmp_path: Path, text: str, words: str) -> None:
    file = tmp_path / "data.json"
    file.write_text(text)
    with pytest.raises(DataError, match=words):
        read_data(file, PROGRAM)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such data file"):
        read_data(tmp_path / "absent.json", PROGRAM)


def test_extended_data_keep_every_digit() -> None:
    data = read_data(GOOD, PROGRAM)
    text = data.extended({"ct_x": np.array([0.1 + 0.2, 1 / 3])})
    assert json.loads(text) == GOOD | {"ct_x": [0.1 + 0.2, 1 / 3]}
    empty = read_data(None, Program.from_source("parameters { real x; } model {}"))
    assert json.loads(empty.extended({"ct_D": 1})) == {"ct_D": 1}

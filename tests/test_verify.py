"""`stanct temper --diff` and `--check`, and Stan code in colour."""

from __future__ import annotations

from typing import Any

import pytest
from generated import DATA, PROGRAMS
from verify import verify

from stanct import temper
from stanct.cli.main import main
from stanct.common.errors import StanctError
from stanct.common.names import KINDS
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.targets.data import read_data
from stanct.targets.program_target import ProgramTarget

NAMES = ["captures", "eight_schools", "loops", "split", "truncation"]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", NAMES)
def test_generated_programs_pass(name: str, kind: str) -> None:
    comparison = verify(temper(PROGRAMS / f"{name}.stan").target(DATA[name]), kind, points=6)
    assert comparison.passed
    assert comparison.points == 6 or name == "truncation"
    assert f"The {kind} program agrees" in str(comparison)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("density", "normal_lpdf(mu | 0, 5)", "normal_lpdf(mu | 0.1, 5)"),
        ("joint", "target += std_normal_lpdf(", "target += 1.001 * std_normal_lpdf("),
        ("pseudo_extended", "log_sum_exp(ct_log_weight)", "max(ct_log_weight)"),
        ("pseudo_extended", "ct_log_g - ct_bias", "ct_log_g"),
        ("pseudo_extended", "(ct_most_beta - ct_least_beta)", "1"),
        ("prior_likelihood", "target += normal_lpdf(mu | 0, 5);", ""),
        ("extended_hamiltonian", "ct_xi_knots, ct_beta_at", "ct_xi_knots, square(ct_beta_at)"),
        ("extended_hamiltonian", "target += -ct_between_knots", "target += ct_between_knots"),
        ("weighted", "target += ct_weight *", "target += ct_weight ^ 2 *"),
    ],
)
def test_a_wrong_program_does_not(
    kind: str, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = temper(PROGRAMS / "eight_schools.stan").target(DATA["eight_schools"])
    if kind != "density":
        assert target.density.dimension == 10  # the reference, made before the fault is planted

    def faulty(program: Program, wanted: str, **options: Any) -> str:
        code = generate(program, wanted, **options)
        planted.append(old in code)
        return code.replace(old, new)

    planted: list[bool] = []
    monkeypatch.setattr("stanct.targets.program_target.generate", faulty)
    comparison = verify(target, kind, points=6)
    assert any(planted)
    assert not comparison.passed
    assert "DOES NOT agree" in str(comparison)


def test_nothing_to_compare() -> None:
    program = Program.from_source("parameters { real x; } model { target += negative_infinity(); }")
    comparison = verify(ProgramTarget(program, read_data(None, program)), "joint", points=3)
    assert not comparison.passed and "no random point" in str(comparison)
    with pytest.raises(StanctError, match=r"no kind 'sideways'.*(?s:.)*'density'"):
        verify(ProgramTarget(program, read_data(None, program)), "sideways")


def test_diff_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["temper", str(PROGRAMS / "eight_schools.stan"), "--diff"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("--- ") and lines[0].endswith("eight_schools.stan")
    assert lines[1] == "+++ eight_schools_density.stan"
    assert "-  mu ~ normal(0, 5);" in lines
    assert "+  target += normal_lpdf(mu | 0, 5);" in lines
    removed = [line for line in lines[2:] if line.startswith("-")]
    assert len(removed) == 4 and all("~" in line for line in removed)

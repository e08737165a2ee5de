"""Loops that run zero times add nothing, whatever the data that they would have used."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from conftest import target_of
from verify import verify

from stanct import Independence, sample
from stanct.path.gaussian import GaussianBase
from stanct.stan.codegen import generate
from stanct.stan.guards import guarded
from stanct.stan.program import Program

PROGRAMS = Path(__file__).parent / "programs"
TERM = "r ~ binomial_logit(n, th);"
PROGRAM = """
functions {
  void some_lp(real th, int use, int r, int n) {
    for (i in 1 : use) target += binomial_logit_lpmf(r | n, th);
  }
  void one_lp(real th, int r, int n) {
    target += binomial_logit_lpmf(r | n, th);
  }
}
data {
  int use, n, r;
  array[3] int y;
  real scale;
}
parameters {
  real th;
}
model {
  th ~ normal(0, 1);
  %s
}
"""
DATA = {"use": 0, "n": 3, "r": 5, "y": [1, 9, 2], "scale": -1.0}
# Density of the prior at 0.3, without its constant and with it.
ALONE = -0.5 * 0.3**2 - 0.5 * np.log(2 * np.pi)

EMPTY = {
    "range": f"for (i in 1 : use) {TERM}",
    "block": f"for (i in 1 : use) {{ {TERM} }}",
    "two terms": f"for (i in 1 : use) {{ {TERM} {TERM} }}",
    "increment": "for (i in 1 : use) target += normal_lpdf(th | 0, scale);",
    "truncated": "for (i in 1 : use) th ~ normal(0, scale) T[-9, ];",
    "elements": f"for (k in y[1 : use]) {TERM}",
    "indexed": "for (i in 1 : use) y[i] ~ binomial_logit(n, th);",
    "profile": f'for (i in 1 : use) profile("a") {{ {TERM} }}',
    "nested": f"for (j in 1 : 3) for (i in 1 : use) {TERM}",
    "ragged": "for (j in 1 : 3) for (i in 4 : j) target += normal_lpdf(th | j, scale);",
    "by a parameter": f"for (i in 1 : (th > 3 ? 1 : 0)) {TERM}",
    "before an else": f"if (use == 0) for (i in 1 : use) {TERM} else th ~ normal(9, 1);",
    "in a function": "some_lp(th, use, r, n);",
    "of a function": "for (i in 1 : use) one_lp(th, r, n);",
    "while": f"{{ int k = 0; while (k < use) {{ k += 1; {TERM} }} }}",
    "scaled by data": "for (i in 1 : use) y[i] ~ normal(th, scale);",
    "grid": "for (i in 1 : 3) for (j in 1 : use) y[i] * y[j] ~ normal(th, scale);",
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_loops_add_nothing(name: str) -> None:
    target = target_of(PROGRAM % EMPTY[name], DATA)
    assert target.density.log_density(np.array([0.3])) == pytest.approx(ALONE)
    for kind in ("density", "joint", "pseudo_extended", "extended_hamiltonian"):
        # The engine reads no vector whose size a parameter determines.
        if name != "by a parameter" or kind != "pseudo_extended":
            found = verify(target, kind, points=5)
            assert found.passed and found.points == 5, (kind, found)


def test_other_loops_add_what_they_did() -> None:
    data = DATA | {"use": 2, "n": 9, "scale": 2.0}
    chance = 1 / (1 + np.exp(-0.3))
    term = np.log(126 * chance**5 * (1 - chance) ** 4)
    for name in ("range", "block", "elements", "profile", "in a function", "of a function"):
        target = target_of(PROGRAM % EMPTY[name], data)
        found = target.density.log_density(np.array([0.3]))
        assert found == pytest.approx(ALONE + 2 * term), name


def test_guards_are_no_part_of_what_users_read() -> None:
    for path in sorted(PROGRAMS.glob("*.stan")):
        program = Program.from_file(path, include_paths=[PROGRAMS / "include"])
        lines = program.expanded.split("\n")
        found = guarded(program.expanded).split("\n")
        assert len(found) == len(lines)
        changed = [line for line, own in zip(found, lines, strict=True) if line != own]
        assert all("if (" in line and "for (" in line for line in changed)
    assert "if (" not in generate(Program.from_source(PROGRAM % EMPTY["range"]), "density")


@pytest.mark.parametrize(
    ("loop", "words"),
    [
        (f"for (i in 1 : 3) {TERM}", ""),
        ("for (i in 1 : use) real a = 1;", ""),
        (f"for (i in f_rng() : 3) {TERM}", ""),
        (f"for (i in use + 1 : n) {TERM}", "if ((use + 1) <= (n)) for"),
        (f"for (i in y) {TERM}", "if (size(y) > 0) for"),
    ],
)
def test_which_loops_have_one(loop: str, words: str) -> None:
    code = "parameters { real x; } model { " + loop + " }"
    assert (words in guarded(code)) if words else (guarded(code) == code)


def test_a_sum_behind_a_loop_heeds_it_only_where_data_may_be_impossible() -> None:
    source = "data {{ int<lower={0}> N; vector[N] y; real sd; }} "
    source += "parameters {{ real m; real<lower=0> s; }} "
    source += "model {{ for (n in 1 : N) y[n] ~ normal(m, {1}); }}"
    for least, scale, has in ((0, "sd", True), (1, "sd", False), (0, "s", False)):
        code = generate(Program.from_source(source.format(least, scale)), "joint")
        assert ("if (N >= 1) ct_log_p += normal_lpdf(y | m, sd);" in code) is has


def test_a_run_with_a_loop_that_is_empty() -> None:
    target = target_of(PROGRAM % EMPTY["range"], DATA)
    base = GaussianBase(np.zeros(1), np.eye(1))
    run = sample(target, Independence(), base=base, draws=50, seed=1, progress=False)
    assert run.evidence.log_z == pytest.approx(0, abs=1e-9)

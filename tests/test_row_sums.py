"""Programs by `reduce_sum`: the same density and gradient, and reasons where there is no sum."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import ROOT

import stanct
from stanct.api.tempering import recorded_target
from stanct.cli.main import main
from stanct.common.errors import ProgramError, StanctError
from stanct.stan.program import Program
from stanct.stan.row_sums import row_sums

RNG = np.random.default_rng(3)
N, K, J = 23, 3, 4
DATA: dict[str, Any] = {
    "N": N,
    "K": K,
    "J": J,
    "y": RNG.normal(size=N),
    "c": RNG.integers(0, 4, N),
    "b": RNG.integers(0, 2, N),
    "X": RNG.normal(size=(N, K)),
    "group": RNG.integers(1, J + 1, N),
    "pairs": RNG.normal(size=(N, 2)),
    "kind": RNG.integers(1, 4, N),
}
DECLARED = """
data {
  int<lower=0> N; int K; int J;
  vector[N] y;
  array[N] int<lower=0> c;
  array[N] int<lower=0, upper=1> b;
  matrix[N, K] X;
  array[N] int<lower=1, upper=J> group;
  array[N] vector[2] pairs;
  array[N] int<lower=1> kind;
}
"""
PARAMETERS = "parameters { real a; vector[K] beta; real<lower=0> s; vector[J] u; simplex[3] p; }"
PRIORS = "a ~ normal(0, 1); beta ~ normal(0, 1); s ~ exponential(1); u ~ normal(0, s);"
# The model's likelihood, and what its function does.
SUMS = {
    "vectors": ("y ~ normal(a + X * beta, s);", r"X\[start : end\] \* beta"),
    "censored": (
        "target += normal_lccdf(y | a + X * beta, s) + poisson_lcdf(c | exp(a));",
        r"normal_lccdf\(y\[start : end\] \| a \+ X\[start : end\] \* beta, s\);.*poisson_lcdf\(c",
    ),
    "groups": ("y ~ normal(a + u[group], s);", r"int group, .*u\[group\]"),
    "columns": ("y ~ normal(a + X[ : , 2] * beta[1] + 2 .* y / 3, s);", r"X\[ start : end , 2\]"),
    "increment": ("target += normal_lupdf(y | exp(X * beta) .* y, s);", r"normal_lpdf\(y\[start"),
    "glm": ("b ~ bernoulli_logit_glm(X, u[group], beta);", r"X\[start : end\], u\[group"),
    "table": ("kind ~ categorical(p);", r"categorical_lpmf\(kind \| p\)"),
    "arrays": ("pairs ~ multi_normal([a, s]', identity_matrix(2));", r"array\[\] vector pairs"),
    "sum": (
        "vector[N] f = X * beta; "
        "target += sum(log1p_exp(f)) - dot_self(beta) - sum(2 * square(f));",
        r"vector\[end - start \+ 1\] f = X\[start : end\] \* beta",
    ),
    "with a prior": (
        "target += normal_lpdf(u | 0, s) - normal_lpdf(y | a, s) + poisson_lpmf(c | exp(a));",
        r"target \+= normal_lpdf\(u \| 0, s\);\s+target \+= reduce_sum",
    ),
    "filled": (
        "vector[N] f = rep_vector(a, N); f += X * beta; "
        "for (n in 1 : N) { f[n] += u[group[n]]; } y ~ normal(f, s);",
        r"f\[n - start \+ 1\] \+= u\[group\[n",
    ),
    "lifted": ("for (n in 1 : N) y[n] ~ normal(a + u[group[n]] * y[n], s);", r"normal_lpdf\(y\["),
    "mixture": (
        "for (n in 1 : N) target += log_mix(inv_logit(a), normal_lpdf(y[n] | 0, s), "
        "normal_lpdf(y[n] | 2, 1));",
        r"for \(n in start : end\) log_p \+= log_mix",
    ),
    "array of vectors": (
        "array[N] vector[K] f; for (n in 1 : N) f[n] = a * X[n]'; "
        "for (n in 1 : N) kind[n] ~ categorical_logit(f[n]);",
        r"array\[end - start \+ 1\] vector\[K\] f;",
    ),
    "first rows": (
        "vector[N + 1] f = rep_vector(a, N + 1); f[N] = 2; y ~ normal(f[1 : N], s);",
        r"y\[start : end\] \| f\[start : end\], s",
    ),
    "two in a loop": (
        "for (n in 1 : N) { y[n] ~ normal(a, s); if (c[n] > 1) c[n] ~ poisson(s); }",
        r"log_p \+= normal_lpdf\(y\[n",
    ),
    "lags": (
        "for (n in 2 : N) { real m = a + beta[1] * y[n - 1]; if (m > 9) continue; "
        "y[n] ~ normal(m, s) T[-10, ]; }",
        r"for \(n in start \+ 1 : end \+ 1\)",
    ),
    "nested": (
        "for (n in 1 : N) for (k in 1 : K) X[n, k] ~ normal(a, s);",
        r"for \(n in start : end\) for \(k in 1 : K\)",
    ),
    "branch": ("if (K > 2) y ~ normal(a, s); else y ~ normal(0, s);", r"partial_sum2_lpmf"),
    "changed": (
        "real m = a; vector[N] f = m * y; vector[N] g = 2 * y; m = 3; g += m; "
        "y ~ normal(f + g, s);",
        r"vector\[end - start \+ 1\] g = 2",
    ),
    "shared": (
        "vector[N] f = X * beta; y ~ normal(f, s); c ~ poisson_log(f);",
        r"poisson_log_lpmf\(c \| f\[start : end\]\)",
    ),
    "prior in loop": (
        "for (n in 1 : N) { a ~ normal(0, 2); "
        "pairs[n] ~ multi_normal([a, a]', diag_matrix([s, s]')); }",
        r"multi_normal_lpdf\(pairs\[n - start \+ 1\]",
    ),
}


def program(likelihood: str, functions: str = "") -> str:
    return f"{functions}{DECLARED}{PARAMETERS}\nmodel {{ {PRIORS}\n{likelihood}\n}}\n"


@pytest.mark.parametrize("name", SUMS)
def test_sums_have_the_density_of_the_program(name: str) -> None:
    likelihood, text = SUMS[name]
    source = program(likelihood)
    model = stanct.temper(source, reduce_sum=True)
    written = model.program.expanded
    assert re.search(text, written, re.DOTALL), written
    assert "reduce_sum(partial_sum1_lp" in written and "~ exponential(1)" in written
    own, other = stanct.temper(source).density(DATA), model.density(DATA)
    for point in np.random.default_rng(5).normal(size=(10, own.dimension)):
        value, gradient = own.log_density_gradient(point)
        found, slope = other.log_density_gradient(point)
        np.testing.assert_allclose([found, *slope], [value, *gradient], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", SUMS)
def test_parts_of_the_rows_add_up(name: str) -> None:
    """Slices by hand, because without threads Stan calls a function once for all rows."""
    likelihood, _ = SUMS[name]
    source = program(likelihood)
    written = stanct.temper(source, reduce_sum=True).program.expanded
    call = re.compile(r"reduce_sum\((\w+), (\w+),\s+max\(1, (.+?) %/% 16\),\s*([^;]*)\);")
    slices = r"\1(\2[1 : 9] | 1, 9, \4) + \1(\2[10 : \3] | 10, \3, \4);"
    written, count = call.subn(slices, written)
    assert count >= 1 and "reduce_sum" not in written
    own, other = stanct.temper(source).density(DATA), stanct.temper(written).density(DATA)
    for point in np.random.default_rng(6).normal(size=(5, own.dimension)):
        value, gradient = own.log_density_gradient(point)
        found, slope = other.log_density_gradient(point)
        np.testing.assert_allclose([found, *slope], [value, *gradient], rtol=1e-9, atol=1e-9)


STAYS = {
    "walk": (
        "vector[N] h; h[1] = a; for (n in 2 : N) { h[n] = h[n - 1] + a; "
        "target += log_sum_exp(normal_lpdf(y[n] | h[n], s), 0); }",
        "`h` is assigned in one row and may be read in another",
    ),
    "break": ("for (n in 1 : N) { if (y[n] > 9) break; y[n] ~ normal(a, s); }", "`break` ends"),
    "container": ("for (v in y) target += normal_lpdf(v | a, s);", "runs over a container"),
    "whole": ("y ~ multi_normal(rep_vector(a, N), identity_matrix(N));", "is one vector"),
    "mixed rows": ("y ~ normal(cumulative_sum(y) * a, s);", "cannot be told apart by row"),
    "mixed terms": ("y ~ normal(y + cumulative_sum(y) * a, s);", "cannot be told apart by row"),
    "truncated": ("y ~ normal(a, s) T[-99, ];", "truncated"),
    "scalar": ("c[1] ~ poisson(s);", "no element for each row"),
    "users": ("target += f_lpdf(y | a);", "`f` is not known"),
    "users' probability": ("target += g_lccdf(y | a);", "`g` is not known"),
    "target": ("for (n in 1 : N) if (target() < 9) y[n] ~ normal(a, s);", "`target` reads"),
    "prior": (
        "for (n in 1 : N) { real m = a * y[n]; beta ~ multi_normal(rep_vector(m, K), "
        "identity_matrix(K)); pairs[n] ~ multi_normal([a, m]', identity_matrix(2)); }",
        "has a prior",
    ),
}


@pytest.mark.parametrize("name", STAYS)
def test_what_is_no_sum_stays_and_says_where_and_why(name: str) -> None:
    likelihood, why = STAYS[name]
    functions = (
        "functions { real f_lpdf(vector y, real a) { return normal_lpdf(y | a, 1); } "
        "real g_lccdf(vector y, real a) { return normal_lccdf(y | a, 1); } }"
    )
    read = Program.from_source(program(likelihood, functions))
    with pytest.raises(ProgramError, match=re.escape(why)) as caught:
        row_sums(read)
    line = 1 + read.expanded.split(likelihood)[0].count("\n")
    assert caught.value.line == line


def test_a_part_may_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its line is that of the user's file, although densities have left loops above it."""
    source = program("for (n in 1 : N) {\n  y[n] ~ normal(a, s);\n}\nc[1] ~ poisson(s);\n")
    line = 1 + source.split("c[1] ~")[0].count("\n")
    ((place, why),) = row_sums(Program.from_source(source)).kept
    assert place.line == line and "no element for each row" in why
    file = tmp_path / "model.stan"
    file.write_text(source)
    assert main(["temper", str(file), "--reduce-sum", "--kind", "density"]) == 0
    out = capsys.readouterr()
    assert "reduce_sum(partial_sum1" in out.out
    assert f"model.stan:{line} stays as it is" in out.err


@pytest.mark.parametrize("kind", ["joint", "pseudo_extended", "prior_likelihood", "weighted"])
def test_every_kind_stays_parallel(kind: str) -> None:
    model = stanct.temper(program("y ~ normal(X * beta, s);"), reduce_sum=True)
    code = model.stan_code(kind)
    (name,) = ({"joint": "log_p", "pseudo_extended": "log_p"}.get(kind, "log_likelihood"),)
    assert re.search(rf"(ct_{name}|target) \+= (ct_\w+ \* )?reduce_sum\(partial_sum1_lpmf", code), (
        code
    )


def test_a_run_knows_it() -> None:
    target = stanct.temper(program("y ~ normal(a, s);"), reduce_sum=True).target(DATA)
    record = json.loads(json.dumps(target.record()))
    assert "reduce_sum" not in record["program"]
    again = recorded_target(record)
    assert again.program.expanded == target.program.expanded
    assert again.density.recipe == target.density.recipe


def test_names_of_the_user_are_left_alone() -> None:
    functions = "functions { real partial_sum1_lpdf(vector y, real end) { return -end; } }"
    source = program("vector[N] log_p = a * y; target += sum(log_p .* y);", functions)
    written = stanct.temper(source, reduce_sum=True).program.expanded
    assert "partial_sum1_of_rows_lpmf" in written and "real log_p_of_rows = 0;" in written
    assert "int start, int end_of_rows" in written


def test_no_model() -> None:
    with pytest.raises(ProgramError, match="has no model"):
        row_sums(Program.from_source("parameters { real<lower=0, upper=1> p; }"))


def test_paths_between_programs_are_refused() -> None:
    source = program("y ~ normal(a, s);")
    with pytest.raises(StanctError, match="path between two programs"):
        stanct.temper(source, base=source, reduce_sum=True)


@pytest.mark.parametrize("name", ["boltzmann", "decoder"])
def test_shipped_programs(name: str) -> None:
    folder = ROOT / "stan_models" / name
    data = folder / f"{name}.data.json"
    own = stanct.temper(folder / f"{name}.stan").density(data)
    other = stanct.temper(folder / f"{name}.stan", reduce_sum=True).density(data)
    for point in np.random.default_rng(2).normal(scale=2, size=(100, own.dimension)):
        value, gradient = own.log_density_gradient(point)
        found, slope = other.log_density_gradient(point)
        np.testing.assert_allclose([found, *slope], [value, *gradient], rtol=1e-10, atol=1e-10)

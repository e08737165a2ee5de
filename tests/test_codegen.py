"""Generated programs as text: golden files, prefixes, refusals, and checks by stanc."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
import stanli

from stanct.common.errors import ProgramError, StanctError
from stanct.common.names import KINDS
from stanct.common.version import __version__
from stanct.engines.homes import Home
from stanct.stan.codegen import generate
from stanct.stan.program import Program

PROGRAMS = Path(__file__).parent / "programs"
GOLDEN = Path(__file__).parent / "golden"
NAMES = sorted(path.stem for path in PROGRAMS.glob("*.stan"))
# Either no data are the variate of a statement, or a parameter has no prior.
NO_PATH_FROM_PRIOR = {"bounds", "checked", "funnel", "includes", "matrices", "missing"} | {
    "stochastic",
    "tuples",
    "vectors",
}
NO_LIKELIHOOD = NO_PATH_FROM_PRIOR - {"missing"}
REFUSED = (
    {("functions", "pseudo_extended"), ("target_reads", "pseudo_extended")}
    | {(name, "prior_likelihood") for name in NO_PATH_FROM_PRIOR}
    | {(name, "weighted") for name in NO_LIKELIHOOD}
)
GENERATED = [(name, kind) for name in NAMES for kind in KINDS if (name, kind) not in REFUSED]


def joint_of(source: str) -> str:
    return generate(Program.from_source(source, name="bad"), "joint")


@pytest.mark.parametrize(("name", "kind"), GENERATED)
def test_golden(name: str, kind: str) -> None:
    """Set STANCT_UPDATE_GOLDEN=1 to write the files anew, then read the diff."""
    code = generate(Program.from_file(PROGRAMS / f"{name}.stan"), kind)
    code = code.replace(f"stanct {__version__}", "stanct VERSION")
    file = GOLDEN / f"{name}.{kind}.stan"
    if os.environ.get("STANCT_UPDATE_GOLDEN") == "1":
        file.write_text(code, encoding="utf-8")
    assert code == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("name", "kind"), GENERATED)
def test_stanc_accepts(name: str, kind: str) -> None:
    """With another prefix, which leaves nothing behind of the usual one."""
    code = generate(Program.from_file(PROGRAMS / f"{name}.stan"), kind, prefix="tempered_")
    assert stanli.stan_to_mir(code)
    assert not re.search(r"\bct_", code)


@pytest.mark.cmdstan
@pytest.mark.parametrize("name", ["eight_schools", "regression"])
@pytest.mark.parametrize("kind", KINDS)
def test_stanc_leaves_the_layout(name: str, kind: str, cmdstan_home: Home, tmp_path: Path) -> None:
    """Of programs in its own format, but for blanks at ends of lines, which it adds."""
    users = told_by_stanc(cmdstan_home, tmp_path, (PROGRAMS / f"{name}.stan").read_text(), FORMAT)
    code = generate(Program.from_source(users, name=name), kind)
    again = told_by_stanc(cmdstan_home, tmp_path, code, FORMAT)
    assert lines_of(again) == lines_of(code)


@pytest.mark.cmdstan
@pytest.mark.parametrize(
    "kind", ["density", "joint", "pseudo_extended", "prior_likelihood", "weighted"]
)
def test_stanc_sees_the_priors(kind: str, cmdstan_home: Home, tmp_path: Path) -> None:
    code = generate(Program.from_file(PROGRAMS / "regression.stan"), kind)
    assert "no priors" not in told_by_stanc(cmdstan_home, tmp_path, code, "--warn-pedantic")


# Of a program without containers, stanc told two priors of the control of beta.
RATE = """
data { int<lower=1> n; int<lower=0> k; }
parameters { real<lower=0, upper=1> p; }
model { p ~ beta(1, 1); k ~ binomial(n, p); }
"""


@pytest.mark.cmdstan
@pytest.mark.parametrize("kind", ["joint", "pseudo_extended", "prior_likelihood"])
def test_stanc_tells_one_prior_of_each(kind: str, cmdstan_home: Home, tmp_path: Path) -> None:
    code = generate(Program.from_source(RATE), kind)
    assert "priors" not in told_by_stanc(cmdstan_home, tmp_path, code, "--warn-pedantic")


LONG = """
data { real y; }
parameters { real location; real<lower=0> scale; }
model {
  y ~ student_t(4, fma(location, 1.5, 0.125), 0.0625 * scale);
  y ~ student_t(4, fma(location, 1.5, 0.125), scale); y ~ logistic(0, 1);
}
"""


def test_lines_that_grow_are_broken_where_stanc_breaks_them() -> None:
    """Before an argument; a line of several statements stays as the user has it."""
    code = generate(Program.from_source(LONG), "weighted")
    assert (
        "  ct_log_likelihood += student_t_lpdf(y | 4, fma(location, 1.5, 0.125),\n"
        "                                      0.0625 * scale);\n"
    ) in code
    assert "0.125), scale); ct_log_likelihood += logistic_lpdf(y | 0, 1);\n" in code


SHIFTED = """
functions {
  real shifted_lognormal_lpdf(real y, real mu, real sigma, real shift) {
    return lognormal_lpdf(y - shift | mu, sigma);
  }
}
data {
  int<lower=0> N;
  vector[N] time;
  vector[N] x;
}
parameters {
  tuple(real, real<lower=0>) line;
  real<lower=0> sigma;
  real<lower=-1, upper=0> shift;
}
model {
  line.1 ~ normal(0, 1);
  line.2 ~ normal(0, 1) T[0, ];
  sigma ~ exponential(1);
  for (n in 1 : N) {
    time[n] ~ shifted_lognormal(line.1 + line.2 * x[n], sigma, shift);
  }
}
"""


@pytest.mark.cmdstan
@pytest.mark.parametrize("kind", KINDS)
def test_arguments_of_a_long_name_hang(kind: str, cmdstan_home: Home, tmp_path: Path) -> None:
    """stanc aligns arguments with a parenthesis behind 16 characters at most."""
    code = generate(Program.from_source(SHIFTED), kind)
    assert lines_of(told_by_stanc(cmdstan_home, tmp_path, code, FORMAT)) == lines_of(code)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_of_a_tuple_has_a_type(kind: str) -> None:
    """Its truncation is that of a scalar, by the bound with which it is declared."""
    code = generate(Program.from_source(SHIFTED), kind)
    assert "+= -normal_lccdf(0 | 0, 1);" in code
    assert "length" not in code
    assert "line.2 <" not in code


FORMAT = "--auto-format"


def told_by_stanc(home: Home, folder: Path, code: str, option: str) -> str:
    (folder / "m.stan").write_text(code)
    words = [home.path / "bin" / "stanc", option, folder / "m.stan"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    return done.stdout + done.stderr


def lines_of(code: str) -> list[str]:
    return [line.rstrip() for line in code.rstrip().splitlines()]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_ours_carry_the_prefix(name: str) -> None:
    """Whatever stands at the top level of a block and is not the user's begins with ct_."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    joint = Program.from_source(generate(program, "joint"))
    assert all(p.name.startswith("ct_") for p in joint.parameters)
    ours = set(joint.data_names) - set(program.data_names)
    assert ours == {
        *("ct_D", "ct_base_mean", "ct_is_dense", "ct_base_scale"),
        *("ct_K", "ct_bias_beta", "ct_bias"),
    }


@pytest.mark.parametrize("name", NAMES)
def test_density_changes_only_statements(name: str) -> None:
    """Comments and every line without `~` or `_lup` come through unchanged."""
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    lines = set(generate(program, "density").splitlines())
    for line in program.expanded.splitlines():
        if not re.search(r"~|_lup|normal\(|sigma\);", line):
            # A head may get a brace for the several statements that its one has become.
            assert line in lines or f"{line} {{" in lines


@pytest.mark.parametrize(("name", "kind"), GENERATED)
def test_our_lines_are_not_wide(name: str, kind: str) -> None:
    program = Program.from_file(PROGRAMS / f"{name}.stan")
    # The user's own lines grow by as much as the names of the accumulators are longer.
    widest = {"prior_likelihood": 94, "weighted": 94, "joint": 102, "extended_hamiltonian": 102}
    limit = widest.get(kind, 90)
    for line in generate(program, kind).splitlines():
        assert len(line) <= limit, line


def test_header_names_the_source() -> None:
    program = Program.from_file(PROGRAMS / "bounds.stan")
    header = generate(program, "joint")[:600]
    assert "bounds.stan" in header
    assert program.source_hash[:16] in header
    assert __version__ in header


def test_unknown_kind() -> None:
    program = Program.from_file(PROGRAMS / "bounds.stan")
    with pytest.raises(StanctError, match=r"no kind 'sideways'.*'density', 'joint'"):
        generate(program, "sideways")


@pytest.mark.parametrize("prefix", ["", "1_", "ct", "c t_", "ct__é_"])
def test_impossible_prefix(prefix: str) -> None:
    program = Program.from_file(PROGRAMS / "bounds.stan")
    with pytest.raises(StanctError, match="cannot be the prefix"):
        generate(program, "joint", prefix=prefix)


def test_reserved_prefix() -> None:
    source = "parameters {\n  real ct_u;\n}\n"
    message = r'bad\.stan:2:8: `ct_u` uses the reserved prefix `ct_`(?s:.)*prefix="tempered_"'
    with pytest.raises(ProgramError, match=message):
        joint_of(source)
    program = Program.from_source(source)
    assert "real tempered_u" in generate(program, "joint", prefix="tempered_")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (
            "parameters { real x; }\nmodel { x ~ nromal(0, 1); }",
            r"bad\.stan:2:13: `nromal` is neither(?s:.)*Define nromal_lpdf",
        ),
        (
            "functions { real f_lpdf(real y, real m) { return -y; }\n"
            "real f_lpmf(int y, real m) { return -y; }\nreal g(real x) { return x; } }\n"
            "parameters { real x; }\nmodel { g(x)[1] ~ f(1); }",
            r"bad\.stan:5:19: `f` has both f_lpdf and f_lpmf(?s:.)*target \+= f_lpdf",
        ),
        (
            "parameters { real x; }\ntransformed parameters { real y = exp_jacobian(x, 0); }",
            r"bad\.stan:2:\d+: .*the log Jacobian that `exp_jacobian` adds(?s:.)*declare",
        ),
        (
            "functions { vector f_lp(vector x) { target += 1; return x; } }\n"
            "parameters { real x; } model { [x, x]' ~ normal(f_lp([1, 2]'), 1) T[-9, 9]; }",
            r"bad\.stan:2:49: `f_lp` adds to the target(?s:.)*Give its value a name",
        ),
        (
            "functions { real f_lp(real x) { return x * target(); } }\n"
            "parameters { real x; } model { x ~ normal(0, 1); target += f_lp(x); }",
            r"bad\.stan:1:44: A function reads the target(?s:.)*pass its value",
        ),
        ("parameters { int n; }", r"bad\.stan:1:18: `n` is an integer"),
        ("parameters { vector x; }", r"bad\.stan:1:21: `x` is declared without its sizes"),
        ("parameters { array[] real x; }", r"bad\.stan:1:27: `x` is declared without its sizes"),
        (
            "functions { vector f() { return [1]'; } real f(int x) { return 1; } }\n"
            "parameters { array[1, 1, 1, 1] real<lower=f()> x; }",
            r"bad\.stan:2:43: Whether the bound `f\(\)` is a scalar(?s:.)*Let a function",
        ),
    ],
)
def test_refusals_of_the_joint_program(source: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        joint_of(source)


def test_density_and_mass_function_of_one_name_are_told_apart_by_the_variate() -> None:
    functions = (
        "functions { real f_lpdf(real y, real m) { return -y; }\n"
        "real f_lpmf(int y, real m) { return -y; } }\ndata { array[2] int n; }\n"
    )
    model = "parameters { real x; } model { x ~ f(1); n[1] ~ f(2); }"
    code = generate(Program.from_source(functions + model), "density")
    assert "f_lpdf(x | 1)" in code
    assert "f_lpmf(n[1] | 2)" in code


def test_user_text_is_never_a_template() -> None:
    source = "// {{ 1 / 0 }} {% bad %} {# gone #}\nparameters { real x; }\n"
    for kind in ("density", "joint", "pseudo_extended"):
        assert "// {{ 1 / 0 }} {% bad %} {# gone #}" in generate(Program.from_source(source), kind)


def test_file_names_cannot_leave_the_header_comment() -> None:
    program = Program.from_source("parameters { real x; }", name="a\nmodel { reject(1); }")
    assert "\nmodel { reject" not in generate(program, "density")


def test_windows_newlines() -> None:
    source = (PROGRAMS / "truncation.stan").read_text().replace("\n", "\r\n")
    for kind in KINDS:
        assert stanli.stan_to_mir(generate(Program.from_source(source), kind))


@pytest.mark.parametrize("space", ["", " ", "\n", "/* z */"])
def test_a_name_may_follow_its_type_at_once(space: str) -> None:
    source = """
    data { array[2] real<lower=0>_y; }
    parameters {
      real<lower=0>_x; array[2]real<upper=1>_z; vector<lower=0>[2]_v; simplex[3]_s;
      matrix<lower=0>[2, 2]_m; covariance[2]_c; array[2]vector[2]_p; tuple(real<lower=0>,real)_q;
    }
    transformed parameters { real<lower=0>_t = x; vector<lower=0>[2]_w = v; }
    model {
      t ~ exponential(1); v ~ exponential(1); m[1] ~ exponential(1); m[2] ~ exponential(1);
      p[1] ~ normal(0, 1); p[2] ~ normal(0, 1); q.1 ~ exponential(1); q.2 ~ normal(0, 1);
      z ~ normal(q.1, 1); c ~ wishart(3, [[1, 0], [0, 1]]); y ~ normal(w, 1);
    }
    """
    program = Program.from_source(source.replace("_", space).replace("covariance", "cov_matrix"))
    for kind in KINDS:
        assert stanli.stan_to_mir(generate(program, kind))


def test_lines_of_a_scalar_that_is_kept_move_together() -> None:
    source = """data { int N; vector[N] y; } parameters { real mu; } model {
  for (n in 1 : N) {
    target += log_mix(0.3, normal_lpdf(y[n] | mu, 1),
                      normal_lpdf(y[n] | -mu, 1));
  }
}"""
    code = generate(Program.from_source(source), "joint")
    first = code[code.index("      ct_each1[n] = ") :].split("\n")[:2]
    assert first[1].index("normal_lpdf") == first[0].index("0.3")
    assert "    ct_log_p += sum(ct_each1);\n" in code

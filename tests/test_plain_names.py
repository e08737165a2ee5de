"""Programs may use names that C++ keeps for itself, and get them back."""

from __future__ import annotations

import re

import numpy as np
import pytest
from conftest import target_of

import stanct
from stanct.engines.embedded import Recipe, compile_program, pathfinder
from stanct.engines.plain_names import plainly_named
from stanct.targets.density import Density

# Names stand where the engine keeps them by themselves, in bounds, and in names that it makes up.
WORDS = "or this double float and bool char new class switch virtual friend public final goto not"
PROGRAM = """
functions {
  real or(real this) { return this; }
  real double_lpdf(real x, real this) { return normal_lpdf(x | 0, this); }
  void float_lp(real char) { target += char; }
}
data { real and; int bool; array[bool] real char; }
transformed data { real this = 1 + or(2); }
parameters {
  real new;
  real<lower=0> z;
  array[2] vector[2] class;
  real<lower=z, upper=z + this + and> switch;
  vector<lower=abs(new)>[bool] virtual;
  ordered[bool] friend;
  real<offset=new, multiplier=z> public;
  simplex[3] final;
}
transformed parameters { vector[2] goto = class[1]; }
model {
  new ~ normal(0, and);
  z ~ exponential(2);
  for (i in 1:2) class[i] ~ normal(char, 1);
  public ~ double(1);
  friend ~ normal(0, 1);
  virtual ~ exponential(1);
  float_lp(goto[1]);
}
generated quantities { real not = or(normal_rng(0, 1)); }
"""
DATA = '{"and": 1, "bool": 2, "char": [1, 2]}'


def renamed(text: str) -> str:
    """The same with names that C++ does not know."""
    return re.sub(rf"\b({'|'.join(WORDS.split())})(?=\b|_lp)", r"user_\1", text)


def test_names_are_those_of_the_program_and_all_values_those_of_other_names() -> None:
    own, other = Density(Recipe(PROGRAM, DATA)), Density(Recipe(renamed(PROGRAM), renamed(DATA)))
    for names in ("names", "variable_names", "unconstrained_names"):
        found = getattr(own, names)
        assert tuple(map(renamed, found)) == getattr(other, names)
        assert not any("_stan_" in name for name in found)
    x = np.linspace(-0.5, 0.5, own.dimension)
    assert own.log_density(x) == other.log_density(x)
    theta = own.constrain(x)
    assert np.array_equal(theta, other.constrain(x))
    assert own.unconstrain(theta) == pytest.approx(x)
    assert own.unconstrained(theta[None])[0][0] == pytest.approx(x)
    variables = own.variables(x[None], seed=1)
    inits = {name: values[0] for name, values in variables.items() if name not in ("goto", "not")}
    assert own.unconstrain(inits) == pytest.approx(x)
    draws = pathfinder(Recipe(PROGRAM, DATA), seed=1, draws=2, radius=1.0).variables
    assert tuple(draws) == own.variable_names


@pytest.mark.parametrize("word", ["new", "not", "template"])
def test_a_run_has_the_user_s_name_beside_a_bounded_parameter(word: str) -> None:
    source = f"""
      parameters {{ real {word}; real<lower=0> z; }}
      model {{ {word} ~ normal(0, 1); z ~ exponential(2); }}
    """
    run = stanct.temper(source).sample(seed=1, draws=200, inits={word: 1, "z": 1}, progress=False)
    mean = run.expect(word)
    assert abs(mean.value) < 4 * mean.std_error < 0.5
    assert abs(run.evidence.log_z) < 4 * run.evidence.std_error < 0.1


def test_other_code_stays_as_it_is() -> None:
    plain = compile_program("parameters { real mu; } model { mu ~ std_normal(); }")
    assert plainly_named(plain) == plain
    for odd in ("(sexp)", "STANLI2:not base64", "STANLI3:AAAA"):
        assert plainly_named(odd) == odd


def test_text_that_only_holds_the_prefix_is_the_user_s(capfd: pytest.CaptureFixture[str]) -> None:
    source = """
      parameters { real new; }
      model { new ~ std_normal(); print("of _stan_new: ", new); }
    """
    density = target_of(source).density
    density.log_density(np.array([0.5]))
    assert "of _stan_new: 0.5" in capfd.readouterr().out

"""Transformed data with loops are computed by one handle, and are data for all others."""

from __future__ import annotations

import numpy as np
import pytest

import stanct
from stanct.engines.embedded import Recipe
from stanct.targets import density as densities
from stanct.targets import once
from stanct.targets.density import Density

LOOPS = """
functions {
  real kernel(real d) { return exp(-square(d)); }
}
data { int N; array[N] int y; }
transformed data {
  int M = 2 * N, last;
  vector<lower=0>[M] grid;
  array[2] row_vector[N] both;
  array[N] int order;
  matrix[N, N] L;
  for (m in 1:M) grid[m] = 0.1 * m / 3;
  for (n in 1:N) order[n] = N + 1 - n;
  last = order[N];
  both = {to_row_vector(grid[1:N]), to_row_vector(grid[1:N]) / 7};
  {
    matrix[N, N] K;
    for (i in 1:N) for (j in 1:N) K[i, j] = kernel(i - j) + (i == j);
    L = cholesky_decompose(K);
  }
}
parameters { vector[N] z; real<upper=last> a; }
model {
  z ~ std_normal();
  a ~ normal(both[2, N], grid[M]);
  y[order] ~ poisson_log(a + L * z);
}
"""
DATA = {"N": 6, "y": [1, 0, 2, 3, 1, 0]}


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Texts of the programs for which handles are made."""
    sources: list[str] = []
    before = densities._model

    def counted(recipe: Recipe) -> object:
        sources.append(recipe.source)
        return before(recipe)

    monkeypatch.setattr(densities, "_model", counted)
    monkeypatch.setattr(once, "QUICK", 0.0)
    return sources


def test_densities_have_the_same_bits(made: list[str]) -> None:
    target = stanct.temper(LOOPS).target(DATA)
    found = target.density
    assert sum("transformed data" in source for source in made) == 1
    plain = Density(Recipe(LOOPS, target.data.text))
    assert found.names == plain.names
    for x in np.random.default_rng(1).normal(size=(20, 7)):
        value, gradient = plain.log_density_gradient(x)
        same, other = found.log_density_gradient(x)
        assert same == value + found.constant
        assert np.array_equal(gradient, other)


def test_lines_stay_where_they_are(made: list[str]) -> None:
    target = stanct.temper(LOOPS).target(DATA)
    before, after = target.code("density").splitlines(), target.density_recipe.source.splitlines()
    assert "transformed data" not in target.density_recipe.source
    assert len(before) == len(after)
    assert before[before.index("model {") :] == after[after.index("model {") :]


@pytest.mark.parametrize(
    "made_of",
    [
        "real m = 0; for (n in 1:N) m += normal_rng(0, 1);",  # another one for every seed
        "tuple(int, real) m = (1, 2.0); for (n in 1:N) m.2 += n;",
        "array[0] real m; for (n in 1:N) print(n);",
        "real m = 0; for (n in 1:N) m /= 0;",
        "real m = sum(y);",  # no loop
    ],
)
def test_other_transformed_data_stay(made: list[str], made_of: str) -> None:
    text = f"""data {{ int N; array[N] int y; }}
transformed data {{ {made_of} }}
parameters {{ real x; }}
model {{ x ~ std_normal(); }}
"""
    target = stanct.temper(text).target(DATA)
    assert "transformed data" in target.density_recipe.source
    assert target.density_recipe.data == target.data.text


def test_what_is_quick_stays() -> None:
    target = stanct.temper(LOOPS).target(DATA)
    assert "transformed data" in target.density_recipe.source


def test_stan_says_why_it_rejects_the_data(made: list[str]) -> None:
    text = LOOPS.replace("last = order[N];", 'last = order[N]; if (N > 3) reject("too many");')
    with pytest.raises(stanct.StanctError, match="too many"):
        _ = stanct.temper(text).target(DATA).density
    assert made

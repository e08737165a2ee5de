"""Matrix densities of data alone are refused, because they would end the process."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import target_of

from stanct.common.errors import EngineError
from stanct.stan.data_densities import density_of_data
from stanct.stan.program import Program

PROGRAM = """
functions {{
  real g_lpdf(array[] vector y, vector m, matrix s) {{
    return multi_normal_lpdf(y | m, s);
  }}
  real h(array[] vector y, vector m, matrix s) {{
    return g_lpdf(y | m, s);
  }}
}}
data {{
  vector[2] w;
}}
transformed data {{
  array[2] vector[2] z = {{[1, 2]', [3, 4]'}};
  array[2] row_vector[2] rz = {{[1, 2], [3, 4]}};
  matrix[2, 2] sigma = [[2, 0], [0, 1]];
  {data}
}}
parameters {{
  vector[2] beta;
}}
transformed parameters {{
  vector[2] far = 2 * beta;
  vector[2] near = w;
}}
model {{
  beta ~ std_normal();
  {model}
}}
generated quantities {{
  {drawn}
}}
"""
MEANS = ("rz", "z[1]")
FAMILIES = (
    "multi_normal({}, sigma)", "multi_normal_cholesky({}, sigma)", "multi_normal_prec({}, sigma)",
    "multi_student_t(10, {}, sigma)",
)  # fmt: skip
REFUSED = {
    **{
        line: {"model": line}
        for family in FAMILIES
        for mean in MEANS
        for variate in ("z", "z[1]", "rz", "rz[1]")
        if (line := f"{variate} ~ {family.format(mean)};")
        if not ("[" in variate and mean == "z[1]" and "multi_normal(" in family)
    },
    "call": {"model": "target += wishart_lpdf(sigma | 3.0, sigma);"},
    "literals": {"model": "target += lkj_corr_lpdf([[1, 0], [0, 1]] | 2);"},
    "local variable": {"model": "vector[2] m = z[1]; z ~ multi_normal(m, sigma);"},
    "transformed parameter": {"model": "z ~ multi_normal(near, sigma);"},
    "transformed data": {"data": "real c = multi_normal_lpdf(z | z[1], sigma);"},
    "generated": {"drawn": "real c = multi_normal_lpdf(z | z[1], sigma);"},
    "own density": {"model": "z ~ g(z[1], sigma);"},
    "own function": {"model": "target += h(z, z[1], sigma);"},
}
COMPUTED = {
    "of parameters": {"model": "z ~ multi_normal(beta, sigma);"},
    "of transformed parameters": {"model": "z ~ multi_normal(far, sigma);"},
    "two vectors": {"model": "z[1] ~ multi_normal(z[2], sigma);"},
    "own function": {"model": "target += h(z, beta, sigma);"},
    "local variable": {"model": "vector[2] m = z[1] + beta; z ~ multi_normal_prec(m, sigma);"},
    "generated": {"drawn": "vector[2] m = beta; real c = multi_normal_lpdf(z | m, sigma);"},
}


def written(parts: dict[str, str]) -> str:
    return PROGRAM.format(**{"data": "", "model": "", "drawn": "", **parts})


@pytest.fixture(autouse=True)
def no_cmdstan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stanct.engines.homes.find", lambda: None)


@pytest.mark.parametrize("case", REFUSED)
def test_what_would_end_the_process_is_refused(case: str) -> None:
    words = r"cannot run `\w+`, because all of its arguments are data(?s:.)*CmdStan runs it"
    source = written(REFUSED[case])
    (part,) = REFUSED[case].values()
    with pytest.raises(EngineError, match=words) as refused:
        _ = target_of(source, {"w": [1.0, 2.0]}).density
    line = next(k for k, row in enumerate(source.split("\n"), 1) if part in row)
    assert f":{line}:" in str(refused.value)


@pytest.mark.parametrize("case", COMPUTED)
def test_others_are_computed(case: str) -> None:
    source = written(COMPUTED[case])
    assert density_of_data(Program.from_source(source)) is None
    density = target_of(source, {"w": [1.0, 2.0]}).density
    assert np.isfinite(density.log_density(np.array([0.1, 0.2])))

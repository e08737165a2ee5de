"""Loops that keep terms: which fill an element of their vector at once, and their sums."""

from __future__ import annotations

import pytest
from conftest import target_of
from verify import verify

from stanct.targets.program_target import ProgramTarget

DATA = {"N": 12, "M": 11, "y": [0.3, -1.2, 0.8, 2.0, 0.1, -0.6, 1.4, 0.0, -0.3, 0.9, 2.2, -1.1]}
# Only a mixture keeps its loop: any other density would leave it.
MIXTURE = "log_mix(0.3, normal_lpdf(y[n] | b, s), normal_lpdf(y[n] | -b, 2))"
PROGRAM = """
functions {
  real own_lpdf(real y, real scale) {
    return -abs(y) / scale - log(2 * scale);
  }
}
data {
  int<lower=0> N, M;
  vector[N] y;
}
parameters {
  real b;
  real<lower=0> s;
  simplex[3] w;
  array[2] simplex[2] v;
}
model {
  b ~ normal(0, 1);
  s ~ lognormal(0, 1);
  %s
}
"""

KEPT = {
    "increment": f"for (n in 1 : N) target += {MIXTURE};",
    "tilde": "for (n in 1 : N) y[n] ~ own(s);",
    "container": "for (n in 1 : N) { target += normal_lpdf(y[n] | b, s) * [0.3, w[2]]; }",
    "branches": f"""for (n in 1 : N) {{
    if (y[n] > 1) y[n] ~ own(s);
    else if (y[n] > 0) {{
      real m = b;
      target += normal_lpdf(y[n] | m, s);
    }} else target += {MIXTURE};
  }}""",
    "beside_one_that_leaves": f"for (n in 1 : N) {{ y[n] ~ normal(b, s); target += {MIXTURE}; }}",
    "inner_loop": f"for (m in 1 : M) {{ for (n in m : N) target += {MIXTURE} / m; }}",
    "inner_density": "for (m in 1 : M) { for (n in m : N) y[n] ~ normal(b, s); }",
    "inner_loop_in_a_branch": f"""for (m in 1 : M) {{
    if (m > 3) {{ for (n in m : N) target += {MIXTURE}; }}
  }}""",
    "truncation": "for (n in 1 : N) y[n] ~ normal(b, s) T[-3, ];",
    "continue": f"for (n in 1 : N) {{ if (n == 3) continue; target += {MIXTURE}; }}",
    "inner_loop_that_ends_early": f"""for (m in 1 : M) {{
    for (n in m : N) {{ if (n > 8) continue; target += {MIXTURE}; }}
    target += b / m;
  }}""",
}


def loop(body: str) -> ProgramTarget:
    return target_of(PROGRAM % body, DATA)


def agrees(target: ProgramTarget) -> bool:
    kinds = ("joint", "pseudo_extended", "extended_hamiltonian")
    return all(verify(target, kind, points=4).passed for kind in kinds)


@pytest.mark.parametrize("name", KEPT)
def test_terms_that_stay_in_their_loop(name: str) -> None:
    target = loop(KEPT[name])
    assert agrees(target)


@pytest.mark.parametrize(("opening", "closing"), [("{ ", " }"), ("", "")])
@pytest.mark.parametrize("branch", ["", "if (N > 0)\n    "])
def test_a_comment_stays_with_its_loop(branch: str, opening: str, closing: str) -> None:
    """A density follows behind the line that it is on, and inside of the braces that it needs."""
    nested = f"{opening}for (k in 1 : M) y[n] ~ normal(k * b, s);{closing}"
    text = f"{branch}for (n in 1 : N) {nested} // of all\n  b ~ normal(0, 2);"
    target = target_of(PROGRAM % text, DATA)
    lines = [line.strip() for line in target.code("joint").splitlines()]
    behind = next(k for k, line in enumerate(lines) if "normal_lpdf(ct_each" in line)
    (own,) = (k for k, line in enumerate(lines) if line.endswith("// of all"))
    assert own < behind and "}" not in lines[behind]
    assert verify(target, "joint").passed


def test_terms_that_are_all_equal() -> None:
    """The embedded engine would lose a vector of them."""
    assert agrees(
        loop(
            "for (n in 1 : N) target += log_mix(0.4, bernoulli_logit_lpmf(1 | b), "
            "bernoulli_logit_lpmf(0 | b));"
        )
    )


def test_simplexes_share_the_centred_vector() -> None:
    code = loop("w ~ dirichlet([2, 3, 4]');").code("joint")
    assert code.count("= ct_sum_to_zero(") == 2
    assert "w = softmax(ct_centred);" in code
    assert code.count("ct_log_jacobian += ct_softmax_lj(ct_centred);") == 2


@pytest.mark.parametrize("ending", ["; // last", "\n      ; // last", ";\n"])
def test_a_comment_behind_a_term_leaves_no_empty_loop(ending: str) -> None:
    text = f"for (n in 1 : N) {{\n    target += normal_lpdf(y[n] | b, s){ending}\n  }}"
    target = target_of(PROGRAM % text, DATA)
    code = target.code("joint")
    assert "for (n in 1 : N)" not in code and "normal_lpdf(y | b, s)" in code
    assert verify(target, "joint").passed


@pytest.mark.parametrize("own", ["// own\n    ", "/* own */ "])
def test_a_comment_of_the_loops_own_stays(own: str) -> None:
    text = f"for (n in 1 : N) {{\n    {own}target += normal_lpdf(y[n] | b, s);\n  }}"
    assert own.strip() in target_of(PROGRAM % text, DATA).code("joint")

"""Programs that Stan rejects everywhere: an error with Stan's words and the line, before pilots."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from conftest import target_of

from stanct import sample
from stanct.common.errors import ProgramError, SamplingError
from stanct.engines import homes
from stanct.path.gaussian import GaussianBase
from stanct.samplers._job import Job
from stanct.targets import rejections
from stanct.targets.density import Density

MODEL = "model { x ~ normal(0, 1); }"
ALWAYS = {
    "lower": (f"data {{ vector[2] l; }} parameters {{\nvector<lower=l>[3] x; }} {MODEL}", "sizes"),
    "offset": (
        f"data {{ vector[2] l; }} parameters {{\nvector<offset=l>[3] x; }} {MODEL}",
        "sizes",
    ),
    "matrix": (
        "data { vector[2] l; } transformed data { matrix[2, 2] m = diag_matrix(l); } parameters {\n"
        "matrix<upper=m>[3, 2] x; } model { to_vector(x) ~ normal(0, 1); }",
        "sizes",
    ),
    "by a parameter": (
        f"parameters {{ vector[2] z;\nvector<lower=z>[3] x; }} {MODEL}",
        "`x` and its bounds have different sizes",
    ),
    "transformed": (
        "data { vector[2] l; } parameters { real z; } transformed parameters {\n"
        f"vector<lower=l>[3] x = rep_vector(z, 3); }} {MODEL}",
        "sizes",
    ),
    "reject": (
        'parameters { real x; } model {\nreject("no day has ", 25, " hours"); }',
        "calls `reject` at each of .* points that were tried: no day has 25 hours",
    ),
    "in a function": (
        'functions { real f(real x) {\nif (x < 1e9) reject("far too small"); return x; } }'
        "parameters { real x; } model { f(x) ~ normal(0, 1); }",
        "calls `reject` .*: far too small",
    ),
    "density": (
        "data { vector[2] l; } parameters { vector[3] x; } model {\nx ~ normal(l, 1); }",
        "Random variable has size = 3, but Location parameter has size 2",
    ),
}
OPTIONS: dict[str, Any] = {"draws": 50, "seed": 1, "progress": False}


@pytest.mark.parametrize("name", ALWAYS)
def test_what_is_rejected_everywhere(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source, words = ALWAYS[name]
    monkeypatch.setattr(Job, "in_best_form", _no_work)
    target = target_of(source, {"l": [0, 1]} if "data {" in source else {})
    with pytest.raises(ProgramError, match=words) as caught:
        sample(target, **OPTIONS)
    assert caught.value.line == 2
    assert len(str(caught.value)) < 500


def _no_work(*_: Any) -> Any:
    raise AssertionError("work was begun")


def test_words_with_numbers_of_the_point_are_told_after_the_fit() -> None:
    source = 'parameters { real x; } model {\nif (x < 1e9) reject("too small: ", x); }'
    with pytest.raises(ProgramError, match=r"calls `reject` at each .*too small: -?\d") as caught:
        sample(target_of(source), **OPTIONS)
    assert caught.value.line == 2


def test_a_density_that_is_nowhere_finite() -> None:
    target = target_of("parameters { real x; } model { target += negative_infinity(); }")
    with pytest.raises(ProgramError, match="not finite at each of"):
        sample(target, **OPTIONS)


def test_rejected_transformed_data_have_a_line() -> None:
    source = f'transformed data {{\nreject("no such ", "year"); }} parameters {{ real x; }} {MODEL}'
    with pytest.raises(ProgramError, match="calls `reject` in the transformed data: no such year"):
        _ = target_of(source).density


def test_a_fatal_error_has_a_line_without_a_cmdstan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(homes, "find", lambda: None)
    target = target_of('parameters { real x; } model {\nif (x > 9) fatal_error("no"); }')
    with pytest.raises(ProgramError, match="cannot run `fatal_error`") as caught:
        _ = target.density
    assert caught.value.line == 2


def test_programs_that_reject_most_points_run() -> None:
    source = 'parameters { real x; } model { if (abs(x) > 0.05) reject("far"); }'
    target = target_of(source)
    target.refuse_rejection()
    target.refuse_rejection(failed=True)
    outside = target_of(
        'parameters { real x; } model { if (x < 1e3) reject("far"); x ~ normal(2e3, 1); }'
    )
    base = GaussianBase(np.full(1, 2e3), np.eye(1))
    run = sample(outside, "independence", base=base, **OPTIONS)  # a base says where to look
    assert (run.variables["x"] > 1e3).all()


def test_a_base_at_which_all_is_rejected() -> None:
    target = target_of(ALWAYS["reject"][0])
    with pytest.raises(SamplingError, match="vanishes at all of"):
        sample(target, base=GaussianBase(np.zeros(1), np.eye(1)), **OPTIONS)


def test_one_sound_point_costs_one_evaluation(monkeypatch: pytest.MonkeyPatch) -> None:
    target, calls = target_of(f"parameters {{ real x; }} {MODEL}"), list[int]()
    evaluate = Density.refusal
    monkeypatch.setattr(Density, "refusal", lambda *args: calls.append(1) or evaluate(*args))
    target.refuse_rejection()
    assert len(calls) == 1


def test_places_that_cmdstan_adds_are_not_shown() -> None:
    told = rejections._cleaned("stanli MIR check: too far (in 'model.stan', line 3, column 2)\n")
    assert told == "too far" and not re.search("line", told)

"""Damaged and made-up sources: errors that explain, quickly, and never anything else.

`STANCT_MUTATIONS=10000 pytest tests/test_robustness.py` runs the full number.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Iterator
from pathlib import Path

import stanli
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stanct.common.errors import ProgramError
from stanct.common.names import KINDS
from stanct.stan.codegen import generate
from stanct.stan.program import Program
from stanct.stan.syntax import BLOCK_NAMES, TYPES

PROGRAMS = Path(__file__).parent / "programs"
COUNT = int(os.environ.get("STANCT_MUTATIONS", "500"))
SECONDS = 1.0
PIECES = [
    re.findall(r"\w+|\s+|[^\w\s]", path.read_text()) for path in sorted(PROGRAMS.glob("*.stan"))
]


def mutants(count: int) -> Iterator[str]:
    """Test programs with tokens deleted, doubled, swapped and spliced, seeded."""
    rng = random.Random(7)
    for _ in range(count):
        tokens = list(rng.choice(PIECES))
        for _ in range(rng.choice((1, 1, 2, 5))):
            place, other = rng.randrange(len(tokens)), rng.randrange(len(tokens))
            match rng.randrange(5):
                case 0:
                    del tokens[place]
                case 1:
                    tokens.insert(place, tokens[place])
                case 2:
                    tokens[place], tokens[other] = tokens[other], tokens[place]
                case 3:
                    tokens[place] = rng.choice(rng.choice(PIECES))
                case _:
                    tokens[place] = rng.choice("{}[]()<>~;,|'\"#/*\\é\0")
        yield "".join(tokens)


def generated(source: str) -> dict[str, str]:
    """Every kind that a source can be turned into; anything but an explained error fails.

    The clock is the processor's, so that other work on the machine does not count.
    """
    start = time.process_time()
    codes: dict[str, str] = {}
    try:
        program = Program.from_source(source, path=str(PROGRAMS / "mutant.stan"))
    except ProgramError as error:
        assert error.line is not None, source
    else:
        for kind in KINDS:
            try:
                codes[kind] = generate(program, kind)
            except ProgramError as error:
                assert error.line is not None, source
    assert time.process_time() - start < SECONDS, source
    return codes


def test_mutants_raise_nothing_but_program_errors() -> None:
    survivors = sum(bool(generated(source)) for source in mutants(COUNT))
    assert 0.05 * COUNT < survivors < 0.95 * COUNT


def test_statements_without_a_model_block() -> None:
    """No Stan, but what it is has to be said by stanc and not by a crash."""
    assert generated(
        "data { real y; } parameters { real x; } transformed parameters { y ~ normal(x, 1); }"
    )


def test_what_stan_accepts_of_a_mutant_it_accepts_of_what_we_make_of_it() -> None:
    """Half of the mutants that we can read are no Stan; of the others all must come out legal."""
    judged = 0
    for source in mutants(COUNT // 20):
        codes = generated(source)
        if not codes or "#include" in source or not _accepted(source):
            continue
        judged += 1
        for kind, code in codes.items():
            assert _accepted(code), f"{kind}:\n{source}"
    assert judged > COUNT // 200


def _accepted(code: str) -> bool:
    try:
        return bool(stanli.stan_to_mir(code))
    except RuntimeError:
        return False


WORDS = st.one_of(
    st.sampled_from(
        [*BLOCK_NAMES, *sorted(TYPES), "array", "target", "jacobian", "T", "for", "if"]
    ),
    st.sampled_from(["else", "while", "in", "return", "profile", "void", "data", "~", "+=", "="]),
    st.sampled_from(["lower", "upper", "offset", "x", "y", "f_lp", "g_jacobian", "normal", "1"]),
    st.sampled_from(list("{}[]()<>~;,|'?:+-*/")),
    st.sampled_from(['"text"', "// stanct: prior\n", "#include a.stan\n", "/*", "*/", "1.5e3i"]),
)
STATEMENTS = st.recursive(
    st.sampled_from(
        [
            "x ~ normal(0, 1) T[0, ];",
            "target += x;",
            "real y = target();",
            "f_lp(x);",
            ";",
            "y[1] = {x, x}[1];",
            "{1, 2} ~ normal(x, [1, 2]') T[ , 3];",
            'print("}", x);',
        ]
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda lines: "{ " + " ".join(lines) + " }"),
        inner.map(lambda line: f"if (x > 0) {line}"),
        st.tuples(inner, inner).map(lambda two: f"if (x > 0) {two[0]} else {two[1]}"),
        inner.map(lambda line: f"for (i in 1 : 3) {line}"),
        inner.map(lambda line: f'profile("a") {{ {line} }}'),
    ),
    max_leaves=8,
)
QUICK = settings(
    max_examples=max(50, COUNT // 10),
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@QUICK
@given(st.lists(WORDS, max_size=40).map(" ".join))
def test_soups_of_words(source: str) -> None:
    generated(source)


@QUICK
@given(st.text(max_size=60))
def test_any_text(text: str) -> None:
    generated(f"parameters {{ real x; }} model {{ {text} }}")


@QUICK
@given(st.lists(STATEMENTS, max_size=5))
def test_sound_statements_come_through(statements: list[str]) -> None:
    """Statements that are whole are read: the density program and the joint one exist."""
    body = "\n".join(statements)
    source = (
        "functions { void f_lp(real x) { target += x; } }\n"
        f"parameters {{ real x; }}\nmodel {{\n{body}\n}}\n"
    )
    assert {"density", "joint", "extended_hamiltonian"} <= generated(source).keys()

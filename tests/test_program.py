"""Reading Stan programs: their declarations, places, and errors."""

from __future__ import annotations

from pathlib import Path

import pytest

import stanct
from stanct.common.errors import ProgramError
from stanct.stan.codegen import generate
from stanct.stan.program import Program

PROGRAMS = Path(__file__).parent / "programs"
ALL_PROGRAMS = sorted(PROGRAMS.glob("*.stan"))
BODY = "parameters { real x; } model { x ~ normal(0, 1); }"


def test_declarations_of_data_and_parameters() -> None:
    program = Program.from_file(PROGRAMS / "bounds.stan")
    assert program.name == "bounds"
    assert program.path == str(PROGRAMS / "bounds.stan")
    assert program.data_names == ("N", "base", "top", "centres")
    assert "".join(program.parameter_names) == "abcdefghijklmnopq"
    by_name = {parameter.name: parameter for parameter in program.parameters}
    assert by_name["d"].constraints == {"lower": "b", "upper": "b + exp(a)"}
    assert by_name["m"].type == "vector"
    assert by_name["m"].array_dims == ("2",)
    assert by_name["m"].dims == ("N",)
    assert by_name["m"].constraints == {"offset": "centres", "multiplier": "2"}
    assert by_name["j"].dims == ("N", "2")
    assert len(program.source_hash) == 64


def located(program: Program, name: str) -> tuple[str, int, int]:
    """Path, line and column of a variable's declaration."""
    (found,) = (each for each in (*program.data, *program.parameters) if each.name == name)
    return found.path, found.line, found.column


def test_a_declaration_points_at_its_name() -> None:
    program = Program.from_source("data {\n  int<lower=1> N, M;\n}\n" + BODY, name="two")
    assert located(program, "M") == ("two.stan", 2, 19)
    assert located(program, "x") == ("two.stan", 4, 19)


def test_includes_are_resolved_and_mapped_back() -> None:
    program = Program.from_file(PROGRAMS / "includes.stan")
    assert program.data_names == ("N",)
    assert located(program, "N") == (str(PROGRAMS / "include/data.stan"), 2, 16)
    path, line, _ = located(program, "tau")
    assert (path, line) == (str(PROGRAMS / "includes.stan"), 6)
    assert "real scale()" in program.expanded
    assert "real scale()" not in program.source


def test_include_paths_come_before_the_files_own_folder(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "first" / "part.stan").write_text("data { int first; }")
    (tmp_path / "part.stan").write_text("data { int own; }")
    main = tmp_path / "main.stan"
    main.write_text("#include <part.stan>\n" + BODY)
    assert Program.from_file(main).data_names == ("own",)
    chosen = Program.from_file(main, include_paths=[tmp_path / "first"])
    assert chosen.data_names == ("first",)


@pytest.mark.parametrize(
    "written", ['"/parts/data.stan"', "/parts/data.stan", "</parts/data.stan>"]
)
def test_a_leading_slash_is_looked_up_in_the_include_folders(tmp_path: Path, written: str) -> None:
    """As stanc does; packages for rstan write their includes so."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "data.stan").write_text("data { int N; }\n#include /parts/more.stan\n")
    (tmp_path / "parts" / "more.stan").write_text("transformed data { int M = N; }\n")
    (tmp_path / "models").mkdir()
    for main in (tmp_path / "main.stan", tmp_path / "models" / "main.stan"):
        main.write_text(f"#include {written}\n" + BODY)
        program = Program.from_file(main, include_paths=[tmp_path])
        assert program.data_names == ("N",) and "transformed data" in program.blocks


def test_includes_in_comments_and_strings_are_left_alone() -> None:
    source = "// #include nothing.stan\n/* #include nothing.stan */\nparameters { real x; }"
    assert Program.from_source(source).expanded == source


def test_circular_include(tmp_path: Path) -> None:
    (tmp_path / "a.stan").write_text("#include b.stan\n" + BODY)
    (tmp_path / "b.stan").write_text("\n  #include a.stan\n")
    with pytest.raises(ProgramError, match=r"b\.stan:2:3: `a\.stan` includes itself"):
        Program.from_file(tmp_path / "a.stan")


def test_missing_file() -> None:
    with pytest.raises(ProgramError, match=r"nowhere\.stan: There is no such file.*\nCheck"):
        Program.from_file("nowhere.stan")


def test_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "latin.stan").write_bytes(b"// \xff\xfe")
    with pytest.raises(ProgramError, match=r"latin\.stan: The file cannot be read"):
        Program.from_file(tmp_path / "latin.stan")
    with pytest.raises(ProgramError, match="This is a folder"):
        Program.from_file(tmp_path)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", r"bad\.stan:1:1: The program has no parameters(?s:.)*Declare what is"),
        ("data { }\nparameters {\n}", r"bad\.stan:2:1: The program has no parameters"),
        ("parameters { real x; ", r"bad\.stan:1:12: This `{` is never closed"),
        ("parameters { real x; } }", r"bad\.stan:1:24: `}` closes nothing"),
        ("parameters {\n real x);\n}", r"bad\.stan:2:8: `\)` does not match the `{` of line 1"),
        ("parameters { real x }", r"bad\.stan:1:19: `;` is missing behind `x`"),
        ("parameters {\n  real x[3];\n}", r"bad\.stan:2:9: .*(?s:.)*Write `array\[3\] real x;`"),
        ("parameters { rael x; }", r"bad\.stan:1:14: Expected a statement, found `rael`"),
        ("parameters { real<lower=0 x; }", r"bad\.stan:1:18: This `<` is never closed"),
        ("parameters { real<low=0> x; }", r"bad\.stan:1:19: Expected lower=, upper="),
        ("parameters { real x = 1; }", r"1:19: `x` is given a value(?s:.)*transformed parameters"),
        ("parameters { x = 1; }", r"1:14: The `parameters` block holds a statement"),
        ("model { }\nparameters { real x; }", r"2:1: The block `parameters` stands behind `model`"),
        ("parameters { real x; } parameters { real y; }", r"1:24: The block `parameters` stands"),
        ("modle { }", r"1:1: Expected a program block, found `modle`"),
        (BODY + ' /* "', r"1:\d+: This comment is never closed"),
        ('model { print("a\n"); }', r"1:15: This string does not end on its line"),
        ("# old\n" + BODY, r"1:1: `#` starts no comment(?s:.)*Write `//`"),
        ("parameters { real x; } model { x <- 1; }", r"1:34: `<-`(?s:.)*Write `=`"),
        ("parameters { réal x; }", r"1:15: The character 'é' has no meaning"),
        ("parameters { real x; } model { x ~ ; }", r"1:36: Expected a distribution"),
        ("parameters { real x; } model { x ~ normal(0, 1) U[0, 1]; }", r"1:49: Expected `;` or"),
        ("parameters { real x; } model { x ~ normal(0, 1) T[0, 1, 2]; }", r"Expected a truncation"),
        ('#include ""\n', r"1:1: This #include names no file\."),
        ("#include <>\n", r"1:1: This #include names no file\."),
        ("#include", r"1:1: This #include names no file, or has no space"),
        ("#include<a.stan>\n", r"1:1: This #include names no file, or has no space"),
        ("#include\nparameters { real x; }", r"1:1: The included file `parameters` was not found"),
        ("#include\n<gone.stan>", r"1:1: The included file `gone\.stan` was not found"),
        ("functions { real f(real) { } }", r"1:24: Expected the name of an argument"),
        ("functions { real f; }", r"1:18: Expected a function definition"),
        ("parameters { tuple(real, real x; }", r"does not match|Expected"),
        ("parameters { real x; } model {" + "{" * 500 + "}" * 501, "nested too deeply"),
        ("parameters { real x; } model {" + "if (x > 0) " * 500 + ";}", "nested too deeply"),
        ("parameters { " + "tuple(" * 400 + ")" * 400 + " t; }", "nested too deeply"),
    ],
)
def test_bad_programs_are_refused_with_their_place(source: str, message: str) -> None:
    with pytest.raises(ProgramError, match=message):
        Program.from_source(source, name="bad")


def test_the_caret_stands_under_the_fault() -> None:
    with pytest.raises(ProgramError) as caught:
        Program.from_source("parameters {\n  real x\n}", name="bad")
    lines = str(caught.value).splitlines()
    assert lines[1][4:] == "  real x"
    assert lines[2][4:] == "       ^"


def test_else_if_chains_may_be_long() -> None:
    chain = " else ".join(f"if (x > {k}) x ~ normal({k}, 1);" for k in range(400))
    program = Program.from_source("parameters { real x; } model { " + chain + " }")
    assert generate(program, "density").count("normal_lpdf") == 400


def test_a_program_is_a_path() -> None:
    with pytest.raises(stanct.StanctError, match="not of the type 'int'"):
        stanct.temper(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(stanct.SavedRunError, match=r"the path of a folder, not 3\."):
        stanct.load(3)  # pyright: ignore[reportArgumentType]

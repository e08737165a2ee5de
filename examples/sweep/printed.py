"""What CmdStan's stanc says of generated programs: new warnings, and whether its layout differs.

For each program that stanc takes and each kind, the script compares the warnings of `stanc`, and of
`stanc --warn-pedantic`, with those of the user's program, and the text with that of `stanc
--auto-format`. It counts programs with a warning that the user's lacks, by kind and what it says.

    python examples/sweep/printed.py FOLDER ... [--kind joint] [--first 50] [--each]
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

from sweep import Case, cases_of

from stanct.common.errors import StanctError
from stanct.common.names import KINDS
from stanct.engines.cmdstan import CmdStan
from stanct.stan.codegen import generate
from stanct.stan.program import Program

PEDANTIC = "--warn-pedantic"
WARNING = re.compile(r"Warning.*?:\n?((?:.(?!Warning))*)", re.DOTALL)
# Names, numbers and places, by which one and the same warning differs.
OWN = re.compile(r"'[^']*'|\b\w*\d\w*\b|in '.*?', line \d+.*?:", re.DOTALL)


class Stanc:
    """The stanc of a CmdStan, on texts."""

    def __init__(self, folder: Path) -> None:
        self._stanc = CmdStan.here().home.path / "bin" / "stanc"
        self._file = folder / "m.stan"

    def __call__(self, code: str, *options: str) -> subprocess.CompletedProcess[str]:
        self._file.write_text(code)
        if "--auto-format" not in options:
            options = (*options, f"--o={self._file.with_suffix('.hpp')}")
        words = [str(self._stanc), *options, str(self._file)]
        return subprocess.run(words, capture_output=True, text=True)

    @cache  # noqa: B019 - there is one stanc, and user's programs come once for each kind
    def warnings(self, code: str, *options: str) -> frozenset[str]:
        """The warnings of a program, without names and places."""
        told = self(code, *options).stderr
        words = (" ".join(OWN.sub("…", one).split())[:90] for one in WARNING.findall(told))
        return frozenset(words)

    @cache  # noqa: B019
    def is_formatted(self, code: str) -> bool:
        """Whether `--auto-format` leaves the program as it is, but for ends of lines."""
        lines = [
            [line.rstrip() for line in text.rstrip().splitlines()]
            for text in (code, self(code, "--auto-format").stdout)
        ]
        return lines[0] == lines[1]


def judge(stanc: Stanc, code: str, own: str) -> list[str]:
    """What is to be said against a generated program."""
    plain = stanc.warnings(code) - stanc.warnings(own)
    pedantic = stanc.warnings(code, PEDANTIC) - stanc.warnings(own, PEDANTIC)
    found = [f"new: {one}" for one in plain]
    found += [f"new, pedantic: {one}" for one in pedantic - plain]
    # Where the user's own text is laid out otherwise, so is what is written of it.
    if stanc.is_formatted(own) and not stanc.is_formatted(code):
        found.append("another layout")
    return found


def programs(cases: list[Case], stanc: Stanc) -> list[Program]:
    """The programs that stanc takes, each text once."""
    taken: dict[str, Program] = {}
    for case in cases:
        try:
            program = Program.from_file(case.program, include_paths=case.includes)
        except StanctError:
            continue
        if program.expanded not in taken and stanc(program.expanded).returncode == 0:
            taken[program.expanded] = program
    return list(taken.values())


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folders", metavar="FOLDER", nargs="+", help="Stan programs, at any depth")
    parser.add_argument("--kind", action="append", choices=KINDS, help="default: all")
    parser.add_argument("--first", type=int, help="end after so many programs")
    parser.add_argument("--each", action="store_true", help="name the programs, too")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        stanc = Stanc(Path(folder))
        taken = programs(cases_of(options.folders, with_data=False), stanc)[: options.first]
        print(f"{len(taken)} programs that stanc takes")
        for kind in options.kind or KINDS:
            counts, made = Counter[str](), 0
            for program in taken:
                try:
                    code = generate(program, kind)
                except StanctError:
                    continue
                made += 1
                said = judge(stanc, code, program.expanded)
                counts.update(said)
                if said and options.each:
                    print(f"  {program.name}: {'; '.join(said)}")
            print(f"{kind}: {made} programs", flush=True)
            for what, count in counts.most_common():
                print(f"  {count} {what}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

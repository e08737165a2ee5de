"""Completion of commands in fish, for which shtab has no form."""

from __future__ import annotations

import argparse
from collections.abc import Iterator


def fish(parser: argparse.ArgumentParser) -> str:
    """Lines of fish that complete the subcommands of a parser, and the options of each."""
    return "\n".join(_lines(parser))


def _lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    program = parser.prog
    yield from _options(program, "__fish_use_subcommand", parser)
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        told = {choice.dest: choice.help for choice in action._choices_actions}
        for name, own in action.choices.items():
            said = _said(told.get(name))
            yield f"complete -c {program} -n __fish_use_subcommand -f -a {name}{said}"
            yield from _options(program, f"'__fish_seen_subcommand_from {name}'", own)


def _options(program: str, where: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        words = map(str, action.choices or ()) if action.nargs != argparse.PARSER else ()
        values = " ".join(words)
        taken = f" -x -a '{values}'" if values else " -r" if action.nargs != 0 else ""
        for flag in action.option_strings:
            kind = f"-l {flag[2:]}" if flag.startswith("--") else f"-s {flag[1:]}"
            yield f"complete -c {program} -n {where} {kind}{taken}{_said(action.help)}"
        if not action.option_strings and values:
            yield f"complete -c {program} -n {where} -f -a '{values}'{_said(action.help)}"


def _said(text: str | None) -> str:
    plain = " ".join((text or "").split()).replace("\\", "\\\\").replace("'", "\\'")
    return f" -d '{plain.replace('%%', '%')}'" if plain and text != argparse.SUPPRESS else ""

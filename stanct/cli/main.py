"""The `stanct` command: results on stdout, everything else on stderr."""

from __future__ import annotations

import io
import os
import sys
import time
from collections.abc import Sequence

from stanct.cli.arguments import parser_of_commands
from stanct.common.errors import StanctError
from stanct.common.names import INTERRUPTED, UNREAD
from stanct.work.interrupts import leave_with


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; a wrong call exits with status 2.

    0 is success, 1 an error or a fault that was found, 3 a failed check under ``--strict``, 130 an
    interrupt, and 141 output that was no longer read.
    """
    try:
        try:
            return _status(arguments)
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        return _left(UNREAD)
    except OSError as cause:  # the disk is full
        if cause.filename is not None:
            raise
        sys.stderr.write(f"stanct: The output cannot be written: {cause.strerror}.\n")
        return _left(1)


def _left(status: int) -> int:
    """Let nothing complain of output that cannot be written when Python ends."""
    for stream in filter(None, (sys.stdout, sys.stderr)):
        try:
            stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    leave_with(status)
    return status


def _status(arguments: Sequence[str] | None) -> int:
    began = time.monotonic()
    if isinstance(sys.stdout, io.TextIOWrapper):  # not every encoding has a β
        sys.stdout.reconfigure(errors="replace")
    options = parser_of_commands().parse_args(arguments)
    options.began = began
    try:
        status = options.run(options)
    except StanctError as error:
        sys.stderr.write(f"stanct: {error}\n")
        status = 1
    except KeyboardInterrupt as stop:
        told = " ".join(getattr(stop, "__notes__", ["No draws were finished."]))
        sys.stderr.write(f"stanct: interrupted. {told}\n")
        status = INTERRUPTED
    except SystemExit as stop:  # SIGTERM came before anything was finished
        told = " ".join(getattr(stop, "__notes__", ["No draws were finished."]))
        sys.stderr.write(f"stanct: ended by SIGTERM. {told}\n")
        raise
    if status in (1, INTERRUPTED):
        leave_with(status)
    return status

"""The program: its commands in the order in which ``--help`` lists them, and what becomes of errors."""

from __future__ import annotations

import io
import os
import sys

# isort: off
from sim.cli import run, sweep, compare, levers, calibrate, validate, small
from sim.cli import hardware, acceptance

# isort: on
from sim.cli.shared import EXIT_BROKEN_PIPE, app, fail

COMMANDS = (run, sweep, compare, levers, calibrate, validate, small, hardware, acceptance)
"""Importing them adds their commands to the program."""


def main() -> None:
    """Run the command line; user errors go to stderr with exit code 2."""
    from hwmodels.errors import DocumentError, HardwareError
    from sim.sweeps.errors import SweepError

    for stream in (sys.stdout, sys.stderr):
        # The report has block characters; a terminal that cannot show them gets question marks.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        app()
    except (DocumentError, HardwareError, SweepError) as problem:
        fail(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_BROKEN_PIPE)
    except OSError as problem:
        fail(f"{problem.filename or 'output'}: {problem.strerror or problem}")

"""The command line, a module a command: the only package that prints or exits."""

from sim.cli.program import main

__all__ = ["main"]

"""Errors of the simulator.

* ``ScenarioError``: the user's scenario is wrong; names file, line, key, problem.
* ``LogError``: an acceptance log is wrong, or does not say enough; names file, line, problem.
* ``SimulationError``: an invariant broke; our bug.

Errors about hardware figures are ``hwmodels.errors.HardwareError``.
"""

from __future__ import annotations

from hwmodels.errors import DocumentError, in_one_line

__all__ = ["LogError", "ScenarioError", "SimulationError", "in_one_line"]


class ScenarioError(DocumentError):
    """The scenario *file* is wrong at *line*, *key*: *problem*."""


class LogError(DocumentError):
    """The acceptance log *file* is wrong at *line* (1-based, 0 for the whole file): *problem*."""

    def __init__(self, file: str, line: int, problem: str) -> None:
        super().__init__(file, line, "", problem)
        self.args = (file, line, problem)


class SimulationError(Exception):
    """An invariant of the simulator broke; *problem* says which."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"simulator invariant broken: {self.problem}"

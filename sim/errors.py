"""Errors of the simulator.

* ``ScenarioError``: the user's scenario is wrong; names file, line, key, problem.
* ``SimulationError``: an invariant broke; our bug.

Errors about hardware figures are ``hwmodels.errors.HardwareError``.
"""

from __future__ import annotations

from hwmodels.errors import DocumentError


class ScenarioError(DocumentError):
    """The scenario *file* is wrong at *line*, *key*: *problem*."""


class SimulationError(Exception):
    """An invariant of the simulator broke; *problem* says which."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem

    def __str__(self) -> str:
        return f"simulator invariant broken: {self.problem}"

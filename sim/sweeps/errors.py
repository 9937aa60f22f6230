"""Errors of sweeps: what stops one as a whole. A cell that fails stops nothing."""

from __future__ import annotations


class SweepError(Exception):
    """The sweep at *place* cannot go on: *problem*. What was finished is stored."""

    def __init__(self, place: str, problem: str) -> None:
        super().__init__(place, problem)
        self.place = place
        self.problem = problem

    def __str__(self) -> str:
        return f"{self.place}: {self.problem}"

"""Predictions beside measurements: rows, and what they come to by system."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import NamedTuple

import numpy as np

from hwmodels import tables
from sim.validation.prediction import Prediction
from sim.validation.translation import CaseKind, Question
from sim.validation.uncertainty import Draws


class Ground(StrEnum):
    """What kernels of a GPU are predicted from."""

    TABLES = "tables"
    ROOFLINE = "roofline"


@dataclass(frozen=True, eq=False)
class Row:
    """One measurement and its prediction."""

    question: Question
    prediction: Prediction
    draws: Draws
    discrepancy_sd: float
    """What the model lacks, from other systems (see ``sim.validation.residuals``)."""

    @cached_property
    def interval(self) -> tuple[float, float]:
        """Low and high end of the 90 % interval, tok/s."""
        return self.draws.interval(self.predicted, self.discrepancy_sd)

    @property
    def id(self) -> str:
        """The case's."""
        return self.question.case.id

    @property
    def kind(self) -> CaseKind:
        """Which of the case's measurements."""
        return self.question.kind

    @property
    def system(self) -> str:
        """Machine and engine."""
        return self.question.system

    @property
    def ground(self) -> Ground:
        """Whether anybody measured kernels of its GPU."""
        gpu = self.prediction.model.simulation.setup.machine.gpu
        return Ground.TABLES if tables.are_measured(gpu.measured_as) else Ground.ROOFLINE

    @property
    def measured(self) -> float:
        """Tokens per second of all requests."""
        return self.question.measured_tok_s

    @property
    def predicted(self) -> float:
        """Tokens per second of all requests."""
        return self.prediction.tok_s(self.question)

    @property
    def error(self) -> float:
        """Predicted over measured, less 1."""
        return self.predicted / self.measured - 1

    @property
    def log_error(self) -> float:
        """Logarithm of predicted over measured."""
        return math.log(self.predicted / self.measured)

    @property
    def is_inside(self) -> bool:
        """Whether the measurement lies in the interval."""
        return self.interval[0] <= self.measured <= self.interval[1]


class Skipped(NamedTuple):
    """A prediction that was not made."""

    id: str
    kind: CaseKind | None
    """None where the row asks for none."""
    reason: str


class Score(NamedTuple):
    """How good some rows are; fractions of 1."""

    rows: int
    mean_absolute_error: float
    median_absolute_error: float
    bias: float
    """Mean error."""
    inside: float
    """Share of rows whose measurement lies in the predicted 90 % interval."""


def score(rows: Sequence[Row]) -> Score | None:
    """The Score of *rows*; None where there are none."""
    if not rows:
        return None
    errors = np.array([row.error for row in rows])
    return Score(
        rows=len(rows),
        mean_absolute_error=float(np.abs(errors).mean()),
        median_absolute_error=float(np.median(np.abs(errors))),
        bias=float(errors.mean()),
        inside=float(np.mean([row.is_inside for row in rows])),
    )


class Sign(NamedTuple):
    """Whether speculation pays, as measured and as predicted."""

    id: str
    measured_gain: float
    """Speculative over baseline."""
    predicted_gain: float

    @property
    def is_right(self) -> bool:
        """Both faster, or both slower."""
        return (self.measured_gain > 1) == (self.predicted_gain > 1)


@dataclass(frozen=True)
class Validation:
    """Every row of a file: predicted, or skipped with the reason."""

    rows: tuple[Row, ...]
    """In the order of the file."""
    skipped: tuple[Skipped, ...]

    @property
    def systems(self) -> dict[str, list[Row]]:
        """Rows by system, sorted by its name."""
        found: dict[str, list[Row]] = {}
        for row in self.rows:
            found.setdefault(row.system, []).append(row)
        return dict(sorted(found.items()))

    @property
    def signs(self) -> list[Sign]:
        """Of the cases with both measurements."""
        plain = {row.id: row for row in self.rows if row.kind is CaseKind.BASELINE}
        pairs = [
            (plain[row.id], row) for row in self.rows if row.kind is CaseKind.SPECULATIVE and row.id in plain
        ]
        return [Sign(s.id, s.measured / b.measured, s.predicted / b.predicted) for b, s in pairs]

    def worst(self, count: int) -> list[Row]:
        """The *count* rows that are furthest off, as ratios."""
        return sorted(self.rows, key=lambda row: (-abs(row.log_error), row.id, row.kind))[:count]

"""Which component of a step is most likely at fault where a prediction is far off.

For every family of figures: by what factor it alone would have to be off for the prediction to meet the
measurement. The one for which that is least surprising, against the range it is stated with, is named if it
lies inside that range; else the largest component is, with the factor it would take.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from sim.families import Family
from sim.validation.uncertainty import log_sd
from sim.validation.verdicts import Row

LARGEST_FACTOR = 64.0
GRID = 129
TOLERANCE = 1e-5
"""Relative, of a step: durations are whole nanoseconds."""
RANGE_SIGMAS = 2.0
"""A stated range is +- two sigma (``hwmodels.entry.Figure.spread``)."""


class Suspect(NamedTuple):
    """One family of figures of a step."""

    family: Family
    seconds: float
    """Of one rank or the host in a step, before overlap."""
    factor: float | None
    """What it alone would have to be multiplied by; None where no factor closes the gap."""
    spread: float
    """Relative one-sigma uncertainty that its figures state."""

    @property
    def sigmas(self) -> float:
        """How surprising the factor would be."""
        if self.factor is None or self.spread == 0:
            return math.inf
        return abs(math.log(self.factor)) / float(log_sd(self.spread))

    @property
    def could_close_it(self) -> bool:
        """Whether the factor lies inside the stated range."""
        return self.sigmas <= RANGE_SIGMAS


class Blame(NamedTuple):
    """The suspects of a row, largest first, and the one most likely at fault."""

    suspects: tuple[Suspect, ...]
    most_likely: Suspect


def blame(row: Row) -> Blame:
    """The Blame for the error of *row*."""
    model = row.prediction.model
    before = float(model.step_s(np.ones((1, len(model.spreads))))[0])
    wanted = before * row.predicted / row.measured
    costs = model.costs()
    suspects = [
        Suspect(family, costs[family].seconds, _factor(row, index, wanted), costs[family].spread)
        for index, family in enumerate(model.families)
        if costs[family].seconds > 0
    ]
    suspects.sort(key=lambda suspect: (-suspect.seconds, suspect.family))
    able = [suspect for suspect in suspects if suspect.could_close_it]
    return Blame(tuple(suspects), min(able, key=lambda suspect: suspect.sigmas) if able else suspects[0])


def _factor(row: Row, family: int, wanted_s: float) -> float | None:
    """By how much *family* must be multiplied for a mean step of *wanted_s*; None where nothing does."""
    logs = np.linspace(-math.log(LARGEST_FACTOR), math.log(LARGEST_FACTOR), GRID)
    steps = row.prediction.model.scaled(family, np.exp(logs))
    if not steps[0] <= wanted_s <= steps[-1]:
        return None
    # A step never shortens as a figure grows, but what lies off the critical path may leave it as it is:
    # then many factors would do, and the one nearest to 1 counts.
    least, most = np.interp([wanted_s * (1 - TOLERANCE), wanted_s * (1 + TOLERANCE)], steps, logs)
    return math.exp(min(max(0.0, least), most))

"""How far two means of runs are apart, with an interval: paired by luck, or of independent runs."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sim.statistics import MIN_RUNS, half_width

Array = NDArray[np.float64]


class Pairing(Enum):
    """What runs of two scenarios with the same index have in common."""

    COMMON = "common"
    """Their luck: the same random numbers."""
    INDEPENDENT = "independent"
    """Nothing."""


class Certainty(NamedTuple):
    """How runs are compared, and how sure each interval is."""

    pairing: Pairing
    confidence: float

    def each_of(self, count: int) -> Certainty:
        """What each of *count* intervals needs so that all hold together (Bonferroni)."""
        return self._replace(confidence=1 - (1 - self.confidence) / max(1, count))


@dataclass(frozen=True, slots=True)
class Gap:
    """The mean of one side less the other's."""

    mean: float
    half_width: float | None
    """None where there are too few runs for an interval."""

    @property
    def distinguishable(self) -> bool:
        """Whether the interval leaves zero out."""
        return self.half_width is not None and abs(self.mean) > self.half_width


def gap(a: Array, b: Array, certainty: Certainty) -> Gap:
    """How far the mean of *b* (runs,) lies above that of *a* (runs,)."""
    difference = b - a
    if certainty.pairing is Pairing.COMMON:
        width = half_width(difference, certainty.confidence)
    else:
        width = _welch_half_width(a, b, certainty.confidence)
    return Gap(float(difference.mean()), width)


def _welch_half_width(a: Array, b: Array, confidence: float) -> float | None:
    """Of the difference of the means of independent runs whose variances may differ (Welch)."""
    counts = np.array([len(a), len(b)])
    if counts.min() < MIN_RUNS:
        return None
    parts = np.array([a.var(ddof=1), b.var(ddof=1)]) / counts
    if not parts.sum():
        return 0.0
    freedom = parts.sum() ** 2 / (parts**2 / (counts - 1)).sum()
    return float(stats.t.ppf((1 + confidence) / 2, freedom) * np.sqrt(parts.sum()))

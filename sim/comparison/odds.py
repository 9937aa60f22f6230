"""How often one side is faster than the other, and how many times as fast."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]
TIE = 1e-9
"""Throughputs closer than this, relative to one another, are the same: sums may differ in the last digits."""
QUANTILES = (0.05, 0.5, 0.95)


@dataclass(frozen=True, eq=False, kw_only=True)
class Odds:
    """B against A in *count* runs or draws."""

    count: int
    wins: int
    """In which B is faster."""
    ties: int
    faster_interval: tuple[float, float]
    """Of the chance that B is faster, as if runs or draws were independent; ties count for neither end."""
    ratios: Array
    """B's throughput over A's where both decode at all: (count,) or fewer."""

    @property
    def faster(self) -> float:
        """Share in which B is faster, ties as half."""
        return (self.wins + self.ties / 2) / self.count

    @property
    def stuck(self) -> int:
        """How many leave no room for a request on one side or both."""
        return self.count - len(self.ratios)

    @property
    def quantiles(self) -> tuple[float, float, float] | None:
        """P5, P50 and P95 of the ratio; None where one side never decodes."""
        if not len(self.ratios):
            return None
        low, middle, high = np.quantile(self.ratios, QUANTILES).tolist()
        return low, middle, high


def odds(a: Array, b: Array, confidence: float) -> Odds:
    """The Odds of throughputs *b* (count,) against *a* (count,), run by run or draw by draw."""
    ties = np.abs(b - a) <= TIE * np.maximum(a, b)
    wins, tied = int(((b > a) & ~ties).sum()), int(ties.sum())
    both = (a > 0) & (b > 0)
    return Odds(
        count=len(a),
        wins=wins,
        ties=tied,
        faster_interval=(_wilson(wins, len(a), confidence)[0], _wilson(wins + tied, len(a), confidence)[1]),
        ratios=b[both] / a[both],
    )


def _wilson(wins: int, count: int, confidence: float) -> tuple[float, float]:
    """Wilson's interval of a chance."""
    found = stats.binomtest(wins, count).proportion_ci(confidence, method="wilson")
    return float(found.low), float(found.high)

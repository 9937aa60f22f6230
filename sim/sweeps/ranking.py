"""Which cell is best, and which are not distinguishable from it.

Run i of every cell meets the same luck, so cells are compared by the differences of
their runs. Which cell is best is found in the same data, so the intervals hold for every
pair of cells at once (Bonferroni): with 95 % confidence no cell is wrongly called slower.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from scipy import stats

from sim.statistics import CONFIDENCE, MIN_RUNS


class Verdict(NamedTuple):
    """A cell beside the best one."""

    difference_tok_s: float
    """Mean over runs of the cell less the best."""
    half_width_tok_s: float | None
    """None where there are too few runs for an interval."""

    @property
    def distinguishable(self) -> bool:
        """True where the cell is surely slower than the best."""
        if self.half_width_tok_s is None:
            return False
        return self.difference_tok_s + self.half_width_tok_s < 0


class Ranking(NamedTuple):
    """The *best* cell's index, and every finished cell's verdict by index."""

    best: int
    verdicts: dict[int, Verdict]

    @property
    def not_distinguishable(self) -> list[int]:
        """Cells not distinguishable from the best, without itself."""
        return [i for i, v in self.verdicts.items() if i != self.best and not v.distinguishable]


def rank(throughput_tok_s: Mapping[int, Sequence[float]]) -> Ranking | None:
    """The Ranking of cells by their runs' throughput; None where no cell finished."""
    if not throughput_tok_s:
        return None
    runs = {index: np.asarray(values) for index, values in throughput_tok_s.items()}
    best = max(runs, key=lambda index: (float(runs[index].mean()), -index))
    pairs = max(1, len(runs) * (len(runs) - 1) // 2)
    verdicts = {index: _beside(values, runs[best], pairs) for index, values in runs.items()}
    return Ranking(best, verdicts)


def _beside(values: np.ndarray[tuple[int]], best: np.ndarray[tuple[int]], pairs: int) -> Verdict:
    """*values* less *best*, with an interval that holds for all *pairs* at once."""
    count = min(len(values), len(best))
    difference = values[:count] - best[:count]
    mean = float(difference.mean())
    if count < MIN_RUNS:
        return Verdict(mean, None)
    quantile = stats.t.ppf(1 - (1 - CONFIDENCE) / (2 * pairs), count - 1)
    return Verdict(mean, float(quantile * difference.std(ddof=1) / np.sqrt(count)))

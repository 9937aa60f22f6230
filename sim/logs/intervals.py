"""Intervals that hold for all quoted figures together, from how each unit of a log pulls at them.

A unit is a request, a block of steps, or a window. Units are drawn anew with replacement;
every figure moves by the mean of what its units contribute, and is divided by its own
standard error among the units drawn (bootstrap-t). The largest of these over all figures
has a 95 % quantile, and that many standard errors hold for all at once: no wider than
Bonferroni, for figures that move together. Each figure is judged on a scale on which it is
nearly symmetric. Rates get exact binomial bounds at the same level, for as many independent
steps as their standard error amounts to; so a rate of 0 or 1 has an interval too.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap, 12.5; Korn and Graubard,
Survey Methodology 24 (1998), for the bounds of rates.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sim.statistics import CONFIDENCE

Array = NDArray[np.float64]

MIN_UNITS = 8
"""Fewer units than this say nothing about how much they vary."""
MOST_UNITS = 500
"""More are summed in batches: means over so many are normal."""
FEW = 20
"""Steps; a rate that rests on fewer hits or misses is too lumpy to calibrate on."""
FLAT = 1e-12
"""Of a figure: a standard error below this is rounding, for its units are all alike."""
FARTHEST = 8.0
"""Standard errors; units that need more differ in so few places that they say nothing of their spread."""
SMALLEST_SHARE = 0.05
"""Of a variance's own size; a drawn one below it counts as that."""
LARGEST_CORRELATION = 0.995


class Scale(Enum):
    """The scale on which a figure's error is nearly symmetric."""

    PLAIN = "as it is"
    SHARE = "log-odds"
    VARIANCE = "log of the variance, noise included"
    CORRELATION = "Fisher's z"


class Interval(NamedTuple):
    """Both ends."""

    low: float
    high: float


@dataclass(frozen=True)
class Column:
    """A figure, and how each unit of the log pulls at it."""

    value: float
    pulls: Array
    """(units,) adding to 0; drawing a unit once more moves the figure by its entry."""
    scale: Scale
    steps: float = 0.0
    """What a share is a share of."""

    @property
    def error(self) -> float:
        """The standard error."""
        units = len(self.pulls)
        return float(np.sqrt(units / (units - 1) * np.sum(self.pulls**2)))

    @property
    def flat(self) -> bool:
        """Whether all units say the same."""
        return self.error <= FLAT * max(1.0, abs(self.value))


def together(columns: list[Column], draws: int, generator: np.random.Generator) -> list[Interval] | None:
    """An interval for each figure; all of them hold at once in 95 % of logs.

    None for too few units, or too few that differ: where all say the same of anything but a
    rate, nothing says how much others would.
    """
    units = len(columns[0].pulls)
    if units < MIN_UNITS:
        return None
    if any(column.flat for column in columns if column.scale is not Scale.SHARE):
        return None
    batches = [_batched(column) for column in columns]
    steady = [column for column in batches if _is_steady(column)]
    if steady:
        reach = float(np.quantile(_errors(steady, draws, generator), CONFIDENCE, method="higher"))
    else:
        reach = float(stats.norm.isf((1 - CONFIDENCE) / 2 / len(columns)))
    if reach > FARTHEST:
        return None
    return [_interval(column, reach) for column in batches]


def _batched(column: Column) -> Column:
    """The same figure with at most ``MOST_UNITS`` units."""
    units = len(column.pulls)
    if units <= MOST_UNITS:
        return column
    starts = np.linspace(0, units, MOST_UNITS, endpoint=False).astype(int)
    return Column(column.value, np.add.reduceat(column.pulls, starts), column.scale, column.steps)


def _errors(columns: list[Column], draws: int, generator: np.random.Generator) -> Array:
    """(draws,) the largest error over the figures, in standard errors of the draw itself."""
    pulls = np.column_stack([column.pulls for column in columns])
    units = len(pulls)
    times = generator.multinomial(units, np.full(units, 1 / units), size=draws)
    moved = times @ pulls
    squares = times @ pulls**2
    errors = np.sqrt(units / (units - 1) * np.maximum(squares - moved**2 / units, 0))
    found = [_standard_errors(column, moved[:, at], errors[:, at]) for at, column in enumerate(columns)]
    return np.asarray(np.max(np.abs(found), axis=0))


def _is_steady(column: Column) -> bool:
    if column.flat:
        return False
    hits = column.value * column.steps
    return column.scale is not Scale.SHARE or min(hits, column.steps - hits) >= FEW


def _standard_errors(column: Column, moved: Array, errors: Array) -> Array:
    """How far the drawn figures lie from the true one, on their scale, in their own standard errors."""
    there, slopes = _on_scale(column, column.value + moved)
    here, _ = _on_scale(column, np.array([column.value]))
    # A draw of units that are all alike says nothing of its error: it is infinitely far off.
    error = slopes * errors
    return np.asarray(np.divide(there - here, error, out=np.full(len(error), np.inf), where=error > 0))


def _on_scale(column: Column, values: Array) -> tuple[Array, Array]:
    """*values* on the scale of *column*, and how steep the scale is there."""
    match column.scale:
        case Scale.PLAIN:
            return values, np.ones_like(values)
        case Scale.SHARE:
            least = 0.5 / column.steps
            share = np.clip(values, least, 1 - least)
            return np.log(share / (1 - share)), 1 / (share * (1 - share))
        case Scale.VARIANCE:
            size = _size(column)
            variance = np.maximum(values - column.value + size, SMALLEST_SHARE * size)
            return np.log(variance), 1 / variance
        case Scale.CORRELATION:
            bounded = np.clip(values, -LARGEST_CORRELATION, LARGEST_CORRELATION)
            return np.arctanh(bounded), 1 / (1 - bounded**2)


def _size(column: Column) -> float:
    """The variance, noise included, that has this standard error: a mean of squares errs by sqrt(2 / n)."""
    return column.error * float(np.sqrt(len(column.pulls) / 2))


def _interval(column: Column, reach: float) -> Interval:
    """The values within *reach* standard errors."""
    if column.scale is Scale.SHARE:
        return _exact(column, reach)
    here, slope = _on_scale(column, np.array([column.value]))
    far = reach * float(slope[0]) * column.error
    ends = (float(here[0]) - far, float(here[0]) + far)
    return Interval(*(_from_scale(column, end) for end in ends))


def _from_scale(column: Column, value: float) -> float:
    match column.scale:
        case Scale.VARIANCE:
            return float(np.exp(value)) - _size(column) + column.value
        case Scale.CORRELATION:
            return float(np.tanh(value))
        case _:
            return value


def _exact(column: Column, reach: float) -> Interval:
    """Clopper and Pearson's bounds for the independent steps that the standard error amounts to."""
    share, steps = column.value, column.steps
    if not column.flat:
        steps = min(steps, share * (1 - share) / column.error**2)
    tail = stats.norm.sf(reach)
    hits = share * steps
    low = float(stats.beta.ppf(tail, hits, steps - hits + 1)) if share > 0 else 0.0
    high = float(stats.beta.isf(tail, hits + 1, steps - hits)) if share < 1 else 1.0
    return Interval(low, high)

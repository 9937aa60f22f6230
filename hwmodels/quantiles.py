"""Empirical quantile functions, and what lies quantile by quantile between them.

A quantile function is held as the means of ``LEVELS`` equally probable slices of the
samples: a uniform variate picks a slice, the mean of all slices is the mean of the samples,
and a weighted sum of two functions, slice by slice, is their quantile-wise interpolation.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

LEVELS = 1000
"""As many as a point has samples at most, so that the slowest one of them stays itself."""


@dataclass(frozen=True, eq=False)
class Quantiles:
    """The quantile function of some samples. Compared by identity."""

    seconds: Array
    """(LEVELS,) rising."""
    relative_error: float
    """Standard error of the samples' mean, or half of what passes differ by where that is more."""

    @classmethod
    def of(cls, samples: ArrayLike, relative_error: float = 0.0) -> Self:
        """The function of *samples* (seconds, in any order, at least one)."""
        ordered = np.sort(np.asarray(samples, dtype=float))
        summed = np.concatenate([[0.0], np.cumsum(ordered)]) / len(ordered)
        bounds = np.interp(np.linspace(0, 1, LEVELS + 1), np.linspace(0, 1, len(summed)), summed)
        # A slice inside one sample comes out by subtraction: not above its neighbours by rounding alone.
        return cls(np.maximum.accumulate(np.diff(bounds) * LEVELS), relative_error)

    @cached_property
    def mean(self) -> float:
        """The mean of the slices."""
        return float(self.seconds.mean())


class Blend(NamedTuple):
    """A weighted sum of quantile functions, slice by slice: what is drawn for one piece of work."""

    file: str
    """The measured file that has the samples."""
    parts: tuple[Quantiles, ...]
    weights: tuple[float, ...]
    """As many as parts; they add up to 1."""

    @property
    def seconds(self) -> Array:
        """(LEVELS,) rising."""
        return np.asarray(sum(w * part.seconds for w, part in zip(self.weights, self.parts, strict=True)))

    @property
    def mean(self) -> float:
        """The mean of what is drawn."""
        return sum(w * part.mean for w, part in zip(self.weights, self.parts, strict=True))

    @property
    def relative_error(self) -> float:
        """That of the least certain part."""
        return max(part.relative_error for part in self.parts)

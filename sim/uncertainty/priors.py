"""Distributions of one parameter, as quantile functions: a number in (0, 1) in, a value out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

Array = NDArray[np.float64]
Column = NDArray[Any]
"""Values of one parameter, one a draw: floats, or objects where they are choices."""
SIGMAS_OF_RANGE = 2.0
"""A range is read as so many standard deviations on either side."""
VALUES = 16
"""Of a distribution that is made coarse."""
FARTHEST = 1e-6
"""Quantiles are kept this far from 0 and 1: a draw lies within 4.8 standard deviations."""


class Prior(Protocol):
    """What is known of a parameter."""

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles* in [0, 1]; never falling in them where values are numbers."""


@dataclass(frozen=True)
class Uniform:
    """Anywhere between *low* and *high*."""

    low: float
    high: float

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        return self.low + (self.high - self.low) * quantiles


@dataclass(frozen=True)
class Normal:
    """Around *mean* with standard deviation *sd*."""

    mean: float
    sd: float

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        return self.mean + self.sd * normal_at(quantiles)


@dataclass(frozen=True)
class Lognormal:
    """Around *median*; *spread* is the relative standard deviation of a lognormal whose mean is 1."""

    median: float
    spread: float

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        return self.median * np.exp(log_sd(self.spread) * normal_at(quantiles))


@dataclass(frozen=True)
class Ranged:
    """As often below *value* as above it, never outside *low* to *high*, which lie two sigma away.

    Each side is half a normal distribution of its own, for a value need not lie in the middle
    of its range; what would lie outside (2.3 % on either side) lies at the ends.
    """

    value: float
    low: float
    high: float

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        sigmas = normal_at(quantiles) / SIGMAS_OF_RANGE
        width = np.where(sigmas < 0, self.value - self.low, self.high - self.value)
        return np.clip(self.value + sigmas * width, self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of *options*, equally likely, in their order."""

    options: tuple[Any, ...]

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        count = len(self.options)
        picked = np.minimum((quantiles * count).astype(int), count - 1)
        return np.asarray(objects(self.options)[picked])


@dataclass(frozen=True)
class Integers:
    """Any whole number from *low* to *high*, equally likely."""

    low: int
    high: int

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        steps = np.floor(quantiles * (self.high - self.low + 1))
        return np.asarray(np.minimum(self.low + steps, self.high))


@dataclass(frozen=True)
class Whole:
    """*prior* rounded to whole numbers."""

    prior: Prior

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        return np.rint(self.prior.at(quantiles))


@dataclass(frozen=True)
class Coarse:
    """*prior* at the middles of ``VALUES`` equally likely parts."""

    prior: Prior

    def at(self, quantiles: Array) -> Column:
        """The values at *quantiles*."""
        part = np.minimum(np.floor(quantiles * VALUES), VALUES - 1)
        return self.prior.at((part + 0.5) / VALUES)


def objects(values: Sequence[Any]) -> Column:
    """*values* as an array that keeps their types."""
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


def normal_at(quantiles: ArrayLike) -> Array:
    """Standard normal values at *quantiles*."""
    return np.asarray(special.ndtri(np.clip(quantiles, FARTHEST, 1 - FARTHEST)))


def log_sd(spread: ArrayLike) -> Array:
    """Standard deviation of the logarithm of a lognormal whose relative one is *spread*."""
    return np.asarray(np.sqrt(np.log1p(np.square(spread))))

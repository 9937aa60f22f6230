"""Multiplicative noise of executions: mean 1, a floor, a tail to the right.

No published fit of kernel time distributions exists; the shape is a choice. A
lognormal is shifted and scaled to mean 1 and the wanted deviation: times cluster just
above a minimum and stretch upwards. Single executions have log-deviation ``SHAPE``;
a sequence of them is a lognormal of smaller log-deviation, so that mean, deviation and
skewness are those of the sum.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array = NDArray[np.float64]

SHAPE = 0.5


def skewness(shape: ArrayLike) -> Array:
    """Skewness of a lognormal with log-deviation *shape*."""
    w = np.exp(np.square(shape))
    return np.asarray((w + 2) * np.sqrt(w - 1))


def log_deviation(skew: ArrayLike) -> Array:
    """The log-deviation of the lognormal with skewness *skew* > 0; the inverse of ``skewness``."""
    y = np.square(skew)
    root = np.sqrt(y + y**2 / 4)
    # The real root of w**3 + 3 w**2 - 4 = skew**2; what is below 1 + 1e-15 is rounding.
    w = np.cbrt(1 + y / 2 + root) + np.cbrt(1 + y / 2 - root) - 1
    return np.asarray(np.sqrt(np.log(np.maximum(w, 1 + 1e-15))))


class Factors(NamedTuple):
    """Noise factors ``floor + scale * exp(log_sd * z)`` of standard normals z."""

    log_sd: Array
    floor: Array
    scale: Array

    def of(self, normals: Array) -> Array:
        """The factors that *normals* give."""
        return np.asarray(self.floor + self.scale * np.exp(self.log_sd * normals))


def factors(cv: ArrayLike, log_sd: ArrayLike = SHAPE) -> Factors:
    """Factors of mean 1 and standard deviation *cv*, skewed as *log_sd* says.

    ValueError where a factor could be negative. Sums of single executions never are: by
    Cauchy-Schwarz their *cv* is small enough for the skewness they keep.
    """
    cv, log_sd = np.asarray(cv, dtype=float), np.asarray(log_sd, dtype=float)
    w = np.exp(np.square(log_sd))
    mean, sd = np.sqrt(w), np.sqrt((w - 1) * w)
    scale = cv / sd
    floor = 1.0 - scale * mean
    if not (np.all(cv >= 0) and np.all(floor >= -1e-9)):
        most = np.min(sd / mean)
        raise ValueError(f"cv must lie in [0, {most:.3f}] for this skewness, got {cv}")
    return Factors(log_sd, floor, scale)


MAX_CV = float(np.sqrt(np.exp(SHAPE**2) - 1))
"""The largest deviation for which no factor of shape ``SHAPE`` is negative (about 0.53)."""


def lognormal_factor(generator: np.random.Generator, shape: tuple[int, ...], cv: float) -> Array:
    """Factors of mean 1, standard deviation *cv* and minimum ``1 - cv / MAX_CV``.

    The same normals are consumed whatever *cv* is; ValueError outside [0, MAX_CV].
    """
    return factors(cv).of(generator.standard_normal(shape))

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
    """Noise factors ``floor + scale * exp(shape * z)`` of standard normals z."""

    shape: Array
    floor: Array
    scale: Array


def factors(cv: ArrayLike, shape: ArrayLike = SHAPE) -> Factors:
    """Factors of mean 1 and standard deviation *cv*, skewed as *shape* says.

    ValueError where a factor could be negative.
    """
    cv, shape = np.asarray(cv, dtype=float), np.asarray(shape, dtype=float)
    w = np.exp(np.square(shape))
    mean, sd = np.sqrt(w), np.sqrt((w - 1) * w)
    scale = cv / sd
    floor = 1.0 - scale * mean
    if not (np.all(cv >= 0) and np.all(floor >= -1e-9)):
        raise ValueError(f"cv must lie in [0, sd / mean of the lognormal] (at most {MAX_CV:.3f}), got {cv}")
    return Factors(shape, floor, scale)


MAX_CV = float(np.sqrt(np.exp(SHAPE**2) - 1))
"""The largest deviation for which no factor of shape ``SHAPE`` is negative (about 0.53)."""


def lognormal_factor(generator: np.random.Generator, shape: tuple[int, ...], cv: float) -> Array:
    """Factors of mean 1, standard deviation *cv* and minimum ``1 - cv / MAX_CV``.

    The same normals are consumed whatever *cv* is; ValueError outside [0, MAX_CV].
    """
    made = factors(cv)
    return np.asarray(made.floor + made.scale * np.exp(made.shape * generator.standard_normal(shape)))

"""Multiplicative noise of single executions: mean 1, a floor, a tail to the right.

No published fit of kernel time distributions exists; the shape is a choice. A
lognormal with log-deviation ``SHAPE`` is shifted and scaled to mean 1 and the
wanted deviation: times cluster just above a minimum and stretch upwards.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

SHAPE = 0.5
_MEAN = float(np.exp(SHAPE**2 / 2))
_SD = float(np.sqrt((np.exp(SHAPE**2) - 1) * np.exp(SHAPE**2)))
MAX_CV = _SD / _MEAN
"""The largest deviation for which no factor is negative (about 0.53)."""


def lognormal_factor(
    generator: np.random.Generator, shape: tuple[int, ...], cv: float
) -> NDArray[np.float64]:
    """Factors of mean 1, standard deviation *cv* and minimum ``1 - cv / MAX_CV``.

    The same normals are consumed whatever *cv* is; ValueError outside [0, MAX_CV].
    """
    if not 0 <= cv <= MAX_CV:
        raise ValueError(f"cv must lie in [0, {MAX_CV:.3f}], got {cv}")
    body = np.exp(SHAPE * generator.standard_normal(shape))
    return np.asarray(1.0 + cv * (body - _MEAN) / _SD)

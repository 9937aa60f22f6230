"""Fits to measured rows, with their residual error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import isotonic_regression, nnls

Array = NDArray[np.float64]

DYKSTRA_ROUNDS = 20
"""After these the largest remaining fall in the GEMM tables is below 0.2 %; ``envelope`` ends it."""


@dataclass(frozen=True, slots=True)
class AffineFit:
    """``intercept + slope * x`` and its largest relative residual over the fitted points."""

    intercept: float
    slope: float
    max_relative_error: float

    def __call__(self, x: float) -> float:
        """The line at *x*."""
        return self.intercept + self.slope * x


def affine_fit(x: Sequence[float], y: Sequence[float]) -> AffineFit:
    """Ordinary least squares line through the points; ValueError below three of them.

    Both coefficients are held at or above zero: a latency neither falls with work
    nor starts below nothing.
    """
    if len(x) < 3:
        raise ValueError(f"a line needs at least 3 points, got {len(x)}")
    design = np.column_stack([np.ones(len(x)), np.asarray(x, dtype=float)])
    (intercept, slope), _ = nnls(design, np.asarray(y, dtype=float))
    residual = np.abs(design @ [intercept, slope] / np.asarray(y) - 1)
    return AffineFit(float(intercept), float(slope), float(residual.max()))


def monotone(values: Array) -> Array:
    """The nearest array to *values* (> 0, any shape) that rises along every axis.

    *values* themselves where they already do.

    Joint isotonic regression of the logarithms by Dykstra's alternating projections
    (Boyle and Dykstra 1986), each projection pooling adjacent violators along one
    axis: unlike running maxima it neither follows outliers nor shifts the mean.
    """
    if all((np.diff(values, axis=axis) >= 0).all() for axis in range(values.ndim)):
        return values
    logs = np.log(values)
    corrections = [np.zeros_like(logs) for _ in range(logs.ndim)]
    for _ in range(DYKSTRA_ROUNDS):
        for axis, correction in enumerate(corrections):
            moved = logs + correction
            logs = np.apply_along_axis(_pool, axis, moved)
            corrections[axis] = moved - logs
    return envelope(np.exp(logs))


def _pool(line: Array) -> Array:
    return np.asarray(isotonic_regression(line).x)


def envelope(values: Array) -> Array:
    """The geometric middle of the largest minorant and smallest majorant that rise along every axis."""
    upper, lower = values.copy(), values.copy()
    for axis in range(values.ndim):
        upper = np.maximum.accumulate(upper, axis=axis)
        lower = np.flip(np.minimum.accumulate(np.flip(lower, axis), axis=axis), axis)
    return np.sqrt(upper * lower)

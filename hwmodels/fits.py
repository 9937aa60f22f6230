"""Fits to measured rows, with their residual error."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


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

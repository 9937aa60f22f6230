"""A drafter's accuracy from what its trees were seen to land.

One published point is enough: a mean fixes the log-odds (``sim.drafting``), the rates of a
chain fix every position, and a histogram of acceptance lengths fixes the curve over depth,
the spread of steps and the share of easy ones. All other trees are then predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from sim.ddtree import TreeSpec
from sim.drafting import tree_model
from sim.quality import DrafterQuality

Array = NDArray[np.float64]

STARTS = ((3.0, 0.7, 0.7, -4.0), (4.5, 1.7, 1.6, -3.0))
"""Where the search begins: log-odds, their fall with depth, their spread, log-odds of an easy step."""
NEVER = 1e-12
"""A length that the model holds impossible and that was seen costs as much as one this rare."""


def to_histogram(
    counts: Sequence[float], spec: TreeSpec, off_spine: float, request_sd: float = 0.0
) -> DrafterQuality:
    """The likeliest accuracy where the tree of *spec* landed length n (from 1) *counts*[n - 1] times.

    ValueError where the counts are not one for each length up to the cap.
    """
    seen = np.asarray(counts, dtype=float)
    if len(seen) != spec.cap or not seen.sum() > 0:
        raise ValueError(f"expected {spec.cap} counts, not all 0, got {list(counts)}")

    def quality(x: Array) -> DrafterQuality:
        logit, slope, spread, easy = x
        return DrafterQuality(logit, abs(slope), abs(spread), float(special.expit(easy)), off_spine)

    def cost(x: Array) -> float:
        shares = tree_model(quality(x), spec, request_sd).distribution()
        return float(-seen @ np.log(np.maximum(shares, NEVER)) / seen.sum())

    return quality(_least(cost, STARTS))


def _least(cost: Callable[[Array], float], starts: Sequence[Sequence[float]]) -> Array:
    """The best of simplex searches; trees change by whole nodes, so there are no gradients."""
    found = [
        optimize.minimize(
            cost,
            np.asarray(start, dtype=float),
            method="Nelder-Mead",
            options={"xatol": 1e-3, "fatol": 1e-7, "maxiter": 300},
        )
        for start in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x)

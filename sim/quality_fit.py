"""A drafter's accuracy from what its trees were seen to land.

One published point is enough: a mean fixes the log-odds (``sim.drafting``), the rates of a
chain fix every position, and a histogram of acceptance lengths fixes the curve over depth,
the spread of steps and the share of easy ones; so do means at several budgets, less surely.
All other trees are then predicted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from sim.acceptance import AcceptanceModel
from sim.ddtree import TreeSpec
from sim.drafting import tree_hazards
from sim.quality import DrafterQuality

Array = NDArray[np.float64]

STARTS = ((3.0, 0.7, 0.7, -4.0), (4.0, 1.3, 1.3, -3.0), (5.0, 1.9, 1.8, -3.0))
"""Where the search begins: log-odds, their fall with depth, their spread, log-odds of an easy step."""
FLAT_STARTS = tuple((logit, spread) for logit in (2.0, 2.7, 3.4) for spread in (0.3, 1.0, 2.0))
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
        shares = distribution(quality(x), spec, request_sd)
        return float(-seen @ np.log(np.maximum(shares, NEVER)) / seen.sum())

    return quality(_least(cost, STARTS))


def to_means(means: Mapping[TreeSpec, float], off_spine: float, stated_slope: float) -> DrafterQuality:
    """The accuracy, alike at every depth, whose trees land nearest to *means*; the worst of them counts."""

    def quality(x: Array) -> DrafterQuality:
        return DrafterQuality(x[0], step_sd=abs(x[1]), off_spine=off_spine, stated_slope=stated_slope)

    def cost(x: Array) -> float:
        errors = [(1 + quality(x).survival(spec).sum()) / mean - 1 for spec, mean in means.items()]
        return float(np.abs(errors).max())

    return quality(_least(cost, FLAT_STARTS))


def distribution(quality: DrafterQuality, spec: TreeSpec, request_sd: float = 0.0) -> Array:
    """(cap,) P(L = 1 ...) of the tree of *spec*, over requests and steps."""
    hazards = tree_hazards(quality, spec)[: spec.cap - 1]
    return AcceptanceModel(hazards, request_sd).distribution()


def _least(cost: Callable[[Array], float], starts: Sequence[Sequence[float]]) -> Array:
    """The best of simplex searches; trees change by whole nodes, so there are no gradients."""
    found = [
        optimize.minimize(
            cost,
            np.asarray(start, dtype=float),
            method="Nelder-Mead",
            options={"xatol": 1e-3, "fatol": 1e-7, "maxiter": 600},
        )
        for start in starts
    ]
    return np.asarray(min(found, key=lambda result: float(result.fun)).x)

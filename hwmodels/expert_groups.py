"""Expert parallelism: how many of the touched experts the busiest group of ranks holds."""

from __future__ import annotations

from functools import cache
from math import floor

import numpy as np
from numpy.typing import NDArray
from scipy import stats

Array = NDArray[np.float64]


def busiest_group(touched: float, experts: int, groups: int) -> float:
    """Expected experts touched in the busiest of *groups* equal groups, where *touched* of *experts* are.

    Any set of so many experts is equally likely: exact for whole numbers, linear in between.
    ValueError where the groups cannot be equal or *touched* is no number of experts.
    """
    if not (groups >= 1 and experts % groups == 0):
        raise ValueError(f"{experts} experts do not make {groups} equal groups")
    if not 0 <= touched <= experts:
        raise ValueError(f"touched must lie in [0, {experts}], got {touched}")
    if groups == 1:
        return touched
    low = floor(touched)
    below = _busiest(low, experts, groups)
    return below if low == touched else below + (touched - low) * (_busiest(low + 1, experts, groups) - below)


@cache
def _busiest(touched: int, experts: int, groups: int) -> float:
    """``sum over x of P(some group has more than x)``."""
    if touched in (0, experts):
        return touched / groups
    size = experts // groups
    one = stats.binom.pmf(np.arange(size + 1), size, touched / experts)
    of_all = stats.binom.pmf(touched, experts, touched / experts)
    return float(sum(1.0 - _all_within(one[: x + 1], groups, touched) / of_all for x in range(size)))


def _all_within(one: Array, groups: int, touched: int) -> float:
    """P(no group has more experts than *one* has entries, and all together have *touched*).

    *one* is binomial, as if experts were touched independently of one another; given their
    number, that is every set alike.
    """
    together = np.ones(1)
    for _ in range(groups):
        together = np.convolve(together, one)
    return float(together[touched]) if touched < len(together) else 0.0

"""Sums over the steps of a trace from which its moments, and their errors, follow.

A unit is a request, or a block of neighbouring steps where the log does not say which
request a step belongs to. Nothing here is a loop over steps.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.traces import Trace

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

MIN_REQUESTS = 8
"""Fewer do not tell how much requests differ."""
LEAST_BLOCK = 10
"""Steps; shorter blocks would cut what correlates."""


@dataclass(frozen=True)
class Steps:
    """The lengths of a trace, one after the other."""

    lengths: IntArray
    """(steps,)"""
    sizes: IntArray
    """(requests,) steps of each."""

    @property
    def starts(self) -> IntArray:
        """(requests,) where each begins."""
        return np.asarray(np.cumsum(self.sizes) - self.sizes)

    def follows(self, lag: int) -> NDArray[np.bool_]:
        """(steps - lag,) whether the step *lag* later is of the same request."""
        owner = np.repeat(np.arange(len(self.sizes)), self.sizes)
        return np.asarray(owner[lag:] == owner[: len(owner) - lag])


def steps_of(trace: Trace) -> Steps:
    """The steps of *trace*."""
    sizes = np.array([len(request) for request in trace.requests], dtype=np.int64)
    lengths = np.fromiter((n for request in trace.requests for n in request), np.int64, int(sizes.sum()))
    return Steps(lengths, sizes)


def tells_requests_apart(trace: Trace) -> bool:
    """Whether *trace* says how much requests differ: enough of them, with pairs of distant steps."""
    enough = trace.grouped and len(trace.requests) >= MIN_REQUESTS
    return enough and sum(len(request) > 2 for request in trace.requests) >= MIN_REQUESTS


class Products(NamedTuple):
    """Sums over some pairs of steps (s, t) of each unit."""

    product: Array
    """(units,) of L_s L_t."""
    linear: Array
    """(units,) of L_s + L_t."""
    pairs: Array
    """(units,) how many."""

    def about(self, mean: float) -> Array:
        """(units,) sums of (L_s - mean)(L_t - mean)."""
        return self.product - mean * self.linear + mean**2 * self.pairs

    def slope(self, mean: float) -> float:
        """What the mean of the products moves by as *mean* does."""
        return float((-self.linear.sum() + 2 * mean * self.pairs.sum()) / self.pairs.sum())


@dataclass(frozen=True)
class Sums:
    """What each unit adds."""

    steps: Array
    """(units,)"""
    total: Array
    """(units,) of L."""
    beyond: Array
    """(units, positions) steps with L > d, d = 1 ... positions."""
    near: Products
    """Neighbouring steps."""
    far: Products
    """All pairs of a request further apart; no pairs where units are not requests."""

    @property
    def mean(self) -> float:
        """The pooled mean length."""
        return float(self.total.sum() / self.steps.sum())

    @property
    def survival(self) -> Array:
        """(positions,) P(L > d) of the pooled steps."""
        return np.asarray(self.beyond.sum(axis=0) / self.steps.sum())

    def covariance(self, products: Products) -> float:
        """Mean of (L_s - E[L])(L_t - E[L]) over pairs, freed from the bias of the pooled mean.

        With delta the error of the pooled mean, products about it miss delta times what is
        linear in the pairs and gain delta^2; both are estimated from the units.
        """
        mean, units = self.mean, len(self.steps)
        off = self.total - self.steps * mean
        linear = products.linear - 2 * mean * products.pairs
        scale = units / (units - 1) / self.steps.sum() if units > 1 else 0.0
        shared = scale * float(off @ linear)
        squared = scale * float(off @ off) / self.steps.sum() * float(products.pairs.sum())
        return float((products.about(mean).sum() + shared - squared) / products.pairs.sum())


def sums_by_request(steps: Steps, positions: int) -> Sums:
    """The Sums with requests as units."""
    found = _sums(steps, steps.starts, positions)
    size = found.steps
    squares = np.add.reduceat(steps.lengths.astype(float) ** 2, steps.starts)
    far = Products(
        (found.total**2 - squares) / 2 - found.near.product,
        (size - 1) * found.total - found.near.linear,
        (size - 1) * (size - 2) / 2,
    )
    return Sums(found.steps, found.total, found.beyond, found.near, far)


def sums_by_block(steps: Steps, positions: int) -> Sums:
    """The Sums with blocks of neighbouring steps as units; a pair counts where it begins."""
    return _sums(steps, _block_starts(steps), positions)


def _block_starts(steps: Steps) -> IntArray:
    """Where blocks begin: about as many as steps in each, none across requests."""
    longest = max(LEAST_BLOCK, int(np.ceil(np.sqrt(steps.sizes.sum()))))
    starts = [
        start + np.arange(0, max(1, size - longest + 1), longest)
        for start, size in zip(steps.starts.tolist(), steps.sizes.tolist(), strict=True)
    ]
    return np.concatenate(starts)


def _sums(steps: Steps, starts: IntArray, positions: int) -> Sums:
    lengths = steps.lengths.astype(float)
    follows = np.append(steps.follows(1), False)
    following = np.append(lengths[1:], 0.0) * follows
    near = Products(
        np.add.reduceat(lengths * following, starts),
        np.add.reduceat(lengths * follows + following, starts),
        np.add.reduceat(follows.astype(float), starts),
    )
    beyond = [np.add.reduceat((lengths > depth).astype(float), starts) for depth in range(1, positions + 1)]
    size = np.diff(np.append(starts, len(lengths))).astype(float)
    none = np.zeros(len(starts))
    return Sums(
        size,
        np.add.reduceat(lengths, starts),
        np.stack(beyond, axis=1) if beyond else np.empty((len(starts), 0)),
        near,
        Products(none, none, none),
    )

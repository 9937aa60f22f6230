"""Sums over the steps of a trace from which its moments, and their errors, follow.

A unit is a request, or a block of neighbouring steps where the log does not say which
request a step belongs to. Requests count the same however many steps they took: a mean
length is one over requests, and in a log of equal outputs slow requests have more steps.
Nothing here is a loop over steps.

Of requests that stop at an output, the step that reaches it is longer than most (the
inspection paradox; Feller, An Introduction to Probability Theory II, XI.4). Given their
number, the steps before it are exchangeable where steps are independent, so that means
over them have no bias.
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
FAR_LESS = 0.5
"""Tokens of requests that vary less than this share of what steps vary are one output."""


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


def by_request(trace: Trace) -> bool:
    """Whether requests are the units of *trace*: they are given, and there are enough."""
    return trace.grouped and len(trace.requests) >= MIN_REQUESTS


def same_output(steps: Steps) -> bool:
    """Whether requests stopped at one output: their tokens vary far less than their steps."""
    tokens = np.add.reduceat(steps.lengths, steps.starts)
    several = int(tokens.min()) > int(steps.lengths.max())
    return bool(several and _relative_sd(tokens) < FAR_LESS * _relative_sd(steps.sizes))


def _relative_sd(values: IntArray) -> float:
    return float(values.std() / values.mean())


def without_last(steps: Steps) -> Steps:
    """*steps* without the last of each request, all of which have two or more."""
    kept = np.ones(len(steps.lengths), dtype=bool)
    kept[steps.starts + steps.sizes - 1] = False
    return Steps(steps.lengths[kept], steps.sizes - 1)


def counted_steps(trace: Trace) -> tuple[Steps, bool]:
    """The steps that estimates rest on, and whether the last of each request is left out."""
    steps = steps_of(trace)
    stopped = by_request(trace) and same_output(steps)
    return (without_last(steps) if stopped else steps), stopped


class Products(NamedTuple):
    """Weighted sums over some pairs of steps (s, t) of each unit."""

    product: Array
    """(units,) of L_s L_t."""
    linear: Array
    """(units,) of L_s + L_t."""
    pairs: Array
    """(units,) weight of all pairs together."""

    def about(self, mean: float) -> Array:
        """(units,) sums of (L_s - mean)(L_t - mean)."""
        return self.product - mean * self.linear + mean**2 * self.pairs

    def slope(self, mean: float) -> float:
        """What the mean of the products moves by as *mean* does."""
        return float((-self.linear.sum() + 2 * mean * self.pairs.sum()) / self.pairs.sum())

    def averaged(self) -> Products:
        """The means over the pairs of each unit; a unit without pairs stays without."""
        share = np.divide(1.0, self.pairs, out=np.zeros_like(self.pairs), where=self.pairs > 0)
        return Products(self.product * share, self.linear * share, self.pairs * share)


@dataclass(frozen=True)
class Sums:
    """What each unit adds, and how much it counts."""

    weight: Array
    """(units,) steps of a block, 1 of a request."""
    total: Array
    """(units,) weighted sum of L."""
    beyond: Array
    """(units, positions) weight of steps with L > d, d = 1 ... positions."""
    near: Products
    """Neighbouring steps."""
    far: Products
    """All pairs of a request further apart; no pairs where units are not requests."""
    steps: float
    """Steps of equal weight that would be as sure: Kish's effective number."""

    @property
    def mean(self) -> float:
        """The mean length."""
        return float(self.total.sum() / self.weight.sum())

    @property
    def survival(self) -> Array:
        """(positions,) P(L > d)."""
        return np.asarray(self.beyond.sum(axis=0) / self.weight.sum())

    @property
    def tells_requests_apart(self) -> bool:
        """Whether this says how much requests differ: enough of them have pairs of distant steps."""
        return int(np.count_nonzero(self.far.pairs)) >= MIN_REQUESTS

    def covariance(self, products: Products) -> float:
        """Mean of (L_s - E[L])(L_t - E[L]) over pairs, freed from the bias of the mean.

        With delta the error of the mean, products about it miss delta times what is
        linear in the pairs and gain delta^2; both are estimated from the units.
        """
        mean, units = self.mean, len(self.weight)
        off = self.total - self.weight * mean
        linear = products.linear - 2 * mean * products.pairs
        scale = units / (units - 1) / self.weight.sum() if units > 1 else 0.0
        shared = scale * float(off @ linear)
        squared = scale * float(off @ off) / self.weight.sum() * float(products.pairs.sum())
        return float((products.about(mean).sum() + shared - squared) / products.pairs.sum())


def sums_by_request(steps: Steps, positions: int) -> Sums:
    """The Sums with requests as units, each of which counts 1: its sums are its means."""
    found = _sums(steps, steps.starts, positions)
    size = found.weight
    squares = np.add.reduceat(steps.lengths.astype(float) ** 2, steps.starts)
    far = Products(
        (found.total**2 - squares) / 2 - found.near.product,
        (size - 1) * found.total - found.near.linear,
        (size - 1) * (size - 2) / 2,
    )
    return Sums(
        np.ones_like(size),
        found.total / size,
        found.beyond / size[:, None],
        found.near.averaged(),
        far.averaged(),
        float(len(size) ** 2 / np.sum(1 / size)),
    )


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
        float(len(lengths)),
    )

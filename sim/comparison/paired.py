"""The runs of a scenario B against those of A: quantities, verdict, and where the difference arises.

A run's throughput is requests times acceptance length over step time, all means over its own steps. So
the logarithm of B's throughput over A's is, run by run and on average, the sum of three: of requests, of
acceptance length, and less that of step time. The last is shared out over the components of the critical
path in proportion to their differences: a component that takes d ms longer adds d / (logarithmic mean of
the two step times). Everything adds up, whatever cancels, and swapping A and B changes signs alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import exp, log

import numpy as np

from sim.comparison.intervals import Array, Certainty, Gap, gap
from sim.comparison.odds import Odds, odds
from sim.comparison.runs import Runs
from sim.graph import Component

MARGIN = 0.01
"""A change of throughput below it hardly matters, however sure."""


class Verdict(Enum):
    """What the runs say of B's throughput beside A's."""

    IDENTICAL = "identical"
    UNDECIDED = "undecided"
    """Too few runs for an interval."""
    NOT_DISTINGUISHABLE = "not distinguishable"
    BARELY_SLOWER = "distinguishable, slower by less than 1 %"
    BARELY_FASTER = "distinguishable, faster by less than 1 %"
    SLOWER = "slower"
    FASTER = "faster"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A mean over runs on both sides."""

    a: float
    b: float
    difference: Gap
    log_ratio: Gap
    """Of the runs' logarithms."""

    @property
    def ratio(self) -> float:
        """B over A: the geometric mean of the runs' ratios."""
        return exp(self.log_ratio.mean)

    @property
    def ratio_interval(self) -> tuple[float, float] | None:
        """Of the ratio; None where there are too few runs."""
        mean, width = self.log_ratio.mean, self.log_ratio.half_width
        return None if width is None else (exp(mean - width), exp(mean + width))


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A component's share of the difference."""

    component: Component
    a_ms: float
    b_ms: float
    difference_ms: Gap
    """On the critical path of a mean step; the parts add up to the difference of step times."""
    log_factor: float
    """What it does to throughput; with those of length and requests they add up to the log-ratio."""

    @property
    def factor(self) -> float:
        """How many times as much throughput."""
        return exp(self.log_factor)


@dataclass(frozen=True, eq=False, kw_only=True)
class Pair:
    """The runs of B against those of A."""

    certainty: Certainty
    throughput_tok_s: Quantity
    step_time_ms: Quantity
    acceptance_length: Quantity
    requests: tuple[int, int]
    """Decoded in lock-step, by A and by B."""
    parts: tuple[Part, ...]
    """Of every component that either has, the largest difference first."""
    identical: bool
    """The same nanoseconds in every run."""
    luck: Odds
    """Run by run."""
    correlation: float | None
    """Of throughput over the runs' index; None where one side does not vary."""

    @property
    def verdict(self) -> Verdict:
        """What the interval of the throughputs' ratio says."""
        found = self.throughput_tok_s.log_ratio
        if self.identical:
            return Verdict.IDENTICAL
        if found.half_width is None:
            return Verdict.UNDECIDED
        if not found.distinguishable:
            return Verdict.NOT_DISTINGUISHABLE
        barely = abs(self.throughput_tok_s.ratio - 1) < MARGIN
        if found.mean > 0:
            return Verdict.BARELY_FASTER if barely else Verdict.FASTER
        return Verdict.BARELY_SLOWER if barely else Verdict.SLOWER

    @property
    def log_requests(self) -> float:
        """What another number of requests does to throughput."""
        a, b = self.requests
        return log(b / a)


def pair(a: Runs, b: Runs, certainty: Certainty) -> Pair:
    """*b* against *a*, which has as many runs; each of its intervals as sure as *certainty* says.

    Those of the components hold together. ValueError where one side has more runs.
    """
    if len(a.results) != len(b.results):
        raise ValueError(f"{len(a.results)} runs cannot be paired with {len(b.results)}")
    return Pair(
        certainty=certainty,
        throughput_tok_s=_quantity(a.tok_s, b.tok_s, certainty),
        step_time_ms=_quantity(a.step_ms, b.step_ms, certainty),
        acceptance_length=_quantity(a.length, b.length, certainty),
        requests=(a.requests, b.requests),
        parts=_parts(a, b, certainty),
        identical=a.same_as(b),
        luck=odds(a.tok_s, b.tok_s, certainty.confidence),
        correlation=_correlation(a.tok_s, b.tok_s),
    )


def _quantity(a: Array, b: Array, certainty: Certainty) -> Quantity:
    return Quantity(
        a=float(a.mean()),
        b=float(b.mean()),
        difference=gap(a, b, certainty),
        log_ratio=gap(np.log(a), np.log(b), certainty),
    )


def _parts(a: Runs, b: Runs, certainty: Certainty) -> tuple[Part, ...]:
    a_ms, b_ms = a.component_ms, b.component_ms
    factors = -((b_ms - a_ms) / logarithmic_mean(a.step_ms, b.step_ms)[:, None]).mean(axis=0)
    met = [i for i in range(len(Component)) if a_ms[:, i].any() or b_ms[:, i].any()]
    each, components = certainty.each_of(len(met)), tuple(Component)
    found = [
        Part(
            component=components[i],
            a_ms=float(a_ms[:, i].mean()),
            b_ms=float(b_ms[:, i].mean()),
            difference_ms=gap(a_ms[:, i], b_ms[:, i], each),
            log_factor=float(factors[i]),
        )
        for i in met
    ]
    return tuple(sorted(found, key=lambda part: (-abs(part.difference_ms.mean), -part.a_ms)))


def logarithmic_mean(a: Array, b: Array) -> Array:
    """(b - a) / log(b / a), and a where the two are the same."""
    low, apart = np.minimum(a, b), np.abs(b - a)
    return np.divide(apart, np.log1p(apart / low), out=low.copy(), where=apart > 0)


def _correlation(a: Array, b: Array) -> float | None:
    if len(a) < 2 or not a.std() or not b.std():
        return None
    return float(np.corrcoef(a, b)[0, 1])

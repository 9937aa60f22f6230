"""What measurements have taught: each unknown before and after, and the combinations that stay possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim.calibration.inference import ImportanceSample, Normal, effective_sample_size, quantiles
from sim.calibration.joint import Unknowns
from sim.uncertainty.parameters import Parameter
from sim.uncertainty.priors import Choice

Array = NDArray[np.float64]
LEVELS = np.array([0.05, 0.5, 0.95])
MOVED, NARROWED = 0.2, 0.95
"""An unknown has been learnt of where its middle moved by so many prior standard deviations, or its own fell
to so much of the prior's; and a measurement sees it."""
BEYOND_NOISE = 3.0
"""Both by at least so many standard errors of the draws."""
TIED = 0.15
"""Correlations from which two unknowns are shown as tied."""
MOST_TIES = 6
DECIDED = 0.9
"""A combination is decided where its standard deviation fell to so much of the prior's."""
MOST_PARTS, LEAST_PART = 5, 0.04
"""Of a combination: its largest parts, and the least share that is one."""


class Quantiles(NamedTuple):
    """P5, P50 and P95."""

    p5: Any
    p50: Any
    p95: Any

    @property
    def ends(self) -> tuple[Any, Any]:
        """Of the 90 % interval."""
        return self.p5, self.p95


@dataclass(frozen=True)
class Learnt:
    """One unknown before and after, in its own unit."""

    unknown: Parameter
    before: Quantiles
    after: Quantiles
    moved: float
    """Of its middle, in prior standard deviations."""
    narrowed: float
    """Its standard deviation over the prior's."""
    is_news: bool
    """False where it is known no better than before."""


@dataclass(frozen=True)
class Part:
    """An unknown's part in a combination."""

    unknown: Parameter
    share: float
    """Of the combination's variance before; shares add up to 1."""
    rises: bool
    """Whether it rises as the combination does."""


@dataclass(frozen=True)
class Combination:
    """A sum of unknowns, each in its prior standard deviations, that measurements decide."""

    narrowed: float
    """Its standard deviation over the prior's."""
    parts: tuple[Part, ...]
    """The largest first."""


@dataclass(frozen=True)
class Tie:
    """Two unknowns of which one says what the other may be."""

    first: Parameter
    second: Parameter
    correlation: float
    ends: tuple[tuple[Any, Any], tuple[Any, Any]]
    """Values of the first at its P5 and P95, and the second's middle there."""


def each(sample: ImportanceSample, unknowns: Unknowns) -> tuple[Learnt, ...]:
    """Every unknown, what was learnt most of first."""
    weights, seen = sample.weights(), np.any(sample.near.slopes != 0, axis=0)
    noise = BEYOND_NOISE / sqrt(effective_sample_size(weights))
    columns = zip(unknowns.items, sample.values.T, seen.tolist(), strict=True)
    found = [_learnt(item, values, weights, noise if met else None) for item, values, met in columns]
    return tuple(sorted(found, key=lambda one: one.narrowed - abs(one.moved)))


def _learnt(unknown: Parameter, values: Array, weights: Array, noise: float | None) -> Learnt:
    """What *values* (draws,) with *weights* say of *unknown*, beyond *noise*; None where nothing met it."""
    mean = float(weights @ values)
    sd = sqrt(float(weights @ (values - mean) ** 2))
    return Learnt(
        unknown=unknown,
        before=_quantiles(unknown, LEVELS),
        after=_quantiles(unknown, special.ndtr(quantiles(values, weights, LEVELS))),
        moved=mean,
        narrowed=sd,
        is_news=noise is not None and _is_news(mean, sd, noise),
    )


def _is_news(mean: float, sd: float, noise: float) -> bool:
    """Whether a middle has moved, or a spread fallen, by more than the *noise* of the draws."""
    return abs(mean) >= max(MOVED, noise) or sd <= 1 - max(1 - NARROWED, noise / sqrt(2))


def _quantiles(unknown: Parameter, levels: Array) -> Quantiles:
    """Values at *levels*; of a choice whichever stands there."""
    return Quantiles(*unknown.prior.at(levels).tolist())


def decided(sample: ImportanceSample, unknowns: Unknowns) -> tuple[Combination, ...]:
    """The combinations that the measurements decide, the best known first.

    Directions of the linearised model, in units of the measurements' errors: what is not among them stays as
    unknown as it was.
    """
    scaled = sample.near.slopes / sample.evidence.sds[:, None]
    _, strengths, directions = np.linalg.svd(scaled, full_matrices=False)
    left = 1 / np.sqrt(1 + strengths**2)
    pairs = zip(left.tolist(), directions, strict=True)
    return tuple(Combination(sd, _parts(way, unknowns)) for sd, way in pairs if sd <= DECIDED)


def _parts(direction: Array, unknowns: Unknowns) -> tuple[Part, ...]:
    order = np.argsort(-np.abs(direction))[:MOST_PARTS]
    found = [
        Part(unknowns.items[at], float(direction[at] ** 2), bool(direction[at] * direction[order[0]] > 0))
        for at in order.tolist()
    ]
    return tuple(part for part in found if part.share >= LEAST_PART)


def ties(posterior: Normal, unknowns: Unknowns, news: tuple[Learnt, ...]) -> tuple[Tie, ...]:
    """Pairs that only together have to make up what was measured, the closest first."""
    learnt = {one.unknown.identity for one in news if one.is_news}
    places = [at for at, item in enumerate(unknowns.items) if item.identity in learnt]
    found = sorted(_tied(posterior, unknowns, places), key=lambda tie: -abs(tie.correlation))
    return tuple(found[:MOST_TIES])


def _tied(posterior: Normal, unknowns: Unknowns, places: list[int]) -> Iterator[Tie]:
    sds = np.sqrt(np.diag(posterior.covariance))
    for a, b in combinations(places, 2):
        correlation = float(posterior.covariance[a, b] / (sds[a] * sds[b]))
        first, second = unknowns.items[a], unknowns.items[b]
        if abs(correlation) < TIED or isinstance(first.prior, Choice) or isinstance(second.prior, Choice):
            continue
        reach = special.ndtri(LEVELS[[0, -1]])
        own = special.ndtr(posterior.mean[a] + sds[a] * reach)
        other = special.ndtr(posterior.mean[b] + sds[b] * correlation * reach)
        pairs = zip(first.prior.at(own).tolist(), second.prior.at(other).tolist(), strict=True)
        low, high = pairs
        yield Tie(first, second, correlation, (low, high))

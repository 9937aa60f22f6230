"""What a calibration changes in a prediction, and what decides what is still open."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.calibration.inference import ImportanceSample, Normal, linearised, quantiles
from sim.calibration.joint import ForwardModel, Unknowns
from sim.calibration.observed import Predicted
from sim.graph import Component
from sim.scenario import Anchor
from sim.uncertainty.keys import Where
from sim.uncertainty.parameters import Parameter

Array = NDArray[np.float64]
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])


@dataclass(frozen=True)
class Interval:
    """Quantiles of mean throughput, tok/s: the 50 % and the 90 % interval around the median."""

    p5: float
    p25: float
    p50: float
    p75: float
    p95: float

    @classmethod
    def of(cls, tok_s: Array, weights: Array) -> Interval:
        """Of draws with *weights*."""
        return cls(*quantiles(tok_s, weights, LEVELS).tolist())

    @property
    def half(self) -> tuple[float, float]:
        """The 50 % interval."""
        return self.p25, self.p75

    @property
    def most(self) -> tuple[float, float]:
        """The 90 % interval."""
        return self.p5, self.p95


@dataclass(frozen=True)
class Claim:
    """A published figure or range, beside the draws."""

    anchor: Anchor
    ends: tuple[float, float]
    """Tok/s; the same twice where it is a figure."""
    below: float
    """Share of draws below it."""
    inside: float
    """In it."""
    above: float


@dataclass(frozen=True)
class VarianceShare:
    """What one unknown holds of the variance that is left."""

    unknown: Parameter
    share: float
    """Of the variance of log tok/s; shares add up to 1, and one may be negative where unknowns offset."""


@dataclass(frozen=True)
class Forecast:
    """One scenario before and after."""

    name: str
    predicted: Predicted
    before: Interval
    after: Interval
    claim: Claim | None
    largest: tuple[Component, float]
    """The component that holds the step up most, and its share."""
    open: tuple[VarianceShare, ...]
    """The largest share first."""

    @property
    def discrepancy(self) -> float:
        """Share of what is open that no figure stands for: what the model lacks."""
        return sum(one.share for one in self.open if one.unknown.where is Where.DISCREPANCY)

    @property
    def decides(self) -> VarianceShare | None:
        """The modelled unknown that holds most of what is open; None where nothing does."""
        return next((one for one in self.open if one.unknown.where is not Where.DISCREPANCY), None)


def forecast(
    forward: ForwardModel, found: ImportanceSample, unknowns: Unknowns, advance: Callable[[], None]
) -> Forecast:
    """The Forecast of *forward* by the draws that were *found*."""
    predicted, weights = forward.predicted, found.weights()
    tok_s = np.exp(forward.logs(found.values, unknowns, advance))
    components, step_s = predicted.prediction.components, predicted.prediction.step_s
    largest = max(components, key=components.__getitem__)
    anchor = predicted.setup.scenario.anchor
    return Forecast(
        name=predicted.name,
        predicted=predicted,
        before=Interval.of(tok_s, found.prior_weights),
        after=Interval.of(tok_s, weights),
        claim=None if anchor is None else claim(anchor, tok_s, weights),
        largest=(largest, components[largest] / step_s),
        open=still_open(forward, found.posterior, unknowns, advance),
    )


def claim(anchor: Anchor, tok_s: Array, weights: Array) -> Claim:
    """*anchor* beside draws of *tok_s* with *weights*."""
    low, high = anchor.tok_s_range or (anchor.published_tok_s, anchor.published_tok_s)
    below, above = tok_s < low, tok_s > high
    shares = (float(weights @ where) for where in (below, ~(below | above), above))
    return Claim(anchor, (low, high), *shares)


def still_open(
    forward: ForwardModel, posterior: Normal, unknowns: Unknowns, advance: Callable[[], None]
) -> tuple[VarianceShare, ...]:
    """What holds the variance of log tok/s that is left, linearised in the middle of the posterior.

    An unknown's share is the covariance of its part with the whole.
    """

    def model(normals: Array) -> Array:
        return forward.logs(normals, unknowns, advance)[:, None]

    slopes = linearised(model, posterior.mean).slopes[0]
    parts = slopes * (posterior.covariance @ slopes)
    whole = float(parts.sum())
    shares = (parts / whole).tolist() if whole else parts.tolist()
    found = [VarianceShare(item, share) for item, share in zip(unknowns.items, shares, strict=True) if share]
    return tuple(sorted(found, key=lambda one: -one.share))

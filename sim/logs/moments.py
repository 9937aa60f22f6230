"""What request_sd and step_correlation do to pairs of steps, in closed form, and back.

Given the offset u of its request, a length is a falling step function of the standard
normal latent: L = 1 + the number of thresholds a_d below z, with P(z > a_d) = P(L > d | u).
Two steps k apart have latents of correlation rho^k, so by Mehler's formula

    Cov(L_t, L_t+k | u) = sum over j of rho^(jk) c_j(u)^2 / j!,
    c_j(u) = sum over d of phi(a_d) He_{j-1}(a_d),

with He the probabilists' Hermite polynomials. Over requests Var(E[L | u]) is added, whatever
the lag. Lag 1 and all longer lags together are two equations for the two parameters.

Source: F. G. Mehler 1866; the thresholds are those of ``sim.acceptance``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from sim.acceptance import AcceptanceModel, request_quadrature, solve_constant_hazard

Array = NDArray[np.float64]

TERMS = 48
"""Terms of the series; what is left of the variance counts as one more."""
FAR_THRESHOLD = 30.0
"""Standard deviations; a threshold beyond this is never met."""
MOST_SD = 5.0
"""The largest request_sd of a scenario."""
MOST_CORRELATION = 0.99
MOST_LAGS = 4096
"""Longer lags carry no correlation below ``MOST_CORRELATION``."""
LARGEST_LOGIT = 40.0

Hazards = Callable[[Array, float], Array]
"""Log-odds of the hazards (positions,) that give a survival (positions,) at a request_sd."""


def hazards_per_position(survival: Array, request_sd: float) -> Array:
    """(positions,) log-odds whose mean survival over requests is *survival* exactly."""
    offsets, weights = request_quadrature(request_sd)
    logits = np.empty(len(survival))
    reached, before = weights.copy(), 1.0
    for at, rate in enumerate(survival):
        logits[at] = _logit_between(reached, offsets, float(rate), before)
        reached = reached * special.expit(logits[at] + offsets)
        before = float(rate)
    return logits


def _logit_between(reached: Array, offsets: Array, rate: float, before: float) -> float:
    """The log-odds that take a survival of *before* to *rate*; a position never reached gets no chance."""
    if rate <= 0:
        return -np.inf
    if rate >= before:
        return np.inf

    def excess(logit: float) -> float:
        return float(reached @ special.expit(logit + offsets)) - rate

    return float(optimize.brentq(excess, -LARGEST_LOGIT, LARGEST_LOGIT, xtol=1e-10))


def one_hazard(survival: Array, request_sd: float) -> Array:
    """(positions,) the same log-odds everywhere, with the mean length of *survival*."""
    cap = len(survival) + 1
    mean = min(1.0 + float(np.sum(survival)), float(cap))
    return np.full(cap - 1, special.logit(solve_constant_hazard(mean, cap, request_sd)))


class Spread(NamedTuple):
    """Where the variance of a length comes from."""

    between: float
    """Variance over requests of E[L | request]."""
    waves: Array
    """(TERMS + 1,) c_j^2 / j!, mean over requests; they add to the variance within a request."""

    def at_lag(self, correlation: float) -> float:
        """Covariance within a request of lengths whose latents have this correlation."""
        return float(self.waves @ correlation ** np.arange(1, TERMS + 2))


def spread(logits: Array, request_sd: float) -> Spread:
    """The Spread of the model with these log-odds (positions,)."""
    offsets, weights = request_quadrature(request_sd)
    survival = np.asarray(np.cumprod(special.expit(logits[None, :] + offsets[:, None]), axis=1))
    means = survival.sum(axis=1)
    between = float(weights @ means**2 - (weights @ means) ** 2)
    waves = np.asarray(weights @ _coefficients(survival) ** 2)
    depths = np.arange(len(logits))
    within = float(weights @ ((2 * depths + 1) * survival).sum(axis=1) - weights @ means**2)
    return Spread(between, np.append(waves, max(0.0, within - float(waves.sum()))))


def _coefficients(survival: Array) -> Array:
    """(requests, TERMS) c_j / sqrt(j!) for survivals (requests, positions)."""
    thresholds = np.clip(-special.ndtri(survival), -FAR_THRESHOLD, FAR_THRESHOLD)
    density = np.exp(-(thresholds**2) / 2) / np.sqrt(2 * np.pi)
    found = np.empty((len(survival), TERMS))
    # Polynomials over the root of the factorial, which keeps them small.
    last, now = np.zeros_like(thresholds), np.ones_like(thresholds)
    for order in range(1, TERMS + 1):
        found[:, order - 1] = (density * now).sum(axis=1) / np.sqrt(order)
        last, now = now, (thresholds * now - np.sqrt(order - 1) * last) / np.sqrt(order)
    return found


@dataclass(frozen=True)
class PairCounts:
    """How far apart the pairs of steps of one request are; every request counts the same."""

    lengths: tuple[int, ...]
    """Steps of each request."""

    @cached_property
    def shares(self) -> Array:
        """(lags,) shares of the pairs 2, 3, ... steps apart, up to ``MOST_LAGS``.

        The mean of these shares over all requests that have such pairs.
        """
        lengths = np.sort(np.array(self.lengths, dtype=float))
        lags = np.arange(2, min(int(lengths[-1]), MOST_LAGS) + 1)
        lengths = lengths[lengths > 2]
        weights = 2 / ((lengths - 1) * (lengths - 2))
        longer = np.searchsorted(lengths, lags, side="right")
        found = _tails(weights * lengths)[longer] - lags * _tails(weights)[longer]
        return np.asarray(found / max(1, len(lengths)))

    def far(self, found: Spread, correlation: float) -> float:
        """Covariance within a request of pairs more than one step apart, mean over requests."""
        steps = correlation ** np.arange(1, TERMS + 2)
        sums = np.polynomial.polynomial.polyval(steps, np.concatenate([[0.0, 0.0], self.shares]))
        return float(found.waves @ sums)


def _tails(values: Array) -> Array:
    """(values + 1,) sums of all *values* from each on; 0 behind the last."""
    return np.append(np.cumsum(values[::-1])[::-1], 0.0)


@dataclass(frozen=True)
class Equations:
    """Two moments of pairs as functions of the two parameters, for one survival (positions,)."""

    survival: Array
    pairs: PairCounts
    hazards: Hazards = hazards_per_position

    def spread(self, variance: float) -> Spread:
        """The Spread at request_sd^2 = *variance*; below 0 the mirror image of what lies above.

        A variance is estimated without bias only if the estimate may be negative.
        """
        request_sd = float(np.sqrt(abs(variance)))
        found = spread(self.hazards(self.survival, request_sd), request_sd)
        return found if variance >= 0 else Spread(-found.between, self.alike.waves)

    @cached_property
    def alike(self) -> Spread:
        """The Spread of requests that are all alike."""
        return spread(self.hazards(self.survival, 0.0), 0.0)

    def moments(self, variance: float, correlation: float) -> Array:
        """(2,) covariance of neighbours, and of all pairs further apart."""
        found = self.spread(variance)
        near, far = found.at_lag(correlation), self.pairs.far(found, correlation)
        return found.between + np.array([near, far])

    def correlation(self, found: Spread, near: float) -> float:
        """The step correlation that gives neighbours the covariance *near*, between requests included."""
        wanted = near - found.between

        def excess(correlation: float) -> float:
            return found.at_lag(correlation) - wanted

        return _root(excess, -MOST_CORRELATION, MOST_CORRELATION)

    def solve(self, near: float, far: float) -> tuple[float, float]:
        """Variance of the log-odds between requests (may be negative), and step correlation.

        Where two pairs of parameters give the same moments, the one with more variation between requests.
        """

        def excess(variance: float) -> float:
            found = self.spread(variance)
            correlation = self.correlation(found, near)
            return found.between + self.pairs.far(found, correlation) - far

        # All of it between requests: too much as soon as steps correlate.
        most = _root(lambda variance: self.spread(variance).between - far, -(MOST_SD**2), MOST_SD**2)
        variance = _first_root(excess, most)
        return variance, self.correlation(self.spread(variance), near)


def _first_root(function: Callable[[float], float], start: float) -> float:
    """The root of *function* nearest to *start*, on the side to which a rising function points.

    The largest variance on that side where there is none.
    """
    at, value = start, function(start)
    step = -0.02 if value > 0 else 0.02
    while abs(at + step) <= MOST_SD**2:
        if function(at + step) * value <= 0:
            return float(optimize.brentq(function, at, at + step, xtol=1e-9))
        at, step = at + step, 1.5 * step
    return float(np.copysign(MOST_SD**2, step))


def _root(rising: Callable[[float], float], low: float, high: float) -> float:
    """Where *rising* crosses 0; the end that is nearest to it where it does not."""
    if rising(low) >= 0:
        return low
    if rising(high) <= 0:
        return high
    return float(optimize.brentq(rising, low, high, xtol=1e-9))


def model(logits: Array, request_sd: float, correlation: float) -> AcceptanceModel:
    """The acceptance model with these log-odds (positions,)."""
    return AcceptanceModel(tuple(special.expit(logits).tolist()), request_sd, correlation)

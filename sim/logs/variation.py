"""How much requests differ and how alike neighbouring steps are, and how each unit of a log pulls at both.

Both parameters solve ``moments.Equations``; the pulls follow from the derivatives of these
equations, so that nothing has to be solved again for a log drawn anew.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from sim.logs.intervals import Column, Scale
from sim.logs.moments import MOST_SD, Equations
from sim.logs.sums import MIN_REQUESTS, Products, Steps, Sums
from sim.traces import Trace

Array = NDArray[np.float64]

NUDGE = 1e-3
"""Of a parameter, to see what moves with it."""


@dataclass(frozen=True)
class Variation:
    """What pairs of steps say."""

    variance: Column | None
    """Of the log-odds between requests, below 0 where chance has it so; None where the log cannot say."""
    correlation: Column | None
    """Of neighbouring steps, likewise."""
    request_sd: float
    step_correlation: float
    notes: tuple[str, ...]


def variation(trace: Trace, steps: Steps, sums: Sums, equations: Equations) -> Variation:
    """The Variation in *trace*, as far as it can tell."""
    if not sums.near.pairs.sum() or np.ptp(steps.lengths) == 0:
        why = "every step has the same length" if sums.near.pairs.sum() else "no request has two steps"
        return Variation(None, None, 0.0, 0.0, (f"request_sd and step_correlation are missing: {why}.",))
    near = sums.covariance(sums.near)
    if not sums.tells_requests_apart:
        correlation = equations.correlation(equations.alike, near)
        pulls = _pulls(sums, equations, 0.0, correlation, (sums.near,))
        notes = (_why_alike(trace), *_correlation_notes(correlation))
        column = Column(correlation, pulls[0], Scale.CORRELATION)
        return Variation(None, column, 0.0, max(0.0, correlation), notes)
    variance, correlation = equations.solve(near, sums.covariance(sums.far))
    pulls = _pulls(sums, equations, variance, correlation, (sums.near, sums.far))
    best = correlation if variance >= 0 else equations.correlation(equations.alike, near)
    limit = (f"request_sd is at its limit of {MOST_SD:g}.",) if variance >= MOST_SD**2 else ()
    return Variation(
        Column(variance, pulls[0], Scale.VARIANCE),
        Column(correlation, pulls[1], Scale.CORRELATION),
        float(np.sqrt(max(0.0, variance))),
        max(0.0, best),
        (*limit, *_correlation_notes(best)),
    )


def _why_alike(trace: Trace) -> str:
    """Why requests count as alike."""
    if not trace.grouped:
        why = "the log does not say which request a step belongs to"
    elif len(trace.requests) < MIN_REQUESTS:
        few = "1 request is" if len(trace.requests) == 1 else f"{len(trace.requests)} requests are"
        why = f"{few} too few to tell how they differ ({MIN_REQUESTS} needed)"
    else:
        why = "requests are too short to tell them from correlated steps"
    return f"request_sd is taken as 0: {why}. What requests differ by counts as step correlation."


def _correlation_notes(correlation: float) -> tuple[str, ...]:
    if correlation >= 0:
        return ()
    return (
        f"Neighbouring steps are less alike than by chance ({correlation:.3f}); the model has 0 at least.",
    )


def _pulls(
    sums: Sums, equations: Equations, variance: float, correlation: float, moments: tuple[Products, ...]
) -> Array:
    """(unknowns, units) how units pull at the parameters that *moments* were solved for.

    With two moments these are variance and correlation, with one the correlation alone.
    """
    total, mean = float(sums.weight.sum()), sums.mean
    mean_pull = (sums.total - sums.weight * mean) / total
    rate_pulls = (sums.beyond - sums.weight[:, None] * sums.survival) / total
    pulls = [_product_pull(products, mean) + products.slope(mean) * mean_pull for products in moments]
    by_parameter = _by_parameter(equations, variance, correlation)[: len(moments), 2 - len(moments) :]
    by_rate = _by_rate(equations, variance, correlation)[: len(moments)]
    wanted = np.stack(pulls) - by_rate @ rate_pulls.T
    return np.asarray(np.linalg.lstsq(by_parameter, wanted, rcond=None)[0])


def _product_pull(products: Products, mean: float) -> Array:
    found, pairs = products.about(mean), products.pairs.sum()
    return np.asarray((found - found.sum() / pairs * products.pairs) / pairs)


def _by_parameter(equations: Equations, variance: float, correlation: float) -> Array:
    """(2, 2) how both moments move with variance and with correlation."""
    step = max(NUDGE, 0.02 * abs(variance))
    more, less = (equations.moments(variance + sign * step, correlation) for sign in (1, -1))
    up, down = (equations.moments(variance, correlation + sign * NUDGE) for sign in (1, -1))
    return np.stack([(more - less) / (2 * step), (up - down) / (2 * NUDGE)], axis=1)


def _by_rate(equations: Equations, variance: float, correlation: float) -> Array:
    """(2, positions) how both moments move with each P(L > d)."""
    here = equations.moments(variance, correlation)
    found = np.zeros((2, len(equations.survival)))
    for at, rate in enumerate(equations.survival.tolist()):
        if rate > 0:
            changed = equations.survival.copy()
            changed[at:] = np.minimum(changed[at:], rate * (1 - NUDGE))
            moved = replace(equations, survival=changed).moments(variance, correlation)
            found[:, at] = (here - moved) / (rate * NUDGE)
    return found

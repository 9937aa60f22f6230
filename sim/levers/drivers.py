"""What drives the uncertainty: total Sobol indices of the parameters that are not known.

A total index is the share of throughput's variance that would be left if everything but this
parameter were known (Homma and Saltelli 1996), its interactions with others included; the indices
may therefore add up to more than 1. Those parameters are asked that move throughput most when each
is moved alone; how much of the whole variance they leave out is said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sim.setup import Setup
from sim.uncertainty.parameters import Parameters
from sim.uncertainty.response import Response
from sim.uncertainty.total import Swing, swings

Array = NDArray[np.float64]
MOST = 8
"""Parameters that are asked."""
POINTS = 128
"""Sobol points; the indices take (parameters + 2) times as many."""
STAGES = 3
"""Progress is told this many times."""
DRAWS = 256
"""Of all parameters, for the whole variance."""


@dataclass(frozen=True)
class Driver:
    """One parameter that is not known."""

    swing: Swing
    """What it does alone."""
    total: float
    """Its total index."""
    first: float
    """The share of variance that would go if it alone were known."""


@dataclass(frozen=True)
class Drivers:
    """What drives the uncertainty of one scenario."""

    drivers: tuple[Driver, ...]
    """The largest total index first."""
    parameters: int
    """All that are not known."""
    asked_share: float
    """Of the whole variance, with the asked ones alone drawn."""


def drivers(setup: Setup, advance: Callable[[], None] = lambda: None) -> Drivers | None:
    """The Drivers of *setup*; None where nothing is unknown that matters.

    Of the unknowns as their sources leave them: what a calibration has learnt ties them to one another, and
    Sobol indices are of independent ones.
    """
    setup = replace(setup, posterior=None)
    everything = Response(setup)
    widest = [swing for swing in swings(everything) if isfinite(swing.width)][:MOST]
    advance()
    if not widest:
        return None
    seed = setup.scenario.seed
    whole = _variance(everything, everything.parameters, seed)
    advance()
    asked = everything.parameters.only({swing.name for swing in widest})
    response = Response(setup, asked)
    found = total_indices(response, seed)
    advance()
    by_name = {swing.name: swing for swing in widest}
    each = (Driver(by_name[name], *indices) for name, indices in found.items())
    return Drivers(
        drivers=tuple(sorted(each, key=lambda driver: -driver.total)),
        parameters=len(everything.parameters),
        asked_share=_variance(response, asked, seed) / whole if whole else 1.0,
    )


def total_indices(response: Response, seed: int, points: int = POINTS) -> dict[str, tuple[float, float]]:
    """Total and first index of each parameter of *response*; estimates below 0 count as 0."""
    parameters = response.parameters

    def tok_s(quantiles: Array) -> Array:
        """(n,) throughput at *quantiles* (parameters, n)."""
        return response.throughput(parameters.at(quantiles.T))

    unit: Any = [stats.uniform()] * len(parameters)
    found = stats.sobol_indices(func=tok_s, n=points, dists=unit, rng=np.random.default_rng(seed))
    total, first = (np.maximum(0.0, np.asarray(each)) for each in (found.total_order, found.first_order))
    return {name: (float(total[at]), float(first[at])) for at, name in enumerate(parameters.names)}


def _variance(response: Response, parameters: Parameters, seed: int) -> float:
    return float(np.var(response.throughput(parameters.draw(DRAWS, seed))))

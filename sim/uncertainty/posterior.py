"""What published measurements have taught about unknowns, as draws that scenarios can share.

A draw is a quantile of its prior for each unknown. Unknowns keep their identity from scenario to scenario,
so what one anchor teaches about a host cost holds wherever that cost is met; unknowns that no measurement
has met are drawn as before.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
FEW = 100
"""Effective draws below which quantiles are not to be trusted."""


class SystemKind(NamedTuple):
    """What systems have in common whose predictions are about equally good."""

    plain: bool
    """Plain decoding, not speculation."""
    tabled: bool
    """Somebody has measured kernels of the GPU."""

    @property
    def title(self) -> str:
        """``speculative, measured kernels``."""
        kind = "plain" if self.plain else "speculative"
        return f"{kind}, {'measured kernels' if self.tabled else 'roofline'}"


class Discrepancy(NamedTuple):
    """How widely predictions are off for reasons that nobody modelled: log standard deviations of a step."""

    system_sd: float
    """Alike for all that a system decodes."""
    own_sd: float
    """Of one configuration alone."""


NO_DISCREPANCY = Discrepancy(0.0, 0.0)
"""A model that lacks nothing."""


class Observation(NamedTuple):
    """One measurement that unknowns have learnt from."""

    name: str
    tok_s: float


class Stored(NamedTuple):
    """A file that holds a posterior."""

    file: str
    sha256: str
    tables_sha256: str
    """Of the catalog and measured tables that it was made with."""


@dataclass(frozen=True, eq=False)
class Posterior:
    """Draws of unknowns that agree with measurements."""

    identities: tuple[str, ...]
    """Of the unknowns."""
    quantiles: Array
    """(draws, unknowns) equally likely draws, as quantiles of the priors."""
    discrepancies: Mapping[SystemKind, Discrepancy]
    observations: tuple[Observation, ...]
    effective_sample_size: float
    """Behind the draws."""
    stored: Stored | None = None
    """The file that they come from; None before they are kept in one."""

    @cached_property
    def place(self) -> dict[str, int]:
        """The column of each identity."""
        return {identity: at for at, identity in enumerate(self.identities)}

    def put_into(self, points: Array, identities: Sequence[str], seed: int) -> Array:
        """*points* (draws, identities) with the columns that are known here replaced.

        Draw i takes one row of the posterior in all columns: what it knows of combinations stays.
        """
        rows = self._rows(len(points), seed)
        drawn = points.copy()
        for at, identity in enumerate(identities):
            if identity in self.place:
                drawn[:, at] = self.quantiles[rows, self.place[identity]]
        return drawn

    def _rows(self, count: int, seed: int) -> NDArray[np.int64]:
        """*count* rows in an order of *seed*, none twice before all were taken."""
        order = np.random.default_rng(seed).permutation(len(self.quantiles))
        return order[np.arange(count) % len(order)]

    def marginal(self, identity: str, levels: Array) -> Array:
        """(levels,) quantiles of *identity*'s prior at *levels* of its posterior; *levels* if unknown."""
        if identity not in self.place:
            return levels
        return np.asarray(np.quantile(self.quantiles[:, self.place[identity]], levels))

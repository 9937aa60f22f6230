"""A cost with its provenance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from hwmodels.quantiles import Blend

NS_PER_SECOND = 1_000_000_000


class Source(Enum):
    """Where a figure comes from, best first."""

    MEASURED = "measured"
    FITTED = "fitted"
    SCALED = "scaled"
    DATASHEET = "datasheet"
    ASSUMED = "assumed"


def weakest(*sources: Source) -> Source:
    """The source of a figure made from figures of these *sources*: the last in the order above."""
    order = list(Source)
    return max(sources, key=order.index)


class Bound(Enum):
    """What limits the work."""

    MEMORY = "memory"
    COMPUTE = "compute"
    LATENCY = "latency"
    LINK = "link"
    HOST = "host"


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """*seconds* that a piece of work takes, with relative one-sigma *spread* of that figure.

    *spread* is what is not known about the mean (fit error, assumption), not the
    noise of single executions. *evidence* names the table, fit or figure used. Where
    samples were measured, single executions are drawn from *blend*, whose mean is *seconds*.
    """

    seconds: float
    spread: float
    source: Source
    bound: Bound
    evidence: str
    blend: Blend | None = None

    def __post_init__(self) -> None:
        if not self.seconds >= 0 or self.seconds == float("inf"):
            raise ValueError(f"seconds must be finite and >= 0, got {self.seconds}")
        if not 0 <= self.spread < float("inf"):
            raise ValueError(f"spread must be finite and >= 0, got {self.spread}")

    @property
    def ns(self) -> int:
        """The time in whole nanoseconds."""
        return round(self.seconds * NS_PER_SECOND)

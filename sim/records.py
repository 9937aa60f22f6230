"""What a simulation leaves behind: immutable records, statistics come later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hwmodels.estimate import Source
from sim.graph import Component, IntArray, Lane, Phase

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class StepRecords:
    """Every step of one run, arrays over steps; times in ns."""

    lengths: IntArray
    """Tokens committed per step and request."""
    contexts: IntArray
    """Cached tokens of a request when the step began."""
    step_ns: IntArray
    critical_ns: dict[Component, IntArray]
    """Critical path by component; sums to ``step_ns``."""
    phase_ns: dict[Phase, IntArray]
    """Critical path by phase; sums to ``step_ns``."""
    source_ns: dict[Source, IntArray]
    """Critical path by the source of each figure; sums to ``step_ns``."""
    busy_ns: IntArray
    """(steps, lanes) time each lane was held."""
    collective_wait_ns: Array
    """Mean over ranks of the time between a rank's arrival at an AllReduce and the last one's."""
    collective_transfer_ns: IntArray
    """Time AllReduces took once they had begun."""


@dataclass(frozen=True, eq=False)
class Run:
    """One request decoded from its start context to its last token."""

    index: int
    steps: StepRecords
    requests: int
    """Requests decoded in lock-step."""

    @property
    def tokens(self) -> int:
        """Tokens committed by all requests."""
        return int(self.steps.lengths.sum()) * self.requests

    @property
    def duration_ns(self) -> int:
        """From the first step's begin to the last one's end."""
        return int(self.steps.step_ns.sum())

    @property
    def throughput_tok_s(self) -> float:
        """Tokens per second of decoding, all requests together."""
        return self.tokens / (self.duration_ns / 1e9)


@dataclass(frozen=True, eq=False)
class Experiment:
    """Independent *runs* of one scenario on one engine, and the graph's *lanes*."""

    runs: tuple[Run, ...]
    lanes: tuple[Lane, ...]

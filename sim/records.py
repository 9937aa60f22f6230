"""What a simulation leaves behind: immutable records, statistics come later."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sim.graph import IntArray, Lane


@dataclass(frozen=True, eq=False)
class StepRecords:
    """Every step of one run, arrays over steps; times in ns."""

    lengths: IntArray
    """(steps, requests) tokens committed."""
    contexts: IntArray
    """Cached tokens of a request when the step began, mean over the batch."""
    step_ns: IntArray
    component_ns: IntArray
    """(steps, components) critical path in the order of Component; sums to ``step_ns``."""
    phase_ns: IntArray
    """(steps, phases) critical path in the order of Phase; sums to ``step_ns``."""
    source_ns: IntArray
    """(steps, sources) critical path by the source of each figure; sums to ``step_ns``."""
    file_ns: IntArray
    """Critical path that rests on the machine's measured file."""
    busy_ns: IntArray
    """(steps, lanes) time each lane was held."""
    allreduce_wait_ns: IntArray
    """Mean over ranks of the time between a rank's arrival at an AllReduce and the last one's."""
    allreduce_transfer_ns: IntArray
    """Time AllReduces took once they had begun."""


@dataclass(frozen=True, eq=False)
class Run:
    """A batch of requests decoded from their start context, until the first of each slot had its output."""

    index: int
    steps: StepRecords
    first_steps: IntArray
    """(requests,) steps that the first request of each slot took."""

    @property
    def requests(self) -> int:
        """Requests decoded in lock-step."""
        return len(self.first_steps)

    @property
    def tokens(self) -> int:
        """Tokens committed by all requests."""
        return int(self.steps.lengths.sum())

    @property
    def tpot_ns(self) -> NDArray[np.float64]:
        """(requests,) time per output token of the first request of each slot."""
        last = self.first_steps - 1
        tokens = np.cumsum(self.steps.lengths, axis=0)[last, np.arange(self.requests)]
        return np.asarray(np.cumsum(self.steps.step_ns)[last] / tokens)

    @property
    def duration_ns(self) -> int:
        """From the first step's begin to the last one's end."""
        return int(self.steps.step_ns.sum())

    @property
    def throughput_tok_s(self) -> float:
        """Tokens per second of decoding, all requests together."""
        return self.result.throughput_tok_s

    @property
    def result(self) -> RunResult:
        """The run as one line."""
        return RunResult(self.index, len(self.steps.step_ns), self.tokens, self.duration_ns, self.requests)


@dataclass(frozen=True, slots=True)
class RunResult:
    """One run in a few numbers."""

    index: int
    steps: int
    tokens: int
    """Committed by all requests."""
    duration_ns: int
    requests: int

    @property
    def throughput_tok_s(self) -> float:
        """Tokens per second of decoding, all requests together."""
        return self.tokens / (self.duration_ns / 1e9)

    @property
    def mean_length(self) -> float:
        """Acceptance length, mean over the run's steps."""
        return self.tokens / self.requests / self.steps

    @property
    def mean_step_ns(self) -> float:
        """Step time, mean over the run's steps."""
        return self.duration_ns / self.steps


@dataclass(frozen=True, eq=False)
class Experiment:
    """Independent runs of one scenario on one engine: a line per run, sums, and some runs in full."""

    lanes: tuple[Lane, ...]
    runs: tuple[RunResult, ...]
    lengths: NDArray[np.int16]
    """Of all requests in all steps, run after run."""
    tpot_ns: NDArray[np.float64]
    """Time per output token of the first request of each slot, run after run."""
    step_ns: IntArray
    """Of all steps, run after run."""
    component_ns: IntArray
    """Critical path of all steps in the order of Component."""
    phase_ns: IntArray
    source_ns: IntArray
    file_ns: int
    """Critical path of all steps that rests on *measured_file*."""
    measured_file: str | None
    """The name of the machine's measured file, where it has one."""
    busy_ns: IntArray
    """Time each lane was held, all steps."""
    allreduce_wait_ns: int
    allreduce_transfer_ns: int
    in_full: tuple[Run, ...]
    """The first runs, every step of them."""

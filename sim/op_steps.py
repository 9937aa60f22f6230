"""Chosen steps of a run op by op, no two ops in one piece: what traces and timelines show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from sim.choices import EngineName
from sim.graph import IntArray
from sim.means import Array, MeanTimes
from sim.simulate import ENGINES, Chunk, Simulation


@dataclass(frozen=True, eq=False)
class OpStep:
    """One step, op by op. Times of ops are in ns since the step began."""

    index: int
    """Number of the step in its run."""
    begin_ns: int
    """Since the run began."""
    tokens: int
    """Committed by all requests."""
    context: int
    """Cached tokens of a request, mean over the batch."""
    label_s: Array
    """(labels,) mean seconds of each of ``Pieces.labels``."""
    durations: IntArray
    """(ops,)"""
    end: IntArray
    """(ops,)"""

    @property
    def start(self) -> IntArray:
        """(ops,) when each op began."""
        return self.end - self.durations

    @property
    def step_ns(self) -> int:
        """How long the step took."""
        return int(self.end.max(initial=0))


def steps_of(simulation: Simulation, run: int) -> int:
    """How many steps run number *run* has."""
    return len(simulation.decoded(run).lengths)


def op_steps(
    simulation: Simulation, run: int, steps: range, engine: EngineName = EngineName.BATCH
) -> Iterator[OpStep]:
    """Those *steps* of run number *run* that it has, in order; each as long as the run records it.

    On the batch engine pieces are played and taken apart, on SimPy every op is played.
    """
    first, begin_ns = 0, 0
    for chunk in simulation.chunks(run):
        count = min(len(chunk.durations), steps.stop - first)
        piece_end = ENGINES[engine](simulation.pieces.graph, chunk.durations[:count])
        step_ns = piece_end.max(axis=1)
        begins = begin_ns + np.cumsum(step_ns) - step_ns
        shown = slice(min(count, max(0, steps.start - first)), count)
        yield from _op_by_op(
            simulation, _part(chunk, shown), piece_end[shown], begins[shown], first + shown.start, engine
        )
        first, begin_ns = first + count, begin_ns + int(step_ns.sum())
        if first >= steps.stop:
            return


def _part(chunk: Chunk, steps: slice) -> Chunk:
    lengths, contexts, mean, durations = chunk
    means = MeanTimes(*(times[steps] for times in mean))
    return Chunk(lengths[steps], contexts[steps], means, durations[steps])


def _op_by_op(
    simulation: Simulation,
    chunk: Chunk,
    piece_end: IntArray,
    begins: IntArray,
    first: int,
    engine: EngineName,
) -> Iterator[OpStep]:
    """The steps of *chunk*, of which the first has number *first*."""
    pieces = simulation.pieces
    durations = pieces.split(chunk.durations, chunk.mean)
    if engine is EngineName.BATCH:
        end = pieces.fusion.expand(piece_end, durations)
    else:
        end = ENGINES[engine](simulation.graph, durations)
    for at in range(len(durations)):
        yield OpStep(
            index=first + at,
            begin_ns=int(begins[at]),
            tokens=int(chunk.lengths[at].sum()),
            context=int(chunk.contexts[at]),
            label_s=chunk.mean.label_s[at],
            durations=durations[at],
            end=end[at],
        )

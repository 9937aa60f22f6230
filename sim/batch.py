"""The batch engine: the same graph as a longest path, compiled, over many steps at once.

``end(op) = max(end of everything that can hold it up) + duration``, op by op in program
order. The same nanoseconds as the SimPy engine, by test.
"""

from __future__ import annotations

import numpy as np

from sim.compiled import compiled
from sim.errors import SimulationError
from sim.graph import Index, IntArray, StepGraph


def play(graph: StepGraph, durations: IntArray) -> IntArray:
    """When each op ended (steps, ops), in ns since its step began, from *durations* (steps, ops)."""
    if durations.shape[1] != len(graph.ops):
        raise SimulationError(f"{durations.shape[1]} durations for {len(graph.ops)} ops")
    end = np.empty_like(durations)
    _longest_path(*graph.held_by, durations, end)
    return end


@compiled
def _longest_path(first: Index, stop: Index, items: Index, durations: IntArray, end: IntArray) -> None:
    for step in range(durations.shape[0]):
        ended = end[step]
        for op in range(durations.shape[1]):
            begin = 0
            for at in range(first[op], stop[op]):
                before = ended[items[at]]
                begin = before if before > begin else begin
            ended[op] = begin + durations[step, op]

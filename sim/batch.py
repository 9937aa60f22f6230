"""The batch engine: the same graph as a longest path, over many steps at once.

``end(op) = max(end of everything that can hold it up) + duration``, op by op in program
order, every step of a batch in one numpy operation. The same nanoseconds as the
SimPy engine, by test.
"""

from __future__ import annotations

import numpy as np

from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph


def play(graph: StepGraph, durations: IntArray) -> IntArray:
    """When each op ended (steps, ops), in ns since its step began, from *durations* (steps, ops)."""
    if durations.shape[1] != len(graph.ops):
        raise SimulationError(f"{durations.shape[1]} durations for {len(graph.ops)} ops")
    # One row per op: each operation below then walks memory in order.
    end = durations.T.copy()
    for index, before in enumerate(graph.predecessors):
        if before:
            end[index] += end[list(before)].max(axis=0)
    return np.ascontiguousarray(end.T)

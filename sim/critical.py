"""The critical path: which op held up the step at every moment.

Walking back from the op that ended last, each op began when one of its predecessors
ended, or at zero. The path's durations therefore add up to the step exactly, and so
do the shares of any grouping of its ops.
"""

from __future__ import annotations

import numpy as np

from sim.compiled import compiled
from sim.errors import SimulationError
from sim.graph import Index, IntArray, StepGraph

EXPLAINED = -1


def critical_time(
    graph: StepGraph, durations: IntArray, end: IntArray, group_of: Index, groups: int
) -> IntArray:
    """(steps, groups) ns of the ops of each group (*group_of* op) on each step's critical path.

    Where several predecessors ended at the same moment the first one counts:
    dependencies before lane order, so ties go to the cause that the program names.
    """
    time = np.zeros((len(end), groups), dtype=np.int64)
    if end.size:
        op = _walk_back(*graph.held_by, durations, end, group_of, time)
        if op != EXPLAINED:
            raise SimulationError(f"op {op} began when nothing before it ended")
    return time


@compiled
def _walk_back(
    first: Index,
    stop: Index,
    items: Index,
    durations: IntArray,
    end: IntArray,
    group_of: Index,
    time: IntArray,
) -> np.int64:
    """Fill *time*; the first op that nothing explains, or EXPLAINED."""
    for step in range(end.shape[0]):
        ended, took, spent = end[step], durations[step], time[step]
        op = np.uint64(ended.argmax())
        while True:
            spent[group_of[op]] += took[op]
            begin = ended[op] - took[op]
            if begin <= 0:
                break
            at, behind = first[op], stop[op]
            while at < behind and ended[items[at]] != begin:
                at += np.uint64(1)
            if at == behind:
                return np.int64(op)
            op = items[at]
    return np.int64(EXPLAINED)

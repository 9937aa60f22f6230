"""The critical path: which op held up the step at every moment.

Walking back from the op that ended last, each op began when one of its predecessors
ended, or at zero. The path's durations therefore add up to the step exactly, and so
do the shares of any grouping of its ops.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph

BoolArray = NDArray[np.bool_]


def critical_path(graph: StepGraph, durations: IntArray, end: IntArray) -> BoolArray:
    """Which ops (steps, ops) lie on each step's critical path.

    Where several predecessors ended at the same moment the first one counts:
    dependencies before lane order, so ties go to the cause that the program names.
    """
    steps = np.arange(len(end))
    on_path = np.zeros(end.shape, dtype=bool)
    if not end.size:
        return on_path
    start = end - durations
    on_path[steps, end.argmax(axis=1)] = True
    for index in range(len(graph.ops) - 1, -1, -1):
        open_steps = steps[on_path[:, index] & (start[:, index] > 0)]
        for before in graph.predecessors[index]:
            if not len(open_steps):
                break
            caused = end[open_steps, before] == start[open_steps, index]
            on_path[open_steps[caused], before] = True
            open_steps = open_steps[~caused]
        if len(open_steps):
            raise SimulationError(f"op {index} began when nothing before it ended")
    return on_path

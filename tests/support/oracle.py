"""Independent answers: the longest path written naively, and closed forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from sim.graph import IntArray, StepGraph


def finish_times(graph: StepGraph, durations: Iterable[int]) -> list[int]:
    """When every op ends: after its dependencies, and after the op before it on each lane."""
    end: list[int] = []
    free: dict[int, int] = defaultdict(int)
    for op, duration in zip(graph.ops, durations, strict=True):
        ready = [end[dep] for dep in op.after] + [free[lane] for lane in op.lanes]
        end.append(max(ready) + duration)
        free.update(dict.fromkeys(op.lanes, end[-1]))
    return end


def play(graph: StepGraph, durations: IntArray) -> IntArray:
    """``finish_times`` of every step, with the signature of an engine."""
    ends = [finish_times(graph, row) for row in durations.tolist()]
    return np.array(ends, dtype=np.int64).reshape(durations.shape)


def idle_time(graph: StepGraph, durations: IntArray, end: IntArray) -> int:
    """Gaps of every lane up to the makespan of one step, summed gap by gap."""
    makespan, idle = int(end.max(initial=0)), 0
    for queue in graph.queues:
        free = 0
        for op in queue:
            idle += max(0, int(end[op] - durations[op]) - free)
            free = int(end[op])
        idle += makespan - free
    return idle


def busy_time(graph: StepGraph, durations: IntArray) -> int:
    """Lane time held by the ops of one step."""
    return sum(len(op.lanes) * int(duration) for op, duration in zip(graph.ops, durations, strict=True))


def mean_length(hazards: Iterable[float]) -> float:
    """1 + h1 + h1 h2 + ...: the expected tokens per step."""
    mean, survival = 1.0, 1.0
    for hazard in hazards:
        survival *= hazard
        mean += survival
    return mean


def length_distribution(hazards: Iterable[float]) -> list[float]:
    """P(L = 1), P(L = 2), ...: reach a position, then fail there; or pass them all."""
    chances, survival = [], 1.0
    for hazard in hazards:
        chances.append(survival * (1.0 - hazard))
        survival *= hazard
    return [*chances, survival]

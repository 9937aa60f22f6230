"""Independent answers: the longest path written naively, and closed forms."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hwmodels.work import AllReduce
from sim.acceptance import AcceptanceModel
from sim.fusion import Fusion
from sim.graph import IntArray, StepGraph

FloatArray = NDArray[np.float64]


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


def critical_ops(graph: StepGraph, durations: IntArray, end: IntArray) -> list[int]:
    """The ops that held one step up, last one first: dependencies before the order of the lanes."""
    op = max(range(len(end)), key=lambda index: (end[index], -index))
    path = [op]
    while end[op] > durations[op]:
        lanes = [lane for lane in graph.ops[op].lanes if graph.queues[lane][0] != op]
        before = [graph.queues[lane][graph.queues[lane].index(op) - 1] for lane in lanes]
        op = next(i for i in [*graph.ops[op].after, *before] if end[i] == end[op] - durations[op])
        path.append(op)
    return path


def lane_times(graph: StepGraph, durations: IntArray) -> list[int]:
    """Time that each lane is held in one step."""
    return [sum(int(durations[op]) for op in queue) for queue in graph.queues]


def collective_wait(graph: StepGraph, end: IntArray) -> float:
    """At every AllReduce, how long a rank that has arrived waits for the last one; mean over ranks."""
    ranked = {lane for op in graph.ops if op.rank is not None for lane in op.lanes}
    wait = 0.0
    for index, op in enumerate(graph.ops):
        queues = [graph.queues[lane] for lane in op.lanes if lane in ranked]
        before = [end[queue[queue.index(index) - 1]] for queue in queues if queue[0] != index]
        if isinstance(op.work, AllReduce) and before:
            wait += sum(max(before) - arrival for arrival in before) / len(before)
    return wait


def split(fusion: Fusion, piece_durations: IntArray, op_seconds: FloatArray) -> IntArray:
    """``fusion.split`` by the mean times of the ops alone."""
    chain_seconds = np.zeros((len(op_seconds), len(fusion.piece_of)))
    for op, chain in enumerate(fusion.chain_of):
        chain_seconds[:, chain] += op_seconds[:, op]
    return fusion.split(piece_durations, chain_seconds, op_seconds)


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


def lengths(model: AcceptanceModel, generator: np.random.Generator, output_tokens: int) -> list[int]:
    """Lengths of a request drawn one at a time: one normal for the request, then one for each step."""
    offset, latent, found = model.request_sd * generator.standard_normal(), 0.0, []
    while sum(found) < output_tokens:
        fresh, kept = generator.standard_normal(), model.step_correlation if found else 0.0
        latent = kept * latent + np.sqrt(1 - kept**2) * fresh
        shift = offset - model.decay_per_1k_context * sum(found) / 1000
        survival = np.cumprod(special.expit(special.logit(np.array(model.hazards)) + shift))
        found.append(1 + int(np.count_nonzero(survival > 1 - special.ndtr(latent))))
    return found


def length_distribution(hazards: Iterable[float]) -> list[float]:
    """P(L = 1), P(L = 2), ...: reach a position, then fail there; or pass them all."""
    chances, survival = [], 1.0
    for hazard in hazards:
        chances.append(survival * (1.0 - hazard))
        survival *= hazard
    return [*chances, survival]

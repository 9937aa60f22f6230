"""The reference engine: SimPy processes that drain in-order lanes.

One process per lane takes the lane's ops in program order, waits for their
dependencies, and holds the lane for the op's duration. An op on several lanes (a
collective) starts when its last lane arrives; that is what stragglers cost.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import NamedTuple

import numpy as np
import simpy
from simpy.events import Event, Timeout

from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph

Process = Generator[Event, None, None]

NOT_YET = -1


class _Turn(NamedTuple):
    """One op in a lane's program: what it waits for, and how many lanes it holds."""

    op: int
    waits: tuple[int, ...]
    lanes: int


class Machine:
    """Plays a step graph on the lanes of one node, as often as asked.

    Times are integer nanoseconds of the SimPy clock. ``end`` holds when each op of
    the latest play ended.
    """

    def __init__(self, env: simpy.Environment, graph: StepGraph) -> None:
        self.env = env
        self._programs = [_program(graph, lane) for lane in range(len(graph.lanes))]
        self._count = len(graph.ops)
        self._begin([0] * self._count)

    def _begin(self, durations: list[int]) -> None:
        self._durations = durations
        self._ended: list[Event | None] = [None] * self._count
        self._arrived = [0] * self._count
        self.end = [NOT_YET] * self._count

    def play(self, durations: list[int]) -> Process:
        """A process that runs the graph once with *durations* (ns, one per op)."""
        if len(durations) != self._count:
            raise SimulationError(f"{len(durations)} durations for {self._count} ops")
        self._begin(durations)
        yield from [self.env.process(self._drain(program)) for program in self._programs]

    def _drain(self, program: list[_Turn]) -> Process:
        """One lane: its ops in order. Bound to locals, for this loop is the simulator's cost."""
        env, end, ended, durations = self.env, self.end, self._ended, self._durations
        for index, waits, lanes in program:
            for dependency in waits:
                if end[dependency] < 0:
                    yield self._end_of(dependency)
            if lanes > 1 and not self._is_last_to_arrive(index, lanes):
                yield self._end_of(index)
                continue
            yield Timeout(env, durations[index])
            end[index] = int(env.now)
            awaited = ended[index]
            if awaited is not None:
                awaited.succeed()

    def _is_last_to_arrive(self, index: int, lanes: int) -> bool:
        self._arrived[index] += 1
        return self._arrived[index] == lanes

    def _end_of(self, index: int) -> Event:
        """The event that *index* has ended."""
        event = self._ended[index]
        if event is None:
            event = self._ended[index] = Event(self.env)
        return event


def _program(graph: StepGraph, lane: int) -> list[_Turn]:
    """The ops of *lane*, without waits that the lane's own order already keeps."""
    turns = []
    for index in graph.queues[lane]:
        op = graph.ops[index]
        waits = tuple(dep for dep in op.after if lane not in graph.ops[dep].lanes)
        turns.append(_Turn(index, waits, len(op.lanes)))
    return turns


def play(graph: StepGraph, durations: IntArray) -> IntArray:
    """Run every step of *durations* (steps, ops; ns) in turn on the SimPy engine.

    Returns when each op ended (steps, ops), in ns since its step began; it started
    its duration earlier. The dispatcher process begins a step when the one before
    has ended.
    """
    env = simpy.Environment()
    machine = Machine(env, graph)
    end = np.empty_like(durations)

    def dispatch() -> Process:
        for step, row in enumerate(durations.tolist()):
            begin = env.now
            yield env.process(machine.play(row))
            if NOT_YET in machine.end:
                raise SimulationError(f"op {machine.end.index(NOT_YET)} never ran")
            end[step] = machine.end
            end[step] -= begin

    env.run(until=env.process(dispatch()))
    return end

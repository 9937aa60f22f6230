"""Where a trace shows what: a process for each device, a thread for each of its lanes.

Perfetto names threads by their number alone, so a thread has a number that no other thread and
no process has.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from hwmodels.work import LinkWork
from sim.graph import StepGraph

RUN_PID = 1
"""The process that shows where steps begin and end."""
RUN_TID = 2
FIRST_PID = 3


class Place(NamedTuple):
    """A thread of a trace."""

    pid: int
    tid: int


class Flow(NamedTuple):
    """An op on one lane that one on another lane waits for."""

    source: int
    source_lane: int
    target_lane: int


@dataclass(frozen=True, eq=False)
class Layout:
    """The processes, threads and arrows of a trace of *graph*."""

    graph: StepGraph

    @cached_property
    def devices(self) -> dict[str, int]:
        """Every device with its process, in the order in which a step first meets them."""
        names = dict.fromkeys(lane.device for lane in self.graph.lanes)
        return {name: FIRST_PID + number for number, name in enumerate(names)}

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """For each lane its thread."""
        first_tid = FIRST_PID + len(self.devices)
        lanes = enumerate(self.graph.lanes)
        return tuple(Place(self.devices[lane.device], first_tid + number) for number, lane in lanes)

    @cached_property
    def lanes_of(self) -> dict[str, tuple[int, ...]]:
        """For each device its lanes."""
        lanes = list(enumerate(self.graph.lanes))
        return {name: tuple(at for at, lane in lanes if lane.device == name) for name in self.devices}

    @cached_property
    def links(self) -> tuple[int, ...]:
        """Lanes that carry messages between ranks and belong to none of them."""
        of_ranks = {lane for op in self.graph.ops if op.rank is not None for lane in op.lanes}
        carry = {lane for op in self.graph.ops if isinstance(op.work, LinkWork) for lane in op.lanes}
        return tuple(sorted(carry - of_ranks))

    @cached_property
    def flows(self) -> tuple[tuple[Flow, ...], ...]:
        """For each op the ops on other lanes that it waits for: what the order of its lanes does not say."""
        return tuple(tuple(self._flow(dep, index) for dep in self._elsewhere(index)) for index in self._ops)

    @property
    def _ops(self) -> range:
        return range(len(self.graph.ops))

    def _elsewhere(self, index: int) -> list[int]:
        ops = self.graph.ops
        return [dep for dep in ops[index].after if set(ops[dep].lanes).isdisjoint(ops[index].lanes)]

    def _flow(self, source: int, target: int) -> Flow:
        """From a lane to one of the same device, where both ops have such."""
        lanes, ops = self.graph.lanes, self.graph.ops
        pairs = [(a, b) for a in ops[source].lanes for b in ops[target].lanes]
        near = [(a, b) for a, b in pairs if lanes[a].device == lanes[b].device]
        return Flow(source, *(near or pairs)[0])

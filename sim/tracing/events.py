"""The events of a trace, in the Chrome JSON trace event format that Perfetto reads.

Times are microseconds with three decimals: whole nanoseconds. A flow begins inside the event it
leaves, in its last nanosecond, and ends where the event that waited begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import count
from typing import Any

import numpy as np

from hwmodels.estimate import Source
from hwmodels.work import ContextWork, DType, LinkWork, Work
from sim.graph import IntArray
from sim.op_steps import OpStep
from sim.pieces import Label, Pieces
from sim.tracing.layout import RUN_PID, RUN_TID, Layout, Place

Event = dict[str, Any]

LANES_BUSY = "lanes busy"
PAYLOAD = "payload"
DEPENDENCY = "dependency"
_WORD = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Events:
    """Makes the events of steps of run number *run*, made of *pieces*; *sources* has one entry per label."""

    def __init__(self, pieces: Pieces, sources: tuple[Source, ...], run: int) -> None:
        self.layout = Layout(pieces.fusion.graph)
        self._run = run
        self._labels = pieces.labels
        self._label_of = pieces.label_of.tolist()
        self._sources = sources
        self._flow_ids = count(1)
        self._awaited = self._waiting()

    def _waiting(self) -> dict[int, list[tuple[int, int]]]:
        """For each op the arrows that leave it: (op that waits, position among its flows)."""
        found: dict[int, list[tuple[int, int]]] = {}
        for target, flows in enumerate(self.layout.flows):
            for position, flow in enumerate(flows):
                found.setdefault(flow.source, []).append((target, position))
        return found

    def names(self) -> Iterator[Event]:
        """Names of processes and threads."""
        yield _name("process_name", Place(RUN_PID, RUN_TID), f"run {self._run}")
        yield _name("thread_name", Place(RUN_PID, RUN_TID), "steps")
        for device, lanes in self.layout.lanes_of.items():
            yield _name("process_name", self.layout.places[lanes[0]], device)
            for lane in lanes:
                yield _name("thread_name", self.layout.places[lane], self.layout.graph.lanes[lane].queue)

    def of_step(self, step: OpStep) -> Iterator[Event]:
        """Everything that *step* shows: itself, its ops with their arrows, counters."""
        yield _boundaries(step)
        yield from self._ops(step)
        yield from self._lanes_busy(step)
        yield from self._payload(step)

    def _ops(self, step: OpStep) -> Iterator[Event]:
        described = [
            _described(label, source, mean_s, step.context)
            for label, source, mean_s in zip(self._labels, self._sources, step.label_s.tolist(), strict=True)
        ]
        durations = step.durations.tolist()
        starts = (step.begin_ns + step.start).tolist()
        ids: dict[tuple[int, int], int] = {}
        for op, (start, duration) in enumerate(zip(starts, durations, strict=True)):
            for lane in self.layout.graph.ops[op].lanes:
                yield {
                    **described[self._label_of[op]],
                    "ts": _us(start),
                    "dur": _us(duration),
                    **self.layout.places[lane]._asdict(),
                }
            for position, flow in enumerate(self.layout.flows[op]):
                place = self.layout.places[flow.target_lane]
                yield {**_flow("f", ids.pop((op, position)), start, place), "bp": "e"}
            for target, position in self._awaited.get(op, ()):
                ids[target, position] = number = next(self._flow_ids)
                place = self.layout.places[self.layout.flows[target][position].source_lane]
                yield _flow("s", number, start + max(0, duration - 1), place)

    def _lanes_busy(self, step: OpStep) -> Iterator[Event]:
        """For each device how many of its lanes are held."""
        for lanes in self.layout.lanes_of.values():
            ops = np.array([op for lane in lanes for op in self.layout.graph.queues[lane]], dtype=np.int64)
            held = _levels(step.start[ops], step.end[ops])
            yield from self._counter(LANES_BUSY, "lanes", lanes[0], step, held)

    def _payload(self, step: OpStep) -> Iterator[Event]:
        """For each link the bytes a second of the messages that it carries."""
        for lane in self.layout.links:
            sizes = {
                op: work.size_bytes
                for op in self.layout.graph.queues[lane]
                if isinstance(work := self.layout.graph.ops[op].work, LinkWork) and step.durations[op]
            }
            ops = list(sizes)
            rates = [size / int(step.durations[op]) for op, size in sizes.items()]
            carried = _rates(step.start[ops].tolist(), step.end[ops].tolist(), rates)
            yield from self._counter(PAYLOAD, "GB/s", lane, step, carried)

    def _counter(
        self, name: str, unit: str, lane: int, step: OpStep, levels: Iterable[tuple[int, float]]
    ) -> Iterator[Event]:
        place = self.layout.places[lane]
        for at_ns, level in levels:
            ts = _us(step.begin_ns + at_ns)
            yield {"name": name, "ph": "C", "ts": ts, **place._asdict(), "args": {unit: level}}


def _name(what: str, place: Place, name: str) -> Event:
    return {"name": what, "ph": "M", **place._asdict(), "args": {"name": name}}


def _boundaries(step: OpStep) -> Event:
    return {
        "name": f"step {step.index}",
        "cat": "step",
        "ph": "X",
        "ts": _us(step.begin_ns),
        "dur": _us(step.step_ns),
        "pid": RUN_PID,
        "tid": RUN_TID,
        "args": {"step": step.index, "tokens": step.tokens, "context_tokens": step.context},
    }


def _flow(phase: str, number: int, at_ns: int, place: Place) -> Event:
    return {
        "name": DEPENDENCY,
        "cat": DEPENDENCY,
        "ph": phase,
        "id": number,
        "ts": _us(at_ns),
        **place._asdict(),
    }


def _described(label: Label, source: Source, mean_s: float, context: int) -> Event:
    """What all executions of *label* in one step have in common."""
    phase, component, work = label
    if isinstance(work, ContextWork):
        work = work.at_context(context)
    return {
        "name": title(work),
        "cat": component.value,
        "ph": "X",
        "args": {
            "component": component.value,
            "phase": phase.value,
            "work": _plain(work),
            "mean_us": round(1e6 * mean_s, 4),
            "source": source.name,
        },
    }


def title(work: Work) -> str:
    """``grouped experts``, ``host work: tree build``: its class, and what kind of that it is."""
    name = " ".join(_WORD.split(type(work).__name__)).lower()
    values = [getattr(work, field.name) for field in fields(work)]
    kinds = [value.value for value in values if isinstance(value, Enum) and not isinstance(value, DType)]
    return ": ".join([name, *(kind.replace("_", " ") for kind in kinds)])


def _plain(value: Any) -> Any:
    """*value* as JSON has it; work with its class under ``kind``."""
    if is_dataclass(value):
        named = {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        return {"kind": type(value).__name__, **named}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple):
        return [_plain(each) for each in value]
    return value


def _levels(starts: IntArray, ends: IntArray) -> Iterator[tuple[int, int]]:
    """How many of what lasts from *starts* to *ends* (ns) there are at a time, wherever that changes."""
    lasts = ends > starts
    moments, at = np.unique(np.concatenate([starts[lasts], ends[lasts]]), return_inverse=True)
    change = np.zeros(len(moments), dtype=np.int64)
    np.add.at(change, at, np.repeat([1, -1], np.count_nonzero(lasts)))
    changes = change != 0
    yield from zip(moments[changes].tolist(), np.cumsum(change)[changes].tolist(), strict=True)


def _rates(starts: list[int], ends: list[int], rates: list[float]) -> Iterator[tuple[int, float]]:
    """*rates* from *starts* to *ends* (ns) of what comes one after the other; zero in between."""
    begins = {*starts}
    for start, end, rate in zip(starts, ends, rates, strict=True):
        yield start, rate
        if end not in begins:
            yield end, 0.0


def _us(ns: int) -> float:
    """Microseconds; their shortest decimal has the nanoseconds, no more and no fewer."""
    return ns / 1000

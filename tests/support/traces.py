"""Reads a trace as Perfetto does: to the ns, sorted by time, slices on threads, flows between them."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from itertools import pairwise
from typing import Any, NamedTuple

Event = dict[str, Any]


class Slice(NamedTuple):
    """A complete event on a thread, ns."""

    tid: int
    start: int
    end: int
    event: Event


class Arrow(NamedTuple):
    """A flow between two slices; *left* and *arrived* are when its two events happened."""

    source: Slice
    target: Slice
    left: int
    arrived: int


@dataclass
class Trace:
    """What a reader makes of the events."""

    slices: list[Slice] = field(default_factory=list)
    arrows: list[Arrow] = field(default_factory=list)
    counters: dict[tuple[int, str], list[tuple[int, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """For each process and counter its changes."""
    threads: dict[int, tuple[str, str]] = field(default_factory=dict)
    """For each thread its process and its own name."""

    def on(self, process: str, thread: str) -> list[Slice]:
        """The slices of one thread."""
        return [found for found in self.slices if self.threads[found.tid] == (process, thread)]

    @property
    def steps(self) -> list[Slice]:
        """The steps."""
        return [found for found in self.slices if self.threads[found.tid][1] == "steps"]

    @property
    def ops(self) -> list[Slice]:
        """What lanes were held by."""
        return [found for found in self.slices if self.threads[found.tid][1] != "steps"]


def loads(text: str) -> list[Event]:
    """The events of a file; numbers with a fraction as they are written."""
    found: list[Event] = json.loads(text, parse_float=Decimal)["traceEvents"]
    return found


def in_memory(events: Iterable[Event]) -> list[Event]:
    """Events as they would be read again."""
    return loads(json.dumps({"traceEvents": list(events)}, allow_nan=False))


def read(events: list[Event]) -> Trace:
    """The Trace of *events*. AssertionError where a reader would drop or misplace one."""
    trace, open_on, flows = Trace(), {}, {}
    _name(trace, [event for event in events if event["ph"] == "M"])
    for event in sorted((event for event in events if event["ph"] != "M"), key=lambda event: ns(event["ts"])):
        at = ns(event["ts"])
        match event["ph"]:
            case "X":
                open_on[event["tid"]] = found = Slice(event["tid"], at, at + ns(event["dur"]), event)
                trace.slices.append(found)
            case "s":
                assert event["id"] not in flows, "two flows with one number"
                flows[event["id"]] = (open_on[event["tid"]], at)
            case "f":
                assert event["bp"] == "e"
                source, left = flows.pop(event["id"])
                trace.arrows.append(Arrow(source, open_on[event["tid"]], left, at))
            case "C":
                for unit, value in event["args"].items():
                    trace.counters[event["pid"], f"{event['name']} {unit}"].append((at, float(value)))
            case kind:
                raise AssertionError(f"an event of kind {kind}")
    assert not flows, "flows that arrive nowhere"
    return trace


def _name(trace: Trace, events: list[Event]) -> None:
    """Perfetto knows a thread by its number alone: no other, and no process, may have it."""
    processes = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    for event in events:
        assert type(event["pid"]) is int
        assert type(event["tid"]) is int
        assert event["tid"] not in processes
        if event["name"] == "thread_name":
            assert event["tid"] not in trace.threads
            trace.threads[event["tid"]] = (processes[event["pid"]], event["args"]["name"])


def ns(us: Decimal | int) -> int:
    """Whole nanoseconds; AssertionError where there is a fraction of one."""
    value = Decimal(us) * 1000
    assert value == int(value), us
    return int(value)


def under(changes: list[tuple[int, float]]) -> float:
    """The integral of a counter over ns."""
    return sum(level * (until - since) for (since, level), (until, _) in pairwise(changes))

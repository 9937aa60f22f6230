"""The step graph: ops in program order, each on one or more in-order lanes.

``start(op) = max(end of its dependencies, free time of each of its lanes)``. An op
may depend on earlier ops only, so no cycle can be written. Durations are not in
the graph: one integer per op is drawn for every step and handed to an engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.work import Work

IntArray = NDArray[np.int64]
Index = NDArray[np.uint64]


class Ragged(NamedTuple):
    """Rows of different lengths end to end: row i is ``items[first[i]:stop[i]]``.

    Unsigned, so that compiled loops need not ask whether an index counts from the end.
    """

    first: Index
    stop: Index
    items: Index

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Ragged:
        """*rows* end to end."""
        bounds = np.cumsum([0, *map(len, rows)], dtype=np.uint64)
        items = np.array([item for row in rows for item in row], dtype=np.uint64)
        return cls(bounds[:-1].copy(), bounds[1:].copy(), items)


class Lane(NamedTuple):
    """An in-order queue of work, such as a CUDA stream or the host thread."""

    device: str
    queue: str

    def __str__(self) -> str:
        return f"{self.device}/{self.queue}"


class Phase(Enum):
    """The stages of one decode step."""

    PREFILL = "prefill"
    SCHEDULE = "schedule"
    DRAFT = "draft"
    COPY_BACK = "copy back"
    TREE = "tree build"
    DISPATCH = "dispatch"
    VERIFY = "verify"
    ACCEPT = "accept"


class Component(Enum):
    """What a piece of the step is attributed to in the breakdown."""

    EXPERTS = "routed experts"
    ATTENTION = "MLA attention"
    DENSE = "dense GEMMs"
    SMALL_KERNELS = "norms and small kernels"
    ALLREDUCE = "AllReduce transfer"
    LM_HEAD = "LM head and logits"
    DRAFTER = "drafter"
    TREE = "tree build and top-k"
    COPIES = "copies and synchronisation"
    LAUNCH = "launches"
    SCHEDULING = "Python scheduling"
    ACCEPTANCE = "acceptance and KV compaction"
    PREFILL = "prefill of new requests"


class Op(NamedTuple):
    """A piece of *work* that holds all its *lanes* once every op in *after* has ended.

    *lanes* and *after* are indices into the graph; *rank* is None for work that
    belongs to no single GPU.
    """

    phase: Phase
    component: Component
    work: Work
    lanes: tuple[int, ...]
    after: tuple[int, ...]
    rank: int | None


@dataclass(frozen=True, eq=False)
class StepGraph:
    """One decode step: *ops* in program order over *lanes*. Compared by identity."""

    lanes: tuple[Lane, ...]
    ops: tuple[Op, ...]

    def __post_init__(self) -> None:
        for index, op in enumerate(self.ops):
            if not op.lanes:
                raise ValueError(f"op {index} holds no lane")
            if len(set(op.lanes)) != len(op.lanes):
                raise ValueError(f"op {index} names a lane twice: {op.lanes}")
            if any(not 0 <= lane < len(self.lanes) for lane in op.lanes):
                raise ValueError(f"op {index} names a lane that does not exist: {op.lanes}")
            if any(not 0 <= dep < index for dep in op.after):
                raise ValueError(f"op {index} depends on {op.after}; only earlier ops are allowed")

    @cached_property
    def works(self) -> tuple[Work, ...]:
        """The distinct pieces of work, in order of first use."""
        return tuple(dict.fromkeys(op.work for op in self.ops))

    @cached_property
    def work_index(self) -> IntArray:
        """For each op the index of its work in ``works``."""
        index = {work: i for i, work in enumerate(self.works)}
        return np.array([index[op.work] for op in self.ops], dtype=np.int64)

    @cached_property
    def queues(self) -> tuple[tuple[int, ...], ...]:
        """For each lane the ops it runs, in order."""
        queues: list[list[int]] = [[] for _ in self.lanes]
        for index, op in enumerate(self.ops):
            for lane in op.lanes:
                queues[lane].append(index)
        return tuple(tuple(queue) for queue in queues)

    @cached_property
    def predecessors(self) -> tuple[tuple[int, ...], ...]:
        """For each op everything that can hold it up: dependencies, then the op before it on each lane."""
        last: dict[int, int] = {}
        found = []
        for index, op in enumerate(self.ops):
            before = [*op.after, *(last[lane] for lane in op.lanes if lane in last)]
            found.append(tuple(dict.fromkeys(before)))
            last.update(dict.fromkeys(op.lanes, index))
        return tuple(found)

    @cached_property
    def held_by(self) -> Ragged:
        """``predecessors`` as arrays."""
        return Ragged.of(self.predecessors)


@dataclass
class GraphBuilder:
    """Appends ops by lane; ``build`` freezes the result."""

    _lanes: dict[Lane, int] = field(default_factory=dict)
    _ops: list[Op] = field(default_factory=list)

    def add(
        self,
        phase: Phase,
        component: Component,
        work: Work,
        lanes: Iterable[Lane],
        after: Iterable[int] = (),
        rank: int | None = None,
    ) -> int:
        """Append an op and return its index."""
        held = tuple(self._lanes.setdefault(lane, len(self._lanes)) for lane in lanes)
        self._ops.append(Op(phase, component, work, held, tuple(dict.fromkeys(after)), rank))
        return len(self._ops) - 1

    def build(self) -> StepGraph:
        """The graph so far."""
        return StepGraph(tuple(self._lanes), tuple(self._ops))

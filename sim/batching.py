"""Requests that decode together: a closed loop in lock-step.

As many users as the load's concurrency each ask again as soon as they have their output. A
scheduler lets in what fits into the cache (``sim.scheduler``); who does not fit waits. Every step
verifies one tree of every request in the batch, and commits what each lands. A request that has
its output leaves, and the one that waits longest takes its slot in the step after. A run goes on
until the first request of every slot has left: the batch is full all along, so that neither
ramp-up nor drain is in it. Prefill is outside unless the load asks for it.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.acceptance import Acceptance
from sim.errors import SimulationError
from sim.graph import IntArray
from sim.scenario import Load
from sim.scheduler import Scheduler


class Capacity(NamedTuple):
    """The attention cache in blocks."""

    blocks: int
    """In all, on each rank."""
    per_request: int
    """That one request needs for its whole life."""

    @property
    def requests(self) -> int:
        """Requests that fit at a time."""
        return self.blocks // self.per_request


@dataclass(frozen=True, eq=False)
class Batch:
    """What the requests in the slots do, step by step."""

    lengths: IntArray
    """(steps, slots) tokens committed."""
    contexts: IntArray
    """(steps, slots) cached tokens when the step begins."""
    joined: NDArray[np.float64]
    """(steps,) requests that join the batch as the step begins, those that fill it at the start too."""
    first_steps: IntArray
    """(slots,) steps that the first request of each slot took."""

    @property
    def mean_contexts(self) -> IntArray:
        """(steps,) cached tokens of a request, mean over the batch: attention time is linear in it."""
        mean: IntArray = np.rint(self.contexts.mean(axis=1)).astype(np.int64)
        return mean


def closed_loop(
    model: Acceptance,
    load: Load,
    luck: Sequence[np.random.Generator],
    capacity: Capacity | None = None,
) -> Batch:
    """A run of *load* with one user for each generator of *luck*.

    Without a *capacity* everyone fits. SimulationError where not even one request does.
    """
    room = capacity or Capacity(len(luck), 1)
    slots = min(len(luck), room.requests)
    if not slots:
        raise SimulationError(f"a request needs {room.per_request} of {room.blocks} blocks")
    return _Loop(model, load, luck, Scheduler(room.blocks, slots), room.per_request).batch()


class _Loop:
    """One run: everything happens when a request leaves."""

    def __init__(
        self,
        model: Acceptance,
        load: Load,
        luck: Sequence[np.random.Generator],
        scheduler: Scheduler,
        blocks: int,
    ) -> None:
        self._model, self._load, self._luck = model, load, luck
        self._scheduler = scheduler
        self._blocks = blocks
        self._slots: list[list[IntArray]] = [[] for _ in range(scheduler.slots)]
        self._joined: list[int] = []
        """The step in which each request joins."""
        self._leaving: list[tuple[int, int, int]] = []
        """When who leaves which slot: (step, slot, user)."""

    def batch(self) -> Batch:
        """Play the run."""
        for user in range(len(self._luck)):
            self._scheduler.arrive(user, self._blocks)
        self._admit(0, list(range(len(self._slots))))
        firsts = [len(requests[0]) for requests in self._slots]
        steps = max(firsts)
        while self._leaving[0][0] < steps:
            self._turn_over()
        columns = [_column(requests, self._load.context_tokens, steps) for requests in self._slots]
        lengths, contexts = (np.stack(of_slots, axis=1) for of_slots in zip(*columns, strict=True))
        joined = np.bincount(np.array(self._joined, dtype=np.int64), minlength=steps)[:steps].astype(float)
        return Batch(lengths, contexts, joined, np.array(firsts, dtype=np.int64))

    def _turn_over(self) -> None:
        """Everyone whose last step is the same leaves, asks again, and makes room for those that wait."""
        step, freed = self._leaving[0][0], []
        while self._leaving and self._leaving[0][0] == step:
            _, slot, user = heapq.heappop(self._leaving)
            self._scheduler.finish(user)
            self._scheduler.arrive(user, self._blocks)
            freed.append(slot)
        self._admit(step, freed)

    def _admit(self, step: int, slots: list[int]) -> None:
        admitted = self._scheduler.admit()
        if len(admitted) != len(slots):
            raise SimulationError(f"{len(admitted)} requests for {len(slots)} slots")
        for user, slot in zip(admitted, slots, strict=True):
            lengths = self._model.draw(self._luck[user], self._load.output_tokens)
            self._joined.append(step)
            self._slots[slot].append(lengths)
            heapq.heappush(self._leaving, (step + len(lengths), slot, user))


def _column(requests: list[IntArray], start: int, steps: int) -> tuple[IntArray, IntArray]:
    """Lengths and contexts of the first *steps* steps of a slot, request after request."""
    contexts = [start + np.cumsum(lengths) - lengths for lengths in requests]
    return np.concatenate(requests)[:steps], np.concatenate(contexts)[:steps]

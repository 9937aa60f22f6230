"""Which requests decode, and which wait: blocks of the attention cache, first come first served.

A request is admitted when a slot and the blocks of its whole life are free, so that nothing is
ever preempted; no later request overtakes one that waits. Nothing here happens step by step: work
is done when requests arrive, finish or are cancelled, and a step costs nothing.
"""

from __future__ import annotations

from collections import deque
from enum import Enum


class State(Enum):
    """Where a request is."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    CANCELLED = "cancelled"


class Scheduler:
    """Hands *blocks* cache blocks and *slots* places of the batch to requests, named by integers."""

    def __init__(self, blocks: int, slots: int) -> None:
        if not (blocks >= 1 and slots >= 1):
            raise ValueError(f"blocks and slots must be at least 1, got {blocks} and {slots}")
        self.blocks = blocks
        self.slots = slots
        self._free = blocks
        self._waiting: deque[int] = deque()
        self._needs: dict[int, int] = {}
        self._held: dict[int, int] = {}
        self._ended: dict[State, int] = {State.FINISHED: 0, State.CANCELLED: 0}
        self._arrived = 0

    @property
    def waiting(self) -> tuple[int, ...]:
        """Requests that wait, the longest first."""
        return tuple(self._waiting)

    @property
    def running(self) -> tuple[int, ...]:
        """Requests that decode, in the order of their admission."""
        return tuple(self._held)

    @property
    def free_blocks(self) -> int:
        """Blocks that no request holds."""
        return self._free

    @property
    def allocated_blocks(self) -> int:
        """Blocks that requests hold."""
        return sum(self._held.values())

    @property
    def counts(self) -> dict[State, int]:
        """How many requests are in each state."""
        return {State.WAITING: len(self._waiting), State.RUNNING: len(self._held), **self._ended}

    @property
    def arrived(self) -> int:
        """Requests that ever arrived."""
        return self._arrived

    def arrive(self, request: int, blocks: int) -> None:
        """Queue *request*, which needs *blocks*; ValueError where it is here already or can never fit."""
        if request in self._needs or request in self._held:
            raise ValueError(f"request {request} is here already")
        if not 1 <= blocks <= self.blocks:
            raise ValueError(f"request {request} needs {blocks} of {self.blocks} blocks")
        self._needs[request] = blocks
        self._waiting.append(request)
        self._arrived += 1

    def admit(self) -> tuple[int, ...]:
        """Let in those that wait longest, as far as slots and blocks go; returns them in order."""
        admitted = []
        while self._waiting and len(self._held) < self.slots:
            first = self._waiting[0]
            if self._needs[first] > self._free:
                break
            self._held[first] = self._needs.pop(first)
            self._free -= self._held[first]
            admitted.append(self._waiting.popleft())
        return tuple(admitted)

    def finish(self, request: int) -> None:
        """*request*, which runs, has its output: its blocks are free. ValueError where it does not run."""
        if request not in self._held:
            raise ValueError(f"request {request} does not run")
        self._release(request)
        self._ended[State.FINISHED] += 1

    def cancel(self, request: int) -> None:
        """*request* gives up, waiting or running; ValueError where it is not here."""
        if request in self._held:
            self._release(request)
        elif request in self._needs:
            del self._needs[request]
            self._waiting.remove(request)
        else:
            raise ValueError(f"request {request} is not here")
        self._ended[State.CANCELLED] += 1

    def _release(self, request: int) -> None:
        self._free += self._held.pop(request)

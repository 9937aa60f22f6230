"""The scheduler beside a plain model of it: nobody is lost, no block is, nobody overtakes."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from sim.scheduler import Scheduler, State

BLOCKS, SLOTS = 12, 4


class SchedulerBesideADict(RuleBasedStateMachine):
    """Requests arrive, are admitted before a step, finish after one, or give up."""

    @initialize(blocks=st.integers(1, BLOCKS), slots=st.integers(1, SLOTS))
    def begin(self, blocks: int, slots: int) -> None:
        self.scheduler = Scheduler(blocks, slots)
        self.state: dict[int, State] = {}
        self.needs: dict[int, int] = {}
        self.queue: list[int] = []

    def of(self, state: State) -> list[int]:
        return [request for request, found in self.state.items() if found is state]

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        blocks, request = data.draw(st.integers(1, self.scheduler.blocks)), len(self.state)
        self.scheduler.arrive(request, blocks)
        self.state[request], self.needs[request] = State.WAITING, blocks
        self.queue.append(request)

    @rule()
    def step(self) -> None:
        expected = []
        free = self.scheduler.blocks - sum(self.needs[r] for r in self.of(State.RUNNING))
        for request in list(self.queue):
            full = len(self.of(State.RUNNING)) == self.scheduler.slots
            if full or self.needs[request] > free:
                break
            free -= self.needs[request]
            self.state[request] = State.RUNNING
            self.queue.remove(request)
            expected.append(request)
        assert list(self.scheduler.admit()) == expected
        assert self.scheduler.admit() == ()

    @precondition(lambda self: self.of(State.RUNNING))
    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.of(State.RUNNING)))
        self.scheduler.finish(request)
        self.state[request] = State.FINISHED

    @precondition(lambda self: self.of(State.RUNNING) + self.queue)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(self.of(State.RUNNING) + self.queue))
        self.scheduler.cancel(request)
        self.state[request] = State.CANCELLED
        if request in self.queue:
            self.queue.remove(request)

    @precondition(lambda self: self.of(State.FINISHED) or self.of(State.CANCELLED) or self.queue)
    @rule(data=st.data())
    def what_does_not_run_cannot_finish(self, data: st.DataObject) -> None:
        gone = self.of(State.FINISHED) + self.of(State.CANCELLED) + self.queue
        with pytest.raises(ValueError, match="does not run"):
            self.scheduler.finish(data.draw(st.sampled_from(gone)))

    @invariant()
    def requests_are_conserved(self) -> None:
        assert self.scheduler.counts == {state: len(self.of(state)) for state in State}
        assert sum(self.scheduler.counts.values()) == self.scheduler.arrived == len(self.state)
        assert sorted(self.scheduler.running) == self.of(State.RUNNING)
        assert list(self.scheduler.waiting) == self.queue

    @invariant()
    def blocks_are_conserved(self) -> None:
        scheduler = self.scheduler
        assert scheduler.allocated_blocks == sum(self.needs[r] for r in self.of(State.RUNNING))
        assert scheduler.allocated_blocks + scheduler.free_blocks == scheduler.blocks
        assert scheduler.free_blocks >= 0


TestScheduler = SchedulerBesideADict.TestCase


def test_a_small_request_does_not_overtake_a_large_one() -> None:
    scheduler = Scheduler(blocks=10, slots=8)
    for request, blocks in enumerate((6, 6, 1)):
        scheduler.arrive(request, blocks)
    assert scheduler.admit() == (0,)
    assert scheduler.waiting == (1, 2)
    scheduler.finish(0)
    assert scheduler.admit() == (1, 2)


@pytest.mark.parametrize("blocks", [0, 11])
def test_what_can_never_fit_is_refused(blocks: int) -> None:
    with pytest.raises(ValueError, match=f"needs {blocks} of 10 blocks"):
        Scheduler(blocks=10, slots=1).arrive(0, blocks)


def test_a_request_cannot_be_here_twice() -> None:
    scheduler = Scheduler(blocks=10, slots=1)
    scheduler.arrive(3, 2)
    with pytest.raises(ValueError, match="request 3 is here already"):
        scheduler.arrive(3, 2)
    with pytest.raises(ValueError, match="request 4 is not here"):
        scheduler.cancel(4)


@pytest.mark.parametrize(("blocks", "slots"), [(0, 1), (1, 0)])
def test_there_is_something_to_hand_out(blocks: int, slots: int) -> None:
    with pytest.raises(ValueError, match="must be at least 1"):
        Scheduler(blocks, slots)

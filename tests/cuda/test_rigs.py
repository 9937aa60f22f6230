"""A rig lets no wrong result be timed, and none that timing has changed or left out."""

from __future__ import annotations

from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuda import launch, reference
from cuda.reference import WrongResultError
from cuda.rigs import CHECKED_EXPERTS, MOST_HELD_NODES, EmptyGraph, Kernels, Repeated, Timing, _few_experts

OPERATION = launch.Copy(64, blocks=1)
INPUTS = reference.make_inputs(OPERATION, np.random.default_rng(1))
RIGHT = reference.expect(OPERATION, INPUTS)
WRONG = {name: array + 1 for name, array in RIGHT.items()}
LAYER = launch.ExpertLayer(tokens=9)


class FakeGpu:
    """Writes down what is queued."""

    def __init__(self) -> None:
        self.log: list[str] = []
        self.stream = SimpleNamespace(synchronize=lambda: self.log.append("synchronise"))

    def queue(self, launches: tuple[launch.Launch, ...], _: Any) -> None:
        self.log += [each.entry for each in launches]

    def graph(self, queue: Any, copies: int) -> Any:
        self.log.append(f"capture {copies}")
        queue()
        return SimpleNamespace(launch=lambda: self.log.append("replay"))


class FakeMemory:
    """Gives *results* one after the other; *poisoned* outputs were never written."""

    addresses: Any = MappingProxyType({})

    def __init__(self, *results: dict[str, Any], poisoned: tuple[str, ...] = ()) -> None:
        self.log: list[str] = []
        self._results = iter(results)
        self._poisoned = poisoned

    def fill(self, _: Any) -> None:
        self.log.append("fill")

    def poison(self) -> None:
        self.log.append("poison")

    def put(self, arrays: dict[str, Any]) -> None:
        self.log.append(f"put {' '.join(sorted(arrays))}")

    def results(self) -> dict[str, Any]:
        return next(self._results)

    def still_poisoned(self) -> list[str]:
        return list(self._poisoned)


def rig(memory: FakeMemory, operation: launch.Operation = OPERATION) -> Kernels:
    gpu: Any = FakeGpu()
    fake: Any = memory
    return Kernels(gpu, operation, INPUTS, fake)


def test_right_results_are_verified_and_poisoned_before_timing() -> None:
    memory = FakeMemory(RIGHT, RIGHT)
    found = rig(memory)
    found.verify()
    assert memory.log == ["fill", "poison"]
    found.verify_again()


def test_a_wrong_result_is_found_before_timing() -> None:
    with pytest.raises(WrongResultError, match="copied of Copy"):
        rig(FakeMemory(WRONG)).verify()


def test_an_output_that_timing_never_wrote_is_found() -> None:
    found = rig(FakeMemory(RIGHT, RIGHT, poisoned=("copied",)))
    found.verify()
    with pytest.raises(WrongResultError, match="no timed launch has written it"):
        found.verify_again()


def test_a_result_that_changed_since_is_found() -> None:
    found = rig(FakeMemory(RIGHT, WRONG))
    found.verify()
    with pytest.raises(WrongResultError, match="changed while it was timed"):
        found.verify_again()


def test_experts_get_a_new_routing_for_each_sample_and_other_kernels_nothing() -> None:
    memory, luck = FakeMemory(), np.random.default_rng(1)
    assert rig(memory).renew(luck) is None
    assert memory.log == []
    counts = {rig(memory, LAYER).renew(luck) for _ in range(20)}
    assert len(counts) > 3
    assert min(filter(None, counts)) > CHECKED_EXPERTS
    assert set(memory.log) == {"put active expert offset own_slot slot_of slot_weight token_of_slot"}


def test_a_layer_is_checked_with_few_experts_and_every_token() -> None:
    routing = _few_experts(LAYER, np.random.default_rng(1))
    active = int(routing["active"][0])
    assert LAYER.top_k < active <= CHECKED_EXPERTS
    assert sorted(routing["slot_of"].ravel().tolist()) == list(range(LAYER.slots))


@pytest.mark.parametrize(
    ("nodes", "asked", "timing"),
    [
        (MOST_HELD_NODES, Timing.HELD, Timing.HELD),
        (MOST_HELD_NODES + 1, Timing.HELD, Timing.FREE),
        (MOST_HELD_NODES + 1, Timing.ON_HOST, Timing.ON_HOST),
    ],
)
def test_a_stream_is_not_held_before_a_graph_that_may_fill_it(
    nodes: int, asked: Timing, timing: Timing
) -> None:
    gpu: Any = FakeGpu()
    assert EmptyGraph(gpu, nodes, asked).timing is timing
    assert gpu.log == ["empty", "synchronise", f"capture {nodes}", "empty"]


def test_what_is_captured_has_run_before() -> None:
    gpu: Any = FakeGpu()
    memory: Any = FakeMemory(RIGHT)
    repeated = Repeated(gpu, Kernels(gpu, OPERATION, INPUTS, memory), 20)
    repeated.verify()
    assert gpu.log == ["copy", "synchronise", "capture 20", "copy"]
    [queue] = repeated.queues()
    queue()
    assert gpu.log[-1] == "replay"

"""A rig lets no wrong result be timed, and none that timing has changed or left out."""

from __future__ import annotations

from contextlib import nullcontext
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from cuda import launch, peers, reference
from cuda.device import DeviceError, Gpu
from cuda.driver import GraphError
from cuda.operations import UnmeasurableError
from cuda.plan import MOST_HELD_NODES, Subject
from cuda.reference import WrongResultError
from cuda.rigs import (
    CHECKED_EXPERTS,
    EmptyGraph,
    Kernels,
    Nothing,
    Repeated,
    Rigs,
    Timing,
    _few_experts,
)
from hwmodels import cases
from hwmodels.cases import AllReduceAlgorithm
from hwmodels.measured import DiscardReason, Series

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


def test_an_empty_graph_is_captured_once_its_kernel_is_loaded() -> None:
    gpu: Any = FakeGpu()
    assert EmptyGraph(gpu, 7, Timing.HELD).timing is Timing.HELD
    assert gpu.log == ["empty", "synchronise", "capture 7", "empty"]


def test_a_stream_is_not_held_before_a_graph_that_may_fill_it() -> None:
    gpu: Any = FakeGpu()
    rigs = Rigs(gpu, 1, 20)
    most = Subject(cases.GraphReplay(nodes=MOST_HELD_NODES), Series.WARM)
    assert rigs.rig(most).timing is Timing.HELD
    more = cases.GraphReplay(nodes=MOST_HELD_NODES + 1)
    with pytest.raises(UnmeasurableError, match=f"a held stream takes {MOST_HELD_NODES} nodes"):
        rigs.rig(Subject(more, Series.WARM))
    launched = Subject(cases.GraphLaunch(nodes=more.nodes), Series.WARM)
    assert rigs.rig(launched).timing is Timing.ON_HOST


def test_what_is_captured_has_run_before() -> None:
    gpu: Any = FakeGpu()
    memory: Any = FakeMemory(RIGHT)
    repeated = Repeated(gpu, Kernels(gpu, OPERATION, INPUTS, memory), 20)
    repeated.verify()
    assert gpu.log == ["copy", "synchronise", "capture 20", "copy"]
    [queue] = repeated.queues()
    queue()
    assert gpu.log[-1] == "replay"


def test_a_kernel_without_memory_has_run_before_it_is_captured() -> None:
    gpu: Any = FakeGpu()
    Repeated(gpu, Nothing(gpu, launch.Empty()), 20).verify()
    assert gpu.log == ["empty", "synchronise", "capture 20", "empty"]


class RefusalError(Exception):
    """What a driver raises."""


def refusing_driver(**context: Any) -> Any:
    """A driver whose context does as *context* says, and nothing else goes wrong."""
    nothing = SimpleNamespace(push=list, pop=list, detach=list)
    device = SimpleNamespace(make_context=lambda: SimpleNamespace(**(vars(nothing) | context)))
    pycuda = SimpleNamespace(
        Error=RefusalError, Device=lambda _: device, Stream=lambda: SimpleNamespace(synchronize=list)
    )
    return SimpleNamespace(pycuda=pycuda, target=lambda _: None)


@pytest.mark.parametrize("problem", [RefusalError("no"), GraphError("cuGraphLaunch", 700)])
def test_whatever_a_driver_refuses_is_one_error(problem: Exception) -> None:
    with pytest.raises(DeviceError, match=str(problem)), Gpu(refusing_driver(), 0).active():
        raise problem


def test_what_ends_a_session_is_not_hidden_by_a_device_that_cannot_be_closed() -> None:
    tried = []

    def refuse(*_: Any) -> None:
        tried.append("refused")
        raise RefusalError("dead")

    gpu = Gpu(refusing_driver(push=refuse, detach=refuse), 0)
    gpu.close()
    assert tried == ["refused"] * 3


class Peer(FakeGpu):
    """A GPU whose memory is a table of arrays."""

    def __init__(self, log: list[str], name: str) -> None:
        super().__init__()
        self.log, self.name = log, name
        self.memory: dict[int, Any] = {}

    def active(self) -> Any:
        return nullcontext()

    def allocate(self, _: int) -> int:
        self.memory[len(self.memory)] = None
        return len(self.memory) - 1

    def upload(self, address: int, array: Any) -> None:
        self.memory[address] = array.copy()

    def download(self, _: launch.Buffer, address: int) -> Any:
        return self.memory[address].copy()

    def load(self, launches: tuple[launch.Launch, ...]) -> None:
        self.log += [f"load on {self.name}" for _ in launches]

    def queue(self, _: tuple[launch.Launch, ...], addresses: Any) -> None:
        self.log.append(f"queue on {self.name}")
        self.last = addresses


def reduction() -> tuple[peers.Reduction, list[Peer], list[str]]:
    log: list[str] = []
    gpus: Any = [Peer(log, name) for name in "ab"]
    case = cases.Reduce(message_bytes=64, ranks=2, algorithm=AllReduceAlgorithm.ONE_SHOT)
    return peers.Reduction(gpus, case, np.random.default_rng(1)), gpus, log


def test_all_gpus_load_their_kernels_before_one_waits_for_another() -> None:
    found, _, log = reduction()
    with pytest.raises(WrongResultError, match="is not the sum"):
        found.verify()
    assert log[:4] == ["load on a", "load on b", "queue on a", "queue on b"]


def test_a_peer_that_was_missed_is_a_fault_once_and_a_wrong_result_when_checked() -> None:
    found, gpus, _ = reduction()
    for gpu, queue in zip(gpus, found.queues(), strict=True):
        queue()
        assert gpu.memory[gpu.last["timed_out"]] == [0]
    assert found.fault() is None
    gpus[1].memory[gpus[1].last["timed_out"]][:] = 1
    with pytest.raises(WrongResultError, match="a peer was missed"):
        found.verify()
    assert found.fault() is DiscardReason.PEER_MISSED
    assert found.fault() is None


def test_graphs_are_given_back_with_the_device() -> None:
    destroyed: list[str] = []
    library = SimpleNamespace(
        cuStreamBeginCapture_v2=lambda *_: 0,
        cuStreamEndCapture=lambda *_: 0,
        cuGraphInstantiateWithFlags=lambda *_: 0,
        cuGraphDestroy=lambda *_: 0,
        cuGraphExecDestroy=lambda *_: destroyed.append("graph") or 0,
    )
    driver = refusing_driver()
    driver.library = library
    driver.pycuda.Stream = lambda: SimpleNamespace(synchronize=list, handle=0)
    gpu = Gpu(driver, 0)
    for _ in range(2):
        gpu.graph(lambda: None, copies=3)
    assert destroyed == []
    gpu.close()
    assert destroyed == ["graph"] * 2

"""Drives a GPU, or the emulated driver, through pycuda; a program for a process of its own.

``emulated.py DRIVER [SEEDS]`` runs every kernel on inputs of so many seeds (1) and prints a JSON
object of what each part gave, on one device or on two. It fails with a traceback where anything is
not as it must be on every device.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from cuda_cases import CASES, name_of
from numpy.typing import NDArray

from cuda import reference
from cuda.build import module_image
from cuda.driver import Driver, Graph, Prepared, open_driver, prepare
from cuda.hostkernel import make_memory
from cuda.launch import (
    AllReduce,
    Cache,
    Copy,
    ExpertLayer,
    Hold,
    Norm,
    Operation,
    Shots,
    Stamp,
    TreeAttention,
    TreeBuild,
)
from sim import ddtree

LIMIT_NS = 100_000_000
"""A held stream gives up after this."""
CROWDED_LAYER = ExpertLayer(20, experts=3, top_k=2, hidden=1024, intermediate=256)


class Device:
    """A context on one device, a stream, and memory by name."""

    def __init__(self, driver: Driver, number: int = 0) -> None:
        self.driver = driver
        self.device = driver.pycuda.Device(number)
        self.context = self.device.make_context()
        self.stream = driver.pycuda.Stream()
        self.target = driver.target(self.device)

    def upload(self, memory: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
        return {name: self.driver.pycuda.to_device(array) for name, array in memory.items()}

    def download(self, operation: Operation, addresses: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
        return {
            buffer.name: self.driver.pycuda.from_device(
                addresses[buffer.name], buffer.shape, buffer.element.dtype
            )
            for buffer in operation.buffers()
        }

    def prepare(self, operation: Operation) -> list[Prepared]:
        return [prepare(self.driver, launch, self.target) for launch in operation.launches()]

    def prepare_stamp(self) -> Prepared:
        """One block for each processor: it writes on one of them, whichever block that gets."""
        processors = self.device.get_attribute(self.driver.pycuda.device_attribute.MULTIPROCESSOR_COUNT)
        (launch,) = Stamp().launches()
        return prepare(self.driver, launch._replace(grid=(processors, 1, 1)), self.target)

    def run(self, operation: Operation, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        addresses = self.upload(make_memory(operation, inputs))
        for launch in self.prepare(operation):
            launch.run(self.stream, {name: int(at) for name, at in addresses.items()})
        self.stream.synchronize()
        return self.download(operation, addresses)


def run_case(device: Device, operation: Operation, seeds: int) -> str:
    for seed in range(seeds):
        inputs = reference.make_inputs(operation, np.random.default_rng(seed))
        reference.check(operation, inputs, device.run(operation, inputs))
    return "right"


def check_masks(device: Device, cache: Cache, seed: int) -> None:
    """A changed node changes the rows that see it, bit for bit, and no other."""
    operation = TreeAttention(1, 33, 40, 2, cache)
    inputs = reference.make_inputs(operation, np.random.default_rng(seed))
    before = device.run(operation, inputs)["out"][0]
    for node in (1, 15, 16, 31, 32):
        changed = inputs | {"cache": inputs["cache"].copy()}
        key = changed["cache"][0, operation.context + node]
        key ^= np.array(1 << (8 * key.itemsize - 1), key.dtype)
        after = device.run(operation, changed)["out"][0]
        differs = (before != after).reshape(operation.tokens, -1).any(axis=1)
        sees = inputs["sees"][0, : operation.tokens, node // 32] >> np.uint32(node % 32) & 1
        np.testing.assert_array_equal(differs, sees == 1)


def check_trees(device: Device, budget: int, seed: int) -> None:
    """Node by node and bit by bit the simulator's tree, many of its probabilities tied."""
    luck = np.random.default_rng(seed)
    rows = -np.sort(-luck.choice([0.0, 0.125, 0.25, 0.5, 1.0], (8, 6))).astype(np.float32)
    tokens = np.arange(rows.size, dtype=np.int32).reshape(rows.shape)
    inputs = {"marginals": rows, "tokens": tokens, "root_token": np.array([7], np.int32)}
    operation = TreeBuild(1, *rows.shape, budget)
    found = device.run(
        operation, {b.name: inputs[b.name].reshape(b.shape) for b in operation.buffers() if b.name in inputs}
    )
    expected = ddtree.build(rows.astype(float).tolist(), budget)
    count = len(expected.nodes) + 1
    assert found["nodes"].tolist() == [count]
    assert found["parent"][0, :count].tolist() == [-1, *(node.parent for node in expected.nodes)]
    assert found["probability"][0, :count].tolist() == [1.0, *(node.probability for node in expected.nodes)]
    bits = np.unpackbits(found["sees"][0, :count].view(np.uint8), axis=-1, bitorder="little").astype(bool)
    np.testing.assert_array_equal(bits[:, :count], ddtree.ancestor_mask(expected))
    assert not bits[:, count:].any()


def check_crowding(device: Device, seed: int) -> None:
    """One expert has nine tokens in ten, which take several passes; all have a second one."""
    layer, luck = CROWDED_LAYER, np.random.default_rng(seed)
    inputs = reference.make_inputs(layer, luck)
    chosen = np.where(luck.random((layer.tokens, 1)) < 0.9, [[0, 2]], [[1, 2]])
    inputs |= reference.sort_by_expert(layer, chosen, luck.random((layer.tokens, 2)))
    reference.check(layer, inputs, device.run(layer, inputs))


def check_laws(device: Device, seeds: int) -> dict[str, str]:
    """What the tests of kernels on the CPU hold, on this device too."""
    for seed in range(seeds):
        for cache in Cache:
            check_masks(device, cache, seed)
        for budget in (1, 32, 80):
            check_trees(device, budget, seed)
        check_crowding(device, seed)
    return dict.fromkeys(("masks", "trees", "crowding"), "right")


def replay_graph(device: Device) -> dict[str, Any]:
    """A graph of ten residual additions, replayed twice, adds x twenty times."""
    operation = Norm(2, 1024)
    inputs = reference.make_inputs(operation, np.random.default_rng(0))
    inputs["residual"][:] = 0
    inputs["x"][:] = reference.to_bf16(np.ones(1))
    addresses = device.upload(make_memory(operation, inputs))
    (launch,) = device.prepare(operation)
    graph = Graph(device.driver, device.stream)
    with graph.capture():
        for _ in range(10):
            launch.run(device.stream, {name: int(at) for name, at in addresses.items()})
    device.stream.synchronize()
    captured = device.download(operation, addresses)["residual"]
    begin, end = device.driver.pycuda.Event(), device.driver.pycuda.Event()
    begin.record(device.stream)
    for _ in range(2):
        graph.launch()
    end.record(device.stream)
    end.synchronize()
    graph.destroy()
    replayed = device.download(operation, addresses)["residual"]
    assert not captured.any()
    assert (reference.from_bf16(replayed) == 20).all()
    return {
        "captured": float(reference.from_bf16(captured).max()),
        "replayed": float(reference.from_bf16(replayed).max()),
        "us": end.time_since(begin) * 1e3,
    }


def time_a_held_kernel(device: Device, release: bool) -> dict[str, Any]:
    """The order of a cold sample: hold, stamp, event, kernel, event, stamp, release."""
    pycuda = device.driver.pycuda
    mapped = pycuda.pagelocked_zeros(8, np.uint64, mem_flags=pycuda.host_alloc_flags.DEVICEMAP)
    base = int(mapped.base.get_device_pointer())
    (hold,) = device.prepare(Hold(limit_ns=LIMIT_NS))
    stamp = device.prepare_stamp()
    operation = Copy(1024, blocks=1)
    addresses = device.upload(
        make_memory(operation, reference.make_inputs(operation, np.random.default_rng(0)))
    )
    (copy,) = device.prepare(operation)
    begin, end = pycuda.Event(), pycuda.Event()
    hold.run(device.stream, {"go": base, "timed_out": base + 8})
    stamp.run(device.stream, {"stamp": base + 16})
    begin.record(device.stream)
    copy.run(device.stream, {name: int(at) for name, at in addresses.items()})
    end.record(device.stream)
    stamp.run(device.stream, {"stamp": base + 32})
    early = bool(end.query())
    mapped[0] = int(release)
    device.stream.synchronize()
    begin_ns, begin_cycles, end_ns, end_cycles = (int(word) for word in mapped[2:6])
    # Without a release the end may have come early by giving up.
    assert not (early and release)
    assert int(mapped[1]) == (not release)
    assert 0 < begin_ns <= end_ns
    assert 0 < begin_cycles < end_cycles
    return {
        "early": early,
        "timed_out": int(mapped[1]),
        "us": end.time_since(begin) * 1e3,
        # A timer may tick more slowly than this kernel is.
        "ghz": (end_cycles - begin_cycles) / (end_ns - begin_ns) if end_ns > begin_ns else None,
    }


def catch(function: Callable[[], Any], error: type[Exception]) -> str:
    try:
        function()
    except error as caught:
        return str(caught)
    return "nothing"


def misuse(device: Device) -> dict[str, str]:
    """What a real driver refuses the emulated one refuses too."""
    pycuda = device.driver.pycuda
    memory = pycuda.mem_alloc(64)
    (empty,) = device.prepare(Copy(16, blocks=1))
    support = pycuda.module_from_buffer(module_image("support", device.target))
    refused = {
        "copy past the end": lambda: pycuda.memcpy_htod(memory, np.zeros(65, np.uint8)),
        "shared memory not asked for": lambda: empty.function.prepared_async_call(
            (1, 1), (1, 1, 1), device.stream, int(memory), int(memory), 0, shared_size=49 * 1024
        ),
        "more than there is": lambda: empty.function.set_attribute(
            pycuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 * 1024
        ),
        "an unknown module": lambda: pycuda.module_from_buffer(b"not a module\0"),
        "an unknown kernel": lambda: support.get_function("no_such_kernel"),
    }
    said = {name: catch(function, pycuda.Error) for name, function in refused.items()}
    # A GPU may round an allocation up, and then lets a copy past its end pass.
    assert [name for name, words in said.items() if words == "nothing"] in ([], ["copy past the end"])
    return said


@contextmanager
def current(device: Device) -> Iterator[Device]:
    device.context.push()
    try:
        yield device
    finally:
        device.context.pop()


def enable_peers(devices: list[Device]) -> str:
    """Each may read the others' memory; what a second try says."""
    said = ""
    for device, peer in itertools.permutations(devices, 2):
        assert device.device.can_access_peer(peer.device)
        with current(device):
            device.context.enable_peer_access(peer.context)
            said = catch(partial(device.context.enable_peer_access, peer.context), device.driver.pycuda.Error)
    return said


def reduce_over_peers(devices: list[Device], shots: Shots) -> str:
    """All memory is there before the first kernel is queued: then they wait for each other."""
    ranks, values = len(devices), 8 * 500
    operations = [AllReduce(ranks, rank, values, 1, shots, blocks=2) for rank in range(ranks)]
    data = reference.make_rank_inputs(operations[0], np.random.default_rng(0))
    own = [allocate_rank(device, row, operations[0]) for device, row in zip(devices, data, strict=True)]
    tables = {name: np.array([int(rank[name]) for rank in own], np.uint64) for name in own[0]}
    memory, launches = [], []
    for device, operation in zip(devices, operations, strict=True):
        with current(device):
            memory.append(device.upload(make_memory(operation, tables)))
            launches.append(device.prepare(operation))
    for device, addresses, prepared in zip(devices, memory, launches, strict=True):
        with current(device):
            for launch in prepared:
                launch.run(device.stream, {name: int(at) for name, at in addresses.items()})
    for device, operation, addresses in zip(devices, operations, memory, strict=True):
        with current(device):
            device.stream.synchronize()
            results = device.download(operation, addresses)
        assert not results["timed_out"][0]
        np.testing.assert_array_equal(results["out"], reference.expect_sum(data))
    return "right"


def allocate_rank(device: Device, data: NDArray[np.uint16], operation: AllReduce) -> dict[str, Any]:
    memory = {
        "inputs": data,
        "slices": np.zeros(operation.slice_values, np.uint16),
        "flags": np.zeros(operation.flag_shape, np.uint32),
    }
    with current(device):
        return device.upload(memory)


def copy_to_peer(devices: list[Device]) -> str:
    first, second = devices
    data = np.arange(1000, dtype=np.int32)
    source, target = first.upload({"x": data})["x"], second.upload({"x": np.zeros_like(data)})["x"]
    # pycuda 2026.1 crashes without contexts and ignores those it is given: it names the current one twice.
    first.driver.pycuda.memcpy_peer_async(
        target, source, data.nbytes, second.context, first.context, first.stream
    )
    first.stream.synchronize()
    np.testing.assert_array_equal(first.driver.pycuda.from_device(target, data.shape, data.dtype), data)
    return "right"


def one_device(driver: Driver, seeds: int) -> dict[str, Any]:
    device = Device(driver)
    answers: dict[str, Any] = {name_of(operation): run_case(device, operation, seeds) for operation in CASES}
    answers |= check_laws(device, seeds)
    answers["graph"] = replay_graph(device)
    answers["held"] = time_a_held_kernel(device, release=True)
    answers["never released"] = time_a_held_kernel(device, release=False)
    answers["misuse"] = misuse(device)
    answers["name"] = device.device.name()
    device.context.pop()
    return answers


def two_devices(driver: Driver) -> dict[str, str]:
    devices = []
    for number in range(2):
        devices.append(Device(driver, number))
        devices[-1].context.pop()
    answers = {"enabled twice": enable_peers(devices)}
    answers |= {shots.value: reduce_over_peers(devices, shots) for shots in Shots}
    with current(devices[0]):
        answers["copy"] = copy_to_peer(devices)
    return answers


if __name__ == "__main__":
    opened = open_driver(Path(sys.argv[1]))
    count = int(os.environ.get("EMULATED_DEVICES", "1"))
    asked = int(sys.argv[2]) if len(sys.argv) > 2 else 1
    print(json.dumps(one_device(opened, asked) if count == 1 else two_devices(opened)))

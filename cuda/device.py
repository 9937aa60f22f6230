"""One GPU under pycuda: context, stream, memory and kernels, and what a measured file says of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from cuda.driver import Driver, Graph, GraphError, Prepared, prepare
from cuda.launch import AnyArray, Buffer, Launch, Operation, Role
from hwmodels.measured import Device

Addresses = dict[str, int]


class DeviceError(Exception):
    """A call of the driver failed; what it said. After some failures every later call fails too."""


class DeviceMemoryError(Exception):
    """The device has no room for so many *bytes*."""

    def __init__(self, size: int) -> None:
        super().__init__(size)

    def __str__(self) -> str:
        return f"the device has no room for {self.args[0]:,} bytes more"


class Gpu:
    """Device *number* with a context of its own, current inside ``active``."""

    def __init__(self, driver: Driver, number: int) -> None:
        self.driver = driver
        self.device = driver.pycuda.Device(number)
        self.context = self.device.make_context()
        self.target = driver.target(self.device)
        self.stream = driver.pycuda.Stream()
        self._kept: list[Any] = []
        self._graphs: list[Graph] = []
        self._functions: dict[tuple[str, str, str, int], Any] = {}
        self.context.pop()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Its context is current in here; DeviceError for whatever the driver refuses."""
        try:
            self.context.push()
            try:
                yield
            finally:
                self.context.pop()
        except (self.driver.pycuda.Error, GraphError) as problem:
            raise DeviceError(str(problem)) from problem

    def close(self) -> None:
        """Give back graphs, memory, stream and context; a device that has failed keeps no one from it."""
        # Each by itself: a failure here must not hide what ended the session.
        for give_back in (self._finish, self._drop, self.context.detach):
            with suppress(DeviceError, self.driver.pycuda.Error):
                give_back()

    def _finish(self) -> None:
        with self.active():
            self.stream.synchronize()

    def _drop(self) -> None:
        with self.active():
            for graph in self._graphs:
                with suppress(GraphError):
                    graph.destroy()
            self._graphs.clear()
            self._kept.clear()
            self._functions.clear()
            del self.stream

    @property
    def processors(self) -> int:
        """Streaming multiprocessors."""
        return self._attribute("MULTIPROCESSOR_COUNT")

    @property
    def l2_bytes(self) -> int:
        """Of the L2 cache."""
        return self._attribute("L2_CACHE_SIZE")

    @property
    def sm_mhz(self) -> float:
        """The default clock of the SMs."""
        return self._attribute("CLOCK_RATE") / 1e3

    def describe(self) -> Device:
        """What a measured file says of it."""
        major, minor = self.device.compute_capability()
        return Device(
            name=self.device.name(),
            compute_capability=f"sm_{major}{minor}",
            sm_count=self.processors,
            l2_bytes=self.l2_bytes,
            memory_bytes=self.device.total_memory(),
            default_sm_mhz=self.sm_mhz,
            default_memory_mhz=self._attribute("MEMORY_CLOCK_RATE") / 1e3,
        )

    def _attribute(self, name: str) -> int:
        attributes = self.driver.pycuda.device_attribute
        return int(self.device.get_attribute(getattr(attributes, name)))

    def allocate(self, size: int) -> int:
        """The address of *size* bytes of device memory, kept until ``close``; DeviceMemoryError if full."""
        try:
            memory = self.driver.pycuda.mem_alloc(max(1, size))
        except self.driver.pycuda.MemoryError:
            raise DeviceMemoryError(size) from None
        self._kept.append(memory)
        return int(memory)

    def mapped(self, count: int, dtype: Any) -> tuple[AnyArray, int]:
        """Zeros in host memory that the device sees, and their address there."""
        flags = self.driver.pycuda.host_alloc_flags
        array = self.driver.pycuda.pagelocked_zeros(count, dtype, mem_flags=flags.DEVICEMAP | flags.PORTABLE)
        self._kept.append(array)
        return array, int(array.base.get_device_pointer())

    def upload(self, address: int, array: AnyArray) -> None:
        """Copy *array* to *address* and wait."""
        self.driver.pycuda.memcpy_htod(address, np.ascontiguousarray(array))

    def download(self, buffer: Buffer, address: int) -> AnyArray:
        """What *buffer* at *address* holds."""
        array = np.empty(buffer.shape, buffer.element.dtype)
        if array.nbytes:
            self.driver.pycuda.memcpy_dtoh(array, address)
        return array

    def queue(self, launches: Sequence[Launch], addresses: Mapping[str, int]) -> None:
        """Queue *launches* in order, on the device's own stream."""
        for each in launches:
            Prepared(each, self._function(each)).run(self.stream, addresses)

    def load(self, launches: Sequence[Launch]) -> None:
        """Load the kernels of *launches*, so that queueing them loads none."""
        for each in launches:
            self._function(each)

    def _function(self, wanted: Launch) -> Any:
        """The kernel of a launch, loaded once whatever its sizes."""
        key = (wanted.file, wanted.entry, wanted.format, wanted.shared_bytes)
        if key not in self._functions:
            self._functions[key] = prepare(self.driver, wanted, self.target).function
        return self._functions[key]

    def graph(self, queue: Any, copies: int) -> Graph:
        """A CUDA graph of what *queue* queues, *copies* times."""
        captured = Graph(self.driver, self.stream)
        with captured.capture():
            for _ in range(copies):
                queue()
        self._graphs.append(captured)
        return captured


class Memory:
    """The buffers of *operation* on *gpu*; those in *shared* are there already."""

    def __init__(self, gpu: Gpu, operation: Operation, shared: Mapping[str, int]) -> None:
        self._gpu = gpu
        self._buffers = {buffer.name: buffer for buffer in operation.buffers()}
        self.addresses: Addresses = {
            name: shared[name] if name in shared else gpu.allocate(buffer.bytes)
            for name, buffer in self._buffers.items()
        }
        self._own = [name for name in self._buffers if name not in shared]

    def fill(self, inputs: Mapping[str, AnyArray]) -> None:
        """Put *inputs* in place, and poison or zeros everywhere else; shared buffers stay as they are."""
        for name in self._own:
            buffer = self._buffers[name]
            given = buffer.role in (Role.INPUT, Role.UPDATED)
            self._gpu.upload(self.addresses[name], inputs[name] if given else buffer.poisoned())

    def put(self, arrays: Mapping[str, AnyArray]) -> None:
        """Overwrite some buffers."""
        for name, array in arrays.items():
            self._gpu.upload(self.addresses[name], array)

    def read(self, name: str) -> AnyArray:
        """What one buffer holds."""
        return self._gpu.download(self._buffers[name], self.addresses[name])

    def results(self) -> dict[str, AnyArray]:
        """Output and updated buffers."""
        kept = (Role.OUTPUT, Role.UPDATED)
        return {
            name: self._gpu.download(buffer, self.addresses[name])
            for name, buffer in self._buffers.items()
            if buffer.role in kept
        }

    def poison(self) -> None:
        """Overwrite every output with bits that no result has."""
        self.put({b.name: b.poisoned() for b in self._buffers.values() if b.role is Role.OUTPUT})

    def still_poisoned(self) -> list[str]:
        """Outputs that nothing has been written to since ``poison``."""
        outputs = (b for b in self._buffers.values() if b.role is Role.OUTPUT and b.bytes)
        return [b.name for b in outputs if _same(self._gpu.download(b, self.addresses[b.name]), b.poisoned())]


def _same(a: AnyArray, b: AnyArray) -> bool:
    """Whether the bits are the same; NaN equals itself."""
    return a.tobytes() == b.tobytes()

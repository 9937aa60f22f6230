"""The part of pycuda that is needed here, on a GPU's driver or on the emulated one.

pycuda is imported when a driver is opened and not before. It has no CUDA graphs: they are captured
by ctypes, on the same library and streams.
"""

from __future__ import annotations

import ctypes
import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cuda.build import Target, module_image, target_of
from cuda.launch import Launch
from hwmodels.measured import EMULATED_PREFIX

DRIVER = "libcuda.so.1"
PLAIN_SHARED_BYTES = 48 * 1024
"""A kernel that wants more shared memory must be told so first."""

_CAPTURE_RELAXED = 2


class GraphError(Exception):
    """A call of the graph API failed; *call* and the driver's *code*."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(call, code)

    def __str__(self) -> str:
        return "{}: CUresult {}".format(*self.args)


@dataclass(frozen=True)
class Driver:
    """An open driver: pycuda's module, and the library that it calls."""

    pycuda: Any
    library: ctypes.CDLL

    def target(self, device: Any) -> Target:
        """What to compile kernels for, to run on pycuda's *device*."""
        if device.name().startswith(EMULATED_PREFIX):
            return Target.HOST
        return target_of(device.compute_capability())


def open_driver(library: Path | None = None) -> Driver:
    """NVIDIA's driver, or the emulated one at *library*; the first one opened stays.

    Raises ``OSError`` without a driver, ``ImportError`` without pycuda.
    """
    # pycuda asks for the library by this name and gets the one that is loaded already.
    loaded = ctypes.CDLL(str(library or DRIVER), mode=ctypes.RTLD_GLOBAL)
    pycuda = importlib.import_module("pycuda.driver")
    pycuda.init()
    return Driver(pycuda, loaded)


@dataclass(frozen=True)
class Prepared:
    """A launch on the current context, ready but for the addresses of its buffers."""

    launch: Launch
    function: Any

    def run(self, stream: Any, addresses: Mapping[str, int]) -> None:
        """Queue it on *stream*."""
        self.function.prepared_async_call(
            self.launch.grid,
            self.launch.block,
            stream,
            *self.launch.values(addresses),
            shared_size=self.launch.shared_bytes,
        )


def prepare(driver: Driver, launch: Launch, target: Target) -> Prepared:
    """Load the kernel of *launch* into the current context."""
    module = driver.pycuda.module_from_buffer(module_image(launch.file, target))
    function = module.get_function(launch.entry)
    if launch.shared_bytes > PLAIN_SHARED_BYTES:
        attribute = driver.pycuda.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
        function.set_attribute(attribute, launch.shared_bytes)
    function.prepare(launch.format)
    return Prepared(launch, function)


class Graph:
    """What was queued on *stream* inside ``with graph.capture()``, to be launched as one."""

    def __init__(self, driver: Driver, stream: Any) -> None:
        self._driver = driver
        self._stream = ctypes.c_void_p(stream.handle)
        self._executable = ctypes.c_void_p()

    @contextmanager
    def capture(self) -> Iterator[None]:
        """Queue nothing that waits in here."""
        graph = ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self._stream, _CAPTURE_RELAXED)
        try:
            yield
        finally:
            self._call("cuStreamEndCapture", self._stream, ctypes.byref(graph))
        self._call(
            "cuGraphInstantiateWithFlags", ctypes.byref(self._executable), graph, ctypes.c_ulonglong(0)
        )
        self._call("cuGraphDestroy", graph)

    def launch(self) -> None:
        """Queue it on its stream."""
        self._call("cuGraphLaunch", self._executable, self._stream)

    def destroy(self) -> None:
        """Give it back."""
        self._call("cuGraphExecDestroy", self._executable)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._driver.library, name)(*arguments)
        if code:
            raise GraphError(name, code)

"""Runs an operation's launches on the CPU, through the host shim."""

from __future__ import annotations

import ctypes
import struct
from functools import cache

import numpy as np

from cuda.build import Target, compile_kernel
from cuda.launch import AnyArray, Arrays, Launch, Operation, Role

LOCKSTEP_SCHEDULES = (0, 1)
WARP_GREEDY_SCHEDULES = (2, 3)
SCHEDULES = (*LOCKSTEP_SCHEDULES, *WARP_GREEDY_SCHEDULES, 4, 5)
"""Orders in which threads run; 4 and above are random, see ``host_shim.h``."""


class KernelError(Exception):
    """The kernel deadlocked, misused a warp operation or cannot be launched so."""


def run(
    operation: Operation,
    inputs: Arrays,
    schedule: int = 0,
    workers: int = 1,
    target: Target = Target.HOST,
) -> dict[str, AnyArray]:
    """What *operation* makes of *inputs*: its updated and output buffers, by name.

    Inputs are not changed. *workers* blocks run at a time.
    """
    memory = make_memory(operation, inputs)
    run_in(operation, memory, schedule, workers, target)
    kept = (Role.OUTPUT, Role.UPDATED, Role.ZEROED)
    return {buffer.name: memory[buffer.name] for buffer in operation.buffers() if buffer.role in kept}


def make_memory(operation: Operation, inputs: Arrays) -> dict[str, AnyArray]:
    """An array for every buffer: copies of *inputs*, and poison."""
    return {
        buffer.name: np.array(inputs[buffer.name], buffer.element.dtype, order="C").reshape(buffer.shape)
        if buffer.role in (Role.INPUT, Role.UPDATED)
        else buffer.poisoned()
        for buffer in operation.buffers()
    }


def run_in(operation: Operation, memory: Arrays, schedule: int, workers: int, target: Target) -> None:
    """Run the launches of *operation* in *memory*, which has an array for each buffer."""
    addresses = {name: array.ctypes.data for name, array in memory.items()}
    for launch in operation.launches():
        packed = struct.pack(launch.format, *launch.values(addresses))
        run_launch(launch, packed, schedule, workers, target)


def run_launch(launch: Launch, packed: bytes, schedule: int, workers: int, target: Target) -> None:
    """One launch with its arguments as a GPU's driver takes them; the GIL is released meanwhile.

    Raises ``KernelError``.
    """
    library = _load(launch.file, target)
    sizes = (ctypes.c_int * 6)(*launch.grid, *launch.block)
    entry = getattr(library, f"{launch.entry}_host")
    if entry(sizes, ctypes.c_size_t(launch.shared_bytes), packed, schedule, workers):
        message = library.shim_last_error
        message.restype = ctypes.c_char_p
        raise KernelError(f"{launch.entry}: {message().decode()}")


@cache
def _load(file: str, target: Target) -> ctypes.CDLL:
    return ctypes.CDLL(str(compile_kernel(file, target)))

"""The shim notices wrong kernels, and its twins of tensor instructions are the real ones' equals."""

from __future__ import annotations

import ctypes
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cuda import hostkernel, reference
from cuda.build import Target, compile_source

pytestmark = pytest.mark.usefixtures("host_tools")

HERE = Path(__file__).parent


def run(source: str, entry: str, *arrays: NDArray[Any], threads: int, schedule: int, shared: int = 0) -> str:
    """What the shim says of a launch of one block; nothing if all went well."""
    library = ctypes.CDLL(str(compile_source(HERE / source, Target.HOST)))
    sizes = (ctypes.c_int * 6)(1, 1, 1, threads, 1, 1)
    packed = struct.pack("P" * len(arrays), *(array.ctypes.data for array in arrays))
    failed = getattr(library, f"{entry}_host")(sizes, ctypes.c_size_t(shared), packed, schedule, 1)
    library.shim_last_error.restype = ctypes.c_char_p
    message: bytes = library.shim_last_error()
    assert bool(failed) == bool(message)
    return message.decode()


@pytest.mark.parametrize("schedule", hostkernel.SCHEDULES)
@pytest.mark.parametrize(
    ("entry", "threads", "message"),
    [
        ("wait_for_nobody", 32, "deadlock: 31 threads at __syncthreads, 1 at a warp operation, 0 exited"),
        ("leave_yourself_out", 32, "a lane is missing from the mask of its own warp operation"),
        ("meet_elsewhere", 32, "lanes of one mask meet at different warp operations"),
    ],
)
def test_misuse_is_named(entry: str, threads: int, message: str, schedule: int) -> None:
    said = run("faulty/faulty.cu", entry, np.zeros(64, np.int32), threads=threads, schedule=schedule)
    assert said == f"block (0,0,0): {message}"


def runs(entry: str, *, shared: int, inputs: int) -> list[list[int]]:
    """The kernel's 64 numbers under every schedule."""
    found = []
    for schedule in hostkernel.SCHEDULES:
        out = np.zeros(256, np.int32)
        arrays = [np.arange(512, dtype=np.int32)] * inputs
        assert not run("faulty/faulty.cu", entry, *arrays, out, threads=64, schedule=schedule, shared=shared)
        found.append(out.tolist())
    return found


@pytest.mark.parametrize(
    ("entry", "shared", "inputs"),
    [("race_with_a_neighbour", 0, 0), ("read_too_early", 1024, 1), ("copy_too_early", 1024, 1)],
)
def test_a_race_depends_on_the_schedule(entry: str, shared: int, inputs: int) -> None:
    found = runs(entry, shared=shared, inputs=inputs)
    assert any(one != found[0] for one in found)


@pytest.mark.parametrize("threads", [0, 1025])
def test_an_impossible_launch_is_refused(threads: int) -> None:
    said = run("faulty/faulty.cu", "write_past_the_end", np.zeros(1), threads=threads, schedule=0)
    assert said == f"impossible launch: 1 blocks of {threads} threads"


@pytest.mark.parametrize("schedule", hostkernel.SCHEDULES)
def test_fragments_are_loaded_and_multiplied_as_the_ptx_manual_says(schedule: int) -> None:
    """A (16 x 16) times B (16 x 8) through ldmatrix, its transposing form, and mma."""
    rng = np.random.default_rng(schedule)
    a = reference.to_bf16(rng.standard_normal((16, 16)))
    b = reference.to_bf16(rng.standard_normal((16, 8)))
    product = np.zeros((2, 16, 8), np.float32)
    said = run(
        "faulty/fragments.cu",
        "multiply",
        a,
        b,
        b.T.copy(),
        product,
        threads=32,
        schedule=schedule,
        shared=1280,
    )
    assert not said
    expected = reference.from_bf16(a) @ reference.from_bf16(b)
    np.testing.assert_allclose(product, [expected, expected], rtol=1e-5, atol=1e-5)


def test_the_mma_table_of_the_ptx_manual() -> None:
    """Section "Matrix fragments for mma.m16n8k16": each lane's registers, one value at a time."""
    for row, column in [(0, 0), (3, 5), (8, 1), (11, 9), (15, 15), (2, 14)]:
        a, b = np.zeros((16, 16), np.uint16), reference.to_bf16(np.ones((16, 8)))
        a[row, column] = reference.to_bf16(np.array([2.0]))[0]
        lane, register, half = fragment_place(row, column)
        words = np.zeros((32, 4), np.uint32)
        words[lane, register] = int(a[row, column]) << (16 * half)
        product = np.zeros((16, 8), np.float32)
        assert not run("faulty/fragments.cu", "multiply_registers", words, b, product, threads=32, schedule=0)
        np.testing.assert_array_equal(product, reference.from_bf16(a) @ reference.from_bf16(b))


def fragment_place(row: int, column: int) -> tuple[int, int, int]:
    """Lane, register and half of A's (row, column): groupID = lane / 4, threadID = lane % 4.

    row = groupID for a0, a1, a4, a5, else groupID + 8; column = threadID * 2 + (i & 1) for a0 to
    a3, and 8 more for a4 to a7.
    """
    index = (column & 1) + (2 if row >= 8 else 0) + (4 if column >= 8 else 0)
    return row % 8 * 4 + column % 8 // 2, index // 2, index % 2

"""What measuring itself runs: stamps of the clock, and the sweep that empties the cache."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cuda import hostkernel
from cuda.build import Target, compile_kernel
from cuda.launch import SWEEP_RARE, Stamp, Sweep

pytestmark = pytest.mark.usefixtures("host_tools")


@pytest.mark.parametrize("schedule", hostkernel.SCHEDULES)
def test_a_stamp_has_the_time_and_the_cycles(schedule: int) -> None:
    clock = ctypes.CDLL(str(compile_kernel("support", Target.HOST))).shim_set_clock
    clock(ctypes.c_uint64(12_345), ctypes.c_uint64(2**40))
    assert hostkernel.run(Stamp(processors=3), {}, schedule)["stamp"].tolist() == [12_345, 2**40]


@pytest.mark.parametrize(("word", "seen"), [(SWEEP_RARE, True), (SWEEP_RARE - 1, False), (0, False)])
def test_a_sweep_reads_all_and_writes_hardly_ever(word: int, seen: bool) -> None:
    """The only word that is not zero is the last one."""
    operation = Sweep(16 * 1030, blocks=2)
    swept = np.zeros(4 * 1030, np.uint32)
    swept[-1] = word
    (poison,) = (buffer.poisoned()[0] for buffer in operation.buffers() if buffer.name == "seen")
    assert hostkernel.run(operation, {"swept": swept})["seen"][0] == (SWEEP_RARE if seen else poison)

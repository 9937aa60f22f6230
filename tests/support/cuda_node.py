"""Ranks of an AllReduce as threads of this process, each running its kernel at its own pace."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuda import hostkernel
from cuda.build import Target
from cuda.launch import AllReduce, Shots

LIMIT_NS = 10_000_000_000
NAN = 0x7FC1
"""In bf16."""


class Node:
    """The memory of *ranks* GPUs that can read each other's; its epoch grows with every call."""

    def __init__(
        self, ranks: int, values: int, shots: Shots, blocks: int = 3, target: Target = Target.HOST
    ) -> None:
        self.sizes = (ranks, values, shots, blocks)
        self.target = target
        self.epoch = 0
        one = self.operation(0)
        self.inputs = [np.full(values, NAN, np.uint16) for _ in range(ranks)]
        self.slices = [np.full(one.slice_values, NAN, np.uint16) for _ in range(ranks)]
        self.flags = [np.zeros(one.flag_shape, np.uint32) for _ in range(ranks)]

    def operation(self, rank: int, limit_ns: int = LIMIT_NS) -> AllReduce:
        ranks, values, shots, blocks = self.sizes
        return AllReduce(ranks, rank, values, self.epoch, shots, blocks, limit_ns)

    def run(self, rank: int, schedule: int = 0, limit_ns: int = LIMIT_NS) -> dict[str, NDArray[Any]]:
        """One rank's kernel, in this thread; one block at a time, as blocks meet in order."""
        names = {"inputs": self.inputs, "slices": self.slices, "flags": self.flags}
        addresses = {name: np.array([row.ctypes.data for row in rows]) for name, rows in names.items()}
        return hostkernel.run(self.operation(rank, limit_ns), addresses, schedule, target=self.target)

    def call(self, data: NDArray[np.uint16], before: Callable[[int], None], schedule: int) -> NDArray[Any]:
        """Every rank at once: *before* may make it late, then its input is written and it goes on.

        As soon as a rank is done its input is spoilt, as the next layer would.
        """
        self.epoch += 1
        for array in self.inputs:
            array[:] = NAN

        def rank_thread(rank: int) -> NDArray[Any]:
            before(rank)
            self.inputs[rank][:] = data[rank]
            results = self.run(rank, schedule)
            self.inputs[rank][:] = NAN
            assert not results["timed_out"][0]
            return results["out"]

        with ThreadPoolExecutor(len(data)) as pool:
            return np.stack(list(pool.map(rank_thread, range(len(data)))))

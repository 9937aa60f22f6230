"""Runs kernels under the address and undefined-behaviour sanitizers; a program for a process of its own.

``sanitized.py cases`` runs every small case, ``sanitized.py allreduce`` three ranks, and
``sanitized.py ENTRY`` one of the faulty kernels.
"""

from __future__ import annotations

import ctypes
import struct
import sys
from pathlib import Path

import numpy as np
from cuda_cases import CASES, name_of
from cuda_node import Node

from cuda import hostkernel, reference
from cuda.build import Target, compile_source
from cuda.launch import Shots

SCHEDULES = (0, 5)


def run_cases() -> None:
    for operation in CASES:
        inputs = reference.make_inputs(operation, np.random.default_rng(0))
        for schedule in SCHEDULES:
            results = hostkernel.run(operation, inputs, schedule, target=Target.SANITIZED)
            reference.check(operation, inputs, results)
        print(name_of(operation), flush=True)


def run_allreduce() -> None:
    for shots in Shots:
        node = Node(3, 8 * 1001, shots, target=Target.SANITIZED)
        data = reference.make_rank_inputs(node.operation(0), np.random.default_rng(0))
        for result in node.call(data, lambda _: None, schedule=0):
            np.testing.assert_array_equal(result, reference.expect_sum(data))
        print(shots.value, flush=True)


def run_faulty(entry: str) -> None:
    source = Path(__file__).parent / "faulty" / "faulty.cu"
    library = ctypes.CDLL(str(compile_source(source, Target.SANITIZED)))
    out = np.zeros(64, np.int32)
    sizes = (ctypes.c_int * 6)(1, 1, 1, 64, 1, 1)
    packed = struct.pack("P", out.ctypes.data)
    getattr(library, f"{entry}_host")(sizes, ctypes.c_size_t(4 * 64), packed, 0, 1)
    print("nothing was noticed")


if __name__ == "__main__":
    parts = {"cases": run_cases, "allreduce": run_allreduce}
    parts.get(sys.argv[1], lambda: run_faulty(sys.argv[1]))()

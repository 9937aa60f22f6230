"""Every kernel compiles for every GPU without a spill, and a missing tool is named."""

from __future__ import annotations

import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_cases import CASES

from cuda import build, shapes
from cuda.host import libcuda
from cuda.launch import (
    ATTENTION_RESIDENT,
    SMALLEST_SHARED_LIMIT,
    AllReduce,
    AllReduceStandIn,
    Cache,
    Empty,
    ExpertLayer,
    Gemm,
    Hold,
    Launch,
    Norm,
    Operation,
    Shots,
    Stamp,
    Sweep,
    TopK,
    TreeAccept,
    TreeAttention,
    TreeBuild,
    attention_splits,
    gemm_splits,
    mask_words,
)

ROOT = Path(__file__).parents[2]
PINNED = re.compile(r"pycuda==[\w.]+")
PROCESSORS = 132
KIMI: list[Operation] = [
    TreeBuild(1, shapes.BLOCK - 1, 8, 255),
    TreeAccept(1, 255),
    ExpertLayer(33),
    *(
        TreeAttention(1, m, 4096, attention_splits(1, m, shapes.HEADS, 4096, PROCESSORS), c)
        for m in (1, 9, 33)
        for c in Cache
    ),
    *(Gemm(m, n, k, gemm_splits(n, k, PROCESSORS)) for m in (1, 16, 33) for n, k in shapes.GEMMS.values()),
    Norm(33),
    TopK(33, 8),
    AllReduceStandIn(8, 8),
    *(AllReduce(8, 0, 8, 1, shots) for shots in Shots),
    Empty(),
    Hold(),
    Stamp(PROCESSORS),
    Sweep(1024),
]
"""Operations at the model's own sizes; too large for the CPU."""


@pytest.mark.usefixtures("gpu_tools")
@pytest.mark.parametrize("target", build.GPUS, ids=lambda target: target.value)
@pytest.mark.parametrize("file", build.kernel_files())
def test_a_kernel_file_compiles_for_a_gpu_and_spills_nothing(
    file: str, target: build.Target, whole: bool
) -> None:
    if target is not build.Target.SM_120 and not whole:
        pytest.skip("make cuda-test compiles for it")
    cubin = build.compile_kernel(file, target)
    assert cubin.read_bytes().startswith(b"\x7fELF")
    usage = build.read_usage(cubin)
    assert usage
    for kernel in usage:
        assert kernel.spilled_bytes == 0, kernel


REGISTERS = 65536
"""Of an SM: CUDA programming guide, "Technical specifications per compute capability"."""
SHARED_OF_SM = dict.fromkeys((build.Target.SM_90, build.Target.SM_100, build.Target.SM_103), 228 * 1024)
SHARED_OF_SM[build.Target.SM_120] = 100 * 1024
SHARED_OF_SYSTEM = 1024
"""Shared memory that every block needs beside its own."""


def blocks_in_registers(registers: int, threads: int) -> int:
    """Registers are given to a warp by the 256: to a thread by the 8."""
    return REGISTERS // (math.ceil(registers / 8) * 8 * threads)


def attention_launches() -> dict[str, Launch]:
    """One for each entry, of 16 and of 32 rows."""
    cases = [TreeAttention(1, tokens, 4096, 1, cache) for tokens in (1, 33) for cache in Cache]
    return {case.attend_launch().entry: case.attend_launch() for case in cases}


@pytest.mark.usefixtures("gpu_tools")
@pytest.mark.parametrize("target", build.GPUS, ids=lambda target: target.value)
def test_an_sm_holds_as_many_blocks_of_attention_as_the_splits_assume(
    target: build.Target, whole: bool
) -> None:
    if target is not build.Target.SM_120 and not whole:
        pytest.skip("make cuda-test compiles for it")
    compiled = read_kernels("mla_tree_attention", target)
    for entry, launch in attention_launches().items():
        assumed = ATTENTION_RESIDENT[16 if entry.endswith("16") else 32]
        assert blocks_in_registers(compiled[entry].registers, launch.block[0]) == assumed, entry
        held = SHARED_OF_SM[target] // (launch.shared_bytes + SHARED_OF_SYSTEM)
        assert held == 1 if target is build.Target.SM_120 else held >= assumed, entry


def read_kernels(file: str, target: build.Target) -> dict[str, build.Usage]:
    """What ptxas says of each kernel of *file*."""
    return {kernel.entry: kernel for kernel in build.read_usage(build.compile_kernel(file, target))}


@pytest.mark.usefixtures("gpu_tools")
@pytest.mark.parametrize("file", build.kernel_files())
def test_every_launch_names_a_kernel_that_there_is_and_every_kernel_is_launched(file: str) -> None:
    compiled = read_kernels(file, build.Target.SM_120)
    launches = [
        launch for operation in (*CASES, *KIMI) for launch in operation.launches() if launch.file == file
    ]
    assert {launch.entry for launch in launches} == compiled.keys()
    for launch in launches:
        kernel = compiled[launch.entry]
        assert launch.shared_bytes + kernel.shared_bytes <= SMALLEST_SHARED_LIMIT
        assert blocks_in_registers(kernel.registers, math.prod(launch.block)) >= 1


@pytest.mark.usefixtures("host_tools")
def test_what_is_built_is_built_once() -> None:
    first = build.compile_kernel("accept", build.Target.HOST)
    written = first.stat().st_mtime_ns
    assert build.compile_kernel("accept", build.Target.HOST) == first
    assert first.stat().st_mtime_ns == written
    assert first.is_relative_to(build.BUILD)


def test_every_place_that_names_a_release_of_pycuda_names_the_same() -> None:
    places = ("pyproject.toml", "cuda/README.md", "cuda/on_gpu.sh", "cuda/build.py")
    found = {place: set(PINNED.findall((ROOT / place).read_text(encoding="utf-8"))) for place in places}
    assert found == {place: {build.PYCUDA} for place in places}


@pytest.mark.usefixtures("host_tools")
def test_pycuda_is_built_again_for_another_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A site that was made for this toolkit is not taken for another one."""
    header = tmp_path / "include" / "cuda.h"
    header.parent.mkdir()
    monkeypatch.setattr(build, "cuda_root", lambda: tmp_path)
    monkeypatch.setattr(build, "BUILD", tmp_path)
    header.write_text("#define CUDA_VERSION 13000\n", encoding="utf-8")
    made = build._make_once(build._pycuda_name(), *build._pycuda_sources(), lambda out: out.mkdir())
    assert build.find_pycuda_site() == made
    header.write_text("#define CUDA_VERSION 13010\n", encoding="utf-8")
    assert build.find_pycuda_site() is None


def test_an_unknown_kernel_is_named_with_those_that_there_are() -> None:
    with pytest.raises(
        build.BuildError, match=r"there is no kernel file acept; there are accept, allreduce, "
    ):
        build.compile_kernel("acept", build.Target.HOST)


def test_an_unknown_gpu_is_named_with_those_that_there_are() -> None:
    assert build.target_of((10, 3)) is build.Target.SM_103
    with pytest.raises(
        build.BuildError, match=r"compiled for sm_80; there are sm_90, sm_100, sm_103, sm_120"
    ):
        build.target_of((8, 0))


@pytest.mark.parametrize("tool", ["nvcc", "g++"])
def test_a_missing_tool_is_named_with_what_to_do(tool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nonexistent")
    find = build.find_nvcc if tool == "nvcc" else build.find_gxx
    with pytest.raises(build.MissingToolError) as missing:
        find()
    assert missing.value.tool == tool
    assert str(missing.value).startswith(f"{tool} is not there, but ")
    assert "install" in str(missing.value)


@pytest.mark.usefixtures("host_tools")
def test_a_kernel_that_does_not_compile_shows_the_compilers_message(tmp_path: Path) -> None:
    source = tmp_path / "wrong.cu"
    source.write_text('#include "device.cuh"\nint broken = unknown_name;\n', encoding="utf-8")
    with pytest.raises(build.CommandError, match=r"wrong\.cu:2:14: error: .*unknown_name"):
        build.compile_source(source, build.Target.HOST)


def test_declared_and_defined_calls_are_found() -> None:
    header = (
        "extern CUresult  cuInit(unsigned int);\nCUresult cuMemAlloc_v2 (CUdeviceptr *p);\nint cuNo(void);"
    )
    assert libcuda.declared_calls(header) == {"cuInit", "cuMemAlloc_v2"}
    emulated = "int cuInit(unsigned) { return 0; }\n  int cuInner(int);\n"
    assert libcuda.defined_calls(emulated) == {"cuInit"}
    assert libcuda.rest_source({"cuInit", "cuExit"}, emulated) == "int cuExit(void) { return 801; }\n"


@pytest.mark.usefixtures("host_tools")
def test_the_emulated_driver_has_only_calls_that_cuda_h_declares() -> None:
    source = (build.HOST / "emulated_driver.cpp").read_text(encoding="utf-8")
    assert libcuda.defined_calls(source) - build.driver_calls() == set()
    assert build.build_emulated_driver().exists()


@pytest.mark.parametrize("nodes", [1, 31, 32, 33, 256])
def test_a_mask_has_a_bit_for_every_node(nodes: int) -> None:
    assert 32 * (mask_words(nodes) - 1) < nodes <= 32 * mask_words(nodes)


@pytest.mark.parametrize("heads", [8, 16, 64])
@pytest.mark.parametrize("tokens", [1, 9, 33])
def test_splits_of_the_keys_fill_the_gpu_once_and_leave_none_without_work(tokens: int, heads: int) -> None:
    for context in (0, 500, 4096, 65536):
        splits = attention_splits(1, tokens, heads, context, PROCESSORS)
        assert 1 <= splits <= max(1, (context + tokens) // 128)
        case = TreeAttention(1, tokens, context, splits, heads=heads)
        blocks = math.prod(case.attend_launch().grid)
        held = ATTENTION_RESIDENT[case.row_tile] * PROCESSORS
        assert blocks <= 1.5 * held
        if context == 65536:
            assert blocks >= held / 1.5


def test_splits_of_columns_fill_the_gpu_and_leave_none_without_work() -> None:
    for rows, columns in shapes.GEMMS.values():
        splits = gemm_splits(rows, columns, PROCESSORS)
        assert 1 <= splits <= max(1, columns // 256)
        assert splits == 1 or splits * rows / 64 <= 3 * PROCESSORS


FAKE = """
import cuda, cuda.bindings.driver, cuda.launch
print(cuda.bindings.driver.NAME, len(list(cuda.__path__)))
"""


@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_nvidias_cuda_modules_stay_importable_beside_ours(first: str, tmp_path: Path) -> None:
    """NVIDIA's cuda-python is a namespace too: cuda/bindings, without cuda/__init__.py."""
    bindings = tmp_path / "cuda" / "bindings"
    bindings.mkdir(parents=True)
    (bindings / "__init__.py").touch()
    (bindings / "driver.py").write_text("NAME = 'theirs'\n", encoding="utf-8")
    folders = [str(ROOT), str(tmp_path)] if first == "ours" else [str(tmp_path), str(ROOT)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", FAKE], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["theirs", "2"]

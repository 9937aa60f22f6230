"""The roofline: bytes and flops of each kind of work, and the bound they give."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog, roofline
from hwmodels.catalog import Kind
from hwmodels.devices import Gpu
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound
from hwmodels.roofline import Demand
from hwmodels.work import (
    BatchedGemm,
    DType,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GqaAttention,
    GroupedExperts,
    MlaAttention,
    StreamContention,
)

GPUS = [catalog.gpu(name) for name in catalog.names(Kind.GPU)]
gpus = st.sampled_from(GPUS)
moved = st.floats(0, 1e12)
done = st.floats(0, 1e16)


def kimi_experts(tokens: int, touched: float) -> GroupedExperts:
    sizes = {"experts": 384, "top_k": 8, "hidden": 7168, "intermediate": 2048 // 8}
    return GroupedExperts(tokens=tokens, touched=touched, dtype=DType.INT4, **sizes)


def test_one_kimi_expert_on_one_rank_is_3_1_megabytes() -> None:
    # 3 x 7168 x 256 values at 4 bits plus a 16-bit scale per 32 (moonshotai/Kimi-K2.6 config.json).
    assert roofline.demand(kimi_experts(1, 1)).bytes == pytest.approx(3.10e6, rel=0.005)


@pytest.mark.parametrize(
    ("dtype", "megabytes"),
    [(DType.BF16, 2), (DType.FP8, 1), (DType.FP8_BLOCK, 1), (DType.INT4, 0.5625), (DType.NVFP4, 0.5625)],
)
def test_a_million_weights_weigh(dtype: DType, megabytes: float) -> None:
    assert roofline.weight_bytes(1000, 1000, dtype) == megabytes * 1e6


@pytest.mark.parametrize(
    ("work", "size_bytes", "flops"),
    [
        (Gemm(2, 30, 50, DType.BF16), 2 * 30 * 50 + 2 * 2 * 80, 2 * 2 * 30 * 50),
        (BatchedGemm(8, 2, 30, 50, DType.BF16), 8 * (3000 + 320), 8 * 6000),
        (kimi_experts(9, 66), 66 * 3 * 7168 * 256 * 4.5 / 8, 2 * 9 * 8 * 3 * 7168 * 256),
        (
            MlaAttention(
                requests=2, queries=3, context=100, heads=8, latent=576, dtype=DType.FP8, run_tokens=16
            ),
            2 * 100 * 576,
            4 * 2 * 3 * 8 * 100 * 576,
        ),
        (
            GqaAttention(
                queries=3, context=100, window=60, heads=8, kv_heads=2, head_dim=128, dtype=DType.BF16
            ),
            2 * 60 * 2 * 128 * 2,
            4 * 3 * 8 * 63 * 128,
        ),
        (Elementwise(77), 77, 0),
        (StreamContention(78), 78, 0),
        (GpuKernel(GpuTask.TOP_K, 9), 0, 0),
    ],
)
def test_demand_by_hand(work: Any, size_bytes: float, flops: float) -> None:
    need = roofline.demand(work)
    assert need.bytes == pytest.approx(size_bytes)
    assert need.flops == flops


@given(gpus, moved, st.floats(1, 100))
def test_twice_the_bandwidth_halves_the_memory_time(gpu: Gpu, size: float, factor: float) -> None:
    need = Demand(size, 0.0, DType.BF16)
    slow = roofline.seconds(gpu, need, 1000)[0]
    assert roofline.seconds(gpu, need, 1000 * factor)[0] * factor == pytest.approx(slow)


@given(gpus, moved, done)
def test_the_longer_of_memory_and_arithmetic_bounds(gpu: Gpu, size: float, flops: float) -> None:
    memory = size / 1e12
    compute = flops / (gpu.tflops[DType.BF16].value * 1e12)
    got, bound = roofline.seconds(gpu, Demand(size, flops, DType.BF16), 1000)
    assert got == pytest.approx(max(memory, compute))
    assert bound is (Bound.COMPUTE if compute > memory else Bound.MEMORY)


@given(gpus, st.integers(1, 10**9))
def test_the_floor_is_set_by_the_datasheet_bandwidth(gpu: Gpu, size: int) -> None:
    expected = size / (gpu.memory_bandwidth_gb_s.value * 1e9)
    assert roofline.floor_seconds(gpu, Elementwise(size)) == pytest.approx(expected)


@given(st.integers(1, 10**9))
def test_floors_scale_inversely_with_bandwidth(size: int) -> None:
    products = {
        round(roofline.floor_seconds(g, Elementwise(size)) * g.memory_bandwidth_gb_s.value * 1e9)
        for g in GPUS
    }
    assert products == {size}


@pytest.mark.parametrize("gpu", GPUS, ids=lambda gpu: gpu.name)
def test_no_gpu_achieves_more_than_its_datasheet(gpu: Gpu) -> None:
    assert gpu.achieved_bandwidth_gb_s.value <= gpu.memory_bandwidth_gb_s.value


def test_arithmetic_that_a_gpu_lacks_is_refused() -> None:
    with pytest.raises(HardwareError, match="h100_sxm: no nvfp4 arithmetic"):
        roofline.floor_seconds(catalog.gpu("h100_sxm"), Gemm(1, 1, 1, DType.NVFP4))

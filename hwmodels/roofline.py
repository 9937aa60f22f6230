"""The roofline: no work is faster than its bytes, its flops or the shortest kernel."""

from __future__ import annotations

from dataclasses import dataclass
from typing import assert_never

from hwmodels.devices import Gpu
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound
from hwmodels.work import (
    BITS_PER_VALUE,
    BatchedGemm,
    DType,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuWork,
    GqaAttention,
    GroupedExperts,
    IndexScores,
    MlaAttention,
    StreamContention,
)

ACTIVATION_BYTES = 2
STATE_BYTES = 4
"""The state of linear attention is kept in fp32 (mamba_ssm_dtype of the Qwen3.5 checkpoints)."""
INDEX_SCALE_BYTES = 4
"""One fp32 scale beside every fp8 index key."""


def cached_token_bytes(latent: int, dtype: DType) -> float:
    """Bytes of one cached token in one layer, *latent* values of *dtype*."""
    return latent * BITS_PER_VALUE[dtype] / 8


@dataclass(frozen=True, slots=True)
class Demand:
    """What a kernel needs: DRAM *bytes*, *flops*, and the *dtype* whose peak bounds them."""

    bytes: float
    flops: float
    dtype: DType


def weight_bytes(n: int, k: int, dtype: DType) -> float:
    """Bytes of an (n x k) weight, quantisation scales included."""
    return n * k * BITS_PER_VALUE[dtype] / 8


def demand(work: GpuWork) -> Demand:
    """Bytes and flops of *work* with every weight and cached token read once."""
    match work:
        case Gemm(m, n, k, dtype):
            moved = weight_bytes(n, k, dtype) + ACTIVATION_BYTES * m * (n + k)
            return Demand(moved, 2.0 * m * n * k, dtype)
        case BatchedGemm(batch, m, n, k, dtype):
            one = demand(Gemm(m, n, k, dtype))
            return Demand(batch * one.bytes, batch * one.flops, dtype)
        case GroupedExperts():
            values = 3 * work.hidden * work.intermediate
            moved = work.touched * values * BITS_PER_VALUE[work.dtype] / 8
            pairs = work.tokens * work.top_k / work.groups
            return Demand(moved, 2.0 * pairs * values, work.dtype)
        case MlaAttention():
            moved = work.requests * work.seen * cached_token_bytes(work.latent, work.dtype)
            pairs = work.requests * work.queries * work.heads * work.seen
            return Demand(moved, 2.0 * pairs * (work.latent + work.latent), work.dtype)
        case GqaAttention():
            cached = 2 * work.requests * work.seen * work.kv_heads * work.head_dim
            pairs = work.requests * work.queries * work.heads * (work.seen + work.queries)
            return Demand(cached * BITS_PER_VALUE[work.dtype] / 8, 4.0 * pairs * work.head_dim, work.dtype)
        case IndexScores():
            keys = work.requests * work.seen * (work.head_dim + INDEX_SCALE_BYTES)
            pairs = work.requests * work.queries * work.heads * work.seen
            return Demand(keys, 2.0 * pairs * work.head_dim, DType.FP8)
        case Elementwise(size_bytes) | StreamContention(size_bytes):
            return Demand(size_bytes, 0.0, DType.BF16)
        case GpuKernel():
            return Demand(0.0, 0.0, DType.BF16)
        case _:
            assert_never(work)


def seconds(gpu: Gpu, need: Demand, bandwidth_gb_s: float) -> tuple[float, Bound]:
    """Time of *need* at *bandwidth_gb_s*, and whether memory or arithmetic bounds it."""
    if need.flops and need.dtype not in gpu.tflops:
        raise HardwareError(gpu.name, f"no {need.dtype.value} arithmetic")
    memory = need.bytes / (bandwidth_gb_s * 1e9)
    compute = need.flops / (gpu.tflops[need.dtype].value * 1e12) if need.flops else 0.0
    return max((memory, Bound.MEMORY), (compute, Bound.COMPUTE), key=lambda pair: pair[0])


def floor_seconds(gpu: Gpu, work: GpuWork) -> float:
    """The datasheet bound: what *work* cannot undercut even at peak bandwidth and flops."""
    return seconds(gpu, demand(work), gpu.memory_bandwidth_gb_s.value)[0]

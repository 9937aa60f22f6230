"""Which measured table serves a piece of work, and how far it is from it.

The stack names its kernels in order of preference. Where a kernel was measured with a
bf16 cache only, an fp8 cache takes that time: the kernel converts as it loads, so fewer
bytes do not show. Where the very shape was not measured, smaller ones bound it from below.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hwmodels import tables
from hwmodels.catalog import AttentionKernel
from hwmodels.tables import ExpertShape, ExpertsLine, Grid, HeadShape
from hwmodels.work import DType, GqaAttention, GroupedExperts, MlaAttention


@dataclass(frozen=True)
class FoundGrid:
    """A table of one-query attention, and what carries it over to the work."""

    kernel: AttentionKernel
    grid: Grid
    caveat: str | None = None
    """Why this is not a measurement of the work's shape and cache; None where it is."""
    passes: int = 1
    """Times the kernel runs: more where no table has as many heads."""

    @property
    def evidence(self) -> str:
        """The table, and what was not measured."""
        return self.grid.name if self.caveat is None else f"{self.grid.name} ({self.caveat})"


def latent_attention(gpu: str, kernels: Sequence[AttentionKernel], work: MlaAttention) -> FoundGrid | None:
    """The table of the first of *kernels* on *gpu*; None where it has none.

    Heads between two measured counts take the larger one's table: every head reads the same cache.
    """
    for kernel in _on(gpu, kernels):
        for dtype in _caches(work.dtype):
            counts = tables.mla_heads(gpu, kernel, dtype)
            if counts:
                heads = min((count for count in counts if count >= work.heads), default=counts[-1])
                grid = tables.mla_decode(gpu, kernel, heads, dtype)
                assert grid is not None
                caveat = _caveat(
                    work.dtype, dtype, None if heads == work.heads else f"for {work.heads} heads"
                )
                return FoundGrid(kernel, grid, caveat, -(-work.heads // heads))
    return None


def grouped_attention(
    gpu: str, kernels: Sequence[AttentionKernel], work: GqaAttention
) -> list[tuple[FoundGrid, HeadShape]]:
    """The table of this shape, or those of every measured shape that is in no size larger.

    Attention with more heads, caches or values takes no less time, so the longest of them is a lower bound.
    """
    wanted = HeadShape(work.heads, work.kv_heads, work.head_dim)
    for dtype in _caches(work.dtype):
        for kernel in _on(gpu, kernels):
            grid = tables.gqa_decode(gpu, kernel, wanted, dtype)
            if grid is not None:
                return [(FoundGrid(kernel, grid, _caveat(work.dtype, dtype, None)), wanted)]
    for dtype in _caches(work.dtype):
        found = [
            (FoundGrid(kernel, grid, _caveat(work.dtype, dtype, "a lower bound for more heads")), shape)
            for kernel in _on(gpu, kernels)
            for shape in tables.gqa_shapes(gpu, kernel, dtype)
            if all(small <= large for small, large in zip(shape, wanted, strict=True))
            if (grid := tables.gqa_decode(gpu, kernel, shape, dtype)) is not None
        ]
        if found:
            return found
    return []


def _on(gpu: str, kernels: Sequence[AttentionKernel]) -> list[AttentionKernel]:
    return [kernel for kernel in kernels if gpu in kernel.gpus]


def _caches(dtype: DType) -> list[DType]:
    """Cache types whose tables serve a cache of *dtype*, best first."""
    return [dtype] if dtype is DType.BF16 else [dtype, DType.BF16]


def _caveat(wanted: DType, measured: DType, other: str | None) -> str | None:
    """What was not measured, in words."""
    cache = None if measured is wanted else f"an {wanted.value} cache takes the {measured.value} time"
    return "; ".join(part for part in (cache, other) if part) or None


def experts(
    lines: Sequence[ExpertsLine], others: Sequence[ExpertsLine], work: GroupedExperts
) -> tuple[float, ExpertsLine | None]:
    """us of *work*, and the line of its own shape, of *lines* or else of *others*, other builds' ones.

    None where neither has its shape, and *lines* of other shapes were scaled.
    """
    here, reached = work.experts // work.groups, max(1, work.top_k // work.groups)
    wanted = ExpertShape(here, work.hidden, work.intermediate, reached)
    own = next((line for line in (*lines, *others) if line.shape == wanted), None)
    if own is not None:
        return own(work.touched, work.tokens), own
    return tables.scaled_experts(lines, wanted.values, work.touched, work.tokens), None

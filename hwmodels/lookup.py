"""Which measured table serves a piece of work, and how far it is from it.

The stack names its kernels in order of preference. Where a kernel was measured with a
bf16 cache only, an fp8 cache takes that time: the kernel converts as it loads, so fewer
bytes do not show. Where the very shape was not measured, a database that is installed is
asked for it, and then smaller shapes bound it from below.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hwmodels import perfdb, tables
from hwmodels.estimate import Source
from hwmodels.perfdb import Database
from hwmodels.stacks import AttentionKernel, QueryScaling
from hwmodels.tables import ExpertShape, ExpertsLine, Grid, HeadShape
from hwmodels.work import DType, Gemm, GqaAttention, GroupedExperts, MlaAttention


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


def gemm(gpu: str, own: str, work: Gemm, more: Database | None) -> Grid | None:
    """The table of dense GEMMs on *gpu*, or else one of *more*, of the engine *own* before others."""
    grid = tables.gemm(gpu, work.dtype)
    if grid is not None or more is None:
        return grid
    return _first(more.gemm(name, work.dtype) for name in perfdb.frameworks(own))


def latent_of(
    more: Database, own: str, kernel: AttentionKernel | None, work: MlaAttention
) -> FoundGrid | None:
    """What *more* has of exactly these heads and this cache; queries scale as those of *kernel*."""
    grids = (more.latent_attention(name, work.heads, work.dtype) for name in perfdb.frameworks(own))
    grid = _first(grids)
    return None if grid is None else FoundGrid(kernel or _unnamed(grid), grid)


def grouped_of(
    more: Database, own: str, kernel: AttentionKernel | None, work: GqaAttention
) -> FoundGrid | None:
    """What *more* has of exactly this shape and cache; queries scale as those of *kernel*."""
    shape = HeadShape(work.heads, work.kv_heads, work.head_dim)
    grid = _first(more.grouped_attention(name, shape, work.dtype) for name in perfdb.frameworks(own))
    return None if grid is None else FoundGrid(kernel or _unnamed(grid), grid)


def experts_of(more: Database | None, own: str, work: GroupedExperts) -> tuple[ExpertsLine, str] | None:
    """The line that *more* has of exactly this shape, and its engine."""
    if more is None:
        return None
    shape = expert_shape(work)
    for name in perfdb.frameworks(own):
        line = more.experts(name, work.dtype, shape)
        if line is not None:
            return line, name
    return None


def _first(grids: Iterable[Grid | None]) -> Grid | None:
    return next((grid for grid in grids if grid is not None), None)


def _unnamed(grid: Grid) -> AttentionKernel:
    """The kernel of *grid*, of which nothing but its times is known."""
    return AttentionKernel(
        gpus=(),
        framework=grid.framework,
        version="",
        kernel=grid.name,
        query_scaling=QueryScaling.SHARED,
        scaling_source=Source.ASSUMED,
        scaling_ref="heads of one cache x queries rows share one pass over the cache in tiles of 64 rows",
    )


def _on(gpu: str, kernels: Sequence[AttentionKernel]) -> list[AttentionKernel]:
    return [kernel for kernel in kernels if gpu in kernel.gpus]


def _caches(dtype: DType) -> list[DType]:
    """Cache types whose tables serve a cache of *dtype*, best first."""
    return [dtype] if dtype is DType.BF16 else [dtype, DType.BF16]


def _caveat(wanted: DType, measured: DType, other: str | None) -> str | None:
    """What was not measured, in words."""
    cache = None if measured is wanted else f"an {wanted.value} cache takes the {measured.value} time"
    return "; ".join(part for part in (cache, other) if part) or None


def expert_shape(work: GroupedExperts) -> ExpertShape:
    """What *work* asks of one rank, which holds the experts of one group."""
    held, reached = work.experts // work.groups, max(1, work.top_k // work.groups)
    return ExpertShape(held, work.hidden, work.intermediate, reached)


def own_line(lines: Sequence[ExpertsLine], work: GroupedExperts) -> ExpertsLine | None:
    """The one of *lines* that has the shape of *work*."""
    wanted = expert_shape(work)
    return next((line for line in lines if line.shape == wanted), None)

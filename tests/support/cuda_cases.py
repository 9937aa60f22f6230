"""Operations that are small enough for the CPU and cover every kernel and branch."""

from __future__ import annotations

from cuda.launch import (
    Cache,
    Copy,
    ExpertLayer,
    Gemm,
    Norm,
    Operation,
    TopK,
    TreeAccept,
    TreeAttention,
    TreeBuild,
)

CASES: list[Operation] = [
    TreeBuild(requests=2, positions=15, ranks=8, budget=63),
    TreeBuild(requests=1, positions=2, ranks=2, budget=20),
    TreeAccept(requests=6, budget=40),
    TreeAccept(requests=2, budget=8),
    ExpertLayer(tokens=3, experts=6, top_k=2, hidden=1024, intermediate=256),
    ExpertLayer(tokens=11, experts=2, top_k=1, hidden=1024, intermediate=512),
    TreeAttention(requests=1, tokens=1, context=70, splits=2),
    TreeAttention(requests=2, tokens=5, context=70, splits=3),
    TreeAttention(requests=1, tokens=33, context=20, splits=1),
    TreeAttention(requests=1, tokens=2, context=40, splits=1, cache=Cache.FP8),
    TreeAttention(requests=1, tokens=5, context=70, splits=2, cache=Cache.FP8, cache_scale=0.5),
    TreeAttention(requests=1, tokens=3, context=0, splits=4),
    TreeAttention(requests=1, tokens=1, context=2200, splits=70, heads=2),  # more than a warp joins at once
    Gemm(tokens=1, rows=64, columns=64, splits=1),
    Gemm(tokens=9, rows=100, columns=1024, splits=3),
    Gemm(tokens=41, rows=70, columns=640, splits=2),
    Norm(tokens=2, hidden=1024),
    Norm(tokens=2, hidden=4096),
    TopK(rows=2, k=8, vocabulary=4096, first_id=20480),
    TopK(rows=1, k=16, vocabulary=500, parts=3),
    Copy(bytes=16 * 2500, blocks=2),
]


def name_of(operation: Operation) -> str:
    """For pytest: the operation and its sizes."""
    sizes = (getattr(value, "value", value) for value in vars(operation).values())
    return "-".join(
        [type(operation).__name__, *(f"{s:.3g}" if isinstance(s, float) else str(s) for s in sizes)]
    )

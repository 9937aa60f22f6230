"""What a plan measures: cases and series, and how many samples of each.

``kimi_k2_6`` covers a decode step of Kimi K2.6 on one of eight ranks; ``short`` leaves out sizes
between those that matter most. ``tiny`` is for trying out a machine: small sizes of every op.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from itertools import product
from typing import NamedTuple

from cuda import shapes
from hwmodels.cases import (
    AllReduceAlgorithm,
    AnyCase,
    DenseGemm,
    DeviceCopy,
    EmptyInterval,
    EmptyKernel,
    Experts,
    GraphLaunch,
    GraphReplay,
    HostCopy,
    Mla,
    Norm,
    Op,
    Reduce,
    ReduceStandin,
    TopK,
    TreeAccept,
    TreeBuild,
    order_of,
)
from hwmodels.measured import Series
from hwmodels.work import CopyDirection, DType


class PlanName(Enum):
    """The plans there are."""

    KIMI_K2_6 = "kimi_k2_6"
    TINY = "tiny"


class Subject(NamedTuple):
    """One point to measure."""

    case: AnyCase
    series: Series


class _Sizes(NamedTuple):
    """The sizes that a plan takes in turn."""

    tokens: tuple[int, ...]
    """Of experts and products (M)."""
    expert_series: tuple[Series, ...]
    queries: tuple[int, ...]
    """Of attention."""
    contexts: tuple[int, ...]
    caches: tuple[DType, ...]
    norm_tokens: tuple[int, ...]
    rows: tuple[int, ...]
    budgets: tuple[int, ...]
    graph_nodes: tuple[int, ...]
    device_copies: tuple[int, ...]
    host_copies: tuple[int, ...]


KIB, MIB = 1 << 10, 1 << 20
COLD, WARM, GRAPH = Series.COLD, Series.WARM, Series.GRAPH

FULL = _Sizes(
    tokens=(1, 2, 3, 4, 5, 7, 8, 9, 12, 13, 16, 17, 24, 32, 33, 48, 64, 65),
    expert_series=(COLD, WARM),
    queries=(1, 5, 9, 17, 33, 65),
    contexts=(KIB, 2 * KIB, 4 * KIB, 8 * KIB, 16 * KIB, 32 * KIB, 64 * KIB, 128 * KIB),
    caches=(DType.BF16, DType.FP8),
    norm_tokens=(1, 2, 4, 8, 9, 16, 17, 32, 33, 64, 65, 256),
    rows=(1, 3, 5, 7, 9, 11, 13, 15, 31),
    budgets=(1, 2, 4, 8, 12, 16, 32, 64, 128),
    graph_nodes=(1, 16, 64, 128, 256, 512, 1000, 1460, 2048, 2900),
    device_copies=(MIB, 16 * MIB, 256 * MIB, 1024 * MIB),
    host_copies=(64, KIB, 4 * KIB, 16 * KIB, 64 * KIB, MIB, 16 * MIB),
)
SHORT = _Sizes(
    tokens=(1, 8, 9, 16, 17, 32, 33),
    expert_series=(COLD,),
    queries=(1, 9, 17, 33),
    contexts=(KIB, 4 * KIB, 16 * KIB, 64 * KIB),
    caches=(DType.BF16,),
    norm_tokens=(1, 9, 17, 33, 256),
    rows=(1, 7, 15),
    budgets=(1, 8, 16, 32, 64),
    graph_nodes=(1, 128, 1000, 1460, 2900),
    device_copies=(16 * MIB, 1024 * MIB),
    host_copies=(64, 4 * KIB, 64 * KIB, 16 * MIB),
)
MOST_HELD_NODES = 1000
"""A larger graph might fill the queue of a held stream, and then nothing goes on. Chosen: the length of
that queue is not documented."""
CANDIDATES = 16
"""Choices kept of each position: the most that the top-k kernel gives."""
SMALLEST_NORM = 1024
"""Hidden size of a norm that moves less than any other small kernel of a step."""


def subjects(name: PlanName, short: bool, devices: int) -> tuple[Subject, ...]:
    """Every point of the plan *name*, in the order of files, for a machine with so many *devices*.

    With one device there is a stand-in for AllReduce, under a name of its own.
    """
    found = _tiny(devices) if name is PlanName.TINY else _kimi(SHORT if short else FULL, devices)
    # Sizes may meet: a tree's tokens are another tree's budget and one.
    return tuple(sorted(dict.fromkeys(found), key=_order))


def _order(subject: Subject) -> tuple[int | str, ...]:
    return (*order_of(subject.case), list(Series).index(subject.series))


def _kimi(sizes: _Sizes, devices: int) -> Iterator[Subject]:
    for tokens, series in product(sizes.tokens, sizes.expert_series):
        yield Subject(_experts(tokens), series)
    for queries, context, cache in product(sizes.queries, sizes.contexts, sizes.caches):
        yield Subject(_mla(queries, context, cache), COLD)
    for tokens, (rows, columns) in product(sizes.tokens, shapes.GEMMS.values()):
        yield Subject(DenseGemm(tokens=tokens, n=rows, k=columns, dtype=DType.BF16), COLD)
    for tokens, series in product(sizes.norm_tokens, (WARM, GRAPH)):
        yield Subject(Norm(tokens=tokens, hidden=shapes.HIDDEN), series)
    yield Subject(Norm(tokens=1, hidden=SMALLEST_NORM), GRAPH)
    for rows in sizes.rows:
        yield Subject(TopK(rows=rows, vocabulary=shapes.VOCABULARY, k=CANDIDATES), WARM)
    yield from _trees(sizes.budgets, shapes.BLOCK - 1, CANDIDATES)
    yield from _reduces([2 * tokens * shapes.HIDDEN for tokens in sizes.tokens], devices, shapes.RANKS)
    yield from _machine(sizes.device_copies, sizes.host_copies, sizes.graph_nodes)


def _tiny(devices: int) -> Iterator[Subject]:
    for tokens, series in ((1, COLD), (3, COLD), (3, WARM)):
        sizes = {"tokens": tokens, "experts": 6, "top_k": 2, "hidden": 1024, "intermediate": 256}
        yield Subject(Experts(**sizes, dtype=DType.INT4, op=Op.EXPERTS), series)
    for tokens, cache in product((1, 3), (DType.BF16, DType.FP8)):
        yield Subject(_mla(tokens, 64, cache), COLD)
    yield Subject(DenseGemm(tokens=3, n=64, k=256, dtype=DType.BF16), COLD)
    for series in (WARM, GRAPH):
        yield Subject(Norm(tokens=2, hidden=SMALLEST_NORM), series)
    yield Subject(TopK(rows=2, vocabulary=KIB, k=4), WARM)
    yield from _trees((4, 8), 3, 4)
    yield from _reduces([2 * KIB], devices, 2)
    yield from _machine((64 * KIB,), (64, 4 * KIB), (1, 4))


def _experts(tokens: int) -> Experts:
    return Experts(
        tokens=tokens,
        experts=shapes.EXPERTS,
        top_k=shapes.TOP_K,
        hidden=shapes.HIDDEN,
        intermediate=shapes.EXPERT_INTERMEDIATE,
        dtype=DType.INT4,
    )


def _mla(queries: int, context_tokens: int, cache: DType) -> Mla:
    return Mla(
        requests=1,
        queries=queries,
        context_tokens=context_tokens,
        heads=shapes.HEADS,
        latent=shapes.CACHE_WIDTH,
        dtype=cache,
    )


def _trees(budgets: tuple[int, ...], positions: int, candidates: int) -> Iterator[Subject]:
    for budget in budgets:
        yield Subject(TreeBuild(nodes=budget, positions=positions, candidates=candidates), WARM)
        yield Subject(TreeAccept(tokens=budget + 1), WARM)


def _reduces(messages: list[int], devices: int, ranks: int) -> Iterator[Subject]:
    for size in messages:
        if devices == 1:
            algorithm = AllReduceAlgorithm.ONE_SHOT
            yield Subject(ReduceStandin(message_bytes=size, ranks=ranks, algorithm=algorithm), WARM)
        for algorithm in AllReduceAlgorithm if devices > 1 else ():
            yield Subject(Reduce(message_bytes=size, ranks=devices, algorithm=algorithm), WARM)


def _machine(
    device_copies: tuple[int, ...], host_copies: tuple[int, ...], nodes: tuple[int, ...]
) -> Iterator[Subject]:
    """What every plan needs to know of a machine."""
    for size in device_copies:
        yield Subject(DeviceCopy(size_bytes=size), COLD)
    for size, direction in product(host_copies, CopyDirection):
        yield Subject(HostCopy(size_bytes=size, direction=direction), WARM)
    for count in nodes:
        yield Subject(GraphLaunch(nodes=count), WARM)
        # Read by another clock, a larger one would not go on the same curve.
        if count <= MOST_HELD_NODES:
            yield Subject(GraphReplay(nodes=count), WARM)
    yield Subject(EmptyKernel(), WARM)
    yield Subject(EmptyKernel(), GRAPH)
    yield Subject(EmptyInterval(), WARM)

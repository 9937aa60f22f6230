"""Random step graphs, and graphs shaped like a forward pass on several ranks."""

from __future__ import annotations

from enum import Enum

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hwmodels.work import AllReduce, Barrier, Elementwise
from sim import means
from sim.fusion import fuse
from sim.graph import Component, GraphBuilder, IntArray, Lane, Op, Phase, StepGraph
from sim.means import MeanTimes
from sim.pieces import Label, Pieces

FloatArray = NDArray[np.float64]
Case = tuple[StepGraph, IntArray]
PiecesCase = tuple[Pieces, MeanTimes, IntArray]
"""Pieces, mean times of their work, and durations (steps, pieces)."""

MAX_LANES = 8
MAX_OPS = 25
MAX_STEPS = 3
LABELS = [
    Label(Phase.DRAFT, Component.DRAFTER, Elementwise(8)),
    Label(Phase.VERIFY, Component.DENSE, Elementwise(8)),
    Label(Phase.VERIFY, Component.DENSE, Elementwise(16)),
    Label(Phase.VERIFY, Component.EXPERTS, Elementwise(24)),
    Label(Phase.ACCEPT, Component.ACCEPTANCE, Elementwise(8)),
]
TIED_SECONDS = [0.0, 1e-6, 2e-6]
LONG_NS = 10**11
"""Durations drawn up to here hardly ever tie."""


class Block(Enum):
    """A piece of a rank-parallel program."""

    CHAIN = "chain"
    DIAMOND = "diamond"
    COLLECTIVE = "collective"
    LAUNCH = "launch"
    COPY = "copy"


def lanes(count: int) -> tuple[Lane, ...]:
    """*count* lanes with names of their own."""
    return tuple(Lane(f"device{index}", "queue") for index in range(count))


def plain_op(held: tuple[int, ...], after: tuple[int, ...] = ()) -> Op:
    """An op of which only lanes and dependencies matter."""
    return Op(Phase.VERIFY, Component.DENSE, Barrier(), held, after, None)


def graph_of(*ops: tuple[tuple[int, ...], tuple[int, ...]]) -> StepGraph:
    """The graph of (lanes, dependencies) pairs."""
    count = 1 + max((lane for held, _ in ops for lane in held), default=0)
    return StepGraph(lanes(count), tuple(plain_op(held, after) for held, after in ops))


def ops(lane_count: int, index: int) -> st.SearchStrategy[Op]:
    """The op at *index*: mostly on one lane, with up to three dependencies on earlier ops."""
    one = st.tuples(st.integers(0, lane_count - 1))
    many = st.lists(st.integers(0, lane_count - 1), min_size=1, max_size=4, unique=True).map(tuple)
    nothing: st.SearchStrategy[tuple[int, ...]] = st.just(())
    earlier = st.lists(st.integers(0, index - 1), max_size=3).map(tuple) if index else nothing
    return st.builds(plain_op, one | many, earlier)


@st.composite
def graphs(draw: st.DrawFn, min_ops: int = 0) -> StepGraph:
    """Any small step graph."""
    lane_count = draw(st.integers(1, MAX_LANES))
    count = draw(st.integers(min_ops, MAX_OPS))
    return StepGraph(lanes(lane_count), tuple(draw(ops(lane_count, index)) for index in range(count)))


def durations(graph: StepGraph, steps: int) -> st.SearchStrategy[IntArray]:
    """(steps, ops) durations: either small, with zeros and ties, or all over the place."""
    shape = (steps, len(graph.ops))
    elements = [st.integers(0, 3), st.integers(0, 1_000_000)]
    return st.one_of([hnp.arrays(np.int64, shape, elements=kind) for kind in elements])


@st.composite
def with_durations(draw: st.DrawFn, shapes: st.SearchStrategy[StepGraph]) -> Case:
    """A graph of *shapes* with durations for a few steps."""
    graph = draw(shapes)
    return graph, draw(durations(graph, draw(st.integers(1, MAX_STEPS))))


def cases(min_ops: int = 0) -> st.SearchStrategy[Case]:
    """Any small graph with durations."""
    return with_durations(graphs(min_ops))


@st.composite
def rank_graphs(draw: st.DrawFn) -> StepGraph:
    """A program of chains, diamonds, collectives, launches and copies that every rank runs."""
    ranks = draw(st.integers(1, 4))
    builder = GraphBuilder()
    for block in draw(st.lists(st.sampled_from(Block), min_size=1, max_size=6)):
        size = draw(st.integers(1, 3))
        add_block(builder, block, ranks, size)
    return builder.build()


@st.composite
def tangled_rank_graphs(draw: st.DrawFn) -> StepGraph:
    """A rank-parallel program with a few dependencies too many, so that fusion must hold back."""
    graph = draw(rank_graphs())
    for _ in range(draw(st.integers(1, 3)) if len(graph.ops) > 1 else 0):
        index = draw(st.integers(1, len(graph.ops) - 1))
        graph = with_dependency(graph, index, draw(st.integers(0, index - 1)))
    return graph


def with_dependency(graph: StepGraph, index: int, dependency: int) -> StepGraph:
    """*graph* where op *index* also waits for *dependency*."""
    changed = graph.ops[index]._replace(after=(*graph.ops[index].after, dependency))
    return StepGraph(graph.lanes, (*graph.ops[:index], changed, *graph.ops[index + 1 :]))


@st.composite
def labelled(draw: st.DrawFn, shapes: st.SearchStrategy[StepGraph]) -> StepGraph:
    """A graph of *shapes* whose ops do different things; those on several lanes are AllReduces."""
    graph = draw(shapes)
    chosen = draw(st.lists(st.sampled_from(LABELS), min_size=len(graph.ops), max_size=len(graph.ops)))
    return StepGraph(graph.lanes, tuple(map(with_label, graph.ops, chosen)))


def with_label(op: Op, label: Label) -> Op:
    """*op* booked under *label*, or as an AllReduce."""
    if len(op.lanes) > 1:
        return op._replace(component=Component.ALLREDUCE, work=AllReduce(1024, len(op.lanes)))
    return op._replace(phase=label.phase, component=label.component, work=label.work)


def labelled_graphs() -> st.SearchStrategy[StepGraph]:
    """Any small graph, and programs of several ranks, of ops that do different things."""
    return labelled(graphs(min_ops=1)) | labelled(rank_graphs()) | labelled(tangled_rank_graphs())


@st.composite
def tied_pieces(draw: st.DrawFn) -> PiecesCase:
    """Pieces whose times are small, so that many are zero and many ends tie."""
    pieces = Pieces(fuse(draw(labelled_graphs())))
    shape = (draw(st.integers(1, MAX_STEPS)), len(pieces.labels))
    mean = mean_times(pieces, draw(hnp.arrays(float, shape, elements=st.sampled_from(TIED_SECONDS))))
    short = hnp.arrays(np.int64, (shape[0], len(pieces.graph.ops)), elements=st.integers(0, 9))
    return pieces, mean, np.where(mean.kind_s[:, pieces.kind_of] > 0, draw(short), 0)


@st.composite
def untied_pieces(draw: st.DrawFn, shapes: st.SearchStrategy[StepGraph] | None = None) -> PiecesCase:
    """Pieces of which no two end at the same moment, but for those that take no time."""
    pieces = Pieces(fuse(draw(shapes if shapes is not None else labelled_graphs())))
    luck, steps = np.random.default_rng(draw(st.integers(0, 2**32))), draw(st.integers(1, MAX_STEPS))
    takes_time = draw(hnp.arrays(bool, len(pieces.labels)))
    mean = mean_times(pieces, takes_time * luck.uniform(1e-6, 1e-4, (steps, len(pieces.labels))))
    long = luck.integers(LONG_NS // 100, LONG_NS, (steps, len(pieces.graph.ops)))
    return pieces, mean, np.where(mean.kind_s[:, pieces.kind_of] > 0, long, 0)


def mean_times(pieces: Pieces, label_seconds: FloatArray) -> MeanTimes:
    """The mean times of *pieces*, from those of their work (steps, labels)."""
    return means.mean_times(pieces, label_seconds)


def add_block(builder: GraphBuilder, block: Block, ranks: int, size: int) -> None:
    """Append *block* with *size* ops per part to *builder*."""
    match block:
        case Block.CHAIN:
            _kernels(builder, ranks, "compute", size)
        case Block.DIAMOND:
            _diamond(builder, ranks, size)
        case Block.COLLECTIVE:
            _collective(builder, ranks)
        case Block.LAUNCH:
            _launch(builder, ranks)
        case Block.COPY:
            _copy(builder, ranks)


def _add(
    builder: GraphBuilder, held: list[Lane], after: tuple[int, ...] = (), rank: int | None = None
) -> int:
    return builder.add(Phase.VERIFY, Component.DENSE, Barrier(), held, after, rank)


def _kernels(
    builder: GraphBuilder, ranks: int, queue: str, size: int, after: list[int] | None = None
) -> list[int]:
    """*size* kernels on every rank, kernel by kernel; the first waits for the rank's entry in *after*."""
    newest: list[int] = []
    for count in range(size):
        waits = [(dep,) for dep in after] if after and count == 0 else [()] * ranks
        newest = [_add(builder, [Lane(f"gpu{r}", queue)], waits[r], r) for r in range(ranks)]
    return newest


def _diamond(builder: GraphBuilder, ranks: int, size: int) -> None:
    fork = _kernels(builder, ranks, "compute", 1)
    side = _kernels(builder, ranks, "side", size, fork)
    _kernels(builder, ranks, "compute", size)
    _kernels(builder, ranks, "compute", size, side)


def _collective(builder: GraphBuilder, ranks: int) -> int:
    return _add(builder, [*(Lane(f"gpu{rank}", "compute") for rank in range(ranks)), Lane("link", "root0")])


def _launch(builder: GraphBuilder, ranks: int) -> None:
    launch = _add(builder, [Lane("host", "python")])
    _kernels(builder, ranks, "compute", 1, [launch] * ranks)


def _copy(builder: GraphBuilder, ranks: int) -> None:
    """Rank 0's result goes to the host, which waits for it."""
    done = _kernels(builder, ranks, "compute", 1)
    copied = _add(builder, [Lane("gpu0", "copy")], (done[0],))
    _add(builder, [Lane("host", "python")], (copied,))

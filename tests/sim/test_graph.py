"""What a step graph refuses, and what it derives from its ops."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import graph_of, graphs, lanes, plain_op

from hwmodels.work import Elementwise
from sim.graph import Component, GraphBuilder, Lane, Op, Phase, Ragged, StepGraph

FIRST = plain_op((0,))
REFUSED = {
    "no lane": (plain_op(()), "op 1 holds no lane"),
    "a lane twice": (plain_op((0, 0)), r"op 1 names a lane twice: \(0, 0\)"),
    "a lane beyond the last": (plain_op((2,)), r"op 1 names a lane that does not exist: \(2,\)"),
    "a negative lane": (plain_op((-1,)), r"op 1 names a lane that does not exist: \(-1,\)"),
    "itself": (plain_op((0,), (1,)), r"op 1 depends on \(1,\); only earlier ops are allowed"),
    "a later op": (plain_op((0,), (0, 2)), r"op 1 depends on \(0, 2\); only earlier ops are allowed"),
    "a negative op": (plain_op((0,), (-1,)), r"op 1 depends on \(-1,\); only earlier ops are allowed"),
}


@pytest.mark.parametrize(("op", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_graph_refuses(op: Op, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        StepGraph(lanes(2), (FIRST, op, FIRST))


@given(graphs())
def test_queues_hold_every_op_once_per_lane_in_program_order(graph: StepGraph) -> None:
    held = sorted((lane, index) for index, op in enumerate(graph.ops) for lane in op.lanes)
    queued = [(lane, index) for lane, queue in enumerate(graph.queues) for index in queue]
    assert queued == held


@given(graphs())
def test_predecessors_are_dependencies_and_the_op_before_on_each_lane(graph: StepGraph) -> None:
    for index, op in enumerate(graph.ops):
        queues = [graph.queues[lane] for lane in op.lanes]
        before = {queue[queue.index(index) - 1] for queue in queues if queue[0] != index}
        assert set(graph.predecessors[index]) == before | set(op.after)
        assert len(set(graph.predecessors[index])) == len(graph.predecessors[index])


def test_predecessors_name_dependencies_first() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0,), (1,)))
    assert graph.predecessors[2] == (1, 0)


@given(graphs())
def test_held_by_holds_the_predecessors_end_to_end(graph: StepGraph) -> None:
    first, stop, items = graph.held_by
    rows = [tuple(items[begin:end].tolist()) for begin, end in zip(first, stop, strict=True)]
    assert tuple(rows) == graph.predecessors
    assert {array.dtype for array in graph.held_by} == {np.dtype(np.uint64)}


@given(st.lists(st.lists(st.integers(0, 99), max_size=4), max_size=6))
def test_ragged_rows_come_back_as_they_were(rows: list[list[int]]) -> None:
    first, stop, items = Ragged.of(rows)
    assert [items[begin:end].tolist() for begin, end in zip(first, stop, strict=True)] == rows


def test_works_are_distinct_and_indexed() -> None:
    builder = GraphBuilder()
    for size in (8, 16, 8):
        builder.add(Phase.VERIFY, Component.DENSE, Elementwise(size), [Lane("gpu0", "compute")])
    graph = builder.build()
    assert graph.works == (Elementwise(8), Elementwise(16))
    assert graph.work_index.tolist() == [0, 1, 0]


def test_the_builder_numbers_lanes_by_first_use_and_drops_repeated_dependencies() -> None:
    builder, a, b = GraphBuilder(), Lane("a", "x"), Lane("b", "x")
    first = builder.add(Phase.DRAFT, Component.DRAFTER, Elementwise(8), [a], rank=0)
    builder.add(Phase.DRAFT, Component.DRAFTER, Elementwise(8), [b, a], [first, first])
    graph = builder.build()
    assert graph.lanes == (a, b)
    assert [(op.lanes, op.after, op.rank) for op in graph.ops] == [((0,), (), 0), ((1, 0), (0,), None)]


def test_a_lane_reads_as_device_and_queue() -> None:
    assert str(Lane("gpu3", "compute")) == "gpu3/compute"

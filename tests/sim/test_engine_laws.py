"""Laws of time on in-order lanes: slower is never faster, scale goes through, names do not matter."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from strategies import Case, cases, rank_graphs, with_dependency, with_durations

from sim.engine import play
from sim.graph import IntArray, Lane, Op, StepGraph

ANY_CASE = cases(min_ops=1) | with_durations(rank_graphs())


def delays(durations: IntArray) -> st.SearchStrategy[list[int]]:
    """One extra time for every op."""
    columns = durations.shape[1]
    return st.lists(st.sampled_from([0, 0, 1, 50, 10_000]), min_size=columns, max_size=columns)


@given(ANY_CASE, st.data())
def test_one_slower_op_never_makes_anything_earlier(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    slower = durations.copy()
    slower[:, data.draw(st.integers(0, len(graph.ops) - 1))] += data.draw(st.integers(1, 1000))
    assert (play(graph, slower) >= play(graph, durations)).all()


@given(ANY_CASE, st.data())
def test_slower_ops_never_finish_a_step_sooner(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    slower = durations + np.array(data.draw(delays(durations)))
    before, after = play(graph, durations), play(graph, slower)
    assert (after >= before).all()
    assert (after.max(axis=1) >= before.max(axis=1)).all()


@given(ANY_CASE, st.integers(0, 1000))
def test_scaling_every_duration_scales_every_end(case: Case, factor: int) -> None:
    graph, durations = case
    assert play(graph, factor * durations).tolist() == (factor * play(graph, durations)).tolist()


@given(cases(min_ops=2) | with_durations(rank_graphs()), st.data())
def test_one_more_dependency_never_makes_anything_earlier(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    index = data.draw(st.integers(0, len(graph.ops) - 1))
    earlier = data.draw(st.integers(0, max(0, index - 1)))
    held_up = with_dependency(graph, index, earlier) if index else graph
    assert (play(held_up, durations) >= play(graph, durations)).all()


@given(ANY_CASE, st.data())
def test_relabelling_lanes_changes_only_labels(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    order = data.draw(st.permutations(range(len(graph.lanes))))
    renamed = relabelled(graph, order)
    assert play(renamed, durations).tolist() == play(graph, durations).tolist()
    queues = {renamed.lanes[lane]: queue for lane, queue in enumerate(renamed.queues)}
    assert [queues[Lane("new", str(lane))] for lane in range(len(graph.lanes))] == list(graph.queues)


@given(ANY_CASE)
def test_the_order_in_which_an_op_names_its_lanes_does_not_matter(case: Case) -> None:
    graph, durations = case
    backwards = tuple(op._replace(lanes=op.lanes[::-1], after=op.after[::-1]) for op in graph.ops)
    assert play(StepGraph(graph.lanes, backwards), durations).tolist() == play(graph, durations).tolist()


def relabelled(graph: StepGraph, order: list[int]) -> StepGraph:
    """*graph* with lane i moved to position ``order[i]`` and called ``new/i``."""
    names = {position: Lane("new", str(lane)) for lane, position in enumerate(order)}
    moved = tuple(names[position] for position in range(len(order)))
    return StepGraph(moved, tuple(on_lanes(op, order) for op in graph.ops))


def on_lanes(op: Op, order: list[int]) -> Op:
    """*op* on the moved lanes."""
    return op._replace(lanes=tuple(order[lane] for lane in op.lanes))

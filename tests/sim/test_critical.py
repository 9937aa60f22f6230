"""The critical path explains every nanosecond of a step."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import Case, cases, graph_of, rank_graphs, tangled_rank_graphs, with_durations

from sim.critical import critical_time
from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph

ANY_CASE = cases(min_ops=1) | with_durations(rank_graphs()) | with_durations(tangled_rank_graphs())


def op_time(graph: StepGraph, durations: IntArray, end: IntArray) -> IntArray:
    """Every op's own time on the critical path (steps, ops)."""
    count = len(graph.ops)
    return critical_time(graph, durations, end, np.arange(count, dtype=np.uint64), count)


@given(ANY_CASE)
def test_times_on_the_path_add_up_to_the_makespan(case: Case) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    assert op_time(graph, durations, end).sum(axis=1).tolist() == end.max(axis=1).tolist()


@given(ANY_CASE)
def test_an_op_is_on_the_path_with_all_its_time_or_not_at_all(case: Case) -> None:
    graph, durations = case
    time = op_time(graph, durations, oracle.play(graph, durations))
    assert ((time == 0) | (time == durations)).all()


@given(ANY_CASE)
def test_the_path_is_contiguous_in_time_from_zero_to_the_end(case: Case) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    for time, ends in zip(op_time(graph, durations, end), end, strict=True):
        ops = np.flatnonzero(time)
        stops = sorted(ends[ops].tolist())
        assert sorted((ends - time)[ops].tolist()) == [0, *stops][: len(ops)]
        assert [0, *stops][-1] == ends.max()


@given(ANY_CASE)
def test_the_path_is_the_one_walked_back_op_by_op(case: Case) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    for step, time in enumerate(op_time(graph, durations, end)):
        path = oracle.critical_ops(graph, durations[step], end[step])
        assert time.tolist() == [durations[step, op] if op in path else 0 for op in range(len(graph.ops))]


@given(ANY_CASE, st.data())
def test_the_time_of_a_group_is_that_of_its_ops(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    group_of = data.draw(hnp.arrays(np.uint64, len(graph.ops), elements=st.integers(0, 3)))
    alone = op_time(graph, durations, end)
    together = [alone[:, group_of == group].sum(axis=1).tolist() for group in range(4)]
    assert critical_time(graph, durations, end, group_of, 4).T.tolist() == together


@given(ANY_CASE, st.integers(1, 5))
def test_ends_that_nothing_explains_are_refused(case: Case, shift: int) -> None:
    graph, durations = case
    late = oracle.play(graph, durations) + shift
    with pytest.raises(SimulationError, match="began when nothing before it ended"):
        op_time(graph, durations, late)


def test_the_op_without_a_cause_is_named() -> None:
    graph = graph_of(((0,), ()), ((1,), (0,)), ((1,), ()))
    durations = np.array([[5, 5, 5], [5, 5, 5]])
    with pytest.raises(SimulationError, match="op 1 began when nothing before it ended"):
        op_time(graph, durations, np.array([[5, 10, 15], [5, 11, 16]]))


def test_at_a_tie_the_dependency_counts_before_lane_order() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0,), (1,)))
    assert op_time(graph, np.array([[4, 4, 1]]), np.array([[4, 4, 5]])).tolist() == [[0, 4, 1]]


def test_at_a_tie_of_dependencies_the_first_counts() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((2,), (1, 0)))
    assert op_time(graph, np.array([[4, 4, 1]]), np.array([[4, 4, 5]])).tolist() == [[0, 4, 1]]


def test_of_ops_that_end_last_together_the_first_counts() -> None:
    graph = graph_of(((0,), ()), ((1,), ()))
    assert op_time(graph, np.array([[4, 4]]), np.array([[4, 4]])).tolist() == [[4, 0]]


def test_steps_are_traced_apart() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0,), (1,)))
    durations = np.array([[4, 9, 1], [9, 4, 1]])
    time = op_time(graph, durations, oracle.play(graph, durations))
    assert time.tolist() == [[0, 9, 1], [9, 0, 1]]


@pytest.mark.parametrize("shape", [(0, 1), (2, 0)])
def test_nothing_played_has_no_path(shape: tuple[int, int]) -> None:
    graph = graph_of(*[((0,), ())] * shape[1])
    nothing = np.empty(shape, dtype=np.int64)
    assert op_time(graph, nothing, nothing).shape == shape

"""The critical path explains every nanosecond of a step."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import Case, cases, graph_of, rank_graphs, tangled_rank_graphs, with_durations

from sim.critical import critical_path
from sim.errors import SimulationError

ANY_CASE = cases(min_ops=1) | with_durations(rank_graphs()) | with_durations(tangled_rank_graphs())


@given(ANY_CASE)
def test_durations_on_the_path_add_up_to_the_makespan(case: Case) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    on_path = critical_path(graph, durations, end)
    assert (durations * on_path).sum(axis=1).tolist() == end.max(axis=1).tolist()


@given(ANY_CASE)
def test_the_path_is_contiguous_in_time_from_zero_to_the_end(case: Case) -> None:
    graph, durations = case
    end = oracle.play(graph, durations)
    path = critical_path(graph, durations, end)
    for step in range(len(durations)):
        spans = [
            (int(end[step, op] - durations[step, op]), int(end[step, op]))
            for op in np.flatnonzero(path[step])
        ]
        begins, ends = zip(*sorted(spans), strict=True)
        assert begins == (0, *ends[:-1])
        assert ends[-1] == end[step].max()


@given(ANY_CASE)
def test_every_op_on_the_path_was_held_up_by_the_one_before(case: Case) -> None:
    graph, durations = case
    path = critical_path(graph, durations, oracle.play(graph, durations))
    for row in path:
        ops = np.flatnonzero(row).tolist()
        for before, after in pairwise(ops):
            assert before in graph.predecessors[after]


@given(ANY_CASE, st.integers(1, 5))
def test_ends_that_nothing_explains_are_refused(case: Case, shift: int) -> None:
    graph, durations = case
    late = oracle.play(graph, durations) + shift
    with pytest.raises(SimulationError, match="began when nothing before it ended"):
        critical_path(graph, durations, late)


def test_the_op_without_a_cause_is_named() -> None:
    graph = graph_of(((0,), ()), ((1,), (0,)), ((1,), ()))
    durations = np.array([[5, 5, 5]])
    with pytest.raises(SimulationError, match="op 1 began when nothing before it ended"):
        critical_path(graph, durations, np.array([[5, 11, 16]]))


def test_at_a_tie_the_dependency_counts_before_lane_order() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0,), (1,)))
    durations = np.array([[4, 4, 1]])
    assert critical_path(graph, durations, np.array([[4, 4, 5]])).tolist() == [[False, True, True]]


def test_at_a_tie_of_dependencies_the_first_counts() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((2,), (1, 0)))
    durations = np.array([[4, 4, 1]])
    assert critical_path(graph, durations, np.array([[4, 4, 5]])).tolist() == [[False, True, True]]


def test_steps_are_traced_apart() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0,), (1,)))
    durations = np.array([[4, 9, 1], [9, 4, 1]])
    path = critical_path(graph, durations, oracle.play(graph, durations))
    assert path.tolist() == [[False, True, True], [True, False, True]]


@pytest.mark.parametrize("shape", [(0, 1), (2, 0)])
def test_nothing_played_has_no_path(shape: tuple[int, int]) -> None:
    graph = graph_of(*[((0,), ())] * shape[1])
    nothing = np.empty(shape, dtype=np.int64)
    assert critical_path(graph, nothing, nothing).shape == shape

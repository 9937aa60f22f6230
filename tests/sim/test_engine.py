"""The SimPy engine against the longest path, and what a lane may not do."""

from __future__ import annotations

import pickle
from itertools import pairwise

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from simpy import Environment
from simpy.events import Timeout
from strategies import Case, cases, graph_of, lanes, plain_op, rank_graphs, with_durations

from sim import engine
from sim.errors import SimulationError
from sim.graph import StepGraph

ANY_CASE = cases() | with_durations(rank_graphs())


@given(ANY_CASE)
def test_engine_equals_longest_path_op_by_op(case: Case) -> None:
    graph, durations = case
    assert engine.play(graph, durations).tolist() == oracle.play(graph, durations).tolist()


@given(ANY_CASE)
def test_steps_played_in_turn_equal_each_step_alone(case: Case) -> None:
    graph, durations = case
    alone = [engine.play(graph, durations[step : step + 1]) for step in range(len(durations))]
    assert engine.play(graph, durations).tolist() == np.concatenate(alone).tolist()


@given(ANY_CASE)
def test_playing_leaves_the_durations_alone(case: Case) -> None:
    graph, durations = case
    before = durations.copy()
    engine.play(graph, durations)
    assert durations.tolist() == before.tolist()


def test_a_collective_starts_when_the_last_rank_arrives() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((0, 1), ()), ((0,), ()))
    assert engine.play(graph, np.array([[5, 2, 10, 1]])).tolist() == [[5, 2, 15, 16]]


def test_a_dependency_on_another_lane_holds_an_op_up() -> None:
    graph = graph_of(((0,), ()), ((1,), ()), ((1,), (0,)))
    assert engine.play(graph, np.array([[7, 2, 3]])).tolist() == [[7, 2, 10]]


def test_a_lane_keeps_program_order_even_if_a_later_op_is_ready() -> None:
    graph = graph_of(((0,), ()), ((1,), (0,)), ((1,), ()))
    assert engine.play(graph, np.array([[9, 1, 1]])).tolist() == [[9, 10, 11]]


def test_an_empty_graph_takes_no_time() -> None:
    graph = StepGraph(lanes(2), ())
    assert engine.play(graph, np.empty((3, 0), dtype=np.int64)).shape == (3, 0)


@given(case=ANY_CASE)
def test_every_op_runs_exactly_once(case: Case) -> None:
    graph, durations = case
    held: list[int] = []

    def counted(env: Environment, delay: int) -> Timeout:
        held.append(delay)
        return Timeout(env, delay)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "Timeout", counted)
        engine.play(graph, durations)
    assert sorted(held) == sorted(durations.ravel().tolist())


@given(ANY_CASE)
def test_a_lane_does_one_thing_at_a_time(case: Case) -> None:
    graph, durations = case
    end = engine.play(graph, durations)
    start = end - durations
    for queue in graph.queues:
        for earlier, later in pairwise(queue):
            assert (end[:, earlier] <= start[:, later]).all()


@given(ANY_CASE)
def test_nothing_starts_before_its_dependencies_end(case: Case) -> None:
    graph, durations = case
    end = engine.play(graph, durations)
    start = end - durations
    assert (start >= 0).all()
    for index, op in enumerate(graph.ops):
        assert all((end[:, dep] <= start[:, index]).all() for dep in op.after)


@given(ANY_CASE)
def test_busy_and_idle_fill_lanes_times_makespan(case: Case) -> None:
    graph, durations = case
    for row, end in zip(durations, engine.play(graph, durations), strict=True):
        whole = len(graph.lanes) * int(end.max(initial=0))
        assert oracle.busy_time(graph, row) + oracle.idle_time(graph, row, end) == whole


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=12))
def test_ops_of_one_lane_add_up(durations: list[int]) -> None:
    graph = StepGraph(lanes(1), (plain_op((0,)),) * len(durations))
    assert engine.play(graph, np.array([durations]))[0].tolist() == np.cumsum(durations).tolist()


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=8))
def test_ops_that_wait_for_one_another_add_up(durations: list[int]) -> None:
    chain = [plain_op((i,), (i - 1,) if i else ()) for i in range(len(durations))]
    graph = StepGraph(lanes(len(durations)), tuple(chain))
    assert engine.play(graph, np.array([durations]))[0].tolist() == np.cumsum(durations).tolist()


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_durations_is_refused(count: int) -> None:
    durations = np.ones((1, count), dtype=np.int64)
    with pytest.raises(SimulationError, match=f"{count} durations for 1 ops"):
        engine.play(graph_of(((0,), ())), durations)


@given(cases(min_ops=1), st.data())
def test_a_negative_duration_never_passes_in_silence(case: Case, data: st.DataObject) -> None:
    graph, durations = case
    step = data.draw(st.integers(0, len(durations) - 1))
    durations[step, data.draw(st.integers(0, len(graph.ops) - 1))] = -1
    with pytest.raises(ValueError, match="delay"):
        engine.play(graph, durations)


def test_a_simulation_error_survives_copies_and_pickles() -> None:
    error = SimulationError("op 3 never ran")
    for copy in (type(error)(*error.args), pickle.loads(pickle.dumps(error))):
        assert (type(copy), copy.problem, str(copy)) == (SimulationError, error.problem, str(error))
    assert str(error) == "simulator invariant broken: op 3 never ran"

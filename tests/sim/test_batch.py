"""The batch engine is no second opinion: the same ends as SimPy and the oracle, op by op."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from builders import plain_data, small_setup
from hypothesis import given
from strategies import Case, cases, graph_of, rank_graphs, with_durations

from sim import batch, engine, simulate
from sim.choices import EngineName
from sim.errors import SimulationError
from sim.fusion import fuse
from sim.graph import IntArray, StepGraph
from sim.simulate import Simulation

PLAIN = ("tree.budget=0", "acceptance={length: 1}")
WHOLE_RUNS = {
    "tree": ("tree.budget=8",),
    "eager": ("tree.budget=9",),
    "plain": PLAIN,
    "plain, many requests": (*PLAIN, "load.concurrency=16"),
    "tree on the GPU": ("tree.builder=gpu",),
    "one rank": ("gpus=1",),
    "two ranks": ("gpus=2",),
}


@given(cases() | with_durations(rank_graphs()))
def test_batch_equals_simpy_and_the_oracle(case: Case) -> None:
    graph, durations = case
    end = batch.play(graph, durations)
    assert end.tolist() == engine.play(graph, durations).tolist()
    assert end.tolist() == [oracle.finish_times(graph, row) for row in durations.tolist()]


@given(with_durations(rank_graphs()))
def test_batch_plays_pieces_to_the_same_nanosecond(case: Case) -> None:
    graph, durations = case
    fusion = fuse(graph)
    expanded = fusion.expand(batch.play(fusion.pieces, fusion.durations(durations)), durations)
    assert expanded.tolist() == batch.play(graph, durations).tolist()


@given(cases(min_ops=1))
def test_batch_leaves_the_durations_alone(case: Case) -> None:
    graph, durations = case
    before = durations.copy()
    batch.play(graph, durations)
    assert durations.tolist() == before.tolist()


@given(with_durations(rank_graphs()))
def test_steps_played_at_once_equal_each_step_alone(case: Case) -> None:
    graph, durations = case
    alone = [batch.play(graph, durations[step : step + 1]) for step in range(len(durations))]
    assert batch.play(graph, durations).tolist() == np.concatenate(alone).tolist()


@pytest.mark.parametrize("count", [0, 2])
def test_a_wrong_number_of_durations_is_refused(count: int) -> None:
    with pytest.raises(SimulationError, match=f"{count} durations for 1 ops"):
        batch.play(graph_of(((0,), ())), np.ones((1, count), dtype=np.int64))


def test_an_empty_graph_takes_no_time() -> None:
    assert batch.play(StepGraph((), ()), np.empty((3, 0), dtype=np.int64)).shape == (3, 0)


def test_durations_that_are_not_contiguous_are_played_as_they_read() -> None:
    graph = graph_of(((0,), ()), ((1,), (0,)), ((0,), ()))
    wide = np.arange(12, dtype=np.int64).reshape(2, 6)
    for view in (wide[:, ::2], np.asfortranarray(wide[:, :3])):
        assert batch.play(graph, view).tolist() == oracle.play(graph, view).tolist()


@pytest.mark.parametrize("overrides", WHOLE_RUNS.values(), ids=WHOLE_RUNS.keys())
def test_whole_runs_are_the_same_on_every_engine(
    overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = small_setup(*overrides)
    runs = [Simulation(setup, name).run(3) for name in EngineName]
    monkeypatch.setitem(simulate.ENGINES, EngineName.BATCH, oracle.play)
    runs.append(Simulation(setup).run(3))
    first, second, third = (plain_data(run.steps) for run in runs)
    assert first == second == third


def test_the_engine_asked_for_is_the_one_that_plays(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(graph: StepGraph, durations: IntArray) -> IntArray:
        raise SimulationError(f"{len(graph.ops)} ops, {len(durations)} steps")

    for name in EngineName:
        with monkeypatch.context() as patch:
            patch.setitem(simulate.ENGINES, name, refuse)
            with pytest.raises(SimulationError, match="ops"):
                Simulation(small_setup(), name).run(0)
            assert Simulation(small_setup(), *(set(EngineName) - {name})).run(0).duration_ns > 0

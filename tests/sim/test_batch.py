"""The batch engine is no second opinion: the same ends as SimPy and the oracle, op by op."""

from __future__ import annotations

import oracle
import pytest
from builders import plain_data, small_setup
from hypothesis import given
from strategies import Case, cases, rank_graphs, with_durations

from sim import batch, engine
from sim.choices import EngineName
from sim.errors import SimulationError
from sim.fusion import fuse
from sim.simulate import Simulation


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


def test_a_wrong_number_of_durations_is_refused() -> None:
    graph = Simulation(small_setup()).graph
    with pytest.raises(SimulationError, match=f"1 durations for {len(graph.ops)} ops"):
        batch.play(graph, Simulation(small_setup()).base.seconds([1])[:, :1].astype("int64"))


@pytest.mark.parametrize("override", ["tree.budget=8", "tree.budget=9", "tree.budget=0", "tree.builder=gpu"])
def test_whole_runs_are_the_same_on_both_engines(override: str) -> None:
    acceptance = ("acceptance={length: 1}",) if override == "tree.budget=0" else ()
    setup = small_setup(override, *acceptance)
    runs = [Simulation(setup, name).run(3) for name in EngineName]
    first, second = (plain_data(run.steps) for run in runs)
    assert first == second

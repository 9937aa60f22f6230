"""Every nanosecond is booked, and booked where an engine that plays op by op would book it."""

from __future__ import annotations

from dataclasses import fields
from enum import Enum
from functools import cache

import numpy as np
import oracle
import pytest
from builders import plain_data, small_setup, without_noise
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    LABELS,
    PiecesCase,
    graph_of,
    labelled,
    mean_times,
    rank_graphs,
    tied_pieces,
    untied_pieces,
    with_label,
)

from hwmodels.estimate import Source
from hwmodels.work import AllReduce
from sim import batch
from sim.accounts import Accounts
from sim.fusion import fuse
from sim.graph import Component, IntArray, Op, Phase, StepGraph
from sim.means import MeanTimes
from sim.pieces import Pieces
from sim.records import StepRecords
from sim.simulate import Chunk, Simulation

SCENARIOS = {
    "tree": (),
    "tree on the GPU": ("tree.builder=gpu",),
    "eager": ("tree.budget=9",),
    "plain": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4"),
    "one rank": ("gpus=1",),
    "two ranks": ("gpus=2",),
    "native": ("stack=native",),
    "two streams": ("model=kimi_k2_6_nvfp4",),
}
any_scenario = pytest.mark.parametrize("name", SCENARIOS)
GROUPS = {"component_ns": Component, "phase_ns": Phase, "source_ns": Source}
DIAMOND = (((0,), ()), ((1,), (0,)), ((0,), ()), ((0,), (1,)))


def sources(pieces: Pieces) -> tuple[Source, ...]:
    """One source after the other."""
    return tuple(list(Source)[label % len(Source)] for label in range(len(pieces.labels)))


def booked(pieces: Pieces, mean: MeanTimes, durations: IntArray) -> StepRecords:
    """The records of *durations* (steps, pieces), played."""
    nothing = np.zeros(len(durations), dtype=np.int64)
    end = oracle.play(pieces.graph, durations)
    return Accounts(pieces, sources(pieces)).records(nothing, nothing, mean, durations, end)


def ops_of(pieces: Pieces, mean: MeanTimes, durations: IntArray) -> tuple[IntArray, IntArray]:
    """Durations and ends (steps, ops) of the same steps, op by op."""
    ops = pieces.split(durations, mean)
    return ops, oracle.play(pieces.fusion.graph, ops)


def assert_booked_as_op_by_op(
    records: StepRecords, pieces: Pieces, by_source: tuple[Source, ...], ops: IntArray, end: IntArray
) -> None:
    """Components, phases and sources as the ops on the path have them, but for a rounding at each."""
    graph = pieces.fusion.graph
    groups = {
        "component_ns": [op.component for op in graph.ops],
        "phase_ns": [op.phase for op in graph.ops],
        "source_ns": [by_source[label] for label in pieces.label_of],
    }
    for step, (took, ended) in enumerate(zip(ops, end, strict=True)):
        path = oracle.critical_ops(graph, took, ended)
        for name, group_of in groups.items():
            found = getattr(records, name)[step]
            expected = path_time(GROUPS[name], path, took, group_of)
            assert (np.abs(found - expected) <= 1 + len(path)).all(), name


def path_time(kinds: type[Enum], path: list[int], took: IntArray, group_of: list[Enum]) -> IntArray:
    """Time of the ops on *path* by group, in the order of *kinds*."""
    return np.array([sum(int(took[op]) for op in path if group_of[op] is kind) for kind in kinds])


@cache
def simulation(name: str) -> Simulation:
    """One of the scenarios on two layers."""
    return Simulation(small_setup(*SCENARIOS[name]))


@cache
def chunk(name: str) -> Chunk:
    """The steps of its run 0."""
    return next(simulation(name).chunks(0))


@given(tied_pieces() | untied_pieces())
def test_every_way_to_group_a_step_adds_up_to_it(case: PiecesCase) -> None:
    pieces, mean, durations = case
    records = booked(pieces, mean, durations)
    assert records.step_ns.tolist() == oracle.play(pieces.graph, durations).max(axis=1).tolist()
    for name, kinds in GROUPS.items():
        parts = getattr(records, name)
        assert parts.shape == (len(durations), len(kinds))
        assert (parts >= 0).all()
        assert parts.sum(axis=1).tolist() == records.step_ns.tolist()


@given(untied_pieces())
def test_pieces_are_booked_as_their_ops_would_be(case: PiecesCase) -> None:
    pieces, _, _ = case
    ops, end = ops_of(*case)
    assert_booked_as_op_by_op(booked(*case), pieces, sources(pieces), ops, end)


@given(tied_pieces())
def test_at_ties_the_path_of_the_pieces_is_divided_among_their_work(case: PiecesCase) -> None:
    pieces, mean, durations = case
    records = booked(*case)
    for step, took in enumerate(durations):
        end = oracle.play(pieces.graph, durations[step : step + 1])[0]
        path = [piece for piece in oracle.critical_ops(pieces.graph, took, end) if took[piece]]
        expected = np.zeros(len(Component))
        for piece in path:
            expected += took[piece] * shares(pieces, mean, step, piece)
        assert np.abs(records.component_ns[step] - expected).max() <= 1


def shares(pieces: Pieces, mean: MeanTimes, step: int, piece: int) -> np.ndarray:
    """How the time of *piece* is divided among components, op by op."""
    parts = mean.part_s[step, int(pieces.kind_of[piece])]
    beside = 2 if parts[1] >= parts[2] else 1
    divided = np.zeros(len(Component))
    for op in np.flatnonzero(pieces.piece_of_op == piece):
        if pieces.part_of_op[op] != beside:
            label = pieces.label_of[op]
            divided[list(Component).index(pieces.labels[label].component)] += mean.label_s[step, label]
    return divided / divided.sum()


@given(tied_pieces() | untied_pieces())
def test_lanes_are_held_as_long_as_by_their_ops(case: PiecesCase) -> None:
    pieces, _, _ = case
    ops, _ = ops_of(*case)
    busy = booked(*case).busy_ns
    expected = np.array([oracle.lane_times(pieces.fusion.graph, row) for row in ops])
    assert busy.tolist() == expected.tolist()


@given(tied_pieces() | untied_pieces(), st.data())
def test_steps_are_booked_apart(case: PiecesCase, data: st.DataObject) -> None:
    pieces, mean, durations = case
    at = data.draw(st.integers(0, len(durations) - 1))
    only = slice(at, at + 1)
    alone = booked(pieces, MeanTimes(*(times[only] for times in mean)), durations[only])
    together = booked(*case)
    for field in fields(StepRecords):
        assert getattr(alone, field.name).tolist() == getattr(together, field.name)[only].tolist()


@given(untied_pieces(labelled(rank_graphs())))
def test_ranks_wait_at_collectives_as_long_as_op_by_op(case: PiecesCase) -> None:
    pieces, _, _ = case
    ops, end = ops_of(*case)
    graph, records = pieces.fusion.graph, booked(*case)
    waits = [round(oracle.collective_wait(graph, row)) for row in end]
    assert np.abs(records.allreduce_wait_ns - waits).max() <= 1
    collectives = [index for index, op in enumerate(graph.ops) if isinstance(op.work, AllReduce)]
    assert records.allreduce_transfer_ns.tolist() == ops[:, collectives].sum(axis=1).tolist()


def labelled_graph(rows: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]) -> StepGraph:
    """The graph of *rows* whose ops do one thing after the other."""
    graph = graph_of(*rows)
    chosen = [LABELS[index % len(LABELS)] for index in range(len(rows))]
    return StepGraph(graph.lanes, tuple(map(with_label, graph.ops, chosen)))


@pytest.mark.parametrize(("main", "side", "counts"), [(2.0, 5.0, 1), (5.0, 2.0, 2), (4.0, 4.0, 2)])
def test_of_a_diamond_the_longer_way_is_booked_and_both_lanes_are_busy(
    main: float, side: float, counts: int
) -> None:
    graph = labelled_graph(DIAMOND)
    apart = (LABELS[0], LABELS[1], LABELS[3], LABELS[4])
    pieces = Pieces(fuse(StepGraph(graph.lanes, tuple(map(with_label, graph.ops, apart)))))
    spent = [1.0, side, main, 3.0]
    mean = mean_times(pieces, np.array([spent]))
    records = booked(pieces, mean, np.array([[round(100 * (4 + max(main, side)))]]))
    expected = {apart[label].component: 100 * spent[label] for label in (0, counts, 3)}
    assert records.component_ns.tolist() == [[expected.get(component, 0) for component in Component]]
    assert records.busy_ns.tolist() == [[100 * (4 + main), 100 * side]]


def test_a_rank_waits_from_the_end_of_its_own_work_to_that_of_the_last() -> None:
    graph = labelled_graph((((0,), ()), ((1,), ()), ((2,), ()), ((0, 1, 2), ())))
    ranked = tuple(op._replace(rank=rank) for rank, op in enumerate(graph.ops[:3]))
    pieces = Pieces(fuse(StepGraph(graph.lanes, (*ranked, graph.ops[3]))))
    mean = mean_times(pieces, np.ones((2, len(pieces.labels))))
    records = booked(pieces, mean, np.array([[10, 4, 1, 7], [5, 5, 5, 2]]))
    assert records.allreduce_wait_ns.tolist() == [5, 0]
    assert records.allreduce_transfer_ns.tolist() == [7, 2]


def test_a_lane_without_a_rank_keeps_no_rank_waiting() -> None:
    graph = labelled_graph((((0,), ()), ((1,), ()), ((0, 1), ())))
    first: Op = graph.ops[0]._replace(rank=0)
    pieces = Pieces(fuse(StepGraph(graph.lanes, (first, *graph.ops[1:]))))
    mean = mean_times(pieces, np.ones((1, len(pieces.labels))))
    assert booked(pieces, mean, np.array([[10, 90, 7]])).allreduce_wait_ns.tolist() == [0]


@any_scenario
def test_a_whole_run_is_booked_as_op_by_op(name: str) -> None:
    found, part = simulation(name), chunk(name)
    steps = found.run(0).steps
    ops, end = ops_of(found.pieces, part.mean, part.durations)
    assert steps.step_ns.tolist() == end.max(axis=1).tolist()
    assert_booked_as_op_by_op(steps, found.pieces, found.base.sources(), ops, end)


@any_scenario
def test_a_whole_run_holds_lanes_and_waits_as_op_by_op(name: str) -> None:
    found, part = simulation(name), chunk(name)
    steps = found.run(0).steps
    ops, end = ops_of(found.pieces, part.mean, part.durations)
    held = np.array([oracle.lane_times(found.graph, row) for row in ops])
    assert steps.busy_ns.tolist() == held.tolist()
    waits = [oracle.collective_wait(found.graph, row) for row in end]
    assert np.abs(steps.allreduce_wait_ns - waits).max() <= 0.5 + 1e-3


def test_without_noise_a_step_is_booked_in_proportion_to_mean_times() -> None:
    """One lane after the other: a step of one rank without overlap is the sum of its works."""
    quiet = Simulation(without_noise(small_setup("gpus=1", "load.output_tokens=1")))
    steps, part = quiet.run(0).steps, next(quiet.chunks(0))
    ops, end = ops_of(quiet.pieces, part.mean, part.durations)
    assert_booked_as_op_by_op(steps, quiet.pieces, quiet.base.sources(), ops, end)


def test_booking_a_step_on_the_batch_engine_changes_neither_durations_nor_ends() -> None:
    found, part = simulation("tree"), chunk("tree")
    durations, end = part.durations.copy(), batch.play(found.pieces.graph, part.durations)
    ended = end.copy()
    accounts = Accounts(found.pieces, found.base.sources())
    first, second = (plain_data(accounts.records(*part, end)) for _ in range(2))
    assert first == second
    assert (durations.tolist(), ended.tolist()) == (part.durations.tolist(), end.tolist())

"""Fused graphs play to the same nanosecond as the graphs they came from."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import (
    Block,
    Case,
    PiecesCase,
    add_block,
    cases,
    graph_of,
    graphs,
    rank_graphs,
    tangled_rank_graphs,
    tied_pieces,
    untied_pieces,
    with_durations,
)

from sim.engine import play
from sim.fusion import Fusion, fuse, unfused
from sim.graph import GraphBuilder, StepGraph

Row = tuple[tuple[int, ...], tuple[int, ...]]

MAIN, SIDE, OTHER = (0,), (1,), (2,)
DIAMOND: list[Row] = [(MAIN, ()), (SIDE, (0,)), (MAIN, ()), (MAIN, (1,))]
FORMED = {
    "alone": DIAMOND,
    "with a longer detour": [(MAIN, ()), (SIDE, (0,)), (SIDE, ()), (MAIN, ()), (MAIN, (2,))],
    "whose parts wait for the main lane": [(MAIN, ()), (SIDE, (0,)), (MAIN, (0,)), (MAIN, (1, 2))],
}
HELD_BACK = {
    "the side waits for a third lane": [(OTHER, ()), (MAIN, ()), (SIDE, (1, 0)), (MAIN, ()), (MAIN, (2,))],
    "the side is awaited twice": [*DIAMOND, (OTHER, (1,))],
    "the fork is awaited twice": [*DIAMOND, (OTHER, (0,))],
    "the main part is awaited": [*DIAMOND, (OTHER, (2,))],
    "the main part waits for a third lane": [
        (OTHER, ()),
        (MAIN, ()),
        (SIDE, (1,)),
        (MAIN, (0,)),
        (MAIN, (2,)),
    ],
    "the join waits for a third lane": [(OTHER, ()), (MAIN, ()), (SIDE, (1,)), (MAIN, ()), (MAIN, (2, 0))],
    "the side has other business": [(SIDE, ()), (MAIN, ()), (SIDE, (1,)), (MAIN, ()), (MAIN, (2,))],
    "the side has business afterwards": [*DIAMOND, (SIDE, ()), (OTHER, (4,))],
    "nothing runs beside the side": [(MAIN, ()), (SIDE, (0,)), (MAIN, (1,))],
    "the fork is a collective": [((0, 2), ()), (SIDE, (0,)), (MAIN, ()), (MAIN, (1,))],
    "the join is a collective": [(MAIN, ()), (SIDE, (0,)), (MAIN, ()), ((0, 2), (1,))],
    "the side serves two main lanes": [*DIAMOND, (OTHER, ()), (SIDE, (4,)), (OTHER, ()), (OTHER, (5,))],
}


def assert_fusion_is_exact(graph: StepGraph, durations: np.ndarray) -> None:
    """Pieces played and expanded, by engine and oracle, equal the graph left alone."""
    fusion = fuse(graph)
    alone = oracle.play(graph, durations).tolist()
    pieces = fusion.durations(durations)
    assert fusion.expand(oracle.play(fusion.pieces, pieces), durations).tolist() == alone
    assert fusion.expand(play(fusion.pieces, pieces), durations).tolist() == alone


def forward_pass(*blocks: Block, ranks: int = 2) -> StepGraph:
    """A rank-parallel program of *blocks*."""
    builder = GraphBuilder()
    for block in blocks:
        add_block(builder, block, ranks, 2)
    return builder.build()


@given(cases())
def test_fused_equals_unfused_on_any_graph(case: Case) -> None:
    assert_fusion_is_exact(*case)


@given(with_durations(rank_graphs()))
def test_fused_equals_unfused_on_rank_parallel_programs(case: Case) -> None:
    assert_fusion_is_exact(*case)


@given(with_durations(tangled_rank_graphs()))
def test_fused_equals_unfused_where_dependencies_forbid_diamonds(case: Case) -> None:
    assert_fusion_is_exact(*case)


@pytest.mark.parametrize("rows", FORMED.values(), ids=FORMED.keys())
def test_a_diamond_becomes_one_piece(rows: list[Row]) -> None:
    graph = graph_of(*rows)
    fusion = fuse(graph)
    assert (len(fusion.diamonds), len(fusion.pieces.ops)) == (1, 1)
    assert_fusion_is_exact(graph, shuffled_durations(graph))


@pytest.mark.parametrize("rows", HELD_BACK.values(), ids=HELD_BACK.keys())
def test_no_diamond_is_made_where(rows: list[Row]) -> None:
    graph = graph_of(*rows)
    assert fuse(graph).diamonds == ()
    assert_fusion_is_exact(graph, shuffled_durations(graph))


def test_a_diamond_takes_the_longer_of_its_two_ways() -> None:
    fusion = fuse(graph_of(*DIAMOND))
    durations = np.array([[1, 5, 2, 3], [1, 2, 5, 3]])
    assert fusion.durations(durations).tolist() == [[9], [9]]
    ends = fusion.expand(np.array([[9], [9]]), durations)
    assert ends.tolist() == [[1, 6, 3, 9], [1, 3, 6, 9]]


def test_diamonds_occur_in_rank_parallel_programs() -> None:
    graph = forward_pass(Block.CHAIN, Block.DIAMOND, Block.COLLECTIVE, Block.DIAMOND, Block.COLLECTIVE)
    fusion = fuse(graph)
    assert len(fusion.diamonds) == 4
    assert len(fusion.pieces.ops) < len(graph.ops) / 3
    assert_fusion_is_exact(graph, shuffled_durations(graph))


def test_two_diamonds_may_share_a_chain() -> None:
    """The chain that joins the first diamond forks the second."""
    rows = [(MAIN, ()), (SIDE, (0,)), (MAIN, ()), (MAIN, (1,)), (SIDE, (3,)), (MAIN, ()), (MAIN, (4,))]
    graph = graph_of(*rows)
    assert_fusion_is_exact(graph, shuffled_durations(graph))


def test_a_chain_is_one_piece_and_ends_at_an_op_that_another_lane_awaits() -> None:
    graph = graph_of((MAIN, ()), (MAIN, ()), (OTHER, (1,)), (MAIN, ()), (MAIN, ()))
    fusion = fuse(graph)
    assert fusion.chain_of.tolist() == [0, 0, 1, 2, 2]
    assert fusion.durations(np.array([[1, 2, 4, 8, 16]])).tolist() == [[3, 4, 24]]


@given(cases())
def test_pieces_hold_each_lane_as_long_as_their_ops_where_there_is_no_diamond(case: Case) -> None:
    graph, durations = case
    fusion = fuse(graph)
    if not fusion.diamonds:
        assert lane_time(fusion.pieces, fusion.durations(durations)) == lane_time(graph, durations)


@given(cases())
def test_unfused_is_the_graph_itself(case: Case) -> None:
    graph, durations = case
    fusion: Fusion = unfused(graph)
    end = oracle.play(graph, durations)
    assert fusion.pieces is graph
    assert fusion.durations(durations).tolist() == durations.tolist()
    assert fusion.expand(end, durations).tolist() == end.tolist()


@given(tied_pieces() | untied_pieces())
def test_a_split_adds_up_to_its_pieces(case: PiecesCase) -> None:
    pieces, mean, durations = case
    ops = pieces.split(durations, mean)
    assert (ops >= 0).all()
    assert pieces.fusion.durations(ops).tolist() == durations.tolist()


@given(tied_pieces() | untied_pieces())
def test_a_split_step_ends_op_by_op_where_its_pieces_do(case: PiecesCase) -> None:
    pieces, mean, durations = case
    ops = pieces.split(durations, mean)
    expanded = pieces.fusion.expand(oracle.play(pieces.graph, durations), ops)
    assert expanded.tolist() == oracle.play(pieces.fusion.graph, ops).tolist()


@given(with_durations(graphs(min_ops=1) | rank_graphs()), st.floats(0.01, 100))
def test_a_split_of_stretched_pieces_stretches_every_op_to_a_nanosecond_or_two(
    case: Case, factor: float
) -> None:
    graph, mean_ns = case
    fusion = fuse(graph)
    pieces_ns = fusion.durations(mean_ns)
    durations = np.rint(factor * pieces_ns).astype(np.int64)
    split = oracle.split(fusion, durations, mean_ns.astype(float))
    stretched = np.divide(durations, pieces_ns, out=np.zeros(durations.shape), where=pieces_ns > 0)
    piece_of_op = fusion.piece_of[fusion.chain_of]
    proportional = mean_ns * stretched[:, piece_of_op]
    # Of a diamond the boundaries of its parts are rounded first, and those inside a part then.
    roundings = 1 + np.isin(piece_of_op, fusion.piece_of[[diamond.fork for diamond in fusion.diamonds]])
    assert (np.abs(split - proportional) <= roundings + 1e-6).all()


def test_a_split_rounds_every_boundary_once() -> None:
    """Thirds of 10: 3.3 and 6.7 are rounded, and not 3.3 three times."""
    fusion = fuse(graph_of((MAIN, ()), (MAIN, ()), (MAIN, ())))
    assert oracle.split(fusion, np.array([[10], [0]]), np.ones((2, 3))).tolist() == [[3, 4, 3], [0, 0, 0]]


def test_a_split_diamond_keeps_both_its_ways_in_proportion() -> None:
    fusion = fuse(graph_of(*DIAMOND))
    seconds = np.array([[1.0, 5, 2, 3], [1, 2, 5, 3]])
    assert oracle.split(fusion, np.array([[90], [90]]), seconds).tolist() == [
        [10, 50, 20, 30],
        [10, 20, 50, 30],
    ]


def test_pieces_that_take_no_time_on_average_are_split_into_nothing() -> None:
    fusion = fuse(graph_of((MAIN, ()), (MAIN, ()), (OTHER, (1,))))
    assert oracle.split(fusion, np.array([[7, 4]]), np.array([[0.0, 0, 1]])).tolist() == [[0, 0, 4]]


def lane_time(graph: StepGraph, durations: np.ndarray) -> list[list[int]]:
    """For each step the time that each lane is held."""
    return [[int(row[list(queue)].sum()) for queue in graph.queues] for row in durations]


def shuffled_durations(graph: StepGraph) -> np.ndarray:
    """Twenty steps of durations from 0 to 9."""
    return np.random.default_rng(5).integers(0, 10, (20, len(graph.ops)))

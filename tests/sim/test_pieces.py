"""What pieces are made of: every op is in one piece, and a piece takes what its ops take."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from strategies import LABELS, graph_of, labelled_graphs, with_label

from sim.fusion import fuse, unfused
from sim.graph import StepGraph
from sim.pieces import Label, Part, Pieces, Terms, along_piece


def makeup(pieces: Pieces, piece: int) -> Counter[tuple[int, Label]]:
    """How often *piece* does what in which of its parts, counted op by op."""
    ops = np.flatnonzero(pieces.piece_of_op == piece).tolist()
    graph = pieces.fusion.graph
    labels = [Label(graph.ops[op].phase, graph.ops[op].component, graph.ops[op].work) for op in ops]
    return Counter(zip(pieces.part_of_op[ops].tolist(), labels, strict=True))


def diamond() -> StepGraph:
    """A diamond whose fork, ways and join do different things."""
    graph = graph_of(((0,), ()), ((1,), (0,)), ((0,), ()), ((0,), (1,)))
    return StepGraph(graph.lanes, tuple(map(with_label, graph.ops, LABELS)))


@given(labelled_graphs())
def test_terms_hold_every_op_of_every_kind(graph: StepGraph) -> None:
    pieces = Pieces(fuse(graph))
    for piece, kind in enumerate(pieces.kind_of):
        mine = pieces.terms.kind == kind
        terms = zip(*(column[mine].tolist() for column in pieces.terms[1:]), strict=True)
        assert {(part, pieces.labels[label]): n for part, label, n in terms} == makeup(pieces, piece)


@given(labelled_graphs())
def test_pieces_are_of_one_kind_if_they_are_made_of_the_same_work(graph: StepGraph) -> None:
    pieces = Pieces(fuse(graph))
    made_of = [frozenset(makeup(pieces, piece).items()) for piece in range(len(pieces.graph.ops))]
    pairs = set(zip(made_of, pieces.kind_of.tolist(), strict=True))
    assert len(pairs) == len(set(made_of)) == pieces.kind_count
    assert sorted({kind for _, kind in pairs}) == list(range(pieces.kind_count))


@given(labelled_graphs())
def test_kinds_index_compiled_loops_and_terms_are_sorted_by_kind(graph: StepGraph) -> None:
    pieces = Pieces(fuse(graph))
    assert pieces.kind_of.dtype == np.uint64
    assert (np.diff(pieces.terms.kind) >= 0).all()


@given(labelled_graphs())
def test_labels_are_distinct_and_every_op_has_its_own(graph: StepGraph) -> None:
    pieces = Pieces(fuse(graph))
    assert len(set(pieces.labels)) == len(pieces.labels)
    for op, label in zip(graph.ops, pieces.label_of, strict=True):
        assert pieces.labels[label] == (op.phase, op.component, op.work)


@given(labelled_graphs(), st.data())
def test_a_piece_takes_what_fusion_adds_its_ops_up_to(graph: StepGraph, data: st.DataObject) -> None:
    pieces = Pieces(fuse(graph))
    shape = (data.draw(st.integers(1, 3)), len(pieces.labels))
    times = data.draw(hnp.arrays(np.int64, shape, elements=st.integers(0, 1000)))
    parts = pieces.part_sums(times.astype(float))
    together = along_piece(parts, parts)[:, pieces.kind_of]
    assert together.tolist() == pieces.fusion.durations(times[:, pieces.label_of]).tolist()


def test_parts_of_a_diamond_are_told_apart() -> None:
    pieces = Pieces(fuse(diamond()))
    assert pieces.part_of_op.tolist() == [Part.FORK, Part.SIDE, Part.MAIN, Part.JOIN]
    assert pieces.part_sums(np.array([[1.0, 2, 4, 8]])).tolist() == [[[1, 4, 2, 8]]]


def test_of_two_ways_the_one_with_the_longer_mean_counts() -> None:
    parts = np.array([1.0, 10, 100, 1000])
    mean = np.array([[0.0, 2, 1, 0], [0, 1, 2, 0], [0, 1, 1, 0]])
    assert [along_piece(parts, row).tolist() for row in mean] == [1011, 1101, 1011]


@given(labelled_graphs())
def test_unfused_pieces_have_one_part_and_one_term_each(graph: StepGraph) -> None:
    pieces = Pieces(unfused(graph))
    assert set(pieces.part_of_op.tolist()) == {Part.FORK}
    assert (pieces.kind_count, len(pieces.terms.kind)) == (len(pieces.labels), len(pieces.labels))
    assert pieces.kind_of.tolist() == pieces.label_of.tolist()
    assert set(pieces.terms.repeats.tolist()) == {1}


def test_a_graph_without_ops_has_no_kinds() -> None:
    pieces = Pieces(unfused(StepGraph((), ())))
    assert pieces.kind_count == 0
    assert [len(column) for column in pieces.terms] == [0] * len(Terms._fields)

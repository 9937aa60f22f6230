"""Where the time of played steps went, from when their pieces ended.

The critical path and the time that lanes are held are found piece by piece and then
divided among the work in the pieces (``Pieces.book``).
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hwmodels.estimate import Source
from hwmodels.work import AllReduce
from sim.compiled import compiled
from sim.critical import critical_time
from sim.fusion import diamond_parts
from sim.graph import Component, Index, IntArray, Phase, Ragged, StepGraph
from sim.means import MeanTimes
from sim.pieces import Part, Pieces
from sim.records import StepRecords

Array = NDArray[np.float64]


class Accounts:
    """Books the time of steps made of *pieces*; *sources* has one entry per label."""

    def __init__(self, pieces: Pieces, sources: tuple[Source, ...]) -> None:
        self._pieces = pieces
        self._components = _indices(Component, [label.component for label in pieces.labels])
        self._phases = _indices(Phase, [label.phase for label in pieces.labels])
        self._sources = _indices(Source, sources)
        self._collectives = np.array(
            [i for i, op in enumerate(pieces.graph.ops) if isinstance(op.work, AllReduce)], dtype=np.int64
        )
        self._arrivals = Ragged.of(_arrivals(pieces.graph, self._collectives.tolist()))
        self._holders = _Holders(pieces)

    def records(
        self,
        lengths: IntArray,
        contexts: IntArray,
        mean: MeanTimes,
        durations: IntArray,
        end: IntArray,
        on_file: NDArray[np.bool_] | None = None,
    ) -> StepRecords:
        """The records of steps whose pieces took *durations* and ended at *end* (steps, pieces).

        *on_file* (steps, labels) says what rests on the machine's measured file, where it has one.
        """
        pieces = self._pieces
        on_path = critical_time(pieces.graph, durations, end, pieces.kind_of, pieces.kind_count)
        return StepRecords(
            lengths=lengths,
            contexts=contexts,
            step_ns=end.max(axis=1),
            component_ns=pieces.book(on_path, mean, self._components, len(Component)),
            phase_ns=pieces.book(on_path, mean, self._phases, len(Phase)),
            source_ns=pieces.book(on_path, mean, self._sources, len(Source)),
            file_ns=self._on_measured_file(on_path, mean, on_file),
            busy_ns=self._holders.busy(mean, durations),
            allreduce_wait_ns=_wait(*self._arrivals, end),
            allreduce_transfer_ns=durations[:, self._collectives].sum(axis=1),
        )

    def _on_measured_file(
        self, on_path: IntArray, mean: MeanTimes, on_file: NDArray[np.bool_] | None
    ) -> IntArray:
        """(steps,) critical path that rests on the measured file."""
        booked = np.zeros(len(on_path), dtype=np.int64)
        if on_file is None:
            return booked
        # Attention may enter the file or leave it as it grows: steps that rest alike are booked together.
        patterns, pattern_of = np.unique(on_file, axis=0, return_inverse=True)
        for number, pattern in enumerate(patterns):
            steps = pattern_of.reshape(-1) == number
            means = MeanTimes(*(times[steps] for times in mean))
            booked[steps] = self._pieces.book(on_path[steps], means, pattern.astype(np.int64), 2)[:, 1]
        return booked


class _Holders:
    """Which lanes each piece holds: a plain piece all of its own, a diamond two with its parts."""

    def __init__(self, pieces: Pieces) -> None:
        graph = pieces.graph
        self._diamonds = _Diamonds(pieces)
        divided = set(self._diamonds.pieces.tolist())
        holds = [() if piece in divided else op.lanes for piece, op in enumerate(graph.ops)]
        groups = {held: group for group, held in enumerate(dict.fromkeys(holds))}
        self._group_of = np.array([groups[held] for held in holds], dtype=np.uint64)
        self._lanes_of_group = np.zeros((len(groups), len(graph.lanes)), dtype=np.int64)
        for held, group in groups.items():
            self._lanes_of_group[group, list(held)] = 1

    def busy(self, mean: MeanTimes, durations: IntArray) -> IntArray:
        """(steps, lanes) time each lane was held."""
        held = np.zeros((len(durations), len(self._lanes_of_group)), dtype=np.int64)
        _add_up(self._group_of, durations, held)
        return held @ self._lanes_of_group + self._diamonds.busy(mean, durations)


class _Diamonds:
    """The pieces that are diamonds, and the lanes of their parts."""

    def __init__(self, pieces: Pieces) -> None:
        fusion = pieces.fusion
        lane_of_chain = {
            chain: op.lanes[0] for chain, op in zip(fusion.chain_of.tolist(), fusion.graph.ops, strict=True)
        }
        lanes = [[lane_of_chain[chain] for chain in diamond] for diamond in fusion.diamonds]
        self.pieces = fusion.piece_of[[diamond.fork for diamond in fusion.diamonds]]
        self._kinds = pieces.kind_of[self.pieces]
        self._holds = np.zeros((len(lanes) * len(Part), len(pieces.graph.lanes)), dtype=np.int64)
        self._holds[np.arange(len(self._holds)), np.array(lanes, dtype=np.int64).reshape(-1)] = 1

    def busy(self, mean: MeanTimes, durations: IntArray) -> IntArray:
        """(steps, lanes) time that diamonds held each lane, as ``Pieces.split`` divides them."""
        parts = diamond_parts(durations[:, self.pieces], mean.part_s[:, self._kinds])
        return parts.reshape(len(durations), -1) @ self._holds


def _indices(kinds: type[Enum], labels: Sequence[Enum]) -> IntArray:
    order = list(kinds)
    return np.array([order.index(label) for label in labels], dtype=np.int64)


def _arrivals(graph: StepGraph, collectives: list[int]) -> list[list[int]]:
    """For each collective the piece before it on every lane of a rank, where there is one."""
    of_ranks = {lane for op in graph.ops if op.rank is not None for lane in op.lanes}
    before = {(lane, op): last for lane in of_ranks for last, op in pairwise(graph.queues[lane])}
    return [[before[lane, op] for lane in graph.ops[op].lanes if (lane, op) in before] for op in collectives]


def _wait(first: Index, stop: Index, items: Index, end: IntArray) -> IntArray:
    """How long a rank waits for the last one at AllReduces (steps,), mean over ranks.

    A rank arrives when the piece before the collective on its own lane has ended.
    Waiting for a launch is the host's doing and not counted.
    """
    wait = np.empty(len(end), dtype=np.int64)
    _wait_for_last(first, stop, items, end, wait)
    return wait


@compiled
def _wait_for_last(first: Index, stop: Index, items: Index, end: IntArray, wait: IntArray) -> None:
    for step in range(len(end)):
        ended = end[step]
        total = 0.0
        for collective in range(len(first)):
            last, arrivals, ranks = 0, 0, 0
            for at in range(first[collective], stop[collective]):
                arrival = ended[items[at]]
                last = arrival if arrival > last else last
                arrivals += arrival
                ranks += 1
            if ranks > 0:
                total += (ranks * last - arrivals) / ranks
        wait[step] = np.rint(total)


@compiled
def _add_up(group_of: Index, durations: IntArray, held: IntArray) -> None:
    for step in range(len(durations)):
        took, total = durations[step], held[step]
        for piece in range(len(group_of)):
            total[group_of[piece]] += took[piece]

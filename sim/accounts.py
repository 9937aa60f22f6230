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
    """Which lanes each piece holds, and with which of its parts."""

    def __init__(self, pieces: Pieces) -> None:
        holds = _lanes_held(pieces)
        keys = [(int(kind), held) for kind, held in zip(pieces.kind_of, holds, strict=True)]
        groups = {key: i for i, key in enumerate(dict.fromkeys(keys))}
        self._group_of = np.array([groups[key] for key in keys], dtype=np.uint64)
        terms = [(group, kind, part, lane) for (kind, held), group in groups.items() for lane, part in held]
        self._group, self._kind, self._part, self._lane = (
            np.array(terms, dtype=np.int64).reshape(-1, 4).T.copy()
        )
        self._groups = len(groups)
        self._lanes = len(pieces.graph.lanes)

    def busy(self, mean: MeanTimes, durations: IntArray) -> IntArray:
        """(steps, lanes) time each lane was held."""
        held = np.zeros((len(durations), self._groups), dtype=np.int64)
        _add_up(self._group_of, durations, held)
        busy = np.empty((len(durations), self._lanes), dtype=np.int64)
        _hold(self._group, self._kind, self._part, self._lane, mean.part_s, mean.kind_s, held, busy)
        return busy


def _indices(kinds: type[Enum], labels: Sequence[Enum]) -> IntArray:
    order = list(kinds)
    return np.array([order.index(label) for label in labels], dtype=np.int64)


def _lanes_held(pieces: Pieces) -> list[tuple[tuple[int, Part], ...]]:
    """For each piece the lanes it holds, with the part that holds them."""
    chains = pieces.fusion
    held = [tuple((lane, Part.FORK) for lane in op.lanes) for op in pieces.graph.ops]
    first_op = {chain: op for op, chain in reversed(list(enumerate(chains.chain_of.tolist())))}
    for diamond in chains.diamonds:
        parts = zip(diamond, Part, strict=True)
        held[chains.piece_of[diamond.fork]] = tuple(
            (lane, part) for chain, part in parts for lane in chains.graph.ops[first_op[chain]].lanes
        )
    return held


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


@compiled
def _hold(
    group: IntArray,
    kind: IntArray,
    part: IntArray,
    lane: IntArray,
    part_s: Array,
    kind_s: Array,
    held: IntArray,
    busy: IntArray,
) -> None:
    for step in range(len(held)):
        total = np.zeros(busy.shape[1])
        for term in range(len(group)):
            mean = kind_s[step, kind[term]]
            if mean > 0:
                total[lane[term]] += held[step, group[term]] * (part_s[step, kind[term], part[term]] / mean)
        for at in range(len(total)):
            busy[step, at] = np.rint(total[at])

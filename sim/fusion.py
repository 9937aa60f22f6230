"""Play a graph as fewer pieces, to the same nanosecond.

Two contractions, each exact by construction and tested against the graph left alone:

* a **chain** of ops on one lane that nobody else waits for takes the time of its parts
  one after another;
* a **diamond** - a chain that forks a second lane, both going on, and a chain that joins
  them - takes ``fork + max(main, side) + join``, provided that the side lane does nothing
  but such detours from one and the same main lane.

``Fusion.expand`` gives back when every op ended.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.compiled import compiled
from sim.graph import IntArray, Op, StepGraph

Array = NDArray[np.float64]


class Diamond(NamedTuple):
    """Four chains: *fork*, then *main* beside *side*, then *join* (indices of chains)."""

    fork: int
    main: int
    side: int
    join: int


@dataclass(frozen=True, eq=False)
class Fusion:
    """*graph* as *pieces*, by way of chains."""

    graph: StepGraph
    pieces: StepGraph
    chain_of: IntArray
    """For each op of *graph* its chain."""
    piece_of: IntArray
    """For each chain the piece that plays it."""
    diamonds: tuple[Diamond, ...]

    def durations(self, op_durations: IntArray) -> IntArray:
        """Durations (steps, pieces) from those of the ops (steps, ops)."""
        if not len(self.piece_of):
            return op_durations
        chains = np.add.reduceat(op_durations[:, self._order], self._first, axis=1)
        pieces = np.empty((len(op_durations), len(self.pieces.ops)), dtype=np.int64)
        pieces[:, self.piece_of] = chains
        if self.diamonds:
            fork, main, side, join = self._diamond_columns
            whole = chains[:, fork] + np.maximum(chains[:, main], chains[:, side]) + chains[:, join]
            pieces[:, self.piece_of[fork]] = whole
        return pieces

    def expand(self, piece_end: IntArray, op_durations: IntArray) -> IntArray:
        """When every op ended (steps, ops), from when the pieces did (steps, pieces)."""
        if not len(self.piece_of):
            return op_durations
        ordered = op_durations[:, self._order]
        total = np.cumsum(ordered, axis=1)
        before = np.take(total - ordered, self._first, axis=1)
        chains = np.add.reduceat(ordered, self._first, axis=1)
        start = piece_end[:, self.piece_of] - chains
        if self.diamonds:
            fork, main, side, join = self._diamond_columns
            joined = piece_end[:, self.piece_of[join]] - chains[:, join]
            both = joined - np.maximum(chains[:, main], chains[:, side])
            start[:, main], start[:, side] = both, both
            start[:, fork] = both - chains[:, fork]
        end = np.empty_like(op_durations)
        end[:, self._order] = total + np.take(start - before, self.chain_of[self._order], axis=1)
        return end

    def split(self, piece_durations: IntArray, chain_seconds: Array, op_seconds: Array) -> IntArray:
        """Durations of the ops (steps, ops) that add up to those of their pieces (steps, pieces).

        All ops of a piece share its luck: the piece is stretched over the mean times of its chains,
        *chain_seconds* (steps, chains), and each chain over those of its ops, *op_seconds* (steps,
        ops). Boundaries are rounded, not durations.
        """
        durations = np.empty(op_seconds.shape, dtype=np.int64)
        _split(self.chain_of, op_seconds, self._chains(piece_durations, chain_seconds), durations)
        return durations

    def _chains(self, piece_durations: IntArray, chain_seconds: Array) -> IntArray:
        """Durations of the chains (steps, chains) that add up to those of their pieces."""
        durations = piece_durations[:, self.piece_of]
        if self.diamonds:
            whole_ns = durations[:, self._diamond_columns[0]]
            parts_s = np.moveaxis(chain_seconds[:, self._diamond_columns], 1, -1)
            durations[:, self._diamond_columns] = np.moveaxis(diamond_parts(whole_ns, parts_s), -1, 1)
        return durations

    @cached_property
    def _order(self) -> IntArray:
        """Ops sorted by chain; program order inside a chain is kept."""
        return np.argsort(self.chain_of, kind="stable").astype(np.int64)

    @cached_property
    def _first(self) -> IntArray:
        """Position in ``_order`` of the first op of each chain."""
        chains = np.arange(len(self.piece_of))
        return np.searchsorted(self.chain_of[self._order], chains).astype(np.int64)

    @cached_property
    def _diamond_columns(self) -> IntArray:
        return np.array(self.diamonds, dtype=np.int64).T


def diamond_parts(whole_ns: IntArray, parts_s: Array) -> IntArray:
    """(..., 4) ns of fork, main, side and join of diamonds that take *whole_ns* (...).

    In proportion to their mean seconds *parts_s* (..., 4), with every boundary rounded once;
    the longer of the two ways ends where the join begins.
    """
    fork_s, main_s, side_s, join_s = np.moveaxis(parts_s, -1, 0)
    total_s = fork_s + np.maximum(main_s, side_s) + join_s
    per_second = np.divide(whole_ns, total_s, out=np.zeros_like(total_s), where=total_s > 0)
    forked, main_end, side_end = (
        np.rint(until_s * per_second).astype(np.int64)
        for until_s in (fork_s, fork_s + main_s, fork_s + side_s)
    )
    joins = np.where(total_s > 0, whole_ns, 0) - np.maximum(main_end, side_end)
    return np.stack([forked, main_end - forked, side_end - forked, joins], axis=-1)


@compiled
def _split(chain_of: IntArray, op_seconds: Array, chain_durations: IntArray, durations: IntArray) -> None:
    for step in range(durations.shape[0]):
        whole = np.zeros(chain_durations.shape[1])
        for op in range(len(chain_of)):
            whole[chain_of[op]] += op_seconds[step, op]
        reached = np.zeros(chain_durations.shape[1])
        for op in range(len(chain_of)):
            chain = chain_of[op]
            total, stretched = whole[chain], chain_durations[step, chain]
            if total > 0:
                before = np.rint(reached[chain] / total * stretched)
                reached[chain] += op_seconds[step, op]
                durations[step, op] = np.rint(reached[chain] / total * stretched) - before
            else:
                durations[step, op] = 0


def fuse(graph: StepGraph) -> Fusion:
    """The Fusion of *graph* into chains and diamonds."""
    chain_of = _chains(graph)
    chains = _contract(graph, chain_of)
    diamonds = _diamonds(chains)
    inside = {chain: d.fork for d in diamonds for chain in (d.main, d.side, d.join)}
    kept = [chain for chain in range(len(chains.ops)) if chain not in inside]
    number = {chain: piece for piece, chain in enumerate(kept)}
    piece_of = [number[inside.get(chain, chain)] for chain in range(len(chains.ops))]
    return Fusion(
        graph,
        _contract(chains, piece_of),
        np.array(chain_of, dtype=np.int64),
        np.array(piece_of, dtype=np.int64),
        tuple(diamonds),
    )


def unfused(graph: StepGraph) -> Fusion:
    """The trivial Fusion: every op is its own piece."""
    own = np.arange(len(graph.ops), dtype=np.int64)
    return Fusion(graph, graph, own, own, ())


def _contract(graph: StepGraph, part_of: list[int]) -> StepGraph:
    """The graph whose ops are the parts: first op's lanes, and the first op's dependencies."""
    ops: list[Op] = []
    for op, part in zip(graph.ops, part_of, strict=True):
        if part == len(ops):
            after = tuple(dict.fromkeys(part_of[dep] for dep in op.after))
            ops.append(op._replace(after=after))
    return StepGraph(graph.lanes, tuple(ops))


def _chains(graph: StepGraph) -> list[int]:
    """For each op the number of its chain, numbered by first op."""
    elsewhere = _waiters_elsewhere(graph)
    chain_of: list[int] = []
    count = 0
    last_on: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        previous = last_on.get(op.lanes[0], -1) if len(op.lanes) == 1 else -1
        if previous >= 0 and previous not in elsewhere and _only_follows(graph, op, previous):
            chain_of.append(chain_of[previous])
        else:
            chain_of.append(count)
            count += 1
        last_on.update(dict.fromkeys(op.lanes, index))
    return chain_of


def _only_follows(graph: StepGraph, op: Op, previous: int) -> bool:
    """True where nothing but *previous*, on the same single lane, can hold *op* up."""
    same_lane = graph.ops[previous].lanes == op.lanes
    return same_lane and all(op.lanes[0] in graph.ops[dep].lanes for dep in op.after)


def _waiters_elsewhere(graph: StepGraph) -> dict[int, list[int]]:
    """For each op the ops that depend on it without following it on a lane."""
    waiters: dict[int, list[int]] = defaultdict(list)
    for index, op in enumerate(graph.ops):
        for dep in op.after:
            if not set(op.lanes) <= set(graph.ops[dep].lanes):
                waiters[dep].append(index)
    return waiters


def _diamonds(chains: StepGraph) -> list[Diamond]:
    """The diamonds of a graph of chains; none where a side lane has any other business."""
    waiters = _waiters_elsewhere(chains)
    position = {op: i for queue in chains.queues for i, op in enumerate(queue)}
    found = []
    for side, op in enumerate(chains.ops):
        diamond = _diamond_around(chains, side, op, waiters, position)
        if diamond is not None:
            found.append(diamond)
    return _on_private_lanes(chains, found)


def _diamond_around(
    chains: StepGraph,
    side: int,
    op: Op,
    waiters: dict[int, list[int]],
    position: dict[int, int],
) -> Diamond | None:
    """The diamond whose detour is *side*, if it is one."""
    if len(op.lanes) != 1 or len(op.after) != 1 or len(waiters[side]) != 1:
        return None
    fork, join = op.after[0], waiters[side][0]
    lanes = chains.ops[fork].lanes
    if len(lanes) != 1 or chains.ops[join].lanes != lanes or waiters[fork] != [side]:
        return None
    queue = chains.queues[lanes[0]]
    if position[join] != position[fork] + 2:
        return None
    main = queue[position[fork] + 1]
    others = [dep for dep in chains.ops[join].after if dep != side]
    if (
        waiters[main]
        or chains.ops[main].lanes != lanes
        or not all(lanes[0] in chains.ops[dep].lanes for dep in (*others, *chains.ops[main].after))
    ):
        return None
    return Diamond(fork, main, side, join)


def _on_private_lanes(chains: StepGraph, found: list[Diamond]) -> list[Diamond]:
    """Keep diamonds whose side lane runs nothing but detours of one main lane.

    Of two that share a chain (one's join is the next one's fork) the first is kept.
    """
    main_of: dict[int, set[int]] = defaultdict(set)
    detours: dict[int, int] = defaultdict(int)
    for diamond in found:
        side_lane = chains.ops[diamond.side].lanes[0]
        main_of[side_lane].add(chains.ops[diamond.fork].lanes[0])
        detours[side_lane] += 1
    private = {
        lane
        for lane, mains in main_of.items()
        if len(mains) == 1 and detours[lane] == len(chains.queues[lane])
    }
    kept: list[Diamond] = []
    used: set[int] = set()
    for diamond in found:
        if chains.ops[diamond.side].lanes[0] in private and used.isdisjoint(diamond):
            kept.append(diamond)
            used.update(diamond)
    return kept

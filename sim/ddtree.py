"""Draft trees: DDTree, of the most probable prefixes; EAGLE's, the best of a beam; the chain.

A block drafter gives one distribution per position, all at once. The probability of a
prefix is the product of its tokens' marginals. Best-first search returns exactly the
``budget`` most probable prefixes, and with a prefix all its beginnings.

A sequential drafter cannot expand best-first: every depth is a pass. EAGLE-2 passes on the
``top_k`` most probable prefixes of each depth, and of all candidates keeps the ``budget``
most probable.

Sources: Ringel and Romano, arXiv 2604.12989, Algorithm 1 and propositions 1-3;
github.com/liranringel/ddtree; EAGLE-2, arXiv 2406.16858, section 4.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.choices import Shape

BoolArray = NDArray[np.bool_]

ROOT = 0
"""The token that the last step committed; it is not part of the budget."""


class TreeSpec(NamedTuple):
    """What is drafted in a step: *block* - 1 positions, *budget* nodes at most."""

    block: int
    budget: int
    shape: Shape = Shape.DDTREE
    top_k: int = 1
    """Of an EAGLE tree: prefixes kept at every depth, and choices given to each."""

    def __str__(self) -> str:
        match self.shape:
            case Shape.DDTREE:
                what = f"budget {self.budget}"
            case Shape.CHAIN:
                what = f"a chain of {self.nodes}"
            case Shape.EAGLE:
                what = f"an EAGLE tree of {self.nodes}, top {self.top_k}"
        return f"block {self.block}, {what}"

    @property
    def positions(self) -> int:
        """Drafted positions."""
        return self.block - 1

    @property
    def cap(self) -> int:
        """The most tokens that a step can commit, the target's own included."""
        return min(self.block, self.budget + 1)

    @property
    def nodes(self) -> int:
        """Drafted tokens that a verify pass has."""
        match self.shape:
            case Shape.DDTREE:
                return self.budget
            case Shape.CHAIN:
                return min(self.budget, self.positions)
            case Shape.EAGLE:
                return min(self.budget, self.top_k + (self.positions - 1) * self.top_k**2)


class Node(NamedTuple):
    """One drafted token."""

    parent: int
    """``ROOT``, or the number of a node; nodes are numbered from 1."""
    depth: int
    """Position in the block, from 0."""
    rank: int
    """0 is the drafter's first choice for this position."""
    probability: float
    """Of the whole prefix, by the drafter's marginals."""


@dataclass(frozen=True)
class DraftTree:
    """*nodes* in the order they were found: most probable first, parents before children."""

    nodes: tuple[Node, ...]
    heap_operations: int
    """Pushes and pops that it took."""

    @property
    def depth(self) -> int:
        """Tokens on the longest path."""
        return max((node.depth + 1 for node in self.nodes), default=0)


def build(marginals: Sequence[Sequence[float]], budget: int) -> DraftTree:
    """The *budget* most probable prefixes under *marginals* (depths, ranks), falling along ranks.

    Fewer where no more have any probability. Of equally probable prefixes the one pushed
    first counts. At most two pushes and one pop per node: O(budget log budget).
    """
    nodes: list[Node] = []
    heap: list[tuple[float, int, int, int, int, float]] = []
    pushes = 0

    def push(parent: int, depth: int, rank: int, above: float) -> None:
        nonlocal pushes
        probability = above * marginals[depth][rank]
        if probability > 0:
            heapq.heappush(heap, (-probability, pushes, parent, depth, rank, above))
            pushes += 1

    if len(marginals) and len(marginals[0]):
        push(ROOT, 0, 0, 1.0)
    while heap and len(nodes) < budget:
        cost, _, parent, depth, rank, above = heapq.heappop(heap)
        nodes.append(Node(parent, depth, rank, -cost))
        if rank + 1 < len(marginals[depth]):
            push(parent, depth, rank + 1, above)
        if depth + 1 < len(marginals):
            push(len(nodes), depth + 1, 0, -cost)
    return DraftTree(tuple(nodes), pushes + len(nodes))


def chain(marginals: Sequence[Sequence[float]], budget: int) -> DraftTree:
    """The first choices of the first *budget* positions, one after another; no heap is needed."""
    nodes: list[Node] = []
    probability = 1.0
    for depth, row in enumerate(marginals[:budget]):
        probability *= row[0]
        nodes.append(Node(depth, depth, 0, probability))
    return DraftTree(tuple(nodes), 0)


def beam(marginals: Sequence[Sequence[float]], budget: int, top_k: int) -> DraftTree:
    """EAGLE's tree: of the candidates of a beam the *budget* most probable, parents before children.

    *marginals* are (depths, ranks), falling along ranks. The *top_k* most probable candidates
    of a depth are given *top_k* choices each at the next. Of equally probable ones the
    first found counts.
    """
    found: list[tuple[float, int, int, int]] = []
    kept = [(1.0, ROOT)]
    for depth, row in enumerate(marginals):
        first = len(found) + 1
        found += [
            (above * chance, parent, depth, rank)
            for above, parent in kept
            for rank, chance in enumerate(row[:top_k])
        ]
        layer = [(candidate[0], number) for number, candidate in enumerate(found[first - 1 :], first)]
        kept = sorted(layer, key=lambda scored: -scored[0])[:top_k]
    return _best(found, budget)


def _best(found: Sequence[tuple[float, int, int, int]], budget: int) -> DraftTree:
    """The *budget* most probable of the candidates *found* (probability, parent, depth, rank), renumbered."""
    order = sorted(range(len(found)), key=lambda index: -found[index][0])[:budget]
    number = {ROOT: ROOT} | {index + 1: place for place, index in enumerate(order, 1)}
    nodes = (found[index] for index in order)
    return DraftTree(tuple(Node(number[parent], depth, rank, p) for p, parent, depth, rank in nodes), 0)


def most_operations(budget: int) -> int:
    """The most heap operations that a tree of *budget* nodes can take: a push, then three for each node."""
    return 1 + 3 * budget


def on_spine(tree: DraftTree) -> tuple[bool, ...]:
    """Whether each node is on the path of first choices: it and all its ancestors have rank 0."""
    found = [True]
    for node in tree.nodes:
        found.append(found[node.parent] and node.rank == 0)
    return tuple(found[1:])


def ancestor_mask(tree: DraftTree) -> BoolArray:
    """(budget + 1, budget + 1) what each token may attend to: itself, its ancestors, the root."""
    mask = np.zeros((len(tree.nodes) + 1, len(tree.nodes) + 1), dtype=bool)
    mask[ROOT, ROOT] = True
    for number, node in enumerate(tree.nodes, 1):
        mask[number] = mask[node.parent]
        mask[number, number] = True
    return mask


def walk(tree: DraftTree, tokens: Sequence[int], target: Callable[[tuple[int, ...]], int]) -> list[int]:
    """The tokens that one verify pass commits: those the target agrees with, and its next one.

    *tokens* has the token of each node; *target* gives the target's token after a prefix
    (of drafted tokens). One token at least, ``tree.depth + 1`` at most.
    """
    children: dict[tuple[int, int], int] = {}
    for number, node in enumerate(tree.nodes, 1):
        # Of two siblings with the same token either may be followed: the prefix is the same.
        children.setdefault((node.parent, tokens[number - 1]), number)
    at = ROOT
    committed: list[int] = []
    while True:
        committed.append(target(tuple(committed)))
        found = children.get((at, committed[-1]))
        if found is None:
            return committed
        at = found

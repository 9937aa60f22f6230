"""What the pieces of a fused step graph are made of.

Pieces of the same *kind* are made of the same work: eight ranks times sixty layers of
experts are one kind. Mean times, noise and attribution are worked out once per kind;
only luck is drawn per piece. A piece has four parts, of which a plain chain has the
first alone: it takes ``fork + max(main, side) + join`` (see ``sim.fusion``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.work import Work
from sim.compiled import compiled
from sim.fusion import Fusion
from sim.graph import Component, Index, IntArray, Phase

Array = NDArray[np.float64]


class Part(IntEnum):
    """A part of a piece."""

    FORK = 0
    MAIN = 1
    SIDE = 2
    JOIN = 3


class Label(NamedTuple):
    """What time spent in an op is booked under."""

    phase: Phase
    component: Component
    work: Work


class Terms(NamedTuple):
    """A sum over work: *times* times *label* in *part* of *kind*, one entry each, sorted by kind."""

    kind: IntArray
    part: IntArray
    label: IntArray
    times: IntArray


class Pieces:
    """The makeup of every piece of *fusion*."""

    def __init__(self, fusion: Fusion) -> None:
        self.fusion = fusion
        self.graph = fusion.pieces
        labels = [Label(op.phase, op.component, op.work) for op in fusion.graph.ops]
        index = {label: i for i, label in enumerate(dict.fromkeys(labels))}
        self.labels = tuple(index)
        self.label_of = np.array([index[label] for label in labels], dtype=np.int64)
        makeup = self._makeup()
        kinds = {terms: i for i, terms in enumerate(dict.fromkeys(makeup))}
        self.kinds = len(kinds)
        self.kind_of: Index = np.array([kinds[terms] for terms in makeup], dtype=np.uint64)
        """For each piece its kind."""
        rows = [(kind, *term) for terms, kind in kinds.items() for term in terms]
        self.terms = Terms(*np.array(rows, dtype=np.int64).reshape(-1, 4).T.copy())

    def _makeup(self) -> list[tuple[tuple[int, int, int], ...]]:
        """For each piece how often each label occurs in each part: (part, label, count), sorted."""
        counts: list[dict[tuple[int, int], int]] = [{} for _ in self.graph.ops]
        pieces, parts = self.piece_of_op.tolist(), self.part_of_op.tolist()
        for piece, part, label in zip(pieces, parts, self.label_of.tolist(), strict=True):
            counts[piece][part, label] = counts[piece].get((part, label), 0) + 1
        return [tuple((*key, count) for key, count in sorted(found.items())) for found in counts]

    @property
    def piece_of_op(self) -> IntArray:
        """For each op of the whole graph the piece that plays it."""
        return self.fusion.piece_of[self.fusion.chain_of]

    @property
    def part_of_op(self) -> IntArray:
        """For each op of the whole graph its part of the piece."""
        part = np.full(len(self.fusion.piece_of), Part.FORK, dtype=np.int64)
        for diamond in self.fusion.diamonds:
            part[[*diamond]] = [Part.FORK, Part.MAIN, Part.SIDE, Part.JOIN]
        return part[self.fusion.chain_of]

    def part_times(self, label_times: Array) -> Array:
        """(steps, kinds, parts) sums of *label_times* (steps, labels)."""
        times = np.zeros((len(label_times), self.kinds, len(Part)))
        _sum_parts(*self.terms, label_times, times)
        return times


def whole(parts: Array, mean_parts: Array) -> Array:
    """*parts* (..., parts) added up along a piece; of two ways the one with the longer mean counts."""
    main_counts = mean_parts[..., Part.MAIN] >= mean_parts[..., Part.SIDE]
    way = np.where(main_counts, parts[..., Part.MAIN], parts[..., Part.SIDE])
    return np.asarray(parts[..., Part.FORK] + way + parts[..., Part.JOIN])


@compiled
def _sum_parts(
    kind: IntArray, part: IntArray, label: IntArray, count: IntArray, label_times: Array, times: Array
) -> None:
    for step in range(times.shape[0]):
        for term in range(kind.shape[0]):
            times[step, kind[term], part[term]] += count[term] * label_times[step, label[term]]

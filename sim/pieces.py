"""What the pieces of a fused step graph are made of.

Pieces of the same *kind* are made of the same work: eight ranks times sixty layers of
experts are one kind. Mean times, noise and attribution are worked out once per kind;
only luck is drawn per piece. A piece has four parts, of which a plain chain has the
first alone: it takes ``fork + max(main, side) + join`` (see ``sim.fusion``).
"""

from __future__ import annotations

from enum import IntEnum
from functools import cached_property
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
    """A sum over work: *repeats* times *label* in *part* of *kind*, one entry each, sorted by kind."""

    kind: IntArray
    part: IntArray
    label: IntArray
    repeats: IntArray


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
        self.kind_count = len(kinds)
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
        return self._part_of_chain[self.fusion.chain_of]

    def split(self, durations: IntArray, mean: tuple[Array, Array, Array]) -> IntArray:
        """Durations of the ops (steps, ops) that add up to those of the pieces (steps, pieces).

        *mean* are the seconds of labels, parts and kinds (``sim.means.MeanTimes``): ops share the
        luck of their piece.
        """
        label_s, part_s, _ = mean
        chain_s = part_s[:, self._kind_of_chain, self._part_of_chain]
        return self.fusion.split(durations, chain_s, label_s[:, self.label_of])

    @cached_property
    def _kind_of_chain(self) -> Index:
        return self.kind_of[self.fusion.piece_of]

    @cached_property
    def _part_of_chain(self) -> IntArray:
        part = np.full(len(self.fusion.piece_of), Part.FORK, dtype=np.int64)
        for diamond in self.fusion.diamonds:
            part[[*diamond]] = [Part.FORK, Part.MAIN, Part.SIDE, Part.JOIN]
        return part

    def part_sums(self, label_values: Array) -> Array:
        """(rows, kinds, parts) sums of *label_values* (rows, labels), such as seconds or variances."""
        sums = np.zeros((len(label_values), self.kind_count, len(Part)))
        _sum_parts(*self.terms, label_values, sums)
        return sums

    def book(
        self, kind_ns: IntArray, mean: tuple[Array, Array, Array], group_of: IntArray, groups: int
    ) -> IntArray:
        """(steps, groups) ns: *kind_ns* (steps, kinds) divided among the work of each kind.

        *mean* are the seconds of labels, parts and kinds (``sim.means.MeanTimes``), *group_of*
        has a group for each label. Divided as the mean times are, and rounded so that nothing
        is lost: the groups of a step add up to its kinds.
        """
        booked = np.empty((len(kind_ns), groups), dtype=np.int64)
        _book(*self.terms, *mean, kind_ns, group_of, booked)
        return booked


def along_piece(parts: Array, mean_parts: Array) -> Array:
    """*parts* (..., parts) added up along a piece; of two ways the one with the longer mean counts."""
    main_counts = mean_parts[..., Part.MAIN] >= mean_parts[..., Part.SIDE]
    way = np.where(main_counts, parts[..., Part.MAIN], parts[..., Part.SIDE])
    return np.asarray(parts[..., Part.FORK] + way + parts[..., Part.JOIN])


@compiled
def _sum_parts(
    kind: IntArray, part: IntArray, label: IntArray, repeats: IntArray, values: Array, sums: Array
) -> None:
    for row in range(sums.shape[0]):
        for term in range(kind.shape[0]):
            sums[row, kind[term], part[term]] += repeats[term] * values[row, label[term]]


# Plain numbers: compiled code knows no enums.
_MAIN, _SIDE = int(Part.MAIN), int(Part.SIDE)


@compiled
def _book(
    kind: IntArray,
    part: IntArray,
    label: IntArray,
    repeats: IntArray,
    label_s: Array,
    part_s: Array,
    kind_s: Array,
    kind_ns: IntArray,
    group_of: IntArray,
    booked: IntArray,
) -> None:
    for step in range(len(kind_ns)):
        amount = np.zeros(booked.shape[1])
        for term in range(len(kind)):
            at = kind[term]
            main_counts = part_s[step, at, _MAIN] >= part_s[step, at, _SIDE]
            beside = (part[term] == _SIDE and main_counts) or (part[term] == _MAIN and not main_counts)
            if kind_ns[step, at] > 0 and not beside:
                share = repeats[term] * label_s[step, label[term]] / kind_s[step, at]
                amount[group_of[label[term]]] += kind_ns[step, at] * share
        total, before = 0.0, 0
        for group in range(len(amount)):
            total += amount[group]
            up_to = int(np.rint(total))
            booked[step, group] = up_to - before
            before = up_to

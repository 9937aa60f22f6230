"""Ops whose durations are drawn from the samples of a measured file.

Every execution of such an op - per step, rank and layer - takes a uniform variate of its own
from a random stream of its own, so that all other draws stay what they were without the
file. Expert layers share theirs over the ranks: what their samples differ by is mostly which
experts the tokens went to, and that is the same on every rank of tensor parallelism. Rank
factors, drift and stalls come on top, as for any other work. Attention may leave the measured
contexts while it grows; from there on it takes the noise of its stretch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.quantiles import LEVELS, Blend, Quantiles
from hwmodels.work import GroupedExperts, MlaAttention
from sim.compiled import compiled
from sim.draws import RandomStream, generator
from sim.graph import IntArray
from sim.means import MeanTimes
from sim.pieces import Part, Pieces, along_piece
from sim.setup import Setup

Array = NDArray[np.float64]

CORNERS = 4
"""Measured points that lie around a work at most: two by two."""


class Corners(NamedTuple):
    """What labels draw from: rows of a table of quantile functions, and their weights; 0 where not drawn."""

    row: IntArray
    """(..., labels, CORNERS)"""
    weight: Array
    """(..., labels, CORNERS)"""


class Drawn(NamedTuple):
    """A chunk of steps with its draws made."""

    rest_s: Array
    """(steps, kinds) mean seconds of what is not drawn from samples."""
    piece_s: Array
    """(steps, pieces) seconds of what is."""


class Sampled:
    """Which labels of *pieces* draw from the samples that *setup*'s machine has."""

    def __init__(self, setup: Setup, pieces: Pieces) -> None:
        self._costs = setup.costs
        self._pieces = pieces
        self._rows: dict[Quantiles, int] = {}
        self._table = np.empty((0, LEVELS))
        start = setup.scenario.load.context_tokens
        blends = [self._costs.estimate(label.work).blend for label in pieces.labels]
        self._start = self._corners(blends)
        self._known: dict[int, Corners] = {start: self._start}
        works = [label.work for label in pieces.labels]
        self._grow = [i for i, work in enumerate(works) if isinstance(work, MlaAttention)]
        self.drawn: NDArray[np.bool_] = np.asarray(self._start.weight.any(axis=1))
        """(labels,) True where the context at the start is drawn from samples."""
        may_draw = self.drawn.copy()
        may_draw[self._grow] = True
        self._terms = _terms(pieces, may_draw)

    @property
    def values_per_step(self) -> int:
        """Uniform variates that one step consumes."""
        return int((self._terms.first + self._terms.repeats).max(initial=0))

    def corners(self, contexts: IntArray) -> Corners:
        """What every label draws from at each of *contexts* (steps,)."""
        found = [self._at(context) for context in contexts.tolist()]
        return Corners(np.stack([each.row for each in found]), np.stack([each.weight for each in found]))

    def on_file(self, contexts: IntArray) -> NDArray[np.bool_]:
        """(steps, labels) whether each label is drawn from samples at each of *contexts* (steps,)."""
        return np.asarray(self.corners(contexts).weight.any(axis=2))

    def draw(
        self, luck: np.random.Generator, mean: MeanTimes, contexts: IntArray, factors: Array | None = None
    ) -> Drawn:
        """Draw for steps at *contexts* whose mean times are *mean*; *luck* is that of the run.

        What samples say is taken *factors* (labels,) times.
        """
        corners = self.corners(contexts)
        is_drawn = corners.weight.any(axis=2)
        if factors is not None:
            corners = corners._replace(weight=corners.weight * factors[:, None])
        rest = self._pieces.part_sums(np.where(is_drawn, 0.0, mean.label_s))
        uniforms = luck.random((len(contexts), self.values_per_step))
        piece_s = np.zeros((len(contexts), len(self._pieces.graph.ops)))
        _draw(*self._terms, mean.part_s, *corners, self._table, uniforms, piece_s)
        return Drawn(along_piece(rest, mean.part_s), piece_s)

    def _at(self, context: int) -> Corners:
        if context not in self._known:
            blends: list[Blend | None] = [None] * len(self._pieces.labels)
            for label in self._grow:
                work = self._pieces.labels[label].work
                assert isinstance(work, MlaAttention)
                blends[label] = self._costs.estimate(work.at_context(context)).blend
            grown = self._corners(blends)
            row, weight = self._start.row.copy(), self._start.weight.copy()
            row[self._grow], weight[self._grow] = grown.row[self._grow], grown.weight[self._grow]
            self._known[context] = Corners(row, weight)
        return self._known[context]

    def _corners(self, blends: list[Blend | None]) -> Corners:
        row = np.zeros((len(blends), CORNERS), dtype=np.int64)
        weight = np.zeros((len(blends), CORNERS))
        for label, blend in enumerate(blends):
            if blend is not None:
                count = len(blend.parts)
                row[label, :count] = [self._row_of(part) for part in blend.parts]
                weight[label, :count] = blend.weights
        return Corners(row, weight)

    def _row_of(self, part: Quantiles) -> int:
        """The row of *part* in the table, which it enters where it is new."""
        if part not in self._rows:
            self._rows[part] = len(self._rows)
            self._table = np.vstack([self._table, part.seconds])
        return self._rows[part]


class _Terms(NamedTuple):
    """Sampled work piece by piece: *repeats* times *label* in *part* of *piece*, which is of *kind*.

    Its variates begin with number *first* of a step's.
    """

    piece: IntArray
    kind: IntArray
    part: IntArray
    label: IntArray
    repeats: IntArray
    first: IntArray


def _terms(pieces: Pieces, may_draw: NDArray[np.bool_]) -> _Terms:
    of_kind: dict[int, list[tuple[int, int, int]]] = {}
    for kind, part, label, repeats in zip(*(column.tolist() for column in pieces.terms), strict=True):
        if may_draw[label]:
            of_kind.setdefault(kind, []).append((part, label, repeats))
    kinds = enumerate(pieces.kind_of.tolist())
    rows = [(piece, kind, *term) for piece, kind in kinds for term in of_kind.get(kind, [])]
    terms = [(*row, first) for row, first in zip(rows, _first_variates(pieces, rows), strict=True)]
    return _Terms(*np.array(terms, dtype=np.int64).reshape(-1, 6).T.copy())


def _first_variates(pieces: Pieces, rows: Sequence[tuple[int, ...]]) -> list[int]:
    """Where the variates of each of *rows* begin: the n-th expert layer has the same on every rank."""
    taken, found = 0, []
    layers: dict[int | None, int] = {}
    shared: dict[int, int] = {}
    for piece, _, _, label, repeats in rows:
        if isinstance(pieces.labels[label].work, GroupedExperts):
            rank = pieces.graph.ops[piece].rank
            layer = layers[rank] = layers.get(rank, -1) + 1
            known = layer in shared
            first = shared.setdefault(layer, taken)
        else:
            known, first = False, taken
        taken += 0 if known else repeats
        found.append(first)
    return found


def luck_of_run(seed: int, run: int) -> np.random.Generator:
    """The random stream that samples of *run* are drawn with."""
    return generator(seed, run, RandomStream.SAMPLES)


# Plain numbers: compiled code knows no enums.
_MAIN, _SIDE = int(Part.MAIN), int(Part.SIDE)


@compiled
def _draw(
    piece: IntArray,
    kind: IntArray,
    part: IntArray,
    label: IntArray,
    repeats: IntArray,
    first: IntArray,
    part_s: Array,
    row: IntArray,
    weight: Array,
    table: Array,
    uniforms: Array,
    piece_s: Array,
) -> None:
    for step in range(len(uniforms)):
        for term in range(len(piece)):
            at = first[term]
            main_counts = part_s[step, kind[term], _MAIN] >= part_s[step, kind[term], _SIDE]
            beside = (part[term] == _SIDE and main_counts) or (part[term] == _MAIN and not main_counts)
            for _ in range(repeats[term]):
                level = int(uniforms[step, at] * LEVELS)
                at += 1
                if not beside:
                    for corner in range(CORNERS):
                        share = weight[step, label[term], corner]
                        if share > 0.0:
                            source = row[step, label[term], corner]
                            piece_s[step, piece[term]] += share * table[source, level]

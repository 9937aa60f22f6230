"""What everything takes on average, before luck: by label of work, by part, by kind of piece."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.estimate import Source
from hwmodels.work import ContextWork, Prefill
from sim.errors import SimulationError
from sim.graph import IntArray
from sim.pieces import Pieces, along_piece
from sim.setup import Setup

Array = NDArray[np.float64]


class MeanTimes(NamedTuple):
    """Mean seconds at each step's context."""

    label_s: Array
    """(steps, labels)"""
    part_s: Array
    """(steps, kinds, parts)"""
    kind_s: Array
    """(steps, kinds)"""


def mean_times(pieces: Pieces, label_s: Array) -> MeanTimes:
    """The MeanTimes of *pieces* whose labels take *label_s* (steps, labels)."""
    part_s = pieces.part_sums(label_s)
    return MeanTimes(label_s, part_s, along_piece(part_s, part_s))


class BaseTimes:
    """Mean duration of every label of *pieces*, as a function of context."""

    def __init__(self, setup: Setup, pieces: Pieces) -> None:
        self._costs = setup.costs
        self._labels = pieces.labels
        works = [label.work for label in pieces.labels]
        self._grow = [i for i, work in enumerate(works) if isinstance(work, ContextWork)]
        self._prefills = [i for i, work in enumerate(works) if isinstance(work, Prefill)]
        fixed = [0.0 if i in self._grow else setup.costs.estimate(w).seconds for i, w in enumerate(works)]
        self._fixed = np.array(fixed)
        # Runs of a scenario meet the same contexts again and again.
        self._first = setup.scenario.load.context_tokens
        self._known = np.full((1, len(self._grow)), np.nan)

    def seconds(self, contexts: IntArray, joined: Array | None = None) -> Array:
        """(steps, labels) seconds, attention taken at each step's context.

        *joined* (steps,) requests are prefilled in each step; one where it is left out.
        """
        times = np.tile(self._fixed, (len(contexts), 1))
        times[:, self._grow] = self._attention(contexts)
        if joined is not None:
            times[:, self._prefills] *= joined[:, None]
        return times

    def _attention(self, contexts: IntArray) -> Array:
        rows = contexts - self._first
        if rows.min() < 0:
            raise SimulationError(f"a context of {contexts.min()} lies before the start, {self._first}")
        missing = 1 + int(rows.max()) - len(self._known)
        if missing > 0:
            grown = np.full((missing + len(self._known), len(self._grow)), np.nan)
            self._known = np.concatenate([self._known, grown])
        for row in rows[np.isnan(self._known[rows]).any(axis=1)].tolist():
            works = [self._labels[label].work for label in self._grow]
            self._known[row] = [
                self._costs.estimate(work.at_context(self._first + row)).seconds
                for work in works
                if isinstance(work, ContextWork)
            ]
        return np.asarray(self._known[rows])

    def sources(self) -> tuple[Source, ...]:
        """The source of every label's estimate."""
        return tuple(self._costs.estimate(label.work).source for label in self._labels)

"""The step of a setup, built once and timed with any mean times of its work."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, fields, replace
from functools import partial

import numpy as np

from hwmodels.work import Prefill, Work
from sim import batch
from sim.errors import SimulationError
from sim.families import family_of
from sim.fusion import fuse
from sim.graph import StepGraph
from sim.means import mean_times
from sim.pieces import Pieces
from sim.setup import Setup
from sim.step import decode_step
from sim.uncertainty.applied import with_figures
from sim.uncertainty.keys import WORK, slug
from sim.uncertainty.priors import Array, log_sd
from sim.uncertainty.tables import table_spreads

NS = 1e-9
COUNTS: dict[str, Callable[[Setup], float]] = {
    "stack.dispatch.attention_kernels": lambda setup: setup.machine.stack.dispatch.attention_kernels.value,
    "stack.dispatch.expert_kernels": lambda setup: setup.machine.stack.dispatch.expert_kernels.value,
    "stack.drafting.loose_kernels": lambda setup: setup.machine.stack.drafting.loose_kernels.value,
}
"""Figures that say how many kernels are launched for something."""

Growth = tuple[dict[str, int], ...]
"""For each label the whole numbers of its work that grow with a count, and by how much."""


@dataclass(frozen=True, eq=False)
class Step:
    """A step whose labels may take other times, and launch other numbers of kernels."""

    pieces: Pieces
    counts: dict[str, float]
    """The counts that it was built with."""
    growths: dict[str, Growth]
    """What one more of each does."""
    family_names: tuple[str, ...]
    """``work.<family>`` of each label."""
    label_log_sd: Array
    """(labels,) of what tables and fits leave open."""

    @classmethod
    def of(cls, setup: Setup, counts: Collection[str]) -> Step:
        """The step of *setup*, of which *counts* (of ``COUNTS``) may change."""
        graph = decode_step(setup)
        pieces = Pieces(fuse(graph))
        works = [label.work for label in pieces.labels]
        held = {name: COUNTS[name](setup) for name in sorted(counts)}
        growths = {
            name: _growth(graph, pieces, decode_step(with_figures(setup, {name: value + 1})))
            for name, value in held.items()
        }
        return cls(
            pieces,
            held,
            growths,
            tuple(f"{WORK}.{slug(family_of(work))}" for work in works),
            log_sd(table_spreads(setup.machine, works)),
        )

    def works(self, setup: Setup) -> list[Work]:
        """Each label's work with as many kernels as *setup* launches."""
        found = [label.work for label in self.pieces.labels]
        for name, growth in self.growths.items():
            more = round(COUNTS[name](setup) - self.counts[name])
            if more:
                found = [_grown(work, grows, more) for work, grows in zip(found, growth, strict=True)]
        return found

    def seconds(self, label_s: Array) -> Array:
        """(draws,) seconds of steps whose labels take *label_s* (draws, labels)."""
        kind_s = mean_times(self.pieces, label_s).kind_s
        durations = np.rint(kind_s[:, self.pieces.kind_of] / NS).astype(np.int64)
        return np.asarray(batch.play(self.pieces.graph, durations).max(axis=1) * NS)


def _growth(graph: StepGraph, pieces: Pieces, more: StepGraph) -> Growth:
    """What sets the works of *more* apart from those of *graph*, label by label."""
    if len(more.ops) != len(graph.ops):
        raise SimulationError("one more kernel changes how a step is built")
    found: list[dict[str, int] | None] = [None] * len(pieces.labels)
    for op, other, label in zip(graph.ops, more.ops, pieces.label_of.tolist(), strict=True):
        grows = _difference(op.work, other.work)
        if found[label] not in (None, grows):
            raise SimulationError(f"one more kernel changes some of the ops of {op.work} alone")
        found[label] = grows
    return tuple(grows or {} for grows in found)


def _difference(work: Work, other: Work) -> dict[str, int]:
    """The whole numbers in which *other* is larger than *work*."""
    # A prompt's pass is long: a kernel more or less in each of its layers is not followed.
    if work == other or isinstance(work, Prefill):
        return {}
    names = [field.name for field in fields(work)]
    pairs = {name: (getattr(work, name), getattr(other, name)) for name in names}
    return {name: after - before for name, (before, after) in pairs.items() if after != before}


def _grown(work: Work, grows: dict[str, int], times: int) -> Work:
    if not grows:
        return work
    larger: dict[str, int] = {name: getattr(work, name) + by * times for name, by in grows.items()}
    return partial(replace, work)(**larger)

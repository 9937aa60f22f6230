"""Steps whose luck is drawn once and played again with shorter or longer work.

The steps stand for a whole run: a full batch at the context of half way, for attention is linear in
it, each with its share of the requests that join. Work may take any factor of its mean time; what it
varies by stays, relative to its mean. Durations therefore fall or rise with the factors, and on
in-order lanes so does every step: a better part never lowers throughput, whatever the luck.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim import batch
from sim.critical import critical_time
from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph
from sim.simulate import DrawnSteps, Simulation

Array = NDArray[np.float64]
RUNS = 64
"""The slowest of a node's GPUs is drawn anew in each."""
STEPS = 32
"""Of a run."""
NS = 1e-9


@dataclass(frozen=True, eq=False)
class PlayedSteps:
    """*steps* steps of each of *runs* runs of *simulation*, at one context."""

    simulation: Simulation
    runs: int
    contexts: IntArray
    """(steps,) all the same."""
    label_s: Array
    """(labels,) mean seconds of each piece of work."""
    ranks: IntArray
    """(ranks, pieces of a rank) the pieces of each rank, in the same order."""

    @classmethod
    def of(cls, simulation: Simulation, runs: int = RUNS, steps: int = STEPS) -> PlayedSteps:
        """The steps that stand for runs of *simulation*."""
        load = simulation.setup.scenario.load
        contexts = np.full(steps, load.context_tokens + load.output_tokens // 2)
        label_s = simulation.base.seconds(contexts[:1], np.array([joining(simulation)]))[0]
        return cls(simulation, runs, contexts, label_s, same_work(simulation.pieces.graph))

    @property
    def unchanged(self) -> Array:
        """(labels,) factors of 1."""
        return np.ones(len(self.label_s))

    @cached_property
    def _drawn(self) -> list[DrawnSteps]:
        """The luck of each run."""
        return [self.simulation.drawn(run, self.contexts) for run in range(self.runs)]

    def durations(self, run: int, factors: Array, skew: float = 1.0) -> IntArray:
        """(steps, pieces) ns of *run*, work taking *factors* (labels,) and ranks differing *skew* times."""
        label_s = np.tile(self.label_s, (len(self.contexts), 1))
        drawn = self._drawn[run].durations(label_s, factors)
        return drawn if skew == 1 else drawn_together(drawn, self.ranks, skew)

    def step_ns(self, factors: Array, skew: float = 1.0) -> IntArray:
        """(runs, steps) ns."""
        graph = self.simulation.pieces.graph
        return np.array(
            [batch.play(graph, self.durations(run, factors, skew)).max(axis=1) for run in range(self.runs)]
        )

    def tok_s(self, step_ns: IntArray, mean_length: float | None = None) -> float:
        """Tokens per second of all requests in steps of *step_ns*, with *mean_length* or the scenario's."""
        length = self.simulation.acceptance.mean_length() if mean_length is None else mean_length
        return self.simulation.setup.requests * length / (max(1.0, float(step_ns.mean())) * NS)

    def critical_s(self) -> Array:
        """(labels,) seconds of a mean step's critical path; they add up to the step."""
        simulation = self.simulation
        pieces, labels = simulation.pieces, len(self.label_s)
        mean = simulation.mean_times(self.contexts, np.full(len(self.contexts), joining(simulation)))
        own, total = np.arange(labels), np.zeros(labels)
        for run in range(self.runs):
            durations = self.durations(run, self.unchanged)
            end = batch.play(pieces.graph, durations)
            on_path = critical_time(pieces.graph, durations, end, pieces.kind_of, pieces.kind_count)
            total += pieces.book(on_path, mean, own, labels).sum(axis=0)
        return total * NS / (self.runs * len(self.contexts))


def joining(simulation: Simulation) -> float:
    """Requests that join in a step, on average: each stays for its output over its acceptance length."""
    setup = simulation.setup
    steps = max(1.0, setup.scenario.load.output_tokens / simulation.acceptance.mean_length())
    return setup.requests / steps


def same_work(graph: StepGraph) -> IntArray:
    """(ranks, pieces of a rank) what every rank does, in order; SimulationError where one differs."""
    ranks = sorted({op.rank for op in graph.ops if op.rank is not None})
    found = [[at for at, op in enumerate(graph.ops) if op.rank == rank] for rank in ranks]
    if len({tuple(graph.ops[at].work for at in row) for row in found}) > 1:
        raise SimulationError("ranks do not do the same work")
    return np.array(found, dtype=np.int64)


def drawn_together(durations: IntArray, ranks: IntArray, skew: float) -> IntArray:
    """*durations* (steps, pieces) whose ranks differ from their mean *skew* times as much.

    For a *skew* up to 1: step time is a convex function of durations, and swapping two ranks leaves
    it as it is; so the step with every rank at the mean is no longer than the drawn one, nor is any
    step between the two. Rounding is down, so that this holds for integers.
    """
    closer = durations.copy()
    of_ranks = durations[:, ranks]
    mean = of_ranks.mean(axis=1, keepdims=True)
    closer[:, ranks] = np.maximum(np.floor(mean + skew * (of_ranks - mean)), 0).astype(np.int64)
    return closer

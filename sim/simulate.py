"""Scenario in, runs out: acceptance draws, durations, engine, records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from itertools import pairwise
from typing import Protocol, TypeVar

import numpy as np

from hwmodels.estimate import Source
from hwmodels.work import AllReduce
from sim import batch, draws, engine
from sim.acceptance import AcceptanceModel, acceptance_model
from sim.choices import EngineName
from sim.critical import BoolArray, critical_path
from sim.fusion import Fusion, fuse
from sim.graph import IntArray, StepGraph
from sim.records import Array, Run, StepRecords
from sim.setup import Setup
from sim.step import decode_step

CHUNK_STEPS = 64
"""Steps drawn and played at once; bounds memory, never the result."""

Listener = Callable[[Run], None]
Label = TypeVar("Label", bound=Enum)


class Engine(Protocol):
    """Plays (steps, ops) durations on a graph and returns when every op ended."""

    def __call__(self, graph: StepGraph, durations: IntArray) -> IntArray:
        """Play *durations* on *graph*."""


ENGINES: dict[EngineName, Engine] = {EngineName.SIMPY: engine.play, EngineName.BATCH: batch.play}


class Simulation:
    """One scenario, ready to be run any number of times."""

    def __init__(
        self,
        setup: Setup,
        engine: EngineName = EngineName.SIMPY,
        mean_length: float | None = None,
    ) -> None:
        self.setup = setup
        self.graph = decode_step(setup)
        self.fusion: Fusion = fuse(self.graph)
        self.base = draws.BaseTimes(setup, self.graph)
        self.acceptance: AcceptanceModel = acceptance_model(setup.scenario, mean_length)
        self._play = ENGINES[engine]
        self._groups = _Groups(self.graph, self.base.sources())

    def run(self, index: int) -> Run:
        """Run number *index*: the same bytes whenever and wherever it is played."""
        scenario = self.setup.scenario
        generator = draws.generator(scenario.seed, index, draws.RandomStream.ACCEPTANCE)
        lengths = self.acceptance.draw(generator, scenario.load.output_tokens)
        contexts = scenario.load.context_tokens + np.concatenate([[0], np.cumsum(lengths)[:-1]])
        noise = draws.Noise(self.setup, self.graph, index)
        parts = [self._play_chunk(noise, lengths[steps], contexts[steps]) for steps in _chunks(len(lengths))]
        return Run(index, _join(parts), scenario.load.concurrency)

    def _play_chunk(self, noise: draws.Noise, lengths: IntArray, contexts: IntArray) -> StepRecords:
        durations = noise.durations(self.base.seconds(contexts.tolist()))
        pieces = self.fusion.durations(durations)
        piece_end = self._play(self.fusion.pieces, pieces)
        end = self.fusion.expand(piece_end, durations)
        on_path = critical_path(self.graph, durations, end)
        return self._groups.records(lengths, contexts, durations, end, on_path)


def play(simulation: Simulation, runs: int, listeners: tuple[Listener, ...] = ()) -> Iterator[Run]:
    """The first *runs* runs in order; *listeners* hear of each as it ends."""
    for index in range(runs):
        run = simulation.run(index)
        for listener in listeners:
            listener(run)
        yield run


def _chunks(steps: int) -> Iterator[slice]:
    for first in range(0, steps, CHUNK_STEPS):
        yield slice(first, min(first + CHUNK_STEPS, steps))


class _Groups:
    """Columns of a graph's ops by component, phase, source, lane and collective."""

    def __init__(self, graph: StepGraph, sources: tuple[Source, ...]) -> None:
        self._components = _columns([op.component for op in graph.ops])
        self._phases = _columns([op.phase for op in graph.ops])
        self._sources = _columns([sources[work] for work in graph.work_index])
        self._queues = [np.array(queue, dtype=np.int64) for queue in graph.queues]
        self._collectives = [i for i, op in enumerate(graph.ops) if isinstance(op.work, AllReduce)]
        self._arrivals = _arrivals(graph, self._collectives)

    def records(
        self,
        lengths: IntArray,
        contexts: IntArray,
        durations: IntArray,
        end: IntArray,
        on_path: BoolArray,
    ) -> StepRecords:
        """The records of a chunk of steps."""
        critical = durations * on_path
        return StepRecords(
            lengths=lengths,
            contexts=contexts,
            step_ns=end.max(axis=1),
            critical_ns=_sums(critical, self._components),
            phase_ns=_sums(critical, self._phases),
            source_ns=_sums(critical, self._sources),
            busy_ns=np.stack([durations[:, queue].sum(axis=1) for queue in self._queues], axis=1),
            collective_wait_ns=self._wait(end),
            collective_transfer_ns=durations[:, self._collectives].sum(axis=1),
        )

    def _wait(self, end: IntArray) -> Array:
        """How long a rank waits for the last one at AllReduces, mean over ranks.

        A rank arrives when the op before the collective on its own lane has ended.
        Waiting for a launch is the host's doing and not counted.
        """
        total = np.zeros(len(end))
        for arrivals in self._arrivals:
            times = end[:, arrivals]
            total += (times.max(axis=1, keepdims=True) - times).mean(axis=1)
        return total


def _arrivals(graph: StepGraph, collectives: list[int]) -> list[list[int]]:
    """For each collective the op before it on every lane of a rank, where there is one."""
    of_ranks = {lane for op in graph.ops if op.rank is not None for lane in op.lanes}
    before = {(lane, op): last for lane in of_ranks for last, op in pairwise(graph.queues[lane])}
    found = [[before[lane, op] for lane in graph.ops[op].lanes if (lane, op) in before] for op in collectives]
    return [arrivals for arrivals in found if arrivals]


def _columns(labels: list[Label]) -> dict[Label, IntArray]:
    """For each label that occurs the columns that carry it."""
    kinds = dict.fromkeys(labels)
    return {
        kind: np.array([i for i, label in enumerate(labels) if label is kind], dtype=np.int64)
        for kind in kinds
    }


def _sums(values: IntArray, columns: dict[Label, IntArray]) -> dict[Label, IntArray]:
    return {label: values[:, chosen].sum(axis=1) for label, chosen in columns.items()}


def _join(parts: list[StepRecords]) -> StepRecords:
    """The chunks of a run end to end."""
    return StepRecords(
        lengths=np.concatenate([part.lengths for part in parts]),
        contexts=np.concatenate([part.contexts for part in parts]),
        step_ns=np.concatenate([part.step_ns for part in parts]),
        critical_ns=_join_groups([part.critical_ns for part in parts]),
        phase_ns=_join_groups([part.phase_ns for part in parts]),
        source_ns=_join_groups([part.source_ns for part in parts]),
        busy_ns=np.concatenate([part.busy_ns for part in parts]),
        collective_wait_ns=np.concatenate([part.collective_wait_ns for part in parts]),
        collective_transfer_ns=np.concatenate([part.collective_transfer_ns for part in parts]),
    )


def _join_groups(parts: list[dict[Label, IntArray]]) -> dict[Label, IntArray]:
    return {label: np.concatenate([part[label] for part in parts]) for label in parts[0]}

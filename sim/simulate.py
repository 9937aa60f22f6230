"""Scenario in, runs out: acceptance draws, durations, engine, records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from sim import batch, engine
from sim.acceptance import Acceptance
from sim.accounts import Accounts
from sim.batching import Batch, closed_loop
from sim.choices import EngineName
from sim.drafting import acceptance_model
from sim.draws import Luck, Noise, NoisePlan, RandomStream, generator
from sim.fusion import fuse
from sim.graph import IntArray, StepGraph
from sim.means import BaseTimes, MeanTimes, mean_times
from sim.pieces import Pieces
from sim.records import Run, StepRecords
from sim.sampled import Sampled, luck_of_run
from sim.setup import Setup
from sim.step import decode_step

CHUNK_DURATIONS = 250_000
"""Durations drawn and played at once: bounds memory (2 MB an array), never changes the result."""

Array = NDArray[np.float64]
Listener = Callable[[Run], None]


class Engine(Protocol):
    """Plays (steps, ops) durations on a graph and returns when every op ended."""

    def __call__(self, graph: StepGraph, durations: IntArray) -> IntArray:
        """Play *durations* on *graph*."""


ENGINES: dict[EngineName, Engine] = {EngineName.SIMPY: engine.play, EngineName.BATCH: batch.play}


class Chunk(NamedTuple):
    """Some steps of a run, ready to be played."""

    lengths: IntArray
    """(steps, requests)"""
    contexts: IntArray
    """(steps,) mean over requests"""
    mean: MeanTimes
    durations: IntArray
    """(steps, pieces)"""


class DrawnSteps(NamedTuple):
    """Steps of a run whose luck is drawn: their durations follow from what work takes."""

    pieces: Pieces
    noise: Noise
    luck: Luck
    sampled: Sampled | None
    samples: Callable[[], np.random.Generator]
    contexts: IntArray
    """(steps,)"""

    def durations(self, label_s: Array, factors: Array) -> IntArray:
        """(steps, pieces) ns where work takes *factors* (labels,) times *label_s* (steps, labels) seconds.

        Everything keeps the relative deviation that it has at factors of 1, so that a smaller factor
        makes no piece longer. Samples know nothing of mean times: they are taken *factors* times too.
        """
        mean = mean_times(self.pieces, label_s * factors)
        if self.sampled is None:
            return self.noise.applied(self.luck, mean.kind_s)
        return self.noise.applied(self.luck, *self.sampled.draw(self.samples(), mean, self.contexts, factors))


class Simulation:
    """One scenario, ready to be run any number of times."""

    def __init__(
        self,
        setup: Setup,
        engine: EngineName = EngineName.BATCH,
        mean_length: float | None = None,
    ) -> None:
        self.setup = setup
        self.graph = decode_step(setup)
        self.pieces = Pieces(fuse(self.graph))
        self.base = BaseTimes(setup, self.pieces)
        self.acceptance: Acceptance = acceptance_model(setup, mean_length)
        self._play = ENGINES[engine]
        start = np.array([setup.scenario.load.context_tokens])
        self._sampled = None if setup.machine.samples is None else Sampled(setup, self.pieces)
        drawn = None if self._sampled is None else self._sampled.drawn
        self._plan = NoisePlan(setup.machine, self.pieces, self.base.seconds(start)[0], drawn)
        self._accounts = Accounts(self.pieces, self.base.sources())

    @property
    def measured_file(self) -> str | None:
        """The name of the machine's measured file, where it has one."""
        samples = self.setup.machine.samples
        return None if samples is None else samples.name

    @property
    def luck_widths(self) -> dict[RandomStream, int]:
        """Random values that one step takes of each stream.

        Where two simulations take as many of the streams that both have, their steps meet the same luck.
        """
        sampled = {} if self._sampled is None else {RandomStream.SAMPLES: self._sampled.values_per_step}
        return self._plan.widths | sampled

    @property
    def values_per_step(self) -> int:
        """Random values that one step consumes, its acceptance included."""
        sampled = 0 if self._sampled is None else self._sampled.values_per_step
        return self._plan.values_per_step + sampled + 1

    def run(self, index: int) -> Run:
        """Run number *index*: the same bytes whenever and wherever it is played."""
        decoded = self.decoded(index)
        return Run(index, self.played(index, decoded), decoded.first_steps)

    def played(self, index: int, decoded: Batch) -> StepRecords:
        """The steps of *decoded*, whatever its requests do, with the noise of run *index*."""
        return _join([self._played(chunk) for chunk in self._chunks(index, decoded)])

    def durations(self, index: int, decoded: Batch) -> IntArray:
        """(steps, pieces) ns: what every piece of the steps of *decoded* takes in run *index*."""
        return np.concatenate([chunk.durations for chunk in self._chunks(index, decoded)])

    def decoded(self, index: int) -> Batch:
        """What the requests of run *index* do, step by step."""
        scenario = self.setup.scenario
        users = range(scenario.load.concurrency)
        luck = [generator(scenario.seed, index, RandomStream.ACCEPTANCE, user) for user in users]
        return closed_loop(self.acceptance, scenario.load, luck, self.setup.capacity)

    def chunks(self, index: int) -> Iterator[Chunk]:
        """The steps of run *index* with their durations drawn."""
        return self._chunks(index, self.decoded(index))

    def _chunks(self, index: int, decoded: Batch) -> Iterator[Chunk]:
        durations = self._durations(index)
        chunk_steps = max(1, CHUNK_DURATIONS // len(self.pieces.graph.ops))
        contexts = decoded.mean_contexts
        for first in range(0, len(contexts), chunk_steps):
            steps = slice(first, first + chunk_steps)
            mean = self.mean_times(contexts[steps], decoded.joined[steps])
            yield Chunk(decoded.lengths[steps], contexts[steps], mean, durations(mean, contexts[steps]))

    def drawn(self, run: int, contexts: IntArray) -> DrawnSteps:
        """The luck of the first steps of *run*, which have *contexts* (steps,)."""
        noise = Noise(self._plan, self.setup.scenario.seed, run)
        return DrawnSteps(
            self.pieces, noise, noise.luck(len(contexts)), self._sampled, self._luck(run), contexts
        )

    def _durations(self, run: int) -> Callable[[MeanTimes, IntArray], IntArray]:
        """Draws the durations of *run*, chunk after chunk, from mean times and contexts."""
        sampled, noise = self._sampled, Noise(self._plan, self.setup.scenario.seed, run)
        if sampled is None:
            return lambda mean, _: noise.durations(mean.kind_s)
        luck = self._luck(run)()
        return lambda mean, contexts: noise.durations(*sampled.draw(luck, mean, contexts))

    def _luck(self, run: int) -> Callable[[], np.random.Generator]:
        """The generator that samples of *run* are drawn with, from its beginning."""
        seed = self.setup.scenario.seed
        return lambda: luck_of_run(seed, run)

    def mean_times(self, contexts: IntArray, joined: Array | None = None) -> MeanTimes:
        """What every piece takes on average at each of *contexts*, where *joined* requests join."""
        return mean_times(self.pieces, self.base.seconds(contexts, joined))

    def _played(self, chunk: Chunk) -> StepRecords:
        end = self._play(self.pieces.graph, chunk.durations)
        return self._accounts.records(
            lengths=chunk.lengths,
            contexts=chunk.contexts,
            mean=chunk.mean,
            durations=chunk.durations,
            end=end,
            on_file=None if self._sampled is None else self._sampled.on_file(chunk.contexts),
        )


def play(simulation: Simulation, runs: int, listeners: tuple[Listener, ...] = ()) -> Iterator[Run]:
    """The first *runs* runs in order; *listeners* hear of each as it ends."""
    for index in range(runs):
        run = simulation.run(index)
        for listener in listeners:
            listener(run)
        yield run


def _join(parts: list[StepRecords]) -> StepRecords:
    """The chunks of a run end to end."""
    if len(parts) == 1:
        return parts[0]
    names = [field.name for field in fields(StepRecords)]
    return StepRecords(**{name: np.concatenate([getattr(part, name) for part in parts]) for name in names})

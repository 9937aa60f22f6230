"""Durations of every op of every step, drawn before an engine plays them.

Each family of work has a random stream of its own, named by run and family, so two
scenarios meet the same luck as long as their steps have equally many ops of a family.
Every noise factor has mean 1, except stalls, which only add; a step still takes longer
than its mean parts, because collectives wait for the slowest rank.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from hwmodels.cost import Machine
from hwmodels.estimate import NS_PER_SECOND, Source
from hwmodels.noise import lognormal_factor
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
    EagerLaunch,
    Elementwise,
    Gemm,
    GpuKernel,
    GqaAttention,
    GraphLaunch,
    GroupedExperts,
    HostWork,
    MlaAttention,
    StreamContention,
    Work,
)
from sim.graph import IntArray, StepGraph
from sim.setup import Setup

Array = NDArray[np.float64]


MAX_RANKS = 8
FASTEST_RANK_FACTOR = 0.5
"""No rank is faster than twice the mean, however wide its distribution is set."""


class Family(Enum):
    """A group of ops that share one random stream and one kind of noise."""

    EXPERTS = "experts"
    ATTENTION = "attention"
    KERNELS = "kernels"
    LINK = "link"
    LAUNCH = "launch"
    HOST = "host"


class RandomStream(Enum):
    """Random streams beside those of the families."""

    ACCEPTANCE = "acceptance"
    RANKS = "ranks"
    STEPS = "steps"
    STALLS = "stalls"


def family_of(work: Work) -> Family:
    """The family of *work*."""
    match work:
        case GroupedExperts():
            return Family.EXPERTS
        case MlaAttention() | GqaAttention():
            return Family.ATTENTION
        case AllReduce() | AllGather():
            return Family.LINK
        case GraphLaunch():
            return Family.LAUNCH
        case HostWork() | EagerLaunch() | Copy():
            return Family.HOST
        case Gemm() | BatchedGemm() | Elementwise() | StreamContention() | GpuKernel() | Barrier():
            return Family.KERNELS
        case _:
            assert_never(work)


HOST_FAMILIES = (Family.LAUNCH, Family.HOST)


def generator(seed: int, run: int, stream: Family | RandomStream) -> np.random.Generator:
    """The generator of one stream of one run. Streams never depend on one another."""
    key = zlib.crc32(stream.value.encode())
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(run, key)))


def noise_cv(machine: Machine, family: Family) -> float:
    """Relative standard deviation of single executions of *family*."""
    match family:
        case Family.LINK:
            return machine.interconnect.noise_cv.value
        case Family.LAUNCH:
            return machine.host.graph_launch_cv.value
        case Family.HOST:
            return machine.host.noise_cv.value
        case _:
            return machine.gpu.noise.kernel_cv.value


@dataclass(frozen=True)
class BaseTimes:
    """Mean duration of every distinct work of *graph*, as a function of context."""

    setup: Setup
    graph: StepGraph

    def seconds(self, contexts: Sequence[int]) -> Array:
        """(steps, works) seconds, attention taken at each step's context."""
        costs = self.setup.costs
        table = np.empty((len(contexts), len(self.graph.works)))
        for column, work in enumerate(self.graph.works):
            if isinstance(work, MlaAttention | GqaAttention):
                table[:, column] = [costs.estimate(work.at_context(c)).seconds for c in contexts]
            else:
                table[:, column] = costs.estimate(work).seconds
        return table

    def sources(self) -> tuple[Source, ...]:
        """The source of every distinct work's estimate."""
        return tuple(self.setup.costs.estimate(work).source for work in self.graph.works)


class Noise:
    """Draws the durations of one *run*, a chunk of steps at a time.

    Chunks of any size give the same numbers: every stream is consumed step by step.
    """

    def __init__(self, setup: Setup, graph: StepGraph, run: int) -> None:
        self._machine = setup.machine
        self._graph = graph
        seed = setup.scenario.seed
        self._generators = {name: generator(seed, run, name) for name in (*Family, *RandomStream)}
        self._columns = _columns(graph)
        # As many as a node can have, so that 4 ranks meet the luck of the first 4 of 8.
        ranks = self._generators[RandomStream.RANKS].standard_normal(MAX_RANKS)
        factor = np.maximum(FASTEST_RANK_FACTOR, 1.0 + setup.machine.gpu.noise.rank_cv.value * ranks)
        self._rank_factors = np.append(factor, 1.0)[_ranks(graph)]

    def durations(self, work_seconds: Array) -> IntArray:
        """(steps, ops) integer ns from mean (steps, works) *work_seconds*."""
        steps = len(work_seconds)
        shared = self._step_factors(steps)[:, None] * NS_PER_SECOND
        durations = np.empty((steps, len(self._graph.ops)), dtype=np.int64)
        for family, columns in self._columns.items():
            factor = lognormal_factor(
                self._generators[family], (steps, len(columns)), noise_cv(self._machine, family)
            )
            factor *= work_seconds[:, self._graph.work_index[columns]]
            factor *= NS_PER_SECOND if family in HOST_FAMILIES else shared
            factor *= self._rank_factors[columns]
            durations[:, columns] = np.rint(factor)
        return durations

    def _step_factors(self, steps: int) -> Array:
        """What all GPU and link work of a step shares: drift, and the rare stall."""
        noise = self._machine.gpu.noise
        drift = lognormal_factor(self._generators[RandomStream.STEPS], (steps,), noise.step_cv.value)
        luck = self._generators[RandomStream.STALLS].random((steps, 2))
        low, high = noise.spike_factor_low.value, noise.spike_factor_high.value
        stall = np.where(luck[:, 0] < noise.spike_probability.value, low + (high - low) * luck[:, 1], 1.0)
        return np.asarray(drift * stall)


def _columns(graph: StepGraph) -> dict[Family, IntArray]:
    """The ops of each family that occurs, in the order of Family."""
    found = [family_of(work) for work in graph.works]
    numbers = np.array([list(Family).index(family) for family in found])[graph.work_index]
    columns = {family: np.flatnonzero(numbers == i) for i, family in enumerate(Family)}
    return {family: chosen.astype(np.int64) for family, chosen in columns.items() if len(chosen)}


def _ranks(graph: StepGraph) -> IntArray:
    """The rank of each op, -1 (the last entry of the factors) where it has none."""
    return np.array([-1 if op.rank is None else op.rank for op in graph.ops], dtype=np.int64)

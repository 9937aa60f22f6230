"""Durations of every piece of every step, drawn before an engine plays them.

What a device does between two collectives shares one draw, with the deviation and
skewness that the independent noise of its ops adds up to: single kernels even out, and
the wait at the collective stays what it was. (Kernels launched one by one also wait for
their launches in between; there this is an approximation.) Streams are named by run and purpose, so
two scenarios meet the same luck as long as their steps have equally many such stretches.
Every noise factor has mean 1, except stalls, which only add; a step still takes longer
than its mean parts, because collectives wait for the slowest rank.
"""

from __future__ import annotations

import zlib
from enum import Enum
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hwmodels.estimate import NS_PER_SECOND
from hwmodels.machine import Machine
from hwmodels.noise import SHAPE, Factors, factors, log_deviation, skewness
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
    EagerLaunch,
    Elementwise,
    Exchange,
    Gemm,
    GpuKernel,
    GqaAttention,
    GraphLaunch,
    GroupedExperts,
    HostWork,
    IndexScores,
    LooseLaunch,
    MlaAttention,
    Prefill,
    StreamContention,
    Work,
)
from sim.compiled import compiled
from sim.graph import Index, IntArray, Op, Phase, StepGraph
from sim.pieces import Pieces, along_piece

Array = NDArray[np.float64]


MAX_RANKS = 8
MACHINE_NORMALS = 3
"""Values a step consumes beside those of its stretches: drift, chance of a stall, its size."""
NO_RANK = -1
"""Finds the factor 1 behind those of the ranks."""
FASTEST_RANK_FACTOR = 0.5
"""No rank is faster than twice the mean, however wide its distribution is set."""


class Family(Enum):
    """A group of works with one kind of noise."""

    EXPERTS = "experts"
    ATTENTION = "attention"
    KERNELS = "kernels"
    LINK = "link"
    LAUNCH = "launch"
    HOST = "host"


class RandomStream(Enum):
    """The random streams of a run."""

    ACCEPTANCE = "acceptance"
    VERIFY_KERNELS = "verify kernels"
    OTHER_KERNELS = "other kernels"
    VERIFY_LINK = "verify link"
    OTHER_LINK = "other link"
    GRAPH_LAUNCHES = "graph launches"
    EAGER_LAUNCHES = "eager launches"
    HOST = "host"
    MACHINE = "machine"
    SAMPLES = "samples"


def family_of(work: Work) -> Family:
    """The family of *work*."""
    match work:
        case GroupedExperts():
            return Family.EXPERTS
        case MlaAttention() | GqaAttention() | IndexScores():
            return Family.ATTENTION
        case AllReduce() | AllGather() | Exchange():
            return Family.LINK
        case GraphLaunch():
            return Family.LAUNCH
        case HostWork() | EagerLaunch() | LooseLaunch() | Copy() | Prefill():
            return Family.HOST
        case Gemm() | BatchedGemm() | Elementwise() | StreamContention() | GpuKernel() | Barrier():
            return Family.KERNELS
        case _:
            assert_never(work)


HOST_STREAMS = (RandomStream.GRAPH_LAUNCHES, RandomStream.EAGER_LAUNCHES, RandomStream.HOST)


def stream_of(op: Op) -> RandomStream:
    """The stream that a piece beginning with *op* draws from."""
    verify = op.phase is Phase.VERIFY
    if isinstance(op.work, EagerLaunch | LooseLaunch):
        return RandomStream.EAGER_LAUNCHES
    match family_of(op.work):
        case Family.LINK:
            return RandomStream.VERIFY_LINK if verify else RandomStream.OTHER_LINK
        case Family.LAUNCH:
            return RandomStream.GRAPH_LAUNCHES
        case Family.HOST:
            return RandomStream.HOST
        case _:
            return RandomStream.VERIFY_KERNELS if verify else RandomStream.OTHER_KERNELS


def generator(seed: int, run: int, stream: RandomStream, slot: int = 0) -> np.random.Generator:
    """The generator of one stream of one run, of one *slot* of the batch. None depends on another."""
    key = zlib.crc32(stream.value.encode())
    spawned = (run, key, slot) if slot else (run, key)
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=spawned))


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


class Stretch(NamedTuple):
    """Pieces that share one draw per step: work of one device between two ops on several lanes."""

    device: str
    rendezvous: int
    """How many ops on several lanes the step has had before."""
    stream: RandomStream


class _Columns(NamedTuple):
    """The pieces that one stream serves, and how its normals become noise factors."""

    pieces: Index
    kinds: Index
    columns: Index
    """For each of the pieces the column of its stretch."""
    shared: bool
    """True where GPU and link work shares the drift and stalls of its step."""
    factors: Factors
    """One per column."""


class NoisePlan:
    """Which stream serves which pieces of a step, and how widely each stretch of them varies.

    Worked out once, at *label_seconds* (labels,) of the context where decoding begins: later
    steps keep the relative deviation, though attention grows. Labels that are *drawn* from
    samples (labels,) bring their own variation and count for nothing here.
    """

    def __init__(
        self,
        machine: Machine,
        pieces: Pieces,
        label_seconds: Array,
        drawn: NDArray[np.bool_] | None = None,
    ) -> None:
        self.machine = machine
        self.pieces = pieces
        self.ranks = np.array([NO_RANK if op.rank is None else op.rank for op in pieces.graph.ops])
        moments = self._moments(label_seconds, label_seconds if drawn is None else label_seconds * ~drawn)
        served: dict[RandomStream, dict[Stretch, list[int]]] = {}
        for piece, stretch in enumerate(stretches(pieces.graph)):
            served.setdefault(stretch.stream, {}).setdefault(stretch, []).append(piece)
        self.streams = {
            stream: self._columns(list(found.values()), stream, moments) for stream, found in served.items()
        }

    @property
    def widths(self) -> dict[RandomStream, int]:
        """Random values that one step takes of each stream."""
        return {stream: len(served.factors.log_sd) for stream, served in self.streams.items()}

    @property
    def values_per_step(self) -> int:
        """Random values that the durations of one step consume."""
        return sum(self.widths.values()) + MACHINE_NORMALS

    def _columns(self, found: list[list[int]], stream: RandomStream, moments: Array) -> _Columns:
        chosen = [(piece, column) for column, members in enumerate(found) for piece in members]
        indices, columns = np.array(chosen, dtype=np.uint64).T.copy()
        kinds = self.pieces.kind_of[indices]
        varied = factors(*self._spread(np.array([self._summed(members, moments) for members in found])))
        return _Columns(indices, kinds, columns, stream not in HOST_STREAMS, varied)

    def _moments(self, label_seconds: Array, varied: Array) -> Array:
        """(kinds, 3) mean, variance and third central moment of what is *varied* of *label_seconds*.

        All ops are independent: each of them adds.
        """
        cv = np.array([noise_cv(self.machine, family_of(label.work)) for label in self.pieces.labels])
        deviation = varied * cv
        parts = self.pieces.part_sums(np.array([varied, deviation**2, deviation**3]))
        return along_piece(parts, self.pieces.part_sums(label_seconds[None])).T

    def _summed(self, members: list[int], moments: Array) -> Array:
        """The moments of *members* one after another; a lane beside the first one's adds nothing."""
        ops = self.pieces.graph.ops
        first = ops[members[0]].lanes
        own = [piece for piece in members if ops[piece].lanes == first]
        return np.asarray(moments[self.pieces.kind_of[own]].sum(axis=0))

    def _spread(self, moments: Array) -> tuple[Array, Array]:
        """Relative deviation and log-deviation of lognormals with *moments* (columns, 3)."""
        mean, variance, third = moments.T
        varies = variance > 0
        relative = np.divide(np.sqrt(variance), mean, out=np.zeros_like(mean), where=varies)
        single = np.divide(third, variance**1.5, out=np.ones_like(mean), where=varies)
        return relative, log_deviation(single * skewness(SHAPE))


def stretches(graph: StepGraph) -> list[Stretch]:
    """For each op of *graph*, a graph of pieces, the stretch it belongs to."""
    found, rendezvous = [], 0
    for op in graph.ops:
        if len(op.lanes) > 1:
            rendezvous += 1
        device = graph.lanes[op.lanes[0]].device
        found.append(Stretch(device, rendezvous, stream_of(op)))
    return found


class Luck(NamedTuple):
    """What some steps of a run have drawn."""

    shared: Array
    """(steps,) factor of all GPU and link work."""
    bodies: dict[RandomStream, Array]
    """(steps, columns) lognormal bodies of each stream's stretches."""


class Noise:
    """Draws the durations of the pieces of one *run*, a chunk of steps at a time.

    Chunks of any size give the same numbers: every stream is consumed step by step.
    """

    def __init__(self, plan: NoisePlan, seed: int, run: int) -> None:
        self._plan = plan
        streams = (*plan.streams, RandomStream.MACHINE)
        self._generators = {stream: generator(seed, run, stream) for stream in streams}
        # As many as a node can have, so that 4 ranks meet the luck of the first 4 of 8.
        ranks = self._generators[RandomStream.MACHINE].standard_normal(MAX_RANKS)
        factor = np.maximum(FASTEST_RANK_FACTOR, 1.0 + plan.machine.gpu.noise.rank_cv.value * ranks)
        self._rank_factors = np.append(factor, 1.0)[plan.ranks]

    def durations(self, kind_seconds: Array, drawn_seconds: Array | None = None) -> IntArray:
        """(steps, pieces) integer ns from mean (steps, kinds) *kind_seconds*.

        *drawn_seconds* (steps, pieces) were drawn from samples and come on top: only what a
        whole rank or step shares still acts on them.
        """
        return self.applied(self.luck(len(kind_seconds)), kind_seconds, drawn_seconds)

    def luck(self, steps: int) -> Luck:
        """What the next *steps* steps have, whatever their work takes."""
        shared, bodies = self._step_factors(steps), {}
        for stream, served in self._plan.streams.items():
            drawn = self._generators[stream].standard_normal((steps, len(served.factors.log_sd)))
            drawn *= served.factors.log_sd
            bodies[stream] = np.exp(drawn, out=drawn)
        return Luck(shared, bodies)

    def applied(self, luck: Luck, kind_seconds: Array, drawn_seconds: Array | None = None) -> IntArray:
        """``durations`` of steps whose *luck* was drawn before."""
        alone = kind_seconds * NS_PER_SECOND
        shared = luck.shared[:, None]
        together = alone * shared
        durations = np.empty((len(kind_seconds), len(self._plan.ranks)), dtype=np.int64)
        for stream, served in self._plan.streams.items():
            mean = together if served.shared else alone
            _fill(
                durations,
                mean,
                luck.bodies[stream],
                served.factors.floor,
                served.factors.scale,
                served.pieces,
                served.kinds,
                served.columns,
                self._rank_factors,
            )
            if drawn_seconds is not None:
                drawn = drawn_seconds[:, served.pieces] * (NS_PER_SECOND * self._rank_factors[served.pieces])
                durations[:, served.pieces] += np.rint(drawn * shared if served.shared else drawn).astype(int)
        return durations

    def _step_factors(self, steps: int) -> Array:
        """What all GPU and link work of a step shares: drift, and the rare stall."""
        noise = self._plan.machine.gpu.noise
        normals = self._generators[RandomStream.MACHINE].standard_normal((steps, MACHINE_NORMALS))
        drift = factors(noise.step_cv.value).of(normals[:, 0])
        chance, size = special.ndtr(normals[:, 1]), special.ndtr(normals[:, 2])
        low, high = noise.spike_factor_low.value, noise.spike_factor_high.value
        stall = np.where(chance < noise.spike_probability.value, low + (high - low) * size, 1.0)
        return np.asarray(drift * stall)


@compiled
def _fill(
    durations: IntArray,
    mean: Array,
    luck: Array,
    floor: Array,
    scale: Array,
    pieces: Index,
    kinds: Index,
    columns: Index,
    rank_factors: Array,
) -> None:
    factor = np.empty(luck.shape[1])
    for step in range(luck.shape[0]):
        drawn, means, filled = luck[step], mean[step], durations[step]
        for column in range(len(factor)):
            factor[column] = floor[column] + scale[column] * drawn[column]
        for at in range(len(pieces)):
            piece = pieces[at]
            filled[piece] = np.rint(means[kinds[at]] * factor[columns[at]] * rank_factors[piece])

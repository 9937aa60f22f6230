"""How fast the simulator is, as ratios within one run: never as absolute promises."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import numpy as np
import simpy

from sim import ddtree, engine
from sim.choices import EngineName
from sim.quality import marginals
from sim.setup import Setup
from sim.simulate import CHUNK_DURATIONS, Simulation

BARE_TIMEOUTS = 50_000
SIMPY_RUNS = 1
BATCH_RUNS = 32
DRAWS = 12
ROUNDS = 7
TREES = 200
TREE_BLOCK, TREE_BUDGET = 16, 32


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Medians over rounds; both sides of a ratio are measured in the same round.

    Steps are those of whole runs: acceptance and durations drawn, played, and booked.
    """

    simpy_timeouts_per_s: float
    """One bare SimPy process yielding ``env.timeout`` in a loop."""
    simpy_steps_per_s: float
    simpy_ops_per_s: float
    """Ops of those steps; SimPy plays them as fewer pieces."""
    batch_steps_per_s: float
    random_values_per_s: float
    """Standard normals drawn by numpy into memory that is there already."""
    values_per_step: int
    """Random values that a step of a run consumes."""
    timeouts_per_step: float
    """What one step on the SimPy engine costs in bare timeouts."""
    batch_over_simpy: float
    """Steps per second, batch engine over SimPy engine."""
    batch_over_random: float
    """Time of a step on the batch engine over the time to draw as many values."""
    tree_us_per_node: float
    """Building a DDTree of 32 nodes over a block of 16, in Python, per node."""
    tree_over_heap: float
    """Its time over that of 32 pushes and pops of heapq."""
    ops_per_step: int
    pieces_per_step: int
    """Ops after exact fusion: what an engine really plays."""


@dataclass(frozen=True, slots=True)
class _Round:
    timeouts_per_s: float
    simpy_per_s: float
    batch_per_s: float
    values_per_s: float
    nodes_per_s: float
    heap_pairs_per_s: float


def benchmark(setup: Setup) -> Benchmark:
    """Measure both engines on *setup* against bare SimPy and bare numpy."""
    by_simpy, by_batch = (Simulation(setup, name) for name in (EngineName.SIMPY, EngineName.BATCH))
    ops, pieces = len(by_simpy.graph.ops), len(by_simpy.pieces.graph.ops)
    _steps(by_batch, 1)
    values = by_batch.values_per_step
    rounds = [_round(by_simpy, by_batch) for _ in range(ROUNDS)]
    return Benchmark(
        simpy_timeouts_per_s=median(r.timeouts_per_s for r in rounds),
        simpy_steps_per_s=median(r.simpy_per_s for r in rounds),
        simpy_ops_per_s=median(r.simpy_per_s for r in rounds) * ops,
        batch_steps_per_s=median(r.batch_per_s for r in rounds),
        random_values_per_s=median(r.values_per_s for r in rounds),
        values_per_step=values,
        timeouts_per_step=median(r.timeouts_per_s / r.simpy_per_s for r in rounds),
        batch_over_simpy=median(r.batch_per_s / r.simpy_per_s for r in rounds),
        batch_over_random=median(r.values_per_s / values / r.batch_per_s for r in rounds),
        tree_us_per_node=median(1e6 / r.nodes_per_s for r in rounds),
        tree_over_heap=median(r.heap_pairs_per_s / r.nodes_per_s for r in rounds),
        ops_per_step=ops,
        pieces_per_step=pieces,
    )


def _round(by_simpy: Simulation, by_batch: Simulation) -> _Round:
    normals = np.empty(CHUNK_DURATIONS)
    generator = np.random.default_rng()
    return _Round(
        timeouts_per_s=_rate(_bare_timeouts),
        simpy_per_s=_rate(lambda: _steps(by_simpy, SIMPY_RUNS)),
        batch_per_s=_rate(lambda: _steps(by_batch, BATCH_RUNS)),
        values_per_s=_rate(lambda: _draw(generator, normals, DRAWS)),
        nodes_per_s=_rate(_build_trees),
        heap_pairs_per_s=_rate(_use_heaps),
    )


def _steps(simulation: Simulation, runs: int) -> int:
    return sum(len(simulation.run(index).steps.lengths) for index in range(runs))


def _draw(generator: np.random.Generator, values: np.ndarray[tuple[int]], times: int) -> int:
    for _ in range(times):
        generator.standard_normal(out=values)
    return values.size * times


def _build_trees() -> int:
    rows = marginals(np.full(TREE_BLOCK - 1, 0.8), TREE_BUDGET)
    for _ in range(TREES):
        ddtree.build(rows, TREE_BUDGET)
    return TREES * TREE_BUDGET


def _use_heaps() -> int:
    """As many pushes and pops as the trees have nodes."""
    values = np.random.default_rng(0).random(TREE_BUDGET).tolist()
    for _ in range(TREES):
        heap: list[float] = []
        for value in values:
            heapq.heappush(heap, value)
        for _ in values:
            heapq.heappop(heap)
    return TREES * TREE_BUDGET


def _bare_timeouts() -> int:
    env = simpy.Environment()

    def tick() -> engine.Process:
        for _ in range(BARE_TIMEOUTS):
            yield env.timeout(1)

    env.process(tick())
    env.run()
    return BARE_TIMEOUTS


def _rate(work: Callable[[], int]) -> float:
    """What *work* counts, per second."""
    begin = time.perf_counter()
    count = work()
    return count / (time.perf_counter() - begin)

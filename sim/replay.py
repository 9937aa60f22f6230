"""Runs of the batch engine played again on the SimPy engine, to the same nanosecond or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sim import batch, engine
from sim.errors import SimulationError
from sim.graph import IntArray, StepGraph
from sim.means import MeanTimes
from sim.records import Run
from sim.simulate import Chunk, Simulation

WHOLE_RUNS = 2
WHOLE_RUN_STEPS = 512
"""A run longer than this is replayed up to here."""
KERNEL_STEPS = 4
"""Steps of the first run that are played kernel by kernel as well, no two of them in one piece."""


class Replay(NamedTuple):
    """How much was replayed. Everything ended when it should, or there is no Replay."""

    runs: int
    steps: int
    pieces: int
    kernel_steps: int
    ops: int


def replay(simulation: Simulation, runs: Sequence[Run], most_steps: int = WHOLE_RUN_STEPS) -> Replay:
    """Play *runs* of *simulation* again, at most *most_steps* of each.

    SimulationError where a piece or op ends elsewhere, or a step takes longer than recorded.
    """
    steps = sum(_replay_run(simulation, run, most_steps) for run in runs)
    kernel_steps = _replay_kernels(simulation, next(simulation.chunks(runs[0].index)), runs[0].index)
    pieces, ops = len(simulation.pieces.graph.ops), len(simulation.graph.ops)
    return Replay(len(runs), steps, steps * pieces, kernel_steps, kernel_steps * ops)


def _replay_run(simulation: Simulation, run: Run, most_steps: int) -> int:
    """Steps of *run* that ended as the batch engine has them, and took as long as was recorded."""
    graph, steps = simulation.pieces.graph, 0
    for chunk in simulation.chunks(run.index):
        durations = chunk.durations[: most_steps - steps]
        end = engine.play(graph, durations)
        place = _Place(graph, f"run {run.index}", steps)
        _same(end, batch.play(graph, durations), place)
        recorded = run.steps.step_ns[steps : steps + len(durations)]
        if not np.array_equal(end.max(axis=1), recorded):
            step = steps + int(np.argmax(end.max(axis=1) != recorded))
            raise SimulationError(f"run {run.index}, step {step} was recorded with another duration")
        steps += len(durations)
        if steps == most_steps:
            break
    return steps


def _replay_kernels(simulation: Simulation, chunk: Chunk, run: int) -> int:
    """Steps of *chunk* whose every op ended as the batch engine and the fusion have it."""
    pieces, fusion = simulation.pieces, simulation.pieces.fusion
    durations = chunk.durations[:KERNEL_STEPS]
    ops = pieces.split(durations, MeanTimes(*(times[:KERNEL_STEPS] for times in chunk.mean)))
    expanded = fusion.expand(batch.play(pieces.graph, durations), ops)
    place = _Place(simulation.graph, f"run {run}, kernel by kernel", 0)
    _same(engine.play(simulation.graph, ops), expanded, place)
    return len(durations)


class _Place(NamedTuple):
    """What was being compared."""

    graph: StepGraph
    run: str
    first_step: int


def _same(by_simpy: IntArray, by_batch: IntArray, place: _Place) -> None:
    if not np.array_equal(by_simpy, by_batch):
        step, at = np.argwhere(by_simpy != by_batch)[0]
        op = place.graph.ops[at]
        raise SimulationError(
            f"{place.run}, step {place.first_step + step}: op {at} ({op.phase.value}, {op.component.value})"
            f" ends at {by_simpy[step, at]} ns on SimPy and at {by_batch[step, at]} ns on the batch engine"
        )

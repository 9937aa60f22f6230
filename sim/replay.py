"""Runs of the batch engine played again on the SimPy engine, to the same nanosecond or not at all."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sim import batch, engine
from sim.errors import SimulationError
from sim.graph import IntArray
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


def replay(simulation: Simulation, runs: int, most_steps: int = WHOLE_RUN_STEPS) -> Replay:
    """Replay the first *runs* runs of *simulation*, at most *most_steps* of each.

    SimulationError where anything ends elsewhere.
    """
    played = [_replay_run(simulation, index, most_steps) for index in range(runs)]
    kernel_steps = _replay_kernels(simulation, next(simulation.chunks(0)))
    steps = sum(played)
    pieces, ops = len(simulation.pieces.graph.ops), len(simulation.graph.ops)
    return Replay(runs, steps, steps * pieces, kernel_steps, kernel_steps * ops)


def _replay_run(simulation: Simulation, index: int, most_steps: int) -> int:
    """Steps of run *index* that ended as the batch engine has them."""
    graph, steps = simulation.pieces.graph, 0
    for chunk in simulation.chunks(index):
        durations = chunk.durations[: most_steps - steps]
        _same(engine.play(graph, durations), batch.play(graph, durations), f"run {index}, step {steps}")
        steps += len(durations)
        if steps == most_steps:
            break
    return steps


def _replay_kernels(simulation: Simulation, chunk: Chunk) -> int:
    """Steps of *chunk* whose every op ended as the batch engine and the fusion have it."""
    pieces, fusion = simulation.pieces, simulation.pieces.fusion
    durations = chunk.durations[:KERNEL_STEPS]
    ops = fusion.split(durations, chunk.mean.labels[:KERNEL_STEPS, pieces.label_of])
    expanded = fusion.expand(batch.play(pieces.graph, durations), ops)
    _same(engine.play(simulation.graph, ops), expanded, "run 0, kernel by kernel, step 0")
    return len(durations)


def _same(by_simpy: IntArray, by_batch: IntArray, place: str) -> None:
    if not np.array_equal(by_simpy, by_batch):
        step, op = np.argwhere(by_simpy != by_batch)[0]
        raise SimulationError(
            f"{place} + {step}: {op} ends at {by_simpy[step, op]} ns on SimPy"
            f" and at {by_batch[step, op]} ns on the batch engine"
        )

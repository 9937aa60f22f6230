"""How fast the simulator is, as ratios within one run: never as absolute promises."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median

import simpy

from sim import draws, engine
from sim.setup import Setup
from sim.simulate import Simulation

BARE_TIMEOUTS = 50_000
STEPS = 12
ROUNDS = 7


@dataclass(frozen=True, slots=True)
class Benchmark:
    """Medians over rounds; both sides of a ratio are measured in the same round."""

    simpy_timeouts_per_s: float
    """One bare SimPy process yielding ``env.timeout`` in a loop."""
    simpy_steps_per_s: float
    """Drawing one decode step's durations and playing it on the SimPy engine."""
    timeouts_per_step: float
    """What one step costs in bare timeouts."""
    ops_per_step: int
    pieces_per_step: int
    """Ops after exact fusion: what the engine really plays."""


def benchmark(setup: Setup) -> Benchmark:
    """Measure *setup* against bare SimPy."""
    simulation = Simulation(setup)
    contexts = [setup.scenario.load.context_tokens] * STEPS
    seconds = simulation.base.seconds(contexts)
    noise = draws.Noise(setup, simulation.graph, 0)

    def play_steps() -> None:
        durations = noise.durations(seconds)
        pieces = simulation.fusion.durations(durations)
        simulation.fusion.expand(engine.play(simulation.fusion.pieces, pieces), durations)

    play_steps()
    timeouts, steps, ratios = [], [], []
    for _ in range(ROUNDS):
        timeout_rate = BARE_TIMEOUTS / _seconds(_bare_timeouts)
        step_rate = STEPS / _seconds(play_steps)
        timeouts.append(timeout_rate)
        steps.append(step_rate)
        ratios.append(timeout_rate / step_rate)
    return Benchmark(
        simpy_timeouts_per_s=median(timeouts),
        simpy_steps_per_s=median(steps),
        timeouts_per_step=median(ratios),
        ops_per_step=len(simulation.graph.ops),
        pieces_per_step=len(simulation.fusion.pieces.ops),
    )


def _bare_timeouts() -> None:
    env = simpy.Environment()

    def tick() -> engine.Process:
        for _ in range(BARE_TIMEOUTS):
            yield env.timeout(1)

    env.process(tick())
    env.run()


def _seconds(work: Callable[[], None]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin

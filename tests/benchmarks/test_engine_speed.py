"""Absolute times for pytest-benchmark; assertions on speed are ratios, in test_speed.py."""

from __future__ import annotations

from pytest_benchmark.fixture import BenchmarkFixture

from sim import shipped
from sim.draws import Noise
from sim.engine import play
from sim.scenario import load
from sim.setup import resolve
from sim.simulate import Simulation

STEPS = 8


def prepared() -> Simulation:
    return Simulation(resolve(load(shipped.find("b300_strong_drafter"))))


def test_draw_and_play_steps(benchmark: BenchmarkFixture) -> None:
    simulation = prepared()
    seconds = simulation.base.seconds([2000] * STEPS)

    def steps() -> None:
        durations = Noise(simulation.setup, simulation.graph, 0).durations(seconds)
        pieces = simulation.fusion.durations(durations)
        simulation.fusion.expand(play(simulation.fusion.pieces, pieces), durations)

    benchmark(steps)


def test_whole_run(benchmark: BenchmarkFixture) -> None:
    simulation = prepared()
    benchmark(simulation.run, 0)

"""Absolute times for pytest-benchmark; assertions on speed are ratios, in test_speed.py."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from sim import batch, engine, shipped
from sim.accounts import Accounts
from sim.choices import EngineName
from sim.critical import critical_time
from sim.draws import Noise, NoisePlan
from sim.graph import IntArray, StepGraph
from sim.scenario import load
from sim.setup import resolve
from sim.simulate import Chunk, Simulation

CHUNK_STEPS = 128
SIMPY_STEPS = 8
PLAYS = {"batch": (batch.play, CHUNK_STEPS), "simpy": (engine.play, SIMPY_STEPS)}


@cache
def prepared(engine_name: EngineName = EngineName.BATCH) -> Simulation:
    return Simulation(resolve(load(shipped.find("b300_strong_drafter"))), engine_name)


def steps_of_a_chunk(steps: int = CHUNK_STEPS) -> Chunk:
    """Durations of *steps* steps, whatever their lengths."""
    simulation = prepared()
    contexts = np.full(steps, simulation.setup.scenario.load.context_tokens)
    mean = simulation.mean_times(contexts)
    return Chunk(np.ones_like(contexts), contexts, mean, noise_of(simulation).durations(mean.kind_s))


def noise_of(simulation: Simulation) -> Noise:
    start = np.array([simulation.setup.scenario.load.context_tokens])
    plan = NoisePlan(simulation.setup.machine, simulation.pieces, simulation.base.seconds(start)[0])
    return Noise(plan, simulation.setup.scenario.seed, 0)


@pytest.mark.parametrize(("play", "steps"), PLAYS.values(), ids=PLAYS.keys())
def test_play_pieces(
    benchmark: BenchmarkFixture, play: Callable[[StepGraph, IntArray], IntArray], steps: int
) -> None:
    benchmark.extra_info["steps"] = steps
    benchmark(play, prepared().pieces.graph, steps_of_a_chunk(steps).durations)


def test_draw_a_chunk(benchmark: BenchmarkFixture) -> None:
    noise, kinds = noise_of(prepared()), steps_of_a_chunk().mean.kind_s
    benchmark.extra_info["steps"] = CHUNK_STEPS
    benchmark(noise.durations, kinds)


def test_draw_the_normals_of_a_chunk_with_numpy_alone(benchmark: BenchmarkFixture) -> None:
    values = np.empty((CHUNK_STEPS, prepared().values_per_step))
    benchmark.extra_info["steps"] = CHUNK_STEPS
    benchmark(np.random.default_rng(1).standard_normal, out=values)


def test_mean_times_of_a_chunk(benchmark: BenchmarkFixture) -> None:
    contexts = steps_of_a_chunk().contexts
    benchmark.extra_info["steps"] = CHUNK_STEPS
    benchmark(prepared().mean_times, contexts)


def test_critical_time_of_a_chunk(benchmark: BenchmarkFixture) -> None:
    pieces, durations = prepared().pieces, steps_of_a_chunk().durations
    end = batch.play(pieces.graph, durations)
    benchmark.extra_info["steps"] = CHUNK_STEPS
    benchmark(critical_time, pieces.graph, durations, end, pieces.kind_of, pieces.kind_count)


def test_book_a_chunk(benchmark: BenchmarkFixture) -> None:
    simulation, chunk = prepared(), steps_of_a_chunk()
    accounts = Accounts(simulation.pieces, simulation.base.sources())
    end = batch.play(simulation.pieces.graph, chunk.durations)
    benchmark.extra_info["steps"] = CHUNK_STEPS
    benchmark(accounts.records, *chunk, end)


def test_draw_acceptance_of_a_run(benchmark: BenchmarkFixture) -> None:
    model, tokens = prepared().acceptance, prepared().setup.scenario.load.output_tokens
    benchmark(model.draw, np.random.default_rng(1), tokens)


@pytest.mark.parametrize("engine_name", EngineName)
def test_whole_run(benchmark: BenchmarkFixture, engine_name: EngineName) -> None:
    simulation = prepared(engine_name)
    benchmark.extra_info["steps"] = len(simulation.run(0).steps.lengths)
    benchmark(simulation.run, 0)


def test_prepare_a_simulation(benchmark: BenchmarkFixture) -> None:
    """What a cell of a sweep pays before its first run."""
    setup = prepared().setup
    benchmark(Simulation, setup)

"""Speed as ratios within one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median

import pytest

from sim import shipped
from sim.bench import Benchmark, benchmark
from sim.scenario import load
from sim.setup import resolve


@pytest.fixture(scope="module")
def measured() -> Benchmark:
    """Medians over rounds; each round measures both sides of every ratio in turn."""
    return benchmark(resolve(load(shipped.find("b300_strong_drafter"))))


def test_a_step_costs_at_most_8000_bare_timeouts(measured: Benchmark) -> None:
    assert measured.timeouts_per_step <= 8000
    assert measured.pieces_per_step < measured.ops_per_step


def test_the_batch_engine_plays_20_times_the_steps_of_the_simpy_engine(measured: Benchmark) -> None:
    # About 70 on a quiet machine. Both sides are the median of rounds of a few hundredths of a
    # second, so that a neighbour busy during some rounds only moves both; the rest is margin.
    assert measured.batch_over_simpy >= 20
    assert measured.batch_steps_per_s > measured.simpy_steps_per_s


def test_a_step_costs_at_most_6_times_its_random_numbers(measured: Benchmark) -> None:
    # About 3 on a quiet machine; numpy's normals never leave the cache, and a step's arrays do,
    # so a neighbour that fills the cache or the memory bus slows the step alone.
    assert 1 < measured.batch_over_random < 6
    assert measured.values_per_step < measured.pieces_per_step + 10


def seconds(*command: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    return time.perf_counter() - begin


def test_help_answers_within_five_imports_of_numpy() -> None:
    pairs = [(seconds("-m", "sim", "--help"), seconds("-c", "import numpy")) for _ in range(5)]
    assert median(help_s / numpy_s for help_s, numpy_s in pairs) <= 5


def test_bench_prints_its_keys() -> None:
    command = [sys.executable, "-m", "sim", "bench", "--json"]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found = json.loads(printed)
    assert found["timeouts_per_step"] > 0
    assert found.keys() >= {"simpy_timeouts_per_s", "simpy_steps_per_s", "timeouts_per_step"}
    assert found["batch_over_simpy"] > 0
    assert found["batch_over_random"] > 0

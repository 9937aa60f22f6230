"""Speed as ratios within one run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from statistics import median

from sim import shipped
from sim.bench import benchmark
from sim.scenario import load
from sim.setup import resolve


def test_a_step_costs_at_most_8000_bare_timeouts() -> None:
    result = benchmark(resolve(load(shipped.find("b300_strong_drafter"))))
    assert result.timeouts_per_step <= 8000
    assert result.pieces_per_step < result.ops_per_step


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

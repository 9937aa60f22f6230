"""Laws of loads: more requests, longer contexts, and drafts that land nothing."""

from __future__ import annotations

import time
from functools import cache
from statistics import median

import numpy as np
import pytest
from builders import full_setup, small_setup, with_dispatch, without_noise
from hypothesis import given, settings
from hypothesis import strategies as st

from sim import batch, shipped
from sim.replay import replay
from sim.scenario import load
from sim.setup import Setup, resolve
from sim.simulate import Simulation

PLAIN = ("tree.budget=0", "acceptance={length: 1}")
STACKS = ["sglang", "vllm", "native"]
MACHINES = [
    ("gpu=b300_sxm", "interconnect=nvlink5"),
    ("gpu=h200_sxm", "interconnect=nvlink4"),
    ("gpu=rtx_pro_6000_server", "interconnect=pcie5_dual_socket_tuned"),
]
machines = st.sampled_from(MACHINES)
stacks = st.sampled_from(STACKS)


@cache
def step_ms(*overrides: str) -> float:
    """Mean time of a step of 16 layers without noise, all contexts at their start.

    Scheduling takes no time, so that a plain step does not hide behind it.
    """
    setup = with_dispatch(small_setup(*overrides, layers=16), schedule_us=0)
    simulation = Simulation(without_noise(setup))
    contexts = np.array([setup.scenario.load.context_tokens])
    mean = simulation.mean_times(contexts)
    durations = np.rint(1e9 * mean.kind_s[:, simulation.pieces.kind_of]).astype(np.int64)
    return float(batch.play(simulation.pieces.graph, durations).max()) / 1e6


def tok_s(requests: int, *overrides: str) -> float:
    """Tokens a second of plain decoding, all requests together."""
    return requests / step_ms(*PLAIN, *overrides, f"load.concurrency={requests}") * 1e3


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("machine", MACHINES)
def test_plain_throughput_never_falls_as_requests_double(machine: tuple[str, ...], stack: str) -> None:
    found = [tok_s(2**n, *machine, f"stack={stack}") for n in range(9)]
    assert found == sorted(found)


@settings(max_examples=12)
@given(machines, st.integers(1, 200), st.integers(1, 40))
def test_plain_throughput_never_falls_with_more_requests(
    machine: tuple[str, ...], requests: int, more: int
) -> None:
    # Padding to the next captured batch is not free. On vLLM it may cost more: from 256 KB on, 18 requests
    # of Kimi K2.6, NCCL sums them.
    few, many = (tok_s(n, *machine) for n in (requests, requests + more))
    assert few <= many * 1.01


@settings(max_examples=12)
@given(machines, stacks, st.sampled_from([(), PLAIN]), st.integers(0, 60_000), st.integers(1, 60_000))
def test_a_longer_context_never_makes_a_step_faster(
    machine: tuple[str, ...], stack: str, how: tuple[str, ...], context: int, more: int
) -> None:
    here = [*machine, f"stack={stack}", *how, "load.output_tokens=1"]
    short, long = (step_ms(*here, f"load.context_tokens={n}") for n in (context, context + more))
    assert short <= long


@settings(max_examples=6)
@given(st.sampled_from([1, 2, 4, 8]), st.integers(0, 60_000), st.integers(1, 60_000))
def test_nor_with_shards_of_it(dcp: int, context: int, more: int) -> None:
    short, long = (step_ms(f"dcp={dcp}", f"load.context_tokens={n}") for n in (context, context + more))
    assert short <= long


@pytest.mark.parametrize("stack", STACKS)
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("requests", [1, 8])
@pytest.mark.parametrize("shape", ["ddtree", "chain"])
def test_drafts_that_land_nothing_are_slower_than_plain_decoding(
    machine: tuple[str, ...], stack: str, requests: int, shape: str
) -> None:
    here = (*machine, f"stack={stack}", f"load.concurrency={requests}", "acceptance={length: 1}")
    plain = step_ms(*here, "tree.budget=0")
    for budget in (1, 4, 7):
        assert step_ms(*here, f"tree={{budget: {budget}, shape: {shape}}}") > plain


BATCHES = [
    ("load.concurrency=3",),
    ("load.concurrency=9", "stack=vllm"),
    ("load.concurrency=4", *PLAIN),
    ("load.concurrency=4", "dcp=2", "experts.ep=4"),
    ("load.concurrency=5", "tree.workers=3", "stack=native"),
    ("load.concurrency=20", "stack=vllm", "tree.budget=40", "capture_limit=lifted"),
]


@pytest.mark.parametrize("overrides", BATCHES)
def test_both_engines_agree_to_the_nanosecond_on_batches(overrides: tuple[str, ...]) -> None:
    simulation = Simulation(small_setup("load.output_tokens=24", *overrides))
    assert replay(simulation, [simulation.run(0), simulation.run(1)]).steps > 0


@pytest.mark.parametrize("name", ["b300_now", "pro6000_now"])
def test_one_request_in_a_closed_loop_is_a_run(name: str) -> None:
    simulation = Simulation(resolve(load(shipped.find(name))))
    decoded = simulation.decoded(0)
    assert decoded.lengths.shape[1] == 1
    assert decoded.first_steps.tolist() == [len(decoded.lengths)]
    assert simulation.run(0).steps.lengths.tolist() == decoded.lengths.tolist()


def thousand_steps(requests: int) -> Setup:
    return full_setup(
        *PLAIN, "gpu=b300_sxm", "load.output_tokens=1000", f"load.concurrency={requests}"
    )  # fmt: skip


def test_a_thousand_steps_of_32_requests_take_at_most_three_times_those_of_one() -> None:
    simulations = [Simulation(thousand_steps(requests)) for requests in (1, 32)]
    ratios = []
    for attempt in range(4):
        took = []
        for simulation in simulations:
            begin = time.perf_counter()
            steps = simulation.run(attempt).steps
            took.append(time.perf_counter() - begin)
            assert len(steps.step_ns) == 1000
        ratios.append(took[1] / took[0])
    # About 1: a batch has as many ops as a request; the first attempt also compiles.
    assert median(ratios[1:]) <= 3


def test_so_do_a_thousand_steps_with_drafts() -> None:
    ratios = []
    simulations = [
        Simulation(full_setup("load.output_tokens=2000", "acceptance={length: 2}", f"load.concurrency={n}"))
        for n in (1, 32)
    ]
    for attempt in range(4):
        took = []
        for simulation in simulations:
            begin = time.perf_counter()
            assert len(simulation.run(attempt).steps.step_ns) == 1000
            took.append(time.perf_counter() - begin)
        ratios.append(took[1] / took[0])
    assert median(ratios[1:]) <= 3

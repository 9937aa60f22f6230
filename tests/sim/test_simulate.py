"""Whole runs: reproducible anywhere, independent of one another, and fully accounted for."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import numpy as np
import oracle
import pytest
from builders import plain_data, small_setup, without_noise

from sim import simulate
from sim.choices import EngineName
from sim.graph import IntArray, StepGraph
from sim.records import Run, StepRecords
from sim.setup import Setup
from sim.simulate import Simulation

ROOT = Path(__file__).parents[2]
SCENARIOS = {
    "tree": (),
    "tree on the GPU": ("tree.builder=gpu",),
    "eager": ("tree.budget=9",),
    "plain": ("tree.budget=0", "acceptance={length: 1}", "load.concurrency=4"),
    "varied": (
        "acceptance={mean_length: 4.4, request_sd: 0.5, step_correlation: 0.2, decay_per_1k_context: 1}",
    ),
    "one rank": ("gpus=1",),
    "four ranks": ("gpus=4",),
}
any_scenario = pytest.mark.parametrize("name", SCENARIOS)
DIGEST = """
import hashlib
from builders import plain_data, small_setup
from sim.simulate import Simulation
simulation = Simulation(small_setup())
print(hashlib.sha256(repr([plain_data(simulation.run(i).steps) for i in range(2)]).encode()).hexdigest())
"""


@cache
def setup(name: str) -> Setup:
    """One of the scenarios on two layers."""
    return small_setup(*SCENARIOS[name])


@cache
def first_run(name: str) -> Run:
    """Its run 0."""
    return Simulation(setup(name)).run(0)


def reseeded(name: str, seed: int) -> Setup:
    """The same scenario with another seed."""
    return replace(setup(name), scenario=setup(name).scenario.model_copy(update={"seed": seed}))


def start(hash_seed: str) -> subprocess.Popen[str]:
    """A process of its own that prints what it makes of two runs."""
    paths = [str(ROOT), str(ROOT / "tests" / "support"), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {
        "PYTHONHASHSEED": hash_seed,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
    }
    return subprocess.Popen(
        [sys.executable, "-c", DIGEST], env=environment, stdout=subprocess.PIPE, text=True
    )


def test_a_seed_gives_the_same_bytes_in_any_process() -> None:
    processes = [start(hash_seed) for hash_seed in ("0", "12345")]
    digests = [process.communicate()[0].strip() for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(digests[0]) == 64
    assert digests[0] == digests[1]


@any_scenario
def test_a_run_is_the_same_whatever_ran_before(name: str) -> None:
    simulation = Simulation(setup(name))
    simulation.run(2)
    simulation.run(1)
    assert plain_data(simulation.run(0).steps) == plain_data(first_run(name).steps)


def test_runs_and_seeds_differ() -> None:
    other_run = Simulation(setup("tree")).run(1)
    other_seed = Simulation(reseeded("tree", 2)).run(0)
    totals = {run.duration_ns for run in (first_run("tree"), other_run, other_seed)}
    assert len(totals) == 3


def test_every_run_and_every_seed_draws_lengths_of_its_own() -> None:
    runs = [Simulation(reseeded("tree", seed)).run(index) for seed in (1, 2) for index in (0, 1, 2)]
    assert len({tuple(run.steps.lengths.ravel().tolist()) for run in runs}) == 6


def test_runs_of_the_same_lengths_still_take_different_times() -> None:
    simulation = Simulation(small_setup("acceptance={length: 5}"))
    first, second = (simulation.run(index).steps for index in (0, 1))
    assert first.lengths.tolist() == second.lengths.tolist()
    assert (first.step_ns != second.step_ns).all()


@any_scenario
@pytest.mark.parametrize("size", [1, 3, 13, 1000])
def test_the_size_of_a_chunk_never_changes_the_result(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    again = Simulation(setup(name))
    monkeypatch.setattr(simulate, "CHUNK_DURATIONS", size * len(again.pieces.graph.ops))
    assert plain_data(again.run(0).steps) == plain_data(first_run(name).steps)


@any_scenario
def test_the_longest_path_gives_the_same_records_as_the_engine(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(simulate.ENGINES, EngineName.SIMPY, oracle.play)
    by_oracle = Simulation(setup(name), EngineName.SIMPY).run(0)
    assert plain_data(by_oracle.steps) == plain_data(first_run(name).steps)


@any_scenario
@pytest.mark.parametrize("groups", ["component_ns", "phase_ns", "source_ns"])
def test_shares_of_the_critical_path_add_up_to_every_step(name: str, groups: str) -> None:
    steps = first_run(name).steps
    parts = getattr(steps, groups)
    assert (parts >= 0).all()
    assert parts.sum(axis=1).tolist() == steps.step_ns.tolist()


@any_scenario
def test_a_run_is_its_chunks_played_end_to_end(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation, steps = Simulation(setup(name)), first_run(name).steps
    # A duration more does not make a step more.
    monkeypatch.setattr(simulate, "CHUNK_DURATIONS", 5 * len(simulation.pieces.graph.ops) + 1)
    chunks = list(simulation.chunks(0))
    assert [len(chunk.lengths) for chunk in chunks[:-1]] == [5] * (len(chunks) - 1)
    assert np.concatenate([chunk.lengths for chunk in chunks]).tolist() == steps.lengths.tolist()
    assert np.concatenate([chunk.contexts for chunk in chunks]).tolist() == steps.contexts.tolist()
    ends = [oracle.play(simulation.pieces.graph, chunk.durations).max(axis=1) for chunk in chunks]
    assert np.concatenate(ends).tolist() == steps.step_ns.tolist()


def test_a_chunk_is_never_shorter_than_a_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate, "CHUNK_DURATIONS", 1)
    lengths = [len(chunk.lengths) for chunk in Simulation(setup("tree")).chunks(0)]
    assert lengths == [1] * len(first_run("tree").steps.lengths)


@any_scenario
def test_without_noise_a_piece_takes_its_rounded_mean_time_at_every_context(name: str) -> None:
    simulation = Simulation(without_noise(setup(name)))
    chunk = next(simulation.chunks(0))
    mean = simulation.mean_times(chunk.contexts)
    assert mean.label_s.tolist() == simulation.base.seconds(chunk.contexts).tolist()
    expected = np.rint(1e9 * mean.kind_s[:, simulation.pieces.kind_of])
    assert np.abs(chunk.durations - expected).max() == 0


def test_the_batch_engine_plays_unless_another_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[StepGraph] = []

    def heard(graph: StepGraph, durations: IntArray) -> IntArray:
        asked.append(graph)
        return oracle.play(graph, durations)

    monkeypatch.setitem(simulate.ENGINES, EngineName.BATCH, heard)
    simulation = Simulation(setup("tree"))
    simulation.run(0)
    assert asked == [simulation.pieces.graph]


@any_scenario
def test_a_run_in_one_line_is_its_steps_added_up(name: str) -> None:
    run = first_run(name)
    result, steps = run.result, run.steps
    assert (result.index, result.requests) == (run.index, run.requests)
    assert (result.steps, result.tokens) == (len(steps.lengths), run.tokens)
    assert result.duration_ns == steps.step_ns.sum()
    assert result.throughput_tok_s == run.throughput_tok_s
    assert result.mean_length == pytest.approx(steps.lengths.mean())
    assert result.mean_step_ns == pytest.approx(steps.step_ns.mean())


@any_scenario
def test_lengths_add_up_to_the_output(name: str) -> None:
    run, load = first_run(name), setup(name).scenario.load
    lengths = run.steps.lengths
    assert lengths.shape == (len(run.steps.step_ns), load.concurrency)
    assert run.tokens == lengths.sum()
    for slot, steps in enumerate(run.first_steps.tolist()):
        first = lengths[:steps, slot]
        assert first.sum() >= load.output_tokens > first[:-1].sum()
    assert run.first_steps.max() == len(lengths)


@any_scenario
def test_contexts_grow_by_what_was_committed(name: str) -> None:
    steps, load = first_run(name).steps, setup(name).scenario.load
    assert steps.contexts[0] == load.context_tokens
    # All of the first requests are there until the first of them leaves.
    whole = int(first_run(name).first_steps.min())
    committed = np.cumsum(steps.lengths[:whole].mean(axis=1))
    assert steps.contexts[1:whole] == pytest.approx(load.context_tokens + committed[:-1], abs=0.5)


@any_scenario
def test_every_record_has_one_row_per_step(name: str) -> None:
    steps = first_run(name).steps
    for field in fields(StepRecords):
        assert len(getattr(steps, field.name)) == len(steps.lengths)


@any_scenario
def test_no_lane_is_busy_longer_than_the_step(name: str) -> None:
    steps = first_run(name).steps
    assert (steps.busy_ns >= 0).all()
    assert (steps.busy_ns <= steps.step_ns[:, None]).all()


@any_scenario
def test_a_run_lasts_as_long_as_its_steps_and_throughput_is_tokens_over_time(name: str) -> None:
    run = first_run(name)
    assert run.duration_ns == int(run.steps.step_ns.sum())
    assert run.throughput_tok_s == pytest.approx(run.tokens / run.duration_ns * 1e9)


@any_scenario
def test_waits_at_collectives_are_never_negative(name: str) -> None:
    steps = first_run(name).steps
    assert (steps.allreduce_wait_ns >= 0).all()
    assert (steps.allreduce_transfer_ns >= 0).all()


def test_one_rank_neither_waits_nor_transfers() -> None:
    steps = first_run("one rank").steps
    assert steps.allreduce_transfer_ns.tolist() == [0] * len(steps.lengths)
    assert steps.allreduce_wait_ns.tolist() == [0] * len(steps.lengths)


def test_equal_ranks_launched_as_a_graph_never_wait_for_one_another() -> None:
    steps = Simulation(without_noise(small_setup())).run(0).steps
    assert (steps.allreduce_transfer_ns > 0).all()
    assert steps.allreduce_wait_ns.tolist() == [0] * len(steps.lengths)


def test_ranks_wait_for_a_slower_one() -> None:
    steps = Simulation(without_noise(small_setup(), rank_cv=0.05)).run(0).steps
    assert (steps.allreduce_wait_ns > 0).all()


def test_a_listener_hears_of_every_run_in_order() -> None:
    heard: list[Run] = []
    played = list(simulate.play(Simulation(setup("tree")), 3, (heard.append,)))
    assert heard == played
    assert [run.index for run in played] == [0, 1, 2]


def test_another_mean_length_changes_the_steps_and_not_their_durations() -> None:
    longer = Simulation(setup("tree"), mean_length=7.0).run(0).steps
    usual = first_run("tree").steps
    assert len(longer.lengths) < len(usual.lengths)
    assert longer.step_ns[0] == usual.step_ns[0]


def test_two_budgets_meet_the_same_luck() -> None:
    """Acceptance draws and base noise pair: only the verify pass grows."""
    common = ("acceptance={hazard: 0.8}", "capture_limit=lifted")
    small, large = (Simulation(small_setup(*common, f"tree.budget={b}")).run(0).steps for b in (8, 32))
    assert small.lengths.tolist() == large.lengths.tolist()
    assert np.corrcoef(small.step_ns, large.step_ns)[0, 1] > 0.9


@pytest.mark.parametrize("launch", ["tree.budget=8", "tree.budget=9"])
def test_waiting_for_the_host_is_not_waiting_for_other_ranks(launch: str) -> None:
    # Budget 9 runs eagerly on sm_103: every kernel waits for its own launch.
    setup = without_noise(small_setup(launch, "load.output_tokens=1"))
    assert Simulation(setup).run(0).steps.allreduce_wait_ns[0] == 0


def test_ranks_wait_for_the_slowest_on_average() -> None:
    setup = without_noise(small_setup("load.output_tokens=1"), rank_cv=0.02)
    assert Simulation(setup).run(0).steps.allreduce_wait_ns[0] > 0

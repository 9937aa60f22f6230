"""Levers: what better parts of a step bring, by playing it again."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from itertools import pairwise
from pathlib import Path

import numpy as np
import oracle
import pytest
from builders import full_setup, small_setup, with_noise, without_noise
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from measuring import kimi_file
from numpy.typing import NDArray
from strategies import Case, cases

from hwmodels import measured
from hwmodels.sampled import Samples
from hwmodels.work import AllReduce
from sim import batch, shipped
from sim import scenario as scenarios
from sim.answer import answer
from sim.batching import Batch
from sim.errors import SimulationError
from sim.graph import Component, GraphBuilder, Lane, Phase
from sim.levers.effects import LeverBench, memory_factors
from sim.levers.kinds import ON_WORK, Degree, Group, Lever, acts_on, split_transfer
from sim.levers.played import PlayedSteps, drawn_together, joining, same_work
from sim.levers.study import Task
from sim.setup import Setup, resolve
from sim.simulate import Simulation

FloatArray = NDArray[np.float64]
RUNS, STEPS = 3, 8
MACHINES = {
    "tree on the host": (),
    "tree on the GPU, native": ("tree.builder=gpu", "stack=native"),
    "plain": ("tree.budget=0",),
    "chain": ("tree.shape=chain", "tree.budget=7"),
    "four requests with prefill": ("load.prefill=true", "load.concurrency=4"),
    "kernel by kernel": ("tree.budget=16",),
    "one GPU": ("gpus=1",),
    "PCIe": ("gpu=rtx_pro_6000_server", "interconnect=pcie5_dual_socket", "host=epyc_dual"),
}


@cache
def small(machine: str) -> PlayedSteps:
    """A few steps of a model of two layers."""
    return PlayedSteps.of(Simulation(small_setup(*MACHINES[machine])), RUNS, STEPS)


@cache
def bench(machine: str) -> LeverBench:
    return LeverBench(small(machine))


@cache
def shipped_setup(name: str) -> Setup:
    return resolve(scenarios.load(shipped.find(name)))


def few(setup: Setup) -> PlayedSteps:
    return PlayedSteps.of(Simulation(setup), RUNS, STEPS)


def with_samples(folder: Path) -> Setup:
    """A small model on a GPU with samples of nearly all its work, made up."""
    setup = small_setup()
    samples = Samples(measured.read(kimi_file(folder), allow_emulated=True))
    return replace(setup, machine=replace(setup.machine, samples=samples))


# --- laws of the step graph -------------------------------------------------------------------------


def slack(case: Case, step: int, op: int) -> int:
    """How much longer *op* may take before the step does: the step less the longest path through it."""
    graph, durations = case
    through = durations[step].copy()
    long = int(durations[step].sum()) + 1
    through[op] += long
    whole = max(oracle.finish_times(graph, durations[step].tolist()))
    return whole - (max(oracle.finish_times(graph, through.tolist())) - long)


@given(cases(min_ops=1), st.data())
def test_doubling_or_halving_what_is_off_the_critical_path_changes_nothing(
    case: Case, data: st.DataObject
) -> None:
    """An op that takes at most half of the room that the others leave it."""
    graph, durations = case
    op = data.draw(st.integers(0, len(graph.ops) - 1))
    durations[:, op] = 0
    before = batch.play(graph, durations).max(axis=1)
    room = np.array([slack(case, step, op) for step in range(len(durations))])
    for share in (2, 4, 1):
        durations[:, op] = room // share
        assert batch.play(graph, durations).max(axis=1).tolist() == before.tolist()
    durations[:, op] = room + 1
    assert batch.play(graph, durations).max(axis=1).tolist() == (before + 1).tolist()


# --- played steps -------------------------------------------------------------------------------------


def factors_for(played: PlayedSteps, least: float, most: float) -> st.SearchStrategy[FloatArray]:
    return hnp.arrays(float, len(played.label_s), elements=st.floats(least, most))


@pytest.mark.parametrize("machine", MACHINES)
def test_factors_of_one_change_nothing_to_the_nanosecond(machine: str) -> None:
    played = small(machine)
    simulation, requests = played.simulation, played.simulation.setup.requests
    steady = Batch(
        lengths=np.ones((STEPS, requests), dtype=np.int64),
        contexts=np.full((STEPS, requests), played.contexts[0]),
        joined=np.full(STEPS, joining(simulation)),
        first_steps=np.full(requests, STEPS),
    )
    for run, steps in enumerate(played.step_ns(played.unchanged)):
        assert steps.tolist() == simulation.played(run, steady).step_ns.tolist()
    assert (played.step_ns(played.unchanged) == played.step_ns(played.unchanged, skew=1.0)).all()


@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=15)
@given(st.data())
def test_shorter_work_never_makes_a_step_longer(machine: str, data: st.DataObject) -> None:
    played = small(machine)
    low = data.draw(factors_for(played, 0.0, 1.0))
    high = low + data.draw(factors_for(played, 0.0, 1.0))
    assert (played.step_ns(low) <= played.step_ns(high)).all()


@pytest.mark.parametrize("machine", MACHINES)
@settings(max_examples=15)
@given(st.data())
def test_amdahls_bound_holds_for_any_better_work(machine: str, data: st.DataObject) -> None:
    """The critical path is still there, shortened: no step is shorter than it."""
    played = small(machine)
    factors = data.draw(factors_for(played, 0.0, 1.0))
    rounding_s = len(played.simulation.pieces.graph.ops) * 1e-9
    assert played.step_ns(factors).mean() * 1e-9 >= played.critical_s() @ factors - rounding_s


def test_the_critical_path_adds_up_to_the_step() -> None:
    for machine in MACHINES:
        played = small(machine)
        whole = played.step_ns(played.unchanged).mean() * 1e-9
        assert played.critical_s().sum() == pytest.approx(whole, rel=1e-12)


@given(hnp.arrays(np.int64, (2, 12), elements=st.integers(0, 10**6)), st.floats(0, 1), st.floats(0, 1))
def test_ranks_that_differ_less_never_make_a_step_longer(
    drawn: NDArray[np.int64], one: float, other: float
) -> None:
    """Chains of three kernels on four ranks, each joined by a collective."""
    builder, ranks = GraphBuilder(), 4
    lanes = [Lane(f"gpu{rank}", "compute") for rank in range(ranks)]
    for _ in range(3):
        for rank in range(ranks):
            builder.add(Phase.VERIFY, Component.DENSE, AllReduce(1, 1), [lanes[rank]], rank=rank)
        builder.add(Phase.VERIFY, Component.ALLREDUCE, AllReduce(8, ranks), lanes)
    graph = builder.build()
    of_ranks = same_work(graph)
    durations = np.zeros((2, len(graph.ops)), dtype=np.int64)
    durations[:, of_ranks.T.ravel()] = drawn
    low, high = sorted([one, other])
    step = [batch.play(graph, drawn_together(durations, of_ranks, skew)).max(axis=1) for skew in (low, high)]
    assert (step[0] <= step[1] + len(graph.ops)).all()
    assert (step[1] <= batch.play(graph, durations).max(axis=1)).all()
    together = drawn_together(durations, of_ranks, 0.0)[:, of_ranks]
    assert (together == together[:, :1]).all()


def test_ranks_with_other_work_are_refused() -> None:
    builder = GraphBuilder()
    for rank in range(2):
        lane = Lane(f"gpu{rank}", "compute")
        builder.add(Phase.VERIFY, Component.DENSE, AllReduce(rank, 1), [lane], rank=rank)
    with pytest.raises(SimulationError, match="same work"):
        same_work(builder.build())


# --- levers -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", MACHINES)
def test_better_is_never_slower_and_free_is_best(machine: str) -> None:
    asked = bench(machine)
    for lever in asked.levers:
        effect = asked.effect(lever)
        ladder = [effect.worse_tok_s, asked.base.tok_s, *(effect.tok_s[degree] for degree in Degree)]
        # Ranks drawn together are rounded, by a nanosecond a piece.
        slip = 1e-6 if lever is Lever.ARRIVAL_SKEW else 0.0
        assert all(after >= before * (1 - slip) for before, after in pairwise(ladder)), lever
        assert effect.elasticity >= -slip


@pytest.mark.parametrize("machine", MACHINES)
def test_no_lever_beats_amdahl(machine: str) -> None:
    asked = bench(machine)
    for lever in asked.levers:
        effect = asked.effect(lever)
        for degree in Degree:
            if effect.bound_tok_s is not None:
                step_s = asked.base.step_s * asked.base.tok_s / effect.tok_s[degree]
                bound_s = asked.base.step_s * asked.base.tok_s / effect.bound_tok_s[degree]
                assert step_s >= bound_s - 2e-6, (lever, degree)


def test_where_nothing_overlaps_amdahl_is_exact() -> None:
    """One GPU, no noise: experts, dense GEMMs and attention run one after another."""
    asked = LeverBench(few(without_noise(small_setup("gpus=1"))))
    for lever in (Lever.EXPERTS, Lever.DENSE, Lever.ATTENTION, Lever.SYNC):
        effect = asked.effect(lever)
        assert effect.share
        assert effect.bound_tok_s is not None
        for degree in Degree:
            assert effect.tok_s[degree] == pytest.approx(effect.bound_tok_s[degree], rel=1e-4)


def test_where_the_host_works_beside_the_drafter_amdahl_promises_too_much() -> None:
    asked = LeverBench(few(without_noise(full_setup())))
    effect, base = asked.effect(Lever.DRAFTER), asked.base.tok_s
    assert effect.bound_tok_s is not None
    assert effect.gain(Degree.FREE, base) < 0.5 * (effect.bound_tok_s[Degree.FREE] / base - 1)


def test_host_work_beside_the_gpus_is_no_lever() -> None:
    """Scheduled ahead, plain decoding hides its host: half or twice of it are the same nanoseconds."""
    played = few(without_noise(full_setup("tree.budget=0", "stack=native")))
    asked = LeverBench(played)
    before = played.step_ns(played.unchanged)
    for kept in (0.5, 2.0):
        assert (played.step_ns(asked.factors(Lever.HOST, kept)) == before).all()
    assert asked.effect(Lever.HOST).tok_s[Degree.FREE] == asked.base.tok_s


@pytest.mark.parametrize("machine", MACHINES)
def test_every_piece_of_work_has_its_levers(machine: str) -> None:
    played = small(machine)
    setup, labels = played.simulation.setup, played.simulation.pieces.labels
    found = acts_on(setup, labels)
    parts = sum(share for lever, share in found.items() if lever.group is Group.WORK)
    assert (parts[played.label_s > 0] >= 1 - 1e-12).all()
    assert found[Lever.HOST] + found[Lever.DEVICES] == pytest.approx(1)
    assert all(((share >= 0) & (share <= 1)).all() for share in found.values())
    assert set(found) <= set(ON_WORK)


@given(st.integers(0, 10**8))
def test_a_transfer_is_split_into_what_grows_with_bytes_and_what_does_not(size: int) -> None:
    setup = full_setup()
    parts = split_transfer(setup, AllReduce(size, 8))
    whole = setup.costs.estimate(AllReduce(size, 8)).seconds
    assert parts.latency_s + parts.bytes_s == pytest.approx(whole)
    assert parts.latency_s >= 0
    assert parts.bytes_s >= 0
    assert parts.latency_s <= split_transfer(setup, AllReduce(10**8, 8)).latency_s + 1e-12


def test_a_long_transfer_is_nearly_all_bandwidth() -> None:
    """Beyond its table a ring moves 2 (n - 1) / n of the bytes over the link."""
    setup = full_setup()
    size = 10**9
    wire_s = 2 * 7 / 8 * size / (setup.machine.interconnect.bandwidth_gb_s.value * 1e9)
    parts = split_transfer(setup, AllReduce(size, 8))
    assert parts.bytes_s == pytest.approx(wire_s, rel=0.1)
    assert parts.latency_s < 0.01 * wire_s


@pytest.mark.parametrize("machine", MACHINES)
def test_memory_factors_fall_with_bandwidth(machine: str) -> None:
    played = small(machine)
    assert memory_factors(played, 1.0) == pytest.approx(1.0, abs=1e-12)
    before = played.unchanged
    for times in (1.1, 2.0, np.inf):
        factors = memory_factors(played, times)
        assert (factors <= before + 1e-12).all()
        assert (factors >= 0).all()
        before = factors


def test_samples_follow_the_bandwidth_of_memory(tmp_path: Path) -> None:
    setup = with_samples(tmp_path)
    played = few(setup)
    labels = played.simulation.pieces.labels
    experts = [at for at, label in enumerate(labels) if label.component is Component.EXPERTS]
    factors = memory_factors(played, 2.0)
    assert setup.costs.estimate(labels[experts[0]].work).blend is not None
    floor_s = setup.machine.gpu.kernel_floor_us.value * 1e-6
    mean_s = played.label_s[experts]
    assert played.label_s[experts] * factors[experts] == pytest.approx(floor_s + (mean_s - floor_s) / 2)


def test_samples_take_a_factor_like_everything_else(tmp_path: Path) -> None:
    played = few(with_samples(tmp_path))
    whole = played.durations(0, played.unchanged)
    half = played.durations(0, played.unchanged / 2)
    assert half == pytest.approx(whole / 2, abs=2)
    assert not played.durations(0, played.unchanged * 0).any()


def test_acceptance_closes_the_gap_to_the_longest_length() -> None:
    asked = bench("tree on the host")
    effect, base = asked.effect(Lever.ACCEPTANCE), asked.base
    gap = 8 - base.mean_length
    for degree in Degree:
        expected = base.tok_s * (base.mean_length + degree.value * gap) / base.mean_length
        assert effect.tok_s[degree] == pytest.approx(expected)
    assert effect.elasticity == pytest.approx(1)


def test_longer_acceptance_brings_more_prefill() -> None:
    """Requests stay for fewer steps, so more of each step is their prefill."""
    asked = bench("four requests with prefill")
    effect, base = asked.effect(Lever.ACCEPTANCE), asked.base
    assert effect.tok_s[Degree.FREE] < base.tok_s * 8 / base.mean_length


def test_no_skew_is_no_waiting_for_slow_ranks() -> None:
    """Without any other noise, ranks in step take what a step without noise takes."""
    quiet = without_noise(small_setup())
    uneven = with_noise(quiet, rank_cv=0.05)
    asked = LeverBench(few(uneven))
    free = asked.effect(Lever.ARRIVAL_SKEW).tok_s[Degree.FREE]
    played = few(uneven)
    together = [played.durations(run, played.unchanged, 0.0) for run in range(RUNS)]
    ranks = played.ranks
    assert all((found[:, ranks] == found[:, ranks[:1]]).all() for found in together)
    assert free > asked.base.tok_s


def test_plain_decoding_has_no_acceptance_and_one_gpu_no_skew() -> None:
    assert Lever.ACCEPTANCE not in bench("plain").levers
    assert Lever.DRAFTER not in bench("plain").levers
    assert Lever.ARRIVAL_SKEW not in bench("one GPU").levers
    assert Lever.PREFILL in bench("four requests with prefill").levers


def test_a_model_without_experts_has_levers_too() -> None:
    setup = full_setup("model=qwen3_8b", "drafter.model=qwen3_8b_dflash", "gpus=1")
    asked = LeverBench(few(setup))
    assert not {Lever.EXPERTS, Lever.REST} & set(asked.levers)
    for lever in asked.levers:
        assert asked.effect(lever).tok_s[Degree.FREE] >= asked.base.tok_s


def test_the_articles_overhead_is_answered_from_simulation() -> None:
    """Host work is much of a step today, though not most of it; with the strong drafter experts are more."""
    shares = {}
    for name in ("b300_now", "b300_strong_drafter"):
        asked = LeverBench(few(shipped_setup(name)))
        shares[name] = [asked.effect(lever).share or 0 for lever in (Lever.HOST, Lever.EXPERTS)]
    assert shares["b300_now"][0] > 0.25
    assert shares["b300_strong_drafter"][0] < shares["b300_strong_drafter"][1]
    assert all(host < 0.5 for host, _ in shares.values())


def test_all_levers_take_less_than_sixty_runs() -> None:
    """Even of a run of a quarter as many runs as the scenario asks for."""
    setup = shipped_setup("b300_strong_drafter")
    quarter = replace(setup, scenario=setup.scenario.model_copy(update={"runs": 64}))
    answer(replace(setup, scenario=setup.scenario.model_copy(update={"runs": 2})))
    start = time.process_time()
    answer(quarter)
    between = time.process_time()
    Task.of("b300_strong_drafter", setup).done()
    assert time.process_time() - between < 60 * (between - start)

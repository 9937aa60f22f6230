"""Requests in lock-step: nobody waits, nobody is lost, and one request is what it always was."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from builders import full_setup, small_setup, without_noise
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.errors import HardwareError
from hwmodels.work import AllReduce, GroupedExperts, HostTask, HostWork, MlaAttention
from sim.acceptance import AcceptanceModel
from sim.batching import Batch, Capacity, closed_loop
from sim.errors import SimulationError
from sim.graph import StepGraph
from sim.memory import GIB, cache_bytes, drafter_bytes_per_rank, target_bytes_per_rank
from sim.replay import replay
from sim.scenario import Load
from sim.setup import Setup
from sim.simulate import Simulation
from sim.step import decode_step

models = st.builds(
    AcceptanceModel,
    st.lists(st.floats(0, 1, allow_subnormal=False), max_size=7).map(tuple),
    request_sd=st.sampled_from([0.0, 1.0]),
    step_correlation=st.sampled_from([0.0, 0.5]),
)
loads = st.builds(Load, context_tokens=st.integers(0, 100), output_tokens=st.integers(1, 60))


def decoded(model: AcceptanceModel, load: Load, slots: int, seed: int = 1) -> Batch:
    return closed_loop(model, load, [np.random.default_rng([seed, slot]) for slot in range(slots)])


@given(models, loads, st.integers(1, 6), st.integers(0, 2**32))
def test_every_slot_decodes_request_after_request(
    model: AcceptanceModel, load: Load, slots: int, seed: int
) -> None:
    batch = decoded(model, load, slots, seed)
    assert batch.lengths.shape == batch.contexts.shape == (batch.first_steps.max(), slots)
    assert ((batch.lengths >= 1) & (batch.lengths <= model.cap)).all()
    for slot in range(slots):
        context = load.context_tokens
        for length, found in zip(
            batch.lengths[:, slot].tolist(), batch.contexts[:, slot].tolist(), strict=True
        ):
            assert found == context
            context += length
            if context - load.context_tokens >= load.output_tokens:
                context = load.context_tokens


@given(models, loads, st.integers(0, 2**32))
def test_one_slot_is_one_request(model: AcceptanceModel, load: Load, seed: int) -> None:
    batch = decoded(model, load, 1, seed)
    alone = model.draw(np.random.default_rng([seed, 0]), load.output_tokens)
    assert batch.lengths[:, 0].tolist() == alone.tolist()


@given(models, loads, st.permutations(range(4)))
def test_the_order_of_requests_changes_nothing(model: AcceptanceModel, load: Load, order: list[int]) -> None:
    usual = closed_loop(model, load, [np.random.default_rng(slot) for slot in range(4)])
    other = closed_loop(model, load, [np.random.default_rng(slot) for slot in order])
    assert other.lengths.tolist() == usual.lengths[:, order].tolist()
    assert other.mean_contexts.tolist() == usual.mean_contexts.tolist()


def graph(concurrency: int, *overrides: str) -> StepGraph:
    return decode_step(small_setup(*overrides, f"load.concurrency={concurrency}"))


@pytest.mark.parametrize("overrides", [(), ("tree={shape: chain, budget: 7}",), ("tree.builder=gpu",)])
def test_a_step_has_the_tokens_of_all_requests(overrides: tuple[str, ...]) -> None:
    one, four = graph(1, *overrides), graph(4, *overrides)
    assert len(one.ops) == len(four.ops)
    tokens = [{op.work.tokens for op in g.ops if isinstance(op.work, GroupedExperts)} for g in (one, four)]
    [alone], [together] = tokens
    assert together == 4 * alone
    assert {op.work.requests for op in four.ops if isinstance(op.work, MlaAttention)} == {4}
    sizes = [max(op.work.size_bytes for op in g.ops if isinstance(op.work, AllReduce)) for g in (one, four)]
    assert sizes[1] == 4 * sizes[0]


@pytest.mark.parametrize(("workers", "shares"), [(1, [6]), (2, [3, 3]), (4, [2, 2, 1, 1]), (9, [1] * 6)])
def test_trees_are_shared_out_over_the_workers(workers: int, shares: list[int]) -> None:
    found = graph(6, f"tree.workers={workers}")
    one = next(op.work.items for op in graph(1).ops if op.work == HostWork(HostTask.TREE_BUILD, 25))
    built = [
        op.work for op in found.ops if isinstance(op.work, HostWork) and op.work.task is HostTask.TREE_BUILD
    ]
    assert [work.items for work in built] == [share * one for share in shares]


def test_more_requests_are_more_tokens_and_longer_steps() -> None:
    runs = [
        Simulation(without_noise(small_setup("load.output_tokens=64", f"load.concurrency={c}"))).run(0)
        for c in (1, 2, 4, 8, 16)
    ]
    steps = [float(run.steps.step_ns.mean()) for run in runs]
    assert steps == sorted(steps)
    throughput = [run.throughput_tok_s for run in runs]
    assert throughput == sorted(throughput)


def test_time_per_token_is_that_of_the_request_until_it_left() -> None:
    run = Simulation(small_setup("load.output_tokens=64", "load.concurrency=4")).run(0)
    for slot, last in enumerate(run.first_steps.tolist()):
        took, tokens = run.steps.step_ns[:last].sum(), run.steps.lengths[:last, slot].sum()
        assert run.tpot_ns[slot] == pytest.approx(took / tokens)


def test_both_engines_agree_on_many_requests() -> None:
    simulation = Simulation(small_setup("load.output_tokens=64", "load.concurrency=4", "tree.workers=2"))
    assert replay(simulation, [simulation.run(0)]).steps > 0


def limited(*overrides: str) -> Setup:
    """A load of 24 requests of which fewer fit beside the weights of Kimi K2.6."""
    return full_setup(
        "gpu=rtx_pro_6000_server", "interconnect=pcie5_nccl", "load.context_tokens=60000",
        "load.output_tokens=24", "load.concurrency=24", *overrides,
    )  # fmt: skip


def test_requests_that_do_not_fit_wait() -> None:
    setup = limited()
    blocks, each = setup.capacity
    assert setup.capacity_limited
    assert 1 < setup.requests == blocks // each < 24
    run = Simulation(setup).run(0)
    assert run.requests == run.steps.lengths.shape[1] == setup.requests


def test_what_decodes_is_what_fits_whoever_waits() -> None:
    setup = limited()
    fits = limited(f"load.concurrency={setup.requests}")
    assert not fits.capacity_limited
    assert decode_step(fits).ops == decode_step(setup).ops


def test_the_cache_is_what_the_weights_leave() -> None:
    setup = limited()
    memory, gib = setup.machine.stack.memory, setup.machine.gpu.memory_gib.value
    weights = target_bytes_per_rank(setup.model, 8) + drafter_bytes_per_rank(setup.drafter, 8)
    tokens = setup.capacity.blocks * memory.block_tokens
    used = weights + cache_bytes(setup.model, tokens, setup.scenario.kv.dtype, 8)
    assert used <= gib * memory.fraction.value * GIB
    assert used == pytest.approx(gib * memory.fraction.value * GIB, rel=1e-4)


def test_an_engine_that_is_told_to_use_more_memory_holds_more() -> None:
    told = [limited(f"kv.memory_fraction={fraction}").capacity.blocks for fraction in (0.85, 0.88, 0.95)]
    assert told[0] < told[1] == limited().capacity.blocks < told[2]


def test_kimi_on_eight_h100_leaves_the_cache_that_was_reported() -> None:
    # vLLM 0.15.0, Kimi K2.5, gpu_memory_utilization 0.95: 0.64 GiB of cache beside 72.02 GiB of model.
    setup = full_setup(
        "gpu=h100_sxm", "interconnect=nvlink4", "stack=vllm", "kv.memory_fraction=0.95", "tree.budget=0",
        "acceptance={length: 1}",
    )  # fmt: skip
    cache = setup.capacity.blocks * cache_bytes(setup.model, 16, setup.scenario.kv.dtype, 8) / GIB
    assert cache + target_bytes_per_rank(setup.model, 8) / GIB == pytest.approx(72.02 + 0.64, abs=0.1)


def test_a_load_of_which_nothing_fits_is_refused() -> None:
    with pytest.raises(HardwareError, match="one request of 900,049 cached tokens needs"):
        limited("load.context_tokens=900000", "load.output_tokens=40")


@given(models, loads, st.integers(1, 7), st.integers(1, 5), st.integers(0, 9), st.integers(0, 2**32))
def test_who_waits_decodes_later_and_as_if_alone(
    model: AcceptanceModel, load: Load, users: int, fit: int, spare: int, seed: int
) -> None:
    luck = [np.random.default_rng([seed, user]) for user in range(users)]
    batch = closed_loop(model, load, luck, Capacity(10 * fit + spare, 10))
    slots = min(users, fit)
    assert batch.lengths.shape == (batch.first_steps.max(), slots)
    alone = [model.draw(np.random.default_rng([seed, user]), load.output_tokens) for user in range(users)]
    for slot in range(slots):
        first = batch.lengths[: batch.first_steps[slot], slot]
        assert first.tolist() == alone[slot].tolist()
    # Whoever waited the longest comes next.
    last = int(batch.first_steps.min())
    following = batch.lengths[last:, int(batch.first_steps.argmin())]
    if users > fit and len(following):
        shared = min(len(following), len(alone[fit]))
        assert following[:shared].tolist() == alone[fit][:shared].tolist()


def test_a_batch_that_cannot_hold_one_request_is_our_bug() -> None:
    luck = [np.random.default_rng(1)]
    with pytest.raises(SimulationError, match="a request needs 3 of 2 blocks"):
        closed_loop(AcceptanceModel((0.5,)), Load(context_tokens=1), luck, Capacity(2, 3))


def test_a_slot_has_the_same_luck_in_a_larger_batch() -> None:
    few, many = (
        Simulation(small_setup("load.output_tokens=64", f"load.concurrency={c}")).decoded(0) for c in (2, 5)
    )
    shared = min(len(few.lengths), len(many.lengths))
    assert few.lengths[:shared].tolist() == many.lengths[:shared, :2].tolist()


def test_the_sum_over_slots_is_what_the_run_committed() -> None:
    setup = small_setup("load.output_tokens=64", "load.concurrency=3")
    run = Simulation(replace(setup)).run(0)
    assert run.requests == 3
    assert run.tokens == run.steps.lengths.sum()

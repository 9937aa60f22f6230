"""The prompt of a request that joins: what its pass computes, how long it takes, and who waits for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import full_setup, plain_data, small_setup, with_block_schedule, without_noise
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from texts import GOOD, scenario_from

from hwmodels import catalog
from hwmodels.roofline import demand, weight_bytes
from hwmodels.stacks import BlockSchedule
from hwmodels.work import (
    AllGather,
    AllReduce,
    BatchedGemm,
    Elementwise,
    Gemm,
    GpuWork,
    GqaAttention,
    GroupedExperts,
    IndexScores,
    LinkWork,
    MlaAttention,
    Prefill,
    Work,
)
from sim.acceptance import AcceptanceModel
from sim.batching import Batch, Capacity, closed_loop
from sim.graph import Component, StepGraph
from sim.kernels import PassShape, verify_pass
from sim.prefill import prompt_pass
from sim.replay import replay
from sim.scenario import Load
from sim.setup import Setup, resolve
from sim.simulate import Simulation
from sim.step import decode_step

BASE = resolve(scenario_from(GOOD))
MODELS = catalog.names(catalog.Kind.MODEL)
prompts = st.integers(1, 60_000)

FloatArray = NDArray[np.float64]


@cache
def setup_of(model: str, ranks: int = 8, tokens: int = 2000) -> Setup:
    """The base setup with another model, another number of ranks and a prompt of *tokens*."""
    load = BASE.scenario.load.model_copy(update={"context_tokens": tokens})
    return replace(
        BASE,
        scenario=BASE.scenario.model_copy(update={"load": load}),
        model=catalog.target_model(model),
        machine=replace(BASE.machine, ranks=ranks),
    )


def works(prompt: Prefill) -> Iterator[Work]:
    """Every work of *prompt*, as often as it occurs."""
    for work, times in prompt.kernels:
        yield from [work] * times


def flops(*, of: Prefill, kind: type[Gemm | BatchedGemm | GroupedExperts]) -> float:
    return sum(demand(work).flops for work in works(of) if isinstance(work, kind))


def verified(setup: Setup, tokens: int) -> list[Work]:
    """What a verify pass of *tokens* of one request does."""
    return [kernel.work for kernel in verify_pass(setup, PassShape(1, tokens, tokens))]


# What the pass computes.


# 6.95 billion parameters beside the embeddings (Qwen/Qwen3-8B); the last token alone needs the LM head.
@given(prompts)
@settings(max_examples=10)
def test_every_token_of_a_prompt_meets_every_parameter(tokens: int) -> None:
    prompt = prompt_pass(setup_of("qwen3_8b", 1, tokens))
    head = 2 * 151_936 * 4096
    assert flops(of=prompt, kind=Gemm) - head == pytest.approx(2 * 6.95e9 * tokens, rel=2e-3)


@given(prompts)
@settings(max_examples=10)
def test_attention_is_two_products_over_half_of_the_square(tokens: int) -> None:
    prompt = prompt_pass(setup_of("qwen3_8b", 1, tokens))
    pairs = 36 * 32 * tokens * (tokens + tokens % 2) / 2
    assert flops(of=prompt, kind=BatchedGemm) == pytest.approx(2 * 2 * 128 * pairs)


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("model", MODELS)
def test_a_prompt_is_multiplied_as_a_verify_pass_of_its_tokens_but_for_the_logits(
    model: str, ranks: int
) -> None:
    tokens = 300
    setup = setup_of(model, ranks, tokens)
    prompt = list(works(prompt_pass(setup)))
    head = Gemm(1, setup.model.vocab // ranks, setup.model.hidden, setup.model.head_dtype)
    assert head in prompt
    wanted = [w for w in verified(setup, tokens) if isinstance(w, Gemm | GroupedExperts)]
    found = [w for w in prompt if isinstance(w, Gemm | GroupedExperts)]
    changed = [replace(head, m=tokens) if work == head else work for work in found]
    assert sorted(map(repr, changed)) == sorted(map(repr, wanted))


@pytest.mark.parametrize("model", MODELS)
def test_however_long_a_prompt_dense_weights_are_read_once(model: str) -> None:
    read = {
        sum(weight_bytes(w.n, w.k, w.dtype) for w in works(prompt_pass(setup)) if isinstance(w, Gemm))
        for setup in (setup_of(model, 8, tokens) for tokens in (1, 100, 50_000))
    }
    assert len(read) == 1


@pytest.mark.parametrize("model", MODELS)
def test_no_decode_attention_is_left_in_a_prompt(model: str) -> None:
    kinds = {type(work) for work in works(prompt_pass(setup_of(model)))}
    assert not kinds & {MlaAttention, GqaAttention, IndexScores}
    assert {Gemm, BatchedGemm, AllReduce, AllGather, Elementwise} <= kinds


@pytest.mark.parametrize("model", ["qwen3_5_27b", "qwen3_5_397b_a17b"])
def test_linear_attention_keeps_its_state_once_in_64_tokens(model: str) -> None:
    tokens = 6400
    setup = setup_of(model, 8, tokens)
    kernels = verify_pass(setup, PassShape(1, tokens, tokens))
    kept = sum(
        k.work.size_bytes
        for k in kernels
        if k.component is Component.ATTENTION and isinstance(k.work, Elementwise)
    )
    others = sum(
        k.work.size_bytes
        for k in kernels
        if k.component is not Component.ATTENTION and isinstance(k.work, Elementwise)
    )
    head = 2 * 4 * setup.model.hidden * (tokens - 1)
    moved = sum(w.size_bytes for w in works(prompt_pass(setup)) if isinstance(w, Elementwise))
    assert moved - (others - head) == pytest.approx(kept / 64, rel=1e-6)


def test_every_kernel_of_a_prompt_is_launched_by_itself() -> None:
    setup = setup_of("kimi_k2_6")
    prompt = prompt_pass(setup)
    kernels = verify_pass(setup, PassShape(1, 2000, 2000))
    launched = {task.collective: task.kernels for task in prompt.host if not hasattr(task, "task")}
    assert launched[True] == sum(isinstance(k.work, LinkWork) for k in kernels)
    assert launched[False] + launched[True] == sum(k.launches for k in kernels)


# How long it takes.


def prompt_s(setup: Setup) -> float:
    return setup.costs.estimate(prompt_pass(setup)).seconds


MACHINES = [
    ("gpu=b300_sxm", "interconnect=nvlink5", "stack=sglang"),
    ("gpu=h200_sxm", "interconnect=nvlink4", "stack=vllm"),
    ("gpu=rtx_pro_6000_server", "interconnect=pcie5_nccl", "stack=vllm"),
]


@settings(max_examples=20)
@given(st.sampled_from(MACHINES), st.integers(0, 60_000), st.integers(1, 60_000))
def test_a_longer_prompt_never_takes_less(machine: tuple[str, ...], tokens: int, more: int) -> None:
    short, long = (
        prompt_s(full_setup(*machine, "load.output_tokens=1", f"load.context_tokens={n}"))
        for n in (tokens, tokens + more)
    )
    assert short <= long


COSTED = [
    name
    for name in MODELS
    if {w.dtype for w in works(prompt_pass(setup_of(name))) if isinstance(w, Gemm | GroupedExperts)}
    <= set(BASE.machine.gpu.tflops)
]


@settings(max_examples=20)
@given(st.sampled_from(COSTED), prompts, st.integers(1, 60_000))
def test_nor_does_it_with_another_model(model: str, tokens: int, more: int) -> None:
    assert prompt_s(setup_of(model, 8, tokens)) <= prompt_s(setup_of(model, 8, tokens + more))


@settings(max_examples=10)
@given(st.sampled_from(COSTED), prompts)
def test_a_prompt_takes_the_longer_of_its_kernels_and_their_launches(model: str, tokens: int) -> None:
    setup = setup_of(model, 8, tokens)
    prompt, costs = prompt_pass(setup), setup.costs
    gpu = sum(costs.estimate(work).seconds for work in works(prompt))
    host = sum(costs.estimate(task).seconds for task in prompt.host)
    assert costs.estimate(prompt).seconds == pytest.approx(max(gpu, host))
    floor = sum(costs.floor_seconds(work) for work in works(prompt) if isinstance(work, GpuWork))
    assert costs.estimate(prompt).seconds >= floor


def test_a_short_prompt_is_bound_by_launches_and_a_long_one_by_arithmetic() -> None:
    short, long = (setup_of("kimi_k2_6", 8, tokens) for tokens in (16, 60_000))
    bounds = [setup.costs.estimate(prompt_pass(setup)).bound.value for setup in (short, long)]
    assert bounds == ["host", "compute"]


# Who waits for it.


acceptances = st.builds(
    AcceptanceModel, st.lists(st.floats(0, 1, allow_subnormal=False), max_size=7).map(tuple)
)
loads = st.builds(Load, context_tokens=st.integers(0, 100), output_tokens=st.integers(1, 60))


@given(acceptances, loads, st.integers(1, 7), st.integers(1, 5), st.integers(0, 2**32))
def test_who_joins_is_who_begins_after_the_first_step(
    model: AcceptanceModel, load: Load, users: int, fit: int, seed: int
) -> None:
    luck = [np.random.default_rng([seed, user]) for user in range(users)]
    batch = closed_loop(model, load, luck, Capacity(fit, 1))
    begun = (batch.contexts == load.context_tokens).sum(axis=1)
    assert begun[0] == min(users, fit)
    assert batch.joined.tolist() == [0, *begun[1:].tolist()]


def with_prefill(setup: Setup, counted: bool = True) -> Setup:
    load = setup.scenario.load.model_copy(update={"prefill": counted})
    return replace(setup, scenario=setup.scenario.model_copy(update={"load": load}))


PLAIN = ("tree.budget=0", "acceptance={length: 1}")
CHAIN = ("tree={shape: chain, budget: 7}",)
LOADS = {
    "tree": ("load.concurrency=3",),
    "chain": ("load.concurrency=3", *CHAIN),
    "plain": ("load.concurrency=4", "load.output_tokens=7", *PLAIN),
    "ahead": ("load.concurrency=3", "stack=vllm", *CHAIN),
    "eager": ("load.concurrency=3", "tree.budget=9"),
    "one rank": ("load.concurrency=3", "gpus=1"),
}
any_load = pytest.mark.parametrize("name", LOADS)


@cache
def setup_with(name: str) -> Setup:
    return small_setup("load.output_tokens=24", *LOADS[name])


def without_prefill(graph: StepGraph) -> list[tuple[object, ...]]:
    """What *graph* would be without its prompt: lanes by name, dependencies by what they would be."""
    prompt = [i for i, op in enumerate(graph.ops) if isinstance(op.work, Prefill)]
    left = [i for i in range(len(graph.ops)) if i not in prompt]
    place = {index: new for new, index in enumerate(left)}
    return [
        (
            *graph.ops[i]._replace(lanes=(), after=()),
            tuple(graph.lanes[lane] for lane in graph.ops[i].lanes),
            tuple(place[before] for before in graph.ops[i].after if before in place),
        )
        for i in left
    ]


@any_load
def test_a_load_leaves_prefill_out_unless_it_asks(name: str) -> None:
    setup = setup_with(name)
    assert not setup.scenario.load.prefill
    usual, counted = decode_step(setup), decode_step(with_prefill(setup))
    assert not any(isinstance(op.work, Prefill) for op in usual.ops)
    assert isinstance(counted.ops[0].work, Prefill)
    assert without_prefill(usual) == without_prefill(counted)
    assert len(counted.ops) == 1 + len(usual.ops)


def joined_by_others(decoded: Batch) -> Batch:
    """*decoded* with none, one or two requests that join in each step."""
    return replace(decoded, joined=np.arange(len(decoded.joined), dtype=float) % 3)


@any_load
def test_without_prefill_who_joins_changes_nothing_to_the_nanosecond(name: str) -> None:
    simulation = Simulation(setup_with(name))
    others = joined_by_others(simulation.decoded(0))
    assert plain_data(simulation.played(0, others)) == plain_data(simulation.run(0).steps)


@any_load
def test_a_prompt_holds_up_the_step_in_which_its_request_joins(name: str) -> None:
    setup = without_noise(setup_with(name))
    extra_ns, joined = extra_and_joined(setup)
    assert extra_ns == pytest.approx(joined * 1e9 * prompt_s(setup), abs=2)


def extra_and_joined(setup: Setup) -> tuple[FloatArray, FloatArray]:
    """(steps,) ns that prefill adds to each step, and how many requests join in it."""
    usual, counted = Simulation(setup), Simulation(with_prefill(setup))
    others = joined_by_others(counted.decoded(0))
    assert usual.decoded(0).lengths.tolist() == others.lengths.tolist()
    return counted.played(0, others).step_ns - usual.played(0, others).step_ns, others.joined


@any_load
def test_a_request_that_nobody_follows_is_as_fast_with_prefill(name: str) -> None:
    load = setup_with(name).scenario.load.model_copy(update={"concurrency": 1})
    one = replace(setup_with(name), scenario=setup_with(name).scenario.model_copy(update={"load": load}))
    quiet = without_noise(one)
    usual, counted = (Simulation(s).run(0).steps for s in (quiet, with_prefill(quiet)))
    assert counted.step_ns.tolist() == usual.step_ns.tolist()


@pytest.mark.parametrize("name", [name for name in LOADS if name != "plain"])
def test_both_engines_agree_with_prefill_to_the_nanosecond(name: str) -> None:
    simulation = Simulation(with_prefill(setup_with(name)))
    assert simulation.decoded(0).joined.sum() > 0
    assert replay(simulation, [simulation.run(0), simulation.run(1)]).steps > 0


@pytest.mark.parametrize("when", BlockSchedule)
def test_whenever_a_host_prepares_a_step_it_waits_for_the_prompt(when: BlockSchedule) -> None:
    setup = without_noise(with_block_schedule(setup_with("chain"), when))
    extra_ns, joined = extra_and_joined(setup)
    assert extra_ns == pytest.approx(joined * 1e9 * prompt_s(setup), abs=2)
    counted = Simulation(with_prefill(setup))
    assert replay(counted, [counted.run(0)]).steps > 0

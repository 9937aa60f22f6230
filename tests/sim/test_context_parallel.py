"""Decode context parallelism: every rank attends to its share of the cache, and the shares are combined."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import full_setup, small_setup, with_dispatch, without_noise
from hypothesis import given
from hypothesis import strategies as st
from texts import GOOD, scenario_from

from hwmodels.cost import CostModel
from hwmodels.errors import HardwareError
from hwmodels.models import AttentionKind, Gqa
from hwmodels.work import Exchange, GqaAttention, MlaAttention, Pattern, Work
from sim.errors import ScenarioError
from sim.graph import Phase, StepGraph
from sim.kernels import PassShape, verify_pass
from sim.replay import replay
from sim.setup import Setup, resolve
from sim.simulate import Simulation
from sim.step import decode_step

SHARDS = [2, 4, 8]
PLAIN = ("tree.budget=0", "acceptance={length: 1}")


def attention_of(graph: StepGraph) -> MlaAttention:
    [found] = {op.work for op in graph.ops if isinstance(op.work, MlaAttention)}
    return found


def exchanges(graph: StepGraph) -> list[Exchange]:
    return [op.work for op in graph.ops if isinstance(op.work, Exchange)]


def test_one_shard_is_no_context_parallelism() -> None:
    usual, one = small_setup(), small_setup("dcp=1")
    assert decode_step(one).ops == decode_step(usual).ops
    assert one.capacity == usual.capacity
    assert not exchanges(decode_step(one))
    runs = [Simulation(setup).run(0).steps.step_ns.tolist() for setup in (usual, one)]
    assert runs[0] == runs[1]


@pytest.mark.parametrize("dcp", SHARDS)
def test_a_rank_attends_with_the_heads_of_its_group_to_its_share(dcp: int) -> None:
    whole, shared = (attention_of(decode_step(small_setup(f"dcp={n}"))) for n in (1, dcp))
    assert shared.heads == dcp * whole.heads
    assert shared.seen == -(-whole.seen // dcp)
    assert shared.at_context(9 * dcp + 1).seen == 10
    assert shared.requests == whole.requests


@pytest.mark.parametrize("dcp", SHARDS)
def test_what_the_ranks_of_a_group_exchange(dcp: int) -> None:
    graph = decode_step(small_setup(f"dcp={dcp}", "load.concurrency=2"))
    found = exchanges(graph)
    # Queries, log-sum-exps and outputs of eight heads a rank, in each of the two layers.
    tokens, heads = 2 * 9, 8 * dcp
    layer = [
        Exchange(2 * tokens * heads * 576, dcp, Pattern.GATHER),
        Exchange(4 * tokens * heads * dcp, dcp, Pattern.GATHER),
        Exchange(2 * tokens * heads * 512, dcp, Pattern.SCATTER),
    ]
    assert found == 2 * layer
    assert {op.phase for op in graph.ops if isinstance(op.work, Exchange)} == {Phase.VERIFY}
    lanes = {len(op.lanes) for op in graph.ops if isinstance(op.work, Exchange)}
    assert lanes == {8 + 1}


@pytest.mark.parametrize("dcp", SHARDS)
def test_more_requests_fit(dcp: int) -> None:
    asked = ("gpu=rtx_pro_6000_server", "interconnect=pcie5_nccl", "load.context_tokens=60000")
    one, many = (full_setup(*asked, "load.concurrency=100", f"dcp={n}") for n in (1, dcp))
    assert many.capacity.blocks == one.capacity.blocks
    assert abs(many.requests - dcp * one.requests) < dcp


def test_long_contexts_gain_and_short_ones_pay() -> None:
    def step_ms(dcp: int, context: int) -> float:
        setup = small_setup(*PLAIN, f"dcp={dcp}", f"load.context_tokens={context}", "load.concurrency=16")
        quick = with_dispatch(setup, schedule_us=0)  # else two layers hide behind the host
        return float(Simulation(without_noise(quick)).run(0).steps.step_ns.mean()) / 1e6

    assert step_ms(8, 100) > step_ms(1, 100)
    assert step_ms(8, 100_000) < step_ms(1, 100_000)


@pytest.mark.parametrize("overrides", [(), PLAIN])
def test_both_engines_agree(overrides: tuple[str, ...]) -> None:
    simulation = Simulation(small_setup(*overrides, "dcp=4", "load.concurrency=3"))
    assert replay(simulation, [simulation.run(0)]).steps > 0


def grouped(kv_heads: int, dcp: int) -> Setup:
    """A setup whose model has grouped-query attention."""
    setup = resolve(scenario_from(GOOD))
    gqa = Gqa(kind=AttentionKind.GQA, heads=64, kv_heads=kv_heads, head_dim=128)
    model = setup.model.model_copy(update={"attention": gqa})
    scenario = setup.scenario.model_copy(update={"dcp": dcp})
    return replace(setup, model=model, scenario=scenario)


def test_copies_of_grouped_heads_can_be_sharded() -> None:
    works = [kernel.work for kernel in verify_pass(grouped(4, 2), PassShape(1, 3, 1001))]
    [attention] = {work for work in works if isinstance(work, GqaAttention)}
    assert (attention.heads, attention.kv_heads, attention.seen) == (16, 1, 501)
    sizes = [work.size_bytes for work in works if isinstance(work, Exchange)][:3]
    assert sizes == [2 * 3 * 16 * 128, 4 * 3 * 16 * 2, 2 * 3 * 16 * 128]


def test_heads_of_which_there_are_no_copies_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    model = grouped(8, 2).model
    monkeypatch.setattr("hwmodels.catalog.target_model", {"kimi_k2_6": model}.__getitem__)
    with pytest.raises(HardwareError, match="8 key and value heads on 8 GPUs leave no 2 copies to shard"):
        resolve(scenario_from(GOOD, "dcp=2"))


def test_shards_must_fit_the_machine() -> None:
    with pytest.raises(ScenarioError, match="dcp must divide the 4 GPUs, got 8"):
        scenario_from(GOOD, "gpus=4", "dcp=8")


COSTS = CostModel(full_setup().machine)
patterns = st.sampled_from(Pattern)


@given(st.integers(0, 2**26), st.integers(1, 2**20), st.sampled_from([2, 4, 8]), patterns)
def test_larger_exchanges_never_take_less(size: int, more: int, ranks: int, pattern: Pattern) -> None:
    def seconds(work: Work) -> float:
        return COSTS.estimate(work).seconds

    assert seconds(Exchange(size, ranks, pattern)) <= seconds(Exchange(size + more, ranks, pattern))
    assert seconds(Exchange(size, 1, pattern)) == 0
    if size and ranks < 8:
        assert seconds(Exchange(size, ranks, pattern)) < seconds(Exchange(2 * size, 2 * ranks, pattern))


def test_an_exchange_is_what_nccl_says_of_its_ring() -> None:
    # NVIDIA/nccl@5067397 src/graph/tuning.cc: 6.6 us and 0.6 us a hop on NVLink.
    assert COSTS.estimate(Exchange(64, 8, Pattern.GATHER)).seconds == pytest.approx(10.8e-6, rel=1e-3)

"""Captured graphs: padding costs time and does no work; what is beyond them is launched otherwise."""

from __future__ import annotations

from dataclasses import replace

import pytest
from builders import small_setup, without_noise

from hwmodels.captured import Beyond, Sizes
from hwmodels.work import (
    AllReduce,
    EagerLaunch,
    Elementwise,
    Gemm,
    GraphLaunch,
    GroupedExperts,
    MlaAttention,
)
from sim.graph import Component, Phase, StepGraph
from sim.replay import replay
from sim.report import captured_note
from sim.setup import LaunchMode, Setup
from sim.simulate import Simulation
from sim.step import decode_step

PLAIN = ("tree.budget=0", "acceptance={length: 1}")


def beyond(setup: Setup, how: Beyond) -> Setup:
    """*setup* on a stack that captures single requests alone."""
    stack = setup.machine.stack
    captured = stack.dispatch.captured.model_copy(
        update={"plain": (Sizes(first=1, last=1, step=1),), "speculative": None, "largest": (), "beyond": how}
    )
    dispatch = stack.dispatch.model_copy(update={"captured": captured})
    changed = stack.model_copy(update={"dispatch": dispatch})
    return replace(setup, machine=replace(setup.machine, stack=changed))


def verify(graph: StepGraph, kind: type) -> list[object]:
    return [op.work for op in graph.ops if op.phase is Phase.VERIFY and isinstance(op.work, kind)]


@pytest.mark.parametrize("stack", ["sglang", "vllm"])
@pytest.mark.parametrize("overrides", [(), PLAIN, ("tree.budget=7",)])
def test_one_request_is_never_padded(stack: str, overrides: tuple[str, ...]) -> None:
    setup = small_setup(f"stack={stack}", *overrides)
    assert setup.verify_padding == setup.draft_padding == 0
    assert setup.verify_launch is LaunchMode.GRAPH


def test_padding_goes_through_gemms_and_allreduces_alone() -> None:
    setup = small_setup(*PLAIN, "stack=vllm", "load.concurrency=9")
    assert setup.verify_padding == 7
    graph = decode_step(setup)
    assert {work.m for work in verify(graph, Gemm) if isinstance(work, Gemm)} == {16}
    assert {work.size_bytes for work in verify(graph, AllReduce) if isinstance(work, AllReduce)} == {
        2 * 16 * setup.model.hidden
    }
    assert {work.requests for work in verify(graph, MlaAttention) if isinstance(work, MlaAttention)} == {9}
    assert {work.tokens for work in verify(graph, GroupedExperts) if isinstance(work, GroupedExperts)} == {9}
    assert captured_note(setup) == ", captured for 16 requests"


def test_the_same_graph_serves_every_batch_up_to_its_size() -> None:
    steps = []
    for concurrency in (9, 12, 16):
        graph = decode_step(small_setup(*PLAIN, "stack=vllm", f"load.concurrency={concurrency}"))
        steps.append((len(graph.ops), verify(graph, Gemm)))
    assert steps[0] == steps[1] == steps[2]


@pytest.mark.parametrize("how", Beyond)
def test_beyond_the_captured_sizes(how: Beyond) -> None:
    setup = beyond(small_setup("load.concurrency=2"), how)
    assert setup.verify_launch.value == setup.draft_launch.value == how.value
    assert setup.verify_padding == 0
    graph = decode_step(setup)
    dispatch = [op.work for op in graph.ops if op.phase is Phase.DISPATCH]
    graphs = [work for work in dispatch if isinstance(work, GraphLaunch)]
    eager = [work for work in dispatch if isinstance(work, EagerLaunch)]
    # One before each of the two layers' attention, one behind the last.
    assert len(graphs) == (3 if how is Beyond.PIECEWISE else 0)
    assert len(eager) == 2 if how is Beyond.PIECEWISE else len(eager) > 2
    whole = decode_step(small_setup("load.concurrency=2"))
    [one] = [op.work for op in whole.ops if op.phase is Phase.DISPATCH and isinstance(op.work, GraphLaunch)]
    assert sum(work.nodes for work in graphs) + sum(work.kernels for work in eager) == one.nodes
    assert "no graph is captured for 2 requests of 9 tokens" in captured_note(setup)


def test_piecewise_attention_waits_for_its_own_launch() -> None:
    graph = decode_step(beyond(small_setup("load.concurrency=2", *PLAIN), Beyond.PIECEWISE))
    launched = [
        {graph.ops[before].work for before in op.after}
        for op in graph.ops
        if op.component is Component.ATTENTION and op.rank == 0
    ]
    assert launched
    assert all(any(isinstance(work, EagerLaunch) for work in works) for works in launched)


def test_a_graph_beats_pieces_and_pieces_beat_single_launches() -> None:
    setups = [small_setup("load.concurrency=2", *PLAIN)]
    setups += [beyond(setups[0], how) for how in (Beyond.PIECEWISE, Beyond.EAGER)]
    steps = [Simulation(without_noise(setup)).run(0).steps.step_ns.mean() for setup in setups]
    assert steps[0] < steps[1] < steps[2]


@pytest.mark.parametrize("how", Beyond)
def test_both_engines_agree_whatever_is_launched(how: Beyond) -> None:
    simulation = Simulation(beyond(small_setup("load.concurrency=3"), how))
    assert replay(simulation, [simulation.run(0)]).steps > 0


def test_small_kernels_grow_with_the_padding() -> None:
    sizes = []
    for concurrency in (9, 16):
        graph = decode_step(small_setup(*PLAIN, "stack=vllm", f"load.concurrency={concurrency}"))
        sizes.append(sorted(w.size_bytes for w in verify(graph, Elementwise) if isinstance(w, Elementwise)))
    assert sizes[0] == sizes[1]

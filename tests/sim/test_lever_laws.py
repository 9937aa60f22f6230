"""Laws of levers over drawn scenarios: off the critical path nothing changes, better is never slower."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import oracle
from builders import small_setup
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from sim import batch
from sim.graph import IntArray, StepGraph
from sim.levers.effects import LeverBench
from sim.levers.kinds import ON_WORK, Degree, Lever
from sim.levers.played import PlayedSteps
from sim.simulate import Simulation

RUNS, STEPS = 2, 4
STACKS = ("sglang", "sglang_spec_v2", "native", "vllm", "tensorrt_llm")
DRAFTS = (
    ("tree.budget=0",),
    ("tree.shape=chain", "tree.budget=5"),
    ("tree.shape=chain", "tree.budget=7"),
    ("tree.budget=8",),
    ("tree.budget=16",),
    ("tree.budget=8", "tree.builder=gpu"),
)
MACHINES = ((), ("gpu=rtx_pro_6000_server", "interconnect=pcie5_dual_socket", "host=epyc_dual"))


HIDING = DRAFTS[:3]
"""Plain decoding and chains: what most stacks prepare beside the GPUs, or wait for."""


@st.composite
def benches(draw: st.DrawFn, drafts: tuple[tuple[str, ...], ...] = DRAFTS) -> LeverBench:
    """A few steps of a small model, drafted and launched in any way."""
    wanted = {
        "concurrency": st.integers(1, 3),
        "context_tokens": st.integers(100, 20_000),
        "prefill": st.sampled_from(("false", "true")),
    }
    load = draw(st.fixed_dictionaries(wanted))
    setup = small_setup(
        f"stack={draw(st.sampled_from(STACKS))}",
        *draw(st.sampled_from(drafts)),
        *draw(st.sampled_from(MACHINES)),
        f"gpus={draw(st.sampled_from((1, 2, 8)))}",
        *(f"load.{key}={value}" for key, value in load.items()),
        f"seed={draw(st.integers(0, 99))}",
        layers=draw(st.integers(2, 5)),
    )
    return LeverBench(PlayedSteps.of(Simulation(setup), RUNS, STEPS))


def levers_on_work(bench: LeverBench) -> st.SearchStrategy[Lever]:
    return st.sampled_from([lever for lever in bench.levers if lever in ON_WORK])


def room(graph: StepGraph, durations: IntArray) -> IntArray:
    """(steps, ops) how much longer each op may take, alone, before the step does.

    The step less the longest path through the op: what comes before it, and, on the graph read
    backwards, what comes after.
    """
    end = oracle.play(graph, durations)
    after = np.zeros_like(durations)
    for op, before in reversed(list(enumerate(predecessors(graph)))):
        for earlier in before:
            after[:, earlier] = np.maximum(after[:, earlier], after[:, op] + durations[:, op])
    return end.max(axis=1, keepdims=True) - end - after


def predecessors(graph: StepGraph) -> list[set[int]]:
    found: list[set[int]] = []
    last: dict[int, int] = {}
    for index, op in enumerate(graph.ops):
        found.append({*op.after, *(last[lane] for lane in op.lanes if lane in last)})
        last.update(dict.fromkeys(op.lanes, index))
    return found


@settings(max_examples=16)
@given(benches(), st.data())
def test_a_lever_off_the_critical_path_changes_not_one_nanosecond(
    bench: LeverBench, data: st.DataObject
) -> None:
    """Nor does twice the work, as long as it fits into the room that the others leave it."""
    lever, played = data.draw(levers_on_work(bench)), bench.played
    graph = played.simulation.pieces.graph
    kept, doubled = data.draw(st.floats(0, 1)), data.draw(st.floats(1, 2))
    for run in range(RUNS):
        durations = [played.durations(run, bench.factors(lever, each)) for each in (1.0, 0.0, kept, doubled)]
        now, free, better, worse = durations
        steps, *others = (batch.play(graph, each).max(axis=1) for each in durations)
        moved = (now != free).any(axis=0)
        left = np.where(moved, room(graph, now), np.iinfo(np.int64).max).min(axis=1)
        off = left > 0
        event(f"off the critical path in all steps: {off.all()}")
        assert (others[0][off] == steps[off]).all()
        assert (others[1][off] == steps[off]).all()
        fits = oracle.play(graph, worse - now).max(axis=1) <= left
        event(f"room for twice as much in all steps: {fits.all()}")
        assert (others[2][fits] == steps[fits]).all()
        # What is on it counts from the first nanosecond.
        longer = ((room(graph, now) == 0) & (worse > now)).any(axis=1)
        assert (others[2][longer] > steps[longer]).all()
        assert (better <= now).all()


def hidden_levers(bench: LeverBench) -> list[Lever]:
    """Those on work of which nothing is on the critical path of any step."""
    played = bench.played
    graph, found = played.simulation.pieces.graph, []
    now = [played.durations(run, played.unchanged) for run in range(RUNS)]
    left = np.concatenate([room(graph, each) for each in now])
    for lever in ON_WORK:
        if lever in bench.levers:
            free = [played.durations(run, bench.factors(lever, 0.0)) for run in range(RUNS)]
            if (left[:, (np.concatenate(free) != np.concatenate(now)).any(axis=0)] > 0).all():
                found.append(lever)
    return found


@settings(max_examples=8)
@given(benches(HIDING))
def test_a_lever_that_is_nowhere_on_the_critical_path_brings_nothing(bench: LeverBench) -> None:
    """Its share is nothing, and so are its gain and its elasticity."""
    hidden = hidden_levers(bench)
    assume(hidden)
    for lever in hidden:
        effect = bench.effect(lever)
        assert effect.share is not None
        assert abs(effect.share) < 1e-12
        assert set(effect.tok_s.values()) == {bench.base.tok_s}
        assert effect.elasticity == 0


@settings(max_examples=16)
@given(benches(), st.data())
def test_a_better_lever_never_lowers_throughput(bench: LeverBench, data: st.DataObject) -> None:
    """By any amount, in any step: on in-order lanes shorter work never makes a step longer."""
    lever = data.draw(st.sampled_from(bench.levers))
    effect = bench.effect(lever)
    ladder = [effect.worse_tok_s, bench.base.tok_s, *(effect.tok_s[degree] for degree in Degree)]
    # Ranks drawn together are rounded, by a nanosecond a piece.
    slip = 1e-6 if lever is Lever.ARRIVAL_SKEW else 0.0
    assert all(after >= before * (1 - slip) for before, after in pairwise(ladder))
    if lever in ON_WORK or lever is Lever.HBM_BANDWIDTH:
        amounts = sorted(data.draw(st.lists(st.floats(0, 2), min_size=2, max_size=3)))
        steps = [bench.played.step_ns(bench.factors(lever, kept)) for kept in amounts]
        assert all((before <= after).all() for before, after in pairwise(steps))

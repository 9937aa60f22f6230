"""A replay finds every nanosecond by which the engines could differ, and says where."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import small_setup

from sim import batch, replay, simulate
from sim.errors import SimulationError
from sim.fusion import Fusion
from sim.graph import IntArray, StepGraph
from sim.records import Run
from sim.simulate import Simulation

SCENARIOS = {
    "tree": (),
    "eager": ("tree.budget=9",),
    "plain": ("tree.budget=0", "acceptance={length: 1}"),
    "one rank": ("gpus=1",),
}
CHUNK_STEPS = 128
LONG = ("acceptance={length: 1}", "load.output_tokens=600")


@cache
def simulation(*overrides: str) -> Simulation:
    return Simulation(small_setup(*overrides))


def recorded(found: Simulation, runs: int) -> list[Run]:
    """The first runs, as they were counted."""
    return [found.run(index) for index in range(runs)]


def in_chunks(monkeypatch: pytest.MonkeyPatch) -> Simulation:
    """Runs of 600 steps, ``CHUNK_STEPS`` of them at once."""
    found = simulation(*LONG)
    monkeypatch.setattr(simulate, "CHUNK_DURATIONS", CHUNK_STEPS * len(found.pieces.graph.ops))
    return found


def tampered(play: int, step: int, op: int) -> object:
    """The batch engine, 1 ns late at the end of *op* of *step* of its *play*-th play."""
    honest, count = batch.play, iter(range(1_000_000))

    def late(graph: StepGraph, durations: IntArray) -> IntArray:
        end = honest(graph, durations)
        end[step, op] += next(count) == play
        return end

    return late


@pytest.mark.parametrize("overrides", SCENARIOS.values(), ids=SCENARIOS.keys())
def test_honest_runs_are_replayed_and_counted(overrides: tuple[str, ...]) -> None:
    found = simulation(*overrides)
    replayed = replay.replay(found, recorded(found, 3))
    steps = sum(len(found.run(index).steps.lengths) for index in range(3))
    kernel_steps = min(replay.KERNEL_STEPS, len(found.run(0).steps.lengths))
    pieces, ops = len(found.pieces.graph.ops), len(found.graph.ops)
    assert replayed == (3, steps, steps * pieces, kernel_steps, kernel_steps * ops)


@pytest.mark.parametrize(("play", "place"), [(0, "run 0"), (1, "run 1"), (2, "run 0, kernel by kernel")])
@pytest.mark.parametrize("step", [0, 3])
def test_a_nanosecond_is_found_wherever_it_is(
    play: int, place: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces = simulation().pieces
    last = len(pieces.graph.ops) - 1
    # A piece that is one op: the kernels end where their piece does.
    [op] = np.flatnonzero(pieces.piece_of_op == last)
    where = op if play == 2 else last
    runs = recorded(simulation(), 2)
    monkeypatch.setattr(batch, "play", tampered(play, step, last))
    with pytest.raises(
        SimulationError, match=rf"{place}, step {step}: op {where} \(.*\) ends at \d+ ns on SimPy"
    ):
        replay.replay(simulation(), runs)


def test_both_ends_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found = simulation()
    end = batch.play(found.pieces.graph, next(found.chunks(0)).durations)[2, 5]
    runs = recorded(found, 2)
    monkeypatch.setattr(batch, "play", tampered(0, 2, 5))
    message = rf"op 5 \(.*\) ends at {end} ns on SimPy and at {end + 1} ns on the batch engine"
    with pytest.raises(SimulationError, match=message):
        replay.replay(found, runs)


def test_a_later_chunk_is_named_by_its_first_step(monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_chunks(monkeypatch)
    runs = recorded(found, 1)
    monkeypatch.setattr(batch, "play", tampered(1, 7, 0))
    with pytest.raises(SimulationError, match=rf"run 0, step {CHUNK_STEPS + 7}: op 0 \(.*\) ends"):
        replay.replay(found, runs)


def test_a_long_run_is_replayed_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_chunks(monkeypatch)
    runs = recorded(found, 1)
    assert len(runs[0].steps.lengths) == 600
    assert replay.replay(found, runs).steps == replay.WHOLE_RUN_STEPS == 512


@pytest.mark.parametrize("limit", [1, 100, 128, 200])
def test_the_limit_may_fall_anywhere_in_a_chunk(limit: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = in_chunks(monkeypatch)
    assert replay.replay(found, recorded(found, 1), limit).steps == limit


def test_a_fusion_that_moves_an_op_inside_its_piece_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, honest = recorded(simulation(), 2), Fusion.expand

    def late(fusion: Fusion, piece_end: IntArray, op_durations: IntArray) -> IntArray:
        end = honest(fusion, piece_end, op_durations)
        end[1, 30] += 1
        return end

    monkeypatch.setattr(Fusion, "expand", late)
    with pytest.raises(SimulationError, match=r"run 0, kernel by kernel, step 1: op 30 \(.*\) ends at"):
        replay.replay(simulation(), runs)


def test_a_split_that_loses_a_nanosecond_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    runs, honest = recorded(simulation(), 2), Fusion.split

    def short(fusion: Fusion, piece_durations: IntArray, *seconds: np.ndarray) -> IntArray:
        ops = honest(fusion, piece_durations, *seconds)
        ops[0, 0] -= 1
        return ops

    monkeypatch.setattr(Fusion, "split", short)
    with pytest.raises(SimulationError, match="kernel by kernel"):
        replay.replay(simulation(), runs)


def test_a_run_recorded_with_another_duration_is_found() -> None:
    run = simulation().run(1)
    longer = run.steps.step_ns.copy()
    longer[3] += 1
    wrong = replace(run, steps=replace(run.steps, step_ns=longer))
    with pytest.raises(SimulationError, match="run 1, step 3 was recorded with another duration"):
        replay.replay(simulation(), [simulation().run(0), wrong])

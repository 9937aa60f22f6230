"""What a tally keeps of runs: sums to the nanosecond, a line per run, and some runs in full."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from builders import small_setup
from hypothesis import given
from hypothesis import strategies as st

from sim import tally as tally_module
from sim.errors import SimulationError
from sim.graph import Component
from sim.records import Experiment, Run, RunResult
from sim.simulate import Simulation, play
from sim.statistics import summarise
from sim.tally import RUNS_IN_FULL, Tally

PER_STEP = ("component_ns", "phase_ns", "source_ns", "busy_ns")
COUNT = RUNS_IN_FULL + 3


@cache
def simulation() -> Simulation:
    return Simulation(small_setup())


@cache
def runs() -> tuple[Run, ...]:
    """A few runs more than are kept in full."""
    return tuple(play(simulation(), COUNT))


def experiment_of(chosen: tuple[Run, ...]) -> Experiment:
    """The Experiment of *chosen* runs."""
    tally = Tally(simulation().graph.lanes)
    for run in chosen:
        tally.add(run)
    return tally.experiment()


@given(st.lists(st.integers(0, COUNT - 1), min_size=1, max_size=5))
def test_sums_are_those_of_all_steps_of_all_runs(indices: list[int]) -> None:
    chosen = tuple(runs()[index] for index in indices)
    found = experiment_of(chosen)
    for name in PER_STEP:
        every = np.concatenate([getattr(run.steps, name) for run in chosen])
        assert getattr(found, name).tolist() == every.sum(axis=0).tolist()
    assert found.allreduce_wait_ns == sum(int(run.steps.allreduce_wait_ns.sum()) for run in chosen)
    assert found.allreduce_transfer_ns == sum(int(run.steps.allreduce_transfer_ns.sum()) for run in chosen)


def test_lengths_and_step_times_of_every_step_are_kept_run_after_run() -> None:
    found = experiment_of(runs())
    assert found.lengths.tolist() == [n for run in runs() for n in run.steps.lengths.ravel().tolist()]
    assert found.step_ns.tolist() == [ns for run in runs() for ns in run.steps.step_ns.tolist()]


def test_every_run_leaves_its_line() -> None:
    found = experiment_of(runs())
    assert found.runs == tuple(run.result for run in runs())
    assert [result.index for result in found.runs] == list(range(COUNT))
    assert found.lanes == simulation().graph.lanes


def test_the_first_runs_are_kept_in_full_and_no_more() -> None:
    assert experiment_of(runs()).in_full == runs()[:RUNS_IN_FULL]
    assert experiment_of(runs()[:2]).in_full == runs()[:2]


def test_memory_grows_by_ten_bytes_a_step() -> None:
    found = experiment_of(runs())
    assert found.lengths.itemsize + found.step_ns.itemsize == 10
    assert found.component_ns.shape == (len(Component),)


def test_the_records_of_a_run_beyond_the_first_are_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally_module, "RUNS_IN_FULL", 1)
    assert experiment_of(runs()).in_full == runs()[:1]


def test_a_tally_counts_its_runs_and_is_empty_before_the_first() -> None:
    tally = Tally(simulation().graph.lanes)
    assert not tally
    tally.add(runs()[0])
    assert len(tally) == 1


def test_an_experiment_without_a_run_is_refused() -> None:
    with pytest.raises(SimulationError, match="an experiment needs a run"):
        Tally(simulation().graph.lanes).experiment()


def test_lengths_up_to_a_long_block_are_kept_whole() -> None:
    steps = runs()[0].steps
    long = replace(runs()[0], steps=replace(steps, lengths=np.full_like(steps.lengths, 20_000)))
    assert set(experiment_of((long,)).lengths.tolist()) == {20_000}


def test_an_interrupted_run_counts_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever was added of it by then: shares still add to one, and steps to those of the runs."""
    tally = Tally(simulation().graph.lanes)
    tally.add(runs()[0])
    with monkeypatch.context() as patch:
        patch.setattr(Run, "result", property(interrupt))
        with pytest.raises(KeyboardInterrupt):
            tally.add(runs()[1])
    found = tally.experiment()
    summary = summarise(found)
    assert sum(summary.components.values()) == pytest.approx(1)
    assert summary.steps == sum(result.steps for result in found.runs)


def interrupt(run: Run) -> RunResult:
    raise KeyboardInterrupt(run.index)


def test_the_summary_of_a_tally_is_that_of_its_runs() -> None:
    found = summarise(experiment_of(runs()))
    steps = [run.steps for run in runs()]
    total = sum(run.duration_ns for run in runs())
    lengths = np.concatenate([one.lengths for one in steps])
    assert (found.runs, found.steps) == (COUNT, len(lengths))
    assert found.acceptance_length.mean == pytest.approx(np.mean([one.lengths.mean() for one in steps]))
    assert found.step_time_ms.mean == pytest.approx(np.mean([one.step_ns.mean() for one in steps]) / 1e6)
    assert found.length_shares == pytest.approx(
        [np.mean(lengths == length) for length in range(1, lengths.max() + 1)]
    )
    for at, component in enumerate(Component):
        spent = sum(int(one.component_ns[:, at].sum()) for one in steps)
        assert found.components.get(component, 0) == pytest.approx(spent / total)
    for at, lane in enumerate(simulation().graph.lanes):
        held = sum(int(one.busy_ns[:, at].sum()) for one in steps)
        assert found.utilisation[lane] == pytest.approx(held / total)
    waited = sum(int(one.allreduce_wait_ns.sum()) for one in steps)
    assert found.allreduce_wait_ms == pytest.approx(waited / len(lengths) / 1e6)
    assert list(found.components.values()) == sorted(found.components.values(), reverse=True)

"""Every cell is run once and stored, in whatever order it ends and whoever dies on the way."""

from __future__ import annotations

import json
import os
import signal
from collections import Counter
from collections.abc import Iterator, Set
from contextlib import closing, contextmanager
from functools import partial
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import conducted, files, nobody, plan_of, rows, scripted, swept

from sim import digests
from sim.cli.sweep import pool_of
from sim.setup import Setup
from sim.sweeps import cell as cells
from sim.sweeps import conduct as conductor
from sim.sweeps import executors
from sim.sweeps.cell import CellResult, Outcome, Task, run_cell, simulate
from sim.sweeps.conduct import Done, conduct
from sim.sweeps.errors import SweepError
from sim.sweeps.executors import Workers
from sim.sweeps.plan import Cell, Plan
from sim.sweeps.run import IfStored, sweep
from sim.sweeps.store import Store

DIED = "its worker died twice (killed, or out of memory)"


def echo(task: Task) -> Outcome:
    """A result that says which cell it is, with no simulation behind it; an error for every fifth."""
    if task.index % 5 == 4:
        return Outcome(task.index, None, f"cell {task.index} fell over")
    return Outcome(task.index, json.dumps(CellResult({}, [[1, 1, 1]], task.index)._asdict()), None)


def echoed(cell: Cell) -> Outcome:
    """What ``echo`` makes of *cell*."""
    return echo(Task(cell.index, setup_of(cell), ""))


def setup_of(cell: Cell) -> Setup:
    """The setup of a valid cell."""
    assert cell.setup is not None, cell.error
    return cell.setup


def expected(plan: Plan, deadly: Set[int] = frozenset()) -> tuple[dict[int, str], dict[int, str]]:
    """Results and errors of *plan* by ``echo`` where the *deadly* cells take their worker with them."""
    results, errors = {}, {}
    for cell in plan.cells:
        if cell.setup is None:
            errors[cell.index] = cell.error or ""
        elif cell.index in deadly:
            errors[cell.index] = DIED
        elif (outcome := echoed(cell)).result is not None:
            results[cell.index] = outcome.result
        else:
            errors[cell.index] = outcome.error or ""
    return results, errors


@given(st.data())
def test_any_order_and_any_deaths_give_the_same_results(data: st.DataObject) -> None:
    plan = plan_of(f"seed=1..{data.draw(st.integers(1, 7))}", "drafter.block=2,8")
    count = data.draw(st.integers(1, 4))
    deadly = data.draw(st.sets(st.integers(0, len(plan.cells) - 1), max_size=conductor.MAX_DEATHS - 1))
    luck = data.draw(st.randoms(use_true_random=False))
    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as folder:
        monkeypatch.setattr(conductor, "AHEAD", data.draw(st.integers(1, 3)))
        pool = scripted(monkeypatch, count, luck.randrange, echo, lambda task: task.index in deadly)
        done = conducted(plan, Path(folder), pool)
        stored = rows(Path(folder))
    results, errors = expected(plan, deadly)
    assert done == Done(results, errors, 0)
    valid = [cell for cell in plan.cells if cell.setup is not None]
    assert stored.keys() == {cell.key for cell in valid}
    for cell in valid:
        _, label, result, error = stored[cell.key]
        assert (result, error) == (results.get(cell.index), errors.get(cell.index))
        assert label == f"seed = {cell.point[0].label}, drafter.block = 8"


def test_where_every_worker_dies_the_sweep_gives_up_and_keeps_what_it_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = plan_of("seed=1..9")
    pool = scripted(monkeypatch, 1, lambda _: 0, echo, lambda task: task.index >= 3)
    with pytest.raises(SweepError, match=r"workers: 3 workers in a row died, .* finished cells are stored"):
        conducted(plan, tmp_path, pool)
    assert [result for _, _, result, _ in rows(tmp_path).values() if result is not None] == [
        echoed(cell).result for cell in plan.cells[:3]
    ]
    again = conducted(plan, tmp_path, scripted(monkeypatch, 1, lambda _: 0, echo))
    assert (again.results, again.errors) == expected(plan)
    assert again.reused == 3


def test_deaths_between_which_others_live_are_not_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, deadly = plan_of("seed=1..30"), {0, 6, 12, 18, 25}
    pool = scripted(monkeypatch, 1, lambda _: 0, echo, lambda task: task.index in deadly)
    done = conducted(plan, tmp_path, pool)
    assert (done.results, done.errors) == expected(plan, deadly)


@given(st.data())
def test_what_is_stored_is_not_run_again_and_the_rest_is_run_once(data: st.DataObject) -> None:
    plan = plan_of("seed=1..9")
    first = data.draw(st.sets(st.integers(0, 8)))
    luck = data.draw(st.randoms(use_true_random=False))
    before = [cell for cell in plan.cells if cell.index in first]
    ran: Counter[int] = Counter()

    def counted(task: Task) -> Outcome:
        ran[task.index] += 1
        return echo(task)

    with pytest.MonkeyPatch.context() as monkeypatch, TemporaryDirectory() as name:
        pool = scripted(monkeypatch, 2, luck.randrange, counted)
        with closing(Store(Path(name))) as store:
            for cell in before:
                outcome = echoed(cell)
                store.add(cell.key, "from before", outcome.result, outcome.error)
            done = conduct(plan, store.results(), store, pool)
        again = conducted(plan, Path(name), pool)
        stored = rows(Path(name))
    results, errors = expected(plan)
    kept = first & results.keys()
    assert done == Done(results, errors, len(kept))
    assert again == Done(results, errors, len(results))
    # A cell that failed is given another chance each time.
    assert ran == {cell.index: 1 for cell in plan.cells if cell.index not in kept} | dict.fromkeys(errors, 2)
    assert {label for _, label, result, _ in stored.values() if result is not None} == {
        *(["from before"] if kept else []),
        *(f"seed = {i + 1}" for i in results.keys() - kept),
    }


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", "no JSON", '{"summary": {}, "runs": [], "replayed_steps": 0}']
)
def test_a_stored_result_that_cannot_be_read_is_run_again(tmp_path: Path, text: str) -> None:
    plan = plan_of("seed=1")
    with closing(Store(tmp_path)) as store:
        store.add(plan.cells[0].key, "seed = 1", text, None)
    done = conducted(plan, tmp_path)
    assert done.reused == 0
    assert done.results[0] == rows(tmp_path)[plan.cells[0].key][2] != text


def test_nothing_is_asked_of_workers_where_all_is_stored(tmp_path: Path) -> None:
    plan = plan_of("drafter.block=2,8")
    done = conducted(plan, tmp_path)
    assert conducted(plan, tmp_path, nobody) == done._replace(reused=1)


@pytest.mark.parametrize("count", [1, 3])
def test_only_so_many_cells_are_handed_over_as_keep_the_workers_busy(
    count: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = []

    def first(length: int) -> int:
        running.append(length)
        return 0

    conducted(plan_of("seed=1..9"), tmp_path, scripted(monkeypatch, count, first, echo))
    assert max(running) == conductor.AHEAD * count


def test_progress_moves_once_for_every_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    moves: list[int] = []
    pool = scripted(monkeypatch, 2, lambda _: 0, echo)
    for plan in (plan_of("seed=1..4", "drafter.block=2,8"), plan_of("seed=1..6", "drafter.block=2,8")):
        moves.clear()
        with closing(Store(tmp_path)) as store:
            conduct(plan, store.results(), store, pool, lambda: moves.append(1))
        assert len(moves) == len(plan.cells)


def test_a_cell_is_on_disk_before_the_next_one_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(_: int) -> int:
        seen.append(len(rows(tmp_path)))
        return 0

    conducted(plan_of("seed=1..5"), tmp_path, scripted(monkeypatch, 2, look, echo))
    assert seen == [0, 1, 2, 3, 4]


def test_an_interrupt_leaves_what_was_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, left = plan_of("seed=1..6"), iter([0, 0, 0])

    def interrupted(_: int) -> int:
        for choice in left:
            return choice
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        conducted(plan, tmp_path, scripted(monkeypatch, 2, interrupted, echo))
    assert [label for _, label, _, _ in rows(tmp_path).values()] == ["seed = 1", "seed = 2", "seed = 3"]
    assert conducted(plan, tmp_path, scripted(monkeypatch, 2, lambda _: 0, echo)).reused == 3


def test_adding_a_value_leaves_the_other_cells_alone(tmp_path: Path) -> None:
    small = plan_of("tree.budget=8,16", "drafter.block=6,8")
    large = plan_of("tree.budget=4,8,16", "drafter.block=6,7,8")
    before, alone = conducted(small, tmp_path), rows(tmp_path)
    after, together = conducted(large, tmp_path), rows(tmp_path)
    fresh = conducted(large, tmp_path / "fresh")
    assert (before.reused, after.reused, fresh.reused) == (0, 4, 0)
    assert after.results == fresh.results
    assert alone.items() <= together.items()
    of = {cell.key: cell.index for cell in large.cells}
    for cell in small.cells:
        assert before.results[cell.index] == after.results[of[cell.key]] == alone[cell.key][2]


def test_a_result_is_known_by_everything_it_depends_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    conducted(plan_of("seed=1,2"), tmp_path)
    assert conducted(plan_of("seed=1,2", runs=6), tmp_path).reused == 0
    assert (
        conducted(plan_of("seed=1,2", question="May one ask in other words?"), tmp_path, nobody).reused == 2
    )
    monkeypatch.setattr(digests, "code", lambda: "another version")
    assert conducted(plan_of("seed=1,2"), tmp_path).reused == 0


def test_a_worker_of_another_version_is_refused() -> None:
    setup = setup_of(plan_of("seed=1").cells[0])
    outcome = run_cell(Task(3, setup, "older"))
    assert outcome == Outcome(3, None, "this worker has another version of the simulator or its libraries")


def test_whatever_goes_wrong_in_a_cell_is_its_error_and_stops_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def moody(setup: Setup) -> CellResult:
        if setup.scenario.seed == 2:
            raise ZeroDivisionError("by nothing")
        if setup.scenario.seed == 3:
            raise MemoryError
        return simulate(setup)

    monkeypatch.setattr(cells, "simulate", moody)
    done = conducted(plan_of("seed=1..4"), tmp_path)
    assert done.results.keys() == {0, 3}
    assert done.errors[1].startswith("ZeroDivisionError: by nothing (moody, line ")
    assert done.errors[2].startswith("MemoryError")


def test_not_a_number_is_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    setup = setup_of(plan_of("seed=1").cells[0])
    monkeypatch.setattr(cells, "simulate", lambda _: CellResult({"x": float("nan")}, [], 0))
    outcome = run_cell(Task(0, setup, digests.code()))
    assert outcome.result is None
    assert "ValueError" in (outcome.error or "")


def test_a_worker_killed_in_the_middle_of_a_pool_changes_no_byte(tmp_path: Path) -> None:
    plan = plan_of("tree.budget=8,16", "drafter.block=6,8", runs=60)
    killed: list[int] = []
    swept(plan, tmp_path / "whole")

    def kill_one() -> None:
        if not killed:
            worker = active_children()[0]
            killed.append(worker.pid or 0)
            worker.kill()

    pool = partial(executors.processes, 2)
    result = sweep(plan, tmp_path / "killed", IfStored.REFUSE, pool, kill_one)
    assert killed
    assert not result.errors
    assert files(tmp_path / "killed") == files(tmp_path / "whole")
    assert not active_children()


def test_an_interrupt_is_for_the_parent_to_hear(tmp_path: Path) -> None:
    def interrupt_workers() -> None:
        for worker in active_children():
            os.kill(worker.pid or 0, signal.SIGINT)

    plan, pool = plan_of("seed=1,2", runs=60), partial(executors.processes, 1)
    with closing(Store(tmp_path)) as store:
        done = conduct(plan, {}, store, pool, interrupt_workers)
    assert set(done.results) == {0, 1}
    assert not done.errors


@contextmanager
def deadly_processes() -> Iterator[Workers]:
    """One real process, in which seed 2 kills it."""
    with executors.processes(1) as workers:

        def submit(work: Any, task: Task) -> Any:
            fatal = task.setup.scenario.seed == 2
            return workers.executor.submit(os._exit, 1) if fatal else workers.executor.submit(work, task)

        executor: Any = SimpleNamespace(submit=submit)
        yield Workers(executor, 1)


def test_a_cell_that_kills_its_process_is_found_out(tmp_path: Path) -> None:
    done = conducted(plan_of("seed=1,2,3"), tmp_path, deadly_processes)
    assert done.results.keys() == {0, 2}
    assert done.errors == {1: DIED}
    assert [error for _, _, _, error in sorted(rows(tmp_path).values())].count(DIED) == 1


def test_workers_asked_for_are_workers_got_on_any_system(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []
    monkeypatch.setattr(executors, "processes", counts.append)
    pool_of(3, None)()
    monkeypatch.delattr(os, "sched_getaffinity")
    pool_of(3, None)()
    pool_of(None, None)()
    assert counts == [3, 3, os.cpu_count()]

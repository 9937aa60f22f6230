"""Run the cells of a plan on an executor; store each as it ends.

A worker that dies takes its pool with it. The cells that were in flight are then run one
at a time, so that the one to blame is found and the others are not lost with it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager
from typing import NamedTuple

from sim import digests
from sim.sweeps.cell import CellResult, Outcome, Task, run_cell
from sim.sweeps.errors import SweepError
from sim.sweeps.executors import Workers
from sim.sweeps.plan import Cell, Plan
from sim.sweeps.store import Store

AHEAD = 2
"""Cells handed over per worker: one runs, the next one waits beside it."""

MAX_DEATHS = 3
"""Cells in a row that each kill a worker of their own before the sweep gives up."""

Pool = Callable[[], AbstractContextManager[Workers]]
Progress = Callable[[], None]


class Done(NamedTuple):
    """What became of every cell: *results* as JSON text and *errors*, by cell index."""

    results: dict[int, str]
    errors: dict[int, str]
    reused: int
    """Results that the store already had."""


def conduct(
    plan: Plan, known: Mapping[str, str], store: Store, pool: Pool, progress: Progress = lambda: None
) -> Done:
    """Run the cells whose results are not *known* by key; each goes into *store* as it ends.

    SweepError where the sweep as a whole cannot go on; what ended before that is stored.
    """
    stored = {key: text for key, text in known.items() if CellResult.readable(text)}
    valid = [cell for cell in plan.cells if cell.setup is not None]
    results = {cell.index: stored[cell.key] for cell in valid if cell.key in stored}
    errors = {cell.index: cell.error or "" for cell in plan.cells if cell.setup is None}
    reused = len(results)
    for _ in range(len(results) + len(errors)):
        progress()
    queue = _Queue([cell for cell in valid if cell.index not in results])
    while queue.open:
        with pool() as workers:
            for cell, outcome in queue.work(workers):
                store.add(cell.key, label(plan, cell), outcome.result, outcome.error)
                if outcome.result is not None:
                    results[cell.index] = outcome.result
                else:
                    errors[cell.index] = outcome.error or ""
                progress()
    return Done(results, errors, reused)


def label(plan: Plan, cell: Cell) -> str:
    """The cell's place in the grid, for people."""
    return ", ".join(f"{axis.name} = {v.label}" for axis, v in zip(plan.axes, cell.point, strict=True))


class _Queue:
    """Cells that wait, and cells suspected of having killed a worker."""

    def __init__(self, cells: Iterable[Cell]) -> None:
        self._waiting = deque(cells)
        self._suspects: deque[Cell] = deque()
        self._running: dict[Future[Outcome], Cell] = {}
        self._code = digests.code()
        self._deaths = 0
        """Workers that died since a cell last came to an end of its own."""

    @property
    def open(self) -> bool:
        """True while there is anything left to run."""
        return bool(self._waiting or self._suspects)

    def work(self, workers: Workers) -> Iterable[tuple[Cell, Outcome]]:
        """Run the suspects one at a time, or else what waits, until a worker died with its pool."""
        one_by_one = bool(self._suspects)
        source, room = (self._suspects, 1) if one_by_one else (self._waiting, AHEAD * workers.count)
        unbroken = True
        while True:
            unbroken = unbroken and self._hand_over(source, room, workers)
            if not self._running:
                return
            ended, _ = wait(self._running, return_when=FIRST_COMPLETED)
            for future in ended:
                cell = self._running.pop(future)
                outcome = _outcome(future, cell)
                if outcome is None:
                    unbroken = False
                    outcome = self._died(cell, one_by_one)
                else:
                    self._deaths = 0
                if outcome is not None:
                    yield cell, outcome

    def _died(self, cell: Cell, alone: bool) -> Outcome | None:
        """The verdict on *cell* whose worker died; None where others may have been the cause."""
        if not alone:
            self._suspects.append(cell)
            return None
        self._deaths += 1
        if self._deaths == MAX_DEATHS:
            problem = f"{MAX_DEATHS} workers in a row died, each on a cell of its own"
            raise SweepError("workers", f"{problem} (killed, or out of memory); finished cells are stored")
        return Outcome(cell.index, None, "its worker died twice (killed, or out of memory)")

    def _hand_over(self, source: deque[Cell], room: int, workers: Workers) -> bool:
        """Keep every worker busy; False where the pool is broken already."""
        while source and len(self._running) < room:
            cell = source[0]
            assert cell.setup is not None
            try:
                future = workers.executor.submit(run_cell, Task(cell.index, cell.setup, self._code))
            except BrokenProcessPool:
                return False
            self._running[future] = source.popleft()
        return True


def _outcome(future: Future[Outcome], cell: Cell) -> Outcome | None:
    """What became of *cell*; None where its worker, and with it the pool, died."""
    try:
        return future.result()
    except BrokenProcessPool:
        return None
    except CancelledError as problem:
        raise SweepError("cluster", "it went away; finished cells are stored") from problem
    except Exception as problem:
        # Dask's KilledWorker, or a worker that cannot even read the task.
        return Outcome(cell.index, None, f"{type(problem).__name__}: {problem}")

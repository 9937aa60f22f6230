"""Sweeps whose cells take a moment, results made to measure, and workers that obey a test."""

from __future__ import annotations

import atexit
import json
import sqlite3
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import asdict
from functools import cache
from pathlib import Path
from shutil import rmtree
from tempfile import TemporaryDirectory, mkdtemp
from types import SimpleNamespace
from typing import Any

import pytest

from sim import cli
from sim.statistics import spread
from sim.sweeps.cell import CellResult, Outcome, Task, simulate
from sim.sweeps.conduct import Done, conduct
from sim.sweeps.executors import Workers
from sim.sweeps.plan import Plan, from_target
from sim.sweeps.result import SweepResult, result_of
from sim.sweeps.run import IfStored, sweep
from sim.sweeps.store import FILE, Store

TINY = """\
question: How fast does a small tree decode on two layers?
model: two_layers.yaml
gpu: b300_sxm
interconnect: nvlink5
host: xeon_dual
stack: sglang
drafter: {model: one_layer.yaml, block: 8}
tree: {budget: 8}
acceptance: {mean_length: 4.4}
load: {context_tokens: 4096, output_tokens: 40}
runs: 5
"""
TWO_LAYERS = """\
extends: kimi_k2_6
name: two_layers
title: Kimi on two layers
layers: 2
dense_layers: 1
"""
ONE_LAYER = """\
extends: kimi_dflash
name: one_layer
title: A drafter of one layer
layers: 1
"""
Pool = Callable[[], AbstractContextManager[Workers]]


def write_tiny(folder: Path, **files: str) -> Path:
    """The tiny scenario in *folder*, with its model and drafter, and *files* beside it."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"tiny": TINY, "two_layers": TWO_LAYERS, "one_layer": ONE_LAYER} | files
    for name, text in texts.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "tiny.yaml"


@cache
def tiny() -> Path:
    """The tiny scenario in a folder of its own, for tests that only read it."""
    folder = mkdtemp(prefix="tiny-")
    atexit.register(rmtree, folder)
    return write_tiny(Path(folder))


def plan_of(*options: str, path: Path | None = None, **changes: Any) -> Plan:
    """The plan of the tiny scenario over ``key=values`` axes; ``load__output_tokens=9`` in all cells."""
    given = [(key.replace("__", "."), value, "here") for key, value in changes.items()]
    return from_target(str(path or tiny()), options, given)


@contextmanager
def threads(count: int = 1) -> Iterator[Workers]:
    """Workers in this process."""
    with ThreadPoolExecutor(count) as executor:
        yield Workers(executor, count)


def nobody() -> AbstractContextManager[Workers]:
    """Workers that must not be asked for."""
    raise AssertionError("there is nothing left to run")


def scripted(
    monkeypatch: pytest.MonkeyPatch,
    count: int,
    choose: Callable[[int], int],
    work: Callable[[Task], Outcome],
    deadly: Callable[[Task], bool] = lambda _: False,
) -> Pool:
    """A pool of *count* workers in which *choose* says which of the running cells ends next.

    A *deadly* cell takes the pool with it, and all that runs there, as a dying process does.
    """

    def run(future: Any, running: Sequence[Future[Outcome]]) -> None:
        if deadly(future.task):
            future.pool.broken = True
            for other in running:
                other.set_exception(BrokenProcessPool("died"))
        else:
            future.set_result(work(future.task))

    def wait(futures: Any, **_: Any) -> tuple[set[Future[Outcome]], set[Future[Outcome]]]:
        running = list(futures)
        run(running[choose(len(running))], running)
        done = {future for future in running if future.done()}
        return done, set(running) - done

    monkeypatch.setattr("sim.sweeps.conduct.wait", wait)

    @contextmanager
    def pool() -> Iterator[Workers]:
        state = SimpleNamespace(broken=False)

        def submit(_: Any, task: Task) -> Future[Outcome]:
            if state.broken:
                raise BrokenProcessPool("died before")
            future: Future[Outcome] = Future()
            vars(future).update(task=task, pool=state)
            return future

        executor: Any = SimpleNamespace(submit=submit)
        yield Workers(executor, count)

    return pool


def swept(plan: Plan, folder: Path, pool: Pool = threads, stored: IfStored = IfStored.REFUSE) -> SweepResult:
    """*plan* run into *folder*."""
    return sweep(plan, folder, stored, pool, lambda: None)


def conducted(plan: Plan, folder: Path, pool: Pool = threads) -> Done:
    """The cells of *plan* that *folder* lacks, run; no tables, no pictures."""
    folder.mkdir(exist_ok=True)
    with closing(Store(folder)) as store:
        return conduct(plan, store.results(), store, pool)


def files(folder: Path) -> dict[str, bytes]:
    """Every file of a sweep but its database, which keeps the order in which cells ended."""
    return {path.name: path.read_bytes() for path in folder.iterdir() if not path.name.startswith(FILE)}


def rows(folder: Path) -> dict[str, tuple[Any, ...]]:
    """Every row of a sweep's database by key, read from a copy as if it were after a crash."""
    with TemporaryDirectory() as copy:
        for path in folder.glob(f"{FILE}*"):
            (Path(copy) / path.name).write_bytes(path.read_bytes())
        with closing(sqlite3.connect(Path(copy) / FILE)) as database:
            found = database.execute("SELECT key, rowid, label, result, error FROM cells").fetchall()
    return {key: rest for key, *rest in found}


@cache
def template() -> CellResult:
    """The result of the tiny scenario."""
    setup = plan_of("tree.budget=8").cells[0].setup
    assert setup is not None
    return simulate(setup)


def cell_result(tok_s: Sequence[float], **summary: Any) -> CellResult:
    """A cell whose runs reached *tok_s*; *summary* replaces what else it says."""
    runs = [[10, 1000, round(1e12 / value)] for value in tok_s]
    exact = [tokens / (duration / 1e9) for _, tokens, duration in runs]
    told = {"throughput_tok_s": asdict(spread(exact, exact)), "runs": len(runs), "steps": 10 * len(runs)}
    return CellResult(template().summary | told | summary, runs, 16)


def result_with(plan: Plan, tok_s: Mapping[int, Sequence[float]]) -> SweepResult:
    """*plan* where cells reached *tok_s* in their runs; cells that it does not name failed."""
    results = {index: json.dumps(cell_result(values)._asdict()) for index, values in tok_s.items()}
    errors = {cell.index: f"cell {cell.index} fell over" for cell in plan.cells if cell.index not in tok_s}
    return result_of(plan, Done(results, errors, 0))


def strict_json(text: str) -> Any:
    """*text* read as JSON that knows no NaN and no infinity."""

    def refuse(word: str) -> None:
        raise ValueError(f"not JSON: {word}")

    return json.loads(text, parse_constant=refuse)


def sim_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[Any, str, str]:
    """Exit code, stdout and stderr of a command that is run in this process, with *threads* for processes."""
    monkeypatch.setattr(sys, "argv", ["specdec-sim", *arguments])
    monkeypatch.setattr("sim.sweeps.executors.processes", threads)
    with pytest.raises(SystemExit) as stop:
        cli.main()
    told = capsys.readouterr()
    return stop.value.code or 0, told.out, told.err

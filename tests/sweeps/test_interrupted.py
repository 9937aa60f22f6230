"""A sweep that is killed at any moment loses nothing that it stored, and leaves nobody behind."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from sweeps import conducted, files, nobody, plan_of, rows, swept, write_tiny

from sim.sweeps.plan import Plan
from sim.sweeps.store import FILE

AXES = ("tree.budget=4..16:4", "drafter.block=6,7,8")
RUNS = 200
OUT = "results/sweeps/tiny-tree.budget-drafter.block"
PATIENCE_S = 60
KILLS = 5


def grid(folder: Path) -> Plan:
    """Twelve cells that take a tenth of a second each."""
    return plan_of(*AXES, path=folder / "tiny.yaml", runs=RUNS)


def started(folder: Path, *options: str) -> subprocess.Popen[str]:
    """The sweep of the grid as a user starts it, in a process group of its own."""
    axes = [f"--axis={axis}" for axis in AXES]
    command = [sys.executable, "-m", "sim", "sweep", str(folder / "tiny.yaml"), *axes, f"--runs={RUNS}"]
    return subprocess.Popen(
        [*command, "--workers=1", *options],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def until(done: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not done():
        assert time.monotonic() < deadline, f"waited in vain for {what}"
        time.sleep(0.005)


def alive(pid: int) -> bool:
    """True for a process that exists and is no zombie."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return status.rpartition(")")[2].split()[0] != "Z"


def family(pid: int) -> list[int]:
    """The processes that *pid* started and those that they started."""
    try:
        children = [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return [*children, *(grandchild for child in children for grandchild in family(child))]


def all_go(workers: list[int]) -> None:
    """Wait for the *workers* of a sweep that is no more to end by themselves; end them where they do not."""
    try:
        until(lambda: not any(map(alive, workers)), "workers to go")
    finally:
        for worker in filter(alive, workers):
            os.kill(worker, signal.SIGKILL)


def log_size(folder: Path) -> int:
    """Bytes in the database's log, which grows with every cell that is stored."""
    try:
        return (folder / OUT / f"{FILE}-wal").stat().st_size
    except FileNotFoundError:
        return 0


def wait_for_cells(folder: Path, process: subprocess.Popen[str], count: int) -> None:
    """Until the database has *count* cells more, or the sweep is through."""
    size = log_size(folder)
    for _ in range(count):
        until(lambda: log_size(folder) > size or process.poll() is not None, "a cell to be stored")  # noqa: B023
        size = log_size(folder)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_tiny(tmp_path)
    return tmp_path


def test_killed_at_any_moment_a_sweep_goes_on_to_the_same_bytes(folder: Path) -> None:
    luck, reached = random.Random(20261130), []
    before: dict[str, tuple[Any, ...]] = {}
    for kill in range(KILLS):
        process = started(folder, "--resume")
        # The first one is killed while it starts, the others after a cell or two, in whatever they do then.
        if kill:
            wait_for_cells(folder, process, luck.randint(2, 3))
        time.sleep(luck.uniform(0, 0.2) if kill else luck.uniform(0.2, 2.0))
        children = family(process.pid)
        process.kill()
        assert process.wait() == -signal.SIGKILL
        all_go(children)
        process.communicate()
        found = rows(folder / OUT) if (folder / OUT / FILE).exists() else {}
        # Rows keep their place: a cell that ran again would have moved to the end.
        assert before.items() <= found.items()
        before = found
        reached.append(len(found))
    assert 1 < reached[-1] < len(grid(folder).cells), reached
    last = started(folder, "--resume", "--quiet")
    assert last.communicate(timeout=PATIENCE_S) == ("", "")
    assert last.returncode == 0
    assert before.items() <= rows(folder / OUT).items()
    assert len(rows(folder / OUT)) == len(grid(folder).cells)
    swept(grid(folder), folder / "whole")
    left = {name: data for name, data in files(folder / OUT).items() if not name.startswith(".")}
    assert left == files(folder / "whole")


def test_an_interrupt_ends_a_sweep_at_once_and_says_how_to_go_on(folder: Path) -> None:
    process = started(folder)
    until(lambda: len(family(process.pid)) >= 1 and log_size(folder) > 0, "the first worker")
    wait_for_cells(folder, process, 2)
    children = family(process.pid)
    begin = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # As Ctrl-C does: everybody in the terminal hears it.
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - begin < 10
    assert process.returncode == 130
    assert stdout == ""
    assert re.fullmatch(rf"interrupted; \d+ of \d+ cells are finished in {OUT}/, --resume goes on\n", stderr)
    all_go(children)
    kept = rows(folder / OUT)
    assert 0 < len(kept) < 12
    assert conducted(grid(folder), folder / OUT).reused == len(kept)
    assert conducted(grid(folder), folder / OUT, nobody).reused == 12


def test_an_interrupt_before_the_first_cell_is_an_interrupt(folder: Path) -> None:
    process = started(folder, "--runs=100000")  # Nobody waits for the first cell to end.
    until(lambda: bool(family(process.pid)), "the first worker")
    time.sleep(0.3)
    children, begin = family(process.pid), time.monotonic()
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=PATIENCE_S)
    assert time.monotonic() - begin < 10
    all_go(children)
    assert (process.returncode, stdout) == (130, "")
    assert re.search(rf"interrupted; 0 of \d+ cells are finished in {OUT}/, --resume goes on\n\Z", stderr)

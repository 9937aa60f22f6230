"""The database of finished cells: one sweep at a time, all or nothing, and plain words when it cannot."""

from __future__ import annotations

import os
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sweeps import conducted, nobody, plan_of, rows, swept, threads

from sim.sweeps.errors import SweepError
from sim.sweeps.run import IfStored
from sim.sweeps.store import FILE, FORMAT, Store

HOLD = """
import sys
from pathlib import Path
from sim.sweeps.store import Store
store = Store(Path(sys.argv[1]))
store.add("a", "first", "{}", None)
print("holding", flush=True)
sys.stdin.read()
"""
Outcomes = dict[str, tuple[str | None, str | None]]
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=9)
outcomes = st.tuples(texts, st.none()) | st.tuples(st.none(), texts)


@given(st.lists(st.tuples(st.sampled_from("abcd"), outcomes), max_size=8))
def test_what_was_added_last_under_a_key_is_there_when_opened_again(
    added: list[tuple[str, tuple[str | None, str | None]]],
) -> None:
    expected: Outcomes = {}
    with TemporaryDirectory() as name:
        folder = Path(name)
        for key, (result, error) in added:
            with closing(Store(folder)) as store:
                store.add(key, f"label of {key}", result, error)
            expected[key] = (result, error)
        with closing(Store(folder)) as store:
            finished = {key: result for key, (result, _) in expected.items() if result is not None}
            assert store.results() == finished
            assert len(store) == len(finished)
        found = {key: (label, result, error) for key, (_, label, result, error) in rows(folder).items()}
        assert found == {key: (f"label of {key}", *outcome) for key, outcome in expected.items()}


def test_a_closed_database_is_one_file(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.add("a", "first", "{}", None)
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_two_sweeps_in_one_folder_are_refused_until_the_first_one_ends(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "holding\n"
        with pytest.raises(SweepError) as refused:
            swept(plan_of("seed=1"), tmp_path, nobody, IfStored.RESTART)
        assert str(refused.value) == f"{tmp_path / FILE}: another sweep is writing here"
        holder.kill()
    with closing(Store(tmp_path)) as store:
        assert store.results() == {"a": "{}"}


def alien(path: Path) -> None:
    path.write_text("These are my notes, and no database at all. " * 100)


def later(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {FORMAT + 1}")


def elsewhere(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE cells (mine TEXT)")


def without_a_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        database.execute(f"PRAGMA user_version = {FORMAT}")


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (alien, "not a database of sweep cells (file is not a database); delete it to start over"),
        (later, f"format {FORMAT + 1}, but this version reads {FORMAT}; delete it to start over"),
        (elsewhere, "table cells already exists"),
        (without_a_table, "no such table: cells"),
        (Path.mkdir, "unable to open database file"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_as_it_is(
    tmp_path: Path, spoil: Callable[[Path], None], message: str
) -> None:
    spoil(tmp_path / FILE)
    before = (tmp_path / FILE).read_bytes() if (tmp_path / FILE).is_file() else b""
    with pytest.raises(SweepError) as refused:
        swept(plan_of("seed=1"), tmp_path, nobody)
    assert str(refused.value) == f"{tmp_path / FILE}: {message}"
    if spoil is alien:
        assert (tmp_path / FILE).read_bytes() == before


def test_a_damaged_database_is_said(tmp_path: Path) -> None:
    conducted(plan_of("seed=1..3"), tmp_path)
    whole = (tmp_path / FILE).read_bytes()
    (tmp_path / FILE).write_bytes(whole[:4096] + os.urandom(len(whole) - 4096))
    with pytest.raises(SweepError, match="not a database of sweep cells"):
        swept(plan_of("seed=1..3"), tmp_path, nobody, IfStored.RESUME)


def test_a_full_disk_stops_the_sweep_and_keeps_what_was_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, prepare = plan_of("seed=1..6"), Store._prepare

    def cramped(store: Store) -> None:
        prepare(store)
        store._database.execute("PRAGMA max_page_count = 7")

    with monkeypatch.context() as patch:
        patch.setattr(Store, "_prepare", cramped)
        with pytest.raises(SweepError, match=r"cells.db: database or disk is full"):
            swept(plan, tmp_path)
    kept = rows(tmp_path)
    assert 0 < len(kept) < 6
    assert not (tmp_path / "sweep.json").exists()
    assert conducted(plan, tmp_path).reused == len(kept)


def test_a_disk_that_takes_no_more_bytes_stops_the_sweep_too(tmp_path: Path) -> None:
    plan = plan_of("seed=1..6")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (40_000, before[1]))
    try:
        with pytest.raises(SweepError, match=r"cells.db: (disk I/O error|database or disk is full)"):
            swept(plan, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    kept = rows(tmp_path)
    assert 0 < len(kept) < 6
    assert conducted(plan, tmp_path).reused == len(kept)


def test_finished_cells_are_neither_lost_nor_used_without_being_asked(tmp_path: Path) -> None:
    plan = plan_of("seed=1,2")
    first = conducted(plan, tmp_path)
    with pytest.raises(SweepError) as refused:
        swept(plan, tmp_path, nobody)
    words = "has 2 finished cells; --resume goes on with them, --restart forgets them"
    assert str(refused.value) == f"{tmp_path}: {words}"
    with closing(Store(tmp_path)) as store:
        assert len(store) == len(first.results)


def test_restart_runs_again_what_resume_takes_over(tmp_path: Path) -> None:
    plan = plan_of("seed=1,2")
    conducted(plan, tmp_path)
    before = rows(tmp_path)
    assert swept(plan, tmp_path, nobody, IfStored.RESUME).reused == 2
    with pytest.raises(AssertionError, match="nothing left to run"):
        swept(plan, tmp_path, nobody, IfStored.RESTART)
    # What was there is lost only when there is something to take its place.
    assert rows(tmp_path) == before
    assert swept(plan, tmp_path, threads, IfStored.RESTART).reused == 0
    after = rows(tmp_path)
    assert {key: row[1:] for key, row in after.items()} == {key: row[1:] for key, row in before.items()}


def test_cells_that_failed_do_not_stand_in_the_way(tmp_path: Path) -> None:
    with closing(Store(tmp_path)) as store:
        store.add("a", "first", None, "the worker died")
    assert swept(plan_of("seed=1"), tmp_path, threads).results.keys() == {0}


@pytest.mark.parametrize("folder", ["/proc/self/sweeps", "a_file/sweeps"])
def test_a_folder_that_cannot_be_made_is_said_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a_file").write_text("in the way")
    with pytest.raises(OSError, match=r"No such file|Not a directory"):
        swept(plan_of("seed=1"), Path(folder), nobody)

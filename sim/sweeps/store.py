"""Finished cells in an SQLite database, each on disk before the next one is waited for.

The database is opened for one sweep at a time. Killing that sweep at any moment leaves
every cell that was stored, and nothing by halves.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sim.sweeps.errors import SweepError

FILE = "cells.db"
FORMAT = 1
"""1 (2026-11): first. Kept in SQLite's user_version."""


class Store:
    """Results by cell key. Every method raises SweepError where the database cannot do it."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        with self._problems():
            self._database = sqlite3.connect(self._path, isolation_level=None, timeout=0)
        try:
            with self._problems():
                self._prepare()
        except SweepError:
            self._database.close()
            raise

    def _prepare(self) -> None:
        # Exclusive: two sweeps in one folder would overwrite each other's pictures.
        self._database.execute("PRAGMA locking_mode = EXCLUSIVE")
        self._database.execute("PRAGMA journal_mode = WAL")
        self._database.execute("PRAGMA synchronous = FULL")
        self._database.execute("BEGIN EXCLUSIVE")
        (version,) = self._database.execute("PRAGMA user_version").fetchone()
        if version == 0:
            self._database.execute(
                "CREATE TABLE cells (key TEXT PRIMARY KEY, label TEXT NOT NULL, result TEXT, error TEXT)"
            )
            self._database.execute(f"PRAGMA user_version = {FORMAT}")
        self._database.execute("COMMIT")
        if version not in (0, FORMAT):
            raise SweepError(
                str(self._path), f"format {version}, but this version reads {FORMAT}; delete it to start over"
            )

    def __len__(self) -> int:
        with self._problems():
            (count,) = self._database.execute(
                "SELECT count(*) FROM cells WHERE result IS NOT NULL"
            ).fetchone()
        return int(count)

    def results(self) -> dict[str, str]:
        """The result of every finished cell by key."""
        with self._problems():
            rows = self._database.execute("SELECT key, result FROM cells WHERE result IS NOT NULL")
            return dict(rows.fetchall())

    def add(self, key: str, label: str, result: str | None, error: str | None) -> None:
        """Store a finished or failed cell; it is on disk when this returns."""
        with self._problems():
            self._database.execute(
                "INSERT OR REPLACE INTO cells VALUES (?, ?, ?, ?)", (key, label, result, error)
            )

    def close(self) -> None:
        """Fold the log into the database and let others in."""
        with self._problems():
            self._database.close()

    @contextmanager
    def _problems(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.OperationalError as problem:
            locked = "locked" in str(problem)
            raise SweepError(
                str(self._path), "another sweep is writing here" if locked else str(problem)
            ) from None
        except sqlite3.DatabaseError as problem:
            raise SweepError(
                str(self._path), f"not a database of sweep cells ({problem}); delete it to start over"
            ) from None

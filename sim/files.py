"""Files that appear whole or not at all, and the text that goes into them."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any


def prepare(folder: Path) -> None:
    """Create *folder* and prove that files can be written there; OSError where they cannot."""
    folder.mkdir(parents=True, exist_ok=True)
    probe = folder / f".probe-{os.getpid()}"
    probe.write_text("")
    probe.unlink()


def prepare_file(path: Path, endings: Sequence[str]) -> None:
    """Prove that *path*, with one of *endings*, can be written; ValueError or OSError where it cannot."""
    if path.suffix not in endings:
        raise ValueError(f"{path}: expected a name that ends in {' or '.join(endings)}")
    if path.is_dir():
        raise ValueError(f"{path} is a folder, not a file")
    if path.parent.is_file():
        raise ValueError(f"{path}: {path.parent} is a file, not a folder")
    prepare(path.parent)


def as_json(value: Any) -> str:
    """Strict JSON: NaN and infinity are our bug."""
    return json.dumps(value, indent=2, allow_nan=False)


def replace(path: Path, text: str) -> None:
    """Put *text* at *path* in one move."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file beside *path* that takes its place when all went well."""
    temporary = path.with_name(f".{os.getpid()}-{path.name}")
    try:
        yield temporary
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """*rows* under *columns* as CSV."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return stream.getvalue()

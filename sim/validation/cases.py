"""Reads published measurements from a CSV file: one row a configuration that somebody ran.

The columns are those of the shipped ``validation/cases.csv``; most may be left out. Text columns say what was
run in whatever words the source has; ``sim.validation.translation`` makes a scenario of them.
"""

from __future__ import annotations

import csv
import difflib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import NamedTuple

from sim.validation.errors import CasesError

MAX_BYTES = 10_000_000
MISSPELT = 0.75
"""How like an absent column a further one must be to be taken for a slip of it."""
MAX_CELL = 2_000
"""Characters of one cell; no measurement takes more."""


@dataclass(frozen=True)
class Case:
    """One row: what was run (as its source words it), and how many tokens per second it gave.

    Numbers are None, and texts empty, where the row leaves them blank.
    """

    line: int
    """1-based line of the file where the row begins."""
    id: str
    model: str
    drafter: str
    method: str
    gpu: str
    n_gpu: int | None
    interconnect: str
    parallelism: str
    quantisation: str
    kv_dtype: str
    engine: str
    block_size: int | None
    """Positions of a draft pass, the known first token included."""
    num_draft_tokens: int | None
    """Tokens that a step drafts."""
    tree_budget: int | None
    """Nodes of the draft tree without its root."""
    topk: int | None
    """Choices kept per node of an EAGLE tree; 1 is a chain."""
    verify_M_per_req: int | None
    """Tokens of one request in one verify pass, the root included."""
    concurrency: int | None
    """Requests decoded together."""
    context_tokens: str
    """Cached tokens when decoding begins, or ``1k in/2k out``."""
    workload: str
    temperature: float | None
    acceptance_length: float | None
    """Tokens committed a step, the target's own included."""
    acceptance_length_origin: str
    tok_s_total: float | None
    """With the row's method, all requests together."""
    baseline_tok_s_total: float | None
    """The same system without speculation."""
    notes: str
    source: str


class _Range(NamedTuple):
    """What a number of a column may be."""

    least: float
    above: bool = False
    """Whether *least* itself is excluded."""
    whole: bool = False
    most: float = 1e9
    """Beyond it something else than the column's unit was written."""

    def problem(self, value: float) -> str:
        """Why *value* may not be; empty where it may."""
        if value < self.least or (self.above and value == self.least):
            return f"must be {'above' if self.above else 'at least'} {self.least:g}"
        if value > self.most:
            return f"must be at most {self.most:,.0f}"
        if 0 < value < 1 / self.most:
            return f"must be at least {1 / self.most:g}"
        return "must be a whole number" if self.whole and value != int(value) else ""


_NUMBERS: dict[str, _Range] = {
    "n_gpu": _Range(1, whole=True),
    "block_size": _Range(0, whole=True),
    "num_draft_tokens": _Range(0, whole=True),
    "tree_budget": _Range(0, whole=True),
    "topk": _Range(0, whole=True),
    "verify_M_per_req": _Range(1, whole=True),
    "concurrency": _Range(1, whole=True),
    "temperature": _Range(0),
    "acceptance_length": _Range(1),
    "tok_s_total": _Range(0, above=True),
    "baseline_tok_s_total": _Range(0, above=True),
}
COLUMNS = tuple(field.name for field in fields(Case) if field.name != "line")
"""The columns of a file of cases, in the order of the shipped one; any order will do."""
NEEDED = ("id", "model", "gpu", "engine")
"""The columns that every file has; others that it lacks are blank in all its rows."""
THROUGHPUTS = ("tok_s_total", "baseline_tok_s_total")
"""At least one of them is there."""


def read(path: Path) -> tuple[Case, ...]:
    """The cases in *path*, in order; CasesError where it is not such a file."""
    rows = _rows(path)
    _, header = next(rows, (0, []))
    if not any(map(str.strip, header)):
        raise CasesError(str(path), 0, "", "empty; expected a line of column names and a row for each case")
    names = [name.strip() for name in header]
    _check_header(str(path), names)
    cases = tuple(_case(str(path), line, names, row) for line, row in rows if any(map(str.strip, row)))
    if not cases:
        raise CasesError(str(path), 0, "", "no rows below the column names")
    _check_ids(str(path), cases)
    return cases


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Every record with the line where it begins."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise CasesError(str(path), 0, "", f"larger than {MAX_BYTES:,} bytes")
        with path.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, strict=True)
            line = 1
            for row in reader:
                yield line, row
                line = reader.line_num + 1
    except UnicodeDecodeError as problem:
        raise CasesError(str(path), 0, "", f"not UTF-8 text: {problem.reason}") from None
    except csv.Error as problem:
        raise CasesError(str(path), reader.line_num, "", f"not CSV: {problem}") from None
    except FileNotFoundError:
        raise CasesError(str(path), 0, "", "no such file") from None
    except (OSError, ValueError) as problem:
        what = problem.strerror if isinstance(problem, OSError) else str(problem)
        raise CasesError(str(path), 0, "", what or "cannot be read") from None


def _check_header(file: str, names: Sequence[str]) -> None:
    """No column twice, those needed there, none misspelt. Further columns are the user's own and not read."""
    for name in COLUMNS:
        if names.count(name) > 1:
            raise CasesError(file, 1, name, "column given twice")
    absent = [name for name in COLUMNS if name not in names]
    for own in (name for name in names if name not in COLUMNS):
        near = difflib.get_close_matches(own.lower(), [name.lower() for name in absent], n=1, cutoff=MISSPELT)
        meant = next((name for name in absent if name.lower() in near), None)
        if meant is not None:
            raise CasesError(file, 1, own, f"no such column, did you mean '{meant}'?")
    missing = [name for name in NEEDED if name in absent]
    if missing:
        raise CasesError(file, 1, missing[0], f"column missing (needed: {', '.join(NEEDED)})")
    if all(name in absent for name in THROUGHPUTS):
        raise CasesError(file, 1, THROUGHPUTS[0], f"column missing (needed: it or {THROUGHPUTS[1]})")


def _case(file: str, line: int, names: Sequence[str], row: Sequence[str]) -> Case:
    if len(row) != len(names):
        problem = f"{len(row)} cells under {len(names)} column names"
        raise CasesError(file, line, "", f"{problem}; text with commas needs quotes")
    cells = dict.fromkeys(COLUMNS, "")
    cells |= {name: cell.strip() for name, cell in zip(names, row, strict=True) if name in COLUMNS}
    if not cells["id"]:
        raise CasesError(file, line, "id", "may not be blank")
    for name, cell in cells.items():
        if len(cell) > MAX_CELL:
            raise CasesError(file, line, name, f"{len(cell):,} characters; at most {MAX_CELL:,} are read")
    found: dict[str, object] = {**cells}
    for name, allowed in _NUMBERS.items():
        found[name] = _number(cells[name], allowed, partial(CasesError, file, line, name))
    _check_context(cells["context_tokens"], partial(CasesError, file, line, "context_tokens"))
    return Case(line=line, **found)  # type: ignore[arg-type]


def _check_context(text: str, error: Callable[[str], CasesError]) -> None:
    """Words are for ``sim.validation.workloads``; where it is a number it must be a sensible one."""
    try:
        float(text)
    except ValueError:
        return
    _number(text, _Range(0, whole=True), error)


def _number(text: str, allowed: _Range, error: Callable[[str], CasesError]) -> float | int | None:
    """The number that *text* writes; None where it is blank."""
    if not text:
        return None
    try:
        # Python reads 1_000 as a number; nobody writes measurements so.
        value = float(text.replace("_", "?"))
    except ValueError:
        raise error(f"expected a number, got '{text}'") from None
    if not math.isfinite(value):
        raise error(f"expected a finite number, got '{text}'")
    problem = allowed.problem(value)
    if problem:
        raise error(f"{problem}, got {text}")
    return int(value) if allowed.whole else value


def _check_ids(file: str, cases: Sequence[Case]) -> None:
    seen: dict[str, int] = {}
    for case in cases:
        if case.id in seen:
            raise CasesError(file, case.line, "id", f"'{case.id}' again, first on line {seen[case.id]}")
        seen[case.id] = case.line

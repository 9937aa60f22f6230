"""A sweep as tables: one row per cell, one row per run; CSV for people, Parquet for programs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from sim import files
from sim.sweeps.axes import Axis, Value
from sim.sweeps.plan import Cell
from sim.sweeps.result import SweepResult

SPREADS = ("throughput_tok_s", "step_time_ms", "acceptance_length")
QUANTILES = ("mean", "half_width", "p5", "p50", "p95")


def cell_table(result: SweepResult) -> pa.Table:
    """One row per cell: axes, quantities, shares of the step, distance from the best."""
    rows = [_cell_row(result, cell) for cell in result.plan.cells]
    names = list(dict.fromkeys(name for row in rows for name in row))
    return pa.table({name: _array([row.get(name) for row in rows]) for name in names})


def _array(values: list[Any]) -> pa.Array:
    """Nothing but missing values are missing numbers."""
    return pa.array(values, pa.float64() if all(value is None for value in values) else None)


def _cell_row(result: SweepResult, cell: Cell) -> dict[str, Any]:
    found = result.results.get(cell.index)
    row: dict[str, Any] = {"cell": cell.index}
    for axis, value in zip(result.plan.axes, cell.point, strict=True):
        row[axis.name] = _coordinate(axis, value)
    row["error"] = result.errors.get(cell.index, "")
    if found is None:
        return row
    for name in SPREADS:
        row |= {f"{name}_{key}": found.summary[name][key] for key in QUANTILES}
    for group in ("breakdown", "sources"):
        row |= {f"{group}_{name.lower()}": share for name, share in found.summary[group].items()}
    row |= {"runs": found.summary["runs"], "steps": found.summary["steps"]}
    assert result.ranking is not None
    verdict = result.ranking.verdicts[cell.index]
    row |= {
        "from_best_tok_s": verdict.difference_tok_s,
        "from_best_half_width": verdict.half_width_tok_s,
        "best": cell.index == result.ranking.best,
        "distinguishable_from_best": verdict.distinguishable,
    }
    return row


def _coordinate(axis: Axis, value: Value) -> int | float | str:
    """A number on a numeric axis, whole where all of them are; a label on any other."""
    if not axis.numeric or value.number is None:
        return value.label
    whole = all(v.number is not None and v.number.is_integer() for v in axis.values)
    return int(value.number) if whole else value.number


def run_table(result: SweepResult) -> pa.Table:
    """One row per run of every finished cell."""
    rows = [
        (index, run, steps, tokens, duration)
        for index, found in result.results.items()
        for run, (steps, tokens, duration) in enumerate(found.runs)
    ]
    columns = zip(*rows, strict=True) if rows else ((),) * 5
    names = ("cell", "run", "steps", "tokens", "duration_ns")
    table = {name: pa.array(column, pa.int64()) for name, column in zip(names, columns, strict=True)}
    return pa.table(table | {"throughput_tok_s": pa.array(_throughputs(result), pa.float64())})


def _throughputs(result: SweepResult) -> list[float]:
    return [value for found in result.results.values() for value in found.throughput_tok_s]


def write(result: SweepResult, folder: Path) -> list[str]:
    """Write the tables into *folder*; the names of the files."""
    cells, runs = cell_table(result), run_table(result)
    files.replace(folder / "cells.csv", _csv(cells))
    _parquet(cells, folder / "cells.parquet")
    _parquet(runs, folder / "runs.parquet")
    return ["cells.csv", "cells.parquet", "runs.parquet"]


def _csv(table: pa.Table) -> str:
    rows = ([_text(value) for value in row.values()] for row in table.to_pylist())
    return files.csv_text(table.column_names, rows)


def _text(value: Any) -> Any:
    return f"{value:.9g}" if isinstance(value, float) else value


def _parquet(table: pa.Table, path: Path) -> None:
    """Write *table* at *path* in one move."""
    with files.replacing(path) as temporary:
        pq.write_table(table, temporary, compression="zstd")

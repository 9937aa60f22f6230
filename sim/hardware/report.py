"""Measured files and comparisons in words: lines of text and JSON objects. Nothing here prints."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hwmodels.cases import AnyCase, Op, sizes
from hwmodels.measured import MeasuredFile, Point
from sim.hardware.comparison import Comparison, Row, fixed_sizes, varying_sizes
from sim.report import number, percent, render

WIDTH = 130
DIGITS = 6
"""Significant digits of numbers in JSON."""


def file_lines(file: MeasuredFile) -> list[str]:
    """A measured file: where it comes from, and every point."""
    header = file.header
    device, software, harness = header.device, header.software, header.harness
    ceiling = f"copy {header.ceilings.copy_bandwidth_gb_s:,.0f} GB/s"
    if header.ceilings.bf16_tflops is not None:
        ceiling += f", bf16 {header.ceilings.bf16_tflops:,.0f} TFLOP/s"
    head = [
        f"{file.name}: {device.name}, {device.compute_capability}, {device.sm_count} SMs",
        f"measured {header.measured_at}, plan {harness.plan}{' (short)' if harness.short else ''},"
        f" seed {header.seed}; driver {software.driver}, nvcc {software.nvcc}, commit {software.git_commit}",
        f"ceilings as measured: {ceiling}; floors rest on them",
    ]
    parts: list[RenderableType] = [Text(line) for line in head]
    for op in Op:
        points = [point for point in file.points if point.case.op is op]
        if points:
            cases = [point.case for point in points]
            parts += [Text(), Text(f"{op.value}{_fixed(cases)}"), _points_table(points)]
    return render(parts, width=WIDTH)


def _fixed(cases: list[AnyCase]) -> str:
    """The sizes that all *cases* share, in brackets."""
    fixed = fixed_sizes(cases)
    return f" ({fixed})" if fixed else ""


def _points_table(points: list[Point]) -> Table:
    varying = varying_sizes([point.case for point in points])
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in (*varying, "series", "median us", "IQR", "floor us", "achieved", "samples", "discarded"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("stopped by", no_wrap=True)
    table.add_column("kernel", overflow="fold")
    for point in points:
        table.add_row(*(str(sizes(point.case)[name]) for name in varying), *_point_cells(point))
    return table


def _point_cells(point: Point) -> tuple[str, ...]:
    return (
        point.series.value,
        number(point.median_us),
        percent(point.relative_iqr),
        number(point.floor_us) if point.floor_us else "",
        "" if point.achieved is None else percent(point.achieved),
        str(len(point.samples_us)),
        str(sum(point.discarded.values()) or ""),
        point.stop.value,
        point.kernel,
    )


def file_object(file: MeasuredFile) -> dict[str, Any]:
    """A measured file as a JSON object, statistics in place of samples."""
    return {
        "name": file.name,
        "sha256": file.sha256,
        "header": file.header.model_dump(mode="json", exclude={"line"}),
        "points": [
            point.model_dump(mode="json", exclude={"line", "samples_us", "touched_experts"})
            | {"samples": len(point.samples_us), "median_us": point.median_us}
            | {"relative_iqr": point.relative_iqr, "achieved": point.achieved}
            for point in file.points
        ],
    }


def comparison_lines(comparison: Comparison) -> list[str]:
    """A table for each op that both sides speak of, then what was left out."""
    parts: list[RenderableType] = [Text(f"A: {comparison.a}"), Text(f"B: {comparison.b}")]
    parts.append(Text(_how_to_read(comparison) if comparison.rows else "They have no point in common."))
    for op, rows in comparison.rows.items():
        parts += [Text(), Text(_op_head(comparison, op, rows)), _rows_table(rows)]
    if comparison.left_out:
        parts += [Text(), *(Text(f"Not compared: {line}") for line in comparison.left_out)]
    return render(parts, width=WIDTH)


def _how_to_read(comparison: Comparison) -> str:
    why = ", as published tables have them" if comparison.of_means else " of the samples"
    return f"Times are {_times(comparison)}{why}. B/A above 1: B is slower; +- is one sigma of it."


def _times(comparison: Comparison) -> str:
    return "means" if comparison.of_means else "medians"


def _op_head(comparison: Comparison, op: Op, rows: tuple[Row, ...]) -> str:
    where = _fixed([row.case for row in rows])
    return f"{op.value}{where}: B/A {comparison.middle(op):.2f} in the median of {len(rows)} points"


def _rows_table(rows: tuple[Row, ...]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    varying = varying_sizes([row.case for row in rows])
    for name in (*varying, "series"):
        table.add_column(name, justify="right")
    for name in ("A us", "B us", "B/A", "+-"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        measured = (number(row.a.us), number(row.b.us), f"{row.ratio:.2f}", f"{row.ratio_error:.2f}")
        table.add_row(*(str(sizes(row.case)[name]) for name in varying), row.series.value, *measured)
    return table


def comparison_object(comparison: Comparison) -> dict[str, Any]:
    """The comparison as a JSON object; ratios are B over A."""
    return {
        "a": comparison.a,
        "b": comparison.b,
        "times": _times(comparison),
        "ops": {
            op.value: {
                "median_ratio": _rounded(comparison.middle(op)),
                "points": [_row_object(row) for row in rows],
            }
            for op, rows in comparison.rows.items()
        },
        "left_out": list(comparison.left_out),
    }


def _row_object(row: Row) -> dict[str, Any]:
    return {
        "case": sizes(row.case),
        "series": row.series.value,
        "a_us": _rounded(row.a.us),
        "b_us": _rounded(row.b.us),
        "ratio": _rounded(row.ratio),
        "ratio_error": _rounded(row.ratio_error),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.{DIGITS}g}")

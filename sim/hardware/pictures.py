"""Plots of a comparison: time over the size that an op grows with, a panel for each set of others."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import AutoLocator, Locator, LogLocator, NullFormatter

from hwmodels.cases import Op, sizes
from hwmodels.measured import Series
from sim import pictures
from sim.hardware.comparison import Comparison, Reading, Row, fixed_sizes, varying_sizes

GROWS_WITH: dict[Op, str] = {
    Op.EXPERTS: "tokens",
    Op.MLA: "context_tokens",
    Op.GEMM: "tokens",
    Op.NORM: "tokens",
    Op.TOP_K: "rows",
    Op.TREE_BUILD: "nodes",
    Op.TREE_ACCEPT: "tokens",
    Op.ALLREDUCE: "message_bytes",
    Op.ALLREDUCE_STANDIN: "message_bytes",
    Op.DEVICE_COPY: "size_bytes",
    Op.HOST_COPY: "size_bytes",
    Op.GRAPH_LAUNCH: "nodes",
    Op.GRAPH_REPLAY: "nodes",
}
"""The size along the horizontal axis; an op that is not here has nothing to plot."""
SHOWN_AS = {
    "tokens": "tokens (M)",
    "context_tokens": "context (tokens)",
    "message_bytes": "message (bytes)",
    "size_bytes": "size (bytes)",
}
DASHES = {Series.COLD: "-", Series.WARM: "--", Series.GRAPH: ":"}
PANEL = (3.6, 2.9)
LEAST_WIDTH = 5.6
"""Inches."""
COLUMNS = 3
MAX_TICKS = 8
COLOURS = ("#1b4f8a", "#d9822b")
"""Of the two sides; they differ in lightness too."""
MARKERS = ("o", "s")


class Panel(NamedTuple):
    """The rows of one op that share all sizes but the one it grows with."""

    title: str
    rows: list[Row]


def write(comparison: Comparison, folder: Path) -> list[str]:
    """A picture for each op as PNG and SVG in *folder*; the names of the files."""
    figures = ((f"compare_{op.value}", plot(comparison, op)) for op in comparison.rows if op in GROWS_WITH)
    return pictures.write(figures, folder)


def plot(comparison: Comparison, op: Op) -> Figure:
    """Both sides of *op*, every series."""
    panels = list(_panels(op, comparison.rows[op]))
    columns = min(COLUMNS, len(panels))
    rows = math.ceil(len(panels) / columns)
    figure = Figure(
        figsize=(max(LEAST_WIDTH, PANEL[0] * columns), PANEL[1] * rows + 0.9), layout="constrained"
    )
    grid = figure.subplots(rows, columns, squeeze=False, sharey=True)
    for place, axes in enumerate(grid.flat):
        if place < len(panels):
            _draw(axes, op, panels[place])
        else:
            axes.set_visible(False)
    _round_times(grid[0, 0])
    for axes in grid[:, 0]:
        axes.set_ylabel("us")
    _legend(figure, comparison, op)
    figure.suptitle(_title(comparison, op), x=0.01, ha="left", fontsize=10)
    return figure


def _title(comparison: Comparison, op: Op) -> str:
    """What is plotted; below it the sizes that all panels share."""
    middle = "mean" if comparison.of_means else "median"
    fixed = fixed_sizes([row.case for row in comparison.rows[op]])
    return f"{op.value}: {middle} time, samples' quartiles shaded" + (f"\n{fixed}" if fixed else "")


def _panels(op: Op, rows: tuple[Row, ...]) -> Iterator[Panel]:
    found: dict[str, list[Row]] = {}
    varying = varying_sizes([row.case for row in rows])
    for row in rows:
        others = ((name, value) for name, value in sizes(row.case).items() if name != GROWS_WITH[op])
        title = ", ".join(f"{name} {value}" for name, value in others if name in varying)
        found.setdefault(title, []).append(row)
    yield from (Panel(title, members) for title, members in found.items())


def _draw(axes: Axes, op: Op, panel: Panel) -> None:
    for series in Series:
        rows = [row for row in panel.rows if row.series is series]
        x = [float(sizes(row.case)[GROWS_WITH[op]]) for row in rows]
        for which, readings in enumerate(([row.a for row in rows], [row.b for row in rows])):
            if rows and (readings[0].samples or series is panel.rows[0].series):
                _line(axes, x, readings, series, which)
    name = GROWS_WITH[op]
    axes.set(yscale="log", xlabel=SHOWN_AS.get(name, name.replace("_", " ")))
    _ticks(axes, sorted({float(sizes(row.case)[name]) for row in panel.rows}))
    axes.set_title(panel.title, fontsize=8, loc="left")
    axes.grid(alpha=0.3)


def _ticks(axes: Axes, x: list[float]) -> None:
    """Measured sizes as far as there is room, and round times.

    Logarithmic; a size of 0, such as an empty context, stands left of the smallest other.
    """
    least = next((value for value in x if value > 0), 1.0)
    # Linear below it: 0 has a place, and sizes from there on are where they would be.
    axes.set_xscale("symlog", linthresh=least) if x[0] == 0 else axes.set_xscale("log")
    apart = math.log(max(x[-1], least) / least) / MAX_TICKS
    shown = x[:1]
    for value in x[1:]:
        if shown[-1] == 0 or math.log(value / shown[-1]) >= apart:
            shown.append(value)
    axes.set_xticks(shown, [_short(value) for value in shown])
    axes.set_xticks([], minor=True)


def _round_times(axes: Axes) -> None:
    """Ticks of the time that all panels share with *axes*."""
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(_round_locator(high / low))
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def _round_locator(span: float) -> Locator:
    """Ticks at round times: two of them at the least, wherever times span such a factor."""
    if span > 10:
        return LogLocator(subs=(1, 2, 5))
    return LogLocator(subs=(1, 1.5, 2, 3, 4, 5, 6, 8)) if span > 3 else AutoLocator()


def _short(value: float) -> str:
    """``64``, ``16k`` or ``2M``, in powers of 1024 where they are whole."""
    for unit, size in (("M", 1 << 20), ("k", 1 << 10)):
        if value >= size and value % size == 0:
            return f"{value / size:g}{unit}"
    return f"{value:g}" if value < 1e5 else f"{value:.0e}"


def _line(axes: Axes, x: list[float], readings: list[Reading], series: Series, which: int) -> None:
    axes.plot(x, [reading.us for reading in readings], **_look(series, which))
    low, high = [reading.low_us for reading in readings], [reading.high_us for reading in readings]
    axes.fill_between(x, low, high, color=COLOURS[which], alpha=0.15, linewidth=0)


def _look(series: Series, which: int) -> Any:
    """How the line of a side is drawn; hollow where the cache was warm."""
    colour = COLOURS[which]
    return {
        "linestyle": DASHES[series],
        "color": colour,
        "marker": MARKERS[which],
        "markersize": 4,
        "markerfacecolor": colour if series is Series.COLD else "none",
    }


def _legend(figure: Figure, comparison: Comparison, op: Op) -> None:
    """A line for each series of a measured side, one for a published one."""
    rows = comparison.rows[op]
    present = [series for series in Series if any(row.series is series for row in rows)]
    lines = []
    for which, (name, reading) in enumerate(((comparison.a, rows[0].a), (comparison.b, rows[0].b))):
        shown = present if reading.samples else [rows[0].series]
        for series in shown:
            label = f"{name}, {series.value}" if reading.samples else name
            lines.append(Line2D([], [], label=label, **_look(series, which)))
    figure.legend(handles=lines, loc="outside lower left", fontsize=8, ncols=2, frameon=False)

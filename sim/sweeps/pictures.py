"""Heat maps and curves of a sweep, as PNG for screens and SVG for print.

A picture shows a slice through the best cell: axes that it does not show are held at the
best cell's value. Bytes depend on nothing but the result.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from numpy.typing import NDArray

from sim import pictures
from sim.pictures import COLOURS, CURVE_SIZE, LARGEST, LINE_STYLES, MARKERS
from sim.sweeps.axes import Axis
from sim.sweeps.result import SweepResult, line_through, positions_of, slice_through

MAX_NUMBERED = 16
"""A map with more values along a side than this has no numbers in its cells."""
MAX_CURVES = 6
MAX_TICKS = 20
MAX_CURVE_TICKS = 11
QUANTITY = "throughput (tok/s)"


def write(result: SweepResult, folder: Path) -> list[str]:
    """Every picture of *result* as PNG and SVG in *folder*; the names of the files."""
    if result.ranking is None:
        return []
    return pictures.write(_figures(result), folder)


def _figures(result: SweepResult) -> Iterator[tuple[str, Figure]]:
    axes = result.plan.axes
    several = [at for at, axis in enumerate(axes) if len(axis.values) > 1]
    for across, up in itertools.combinations(several, 2):
        figure = heat_map(result, across, up)
        yield f"map_{axes[across].name}_{axes[up].name}", titled(figure, result, {across, up})
    for at in several:
        beside = next((other for other in several if other != at), None)
        shown = {at, *([] if beside is None else [beside])}
        yield f"curve_{axes[at].name}", titled(curves(result, at, beside), result, shown)


def heat_map(result: SweepResult, across: int, up: int) -> Figure:
    """Mean throughput over two axes (their positions in the plan)."""
    plan = result.plan
    x, y = plan.axes[across], plan.axes[up]
    cells = _slice(result, across, up)
    values = np.array([[_number(result.throughput(index)) for index in row] for row in cells])
    size = (2.6 + 0.72 * len(x.values), 1.9 + 0.5 * len(y.values))
    width, height = (min(LARGEST, max(least, side)) for side, least in zip(size, (6.4, 3.6), strict=True))
    figure = Figure(figsize=(width, height), layout="constrained")
    plot = figure.subplots()
    plot.set_facecolor("0.9")
    image = plot.imshow(values, origin="lower", aspect="auto", cmap=COLOURS)
    figure.colorbar(image, ax=plot, label=QUANTITY)
    _ticks(plot, x, y)
    _mark(plot, result, cells, values)
    figure.supxlabel(_legend(result), fontsize=8, x=0.01, ha="left")
    return figure


def _number(value: float | None) -> float:
    return np.nan if value is None else value


def _slice(result: SweepResult, across: int, up: int) -> NDArray[np.int64]:
    """Cell indices (values of *up*, values of *across*) through the best cell."""
    assert result.ranking is not None
    return np.array(slice_through(result.plan, result.ranking.best, across, up), dtype=np.int64)


def _ticks(plot: Axes, x: Axis, y: Axis) -> None:
    labels = [value.label for value in x.values]
    shown = _thinned(len(labels))
    tilt = 0 if max(map(len, labels)) < 7 else 30
    plot.set_xticks(
        shown, [labels[place] for place in shown], rotation=tilt, ha="right" if tilt else "center"
    )
    plot.set_yticks(_thinned(len(y.values)), [y.values[place].label for place in _thinned(len(y.values))])
    plot.set_xlabel(x.title)
    plot.set_ylabel(y.title)


def _thinned(count: int) -> list[int]:
    """Places of ticks that leave room for their labels."""
    return list(range(0, count, -(-count // MAX_TICKS)))


def _mark(plot: Axes, result: SweepResult, cells: NDArray[np.int64], values: NDArray[np.float64]) -> None:
    """Numbers, failed cells, the best cell, and those not distinguishable from it."""
    assert result.ranking is not None
    equals = set(result.ranking.not_distinguishable)
    middle = (np.nanmin(values) + np.nanmax(values)) / 2
    numbered = max(cells.shape) <= MAX_NUMBERED
    for (row, column), index in np.ndenumerate(cells):
        value = values[row, column]
        if np.isnan(value):
            corner = (column - 0.5, row - 0.5)
            plot.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="///", edgecolor="0.6", linewidth=0))
        elif numbered:
            colour = "white" if value < middle else "black"
            plot.text(column, row, f"{value:.0f}", ha="center", va="center", color=colour, fontsize=9)
        if index == result.ranking.best or index in equals:
            dashes = "-" if index == result.ranking.best else ":"
            inner = (column - 0.46, row - 0.46)
            plot.add_patch(
                Rectangle(inner, 0.92, 0.92, fill=False, edgecolor="red", linewidth=2, linestyle=dashes)
            )


def titled(figure: Figure, result: SweepResult, shown: set[int]) -> Figure:
    """*figure* under the question, and where the axes that are not *shown* stand."""
    at = held(result, shown)
    lines = [result.plan.question, *([f"at {', '.join(at)}"] if at else [])]
    title = pictures.wrapped(lines, float(figure.get_size_inches()[0]))
    figure.axes[0].set_title(title, fontsize=9, loc="left")
    return figure


def held(result: SweepResult, shown: set[int]) -> list[str]:
    """The best cell's values of the axes that are not *shown*."""
    assert result.ranking is not None
    plan = result.plan
    home = positions_of(plan, result.ranking.best)
    return [
        f"{axis.name} = {axis.values[home[at]].label}"
        for at, axis in enumerate(plan.axes)
        if at not in shown and len(axis.values) > 1
    ]


def _legend(result: SweepResult) -> str:
    found = result.results[min(result.results)].summary
    failed = "; hatched: no valid cell" if result.errors else ""
    return (
        f"mean of {found['runs']} runs; red: best, dotted red: not distinguishable from it"
        f" (paired, 95 %){failed}"
    )


def curves(result: SweepResult, at: int, beside: int | None) -> Figure:
    """Throughput along one axis, a line per value of another; bands from P5 to P95 of the runs."""
    plan = result.plan
    axis = plan.axes[at]
    figure = Figure(figsize=CURVE_SIZE, layout="constrained")
    plot = figure.subplots()
    for line, (label, cells) in enumerate(lines_of(result, at, beside)):
        _line(plot, result, axis, line, label, cells)
    if axis.numeric:
        _numeric_ticks(plot, axis)
    else:
        _named_ticks(plot, axis)
    plot.set_xlabel(axis.title)
    plot.set_ylabel(QUANTITY)
    plot.set_ylim(bottom=0)
    plot.grid(alpha=0.3)
    if beside is not None:
        # By hand: of its own accord matplotlib leaves out labels that begin with an underscore.
        labels = [label for label, _ in lines_of(result, at, beside)]
        plot.legend(plot.lines, labels, title=plan.axes[beside].title, fontsize=8, title_fontsize=8)
    figure.supxlabel("line: mean over runs; band: P5 to P95 of single runs", fontsize=8, x=0.01, ha="left")
    return figure


def lines_of(result: SweepResult, at: int, beside: int | None) -> list[tuple[str, list[int]]]:
    """The lines to draw: a label and the cells along axis *at*."""
    plan = result.plan
    assert result.ranking is not None
    if beside is None:
        return [("", line_through(plan, result.ranking.best, at))]
    grid, values = _slice(result, at, beside), plan.axes[beside].values
    best = positions_of(plan, result.ranking.best)[beside]
    chosen = {
        best,
        *np.linspace(0, len(values) - 1, min(MAX_CURVES, len(values))).round().astype(int).tolist(),
    }
    while len(chosen) > MAX_CURVES:
        chosen.remove(max(chosen - {best}))
    return [(values[row].label, grid[row].tolist()) for row in sorted(chosen)]


def _line(plot: Axes, result: SweepResult, axis: Axis, line: int, label: str, cells: list[int]) -> None:
    # A cell that failed leaves a gap.
    missing = {"mean": np.nan, "p5": np.nan, "p95": np.nan}
    x = [float(place) if value.number is None else value.number for place, value in enumerate(axis.values)]
    spreads = [
        result.results[index].summary["throughput_tok_s"] if index in result.results else missing
        for index in cells
    ]
    mean, low, high = ([spread[key] for spread in spreads] for key in ("mean", "p5", "p95"))
    dashes, marker = LINE_STYLES[line % len(LINE_STYLES)], MARKERS[line % len(MARKERS)]
    (drawn,) = plot.plot(x, mean, linestyle=dashes, marker=marker, markersize=4, label=label)
    plot.fill_between(x, low, high, alpha=0.15, color=drawn.get_color(), linewidth=0)


def _named_ticks(plot: Axes, axis: Axis) -> None:
    labels = [value.label for value in axis.values]
    shown = _thinned(len(labels))
    tilt = 30 if sum(len(labels[place]) for place in shown) > 50 else 0
    side = "right" if tilt else "center"
    plot.set_xticks(shown, [labels[place] for place in shown], rotation=tilt, ha=side)


def _numeric_ticks(plot: Axes, axis: Axis) -> None:
    """The values themselves, as many as fit; a logarithmic scale where they span more than a decade."""
    numbers = sorted(value.number or 0.0 for value in axis.values)
    places = numbers
    if numbers[0] > 0 and numbers[-1] / numbers[0] >= 10:
        plot.set_xscale("log")
        places = np.log(numbers).tolist()
    apart = (places[-1] - places[0]) / MAX_CURVE_TICKS
    shown = [0]
    for place in range(1, len(numbers)):
        if places[place] - places[shown[-1]] >= apart:
            shown.append(place)
    labels = [f"{numbers[place]:g}" for place in shown]
    tilt = 30 if sum(map(len, labels)) > 50 else 0
    plot.set_xticks([numbers[place] for place in shown], labels, rotation=tilt)
    plot.set_xticks([], minor=True)

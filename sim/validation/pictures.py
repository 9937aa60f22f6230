"""Predicted against measured throughput, on logarithmic axes, by system."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from sim import pictures
from sim.validation.translation import CaseKind
from sim.validation.verdicts import Row, Validation, score

SIZE = (6.6, 7.2)
MARGIN = 1.25
"""Of the axes beyond the outermost point."""
BAND = 0.1
MARKERS = "osD^vPX*<>"
LEGEND_COLUMNS = 2


def write(validation: Validation, folder: Path) -> list[str]:
    """The scatter plot as PNG and SVG in *folder*; the names of the files, none without rows."""
    return pictures.write(_figures(validation), folder) if validation.rows else []


def _figures(validation: Validation) -> Iterator[tuple[str, Figure]]:
    yield "scatter", scatter(validation)


def scatter(validation: Validation) -> Figure:
    """One point a row with its 90 % interval; hollow where nothing was drafted."""
    figure = Figure(figsize=SIZE, layout="constrained")
    axes = figure.subplots()
    ends = _ends(validation)
    axes.plot(ends, ends, color="0.4", linewidth=0.8)
    axes.fill_between(
        ends, [e * (1 - BAND) for e in ends], [e * (1 + BAND) for e in ends], color="0.9", linewidth=0
    )
    systems = validation.systems
    for index, rows in enumerate(systems.values()):
        for row in rows:
            _point(axes, row, index, len(systems))
    axes.set(xscale="log", yscale="log", xlim=ends, ylim=ends, aspect="equal")
    axes.set(xlabel="measured, tok/s of all requests", ylabel="predicted, tok/s of all requests")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(lambda value, _: f"{value / 1000:g}k" if value >= 1000 else f"{value:g}")
        axis.set_minor_formatter(NullFormatter())
    figure.suptitle(_title(validation), x=0.01, ha="left", fontsize=9)
    _legend(figure, list(systems))
    return figure


def _title(validation: Validation) -> str:
    found = score(validation.rows)
    assert found is not None
    text = (
        f"{found.rows} published measurements: error {100 * found.mean_absolute_error:.1f} % on average,"
        f" {100 * found.median_absolute_error:.1f} % in the median, bias {100 * found.bias:+.1f} %,"
        f" {100 * found.inside:.0f} % inside the 90 % interval. Band: +-{100 * BAND:.0f} %."
    )
    return pictures.wrapped([text], SIZE[0])


def _ends(validation: Validation) -> tuple[float, float]:
    values = [value for row in validation.rows for value in (row.measured, row.predicted)]
    return min(values) / MARGIN, max(values) * MARGIN


def _point(axes: Axes, row: Row, index: int, of: int) -> None:
    low, high = row.interval
    look = _look(index, of)
    axes.plot([row.measured, row.measured], [low, high], color=look["color"], linewidth=0.7, alpha=0.6)
    hollow = row.kind is CaseKind.BASELINE
    axes.plot(row.measured, row.predicted, **look, markerfacecolor="white" if hollow else look["color"])


def _look(index: int, of: int) -> Any:
    """The marker of a system: shapes differ too, for those who do not see the colours."""
    colour = matplotlib.colormaps[pictures.COLOURS](0.9 * index / max(1, of - 1))
    return {"color": colour, "marker": MARKERS[index % len(MARKERS)], "markersize": 5, "linestyle": "none"}


def _legend(figure: Figure, systems: list[str]) -> None:
    handles = [Line2D([], [], label=name, **_look(i, len(systems))) for i, name in enumerate(systems)]
    grey: Any = {"color": "0.3", "marker": "o", "markersize": 5, "linestyle": "none"}
    handles.append(Line2D([], [], label="hollow: plain decoding", markerfacecolor="white", **grey))
    figure.legend(handles=handles, loc="outside lower left", fontsize=7, ncols=LEGEND_COLUMNS, frameon=False)

"""A calibration as pictures: measurements, what was learnt, and the forecasts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim import pictures
from sim.calibration.forecast import Interval
from sim.calibration.study import Calibration

WIDTH = 8.0
ROW_INCHES, FRAME_INCHES = 0.55, 1.9
BEFORE, AFTER, OTHERS = (matplotlib.colormaps[pictures.COLOURS](at) for at in (0.85, 0.05, 0.5))
CLAIM = "#c8313a"
APART = 0.22
"""Of a row, between its bars."""


class Bar(NamedTuple):
    """An interval with a middle, of one colour."""

    low: float
    middle: float
    high: float
    colour: object


class Row(NamedTuple):
    """Bars under one name, and what was published."""

    name: str
    bars: Sequence[Bar]
    published: tuple[float, float] | None


def write(found: Calibration, folder: Path) -> list[str]:
    """The pictures as PNG and SVG in *folder*; their names."""
    return pictures.write(_figures(found), folder)


def _figures(found: Calibration) -> Iterator[tuple[str, Figure]]:
    yield "measured", measured(found)
    yield "forecast", forecasts(found)


def measured(found: Calibration) -> Figure:
    """Every measurement on what was, is, and by the others would be predicted for it."""
    rows = []
    for fit in found.fits:
        bars = [Bar(*fit.before, BEFORE), Bar(*fit.after, AFTER)]
        bars += [] if fit.left_out is None else [Bar(*fit.left_out.predicted, OTHERS)]
        rows.append(
            Row(fit.observed.name, bars, (fit.observed.published_tok_s, fit.observed.published_tok_s))
        )
    names = {"before": BEFORE, "after all": AFTER, "after the others": OTHERS}
    return _figure("Published measurements and the 90 % intervals predicted for them", rows, names)


def forecasts(found: Calibration) -> Figure:
    """What is known of each scenario, and what was claimed."""
    rows = [
        Row(
            each.name,
            [_bar(each.before, BEFORE), _bar(each.after, AFTER)],
            None if each.claim is None else each.claim.ends,
        )
        for each in found.forecasts
    ]
    count = len(found.fits)
    title = f"Throughput, 90 % intervals before and after {count} measurement{'s' if count > 1 else ''}"
    return _figure(title, rows, {"before": BEFORE, "after": AFTER})


def _bar(interval: Interval, colour: object) -> Bar:
    return Bar(interval.p5, interval.p50, interval.p95, colour)


def _figure(title: str, rows: Sequence[Row], names: Mapping[str, object]) -> Figure:
    height = min(pictures.LARGEST, FRAME_INCHES + ROW_INCHES * len(rows))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots()
    for at, row in enumerate(reversed(rows)):
        _draw(axes, at, row)
    axes.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], fontsize=8)
    axes.set_ylim(-0.6, len(rows) - 0.4)
    axes.set_xlim(left=0)
    axes.set_xlabel("tok/s")
    figure.suptitle(pictures.wrapped([title], WIDTH), x=0.01, ha="left", fontsize=9)
    handles = [axes.plot([], [], color=colour, linewidth=5, label=name)[0] for name, colour in names.items()]
    handles.append(axes.plot([], [], color=CLAIM, linewidth=2, label="published or claimed")[0])
    figure.legend(handles=handles, loc="outside lower left", ncols=4, fontsize=8, frameon=False)
    return figure


def _draw(axes: Axes, at: int, row: Row) -> None:
    first = at + APART * (len(row.bars) - 1) / 2
    for index, bar in enumerate(row.bars):
        height = first - index * APART
        axes.plot([bar.low, bar.high], [height, height], color=bar.colour, linewidth=5, solid_capstyle="butt")
        axes.plot([bar.middle], [height], "o", color="white", markeredgecolor=bar.colour, markersize=5)
    if row.published is not None:
        low, high = row.published
        reach = (at - 0.4, at + 0.4)
        if low < high:
            axes.fill_betweenx(reach, low, high, color=CLAIM, alpha=0.15, linewidth=0)
        for end in {low, high}:
            axes.plot([end, end], reach, color=CLAIM, linewidth=2)

"""Where the difference arises, component by component, and how many times as fast by luck and by draws."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim import pictures
from sim.comparison.odds import Odds
from sim.comparison.paired import Pair
from sim.comparison.report import LETTERS, times
from sim.comparison.study import Against, Study

WIDTH = 7.2
BAR_HEIGHT = 0.27
"""Inches for a component."""
THICKNESS = 0.72
SHORTER, LONGER = pictures.BETTER, pictures.WORSE
LEAST_SHARE = 0.002
"""Of the longer step: differences below it are one bar together."""


def write(study: Study, folder: Path) -> list[str]:
    """The pictures of every comparison as PNG and SVG in *folder*; the names of the files."""
    return pictures.write(_figures(study), folder)


def _figures(study: Study) -> Iterator[tuple[str, Figure]]:
    for letter, other in zip(LETTERS[1:], study.others, strict=False):
        ending = "" if len(study.others) == 1 else f"-{letter}"
        yield f"waterfall{ending}", waterfall(study, letter, other)
        yield f"ratio{ending}", ratio(study, letter, other)


class Bar(NamedTuple):
    """A component's difference, from where the one before it ends."""

    name: str
    begin_ms: float
    ms: float


def bars(found: Pair) -> list[Bar]:
    """The bars that lead from A's step to B's, those of next to nothing as one."""
    least = LEAST_SHARE * max(found.step_time_ms.a, found.step_time_ms.b)
    at, shown, rest = found.step_time_ms.a, [], 0.0
    for part in found.parts:
        ms = part.difference_ms.mean
        if abs(ms) < least:
            rest += ms
            continue
        shown.append(Bar(part.component.value, at, ms))
        at += ms
    return [*shown, *([Bar("all others", at, rest)] if abs(rest) > least / 4 else [])]


def waterfall(study: Study, letter: str, other: Against) -> Figure:
    """A's step, what is shorter and longer, and B's step."""
    found = other.pair
    shown, step = bars(found), found.step_time_ms
    figure = Figure(figsize=(WIDTH, BAR_HEIGHT * (len(shown) + 2) + 1.5), layout="constrained")
    plot = figure.subplots()
    names = [f"A  {study.first.entrant.name}", *(bar.name for bar in shown), f"{letter}  {_name(other)}"]
    last, reach = len(shown) + 1, max([step.a, step.b, *(bar.begin_ms + bar.ms for bar in shown)])
    for row, ms in ((0, step.a), (last, step.b)):
        plot.barh(row, ms, color=pictures.WHOLE_COLOUR, height=THICKNESS)
        plot.text(ms + reach / 100, row, f"{ms:.2f} ms", va="center", fontsize=8)
    for row, bar in enumerate(shown, 1):
        _difference(plot, row, bar, reach)
    plot.set_yticks(range(last + 1), names, fontsize=9)
    plot.tick_params(axis="y", length=0)
    plot.set_ylim(last + 0.5, -0.5)
    plot.set_xlim(0, 1.16 * reach)
    plot.set_xlabel("ms on the critical path of a mean step", fontsize=9)
    _title(figure, f"From A's step to {letter}'s: {_product(found)}")
    return figure


def _difference(plot: Axes, row: int, bar: Bar, reach: float) -> None:
    """A bar, its ms to the right, and thin lines to the bars above and below."""
    end = bar.begin_ms + bar.ms
    plot.barh(row, bar.ms, left=bar.begin_ms, color=LONGER if bar.ms > 0 else SHORTER, height=THICKNESS)
    plot.text(max(bar.begin_ms, end) + reach / 100, row, f"{bar.ms:+.2f}", va="center", fontsize=8)
    for at, first in ((bar.begin_ms, row - 1), (end, row)):
        plot.plot([at, at], [first + THICKNESS / 2, first + 1 - THICKNESS / 2], color="0.55", linewidth=0.6)


def _product(found: Pair) -> str:
    """How step time and acceptance length make the ratio of throughputs."""
    step, length, throughput = (
        times(quantity.ratio)
        for quantity in (found.step_time_ms, found.acceptance_length, found.throughput_tok_s)
    )
    return f"step time x{step}, acceptance length x{length}, throughput x{throughput}"


def ratio(study: Study, letter: str, other: Against) -> Figure:
    """Shares of runs and draws in which B is at most so many times as fast."""
    figure = Figure(figsize=pictures.CURVE_SIZE, layout="constrained")
    plot = figure.subplots()
    for label, found, style, colour in _curves(other):
        if len(found.ratios):
            plot.ecdf(found.ratios, label=label, linestyle=style, color=colour, linewidth=1.6)
    plot.axvline(1, color=matplotlib.rcParams["axes.edgecolor"], linewidth=0.8)
    plot.annotate("as fast as A", (1, 1), xytext=(3, -2), textcoords="offset points", va="top", fontsize=8)
    if all(bool((found.ratios == 1).all()) for _, found, *_ in _curves(other)):
        plot.set_xlim(0.9, 1.1)
    plot.ticklabel_format(axis="x", useOffset=False)
    plot.yaxis.set_major_formatter(lambda value, _: f"{100 * value:.0f} %")
    plot.set_xlabel(f"throughput of {letter} over A's")
    plot.set_ylabel("share of runs or draws below")
    plot.legend(fontsize=8, frameon=False, loc="best")
    _title(figure, f"How many times as fast as A ({study.first.entrant.name}) is {letter} ({_name(other)})?")
    return figure


def _curves(other: Against) -> Iterator[tuple[str, Odds, str, str]]:
    yield "luck of the runs alone", other.pair.luck, "--", pictures.WORSE
    if other.unknown is not None:
        yield "what is not known alone", other.unknown.without_luck, "-", pictures.BETTER
        yield "both", other.unknown.with_luck, ":", matplotlib.rcParams["text.color"]


def _name(other: Against) -> str:
    return other.side.entrant.name


def _title(figure: Figure, text: str) -> None:
    figure.suptitle(pictures.wrapped([text], figure.get_size_inches()[0]), x=0.01, ha="left", fontsize=9)

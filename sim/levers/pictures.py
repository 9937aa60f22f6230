"""Tornado charts: how far throughput moves with each lever, and with each choice."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim import pictures
from sim.levers.kinds import Degree, Group
from sim.levers.study import Study
from sim.levers.words import change

WIDTH = 8.0
BAR_INCHES = 0.27
FRAME_INCHES = 2.6
MARGIN = 1.3
"""Of the axis beyond the longest bar, for its label."""


class Bar(NamedTuple):
    """Changes of throughput, relative to the scenario's."""

    name: str
    better: float
    tenth: float | None
    worse: float | None
    free: float | None


def write(studies: Sequence[Study], folder: Path) -> list[str]:
    """The tornado as PNG and SVG in *folder*; the names of the files."""
    return pictures.write(_figures(studies), folder)


def _figures(studies: Sequence[Study]) -> Iterator[tuple[str, Figure]]:
    for study in studies:
        figure = tornado(study)
        base = f"{study.name}: {study.base.tok_s:.0f} tok/s as it is"
        title = pictures.wrapped([study.setup.scenario.question, base], WIDTH)
        figure.suptitle(title, x=0.01, ha="left", fontsize=9)
        yield "tornado" if len(studies) == 1 else f"tornado-{study.name}", figure


def tornado(study: Study) -> Figure:
    """Levers above, choices below, on one scale; the longest bars on top."""
    levers, choices = _levers(study), _choices(study)
    rows = [max(1, len(bars)) for bars in (levers, choices)]
    height = min(pictures.LARGEST, FRAME_INCHES + BAR_INCHES * sum(rows))
    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    above, below = figure.subplots(2, sharex=True, height_ratios=rows)
    _draw(above, levers)
    _draw(below, choices)
    reach = MARGIN * max(0.01, *(abs(v) for bar in levers + choices for v in (bar.better, bar.worse or 0.0)))
    low = min(0.0, *(v for bar in levers + choices for v in (bar.better, bar.worse or 0.0)))
    above.set_xlim(max(-1.0, MARGIN * low - 0.06 * reach), reach)
    below.set_xlabel("change of throughput")
    below.xaxis.set_major_formatter(lambda value, _: f"{100 * value:+.0f} %" if value else "0")
    above.set_title("levers", fontsize=9, loc="left")
    below.set_title("choices instead of the scenario's", fontsize=9, loc="left")
    _legend(figure, above)
    return figure


def _levers(study: Study) -> list[Bar]:
    base, found = study.base.tok_s, []
    for effect in study.effects:
        if effect.lever.group is not Group.TOGETHER:
            gains = [effect.gain(degree, base) for degree in (Degree.HALF, Degree.TENTH, Degree.FREE)]
            found.append(Bar(effect.lever.value, gains[0], gains[1], effect.worse_tok_s / base - 1, gains[2]))
    return sorted(found, key=lambda bar: abs(bar.better) + abs(bar.worse or 0.0))


def _choices(study: Study) -> list[Bar]:
    base = study.base.tok_s
    found = [
        Bar(a.choice.name, a.tok_s / base - 1, None, None, None)
        for a in study.alternatives
        if a.tok_s is not None
    ]
    return sorted(found, key=lambda bar: bar.better)


def _draw(axes: Axes, bars: list[Bar]) -> None:
    for at, bar in enumerate(bars):
        axes.barh(at, bar.better, height=0.7, color=pictures.BETTER)
        if bar.tenth is not None:
            axes.barh(at, bar.tenth, height=0.7, color=pictures.SLIGHTLY_BETTER)
        if bar.worse is not None:
            axes.barh(at, bar.worse, height=0.7, color=pictures.WORSE)
        side = 1 if bar.better >= 0 else -1
        text = change(1 + bar.better) + ("" if bar.free is None else f"; free {change(1 + bar.free)}")
        axes.annotate(
            text,
            (bar.better, at),
            xytext=(4 * side, 0),
            textcoords="offset points",
            va="center",
            ha="left" if side > 0 else "right",
            fontsize=7,
        )
    axes.set_yticks(range(len(bars)), [bar.name for bar in bars], fontsize=8)
    axes.axvline(0, color=matplotlib.rcParams["axes.edgecolor"], linewidth=0.8)
    axes.set_ylim(-0.6, max(1, len(bars)) - 0.4)


def _legend(figure: Figure, axes: Axes) -> None:
    labels = {
        "50 % worse": pictures.WORSE,
        "10 % better": pictures.SLIGHTLY_BETTER,
        "50 % better; below: instead": pictures.BETTER,
    }
    handles = [axes.barh(0, 0, color=colour, label=name) for name, colour in labels.items()]
    figure.legend(handles=handles, loc="outside lower left", ncols=3, fontsize=8, frameon=False)

"""A picture of where the step goes: its critical path, component after component, up to the whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.graph import Component
from sim.pictures import COMPONENT_COLOURS, WHOLE_COLOUR

WIDTH = 7.2
BAR_HEIGHT = 0.27
"""Inches for a component."""
LEAST_SHARE = 0.0005
"""Components below it are one bar together."""
THICKNESS = 0.72
REST_COLOUR = "0.6"


class Bar(NamedTuple):
    """A component of the step, from where the one before it ends."""

    name: str
    colour: str
    begin_ms: float
    ms: float


def figure(step_ms: float, shares: Mapping[Component, float]) -> Figure:
    """The Figure of a mean step whose critical path has *shares*, in their order."""
    shown = bars(step_ms, shares)
    picture = Figure(figsize=(WIDTH, BAR_HEIGHT * (len(shown) + 1) + 0.8), layout="constrained")
    plot = picture.subplots()
    for row, bar in enumerate([*shown, Bar("the whole step", WHOLE_COLOUR, 0.0, step_ms)]):
        plot.barh(row, bar.ms, left=bar.begin_ms, color=bar.colour, height=THICKNESS)
        _label(plot, row, bar, step_ms)
        if row < len(shown):
            end = bar.begin_ms + bar.ms
            plot.plot([end, end], [row, row + 1 + THICKNESS / 2], color="0.55", linewidth=0.6, zorder=0)
    plot.set_yticks(range(len(shown) + 1), [*(bar.name for bar in shown), "the whole step"], fontsize=9)
    plot.tick_params(axis="y", length=0)
    plot.tick_params(axis="x", labelsize=8)
    plot.set_ylim(len(shown) + 0.5, -0.5)
    plot.set_xlim(0, step_ms)
    plot.set_xlabel("ms on the critical path of a mean step", fontsize=9)
    return picture


def bars(step_ms: float, shares: Mapping[Component, float]) -> list[Bar]:
    """The bars that add up to the step, those of next to nothing as one."""
    begin_ms, found, rest = 0.0, list[Bar](), 0.0
    for component, share in shares.items():
        if share < LEAST_SHARE:
            rest += share
            continue
        found.append(Bar(component.value, COMPONENT_COLOURS[component], begin_ms, share * step_ms))
        begin_ms += share * step_ms
    return found + ([Bar("the rest", REST_COLOUR, begin_ms, rest * step_ms)] if rest else [])


def _label(plot: Axes, row: int, bar: Bar, step_ms: float) -> None:
    """ms and share, beside the bar where there is room for it, or in it."""
    text = f"{bar.ms:.2f} ms, {100 * bar.ms / step_ms:.1f} %"
    end, gap = bar.begin_ms + bar.ms, step_ms / 100
    if end < 0.78 * step_ms:
        plot.text(end + gap, row, text, va="center", fontsize=8)
    elif bar.begin_ms > 0.22 * step_ms:
        plot.text(bar.begin_ms - gap, row, text, va="center", ha="right", fontsize=8)
    else:
        plot.text(end - gap, row, text, va="center", ha="right", fontsize=8, color="white")

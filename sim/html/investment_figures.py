"""Bars of a plan's investments: what each is worth, and every combination."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from matplotlib import rcParams
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from sim.levers.investments import Held, Return, Returns
from sim.pictures import BETTER, SLIGHTLY_BETTER, WORSE

WIDTH = 7.2
BAR_INCHES = 0.24
FRAME_INCHES = 1.2
GROUP = 0.8
"""Of the distance between two groups of bars that they fill."""
KINDS = {"alone": SLIGHTLY_BETTER, "on top of the others": WORSE, "fair share": BETTER}
MADE, BESIDE = BETTER, WORSE
ROOM = 1.18
"""Of the axis beyond the longest bar, for its label."""


def worths(found: Returns) -> Figure:
    """Three bars for each investment: what it multiplies throughput by, from 1 on."""
    values = [(worth.alone, worth.on_top, worth.fair) for worth in found.worths]
    figure, plot = _bars(len(values) * len(KINDS))
    for at, (kind, colour) in enumerate(KINDS.items()):
        of_kind = [value[at] for value in values]
        places = _places(len(values), at, len(KINDS))
        plot.barh(places, [value - 1 for value in of_kind], GROUP / 3, left=1, color=colour, label=kind)
        for place, value in zip(places, of_kind, strict=True):
            _label(plot, max(1.0, value), place, f"x{value:.2f}")
    flat = [each for value in values for each in value]
    plot.axvline(1, color=rcParams["axes.edgecolor"], linewidth=0.8)
    plot.set_xlim(min(1.0, *flat) - 0.05, 1 + ROOM * max(0.05, max(flat) - 1))
    plot.spines["left"].set_visible(False)
    _finish(figure, plot, [worth.investment.name for worth in found.worths])
    plot.set_xlabel("throughput, times what it was", fontsize=9)
    return figure


def combinations(found: Returns, names: Mapping[Held, str]) -> Figure:
    """Throughput of every combination by its name, alone and with what is shown beside, with ranges."""
    shown = [(MADE, "", found.returns)]
    if found.plan.beside is not None:
        shown.append((BESIDE, found.plan.beside.name, found.beside))
    ordered = sorted(names, key=lambda held: found.returns[held].tok_s)
    figure, plot = _bars(len(ordered) * len(shown))
    for at, (colour, beside, returns) in enumerate(shown):
        places = _places(len(ordered), at, len(shown))
        of_kind = [returns[held] for held in ordered]
        label = f"with {beside}" if beside else "as planned"
        plot.barh(places, [each.tok_s for each in of_kind], GROUP / len(shown), color=colour, label=label)
        for place, each in zip(places, of_kind, strict=True):
            _ranged(plot, place, each)
    plot.set_xlim(0, ROOM * max(_end(each) for _, _, returns in shown for each in returns.values()))
    _finish(figure, plot, [names[held] for held in ordered])
    plot.set_xlabel("throughput, tok/s; lines: both ends of the range of acceptance lengths", fontsize=9)
    return figure


def _bars(count: int) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(WIDTH, FRAME_INCHES + BAR_INCHES * count), layout="constrained")
    return figure, figure.subplots()


def _places(groups: int, at: int, count: int) -> list[float]:
    """Of the *at*-th of *count* bars in each group."""
    places: list[float] = (np.arange(groups) + (at - (count - 1) / 2) * GROUP / count).tolist()
    return places


def _end(each: Return) -> float:
    return each.tok_s if each.range_tok_s is None else max(each.range_tok_s)


def _ranged(plot: Axes, place: float, each: Return) -> None:
    if each.range_tok_s is not None:
        plot.plot(each.range_tok_s, [place, place], color=rcParams["axes.edgecolor"], linewidth=1)
    _label(plot, _end(each), place, f"{each.tok_s:.0f}")


def _label(plot: Axes, x: float, y: float, text: str) -> None:
    plot.annotate(text, (x, y), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8)


def _finish(figure: Figure, plot: Axes, names: list[str]) -> None:
    plot.set_yticks(range(len(names)), names, fontsize=9)
    plot.set_ylim(len(names) - 0.5, -0.5)
    plot.tick_params(axis="y", length=0)
    plot.tick_params(axis="x", labelsize=8)
    figure.legend(loc="outside lower left", ncols=3, fontsize=8, frameon=False)

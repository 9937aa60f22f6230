"""Pictures of an AcceptanceView: the draft tree, lengths, budgets, the next node, blocks."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FixedLocator, MaxNLocator, NullFormatter, NullLocator, StrMethodFormatter

from sim import pictures
from sim.ddtree import ROOT
from sim.pictures import COLOURS, CURVE_SIZE, LARGEST, LINE_STYLES, MARKERS
from sim.trees import layout
from sim.trees.view import AcceptanceView, Curve, TreeView

MAX_NODES = 256
"""Of a larger tree only so many are drawn, the most probable ones."""
MAX_COLUMNS = 16
"""Of more columns than this only some are labelled."""
COLUMN, ROW = 0.82, 0.36
"""Inches between nodes, where the picture does not grow too large."""
MARGINS = (1.0, 2.1)
"""Inches of a picture that are not nodes."""
POINTS_PER_INCH = 72
LARGEST_NODE = 36.0
"""Points across a node that is always accepted."""
MAX_MARKED = 64
"""A line through more points than this has no dots."""
SPINE_WIDTH, BRANCH_WIDTH = 2.6, 0.9
"""Points; they tell the spine apart where colours do not."""
SMALLEST_NODE = 3.2
"""Points across; below this a node could not be told from its edge."""
SMALLEST_NAMED = 20.0
"""Points across a root that has its name on it."""
AXIS_INCHES = 1.2
"""What lies left of a plot, and so left of its title."""
SMALLEST_GAIN = 1e-9
"""Less than this is rounding."""
LENGTH_LABEL = "E[L], tokens a step"


def write(view: AcceptanceView, folder: Path) -> list[str]:
    """Every picture of *view* as PNG and SVG in *folder*; the names of the files."""
    return pictures.write(_figures(view), folder)


def _figures(view: AcceptanceView) -> Iterator[tuple[str, Figure]]:
    if view.tree is not None:
        yield "tree", draft_tree(view, view.tree)
    yield "lengths", lengths(view)
    if view.tree is not None:
        yield "budgets", budgets(view, view.tree)
        yield "next_node", next_node(view, view.tree)
        yield "blocks", blocks(view, view.tree)


def _what(view: AcceptanceView) -> str:
    return f"{view.setup.drafter.name}, {view.setup.scenario.drafted}"


def _colour(spine: bool) -> Any:
    return colormaps[COLOURS](0.05 if spine else 0.72)


@dataclass(frozen=True)
class Canvas:
    """The size of the picture of a tree, and of what is in it."""

    columns: int
    rows: int

    @property
    def size(self) -> tuple[float, float]:
        """Inches across and up."""
        wanted = (MARGINS[0] + COLUMN * (self.columns + 1), MARGINS[1] + ROW * (self.rows + 1))
        return max(CURVE_SIZE[0], min(LARGEST, wanted[0])), max(3.0, min(LARGEST, wanted[1]))

    @property
    def largest_node(self) -> float:
        """Points across a node that is always accepted.

        Chances in a column add to 1 at most: two neighbours are never both as wide as this.
        """
        width, height = self.size
        column = POINTS_PER_INCH * (width - MARGINS[0]) / (self.columns + 1)
        row = POINTS_PER_INCH * (height - MARGINS[1]) / (self.rows + 1)
        return min(LARGEST_NODE, 0.6 * column, 1.3 * row)


def draft_tree(view: AcceptanceView, shown: TreeView) -> Figure:
    """The tree of a step of middling difficulty; a node's area is the chance that it is accepted."""
    nodes = shown.tree.nodes[:MAX_NODES]
    rows = layout.rows(nodes)
    columns = [0, *(node.depth + 1 for node in nodes)]
    canvas = Canvas(max(columns), max(rows))
    figure = Figure(figsize=canvas.size, layout="constrained")
    plot = figure.subplots()
    for number, node in enumerate(nodes, ROOT + 1):
        ends = (columns[node.parent], rows[node.parent]), (columns[number], rows[number])
        _edge(plot, *ends, shown.spine[number - 1])
    _draw_nodes(plot, shown, columns, rows, canvas.largest_node)
    numbered = _draw_numbers(plot, shown, columns, rows, canvas.largest_node)
    plot.set(xlim=(-0.6, canvas.columns + 0.6), ylim=(canvas.rows + 0.7, -0.7))
    _label_columns(plot, shown, canvas.columns)
    plot.set_title(_tree_title(view, shown, numbered, canvas.size[0]), fontsize=9, loc="left")
    figure.legend(handles=_tree_legend(), loc="outside lower left", ncols=3, fontsize=8, frameon=False)
    return figure


def _edge(plot: Axes, parent: tuple[int, int], child: tuple[int, int], spine: bool) -> None:
    """Right, down and right again: edges drawn so never cross."""
    (left, top), (right, bottom) = parent, child
    bend = left + 0.5
    width = SPINE_WIDTH if spine else BRANCH_WIDTH
    plot.plot(
        [left, bend, bend, right],
        [top, top, bottom, bottom],
        color=_colour(spine),
        linewidth=width,
        zorder=2 if spine else 1,
    )


def _draw_nodes(
    plot: Axes, shown: TreeView, columns: Sequence[int], rows: Sequence[int], largest: float
) -> None:
    for spine in (False, True):
        chosen = [at for at in range(1, len(columns)) if shown.spine[at - 1] is spine]
        across = [max(SMALLEST_NODE, largest * math.sqrt(shown.chances[at - 1])) for at in chosen]
        places = [columns[at] for at in chosen], [rows[at] for at in chosen]
        plot.scatter(*places, s=np.square(across), color=_colour(spine), linewidths=0, zorder=3)
    plot.scatter([0], [0], s=(0.8 * largest) ** 2, marker="s", color="white", edgecolors="black", zorder=3)
    if largest >= SMALLEST_NAMED:
        plot.text(0, 0, "root", ha="center", va="center", fontsize=7, zorder=4)


def _draw_numbers(
    plot: Axes, shown: TreeView, columns: Sequence[int], rows: Sequence[int], largest: float
) -> int:
    """Chances in % on the nodes that are large enough; how many those are."""
    numbered = 0
    for at in range(1, len(columns)):
        chance, spine = shown.chances[at - 1], shown.spine[at - 1]
        text = f"{100 * chance:.0f}"
        if largest * math.sqrt(chance) >= 4.5 + 4.3 * len(text):
            colour = "white" if spine else "black"
            plot.text(
                columns[at],
                rows[at],
                text,
                ha="center",
                va="center_baseline",
                fontsize=7,
                color=colour,
                zorder=4,
            )
            numbered += 1
    return numbered


def _label_columns(plot: Axes, shown: TreeView, last: int) -> None:
    """Depth, nodes and the chance that one of them is accepted, below each column."""
    depths = np.array([node.depth for node in shown.tree.nodes], dtype=int)
    nodes, chances = np.bincount(depths), np.bincount(depths, shown.chances)
    every = max(1, -(-last // MAX_COLUMNS))
    labelled = range(every, last + 1, every)
    labels = [f"{at}\n{nodes[at - 1]}\n{100 * chances[at - 1]:.0f} %" for at in labelled]
    plot.set_xticks([0, *labelled], ["depth\nnodes\naccepted", *labels], fontsize=8)
    plot.set_yticks([])
    plot.tick_params(axis="x", length=0)
    plot.spines[["left", "bottom"]].set_visible(False)


def _tree_title(view: AcceptanceView, shown: TreeView, numbered: int, width: float) -> str:
    drawn = min(MAX_NODES, len(shown.tree.nodes))
    found = [
        "Draft tree of a step of middling difficulty",
        f"{_what(view)}: it lands {shown.middling_length:.2f} tokens",
        "Area: chance that a node is accepted (numbers in %)",
    ]
    if len(shown.tree.nodes) > drawn:
        left_out = len(shown.tree.nodes) - drawn
        found.append(
            f"The {drawn} most probable nodes are drawn, {left_out:,} left out; the counts below are of all"
        )
    if numbered < drawn:
        found.append(f"{drawn - numbered:,} nodes are too small for their number")
    return pictures.wrapped(found, width)


def _tree_legend() -> list[Line2D]:
    return [
        Line2D([], [], color=_colour(True), linewidth=SPINE_WIDTH, marker="o", label="spine: first choices"),
        Line2D([], [], color=_colour(False), linewidth=BRANCH_WIDTH, marker="o", label="off the spine"),
    ]


def _plot(view: AcceptanceView, *said: str) -> tuple[Figure, Axes]:
    """An empty picture of one plot whose title says *said*, then what is shown."""
    figure = Figure(figsize=CURVE_SIZE, layout="constrained")
    plot = figure.subplots()
    plot.set_title(
        pictures.wrapped([*said, _what(view)], CURVE_SIZE[0] - AXIS_INCHES), fontsize=9, loc="left"
    )
    plot.grid(alpha=0.3)
    return figure, plot


def lengths(view: AcceptanceView) -> Figure:
    """P(L = n) as bars, P(L >= n) as steps, E[L] as a line."""
    figure, plot = _plot(view, "What a step lands, over requests and the difficulty of steps")
    counts = np.arange(1, view.cap + 1)
    plot.bar(counts, view.shares, color=_colour(False), label="P(L = n)")
    edges = np.arange(view.cap + 1) + 0.5
    plot.stairs(view.at_least, edges, baseline=None, color=_colour(True), label="P(L >= n)", linewidth=1.8)
    mean = f"E[L] = {view.mean_length:.2f} of at most {view.cap}"
    plot.axvline(view.mean_length, color="black", linestyle=":", label=mean)
    plot.set(xlabel="n, tokens (the target's own included)", ylabel="share of steps", ylim=(0, 1.03))
    plot.set_xticks(range(1, view.cap + 1, -(-view.cap // MAX_COLUMNS)))
    _legend_below(figure, plot)
    return figure


def _legend_below(figure: Figure, plot: Axes) -> None:
    """Names of the lines below the plot, where they cover nothing."""
    handles, _ = plot.get_legend_handles_labels()
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=8, frameon=False)


def budgets(view: AcceptanceView, shown: TreeView) -> Figure:
    """E[L] over budgets, a line per block, with the most that the scenario's block could land."""
    asked = view.setup.scenario
    figure, plot = _plot(view, "What a larger tree lands, with the same drafter")
    ladder = [at.budget for at in shown.budgets]
    own = asked.drafter.block
    # The scenario's own comes first: the solid line.
    for line, curve in enumerate(sorted(shown.curves, key=lambda curve: curve.block != own)):
        _draw_curve(plot, curve, line)
    every = np.arange(1, ladder[-1] + 1)
    plot.plot(every, np.minimum(own, every + 1), color="0.4", linestyle=":", label=f"cap of block {own}")
    _mark_own(plot, asked.tree.budget, view.mean_length)
    _budget_axis(plot, ladder)
    plot.set(
        xlabel="budget, nodes",
        ylabel=LENGTH_LABEL,
        ylim=(0, 1.05 * max(own, *(max(curve.mean_lengths) for curve in shown.curves))),
    )
    _legend_below(figure, plot)
    return figure


def _draw_curve(plot: Axes, curve: Curve, line: int) -> None:
    plot.plot(
        curve.budgets,
        curve.mean_lengths,
        linestyle=LINE_STYLES[line],
        marker=MARKERS[line],
        markersize=4,
        markevery=[at for at, budget in enumerate(curve.budgets) if _is_power(budget)],
        color=colormaps[COLOURS](0.05 + 0.33 * line),
        linewidth=1.2 if line else 2.2,
        label=f"block {curve.block}",
    )


def _mark_own(plot: Axes, x: float, y: float) -> None:
    """The scenario's own point."""
    plot.plot(
        [x],
        [y],
        linestyle="",
        marker="o",
        markersize=11,
        markeredgecolor="red",
        markerfacecolor="none",
        markeredgewidth=1.8,
        zorder=5,
        label=f"this scenario: {y:.3g}",
    )


def _is_power(budget: int) -> bool:
    """Whether it is a power of two."""
    return budget & (budget - 1) == 0


def _budget_axis(plot: Axes, ladder: Sequence[int]) -> None:
    """Powers of two."""
    powers = [budget for budget in ladder if _is_power(budget)]
    plot.set_xscale("log", base=2)
    plot.xaxis.set_major_locator(FixedLocator(powers))
    plot.xaxis.set_minor_locator(NullLocator())
    plot.set_xticks(powers, [f"{budget}" for budget in powers], rotation=30 if len(powers) > 12 else 0)


def next_node(view: AcceptanceView, shown: TreeView) -> Figure:
    """E[L] that one node more adds, by budget; what adds nothing is not drawn."""
    asked = view.setup.scenario
    figure, plot = _plot(view, "What one more node is worth", *_why_uneven(shown))
    gains = np.array([gain if gain > SMALLEST_GAIN else np.nan for gain in shown.next_nodes])
    places = np.arange(1, len(gains) + 1)
    marker = "." if len(gains) <= MAX_MARKED else ""
    plot.plot(places, gains, marker=marker, linewidth=0.8, color=_colour(True), label="next node")
    if np.isfinite(gains).any():
        plot.set_yscale("log")
        # Whole decades, so that at least two have a label.
        lowest, highest = np.log10([np.nanmin(gains), np.nanmax(gains)])
        plot.set_ylim(0.8 * 10.0 ** (math.ceil(lowest) - 1), 1.25 * 10.0 ** (math.floor(highest) + 1))
        # The usual labels, powers of ten, are mathematics, which is switched off.
        plot.yaxis.set_major_formatter(StrMethodFormatter("{x:g}"))
        plot.yaxis.set_minor_formatter(NullFormatter())
    else:
        plot.text(0.5, 0.5, "no further node adds anything", ha="center", transform=plot.transAxes)
    chain = asked.drafter.block - 1
    if chain <= len(gains):
        plot.axvline(chain, color="0.4", linestyle=":", label=f"a chain through the block: {chain}")
    own = gains[asked.tree.budget - 1]
    if np.isfinite(own):
        _mark_own(plot, asked.tree.budget, float(own))
    plot.set(xlabel="budget, nodes", ylabel="E[L] that the next node adds, tokens")
    plot.xaxis.set_major_locator(MaxNLocator(integer=True))
    _legend_below(figure, plot)
    return figure


def _why_uneven(shown: TreeView) -> list[str]:
    if shown.quality.off_spine == 1:
        return []
    return ["(the tree takes nodes by marginals, which do not know what leaving the spine costs)"]


def blocks(view: AcceptanceView, shown: TreeView) -> Figure:
    """E[L] over blocks at the scenario's budget, with the cap and the limit of what is known."""
    asked = view.setup.scenario
    figure, plot = _plot(view, "What a longer block lands, with the same budget and drafter")
    places = [at.block for at in shown.blocks]
    lengths = [at.mean_length for at in shown.blocks]
    plot.plot(
        places, lengths, marker="o", markersize=4, color=_colour(True), label=f"budget {asked.tree.budget}"
    )
    plot.plot(places, [at.cap for at in shown.blocks], color="0.4", linestyle=":", label="cap")
    if places[-1] > shown.known_block:
        what = "nothing is landed" if shown.lands_nothing_beyond else "extrapolated"
        said = f"beyond block {shown.known_block}: {what}"
        plot.axvspan(shown.known_block, places[-1], color="0.9", zorder=0, label=said)
    _mark_own(plot, asked.drafter.block, view.mean_length)
    plot.set(xlabel="block, positions (the known first one included)", ylabel=LENGTH_LABEL)
    plot.set_ylim(0, 1.05 * max(at.cap for at in shown.blocks))
    plot.xaxis.set_major_locator(MaxNLocator(MAX_COLUMNS, integer=True, steps=[1, 2, 4, 10]))
    _legend_below(figure, plot)
    return figure

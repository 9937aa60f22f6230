"""A picture of one step over all lanes: the whole of it above, a few kernels of its middle below.

A column of the upper part is a bin of time: its colours fill as much of the lane's height as the
components fill of the bin, so nothing is lost where kernels are shorter than a bin. The lower part
has every op by itself.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from numpy.typing import NDArray

from sim.graph import Component, IntArray, Lane, StepGraph
from sim.op_steps import OpStep
from sim.pictures import COMPONENT_COLOURS

Array = NDArray[np.float64]

WIDTH = 9.0
LANE_HEIGHT = 0.17
"""Inches for a lane."""
MARGINS = 2.2
"""Inches for titles, axes and the legend."""
BINS = 800
ROWS = 16
"""Pixels of a lane's height in the picture of the whole step."""
GAP_ROWS = 4
"""Of them left empty between lanes."""
NEAR_OPS = 26
"""Ops of the busiest lane in the part that is shown near."""
NS_PER_MS, NS_PER_US = 1e6, 1e3


class Held(NamedTuple):
    """What holds one lane, in order; times in ns since the step began."""

    component: IntArray
    """(ops,) in the order of Component."""
    start: IntArray
    end: IntArray


def figure(graph: StepGraph, step: OpStep) -> Figure:
    """The Figure of *step*, which played *graph*."""
    held = by_lane(graph, step)
    since, until = middle(held)
    near = {name: each for name, each in held.items() if ((each.end > since) & (each.start < until)).any()}
    heights = [LANE_HEIGHT * len(held), LANE_HEIGHT * len(near)]
    picture = Figure(figsize=(WIDTH, sum(heights) + MARGINS), layout="constrained")
    above, below = picture.subplots(2, 1, height_ratios=heights)
    _whole(above, held, step)
    _near(below, near, since, until)
    picture.legend(handles=_legend(held), loc="outside lower center", ncols=4, fontsize=8, frameon=False)
    return picture


def by_lane(graph: StepGraph, step: OpStep) -> dict[str, Held]:
    """What holds each lane, by its name, device by device."""
    return {str(graph.lanes[lane]): _held(graph, step, lane) for lane in _ordered(graph.lanes)}


def _ordered(lanes: tuple[Lane, ...]) -> list[int]:
    """Lanes device by device, in the order in which a step first meets each device."""
    devices = list(dict.fromkeys(lane.device for lane in lanes))
    return sorted(range(len(lanes)), key=lambda at: (devices.index(lanes[at].device), at))


def _held(graph: StepGraph, step: OpStep, lane: int) -> Held:
    ops = np.array(graph.queues[lane], dtype=np.int64)
    order = list(Component)
    components = np.array([order.index(graph.ops[op].component) for op in ops.tolist()], dtype=np.int64)
    return Held(components, step.start[ops], step.end[ops])


def _whole(plot: Axes, held: dict[str, Held], step: OpStep) -> None:
    image = np.concatenate([_strip(shares(each, step.step_ns)) for each in held.values()])
    extent = (0.0, step.step_ns / NS_PER_MS, len(held), 0.0)
    plot.imshow(image, extent=extent, aspect="auto", interpolation="nearest")
    plot.set_xlabel("ms since the step began", fontsize=9)
    plot.set_title(_title(step), fontsize=9, loc="left")
    _lanes(plot, list(held))


def _title(step: OpStep) -> str:
    tokens = f"{step.tokens} token" + ("s" if step.tokens != 1 else "")
    return f"step {step.index} of a run: {tokens} in {step.step_ns / NS_PER_MS:.2f} ms, all lanes"


def shares(held: Held, step_ns: int, bins: int = BINS) -> Array:
    """(components, bins) share of each bin of the step in which the lane was held by each component."""
    edges = np.linspace(0, step_ns, bins + 1)
    found = np.zeros((len(Component), bins))
    for component in np.unique(held.component):
        mine = held.component == component
        moments = np.stack([held.start[mine], held.end[mine]], axis=1)
        until = np.cumsum(moments[:, 1] - moments[:, 0])
        spent = np.stack([until - (moments[:, 1] - moments[:, 0]), until], axis=1)
        found[component] = np.diff(np.interp(edges, moments.ravel(), spent.ravel())) / np.diff(edges)
    return found


def _strip(parts: Array) -> Array:
    """(ROWS, bins, RGBA): the shares of a bin stacked from below, what is idle transparent."""
    filled = ROWS - GAP_ROWS
    level = (np.arange(filled)[::-1, None] + 0.5) / filled
    tops = np.cumsum(parts, axis=0)
    component = (level[None] > tops[:, None]).sum(axis=0)
    colours = np.array([(*to_rgb(COMPONENT_COLOURS[each]), 1.0) for each in Component] + [(0, 0, 0, 0)])
    strip = np.zeros((ROWS, parts.shape[1], 4))
    strip[GAP_ROWS // 2 : GAP_ROWS // 2 + filled] = colours[component]
    return strip


def middle(held: dict[str, Held]) -> tuple[int, int]:
    """From when to when the ops in the middle of the busiest lane ran."""
    busiest = max(held.values(), key=lambda each: len(each.start))
    first = max(0, (len(busiest.start) - NEAR_OPS) // 2)
    last = min(first + NEAR_OPS, len(busiest.start)) - 1
    return int(busiest.start[first]), int(busiest.end[last])


def _near(plot: Axes, held: dict[str, Held], since: int, until: int) -> None:
    """Ops one by one."""
    for row, each in enumerate(held.values()):
        _bars(plot, row, each, since, until)
    plot.set_xlim(0, (until - since) / NS_PER_US)
    plot.set_ylim(len(held), 0)
    plot.set_xlabel(f"µs from {since / NS_PER_MS:.3f} ms on: part of the above, kernel by kernel", fontsize=9)
    _lanes(plot, list(held))


def _bars(plot: Axes, row: int, held: Held, since: int, until: int) -> None:
    shown = (held.end > since) & (held.start < until)
    starts = np.maximum(held.start[shown], since) - since
    widths = np.minimum(held.end[shown], until) - since - starts
    colours = [COMPONENT_COLOURS[list(Component)[component]] for component in held.component[shown]]
    bars = list(zip(starts / NS_PER_US, widths / NS_PER_US, strict=True))
    margin = GAP_ROWS / 2 / ROWS
    plot.broken_barh(
        bars, (row + margin, 1 - 2 * margin), facecolors=colours, edgecolors="white", linewidth=0.3
    )


def _lanes(plot: Axes, names: list[str]) -> None:
    plot.set_yticks(np.arange(len(names)) + 0.5, names, fontsize=7)
    plot.tick_params(axis="y", length=0)
    plot.tick_params(axis="x", labelsize=8)


def _legend(held: dict[str, Held]) -> list[Patch]:
    """Components that the step has, in their order."""
    there = np.unique(np.concatenate([each.component for each in held.values()]))
    components = [list(Component)[component] for component in there]
    return [Patch(color=COMPONENT_COLOURS[each], label=each.value) for each in components]

"""Histograms of a run report."""

from __future__ import annotations

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from sim.html.svg import INK
from sim.records import Experiment
from sim.scenario import Anchor
from sim.statistics import Spread, Summary

SIZE = (7.2, 2.7)
RUNS_COLOUR = "#5a8fc8"
PUBLISHED_COLOUR = "#c8313a"
MOST_BINS = 40


def throughput(experiment: Experiment, summary: Summary, anchor: Anchor | None) -> Figure:
    """Throughput of every run, the mean with its interval, and what was published."""
    values = [run.throughput_tok_s for run in experiment.runs]
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.subplots()
    bins = min(MOST_BINS, len(np.histogram_bin_edges(values, bins="auto")) - 1)
    plot.hist(values, bins=bins, color=RUNS_COLOUR)
    _mean(plot, summary.throughput_tok_s)
    if anchor is not None:
        _published(plot, anchor)
    plot.set_xlabel("throughput of a run, tok/s", fontsize=9)
    plot.set_ylabel("runs", fontsize=9)
    plot.tick_params(labelsize=8)
    plot.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure


def _mean(plot: Axes, spread: Spread) -> None:
    plot.axvline(spread.mean, color=INK, linewidth=1.6, label="mean")
    if spread.half_width is not None:
        low, high = spread.mean - spread.half_width, spread.mean + spread.half_width
        plot.axvspan(low, high, color=INK, alpha=0.25, linewidth=0, label="its 95 % interval")
    for value, label in ((spread.p5, "P5 and P95"), (spread.p95, None)):
        plot.axvline(value, color=INK, linewidth=1, linestyle="--", label=label)


def _published(plot: Axes, anchor: Anchor) -> None:
    if anchor.tok_s_range is not None:
        low, high = anchor.tok_s_range
        shade = (*to_rgb(PUBLISHED_COLOUR), 0.18)
        plot.axvspan(low, high, color=shade, linewidth=0, zorder=0, label="published range")
    else:
        plot.axvline(
            anchor.published_tok_s, color=PUBLISHED_COLOUR, linewidth=1.6, linestyle="-.", label="published"
        )


def lengths(summary: Summary) -> Figure:
    """Share of steps that land 1, 2, ... tokens."""
    shares = 100 * np.array(summary.length_shares)
    figure = Figure(figsize=SIZE, layout="constrained")
    plot = figure.subplots()
    plot.bar(np.arange(1, len(shares) + 1), shares, color=RUNS_COLOUR, width=0.8)
    plot.axvline(summary.acceptance_length.mean, color=INK, linewidth=1.6, label="mean")
    plot.set_xlabel("tokens that a step lands for a request, the target's own included", fontsize=9)
    plot.set_ylabel("% of steps", fontsize=9)
    if len(shares) <= 20:
        plot.set_xticks(np.arange(1, len(shares) + 1))
    plot.tick_params(labelsize=8)
    plot.legend(fontsize=8, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return figure

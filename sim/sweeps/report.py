"""A sweep in words: the best cell, its equals, whether it is an optimum, and why."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.report import number, render
from sim.scenario import Acceptance
from sim.setup import LaunchMode, Setup
from sim.sweeps.conduct import label
from sim.sweeps.result import (
    NEARLY,
    Move,
    Neighbourhood,
    SweepResult,
    line_through,
    neighbourhoods,
    slice_through,
)

FORMAT_VERSION = 1
"""1 (2026-11): first."""
LAUNCHED = {
    LaunchMode.EAGER: "; its kernels are launched one by one, not as a graph",
    LaunchMode.PIECEWISE: "; its attention is launched by itself, the rest as graphs",
    LaunchMode.GRAPH: "; its kernels are launched as a graph, not one by one",
}
MAX_COLUMNS = 12
MAX_ROWS = 64
MAX_NAMED = 8
"""Cells, errors or components listed before the rest is counted."""
SHAPE_KEYS = frozenset({"tree.budget", "tree.shape", "drafter.block", "tree", "drafter"})
"""Keys that change what a step can accept."""
SMALL_MS = 0.05
"""Changes of a component below this are not worth a word."""


def lines(result: SweepResult) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [Text("\n".join(head(result))), Text()]
    if result.ranking is not None:
        parts += [grid(result), Text(), *(Text(line) for line in verdict(result))]
        parts += [Text(line) for line in explanation(result)]
    parts += [Text(line) for line in failures(result)]
    parts += [Text(line) for line in notes(result)]
    return render(parts)


def head(result: SweepResult) -> list[str]:
    """The question, the axes, what was changed in all cells, and how many there are."""
    plan = result.plan
    spans = [f"{axis.name}: {', '.join(value.label for value in axis.values)}" for axis in plan.axes]
    count = len(plan.cells)
    cells = f"{count:,} {'cell' if count == 1 else 'cells'}" + (
        f", {len(result.errors)} failed" if result.errors else ""
    )
    runs = {found.summary["runs"] for found in result.results.values()}
    counted = f", {'/'.join(str(count) for count in sorted(runs))} runs each" if runs else ""
    changed = [f"In all cells: {', '.join(plan.changes)}"] if plan.changes else []
    return [plan.question, *spans, *changed, cells + counted]


def grid(result: SweepResult) -> Table:
    """Mean tok/s over the first two axes with several values, through the best cell; else a list."""
    several = [at for at, axis in enumerate(result.plan.axes) if len(axis.values) > 1]
    if len(several) < 2:
        return _list(result, several[0] if several else 0)
    down, across = several[0], several[1]
    x, y = result.plan.axes[across], result.plan.axes[down]
    if len(x.values) > MAX_COLUMNS or len(y.values) > MAX_ROWS:
        return _list(result, down)
    assert result.ranking is not None
    cells = slice_through(result.plan, result.ranking.best, across, down)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(f"{y.name} \\ {x.name}"), no_wrap=True)
    for value in x.values:
        table.add_column(Text(value.label), justify="right")
    for value, row in zip(y.values, cells, strict=True):
        table.add_row(Text(value.label), *(_mark(result, index) for index in row))
    return table


def _mark(result: SweepResult, index: int) -> str:
    """A cell's tok/s: ``*`` the best, ``=`` not distinguishable from it, ``-`` none."""
    value = result.throughput(index)
    if value is None or result.ranking is None:
        return "-"
    sign = "*" if index == result.ranking.best else "=" if index in result.ranking.not_distinguishable else ""
    return f"{value:.0f}{sign or ' '}"


def _list(result: SweepResult, at: int) -> Table:
    """One line per value of axis *at*, through the best cell."""
    axis = result.plan.axes[at]
    assert result.ranking is not None
    line = line_through(result.plan, result.ranking.best, at)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in (axis.name, "tok/s", "+-", "step ms", "tokens a step"):
        table.add_column(Text(name), justify="right")
    for value, index in list(zip(axis.values, line, strict=True))[:MAX_ROWS]:
        found = result.results.get(index)
        if found is None:
            table.add_row(Text(value.label), "-")
            continue
        summary = found.summary
        width = summary["throughput_tok_s"]["half_width"]
        quantities = (summary["step_time_ms"]["mean"], summary["acceptance_length"]["mean"])
        cells = [_mark(result, index), "" if width is None else f"{width:.1f}", *map(number, quantities)]
        table.add_row(Text(value.label), *cells)
    return table


def verdict(result: SweepResult) -> list[str]:
    """The best cell and those not distinguishable from it."""
    assert result.ranking is not None
    ranking, plan = result.ranking, result.plan
    best = [f"Best (*): {label(plan, plan.cells[ranking.best])}: {best_tok_s(result)} tok/s."]
    if len(result.results) == 1:
        return best
    if ranking.verdicts[ranking.best].half_width_tok_s is None:
        return [*best, "Too few runs to say which cells are distinguishable from it."]
    best += _nearly(result)
    if not ranking.not_distinguishable:
        return [*best, "Every other cell is distinguishably slower (paired runs, 95 % for all together)."]
    named = _named(result, ranking.not_distinguishable)
    return [*best, f"Not distinguishable from it (=; paired runs, 95 % for all together): {named}."]


def best_tok_s(result: SweepResult) -> str:
    """Throughput of the best cell, with its interval."""
    assert result.ranking is not None
    spread = result.results[result.ranking.best].summary["throughput_tok_s"]
    width = spread["half_width"]
    return number(spread["mean"]) + ("" if width is None else f" +- {width:.1f}")


def _nearly(result: SweepResult) -> list[str]:
    """The cells that lose little, distinguishable or not."""
    assert result.ranking is not None
    near = [index for index in result.results if index != result.ranking.best and result.near(index)]
    return [f"Within {NEARLY:.0%} of it: {_named(result, near)}."] if near else []


def _named(result: SweepResult, cells: list[int]) -> str:
    """*cells* by name, fastest first, no more than a reader can take in."""
    ordered = sorted(cells, key=lambda index: -(result.throughput(index) or 0.0))
    names = "; ".join(label(result.plan, result.plan.cells[index]) for index in ordered[:MAX_NAMED])
    return names + (f"; and {len(cells) - MAX_NAMED} more" if len(cells) > MAX_NAMED else "")


def explanation(result: SweepResult) -> list[str]:
    """Along each axis through the best cell: whether it lies inside, and what the next cells cost."""
    return [line for lines_ in around(result) for line in lines_]


def around(result: SweepResult) -> list[list[str]]:
    """The same axis by axis: where the best cell lies on it, then a line for each move from there."""
    several = [found for found in neighbourhoods(result) if len(found.axis.values) > 1]
    return [_around(found, [f for f in several if f is not found]) for found in several]


def _around(found: Neighbourhood, others: list[Neighbourhood]) -> list[str]:
    held = ", ".join(f"{other.axis.name} = {other.label}" for other in others)
    moves = [f"  to {move.label}: {_because(move)}" for move in found.moves]
    return [f"{found.axis.name}{f' at {held}' if held else ''}: {where(found)}.", *moves]


def where(found: Neighbourhood) -> str:
    """Where on its axis the best cell lies, as far as the runs can tell."""
    beside = [label for label in found.plateau if label != found.label]
    plateau = f"; about as good: {', '.join(beside)}" if beside else ""
    if not found.axis.numeric:
        return f"best is {found.label}{plateau}"
    if found.below and found.above:
        return f"interior optimum at {found.label}{plateau}"
    if not found.below and not found.above:
        return f"no optimum to be seen: best at {found.label}{plateau}"
    side = "below" if found.above else "above"
    if len(found.moves) == 1:
        end = "lowest" if found.above else "highest"
        return f"no interior optimum: best at {found.label}, the {end} value that ran{plateau}"
    return f"no interior optimum: best at {found.label}, flat {side} it{plateau}"


def _because(move: Move) -> str:
    changed = [(c.value, ms) for c, ms in move.delta_ms.items() if abs(ms) >= SMALL_MS]
    parts = ", ".join(f"{name} {ms:+.2f}" for name, ms in changed[:3])
    detail = f" ({parts})" if parts else ""
    return (
        f"{move.delta_tok_s:+.1f} tok/s; step {move.delta_step_ms:+.2f} ms{detail};"
        f" tokens a step {move.delta_length:+.2f}{LAUNCHED[move.launch] if move.launch else ''}"
    )


def failures(result: SweepResult) -> list[str]:
    """The cells that failed, those of one cause together."""
    causes: dict[str, list[int]] = {}
    for index, error in result.errors.items():
        causes.setdefault(error, []).append(index)
    found = [
        f"Failed: {label(result.plan, result.plan.cells[cells[0]])}"
        + (f" and {len(cells) - 1} more" if len(cells) > 1 else "")
        + f": {error}"
        for error, cells in list(causes.items())[:MAX_NAMED]
    ]
    more = len(causes) - len(found)
    return [*found, f"... and {more} other causes; see cells.csv."] if more > 0 else found


def notes(result: SweepResult) -> list[str]:
    """What a reader must know about all cells."""
    if not result.results:
        return ["No cell finished."]
    found = [
        f"Checked on SimPy: the first {_replayed(result)} steps of every cell, to the nanosecond.",
        f"{_luck(result)} What the figures may be off by is in no interval.",
    ]
    setup = _some_setup(result)
    if setup.scenario.acceptance.mean_length_range is not None:
        found.append("Cells take the mean acceptance length; what its range does to them, run shows.")
    if _mean_everywhere(setup.scenario.acceptance) and _changed(result) & SHAPE_KEYS:
        found.append(
            "Every cell is given the same mean acceptance length, so a smaller tree loses no tokens here: to"
            " compare trees, say at which block, budget and shape acceptance.quality has its mean_length."
        )
    elif setup.scenario.acceptance.quality is not None:
        found.append("Acceptance follows from the tree and from how often the drafter is right.")
    elif not setup.scenario.is_plain:
        found.append("Acceptance is what the scenario says; block and budget cap it but do not change it.")
    return found


def _mean_everywhere(acceptance: Acceptance) -> bool:
    """True where every cell is solved for the same mean, whatever its tree."""
    quality = acceptance.quality
    if quality is None:
        return acceptance.mean_length is not None
    return quality.mean_length is not None and None in (quality.block, quality.budget, quality.shape)


def _changed(result: SweepResult) -> set[str]:
    """The scenario keys that some axis changes."""
    return {key for axis in result.plan.axes for value in axis.values for key, _ in value.changes}


def _luck(result: SweepResult) -> str:
    if any(axis.name == "seed" for axis in result.plan.axes):
        return "Run i of every cell of one seed draws from the same streams."
    return "Run i of every cell draws from the same streams."


def _replayed(result: SweepResult) -> str:
    counts = {found.replayed_steps for found in result.results.values()}
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _some_setup(result: SweepResult) -> Setup:
    setup = result.plan.cells[min(result.results)].setup
    assert setup is not None
    return setup


def as_object(result: SweepResult) -> dict[str, Any]:
    """The stable JSON object of a sweep."""
    plan, ranking = result.plan, result.ranking
    return {
        "format_version": FORMAT_VERSION,
        "name": plan.name,
        "question": plan.question,
        "changes": list(plan.changes),
        "axes": {axis.name: [value.label for value in axis.values] for axis in plan.axes},
        "cells": [_cell_object(result, index) for index in range(len(plan.cells))],
        "best": None if ranking is None else ranking.best,
        "not_distinguishable_from_best": [] if ranking is None else ranking.not_distinguishable,
        "failed": len(result.errors),
    }


def _cell_object(result: SweepResult, index: int) -> dict[str, Any]:
    plan = result.plan
    point = {axis.name: value.label for axis, value in zip(plan.axes, plan.cells[index].point, strict=True)}
    found = result.results.get(index)
    if found is None or result.ranking is None:
        return {"cell": index, "point": point, "error": result.errors.get(index, "")}
    beside = result.ranking.verdicts[index]
    return {
        "cell": index,
        "point": point,
        **found.summary,
        "difference_from_best_tok_s": beside.difference_tok_s,
        "difference_half_width_tok_s": beside.half_width_tok_s,
        "distinguishable_from_best": beside.distinguishable,
    }

"""A sweep as a page: the best cell, how sure that is, and why."""

from __future__ import annotations

import itertools

from sim.html import parts
from sim.html.page import Block, Page, Paragraph, Picture, Points, Section, Table
from sim.html.svg import inline
from sim.report import number
from sim.sweeps import pictures, report
from sim.sweeps.conduct import label
from sim.sweeps.result import SweepResult, neighbourhoods, slice_through

MOST_CELLS = 500
"""Rows of the table of cells; the fastest are in it."""
MOST_PICTURES = 12
"""Maps, and curves."""


def page(result: SweepResult) -> Page:
    """The Page of *result*."""
    question, *about = report.head(result)
    return Page(
        question=question,
        about=about,
        answer=[_best(result), _how_sure(result)],
        sections=[
            *_maps(result),
            *_curves(result),
            *_why(result),
            *_cells(result),
            *parts.points("failed", "Cells that failed", report.failures(result)),
            parts.notes(report.notes(result)),
            _provenance(result),
        ],
    )


def _best(result: SweepResult) -> str:
    """The first sentence: the best cell."""
    plan, ranking = result.plan, result.ranking
    if ranking is None:
        return f"No cell of {len(plan.cells):,} finished."
    summary = result.results[ranking.best].summary
    return (
        f"Best is {label(plan, plan.cells[ranking.best])} with {report.best_tok_s(result)} tokens per second:"
        f" a step takes {number(summary['step_time_ms']['mean'])} ms and lands"
        f" {number(summary['acceptance_length']['mean'])} tokens."
    )


def _how_sure(result: SweepResult) -> str:
    """The second sentence: what is as good, and whether the best lies inside of its axes."""
    if result.ranking is None:
        return "What went wrong stands below."
    numeric = [found for found in neighbourhoods(result) if found.axis.numeric and len(found.axis.values) > 1]
    told = [
        f"the optimum {word} along {parts.listed(names)}"
        for word, names in (
            ("is interior", [found.axis.name for found in numeric if found.below and found.above]),
            ("is not interior", [found.axis.name for found in numeric if not (found.below and found.above)]),
        )
        if names
    ]
    return f"{'; '.join([_equals(result), *told])}."


def _equals(result: SweepResult) -> str:
    """What can be told about the other cells, without a full stop."""
    assert result.ranking is not None
    others = len(result.results) - 1
    if not others:
        return "It is the only cell that finished"
    if result.ranking.verdicts[result.ranking.best].half_width_tok_s is None:
        return "There are too few runs to say which cells are distinguishable from it"
    equal = len(result.ranking.not_distinguishable)
    near = sum(result.near(index) for index in result.results) - 1
    close = f", {near:,} of them within 1 % of it" if near else ""
    if not equal:
        return f"Every other cell of those that finished, {others:,}, is distinguishably slower{close}"
    return f"Of the {others:,} other cells that finished {equal:,} cannot be told from it{close}"


def _several(result: SweepResult) -> list[int]:
    return [at for at, axis in enumerate(result.plan.axes) if len(axis.values) > 1]


def _maps(result: SweepResult) -> list[Section]:
    """A heat map for every pair of axes."""
    if result.ranking is None:
        return []
    pairs = list(itertools.combinations(_several(result), 2))[:MOST_PICTURES]
    shown = [_map(result, across, up) for across, up in pairs]
    return [Section("maps", "Throughput over two axes", shown)] if shown else []


def _map(result: SweepResult, across: int, up: int) -> Picture:
    axes = result.plan.axes
    names = f"{axes[up].name} and {axes[across].name}"
    picture = inline(
        lambda: pictures.heat_map(result, across, up),
        f"map-{across}-{up}",
        f"Heat map of throughput over {names}",
        _told(result, across, up),
    )
    return Picture(picture, f"Mean throughput over {names}{_held(result, {across, up})}.")


def _told(result: SweepResult, across: int, up: int) -> str:
    """A map in words: its fastest and its slowest cell, and those without any."""
    assert result.ranking is not None
    plan = result.plan
    cells = [index for row in slice_through(plan, result.ranking.best, across, up) for index in row]
    finished = [index for index in cells if index in result.results]
    slowest = min(finished, key=lambda index: result.throughput(index) or 0.0)
    ends = "; ".join(
        f"{word} {label(plan, plan.cells[index])}, {result.throughput(index):.0f} tok/s"
        for word, index in (("best", result.ranking.best), ("slowest", slowest))
    )
    missing = len(cells) - len(finished)
    return f"{len(cells)} cells: {ends}{f'; {missing} failed' if missing else ''}. The table has them all."


def _held(result: SweepResult, shown: set[int]) -> str:
    """Where the axes stand that a picture does not show."""
    held = pictures.held(result, shown)
    return f", at {', '.join(held)}" if held else ""


def _curves(result: SweepResult) -> list[Section]:
    """Throughput along every axis, for values of one other."""
    if result.ranking is None:
        return []
    several = _several(result)
    shown = [
        _curve(result, at, next((other for other in several if other != at), None))
        for at in several[:MOST_PICTURES]
    ]
    return [Section("curves", "Along each axis", shown)] if shown else []


def _curve(result: SweepResult, at: int, beside: int | None) -> Picture:
    axes = result.plan.axes
    of = "" if beside is None else f" for values of {axes[beside].name}"
    told = "; ".join(
        f"{f'{name}: ' if name else ''}{', '.join(_points(result, at, cells))}"
        for name, cells in pictures.lines_of(result, at, beside)
    )
    picture = inline(
        lambda: pictures.curves(result, at, beside),
        f"curve-{at}",
        f"Curves of throughput along {axes[at].name}{of}",
        f"tok/s: {told}",
    )
    held = _held(result, {at, *([] if beside is None else [beside])})
    return Picture(picture, f"Throughput along {axes[at].name}{of}{held}.")


def _points(result: SweepResult, at: int, cells: list[int]) -> list[str]:
    """A curve in words."""
    found = zip(result.plan.axes[at].values, map(result.throughput, cells), strict=True)
    return [f"{value.label} {'failed' if tok_s is None else f'{tok_s:.0f}'}" for value, tok_s in found]


def _why(result: SweepResult) -> list[Section]:
    """The verdict, and what the next cells along each axis cost."""
    if result.ranking is None:
        return []
    blocks: list[Block] = [Points(report.verdict(result))]
    for line, *moves in report.around(result):
        blocks += [Paragraph(line), Points([move.strip() for move in moves])]
    return [Section("why", "Why it is the best", blocks)]


def _cells(result: SweepResult) -> list[Section]:
    """Every cell that finished, the fastest first."""
    if result.ranking is None:
        return []
    ordered = sorted(result.results, key=lambda index: -(result.throughput(index) or 0.0))
    axes = [axis.name for axis in result.plan.axes]
    head = [
        "cell",
        *axes,
        "tok/s",
        "±",
        "from best",
        "±",
        "step, ms",
        "tokens a step",
        "slower?",
    ]
    rows = [_row(result, place, index) for place, index in enumerate(ordered[:MOST_CELLS], 1)]
    left_out = (
        f" The {len(ordered) - MOST_CELLS:,} slowest are in cells.csv only."
        if len(ordered) > MOST_CELLS
        else ""
    )
    caption = f"Cells, the fastest first; differences are of paired runs, 95 % for all together.{left_out}"
    words = [*range(1, len(axes) + 1), len(head) - 1]
    return [Section("cells", "All cells", [Table(caption, head, rows, words=words)])]


def _row(result: SweepResult, place: int, index: int) -> tuple[str, ...]:
    assert result.ranking is not None
    summary, verdict = result.results[index].summary, result.ranking.verdicts[index]
    throughput = summary["throughput_tok_s"]
    return (
        str(place),
        *(value.label for value in result.plan.cells[index].point),
        number(throughput["mean"]),
        _width(throughput["half_width"]),
        f"{verdict.difference_tok_s:+.1f}" if index != result.ranking.best else "",
        _width(verdict.half_width_tok_s) if index != result.ranking.best else "",
        number(summary["step_time_ms"]["mean"]),
        number(summary["acceptance_length"]["mean"]),
        _told_apart(result, index),
    )


def _width(half_width: float | None) -> str:
    return "" if half_width is None else f"{half_width:.1f}"


def _told_apart(result: SweepResult, index: int) -> str:
    assert result.ranking is not None
    if index == result.ranking.best:
        return "best"
    return "yes" if result.ranking.verdicts[index].distinguishable else "no"


def _provenance(result: SweepResult) -> Section:
    plan = result.plan
    setups = [cell.setup for cell in plan.cells if cell.setup is not None]
    seeds = dict.fromkeys(str(setup.scenario.seed) for setup in setups)
    runs = dict.fromkeys(f"{found.summary['runs']:,}" for found in result.results.values())
    rows = [
        ("seed", ", ".join(seeds) or "none"),
        ("runs of each cell", ", ".join(runs) or "none"),
        ("changed in all cells", "; ".join(plan.changes) or "nothing"),
        ("cells", f"{len(plan.cells):,}, {len(result.errors):,} failed"),
    ]
    best = plan.cells[result.ranking.best].setup if result.ranking is not None else None
    folded = (
        [] if best is None else [parts.resolved(best.scenario, "The best cell's scenario as it was resolved")]
    )
    return parts.provenance(rows, folded)

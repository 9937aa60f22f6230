"""An AcceptanceView as lines of text and as a JSON object. Nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import files
from sim.choices import Shape
from sim.report import BAR_WIDTH, drafting_line, drafting_notes, percent, render
from sim.trees.view import AcceptanceView, TreeView

FORMAT_VERSION = 1
MAX_ROWS = 16
"""Of more lengths than this several share a row."""
MAX_COLUMNS = 8
"""Columns for the nodes of a tree that is deeper than ``MAX_ROWS``."""


def lines(view: AcceptanceView) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(headline(view)),
        *(Text(line) for line in drafting_notes(view.setup)),
        *(Text(line) for line in length_lines(view)),
        Text(),
        _lengths(view),
    ]
    if view.tree is None:
        parts += [Text(), Text(how_to_ask(view))]
    else:
        parts += [
            Text(),
            _budgets(view.tree, view.setup.scenario.tree.budget),
            *(Text(line) for line in tree_lines(view, view.tree)),
        ]
    return render(parts)


def headline(view: AcceptanceView) -> str:
    """What drafts, and where acceptance comes from."""
    return f"{drafting_line(view.setup)}; acceptance: {view.kind}"


def length_lines(view: AcceptanceView) -> list[str]:
    """E[L], and what it is a mean over."""
    given = view.setup.scenario.acceptance
    mean = f"E[L] {view.mean_length:.2f} of at most {view.cap} tokens a step, over requests"
    if view.tree is None:
        found = [f"{mean}."]
    else:
        middling = f"{view.tree.middling_length:.2f} in a step of middling difficulty"
        found = [f"{mean} and the difficulty of steps; {middling}."]
    if given.mean_length_range is not None:
        found.append("The scenario does not know the mean: {:g} to {:g}.".format(*given.mean_length_range))
    if given.decay_per_1k_context:
        found.append(
            "All figures are for where decoding begins; the log-odds fall by"
            f" {given.decay_per_1k_context:g} per 1,000 tokens decoded."
        )
    return found


def _lengths(view: AcceptanceView) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in ("n", "P(L = n)", "P(L >= n)"):
        table.add_column(name, justify="right")
        if name != "n":
            table.add_column("", width=BAR_WIDTH)
    rows = [(names, sum(view.shares[a:b]), view.at_least[a]) for names, a, b in _groups(view.cap)]
    largest = max(share for _, share, _ in rows)
    for names, share, at_least in rows:
        table.add_row(names, percent(share), _bar(share / largest), percent(at_least), _bar(at_least))
    return table


def _bar(share: float) -> str:
    return "█" * round(BAR_WIDTH * share)


def _groups(count: int, most: int = MAX_ROWS) -> list[tuple[str, int, int]]:
    """1 ... *count*, in at most *most* groups where more than ``MAX_ROWS``: name, and slice of a list."""
    size = 1 if count <= MAX_ROWS else -(-count // most)
    ends = [(start, min(start + size, count)) for start in range(0, count, size)]
    return [(f"{a + 1}" if b == a + 1 else f"{a + 1}-{b}", a, b) for a, b in ends]


def _budgets(shown: TreeView, own: int) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for name in ("budget", "E[L]", "next node adds", "nodes at depth"):
        table.add_column(name, justify="right")
    deepest = int(np.count_nonzero(shown.budgets[-1].nodes_by_depth))
    groups = _groups(deepest, MAX_COLUMNS)
    for name, _, _ in groups:
        table.add_column(name, justify="right", no_wrap=True)
    for at in shown.budgets:
        counts = [sum(at.nodes_by_depth[a:b]) for _, a, b in groups]
        cells = [f"{count}" if count else "" for count in counts]
        mark = "> " if at.budget == own else ""
        table.add_row(f"{mark}{at.budget:,}", f"{at.mean_length:.2f}", f"{at.next_node:.4f}", "", *cells)
    return table


def tree_lines(view: AcceptanceView, shown: TreeView) -> list[str]:
    """What else a reader must know to choose budget and block."""
    asked = view.setup.scenario
    found = [f"E[L] at budget {asked.tree.budget:,} by block: {_by_block(shown)}."]
    if shown.lands_nothing_beyond:
        found.append(f"The accuracy is given up to block {shown.known_block}; positions beyond land nothing.")
    else:
        found.append(f"Trained for block {shown.known_block}; beyond, the curve over depth is extrapolated.")
    if shown.quality.off_spine < 1 and asked.tree.shape is Shape.DDTREE:
        found.append(
            "The tree takes the likeliest prefixes by their marginals, which do not know what leaving the"
            " spine costs: one node may add more than the one before it."
        )
    return found


def _by_block(shown: TreeView) -> str:
    every = -(-len(shown.blocks) // MAX_ROWS)
    return ", ".join(f"{at.block}: {at.mean_length:.2f}" for at in shown.blocks[::every])


def how_to_ask(view: AcceptanceView) -> str:
    """How to get the tree of a scenario whose acceptance does not follow from it."""
    if view.setup.drafter.accuracy is None:
        return (
            f"What the tree is worth is not known: the catalog has no accuracy of {view.setup.drafter.name}."
        )
    block, budget, shape, top_k = view.setup.scenario.drafted
    keys = f"mean_length: {view.mean_length:.4g}, block: {block}, budget: {budget}, shape: {shape.value}"
    if shape is Shape.EAGLE:
        keys += f", top_k: {top_k}"
    keeping = f"{{quality: {{{keys}}}}}"
    return (
        "For what the tree is worth: --set 'acceptance={quality: {}}', with the drafter as good as the"
        f" catalog says, or, to keep this mean, --set 'acceptance={keeping}'."
    )


def as_object(view: AcceptanceView) -> dict[str, Any]:
    """The stable JSON object of *view*; shares are fractions and add to 1."""
    asked = view.setup.scenario
    return {
        "format_version": FORMAT_VERSION,
        "question": asked.question,
        "drafter": view.setup.drafter.name,
        "trained_block": view.setup.drafter.longest_block,
        "block": asked.drafter.block,
        "budget": asked.tree.budget,
        "acceptance": view.kind,
        "mean_length": view.mean_length,
        "cap": view.cap,
        "shares": {str(n): share for n, share in enumerate(view.shares, 1)},
        "at_least": {str(n): share for n, share in enumerate(view.at_least, 1)},
        "tree": None if view.tree is None else _tree_object(view, view.tree),
    }


def _tree_object(view: AcceptanceView, shown: TreeView) -> dict[str, Any]:
    accuracy = view.setup.drafter.accuracy
    assert accuracy is not None
    return {
        "accuracy": {"source": accuracy.source.name, "ref": accuracy.ref.strip()},
        "log_odds_shift": shown.quality.shift,
        "off_spine": shown.quality.off_spine,
        "step_sd": shown.quality.step_sd,
        "easy_share": shown.quality.easy_share,
        "first_choices": list(shown.first_choices),
        "middling_length": shown.middling_length,
        "asked_length": shown.asked_length,
        "known_block": shown.known_block,
        "lands_nothing_beyond": shown.lands_nothing_beyond,
        "nodes": [
            {**node._asdict(), "chance": chance, "spine": spine}
            for node, chance, spine in zip(shown.tree.nodes, shown.chances, shown.spine, strict=True)
        ],
        "budgets": [asdict(at) for at in shown.budgets],
        "next_nodes": list(shown.next_nodes),
        "blocks": [asdict(at) for at in shown.blocks],
        "curves": [asdict(curve) for curve in shown.curves],
    }


def write(view: AcceptanceView, text: Sequence[str], folder: Path) -> list[str]:
    """Write *text* and the JSON object of *view* into *folder*; the names of the files."""
    files.replace(folder / "acceptance.json", files.as_json(as_object(view)) + "\n")
    files.replace(folder / "report.txt", "\n".join(text) + "\n")
    return ["acceptance.json", "report.txt"]

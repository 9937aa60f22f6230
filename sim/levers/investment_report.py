"""Investments as lines of text, as an object and as files. Nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import digests, files
from sim.levers.investments import Held, Return, Returns
from sim.levers.objects import FORMAT_VERSION
from sim.levers.words import table_of
from sim.report import render

FAIR_NOTE = (
    "fair: the mean over all orders in which they may be made (Shapley), so that these multiply to the whole;"
    " brackets: both ends of the range of acceptance lengths. What they cost is not in it."
)


def investment_lines(found: Returns) -> list[str]:
    """The combinations of a plan, and what each investment is worth."""
    parts: list[RenderableType] = [Text(found.plan.question), Text()]
    parts += [_combinations(found), Text(), _worths(found), Text()]
    parts += [Text(f"{each.name}: {each.title}") for each in found.plan.investments]
    if found.plan.beside is not None:
        parts.append(Text(f"{found.plan.beside.name}: {found.plan.beside.title}"))
    parts.append(Text(FAIR_NOTE))
    parts += [Text(f"Assumed: {assumption}") for assumption in found.plan.assumptions]
    return render(parts)


def _combinations(found: Returns) -> Table:
    beside = found.plan.beside
    table = table_of("made", "tok/s", "", "", *([] if beside is None else [f"with {beside.name}", "", ""]))
    for held, each in found.returns.items():
        name = " + ".join(name for name in found.names if name in held) or "nothing"
        cells = _return_cells(found, each)
        cells += [] if beside is None else _return_cells(found, found.beside[held])
        table.add_row(Text(name), *cells)
    return table


def _return_cells(found: Returns, each: Return) -> list[str]:
    ends = each.range_tok_s
    between = "" if ends is None else f"({ends[0]:.0f}-{ends[1]:.0f})"
    return [f"{each.tok_s:.1f}", between, f"x{each.tok_s / found.returns[Held()].tok_s:.2f}"]


def _worths(found: Returns) -> Table:
    table = table_of("worth", "alone", "on top of the others", "fair")
    for worth in found.worths:
        table.add_row(
            Text(worth.investment.name), *(f"x{v:.2f}" for v in (worth.alone, worth.on_top, worth.fair))
        )
    beside = found.plan.beside
    if beside is not None:
        everything = Held(found.names)
        ratios = [found.beside[held].tok_s / found.returns[held].tok_s for held in (Held(), everything)]
        table.add_row(Text(beside.name), *(f"x{ratio:.2f}" for ratio in ratios), "")
    return table


def investments_object(found: Returns) -> dict[str, Any]:
    """The same for other programs."""
    return {
        "format_version": FORMAT_VERSION,
        "question": found.plan.question,
        "base": found.plan.base,
        "combinations": [
            {
                "made": [name for name in found.names if name in held],
                "tok_s": each.tok_s,
                "range_tok_s": each.range_tok_s,
                "beside": None if not found.beside else found.beside[held].tok_s,
                "beside_range_tok_s": None if not found.beside else found.beside[held].range_tok_s,
            }
            for held, each in found.returns.items()
        ],
        "investments": [
            {"name": w.investment.name, "alone": w.alone, "on_top": w.on_top, "fair": w.fair}
            for w in found.worths
        ],
        "beside": None if found.plan.beside is None else found.plan.beside.name,
        "assumptions": list(found.plan.assumptions),
        "provenance": digests.provenance(),
    }


def write_investments(found: Returns, text: Sequence[str], folder: Path) -> list[str]:
    """The report and its object in *folder*; the names of the files."""
    files.replace(folder / "report.txt", "\n".join(text) + "\n")
    files.replace(folder / "investments.json", files.as_json(investments_object(found)) + "\n")
    return ["report.txt", "investments.json"]

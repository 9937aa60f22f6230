"""Parts that pages of several commands have in common."""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import rich.table

from sim import __version__, digests, files, waterfall
from sim.graph import Component
from sim.html.page import Folded, Picture, Points, Section, Table
from sim.html.svg import inline
from sim.report import percent
from sim.scenario import Scenario


def step(step_ms: float, shares: Mapping[Component, float], name: str = "waterfall") -> list[Picture | Table]:
    """Where a mean step of *step_ms* goes, *shares* of its critical path in their order."""
    rows = [
        (component.value, f"{share * step_ms:.2f}", percent(share)) for component, share in shares.items()
    ]
    said = "; ".join(f"{component} {ms} ms, {share}" for component, ms, share in rows)
    picture = inline(
        lambda: waterfall.figure(step_ms, shares), name, "Waterfall of the critical path of a step", said
    )
    return [
        Picture(picture, "What held the step up at every moment, in the mean over all steps."),
        Table("The same in numbers.", ["component", "ms", "share"], rows),
    ]


def from_terminal(
    shown: rich.table.Table, caption: str, head: Sequence[str], words: Sequence[int] = ()
) -> Table:
    """A table of a terminal report, under a *head* that names every column."""
    columns = [[str(cell) for cell in column.cells] for column in shown.columns]
    return Table(caption, head, list(zip(*columns, strict=True)), words=words)


def points(anchor: str, heading: str, lines: Sequence[str]) -> list[Section]:
    """*lines* under *heading*; nothing where there are none."""
    return [Section(anchor, heading, [Points(lines)])] if lines else []


def listed(names: Sequence[str]) -> str:
    """*names* with an "and" before the last."""
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def assumptions(assumed: Sequence[str]) -> list[Section]:
    """What somebody took for granted, in their own words."""
    return points("assumptions", "What is assumed", assumed)


def notes(lines: Sequence[str]) -> Section:
    """What a reader must know about all numbers."""
    return Section("notes", "To be known", [Points(lines)])


def provenance(rows: Iterable[tuple[str, str]], folded: Iterable[Folded] = ()) -> Section:
    """Versions and hashes behind a page, *rows* of its own first, and what opens on request."""
    shared = [
        ("SHA-256 of catalog and tables", digests.tables()),
        ("SHA-256 of the simulator", digests.code()),
        ("Python", platform.python_version()),
        *((name, version(name)) for name in digests.LIBRARIES),
    ]
    table = Table(
        "The same versions, seed and hashes give the same numbers.",
        ["what", "value"],
        [("specdec-sim", __version__), *rows, *shared],
        words=[1],
    )
    return Section("provenance", "Where this comes from", [table, *folded])


def resolved(scenario: Scenario, summary: str = "The scenario as it was resolved") -> Folded:
    """Every key of *scenario*, to be opened."""
    return as_data(scenario.model_dump(mode="json"), summary)


def as_data(value: Any, summary: str) -> Folded:
    """*value* as JSON, to be opened."""
    return Folded(summary, files.as_json(without_folders(value)))


def without_folders(value: Any) -> Any:
    """*value*, as JSON has it, with files named but not where they lie on this machine."""
    if isinstance(value, dict):
        return {key: without_folders(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_folders(each) for each in value]
    return Path(value).name if isinstance(value, str) and Path(value).is_absolute() else value

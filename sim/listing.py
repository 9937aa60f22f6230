"""Tables of the commands beside ``run``: hardware entries, the closed form, the benchmark."""

from __future__ import annotations

from dataclasses import asdict
from enum import Enum
from typing import Any

from rich.table import Table
from rich.text import Text

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.documents import Strict
from hwmodels.entry import Entry, Figure
from sim.article import ClosedForm
from sim.bench import Benchmark
from sim.report import number, render

ESTIMATE_WIDTH = 130


def hardware_list() -> list[str]:
    """Every catalog entry by section."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("section", "name", "what it is"):
        table.add_column(column, overflow="fold")
    for kind in Kind:
        for index, name in enumerate(catalog.names(kind)):
            entry = catalog.find(name)[1]
            table.add_row(kind.value if index == 0 else "", name, entry.title)
    return render([table])


def hardware_entry(kind: Kind, entry: Entry) -> list[str]:
    """One entry: its plain fields, then every figure with its source."""
    singular = kind.value.removesuffix("s")
    head = [Text(f"{entry.name} ({singular}): {entry.title}")]
    plain = Table(box=None, pad_edge=False, show_header=False, padding=(0, 2, 0, 0))
    for key, value in _plain_fields(entry):
        plain.add_row(key, Text(value, overflow="fold"))
    figures = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("figure", "value", "range", "source"):
        figures.add_column(column, no_wrap=True)
    figures.add_column("reference", overflow="fold")
    for key, figure in catalog.figures(entry):
        ends = "{:g}-{:g}".format(*figure.range) if figure.range else ""
        figures.add_row(key, f"{figure.value:g}", ends, figure.source.name, Text(figure.ref.strip()))
    parts: list[Any] = [*head, Text(), plain]
    if catalog.figures(entry):
        parts += [Text(), figures]
    parts += [Text(f"Note: {note.strip()}") for note in entry.notes]
    return render(parts, width=140)


def _plain_fields(entry: Entry) -> list[tuple[str, str]]:
    """Fields that are no figures, in file order."""
    skipped = {"name", "title", "notes"}
    return [
        (key, _plain_text(value))
        for key, value in ((n, getattr(entry, n)) for n in type(entry).model_fields)
        if key not in skipped and _plain_text(value)
    ]


def _plain_text(value: Any) -> str:
    match value:
        case Figure():
            return ""
        case dict() if all(isinstance(v, Figure) for v in value.values()):
            return ""
        case Enum():
            return str(value.value)
        case Strict():
            pairs = ((n, _plain_text(getattr(value, n))) for n in type(value).model_fields)
            return ", ".join(f"{name} {text}" for name, text in pairs if text)
        case tuple():
            texts = [_plain_text(v) for v in value]
            return ("\n" if any(isinstance(v, Strict) for v in value) else ", ").join(texts)
        case None:
            return ""
        case _:
            return str(value)


def closed_form_lines(form: ClosedForm) -> list[str]:
    """The articles' estimate beside measurements, and their ranges that do not follow."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(f"closed form at M = {form.tokens}", no_wrap=True)
    for column in ("articles", "with measured experts", "simulated"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_column("", overflow="fold")
    for line in form.lines:
        simulated = "" if line.simulated is None else number(line.simulated)
        cells = (number(line.article), number(line.corrected), simulated)
        table.add_row(line.name, *cells, line.unit, line.remark)
    head = Text("\nRanges the articles quote, against their own lengths and step time:")
    slip = Text("Their 3.3 ms was the time of a token, once taken for a step of 4.4 / 303 tok/s = 14.5 ms.")
    quoted = [head, _quoted_table(form)] if form.quoted else [Text()]
    return render([table, *quoted, slip], width=ESTIMATE_WIDTH)


def _quoted_table(form: ClosedForm) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in (
        "quoted tok/s",
        "tokens a step",
        "step ms",
        "give tok/s",
        "quoted needs tokens",
        "",
        "what",
    ):
        table.add_column(column)
    for claim in form.quoted:
        table.add_row(
            "{:g}-{:g}".format(*claim.quoted_tok_s),
            "{:g}-{:g}".format(*claim.lengths),
            f"{claim.step_ms:g}",
            "{:.0f}-{:.0f}".format(*claim.derived_tok_s),
            "{:.1f}-{:.1f}".format(*claim.needed_lengths),
            "follows" if claim.follows else "does not follow",
            claim.what,
        )
    return table


def closed_form_object(form: ClosedForm) -> dict[str, Any]:
    """The closed form as a JSON object."""
    return {
        "verify_tokens": form.tokens,
        "lines": [asdict(line) for line in form.lines],
        "quoted": [
            {
                **asdict(claim),
                "derived_tok_s": claim.derived_tok_s,
                "needed_lengths": claim.needed_lengths,
                "follows": claim.follows,
            }
            for claim in form.quoted
        ],
    }


def benchmark_lines(result: Benchmark) -> list[str]:
    """The benchmark in words."""
    graph = f"{result.ops_per_step:,} ops, played as {result.pieces_per_step:,} pieces"
    return [
        f"bare SimPy timeouts         {result.simpy_timeouts_per_s:13,.0f} /s",
        f"steps on the SimPy engine   {result.simpy_steps_per_s:13,.1f} /s  ({graph})",
        f"ops on the SimPy engine     {result.simpy_ops_per_s:13,.0f} /s",
        f"steps on the batch engine   {result.batch_steps_per_s:13,.1f} /s",
        f"numpy drawing their normals {result.random_values_per_s:13,.0f} /s"
        f"  ({result.values_per_step:,.0f} values a step)",
        f"a SimPy step costs          {result.timeouts_per_step:13,.0f} bare timeouts",
        f"batch over SimPy            {result.batch_over_simpy:13.1f} times the steps",
        f"batch over random numbers   {result.batch_over_random:13.2f} times the time",
        f"building a draft tree       {result.tree_us_per_node:13.2f} us a node"
        f"  ({result.tree_over_heap:.1f} times a heapq push and pop)",
    ]

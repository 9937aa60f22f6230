"""Investments as a page: what each is worth alone, on top of the others, and fairly shared."""

from __future__ import annotations

from collections.abc import Mapping

from sim.html import investment_figures, parts
from sim.html.page import Block, Page, Picture, Points, Section, Table
from sim.html.svg import inline
from sim.levers.investment_report import FAIR_NOTE
from sim.levers.investments import Held, Return, Returns
from sim.levers.played import RUNS, STEPS

NOTHING = "nothing"


def page(found: Returns) -> Page:
    """The Page of a plan's *found* returns."""
    setup = found.base
    machine = setup.machine
    about = (
        f"Base {found.plan.base}: {machine.ranks}x {machine.gpu.name}, {machine.interconnect.name},"
        f" {machine.host.name}, {machine.stack.name}; {setup.model.name}"
    )
    return Page(
        question=found.plan.question,
        about=[about],
        answer=[_most(found), _together(found)],
        sections=[
            Section("worth", "What each is worth", _worths(found)),
            Section("combinations", "Every combination", _combinations(found)),
            Section("investments", "What they are", [Points(_titles(found))]),
            *parts.assumptions(found.plan.assumptions),
            parts.notes([f"Means of {RUNS} runs of {STEPS} steps, all with the same luck.", FAIR_NOTE]),
            _provenance(found),
        ],
    )


def factor(value: float) -> str:
    """What throughput is multiplied by."""
    return f"x{value:.2f}"


def _most(found: Returns) -> str:
    """The first sentence: what brings most, first alone and then shared fairly."""
    alone = sorted(found.worths, key=lambda worth: -worth.alone)
    fair = max(found.worths, key=lambda worth: worth.fair)
    first, *others = (f"{worth.investment.name} ({factor(worth.alone)})" for worth in alone)
    before = f", before {parts.listed(others)}" if others else ""
    return (
        f"Alone {first} brings most{before}; over all orders in which they may be made it is"
        f" {fair.investment.name} ({factor(fair.fair)})."
    )


def _together(found: Returns) -> str:
    """The second sentence: all of them at once."""
    nothing, everything = found.returns[Held()], found.returns[Held(found.names)]
    return (
        f"All together make {everything.tok_s:.0f} tokens per second{_between(everything)} out of"
        f" {nothing.tok_s:.0f}, {factor(everything.tok_s / nothing.tok_s)}."
    )


def _between(found: Return) -> str:
    if found.range_tok_s is None:
        return ""
    return f" ({found.range_tok_s[0]:.0f} to {found.range_tok_s[1]:.0f})"


def _worths(found: Returns) -> list[Block]:
    head = ["investment", "alone", "on top of the others", "fair share"]
    rows = [
        (worth.investment.name, *map(factor, (worth.alone, worth.on_top, worth.fair)))
        for worth in found.worths
    ]
    said = "; ".join(f"{name}: alone {a}, on top {t}, fair {f}" for name, a, t, f in rows)
    picture = inline(
        lambda: investment_figures.worths(found), "worths", "Bars of what each investment is worth", said
    )
    table = Table("What throughput is multiplied by.", head, [*rows, *_worth_beside(found)])
    return [Picture(picture, "What each multiplies throughput by; fair shares multiply to the whole."), table]


def _worth_beside(found: Returns) -> list[tuple[str, ...]]:
    """What is shown beside all combinations, where something is."""
    if found.plan.beside is None:
        return []
    ends = (Held(), Held(found.names))
    ratios = (found.beside[held].tok_s / found.returns[held].tok_s for held in ends)
    return [(found.plan.beside.name, *map(factor, ratios), "")]


def _combinations(found: Returns) -> list[Block]:
    beside = found.plan.beside
    names = ["tok/s", "range", "of nothing"]
    head = ["made", *names, *(f"{name} with {beside.name}" for name in names if beside is not None)]
    rows = [
        (_made(found, held), *_cells(found, found.returns, held), *_cells(found, found.beside, held))
        for held in found.returns
    ]
    said = "; ".join(f"{row[0]} {row[1]} tok/s, {row[3]}" for row in rows)
    picture = inline(
        lambda: investment_figures.combinations(found, {held: _made(found, held) for held in found.returns}),
        "combinations",
        "Bars of the throughput of every combination",
        said,
    )
    caption = (
        "Throughput of every combination; the range is between both ends of the range of acceptance lengths."
    )
    return [
        Picture(picture, "Throughput of every combination, the least on top."),
        Table(caption, head, rows),
    ]


def _made(found: Returns, held: Held) -> str:
    return " + ".join(name for name in found.names if name in held) or NOTHING


def _cells(found: Returns, returns: Mapping[Held, Return], held: Held) -> list[str]:
    """Throughput, its range, and the multiple of doing nothing; no cells where *returns* are not shown."""
    if held not in returns:
        return []
    one = returns[held]
    between = "" if one.range_tok_s is None else f"{one.range_tok_s[0]:.0f}-{one.range_tok_s[1]:.0f}"
    return [f"{one.tok_s:.1f}", between, factor(one.tok_s / found.returns[Held()].tok_s)]


def _titles(found: Returns) -> list[str]:
    beside = [] if found.plan.beside is None else [found.plan.beside]
    return [f"{each.name}: {each.title}" for each in (*found.plan.investments, *beside)]


def _provenance(found: Returns) -> Section:
    rows = [
        ("seed", str(found.base.scenario.seed)),
        ("runs and steps of each combination", f"{RUNS} of {STEPS}"),
    ]
    folded = [
        parts.as_data(found.plan.model_dump(mode="json"), "The plan"),
        parts.resolved(found.base.scenario, "The scenario with nothing made, as it was resolved"),
    ]
    return parts.provenance(rows, folded)

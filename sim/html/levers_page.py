"""Levers as a page: which part decides, what it is worth, and whether overhead dominates."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from string import ascii_uppercase

import rich.table

from sim.graph import Component
from sim.html import parts
from sim.html.page import Block, Heading, Page, Paragraph, Picture, Section, Table
from sim.html.svg import inline
from sim.levers import report, tables, words
from sim.levers.kinds import WORSE, Degree, Group, Lever
from sim.levers.overhead import dominates, overhead
from sim.levers.pictures import tornado
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study
from sim.levers.tables import MOST_IN_FULL, MOST_WITH_SHARES
from sim.levers.words import change
from sim.report import value

ASKS = "Which part of a step decides, and what is it worth?"
NO_EXPERTS = "there are no experts to weigh overhead against"
OVERHEAD_HEAD = (
    *("scenario", "host", "host free", "experts", "experts free", "the rest", "the rest free"),
    "in the articles",
)
GROUP_TITLES = {
    Group.WORK: "Parts of the step",
    Group.TOGETHER: "Parts of the step together",
    Group.PARAMETER: "Parameters",
}


def page(studies: Sequence[Study], changes: Sequence[str]) -> Page:
    """The Page of *studies*, of scenarios with *changes* asked for on the command line."""
    return _page_of_one(studies[0], changes) if len(studies) == 1 else _page_of_several(studies, changes)


def _page_of_one(study: Study, changes: Sequence[str]) -> Page:
    question, *about = report.head(study, "")
    return Page(
        question=question,
        about=[ASKS, *about],
        answer=[_deciding(study), _overhead(study)],
        sections=[
            Section("step", "Where the step goes", parts.step(study.base.step_s * 1e3, _shares(study))),
            Section(
                "levers",
                "What a better part brings",
                [_tornado(study, "tornado"), *_levers(study), *_overhead_table([study])],
            ),
            Section("choices", "Other choices", _choices([study])),
            *_drivers_section(study),
            *parts.assumptions(study.setup.scenario.assumptions),
            parts.notes([report.LUCK_NOTE, *report.notes([study])]),
            _provenance([study], changes),
        ],
    )


def _page_of_several(studies: Sequence[Study], changes: Sequence[str]) -> Page:
    named = list(zip(ascii_uppercase, studies, strict=False))
    return Page(
        question=ASKS,
        about=[line for letter, study in named for line in report.head(study, f"{letter}: ")],
        answer=[_deciding_beside(studies), _overhead_beside(studies)],
        sections=[
            *side_by_side(studies),
            *(_section_of(letter, study) for letter, study in named),
            parts.notes([report.LUCK_NOTE, *report.notes(studies)]),
            _provenance(studies, changes),
        ],
    )


def side_by_side(studies: Sequence[Study]) -> list[Section]:
    """What all scenarios have in common."""
    return [
        Section("beside", "Side by side", [*_beside(studies), *_overhead_table(studies)]),
        Section("choices", "Other choices, side by side", _choices(studies)),
    ]


def _section_of(letter: str, study: Study) -> Section:
    """All that is one scenario's own."""
    blocks: list[Block] = [Paragraph(study.setup.scenario.question)]
    blocks += [Heading("Where the step goes")]
    blocks += parts.step(study.base.step_s * 1e3, _shares(study), f"waterfall-{letter}")
    blocks += [Heading("What a better part brings"), _tornado(study, f"tornado-{letter}"), *_levers(study)]
    if study.drivers is not None:
        blocks += [Heading("What is not known, by how much it moves the answer"), *_drivers(study)]
    for section in parts.assumptions(study.setup.scenario.assumptions):
        blocks += [Heading(section.heading), *section.blocks]
    return Section(f"scenario-{letter}", f"{letter}: {study.name}", blocks)


def _leading(study: Study) -> Lever:
    """The part of the step that brings most when it is free."""
    own = [effect for effect in study.effects if effect.lever.group is Group.WORK]
    return max(own, key=lambda effect: effect.tok_s[Degree.FREE]).lever


def _gain(study: Study, lever: Lever, degree: Degree) -> str:
    effect = study.effect(lever)
    return "" if effect is None else words.gain(study, effect, degree)


def _deciding(study: Study) -> str:
    """The first sentence: throughput, and the part that is worth most."""
    lever = _leading(study)
    half, free = (_gain(study, lever, degree) for degree in (Degree.HALF, Degree.FREE))
    return (
        f"{study.base.tok_s:.1f} tokens per second as it is; what decides most is {lever.value},"
        f" worth {half} where it is 50 % better and {free} where it is free."
    )


def _overhead(study: Study) -> str:
    """The second sentence: whether overhead dominates."""
    host, experts, rest = (study.effect(lever) for lever in (Lever.HOST, Lever.EXPERTS, Lever.REST))
    if host is None or experts is None or rest is None:
        return f"A step takes {study.base.step_s * 1e3:.2f} ms, and {NO_EXPERTS}."
    weighed = (
        f"{name} {words.share(effect)} of the step, worth {words.gain(study, effect, Degree.FREE)} if free"
        for name, effect in (("All host work is", host), ("the routed experts are", experts))
    )
    return f"{', '.join(weighed)}: {dominates(host, rest)}."


def _deciding_beside(studies: Sequence[Study]) -> str:
    found = [
        f"{_leading(study).value} in {study.name} ({_gain(study, _leading(study), Degree.FREE)} if free)"
        for study in studies
    ]
    return f"What decides most is {parts.listed(found)}."


def _overhead_beside(studies: Sequence[Study]) -> str:
    """What overhead does, those together of which the same is true."""
    found: dict[str, list[str]] = {}
    for study in studies:
        host, rest = study.effect(Lever.HOST), study.effect(Lever.REST)
        told = dominates(host, rest) if host and rest else "there are no experts to weigh overhead against"
        found.setdefault(told, []).append(study.name)
    return f"{'; '.join(f'In {parts.listed(names)} {told}' for told, names in found.items())}."


def _shares(study: Study) -> dict[Component, float]:
    """Of the critical path, the largest first; what no step has is left out."""
    base = study.base
    ordered = sorted(base.components.items(), key=lambda pair: -pair[1])
    return {component: seconds / base.step_s for component, seconds in ordered if seconds > 0}


def _tornado(study: Study, name: str) -> Picture:
    base = study.base.tok_s
    said = [
        f"{effect.lever.value} {words.gain(study, effect, Degree.HALF)} where it is 50 % better,"
        f" {change(effect.worse_tok_s / base)} where it is 50 % worse"
        for effect in sorted(study.effects, key=lambda effect: -effect.tok_s[Degree.HALF])
    ]
    said += [f"{a.choice.name} {change(a.tok_s / base)}" for a in study.alternatives if a.tok_s is not None]
    picture = inline(lambda: tornado(study), name, "Tornado chart of levers and choices", "; ".join(said))
    return Picture(
        picture, "How far throughput moves with each part, and with each choice instead of the scenario's."
    )


def _levers(study: Study) -> list[Block]:
    """The table of levers, and what overlap takes back."""
    levers = tables.in_order([study])
    base = study.base.tok_s
    rows = []
    for effect in (study.effect(lever) for lever in levers if lever is not None):
        assert effect is not None
        rows.append(
            (
                effect.lever.value,
                words.share(effect),
                *(words.gain(study, effect, degree) for degree in Degree),
                f"{effect.tok_s[Degree.FREE]:.1f}",
                words.bound(study, effect),
                f"{effect.elasticity:.3f}",
                change(effect.worse_tok_s / base),
            )
        )
    head = ["better by", "of step", *words.DEGREE_NAMES.values(), "free, tok/s", "Amdahl", "elasticity"]
    caption = f"Change of throughput from {base:.1f} tok/s where a part is 10 or 50 % better, or free."
    table = Table(caption, [*head, f"{WORSE - 1:.0%} worse".replace("%", " %")], rows, groups=_groups(levers))
    return [table, *map(Paragraph, report.overlapped(study))]


def _overhead_table(studies: Sequence[Study]) -> list[Block]:
    """The host against the experts, the articles' own count beside it, and what comes of it."""
    shown = overhead(studies)
    if not shown:
        return []
    table, note, *verdicts = shown
    assert isinstance(table, rich.table.Table)
    head = OVERHEAD_HEAD[: len(table.columns)]
    return [parts.from_terminal(table, str(note), head), *(Paragraph(str(verdict)) for verdict in verdicts)]


def _groups(levers: Iterable[Lever | None]) -> dict[int, str]:
    """The title of each group by the row at which it begins."""
    found: dict[str, int] = {}
    for row, lever in enumerate(lever for lever in levers if lever is not None):
        found.setdefault(GROUP_TITLES[lever.group], row)
    return {row: title for title, row in found.items()}


def _beside(studies: Sequence[Study]) -> list[Block]:
    """The same levers of all scenarios."""
    levers = tables.in_order(studies)
    shown, shares = _shown(len(studies))
    names = [*(["of step"] if shares else []), *(words.DEGREE_NAMES[degree] for degree in shown)]
    head = [
        "better by",
        *(f"{letter} {name}" for letter in ascii_uppercase[: len(studies)] for name in names),
    ]
    rows = [
        (lever.value, *(cell for study in studies for cell in _cells(study, lever, shown, shares)))
        for lever in levers
        if lever is not None
    ]
    caption = "Change of throughput where a part is 10 or 50 % better, or free, and its share of the step."
    return [Table(caption, head, rows, groups=_groups(levers))]


def _shown(count: int) -> tuple[tuple[Degree, ...], bool]:
    """The degrees, and whether the shares of a step, of so many scenarios that a page has room for."""
    return tuple(Degree) if count <= MOST_IN_FULL else (Degree.FREE,), count <= MOST_WITH_SHARES


def _cells(study: Study, lever: Lever, shown: Sequence[Degree], shares: bool) -> list[str]:
    effect = study.effect(lever)
    if effect is None:
        return [""] * (shares + len(shown))
    share = [words.share(effect)] if shares else []
    return share + [words.gain(study, effect, degree) for degree in shown]


def _choices(studies: Sequence[Study]) -> list[Block]:
    """Choices, each instead of what the scenario has, and those that cannot be made."""
    several, in_full = len(studies) > 1, len(studies) <= MOST_WITH_SHARES
    letters = ascii_uppercase[: len(studies)] if several else " "
    names = ["tok/s", "change"] if in_full else ["change"]
    head = ["instead", *(f"{letter} {name}".strip() for letter in letters for name in names)]
    rows = [_choice_row(studies, key, in_full) for key in tables.choice_keys(studies)]
    caption = "One thing chosen otherwise, all else as it is, and how the step is launched then."
    table = Table(caption, [*head, "launch"], rows, words=[len(head)])
    left_out = [line for study in studies for line in tables.impossible(study, several)]
    return [*([table] if rows else []), *map(Paragraph, left_out)]


def _choice_row(studies: Sequence[Study], key: tuple[str, str], in_full: bool) -> tuple[str, ...]:
    cells, notes = [], dict[str, None]()
    for study in studies:
        found = tables.chosen(study, key)
        if found is None or found.tok_s is None:
            cells += [""] * (1 + in_full)
            continue
        cells += [f"{found.tok_s:.1f}"] if in_full else []
        cells += [change(found.tok_s / study.base.tok_s)]
        notes |= {found.note: None} if found.note else {}
    return (key[1], *cells, "; ".join(notes))


def _drivers_section(study: Study) -> list[Section]:
    if study.drivers is None:
        return []
    return [Section("unknown", "What is not known, by how much it moves the answer", _drivers(study))]


def _drivers(study: Study) -> list[Block]:
    """What drives the uncertainty, the largest share of it first, with where it comes from."""
    assert study.drivers is not None
    rows = []
    for driver in study.drivers.drivers:
        swing = driver.swing
        ends = zip(swing.values, swing.tok_s, strict=True)
        cells = [cell for drawn, tok_s in ends for cell in (value(drawn), f"{tok_s:.1f}")]
        rows.append((swing.name, f"{driver.total:.2f}", f"{driver.first:.2f}", *cells, swing.basis))
    head = ["not known", "total index", "alone", "P5", "tok/s there", "P95", "tok/s there", "source"]
    return [Table(report.drivers_note(study.drivers), head, rows, words=[7])]


def _provenance(studies: Sequence[Study], changes: Sequence[str]) -> Section:
    seeds = ", ".join(dict.fromkeys(str(study.setup.scenario.seed) for study in studies))
    samples = [study.setup.machine.samples for study in studies]
    rows = [
        ("seed", seeds),
        ("runs and steps of each", f"{RUNS} of {STEPS}"),
        ("changes to the scenarios", "; ".join(changes) or "none"),
        *(("SHA-256 of a measured file", sha) for sha in dict.fromkeys(s.sha256 for s in samples if s)),
    ]
    folded = [
        parts.resolved(study.setup.scenario, f"The scenario {study.name} as it was resolved")
        for study in studies
    ]
    return parts.provenance(rows, folded)

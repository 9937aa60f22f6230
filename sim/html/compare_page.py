"""A comparison as a page: how many times as fast, how sure, and where the difference arises."""

from __future__ import annotations

from collections.abc import Iterator

from sim.comparison import pictures, report
from sim.comparison.odds import Odds
from sim.comparison.report import LETTERS, WORDS, times
from sim.comparison.study import Against, Study
from sim.html import parts
from sim.html.page import Block, Heading, Page, Paragraph, Picture, Section, Table
from sim.html.svg import inline
from sim.report import percent

Titled = tuple[str, str, list[Block]]
"""An anchor, a heading, and what stands below it."""


def page(study: Study) -> Page:
    """The Page of *study*."""
    names = [side.entrant.name for side in study.sides]
    return Page(
        question=f"How much faster than {names[0]} is {parts.listed(names[1:])}?",
        about=[line.strip() for line in report.head(study)],
        answer=_answer(study),
        sections=[
            *_sections(study),
            *parts.assumptions(_assumed(study)),
            parts.notes(list(report.notes(study))),
            _provenance(study),
        ],
    )


def _others(study: Study) -> list[tuple[str, Against]]:
    """Each with its letter."""
    return list(zip(LETTERS[1:], study.others, strict=False))


def _answer(study: Study) -> list[str]:
    """How much faster, and whether what is not known could turn it round; of several in one sentence each."""
    if len(study.others) == 1:
        letter, other = _others(study)[0]
        return [report.luck_sentence(study, letter, other.pair), report.unknown_sentence(study, other)]
    return [f"{'; '.join(_luck(*each) for each in _others(study))}.", _unknown(study)]


def _luck(letter: str, other: Against) -> str:
    if other.pair.identical:
        return f"{letter} is identical to A"
    return f"{letter} {WORDS[other.pair.verdict]} {times(other.pair.throughput_tok_s.ratio)} times as fast"


def _unknown(study: Study) -> str:
    found = [
        f"{letter} is faster than A in {percent(other.unknown.without_luck.faster)}"
        for letter, other in _others(study)
        if other.unknown is not None
    ]
    if not found:
        return report.unknown_sentence(study, study.others[0])
    return f"Of the draws of everything that is not known {parts.listed(found)}."


def _sections(study: Study) -> list[Section]:
    """All about each scenario against the first: as sections where there is one, else below its name."""
    if len(study.others) == 1:
        ((letter, other),) = _others(study)
        return [Section(*each) for each in _against(study, letter, other)]
    return [
        Section(
            f"against-{letter}",
            f"{letter}: {other.side.entrant.name}",
            [
                block
                for _, heading, blocks in _against(study, letter, other)
                for block in (Heading(heading), *blocks)
            ],
        )
        for letter, other in _others(study)
    ]


def _against(study: Study, letter: str, other: Against) -> Iterator[Titled]:
    yield "difference", "How much faster", _quantities(letter, other)
    yield "step", "Where the difference arises", _step(study, letter, other)
    yield "chances", "How sure that is", _chances(study, letter, other)
    yield "keys", "In what they differ", _keys(letter, other)


def _quantities(letter: str, other: Against) -> list[Block]:
    head = ["mean over runs", "A", letter, f"{letter} - A", f"{letter} / A", "interval"]
    caption = f"{letter} beside A; the interval is of the ratio."
    return [parts.from_terminal(report.quantities(letter, other.pair), caption, head)]


def _step(study: Study, letter: str, other: Against) -> list[Block]:
    """The way from A's step to B's, component by component."""
    said = "; ".join(
        f"{part.component.value} {part.a_ms:.3f} to {part.b_ms:.3f} ms" for part in other.pair.parts
    )
    step = other.pair.step_time_ms
    picture = inline(
        lambda: pictures.waterfall(study, letter, other),
        f"waterfall-{letter}",
        f"Waterfall from A's step to {letter}'s",
        f"{step.a:.2f} to {step.b:.2f} ms: {said}",
    )
    head = ["critical path, ms", "A", letter, f"{letter} - A", "x tok/s", "remark"]
    caption = (
        "The critical path of a mean step, and what each row alone does to throughput; the factors multiply."
    )
    table = parts.from_terminal(report.components(letter, other.pair), caption, head, words=[5])
    return [Picture(picture, f"What is shorter and what is longer in {letter}'s step than in A's."), table]


def _chances(study: Study, letter: str, other: Against) -> list[Block]:
    """The distribution of the ratio, by luck and by what is not known."""
    shown = [("by the luck of runs", other.pair.luck)]
    if other.unknown is not None:
        shown.append(("by what is not known", other.unknown.without_luck))
    picture = inline(
        lambda: pictures.ratio(study, letter, other),
        f"ratio-{letter}",
        f"Distribution of {letter}'s throughput over A's",
        "; ".join(f"{why}: {_quantiles(found)}" for why, found in shown),
    )
    head = [f"{letter} / A, tok/s", "P5", "P50", "P95", f"{letter} faster in", "interval"]
    caption = f"How many times as fast {letter} is, and how often it is faster at all."
    table = parts.from_terminal(report.chances(study, letter, other), caption, head)
    lines = [*report.unknown_lines(letter, other.unknown), *report.luck_lines(study, letter, other)]
    return [
        Picture(picture, f"Share of runs and draws in which {letter} is at most so many times as fast as A."),
        table,
        *map(Paragraph, lines),
    ]


def _quantiles(found: Odds) -> str:
    if found.quantiles is None:
        return "no ratio"
    low, middle, high = map(times, found.quantiles)
    return f"P5 {low}, median {middle}, P95 {high} times as fast"


def _keys(letter: str, other: Against) -> list[Block]:
    """The keys in which the scenarios differ."""
    if not other.differences:
        return [Paragraph(f"A and {letter} agree in every key that is simulated.")]
    rows = [(each.key, report.shown(each.a), report.shown(each.b)) for each in other.differences]
    return [Table("Keys of the scenarios, once everything is filled in.", ["key", "A", letter], rows, [1, 2])]


def _assumed(study: Study) -> list[str]:
    """Assumptions of all scenarios, each once, with the letters of those that make it."""
    found: dict[str, list[str]] = {}
    for letter, side in zip(LETTERS, study.sides, strict=False):
        for assumed in side.entrant.setup.scenario.assumptions:
            found.setdefault(assumed, []).append(letter)
    return [f"{', '.join(letters)}: {assumed}" for assumed, letters in found.items()]


def _provenance(study: Study) -> Section:
    setups = [side.entrant.setup for side in study.sides]
    files = dict.fromkeys(setup.machine.samples.sha256 for setup in setups if setup.machine.samples)
    rows = [
        ("seed", ", ".join(dict.fromkeys(str(setup.scenario.seed) for setup in setups))),
        ("luck", f"{study.pairing.value} to all scenarios"),
        ("runs and draws of each", f"{len(study.first.runs.results):,} and {study.draws:,}"),
        ("changes to the scenarios", "; ".join(study.changes) or "none"),
        *(("SHA-256 of a measured file", sha) for sha in files),
    ]
    folded = [
        parts.resolved(side.entrant.setup.scenario, f"{letter}: {side.entrant.name} as it was resolved")
        for letter, side in zip(LETTERS, study.sides, strict=False)
    ]
    return parts.provenance(rows, folded)

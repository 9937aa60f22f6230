"""A comparison as lines of text and as an object. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from string import ascii_uppercase
from typing import Any, Literal

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import digests, files
from sim.comparison.intervals import Gap, Pairing
from sim.comparison.odds import Odds
from sim.comparison.paired import MARGIN, Pair, Part, Quantity, Verdict
from sim.comparison.study import CONFIDENCE, Against, Side, Study
from sim.comparison.unknown import Unknown
from sim.output import SIGNIFICANT_DIGITS
from sim.report import drafting_line, number, percent, render
from sim.statistics import MIN_RUNS

FORMAT_VERSION = 1
"""1 (2026-12): first."""
MOST_SCENARIOS = 6
"""With which a report is still read."""
LETTERS = ascii_uppercase[:MOST_SCENARIOS]
HARDLY_MS = 0.001
"""Differences below it show as next to nothing."""
OVER = {Pairing.COMMON: "paired runs", Pairing.INDEPENDENT: "independent runs"}
WORDS = {
    Verdict.BARELY_SLOWER: "is slower than A, distinguishable, by less than 1 %:",
    Verdict.BARELY_FASTER: "is faster than A, distinguishable, by less than 1 %:",
    Verdict.SLOWER: "is slower than A:",
    Verdict.FASTER: "is faster than A:",
    Verdict.NOT_DISTINGUISHABLE: "is not distinguishable from A:",
    Verdict.UNDECIDED: "may or may not be faster than A, undecided:",
}


def lines(study: Study) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [Text(line) for line in head(study)]
    for letter, other in zip(LETTERS[1:], study.others, strict=False):
        parts += [Text(), Text(answer(study, letter, other))]
    for letter, other in zip(LETTERS[1:], study.others, strict=False):
        parts += _section(study, letter, other)
    parts += [Text(), *(Text(line) for line in notes(study))]
    return render(parts)


def head(study: Study) -> Iterator[str]:
    """Each scenario with its letter, and what was changed and played."""
    for letter, side in zip(LETTERS, study.sides, strict=False):
        setup = side.entrant.setup
        machine = setup.machine
        yield f"{letter}  {side.entrant.name}: {setup.scenario.question}"
        yield (
            f"   {machine.ranks}x {machine.gpu.name}, {machine.interconnect.name}, {machine.host.name},"
            f" {machine.stack.name}; {setup.model.name}"
        )
        yield f"   {drafting_line(setup)}; context {setup.scenario.load.context_tokens:,}"
    yield from (f"Changed in all: {change}" for change in study.changes)
    yield played_line(study)


def played_line(study: Study) -> str:
    """How many runs were played, and what they have in common."""
    runs, seeds = len(study.first.runs.results), [side.entrant.setup.scenario.seed for side in study.sides]
    if study.pairing is Pairing.COMMON:
        return f"{runs} runs each; run i of every scenario meets the same luck (seed {seeds[0]})."
    return f"{runs} runs each; every scenario has luck of its own (seeds {', '.join(map(str, seeds))})."


def answer(study: Study, letter: str, other: Against) -> str:
    """Two sentences: how much faster, and whether what is not known could turn it round."""
    return f"{luck_sentence(study, letter, other.pair)} {unknown_sentence(study, other)}"


def luck_sentence(study: Study, letter: str, found: Pair) -> str:
    """How many times as fast, and how sure by the luck of the runs."""
    if found.verdict is Verdict.IDENTICAL:
        return f"{letter} is not distinguishable from A: identical, the same nanoseconds in every run."
    ratio, interval = found.throughput_tok_s.ratio, found.throughput_tok_s.ratio_interval
    if interval is None:
        how = f"fewer than {MIN_RUNS} runs give no interval"
    else:
        how = f"{_between(interval, ratio)}, {_level()} over {OVER[study.pairing]}"
    return f"{letter} {WORDS[found.verdict]} {times(ratio)} times as fast ({how})."


def unknown_sentence(study: Study, other: Against) -> str:
    """Whether what is not known could turn it round."""
    if not study.draws:
        return "What is not known was not drawn."
    if other.unknown is None:
        return "Nothing about them is uncertain: all is known."
    found = other.unknown.without_luck
    if found.quantiles is None:
        return "With everything drawn that is not known no draw leaves room for a request on both sides."
    if found.ties == found.count:
        return "With everything drawn that is not known it is as fast in every draw."
    low, _, high = found.quantiles
    return (
        f"With everything drawn that is not known it is {times(low)} to {times(high)} times as fast (P5 to"
        f" P95), and faster in {percent(found.faster)} of draws ({_shares(found)})."
    )


def _section(study: Study, letter: str, other: Against) -> list[RenderableType]:
    """Everything about one scenario against the first."""
    found, name = other.pair, other.side.entrant.name
    parts: list[RenderableType] = [
        Text(),
        Text(f"{letter} against A: {name} against {study.first.entrant.name}"),
        quantities(letter, found),
        Text(),
        components(letter, found),
        Text(),
        chances(study, letter, other),
        *(Text(line) for line in unknown_lines(letter, other.unknown)),
        *(Text(line) for line in luck_lines(study, letter, other)),
        Text(),
    ]
    return [*parts, *key_differences(letter, other)]


def _table(*columns: str) -> Table:
    """A table of figures; columns without a name hold words."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(columns[0]), no_wrap=True)
    for name in columns[1:]:
        side: Literal["left", "right"] = "right" if name else "left"
        table.add_column(Text(name, justify=side), justify=side, no_wrap=True)
    return table


def quantities(letter: str, found: Pair) -> Table:
    """Throughput, step time and acceptance length of both."""
    table = _table("", "A", letter, f"{letter} - A", f"{letter} / A", "")
    for name, quantity in quantity_rows(found):
        interval = quantity.ratio_interval
        between = "" if interval is None else _between(interval, quantity.ratio)
        difference = _difference(quantity.difference, 3 if quantity.a < 100 else 1)
        table.add_row(
            name, number(quantity.a), number(quantity.b), difference, times(quantity.ratio), between
        )
    if found.requests[0] != found.requests[1]:
        a, b = found.requests
        table.add_row("requests at once", str(a), str(b), f"{b - a:+d}", times(b / a), "")
    return table


def quantity_rows(found: Pair) -> list[tuple[str, Quantity]]:
    """Names with units, and what is compared."""
    return [
        ("throughput, tok/s", found.throughput_tok_s),
        ("step time, ms", found.step_time_ms),
        ("acceptance length", found.acceptance_length),
    ]


def components(letter: str, found: Pair) -> Table:
    """Where the difference arises: the critical path, and what each part does to throughput."""
    table = _table("critical path of a step, ms", "A", letter, f"{letter} - A", "x tok/s", "")
    for part in found.parts:
        table.add_row(
            part.component.value,
            f"{part.a_ms:.3f}",
            f"{part.b_ms:.3f}",
            _difference(part.difference_ms, 3),
            f"{part.factor:.3f}",
            _part_note(part),
        )
    step, length = found.step_time_ms, found.acceptance_length
    difference = f"{step.b - step.a:+.3f}"
    table.add_row("sum: step time", f"{step.a:.3f}", f"{step.b:.3f}", difference, f"{1 / step.ratio:.3f}", "")
    table.add_row("acceptance length", "", "", "", f"{length.ratio:.3f}", "")
    if found.requests[0] != found.requests[1]:
        table.add_row("requests at once", "", "", "", f"{found.requests[1] / found.requests[0]:.3f}", "")
    table.add_row("product: throughput", "", "", "", f"{found.throughput_tok_s.ratio:.3f}", "")
    return table


def _part_note(part: Part) -> str:
    """What to say of a component that is not surely different, or hardly."""
    found = part.difference_ms
    if found.half_width is None:
        return ""
    if found.distinguishable:
        return "under 1 us" if abs(found.mean) < HARDLY_MS else ""
    return "not distinguishable" if found.half_width else "the same"


def chances(study: Study, letter: str, other: Against) -> Table:
    """How many times as fast, and how often faster, by luck and by what is not known."""
    table = _table(f"{letter} / A, tok/s", "P5", "P50", "P95", f"{letter} faster in", "")
    runs = OVER[study.pairing]
    table.add_row(f"luck alone: {other.pair.luck.count} {runs}", *_odds_cells(other.pair.luck))
    if other.unknown is not None:
        count = other.unknown.without_luck.count
        table.add_row(f"not known alone: {count} draws", *_odds_cells(other.unknown.without_luck))
        table.add_row("both: each draw with a run's luck", *_odds_cells(other.unknown.with_luck))
    return table


def _odds_cells(found: Odds) -> list[str]:
    quantiles = ["", "", ""] if found.quantiles is None else [times(value) for value in found.quantiles]
    alike = found.ties == found.count
    return [*quantiles, percent(found.faster), "as fast in each" if alike else f"({_shares(found)})"]


def unknown_lines(letter: str, found: Unknown | None) -> Iterator[str]:
    """What of the unknowns both sides share, and where nothing could be decoded."""
    if found is None:
        return
    yield _shared_line(letter, found)
    if found.without_luck.stuck:
        stuck = found.without_luck.stuck
        yield f"In {stuck} draws one side or both have no room for a request; no ratio counts them."


def _shared_line(letter: str, found: Unknown) -> str:
    """What is not known of both sides, and what of one alone."""
    shared, of_a, of_b = len(found.shared), len(found.only_a), len(found.only_b)
    if not of_a + of_b:
        return f"{shared} things are not known, the same in A and {letter}, with the same quantile in both."
    return (
        f"Of A {shared + of_a} things are not known, of {letter} {shared + of_b}; {shared} are the same in"
        " both and take the same quantile, each other one is drawn by itself."
    )


def luck_lines(study: Study, letter: str, other: Against) -> Iterator[str]:
    """How much luck the runs have in common."""
    if study.pairing is Pairing.INDEPENDENT:
        return
    if other.pair.correlation is not None:
        correlation = f"{other.pair.correlation:.2f}"
        yield f"Run by run, the throughputs of A and {letter} have a correlation of {correlation}."
    if other.other_luck:
        widths = ", ".join(
            f"{stream.value} {study.first.luck_widths[stream]} and {other.side.luck_widths[stream]}"
            for stream in other.other_luck
        )
        yield (
            f"Steps of A and {letter} do not meet the same luck one by one, for they take other numbers of"
            f" random values ({widths}): intervals hold, but pairing may narrow them less."
        )


def key_differences(letter: str, other: Against) -> list[RenderableType]:
    """The keys in which the two scenarios differ."""
    if not other.differences:
        return [Text(f"A and {letter} agree in every key that is simulated.")]
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    keys = "1 key" if len(other.differences) == 1 else f"{len(other.differences)} keys"
    for name in (f"They differ in {keys}", "A", letter):
        table.add_column(Text(name), overflow="fold")
    for each in other.differences:
        table.add_row(Text(each.key), Text(shown(each.a)), Text(shown(each.b)))
    return [table]


def shown(value: object) -> str:
    """A scenario's value; a dash where it has none."""
    return "-" if value is None else str(value)


def notes(study: Study) -> Iterator[str]:
    """What a reader must know about all numbers."""
    together = "" if len(study.others) == 1 else " for all comparisons together"
    yield (
        f"+- and brackets: {_level()}{together}; of components for all rows together. The ratio is the"
        " geometric mean over runs."
    )
    yield (
        "x tok/s: what the row alone does to throughput; rows multiply. A component's is its difference over"
        " the logarithmic mean of the two step times."
    )
    if study.draws:
        calibrated = [side.entrant.name for side in study.sides if side.entrant.setup.posterior is not None]
        where = f"drawn by the calibration for {', '.join(calibrated)} alone" if calibrated else "in neither"
        yield (
            f"What is not known is drawn in the mean step, not simulated; what the model lacks is {where}."
            " Brackets of draws are Wilson's."
        )


def _level() -> str:
    return f"{100 * CONFIDENCE:g} %"


def times(ratio: float) -> str:
    """A ratio; with another digit where it is near 1."""
    return f"{ratio:.{_digits(ratio)}f}"


def _digits(ratio: float) -> int:
    return 4 if abs(ratio - 1) < MARGIN else 3


def _between(interval: tuple[float, float], ratio: float) -> str:
    low, high = (f"{end:.{_digits(ratio)}f}" for end in interval)
    return f"{low} to {high}"


def _shares(found: Odds) -> str:
    low, high = (100 * end for end in found.faster_interval)
    return f"{low:.1f} to {high:.1f} %"


def _difference(found: Gap, decimals: int) -> str:
    """``+3.970 +- 0.015``."""
    width = "" if found.half_width is None else f" +- {found.half_width:.{decimals}f}"
    return f"{round(found.mean, decimals) + 0.0:+.{decimals}f}{width}"


def as_object(study: Study) -> dict[str, Any]:
    """Everything, for other programs. Shares are fractions of 1."""
    return {
        "format_version": FORMAT_VERSION,
        "confidence": CONFIDENCE,
        "pairing": study.pairing.value,
        "runs": len(study.first.runs.results),
        "draws": study.draws,
        "overrides": list(study.changes),
        "scenarios": [_side_object(side) for side in study.sides],
        "comparisons": [
            _against_object(study, *each) for each in zip(LETTERS[1:], study.others, strict=False)
        ],
        "provenance": digests.provenance(),
    }


def _side_object(side: Side) -> dict[str, Any]:
    runs, scenario = side.runs, side.entrant.setup.scenario
    return {
        "name": side.entrant.name,
        "question": scenario.question,
        "seed": scenario.seed,
        "requests": runs.requests,
        "throughput_tok_s": _rounded(float(runs.tok_s.mean())),
        "step_time_ms": _rounded(float(runs.step_ms.mean())),
        "acceptance_length": _rounded(float(runs.length.mean())),
    }


def _against_object(study: Study, letter: str, other: Against) -> dict[str, Any]:
    found = other.pair
    return {
        "name": other.side.entrant.name,
        "against": study.first.entrant.name,
        "verdict": found.verdict.value,
        "identical": found.identical,
        "confidence": _rounded(found.certainty.confidence),
        "answer": answer(study, letter, other),
        "throughput_tok_s": _quantity_object(found.throughput_tok_s),
        "step_time_ms": _quantity_object(found.step_time_ms),
        "acceptance_length": _quantity_object(found.acceptance_length),
        "log_throughput": {
            "requests": _rounded(found.log_requests),
            "acceptance_length": _rounded(found.acceptance_length.log_ratio.mean),
            "step_time": _rounded(-found.step_time_ms.log_ratio.mean),
            "sum": _rounded(found.throughput_tok_s.log_ratio.mean),
        },
        "components": {part.component.name.lower(): _part_object(part) for part in found.parts},
        "luck": _odds_object(found.luck)
        | {
            "correlation": None if found.correlation is None else _rounded(found.correlation),
            "other_streams": [stream.value for stream in other.other_luck],
        },
        "unknown": None if other.unknown is None else _unknown_object(other.unknown),
        "differences": [each._asdict() for each in other.differences],
    }


def _quantity_object(quantity: Quantity) -> dict[str, Any]:
    interval = quantity.ratio_interval
    return {
        "a": _rounded(quantity.a),
        "b": _rounded(quantity.b),
        **_gap_object(quantity.difference),
        "ratio": _rounded(quantity.ratio),
        "ratio_interval": None if interval is None else [_rounded(end) for end in interval],
    }


def _gap_object(found: Gap) -> dict[str, Any]:
    return {
        "difference": _rounded(found.mean),
        "half_width": None if found.half_width is None else _rounded(found.half_width),
    }


def _part_object(part: Part) -> dict[str, Any]:
    return {
        "a_ms": _rounded(part.a_ms),
        "b_ms": _rounded(part.b_ms),
        **{f"{key}_ms": value for key, value in _gap_object(part.difference_ms).items()},
        "distinguishable": part.difference_ms.distinguishable,
        "log_throughput": _rounded(part.log_factor),
    }


def _odds_object(found: Odds) -> dict[str, Any]:
    quantiles = (None, None, None) if found.quantiles is None else map(_rounded, found.quantiles)
    return {
        "count": found.count,
        "faster": _rounded(found.faster),
        "faster_interval": [_rounded(end) for end in found.faster_interval],
        "ties": found.ties,
        "without_room": found.stuck,
        **{f"ratio_{name}": value for name, value in zip(("p5", "p50", "p95"), quantiles, strict=True)},
    }


def _unknown_object(found: Unknown) -> dict[str, Any]:
    return {
        "shared": list(found.shared),
        "only_a": list(found.only_a),
        "only_b": list(found.only_b),
        "without_luck": _odds_object(found.without_luck),
        "with_luck": _odds_object(found.with_luck),
    }


def _rounded(value: float) -> float:
    """Digits beyond these would depend on the order of summation."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def write(study: Study, text: Sequence[str], folder: Path) -> list[str]:
    """The report and its object in *folder*; the names of the files."""
    files.replace(folder / "report.txt", "\n".join(text) + "\n")
    files.replace(folder / "compare.json", files.as_json(as_object(study)) + "\n")
    return ["report.txt", "compare.json"]

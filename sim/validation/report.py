"""A validation in words: lines of text and a JSON object. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from hwmodels.estimate import Source
from sim import files
from sim.report import render
from sim.validation.blame import Blame, Suspect, blame
from sim.validation.translation import CaseKind
from sim.validation.verdicts import Row, Score, Sign, Skipped, Validation, score

WIDTH = 100
WORST = 5
OUTSIDE = "*"
MOST_SOURCES = 2
LEAST_SHARE = 0.005
"""Sources below it, and in the table all but the largest ones, are left out; ``--json`` has them all."""
DIGITS = 6
ROW_COLUMNS = (
    "id",
    "kind",
    "system",
    "measured_tok_s",
    "predicted_tok_s",
    "error",
    "low",
    "high",
    "rests_on",
)


def lines(validation: Validation, title: str) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [Text(title)]
    for system, rows in validation.systems.items():
        parts += [Text(), Text(system), _rows_table(rows)]
    if validation.rows:
        parts += [
            Text(),
            Text(f"{OUTSIDE} measured outside the predicted interval"),
            Text(),
            _scores_table(validation),
        ]
        parts += [Text(line) for line in (*_sign_lines(validation.signs), *_interval_lines(validation.rows))]
        parts += [part for row in validation.worst(WORST) for part in _worst(row, blame(row))]
    parts += _listed("Assumed where the rows do not say", _assumed(validation.rows))
    parts += _listed("Skipped", _reasons(validation.skipped))
    return render(parts, width=WIDTH)


def _rows_table(rows: Sequence[Row]) -> Table:
    table = blank_table("id", "", "measured", "predicted", "error", "90 % interval", "", "rests on")
    table.padding = (0, 1, 0, 0)
    for column in table.columns[2:6]:
        column.justify = "right"
    for row in rows:
        low, high = row.interval
        table.add_row(
            row.id,
            row.kind.value,
            tok_s_text(row.measured),
            tok_s_text(row.predicted),
            signed(row.error),
            f"{tok_s_text(low)} - {tok_s_text(high)}",
            "" if row.is_inside else OUTSIDE,
            _rests_on(row.prediction.sources, MOST_SOURCES),
        )
    return table


def blank_table(*names: str) -> Table:
    """A table of columns *names*, without rows."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for name in names:
        table.add_column(name, overflow="fold", no_wrap=name == "id")
    return table


def tok_s_text(value: float) -> str:
    """Four digits, and all of those before the point."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


def signed(error: float) -> str:
    """``+2.4 %``."""
    return f"{100 * error:+.1f} %"


def _rests_on(sources: dict[Source, float], most: int) -> str:
    """``71 % MEASURED, 20 % SCALED``: the *most* largest."""
    ordered = sorted(sources.items(), key=lambda pair: -pair[1])[:most]
    return ", ".join(
        f"{100 * share:.0f} % {source.name}" for source, share in ordered if share >= LEAST_SHARE
    )


def _scores_table(validation: Validation) -> Table:
    table = blank_table("system", "rows", "mean |error|", "median |error|", "bias", "inside 90 %")
    for column in table.columns[1:]:
        column.justify = "right"
    named = [*validation.systems.items(), ("all", list(validation.rows))]
    for name, rows in named:
        found = score(rows)
        assert found is not None
        table.add_row(name, str(found.rows), *_score_cells(found))
    return table


def _score_cells(found: Score) -> tuple[str, ...]:
    errors = (found.mean_absolute_error, found.median_absolute_error)
    return (*(f"{100 * error:.1f} %" for error in errors), signed(found.bias), f"{100 * found.inside:.0f} %")


def _sign_lines(signs: Sequence[Sign]) -> list[str]:
    """Whether speculation pays where it was measured to."""
    if not signs:
        return []
    wrong = [sign for sign in signs if not sign.is_right]
    text = f"Whether speculation pays is right in {len(signs) - len(wrong)} of {len(signs)} cases"
    named = [f"{s.id} (measured x{s.measured_gain:.2f}, predicted x{s.predicted_gain:.2f})" for s in wrong]
    return ["", f"{text}{'; wrong in ' + ', '.join(named) if wrong else ''}."]


def _interval_lines(rows: Sequence[Row]) -> list[str]:
    """What widens the intervals beyond the ranges of figures."""
    lacking = [
        f"{_range(rows, kind)} for {kind} rows" for kind in CaseKind if any(r.kind is kind for r in rows)
    ]
    return [
        "",
        "Intervals: ranges of figures, luck, the acceptance length's own uncertainty, one measurement's, and"
        " what the model lacks as the shipped cases of other systems show it (1 sigma):"
        f" {', '.join(lacking)}.",
    ]


def _range(rows: Sequence[Row], kind: CaseKind) -> str:
    """``8 %`` or ``8-12 %``."""
    widths = sorted({f"{100 * row.discrepancy_sd:2.0f}" for row in rows if row.kind is kind})
    return f"{'-'.join(dict.fromkeys((widths[0].strip(), widths[-1].strip())))} %"


def _worst(row: Row, found: Blame) -> list[RenderableType]:
    """A bad row taken apart."""
    step = row.prediction.step_s
    tok_s = f"{tok_s_text(row.predicted)} tok/s predicted, {tok_s_text(row.measured)} measured"
    head = f"{row.id} {row.kind}: {tok_s}"
    steps = f"step {1e3 * step:.2f} ms, not {1e3 * step * row.predicted / row.measured:.2f}"
    return [
        Text(),
        Text(f"{head} ({signed(row.error)}); {steps}"),
        _suspects_table(row, found.suspects),
        Text(_verdict(found)),
    ]


def _suspects_table(row: Row, suspects: Sequence[Suspect]) -> Table:
    table = blank_table("  of a step", "ms", "share", "would have to be", "stated 1 sigma")
    for column in table.columns[1:]:
        column.justify = "right"
    for suspect in suspects:
        share = suspect.seconds / row.prediction.step_s
        if share >= 0.01:
            table.add_row(
                f"  {suspect.family}",
                f"{1e3 * suspect.seconds:.2f}",
                f"{100 * share:.0f} %",
                "cannot" if suspect.factor is None else f"x{suspect.factor:.2f}",
                f"{100 * suspect.spread:.0f} %",
            )
    return table


def _verdict(found: Blame) -> str:
    suspect = found.most_likely
    if suspect.could_close_it:
        return f"  Most likely {suspect.family}: x{suspect.factor:.2f} lies inside its stated range."
    if suspect.factor is None:
        return f"  Nothing alone closes the gap; {suspect.family} is the largest part."
    would = f"{suspect.family}, the largest part, would take x{suspect.factor:.2f}"
    return f"  Nothing closes the gap inside its range; {would}."


def _assumed(rows: Iterable[Row]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for row in rows:
        for note in _notes(row):
            found.setdefault(note, []).append(row.id)
    return found


def _notes(row: Row) -> tuple[str, ...]:
    """What was assumed for *row*, and whether all its requests fit."""
    room, asked = row.prediction.requests, row.question.scenario.load.concurrency
    limited = (f"cache holds {room} of {asked} requests at a time, the others wait",) if room < asked else ()
    return (*row.question.notes, *limited)


def _reasons(skipped: Iterable[Skipped]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for skip in skipped:
        kind = f"{skip.kind}: " if skip.kind is not None else ""
        found.setdefault(f"{kind}{skip.reason}", []).append(skip.id)
    return found


def _listed(title: str, found: dict[str, list[str]]) -> list[RenderableType]:
    """What is said of several rows once, with their names."""
    if not found:
        return []
    said = [Text(f"  {what}: {', '.join(dict.fromkeys(ids))}") for what, ids in found.items()]
    return [Text(), Text(f"{title}:"), *said]


def as_object(validation: Validation) -> dict[str, Any]:
    """The stable JSON object: ``rows``, ``skipped`` and ``summary``. Errors and shares are fractions."""
    return {
        "rows": [_row_object(row) for row in validation.rows],
        "skipped": [{"id": skip.id, "reason": _reason(skip)} for skip in validation.skipped],
        "summary": {
            "overall": _score_object(score(validation.rows)),
            "systems": {name: _score_object(score(rows)) for name, rows in validation.systems.items()},
        },
    }


def _reason(skip: Skipped) -> str:
    return skip.reason if skip.kind is None else f"{skip.kind}: {skip.reason}"


def _row_object(row: Row) -> dict[str, Any]:
    low, high = row.interval
    return {
        "id": row.id,
        "kind": row.kind.value,
        "measured_tok_s": row.measured,
        "predicted_tok_s": rounded(row.predicted),
        "error": rounded(row.error),
        "low": rounded(low),
        "high": rounded(high),
        "rests_on": {source.name: rounded(share) for source, share in row.prediction.sources.items()},
    }


def _score_object(found: Score | None) -> dict[str, Any] | None:
    if found is None:
        return None
    return {name: value if name == "rows" else rounded(value) for name, value in found._asdict().items()}


def rounded(value: float) -> float:
    """Digits beyond these would depend on the order of summation."""
    return float(f"{value:.{DIGITS}g}")


def write(validation: Validation, text: Sequence[str], folder: Path) -> list[str]:
    """Write the report, the JSON object and a table of the rows into *folder*; the names of the files."""
    files.replace(folder / "report.txt", "\n".join(text) + "\n")
    files.replace(folder / "validation.json", files.as_json(as_object(validation)) + "\n")
    files.replace(folder / "rows.csv", files.csv_text(ROW_COLUMNS, map(_row_cells, validation.rows)))
    return ["report.txt", "validation.json", "rows.csv"]


def _row_cells(row: Row) -> list[object]:
    cells = _row_object(row) | {
        "system": row.system,
        "rests_on": _rests_on(row.prediction.sources, len(Source)),
    }
    return [cells[name] for name in ROW_COLUMNS]

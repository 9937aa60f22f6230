"""Why a scenario is slower than another, cause by cause."""

from __future__ import annotations

from collections.abc import Iterator
from math import exp, log

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.answer import Answer
from sim.causes import Explanation
from sim.report.words import number, percent


def causes(answer: Answer) -> list[RenderableType]:
    """Why this scenario is slower than another, cause by cause; empty where it does not ask."""
    if answer.explanation is None:
        return []
    head, rows = cause_rows(answer, answer.explanation)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(head[0])
    for name in head[1:]:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(*row)
    anchored = (
        answer.setup.scenario.anchor is not None and answer.explanation.since_published_tok_s is not None
    )
    return [Text(), table, *(Text(line) for line in causes_legend(answer.explanation, anchored))]


def cause_rows(
    answer: Answer, explained: Explanation
) -> tuple[tuple[str, str, str], list[tuple[str, str, str]]]:
    """Head and rows of a table of the causes in *explained*."""
    anchor = answer.setup.scenario.anchor
    published = None if anchor is None else fall(explained, anchor.published_tok_s)
    share = "share of the published fall" if published else "factor"
    rows = [
        (cause.name, number(cause.alone_tok_s), _part(cause.log_change, published))
        for cause in explained.causes
    ]
    whole = explained.predicted_log_change
    rows.append(("all of these together", number(explained.tok_s), _part(whole, published)))
    if published is not None:
        rows.append(("unexplained", f"x{exp(published - whole):.2f}", _part(published - whole, published)))
    for other in explained.candidates:
        more = _part(log(other.tok_s / explained.tok_s), published)
        rows.append((f"all, and {other.name} *", number(other.tok_s), f"{more} more"))
    name = f"slower than {explained.since} ({number(explained.since_tok_s)} tok/s), because of"
    return (name, "tok/s a request", share), rows


def causes_legend(explained: Explanation, shares: bool) -> Iterator[str]:
    """What the columns of the causes hold."""
    what = "shares are of the logarithm of tok/s, so they add up" if shares else "factors multiply"
    yield f"tok/s: with that cause alone; {what}."
    if explained.candidates:
        yield "* not in the source: what it would do beside all causes."


def fall(explained: Explanation, published_tok_s: float) -> float | None:
    """Logarithm of the published change; None where the other scenario has no published figure."""
    before = explained.since_published_tok_s
    return None if before is None or before == published_tok_s else log(published_tok_s / before)


def _part(log_change: float, published: float | None) -> str:
    return f"x{exp(log_change):.2f}" if published is None else percent(log_change / published)

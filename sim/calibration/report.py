"""A calibration as lines of text, as an object and as files. Nothing here prints."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim import digests, files
from sim.calibration.forecast import Forecast
from sim.calibration.groups import Group
from sim.calibration.learnt import NARROWED, Learnt
from sim.calibration.study import Calibration, Fit
from sim.calibration.wording import (
    combination_line,
    forecast_lines,
    place,
    span,
    tie_line,
)
from sim.report import render, value
from sim.uncertainty import posterior_file
from sim.uncertainty.posterior import Observation, Posterior

FORMAT_VERSION = 1
"""1 (2026-12): first."""
WIDTH = 110
MOST_NEWS = 16
"""Unknowns shown in the report; all are in the object."""
MOST_GROUPED = 4
"""Measurements whose groups of unknowns the report shows; all are in the object."""
REPORT, OBJECT = "report.txt", "calibration.json"


def lines(found: Calibration) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [Text(_head(found)), *map(Text, _begun(found)), Text(), _measured(found)]
    parts += [Text(line) for line in conflicts(found)]
    parts += [Text(), _groups(found), Text(_untouched(found))]
    parts += [Text(), Text(_news_head(found)), *([_news(found)] if found.news else [])]
    parts += [Text(line) for line in _combinations(found)]
    for each in found.forecasts:
        parts += [Text(), *(Text(line) for line in forecast_lines(each, found.unknowns))]
    parts += [Text(), *(Text(line) for line in _notes(found))]
    return render(parts, WIDTH)


def _head(found: Calibration) -> str:
    count = len(found.fits)
    return (
        f"Learnt from {count} published measurement{'s' if count > 1 else ''}, for"
        f" {', '.join(each.name for each in found.forecasts)}: {len(found.unknowns)} unknowns,"
        f" {found.effective_sample_size:,.0f} effective of {len(found.sample.values):,} draws,"
        f" seed {found.seed}"
    )


def _begun(found: Calibration) -> list[str]:
    """What was changed, and what was left aside."""
    lines = [f"Changed: {', '.join(found.changes)}"] if found.changes else []
    aside = [one for each in found.forecasts if (one := each.predicted.set_aside) is not None]
    return [*lines, *(f"Begun from the priors: {one} is set aside." for one in dict.fromkeys(aside))]


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column(Text(columns[0]))
    for name in columns[1:]:
        table.add_column(Text(name, justify="right"), justify="right", no_wrap=True)
    return table


def _measured(found: Calibration) -> Table:
    """Every measurement beside what is predicted of it."""
    table = _table(
        "measured", "tok/s", "at best values", "before, 90 %", "after, 90 %", "by the others, 90 %", ""
    )
    for fit in found.fits:
        one = fit.observed
        table.add_row(
            Text(one.name),
            f"{one.published_tok_s:.1f}",
            f"{one.tok_s:.1f}",
            span(fit.before.ends),
            span(fit.after.ends),
            "" if fit.left_out is None else span(fit.left_out.predicted.ends),
            _inside(fit),
        )
    return table


def _inside(fit: Fit) -> str:
    """Where the measurement lies in what the others predict."""
    if fit.left_out is None:
        return ""
    return {None: "too few draws", True: "inside", False: "outside"}[fit.is_inside]


def conflicts(found: Calibration) -> list[str]:
    """What does not go together: measurements against what was known, and against one another."""
    lines = [_surprise(fit) for fit in found.fits if fit.is_conflict]
    outside = [fit.observed.name for fit in found.fits if fit.is_inside is False]
    if outside:
        lines.append(
            f"Conflict: outside the 90 % that the other measurements predict: {', '.join(outside)}; of"
            f" {len(found.fits)} measurements {len(found.fits) / 10:.2g} would be by chance."
        )
    if found.is_thin:
        few = f"Few effective draws, {found.effective_sample_size:.0f} after what was measured"
        lines.append(f"{few}: quantiles are rough. Ask for more --draws.")
    return lines


def _surprise(fit: Fit) -> str:
    one, known = fit.observed, span(fit.before.ends)
    return (
        f"Conflict: {one.name}, {one.published_tok_s:.4g} tok/s, lies outside 99 % of what was expected"
        f" before (90 %: {known}): something is missing that no unknown here stands for."
    )


def _groups(found: Calibration) -> Table:
    """How far each group of unknowns moves each measurement, before and after."""
    table = _table("+- one sigma of tok/s", "before", "after", "unknowns", "the largest")
    table.columns[0].no_wrap, table.columns[-1].no_wrap, table.columns[-1].justify = True, False, "left"
    for fit in found.fits[:MOST_GROUPED]:
        for one in fit.moved:
            label = found.unknowns.label(one.most)
            ends = (f"{100 * share:.1f} %" for share in (one.before, one.after))
            table.add_row(Text(f"{fit.observed.name}: {one.group.value}"), *ends, str(one.count), Text(label))
    return table


def _untouched(found: Calibration) -> str:
    """The groups of which nothing was learnt."""
    moves = [one for fit in found.fits for one in fit.moved]
    narrowed: dict[Group, list[float]] = {one.group: [] for one in moves}
    for one in moves:
        narrowed[one.group].append(one.after / one.before)
    same = [group.value for group, kept in narrowed.items() if min(kept) >= NARROWED]
    if not same:
        return ""
    return f"As open as before, whatever split within their ranges: {', '.join(same)}."


def _news_head(found: Calibration) -> str:
    old = len(found.unknowns) - len(found.news)
    if not found.news:
        return f"None of {len(found.unknowns)} unknowns is known better by itself."
    of_all = f"Of {len(found.unknowns)} unknowns {old} are known no better than before"
    return f"{of_all}. The others (sd: over their prior's own):"


def _news(found: Calibration) -> Table:
    """What was learnt, the most first."""
    table = _table("learnt", "P5", "P50", "P95 before", "P5", "P50", "P95 after", "sd")
    for one in found.news[:MOST_NEWS]:
        ends = [value(each) for each in (*one.before, *one.after)]
        table.add_row(Text(found.unknowns.label(one.unknown)), *map(Text, ends), f"{one.narrowed:.2f}")
    if len(found.news) > MOST_NEWS:
        table.add_row(Text(f"and {len(found.news) - MOST_NEWS} more"))
    return table


def _combinations(found: Calibration) -> list[str]:
    """What was decided, and what only together makes up what was measured."""
    lines = []
    if found.combinations:
        count = len(found.combinations)
        lines += [
            "",
            f"Only {count} sum{'s of unknowns are' if count > 1 else ' of unknowns is'} decided (shares of"
            " its variance before); how it splits stays open:",
            *(f"  {combination_line(one, found.unknowns)}" for one in found.combinations),
        ]
    if found.ties:
        lines += ["Still possible together:", *(f"  {tie_line(tie, found.unknowns)}" for tie in found.ties)]
    return lines


def _notes(found: Calibration) -> list[str]:
    plain = {each.predicted.setup.scenario.is_plain for each in found.forecasts}
    widths = ", ".join(
        f"{kind.title}: {100 * one.system_sd:.0f} % by system and {100 * one.own_sd:.0f} % by configuration"
        for kind, one in found.discrepancies.items()
        if kind.plain in plain
    )
    return [
        "Intervals are of mean throughput, without the luck of runs. Measured ones include the error of one"
        " measurement (2 %), the luck of its run and a rounded acceptance length.",
        "Groups, sums and splits are those of the model made linear in the middle of the posterior.",
        f"What the model lacks (sigma of a step, from published cases on other systems): {widths}.",
    ]


def posterior_of(found: Calibration) -> Posterior:
    """What other scenarios may draw from."""
    return Posterior(
        identities=tuple(item.identity for item in found.unknowns.items),
        quantiles=found.quantiles,
        discrepancies=found.discrepancies,
        observations=tuple(Observation(f.observed.name, f.observed.published_tok_s) for f in found.fits),
        effective_sample_size=found.effective_sample_size,
    )


def write(found: Calibration, text: Sequence[str], folder: Path) -> list[str]:
    """The report, the object and the posterior in *folder*; their names."""
    posterior_file.write(posterior_of(found), folder / posterior_file.NAME, digests.provenance())
    files.replace(folder / REPORT, "\n".join(text) + "\n")
    files.replace(folder / OBJECT, files.as_json(as_object(found)) + "\n")
    return [posterior_file.NAME, REPORT, OBJECT]


def as_object(found: Calibration) -> dict[str, Any]:
    """The calibration under stable keys, tok/s and shares of 1."""
    return {
        "format_version": FORMAT_VERSION,
        "seed": found.seed,
        "changes": list(found.changes),
        "unknowns": len(found.unknowns),
        "draws": len(found.sample.values),
        "posterior_draws": len(found.kept),
        "effective_sample_size": round(found.effective_sample_size, 1),
        "measurements": [_fit_object(fit) for fit in found.fits],
        "learnt": [_learnt_object(one, found) for one in found.learnt],
        "decided": [
            {
                "narrowed": round(one.narrowed, 4),
                "parts": [
                    {"unknown": found.unknowns.label(p.unknown), "share": round(p.share, 4), "rises": p.rises}
                    for p in one.parts
                ],
            }
            for one in found.combinations
        ],
        "ties": [
            {
                "first": found.unknowns.label(tie.first),
                "second": found.unknowns.label(tie.second),
                "correlation": round(tie.correlation, 3),
                "ends": [[_plain(v) for v in pair] for pair in tie.ends],
            }
            for tie in found.ties
        ],
        "forecasts": [_forecast_object(one, found) for one in found.forecasts],
        "discrepancy": [
            {
                "kind": kind.title,
                "system_sd": round(discrepancy.system_sd, 4),
                "own_sd": round(discrepancy.own_sd, 4),
            }
            for kind, discrepancy in found.discrepancies.items()
        ],
        "conflicts": conflicts(found),
        "provenance": digests.provenance(),
    }


def _fit_object(fit: Fit) -> dict[str, Any]:
    one = fit.observed
    return {
        "name": one.name,
        "source": one.source,
        "published_tok_s": one.published_tok_s,
        "predicted_tok_s": _plain(one.tok_s),
        "noise_sd": round(one.noise_sd, 5),
        "before": _quantiles(fit.before),
        "after": _quantiles(fit.after),
        "by_the_others": None
        if fit.left_out is None
        else {
            **_quantiles(fit.left_out.predicted),
            "effective_sample_size": round(fit.left_out.effective_sample_size, 1),
        },
        "inside": fit.is_inside,
        "moved_by": [
            {
                "group": one.group.value,
                "before": round(one.before, 5),
                "after": round(one.after, 5),
                "unknowns": one.count,
                "largest": one.most.name,
            }
            for one in fit.moved
        ],
        "prior_tail": round(fit.prior_tail, 5),
        "conflict": fit.is_conflict,
    }


def _learnt_object(one: Learnt, found: Calibration) -> dict[str, Any]:
    return {
        "name": one.unknown.name,
        "label": found.unknowns.label(one.unknown),
        "identity": one.unknown.identity,
        "basis": one.unknown.basis,
        "before": _quantiles(one.before),
        "after": _quantiles(one.after),
        "moved": round(one.moved, 3),
        "narrowed": round(one.narrowed, 3),
        "news": one.is_news,
    }


def _forecast_object(one: Forecast, found: Calibration) -> dict[str, Any]:
    component, share = one.largest
    return {
        "name": one.name,
        "predicted_tok_s": _plain(one.predicted.tok_s),
        "before": {name: _plain(getattr(one.before, name)) for name in one.before.__dataclass_fields__},
        "after": {name: _plain(getattr(one.after, name)) for name in one.after.__dataclass_fields__},
        "claim": None
        if one.claim is None
        else {
            "tok_s": list(one.claim.ends),
            "source": one.claim.anchor.source,
            "lies": place(one.claim.ends, one.after),
            "below": round(one.claim.below, 4),
            "inside": round(one.claim.inside, 4),
            "above": round(one.claim.above, 4),
        },
        "largest_component": {"name": component.value, "share": round(share, 4)},
        "discrepancy": round(one.discrepancy, 4),
        "open": [
            {"unknown": found.unknowns.label(each.unknown), "share": round(each.share, 4)}
            for each in one.open
        ],
    }


def _quantiles(three: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(("p5", "p50", "p95"), map(_plain, three), strict=True))


def _plain(of: Any) -> Any:
    """Six digits of a number."""
    return float(f"{of:.6g}") if isinstance(of, float) else of

"""A fitted log as lines of text and as a JSON object. Nothing here prints."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.ddtree import TreeSpec
from sim.errors import in_one_line
from sim.logs.accuracy import FittedAccuracy, named
from sim.logs.checks import Check, Checks
from sim.logs.fitted import Fit, Quoted
from sim.logs.observed import Windows
from sim.report import render
from sim.statistics import CONFIDENCE
from sim.traces import number_of

BAR_WIDTH = 20
MOST_ROWS = 20
"""Lengths with a row of their own; longer ones share the last."""


def lines(fit: Fit, checks: Checks, accuracy: FittedAccuracy | None = None) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [*map(Text, _headline(fit)), Text(), _parameters(fit), Text()]
    if checks.modelled:
        parts += [_lengths(fit, checks), Text()]
    parts += [*_goodness(checks), *(Text(note) for note in _notes(fit, checks)), Text()]
    # As it is: a line that is broken elsewhere would no longer load.
    yaml = fit.as_yaml().splitlines()
    if fit.trace_yaml is not None:
        yaml.append(f"or, step by step as in the log:  {fit.trace_yaml}")
    if accuracy is not None and fit.model is not None:
        yaml += ["", *render([Text(line) for line in _accuracy_lines(fit, accuracy)])]
        varied = f"request_sd: {fit.model.request_sd:.4f}, step_correlation: {fit.model.step_correlation:.4f}"
        yaml += [f"For the drafter's file; any tree follows with acceptance: {{quality: {{}}, {varied}}}:"]
        yaml += accuracy.as_yaml().splitlines()
    return render(parts) + yaml


def _accuracy_lines(fit: Fit, accuracy: FittedAccuracy) -> list[str]:
    """How well the accuracy explains the log, and what it says of other trees."""
    means = ", ".join(f"{mean:.2f} {named(spec)}" for spec, mean in accuracy.mean_lengths)
    return [
        f"Accuracy of the drafter, from {accuracy.tree}: it lands {accuracy.landed:.2f} tokens, the log"
        f" {fit.mean_length.value:.2f}; shares of a length differ by up to {100 * accuracy.worst:.1f} points."
        " Its parameters have no intervals: several sets explain a log alike.",
        f"At block {accuracy.tree.block} it would land {means};"
        f" off the first choices a chance keeps {accuracy.quality.off_spine:g}, which is given, not fitted.",
    ]


def _headline(fit: Fit) -> list[str]:
    """What was read, and what its figures were found to mean."""
    observed = fit.observed
    counted = "steps not counted" if fit.steps is None else number_of(fit.steps, "step")
    parts = [counted]
    if isinstance(observed.data, Windows):
        parts.insert(0, f"{number_of(observed.used, 'line')} used, {number_of(observed.ignored, 'other')}")
    if fit.requests is not None:
        parts.append(number_of(fit.requests, "request"))
    if observed.drafts is not None:
        parts.append(f"{number_of(observed.drafts, 'drafted token')} a step")
    return [
        f"{in_one_line(str(observed.path))}: {observed.engine.value}; {', '.join(parts)}",
        *observed.found,
    ]


def _parameters(fit: Fit) -> Table:
    table = _table("", "estimate", f"{100 * CONFIDENCE:.0f} % for all together")
    rows = [("mean acceptance length", fit.mean_length, 3), ("hazard of every position", fit.hazard, 4)]
    rows += [("request_sd (log-odds)", fit.request_sd, 3), ("step_correlation", fit.step_correlation, 3)]
    for name, quoted, decimals in rows:
        if quoted is not None:
            table.add_row(name, f"{quoted.value:.{decimals}f}", _interval(quoted, decimals))
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(column, justify="right" if number and column else "left", no_wrap=True)
    return table


def _interval(quoted: Quoted, decimals: int) -> str:
    if quoted.interval is None:
        return "missing"
    low, high = quoted.interval
    return f"{low:.{decimals}f} to {high:.{decimals}f}"


def _lengths(fit: Fit, checks: Checks) -> Table:
    """One row a length: shares, and the chance of getting further with its hazard."""
    table = _table("length", "observed", "modelled", "", "P(L > length)", "95 % together", "hazard")
    shares = checks.observed or checks.modelled
    assert fit.model is not None
    highest = max(*shares, *checks.modelled)
    for at in range(min(MOST_ROWS, len(shares))):
        last = at == MOST_ROWS - 1 and len(shares) > MOST_ROWS
        name = f"{at + 1}-{len(shares)}" if last else str(at + 1)
        here, there = (sum(values[at:]) if last else values[at] for values in (shares, checks.modelled))
        bar = "█" * round(BAR_WIDTH * min(1.0, here / highest))
        observed = f"{100 * here:.1f} %" if checks.observed else "missing"
        table.add_row(name, observed, f"{100 * there:.1f} %", bar, *_further(fit, at, last))
    return table


def _further(fit: Fit, at: int, last: bool) -> tuple[str, str, str]:
    """P(L > at + 1) with its interval, and the hazard of that position."""
    assert fit.model is not None
    if last or at >= len(fit.model.hazards):
        return "", "", ""
    hazard = f"{fit.model.hazards[at]:.4f}"
    if at >= len(fit.rates):
        return "missing", "", hazard
    rate = fit.rates[at]
    return f"{rate.value:.4f}", "missing" if rate.interval is None else _interval(rate, 4), hazard


def _goodness(checks: Checks) -> list[RenderableType]:
    if not checks.checks:
        return []
    table = _table("does the model look like the log?", "log", "model", "95 % of its logs", "")
    for check in checks.checks:
        band = f"{check.low:.3f} to {check.high:.3f}"
        table.add_row(check.name, f"{check.observed:.3f}", f"{check.modelled:.3f}", band, _verdict(check))
    return [table]


def _verdict(check: Check) -> str:
    fitted = "fitted" if check.fitted else ""
    return fitted if check.inside else "OUTSIDE"


def _notes(fit: Fit, checks: Checks) -> list[str]:
    notes = list(fit.notes)
    if isinstance(fit.observed.data, Windows) and any(not check.inside for check in checks.checks):
        notes.append(
            "OUTSIDE: windows differ by more than luck, so requests or times differ. A run without request_sd"
            " then shows too narrow an interval; single steps by request would say how large it is."
        )
    if checks.histogram_p is not None:
        why = "" if fit.hazard is not None else "; near 1, for each length is fitted"
        notes.append(
            f"Histogram: p = {checks.histogram_p:.2g} (chi-square, {checks.logs} simulated logs{why})."
        )
    elif not checks.checks and isinstance(fit.observed.data, Windows):
        notes.append(
            "Goodness of fit is missing: it needs single steps, or windows with counted steps and rates."
        )
    return notes


def as_object(fit: Fit, checks: Checks, accuracy: FittedAccuracy | None = None) -> dict[str, Any]:
    """Everything under stable keys; what the log cannot say is null."""
    observed = fit.observed
    windows = isinstance(observed.data, Windows)
    return {
        "file": str(observed.path),
        "engine": observed.engine.value,
        "definitions": list(observed.found),
        "lines_used": observed.used if windows else None,
        "lines_ignored": observed.ignored if windows else None,
        "steps": fit.steps,
        "requests": fit.requests,
        "drafts": observed.drafts,
        "confidence": CONFIDENCE,
        "bootstrap": fit.settings.draws,
        "seed": fit.settings.seed,
        "mean_length": _quoted(fit.mean_length),
        "rates": [_quoted(rate) for rate in fit.rates] or None,
        "hazard": _quoted(fit.hazard),
        "hazards": None if fit.model is None else list(fit.model.hazards),
        "request_sd": _quoted(fit.request_sd),
        "step_correlation": _quoted(fit.step_correlation),
        "histogram": {
            "observed": list(checks.observed) or None,
            "modelled": list(checks.modelled) or None,
            "p_value": checks.histogram_p,
        },
        "checks": [{**check._asdict(), "inside": check.inside} for check in checks.checks],
        "simulated_logs": checks.logs,
        "notes": list(fit.notes),
        "yaml": fit.as_yaml(),
        "trace_yaml": fit.trace_yaml,
        "accuracy": None if accuracy is None else _accuracy(accuracy),
    }


def _accuracy(fitted: FittedAccuracy) -> dict[str, Any]:
    means = [{**_tree(spec), "mean_length": mean} for spec, mean in fitted.mean_lengths]
    return {
        "tree": _tree(fitted.tree),
        "quality": asdict(fitted.quality),
        "predicted": means,
        "yaml": fitted.as_yaml(),
    }


def _tree(spec: TreeSpec) -> dict[str, Any]:
    return {"block": spec.block, "budget": spec.budget, "shape": spec.shape.value}


def _quoted(quoted: Quoted | None) -> dict[str, float | None] | None:
    if quoted is None:
        return None
    low, high = quoted.interval or (None, None)
    return {"value": quoted.value, "low": low, "high": high}

"""Fits of host costs in words: lines of text and a JSON object. Nothing here prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from sim.report import render
from sim.validation.fitting import LEAST, MODEL_SD, MOST, Fitted, FittedFigure, FittedRow
from sim.validation.report import WIDTH, blank_table, rounded, signed, tok_s_text
from sim.validation.translation import CaseKind

LEAST_INFLUENCE = 0.05
"""Below it no step here says anything of a figure: one that is twice as dear makes none longer by 5 %."""


def lines(fits: Sequence[Fitted]) -> list[str]:
    """The report of *fits*."""
    parts = [part for fit in fits for part in _of_fit(fit)]
    return render([*parts, *map(Text, _explained())], width=WIDTH)


def _of_fit(fit: Fitted) -> list[RenderableType]:
    rows = [*fit.rows, *fit.checks]
    return [
        Text(f"Host costs of {fit.stack}, fitted to {_count(fit.rows)}"),
        Text(),
        _figures_table(fit.figures),
        *(Text(line) for line in _conflicts(fit.figures)),
        Text(),
        _rows_table(rows),
        Text(),
        _summary_table(fit),
        Text(),
    ]


def _count(rows: Sequence[FittedRow]) -> str:
    return f"{len(rows)} measurements of {len({row.id for row in rows})} cases"


def _figures_table(figures: Sequence[FittedFigure]) -> Table:
    found = blank_table("figure, us", "before", "shipped", "fitted", "1 sigma", "moves a step by")
    for column in found.columns[1:]:
        column.justify = "right"
    for one in figures:
        sigma = f"{one.sigma:,.3g}" if math.isfinite(one.sigma) else "undecided"
        found.add_row(
            one.key,
            f"{one.prior.value:,.4g}{_range(one)}",
            f"{one.shipped:,.4g}",
            f"{one.value:,.4g}",
            sigma,
            f"{one.influence:.2f} %",
        )
    return found


def _range(one: FittedFigure) -> str:
    known = one.prior.range
    return "" if known is None else f" ({known[0]:,.4g}-{known[1]:,.4g})"


def _conflicts(figures: Sequence[FittedFigure]) -> list[str]:
    """What a reader must know before a value is taken."""
    said = []
    for one in figures:
        if one.influence < LEAST_INFLUENCE:
            said.append(f"{one.key}: no step here depends on it; only what was known before decides it.")
        elif one.at_limit:
            said.append(f"{one.key}: the search ended at {LEAST:g} or {MOST:g} times what was known before.")
        if one.is_outside:
            said.append(f"{one.key}: CONFLICT, {one.value:,.4g} lies outside what was known{_range(one)}.")
    return said


def _rows_table(rows: Sequence[FittedRow]) -> Table:
    found = blank_table("id", "", "measured", "before", "shipped", "fitted", "left out")
    for column in found.columns[2:]:
        column.justify = "right"
    for row in rows:
        left_out = "check" if row.left_out is None else signed(row.left_out)
        errors = map(signed, (row.prior, row.shipped, row.fitted))
        found.add_row(row.id, row.kind.value, tok_s_text(row.measured_tok_s), *errors, left_out)
    return found


def _summary_table(fit: Fitted) -> Table:
    found = blank_table("mean |error|", "before", "shipped", "fitted", "left out")
    for column in found.columns[1:]:
        column.justify = "right"
    for name, rows in (("fitted to", fit.rows), ("checks", fit.checks)):
        if rows:
            errors = _errors(rows)
            found.add_row(name, *("" if e is None else f"{100 * e:.1f} %" for e in errors.values()))
    return found


def _errors(rows: Sequence[FittedRow]) -> dict[str, float | None]:
    """Mean absolute errors of *rows*; None for checks left out, for none is fitted to."""
    names = ("prior", "shipped", "fitted", "left_out")
    return {name: _mean_absolute([getattr(row, name) for row in rows]) for name in names}


def _mean_absolute(errors: Sequence[float | None]) -> float | None:
    known = [error for error in errors if error is not None]
    return float(np.mean(np.abs(known))) if known else None


def _explained() -> list[str]:
    return [
        "before: with what was known before the fit; left out: fitted without that case. Least squares of"
        f" log(predicted step / measured), {100 * MODEL_SD:.0f} % a standard deviation; a range known before,"
        " read as +- 2 sigma, counts like one measurement more. moves a step by: the most that 1 % of the"
        " figure changes one of these steps.",
    ]


def as_object(fits: Sequence[Fitted]) -> dict[str, Any]:
    """The stable JSON object: ``fits``. Errors are fractions, figures us; an undecided sigma is null."""
    return {"fits": [_fit_object(fit) for fit in fits]}


def _fit_object(fit: Fitted) -> dict[str, Any]:
    return {
        "stack": fit.stack,
        "figures": [_figure_object(one) for one in fit.figures],
        "rows": [_row_object(row) for row in fit.rows],
        "checks": [_row_object(row) for row in fit.checks],
        "mean_absolute_error": {name: _rounded(value) for name, value in _errors(fit.rows).items()},
        "mean_absolute_error_of_checks": {
            name: _rounded(value) for name, value in _errors(fit.checks).items() if name != "left_out"
        },
    }


def _figure_object(one: FittedFigure) -> dict[str, Any]:
    known = one.prior.range
    return {
        "key": one.key,
        "prior": one.prior.value,
        "prior_range": None if known is None else list(known),
        "shipped": one.shipped,
        "fitted": rounded(one.value),
        "sigma": rounded(one.sigma) if math.isfinite(one.sigma) else None,
        "influence": rounded(one.influence),
        "conflict": one.is_outside,
    }


def _row_object(row: FittedRow) -> dict[str, Any]:
    return {name: _plain(value) for name, value in row._asdict().items() if value is not None}


def _plain(value: str | float | CaseKind) -> str | float:
    return str(value) if isinstance(value, str) else rounded(value)


def _rounded(value: float | None) -> float | None:
    return None if value is None else rounded(value)

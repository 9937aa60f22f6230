"""Fit the acceptance model to what a log says."""

from __future__ import annotations

from enum import Enum

import numpy as np
from numpy.typing import NDArray
from scipy import special

from sim.acceptance import AcceptanceModel, hazards_from_rates, solve_constant_hazard
from sim.logs.fitted import Fit, Quoted, Settings
from sim.logs.intervals import MIN_UNITS, Column, Interval, Scale, together
from sim.logs.moments import MOST_SD, Equations, PairCounts, hazards_per_position, model, one_hazard
from sim.logs.observed import Observed, Windows
from sim.logs.sums import Steps, Sums, by_request, counted_steps, sums_by_block, sums_by_request
from sim.logs.variation import NUDGE, Variation, variation
from sim.traces import Trace, number_of

Array = NDArray[np.float64]


class _Figure(Enum):
    """What is quoted beside the rates."""

    MEAN = "mean length"
    HAZARD = "log-odds of the one hazard"
    VARIANCE = "variance of log-odds between requests"
    CORRELATION = "correlation of neighbouring steps"


def fit(observed: Observed, settings: Settings | None = None) -> Fit:
    """The model that goes with *observed*: its hazards give the mean lengths exactly.

    Where requests are told apart, every request counts the same, however many steps it took.

    With ``settings.constant`` one hazard gives the mean length.
    """
    settings = settings or Settings()
    if isinstance(observed.data, Trace):
        return _fit_trace(observed, observed.data, settings)
    return _fit_windows(observed, observed.data, settings)


def _fit_trace(observed: Observed, trace: Trace, settings: Settings) -> Fit:
    steps, stopped = counted_steps(trace)
    longest = max(map(max, trace.requests))
    sums = _summed(steps, trace, observed.drafts or longest - 1)
    hazards = one_hazard if settings.constant else hazards_per_position
    equations = Equations(sums.survival, PairCounts(tuple(steps.sizes.tolist())), hazards)
    varied = variation(trace, steps, sums, equations)
    logits = equations.hazards(sums.survival, varied.request_sd)
    columns = {_Figure.MEAN: _mean(sums), _Figure.VARIANCE: varied.variance}
    columns[_Figure.CORRELATION] = varied.correlation
    if settings.constant:
        columns[_Figure.HAZARD] = _one_hazard(_mean(sums), logits, varied, equations)
    named = {figure: column for figure, column in columns.items() if column is not None}
    quoted, rates = _quote(named, _rates(sums), settings)
    return Fit(
        observed,
        settings,
        _within(quoted[_Figure.MEAN], 1, len(logits) + 1),
        tuple(rates),
        _quoted_hazard(logits, quoted.get(_Figure.HAZARD)) if settings.constant else None,
        _as_sd(quoted.get(_Figure.VARIANCE), varied.request_sd),
        _as_correlation(quoted.get(_Figure.CORRELATION), varied.step_correlation),
        model(logits, varied.request_sd, varied.step_correlation),
        (
            *_cap_notes(observed, len(logits) + 1),
            *varied.notes,
            _weighing(trace, stopped),
            *_unit_notes(quoted[_Figure.MEAN], len(sums.weight)),
        ),
    )


def _summed(steps: Steps, trace: Trace, positions: int) -> Sums:
    """The sums over requests where there are enough of them, else over blocks."""
    if by_request(trace):
        return sums_by_request(steps, positions)
    return sums_by_block(steps, positions)


def _mean(sums: Sums) -> Column:
    mean = sums.mean
    return Column(mean, (sums.total - sums.weight * mean) / sums.weight.sum(), Scale.PLAIN)


def _rates(sums: Sums) -> list[Column]:
    """P(L > d) by depth."""
    total = float(sums.weight.sum())
    return [
        Column(rate, (beyond - sums.weight * rate) / total, Scale.SHARE, sums.steps)
        for rate, beyond in zip(sums.survival.tolist(), sums.beyond.T, strict=True)
    ]


def _one_hazard(mean: Column, logits: Array, varied: Variation, equations: Equations) -> Column | None:
    """The log-odds of the one hazard; None where it is 0 or 1."""
    if not len(logits) or not np.isfinite(logits[0]):
        return None
    less = equations.hazards(equations.survival * (1 - NUDGE), varied.request_sd)[0]
    pulls = (logits[0] - less) / float(np.sum(equations.survival) * NUDGE) * mean.pulls
    if varied.variance is not None and varied.request_sd > 0:
        more = equations.hazards(equations.survival, varied.request_sd * (1 + NUDGE))[0]
        pulls = pulls + (more - logits[0]) / (2 * NUDGE * varied.request_sd**2) * varied.variance.pulls
    return Column(float(logits[0]), pulls, Scale.PLAIN)


def _quote(
    named: dict[_Figure, Column], rates: list[Column], settings: Settings
) -> tuple[dict[_Figure, Quoted], list[Quoted]]:
    """Intervals that hold for all of them together."""
    columns = [*named.values(), *rates]
    found = together(columns, settings.draws, np.random.default_rng(settings.seed))
    ends = [None] * len(columns) if found is None else found
    quoted = [Quoted(column.value, interval) for column, interval in zip(columns, ends, strict=True)]
    return dict(zip(named, quoted, strict=False)), quoted[len(named) :]


def _quoted_hazard(logits: Array, quoted: Quoted | None) -> Quoted | None:
    """The hazard from its log-odds; None where nothing was ever drafted."""
    if not len(logits):
        return None
    ends = quoted.interval if quoted is not None else None
    interval = None if ends is None else Interval(*(float(special.expit(end)) for end in ends))
    return Quoted(float(special.expit(logits[0])), interval)


def _within(quoted: Quoted, low: float, high: float) -> Quoted:
    """*quoted* with an interval inside what is possible."""
    if quoted.interval is None:
        return quoted
    return Quoted(quoted.value, Interval(*(min(max(end, low), high) for end in quoted.interval)))


def _as_sd(variance: Quoted | None, request_sd: float) -> Quoted | None:
    if variance is None:
        return None
    if variance.interval is None:
        return Quoted(request_sd)
    ends = (float(np.sqrt(max(0.0, end))) for end in variance.interval)
    return _within(Quoted(request_sd, Interval(*ends)), 0, MOST_SD)


def _as_correlation(correlation: Quoted | None, used: float) -> Quoted | None:
    """The correlation that the model has, with the interval of what was estimated."""
    if correlation is None:
        return None
    if correlation.interval is None:
        return Quoted(used)
    low, high = correlation.interval
    return _within(Quoted(used, Interval(min(low, used), max(high, used))), 0, 1)


def _weighing(trace: Trace, stopped: bool) -> str:
    """Which mean the figures are."""
    if not by_request(trace):
        return "Every step counts the same."
    left = " Outputs are alike, so the step that ends a request is longer than most: it is left out."
    return f"Every request counts the same, however many steps it took.{left if stopped else ''}"


def _cap_notes(observed: Observed, cap: int) -> tuple[str, ...]:
    """Where the longest possible length comes from."""
    if observed.drafts is not None:
        return ()
    return (f"The longest length found, {cap}, is taken as the cap; --drafts K says otherwise.",)


def _unit_notes(mean: Quoted, units: int) -> tuple[str, ...]:
    """Why there are no intervals, where there are none."""
    if mean.interval is not None:
        return ()
    return (
        f"Intervals are missing: {number_of(units, 'piece')} of log,"
        f" {MIN_UNITS} or more that differ are needed.",
    )


def _fit_windows(observed: Observed, windows: Windows, settings: Settings) -> Fit:
    cap = None if observed.drafts is None else observed.drafts + 1
    weight = windows.weight / windows.weight.sum()
    mean = min(float(weight @ windows.mean_length), float(cap or np.inf))
    column = Column(mean, weight * (windows.mean_length - mean), Scale.PLAIN)
    quoted, rates = _quote({_Figure.MEAN: column}, _window_rates(windows), settings)
    mean_length = _within(quoted[_Figure.MEAN], 1, cap or np.inf)
    hazard = _windows_hazard(mean_length, cap) if settings.constant and cap is not None else None
    return Fit(
        observed,
        settings,
        mean_length,
        tuple(rates),
        hazard,
        None,
        None,
        _windows_model(rates, hazard, cap),
        (*_missing(observed, windows), *_unit_notes(quoted[_Figure.MEAN], len(windows.weight))),
    )


def _windows_hazard(mean_length: Quoted, cap: int) -> Quoted:
    """The one hazard: it follows from the mean length alone."""
    ends = mean_length.interval
    interval = None if ends is None else Interval(*(solve_constant_hazard(end, cap) for end in ends))
    return Quoted(solve_constant_hazard(mean_length.value, cap), interval)


def _window_rates(windows: Windows) -> list[Column]:
    """P(L > d) by depth, over windows by weight."""
    if windows.rates is None:
        return []
    steps = float(windows.weight.sum())
    weight = windows.weight / steps
    pooled = [(row, min(1.0, float(weight @ row))) for row in windows.rates.T]
    return [Column(rate, weight * (row - rate), Scale.SHARE, steps) for row, rate in pooled]


def _windows_model(rates: list[Quoted], hazard: Quoted | None, cap: int | None) -> AcceptanceModel | None:
    """The model behind means; None where they do not say how lengths are spread."""
    if hazard is not None and cap is not None:
        return AcceptanceModel((hazard.value,) * (cap - 1))
    if not rates:
        return None
    return AcceptanceModel(hazards_from_rates(tuple(rate.value for rate in rates)))


def _missing(observed: Observed, windows: Windows) -> tuple[str, ...]:
    """What means over windows cannot say."""
    notes = ["request_sd and step_correlation are missing: windows do not show single steps."]
    if windows.rates is None:
        notes.append("Hazards and the spread of lengths are missing: no rates per position are printed.")
    if observed.drafts is None:
        notes.append("The cap is missing: the log does not say how many tokens a step drafts (--drafts K).")
    return tuple(notes)

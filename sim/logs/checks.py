"""Does the fitted model look like the log? Beside what it was fitted to, also what it was not.

Logs of the same shape are simulated from the model. Each check is a number of the log
beside the same number of these: their mean, and the middle 95 % of them. Where requests are
told apart each counts the same, as in the fit, and simulated ones stop as those of the log
did. Means over windows are checked by their dispersion alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from sim.acceptance import AcceptanceModel
from sim.compiled import compiled
from sim.logs.fitted import Fit
from sim.logs.observed import Windows
from sim.logs.sums import Steps, by_request, counted_steps, steps_of, without_last
from sim.statistics import CONFIDENCE

Array = NDArray[np.float64]
IntArray = NDArray[np.int64]

ALIKE = 1e-12
"""Lengths are whole: a variance below this is rounding."""
MOST_LOGS = 399
FEWEST_LOGS = 39
"""One of the ends of 95 % is then the least or the largest."""
STEPS_TO_SIMULATE = 40_000_000
LAGS = (1, 2, 3)


class Check(NamedTuple):
    """A number of the log beside the same number of the model."""

    name: str
    observed: float
    modelled: float
    low: float
    high: float
    fitted: bool = False
    """The model was fitted to this, so that it agrees as far as it can."""

    @property
    def inside(self) -> bool:
        """Whether the log lies in the band of the model."""
        return self.low <= self.observed <= self.high


@dataclass(frozen=True)
class Checks:
    """How well a fit fits."""

    observed: tuple[float, ...]
    """Shares of steps with length 1, 2, ...; empty where the log has only means."""
    modelled: tuple[float, ...]
    """The same of the model."""
    histogram_p: float | None
    """Share of simulated logs whose histogram is as far from the model; None without single steps."""
    checks: tuple[Check, ...]
    logs: int
    """Logs that were simulated."""


def check(fit: Fit) -> Checks:
    """The Checks of *fit*."""
    if isinstance(fit.observed.data, Windows):
        return _check_windows(fit, fit.observed.data)
    assert fit.model is not None
    steps, stopped = counted_steps(fit.observed.data)
    whole = steps_of(fit.observed.data)
    draw = _stopped(fit.model, whole) if stopped else partial(simulate, fit.model, steps.sizes)
    read = partial(
        _numbers, fit.model.distribution(), by_request(fit.observed.data), fit.observed.data.grouped
    )
    generator = np.random.default_rng((fit.settings.seed, 1))
    drawn = int(whole.lengths.sum()) if stopped else len(steps.lengths)
    logs = int(np.clip(STEPS_TO_SIMULATE // drawn, FEWEST_LOGS, MOST_LOGS))
    here, simulated = read(steps), [read(draw(generator)) for _ in range(logs)]
    farther = sum(one.distance >= here.distance - 1e-9 for one in simulated)
    found = _compared(here.checks, np.array([one.checks for one in simulated]), fit)
    p = (1 + farther) / (1 + logs)
    return Checks(tuple(here.shares), tuple(fit.model.distribution().tolist()), p, found, logs)


class _Numbers(NamedTuple):
    """What is compared between logs."""

    shares: list[float]
    """Of lengths 1, 2, ..."""
    distance: float
    """Chi-square of the histogram against the model's."""
    checks: list[float]


def _names(fit: Fit) -> list[tuple[str, bool]]:
    """The checks, and whether the model was fitted to them."""
    varies, correlated = fit.request_sd is not None, fit.step_correlation is not None
    names = [
        (
            f"correlation of steps {lag} apart" if lag > 1 else "correlation of neighbours",
            lag == 1 and correlated,
        )
        for lag in LAGS
    ]
    assert fit.model is not None
    names += [
        (f"share of full blocks, P(L = {fit.model.cap})", fit.hazard is None),
        ("longest run of full blocks", False),
    ]
    return [*names, ("sd of the means of requests", varies)] if fit.requests else names


def _numbers(expected: Array, alike: bool, grouped: bool, steps: Steps) -> _Numbers:
    """The numbers of *steps*; with *alike* every request counts the same, else every step."""
    cap, weights = len(expected), _weights(steps.sizes, alike)
    shares = np.bincount(steps.lengths, weights, minlength=cap + 1)[1:]
    possible = expected > 0
    distance = float(((shares - expected)[possible] ** 2 / expected[possible]).sum() / (weights @ weights))
    full = steps.lengths == cap
    found = [_correlation(steps, weights, alike, lag) for lag in LAGS]
    found += [float(shares[-1]), float(_longest_run(full, steps.sizes))]
    if grouped:
        means = np.add.reduceat(steps.lengths, steps.starts) / steps.sizes
        found.append(float(means.std()))
    return _Numbers(shares.tolist(), distance, found)


def _weights(sizes: IntArray, alike: bool) -> Array:
    """What each of *sizes* things of each request counts, in all 1."""
    weights = np.repeat(1 / np.maximum(sizes, 1) if alike else np.ones(len(sizes)), sizes)
    return np.asarray(weights / weights.sum())


def _correlation(steps: Steps, weights: Array, alike: bool, lag: int) -> float:
    """Correlation of lengths *lag* steps apart in a request; NaN without pairs or variance."""
    off = steps.lengths - weights @ steps.lengths
    together = steps.follows(lag)
    variance = float(weights @ off**2)
    if variance < ALIKE or not together.any():
        return np.nan
    products = (off[lag:] * off[: len(off) - lag])[together]
    return float(_weights(np.maximum(steps.sizes - lag, 0), alike) @ products / variance)


def _compared(here: list[float], there: Array, fit: Fit) -> tuple[Check, ...]:
    """What the log and the model both have a number for."""
    rows = [
        (name, observed, column[np.isfinite(column)])
        for name, observed, column in zip(_names(fit), here, there.T, strict=True)
    ]
    return tuple(
        _banded(name, observed, column, fitted)
        for (name, fitted), observed, column in rows
        if np.isfinite(observed) and len(column)
    )


def _banded(name: str, observed: float, simulated: Array, fitted: bool) -> Check:
    low, high = np.quantile(simulated, [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Check(name, observed, float(simulated.mean()), float(low), float(high), fitted)


def simulate(model: AcceptanceModel, sizes: IntArray, generator: np.random.Generator) -> Steps:
    """A log of requests with *sizes* steps each."""
    offsets = model.request_sd * generator.standard_normal(len(sizes))
    logits = special.logit(np.array(model.hazards))
    survival = np.cumprod(special.expit(logits[None, :] + offsets[:, None]), axis=1)
    innovations = generator.standard_normal(int(sizes.sum()))
    lengths = _lengths(-special.ndtri(survival), sizes, innovations, model.step_correlation)
    return Steps(lengths, sizes)


def _stopped(model: AcceptanceModel, log: Steps) -> Callable[[np.random.Generator], Steps]:
    """Draws logs of requests that stop where those of *log* did; the last steps are left out."""
    tokens = np.add.reduceat(log.lengths, log.starts)

    def draw(generator: np.random.Generator) -> Steps:
        endless = simulate(model, tokens, generator)
        sizes = _steps_to(endless.lengths, tokens)
        owner = np.repeat(np.arange(len(tokens)), tokens)
        position = np.arange(len(owner)) - endless.starts[owner]
        return without_last(Steps(endless.lengths[position < sizes[owner]], sizes))

    return draw


@compiled
def _steps_to(lengths: IntArray, tokens: IntArray) -> IntArray:
    """Steps that each request takes to its *tokens*; as many lengths are given for each."""
    found = np.zeros(len(tokens), dtype=np.int64)
    first = 0
    for request in range(len(tokens)):
        committed = 0
        while committed < tokens[request]:
            committed += lengths[first + found[request]]
            found[request] += 1
        first += tokens[request]
    return found


@compiled
def _lengths(thresholds: Array, sizes: IntArray, innovations: Array, correlation: float) -> IntArray:
    """A step has one token, and one more for every threshold that its latent exceeds."""
    found = np.ones(len(innovations), dtype=np.int64)
    positions, at = thresholds.shape[1], 0
    rest = np.sqrt(1.0 - correlation**2)
    for request in range(len(sizes)):
        latent = 0.0
        for step in range(sizes[request]):
            latent = innovations[at] if step == 0 else correlation * latent + rest * innovations[at]
            depth = 0
            while depth < positions and latent > thresholds[request, depth]:
                depth += 1
            found[at] = depth + 1
            at += 1
    return found


@compiled
def _longest_run(full: NDArray[np.bool_], sizes: IntArray) -> int:
    """Full blocks in a row, inside a request."""
    longest, at = 0, 0
    for request in range(len(sizes)):
        run = 0
        for _ in range(sizes[request]):
            run = run + 1 if full[at] else 0
            longest = max(longest, run)
            at += 1
    return longest


def _check_windows(fit: Fit, windows: Windows) -> Checks:
    if fit.model is None:
        return Checks((), (), None, (), 0)
    shares = fit.model.distribution()
    observed = shares if fit.hazard is None else _shares([rate.value for rate in fit.rates])
    dispersion = _dispersion(windows, shares) if windows.weight_is_steps else None
    found = () if dispersion is None else (dispersion,)
    return Checks(tuple(observed.tolist()), tuple(shares.tolist()), None, found, 0)


def _shares(rates: list[float]) -> Array:
    """Shares of lengths from P(L > d); none where there are no rates."""
    return -np.diff([1.0, *rates, 0.0]) if rates else np.empty(0)


def _dispersion(windows: Windows, shares: Array) -> Check | None:
    """Spread of window means over that of independent steps of like requests; None without spread."""
    lengths = np.arange(1, len(shares) + 1)
    mean = float(shares @ lengths)
    variance = float(shares @ lengths**2) - mean**2
    free = len(windows.weight) - 1
    if free < 1 or variance <= 0:
        return None
    pooled = np.average(windows.mean_length, weights=windows.weight)
    found = float(windows.weight @ (windows.mean_length - pooled) ** 2) / free / variance
    low, high = (float(stats.chi2.ppf((1 + side * CONFIDENCE) / 2, free)) / free for side in (-1, 1))
    return Check("variance of window means / independent alike steps", found, 1.0, low, high)

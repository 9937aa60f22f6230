"""Printed figures: a value and what rounding hides, and what follows from several of them."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from sim.errors import LogError

SLACK = 1e-9
"""Bounds may touch: a figure between two prints goes either way."""


class Line(NamedTuple):
    """A line of a log, numbered from 1."""

    number: int
    text: str


class Printed(NamedTuple):
    """A number as it was printed: the true one lies between *low* and *high*."""

    low: float
    value: float
    high: float

    def meets(self, low: float, high: float) -> bool:
        """Whether the true number may lie in [low, high]."""
        return low <= self.high + SLACK and self.low - SLACK <= high


def printed(text: str) -> Printed:
    """``2.94`` as 2.935 to 2.945; ``65%`` as a share."""
    scale = 0.01 if text.endswith("%") else 1.0
    digits = text.rstrip("% ")
    half = 0.5 * 10.0 ** -len(digits.partition(".")[2])
    value = float(digits)
    return Printed(scale * (value - half), scale * value, scale * (value + half))


@dataclass(frozen=True)
class Window:
    """One line of an engine that counts tokens and may print a rate per position."""

    line: int
    accepted: int
    """Drafted tokens that were accepted."""
    drafted: int
    mean: Printed | None
    """Acceptance length, the target's own token included."""
    rates: tuple[Printed, ...]


class RateKind(Enum):
    """What a rate per position is a share of."""

    UNCONDITIONAL = "unconditional, L = 1 + their sum"
    CONDITIONAL = "conditional on all positions before, L = 1 + the sum of their running products"

    def lengths(self, rates: tuple[Printed, ...]) -> tuple[float, float]:
        """The least and the largest mean length that *rates* can mean."""
        low, high = ([getattr(rate, end) for rate in rates] for end in ("low", "high"))
        combine: Callable[[list[float]], float] = sum
        if self is RateKind.CONDITIONAL:
            combine = _sum_of_products
        return 1 + combine(low), 1 + combine(high)

    def unconditional(self, rates: tuple[Printed, ...]) -> list[float]:
        """P(L > d) for d = 1, 2, ..."""
        values = [rate.value for rate in rates]
        return np.cumprod(values).tolist() if self is RateKind.CONDITIONAL else values


def _sum_of_products(values: list[float]) -> float:
    return float(np.cumprod(values).sum())


def rate_kind(file: str, windows: list[Window]) -> tuple[RateKind, bool]:
    """The kind of rates that fits the lengths of all *windows*, and whether it is the only one.

    LogError names the line that no kind fits.
    """
    left = list(RateKind)
    for window in windows:
        assert window.mean is not None
        fits = [kind for kind in left if window.mean.meets(*kind.lengths(window.rates))]
        if not fits:
            raise LogError(file, window.line, _unfit(window, left))
        left = fits
    return left[0], len(left) == 1


def _unfit(window: Window, left: list[RateKind]) -> str:
    """Why the rates of *window* do not go with its length."""
    assert window.mean is not None
    meant = " and ".join(f"{_range(kind.lengths(window.rates))} if {kind.value}" for kind in RateKind)
    before = f"; the lines before were {left[0].value}" if len(left) < len(RateKind) else ""
    return (
        f"the rates do not give the mean acceptance length {window.mean.value:g}: they mean {meant}{before}"
    )


def _range(ends: tuple[float, float]) -> str:
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


class Steps(NamedTuple):
    """How many steps a window has."""

    number: int
    full: bool
    """Every step drafted k tokens."""


def count_steps(file: str, window: Window, drafts: int) -> Steps:
    """Steps of *window* where a step drafts at most *drafts* tokens; LogError where its figures clash."""
    least = math.ceil(window.drafted / drafts)
    full = window.drafted % drafts == 0
    if not window.accepted or window.mean is None:
        return Steps(least, full)
    if full and window.mean.meets(*[1 + window.accepted / least] * 2):
        return Steps(least, full=True)
    # Some drafts were shorter: the mean tells how many steps the accepted tokens are spread over.
    most = window.accepted / max(window.mean.low - 1, SLACK)
    if most < least or window.mean.high <= 1:
        raise LogError(
            file,
            window.line,
            f"{window.accepted} accepted of {window.drafted} drafted at {drafts} a step give at most a length"
            f" of {1 + window.accepted / least:.3f}, but {window.mean.value:g} is printed",
        )
    return Steps(max(least, round(window.accepted / max(window.mean.value - 1, SLACK))), full=False)


def same_drafts(file: str, windows: list[Window], drafts: int | None) -> int | None:
    """Tokens drafted a step: the number of rates, the same in all *windows*; else *drafts*.

    LogError names the line where it changes, or where it is not what *drafts* says.
    """
    first = windows[0]
    for window in windows:
        if len(window.rates) != len(first.rates):
            problem = (
                f"{len(window.rates)} rates per position, but {len(first.rates)} in line {first.line}:"
                " fit each number of drafted tokens by itself"
            )
            raise LogError(file, window.line, problem)
    found = len(first.rates) or None
    if found is not None and drafts is not None and drafts != found:
        raise LogError(file, first.line, f"{found} rates per position, but --drafts says {drafts}")
    return found or drafts

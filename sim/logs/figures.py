"""Printed figures: a value and what rounding hides, and what follows from several of them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from sim.errors import LogError
from sim.traces import number_of, quoted

NUMBER = re.compile(r"[0-9]{1,15}(?:\.[0-9]{1,15})?|\.[0-9]{1,15}")
WHOLE = re.compile(r"[0-9]{1,15}")
TOKEN = r"([^\s,]+)"
"""A number and all that is written together with it."""
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


def number(file: str, line: Line, name: str, token: str) -> Printed:
    """The number *name* that *token* is, all of it; a dot that ends a sentence and ``%`` may follow."""
    text = token.rstrip("% ").removesuffix(".")
    if not NUMBER.fullmatch(text):
        raise LogError(file, line.number, f"expected a number as {name}, got {quoted(token)}")
    return printed(f"{text}%" if "%" in token else text)


def whole(file: str, line: Line, name: str, token: str) -> int:
    """The whole number *name* that *token* is, all of it; a dot that ends a sentence may follow."""
    text = token.removesuffix(".")
    if not WHOLE.fullmatch(text):
        raise LogError(file, line.number, f"expected a whole number as {name}, got {quoted(token)}")
    return int(text)


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
        return [rate.value for rate in self.bounds(rates)]

    def bounds(self, rates: tuple[Printed, ...]) -> list[Printed]:
        """P(L > d) for d = 1, 2, ..., and where rounding lets it lie."""
        if self is RateKind.UNCONDITIONAL:
            return list(rates)
        return [Printed(*row) for row in np.cumprod(np.array(rates), axis=0).tolist()]


def _sum_of_products(values: list[float]) -> float:
    return float(np.cumprod(values).sum())


def rate_kind(file: str, windows: list[Window]) -> tuple[RateKind, bool]:
    """The kind of rates that fits the lengths of all *windows*, and whether it is the only one.

    LogError names the line that no kind fits, or where two that fit differ by more than rounding.
    """
    left = list(RateKind)
    for window in windows:
        assert window.mean is not None
        fits = [kind for kind in left if window.mean.meets(*kind.lengths(window.rates))]
        if not fits:
            raise LogError(file, window.line, _unfit(window, left))
        left = fits
    if len(left) > 1:
        _check_same(file, windows)
    return left[0], len(left) == 1


def _check_same(file: str, windows: list[Window]) -> None:
    """Both readings of every rate lie within rounding of each other."""
    for window in windows:
        pairs = zip(*(kind.bounds(window.rates) for kind in RateKind), strict=True)
        for position, (one, other) in enumerate(pairs, 1):
            if not one.meets(other.low, other.high):
                problem = (
                    f"the rates may be unconditional or conditional, and no line tells: P(L > {position}) is"
                    f" {one.value:.3f} or {other.value:.3f}; lines of more drafts would tell"
                )
                raise LogError(file, window.line, problem)


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
    sure: bool
    """The printed figures leave no other number, or nothing was accepted and any gives the length 1."""


def count_steps(file: str, window: Window, drafts: int) -> Steps:
    """Steps of *window* where a step drafts at most *drafts* tokens; LogError where its figures clash."""
    least = math.ceil(window.drafted / drafts)
    full = window.drafted % drafts == 0
    if window.mean is None:
        return Steps(least, full, sure=full)
    if window.mean.meets(*[1 + window.accepted / least] * 2) and (full or not window.accepted):
        return Steps(least, full, sure=True)
    # Some drafts were shorter: the mean tells how many steps the accepted tokens are spread over.
    fits = [count for count in _spread_over(window, least) if least <= count <= window.drafted]
    if not fits:
        raise LogError(file, window.line, _not_given(window, drafts, least))
    return Steps(fits[0], full=False, sure=len(set(fits)) == 1)


def _spread_over(window: Window, least: int) -> list[int]:
    """Numbers of steps that give the printed mean, the likeliest first."""
    assert window.mean is not None
    likeliest = round(window.accepted / max(window.mean.value - 1, SLACK))
    near = (likeliest, likeliest + 1, likeliest - 1, least, window.drafted)
    return [n for n in near if n > 0 and window.mean.meets(*[1 + window.accepted / n] * 2)]


def _not_given(window: Window, drafts: int, least: int) -> str:
    """Why the counts of *window* do not go with its mean length."""
    assert window.mean is not None
    ends = [1 + window.accepted / count for count in (least, window.drafted)]
    counts = f"{window.accepted} accepted of {window.drafted} drafted at {drafts} a step"
    if window.mean.low > ends[0]:
        return f"{counts} give at most a length of {ends[0]:.3f}, but {window.mean.value:g} is printed"
    if window.mean.high < ends[1]:
        return f"{counts} give at least a length of {ends[1]:.3f}, but {window.mean.value:g} is printed"
    return f"{counts} give a length of {window.mean.value:g}, which is printed, for no whole number of steps"


def check_window(file: str, window: Window) -> None:
    """LogError where figures of *window* cannot be, whatever a step drafts."""
    if window.accepted > window.drafted:
        problem = f"{number_of(window.accepted, 'token')} accepted, but {window.drafted} drafted"
        raise LogError(file, window.line, problem)
    for position, rate in enumerate(window.rates, 1):
        if rate.value > 1:
            problem = f"expected a rate of 0 to 1, got {rate.value:g} for position {position}"
            raise LogError(file, window.line, problem)


def same_drafts(file: str, windows: list[Window], drafts: int | None) -> int | None:
    """Tokens drafted a step: the number of rates, the same in all *windows*; else *drafts*.

    LogError names the line where it changes, or where it is not what *drafts* says.
    """
    first = windows[0]
    for window in windows:
        if len(window.rates) != len(first.rates):
            problem = (
                f"{number_of(len(window.rates), 'rate')} per position, but {len(first.rates)} in line"
                f" {first.line}: fit each number of drafted tokens by itself"
            )
            raise LogError(file, window.line, problem)
    found = len(first.rates) or None
    if found is not None and drafts is not None and drafts != found:
        raise LogError(
            file, first.line, f"{number_of(found, 'rate')} per position, but --drafts says {drafts}"
        )
    return found or drafts

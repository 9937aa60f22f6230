"""A fit: the parameters of a log with their intervals, and the lines of a scenario that say the same."""

from __future__ import annotations

import json
import math
import re
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from sim.acceptance import AcceptanceModel
from sim.errors import in_one_line
from sim.logs.intervals import Interval
from sim.logs.observed import Observed, Windows
from sim.traces import Trace, number_of

DIGITS = 6
"""Decimals of hazards in a scenario: the mean length stays as it is to three."""
WIDTH = 100
PLAIN_NAME = re.compile(r"[\w./-]+")


@dataclass(frozen=True)
class Settings:
    """How to fit."""

    constant: bool = False
    """One hazard for all positions instead of one for each."""
    draws: int = 2000
    """Logs drawn anew from the units of this one, for intervals."""
    seed: int = 1


class Quoted(NamedTuple):
    """A figure and where it lies, together with all other quoted ones; None where that cannot be said."""

    value: float
    interval: Interval | None = None


@dataclass(frozen=True)
class Fit:
    """The acceptance model of a log."""

    observed: Observed
    settings: Settings
    mean_length: Quoted
    rates: tuple[Quoted, ...]
    """P(L > d) for d = 1, 2, ... as observed; empty where the log has only means."""
    hazard: Quoted | None
    """The one hazard, where one was asked for."""
    request_sd: Quoted | None
    """None where the log cannot say; the model then has 0."""
    step_correlation: Quoted | None
    """None where the log cannot say; the model then has 0."""
    model: AcceptanceModel | None
    """None where the log has only means."""
    notes: tuple[str, ...]

    @property
    def steps(self) -> int | None:
        """Steps behind the fit; None where the log does not count them."""
        data = self.observed.data
        if isinstance(data, Trace):
            return sum(map(len, data.requests))
        return round(float(data.weight.sum())) if data.weight_is_steps else None

    @property
    def requests(self) -> int | None:
        """Requests behind the fit; None where the log does not tell them apart."""
        data = self.observed.data
        return len(data.requests) if isinstance(data, Trace) and data.grouped else None

    def as_yaml(self) -> str:
        """Lines for a scenario: what stands under ``acceptance:``, and where it comes from."""
        comments = [self._origin(), *self.observed.found, self._needs()]
        lines = [line for text in comments for line in _wrapped(text, "  # ", "  # ")]
        lines += [line for key in self._keys() for line in _wrapped(key, "  ", "    ")]
        return "\n".join(["acceptance:", *lines]) + "\n"

    def _origin(self) -> str:
        counted = "steps not counted" if self.steps is None else number_of(self.steps, "step")
        of = "" if self.requests is None else f" of {number_of(self.requests, 'request')}"
        return (
            f"Fitted to {in_one_line(self.observed.path.name)} ({self.observed.engine.value}), {counted}{of}."
        )

    def _needs(self) -> str:
        """What block and tree must be for these lines to load and to mean what they say."""
        if not self.rates or self.hazard is not None:
            drafts = self.observed.drafts
            return "" if drafts is None else f"Found with drafter.block: {drafts + 1}."
        positions = len(self.rates)
        return (
            f"Needs drafter.block: {positions + 1}, and tree.budget: {positions} or more to reach that far."
        )

    def _keys(self) -> list[str]:
        if self.hazard is not None:
            return [f"hazard: {_number(self.hazard.value)}", *self._variation()]
        if self.model is None or not self.rates:
            return self._mean_keys()
        if isinstance(self.observed.data, Windows):
            return [f"rates: {_listed(rate.value for rate in self.rates)}", *self._variation()]
        return [f"hazard: {_listed(self.model.hazards)}", *self._variation()]

    def _variation(self) -> list[str]:
        """Both parameters, zeros too: a scenario that extends another would inherit what is left out."""
        if isinstance(self.observed.data, Windows):
            return ["# request_sd and step_correlation are not in such a log: what is inherited stays."]
        assert self.model is not None
        return [
            f"request_sd: {_number(self.model.request_sd)}",
            f"step_correlation: {_number(self.model.step_correlation)}",
        ]

    def _mean_keys(self) -> list[str]:
        value, interval = self.mean_length
        lines = [f"mean_length: {value:.3f}"]
        if interval is not None:
            # Outwards, so that the rounded mean is never outside.
            low = math.floor(interval.low * 1000) / 1000
            high = math.ceil(interval.high * 1000) / 1000
            lines.append(f"mean_length_range: [{low:.3f}, {high:.3f}]")
        return lines

    @property
    def trace_yaml(self) -> str | None:
        """The other way: the log itself as acceptance; None where it has no single steps, or was a pipe."""
        if isinstance(self.observed.data, Windows) or _passes(self.observed.path):
            return None
        path = str(self.observed.path.resolve())
        keys = {"trace": path if PLAIN_NAME.fullmatch(path) else json.dumps(path)}
        if self.observed.counts is not None:
            keys["counts"] = self.observed.counts.value
        # What is inherited would vary it a second time.
        keys |= dict.fromkeys(("request_sd", "step_correlation"), "null")
        return f"acceptance: {{{', '.join(f'{key}: {value}' for key, value in keys.items())}}}"


def _passes(path: Path) -> bool:
    """Whether *path* can be read only once."""
    return path.exists() and not path.is_file()


def _listed(values: Iterable[float]) -> str:
    return f"[{', '.join(map(_number, values))}]"


def _number(value: float) -> str:
    """Never with an exponent, which some readers of YAML take for text."""
    return f"{value:.{DIGITS}f}".rstrip("0").removesuffix(".")


def _wrapped(text: str, first: str, then: str) -> list[str]:
    """*text* in lines that stay what they are in YAML."""
    return textwrap.wrap(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=then,
        break_long_words=False,
        break_on_hyphens=False,
    )

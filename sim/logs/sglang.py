"""SGLang's decode lines: a mean acceptance length, and a rate that versions define differently.

``accept len: 2.94, accept rate: 0.65``: with k drafted tokens a step the rate is
(L - 1) / k, L / (k + 1) or (L - 1) / L. Both figures are rounded, so a line says only
which definitions are possible; all lines together usually leave one.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import numpy as np

from sim.choices import Definition
from sim.errors import LogError
from sim.logs.counted import Read
from sim.logs.figures import TOKEN, Line, Printed, number, whole
from sim.logs.observed import Options, Windows
from sim.traces import LONGEST, number_of

MARK = "accept len:"
RUNNING = re.compile(r"#running-req:\s*" + TOKEN)
LENGTH = re.compile(r"accept len:\s*" + TOKEN)
RATE = re.compile(r"accept rate:\s*([^\s,]+\s*%?)")
SHOWN = 6
"""Candidates that an error lists."""


class _Decode(NamedTuple):
    """A decode line."""

    line: int
    running: int
    length: Printed
    rate: Printed | None


class _Candidate(NamedTuple):
    """A definition, and the tokens drafted a step that it goes with; None for any number."""

    definition: Definition
    drafts: int | None

    def fits(self, decode: _Decode) -> bool:
        """Whether rounding hides what is between the two figures of *decode*."""
        assert decode.rate is not None
        return decode.rate.meets(self.rate(decode.length.low), self.rate(decode.length.high))

    def rate(self, length: float) -> float:
        """The rate of a mean *length*; it rises with it."""
        match self.definition:
            case Definition.PER_DRAFTED:
                return (length - 1) / (self.drafts or 1)
            case Definition.PER_VERIFIED:
                return length / ((self.drafts or 0) + 1)
            case Definition.PER_COMMITTED:
                return (length - 1) / length

    def __str__(self) -> str:
        match self.definition:
            case Definition.PER_DRAFTED:
                return f"(L - 1) / {self.drafts} ({self.definition.value}, k = {self.drafts})"
            case Definition.PER_VERIFIED:
                return f"L / {(self.drafts or 0) + 1} ({self.definition.value}, k = {self.drafts})"
            case Definition.PER_COMMITTED:
                return f"(L - 1) / L ({self.definition.value}, any k)"


def is_decode(text: str) -> bool:
    """Whether *text* is a decode line with an acceptance length."""
    return MARK in text and "Decode batch" in text


def read_sglang(path: Path, lines: list[Line], options: Options) -> Read:
    """The decode *lines* as windows, weighed by running requests; LogError where the rate is not clear."""
    decodes = [decode for decode in (_decode(path, line) for line in lines) if decode.running]
    if not decodes:
        raise LogError(str(path), lines[0].number, "no decode line with a running request")
    found, drafts = _definition(path, [decode for decode in decodes if decode.rate], options)
    for decode in decodes:
        if drafts is not None and decode.length.low > drafts + 1:
            drafted = number_of(drafts, "drafted token")
            problem = f"accept len {decode.length.value:g}, but {drafted} a step: at most {drafts + 1}"
            raise LogError(str(path), decode.line, problem)
    weighing = (
        "Lines are weighed by #running-req: each is the same number of steps of every running request.",
    )
    windows = Windows(
        np.array([max(1.0, decode.length.value) for decode in decodes]),
        np.array([float(decode.running) for decode in decodes]),
        weight_is_steps=False,
    )
    return windows, found + weighing, drafts, len(decodes)


def _decode(path: Path, line: Line) -> _Decode:
    running, length, rate = (pattern.search(line.text) for pattern in (RUNNING, LENGTH, RATE))
    if running is None or length is None:
        missing = "'#running-req: N'" if running is None else "a number after 'accept len:'"
        raise LogError(str(path), line.number, f"expected {missing} in a decode line")
    found = _Decode(
        line.number,
        whole(str(path), line, "#running-req", running[1]),
        number(str(path), line, "accept len", length[1]),
        rate and number(str(path), line, "accept rate", rate[1]),
    )
    if found.running:
        _check(path, found)
    return found


def _check(path: Path, decode: _Decode) -> None:
    """LogError where a figure of *decode* cannot be, whatever a step drafts."""
    length, rate = decode.length, decode.rate
    if length.high < 1:
        problem = (
            f"expected an accept len of 1 or more, got {length.value:.2f}: the target's own token counts"
        )
        raise LogError(str(path), decode.line, problem)
    if length.low > LONGEST:
        problem = f"expected an accept len of {LONGEST} at most, got {length.value:g}"
        raise LogError(str(path), decode.line, problem)
    if rate is not None and rate.value > 1:
        raise LogError(str(path), decode.line, f"expected an accept rate of 0 to 1, got {rate.value:g}")


def _definition(path: Path, decodes: list[_Decode], options: Options) -> tuple[tuple[str, ...], int | None]:
    """What the rate was found to be, and the tokens drafted a step."""
    if not decodes:
        if options.definition is not None:
            raise LogError(str(path), 0, "no accept rate is printed, so --definition has nothing to define")
        return ("No accept rate is printed; the accept len stands by itself.",), options.drafts
    left = _candidates(path, decodes, options)
    if len(left) > 1:
        raise LogError(str(path), decodes[0].line, _several(left, len(decodes)))
    sentence = f"The accept rate is {left[0]}: the only reading that fits, lines checked: {len(decodes):,}."
    return (sentence,), options.drafts if left[0].drafts is None else left[0].drafts


def _candidates(path: Path, decodes: list[_Decode], options: Options) -> list[_Candidate]:
    """The readings that fit every line; LogError names the line that ended the last of them."""
    left = _allowed(options)
    for decode in decodes:
        fits = [candidate for candidate in left if candidate.fits(decode)]
        if not fits:
            raise LogError(str(path), decode.line, _broken(decode, left, options))
        left = fits
    return left


def _allowed(options: Options) -> list[_Candidate]:
    """All readings that the user's options leave."""
    numbers = range(1, LONGEST) if options.drafts is None else (options.drafts,)
    both = (Definition.PER_DRAFTED, Definition.PER_VERIFIED)
    every = [_Candidate(definition, drafts) for definition in both for drafts in numbers]
    every.append(_Candidate(Definition.PER_COMMITTED, None))
    return [one for one in every if options.definition in (None, one.definition)]


def _broken(decode: _Decode, left: list[_Candidate], options: Options) -> str:
    assert decode.rate is not None
    given = options.drafts is not None or options.definition is not None
    why = " (as the options want it)" if given else ""
    figures = f"accept len {decode.length.value:g} with accept rate {decode.rate.value:g}"
    return f"{figures} fits none of {_listed(left)}{why}, which are all that fit the lines before"


def _several(left: list[_Candidate], lines: int) -> str:
    numbers = {candidate.drafts for candidate in left} - {None}
    ask = "--drafts K" if len(numbers) > 1 else "--definition NAME"
    return f"the accept rate may be {_listed(left, ' or ')} (lines checked: {lines:,}): say {ask}"


def _listed(candidates: list[_Candidate], between: str = ", ") -> str:
    texts = [str(candidate) for candidate in candidates[:SHOWN]]
    more = len(candidates) - len(texts)
    return between.join(texts) + (f" and {more} more" if more else "")

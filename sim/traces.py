"""Acceptance lengths, step by step, as plain files have them: CSV and JSON lines.

CSV has one step a row; columns are found by name and others ignored, so ``steps.csv`` of a
simulation reads as it is. JSON lines have one step or one request a line. A line that is
wrong stops the reading: a log with holes gives wrong correlations.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from hwmodels.documents import did_you_mean
from sim.choices import Counts
from sim.errors import LogError, in_one_line

LENGTHS = ("length", "acceptance_length", "accept_length", "accepted_length")
AMBIGUOUS = ("accepted", "num_accepted", "accepted_tokens")
"""Names that do not say whether the target's own token is counted."""
REQUESTS = ("request", "request_id", "run")
LONGEST = 256
"""Tokens; no block of a scenario is longer."""
SHOWN = 60
"""Characters of a file that an error shows."""
WHOLE = re.compile(r"\s*([+-]?\d+)(?:\.0*)?\s*", re.ASCII)


@dataclass(frozen=True)
class Trace:
    """Acceptance lengths of requests, step by step."""

    requests: tuple[tuple[int, ...], ...]
    """Each has a step or more; every length is at least 1."""
    grouped: bool
    """False: the file does not say which request a step belongs to, and there is one request."""


class UnknownLog(LogError):
    """Nothing in the file is named like a length."""


class _Step(NamedTuple):
    """One length as it stands in the file."""

    line: int
    request: str | None
    length: Any


@dataclass
class _Reader:
    """Turns steps of *path* into requests; *counts* None where nobody said what is counted."""

    path: Path
    counts: Counts | None
    requests: dict[str | None, list[int]] = field(default_factory=dict)
    known: dict[str, int] = field(default_factory=dict)
    """Lengths by their text: files repeat few of them many times."""

    def error(self, line: int, problem: str) -> LogError:
        return LogError(str(self.path), line, problem)

    def unknown(self, line: int, problem: str) -> UnknownLog:
        return UnknownLog(str(self.path), line, problem)

    def add(self, step: _Step) -> None:
        length = self.known.get(step.length) if isinstance(step.length, str) else None
        if length is None:
            length = self._length(step)
            if isinstance(step.length, str):
                self.known[step.length] = length
        self.requests.setdefault(step.request, []).append(length)

    def _length(self, step: _Step) -> int:
        number = _whole(step.length)
        if number is None:
            raise self.error(step.line, f"expected a whole number of tokens, got {_shown(step.length)}")
        length = number + (self.counts is Counts.DRAFTED_ONLY)
        if not 1 <= length <= LONGEST:
            raise self.error(step.line, self._beyond(number))
        return length

    def _beyond(self, number: int) -> str:
        shown = quoted(str(number))[1:-1]
        if self.counts is Counts.DRAFTED_ONLY:
            return f"expected 0 to {LONGEST - 1} drafted tokens, got {shown}"
        hint = f"; if drafted tokens alone are counted, say {_option(Counts.DRAFTED_ONLY)}"
        return f"expected a length of 1 to {LONGEST}, got {shown}{hint if number == 0 else ''}"

    def trace(self) -> Trace:
        if not self.requests:
            raise self.error(0, "no steps in it")
        lengths = tuple(tuple(steps) for steps in self.requests.values())
        return Trace(lengths, grouped=None not in self.requests)


def read(path: Path, counts: Counts | None = None) -> Trace:
    """The Trace in *path*; LogError with the line where something is wrong.

    *counts* says what the numbers count; without it they count the target's own token,
    and a column or key that may or may not (``accepted``) is refused.
    """
    return parse(path, text_of(path), counts)


def text_of(path: Path) -> str:
    """All of *path*, which may be a pipe; bytes that are no text become characters that are no number."""
    with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
        return stream.read()


def parse(path: Path, text: str, counts: Counts | None = None) -> Trace:
    """The Trace in *text*, which was read from *path*; otherwise like ``read``."""
    reader = _Reader(path, counts)
    first = text.lstrip()[:1]
    if not first:
        raise reader.error(0, "nothing in it")
    steps = _json_steps if first in "{[" else _csv_steps
    for step in steps(reader, io.StringIO(text, newline="")):
        reader.add(step)
    return reader.trace()


def _csv_steps(reader: _Reader, stream: TextIO) -> Iterator[_Step]:
    rows = _rows(reader, stream)
    line, head = next(rows)
    if len(head) == 1 and WHOLE.fullmatch(head[0]):
        yield _Step(line, None, head[0])
        names, at, request_at = ["a length"], 0, None
    else:
        names = [name.strip().lower() for name in head]
        at, request_at = _columns(reader, line, names)
    for line, row in rows:
        if len(row) != len(names):
            raise reader.error(
                line, f"expected {number_of(len(names), 'column')}, got {number_of(len(row), 'cell')}"
            )
        request = None if request_at is None else row[request_at].strip()
        if request == "":
            raise reader.error(line, f"no {names[request_at or 0]} is given")
        yield _Step(line, request, row[at])


def _rows(reader: _Reader, stream: TextIO) -> Iterator[tuple[int, list[str]]]:
    """Line number and cells of each row that is not blank."""
    rows = csv.reader(stream)
    try:
        for row in rows:
            if any(map(str.strip, row)):
                yield rows.line_num, row
    except csv.Error as problem:
        raise reader.error(rows.line_num, f"no CSV: {problem}") from None


def _columns(reader: _Reader, line: int, names: list[str]) -> tuple[int, int | None]:
    """Where lengths and requests are, from the names of a header."""
    if all(WHOLE.fullmatch(name) for name in names):
        raise reader.error(line, f"{len(names)} columns of numbers and no header: name them, {_wanted()}")
    name = _only(reader, line, names, LENGTHS) or _told(reader, line, names)
    if name is None:
        near = did_you_mean(_likeliest(names), list(LENGTHS))
        raise reader.unknown(line, f"no column of lengths among {_names(names)}{near}")
    request = _only(reader, line, names, REQUESTS)
    return names.index(name), None if request is None else names.index(request)


def _likeliest(names: list[str]) -> str:
    """The name that was most likely meant to be a length."""
    return next((name for name in names if "len" in name or "accept" in name), names[0])


def _only(reader: _Reader, line: int, names: Iterable[str], known: tuple[str, ...]) -> str | None:
    """The one of *known* that *names* has; None where it has none, an error where it has several."""
    found = [name for name in names if name in known]
    if len(found) > 1:
        raise reader.error(line, f"expected one of {', '.join(known)}, got {' and '.join(found)}")
    return found[0] if found else None


def _told(reader: _Reader, line: int, names: Iterable[str]) -> str | None:
    """The ambiguous name that *names* has, if it was said what it counts."""
    name = _only(reader, line, names, AMBIGUOUS)
    if name is not None and reader.counts is None:
        raise reader.error(
            line,
            f"'{name}' may or may not count the target's own token:"
            f" say {_option(Counts.WITH_TARGET)} or {_option(Counts.DRAFTED_ONLY)}",
        )
    return name


def _json_steps(reader: _Reader, stream: TextIO) -> Iterator[_Step]:
    shape: str | None = None
    for line, text in enumerate(stream, 1):
        if not text.strip():
            continue
        value = _parsed(reader, line, text)
        found, parse = _shape(reader, line, value)
        if shape is not None and found != shape:
            raise reader.error(line, f"expected {shape} as in the lines before, got {found}")
        shape = found
        yield from parse(line)


def _parsed(reader: _Reader, line: int, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise reader.error(line, f"expected one JSON value a line, got {_shown(text.strip())}") from None


Parse = Callable[[int], Iterator[_Step]]


def _shape(reader: _Reader, line: int, value: Any) -> tuple[str, Parse]:
    """What a line of JSON is, in words, and how its steps are had."""
    match value:
        case dict():
            return _object(reader, line, value)
        case list():
            return "a list of lengths", lambda at: _request(reader, at, str(at), value)
        case _:
            return "a length", lambda at: iter([_Step(at, None, value)])


def _object(reader: _Reader, line: int, value: dict[str, Any]) -> tuple[str, Parse]:
    lists = tuple(f"{name}s" for name in LENGTHS)
    name = _only(reader, line, value, (*LENGTHS, *lists)) or _told(reader, line, value)
    if name is None:
        near = did_you_mean(_likeliest([*value, ""]), ["length", "lengths"])
        raise reader.unknown(line, f"no key of lengths among {_names(value)}{near}")
    key = _only(reader, line, value, REQUESTS)
    request = None if key is None else value[key]
    if key is not None and (isinstance(request, bool) or not isinstance(request, str | int)):
        raise reader.error(line, f"expected a name or a number as {key}, got {_shown(request)}")
    if request is not None and not (request := str(request).strip()):
        raise reader.error(line, f"no {key} is given")
    what = f"an object with {name}{f' and {key}' if key else ''}"
    if name in lists:
        return what, lambda at: _request(reader, at, str(at) if request is None else request, value[name])
    return what, lambda at: iter([_Step(at, request, value[name])])


def _request(reader: _Reader, line: int, request: str, lengths: Any) -> Iterator[_Step]:
    """The steps of a whole request."""
    if not isinstance(lengths, list) or not lengths:
        raise reader.error(line, f"expected a list of one length or more, got {_shown(lengths)}")
    return (_Step(line, request, length) for length in lengths)


def _whole(value: Any) -> int | None:
    """*value* as a whole number; None where it is none."""
    match value:
        case bool():
            return None
        case int():
            return value
        case float():
            return int(value) if value.is_integer() else None
        case str():
            found = WHOLE.fullmatch(value)
            return int(found[1]) if found and len(value) < LONGEST else None
        case _:
            return None


def _shown(value: Any) -> str:
    """*value* as the file has it, shortened."""
    return quoted(value if isinstance(value, str) else json.dumps(value))


def quoted(text: str) -> str:
    """*text* of a file in quotes and in one line, shortened; what does not print is escaped."""
    return repr(text if len(text) <= SHOWN else f"{text[: SHOWN - 3]}...")


def _names(names: Iterable[str]) -> str:
    """*names* of a file in one line, shortened; what does not print is escaped."""
    return in_one_line(", ".join(names)[:SHOWN]) or "none"


def number_of(count: int, what: str) -> str:
    """*count* of *what*, in words: ``1 step``, ``1,200 steps``."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _option(counts: Counts) -> str:
    """As the command line has it, and a scenario."""
    return f"--counts {counts.value} (acceptance.counts: {counts.value})"


def _wanted() -> str:
    return f"lengths as {LENGTHS[0]}, requests as {REQUESTS[0]}"

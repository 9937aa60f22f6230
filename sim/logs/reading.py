"""Read a log: the engine is told by the lines themselves, never by the name of the file."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sim import traces
from sim.choices import Counts
from sim.errors import LogError
from sim.logs.counted import (
    LLAMA_MARK,
    VLLM_MARK,
    VLLM_V0_MARK,
    Read,
    read_llama_cpp,
    read_vllm,
    read_vllm_v0,
)
from sim.logs.figures import Line
from sim.logs.observed import Engine, Observed, Options
from sim.logs.sglang import MARK as SGLANG_MARK
from sim.logs.sglang import is_decode, read_sglang
from sim.traces import Trace, UnknownLog, quoted


class _Format(NamedTuple):
    """How the lines of an engine are known and read."""

    looked_for: str
    knows: Callable[[str], bool]
    read: Callable[[Path, list[Line], Options], Read]


FORMATS = {
    Engine.VLLM: _Format(VLLM_MARK, lambda text: VLLM_MARK in text, read_vllm),
    Engine.VLLM_V0: _Format(VLLM_V0_MARK, lambda text: VLLM_V0_MARK in text, read_vllm_v0),
    Engine.SGLANG: _Format(f"Decode batch ... {SGLANG_MARK}", is_decode, read_sglang),
    Engine.LLAMA_CPP: _Format(
        f"{LLAMA_MARK} = ", lambda text: LLAMA_MARK in text and "accepted /" in text, read_llama_cpp
    ),
}


def read(path: Path, options: Options | None = None) -> Observed:
    """What the log *path* says.

    LogError where it is of no known kind, of two, contradicts itself or *options*, or leaves
    open what its figures mean; OSError where it cannot be read.
    """
    options = options or Options()
    # Once, so that a pipe can be read.
    text = traces.text_of(path)
    lines, filled = _engine_lines(text)
    if not lines:
        return _plain(path, text, options)
    engine, *others = lines
    if others:
        places = " and ".join(f"{one.value} (line {found[0].number})" for one, found in lines.items())
        raise LogError(
            str(path), lines[others[0]][0].number, f"lines of {places} in one file: fit each alone"
        )
    _refuse(path, engine, "--counts", options.counts is not None)
    _refuse(path, engine, "--definition", options.definition is not None and engine is not Engine.SGLANG)
    data, found, drafts, used = FORMATS[engine].read(path, lines[engine], options)
    return Observed(path, engine, found, data, drafts, None, used, filled - used)


def _engine_lines(text: str) -> tuple[dict[Engine, list[Line]], int]:
    """Lines by the engine that wrote them, and how many lines are not blank."""
    found: dict[Engine, list[Line]] = {}
    filled = 0
    for number, line in enumerate(io.StringIO(text, newline=None), 1):
        filled += not line.isspace()
        for engine, known in FORMATS.items():
            if known.knows(line):
                found.setdefault(engine, []).append(Line(number, line))
    return found, filled


def _refuse(path: Path, engine: Engine, option: str, given: bool) -> None:
    meant = {"--counts": Engine.PLAIN, "--definition": Engine.SGLANG}[option]
    if given:
        raise LogError(str(path), 0, f"{option} is for {meant.value}, and this log is of {engine.value}")


def _plain(path: Path, text: str, options: Options) -> Observed:
    """Lengths step by step."""
    _refuse(path, Engine.PLAIN, "--definition", options.definition is not None)
    try:
        trace = traces.parse(path, text, options.counts)
    except UnknownLog as problem:
        raise _unknown(path, text, problem) from None
    longest = max(map(max, trace.requests))
    if options.drafts is not None and longest > options.drafts + 1:
        allowed = options.drafts + 1
        raise LogError(
            str(path), 0, f"a length of {longest}, but --drafts {options.drafts} allows at most {allowed}"
        )
    steps = sum(map(len, trace.requests))
    return Observed(
        path, Engine.PLAIN, _meaning(trace, options), trace, options.drafts, options.counts, steps, 0
    )


def _meaning(trace: Trace, options: Options) -> tuple[str, ...]:
    counted = "Lengths count the target's own token."
    if options.counts is Counts.DRAFTED_ONLY:
        counted = "Numbers were taken as drafted tokens alone; lengths are one more."
    if trace.grouped:
        return (counted,)
    return (counted, "The file does not say which request a step belongs to.")


def _unknown(path: Path, text: str, problem: LogError) -> LogError:
    """Nothing is recognised: what was looked for, and what the first line is."""
    first = next(line.strip() for line in io.StringIO(text, newline=None) if not line.isspace())
    marks = ", ".join(f"'{known.looked_for}' ({engine.value})" for engine, known in FORMATS.items())
    _, line, said = problem.args
    return LogError(
        str(path),
        line,
        f"no log that is known: no line has {marks}; as plain lengths: {said}; it begins {quoted(first)}",
    )

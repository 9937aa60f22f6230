"""Engines that print counts of tokens: vLLM, before and after its rewrite, and llama.cpp.

vLLM prints a window every few seconds: ``1 + accepted / drafts`` as the mean acceptance
length and, by position, the share of all drafts that were accepted at least so far
(vllm/v1/spec_decode/metrics.py). llama.cpp prints the same of each finished request. Old
vLLM printed running totals. Whether the figures mean this is checked on the figures.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from sim.errors import LogError
from sim.logs.figures import Line, Printed, Steps, Window, count_steps, printed, rate_kind, same_drafts
from sim.logs.observed import Options, Windows

VLLM_MARK = "SpecDecoding metrics:"
VLLM_V0_MARK = "Speculative metrics:"
LLAMA_MARK = "draft acceptance"

RATES = r"\s*[\[(]?((?:\d*\.\d+[,\s]*)+)"
VLLM_MEAN = re.compile(r"Mean acceptance length:\s*([\d.]+)")
VLLM_RATES = re.compile(r"Per-position acceptance rate:" + RATES)
VLLM_ACCEPTED = re.compile(r"Accepted:\s*(\d+) tokens")
VLLM_DRAFTED = re.compile(r"Drafted:\s*(\d+) tokens")
LLAMA_COUNTS = re.compile(
    r"draft acceptance(?: rate)?\s*=\s*[\d.]+\s*\(\s*(\d+) accepted /\s*(\d+) generated\)"
)
LLAMA_MEAN = re.compile(r"mean acceptance length\s*=\s*([\d.]+)")
LLAMA_RATES = re.compile(r"acceptance rate per position\s*=" + RATES)
V0_FIELDS = {
    "efficiency": re.compile(r"System efficiency:\s*([\d.]+)"),
    "drafts": re.compile(r"Number of speculative tokens:\s*(\d+)"),
    "drafted": re.compile(r"Number of draft tokens:\s*(\d+)"),
    "emitted": re.compile(r"Number of emitted tokens:\s*(\d+)"),
}

Read = tuple[Windows, tuple[str, ...], int | None, int]
"""The windows, what was found, tokens drafted a step, lines used."""


def read_vllm(path: Path, lines: list[Line], options: Options) -> Read:
    """The windows of vLLM's metrics *lines*; those in which nothing was drafted are left out."""
    windows = [_vllm_window(path, line) for line in lines]
    drafted = [window for window in windows if window.drafted]
    if not drafted:
        raise LogError(str(path), lines[0].number, "no window in which anything was drafted")
    return _counted(path, drafted, options, "window")


def _vllm_window(path: Path, line: Line) -> Window:
    accepted = _field(path, line, VLLM_ACCEPTED, "'Accepted: .. tokens'")
    drafted = _field(path, line, VLLM_DRAFTED, "'Drafted: .. tokens'")
    mean, rates = VLLM_MEAN.search(line.text), VLLM_RATES.search(line.text)
    return Window(line.number, int(accepted), int(drafted), mean and printed(mean[1]), _rates(rates))


def read_llama_cpp(path: Path, lines: list[Line], options: Options) -> Read:
    """The requests of llama.cpp's *lines*, a window each."""
    windows = [_llama_window(path, line) for line in lines]
    drafted = [window for window in windows if window.drafted]
    if not drafted:
        raise LogError(str(path), lines[0].number, "no request in which anything was drafted")
    return _counted(path, drafted, options, "request")


def _llama_window(path: Path, line: Line) -> Window:
    counts = LLAMA_COUNTS.search(line.text)
    if counts is None:
        raise LogError(
            str(path), line.number, "expected '(N accepted / N generated)' after 'draft acceptance'"
        )
    mean, rates = LLAMA_MEAN.search(line.text), LLAMA_RATES.search(line.text)
    if mean is None:
        problem = "no 'mean acceptance length': drafts vary in length, so tokens alone do not tell the steps"
        raise LogError(str(path), line.number, problem)
    return Window(line.number, int(counts[1]), int(counts[2]), printed(mean[1]), _rates(rates))


def _field(path: Path, line: Line, pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(line.text)
    if found is None:
        raise LogError(str(path), line.number, f"expected {name} in a line of metrics, got none")
    return found[1]


def _rates(found: re.Match[str] | None) -> tuple[Printed, ...]:
    return tuple(printed(text) for text in re.findall(r"\d*\.\d+", found[1])) if found else ()


def _counted(path: Path, windows: list[Window], options: Options, what: str) -> Read:
    """Lengths, steps and rates of *windows*, each a *what*."""
    drafts = same_drafts(str(path), windows, options.drafts)
    if drafts is None:
        problem = (
            "no rates per position, so the log does not say how many tokens a step drafts: say --drafts K"
        )
        raise LogError(str(path), windows[0].line, problem)
    steps = [count_steps(str(path), window, drafts) for window in windows]
    with_lengths = [
        window if window.mean else _with_mean(window, count.number)
        for window, count in zip(windows, steps, strict=True)
    ]
    counts = np.array([count.number for count in steps], dtype=float)
    lengths = 1 + np.array([window.accepted for window in windows]) / counts
    checked = all(window.mean for window in windows)
    found = _steps_found(steps, drafts, what, checked)
    if not windows[0].rates:
        return Windows(lengths, counts), found, drafts, len(windows)
    kind, only = rate_kind(str(path), with_lengths)
    also = "" if only else " (other readings fit as well, and say the same)"
    found = (f"Rates per position are {kind.value}: checked on {_lines(len(windows))}{also}.", *found)
    rates = np.array([kind.unconditional(window.rates) for window in windows])
    _check_falling(path, windows, rates)
    return Windows(lengths, counts, np.minimum.accumulate(rates, axis=1)), found, drafts, len(windows)


def _with_mean(window: Window, steps: int) -> Window:
    """*window* with the mean length that its counts give."""
    length = 1 + window.accepted / steps
    return Window(window.line, window.accepted, window.drafted, Printed(length, length, length), window.rates)


def _steps_found(steps: list[Steps], drafts: int, what: str, checked: bool) -> tuple[str, ...]:
    short = sum(not count.full for count in steps)
    if not short or not checked:
        check = "; 1 + accepted / steps is the printed length" if checked else ""
        return (f"Steps of a {what} are drafted tokens / {drafts}{check}.",)
    return (
        f"Steps of a {what} are drafted tokens / {drafts}, or accepted / (length - 1) where some drafts were"
        f" shorter: {short} of {_lines(len(steps))}.",
    )


def _lines(count: int) -> str:
    return f"{count:,} line{'' if count == 1 else 's'}"


def _check_falling(path: Path, windows: list[Window], rates: np.ndarray) -> None:
    """Unconditional rates cannot rise by more than rounding."""
    for window, row in zip(windows, rates, strict=True):
        room = max(rate.high - rate.low for rate in window.rates)
        rise = np.flatnonzero(np.diff(row) > room)
        if len(rise):
            at = int(rise[0])
            problem = f"rates cannot rise, but position {at + 2} has {row[at + 1]:.3f} after {row[at]:.3f}"
            raise LogError(str(path), window.line, problem)


def read_vllm_v0(path: Path, lines: list[Line], options: Options) -> Read:
    """The running totals of old vLLM: its last line, as one window."""
    last = lines[-1]
    fields = {name: _field(path, last, at, f"'{name}'") for name, at in V0_FIELDS.items()}
    drafts, drafted, emitted = (int(fields[name]) for name in ("drafts", "drafted", "emitted"))
    if options.drafts not in (None, drafts):
        raise LogError(
            str(path), last.number, f"{drafts} speculative tokens, but --drafts says {options.drafts}"
        )
    if not drafted:
        raise LogError(str(path), last.number, "nothing was drafted")
    length = emitted * drafts / drafted
    efficiency = printed(fields["efficiency"])
    if not efficiency.meets(*[length / (drafts + 1)] * 2):
        raise LogError(
            str(path),
            last.number,
            f"{emitted} emitted, {drafted} drafted at {drafts} a step are {length:.3f} tokens a step, a"
            f" system efficiency of {length / (drafts + 1):.3f}, but {efficiency.value:g} is printed",
        )
    found = (
        f"Totals of line {last.number}: L = emitted / (drafted / {drafts}) = {length:.3f},"
        f" and system efficiency x {drafts + 1} says the same.",
    )
    return Windows(np.array([length]), np.array([drafted / drafts])), found, drafts, 1

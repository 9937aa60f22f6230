"""Engines that print counts of tokens: vLLM, before and after its rewrite, and llama.cpp.

vLLM prints a window every few seconds: ``1 + accepted / drafts`` as the mean acceptance
length and, by position, the share of all drafts that were accepted at least so far
(vllm/v1/spec_decode/metrics.py). llama.cpp prints the same of each finished request. Old
vLLM printed running totals. Whether the figures mean this is checked on the figures.
"""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import numpy as np

from sim.errors import LogError
from sim.logs.figures import (
    SLACK,
    TOKEN,
    Line,
    Printed,
    RateKind,
    Steps,
    Window,
    check_window,
    count_steps,
    number,
    rate_kind,
    same_drafts,
    whole,
)
from sim.logs.observed import Options, Windows
from sim.traces import LONGEST, number_of

VLLM_MARK = "SpecDecoding metrics:"
VLLM_V0_MARK = "Speculative metrics:"
LLAMA_MARK = "draft acceptance"

VLLM_MEAN = re.compile(r"Mean acceptance length:\s*" + TOKEN)
VLLM_RATES = re.compile(r"Per-position acceptance rate:(.*)")
VLLM_ACCEPTED = re.compile(r"Accepted:\s*(\S+) tokens")
VLLM_DRAFTED = re.compile(r"Drafted:\s*(\S+) tokens")
LLAMA_COUNTS = re.compile(r"draft acceptance(?: rate)?\s*=\s*\S+\s*\(\s*(\S+) accepted /\s*(\S+) generated\)")
LLAMA_MEAN = re.compile(r"mean acceptance length\s*=\s*" + TOKEN)
LLAMA_RATES = re.compile(r"acceptance rate per position\s*=(.*)")
V0_EFFICIENCY = re.compile(r"System efficiency:\s*" + TOKEN)
V0_COUNTS = {
    "speculative": re.compile(r"Number of speculative tokens:\s*" + TOKEN),
    "draft": re.compile(r"Number of draft tokens:\s*" + TOKEN),
    "emitted": re.compile(r"Number of emitted tokens:\s*" + TOKEN),
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
    counts = {
        name: whole(str(path), line, f"'{name}: .. tokens'", _field(path, line, at, f"'{name}: .. tokens'"))
        for name, at in (("Accepted", VLLM_ACCEPTED), ("Drafted", VLLM_DRAFTED))
    }
    return _window(path, line, (counts["Accepted"], counts["Drafted"]), VLLM_MEAN, VLLM_RATES)


def _window(
    path: Path, line: Line, counts: tuple[int, int], mean: re.Pattern[str], rates: re.Pattern[str]
) -> Window:
    """The window of *line*, tokens accepted and drafted given; nothing else counts where none was drafted."""
    found = Window(line.number, *counts, None, ())
    if found.drafted:
        at = mean.search(line.text)
        shown = at and number(str(path), line, "the mean acceptance length", at[1])
        found = Window(line.number, *counts, shown, _rates(path, line, rates))
    check_window(str(path), found)
    return found


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
    accepted, drafted = (
        whole(str(path), line, name, text)
        for name, text in zip(("'accepted'", "'generated'"), counts.groups(), strict=True)
    )
    if drafted and LLAMA_MEAN.search(line.text) is None:
        problem = "no 'mean acceptance length': drafts vary in length, so tokens alone do not tell the steps"
        raise LogError(str(path), line.number, problem)
    return _window(path, line, (accepted, drafted), LLAMA_MEAN, LLAMA_RATES)


def _field(path: Path, line: Line, pattern: re.Pattern[str], name: str) -> str:
    found = pattern.search(line.text)
    if found is None:
        raise LogError(str(path), line.number, f"expected {name} in a line of metrics, got none")
    return found[1]


def _rates(path: Path, line: Line, pattern: re.Pattern[str]) -> tuple[Printed, ...]:
    """Rates by position: all that follows until a bracket closes or a word begins."""
    found = pattern.search(line.text)
    if found is None:
        return ()
    listed = re.split(r"[\])]", found[1].strip().lstrip("[("))[0]
    items = itertools.takewhile(lambda item: not item[0].isalpha(), re.findall(r"[^,\s]+", listed))
    return tuple(number(str(path), line, "a rate", item) for item in items)


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
        _with_mean(window, count.number) if count.sure or not window.mean else window
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
    found = (
        f"Rates per position are {kind.value}: checked on {number_of(len(windows), 'line')}{also}.",
        *found,
    )
    _check_falling(path, windows, kind)
    rates = np.array([kind.unconditional(window.rates) for window in windows])
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
        f" shorter: {short} of {number_of(len(steps), 'line')}.",
    )


def _check_falling(path: Path, windows: list[Window], kind: RateKind) -> None:
    """Unconditional rates cannot rise: rounding keeps their order."""
    for window in windows:
        for position, (before, rate) in enumerate(itertools.pairwise(kind.bounds(window.rates)), 2):
            if rate.value > before.value and rate.low > before.high - SLACK:
                problem = (
                    f"rates cannot rise, but position {position} has {rate.value:.3f} after"
                    f" {before.value:.3f}"
                )
                raise LogError(str(path), window.line, problem)


def read_vllm_v0(path: Path, lines: list[Line], options: Options) -> Read:
    """The running totals of old vLLM: its last line, as one window."""
    last = lines[-1]
    drafts, drafted, emitted = (
        whole(str(path), last, f"the number of {name} tokens", _field(path, last, at, f"'{name} tokens'"))
        for name, at in V0_COUNTS.items()
    )
    _check_v0(path, last, options, (drafts, drafted, emitted))
    shown = _field(path, last, V0_EFFICIENCY, "'System efficiency'")
    efficiency = number(str(path), last, "the system efficiency", shown)
    length = emitted * drafts / drafted
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


def _check_v0(path: Path, last: Line, options: Options, counts: tuple[int, int, int]) -> None:
    """LogError where totals cannot be: tokens speculated a step, drafted and emitted in all."""
    drafts, drafted, emitted = counts
    problem = None
    if not 1 <= drafts < LONGEST:
        problem = f"expected 1 to {LONGEST - 1} speculative tokens, got {drafts}"
    elif options.drafts not in (None, drafts):
        problem = f"{number_of(drafts, 'speculative token')}, but --drafts says {options.drafts}"
    elif not drafted:
        problem = "nothing was drafted"
    elif not drafted <= emitted * drafts <= drafted * (drafts + 1):
        length = emitted * drafts / drafted
        problem = (
            f"{emitted} emitted, {drafted} drafted at {drafts} a step are {length:.3f} tokens a step,"
            f" expected 1 to {drafts + 1}"
        )
    if problem is not None:
        raise LogError(str(path), last.number, problem)

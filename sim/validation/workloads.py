"""How many tokens are cached while a published workload decodes.

A row says so itself (``8192``, ``1k in/2k out``, ``8192 in/1024 out``), or its workload is a data set whose
prompts have a typical length, or nobody knows and a middling chat is assumed.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sim.validation.errors import Unpredictable
from sim.validation.naming import words

DEFAULT_PROMPT_TOKENS = 1024
DEFAULT_OUTPUT_TOKENS = 1024


class DataSet(NamedTuple):
    """A public set of prompts, all of which a benchmark runs once."""

    prompt_tokens: int
    output_tokens: int
    prompts: int
    length_cv: float = 0.6
    """Relative standard deviation of the lengths of answers."""


TYPICAL: dict[str, DataSet] = {
    "humaneval": DataSet(192, 1024, 164),
    "mbpp": DataSet(192, 1024, 500),
    "math 500": DataSet(128, 1024, 500),
    "aime": DataSet(128, 4096, 30),
    "gsm8k": DataSet(128, 512, 1319),
    "mt bench": DataSet(128, 1024, 80),
    "alpaca": DataSet(64, 512, 805),
    "livecodebench": DataSet(512, 2048, 400),
    "swe bench": DataSet(2048, 1024, 500),
    "speed bench": DataSet(512, 1024, 80, 1.0),
}
"""Tokens are assumed: single turns with a chat template and a reasoning model's answer, as far as engines'
usual limits let it go; attention over so few is a small part of a step. So is the spread of lengths, but for
SPEED-Bench (80 prompts in each category): over ten categories 16 requests together reach 0.70-0.93 of 16
times the rate of one of them, 0.82 on average (lightseekorg/tokenspeed#795), as a deviation of 1 gives.
"""

SERVED = ("closed loop", "closed", "chat", "random")
"""Words of workloads in which requests follow one another through a server."""

_COUNT = r"(\d+(?:[.,]\d+)*)\s*(k|m)?"
_IN_OUT = re.compile(
    rf"{_COUNT}\s*(?:tokens?\s*)?in(?:put)?\s*(?:/|,|and)?\s*{_COUNT}\s*(?:tokens?\s*)?out(?:put)?",
    re.IGNORECASE,
)
_SLASH = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?)(k)\s*/\s*(\d+(?:\.\d+)?)(k)(?!\w)", re.IGNORECASE)
_PLAIN = re.compile(rf"{_COUNT}(?:\s*tokens?)?", re.IGNORECASE)
_MULTIPLES = {"": 1, "k": 1024, "m": 1024 * 1024}


class Contexts(NamedTuple):
    """Cached tokens when decoding begins, and tokens decoded from there."""

    start: int
    output: int
    note: str = ""
    """What was assumed; empty where the row says it."""
    data_set: DataSet | None = None
    """What is run once, to the end; None where requests never end."""
    prefill: bool = False
    """Whether the published throughput counts the prefill of requests that follow one another."""

    @property
    def middle(self) -> int:
        """Cached tokens half way: attention is linear in them, so the mean step is the one here."""
        return self.start + self.output // 2


def contexts(context: str, workload: str) -> Contexts:
    """The Contexts of a row; Unpredictable where its context cannot be read."""
    stated = _in_out(context) or _in_out(workload)
    if stated:
        return stated._replace(prefill=_is_served(workload))
    found = _PLAIN.fullmatch(context.strip())
    if found:
        note = f"context as stated, then {DEFAULT_OUTPUT_TOKENS:,} tokens decoded"
        return Contexts(_count(*found.groups()), DEFAULT_OUTPUT_TOKENS, note)
    if any(letter.isdigit() for letter in context):
        raise Unpredictable(f"context_tokens '{context}' is neither a number nor like '1k in/2k out'")
    said = words(workload)
    for name, known in TYPICAL.items():
        if f" {name} " in said:
            start, output = known.prompt_tokens, known.output_tokens
            size = f"{start:,} tokens of prompt, {output:,} decoded, {known.prompts:,} requests"
            return Contexts(start, output, f"{name}: {size}; prefill and drain counted", known, prefill=True)
    note = (
        f"context not stated: {DEFAULT_PROMPT_TOKENS:,} tokens of prompt, {DEFAULT_OUTPUT_TOKENS:,} decoded"
    )
    return Contexts(DEFAULT_PROMPT_TOKENS, DEFAULT_OUTPUT_TOKENS, note)


def _is_served(workload: str) -> bool:
    """True for a closed loop of requests; a decode benchmark and a single batch have no prefill in them."""
    said = words(workload)
    return any(f" {sign} " in said for sign in SERVED)


def _in_out(text: str) -> Contexts | None:
    """``1k in/2k out``, ``1024 in / 1024 out`` and ``1k/1k``."""
    found = _IN_OUT.search(text) or _SLASH.search(text)
    if found is None:
        return None
    first, of_first, second, of_second = found.groups()
    start, output = _count(first, of_first), _count(second, of_second)
    return Contexts(start, output) if output else None


def _count(digits: str, multiple: str | None) -> int:
    """The number of tokens; a comma between thousands is left out."""
    try:
        return round(float(digits.replace(",", "")) * _MULTIPLES[(multiple or "").lower()])
    except ValueError:
        raise Unpredictable(f"'{digits}' is no number of tokens") from None

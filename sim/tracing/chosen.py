"""Which steps of a run a trace shows, as the command line says it."""

from __future__ import annotations

import re

DEFAULT = range(4)
_STEPS = re.compile(r"(?P<first>\d+)(?::(?P<stop>\d+))?", re.ASCII)


def parse(text: str) -> range:
    """``0:4`` for steps 0 to 3, ``7`` for step 7 alone; ValueError for anything else."""
    found = _STEPS.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no FIRST:STOP, such as 0:4 for steps 0 to 3, nor one step, such as 7")
    first = int(found["first"])
    steps = range(first, first + 1 if found["stop"] is None else int(found["stop"]))
    if not steps:
        raise ValueError(f"{text} has no step: the second number is the first step that is left out")
    return steps


def of_run(text: str | None, available: int) -> range:
    """The steps that *text* asks of a run of *available*; its first ones where it is None.

    ValueError where the run has not all of them.
    """
    if text is None:
        return DEFAULT[:available]
    steps = parse(text)
    if steps.stop > available:
        raise ValueError(f"{text} is more than there is: the run has {available} steps, 0:{available}")
    return steps

"""What a log says: which engine wrote it, what its figures mean, and the figures."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from sim.choices import Counts, Definition
from sim.traces import Trace

Array = NDArray[np.float64]


class Engine(Enum):
    """Who wrote a log."""

    PLAIN = "plain lengths"
    VLLM = "vLLM"
    VLLM_V0 = "vLLM v0"
    SGLANG = "SGLang"
    LLAMA_CPP = "llama.cpp"


@dataclass(frozen=True)
class Options:
    """What the user knows about a log and the log may not say."""

    drafts: int | None = None
    """Tokens that a step drafts (k); lengths go to k + 1."""
    definition: Definition | None = None
    counts: Counts | None = None


@dataclass(frozen=True)
class Windows:
    """Means over stretches of a log."""

    mean_length: Array
    """(windows,)"""
    weight: Array
    """(windows,) steps, or something in proportion to them."""
    rates: Array | None = None
    """(windows, k) P(L > d) for d = 1 ... k; None where the log has none."""
    weight_is_steps: bool = True


@dataclass(frozen=True)
class Observed:
    """A log that was read."""

    path: Path
    engine: Engine
    found: tuple[str, ...]
    """Sentences: what the figures were found to mean."""
    data: Trace | Windows
    drafts: int | None
    """Tokens that a step drafts (k); None where neither log nor user say."""
    counts: Counts | None
    """What its lengths count, where the user said so."""
    used: int
    """Lines that were used; of plain lengths, steps."""
    ignored: int
    """Other lines that are not blank."""

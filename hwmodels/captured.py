"""Batches that an engine has captured as CUDA graphs, and what it does with others.

A batch is padded to the next captured size. Engines that count tokens capture multiples of the
queries of a request: in requests, a size s is one of ceil(s / queries).
"""

from __future__ import annotations

from enum import Enum
from typing import Self

from pydantic import Field, model_validator

from hwmodels.documents import Strict


class BatchUnit(Enum):
    """What the size of a captured batch counts."""

    TOKENS = "tokens"
    REQUESTS = "requests"


class Beyond(Enum):
    """How a pass larger than every captured one runs."""

    EAGER = "eager"
    """Every kernel is launched by itself."""
    PIECEWISE = "piecewise"
    """Attention is launched by itself, what lies between as graphs."""


class Sizes(Strict):
    """*first*, *first* + *step* and so on up to *last*."""

    first: int = Field(ge=1)
    last: int
    step: int = Field(ge=1)


class Largest(Strict):
    """The largest captured batch on GPUs with less than *below_gib* of memory."""

    below_gib: float = Field(gt=0)
    up_to_3_ranks: int = Field(ge=1)
    from_4_ranks: int = Field(ge=1)


class Captured(Strict):
    """The sizes of captured batches, rising."""

    unit: BatchUnit
    plain: tuple[Sizes, ...] = Field(min_length=1)
    speculative: tuple[Sizes, ...] | None = Field(default=None, min_length=1)
    """Sizes captured with a drafter, where they differ."""
    largest: tuple[Largest, ...] = ()
    """Smaller limits on smaller GPUs, rising with memory."""
    beyond: Beyond
    ref: str = Field(min_length=3)

    @model_validator(mode="after")
    def _sizes_rise(self) -> Self:
        for runs in (self.plain, self.speculative or self.plain):
            sizes = _listed(runs)
            if not sizes or sizes != sorted(set(sizes)):
                raise ValueError(f"captured sizes must rise, got {sizes}")
        return self

    def limit(self, ranks: int, memory_gib: float) -> int | None:
        """The largest size on *ranks* GPUs with *memory_gib* each, where that is less than all sizes."""
        for entry in self.largest:
            if memory_gib < entry.below_gib:
                return entry.from_4_ranks if ranks >= 4 else entry.up_to_3_ranks
        return None

    def padded(self, requests: int, queries: int, ranks: int, memory_gib: float) -> int | None:
        """Requests of the smallest captured batch that holds *requests*, each of *queries* tokens.

        None where all are smaller.
        """
        drafted = queries > 1 and self.speculative is not None
        sizes = _listed(self.speculative if drafted and self.speculative else self.plain)
        most = self.limit(ranks, memory_gib) or sizes[-1]
        per_request = queries if self.unit is BatchUnit.TOKENS else 1
        for size in sizes:
            held = -(-size // per_request)
            if held >= requests and held * per_request <= most:
                return held
        return None


def _listed(runs: tuple[Sizes, ...]) -> list[int]:
    return [size for run in runs for size in range(run.first, run.last + 1, run.step)]

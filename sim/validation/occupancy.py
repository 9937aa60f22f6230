"""How full the batch is over a whole benchmark.

A published total is tokens over the time of all prompts of a data set. Its last requests
decode in a batch that nobody joins any more, so the total lies below what the full batch
does; the less so, the more prompts there are for each place of the batch.
"""

from __future__ import annotations

import heapq
from functools import cache

import numpy as np

BENCHMARKS = 200
"""Benchmarks played; the mean is then known to half a per cent."""
SEED = 1


@cache
def occupancy(prompts: int, places: int, alone: float, length_cv: float) -> float:
    """Throughput of *prompts* requests over that of a batch whose *places* are always taken.

    *alone* is the step of a single request over that of the full batch; in between the step
    is taken to be linear in the requests. Answers have lognormal lengths of relative standard
    deviation *length_cv*.
    """
    if places == 1:
        return 1.0
    luck = np.random.default_rng(SEED)
    sigma = np.sqrt(np.log1p(length_cv**2))
    lengths = np.exp(luck.normal(-(sigma**2) / 2, sigma, (BENCHMARKS, max(prompts, places))))
    return float(np.mean([_one(sample.tolist(), places, alone) for sample in lengths]))


def _one(lengths: list[float], places: int, alone: float) -> float:
    """Of one benchmark whose requests take *lengths* steps."""
    waiting = lengths[places:]
    ends = lengths[:places]
    heapq.heapify(ends)
    steps, time = 0.0, 0.0
    while ends:
        end = heapq.heappop(ends)
        full = len(ends) / (places - 1)
        time += (end - steps) * (alone + (1 - alone) * full)
        steps = end
        if waiting:
            heapq.heappush(ends, end + waiting.pop())
    return sum(lengths) / (places * time)

"""Requests that decode together: a closed loop in lock-step.

Every step verifies one tree of every request in the batch, and commits what each lands. A
request that has its output leaves, and the next one takes its slot in the step after. A
run goes on until the first request of every slot has left: the batch is full all along,
so that neither ramp-up nor drain is in it. Prefill is outside, as everywhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sim.acceptance import Acceptance
from sim.graph import IntArray
from sim.scenario import Load


@dataclass(frozen=True, eq=False)
class Batch:
    """What the requests in the slots do, step by step."""

    lengths: IntArray
    """(steps, slots) tokens committed."""
    contexts: IntArray
    """(steps, slots) cached tokens when the step begins."""
    first_steps: IntArray
    """(slots,) steps that the first request of each slot took."""

    @property
    def mean_contexts(self) -> IntArray:
        """(steps,) cached tokens of a request, mean over the batch: attention time is linear in it."""
        mean: IntArray = np.rint(self.contexts.mean(axis=1)).astype(np.int64)
        return mean


def closed_loop(model: Acceptance, load: Load, luck: Sequence[np.random.Generator]) -> Batch:
    """A run of *load* with one slot for each generator of *luck*."""
    firsts = [model.draw(generator, load.output_tokens) for generator in luck]
    steps = max(map(len, firsts))
    slots = [
        _slot(model, load, generator, first, steps) for generator, first in zip(luck, firsts, strict=True)
    ]
    return Batch(
        lengths=np.stack([lengths for lengths, _ in slots], axis=1),
        contexts=np.stack([contexts for _, contexts in slots], axis=1),
        first_steps=np.array([len(first) for first in firsts], dtype=np.int64),
    )


def _slot(
    model: Acceptance, load: Load, generator: np.random.Generator, first: IntArray, steps: int
) -> tuple[IntArray, IntArray]:
    """Lengths and contexts of the first *steps* steps of a slot, request after request."""
    requests = [first]
    done = len(first)
    while done < steps:
        requests.append(model.draw(generator, load.output_tokens))
        done += len(requests[-1])
    contexts = [load.context_tokens + np.cumsum(lengths) - lengths for lengths in requests]
    return np.concatenate(requests)[:steps], np.concatenate(contexts)[:steps]

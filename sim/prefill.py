"""The forward pass of a prompt, which a request that joins the batch needs before it decodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import assert_never

from hwmodels.models import Gqa, Mla
from hwmodels.work import (
    AllGather,
    AllReduce,
    BatchedGemm,
    DType,
    EagerLaunch,
    Elementwise,
    GqaAttention,
    HostTask,
    HostWork,
    IndexScores,
    MlaAttention,
    Prefill,
    Work,
)
from sim.graph import Component
from sim.kernels import Kernel, PassShape, decoder_layer, logits
from sim.setup import Setup

CHUNK_TOKENS = 64
"""Prompt tokens that linear attention takes together: its state is kept once for each chunk."""


def prompt_pass(setup: Setup) -> Prefill:
    """The pass of one prompt of the load's context through the target, its drafter's left out.

    The kernels of a verify pass of as many tokens, but attention is two causal matrix
    products and only the last token needs logits.
    """
    tokens = max(1, setup.scenario.load.context_tokens)
    shape = PassShape(1, tokens, tokens)
    kernels = [kernel for layer in range(setup.model.layers) for kernel in decoder_layer(setup, shape, layer)]
    kernels += logits(setup, 1)
    works = Counter(work for kernel in kernels for work in _prompt_works(setup, kernel, tokens))
    collective = sum(k.launches for k in kernels if isinstance(k.work, AllReduce | AllGather))
    others = sum(k.launches for k in kernels) - collective
    host = (HostWork(HostTask.SCHEDULE, 1), EagerLaunch(others, False), EagerLaunch(collective, True))
    return Prefill(tuple(works.items()), host)


def _prompt_works(setup: Setup, kernel: Kernel, tokens: int) -> Iterator[Work]:
    """What *kernel* of a verify pass is in the pass of a prompt of *tokens*."""
    match kernel.work:
        case MlaAttention() | GqaAttention():
            yield from _causal(setup, tokens)
        case IndexScores() as index:
            yield BatchedGemm(index.heads, tokens, -(-tokens // 2), index.head_dim, DType.FP8)
        case Elementwise(size_bytes) if kernel.component is Component.ATTENTION:
            yield Elementwise(-(-size_bytes // CHUNK_TOKENS))
        case work:
            yield work


def _causal(setup: Setup, tokens: int) -> Iterator[Work]:
    """Scores and weighted sum of every token over the half of the prompt before it, or its window."""
    half, ranks = -(-tokens // 2), setup.machine.ranks
    match setup.model.attention:
        case Mla() as mla:
            half = half if mla.index is None else min(half, mla.index.top_k)
            heads, query, value = max(1, mla.heads // ranks), mla.nope_dim + mla.rope_dim, mla.v_dim
        case Gqa() as gqa:
            heads, query, value = max(1, gqa.heads // ranks), gqa.head_dim, gqa.head_dim
        case other:
            assert_never(other)
    yield BatchedGemm(heads, tokens, half, query, DType.BF16)
    yield BatchedGemm(heads, tokens, value, half, DType.BF16)

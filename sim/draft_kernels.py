"""Forward passes of drafters as lists of kernels, as ``sim.kernels`` has those of the target.

A block drafter makes one pass over its block. A sequential one makes a pass for every
position: the first over the tokens that the step before committed, as many as it can at
most (captured graphs have a fixed size), the others over one token of each request, or
over the ``top_k`` prefixes that an EAGLE tree goes on with. Each pass ends with logits on
every rank and the choice of tokens from them.

Layouts: sglang python/sglang/srt/models/llama_eagle3.py, kimi_k25_eagle3.py and
deepseek_nextn.py; vllm vllm/model_executor/models/llama_eagle3.py and deepseek_mtp.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from hwmodels.drafters import DFlash, Eagle, Mtp
from hwmodels.models import TargetModel
from hwmodels.roofline import ACTIVATION_BYTES
from hwmodels.work import (
    AllGather,
    AllReduce,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GqaAttention,
    Work,
)
from sim.choices import Shape
from sim.graph import Component
from sim.kernels import Kernel, PassShape, decoder_layer, logits
from sim.setup import Setup


def eagle_passes(setup: Setup, drafter: Eagle) -> list[list[Kernel]]:
    """Every pass of *drafter*: features fused on the first, its own hidden state on the others."""
    own = replace(setup, model=drafter.as_model(setup.model))
    return [_drafted(_eagle_pass(own, drafter, shape, first=not i)) for i, shape in enumerate(_shapes(setup))]


def mtp_passes(setup: Setup, drafter: Mtp) -> list[list[Kernel]]:
    """Every pass of *drafter*: one layer, run again for every position."""
    own = replace(setup, model=drafter.as_model(setup.model))
    return [_drafted(_mtp_pass(own, shape, first=not i)) for i, shape in enumerate(_shapes(setup))]


def _shapes(setup: Setup) -> list[PassShape]:
    """What goes through each pass of a sequential drafter."""
    load, spec = setup.scenario.load, setup.scenario.drafted
    passes = spec.nodes if spec.shape is Shape.CHAIN else spec.positions
    first = PassShape(setup.requests, spec.cap, load.context_tokens, setup.draft_padding)
    return [first, *[first._replace(queries=spec.top_k)] * (passes - 1)]


def _drafted(kernels: Iterable[Kernel]) -> list[Kernel]:
    """*kernels*, booked under the drafter."""
    return [kernel._replace(component=Component.DRAFTER) for kernel in kernels]


def _eagle_pass(own: Setup, drafter: Eagle, shape: PassShape, first: bool) -> Iterator[Kernel]:
    """Embedding beside the hidden state, the layers, the choice.

    The projection of features is whole on every rank.
    """
    hidden, tokens = drafter.hidden, shape.tokens
    yield from _embedding(own, tokens)
    if first:
        yield _kernel(Gemm(tokens, hidden, drafter.feature_layers * hidden, drafter.dtype))
    yield _small(4 * tokens * hidden)
    for layer in range(drafter.layers):
        yield from decoder_layer(own, shape, layer, read=None if layer else 2 * hidden)
    yield from _choice(own, shape, first)


def _mtp_pass(own: Setup, shape: PassShape, first: bool) -> Iterator[Kernel]:
    """Embedding and hidden state through one projection, whole on every rank; the layer; the choice."""
    model, tokens = own.model, shape.tokens
    yield from _embedding(own, tokens)
    yield _small(4 * tokens * model.hidden)
    yield _kernel(Gemm(tokens, model.hidden, 2 * model.hidden, model.dense_dtype))
    yield from decoder_layer(own, shape, 0)
    yield from _choice(own, shape, first)


def _embedding(own: Setup, tokens: int) -> Iterator[Kernel]:
    """Rows of a table that is cut by vocabulary: every rank has some, their sum is the embedding."""
    yield _small(2 * tokens * own.model.hidden)
    yield _allreduce(tokens, own.model.hidden, own.machine.ranks)


def _choice(own: Setup, shape: PassShape, first: bool) -> Iterator[Kernel]:
    """Logits of the positions that are gone on from, and the likeliest tokens.

    Of the first pass only the last token of each request counts.
    """
    rows = shape.requests if first else shape.own_tokens
    yield from logits(own, rows)
    if own.scenario.drafted.shape is Shape.EAGLE:
        yield _kernel(GpuKernel(GpuTask.TOP_K, rows))
    else:
        yield _small(rows * own.model.vocab)


def _kernel(work: Work) -> Kernel:
    return Kernel(Component.DRAFTER, work)


def _small(values: int) -> Kernel:
    """A small kernel that moves *values* activations."""
    return _kernel(Elementwise(ACTIVATION_BYTES * values))


def _allreduce(tokens: int, hidden: int, ranks: int) -> Kernel:
    return _kernel(AllReduce(ACTIVATION_BYTES * tokens * hidden, ranks))


def dflash_pass(setup: Setup, drafter: DFlash, shape: PassShape) -> list[Kernel]:
    """One block-diffusion forward: features in, a block of positions through all layers, LM head.

    *shape* has a block of queries for each request. Features of up to as many newly
    committed tokens are projected (columns over the ranks, then gathered) and join the
    block in the K/V projection (KV injection, arXiv 2602.06036 section 3).
    """
    ranks, tokens, hidden = setup.machine.ranks, shape.tokens, drafter.hidden
    layers = (_dflash_layer(drafter, shape, ranks) for _ in range(drafter.layers))
    return [
        _kernel(Gemm(tokens, hidden // ranks, drafter.feature_layers * hidden, drafter.dtype)),
        _kernel(AllGather(ACTIVATION_BYTES * tokens * hidden, ranks)),
        *(kernel for layer in layers for kernel in layer),
        *_dflash_head(setup.model, drafter, shape, ranks),
    ]


def _dflash_layer(drafter: DFlash, shape: PassShape, ranks: int) -> Iterator[Kernel]:
    hidden, width, dtype, tokens = drafter.hidden, drafter.intermediate // ranks, drafter.dtype, shape.tokens
    heads, kv_heads = drafter.heads // ranks, max(1, drafter.kv_heads // ranks)
    projected = (heads + 2 * kv_heads) * drafter.head_dim
    attention = GqaAttention(
        requests=shape.requests,
        queries=shape.queries,
        context=shape.context,
        window=drafter.window,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=drafter.head_dim,
        dtype=dtype,
    )
    yield _small(4 * tokens * hidden)
    yield _kernel(Gemm(2 * tokens, projected, hidden, dtype))
    yield _small(2 * tokens * projected)
    yield _kernel(attention)
    yield _kernel(Gemm(tokens, hidden, heads * drafter.head_dim, dtype))
    yield _allreduce(tokens, hidden, ranks)
    yield _small(4 * tokens * hidden)
    yield _kernel(Gemm(tokens, 2 * width, hidden, dtype))
    yield _small(3 * tokens * width)
    yield _kernel(Gemm(tokens, hidden, width, dtype))
    yield _allreduce(tokens, hidden, ranks)


def _dflash_head(model: TargetModel, drafter: DFlash, shape: PassShape, ranks: int) -> Iterator[Kernel]:
    """Final norm and the target's LM head over the predicted positions, one less than the block."""
    positions = shape.requests * (shape.queries - 1)
    yield _small(4 * positions * drafter.hidden)
    yield _kernel(Gemm(positions, model.vocab // ranks, drafter.hidden, model.head_dtype))

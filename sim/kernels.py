"""Forward passes as lists of kernels: what one TP rank runs, in order.

A ``Kernel`` is one entry in a rank's program; every rank runs the same program.
Collectives appear in it once and are shared by all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple

from hwmodels.catalog import Drafter, TargetModel
from hwmodels.roofline import ACTIVATION_BYTES, weight_bytes
from hwmodels.work import (
    AllGather,
    AllReduce,
    BatchedGemm,
    DType,
    Elementwise,
    Gemm,
    GqaAttention,
    GroupedExperts,
    MlaAttention,
    StreamContention,
    Work,
    experts_touched,
)
from sim.graph import Component
from sim.setup import Setup


class CudaStream(Enum):
    """The CUDA stream a kernel runs on."""

    MAIN = "compute"
    SIDE = "side"


class Kernel(NamedTuple):
    """One step of a rank's program.

    *launches* is how many kernels the work really is; *joins* makes a MAIN kernel
    wait for the SIDE stream. The first SIDE kernel after a MAIN one waits for it.
    """

    component: Component
    work: Work
    launches: int = 1
    stream: CudaStream = CudaStream.MAIN
    joins: bool = False


class PassShape(NamedTuple):
    """What goes through a forward pass: *requests* x *queries* tokens, each over *context* cached ones."""

    requests: int
    queries: int
    context: int

    @property
    def tokens(self) -> int:
        """Tokens in the pass (M)."""
        return self.requests * self.queries


def verify_pass(setup: Setup, shape: PassShape) -> list[Kernel]:
    """The target's forward pass: every layer, then logits on every rank."""
    kernels: list[Kernel] = []
    for layer in range(setup.model.layers):
        kernels += _attention_block(setup, shape)
        dense = layer < setup.model.dense_layers
        kernels += _dense_mlp(setup, shape.tokens) if dense else _expert_mlp(setup, shape.tokens)
    return kernels + list(_logits(setup, shape.tokens))


def _norm(setup: Setup, tokens: int) -> list[Kernel]:
    """Residual add and RMSNorm: reads and writes hidden state and residual."""
    if setup.machine.stack.overlap.fused_allreduce_norm:
        return []
    return [_small(4 * tokens * setup.model.hidden)]


def _small(values: int) -> Kernel:
    """A small kernel that moves *values* activations."""
    return Kernel(Component.SMALL_KERNELS, Elementwise(ACTIVATION_BYTES * values))


def _attention_block(setup: Setup, shape: PassShape) -> Iterator[Kernel]:
    model, ranks, tokens = setup.model, setup.machine.ranks, shape.tokens
    heads, dtype = model.heads // ranks, model.dense_dtype
    query_dim = model.nope_dim + model.rope_dim
    yield from _norm(setup, tokens)
    yield _dense(Gemm(tokens, model.q_lora + model.latent, model.hidden, dtype))
    yield _small(2 * tokens * (model.q_lora + model.latent))
    yield _dense(Gemm(tokens, heads * query_dim, model.q_lora, dtype))
    yield _dense(BatchedGemm(heads, tokens, model.kv_lora, model.nope_dim, DType.BF16))
    yield _small(2 * tokens * (heads * model.rope_dim + model.latent))
    yield Kernel(
        Component.ATTENTION,
        _mla(setup, shape, heads),
        launches=int(setup.machine.stack.dispatch.attention_kernels.value),
    )
    yield _dense(BatchedGemm(heads, tokens, model.v_dim, model.kv_lora, DType.BF16))
    yield _dense(Gemm(tokens, model.hidden, heads * model.v_dim, dtype))
    yield _allreduce(setup, tokens)


def _mla(setup: Setup, shape: PassShape, heads: int) -> MlaAttention:
    cache = setup.scenario.kv
    return MlaAttention(
        requests=shape.requests,
        queries=shape.queries,
        context=shape.context,
        heads=heads,
        latent=setup.model.latent,
        dtype=cache.dtype,
        run_tokens=cache.run_tokens,
    )


def _dense(work: Gemm | BatchedGemm) -> Kernel:
    return Kernel(Component.DENSE, work)


def _allreduce(setup: Setup, tokens: int) -> Kernel:
    size = ACTIVATION_BYTES * tokens * setup.model.hidden
    return Kernel(Component.ALLREDUCE, AllReduce(size, setup.machine.ranks))


def _dense_mlp(setup: Setup, tokens: int) -> Iterator[Kernel]:
    width = setup.model.dense_intermediate // setup.machine.ranks
    yield from _norm(setup, tokens)
    yield from _gated_mlp(setup, tokens, width)
    yield _allreduce(setup, tokens)


def _gated_mlp(setup: Setup, tokens: int, width: int) -> Iterator[Kernel]:
    """Gate and up projection, activation, down projection, *width* wide on this rank."""
    model = setup.model
    yield _dense(Gemm(tokens, 2 * width, model.hidden, model.dense_dtype))
    yield _small(3 * tokens * width)
    yield _dense(Gemm(tokens, model.hidden, width, model.dense_dtype))


def _expert_mlp(setup: Setup, tokens: int) -> Iterator[Kernel]:
    """Router and routed experts beside the shared expert, then the sum of both.

    On a stream of its own the shared expert still takes DRAM bandwidth from the
    routed ones; ``StreamContention`` charges its weight bytes to the main stream.
    """
    model = setup.model
    beside = setup.machine.stack.overlap.shared_expert_stream and model.shared_experts > 0
    yield from _norm(setup, tokens)
    shared = list(_shared_expert(setup, tokens)) if model.shared_experts else []
    if beside:
        yield from (kernel._replace(stream=CudaStream.SIDE) for kernel in shared)
    yield _dense(Gemm(tokens, model.experts, model.hidden, DType.BF16))
    yield Kernel(
        Component.EXPERTS,
        _experts(setup, tokens),
        launches=int(setup.machine.stack.dispatch.expert_kernels.value),
    )
    if beside:
        yield Kernel(Component.DENSE, StreamContention(_shared_bytes(setup)), launches=0)
    else:
        yield from shared
    if shared:
        yield _small(3 * tokens * model.hidden)._replace(joins=True)
    yield _allreduce(setup, tokens)


def _shared_width(setup: Setup) -> int:
    return setup.model.shared_experts * setup.model.expert_intermediate // setup.machine.ranks


def _shared_expert(setup: Setup, tokens: int) -> Iterator[Kernel]:
    yield from _gated_mlp(setup, tokens, _shared_width(setup))


def _shared_bytes(setup: Setup) -> int:
    model = setup.model
    return int(3 * weight_bytes(_shared_width(setup), model.hidden, model.dense_dtype))


def _experts(setup: Setup, tokens: int) -> GroupedExperts:
    model = setup.model
    touched = experts_touched(tokens, model.experts, model.top_k, setup.scenario.experts.routing_correlation)
    return GroupedExperts(
        tokens=tokens,
        touched=touched,
        experts=model.experts,
        top_k=model.top_k,
        hidden=model.hidden,
        intermediate=model.expert_intermediate // setup.machine.ranks,
        dtype=model.expert_dtype,
    )


def _logits(setup: Setup, tokens: int) -> Iterator[Kernel]:
    """Final norm, LM head slice, and the gather of the logits."""
    model, ranks = setup.model, setup.machine.ranks
    yield _small(4 * tokens * model.hidden)
    yield Kernel(Component.LM_HEAD, Gemm(tokens, model.vocab // ranks, model.hidden, DType.BF16))
    yield Kernel(Component.LM_HEAD, AllGather(ACTIVATION_BYTES * tokens * model.vocab, ranks))


def draft_pass(setup: Setup, shape: PassShape) -> list[Kernel]:
    """One block-diffusion forward: features in, a block of positions through all layers, LM head.

    *shape* has a block of queries for each request. Features of up to as many newly
    committed tokens are projected (columns over the ranks, then gathered) and join the
    block in the K/V projection (KV injection, arXiv 2602.06036 section 3).
    """
    drafter, ranks, tokens = setup.drafter, setup.machine.ranks, shape.tokens
    fuse = Gemm(tokens, drafter.hidden // ranks, drafter.feature_layers * drafter.hidden, drafter.dtype)
    gather = AllGather(ACTIVATION_BYTES * tokens * drafter.hidden, ranks)
    works: list[Work] = [fuse, gather]
    for _ in range(drafter.layers):
        works += _draft_layer(drafter, shape, ranks)
    works += _draft_head(setup.model, drafter, shape, ranks)
    return [Kernel(Component.DRAFTER, work) for work in works]


def _draft_layer(drafter: Drafter, shape: PassShape, ranks: int) -> list[Work]:
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
    return [
        _draft_small(4 * tokens * hidden),
        Gemm(2 * tokens, projected, hidden, dtype),
        _draft_small(2 * tokens * projected),
        attention,
        Gemm(tokens, hidden, heads * drafter.head_dim, dtype),
        _draft_allreduce(drafter, tokens, ranks),
        _draft_small(4 * tokens * hidden),
        Gemm(tokens, 2 * width, hidden, dtype),
        _draft_small(3 * tokens * width),
        Gemm(tokens, hidden, width, dtype),
        _draft_allreduce(drafter, tokens, ranks),
    ]


def _draft_head(model: TargetModel, drafter: Drafter, shape: PassShape, ranks: int) -> list[Work]:
    """Final norm and the target's LM head over the predicted positions, one less than the block."""
    positions = shape.requests * (shape.queries - 1)
    return [
        _draft_small(4 * positions * drafter.hidden),
        Gemm(positions, model.vocab // ranks, drafter.hidden, DType.BF16),
    ]


def _draft_small(values: int) -> Elementwise:
    return Elementwise(ACTIVATION_BYTES * values)


def _draft_allreduce(drafter: Drafter, tokens: int, ranks: int) -> AllReduce:
    return AllReduce(ACTIVATION_BYTES * tokens * drafter.hidden, ranks)

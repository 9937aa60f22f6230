"""Forward passes as lists of kernels: what one TP rank runs, in order.

A ``Kernel`` is one entry in a rank's program; every rank runs the same program.
Collectives appear in it once and are shared by all ranks.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import NamedTuple, assert_never

from hwmodels.expert_groups import busiest_group
from hwmodels.models import Gqa, LinearAttention, Mla, RoutedExperts
from hwmodels.roofline import ACTIVATION_BYTES, STATE_BYTES, weight_bytes
from hwmodels.work import (
    AllGather,
    AllReduce,
    BatchedGemm,
    DType,
    Elementwise,
    Exchange,
    Gemm,
    GqaAttention,
    GroupedExperts,
    IndexScores,
    MlaAttention,
    Pattern,
    StreamContention,
    Work,
    effective_tokens,
    experts_touched,
)
from sim.graph import Component
from sim.setup import Setup

LSE_BYTES = 4
"""A log-sum-exp in fp32."""


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
    """What goes through a forward pass: *requests* x *queries* tokens, each over *context* cached ones.

    *padding* more requests fill a captured graph. They have no cache and are routed to no expert,
    but go through every GEMM and AllReduce.
    """

    requests: int
    queries: int
    context: int
    padding: int = 0

    @property
    def own_tokens(self) -> int:
        """Tokens of requests."""
        return self.requests * self.queries

    @property
    def tokens(self) -> int:
        """Tokens in the pass (M), those that pad it included."""
        return (self.requests + self.padding) * self.queries


def verify_pass(setup: Setup, shape: PassShape) -> list[Kernel]:
    """The target's forward pass: every layer, then logits on every rank."""
    layers = (decoder_layer(setup, shape, layer) for layer in range(setup.model.layers))
    return [*(kernel for layer in layers for kernel in layer), *logits(setup, shape.tokens)]


def decoder_layer(setup: Setup, shape: PassShape, layer: int, read: int | None = None) -> Iterator[Kernel]:
    """Layer number *layer* of the model: token mixer and MLP, each with its norm and AllReduce.

    The mixer's first projection reads *read* values a token; the model's width where None.
    """
    yield from _norm(setup, shape.tokens)
    yield from _token_mixer(setup, shape, layer, read or setup.model.hidden)
    yield _allreduce(setup, shape.tokens)
    yield from _norm(setup, shape.tokens)
    yield from _mlp(setup, shape, layer)
    yield _allreduce(setup, shape.tokens)


def _norm(setup: Setup, tokens: int) -> list[Kernel]:
    """Residual add and RMSNorm: reads and writes hidden state and residual."""
    if setup.machine.stack.overlap.fused_allreduce_norm:
        return []
    return [_small(4 * tokens * setup.model.hidden)]


def _small(values: int) -> Kernel:
    """A small kernel that moves *values* activations."""
    return Kernel(Component.SMALL_KERNELS, Elementwise(ACTIVATION_BYTES * values))


def _dense(work: Gemm | BatchedGemm) -> Kernel:
    return Kernel(Component.DENSE, work)


def _attention(setup: Setup, work: Work) -> Kernel:
    """Attention itself, in as many kernels as the stack launches for it."""
    launches = int(setup.machine.stack.dispatch.attention_kernels.value)
    return Kernel(Component.ATTENTION, work, launches)


def _allreduce(setup: Setup, tokens: int) -> Kernel:
    size = ACTIVATION_BYTES * tokens * setup.model.hidden
    return Kernel(Component.ALLREDUCE, AllReduce(size, setup.machine.ranks))


def _token_mixer(setup: Setup, shape: PassShape, layer: int, read: int) -> Iterator[Kernel]:
    """Latent, grouped-query or linear attention with its projections, before the AllReduce."""
    model = setup.model
    if model.linear_attention is not None and model.is_linear(layer):
        return _delta_rule(setup, shape, model.linear_attention)
    match model.attention:
        case Mla():
            return _latent_attention(setup, shape, model.attention, read)
        case Gqa():
            return _grouped_attention(setup, shape, model.attention, read)
        case _:
            assert_never(model.attention)


def _latent_attention(setup: Setup, shape: PassShape, mla: Mla, read: int) -> Iterator[Kernel]:
    model, ranks, tokens = setup.model, setup.machine.ranks, shape.tokens
    heads, dtype = max(1, mla.heads // ranks), model.dense_dtype
    query_dim = mla.nope_dim + mla.rope_dim
    yield _dense(Gemm(tokens, mla.q_lora + mla.latent, read, dtype))
    yield _small(2 * tokens * (mla.q_lora + mla.latent))
    yield _dense(Gemm(tokens, heads * query_dim, mla.q_lora, dtype))
    yield _dense(BatchedGemm(heads, tokens, mla.kv_lora, mla.nope_dim, DType.BF16))
    yield _small(2 * tokens * (heads * mla.rope_dim + mla.latent))
    yield from _index(setup, shape, mla)
    attention = _attention(setup, _mla(setup, shape, mla, heads * setup.scenario.dcp))
    yield from _over_shards(setup, shape, attention, heads, (mla.latent, mla.kv_lora))
    yield _dense(BatchedGemm(heads, tokens, mla.v_dim, mla.kv_lora, DType.BF16))
    yield _dense(Gemm(tokens, model.hidden, heads * mla.v_dim, dtype))


def _mla(setup: Setup, shape: PassShape, mla: Mla, heads: int) -> MlaAttention:
    cache = setup.scenario.kv
    return MlaAttention(
        requests=shape.requests,
        queries=shape.queries,
        context=shape.context,
        heads=heads,
        latent=mla.latent,
        dtype=cache.dtype,
        run_tokens=cache.run_tokens,
        window=None if mla.index is None else mla.index.top_k,
        shards=setup.scenario.dcp,
    )


def _over_shards(
    setup: Setup, shape: PassShape, attention: Kernel, heads: int, values: tuple[int, int]
) -> Iterator[Kernel]:
    """*attention*; with context parallelism over the cache of one rank, and then combined.

    As vLLM does it (cp_lse_ag_out_rs): the queries of the group's ranks, *heads* of each, are
    gathered; every rank attends with all of them to its share of the cache; log-sum-exps are
    gathered, outputs corrected by them, summed and scattered. *values* are those of a head's query
    and of its output. Gathering and scattering along heads moves a tensor once more.
    """
    group, tokens = setup.scenario.dcp, shape.tokens
    if group == 1:
        yield attention
        return
    query, output = (tokens * heads * group * each for each in values)
    yield _exchange(ACTIVATION_BYTES * query, group, Pattern.GATHER)
    yield _shard_kernel(2 * query)
    yield attention
    yield _exchange(LSE_BYTES * tokens * heads * group * group, group, Pattern.GATHER)
    yield _shard_kernel(2 * output)
    yield _shard_kernel(2 * output)
    yield _exchange(ACTIVATION_BYTES * output, group, Pattern.SCATTER)


def _exchange(size_bytes: int, ranks: int, pattern: Pattern) -> Kernel:
    return Kernel(Component.ATTENTION, Exchange(size_bytes, ranks, pattern))


def _shard_kernel(values: int) -> Kernel:
    return Kernel(Component.ATTENTION, Elementwise(ACTIVATION_BYTES * values))


def _index(setup: Setup, shape: PassShape, mla: Mla) -> Iterator[Kernel]:
    """The indexer of sparse attention, whole on every rank: its projections, scores and top-k."""
    index = mla.index
    if index is None:
        return
    tokens, hidden, dtype = shape.tokens, setup.model.hidden, setup.model.dense_dtype
    yield _dense(Gemm(tokens, index.heads * index.head_dim, mla.q_lora, dtype))
    yield _dense(Gemm(tokens, index.head_dim + index.heads, hidden, dtype))
    yield _small(2 * tokens * (index.heads + 1) * index.head_dim)
    yield Kernel(
        Component.ATTENTION,
        IndexScores(
            requests=shape.requests,
            queries=shape.queries,
            context=shape.context,
            heads=index.heads,
            head_dim=index.head_dim,
            shards=setup.scenario.dcp,
        ),
        launches=2,
    )


def _grouped_attention(setup: Setup, shape: PassShape, gqa: Gqa, read: int) -> Iterator[Kernel]:
    model, ranks, tokens = setup.model, setup.machine.ranks, shape.tokens
    heads, kv_heads = max(1, gqa.heads // ranks), gqa.kv_heads_on(ranks)
    projected = ((2 if gqa.output_gate else 1) * heads + 2 * kv_heads) * gqa.head_dim
    yield _dense(Gemm(tokens, projected, read, model.dense_dtype))
    yield _small(2 * tokens * (heads + 2 * kv_heads) * gqa.head_dim)
    attention = GqaAttention(
        requests=shape.requests,
        queries=shape.queries,
        context=shape.context,
        window=None,
        heads=heads * setup.scenario.dcp,
        kv_heads=kv_heads,
        head_dim=gqa.head_dim,
        dtype=setup.scenario.kv.dtype,
        shards=setup.scenario.dcp,
    )
    yield from _over_shards(setup, shape, _attention(setup, attention), heads, (gqa.head_dim, gqa.head_dim))
    if gqa.output_gate:
        yield _small(3 * tokens * heads * gqa.head_dim)
    yield _dense(Gemm(tokens, model.hidden, heads * gqa.head_dim, model.dense_dtype))


def _delta_rule(setup: Setup, shape: PassShape, linear: LinearAttention) -> Iterator[Kernel]:
    """Projections, short convolution, the recurrence over the state, gated norm, output.

    The state is read once and kept for every position of the pass, so that a rejected
    draft can be undone.
    """
    model, ranks, tokens = setup.model, setup.machine.ranks, shape.tokens
    keys = linear.key_heads * linear.key_dim // ranks
    values = linear.value_heads * linear.value_dim // ranks
    mixed = 2 * keys + values
    states = values * linear.key_dim * (shape.requests + tokens)
    yield _dense(Gemm(tokens, mixed + values, model.hidden, model.dense_dtype))
    yield _dense(Gemm(tokens, max(1, 2 * linear.value_heads // ranks), model.hidden, model.dense_dtype))
    yield _small(mixed * (2 * tokens + linear.conv_width * shape.requests))
    yield Kernel(Component.ATTENTION, Elementwise(STATE_BYTES * states))
    yield _small(3 * tokens * values)
    yield _dense(Gemm(tokens, model.hidden, values, model.dense_dtype))


def _mlp(setup: Setup, shape: PassShape, layer: int) -> Iterator[Kernel]:
    """Dense MLP or routed experts, before the AllReduce."""
    routed = setup.model.experts
    if routed is None or layer < setup.model.dense_layers:
        return _gated_mlp(setup, shape.tokens, setup.model.dense_intermediate // setup.machine.ranks)
    return _expert_mlp(setup, shape, routed)


def _gated_mlp(setup: Setup, tokens: int, width: int) -> Iterator[Kernel]:
    """Gate and up projection, activation, down projection, *width* wide on this rank."""
    model = setup.model
    yield _dense(Gemm(tokens, 2 * width, model.hidden, model.plain_mlp_dtype))
    yield _small(3 * tokens * width)
    yield _dense(Gemm(tokens, model.hidden, width, model.plain_mlp_dtype))


def _expert_mlp(setup: Setup, shape: PassShape, routed: RoutedExperts) -> Iterator[Kernel]:
    """Router and routed experts beside the shared expert, then the sum of both.

    On a stream of its own the shared expert still takes DRAM bandwidth from the
    routed ones; ``StreamContention`` charges its weight bytes to the main stream.
    """
    model, tokens = setup.model, shape.tokens
    room = not setup.costs.experts.fills_gpu(routed.dtype)
    beside = routed.shared > 0 and room and _two_streams(setup, tokens)
    width = routed.shared * routed.intermediate // setup.machine.ranks
    shared = list(_gated_mlp(setup, tokens, width)) if routed.shared else []
    if beside:
        yield from (kernel._replace(stream=CudaStream.SIDE) for kernel in shared)
    yield _dense(Gemm(tokens, routed.count, model.hidden, DType.BF16))
    yield Kernel(
        Component.EXPERTS,
        _experts(setup, shape, routed),
        launches=int(setup.machine.stack.dispatch.expert_kernels.value),
    )
    if beside:
        moved = int(3 * weight_bytes(width, model.hidden, model.plain_mlp_dtype))
        yield Kernel(Component.DENSE, StreamContention(moved), launches=0)
    else:
        yield from shared
    if shared:
        yield _small(3 * tokens * model.hidden)._replace(joins=True)


def _two_streams(setup: Setup, tokens: int) -> bool:
    """True where the shared expert has a stream of its own in a pass of *tokens*."""
    overlap = setup.machine.stack.overlap
    most = overlap.shared_expert_stream_max_tokens
    return overlap.shared_expert_stream and (most is None or tokens <= most)


def _experts(setup: Setup, shape: PassShape, routed: RoutedExperts) -> GroupedExperts:
    """What one rank does; of several groups that share the experts out, the busiest, for which all wait."""
    asked, own = setup.scenario.experts, (routed.routing_correlation.value, routed.token_correlation.value)
    between, within = own if asked.routing_correlation is None else (asked.routing_correlation,) * 2
    effective = effective_tokens(shape.requests, shape.queries, between, within)
    touched = experts_touched(effective, routed.count, routed.top_k)
    return GroupedExperts(
        tokens=shape.own_tokens,
        touched=busiest_group(touched, routed.count, asked.ep),
        experts=routed.count,
        top_k=routed.top_k,
        hidden=setup.model.hidden,
        intermediate=routed.intermediate * asked.ep // setup.machine.ranks,
        dtype=routed.dtype,
        groups=asked.ep,
    )


def logits(setup: Setup, tokens: int) -> Iterator[Kernel]:
    """Final norm, LM head slice, and the gather of the logits."""
    model, ranks = setup.model, setup.machine.ranks
    yield _small(4 * tokens * model.hidden)
    yield Kernel(Component.LM_HEAD, Gemm(tokens, model.vocab // ranks, model.hidden, model.head_dtype))
    yield Kernel(Component.LM_HEAD, AllGather(ACTIVATION_BYTES * tokens * model.vocab, ranks))

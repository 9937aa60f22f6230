"""The vocabulary of work: what a device, a link or a host can be asked to do.

The simulator costs these objects and the microbenchmarks measure them, so the
same frozen value is the key on both sides. Sizes are per TP rank unless named
otherwise; bytes are bytes, tokens are tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum
from typing import Self


class DType(Enum):
    """Storage type of weights or cache."""

    BF16 = "bfloat16"
    FP8 = "fp8"
    FP8_BLOCK = "fp8_block"
    INT4 = "int4_wo"
    NVFP4 = "nvfp4"
    AWQ_INT4 = "awq_int4"
    Q4_K_M = "q4_k_m"


BITS_PER_VALUE = {
    DType.BF16: 16.0,
    DType.FP8: 8.0,
    DType.FP8_BLOCK: 8.0,
    # 4-bit values plus one 16-bit scale per group of 32 (Kimi K2.x checkpoints).
    DType.INT4: 4.5,
    # 4-bit values plus one 8-bit scale per group of 16.
    DType.NVFP4: 4.5,
    # 4-bit values plus a 16-bit scale and a 4-bit zero point per group of 128 (AWQ checkpoints).
    DType.AWQ_INT4: 4.0 + 20 / 128,
    # llama.cpp's mix of Q4_K blocks (144 bytes for 256 values, 4.5 bits) and Q6_K ones (210 bytes, 6.5625),
    # the latter for the LM head and half of the value and down projections: about 4.85 bits in the mean.
    DType.Q4_K_M: 4.85,
}


class CopyDirection(Enum):
    """Which way a copy crosses the host link."""

    TO_HOST = "to_host"
    TO_DEVICE = "to_device"


class HostTask(Enum):
    """What the CPU does between launches."""

    SCHEDULE = "schedule"
    TREE_DISPATCH = "tree_dispatch"
    TREE_BUILD = "tree_build"
    TREE_MASK = "tree_mask"
    SYNCHRONISE = "synchronise"
    HAND_OVER = "hand_over"
    DRAFT_PASS = "draft_pass"


class GpuTask(Enum):
    """Small kernels whose time is a figure of the stack, not a function of a size."""

    TOP_K = "top_k"
    TREE_BUILD = "tree_build"
    TREE_ACCEPT = "tree_accept"
    TREE_SELECT = "tree_select"
    """The nodes of an EAGLE tree, chosen among its candidates and put together."""
    LOOSE = "loose"
    """Kernels outside graphs that move next to nothing."""


@dataclass(frozen=True, slots=True)
class Gemm:
    """A dense (m x k) . (k x n) product; m is tokens, n and k are this rank's weight slice."""

    m: int
    n: int
    k: int
    dtype: DType


@dataclass(frozen=True, slots=True)
class BatchedGemm:
    """*batch* independent (m x k) . (k x n) products, such as MLA's per-head absorption."""

    batch: int
    m: int
    n: int
    k: int
    dtype: DType


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupedExperts:
    """One routed-expert layer on one rank: top-k, gate-up, activation, down, combine.

    *touched* is the number of distinct experts of this rank that *tokens* reach; with expert
    parallelism a rank holds those of one of *groups*.
    """

    tokens: int
    touched: float
    experts: int
    top_k: int
    hidden: int
    intermediate: int
    dtype: DType
    groups: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaAttention:
    """Latent attention of *requests* x *queries* tokens, each request over *context* tokens.

    *latent* is values per cached token (512 + 64 for Kimi); every TP rank reads the
    whole cache, or with context parallelism its one of *shards*. *run_tokens* is how many cached
    tokens lie contiguously in memory.
    """

    requests: int
    queries: int
    context: int
    heads: int
    latent: int
    dtype: DType
    run_tokens: int
    window: int | None = None
    """Cached tokens that each query attends to at most (sparse attention)."""
    shards: int = 1

    @property
    def seen(self) -> int:
        """Cached tokens on this rank that each query attends to."""
        return _seen(self.context, self.window, self.shards)

    def at_context(self, context: int) -> Self:
        """The same work over another *context*."""
        return replace(self, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class GqaAttention:
    """Grouped-query attention of *requests* x *queries* tokens over the last *window* of *context*.

    With context parallelism over this rank's one of *shards* of it.
    """

    requests: int = 1
    queries: int
    context: int
    window: int | None
    heads: int
    kv_heads: int
    head_dim: int
    dtype: DType
    shards: int = 1

    @property
    def seen(self) -> int:
        """Cached tokens on this rank that each query attends to."""
        return _seen(self.context, self.window, self.shards)

    def at_context(self, context: int) -> Self:
        """The same work over another *context*."""
        return replace(self, context=context)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexScores:
    """Scores of *requests* x *queries* tokens against every cached index key (fp8, scaled), and top-k."""

    requests: int
    queries: int
    context: int
    heads: int
    head_dim: int
    shards: int = 1

    @property
    def seen(self) -> int:
        """Index keys on this rank."""
        return _seen(self.context, None, self.shards)

    def at_context(self, context: int) -> Self:
        """The same work over another *context*."""
        return replace(self, context=context)


@dataclass(frozen=True, slots=True)
class AllReduce:
    """Sum a message of *size_bytes* over *ranks* GPUs."""

    size_bytes: int
    ranks: int


@dataclass(frozen=True, slots=True)
class AllGather:
    """Gather *size_bytes* in total, one slice from each of *ranks* GPUs."""

    size_bytes: int
    ranks: int


class Pattern(Enum):
    """What ranks exchange."""

    GATHER = "all-gather"
    SCATTER = "reduce-scatter"


@dataclass(frozen=True, slots=True)
class Exchange:
    """*size_bytes* in total gathered from, or summed over and scattered to, groups of *ranks* GPUs.

    All groups of the node at once: the collectives of context parallelism.
    """

    size_bytes: int
    ranks: int
    pattern: Pattern


@dataclass(frozen=True, slots=True)
class Elementwise:
    """A kernel that moves *size_bytes* through DRAM in all: norms, rotary, activation."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class StreamContention:
    """*size_bytes* that a second stream reads meanwhile and this stream therefore cannot."""

    size_bytes: int


@dataclass(frozen=True, slots=True)
class GpuKernel:
    """One of the small kernels in GpuTask, over *items* rows or nodes."""

    task: GpuTask
    items: int


@dataclass(frozen=True, slots=True)
class Copy:
    """*size_bytes* between host and device."""

    size_bytes: int
    direction: CopyDirection


@dataclass(frozen=True, slots=True)
class HostWork:
    """CPU work of one kind over *items* (heap operations, tree nodes; 1 where it does not scale)."""

    task: HostTask
    items: int


@dataclass(frozen=True, slots=True)
class GraphLaunch:
    """Replay of a captured CUDA graph of *nodes* kernels."""

    nodes: int


@dataclass(frozen=True, slots=True)
class EagerLaunch:
    """*kernels* launched one by one from Python; *collective* for a communication call."""

    kernels: int
    collective: bool


@dataclass(frozen=True, slots=True)
class LooseLaunch:
    """*kernels* launched between two graphs, each with the Python around it: samplers, indices, copies."""

    kernels: int


@dataclass(frozen=True, slots=True)
class Prefill:
    """A prompt's forward pass, kernel after kernel, while the host launches one after another.

    Works with how often each occurs; prompts have as many lengths as users, so no graph is captured.
    """

    kernels: tuple[tuple[Work, int], ...]
    host: tuple[HostWork | EagerLaunch, ...]


@dataclass(frozen=True, slots=True)
class Barrier:
    """No work: a point that waits for others."""


ContextWork = MlaAttention | GqaAttention | IndexScores
GpuWork = (
    Gemm
    | BatchedGemm
    | GroupedExperts
    | MlaAttention
    | GqaAttention
    | IndexScores
    | Elementwise
    | StreamContention
    | GpuKernel
)
LinkWork = AllReduce | AllGather | Exchange
HostSideWork = Copy | HostWork | GraphLaunch | EagerLaunch | LooseLaunch | Barrier
Work = GpuWork | LinkWork | HostSideWork | Prefill


def _seen(context: int, window: int | None, shards: int) -> int:
    """Cached tokens that a query attends to on the rank that holds most of them."""
    whole = context if window is None else min(context, window)
    return -(-whole // shards)


def effective_tokens(requests: int, queries: int, between: float, within: float) -> float:
    """As how many independent tokens those of *requests* with *queries* each route.

    Tokens of different requests are alike by *between* (rho of ``experts_touched``: popular
    experts), those of one request by *within*. Queries of a single request count as
    ``1 + (queries - 1) (1 - within)``, single tokens of requests as ``1 + (requests - 1) (1 - between)``.
    """
    if not 0 <= between <= within <= 1:
        raise ValueError(f"need 0 <= between <= within <= 1, got {between} and {within}")
    if between == 1:
        return 1.0
    one_request = 1.0 + (queries - 1) * (1.0 - within) / (1.0 - between)
    return 1.0 + (requests * one_request - 1.0) * (1.0 - between)


def experts_touched(tokens: float, experts: int, top_k: int, routing_correlation: float = 0.0) -> float:
    """Expected distinct experts that *tokens* tokens reach.

    ``E * (1 - (1 - k/E) ** M_eff)``, ``M_eff = 1 + (M - 1) * (1 - rho)``: independent
    uniform routing (MoESD, arXiv 2505.19645) with one correlation parameter *rho* in
    [0, 1]; rho near 0.44 follows from Cohere's batch-4 measurement on 128 experts.
    """
    if not tokens >= 0:
        raise ValueError(f"tokens must be >= 0, got {tokens}")
    if not 0 < top_k <= experts:
        raise ValueError(f"top_k must be in [1, {experts}], got {top_k}")
    if not 0 <= routing_correlation <= 1:
        raise ValueError(f"routing_correlation must be in [0, 1], got {routing_correlation}")
    effective = min(tokens, 1.0 + (tokens - 1.0) * (1.0 - routing_correlation))
    if effective == tokens == 0:
        return 0.0
    return float(experts * (1.0 - (1.0 - top_k / experts) ** effective))

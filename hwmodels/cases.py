"""What a microbenchmark can measure: an op and its sizes, as a measured file writes them.

A case is the file's side of ``hwmodels.work``: its sizes are those of one TP rank, units
are in the names where a size is no plain count. Two points of a file with the same case
and series would be the same measurement.
"""

from __future__ import annotations

from enum import Enum, StrEnum
from typing import Annotated, Literal

from pydantic import Field

from hwmodels.documents import Strict
from hwmodels.work import (
    CopyDirection,
    DType,
    Elementwise,
    Gemm,
    GpuWork,
    GroupedExperts,
    MlaAttention,
    experts_touched,
)


class Op(StrEnum):
    """What was timed. Strings, for only those can tell the members of a union apart in JSON."""

    EXPERTS = "experts"
    MLA = "mla"
    GEMM = "gemm"
    NORM = "norm"
    TOP_K = "top_k"
    TREE_BUILD = "tree_build"
    TREE_ACCEPT = "tree_accept"
    ALLREDUCE = "allreduce"
    ALLREDUCE_STANDIN = "allreduce_standin"
    DEVICE_COPY = "device_copy"
    HOST_COPY = "host_copy"
    GRAPH_LAUNCH = "graph_launch"
    GRAPH_REPLAY = "graph_replay"
    EMPTY_KERNEL = "empty_kernel"
    EMPTY_INTERVAL = "empty_interval"


class AllReduceAlgorithm(Enum):
    """How an AllReduce kernel moves its message."""

    ONE_SHOT = "one_shot"
    TWO_SHOT = "two_shot"


LARGEST = 2**53
"""What a size may be at most: up to here every whole number is a float too."""
Size = Annotated[int, Field(ge=1, le=LARGEST)]


class Experts(Strict):
    """One routed-expert layer over *tokens*, whose experts a fresh uniform router draws for each sample."""

    op: Literal[Op.EXPERTS] = Op.EXPERTS
    tokens: Size
    experts: Size
    top_k: Size
    hidden: Size
    intermediate: Size
    dtype: DType


class Mla(Strict):
    """Latent attention of *requests* x *queries* tokens, the queries of a request masked as a tree."""

    op: Literal[Op.MLA] = Op.MLA
    requests: Size
    queries: Size
    context_tokens: int = Field(ge=0, le=LARGEST)
    heads: Size
    latent: Size
    dtype: DType
    """Of the cache."""


class DenseGemm(Strict):
    """A dense (tokens x k) . (k x n) product."""

    op: Literal[Op.GEMM] = Op.GEMM
    tokens: Size
    n: Size
    k: Size
    dtype: DType


class Norm(Strict):
    """Residual add and RMSNorm: hidden state and residual are read and written."""

    op: Literal[Op.NORM] = Op.NORM
    tokens: Size
    hidden: Size

    @property
    def moved_bytes(self) -> int:
        """Bytes read and written, activations of two bytes."""
        return 2 * 4 * self.tokens * self.hidden


class TopK(Strict):
    """The *k* largest of each row of logits over this rank's slice of the vocabulary."""

    op: Literal[Op.TOP_K] = Op.TOP_K
    rows: Size
    vocabulary: Size
    k: Size


class TreeBuild(Strict):
    """A draft tree of *nodes* built from *candidates* at each of *positions*."""

    op: Literal[Op.TREE_BUILD] = Op.TREE_BUILD
    nodes: Size
    positions: Size
    candidates: Size


class TreeAccept(Strict):
    """The greedy walk down a verified tree of *tokens*, its root included."""

    op: Literal[Op.TREE_ACCEPT] = Op.TREE_ACCEPT
    tokens: Size


class Reduce(Strict):
    """A sum of *message_bytes* over *ranks* GPUs; the slowest rank counts."""

    op: Literal[Op.ALLREDUCE] = Op.ALLREDUCE
    message_bytes: Size
    ranks: int = Field(ge=2, le=LARGEST)
    algorithm: AllReduceAlgorithm


class ReduceStandin(Strict):
    """The same sum with all *ranks* on one GPU: it crosses no link and says nothing about one."""

    op: Literal[Op.ALLREDUCE_STANDIN] = Op.ALLREDUCE_STANDIN
    message_bytes: Size
    ranks: int = Field(ge=2, le=LARGEST)
    algorithm: AllReduceAlgorithm


class DeviceCopy(Strict):
    """*size_bytes* read and written in device memory."""

    op: Literal[Op.DEVICE_COPY] = Op.DEVICE_COPY
    size_bytes: Size


class HostCopy(Strict):
    """*size_bytes* between pinned host memory and the device, with what the host takes to ask for it."""

    op: Literal[Op.HOST_COPY] = Op.HOST_COPY
    size_bytes: Size
    direction: CopyDirection


class GraphLaunch(Strict):
    """What the host spends on replaying a graph of *nodes* empty kernels: the call alone, from Python."""

    op: Literal[Op.GRAPH_LAUNCH] = Op.GRAPH_LAUNCH
    nodes: Size


class GraphReplay(Strict):
    """What the GPU spends on a graph of *nodes* empty kernels."""

    op: Literal[Op.GRAPH_REPLAY] = Op.GRAPH_REPLAY
    nodes: Size


class EmptyKernel(Strict):
    """A kernel that does nothing."""

    op: Literal[Op.EMPTY_KERNEL] = Op.EMPTY_KERNEL


class EmptyInterval(Strict):
    """Nothing between the two events."""

    op: Literal[Op.EMPTY_INTERVAL] = Op.EMPTY_INTERVAL


AnyCase = (
    Experts
    | Mla
    | DenseGemm
    | Norm
    | TopK
    | TreeBuild
    | TreeAccept
    | Reduce
    | ReduceStandin
    | DeviceCopy
    | HostCopy
    | GraphLaunch
    | GraphReplay
    | EmptyKernel
    | EmptyInterval
)
Case = Annotated[AnyCase, Field(discriminator="op")]

OrderKey = tuple[int | str, ...]


def sizes(case: AnyCase) -> dict[str, int | str]:
    """The sizes of *case* by name, in the order in which files write them; enums as their values."""
    values = ((name, getattr(case, name)) for name in type(case).model_fields if name != "op")
    return {name: value.value if isinstance(value, Enum) else value for name, value in values}


def order_of(case: AnyCase) -> OrderKey:
    """Cases sort by op (in the order of ``Op``), then size by size in the order of the fields."""
    return (list(Op).index(case.op), *sizes(case).values())


def words(case: AnyCase) -> str:
    """*case* in one line: ``experts tokens=9 experts=384 ...``."""
    return " ".join([case.op.value, *(f"{name}={value}" for name, value in sizes(case).items())])


def work_of(case: AnyCase) -> GpuWork | None:
    """The work that *case* measures, where bytes and flops say what it needs."""
    match case:
        case Experts():
            touched = experts_touched(case.tokens, case.experts, case.top_k)
            return GroupedExperts(touched=touched, **case.model_dump(exclude={"op"}))
        case Mla():
            context, others = case.context_tokens, case.model_dump(exclude={"op", "context_tokens"})
            return MlaAttention(context=context, run_tokens=max(1, context), **others)
        case DenseGemm():
            return Gemm(case.tokens, case.n, case.k, case.dtype)
        case Norm():
            return Elementwise(case.moved_bytes)
        case _:
            return None

"""Software stacks: which kernels a serving engine runs, what its host side costs, what it overlaps."""

from __future__ import annotations

from enum import Enum
from typing import Self

from pydantic import Field, model_validator

from hwmodels.captured import Captured
from hwmodels.documents import Strict
from hwmodels.entry import Entry, Figure
from hwmodels.estimate import Source
from hwmodels.work import DType


class QueryScaling(Enum):
    """How an attention kernel's time grows with the queries of one request."""

    SHARED = "shared"
    """KV is read once per tile of queries."""
    REREAD = "reread"
    """Every query after the first reads the KV again, at *reread_gb_s*."""
    AS_BATCH = "as_batch"
    """Every query is served like a request of its own."""


class Selector(Strict):
    """Rows of a measured table: framework, version and kernel, for some GPUs."""

    gpus: tuple[str, ...]
    framework: str
    version: str
    kernel: str


class ExpertKernel(Selector):
    """The grouped expert GEMM a stack runs for one weight type."""

    dtype: DType
    fills_gpu: bool = False
    """True where its blocks take every SM and its shared memory until it ends, so that nothing runs beside
    it: Marlin gives each SM one stripe of the work (IST-DASLab/marlin, arXiv 2408.11743)."""


class AttentionKernel(Selector):
    """A decode attention kernel that a stack runs, and how it scales with queries."""

    query_scaling: QueryScaling
    scaling_source: Source
    """What the scaling itself rests on; the table is measured with one query."""
    scaling_ref: str
    reread_gb_s: Figure | None = None
    tile_rows: int = Field(default=64, ge=1)
    """Rows (heads of one cache x queries) that one pass over the KV serves, for ``shared``."""
    serial_us_per_1k_context: Figure | None = None
    """Where the table's growth with context is another build's: what each request's longest block of
    threads takes per 1,000 cached tokens, on top of the bytes of the whole batch."""


class AllReduceCutoff(Strict):
    """A size from which an engine hands AllReduces of *ranks* GPUs to another kernel, such as NCCL's.

    Its measured rows are of whatever ran, so times are not interpolated across it.
    """

    ranks: int = Field(ge=2)
    from_bytes: int = Field(ge=1)
    ref: str = Field(min_length=3)


class AllReduceChoice(Strict):
    """The AllReduce algorithms a stack uses on one fabric."""

    fabrics: tuple[str, ...]
    framework: str | None = None
    """The engine the kernels come from; None for libraries that any engine calls, such as NCCL."""
    large: str
    small: str | None = None
    """Used up to the interconnect's small-message limit, where given."""
    cutoffs: tuple[AllReduceCutoff, ...] = ()
    """Where the engine goes over to other kernels inside the rows of *large*."""

    def cutoff_bytes(self, ranks: int) -> int | None:
        """From how many bytes on other kernels run on *ranks* GPUs."""
        found = [cutoff.from_bytes for cutoff in self.cutoffs if cutoff.ranks == ranks]
        return found[0] if found else None


class QuantisedGemm(Strict):
    """Dense kernels of a stack for weights that no table has: what they reach of the datasheet."""

    dtypes: tuple[DType, ...]
    bandwidth_share: Figure
    """Of the datasheet's memory bandwidth, with one token."""
    serial: bool
    """True where a tile is read and multiplied one after the other: both times add up."""


class CaptureLimit(Strict):
    """A size beyond which the stack cannot capture a CUDA graph on some GPUs."""

    compute_capability: str
    max_tree_budget: int
    ref: str


class Dispatch(Strict):
    """What the Python (or C++) side of a step costs."""

    graphs: bool
    graph_launch_fixed_us: Figure
    graph_launch_us_per_node: Figure
    eager_launch_us: Figure
    eager_collective_launch_us: Figure
    loose_launch_us: Figure
    """A kernel launched between two graphs, with the Python around it."""
    schedule_us: Figure
    """Scheduling, input preparation and output handling of one step with one request."""
    request_us: Figure
    """The same for every further request."""
    tree_dispatch_us: Figure
    """Dispatch of the top-k and tree section."""
    tree_fixed_us: Figure
    """Tree build beyond heap and mask: tensor to Python and back."""
    copy_latency_us: Figure
    """One copy between host and device, beyond its bytes."""
    synchronise_us: Figure
    """What the host loses at a point where it waits for the GPU."""
    top_k_us: Figure
    gpu_tree_us_per_node: Figure
    """Tree build as a GPU kernel, where the scenario asks for it."""
    captured: Captured
    capture_limits: tuple[CaptureLimit, ...] = ()
    expert_kernels: Figure
    """Kernels launched for one routed-expert layer."""
    attention_kernels: Figure
    """Kernels launched for one attention."""


class DraftGraphs(Enum):
    """How the passes of a sequential drafter (EAGLE, MTP) are captured."""

    PER_PASS = "per_pass"
    """A graph for every pass, with Python in between."""
    FIRST_AND_REST = "first_and_rest"
    """A graph for the pass after the verification, one for all others."""
    ONE = "one"
    """All passes in one graph."""


class DraftCosts(Strict):
    """What a chain, or a sequential drafter's tree, costs beside the kernels of its passes."""

    graphs: DraftGraphs
    passes_in_schedule: int = Field(ge=0)
    """Passes whose Python ``schedule_us`` holds already, for it was measured with them."""
    pass_us: Figure
    """Python of each pass beyond those: metadata, inputs, sampling."""
    loose_kernels: Figure
    """Small kernels of a step that are launched one by one, beyond those of acceptance."""
    tree_us: Figure
    """GPU time to choose the nodes of an EAGLE tree among all candidates, and to build it."""


class BlockSchedule(Enum):
    """When the host prepares a step that drafts a chain with a block drafter."""

    BEFORE = "before"
    """When it has the results of the last one, while the GPU waits."""
    BESIDE_VERIFY = "beside_verify"
    """While the last one is verified; it waits for the draft before it launches the verification."""
    AHEAD = "ahead"
    """While the last one runs: it waits for nothing."""


class Overlap(Strict):
    """What this stack runs at the same time."""

    shared_expert_stream: bool
    """Shared expert on a second stream beside router and routed experts."""
    shared_expert_stream_max_tokens: int | None = Field(default=None, ge=0)
    """Passes of more tokens keep to one stream."""
    fused_allreduce_norm: bool
    """Residual add and RMSNorm inside the AllReduce kernel."""
    schedule_ahead: bool
    """In plain decoding the host prepares the next step while the GPU runs this one."""
    speculative_schedule_ahead: bool
    """A stack that schedules ahead does so with chains of a sequential drafter too; trees are waited for."""
    block_schedule: BlockSchedule
    """When it prepares a step with a chain of a block drafter."""
    exposed_us: Figure | None = None
    """Host time between two steps that nothing hides, although the stack schedules ahead."""
    programmatic_launch_us: Figure | None = None
    """What programmatic dependent launch takes off the gap before every kernel, where the stack uses it."""
    ref: str


class KvMemory(Strict):
    """What a stack leaves of a GPU's memory for the attention cache, and in what portions it hands it out."""

    fraction: Figure
    """Of a GPU's memory: weights, workspaces and cache together."""
    workspace_gib: Figure
    """Of that, what is neither weights nor cache: activations, communication buffers, graphs."""
    block_tokens: int = Field(ge=1)
    """Cached tokens that are allocated together."""
    ref: str
    """Where the size of a block is stated."""

    @model_validator(mode="after")
    def _is_a_fraction(self) -> Self:
        if not self.fraction.value <= 1:
            raise ValueError(f"fraction must be at most 1, got {self.fraction.value}")
        return self


class Stack(Entry):
    """A serving engine: its kernels, its host costs, its cache and what it overlaps."""

    framework: str
    """The ``framework`` column of rows measured in this engine; other rows are carried over."""
    experts: tuple[ExpertKernel, ...]
    attention: tuple[AttentionKernel, ...]
    """For latent attention."""
    grouped_attention: tuple[AttentionKernel, ...] = ()
    """For grouped-query attention: the first that was measured with a shape serves it."""
    allreduce: tuple[AllReduceChoice, ...]
    quantised_gemm: tuple[QuantisedGemm, ...] = ()
    dispatch: Dispatch
    drafting: DraftCosts
    memory: KvMemory
    overlap: Overlap

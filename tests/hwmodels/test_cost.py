"""Laws of the cost model, over every shipped GPU with each stack and each fabric that fits it."""

import math
from collections import defaultdict
from dataclasses import replace
from itertools import pairwise
from statistics import mean
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels import catalog, tables
from hwmodels.catalog import Kind
from hwmodels.cost import CostModel
from hwmodels.entry import Figure
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound, Source, weakest
from hwmodels.machine import Machine
from hwmodels.stacks import AttentionKernel
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
    CopyDirection,
    DType,
    EagerLaunch,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GpuWork,
    GqaAttention,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    MlaAttention,
    StreamContention,
    Work,
)

PCIE = ("pcie5_nccl", "pcie5_p2p_one_socket", "pcie5_dual_socket", "pcie5_dual_socket_tuned")
FABRICS = {
    "b200_sxm": ("nvlink5",),
    "b300_sxm": ("nvlink5",),
    "gb200": ("nvlink5",),
    "h100_sxm": ("nvlink4",),
    "h200_sxm": ("nvlink4",),
    "rtx_pro_6000_server": PCIE,
}
Works = st.SearchStrategy[Any]
Segment = tuple[CostModel, int, int, int]


def machine(gpu: str, fabric: str, stack: str, expert_kernel: str | None = None) -> Machine:
    host = "epyc_dual" if fabric in PCIE else "xeon_dual"
    parts = (catalog.interconnect(fabric), catalog.host(host), catalog.stack(stack))
    return Machine(catalog.gpu(gpu), 8, *parts, expert_kernel)


MODELS = [
    CostModel(machine(gpu, fabric, stack))
    for gpu, fabrics in FABRICS.items()
    for fabric in fabrics
    for stack in catalog.names(Kind.STACK)
]
B300 = CostModel(machine("b300_sxm", "nvlink5", "sglang"))
H200 = CostModel(machine("h200_sxm", "nvlink4", "sglang"))
PRO_6000 = CostModel(machine("rtx_pro_6000_server", "pcie5_dual_socket", "sglang"))
PRO_6000_VLLM = CostModel(machine("rtx_pro_6000_server", "pcie5_nccl", "vllm"))
PRO_6000_NATIVE = CostModel(machine("rtx_pro_6000_server", "pcie5_p2p_one_socket", "native"))

BARE = [
    CostModel(machine(gpu, "pcie4_two_gpus", stack))
    for gpu in ("rtx_3090", "rtx_a6000")
    for stack in ("vllm", "sglang", "lucebox")
]
"""GPUs that no table knows."""

models = st.sampled_from(MODELS)
bare = st.sampled_from(BARE)
few = st.integers(1, 200)
many = st.integers(1, 300_000)
sizes_bytes = st.integers(1, 2**26)

GEMMS: Works = st.builds(
    Gemm,
    m=few,
    n=st.integers(1, 60_000),
    k=st.integers(1, 20_000),
    dtype=st.sampled_from([DType.BF16, DType.FP8_BLOCK]),
)
BATCHED: Works = st.builds(BatchedGemm, batch=few, m=few, n=few, k=few, dtype=st.just(DType.BF16))
EXPERTS: Works = st.builds(
    GroupedExperts,
    tokens=few,
    touched=st.floats(0, 400),
    experts=st.sampled_from([128, 384]),
    top_k=st.integers(1, 8),
    hidden=st.sampled_from([4096, 7168]),
    intermediate=st.sampled_from([128, 256]),
    dtype=st.just(DType.INT4),
)
MLA: Works = st.builds(
    MlaAttention,
    requests=few,
    queries=few,
    context=many,
    heads=st.sampled_from([8, 16]),
    latent=st.just(576),
    dtype=st.just(DType.BF16),
    run_tokens=st.integers(1, 4096),
)
GQA: Works = st.builds(
    GqaAttention,
    requests=few,
    queries=few,
    context=many,
    window=st.integers(1, 4096),
    heads=few,
    kv_heads=few,
    head_dim=st.sampled_from([64, 96, 128, 256]),
    dtype=st.just(DType.BF16),
)
ELEMENTWISE: Works = st.builds(Elementwise, sizes_bytes)
CONTENTION: Works = st.builds(StreamContention, sizes_bytes)
KERNELS: Works = st.builds(GpuKernel, st.sampled_from(GpuTask), few)
UNMEASURED_RANKS = st.sampled_from([3, 5, 6, 16])
CLOSED_FORM: Works = st.builds(AllReduce, sizes_bytes, UNMEASURED_RANKS)
REDUCES: Works = st.builds(AllReduce, st.integers(0, 2**26), st.integers(1, 16))
GATHERS: Works = st.builds(AllGather, sizes_bytes, st.integers(1, 16))
COPIES: Works = st.builds(Copy, sizes_bytes, st.sampled_from(CopyDirection))
GRAPHS: Works = st.builds(GraphLaunch, few)
EAGER: Works = st.builds(EagerLaunch, few, st.booleans())
# Not what lies between two steps: few stacks have a figure for it.
HOST: Works = st.builds(HostWork, st.sampled_from([t for t in HostTask if t is not HostTask.HAND_OVER]), few)
ON_BARE: Works = st.one_of(
    st.builds(Gemm, m=few, n=few, k=few, dtype=st.sampled_from([DType.BF16, DType.INT4])),
    BATCHED,
    EXPERTS,
    MLA,
    GQA,
    ELEMENTWISE,
)
ON_GPU: Works = st.one_of(GEMMS, BATCHED, EXPERTS, MLA, GQA, ELEMENTWISE, CONTENTION, KERNELS)
ANY: Works = st.one_of(ON_GPU, REDUCES, GATHERS, COPIES, GRAPHS, EAGER, HOST, st.just(Barrier()))

GROWING = {
    "gemm": (GEMMS, "m n k"),
    "batched_gemm": (BATCHED, "batch m n k"),
    "experts": (EXPERTS, "touched tokens hidden intermediate"),
    "mla": (MLA, "context queries requests"),
    # Not its kv_heads: smaller groups of heads fill fewer tiles.
    "gqa": (GQA, "context queries window heads requests"),
    "elementwise": (ELEMENTWISE, "size_bytes"),
    "contention": (CONTENTION, "size_bytes"),
    "allreduce": (CLOSED_FORM, "size_bytes"),
    "allgather": (GATHERS, "size_bytes ranks"),
    "copy": (COPIES, "size_bytes"),
    "graph_launch": (GRAPHS, "nodes"),
    "eager_launch": (EAGER, "kernels"),
    "host": (HOST, "items"),
}
LAWS = [
    pytest.param(works, size, id=f"{kind}.{size}")
    for kind, (works, sizes) in GROWING.items()
    for size in sizes.split()
]


def on_gpu(model: CostModel) -> list[AttentionKernel]:
    """The kernels of the stack for latent attention on this GPU."""
    gpu = model.machine.gpu.measured_as
    return [kernel for kernel in model.machine.stack.attention if gpu in kernel.gpus]


def seconds(model: CostModel, work: Work) -> float:
    return model.estimate(work).seconds


def achieved(model: CostModel) -> float:
    """Bytes per second that dense kernels reach."""
    return model.machine.gpu.achieved_bandwidth_gb_s.value * 1e9


def at_least(value: float) -> float:
    """*value* less what rounding may take."""
    return value * (1 - 1e-12)


def kimi_experts(tokens: int, touched: float, dtype: DType = DType.INT4) -> GroupedExperts:
    sizes = {"experts": 384, "top_k": 8, "hidden": 7168, "intermediate": 256}
    return GroupedExperts(tokens=tokens, touched=touched, dtype=dtype, **sizes)


def attention(requests: int, queries: int, context: int, run_tokens: int = 2**20) -> MlaAttention:
    sizes = {"requests": requests, "queries": queries, "context": context, "run_tokens": run_tokens}
    return MlaAttention(heads=8, latent=576, dtype=DType.BF16, **sizes)


def grouped(requests: int, queries: int, context: int, dtype: DType = DType.BF16) -> GqaAttention:
    """Attention of Qwen3-8B on one GPU."""
    sizes = {"requests": requests, "queries": queries, "context": context}
    return GqaAttention(window=None, heads=32, kv_heads=8, head_dim=128, dtype=dtype, **sizes)


@pytest.mark.parametrize(("works", "size"), LAWS)
@given(data=st.data(), model=models, growth=st.integers(1, 10_000))
def test_no_estimate_falls_as_a_size_grows(
    works: Works, size: str, data: st.DataObject, model: CostModel, growth: int
) -> None:
    work = data.draw(works)
    larger = replace(work, **{size: getattr(work, size) + growth})
    assert seconds(model, larger) >= at_least(seconds(model, work))


@given(models, ANY)
def test_every_estimate_is_finite_and_names_its_evidence(model: CostModel, work: Work) -> None:
    estimate = model.estimate(work)
    assert 0 <= estimate.seconds < math.inf
    assert 0 <= estimate.spread < math.inf
    assert isinstance(estimate.source, Source)
    assert isinstance(estimate.bound, Bound)
    assert estimate.evidence


@given(models, ON_GPU)
def test_no_estimate_undercuts_the_datasheet(model: CostModel, work: Any) -> None:
    assert seconds(model, work) >= at_least(model.floor_seconds(work))


@given(models, MLA, st.integers(1, 10_000))
def test_a_fragmented_cache_is_never_faster(model: CostModel, work: MlaAttention, growth: int) -> None:
    whole = replace(work, run_tokens=work.run_tokens + growth)
    assert seconds(model, work) >= at_least(seconds(model, whole))


@given(models, sizes_bytes)
def test_one_rank_has_nothing_to_send(model: CostModel, size: int) -> None:
    assert seconds(model, AllReduce(size, 1)) == seconds(model, AllGather(size, 1)) == 0


@given(models, st.integers(1, 16))
def test_an_empty_message_costs_nothing(model: CostModel, ranks: int) -> None:
    assert seconds(model, AllReduce(0, ranks)) == seconds(model, AllGather(0, ranks)) == 0


def algorithm(model: CostModel, size: int) -> str:
    link = model.machine.interconnect
    choice = next(c for c in model.machine.stack.allreduce if link.fabric in c.fabrics)
    small = choice.small if size <= link.small_message_algorithm_max_bytes.value else None
    return small or choice.large


def measured(model: CostModel, ranks: int) -> dict[int, float]:
    """Published mean us by message bytes, each from the algorithm that is used at that size."""
    link, gpu = model.machine.interconnect, model.machine.gpu.measured_as
    rows = [r for r in tables.rows("allreduce") if (r["fabric"], r["ranks"]) == (link.fabric, str(ranks))]
    own = [r for r in rows if r["gpu"] == gpu] or [r for r in rows if r["gpu"] == min(r["gpu"] for r in rows)]
    found: dict[int, list[float]] = defaultdict(list)
    for row in own:
        if row["algorithm"] == algorithm(model, int(row["message_bytes"])):
            found[int(row["message_bytes"])].append(float(row["latency_us"]))
    return {size: mean(found[size]) for size in sorted(found)}


def segments() -> list[Segment]:
    """Neighbouring measured sizes of one algorithm, for each machine and number of ranks."""
    found = [(m, n, *pair) for m in MODELS for n in (2, 4, 8) for pair in neighbours(list(measured(m, n)))]
    return [s for s in found if algorithm(s[0], s[2]) == algorithm(s[0], s[3])]


def neighbours(sizes: list[int]) -> list[tuple[int, int]]:
    return list(pairwise(sizes))


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_allreduce_is_exact_where_it_was_measured(ranks: int) -> None:
    for model in MODELS:
        expected = measured(model, ranks)
        got = {size: seconds(model, AllReduce(size, ranks)) * 1e6 for size in expected}
        assert got == pytest.approx(expected)


@given(st.sampled_from(segments()), st.floats(0, 1))
def test_allreduce_lies_between_neighbouring_measurements(segment: Segment, fraction: float) -> None:
    model, ranks, low, high = segment
    size = round(low + fraction * (high - low))
    ends = sorted(seconds(model, AllReduce(s, ranks)) for s in (low, high))
    assert at_least(ends[0]) <= seconds(model, AllReduce(size, ranks)) <= ends[1] * (1 + 1e-12)


@given(models, st.integers(1, 2**30))
def test_beyond_the_table_allreduce_pays_the_ring_bandwidth(model: CostModel, beyond: int) -> None:
    last = max(measured(model, 8))
    bandwidth = model.machine.interconnect.bandwidth_gb_s.value * 1e9
    extra = 2 * beyond * 7 / 8 / bandwidth
    expected = seconds(model, AllReduce(last, 8)) + extra
    assert seconds(model, AllReduce(last + beyond, 8)) == pytest.approx(expected)


@given(models, st.integers(1, 9), many, st.sampled_from([8, 16, 32, 64, 128]))
def test_more_heads_never_take_less(model: CostModel, queries: int, context: int, heads: int) -> None:
    few_heads, twice = (replace(attention(2, queries, context), heads=n) for n in (heads, 2 * heads))
    # Measured rows of up to 64 heads cross by their noise.
    slack = 1.3 if heads < 64 else 1 + 1e-12
    assert seconds(model, few_heads) <= seconds(model, twice) * slack


SAVED = Figure(value=0.96, source=Source.SCALED, ref="pegainfer#569, the raw gap that it removes")


def with_programmatic_launch(model: CostModel) -> CostModel:
    stack = model.machine.stack
    overlap = stack.overlap.model_copy(update={"programmatic_launch_us": SAVED})
    changed = stack.model_copy(update={"overlap": overlap})
    return CostModel(replace(model.machine, stack=changed))


def test_no_published_stack_is_said_to_launch_programmatically() -> None:
    assert {model.machine.stack.overlap.programmatic_launch_us for model in MODELS} == {None}


@given(st.one_of(GEMMS, BATCHED, MLA, GQA))
def test_programmatic_launch_takes_its_gap_off_every_kernel(work: GpuWork) -> None:
    usual, quick = B300.estimate(work), with_programmatic_launch(B300).estimate(work)
    expected = max(usual.seconds - 0.96e-6, B300.floor_seconds(work))
    assert quick.seconds == pytest.approx(expected)
    assert quick.source is not Source.MEASURED


@given(st.one_of(REDUCES, GRAPHS))
def test_programmatic_launch_is_of_kernels_alone(work: Work) -> None:
    assert with_programmatic_launch(B300).estimate(work) == B300.estimate(work)


def test_small_messages_on_pcie_take_the_one_shot_kernel() -> None:
    limit = int(PRO_6000_NATIVE.machine.interconnect.small_message_algorithm_max_bytes.value)
    assert "one_shot" in PRO_6000_NATIVE.estimate(AllReduce(limit, 8)).evidence
    assert "nccl" in PRO_6000_NATIVE.estimate(AllReduce(limit + 1, 8)).evidence


B300_VLLM = CostModel(machine("b300_sxm", "nvlink5", "vllm"))
CUTOFFS = {8: 262_144, 4: 524_288}


@pytest.mark.parametrize(("ranks", "cutoff"), CUTOFFS.items())
def test_an_allreduce_is_not_interpolated_across_a_cutoff(ranks: int, cutoff: int) -> None:
    below, at = (seconds(B300_VLLM, AllReduce(size, ranks)) * 1e6 for size in (cutoff - 1, cutoff))
    rows = measured(B300_VLLM, ranks)
    assert at == pytest.approx(rows[cutoff])
    assert rows[cutoff // 2] < below < rows[cutoff] / 1.5
    assert below - rows[cutoff // 2] == pytest.approx(2 * (rows[cutoff // 2] - rows[cutoff // 4]), rel=1e-3)
    assert B300_VLLM.estimate(AllReduce(cutoff - 1, ranks)).source is Source.SCALED
    assert B300_VLLM.estimate(AllReduce(cutoff // 2, ranks)).source is Source.MEASURED
    assert B300_VLLM.estimate(AllReduce(cutoff, ranks)).source is Source.MEASURED


def far_from_cutoffs() -> list[tuple[int, int, int]]:
    """Neighbouring measured sizes that no cutoff parts: (ranks, low, high)."""
    found = [(ranks, *pair) for ranks in CUTOFFS for pair in neighbours(list(measured(B300_VLLM, ranks)))]
    return [(ranks, low, high) for ranks, low, high in found if not low < CUTOFFS[ranks] <= high]


@given(st.sampled_from(far_from_cutoffs()), st.floats(0, 1))
def test_elsewhere_a_cutoff_changes_nothing(segment: tuple[int, int, int], fraction: float) -> None:
    ranks, low, high = segment
    size = round(low + fraction * (high - low))
    curve = tables.allreduce("nvlink5", "b300_sxm", ranks, "vllm_custom")
    assert curve is not None
    assert seconds(B300_VLLM, AllReduce(size, ranks)) * 1e6 == pytest.approx(curve(size))


@pytest.mark.parametrize(
    ("work", "source"),
    [
        (Gemm(9, 7168, 8192, DType.BF16), Source.MEASURED),
        (Gemm(200, 7168, 8192, DType.BF16), Source.MEASURED),
        (Gemm(2000, 7168, 8192, DType.BF16), Source.DATASHEET),
        (kimi_experts(9, 66.3), Source.FITTED),
        (replace(kimi_experts(9, 66.3), hidden=4096), Source.SCALED),
        (replace(kimi_experts(9, 66.3), experts=256), Source.SCALED),
        (attention(1, 1, 4096), Source.MEASURED),
        (attention(1, 9, 4096), Source.ASSUMED),
        (attention(1, 1, 4096, run_tokens=16), Source.ASSUMED),
        (attention(1, 1, 200_000), Source.SCALED),
        (replace(attention(1, 1, 4096), heads=3), Source.SCALED),
        (grouped(1, 1, 4096), Source.MEASURED),
        (grouped(1, 16, 4096), Source.ASSUMED),
        (grouped(1, 1, 200_000), Source.SCALED),
        (replace(grouped(1, 1, 4096), heads=33), Source.SCALED),
        (replace(grouped(1, 1, 4096), head_dim=16), Source.FITTED),
        (AllReduce(131_072, 8), Source.MEASURED),
        (AllReduce(2**24, 8), Source.SCALED),
        (AllReduce(131_072, 3), Source.SCALED),
    ],
)
def test_an_estimate_says_how_far_it_is_from_a_measurement(work: Work, source: Source) -> None:
    assert H200.estimate(work).source is source


# Published by ai-dynamo/aiconfigurator@095f58a: one query, batch 1, 8 heads, bf16 cache.
@pytest.mark.parametrize(
    ("model", "context", "us"), [(B300, 16_384, 18.7), (H200, 65_536, 44), (PRO_6000, 65_536, 105)]
)
def test_attention_reproduces_the_published_table(model: CostModel, context: int, us: float) -> None:
    assert seconds(model, attention(1, 1, context)) * 1e6 == pytest.approx(us, rel=0.02)


@given(st.integers(1, 128), st.integers(2, 131_072))
def test_without_a_multi_query_kernel_a_tree_costs_what_a_batch_costs(nodes: int, context: int) -> None:
    tree, batch = attention(1, nodes, context), attention(nodes, 1, context)
    assert seconds(PRO_6000, tree) == seconds(PRO_6000, batch)


@given(st.integers(2, 64), st.integers(1, 131_072))
def test_a_rereading_kernel_reads_the_cache_again_for_each_query(queries: int, context: int) -> None:
    again = (queries - 1) * context * 576 * 2 / 9900e9
    expected = seconds(B300, attention(1, 1, context)) + again
    assert seconds(B300, attention(1, queries, context)) == pytest.approx(expected)


@given(st.integers(1, 8), st.integers(2, 131_072))
def test_queries_that_fit_one_tile_share_a_pass_over_the_cache(queries: int, context: int) -> None:
    assert seconds(H200, attention(1, queries, context)) == seconds(H200, attention(1, 1, context))


def test_a_second_tile_reads_the_cache_a_second_time() -> None:
    extra = seconds(H200, attention(1, 9, 65_536)) - seconds(H200, attention(1, 8, 65_536))
    assert extra == pytest.approx(65_536 * 576 * 2 / achieved(H200))


@given(st.integers(1, 64), st.integers(1, 1024))
def test_each_break_in_each_cache_costs_its_overhead_bytes(requests: int, runs: int) -> None:
    lost = requests * (runs - 1) * B300.machine.gpu.kv_run_overhead_bytes.value
    broken = attention(requests, 1, 64 * runs, run_tokens=64)
    expected = seconds(B300, attention(requests, 1, 64 * runs)) + lost / achieved(B300)
    assert seconds(B300, broken) == pytest.approx(expected)


tabled = [m for m in MODELS if all(k.serial_us_per_1k_context is None for k in m.machine.stack.attention)]


@given(st.sampled_from(tabled), st.integers(1, 16), st.integers(1, 200_000))
def test_beyond_the_table_each_cached_token_is_read(model: CostModel, requests: int, beyond: int) -> None:
    extra = requests * beyond * 576 * 2 / achieved(model)
    expected = seconds(model, attention(requests, 1, 131_072)) + extra
    assert seconds(model, attention(requests, 1, 131_072 + beyond)) == pytest.approx(expected)


@pytest.mark.parametrize("model", MODELS)
def test_beyond_the_table_a_gemm_reads_its_weights(model: CostModel) -> None:
    size_bytes = 2 * (150_000 * 20_000 + 150_000 + 20_000)
    work = Gemm(1, 150_000, 20_000, DType.BF16)
    floor = model.machine.gpu.kernel_floor_us.value * 1e-6
    assert seconds(model, work) == pytest.approx(floor + size_bytes / achieved(model))


def test_experts_of_another_size_scale_with_their_bytes() -> None:
    fixed = (
        tables.expert_lines("b300_sxm", B300.experts.kernel(DType.INT4), DType.INT4)[0].fit.intercept * 1e-6
    )
    whole, half = kimi_experts(64, 300), replace(kimi_experts(64, 300), intermediate=128)
    assert seconds(B300, half) - fixed == pytest.approx((seconds(B300, whole) - fixed) / 2)


# Published by aiconfigurator-core 0.12.0: one token's 8 experts of 128, and 16 tokens that reach all of them.
@pytest.mark.parametrize(("tokens", "touched", "us"), [(8, 64, 97.6), (16, 128, 180.2), (512, 128, 208.5)])
def test_experts_reproduce_the_published_table(tokens: int, touched: float, us: float) -> None:
    b200 = CostModel(machine("b200_sxm", "nvlink5", "sglang"))
    work = GroupedExperts(
        tokens=tokens,
        touched=touched,
        experts=128,
        top_k=8,
        hidden=2048,
        intermediate=768,
        dtype=DType.BF16,
    )
    assert seconds(b200, work) * 1e6 == pytest.approx(us, rel=0.02)
    assert b200.estimate(work).source is Source.FITTED


# DeepSeek's experts have the size of Kimi's; only their number differs.
def test_a_shape_of_the_same_expert_takes_its_line() -> None:
    deepseek = replace(kimi_experts(4, 30, DType.NVFP4), experts=256)
    assert seconds(B300, deepseek) == pytest.approx(seconds(B300, kimi_experts(4, 30, DType.NVFP4)), rel=0.02)
    assert B300.estimate(deepseek).source is Source.SCALED


# Published by aiconfigurator-core 0.12.0, FlashAttention 3 with one query.
@pytest.mark.parametrize(
    ("requests", "context", "us"), [(1, 2048, 12.4), (8, 2048, 27.2), (32, 16384, 483.7)]
)
def test_grouped_attention_reproduces_the_published_table(requests: int, context: int, us: float) -> None:
    assert seconds(H200, grouped(requests, 1, context)) * 1e6 == pytest.approx(us, rel=0.02)


@given(st.integers(1, 64), st.integers(2, 32), st.integers(128, 32_768))
def test_the_queries_of_one_tile_share_a_pass(requests: int, queries: int, context: int) -> None:
    # Four heads of one cache: 32 queries fill a tile of 128 rows.
    one, several = grouped(requests, 1, context), grouped(requests, queries, context)
    assert seconds(H200, several) == pytest.approx(max(seconds(H200, one), H200.floor_seconds(several)))


def test_beyond_a_tile_the_cache_is_read_again() -> None:
    extra = seconds(H200, grouped(1, 64, 32_768)) - seconds(H200, grouped(1, 32, 32_768))
    assert extra == pytest.approx(32_768 * 2 * 8 * 128 * 2 / achieved(H200))


@given(st.integers(1, 64), st.integers(2, 131_072))
def test_without_fp8_rows_a_cache_takes_the_bf16_time(requests: int, context: int) -> None:
    fp8 = replace(attention(requests, 1, context), dtype=DType.FP8)
    found = PRO_6000.estimate(fp8)
    assert found.seconds == seconds(PRO_6000, attention(requests, 1, context))
    assert found.source is Source.SCALED
    assert "an fp8 cache takes the bfloat16 time" in found.evidence


@given(models, st.integers(1, 64), st.integers(1, 131_072))
def test_heads_between_two_measured_counts_take_the_larger(
    model: CostModel, requests: int, context: int
) -> None:
    work = attention(requests, 1, context)
    assert seconds(model, replace(work, heads=12)) == seconds(model, replace(work, heads=16))


@given(models, few, st.integers(1, 100_000))
def test_more_heads_than_measured_take_another_pass(model: CostModel, requests: int, context: int) -> None:
    work = replace(attention(requests, 1, context), heads=64)
    assert seconds(model, replace(work, heads=128)) >= 2 * seconds(model, work) * (1 - 1e-9)


@given(bare, ON_BARE)
def test_a_gpu_without_tables_is_costed_by_its_roofline(model: CostModel, work: Any) -> None:
    found = model.estimate(work)
    shortest = model.machine.gpu.kernel_floor_us.value * 1e-6
    assert found.seconds >= at_least(max(shortest, model.floor_seconds(work)))
    assert "the shortest kernel + bytes at" in found.evidence
    assert found.source is not Source.MEASURED


@given(bare, EXPERTS)
def test_experts_without_tables_read_each_once(model: CostModel, work: GroupedExperts) -> None:
    kernels = model.machine.stack.dispatch.expert_kernels.value
    shortest = kernels * model.machine.gpu.kernel_floor_us.value * 1e-6
    read = work.touched * 3 * work.hidden * work.intermediate * 4.5 / 8 / achieved(model)
    assert seconds(model, work) >= at_least(shortest + read)


def test_a_fabric_that_no_stack_names_takes_the_closed_form() -> None:
    found = without(allreduce=()).estimate(AllReduce(9, 8))
    assert found.evidence == "ring AllReduce on nvlink5"


def test_a_graph_of_2876_nodes_takes_as_long_to_launch_as_published() -> None:
    # sgl-project/sglang#29960: 2.83 ms.
    assert seconds(PRO_6000, GraphLaunch(2876)) == pytest.approx(2.83e-3, rel=0.01)


PUBLISHED_TREES = [
    (8, 25, 0.011, 0.005),
    (32, 96, 0.041, 0.017),
    (128, 384, 0.17, 0.065),
    (1024, 3042, 1.64, 0.57),
]
"""Budget, heap operations at block 16, ms of heap and mask: liranringel/ddtree, one EPYC 2.6 GHz thread."""


def test_a_tree_of_8_nodes_takes_as_long_to_build_as_published() -> None:
    # rmagur1203/vllm-ddtree@0fefcaa docs/DDTREE-FINDINGS-EN.md: 98 us. A tree of 8 takes 25 pushes and pops.
    heap, mask = HostWork(HostTask.TREE_BUILD, 25), HostWork(HostTask.TREE_MASK, 8)
    assert seconds(PRO_6000, heap) + seconds(PRO_6000, mask) == pytest.approx(98e-6, rel=0.01)


@pytest.mark.parametrize(("budget", "operations", "heap_ms", "mask_ms"), PUBLISHED_TREES)
def test_larger_trees_take_as_long_as_published(
    budget: int, operations: int, heap_ms: float, mask_ms: float
) -> None:
    fixed = PRO_6000.machine.stack.dispatch.tree_fixed_us.value * 1e-6
    heap = seconds(PRO_6000, HostWork(HostTask.TREE_BUILD, operations)) - fixed
    assert heap == pytest.approx(heap_ms / 1e3, rel=0.22)
    assert seconds(PRO_6000, HostWork(HostTask.TREE_MASK, budget)) == pytest.approx(mask_ms / 1e3, rel=0.16)


@given(COPIES)
def test_a_copy_is_its_latency_and_its_bytes(work: Copy) -> None:
    latency = PRO_6000.machine.stack.dispatch.copy_latency_us.value * 1e-6
    rate = PRO_6000.machine.host.pcie_gb_s.value * 1e9
    assert seconds(PRO_6000, work) == pytest.approx(latency + work.size_bytes / rate)


@given(models, st.integers(1, 1000))
def test_eager_launches_add_up(model: CostModel, kernels: int) -> None:
    one = seconds(model, EagerLaunch(1, collective=False))
    assert seconds(model, EagerLaunch(kernels, collective=False)) == pytest.approx(kernels * one)


@pytest.mark.parametrize("model", MODELS)
def test_a_collective_is_launched_at_its_own_price(model: CostModel) -> None:
    dispatch = model.machine.stack.dispatch
    prices = [dispatch.eager_launch_us.value, dispatch.eager_collective_launch_us.value]
    got = [seconds(model, EagerLaunch(1, collective=c)) * 1e6 for c in (False, True)]
    assert got == pytest.approx(prices)


@pytest.mark.parametrize("model", MODELS)
def test_no_kernel_in_a_graph_is_shorter_than_the_shortest(model: CostModel) -> None:
    floor = model.machine.gpu.kernel_floor_us.value * 1e-6
    tiny: list[Work] = [
        Elementwise(1),
        BatchedGemm(1, 1, 1, 1, DType.BF16),
        GpuKernel(GpuTask.TREE_ACCEPT, 1),
    ]
    assert [seconds(model, work) for work in tiny] == [pytest.approx(floor, rel=1e-4)] * 3
    assert min(seconds(model, work) for work in tiny) >= floor
    assert seconds(model, StreamContention(1)) < floor


def test_a_barrier_costs_nothing() -> None:
    assert seconds(B300, Barrier()) == 0


def test_the_first_kernel_of_a_stack_is_used_unless_another_is_named() -> None:
    other = CostModel(machine("b300_sxm", "nvlink5", "sglang", "trtllm_gen"))
    assert B300.experts.kernel(DType.INT4).kernel == "marlin"
    assert other.experts.kernel(DType.INT4).kernel == "trtllm_gen"


@pytest.mark.parametrize("missing", ["experts", "attention", "grouped_attention"])
def test_a_stack_without_a_kernel_falls_back_to_the_roofline(missing: str) -> None:
    works: dict[str, Work] = {"experts": kimi_experts(9, 66), "attention": attention(1, 1, 9)}
    found = without(**{missing: ()}).estimate(works.get(missing, grouped(1, 1, 9)))
    assert "the shortest kernel + bytes at" in found.evidence


def test_the_same_work_is_estimated_once() -> None:
    assert B300.estimate(attention(1, 1, 777)) is B300.estimate(attention(1, 1, 777))


def without(**parts: tuple[()]) -> CostModel:
    """B300 with a stack that lacks *parts*."""
    stack = catalog.stack("sglang").model_copy(update=parts)
    return CostModel(replace(B300.machine, stack=stack))


def lacking_reread() -> CostModel:
    kernel = B300.machine.stack.attention[0].model_copy(update={"reread_gb_s": None})
    stack = catalog.stack("sglang").model_copy(update={"attention": (kernel,)})
    return CostModel(replace(B300.machine, stack=stack))


@pytest.mark.parametrize(
    ("model", "work", "message"),
    [
        (
            CostModel(machine("b300_sxm", "nvlink5", "sglang", "cutlass")),
            kimi_experts(9, 66),
            "sglang on b300_sxm: no int4_wo expert kernel named 'cutlass' (known: marlin, trtllm_gen)",
        ),
        (H200, kimi_experts(9, 66, DType.NVFP4), "h200_sxm: no nvfp4 arithmetic"),
        (lacking_reread(), attention(1, 2, 9), "sglang: trtllm_mla lacks reread_gb_s"),
        (B300, HostWork(HostTask.HAND_OVER, 1), "sglang: lacks exposed_us"),
        (H200, Gemm(1, 256, 256, DType.NVFP4), "h200_sxm: no nvfp4 arithmetic"),
        (H200, BatchedGemm(1, 1, 1, 1, DType.NVFP4), "h200_sxm: no nvfp4 arithmetic"),
    ],
)
def test_work_without_a_figure_is_refused(model: CostModel, work: Work, message: str) -> None:
    with pytest.raises(HardwareError) as caught:
        model.estimate(work)
    assert str(caught.value) == message


SAMPLE_WORKS: list[Work] = [
    Gemm(9, 2112, 7168, DType.BF16),
    Gemm(9, 51200, 7168, DType.BF16),
    BatchedGemm(8, 9, 512, 128, DType.BF16),
    Elementwise(100_000),
    GpuKernel(GpuTask.TREE_ACCEPT, 9),
    GpuKernel(GpuTask.TREE_BUILD, 9),
    AllReduce(14_336, 8),
    AllReduce(129_024, 8),
    AllReduce(50_000_000, 8),
    MlaAttention(
        requests=1, queries=1, context=4096, heads=8, latent=576, dtype=DType.BF16, run_tokens=10**6
    ),
    MlaAttention(
        requests=1, queries=9, context=4096, heads=8, latent=576, dtype=DType.BF16, run_tokens=10**6
    ),
]


def test_measured_means_a_table_row_of_this_gpu_and_this_engine() -> None:
    for model in MODELS:
        engine = model.machine.stack.framework
        for work in SAMPLE_WORKS:
            try:
                found = model.estimate(work)
            except HardwareError:
                continue
            if found.source is Source.MEASURED and found.seconds:
                assert ".csv" in found.evidence
                assert model.machine.gpu.measured_as in found.evidence
                assert engine != "native" or "nccl" in found.evidence


def test_a_figure_made_of_others_is_as_weak_as_the_weakest() -> None:
    assert weakest(Source.MEASURED, Source.ASSUMED, Source.FITTED) is Source.ASSUMED
    assert weakest(Source.MEASURED, Source.FITTED) is Source.FITTED


# Dense kernels for weights that no table has: what they reach of the datasheet.


def with_gemm(gpu: str, share: float, serial: bool) -> CostModel:
    """One *gpu* whose kernels for Q4_K_M reach *share* of its bandwidth."""
    usual = machine(gpu, "pcie4_two_gpus", "lucebox")
    [kernel] = usual.stack.quantised_gemm
    reached = kernel.bandwidth_share.model_copy(update={"value": share, "range": None})
    changed = kernel.model_copy(update={"bandwidth_share": reached, "serial": serial})
    stack = usual.stack.model_copy(update={"quantised_gemm": (changed,)})
    return CostModel(replace(usual, stack=stack))


QUANTISED: Works = st.builds(
    Gemm, m=few, n=st.integers(1, 60_000), k=st.integers(1, 20_000), dtype=st.just(DType.Q4_K_M)
)
QUANTISED_GPUS = st.sampled_from(["rtx_3090", "rtx_5090"])


def read_and_multiplied(gpu: str, work: Gemm, share: float) -> tuple[float, float]:
    """Seconds for the bytes of *work* and for its arithmetic."""
    entry = catalog.gpu(gpu)
    moved = work.n * work.k * 4.85 / 8 + 2 * work.m * (work.n + work.k)
    read = moved / (entry.memory_bandwidth_gb_s.value * share * 1e9)
    return read, 2 * work.m * work.n * work.k / (entry.tflops[DType.Q4_K_M].value * 1e12)


@given(QUANTISED_GPUS, QUANTISED, st.floats(0.1, 1))
def test_serial_kernels_add_reading_and_multiplying_and_others_do_the_longer(
    gpu: str, work: Gemm, share: float
) -> None:
    read, multiplied = read_and_multiplied(gpu, work, share)
    floor = catalog.gpu(gpu).kernel_floor_us.value * 1e-6
    serial, beside = (with_gemm(gpu, share, serial).estimate(work) for serial in (True, False))
    assert serial.seconds == pytest.approx(floor + read + multiplied)
    assert beside.seconds == pytest.approx(floor + max(read, multiplied))
    assert serial.bound is beside.bound is (Bound.MEMORY if read >= multiplied else Bound.COMPUTE)


@given(QUANTISED_GPUS, QUANTISED, st.booleans())
def test_a_share_of_one_is_never_below_the_roofline(gpu: str, work: Gemm, serial: bool) -> None:
    model = with_gemm(gpu, 1.0, serial)
    assert seconds(model, work) >= at_least(model.floor_seconds(work))
    assert seconds(model, work) <= seconds(with_gemm(gpu, 0.5, serial), work)


@given(QUANTISED, st.sampled_from(["m", "n", "k"]), st.integers(1, 10_000), st.booleans())
def test_a_larger_product_of_quantised_weights_never_takes_less(
    work: Gemm, size: str, growth: int, serial: bool
) -> None:
    model, larger = with_gemm("rtx_3090", 0.65, serial), replace(work, **{size: getattr(work, size) + growth})
    assert seconds(model, larger) >= at_least(seconds(model, work))


def test_other_weights_of_the_same_stack_stream_as_everywhere() -> None:
    model = with_gemm("rtx_3090", 0.1, True)
    work = Gemm(1, 4096, 4096, DType.BF16)
    assert model.estimate(work) == CostModel(machine("rtx_3090", "pcie4_two_gpus", "sglang")).estimate(work)


# What the host does for each request.


@given(models, st.integers(2, 512))
def test_one_request_is_scheduled_at_the_stacks_figure_and_every_further_at_its_own(
    model: CostModel, requests: int
) -> None:
    dispatch = model.machine.stack.dispatch
    alone = seconds(model, HostWork(HostTask.SCHEDULE, 1))
    assert alone == pytest.approx(dispatch.schedule_us.value * 1e-6)
    more = seconds(model, HostWork(HostTask.SCHEDULE, requests)) - alone
    assert more == pytest.approx(dispatch.request_us.value * 1e-6 * (requests - 1))


def with_request_us(model: CostModel, value: float) -> CostModel:
    dispatch = model.machine.stack.dispatch
    figure = Figure(value=value, source=Source.ASSUMED, ref="made up")
    changed = dispatch.model_copy(update={"request_us": figure})
    stack = model.machine.stack.model_copy(update={"dispatch": changed})
    return CostModel(replace(model.machine, stack=stack))


@given(models, st.floats(0, 1e4), st.integers(2, 512))
def test_what_further_requests_cost_is_nothing_to_one(model: CostModel, value: float, requests: int) -> None:
    other = with_request_us(model, value)
    one, many = (HostWork(HostTask.SCHEDULE, n) for n in (1, requests))
    assert other.estimate(one) == model.estimate(one)
    assert seconds(other, many) - seconds(other, one) == pytest.approx(value * 1e-6 * (requests - 1))
    assert other.estimate(many).source is Source.ASSUMED


def test_what_lies_between_two_steps_takes_the_stacks_figure() -> None:
    model = CostModel(machine("b300_sxm", "nvlink5", "tensorrt_llm"))
    exposed = model.machine.stack.overlap.exposed_us
    assert exposed is not None
    found = model.estimate(HostWork(HostTask.HAND_OVER, 1))
    assert (found.seconds, found.source) == (pytest.approx(exposed.value * 1e-6), exposed.source)


# Attention whose growth with context is not the table's.

SERIAL = [m for m in MODELS if any(k.serial_us_per_1k_context for k in on_gpu(m))]
contexts = st.integers(1024, 131_072)


@given(st.sampled_from(SERIAL), st.integers(1, 64), contexts, contexts)
def test_serial_attention_grows_with_its_context_in_a_line(
    model: CostModel, requests: int, first: int, second: int
) -> None:
    [kernel] = on_gpu(model)
    assert kernel.serial_us_per_1k_context is not None
    serial = kernel.serial_us_per_1k_context.value * 1e-9
    read = requests * 576 * 2 / achieved(model)
    took = [seconds(model, attention(requests, 1, context)) for context in (first, second)]
    assert took[1] - took[0] == pytest.approx((second - first) * (serial + read), abs=1e-12)


@given(st.sampled_from(SERIAL), st.integers(1, 128), st.integers(1, 128), st.integers(1, 8), many)
def test_serial_attention_takes_no_less_for_more_requests(
    model: CostModel, requests: int, more: int, queries: int, context: int
) -> None:
    times = [seconds(model, attention(n, queries, context)) for n in (requests, requests + more)]
    assert times[0] <= times[1] * (1 + 1e-12)


@given(st.sampled_from(SERIAL), many)
def test_the_serial_part_is_of_the_longest_request_and_not_of_each(model: CostModel, context: int) -> None:
    """What a second request adds is its bytes and its row of the table, however long the contexts."""
    added = [seconds(model, attention(2, 1, n)) - seconds(model, attention(1, 1, n)) for n in (1, context)]
    read = 576 * 2 / achieved(model)
    assert added[1] - added[0] == pytest.approx((context - 1) * read, abs=1e-12)


def test_attention_that_grows_by_a_fit_is_not_called_measured() -> None:
    for model in SERIAL:
        assert model.estimate(attention(1, 1, 16_384)).source is Source.SCALED


# Expert kernels: one that was measured in another build, and one that leaves no room.


def test_of_all_stacks_kernels_marlin_alone_fills_the_gpu() -> None:
    kernels = [k for name in catalog.names(Kind.STACK) for k in catalog.stack(name).experts]
    assert {k.kernel for k in kernels if k.fills_gpu} == {"marlin"}
    assert "marlin" not in {k.kernel for k in kernels if not k.fills_gpu}


def test_another_kernel_of_the_same_stack_leaves_room() -> None:
    assert B300.experts.fills_gpu(DType.INT4)
    assert not CostModel(machine("b300_sxm", "nvlink5", "sglang", "trtllm_gen")).experts.fills_gpu(DType.INT4)
    assert not without(experts=()).experts.fills_gpu(DType.INT4)


def relative(name: str, achieved_gb_s: float) -> CostModel:
    """B300 under another name whose dense kernels reach another bandwidth."""
    gpu = B300.machine.gpu
    achieved = gpu.achieved_bandwidth_gb_s.model_copy(update={"value": achieved_gb_s, "range": None})
    peak = gpu.memory_bandwidth_gb_s.model_copy(update={"value": 20_000.0, "range": None})
    changed = {"name": name, "achieved_bandwidth_gb_s": achieved, "memory_bandwidth_gb_s": peak}
    return CostModel(replace(B300.machine, gpu=gpu.model_copy(update=changed)))


@pytest.mark.parametrize("work", [kimi_experts(9, 66.3), Gemm(9, 51200, 7168, DType.BF16), SAMPLE_WORKS[-1]])
def test_a_gpu_measured_as_another_scales_with_its_bandwidth(work: Work) -> None:
    slow, same, fast = (relative("b400", bandwidth).estimate(work) for bandwidth in (3150, 6300, 12_600))
    assert slow.seconds > same.seconds > fast.seconds
    assert same.seconds == pytest.approx(B300.estimate(work).seconds)
    floor = B300.machine.gpu.kernel_floor_us.value * 1e-6
    assert fast.seconds - floor == pytest.approx((same.seconds - floor) / 2, rel=0.35)
    assert {slow.source, same.source, fast.source} <= {Source.SCALED, Source.ASSUMED}

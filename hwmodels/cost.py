"""The cost model: work in, Estimate out.

Order of preference for each piece of work: samples measured on this very GPU where it
names a measured file, a measured table of this device and stack, a fit to it, a measured
table scaled by a stated rule, the roofline. No estimate but a measured file's lies below
the datasheet bound, and none falls as a size grows; samples are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

from hwmodels import catalog, collectives, roofline, tables
from hwmodels.catalog import (
    AllReduceChoice,
    AttentionKernel,
    ExpertKernel,
    Gpu,
    Host,
    Interconnect,
    Kind,
    QueryScaling,
    Stack,
)
from hwmodels.entry import Figure
from hwmodels.errors import HardwareError
from hwmodels.estimate import Bound, Estimate, Source, weakest
from hwmodels.sampled import Answer, Samples, Silence
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
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
    IndexScores,
    LinkWork,
    MlaAttention,
    StreamContention,
    Work,
)

US = 1e-6
GB = 1e9
EXPERT_TABLE_COUNT = 384
EXPERT_TABLE_RANKS = 8
EXPERT_TABLE_VALUES = 3 * 7168 * 2048 // EXPERT_TABLE_RANKS
"""Weights of one expert on one rank in the measured rows (Kimi K2 shape, TP-8)."""


@dataclass(frozen=True)
class Machine:
    """One node: *ranks* equal GPUs in tensor parallel, their fabric, the host and the stack."""

    gpu: Gpu
    ranks: int
    interconnect: Interconnect
    host: Host
    stack: Stack
    expert_kernel: str | None = None
    """Ask for this expert kernel where the stack knows several."""
    samples: Samples | None = None
    """Of the measured file that *gpu* names."""


class CostModel:
    """Costs work on *machine*. Estimates are cached: the same work is asked for every step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[Work, Estimate] = {}
        self._measured_gpu = _measured_gpu(machine.gpu)

    def estimate(self, work: Work) -> Estimate:
        """The Estimate of *work*; HardwareError where nothing is known about it."""
        found = self._known.get(work)
        if found is None:
            found = self._known[work] = self._estimate(work)
        return found

    def _estimate(self, work: Work) -> Estimate:
        """From the measured file where it can say; else from figures, with the reason why it cannot."""
        samples = self.machine.samples
        match samples.find(work) if samples is not None else None:
            case Answer(blend, evidence):
                return Estimate(
                    seconds=blend.mean,
                    spread=blend.relative_error,
                    # Any small kernel of as many bytes is answered from the norm that was measured.
                    source=Source.SCALED if isinstance(work, Elementwise) else Source.MEASURED,
                    bound=self._bound(work),
                    evidence=evidence,
                    blend=blend,
                )
            case Silence(reason):
                published = self._from_figures(work)
                return replace(published, evidence=f"{published.evidence}; {reason}")
            case _:
                return self._from_figures(work)

    def _bound(self, work: Work) -> Bound:
        """What limits measured *work*: its bytes, its flops or the shortest kernel, whichever is most."""
        match work:
            case Gemm() | GroupedExperts() | MlaAttention() | Elementwise():
                return self._streamed(work).bound
            case GpuKernel():
                return Bound.LATENCY
            case _:
                return Bound.HOST

    def _from_figures(self, work: Work) -> Estimate:
        match work:
            case Gemm():
                return self._gemm(work)
            case GroupedExperts():
                return self._experts(work)
            case MlaAttention():
                return self._attention(work)
            case BatchedGemm() | GqaAttention() | IndexScores() | Elementwise():
                return self._streamed(work)
            case StreamContention():
                return self._contention(work)
            case GpuKernel():
                return self._kernel(work)
            case AllReduce() | AllGather():
                return self._collective(work)
            case Copy() | HostWork() | GraphLaunch() | EagerLaunch():
                return self._host(work)
            case Barrier():
                return Estimate(
                    seconds=0, spread=0, source=Source.MEASURED, bound=Bound.LATENCY, evidence="barrier"
                )
            case _:
                assert_never(work)

    def floor_seconds(self, work: GpuWork) -> float:
        """The datasheet bound of *work* on this GPU."""
        return roofline.floor_seconds(self.machine.gpu, work)

    def _gemm(self, work: Gemm) -> Estimate:
        """Table over (n, k, m), at least the shortest kernel plus the weights at peak bandwidth.

        The bound matters where the benchmark's repeated weight fitted into L2.
        """
        gpu = self.machine.gpu
        grid = tables.gemm(gpu.measured_as, work.dtype)
        sizes = (work.n, work.k, work.m)
        streamed = self._streamed(work)
        cold = gpu.kernel_floor_us.value * US + self.floor_seconds(work)
        measured = self._here(grid(*sizes))
        if not grid.covers(*sizes):
            name = f"{streamed.evidence}, not below {grid.name}"
            return replace(streamed, seconds=max(measured, streamed.seconds), evidence=name)
        if measured < cold:
            name = f"L2-warm in {grid.name}: shortest kernel + bytes at peak bandwidth"
            return replace(streamed, seconds=cold, source=Source.DATASHEET, evidence=name)
        return Estimate(
            seconds=measured,
            spread=grid.smoothing,
            source=self._carried(Source.MEASURED, grid.framework),
            bound=streamed.bound,
            evidence=grid.name,
        )

    def _carried(self, source: Source, framework: str) -> Source:
        """*source*, but SCALED where another GPU or another engine's kernel was measured."""
        gpu, there = self.machine.gpu, self._measured_gpu
        same_gpu = gpu.name == there.name and _pace(gpu) == _pace(there)
        same_engine = framework == self.machine.stack.framework
        return source if same_gpu and same_engine else weakest(source, Source.SCALED)

    def _here(self, measured_us: float) -> float:
        """Seconds on this GPU for a table's time on the GPU its tables are from.

        Beyond the shortest kernel, time scales with the bandwidth dense kernels reach.
        """
        there, here = self._measured_gpu, self.machine.gpu
        if _pace(there) == _pace(here):
            return measured_us * US
        beyond = max(0.0, measured_us - there.kernel_floor_us.value)
        ratio = there.achieved_bandwidth_gb_s.value / here.achieved_bandwidth_gb_s.value
        floor = min(measured_us, there.kernel_floor_us.value) * (
            here.kernel_floor_us.value / there.kernel_floor_us.value
        )
        return (floor + beyond * ratio) * US

    def _streamed(self, work: GpuWork) -> Estimate:
        """The shortest kernel plus the bytes at achieved bandwidth (or the flops at peak)."""
        gpu = self.machine.gpu
        floor, achieved = gpu.kernel_floor_us, gpu.achieved_bandwidth_gb_s
        seconds, bound = roofline.seconds(gpu, roofline.demand(work), achieved.value)
        if floor.value * US >= seconds:
            bound = Bound.LATENCY
        peak = Source.DATASHEET if bound is Bound.COMPUTE else achieved.source
        return Estimate(
            seconds=floor.value * US + seconds,
            spread=achieved.spread,
            source=weakest(floor.source, peak),
            bound=bound,
            evidence=f"{floor.value:g} us for the shortest kernel + bytes at {achieved.value:g} GB/s",
        )

    def _experts(self, work: GroupedExperts) -> Estimate:
        """``a + b * U``; for other expert shapes b scales with the bytes of one expert."""
        kernel = self.expert_kernel(work.dtype)
        line = tables.experts(
            self.machine.gpu.measured_as, kernel, work.dtype, EXPERT_TABLE_COUNT, EXPERT_TABLE_RANKS
        )
        share = 3 * work.hidden * work.intermediate / EXPERT_TABLE_VALUES
        same_shape = share == 1 and work.experts == EXPERT_TABLE_COUNT
        fitted, least = self._here(line(work.touched * share)), self._here(line.least(work.tokens))
        how = f"{line.fit.intercept:.1f} + {line.fit.slope:.3f} U us"
        if least > fitted:
            how = "rows of few tokens (a lower bound, above the fit)"
        return Estimate(
            seconds=max(fitted, least, self.floor_seconds(work)),
            spread=line.fit.max_relative_error,
            source=self._carried(Source.FITTED if same_shape else Source.SCALED, kernel.framework),
            bound=Bound.MEMORY,
            evidence=f"{how}, {line.name}",
        )

    def expert_kernel(self, dtype: DType) -> ExpertKernel:
        """The kernel this stack runs for experts of *dtype* on this GPU."""
        machine = self.machine
        known = [k for k in machine.stack.experts if k.dtype is dtype and machine.gpu.measured_as in k.gpus]
        wanted = machine.expert_kernel
        for kernel in known:
            if wanted is None or kernel.kernel == wanted:
                return kernel
        have = ", ".join(k.kernel for k in known) or "none"
        ask = f" named '{wanted}'" if wanted else ""
        raise HardwareError(
            f"{machine.stack.name} on {machine.gpu.name}",
            f"no {dtype.value} expert kernel{ask} (known: {have})",
        )

    def attention_kernel(self) -> AttentionKernel:
        """The MLA kernel this stack runs on this GPU."""
        for kernel in self.machine.stack.attention:
            if self.machine.gpu.measured_as in kernel.gpus:
                return kernel
        raise HardwareError(
            f"{self.machine.stack.name} on {self.machine.gpu.name}", "no MLA attention kernel"
        )

    def _attention(self, work: MlaAttention) -> Estimate:
        """One-query table over (batch, context), scaled to a tree's queries as the kernel does."""
        kernel = self.attention_kernel()
        grid = tables.mla_decode(self.machine.gpu.measured_as, kernel, work.heads, work.dtype)
        served = work.requests * (work.queries if kernel.query_scaling is QueryScaling.AS_BATCH else 1)
        exact = work.queries == 1 and self._breaks(work) == 0 and grid.covers(served, work.seen)
        seconds = self._one_pass(grid, served, work) + self._query_seconds(kernel, work)
        seconds += self._fragmentation_seconds(work, served)
        source = Source.MEASURED if exact else self._scaled_attention(kernel, work)
        reread = kernel.reread_gb_s.spread if kernel.reread_gb_s and work.queries > 1 else 0.0
        return Estimate(
            seconds=max(seconds, self.floor_seconds(work)),
            spread=max(grid.smoothing, reread),
            source=self._carried(source, grid.framework),
            bound=Bound.MEMORY,
            evidence=f"{grid.name}, {kernel.query_scaling.value} queries ({kernel.scaling_ref.strip()})",
        )

    def _scaled_attention(self, kernel: AttentionKernel, work: MlaAttention) -> Source:
        """What a figure beyond the table rests on: the weakest of the rules it needs."""
        if self._breaks(work):
            return self.machine.gpu.kv_run_overhead_bytes.source
        return kernel.scaling_source if work.queries > 1 else Source.SCALED

    def _one_pass(self, grid: tables.Grid, served: int, work: MlaAttention) -> float:
        """Table time, plus DRAM time of what lies beyond the table."""
        batch, context = grid.clamp(served, work.seen)
        beyond = max(0.0, served * work.seen - batch * context) * _token_bytes(work)
        return self._here(grid(served, work.seen)) + beyond / self._achieved()

    def _query_seconds(self, kernel: AttentionKernel, work: MlaAttention) -> float:
        cache_bytes = work.requests * work.seen * _token_bytes(work)
        match kernel.query_scaling:
            case QueryScaling.AS_BATCH:
                return 0.0
            case QueryScaling.SHARED:
                tiles = -(-work.heads * work.queries // kernel.tile_rows)
                return (tiles - 1) * cache_bytes / self._achieved()
            case QueryScaling.REREAD:
                if kernel.reread_gb_s is None:
                    raise HardwareError(self.machine.stack.name, f"{kernel.kernel} lacks reread_gb_s")
                return (work.queries - 1) * cache_bytes / (kernel.reread_gb_s.value * GB)
            case _:
                assert_never(kernel.query_scaling)

    def _fragmentation_seconds(self, work: MlaAttention, served: int) -> float:
        lost = self.machine.gpu.kv_run_overhead_bytes.value * self._breaks(work) * served
        return lost / self._achieved()

    @staticmethod
    def _breaks(work: MlaAttention) -> int:
        """Breaks between contiguous runs in one request's cache."""
        return max(0, -(-work.seen // work.run_tokens) - 1)

    def _achieved(self) -> float:
        return self.machine.gpu.achieved_bandwidth_gb_s.value * GB

    def _contention(self, work: StreamContention) -> Estimate:
        """No kernel of its own: only the bytes that another stream takes."""
        achieved = self.machine.gpu.achieved_bandwidth_gb_s
        return Estimate(
            seconds=work.size_bytes / self._achieved(),
            spread=achieved.spread,
            source=achieved.source,
            bound=Bound.MEMORY,
            evidence=f"{achieved.value:g} GB/s",
        )

    def _kernel(self, work: GpuKernel) -> Estimate:
        dispatch = self.machine.stack.dispatch
        match work.task:
            case GpuTask.TOP_K:
                return _from_figure(dispatch.top_k_us, Bound.LATENCY, "top-k kernels")
            case GpuTask.TREE_BUILD:
                per_node = dispatch.gpu_tree_us_per_node
                extra = self.machine.gpu.kernel_floor_us.value * US
                return _from_figure(per_node, Bound.LATENCY, "tree kernel", extra, work.items)
            case GpuTask.TREE_ACCEPT:
                floor = self.machine.gpu.kernel_floor_us
                walk = _from_figure(floor, Bound.LATENCY, "a greedy walk in the shortest kernel")
                return replace(walk, source=Source.ASSUMED)
            case GpuTask.TREE_SELECT:
                return _from_figure(self.machine.stack.drafting.tree_us, Bound.LATENCY, "EAGLE tree")
            case GpuTask.LOOSE:
                floor = self.machine.gpu.kernel_floor_us
                return _from_figure(floor, Bound.LATENCY, "the shortest kernel", times=work.items)
            case _:
                assert_never(work.task)

    def _collective(self, work: LinkWork) -> Estimate:
        if work.ranks == 1 or work.size_bytes == 0:
            return Estimate(
                seconds=0, spread=0, source=Source.MEASURED, bound=Bound.LINK, evidence="nothing to send"
            )
        if isinstance(work, AllGather):
            link = self.machine.interconnect
            seconds = collectives.ring_allgather(
                work.size_bytes, work.ranks, link.alpha_us.value * US, link.bandwidth_gb_s.value * GB
            )
            return self._formula(seconds, "ring AllGather")
        return self._allreduce(work)

    def _formula(self, seconds: float, name: str) -> Estimate:
        """A closed form: no better than the weaker of its two figures."""
        link = self.machine.interconnect
        return Estimate(
            seconds=seconds,
            spread=max(link.bandwidth_gb_s.spread, link.alpha_us.spread),
            source=weakest(Source.SCALED, link.bandwidth_gb_s.source, link.alpha_us.source),
            bound=Bound.LINK,
            evidence=f"{name} on {link.name}",
        )

    def _allreduce(self, work: AllReduce) -> Estimate:
        """Table by message bytes; beyond it the ring's bandwidth term; without it the ring."""
        link = self.machine.interconnect
        curve = tables.allreduce(link.fabric, self.machine.gpu.measured_as, work.ranks, self._algorithm(work))
        bandwidth = link.bandwidth_gb_s.value * GB
        if curve is None:
            seconds = collectives.ring_allreduce(
                work.size_bytes, work.ranks, link.alpha_us.value * US, bandwidth
            )
            return self._formula(seconds, "ring AllReduce")
        beyond = max(0.0, work.size_bytes - curve.size_bytes[-1])
        extra = collectives.ring_allreduce(beyond, work.ranks, 0.0, bandwidth)
        inside = curve.size_bytes[0] <= work.size_bytes <= curve.size_bytes[-1]
        here = curve.measured_on == self.machine.gpu.measured_as
        framework = self._allreduce_choice().framework or self.machine.stack.framework
        return Estimate(
            seconds=curve(work.size_bytes) * US + extra,
            spread=link.bandwidth_gb_s.spread if extra else 0.0,
            source=self._carried(Source.MEASURED if inside and here else Source.SCALED, framework),
            bound=Bound.LINK,
            evidence=curve.name,
        )

    def _algorithm(self, work: AllReduce) -> str:
        """The stack's algorithm for this message on this fabric."""
        choice = self._allreduce_choice()
        limit = self.machine.interconnect.small_message_algorithm_max_bytes.value
        if choice.small is not None and work.size_bytes <= limit:
            return choice.small
        return choice.large

    def _allreduce_choice(self) -> AllReduceChoice:
        link = self.machine.interconnect
        for choice in self.machine.stack.allreduce:
            if link.fabric in choice.fabrics:
                return choice
        raise HardwareError(self.machine.stack.name, f"no AllReduce for fabric {link.fabric}")

    def _host(self, work: Copy | HostWork | GraphLaunch | EagerLaunch) -> Estimate:
        host, dispatch = self.machine.host, self.machine.stack.dispatch
        match work:
            case Copy(size_bytes, _):
                extra = size_bytes / (host.pcie_gb_s.value * GB)
                return _from_figure(dispatch.copy_latency_us, Bound.HOST, "copy latency", extra)
            case GraphLaunch(nodes):
                per_node = dispatch.graph_launch_us_per_node
                extra = dispatch.graph_launch_fixed_us.value * US
                return _from_figure(per_node, Bound.HOST, "graph launch", extra, nodes)
            case EagerLaunch(kernels, collective):
                each = dispatch.eager_collective_launch_us if collective else dispatch.eager_launch_us
                return _from_figure(each, Bound.HOST, "eager launch", 0.0, kernels)
            case HostWork():
                return self._host_task(work)
            case _:
                assert_never(work)

    def _host_task(self, work: HostWork) -> Estimate:
        host, dispatch = self.machine.host, self.machine.stack.dispatch
        match work.task:
            case HostTask.SCHEDULE:
                return _from_figure(dispatch.schedule_us, Bound.HOST, "scheduling")
            case HostTask.TREE_DISPATCH:
                return _from_figure(dispatch.tree_dispatch_us, Bound.HOST, "tree dispatch")
            case HostTask.SYNCHRONISE:
                return _from_figure(dispatch.synchronise_us, Bound.HOST, "synchronisation")
            case HostTask.TREE_BUILD:
                extra = dispatch.tree_fixed_us.value * US
                return _from_figure(
                    host.heap_us_per_operation, Bound.HOST, "best-first heap", extra, work.items
                )
            case HostTask.TREE_MASK:
                return _from_figure(host.mask_us_per_node, Bound.HOST, "ancestor mask", times=work.items)
            case HostTask.DRAFT_PASS:
                return _from_figure(
                    self.machine.stack.drafting.pass_us, Bound.HOST, "draft pass", times=work.items
                )
            case _:
                assert_never(work.task)


def _measured_gpu(gpu: Gpu) -> Gpu:
    """The GPU whose tables *gpu* takes; itself where its own name is in no catalog."""
    own = gpu.name == gpu.measured_as and gpu.name not in catalog.names(Kind.GPU)
    return gpu if own else catalog.gpu(gpu.measured_as)


def _pace(gpu: Gpu) -> tuple[float, float]:
    """The two figures that scale a table from one GPU to another."""
    return gpu.kernel_floor_us.value, gpu.achieved_bandwidth_gb_s.value


def _token_bytes(work: MlaAttention) -> float:
    return roofline.cached_token_bytes(work.latent, work.dtype)


def _from_figure(
    figure: Figure, bound: Bound, name: str, extra_seconds: float = 0.0, times: float = 1.0
) -> Estimate:
    """``figure (us) * times + extra_seconds`` with the figure's provenance."""
    return Estimate(
        seconds=figure.value * times * US + extra_seconds,
        spread=figure.spread,
        source=figure.source,
        bound=bound,
        evidence=f"{name}: {figure.ref}",
    )

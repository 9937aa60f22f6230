"""The cost model: work in, Estimate out.

Order of preference for each piece of work: samples measured on this very GPU where it
names a measured file, a measured table of this device and stack, a fit to it, a measured
table scaled by a stated rule (``lookup`` finds it), the roofline. No estimate but a measured
file's lies below the datasheet bound, and none falls as a size grows between shapes that
were not measured; measurements and samples are taken as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from hwmodels import catalog, collectives, lookup, perfdb, roofline, tables
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
    Exchange,
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
    Prefill,
    StreamContention,
    Work,
)

US = 1e-6
GB = 1e9


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
    tables_of: Gpu | None = None
    """The GPU that *gpu*'s tables were measured on, where it is not the catalog's; figures of a GPU that are
    not known exactly are the same ones in its tables and here, so that no table is carried over."""


class CostModel:
    """Costs work on *machine*. Estimates are cached: the same work is asked for every step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[Work, Estimate] = {}
        self._measured_gpu = machine.tables_of or measured_gpu(machine.gpu)
        self._more = perfdb.database(machine.gpu.perfdb)

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
        """From tables and figures, less what programmatic dependent launch hides of the gap to a kernel."""
        found, saved = self._in_full(work), self.machine.stack.overlap.programmatic_launch_us
        if saved is None or isinstance(work, StreamContention) or not isinstance(work, GpuWork):
            return found
        return replace(
            found,
            seconds=max(0.0, found.seconds - saved.value * US, self.floor_seconds(work)),
            source=weakest(found.source, saved.source),
            evidence=f"{found.evidence}, less {saved.value:g} us by programmatic launch",
        )

    def _in_full(self, work: Work) -> Estimate:
        match work:
            case Gemm():
                return self._gemm(work)
            case GroupedExperts():
                return self._experts(work)
            case MlaAttention():
                return self._attention(work)
            case GqaAttention():
                return self._grouped_attention(work)
            case BatchedGemm() | IndexScores() | Elementwise():
                return self._streamed(work)
            case StreamContention():
                return self._contention(work)
            case GpuKernel():
                return self._kernel(work)
            case AllReduce() | AllGather() | Exchange():
                return self._collective(work)
            case Copy() | HostWork() | GraphLaunch() | EagerLaunch():
                return self._host(work)
            case Prefill():
                return self._prefill(work)
            case Barrier():
                return Estimate(
                    seconds=0, spread=0, source=Source.MEASURED, bound=Bound.LATENCY, evidence="barrier"
                )
            case _:
                assert_never(work)

    def _prefill(self, work: Prefill) -> Estimate:
        """The longer of what the GPU runs and what the host launches."""
        gpu = [(self.estimate(kernel), times) for kernel, times in work.kernels]
        host = [(self.estimate(task), 1) for task in work.host]
        parts = max(gpu, host, key=_total_seconds)
        seconds = _total_seconds(parts)
        return Estimate(
            seconds=seconds,
            spread=sum(part.seconds * times * part.spread for part, times in parts) / seconds,
            source=weakest(*(part.source for part, _ in parts)),
            bound=Bound.HOST if parts is host else Bound.COMPUTE,
            evidence="a prompt's forward pass: the longer of its kernels and their launches one by one",
        )

    def floor_seconds(self, work: GpuWork) -> float:
        """The datasheet bound of *work* on this GPU."""
        return roofline.floor_seconds(self.machine.gpu, work)

    def _gemm(self, work: Gemm) -> Estimate:
        """Table over (n, k, m), at least the shortest kernel plus the weights at peak bandwidth.

        The bound matters where the benchmark's repeated weight fitted into L2.
        """
        gpu = self.machine.gpu
        grid = lookup.gemm(gpu.measured_as, self.machine.stack.framework, work, self._more)
        sizes = (work.n, work.k, work.m)
        streamed = self._streamed(work)
        if grid is None:
            return self._quantised(work) or streamed
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

    def _quantised(self, work: Gemm) -> Estimate | None:
        """By what the stack's own kernels for this type reach; None where it states nothing."""
        kernel = next((k for k in self.machine.stack.quantised_gemm if work.dtype in k.dtypes), None)
        if kernel is None:
            return None
        gpu, share = self.machine.gpu, kernel.bandwidth_share
        read = roofline.demand(work).bytes / (gpu.memory_bandwidth_gb_s.value * share.value * GB)
        peak = gpu.tflops[work.dtype]
        multiplied = roofline.demand(work).flops / (peak.value * 1e12)
        both = read + multiplied if kernel.serial else max(read, multiplied)
        return Estimate(
            seconds=gpu.kernel_floor_us.value * US + both,
            spread=max(share.spread, peak.spread),
            source=weakest(share.source, peak.source),
            bound=Bound.MEMORY if read >= multiplied else Bound.COMPUTE,
            evidence=f"{share.value:g} of the datasheet bandwidth, {peak.value:g} TFLOPS ({share.ref})",
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

    def _streamed(self, work: GpuWork, kernels: float = 1) -> Estimate:
        """*kernels* times the shortest kernel, plus the bytes at achieved bandwidth (or flops at peak)."""
        gpu = self.machine.gpu
        floor, achieved = gpu.kernel_floor_us, gpu.achieved_bandwidth_gb_s
        seconds, bound = roofline.seconds(gpu, roofline.demand(work), achieved.value)
        shortest = kernels * floor.value
        if shortest * US >= seconds:
            bound = Bound.LATENCY
        peak = Source.DATASHEET if bound is Bound.COMPUTE else achieved.source
        times = "the shortest kernel" if kernels == 1 else f"{kernels:g} times the shortest kernel"
        return Estimate(
            seconds=shortest * US + seconds,
            spread=achieved.spread,
            source=weakest(floor.source, peak),
            bound=bound,
            evidence=f"{shortest:g} us for {times} + bytes at {achieved.value:g} GB/s",
        )

    def _experts(self, work: GroupedExperts) -> Estimate:
        """``a + b * U`` of this shape, in another build or the database; other shapes; the roofline."""
        lines = self._expert_lines(work.dtype)
        own = lookup.own_line(lines, work)
        if own is not None:
            return self._on_line(own, self.expert_kernel(work.dtype).framework, work)
        other = lookup.own_line(self._other_builds(work.dtype), work) if lines else None
        if other is not None:
            found = self._on_line(other, self.expert_kernel(work.dtype).framework, work)
            return replace(found, source=weakest(found.source, Source.SCALED))
        more = lookup.experts_of(self._more, self.machine.stack.framework, work)
        if more is not None:
            return self._on_line(*more, work)
        if not lines:
            return self._streamed(work, self.machine.stack.dispatch.expert_kernels.value)
        values = lookup.expert_shape(work).values
        measured = tables.scaled_experts(lines, values, work.touched, work.tokens)
        return Estimate(
            seconds=max(self._here(measured), self.floor_seconds(work)),
            spread=max(line.fit.max_relative_error for line in lines),
            source=self._carried(Source.SCALED, self.expert_kernel(work.dtype).framework),
            bound=Bound.MEMORY,
            evidence=f"by bytes of an expert, from {len(lines)} other shapes such as {lines[-1].name}",
        )

    def _other_builds(self, dtype: DType) -> tuple[tables.ExpertsLine, ...]:
        """Lines of the stack's kernel for *dtype* in other versions and engines."""
        gpu, kernel = self.machine.gpu.measured_as, self.expert_kernel(dtype)
        return tables.expert_lines_of_other_builds(gpu, kernel, dtype)

    def _on_line(self, line: tables.ExpertsLine, framework: str, work: GroupedExperts) -> Estimate:
        how = f"{line.fit.intercept:.1f} + {line.fit.slope:.3f} U us"
        if line.least(work.touched) > line.fit(work.touched):
            how = "rows of few tokens (a lower bound, above the fit)"
        return Estimate(
            seconds=max(self._here(line(work.touched, work.tokens)), self.floor_seconds(work)),
            spread=line.fit.max_relative_error,
            source=self._carried(Source.FITTED, framework),
            bound=Bound.MEMORY,
            evidence=f"{how}, {line.name}",
        )

    def _expert_lines(self, dtype: DType) -> tuple[tables.ExpertsLine, ...]:
        """Lines of the stack's kernel for *dtype* on this GPU; none where it has no such kernel.

        HardwareError where a kernel was asked for by name and is not known.
        """
        if self.machine.expert_kernel is None and not self._expert_kernels(dtype):
            return ()
        return tables.expert_lines(self.machine.gpu.measured_as, self.expert_kernel(dtype), dtype)

    def experts_fill_gpu(self, dtype: DType) -> bool:
        """True where nothing can run beside the stack's expert kernel for *dtype*."""
        return bool(self._expert_kernels(dtype)) and self.expert_kernel(dtype).fills_gpu

    def _expert_kernels(self, dtype: DType) -> list[ExpertKernel]:
        machine = self.machine
        return [k for k in machine.stack.experts if k.dtype is dtype and machine.gpu.measured_as in k.gpus]

    def expert_kernel(self, dtype: DType) -> ExpertKernel:
        """The kernel this stack runs for experts of *dtype* on this GPU."""
        machine = self.machine
        known = self._expert_kernels(dtype)
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

    def _attention(self, work: MlaAttention) -> Estimate:
        """One-query table over (batch, context), scaled to a tree's queries as the kernel does."""
        found = self._latent_table(work)
        if found is None:
            return self._streamed(work, self.machine.stack.dispatch.attention_kernels.value)
        kernel, grid = found.kernel, found.grid
        served = work.requests * (work.queries if kernel.query_scaling is QueryScaling.AS_BATCH else 1)
        covered = grid.covers(served, work.seen) and found.caveat is None
        tabled = covered and kernel.serial_us_per_1k_context is None
        exact = work.queries == 1 and self._breaks(work) == 0 and tabled
        seconds = found.passes * self._latent_pass(kernel, grid, served, work)
        seconds += self._query_seconds(kernel, work) + self._fragmentation_seconds(work, served)
        source = Source.MEASURED if exact else self._scaled_attention(kernel, work)
        reread = kernel.reread_gb_s.spread if kernel.reread_gb_s and work.queries > 1 else 0.0
        serial = kernel.serial_us_per_1k_context.spread if kernel.serial_us_per_1k_context else 0.0
        return Estimate(
            seconds=max(seconds, self.floor_seconds(work)),
            spread=max(grid.smoothing, reread, serial),
            source=self._carried(source, grid.framework),
            bound=Bound.MEMORY,
            evidence=f"{found.evidence}, {_how(kernel)}",
        )

    def _latent_table(self, work: MlaAttention) -> lookup.FoundGrid | None:
        """The stack's table; before one that needs a caveat, what the database has."""
        stack = self.machine.stack
        found = lookup.latent_attention(self.machine.gpu.measured_as, stack.attention, work)
        if self._more is None or (found is not None and found.caveat is None):
            return found
        return lookup.latent_of(self._more, stack.framework, found.kernel if found else None, work) or found

    def _scaled_attention(self, kernel: AttentionKernel, work: MlaAttention) -> Source:
        """What a figure beyond the table rests on: the weakest of the rules it needs."""
        if self._breaks(work):
            return self.machine.gpu.kv_run_overhead_bytes.source
        if work.queries == 1 and kernel.serial_us_per_1k_context is not None:
            return kernel.serial_us_per_1k_context.source
        return kernel.scaling_source if work.queries > 1 else Source.SCALED

    def _grouped_attention(self, work: GqaAttention) -> Estimate:
        """One-query table of this shape; else the longest of smaller shapes; else the roofline.

        The queries of one request share a pass over the cache as long as they fill one tile;
        what lies beyond reads it again, in part where a tile is not full.
        """
        streamed = self._streamed(work, self.machine.stack.dispatch.attention_kernels.value)
        candidates = self._grouped_tables(work)
        if not candidates:
            return streamed
        timed = [(self._grouped_pass(found, shape, work), found) for found, shape in candidates]
        seconds, found = max(timed, key=lambda pair: pair[0])
        again = work.queries * work.heads / (work.kv_heads * found.kernel.tile_rows) - 1
        seconds += max(0.0, again) * roofline.demand(work).bytes / self._achieved()
        if found.caveat is not None and streamed.seconds > seconds:
            return replace(streamed, evidence=f"{streamed.evidence}, not below {found.evidence}")
        exact = work.queries == 1 and found.caveat is None and found.grid.covers(work.requests, work.seen)
        source = found.kernel.scaling_source if work.queries > 1 else Source.SCALED
        return Estimate(
            seconds=max(seconds, self.floor_seconds(work)),
            spread=found.grid.smoothing,
            source=self._carried(Source.MEASURED if exact else source, found.grid.framework),
            bound=streamed.bound,
            evidence=f"{found.evidence}, {_how(found.kernel)}",
        )

    def _grouped_tables(self, work: GqaAttention) -> list[tuple[lookup.FoundGrid, tables.HeadShape]]:
        """The stack's table of this shape; else the database's; else those of smaller shapes."""
        stack = self.machine.stack
        found = lookup.grouped_attention(self.machine.gpu.measured_as, stack.grouped_attention, work)
        if self._more is None or (found and found[0][0].caveat is None):
            return found
        kernel = found[0][0].kernel if found else None
        more = lookup.grouped_of(self._more, stack.framework, kernel, work)
        shape = tables.HeadShape(work.heads, work.kv_heads, work.head_dim)
        return found if more is None else [(more, shape)]

    def _grouped_pass(self, found: lookup.FoundGrid, shape: tables.HeadShape, work: GqaAttention) -> float:
        """Seconds of one query per request, by the table of *shape*."""
        token_bytes = 2 * roofline.cached_token_bytes(shape.kv_heads * shape.head_dim, work.dtype)
        return self._one_pass(found.grid, work.requests, work.seen, token_bytes)

    def _latent_pass(
        self, kernel: AttentionKernel, grid: tables.Grid, served: int, work: MlaAttention
    ) -> float:
        """One query per request: the table, or its shortest context and the kernel's own growth."""
        serial = kernel.serial_us_per_1k_context
        if serial is None:
            return self._one_pass(grid, served, work.seen, _token_bytes(work))
        streamed = served * work.seen * _token_bytes(work) / self._achieved()
        return self._one_pass(grid, served, 0, 0.0) + serial.value * US * work.seen / 1000 + streamed

    def _one_pass(self, grid: tables.Grid, served: int, seen: int, token_bytes: float) -> float:
        """Table time, plus DRAM time of what lies beyond the table."""
        batch, context = grid.clamp(served, seen)
        beyond = max(0.0, served * seen - batch * context) * token_bytes
        return self._here(grid(served, seen)) + beyond / self._achieved()

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
        return self._exchange(work) if isinstance(work, Exchange) else self._allreduce(work)

    def _exchange(self, work: Exchange) -> Estimate:
        """A ring of the group's ranks, with the base latency of the library apart where it is known."""
        link = self.machine.interconnect
        base, hop = link.collective_base_us, link.collective_hop_us or link.alpha_us
        seconds = collectives.ring_exchange(
            work.size_bytes,
            work.ranks,
            0.0 if base is None else base.value * US,
            hop.value * US,
            link.bandwidth_gb_s.value * GB,
        )
        name = f"ring {work.pattern.value} of {work.ranks}"
        return self._formula(seconds, name, hop if base is None else base, hop)

    def _formula(self, seconds: float, name: str, *latencies: Figure) -> Estimate:
        """A closed form: no better than the weakest of its figures, of which *latencies* beside bandwidth."""
        link = self.machine.interconnect
        figures = (link.bandwidth_gb_s, *(latencies or (link.alpha_us,)))
        return Estimate(
            seconds=seconds,
            spread=max(figure.spread for figure in figures),
            source=weakest(Source.SCALED, *(figure.source for figure in figures)),
            bound=Bound.LINK,
            evidence=f"{name} on {link.name}",
        )

    def _allreduce(self, work: AllReduce) -> Estimate:
        """Table by message bytes; beyond it the ring's bandwidth term; without it the ring."""
        link, choice = self.machine.interconnect, self._allreduce_choice()
        bandwidth = link.bandwidth_gb_s.value * GB
        curve = None if choice is None else self._curve(choice, work)
        if choice is None or curve is None:
            seconds = collectives.ring_allreduce(
                work.size_bytes, work.ranks, link.alpha_us.value * US, bandwidth
            )
            return self._formula(seconds, "ring AllReduce")
        cutoff, measured_sizes = choice.cutoff_bytes(work.ranks), curve.size_bytes
        if cutoff is not None:
            curve = curve.on_side_of(cutoff, work.size_bytes)
        beyond = max(0.0, work.size_bytes - curve.size_bytes[-1])
        extra = collectives.ring_allreduce(beyond, work.ranks, 0.0, bandwidth)
        inside = _between_rows(work.size_bytes, measured_sizes, cutoff)
        here = curve.measured_on == self.machine.gpu.measured_as
        framework = choice.framework or self.machine.stack.framework
        return Estimate(
            seconds=curve(work.size_bytes) * US + extra,
            spread=link.bandwidth_gb_s.spread if extra else 0.0,
            source=self._carried(Source.MEASURED if inside and here else Source.SCALED, framework),
            bound=Bound.LINK,
            evidence=curve.name,
        )

    def _curve(self, choice: AllReduceChoice, work: AllReduce) -> tables.Curve | None:
        gpu, fabric = self.machine.gpu.measured_as, self.machine.interconnect.fabric
        return tables.allreduce(fabric, gpu, work.ranks, self._algorithm(choice, work))

    def _algorithm(self, choice: AllReduceChoice, work: AllReduce) -> str:
        """The algorithm for this message, of those the stack has on this fabric."""
        limit = self.machine.interconnect.small_message_algorithm_max_bytes.value
        if choice.small is not None and work.size_bytes <= limit:
            return choice.small
        return choice.large

    def _allreduce_choice(self) -> AllReduceChoice | None:
        """What the stack uses on this fabric; None where it does not say."""
        fabric = self.machine.interconnect.fabric
        return next((c for c in self.machine.stack.allreduce if fabric in c.fabrics), None)

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

    def _scheduling(self, requests: int) -> Estimate:
        """The stack's figure for one request, and the one for every further."""
        first, more = self.machine.stack.dispatch.schedule_us, self.machine.stack.dispatch.request_us
        alone = _from_figure(first, Bound.HOST, "scheduling")
        if requests == 1:
            return alone
        source = weakest(first.source, more.source)
        return replace(alone, seconds=alone.seconds + more.value * (requests - 1) * US, source=source)

    def _host_task(self, work: HostWork) -> Estimate:
        host, dispatch = self.machine.host, self.machine.stack.dispatch
        match work.task:
            case HostTask.SCHEDULE:
                return self._scheduling(work.items)
            case HostTask.TREE_DISPATCH:
                return _from_figure(dispatch.tree_dispatch_us, Bound.HOST, "tree dispatch")
            case HostTask.SYNCHRONISE:
                return _from_figure(dispatch.synchronise_us, Bound.HOST, "synchronisation")
            case HostTask.HAND_OVER:
                exposed = self.machine.stack.overlap.exposed_us
                if exposed is None:
                    raise HardwareError(self.machine.stack.name, "lacks exposed_us")
                return _from_figure(exposed, Bound.HOST, "between two steps")
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


def measured_gpu(gpu: Gpu) -> Gpu:
    """The GPU whose tables *gpu* takes; itself where its own name is in no catalog."""
    own = gpu.name == gpu.measured_as and gpu.name not in catalog.names(Kind.GPU)
    return gpu if own else catalog.gpu(gpu.measured_as)


def _pace(gpu: Gpu) -> tuple[float, float]:
    """The two figures that scale a table from one GPU to another."""
    return gpu.kernel_floor_us.value, gpu.achieved_bandwidth_gb_s.value


def _how(kernel: AttentionKernel) -> str:
    """How *kernel* scales with queries, in words."""
    return f"{kernel.query_scaling.value} queries ({kernel.scaling_ref.strip()})"


def _total_seconds(parts: list[tuple[Estimate, int]]) -> float:
    return sum(part.seconds * times for part, times in parts)


def _between_rows(size_bytes: float, rows: NDArray[np.float64], cutoff: int | None) -> bool:
    """True where *size_bytes* lies between two measured sizes, both on its side of the *cutoff*."""
    if cutoff is not None:
        own = rows >= cutoff if size_bytes >= cutoff else rows < cutoff
        rows = rows[own]
    return len(rows) > 0 and bool(rows[0] <= size_bytes <= rows[-1])


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

"""The cost model: work in, Estimate out.

Order of preference for each piece of work: samples measured on this very GPU where it
names a measured file, a measured table of this device and stack, a fit to it, a measured
table scaled by a stated rule (``lookup`` finds it), the roofline. No estimate but a measured
file's lies below the datasheet bound, and none falls as a size grows between shapes that
were not measured; measurements and samples are taken as they are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import assert_never

from hwmodels import lookup, roofline
from hwmodels.attention_cost import AttentionCost
from hwmodels.basis import GB, US, Basis, from_figure
from hwmodels.estimate import Bound, Estimate, Source, weakest
from hwmodels.expert_cost import ExpertCost
from hwmodels.host_cost import HostCost
from hwmodels.link_cost import LinkCost
from hwmodels.machine import Machine
from hwmodels.sampled import Answer, Silence
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
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
    HostWork,
    IndexScores,
    LooseLaunch,
    MlaAttention,
    Prefill,
    StreamContention,
    Work,
)


class CostModel:
    """Costs work on *machine*. Estimates are cached: the same work is asked for every step."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._known: dict[Work, Estimate] = {}
        self._basis = Basis(machine)
        self._attention = AttentionCost(self._basis)
        self.experts = ExpertCost(self._basis)
        """Of routed experts: which kernel runs them, too."""
        self._links = LinkCost(self._basis)
        self._host = HostCost(machine)

    @property
    def bandwidth_ratio(self) -> float:
        """Achieved bandwidth over that of the GPU whose tables are taken; 1 where they are its own."""
        return self._basis.bandwidth_ratio

    def floor_seconds(self, work: GpuWork) -> float:
        """The datasheet bound of *work* on this GPU."""
        return self._basis.floor_seconds(work)

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
                return self._basis.streamed(work).bound
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
                return self.experts.estimate(work)
            case MlaAttention():
                return self._attention.latent(work)
            case GqaAttention():
                return self._attention.grouped(work)
            case BatchedGemm() | IndexScores() | Elementwise():
                return self._basis.streamed(work)
            case StreamContention():
                return self._contention(work)
            case GpuKernel():
                return self._kernel(work)
            case AllReduce() | AllGather() | Exchange():
                return self._links.estimate(work)
            case Copy() | HostWork() | GraphLaunch() | EagerLaunch() | LooseLaunch():
                return self._host.estimate(work)
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

    def _gemm(self, work: Gemm) -> Estimate:
        """Table over (n, k, m), at least the shortest kernel plus the weights at peak bandwidth.

        The bound matters where the benchmark's repeated weight fitted into L2.
        """
        gpu = self.machine.gpu
        grid = lookup.gemm(gpu.measured_as, self.machine.stack.framework, work, self._basis.database)
        sizes = (work.n, work.k, work.m)
        streamed = self._basis.streamed(work)
        if grid is None:
            return self._quantised(work) or streamed
        cold = gpu.kernel_floor_us.value * US + self.floor_seconds(work)
        measured = self._basis.seconds_here(grid(*sizes))
        if not grid.covers(*sizes):
            name = f"{streamed.evidence}, not below {grid.name}"
            return replace(streamed, seconds=max(measured, streamed.seconds), evidence=name)
        if measured < cold:
            name = f"L2-warm in {grid.name}: shortest kernel + bytes at peak bandwidth"
            return replace(streamed, seconds=cold, source=Source.DATASHEET, evidence=name)
        return Estimate(
            seconds=measured,
            spread=grid.smoothing,
            source=self._basis.carried(Source.MEASURED, grid.framework),
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
        # In a serial kernel each part is as unsure as its own figure; else only the longer one counts.
        parts = [(read, share.spread), (multiplied, peak.spread)]
        counted = parts if kernel.serial else [max(parts)]
        both = sum(seconds for seconds, _ in counted)
        return Estimate(
            seconds=gpu.kernel_floor_us.value * US + both,
            spread=sum(seconds * spread for seconds, spread in counted) / both,
            source=weakest(share.source, peak.source),
            bound=Bound.MEMORY if read >= multiplied else Bound.COMPUTE,
            evidence=f"{share.value:g} of the datasheet bandwidth, {peak.value:g} TFLOPS ({share.ref})",
        )

    def _contention(self, work: StreamContention) -> Estimate:
        """No kernel of its own: only the bytes that another stream takes."""
        achieved = self.machine.gpu.achieved_bandwidth_gb_s
        return Estimate(
            seconds=work.size_bytes / self._basis.achieved_bytes_s,
            spread=achieved.spread,
            source=achieved.source,
            bound=Bound.MEMORY,
            evidence=f"{achieved.value:g} GB/s",
        )

    def _kernel(self, work: GpuKernel) -> Estimate:
        dispatch = self.machine.stack.dispatch
        match work.task:
            case GpuTask.TOP_K:
                return from_figure(dispatch.top_k_us, Bound.LATENCY, "top-k kernels")
            case GpuTask.TREE_BUILD:
                per_node = dispatch.gpu_tree_us_per_node
                extra = self.machine.gpu.kernel_floor_us.value * US
                return from_figure(per_node, Bound.LATENCY, "tree kernel", extra, work.items)
            case GpuTask.TREE_ACCEPT:
                floor = self.machine.gpu.kernel_floor_us
                walk = from_figure(floor, Bound.LATENCY, "a greedy walk in the shortest kernel")
                return replace(walk, source=Source.ASSUMED)
            case GpuTask.TREE_SELECT:
                return from_figure(self.machine.stack.drafting.tree_us, Bound.LATENCY, "EAGLE tree")
            case GpuTask.LOOSE:
                floor = self.machine.gpu.kernel_floor_us
                return from_figure(floor, Bound.LATENCY, "the shortest kernel", times=work.items)
            case _:
                assert_never(work.task)


def _total_seconds(parts: list[tuple[Estimate, int]]) -> float:
    return sum(part.seconds * times for part, times in parts)

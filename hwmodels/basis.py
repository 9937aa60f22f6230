"""What every estimate starts from: the roofline of a GPU, and how tables are carried over to it."""

from __future__ import annotations

from hwmodels import catalog, perfdb, roofline
from hwmodels.catalog import Kind
from hwmodels.devices import Gpu
from hwmodels.entry import Figure
from hwmodels.estimate import Bound, Estimate, Source, weakest
from hwmodels.machine import Machine
from hwmodels.work import GpuWork

US = 1e-6
GB = 1e9


class Basis:
    """What the costs of all kinds of work on *machine* share."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.database = perfdb.database(machine.gpu.perfdb)
        """Of tables that the shipped ones lack; None where it is not installed."""
        self._measured_gpu = machine.tables_of or measured_gpu(machine.gpu)

    def floor_seconds(self, work: GpuWork) -> float:
        """The datasheet bound of *work* on this GPU."""
        return roofline.floor_seconds(self.machine.gpu, work)

    def streamed(self, work: GpuWork, kernels: float = 1) -> Estimate:
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

    def carried(self, source: Source, framework: str) -> Source:
        """*source*, but SCALED where another GPU or another engine's kernel was measured."""
        gpu, there = self.machine.gpu, self._measured_gpu
        same_gpu = gpu.name == there.name and _pace(gpu) == _pace(there)
        same_engine = framework == self.machine.stack.framework
        return source if same_gpu and same_engine else weakest(source, Source.SCALED)

    def seconds_here(self, measured_us: float) -> float:
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

    @property
    def bandwidth_ratio(self) -> float:
        """Achieved bandwidth of the GPU over that of the one whose tables it takes."""
        there, here = self._measured_gpu, self.machine.gpu
        return here.achieved_bandwidth_gb_s.value / there.achieved_bandwidth_gb_s.value

    @property
    def achieved_bytes_s(self) -> float:
        """Bytes per second that dense kernels reach when weights come from DRAM."""
        return self.machine.gpu.achieved_bandwidth_gb_s.value * GB


def measured_gpu(gpu: Gpu) -> Gpu:
    """The GPU whose tables *gpu* takes; itself where its own name is in no catalog."""
    own = gpu.name == gpu.measured_as and gpu.name not in catalog.names(Kind.GPU)
    return gpu if own else catalog.gpu(gpu.measured_as)


def _pace(gpu: Gpu) -> tuple[float, float]:
    """The two figures that scale a table from one GPU to another."""
    return gpu.kernel_floor_us.value, gpu.achieved_bandwidth_gb_s.value


def from_figure(
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

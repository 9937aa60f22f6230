"""What a node is made of: GPUs, the fabric between them, and the host."""

from __future__ import annotations

from hwmodels.documents import Strict
from hwmodels.entry import Entry, Figure
from hwmodels.work import DType


class GpuNoise(Strict):
    """How kernel times vary on this GPU, as relative standard deviations."""

    kernel_cv: Figure
    """One execution against another of the same kernel."""
    step_cv: Figure
    """Shared by all kernels of one decode step (clock, scheduling)."""
    rank_cv: Figure
    """One GPU of the node against another, for a whole run."""
    spike_probability: Figure
    """Chance that a step is hit by a stall."""
    spike_factor_low: Figure
    spike_factor_high: Figure


class Gpu(Entry):
    """One accelerator."""

    compute_capability: str
    measured_as: str
    """The ``gpu`` column of the measured tables, and what stacks choose kernels by."""
    measured: str | None = None
    """A measured file beside this one (``my_gpu.jsonl``) or the name of a shipped one; not inherited."""
    perfdb: str | None = None
    """The system of NVIDIA AIConfigurator (extra ``perfdb``) that has what the shipped tables lack."""
    memory_bandwidth_gb_s: Figure
    achieved_bandwidth_gb_s: Figure
    """What dense kernels reach when weights come from DRAM."""
    memory_gib: Figure
    l2_mib: Figure
    tflops: dict[DType, Figure]
    """Dense peak by storage type; INT4 weights multiply in BF16."""
    kernel_floor_us: Figure
    """The shortest kernel inside a graph, its gap to the next one included."""
    kv_run_overhead_bytes: Figure
    """DRAM traffic lost at each break between contiguous runs of cached tokens."""
    usual_interconnect: str | None = None
    """Between several of these where a publication does not say; None where nothing is usual."""
    usual_host: str | None = None
    """The host they usually sit in."""
    noise: GpuNoise


class Interconnect(Entry):
    """The fabric between the GPUs of one node."""

    fabric: str
    """The ``fabric`` column of the AllReduce table."""
    link: str
    """Name of the link lane in records, such as ``nvlink`` or ``pcie``."""
    bandwidth_gb_s: Figure
    """Per GPU and direction, as a transfer reaches it."""
    alpha_us: Figure
    """Latency of one hop in the closed forms."""
    collective_base_us: Figure | None = None
    """What a collective of a library takes before its first hop; without it *alpha_us* has it spread out."""
    collective_hop_us: Figure | None = None
    """Each further rank of such a collective."""
    small_message_algorithm_max_bytes: Figure
    """Largest message for which a one-shot kernel is chosen, where the stack has one."""
    noise_cv: Figure


class Host(Entry):
    """The CPU side of the node."""

    pcie_gb_s: Figure
    heap_us_per_operation: Figure
    """Best-first tree in Python: one push or pop, with what is computed for it."""
    mask_us_per_node: Figure
    """A node's row of the ancestor mask."""
    noise_cv: Figure
    """Eager host work, one execution against another."""
    graph_launch_cv: Figure

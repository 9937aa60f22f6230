"""One node as the cost model sees it."""

from __future__ import annotations

from dataclasses import dataclass

from hwmodels.devices import Gpu, Host, Interconnect
from hwmodels.sampled import Samples
from hwmodels.stacks import Stack


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

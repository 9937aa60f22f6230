"""A scenario with its catalog entries looked up: what everything else works from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path

from hwmodels import catalog, sampled
from hwmodels.catalog import Drafter, Gpu, TargetModel
from hwmodels.cost import CostModel, Machine
from hwmodels.errors import HardwareError, MeasuredFileError
from hwmodels.sampled import Samples
from sim import memory, traces
from sim.choices import Shape
from sim.errors import ScenarioError
from sim.scenario import CapturePolicy, Scenario
from sim.traces import Trace


class LaunchMode(Enum):
    """How the kernels of a forward pass reach the GPU."""

    GRAPH = "graph"
    EAGER = "eager"


@dataclass(frozen=True)
class Setup:
    """*scenario* with its *model*, *drafter* and *machine*, and its *trace* where acceptance has one."""

    scenario: Scenario
    model: TargetModel
    drafter: Drafter
    machine: Machine
    trace: Trace | None = None

    @cached_property
    def costs(self) -> CostModel:
        """The cost model of the machine."""
        return CostModel(self.machine)

    @cached_property
    def broken_limit(self) -> catalog.CaptureLimit | None:
        """The capture limit that this scenario's tree breaks, whether it is kept or lifted."""
        drafted = self.scenario.drafted
        if self.scenario.is_plain or drafted.shape is Shape.CHAIN:
            return None
        budget, capability = drafted.budget, self.machine.gpu.compute_capability
        for limit in self.machine.stack.dispatch.capture_limits:
            if limit.compute_capability == capability and budget > limit.max_tree_budget:
                return limit
        return None

    @property
    def verify_launch(self) -> LaunchMode:
        """Eager where the stack has no graphs or cannot capture this tree."""
        broken = self.broken_limit is not None
        if broken and self.scenario.capture_limit is CapturePolicy.KEPT:
            return LaunchMode.EAGER
        return self.draft_launch

    @property
    def draft_launch(self) -> LaunchMode:
        """How the drafter is launched: its size does not depend on the budget."""
        return LaunchMode.GRAPH if self.machine.stack.dispatch.graphs else LaunchMode.EAGER


def resolve(scenario: Scenario) -> Setup:
    """Look up everything *scenario* names; DocumentError or HardwareError where that fails."""
    gpu = catalog.gpu(scenario.gpu)
    machine = Machine(
        gpu=gpu,
        ranks=scenario.gpus,
        interconnect=catalog.interconnect(scenario.interconnect),
        host=catalog.host(scenario.host),
        stack=catalog.stack(scenario.stack),
        expert_kernel=scenario.experts.kernel,
        samples=None if gpu.measured is None else _samples(gpu, gpu.measured),
    )
    setup = Setup(
        scenario=scenario,
        model=catalog.target_model(scenario.model),
        drafter=catalog.drafter(scenario.drafter.model),
        machine=machine,
        trace=_trace(scenario),
    )
    _check_memory(setup)
    return setup


def _samples(gpu: Gpu, path: str) -> Samples:
    """Of *gpu*'s measured file; MeasuredFileError where another kind of GPU was measured."""
    found = sampled.load(Path(path))
    device = found.device
    if device.compute_capability != gpu.compute_capability:
        raise MeasuredFileError(
            path,
            1,
            f"device.compute_capability {device.compute_capability} ('{device.name}')",
            f"{gpu.compute_capability}, which {gpu.name} has",
        )
    return found


def _trace(scenario: Scenario) -> Trace | None:
    """The observed lengths that *scenario* names; ScenarioError where its tree could not land them."""
    path = scenario.acceptance.trace
    if path is None or scenario.is_plain:
        return None
    trace = traces.read(Path(path), scenario.acceptance.counts)
    longest = max(max(lengths) for lengths in trace.requests)
    if longest > scenario.max_acceptance_length:
        problem = f"has a length of {longest}, but {scenario.drafted} allow at most"
        raise ScenarioError(path, 0, "acceptance.trace", f"{problem} {scenario.max_acceptance_length}")
    return trace


def _check_memory(setup: Setup) -> None:
    """Refuse what does not fit into the GPUs; workspaces and graphs come on top and are not counted."""
    scenario, gpu, ranks = setup.scenario, setup.machine.gpu, setup.machine.ranks
    load = scenario.load
    tokens = load.concurrency * (load.context_tokens + load.output_tokens)
    needed = memory.target_bytes_per_rank(setup.model, ranks)
    needed += memory.cache_bytes(setup.model, tokens, scenario.kv.dtype)
    if not scenario.is_plain:
        needed += memory.drafter_bytes_per_rank(setup.drafter, ranks)
    if needed > gpu.memory_gib.value * memory.GIB:
        raise HardwareError(
            gpu.name,
            f"{setup.model.name} on {ranks} GPUs with {tokens:,} cached tokens needs"
            f" {needed / memory.GIB:.1f} GiB on each, but there are {gpu.memory_gib.value:.1f}",
        )

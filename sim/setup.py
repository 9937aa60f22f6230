"""A scenario with its catalog entries looked up: what everything else works from."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from math import ceil
from pathlib import Path

from hwmodels import catalog, sampled
from hwmodels.captured import Beyond
from hwmodels.cost import CostModel
from hwmodels.devices import Gpu
from hwmodels.drafters import Drafter, Method
from hwmodels.errors import HardwareError, MeasuredFileError
from hwmodels.machine import Machine
from hwmodels.models import Gqa, TargetModel
from hwmodels.sampled import Samples
from hwmodels.stacks import BlockSchedule, CaptureLimit
from sim import memory, traces
from sim.batching import Capacity
from sim.choices import Shape
from sim.errors import ScenarioError
from sim.scenario import CapturePolicy, Scenario
from sim.traces import Trace
from sim.uncertainty import posterior_file
from sim.uncertainty.posterior import Posterior


class LaunchMode(Enum):
    """How the kernels of a forward pass reach the GPU."""

    GRAPH = "graph"
    EAGER = "eager"
    PIECEWISE = "piecewise"
    """Attention by itself, what lies between as graphs."""


_BEYOND = {Beyond.EAGER: LaunchMode.EAGER, Beyond.PIECEWISE: LaunchMode.PIECEWISE}
"""How a pass beyond every captured size is launched."""


@dataclass(frozen=True)
class Setup:
    """*scenario* with its *model*, *drafter* and *machine*, and the *trace* and *posterior* that it names."""

    scenario: Scenario
    model: TargetModel
    drafter: Drafter
    machine: Machine
    trace: Trace | None = None
    posterior: Posterior | None = None

    @property
    def system(self) -> str:
        """The machine and engine, as published cases name them: ``8x b300_sxm, sglang``."""
        machine = self.machine
        return f"{machine.ranks}x {machine.gpu.name}, {machine.stack.name}"

    @cached_property
    def costs(self) -> CostModel:
        """The cost model of the machine."""
        return CostModel(self.machine)

    @cached_property
    def weight_bytes(self) -> float:
        """Weights of target and drafter on one rank."""
        target = memory.target_bytes_per_rank(self.model, self.machine.ranks)
        if self.scenario.is_plain:
            return target
        return target + memory.drafter_bytes_per_rank(self.drafter, self.machine.ranks)

    @property
    def usable_gib(self) -> float:
        """What the stack uses of a GPU for weights and cache."""
        of, fraction = self.machine.gpu.memory_gib.value, self.scenario.kv.memory_fraction
        return memory.usable_gib(self.machine.stack.memory, of, fraction)

    @cached_property
    def capacity(self) -> Capacity:
        """The attention cache of a rank in blocks: what the weights leave of its memory."""
        scenario, stack, ranks = self.scenario, self.machine.stack, self.machine.ranks
        room = self.usable_gib * memory.GIB - self.weight_bytes
        block = memory.cache_bytes(self.model, stack.memory.block_tokens, scenario.kv.dtype, ranks)
        # Of every block in a row a rank holds one of dcp.
        tokens = -(-scenario.request_tokens // (stack.memory.block_tokens * scenario.dcp))
        state = memory.state_bytes(self.model, 1, ranks)
        return Capacity(max(0, int(room // block)), tokens + ceil(state / block))

    @cached_property
    def requests(self) -> int:
        """Requests that decode together: those of the load that fit into the cache."""
        return min(self.scenario.load.concurrency, self.capacity.requests)

    @property
    def capacity_limited(self) -> bool:
        """True where some requests of the load wait for others to leave."""
        return self.requests < self.scenario.load.concurrency

    @cached_property
    def broken_limit(self) -> CaptureLimit | None:
        """The capture limit that this scenario's tree breaks, whether it is kept or lifted."""
        drafted = self.scenario.drafted
        if self.scenario.is_plain or drafted.shape is not Shape.DDTREE:
            return None
        budget, capability = drafted.budget, self.machine.gpu.compute_capability
        for limit in self.machine.stack.dispatch.capture_limits:
            if limit.compute_capability == capability and budget > limit.max_tree_budget:
                return limit
        return None

    @property
    def verify_launch(self) -> LaunchMode:
        """Eager where the stack has no graphs or cannot capture this tree; see ``_launch`` for the batch."""
        broken = self.broken_limit is not None
        if broken and self.scenario.capture_limit is CapturePolicy.KEPT:
            return LaunchMode.EAGER
        return self._launch(self.scenario.verify_tokens)

    @property
    def speculates_ahead(self) -> bool:
        """Whether the host prepares a speculative step beside the GPUs, so that no launch holds them up.

        A draft tree is waited for: DDTree needs the host for it, and SGLang's overlap takes chains alone.
        """
        if self.drafter.method is Method.DFLASH:
            return self._drafts_block(BlockSchedule.AHEAD)
        chain = self.scenario.tree.shape is Shape.CHAIN
        overlap = self.machine.stack.overlap
        ahead = overlap.schedule_ahead and overlap.speculative_schedule_ahead
        return ahead and chain and self.verify_launch is LaunchMode.GRAPH

    @property
    def schedules_beside_verify(self) -> bool:
        """Whether the host prepares the next step while this one is verified, but waits for the draft."""
        return self._drafts_block(BlockSchedule.BESIDE_VERIFY)

    def _drafts_block(self, when: BlockSchedule) -> bool:
        """Whether a step drafts a chain with a block drafter and is prepared *when*."""
        block = self.drafter.method is Method.DFLASH and self.scenario.tree.shape is Shape.CHAIN
        overlap = self.machine.stack.overlap
        chosen = overlap.schedule_ahead and overlap.block_schedule is when
        return block and chosen and self.verify_launch is LaunchMode.GRAPH

    @property
    def draft_launch(self) -> LaunchMode:
        """How the drafter is launched: its size does not depend on the budget."""
        return self._launch(self.scenario.drafter.block)

    @property
    def verify_padding(self) -> int:
        """Requests added to the verify pass to fill a captured graph."""
        return self._padding(self.verify_launch, self.scenario.verify_tokens)

    @property
    def draft_padding(self) -> int:
        """Requests added to the draft pass to fill a captured graph; plain decoding drafts nothing."""
        if self.scenario.is_plain:
            return 0
        return self._padding(self.draft_launch, self.scenario.drafter.block)

    def _launch(self, queries: int) -> LaunchMode:
        """How a pass with *queries* tokens of each request is launched."""
        dispatch = self.machine.stack.dispatch
        if not dispatch.graphs:
            return LaunchMode.EAGER
        return LaunchMode.GRAPH if self._captured(queries) else _BEYOND[dispatch.captured.beyond]

    def _padding(self, mode: LaunchMode, queries: int) -> int:
        held = self._captured(queries) if mode is LaunchMode.GRAPH else None
        return 0 if held is None else held - self.requests

    def _captured(self, queries: int) -> int | None:
        captured, gpu = self.machine.stack.dispatch.captured, self.machine.gpu
        return captured.padded(self.requests, queries, self.machine.ranks, gpu.memory_gib.value)


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
        posterior=None if scenario.calibration is None else posterior_file.read(scenario.calibration),
    )
    _check_method(setup)
    _check_groups(setup)
    _check_kernel(setup)
    _check_shards(setup)
    _check_memory(setup)
    return setup


SHAPES = {
    Method.DFLASH: (Shape.DDTREE, Shape.CHAIN),
    Method.EAGLE: (Shape.CHAIN, Shape.EAGLE),
    Method.MTP: (Shape.CHAIN, Shape.EAGLE),
}
"""Draft trees that each method can give."""


def _check_method(setup: Setup) -> None:
    """Refuse a tree that the drafter's method cannot give; ScenarioError."""
    shape, known = setup.scenario.tree.shape, SHAPES[setup.drafter.method]
    if not setup.scenario.is_plain and shape not in known:
        problem = f"{setup.drafter.name} ({setup.drafter.method}) drafts {' or '.join(known)}, not {shape}"
        raise ScenarioError("scenario", 0, "tree.shape", problem)


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


def _check_groups(setup: Setup) -> None:
    """Refuse expert groups that the model's experts do not fill evenly."""
    routed, groups = setup.model.experts, setup.scenario.experts.ep
    if groups > 1 and routed is None:
        raise HardwareError(setup.model.name, f"no experts to share out over {groups} groups (experts.ep)")
    if routed is not None and routed.count % groups:
        problem = f"{routed.count} experts do not make {groups} equal groups (experts.ep)"
        raise HardwareError(setup.model.name, problem)


def _check_kernel(setup: Setup) -> None:
    """Refuse an expert kernel that the stack does not have for the target's experts."""
    routed, machine = setup.model.experts, setup.machine
    if machine.expert_kernel is None or routed is None:
        return
    found = setup.costs.experts.kernel(routed.dtype)
    if found.kernel != machine.expert_kernel:
        raise HardwareError(
            f"{machine.stack.name} on {machine.gpu.name}",
            f"no {routed.dtype.value} expert kernel named '{machine.expert_kernel}' (known: {found.kernel})",
        )


def _check_shards(setup: Setup) -> None:
    """Refuse context parallelism over ranks that hold different heads: only copies can be sharded."""
    attention, ranks, dcp = setup.model.attention, setup.machine.ranks, setup.scenario.dcp
    if isinstance(attention, Gqa) and dcp > 1 and ranks % (attention.kv_heads * dcp):
        raise HardwareError(
            setup.model.name,
            f"{attention.kv_heads} key and value heads on {ranks} GPUs leave no {dcp} copies to shard (dcp)",
        )


def _check_memory(setup: Setup) -> None:
    """Refuse what cannot decode even one request; a batch of which some fit waits (``Setup.requests``)."""
    if setup.capacity.requests:
        return
    scenario, model, ranks = setup.scenario, setup.model, setup.machine.ranks
    tokens, gpu, stack = scenario.request_tokens, setup.machine.gpu, setup.machine.stack
    needed = setup.weight_bytes + memory.state_bytes(model, 1, ranks)
    needed += memory.cache_bytes(model, -(-tokens // scenario.dcp), scenario.kv.dtype, ranks)
    raise HardwareError(
        gpu.name,
        f"{model.name} on {ranks} GPUs with one request of {tokens:,} cached tokens needs"
        f" {needed / memory.GIB:.1f} GiB on each, but {stack.name} may use {setup.usable_gib:.1f}"
        f" of {gpu.memory_gib.value:.1f}",
    )

"""What a drafter does in a step, from its first pass to a tree or chain that can be verified.

One function per method. Each appends its ops and says what the verify pass has to wait for.
"""

from __future__ import annotations

from typing import NamedTuple

from hwmodels.drafters import DFlash, Eagle, Mtp
from hwmodels.stacks import DraftGraphs
from hwmodels.work import AllGather, CopyDirection, GpuKernel, GpuTask, HostTask, HostWork
from sim.choices import Shape
from sim.draft_kernels import dflash_pass, eagle_passes, mtp_passes
from sim.drafting import heap_operations
from sim.errors import SimulationError
from sim.graph import Component, Lane, Phase
from sim.kernels import Kernel, PassShape
from sim.scenario import TreeBuilder
from sim.step_builder import PYTHON, StepBuilder

TOP_K_ENTRY_BYTES = 8
"""A log-probability and a token id."""
POSITION_BYTES = 8


class Ready(NamedTuple):
    """Ops that the verify pass waits for."""

    launch: list[int]
    """Before it is launched."""
    kernels: list[int]
    """Before its first kernels run."""


NOTHING = Ready([], [])
"""The verify pass may be launched at once; its kernels queue behind those of the drafter."""


def draft(step: StepBuilder, scheduled: list[int]) -> Ready:
    """The draft stage of the drafter's method, which begins when *scheduled* has ended."""
    match step.setup.drafter:
        case DFlash() as drafter:
            return dflash_stage(step, drafter, scheduled)
        case Eagle() as drafter:
            return eagle_stage(step, drafter, scheduled)
        case Mtp() as drafter:
            return mtp_stage(step, drafter, scheduled)
        case drafter:
            raise SimulationError(f"no draft stage for {drafter.method}")


def dflash_stage(step: StepBuilder, drafter: DFlash, scheduled: list[int]) -> Ready:
    """One pass over a block, and a chain or a DDTree out of it."""
    setup = step.setup
    scenario = setup.scenario
    shape = PassShape(
        setup.requests, scenario.drafter.block, scenario.load.context_tokens, setup.draft_padding
    )
    step.forward(Phase.DRAFT, dflash_pass(setup, drafter, shape), setup.draft_launch, scheduled)
    return _pick_chain(step) if scenario.tree.shape is Shape.CHAIN else _build_tree(step)


def eagle_stage(step: StepBuilder, drafter: Eagle, scheduled: list[int]) -> Ready:
    """A pass for every position; an EAGLE tree is put together by kernels of its own."""
    _run_passes(step, eagle_passes(step.setup, drafter), scheduled)
    return _finish_passes(step)


def mtp_stage(step: StepBuilder, drafter: Mtp, scheduled: list[int]) -> Ready:
    """A pass of the extra layer for every position."""
    _run_passes(step, mtp_passes(step.setup, drafter), scheduled)
    return _finish_passes(step)


def _run_passes(step: StepBuilder, passes: list[list[Kernel]], scheduled: list[int]) -> None:
    """Launch and run *passes*, in as many graphs as the stack captures them in."""
    drafting, mode = step.setup.machine.stack.drafting, step.setup.draft_launch
    after, charged = scheduled, -drafting.passes_in_schedule
    for graph in _graphs(drafting.graphs, passes):
        charged += len(graph)
        if charged > 0:
            python = HostWork(HostTask.DRAFT_PASS, min(charged, len(graph)))
            after = [step.add(Phase.DRAFT, Component.SCHEDULING, python, [PYTHON], after)]
        step.forward(Phase.DRAFT, [kernel for one in graph for kernel in one], mode, after)
        after = []


def _graphs(how: DraftGraphs, passes: list[list[Kernel]]) -> list[list[list[Kernel]]]:
    """*passes* by the graph that they are captured in."""
    match how:
        case DraftGraphs.PER_PASS:
            return [[one] for one in passes]
        case DraftGraphs.FIRST_AND_REST:
            return [graph for graph in (passes[:1], passes[1:]) if graph]
        case DraftGraphs.ONE:
            return [passes]


def _run_loose(step: StepBuilder) -> None:
    """The small kernels of a step that are in no graph, all between draft and verification."""
    loose = int(step.setup.machine.stack.drafting.loose_kernels.value)
    if loose:
        launched = step.launch(Phase.COPY_BACK, loose)
        step.per_rank(Phase.COPY_BACK, Component.DRAFTER, GpuKernel(GpuTask.LOOSE, loose), launched)


def _finish_passes(step: StepBuilder) -> Ready:
    """Kernels between the last pass and the verification. All of it stays on the GPUs."""
    _run_loose(step)
    spec = step.setup.scenario.drafted
    if spec.shape is Shape.EAGLE:
        step.per_rank(Phase.TREE, Component.TREE, GpuKernel(GpuTask.TREE_SELECT, spec.nodes))
    return NOTHING


def _build_tree(step: StepBuilder) -> Ready:
    """Top-k and tree. On the GPU the host has no part in it."""
    scenario = step.setup.scenario
    requests, budget = step.setup.requests, scenario.tree.budget
    positions = requests * (scenario.drafter.block - 1)
    candidates = positions * min(budget, step.setup.model.vocab) * TOP_K_ENTRY_BYTES
    dispatched = step.host(Phase.COPY_BACK, Component.LAUNCH, HostTask.TREE_DISPATCH)
    top_k = GpuKernel(GpuTask.TOP_K, positions)
    step.per_rank(Phase.COPY_BACK, Component.TREE, top_k, [dispatched])
    gathered = step.collective(
        Phase.COPY_BACK, Component.TREE, AllGather(candidates * step.ranks, step.ranks)
    )
    if scenario.tree.builder is TreeBuilder.GPU:
        # One warp a request: their trees are built side by side.
        step.per_rank(Phase.TREE, Component.TREE, GpuKernel(GpuTask.TREE_BUILD, budget))
        return NOTHING
    copied = step.copy(Phase.COPY_BACK, candidates, CopyDirection.TO_HOST, [gathered])
    built = _build_on_host(step, copied)
    tokens = budget + 1
    moved = requests * (tokens * tokens + tokens * POSITION_BYTES)
    mask = step.copy(Phase.TREE, moved, CopyDirection.TO_DEVICE, built)
    return Ready(built, [mask])


def _build_on_host(step: StepBuilder, copied: int) -> list[int]:
    """Every request's tree, shared out over the workers; the last op of each worker."""
    scenario = step.setup.scenario
    requests, budget = step.setup.requests, scenario.tree.budget
    workers = min(scenario.tree.workers, requests)
    operations, last = heap_operations(step.setup), []
    for worker in range(workers):
        share = len(range(worker, requests, workers))
        lane = [Lane("host", f"tree{worker}")]
        heap = HostWork(HostTask.TREE_BUILD, share * operations)
        built = step.add(Phase.TREE, Component.TREE, heap, lane, [copied])
        mask = HostWork(HostTask.TREE_MASK, share * budget)
        last.append(step.add(Phase.TREE, Component.TREE, mask, lane, [built]))
    return last


def _pick_chain(step: StepBuilder) -> Ready:
    """First choices, which never leave the GPUs."""
    _run_loose(step)
    scenario = step.setup.scenario
    positions = step.setup.requests * (scenario.drafter.block - 1)
    launched = step.launch(Phase.COPY_BACK, 1)
    step.per_rank(Phase.COPY_BACK, Component.TREE, GpuKernel(GpuTask.TOP_K, positions), launched)
    choices = AllGather(positions * TOP_K_ENTRY_BYTES * step.ranks, step.ranks)
    step.collective(Phase.COPY_BACK, Component.TREE, choices)
    return NOTHING

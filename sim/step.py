"""One decode step as a step graph: schedule, draft, copy back, tree, dispatch, verify, accept.

The whole model of a step is ``tree_step`` and ``plain_step``; the kernels of the
two forward passes are in ``sim.kernels``.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import assert_never

from hwmodels.roofline import ACTIVATION_BYTES
from hwmodels.work import (
    AllGather,
    ContextWork,
    Copy,
    CopyDirection,
    EagerLaunch,
    Elementwise,
    GpuKernel,
    GpuTask,
    GraphLaunch,
    HostTask,
    HostWork,
    LinkWork,
    Work,
)
from sim.choices import Shape
from sim.drafting import heap_operations
from sim.graph import Component, GraphBuilder, Lane, Phase, StepGraph
from sim.kernels import CudaStream, Kernel, PassShape, draft_pass, verify_pass
from sim.memory import cache_bytes
from sim.scenario import TreeBuilder
from sim.setup import LaunchMode, Setup

PYTHON = Lane("host", "python")
RANK_0_COPY = Lane("gpu0", "copy")
TOP_K_ENTRY_BYTES = 8
"""A log-probability and a token id."""
POSITION_BYTES = 8


def decode_step(setup: Setup) -> StepGraph:
    """The step graph of *setup*, with attention over the context where decoding begins.

    The structure is the same for every step of a run; only durations change.
    """
    return _plain_step(setup) if setup.scenario.is_plain else _tree_step(setup)


def _tree_step(setup: Setup) -> StepGraph:
    """Draft a block, build the tree, verify it in one pass, accept, and only then go on."""
    step = _Step(setup)
    scenario = setup.scenario
    requests, context = setup.requests, scenario.load.context_tokens
    shape = PassShape(requests, scenario.verify_tokens, context, setup.verify_padding)
    chain = scenario.tree.shape is Shape.CHAIN

    scheduled = step.host(Phase.SCHEDULE, Component.SCHEDULING, HostTask.SCHEDULE)
    drafted = PassShape(requests, scenario.drafter.block, context, setup.draft_padding)
    draft = draft_pass(setup, drafted)
    step.forward(Phase.DRAFT, draft, setup.draft_launch, launch_after=[scheduled])
    tree_ready, mask_ready = _pick_chain(step) if chain else _build_tree(step)
    verify = verify_pass(setup, shape)
    step.forward(Phase.VERIFY, verify, setup.verify_launch, tree_ready, kernels_after=mask_ready)
    _accept(step, shape.own_tokens)
    return step.builder.build()


def _build_tree(step: _Step) -> tuple[list[int], list[int]]:
    """Top-k and tree. Returns what the verify launch and what its first kernels wait for.

    On the GPU the host has no part in it: the verify pass may be launched at once,
    and its kernels queue behind the tree kernel.
    """
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
        return [], []
    copied = step.copy(Phase.COPY_BACK, candidates, CopyDirection.TO_HOST, [gathered])
    built = _build_on_host(step, copied)
    tokens = budget + 1
    moved = requests * (tokens * tokens + tokens * POSITION_BYTES)
    mask = step.copy(Phase.TREE, moved, CopyDirection.TO_DEVICE, built)
    return built, [mask]


def _build_on_host(step: _Step, copied: int) -> list[int]:
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


def _pick_chain(step: _Step) -> tuple[list[int], list[int]]:
    """First choices, which never leave the GPUs: the verify pass may be launched at once."""
    scenario = step.setup.scenario
    positions = step.setup.requests * (scenario.drafter.block - 1)
    launched = step.add(Phase.COPY_BACK, Component.LAUNCH, EagerLaunch(1, False), [PYTHON])
    step.per_rank(Phase.COPY_BACK, Component.TREE, GpuKernel(GpuTask.TOP_K, positions), [launched])
    choices = AllGather(positions * TOP_K_ENTRY_BYTES * step.ranks, step.ranks)
    step.collective(Phase.COPY_BACK, Component.TREE, choices)
    return [], []


def _accept(step: _Step, tokens: int) -> None:
    """Greedy walk down the tree, KV compaction, accepted ids to the host, synchronise."""
    setup = step.setup
    model = setup.model
    longest = setup.requests * setup.scenario.max_acceptance_length
    # Read and written once.
    moved = 2 * int(cache_bytes(model, longest, setup.scenario.kv.dtype, step.ranks))
    works = (
        Elementwise(ACTIVATION_BYTES * tokens * model.vocab),
        GpuKernel(GpuTask.TREE_ACCEPT, tokens),
        Elementwise(moved),
    )
    launched = step.add(Phase.ACCEPT, Component.LAUNCH, EagerLaunch(len(works), False), [PYTHON])
    done: list[int] = []
    for work in works:
        done = step.per_rank(Phase.ACCEPT, Component.ACCEPTANCE, work, [launched])
    copied = step.copy(Phase.ACCEPT, longest * POSITION_BYTES, CopyDirection.TO_HOST, done)
    step.host(Phase.ACCEPT, Component.COPIES, HostTask.SYNCHRONISE, [copied])


def _plain_step(setup: Setup) -> StepGraph:
    """One token for each request. With schedule-ahead the host runs beside the GPU, not before it."""
    step = _Step(setup)
    shape = PassShape(setup.requests, 1, setup.scenario.load.context_tokens, setup.verify_padding)
    ahead = setup.machine.stack.overlap.schedule_ahead and setup.verify_launch is LaunchMode.GRAPH
    scheduled = step.host(Phase.SCHEDULE, Component.SCHEDULING, HostTask.SCHEDULE)
    kernels = verify_pass(setup, shape)
    step.forward(Phase.VERIFY, kernels, setup.verify_launch, [scheduled], launched_ahead=ahead)
    sample = Elementwise(ACTIVATION_BYTES * shape.own_tokens * setup.model.vocab)
    sampled = step.per_rank(Phase.ACCEPT, Component.ACCEPTANCE, sample)
    if not ahead:
        copied = step.copy(Phase.ACCEPT, shape.own_tokens * POSITION_BYTES, CopyDirection.TO_HOST, sampled)
        step.host(Phase.ACCEPT, Component.COPIES, HostTask.SYNCHRONISE, [copied])
    return step.builder.build()


def _graph_of(kernels: list[Kernel]) -> GraphLaunch:
    return GraphLaunch(sum(kernel.launches for kernel in kernels))


def _attends(kernel: Kernel) -> bool:
    """True for what cannot be captured with the rest: attention of target and drafter."""
    return kernel.component is Component.ATTENTION or isinstance(kernel.work, ContextWork)


class _Step:
    """A graph under construction, with the ways in which ops are added to it."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.ranks = setup.machine.ranks
        self.builder = GraphBuilder()
        self._link = Lane(setup.machine.interconnect.link, "root0")
        self._last: dict[CudaStream, list[int]] = {stream: [] for stream in CudaStream}
        self._newest = CudaStream.MAIN

    def add(
        self,
        phase: Phase,
        component: Component,
        work: Work,
        lanes: list[Lane],
        after: Iterable[int] = (),
        rank: int | None = None,
    ) -> int:
        """Append one op."""
        return self.builder.add(phase, component, work, lanes, after, rank)

    def host(self, phase: Phase, component: Component, task: HostTask, after: Iterable[int] = ()) -> int:
        """Work of the Python thread."""
        return self.add(phase, component, HostWork(task, 1), [PYTHON], after)

    def copy(self, phase: Phase, size_bytes: int, direction: CopyDirection, after: Iterable[int]) -> int:
        """A copy on rank 0's copy engine, or on every rank's towards the devices."""
        lanes = [RANK_0_COPY]
        if direction is CopyDirection.TO_DEVICE:
            lanes = [Lane(f"gpu{rank}", "copy") for rank in range(self.ranks)]
        return self.add(phase, Component.COPIES, Copy(size_bytes, direction), lanes, after)

    def per_rank(
        self, phase: Phase, component: Component, work: Work, after: Iterable[int] = ()
    ) -> list[int]:
        """The same work on every rank's main stream."""
        return self._on_ranks(phase, component, work, CudaStream.MAIN, [tuple(after)] * self.ranks)

    def collective(self, phase: Phase, component: Component, work: Work, after: Iterable[int] = ()) -> int:
        """One op on every rank's main stream and the link."""
        lanes = [Lane(f"gpu{rank}", CudaStream.MAIN.value) for rank in range(self.ranks)]
        op = self.add(phase, component, work, [*lanes, self._link], after)
        self._last[CudaStream.MAIN] = [op] * self.ranks
        self._newest = CudaStream.MAIN
        return op

    def forward(
        self,
        phase: Phase,
        kernels: list[Kernel],
        mode: LaunchMode,
        launch_after: Iterable[int],
        kernels_after: Iterable[int] = (),
        launched_ahead: bool = False,
    ) -> None:
        """Launch and run *kernels* on every rank.

        *launch_after* holds up the first launch, *kernels_after* the first kernels. A
        pass *launched_ahead* was launched while the step before it ran.
        """
        waits = tuple(kernels_after)
        match mode:
            case LaunchMode.GRAPH:
                launch = self._launch(phase, _graph_of(kernels), launch_after)
                self._run_all(phase, kernels, waits if launched_ahead else (*waits, launch))
            case LaunchMode.EAGER:
                self._run_eagerly(phase, kernels, launch_after, waits)
            case LaunchMode.PIECEWISE:
                self._run_piecewise(phase, kernels, launch_after, waits)
            case _:
                assert_never(mode)

    def _run_piecewise(
        self,
        phase: Phase,
        kernels: list[Kernel],
        launch_after: Iterable[int],
        waits: tuple[int, ...],
    ) -> None:
        """A graph of what lies between two attentions, each attention by itself; launches queue."""
        for attends, group in groupby(kernels, _attends):
            part = list(group)
            if attends:
                self._run_eagerly(phase, part, launch_after, waits)
            else:
                launch = self._launch(phase, _graph_of(part), launch_after)
                self._run_all(phase, part, (*waits, launch))
            launch_after, waits = (), ()

    def _run_all(self, phase: Phase, kernels: list[Kernel], waits: tuple[int, ...]) -> None:
        for kernel in kernels:
            self._run(phase, kernel, waits)
            waits = ()

    def _run_eagerly(
        self,
        phase: Phase,
        kernels: list[Kernel],
        launch_after: Iterable[int],
        waits: tuple[int, ...],
    ) -> None:
        """Every kernel waits for its own launch; the launches queue on the host."""
        for kernel in kernels:
            if kernel.launches:
                collective = isinstance(kernel.work, LinkWork)
                work = EagerLaunch(kernel.launches, collective)
                waits = (*waits, self._launch(phase, work, launch_after))
                launch_after = ()
            self._run(phase, kernel, waits)
            waits = ()

    def _launch(self, phase: Phase, work: Work, after: Iterable[int]) -> int:
        where = Phase.DISPATCH if phase is Phase.VERIFY else phase
        return self.add(where, Component.LAUNCH, work, [PYTHON], after)

    def _run(self, phase: Phase, kernel: Kernel, waits: tuple[int, ...]) -> None:
        if isinstance(kernel.work, LinkWork):
            self.collective(phase, kernel.component, kernel.work, waits)
            return
        other_stream = self._other_stream(kernel)
        after = [(*waits, op) for op in other_stream] if other_stream else [waits] * self.ranks
        self._on_ranks(phase, kernel.component, kernel.work, kernel.stream, after)

    def _other_stream(self, kernel: Kernel) -> list[int]:
        """Per rank the op of the other stream that *kernel* waits for; empty where none."""
        if kernel.joins:
            return self._last[CudaStream.SIDE]
        if kernel.stream is CudaStream.SIDE and self._newest is CudaStream.MAIN:
            return self._last[CudaStream.MAIN]
        return []

    def _on_ranks(
        self,
        phase: Phase,
        component: Component,
        work: Work,
        stream: CudaStream,
        after: list[tuple[int, ...]],
    ) -> list[int]:
        ops = [
            self.add(phase, component, work, [Lane(f"gpu{rank}", stream.value)], after[rank], rank)
            for rank in range(self.ranks)
        ]
        self._last[stream] = ops
        self._newest = stream
        return ops

"""One decode step as a step graph: schedule, draft, verify, accept.

The whole model of a step is ``_speculative_step`` and ``_plain_step``; what a drafter does in
it is in ``sim.draft_stages``, the kernels of forward passes in ``sim.kernels`` and
``sim.draft_kernels``.
"""

from __future__ import annotations

from hwmodels.roofline import ACTIVATION_BYTES
from hwmodels.work import CopyDirection, Elementwise, GpuKernel, GpuTask, HostTask
from sim.draft_stages import POSITION_BYTES, draft
from sim.graph import Component, Phase, StepGraph
from sim.kernels import PassShape, verify_pass
from sim.memory import cache_bytes
from sim.prefill import prompt_pass
from sim.setup import LaunchMode, Setup
from sim.step_builder import StepBuilder


def decode_step(setup: Setup) -> StepGraph:
    """The step graph of *setup*, with attention over the context where decoding begins.

    The structure is the same for every step of a run; only durations change.
    """
    return _plain_step(setup) if setup.scenario.is_plain else _speculative_step(setup)


def _speculative_step(setup: Setup) -> StepGraph:
    """Draft, verify what was drafted in one pass, accept, and only then go on.

    A chain may be scheduled ahead: then the host runs beside the GPUs, as in a plain step.
    """
    step = StepBuilder(setup, setup.speculates_ahead)
    scenario = setup.scenario
    shape = PassShape(
        setup.requests, scenario.verify_tokens, scenario.load.context_tokens, setup.verify_padding
    )
    scheduled = _scheduled(step)
    ready = draft(step, scheduled)
    verify = verify_pass(setup, shape)
    step.forward(Phase.VERIFY, verify, setup.verify_launch, ready.launch, ready.kernels)
    if setup.prepares_alone:
        step.host(Phase.SCHEDULE, Component.SCHEDULING, HostTask.PROCESS)
    _accept(step, shape.own_tokens)
    return step.build()


def _scheduled(step: StepBuilder) -> int:
    """The step's scheduling; before it the prefill of requests that join, where the load counts it."""
    after = []
    if step.setup.scenario.load.prefill:
        work = prompt_pass(step.setup)
        after = [step.collective(Phase.PREFILL, Component.PREFILL, work)]
    task = HostTask.PREPARE if step.setup.prepares_alone else HostTask.SCHEDULE
    return step.host(Phase.SCHEDULE, Component.SCHEDULING, task, after, step.setup.requests)


def _accept(step: StepBuilder, tokens: int) -> None:
    """Greedy walk down the tree, KV compaction, accepted ids to the host."""
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
    launched = step.launch(Phase.ACCEPT, len(works))
    done: list[int] = []
    for work in works:
        done = step.per_rank(Phase.ACCEPT, Component.ACCEPTANCE, work, launched)
    _finish(step, longest * POSITION_BYTES, done)


def _finish(step: StepBuilder, size_bytes: int, done: list[int]) -> None:
    """Results to the host, which waits for them unless it is ahead."""
    if not step.ahead:
        copied = step.copy(Phase.ACCEPT, size_bytes, CopyDirection.TO_HOST, done)
        step.host(Phase.ACCEPT, Component.COPIES, HostTask.SYNCHRONISE, [copied])


def _plain_step(setup: Setup) -> StepGraph:
    """One token for each request. With schedule-ahead the host runs beside the GPU, not before it."""
    shape = PassShape(setup.requests, 1, setup.scenario.load.context_tokens, setup.verify_padding)
    ahead = setup.machine.stack.overlap.schedule_ahead and setup.verify_launch is LaunchMode.GRAPH
    step = StepBuilder(setup, ahead)
    scheduled = _scheduled(step)
    step.forward(Phase.VERIFY, verify_pass(setup, shape), setup.verify_launch, [scheduled])
    sample = Elementwise(ACTIVATION_BYTES * shape.own_tokens * setup.model.vocab)
    sampled = step.per_rank(Phase.ACCEPT, Component.ACCEPTANCE, sample)
    _finish(step, shape.own_tokens * POSITION_BYTES, sampled)
    return step.build()

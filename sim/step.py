"""One decode step as a step graph: schedule, draft, verify, accept.

The whole model of a step is ``_speculative_step`` and ``_plain_step``; what a drafter does in
it is in ``sim.draft_stages``, the kernels of forward passes in ``sim.kernels`` and
``sim.draft_kernels``.
"""

from __future__ import annotations

from hwmodels.roofline import ACTIVATION_BYTES
from hwmodels.work import CopyDirection, Elementwise, GpuKernel, GpuTask, HostTask
from sim.draft_stages import POSITION_BYTES, Ready, draft
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

    A chain may be scheduled ahead: then the host runs beside the GPUs, as in a plain step. Or
    it is scheduled beside the verification before; then the host waits for the draft alone.
    """
    step = StepBuilder(setup, setup.speculates_ahead)
    scenario = setup.scenario
    shape = PassShape(
        setup.requests, scenario.verify_tokens, scenario.load.context_tokens, setup.verify_padding
    )
    beside = setup.schedules_beside_verify
    ready = draft(step, _prefilled(step) if beside else [_scheduled(step)])
    if beside:
        ready = Ready([step.host(Phase.COPY_BACK, Component.COPIES, HostTask.SYNCHRONISE, step.newest)], [])
    verify = verify_pass(setup, shape)
    step.forward(Phase.VERIFY, verify, setup.verify_launch, ready.launch, ready.kernels)
    _accept(step, shape.own_tokens)
    return step.build()


def _scheduled(step: StepBuilder) -> int:
    """The step's scheduling; before it the prefill of requests that join, where the load counts it."""
    after, requests = _prefilled(step), step.setup.requests
    return step.host(Phase.SCHEDULE, Component.SCHEDULING, HostTask.SCHEDULE, after, requests)


def _prefilled(step: StepBuilder) -> list[int]:
    """The prefill of requests that join, where the load counts it."""
    if not step.setup.scenario.load.prefill:
        return []
    return [step.collective(Phase.PREFILL, Component.PREFILL, prompt_pass(step.setup))]


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
    if setup.schedules_beside_verify:
        # The next step's, which the host prepares as soon as the verification is launched.
        step.host(Phase.SCHEDULE, Component.SCHEDULING, HostTask.SCHEDULE, items=setup.requests)
    done: list[int] = []
    for work in works:
        done = step.per_rank(Phase.ACCEPT, Component.ACCEPTANCE, work, launched)
    _finish(step, longest * POSITION_BYTES, done)


def _finish(step: StepBuilder, size_bytes: int, done: list[int]) -> None:
    """Results to the host, which waits for them unless it is ahead."""
    if step.ahead and step.setup.machine.stack.overlap.exposed_us is not None:
        step.host(Phase.ACCEPT, Component.COPIES, HostTask.HAND_OVER, done)
    if not step.ahead and not step.setup.schedules_beside_verify:
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

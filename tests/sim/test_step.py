"""The step graphs of real scenarios: what they hold, what waits for what, and what bounds what."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import TypeVar

import pytest
from builders import (
    attention_of,
    dispatch_times,
    full_setup,
    host_times,
    in_phase,
    small_setup,
    step_ns,
    with_dispatch,
    with_filling_experts,
    with_overlap,
    without_graphs,
    without_noise,
)

from hwmodels.entry import Figure
from hwmodels.estimate import Source
from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    Copy,
    CopyDirection,
    EagerLaunch,
    Gemm,
    GpuKernel,
    GpuTask,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    MlaAttention,
    StreamContention,
    Work,
)
from sim.engine import play
from sim.graph import Lane, Op, Phase, StepGraph
from sim.setup import LaunchMode, Setup
from sim.simulate import Simulation
from sim.step import decode_step
from sim.step_builder import PYTHON

Kind = TypeVar("Kind")

PLAIN = ("tree.budget=0", "acceptance={length: 1}")
NOTHING_DRAFTED = ("tree.budget=0", "drafter.block=0", "drafter.block=1")
ONE_TOKEN = "load.output_tokens=1"
SCENARIOS = {
    "tree": (),
    "tree on the GPU": ("tree.builder=gpu",),
    "eager": ("tree.budget=9",),
    "native": ("stack=native",),
    "plain": PLAIN,
    "plain, many requests": (*PLAIN, "load.concurrency=16"),
    "two ranks": ("gpus=2",),
}
NODES = {
    "b300": ("gpu=b300_sxm", "interconnect=nvlink5", "stack=sglang"),
    "b300 native": ("gpu=b300_sxm", "interconnect=nvlink5", "stack=native"),
    "b200 vllm": ("gpu=b200_sxm", "interconnect=nvlink5", "stack=vllm"),
    "h200": ("gpu=h200_sxm", "interconnect=nvlink4", "stack=sglang"),
    "pro6000": ("gpu=rtx_pro_6000_server", "interconnect=pcie5_nccl", "stack=vllm"),
    "pro6000 tuned": ("gpu=rtx_pro_6000_server", "interconnect=pcie5_dual_socket_tuned", "stack=vllm"),
}
any_scenario = pytest.mark.parametrize("overrides", SCENARIOS.values(), ids=SCENARIOS.keys())
any_node = pytest.mark.parametrize("node", NODES.values(), ids=NODES.keys())

TREE = Lane("host", "tree0")


@cache
def kimi(*overrides: str) -> StepGraph:
    """The step graph of the base scenario on the whole model."""
    return decode_step(full_setup(*overrides))


@cache
def small(*overrides: str) -> StepGraph:
    """The step graph of the base scenario on two layers."""
    return decode_step(small_setup(*overrides))


def works_of(ops: Iterable[Op], kind: type[Kind]) -> list[Kind]:
    """The works of *kind* among *ops*."""
    return [op.work for op in ops if isinstance(op.work, kind)]


def indices(graph: StepGraph, kind: type[Work]) -> list[int]:
    """The ops whose work is of *kind*."""
    return [i for i, op in enumerate(graph.ops) if isinstance(op.work, kind)]


def ancestors(graph: StepGraph, index: int) -> set[int]:
    """Every op that must end before *index* may begin."""
    found: set[int] = set()
    waiting = [index]
    while waiting:
        new = set(graph.predecessors[waiting.pop()]) - found
        found |= new
        waiting += new
    return found


# Plain decoding.


@pytest.mark.parametrize("off", NOTHING_DRAFTED)
def test_nothing_drafted_is_plain_decoding_to_the_nanosecond(off: str) -> None:
    plain = Simulation(small_setup(*PLAIN)).run(0)
    same = Simulation(small_setup(off, "acceptance={hazard: 0.9}")).run(0)
    assert same.duration_ns == plain.duration_ns
    assert same.steps.step_ns.tolist() == plain.steps.step_ns.tolist()
    assert same.steps.lengths.ravel().tolist() == [1] * 40


@pytest.mark.parametrize("off", NOTHING_DRAFTED)
def test_the_graph_without_a_draft_is_that_of_plain_decoding(off: str) -> None:
    same, plain = small(off, "acceptance={hazard: 0.9}"), small(*PLAIN)
    assert (same.lanes, same.ops) == (plain.lanes, plain.ops)


def test_plain_decoding_drafts_nothing_and_builds_no_tree() -> None:
    phases = {op.phase for op in small(*PLAIN).ops}
    assert phases == {Phase.SCHEDULE, Phase.DISPATCH, Phase.VERIFY, Phase.ACCEPT}


def test_ahead_of_a_plain_step_the_host_works_beside_the_gpus() -> None:
    graph = small(*PLAIN)
    host = {i for i, op in enumerate(graph.ops) if graph.lanes[op.lanes[0]] == PYTHON}
    assert all(not ancestors(graph, i) & host for i, op in enumerate(graph.ops) if op.rank is not None)


def test_not_ahead_the_kernels_wait_for_schedule_and_launch_and_the_host_for_the_token() -> None:
    graph = decode_step(with_overlap(small_setup(*PLAIN), schedule_ahead=False))
    first = next(i for i, op in enumerate(graph.ops) if op.rank is not None)
    launch = works_of(graph.ops, GraphLaunch)[0]
    assert {graph.ops[i].work for i in ancestors(graph, first)} == {HostWork(HostTask.SCHEDULE, 1), launch}
    assert graph.ops[-1].work == HostWork(HostTask.SYNCHRONISE, 1)
    assert isinstance(graph.ops[graph.ops[-1].after[0]].work, Copy)


# The verify pass.


@pytest.mark.parametrize("overrides", [PLAIN, (), ("tree.budget=32", "capture_limit=lifted")])
def test_a_verify_pass_has_two_allreduces_per_layer_of_its_tokens(overrides: tuple[str, ...]) -> None:
    tokens = full_setup(*overrides).scenario.verify_tokens
    sums = works_of(in_phase(kimi(*overrides), Phase.VERIFY), AllReduce)
    assert sums == [AllReduce(tokens * 7168 * 2, 8)] * 122


@pytest.mark.parametrize("budget", [1, 8, 64])
def test_a_verify_pass_has_one_token_more_than_the_budget(budget: int) -> None:
    graph = small(f"tree.budget={budget}", "acceptance={hazard: 0.8}", "capture_limit=lifted")
    verify = in_phase(graph, Phase.VERIFY)
    assert {work.m for work in works_of(verify, Gemm)} == {budget + 1}
    assert {work.tokens for work in works_of(verify, GroupedExperts)} == {budget + 1}
    assert {(work.requests, work.queries) for work in attention_of(graph)} == {(1, budget + 1)}


def test_plain_decoding_verifies_one_token_of_each_request() -> None:
    graph = small(*PLAIN, "load.concurrency=16")
    assert {(work.requests, work.queries) for work in attention_of(graph)} == {(16, 1)}
    assert {work.m for work in works_of(graph.ops, Gemm)} == {16}


def test_one_layer_is_dense_and_sixty_have_experts() -> None:
    verify = [op for op in in_phase(kimi(), Phase.VERIFY) if op.rank == 0]
    assert len(works_of(verify, GroupedExperts)) == 60
    assert len(works_of(verify, MlaAttention)) == 61
    assert {work.context for work in works_of(verify, MlaAttention)} == {4096}


@any_scenario
def test_every_rank_runs_the_same_kernels_in_the_same_order(overrides: tuple[str, ...]) -> None:
    setup, graph = small_setup(*overrides), small(*overrides)
    programs = [rank_program(graph, rank) for rank in range(setup.scenario.gpus)]
    assert programs[0]
    assert all(program == programs[0] for program in programs)


def rank_program(graph: StepGraph, rank: int) -> list[tuple[Phase, str, Work]]:
    """Phase, queue and work of every op on one rank's streams, copies apart."""
    return [
        (op.phase, graph.lanes[lane].queue, op.work)
        for op in graph.ops
        for lane in op.lanes
        if graph.lanes[lane].device == f"gpu{rank}" and not isinstance(op.work, Copy)
    ]


@any_scenario
def test_collectives_hold_every_ranks_stream_and_the_link(overrides: tuple[str, ...]) -> None:
    setup, graph = small_setup(*overrides), small(*overrides)
    ranks = [f"gpu{rank}/compute" for rank in range(setup.scenario.gpus)]
    for op in graph.ops:
        if isinstance(op.work, AllReduce | AllGather):
            assert [str(graph.lanes[lane]) for lane in op.lanes] == [*ranks, "nvlink/root0"]


@any_scenario
def test_no_op_is_without_work(overrides: tuple[str, ...]) -> None:
    assert works_of(small(*overrides).ops, Barrier) == []


def test_the_shared_expert_runs_beside_the_routed_ones_and_the_sum_waits_for_both() -> None:
    graph = decode_step(with_filling_experts(small_setup(), False))
    side = [i for i, op in enumerate(graph.ops) if str(graph.lanes[op.lanes[0]]) == "gpu3/side"]
    joins = [i for i, op in enumerate(graph.ops) if side[-1] in op.after]
    experts = next(i for i in indices(graph, GroupedExperts) if graph.ops[i].rank == 3)
    assert (len(side), len(joins)) == (3, 1)
    assert not ancestors(graph, experts) & set(side)
    assert {*side, experts} <= ancestors(graph, joins[0])


def test_a_stack_without_a_side_stream_runs_the_shared_expert_in_line() -> None:
    roomy = with_filling_experts(small_setup(), False)
    graph = decode_step(with_overlap(roomy, shared_expert_stream=False))
    assert {lane.queue for lane in graph.lanes} == {"compute", "copy", "python", "root0", "tree0"}
    assert works_of(graph.ops, StreamContention) == []
    beside = decode_step(roomy)
    assert works_of(beside.ops, StreamContention)
    assert len(works_of(graph.ops, Gemm)) == len(works_of(beside.ops, Gemm))


# In graphs: launched one by one, experts that are launched before the shared expert begin sooner.
@any_node
@pytest.mark.parametrize("budget", [1, 8, 63])
def test_experts_that_leave_no_room_never_make_a_step_faster(node: tuple[str, ...], budget: int) -> None:
    drafts = (f"tree.budget={budget}", "capture_limit=lifted", "acceptance={length: 1}")
    setup = small_setup(*node, ONE_TOKEN, *drafts, layers=8)
    assert setup.verify_launch is LaunchMode.GRAPH
    beside, filled = (step_ns(with_filling_experts(setup, fills)) for fills in (False, True))
    assert beside < filled


# What a stack that schedules ahead leaves exposed.


def with_exposed(setup: Setup, value: float) -> Setup:
    """*setup* on a stack that leaves *value* us between two steps."""
    stack = setup.machine.stack
    figure = Figure(value=value, source=Source.ASSUMED, ref="made up")
    overlap = stack.overlap.model_copy(update={"exposed_us": figure})
    return replace(setup, machine=replace(setup.machine, stack=stack.model_copy(update={"overlap": overlap})))


def test_what_is_exposed_between_two_steps_is_added_to_each_that_is_prepared_ahead() -> None:
    setup = without_noise(small_setup(*PLAIN))
    runs = [Simulation(s).run(0).steps.step_ns for s in (setup, *(with_exposed(setup, us) for us in (0, 7)))]
    assert decode_step(setup).ops != decode_step(with_exposed(setup, 7)).ops
    assert runs[1].tolist() == runs[0].tolist()
    assert (runs[2] - runs[0]).tolist() == [7000] * len(runs[0])


@pytest.mark.parametrize("overrides", [(), ("tree.budget=9",), (*PLAIN, "stack=lucebox")])
def test_a_step_that_is_waited_for_exposes_nothing_more(overrides: tuple[str, ...]) -> None:
    setup = small_setup(*overrides)
    assert decode_step(with_exposed(setup, 7)).ops == decode_step(setup).ops


# Order of the stages.


def test_the_stages_of_a_step_follow_one_another() -> None:
    phases = list(dict.fromkeys(op.phase for op in small().ops))
    assert phases == [phase for phase in Phase if phase is not Phase.PREFILL]


def test_the_tree_waits_for_every_ranks_candidates_and_the_verify_pass_for_the_tree() -> None:
    graph = small()
    tree = next(i for i, op in enumerate(graph.ops) if op.work == HostWork(HostTask.TREE_BUILD, 25))
    top_k = {i for i, op in enumerate(graph.ops) if op.work == GpuKernel(GpuTask.TOP_K, 7)}
    assert graph.lanes[graph.ops[tree].lanes[0]] == TREE
    assert len(top_k) == 8
    assert top_k <= ancestors(graph, tree)
    for index, op in enumerate(graph.ops):
        if op.phase in (Phase.VERIFY, Phase.ACCEPT) and op.rank is not None:
            assert tree in ancestors(graph, index)


def test_a_chain_needs_no_tree_and_its_verify_pass_does_not_wait_for_the_host() -> None:
    graph = small("tree={shape: chain, budget: 8}", "stack=sglang")
    assert {work.task for work in works_of(graph.ops, HostWork)} == {HostTask.SCHEDULE, HostTask.SYNCHRONISE}
    assert TREE not in graph.lanes
    launch = next(i for i in indices(graph, GraphLaunch) if graph.ops[i].phase is Phase.DISPATCH)
    choices = {i for i, op in enumerate(graph.ops) if op.work == GpuKernel(GpuTask.TOP_K, 7)}
    assert not choices & ancestors(graph, launch)
    verify = [i for i, op in enumerate(graph.ops) if op.phase is Phase.VERIFY and op.rank is not None]
    assert all(choices <= ancestors(graph, index) for index in verify)


def test_heap_and_mask_grow_with_the_tree() -> None:
    for budget in (4, 8, 32):
        host = {work.task: work.items for work in works_of(small(f"tree.budget={budget}").ops, HostWork)}
        assert host[HostTask.TREE_MASK] == budget
        assert host[HostTask.TREE_BUILD] == 3 * budget + 1


def test_the_verify_pass_is_not_launched_before_the_host_has_the_tree() -> None:
    graph = small()
    tree = next(i for i, op in enumerate(graph.ops) if op.work == HostWork(HostTask.TREE_BUILD, 25))
    launch = next(i for i in indices(graph, GraphLaunch) if graph.ops[i].phase is Phase.DISPATCH)
    assert tree in ancestors(graph, launch)


def test_verify_kernels_wait_for_the_mask_on_their_gpu() -> None:
    graph = small()
    mask = next(
        i
        for i, op in enumerate(graph.ops)
        if isinstance(op.work, Copy) and op.work.direction is CopyDirection.TO_DEVICE
    )
    assert [str(graph.lanes[lane]) for lane in graph.ops[mask].lanes] == [f"gpu{r}/copy" for r in range(8)]
    firsts = [i for i, op in enumerate(graph.ops) if op.phase is Phase.VERIFY][:8]
    assert all(mask in graph.ops[first].after for first in firsts)


def test_a_tree_built_on_the_gpu_needs_no_host_and_no_copy_back() -> None:
    graph = small("tree.builder=gpu")
    assert TREE not in graph.lanes
    assert HostTask.TREE_BUILD not in {work.task for work in works_of(graph.ops, HostWork)}
    assert [op.work for op in in_phase(graph, Phase.TREE)] == [GpuKernel(GpuTask.TREE_BUILD, 8)] * 8
    assert works_of(in_phase(graph, Phase.COPY_BACK), Copy) == []


@pytest.mark.parametrize("overrides", [(), ("tree.builder=gpu",), ("tree.budget=9",), ("stack=native",)])
def test_a_tree_step_ends_when_the_host_has_seen_all_of_it(overrides: tuple[str, ...]) -> None:
    graph = small(*overrides)
    last = len(graph.ops) - 1
    assert graph.ops[last].work == HostWork(HostTask.SYNCHRONISE, 1)
    assert ancestors(graph, last) == set(range(last))


# Launches.


def test_every_kernel_of_an_eager_pass_waits_for_its_own_launch() -> None:
    graph = small("tree.budget=9")
    launches = set(indices(graph, EagerLaunch))
    awaited: dict[int, set[Work]] = {}
    for op in in_phase(graph, Phase.VERIFY):
        if not isinstance(op.work, StreamContention):
            own = [dep for dep in op.after if dep in launches]
            assert len(own) == 1
            awaited.setdefault(own[0], set()).add(op.work)
    assert all(len(works) == 1 for works in awaited.values())
    assert len(awaited) == len([i for i in launches if graph.ops[i].phase is Phase.DISPATCH])


def test_eager_launches_queue_on_the_host_and_know_their_kernels() -> None:
    graph = small("tree.budget=9")
    for index in indices(graph, EagerLaunch):
        assert graph.lanes[graph.ops[index].lanes[0]] == PYTHON
        launch = graph.ops[index].work
        assert isinstance(launch, EagerLaunch)
        for work in (op.work for op in graph.ops if index in op.after):
            assert launch.collective == isinstance(work, AllReduce | AllGather)


def test_a_graph_is_launched_once_with_a_node_for_every_kernel() -> None:
    eager = works_of(in_phase(kimi("tree.budget=9"), Phase.DISPATCH), EagerLaunch)
    graphs = works_of(in_phase(kimi(), Phase.DISPATCH), GraphLaunch)
    assert graphs == [GraphLaunch(sum(launch.kernels for launch in eager))]


LAUNCHES = {
    "within the limit": (("tree.budget=8",), LaunchMode.GRAPH),
    "beyond the limit": (("tree.budget=9",), LaunchMode.EAGER),
    "limit lifted": (("tree.budget=9", "capture_limit=lifted"), LaunchMode.GRAPH),
    "another GPU": (("tree.budget=9", "gpu=b200_sxm"), LaunchMode.GRAPH),
    "another stack": (("tree.budget=9", "stack=vllm"), LaunchMode.GRAPH),
    "nothing drafted": (("tree.budget=9", "drafter.block=0", "acceptance={length: 1}"), LaunchMode.GRAPH),
}


@pytest.mark.parametrize(("overrides", "mode"), LAUNCHES.values(), ids=LAUNCHES.keys())
def test_how_the_verify_pass_is_launched(overrides: tuple[str, ...], mode: LaunchMode) -> None:
    setup = small_setup(*overrides)
    dispatched = {type(op.work) for op in in_phase(decode_step(setup), Phase.DISPATCH)}
    assert setup.verify_launch is mode
    assert dispatched == {EagerLaunch if mode is LaunchMode.EAGER else GraphLaunch}


def test_a_stack_without_graphs_launches_the_draft_eagerly_too() -> None:
    graph = decode_step(without_graphs(small_setup()))
    assert works_of(graph.ops, GraphLaunch) == []
    assert works_of(in_phase(graph, Phase.DRAFT), EagerLaunch)


def test_eager_is_slower_than_a_lifted_limit() -> None:
    kept, lifted = (small_setup("tree.budget=9", f"capture_limit={c}", ONE_TOKEN) for c in ("kept", "lifted"))
    assert step_ns(kept) > step_ns(lifted)


# Bounds.


@any_node
def test_a_free_host_is_an_upper_bound_on_throughput(node: tuple[str, ...]) -> None:
    setup = small_setup(*node)
    free = with_dispatch(setup, **dict.fromkeys(host_times(setup), 0.0))
    assert Simulation(free).run(0).throughput_tok_s > Simulation(setup).run(0).throughput_tok_s


@pytest.mark.parametrize("figure", dispatch_times(small_setup()))
@pytest.mark.parametrize("overrides", [(), ("tree.builder=gpu",), ("tree.budget=9",)])
def test_no_dispatch_cost_taken_away_makes_a_run_slower(figure: str, overrides: tuple[str, ...]) -> None:
    setup = small_setup(*overrides, "load.output_tokens=10")
    cheaper = Simulation(with_dispatch(setup, **{figure: 0.0})).run(0)
    assert (cheaper.steps.step_ns <= Simulation(setup).run(0).steps.step_ns).all()


def test_a_smaller_drafter_is_never_slower() -> None:
    times = [step_ns(small_setup(ONE_TOKEN, draft_layers=layers)) for layers in (6, 3, 1)]
    assert times == sorted(times, reverse=True)
    assert len(set(times)) == 3


@any_node
def test_a_free_drafter_is_an_upper_bound_on_throughput(node: tuple[str, ...]) -> None:
    simulation = Simulation(small_setup(*node))
    graph, chunk = simulation.graph, next(simulation.chunks(0))
    paid = simulation.pieces.split(chunk.durations, chunk.mean)
    free = paid.copy()
    free[:, [i for i, op in enumerate(graph.ops) if op.phase is Phase.DRAFT]] = 0
    assert (play(graph, free).max(axis=1) < play(graph, paid).max(axis=1)).all()


@any_node
def test_a_tree_that_commits_one_token_is_never_faster_than_plain_decoding(node: tuple[str, ...]) -> None:
    tree = with_overlap(small_setup(*node, "acceptance={length: 1}", ONE_TOKEN), schedule_ahead=False)
    plain = with_overlap(small_setup(*node, *PLAIN, ONE_TOKEN), schedule_ahead=False)
    assert step_ns(tree) > step_ns(plain)


@any_node
def test_a_larger_budget_never_makes_a_step_faster(node: tuple[str, ...]) -> None:
    budgets = (1, 2, 3, 5, 7, 8, 9, 12, 16, 24, 32, 64, 128, 512)
    common = (*node, ONE_TOKEN, "acceptance={hazard: 0.8}")
    times = [step_ns(small_setup(*common, f"tree.budget={budget}")) for budget in budgets]
    assert all(small <= large for small, large in pairwise(times)), dict(zip(budgets, times, strict=True))


@any_node
@pytest.mark.parametrize("method", [(), PLAIN])
def test_a_longer_context_never_makes_a_step_faster(node: tuple[str, ...], method: tuple[str, ...]) -> None:
    contexts = (0, 1, 100, 1000, 4096, 10_000, 32_768, 100_000, 131_072, 500_000, 999_000)
    common = (*node, *method, ONE_TOKEN)
    times = [step_ns(small_setup(*common, f"load.context_tokens={context}")) for context in contexts]
    assert all(short <= long for short, long in pairwise(times)), dict(zip(contexts, times, strict=True))


@any_node
def test_a_larger_block_never_makes_a_step_faster(node: tuple[str, ...]) -> None:
    common = (*node, ONE_TOKEN, "acceptance={hazard: 0.8}")
    times = [step_ns(small_setup(*common, f"drafter.block={block}")) for block in (2, 3, 4, 8, 16, 32)]
    assert all(small <= large for small, large in pairwise(times)), times


def test_more_requests_never_make_a_plain_step_faster() -> None:
    loads = (1, 2, 4, 8, 16, 64, 256)
    times = [step_ns(small_setup(*PLAIN, ONE_TOKEN, f"load.concurrency={load}")) for load in loads]
    assert all(few <= many for few, many in pairwise(times)), times


def test_correlated_routing_is_never_slower() -> None:
    times = [step_ns(small_setup(ONE_TOKEN, f"experts.routing_correlation={rho}")) for rho in (0, 0.2, 0.45)]
    assert times == sorted(times, reverse=True)


def test_a_fragmented_cache_is_never_faster() -> None:
    times = [step_ns(small_setup(ONE_TOKEN, f"kv.run_tokens={run}")) for run in (1_000_000, 64, 1)]
    assert times == sorted(times)

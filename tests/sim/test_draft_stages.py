"""What drafters do in a step: passes, graphs, trees, and the laws that hold for every method."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from builders import (
    full_setup,
    in_phase,
    plain_data,
    scenario_with,
    small_setup,
    step_ns,
    with_block_schedule,
    with_dispatch,
    with_overlap,
)

from hwmodels import catalog
from hwmodels.drafters import Eagle, Mtp
from hwmodels.errors import DocumentError
from hwmodels.models import Mla
from hwmodels.stacks import BlockSchedule, DraftGraphs
from hwmodels.work import (
    AllReduce,
    Copy,
    Gemm,
    GpuKernel,
    GpuTask,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    LooseLaunch,
    MlaAttention,
    Work,
)
from sim import setup as setups
from sim.choices import EngineName
from sim.draft_kernels import eagle_passes, mtp_passes
from sim.errors import ScenarioError
from sim.graph import Component, Phase, StepGraph
from sim.kernels import Kernel
from sim.memory import target_bytes_per_rank
from sim.setup import Setup
from sim.simulate import Simulation
from sim.step import decode_step
from sim.step_builder import PYTHON

PLAIN = ("tree.budget=0", "acceptance={length: 1}")
HAZARD = "acceptance={hazard: 0.6}"
EAGLE = "kimi_eagle3_mla"
MTP = "deepseek_mtp_fp8"
DEEPSEEK = ("model=deepseek_v3", "gpu=b200_sxm")


def chain(drafter: str, drafts: int) -> tuple[str, ...]:
    """Overrides for a chain of *drafts* by *drafter*, on a model that it was trained for."""
    target = DEEPSEEK if drafter == MTP else ()
    return (
        *target,
        f"drafter={{model: {drafter}, block: {drafts + 1}}}",
        f"tree={{budget: {max(1, drafts)}, shape: chain}}",
        HAZARD,
    )


def tree(drafter: str, block: int, top_k: int, budget: int) -> tuple[str, ...]:
    """Overrides for an EAGLE tree."""
    shape = f"tree={{budget: {budget}, shape: eagle, top_k: {top_k}}}"
    return (*chain(drafter, block - 1)[:-2], shape, HAZARD)


METHODS = {
    "dflash chain": chain("kimi_dflash", 3),
    "eagle chain": chain(EAGLE, 3),
    "eagle chain of heads": chain("kimi_eagle3", 3),
    "eagle tree": tree(EAGLE, 4, 3, 7),
    "mtp chain": chain(MTP, 3),
    "mtp tree": tree(MTP, 4, 2, 5),
    "many requests": (*chain(EAGLE, 3), "load.concurrency=4"),
}
STACKS = ("sglang_spec_v2", "sglang", "vllm", "native")
any_method = pytest.mark.parametrize("overrides", METHODS.values(), ids=METHODS.keys())
on_stacks = [
    pytest.param(stack, overrides, id=f"{stack}, {name}")
    for stack in STACKS
    for name, overrides in METHODS.items()
    # vLLM has no kernel for the experts of DeepSeek here.
    if not (stack == "vllm" and DEEPSEEK[0] in overrides)
]
any_sequential = pytest.mark.parametrize("drafter", [EAGLE, MTP])


def passes(*overrides: str) -> list[list[Kernel]]:
    """The draft passes of the whole model."""
    return passes_of(full_setup(*overrides))


def passes_of(setup: Setup) -> list[list[Kernel]]:
    """The draft passes of *setup*."""
    match setup.drafter:
        case Eagle() as drafter:
            return eagle_passes(setup, drafter)
        case Mtp() as drafter:
            return mtp_passes(setup, drafter)
    raise AssertionError(setup.drafter.method)


def works(kernels: list[Kernel], kind: type[Work]) -> list[Work]:
    """The works of *kind* in a pass."""
    return [kernel.work for kernel in kernels if isinstance(kernel.work, kind)]


def widths(kernels: list[Kernel]) -> list[tuple[int, int]]:
    """(k, n) of every dense GEMM of a pass."""
    return [(work.k, work.n) for work in works(kernels, Gemm) if isinstance(work, Gemm)]


def host_tasks(graph: StepGraph) -> list[HostTask]:
    """What the Python thread does, launches apart."""
    return [op.work.task for op in graph.ops if isinstance(op.work, HostWork)]


# Laws of every method.


@any_method
def test_a_block_of_nothing_is_plain_decoding_to_the_nanosecond(overrides: tuple[str, ...]) -> None:
    target = [text for text in overrides if text.startswith(("model=", "gpu=", "load."))]
    plain = Simulation(small_setup(*target, *PLAIN)).run(0)
    for off in ("drafter.block=0", "drafter.block=1", "tree.budget=0"):
        same = Simulation(small_setup(*overrides, off)).run(0)
        assert same.steps.step_ns.tolist() == plain.steps.step_ns.tolist()


@pytest.mark.parametrize(
    ("stack", "drafter"),
    [
        *((stack, EAGLE) for stack in STACKS),
        ("vllm", "kimi_eagle3"),
        ("sglang_spec_v2", MTP),
        ("native", MTP),
    ],
)
def test_more_passes_never_make_a_step_shorter(stack: str, drafter: str) -> None:
    times = [step_ns(small_setup(*chain(drafter, drafts), f"stack={stack}")) for drafts in range(7)]
    assert all(fewer < more for fewer, more in pairwise(times))


@pytest.mark.parametrize(("stack", "overrides"), on_stacks)
def test_speculation_that_lands_nothing_is_never_faster_than_plain_decoding(
    stack: str, overrides: tuple[str, ...]
) -> None:
    target = [text for text in overrides if text.startswith(("model=", "gpu=", "load."))]
    nothing = ("acceptance={length: 1}", f"stack={stack}")
    plain = step_ns(small_setup(*target, *PLAIN, f"stack={stack}"))
    assert step_ns(small_setup(*overrides, *nothing)) > plain


@any_method
def test_both_engines_play_every_method_alike(overrides: tuple[str, ...]) -> None:
    simpy, batch = (Simulation(small_setup(*overrides), engine) for engine in EngineName)
    assert plain_data(simpy.run(1).steps) == plain_data(batch.run(1).steps)


@any_sequential
def test_a_larger_tree_never_makes_a_step_shorter(drafter: str) -> None:
    by_budget = [step_ns(small_setup(*tree(drafter, 4, 3, budget))) for budget in (1, 3, 7, 20)]
    by_choices = [step_ns(small_setup(*tree(drafter, 4, top_k, 3))) for top_k in (1, 2, 4, 8)]
    assert by_budget == sorted(by_budget)
    assert by_choices == sorted(by_choices)


# Passes.


@any_sequential
@pytest.mark.parametrize("drafts", [1, 3, 5])
def test_a_chain_takes_a_pass_for_every_position(drafter: str, drafts: int) -> None:
    assert len(passes(*chain(drafter, drafts))) == drafts


@any_sequential
def test_the_first_pass_has_all_that_a_step_may_commit_and_the_others_one_token(drafter: str) -> None:
    first, *others = passes(*chain(drafter, 3), "load.concurrency=2")
    queries = [
        (work.requests, work.queries)
        for kernels in (first, *others)
        for work in works(kernels, MlaAttention)
        if isinstance(work, MlaAttention)
    ]
    assert queries == [(2, 4), (2, 1), (2, 1)]


@any_sequential
def test_a_tree_goes_on_with_its_best_prefixes_at_every_depth(drafter: str) -> None:
    first, *others = passes(*tree(drafter, 4, 3, 7))
    assert len(others) == 2
    chosen = [works(kernels, GpuKernel) for kernels in (first, *others)]
    assert chosen == [[GpuKernel(GpuTask.TOP_K, rows)] for rows in (1, 3, 3)]
    for kernels in others:
        assert {work.m for work in works(kernels, Gemm) if isinstance(work, Gemm)} == {3}


def test_features_are_fused_on_the_first_pass_alone_and_the_layer_reads_two_vectors() -> None:
    first, *others = passes(*chain(EAGLE, 3))
    projections = [(14336, 1536 + 576), (1536, 8 * 192), (8 * 128, 7168)]
    mlp, head = [(7168, 2 * 18432 // 8), (18432 // 8, 7168)], [(7168, 163840 // 8)]
    assert widths(first) == [(3 * 7168, 7168), *projections, *mlp, *head]
    assert all(widths(kernels) == [*projections, *mlp, *head] for kernels in others)


def test_a_pass_over_heads_projects_queries_keys_and_values_of_two_vectors() -> None:
    _, second, _ = passes(*chain("kimi_eagle3", 3))
    assert widths(second)[0] == (14336, 3 * 8 * 128)


def test_an_mtp_pass_is_a_layer_of_the_target_behind_one_projection() -> None:
    kernels = passes(*chain(MTP, 2))[1]
    (experts,) = works(kernels, GroupedExperts)
    (attention,) = works(kernels, MlaAttention)
    assert isinstance(experts, GroupedExperts)
    assert isinstance(attention, MlaAttention)
    assert (experts.tokens, experts.experts, experts.top_k) == (1, 256, 8)
    assert attention.heads == 128 // 8
    assert widths(kernels)[0] == (2 * 7168, 7168)
    assert widths(kernels)[-1] == (7168, 129280 // 8)


@any_sequential
def test_each_pass_sums_embedding_attention_and_mlp_over_the_ranks(drafter: str) -> None:
    first, second = passes(*chain(drafter, 2))
    assert works(first, AllReduce) == [AllReduce(3 * 7168 * 2, 8)] * 3
    assert works(second, AllReduce) == [AllReduce(7168 * 2, 8)] * 3


@any_sequential
def test_a_draft_pass_is_booked_under_the_drafter(drafter: str) -> None:
    graph = decode_step(small_setup(*chain(drafter, 2)))
    kernels = {op.component for op in in_phase(graph, Phase.DRAFT) if op.rank is not None}
    assert kernels == {Component.DRAFTER}


def test_the_dtype_of_an_mtp_layer_is_its_own() -> None:
    model = catalog.target_model("deepseek_v3")
    layer = Mtp.as_model(catalog_mtp(), model)
    assert (layer.dense_dtype.value, layer.moe_layers, layer.layers) == ("bfloat16", 1, 1)
    assert layer.experts is not None
    assert layer.experts.dtype.value == "bfloat16"


def catalog_mtp() -> Mtp:
    """The MTP layer of DeepSeek in BF16."""
    drafter = catalog.drafter("deepseek_mtp")
    assert isinstance(drafter, Mtp)
    return drafter


# Launches.


GRAPHS = {"sglang_spec_v2": 2, "sglang": 2, "vllm": 4, "native": 1}


@pytest.mark.parametrize(("stack", "graphs"), GRAPHS.items())
@any_sequential
def test_passes_are_captured_as_the_stack_does(stack: str, graphs: int, drafter: str) -> None:
    setup = small_setup(*chain(drafter, 4), f"stack={stack}")
    launches = [
        op.work for op in in_phase(decode_step(setup), Phase.DRAFT) if isinstance(op.work, GraphLaunch)
    ]
    assert len(launches) == graphs
    nodes = sum(kernel.launches for one in passes_of(setup) for kernel in one)
    assert sum(launch.nodes for launch in launches) == nodes


def test_one_draft_is_one_graph_everywhere() -> None:
    for how in DraftGraphs:
        setup = small_setup(*chain(EAGLE, 1))
        stack = setup.machine.stack
        drafting = stack.drafting.model_copy(update={"graphs": how})
        changed = replace(setup.machine, stack=stack.model_copy(update={"drafting": drafting}))
        graph = decode_step(replace(setup, machine=changed))
        assert len([op for op in in_phase(graph, Phase.DRAFT) if isinstance(op.work, GraphLaunch)]) == 1


@pytest.mark.parametrize(("drafts", "charged"), [(1, []), (2, []), (3, [1]), (5, [1, 1, 1])])
def test_python_is_charged_for_each_pass_that_scheduling_does_not_hold(
    drafts: int, charged: list[int]
) -> None:
    graph = decode_step(small_setup(*chain(EAGLE, drafts), "stack=vllm"))
    found = [
        op.work.items
        for op in graph.ops
        if isinstance(op.work, HostWork) and op.work.task is HostTask.DRAFT_PASS
    ]
    assert found == charged


@any_sequential
def test_a_chain_never_waits_for_the_host_where_it_is_scheduled_ahead(drafter: str) -> None:
    graph = decode_step(small_setup(*chain(drafter, 3), "stack=sglang_spec_v2"))
    host = {i for i, op in enumerate(graph.ops) if graph.lanes[op.lanes[0]] == PYTHON}
    assert all(not host & set(op.after) for op in graph.ops if op.rank is not None)
    assert [op for op in graph.ops if isinstance(op.work, Copy)] == []
    assert HostTask.SYNCHRONISE not in host_tasks(graph)


@pytest.mark.parametrize("overrides", [chain(EAGLE, 3), chain(MTP, 3)])
def test_ahead_a_step_takes_the_longer_of_host_and_gpus(overrides: tuple[str, ...]) -> None:
    ahead, waits = (small_setup(*overrides, f"stack={stack}") for stack in ("sglang_spec_v2", "sglang"))
    assert step_ns(ahead) < step_ns(waits)
    # With a slow host only the host is left.
    slow = with_dispatch(ahead, schedule_us=1e6)
    slower = with_dispatch(ahead, schedule_us=1.1e6)
    assert step_ns(slower) - step_ns(slow) == 100_000_000


def test_beside_the_verification_the_host_waits_for_the_draft_alone() -> None:
    graph = decode_step(small_setup(*chain("kimi_dflash", 3), "stack=sglang_spec_v2"))
    python = [op.work for op in graph.ops if graph.lanes[op.lanes[0]] == PYTHON]
    waits = python.index(HostWork(HostTask.SYNCHRONISE, 1))
    assert host_tasks(graph) == [HostTask.SYNCHRONISE, HostTask.SCHEDULE]
    assert python[-1] == HostWork(HostTask.SCHEDULE, 1)
    assert [type(work) for work in python[waits + 1 : -1]] == [GraphLaunch, LooseLaunch]
    synchronised = next(op for op in graph.ops if op.work == python[waits])
    assert {graph.ops[dep].phase for dep in synchronised.after} == {Phase.COPY_BACK}


def test_the_earlier_a_block_is_prepared_the_shorter_the_step() -> None:
    setup = small_setup(*chain("kimi_dflash", 3), "stack=sglang_spec_v2")
    before, beside, ahead = (step_ns(with_block_schedule(setup, when)) for when in BlockSchedule)
    assert ahead < beside < before


def test_a_tree_is_waited_for_even_where_chains_are_scheduled_ahead() -> None:
    graph = decode_step(small_setup(*tree(EAGLE, 3, 3, 7), "stack=sglang_spec_v2"))
    assert host_tasks(graph) == [HostTask.SCHEDULE, HostTask.SYNCHRONISE]


def test_a_stack_that_is_not_ahead_in_plain_decoding_is_not_with_a_chain() -> None:
    graph = decode_step(with_overlap(small_setup(*chain(EAGLE, 3)), schedule_ahead=False))
    assert HostTask.SYNCHRONISE in host_tasks(graph)


def test_an_eagle_tree_is_built_by_kernels_and_no_host_thread() -> None:
    graph = decode_step(small_setup(*tree(EAGLE, 4, 3, 7)))
    assert [op.work for op in in_phase(graph, Phase.TREE)] == [GpuKernel(GpuTask.TREE_SELECT, 7)] * 8
    assert HostTask.TREE_BUILD not in host_tasks(graph)
    verify = {work.m for op in in_phase(graph, Phase.VERIFY) if isinstance(work := op.work, Gemm)}
    assert verify == {8}


def test_loose_kernels_are_launched_one_by_one_and_run_on_every_rank() -> None:
    graph = decode_step(small_setup(*chain(EAGLE, 3), "stack=sglang"))
    ops = in_phase(graph, Phase.COPY_BACK)
    assert [op.work for op in ops] == [LooseLaunch(44), *[GpuKernel(GpuTask.LOOSE, 44)] * 8]
    launched = graph.ops.index(ops[0])
    assert all(launched in op.after for op in ops[1:])


# What is refused.


REFUSED = {
    "a block tree of a sequential drafter": (
        ("drafter={model: kimi_eagle3_mla, block: 4}", "tree={budget: 3, shape: ddtree}"),
        r"kimi_eagle3_mla \(eagle\) drafts chain or eagle, not ddtree",
    ),
    "a beam of a block drafter": (
        ("tree={budget: 3, shape: eagle, top_k: 2}",),
        r"kimi_dflash \(dflash\) drafts ddtree or chain, not eagle",
    ),
    "a beam without its width": (("tree={budget: 3, shape: eagle}",), "top_k goes with shape eagle"),
    "a width without a beam": (("tree={budget: 3, top_k: 2}",), "top_k goes with shape eagle"),
    "no choices": (("tree={budget: 3, shape: eagle, top_k: 0}",), "greater than or equal to 1"),
}


@pytest.mark.parametrize(("overrides", "problem"), REFUSED.values(), ids=REFUSED.keys())
def test_what_no_drafter_could_give_is_refused(overrides: tuple[str, ...], problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        full_setup(*overrides, HAZARD)


def test_any_drafter_may_stand_in_a_plain_scenario() -> None:
    for shape in ("ddtree", "chain"):
        asked = scenario_with("drafter={model: kimi_eagle3, block: 4}", f"tree={{budget: 0, shape: {shape}}}")
        assert setups.resolve(asked).scenario.is_plain


@pytest.mark.parametrize(
    ("method", "problem"),
    [
        ("", "method: missing, and it has no default"),
        ("method: medusa\n", "expected one of 'dflash', 'eagle', 'mtp', got 'medusa'"),
        ("method: mtp\nwindow: 3\n", "window: unknown key"),
    ],
)
def test_a_drafter_says_its_method_and_has_the_sizes_of_that_one(
    method: str, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text(f"name: own\ntitle: Our own\n{method}")
    with pytest.raises(DocumentError, match=problem):
        catalog.drafter(str(path))


# Sizes.


@pytest.mark.parametrize("name", ["kimi_eagle3_mla", "kimi_eagle3"])
def test_the_parameters_of_an_eagle_drafter_follow_from_its_sizes(name: str) -> None:
    drafter = catalog.drafter(name)
    assert isinstance(drafter, Eagle)
    model = drafter.as_model(catalog.target_model("kimi_k2_6"))
    beside = (
        drafter.attention.q_lora + drafter.attention.latent
        if isinstance(drafter.attention, Mla)
        else 3 * 8192
    )
    # Two bytes a value; one more hidden vector into the layer, and the features.
    values = target_bytes_per_rank(model, 1) / 2 + drafter.hidden * (beside + 3 * drafter.hidden)
    assert values / 1e9 == pytest.approx(drafter.parameters_billion.value, rel=0.02)


def test_the_parameters_of_an_mtp_layer_follow_from_its_target() -> None:
    target = catalog.target_model("deepseek_v3")
    values = target_bytes_per_rank(catalog_mtp().as_model(target), 1) / 2
    values += target.hidden * (2 * target.hidden - 2 * target.vocab)
    assert values / 1e9 == pytest.approx(catalog_mtp().parameters_billion.value, rel=0.02)

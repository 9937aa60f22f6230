"""Plans cover what a decode step asks for, and name every kernel that it needs."""

from __future__ import annotations

from functools import cache
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from builders import full_setup
from measuring import point, write

from cuda import shapes
from cuda.operations import UnmeasurableError, operation_of
from cuda.plan import FULL, MOST_HELD_NODES, PlanName, Subject, subjects
from hwmodels import cases, catalog, measured
from hwmodels.cases import AllReduceAlgorithm, AnyCase, Op
from hwmodels.measured import Series
from hwmodels.models import Mla
from hwmodels.sampled import SERIES, Answer, Samples
from hwmodels.work import DType, Gemm, GpuKernel, GpuTask, GraphLaunch, GroupedExperts, MlaAttention
from sim.graph import Phase
from sim.step import decode_step

EVERY = [
    subjects(name, short, devices) for name, short, devices in product(PlanName, (False, True), (1, 2, 8))
]
ON_A_KERNEL = set(Op) - {
    *(Op.ALLREDUCE, Op.ALLREDUCE_STANDIN, Op.HOST_COPY),
    *(Op.GRAPH_LAUNCH, Op.GRAPH_REPLAY, Op.EMPTY_INTERVAL),
}
STEPS = {
    "today": ("load.context_tokens=2000",),
    "long": ("load.context_tokens=60000",),
    "strong": ("drafter.block=16", "tree.budget=32", "load.context_tokens=2000"),
    "no tree": ("tree.budget=0", "acceptance={length: 1}", "load.context_tokens=2000"),
}


@cache
def as_if_measured(short: bool) -> Samples:
    """A file that has every point of the plan."""
    with TemporaryDirectory() as folder:
        points = [point(s.case, [1.0], s.series) for s in subjects(PlanName.KIMI_K2_6, short, 1)]
        path = write(Path(folder) / "made_up.jsonl", *points)
        return Samples(measured.read(path, allow_emulated=True))


@pytest.mark.parametrize("plan", EVERY)
def test_a_plan_has_each_point_once_in_the_order_of_files(plan: tuple[Subject, ...]) -> None:
    keys = [(*cases.order_of(s.case), list(Series).index(s.series)) for s in plan]
    assert keys == sorted(set(keys))


@pytest.mark.parametrize("devices", [1, 2])
def test_the_short_plan_is_part_of_the_whole_one(devices: int) -> None:
    short, whole = (set(subjects(PlanName.KIMI_K2_6, each, devices)) for each in (True, False))
    assert short < whole
    assert len(short) < len(whole) / 2


@pytest.mark.parametrize("plan", EVERY)
def test_every_op_that_one_gpu_can_do_is_in_every_plan(plan: tuple[Subject, ...]) -> None:
    found = {subject.case.op for subject in plan}
    assert found == set(Op) - {Op.ALLREDUCE} or found == set(Op) - {Op.ALLREDUCE_STANDIN}


@pytest.mark.parametrize("plan", EVERY)
def test_the_series_that_the_cost_model_asks_for_is_measured(plan: tuple[Subject, ...]) -> None:
    for op, series in SERIES.items():
        assert {subject.series for subject in plan if subject.case.op is op} & {series[0]}


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("step", STEPS)
def test_a_step_of_kimi_finds_its_kernels_in_the_plan(step: str, short: bool) -> None:
    graph = decode_step(full_setup(*STEPS[step], "gpu=h200_sxm", "interconnect=nvlink4"))
    kinds = (GroupedExperts, MlaAttention, GraphLaunch)
    verify = [op.work for op in graph.ops if op.phase is Phase.VERIFY and isinstance(op.work, Gemm)]
    works = {*verify, *(op.work for op in graph.ops if isinstance(op.work, kinds))}
    tasks = {op.work for op in graph.ops if isinstance(op.work, GpuKernel)}
    assert any(isinstance(work, GroupedExperts) for work in works)
    for work in works | tasks:
        assert isinstance(as_if_measured(short).find(work), Answer), work


def test_the_sizes_of_the_kernels_are_those_of_the_catalog() -> None:
    model = catalog.target_model("kimi_k2_6")
    routed, attention = model.experts, model.attention
    assert routed is not None
    assert isinstance(attention, Mla)
    assert (model.hidden, routed.count, routed.top_k) == (shapes.HIDDEN, shapes.EXPERTS, shapes.TOP_K)
    assert attention.latent == shapes.CACHE_WIDTH
    assert model.vocab // shapes.RANKS == shapes.VOCABULARY
    assert routed.intermediate // shapes.RANKS == shapes.EXPERT_INTERMEDIATE


def test_one_gpu_has_a_stand_in_and_several_an_allreduce_over_all_of_them() -> None:
    alone, together = (subjects(PlanName.TINY, True, devices) for devices in (1, 4))
    assert Op.ALLREDUCE not in {s.case.op for s in alone}
    ranks = {s.case.ranks for s in together if isinstance(s.case, cases.Reduce)}
    assert ranks == {4}


@pytest.mark.parametrize("plan", EVERY)
def test_every_kernel_of_a_plan_has_an_operation(plan: tuple[Subject, ...]) -> None:
    for subject in plan:
        if subject.case.op in ON_A_KERNEL:
            operation = operation_of(subject.case, 132)
            assert operation.launches()


@pytest.mark.parametrize("plan", EVERY)
def test_replays_are_all_read_by_one_clock_and_launches_go_on(plan: tuple[Subject, ...]) -> None:
    replayed = {s.case.nodes for s in plan if isinstance(s.case, cases.GraphReplay)}
    launched = {s.case.nodes for s in plan if isinstance(s.case, cases.GraphLaunch)}
    assert replayed == {nodes for nodes in launched if nodes <= MOST_HELD_NODES}
    assert max(launched) < MOST_HELD_NODES or MOST_HELD_NODES in replayed < launched


def test_tree_builds_reach_as_far_as_the_budgets_of_scenarios() -> None:
    found = as_if_measured(False)
    for budget in FULL.budgets:
        assert isinstance(found.find(GpuKernel(GpuTask.TREE_BUILD, budget)), Answer)


SHAPE: dict[str, Any] = {"tokens": 1, "experts": 8, "top_k": 2, "hidden": 1024, "intermediate": 256}


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (cases.Experts(**SHAPE, dtype=DType.NVFP4), "the expert kernel is for int4 weights"),
        (cases.DenseGemm(tokens=1, n=64, k=64, dtype=DType.FP8), "the dense kernel is for bf16"),
        (
            cases.Mla(requests=1, queries=1, context_tokens=1, heads=8, latent=64, dtype=DType.BF16),
            "a cached token has 576 values",
        ),
        (
            cases.Mla(requests=1, queries=1, context_tokens=1, heads=8, latent=576, dtype=DType.INT4),
            "the cache is bf16 or fp8",
        ),
        (
            cases.Reduce(message_bytes=8, ranks=2, algorithm=AllReduceAlgorithm.ONE_SHOT),
            "it is no kernel on one GPU",
        ),
    ],
)
def test_what_no_kernel_does_is_said(case: AnyCase, told: str) -> None:
    with pytest.raises(UnmeasurableError) as refused:
        operation_of(case, 132)
    assert str(refused.value) == f"{cases.words(case)}: {told}"

"""Families of figures that are right or wrong together, such as one kernel's table or one host cost.

Inside a family everything is taken to be off by the same number of standard deviations; families are
taken to be independent.
"""

from __future__ import annotations

from enum import StrEnum
from typing import assert_never

from hwmodels.work import (
    AllGather,
    AllReduce,
    Barrier,
    BatchedGemm,
    Copy,
    EagerLaunch,
    Elementwise,
    Exchange,
    Gemm,
    GpuKernel,
    GpuTask,
    GpuWork,
    GqaAttention,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    IndexScores,
    LooseLaunch,
    MlaAttention,
    Prefill,
    StreamContention,
    Work,
)


class Family(StrEnum):
    """A family; the value is its name in reports."""

    EXPERTS = "routed experts"
    MLA = "MLA attention"
    GQA = "grouped-query attention"
    INDEX = "indexer of sparse attention"
    GEMMS = "dense GEMMs"
    SMALL = "norms and small kernels"
    COLLECTIVES = "collectives"
    EXCHANGES = "collectives of context parallelism"
    TOP_K = "top-k and tree kernels"
    TREE_SELECT = "tree select"
    LOOSE = "loose"
    PREFILL = "prefill"
    COPIES = "host copies"
    GRAPHS = "graph launches"
    EAGER = "eager launches"
    LOOSE_LAUNCHES = "loose launches"
    SCHEDULING = "Python scheduling"
    TREE_DISPATCH = "tree dispatch"
    TREE_BUILD = "tree build"
    SYNCHRONISATION = "synchronisation"
    HAND_OVER = "hand-over between two steps"
    DRAFT_PASS = "draft pass"
    BARRIERS = "barriers"


def names() -> tuple[Family, ...]:
    """Every family there is, in alphabetical order."""
    return tuple(sorted(Family))


def family_of(work: Work) -> Family:
    """The family of *work*."""
    match work:
        case AllReduce() | AllGather():
            return Family.COLLECTIVES
        case Exchange():
            return Family.EXCHANGES
        case Prefill():
            return Family.PREFILL
        case HostWork():
            return _of_host(work.task)
        case Copy():
            return Family.COPIES
        case GraphLaunch():
            return Family.GRAPHS
        case EagerLaunch():
            return Family.EAGER
        case LooseLaunch():
            return Family.LOOSE_LAUNCHES
        case Barrier():
            return Family.BARRIERS
        case _:
            return _of_gpu_work(work)


def _of_gpu_work(work: GpuWork) -> Family:
    match work:
        case GroupedExperts():
            return Family.EXPERTS
        case MlaAttention():
            return Family.MLA
        case GqaAttention():
            return Family.GQA
        case IndexScores():
            return Family.INDEX
        case Gemm() | BatchedGemm() | StreamContention():
            return Family.GEMMS
        case Elementwise():
            return Family.SMALL
        case GpuKernel():
            return _of_kernel(work.task)
        case _:
            assert_never(work)


def _of_kernel(task: GpuTask) -> Family:
    match task:
        case GpuTask.TOP_K | GpuTask.TREE_BUILD | GpuTask.TREE_ACCEPT:
            return Family.TOP_K
        case GpuTask.TREE_SELECT:
            return Family.TREE_SELECT
        case GpuTask.LOOSE:
            return Family.LOOSE
        case _:
            assert_never(task)


def _of_host(task: HostTask) -> Family:
    match task:
        case HostTask.SCHEDULE:
            return Family.SCHEDULING
        case HostTask.TREE_DISPATCH:
            return Family.TREE_DISPATCH
        case HostTask.TREE_BUILD | HostTask.TREE_MASK:
            return Family.TREE_BUILD
        case HostTask.SYNCHRONISE:
            return Family.SYNCHRONISATION
        case HostTask.HAND_OVER:
            return Family.HAND_OVER
        case HostTask.DRAFT_PASS:
            return Family.DRAFT_PASS
        case _:
            assert_never(task)

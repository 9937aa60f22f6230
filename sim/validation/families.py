"""Families of figures that are right or wrong together, such as one kernel's table or one host cost.

Inside a family everything is taken to be off by the same number of standard deviations; families are
taken to be independent.
"""

from __future__ import annotations

from hwmodels.work import (
    AllGather,
    AllReduce,
    BatchedGemm,
    Copy,
    EagerLaunch,
    Elementwise,
    Gemm,
    GpuKernel,
    GpuTask,
    GqaAttention,
    GraphLaunch,
    GroupedExperts,
    HostTask,
    HostWork,
    LooseLaunch,
    MlaAttention,
    Prefill,
    StreamContention,
    Work,
)

Family = str
"""Its name in reports."""

_NAMES: dict[type, Family] = {
    GroupedExperts: "routed experts",
    MlaAttention: "MLA attention",
    GqaAttention: "grouped-query attention",
    Gemm: "dense GEMMs",
    BatchedGemm: "dense GEMMs",
    StreamContention: "dense GEMMs",
    Elementwise: "norms and small kernels",
    AllReduce: "collectives",
    AllGather: "collectives",
    Copy: "host copies",
    GraphLaunch: "graph launches",
    EagerLaunch: "eager launches",
    LooseLaunch: "loose launches",
    Prefill: "prefill",
}
_TASKS: dict[HostTask | GpuTask, Family] = {
    HostTask.SCHEDULE: "Python scheduling",
    HostTask.TREE_DISPATCH: "tree dispatch",
    HostTask.TREE_BUILD: "tree build",
    HostTask.TREE_MASK: "tree build",
    HostTask.SYNCHRONISE: "synchronisation",
    HostTask.HAND_OVER: "hand-over between two steps",
    HostTask.HAND_OVER: "synchronisation",
    GpuTask.TOP_K: "top-k and tree kernels",
    GpuTask.TREE_BUILD: "top-k and tree kernels",
    GpuTask.TREE_ACCEPT: "top-k and tree kernels",
}


def family_of(work: Work) -> Family:
    """The family of *work*; a kind of work without a name here is a family of its own."""
    if isinstance(work, HostWork | GpuKernel):
        return _TASKS.get(work.task, str(work.task.value).replace("_", " "))
    return _NAMES.get(type(work), type(work).__name__)

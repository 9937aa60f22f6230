"""Scenarios and machines made for a test: few layers, figures scaled, noise taken away."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from hwmodels.devices import Gpu
from hwmodels.documents import Strict
from hwmodels.entry import Figure
from hwmodels.stacks import BlockSchedule
from hwmodels.work import MlaAttention
from sim import scenario
from sim.graph import StepGraph
from sim.records import StepRecords
from sim.scenario import Scenario
from sim.setup import Setup, resolve

BASE = Path(__file__).with_name("base.yaml")

Model = TypeVar("Model", bound=Strict)


def scenario_with(*overrides: str) -> Scenario:
    """The base scenario with ``key=value`` overrides."""
    return scenario.load(BASE, overrides)


def full_setup(*overrides: str) -> Setup:
    """The base scenario resolved, all 61 layers of it."""
    return resolve(scenario_with(*overrides))


def small_setup(*overrides: str, layers: int = 2, draft_layers: int = 1) -> Setup:
    """The base scenario on a model of few layers, the first of them dense.

    Every rank has eight heads however many ranks there are, for tables know no wider
    slices; the machine is looked up with a load that fits, as two layers always do.
    """
    asked = scenario_with(*overrides)
    setup = full_setup(*overrides, "gpus=8", "load={context_tokens: 1, output_tokens: 1, concurrency: 1}")
    heads = setup.model.attention.model_copy(update={"heads": 8 * asked.gpus})
    sizes = {"layers": layers, "dense_layers": 1, "attention": heads}
    return Setup(
        scenario=asked,
        model=setup.model.model_copy(update=sizes),
        drafter=setup.drafter.model_copy(update={"layers": draft_layers}),
        machine=replace(setup.machine, ranks=asked.gpus),
    )


def with_figures(model: Model, **values: float) -> Model:
    """*model* with some of its figures set to other values."""
    changed = {name: getattr(model, name).model_copy(update={"value": v}) for name, v in values.items()}
    return model.model_copy(update=changed)


def with_noise(setup: Setup, **values: float) -> Setup:
    """*setup* with some of its GPU's noise figures set to other values."""
    gpu: Gpu = setup.machine.gpu
    noisy = gpu.model_copy(update={"noise": with_figures(gpu.noise, **values)})
    return replace(setup, machine=replace(setup.machine, gpu=noisy))


def without_noise(setup: Setup, **kept: float) -> Setup:
    """*setup* where every execution takes its mean time; *kept* names GPU noise that stays."""
    machine = setup.machine
    quiet = replace(
        machine,
        interconnect=with_figures(machine.interconnect, noise_cv=0.0),
        host=with_figures(machine.host, noise_cv=0.0, graph_launch_cv=0.0),
    )
    silent = {"kernel_cv": 0.0, "step_cv": 0.0, "rank_cv": 0.0, "spike_probability": 0.0}
    return with_noise(replace(setup, machine=quiet), **(silent | kept))


def with_dispatch(setup: Setup, **values: float) -> Setup:
    """*setup* with some of its stack's host costs set to other values."""
    stack = setup.machine.stack
    changed = stack.model_copy(update={"dispatch": with_figures(stack.dispatch, **values)})
    return replace(setup, machine=replace(setup.machine, stack=changed))


def with_overlap(setup: Setup, **switches: bool) -> Setup:
    """*setup* with some of its stack's overlaps switched."""
    stack = setup.machine.stack
    changed = stack.model_copy(update={"overlap": stack.overlap.model_copy(update=switches)})
    return replace(setup, machine=replace(setup.machine, stack=changed))


def with_block_schedule(setup: Setup, when: BlockSchedule) -> Setup:
    """*setup* on a stack that prepares chains of a block drafter *when*."""
    stack = setup.machine.stack
    overlap = stack.overlap.model_copy(update={"block_schedule": when})
    return replace(setup, machine=replace(setup.machine, stack=stack.model_copy(update={"overlap": overlap})))


def with_filling_experts(setup: Setup, fills: bool) -> Setup:
    """*setup* whose expert kernels leave no room beside them, or all of them some."""
    stack = setup.machine.stack
    kernels = tuple(kernel.model_copy(update={"fills_gpu": fills}) for kernel in stack.experts)
    return replace(setup, machine=replace(setup.machine, stack=stack.model_copy(update={"experts": kernels})))


def without_graphs(setup: Setup) -> Setup:
    """*setup* on a stack that launches every kernel eagerly."""
    stack = setup.machine.stack
    eager = stack.dispatch.model_copy(update={"graphs": False})
    changed = stack.model_copy(update={"dispatch": eager})
    return replace(setup, machine=replace(setup.machine, stack=changed))


def dispatch_times(setup: Setup) -> list[str]:
    """The keys of every time (us) among the stack's dispatch costs."""
    dispatch = setup.machine.stack.dispatch
    names = [name for name in type(dispatch).model_fields if "_us" in name]
    return [name for name in names if isinstance(getattr(dispatch, name), Figure)]


def host_times(setup: Setup) -> list[str]:
    """Those of them that the host spends."""
    return [name for name in dispatch_times(setup) if not name.startswith(("gpu_", "top_k"))]


def attention_of(graph: StepGraph) -> list[MlaAttention]:
    """Every attention op's work."""
    return [op.work for op in graph.ops if isinstance(op.work, MlaAttention)]


def plain_data(records: StepRecords) -> dict[str, Any]:
    """*records* as lists, to compare with ``==``."""
    return {field.name: getattr(records, field.name).tolist() for field in fields(records)}

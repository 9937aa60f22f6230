"""Levers that are choices: another tree, builder, engine, GPU, each instead of what the scenario has."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.errors import DocumentError, HardwareError
from sim.causes import with_changes
from sim.choices import Shape
from sim.levers.played import PlayedSteps
from sim.scenario import MAX_BLOCK, MAX_BUDGET, CapturePolicy, Scenario, TreeBuilder
from sim.setup import LaunchMode, Setup, resolve
from sim.simulate import Simulation

NATIVE = "native"
STOCK = "sglang"
OTHER_EXPERTS = "_nvfp4"
"""What the name of a model with NVFP4 experts ends in."""


@dataclass(frozen=True)
class Choice:
    """Something that the scenario could say instead."""

    kind: str
    name: str
    changes: Mapping[str, Any]
    """Scenario keys and their other values."""


@dataclass(frozen=True)
class Alternative:
    """What a choice does; one that cannot be simulated has its *problem* instead."""

    choice: Choice
    tok_s: float | None
    problem: str
    note: str = ""
    """What else it changes, such as the way of launching."""


def choices(setup: Setup) -> list[Choice]:
    """All that *setup* could have instead, one thing at a time."""
    return [
        *_trees(setup),
        *_capture(setup),
        *_builders(setup),
        *_engines(setup),
        *_experts(setup),
        *_gpus(setup),
    ]


def evaluate(setup: Setup, choice: Choice) -> Alternative:
    """What *choice* does to *setup*, with the same luck."""
    try:
        other = resolve(with_changes(setup.scenario, choice.changes))
        played = PlayedSteps.of(Simulation(other))
    except (DocumentError, HardwareError) as problem:
        return Alternative(choice, None, str(problem))
    except ValidationError as problem:
        return Alternative(choice, None, "; ".join(str(error["msg"]) for error in problem.errors()))
    tok_s = played.tok_s(played.step_ns(played.unchanged))
    return Alternative(choice, tok_s, "", _launched(setup, other))


def _launched(setup: Setup, other: Setup) -> str:
    if other.verify_launch is setup.verify_launch:
        return ""
    words = {
        LaunchMode.GRAPH: "launched as a graph",
        LaunchMode.EAGER: "launched kernel by kernel",
        LaunchMode.PIECEWISE: "launched in pieces",
    }
    return words[other.verify_launch]


def follows_from_tree(scenario: Scenario) -> bool:
    """Whether acceptance answers to block and budget, so that other trees mean something."""
    return scenario.acceptance.quality is not None and not scenario.is_plain


def builds_tree(scenario: Scenario) -> bool:
    """Whether a step builds a tree out of what a block drafter gives."""
    return scenario.tree.shape is Shape.DDTREE and not scenario.is_plain


def _trees(setup: Setup) -> Iterator[Choice]:
    """Half and twice the block and the budget, or the chain; the drafter stays as accurate as it is."""
    scenario = setup.scenario
    if not follows_from_tree(scenario):
        return
    at = scenario.asked_at
    held = {
        "acceptance.quality.block": at.block,
        "acceptance.quality.budget": at.budget,
        "acceptance.quality.shape": at.shape.value,
        "acceptance.quality.top_k": at.top_k if at.shape is Shape.EAGLE else None,
        "acceptance.mean_length_range": None,
    }
    if scenario.tree.shape is Shape.CHAIN:
        for nodes in (scenario.drafted.nodes // 2, scenario.drafted.nodes * 2):
            if 1 <= nodes < MAX_BLOCK:
                longer = {"drafter.block": nodes + 1, "tree.budget": nodes}
                yield Choice("chain", f"chain of {nodes}", {**held, **longer})
        return
    for block in (scenario.drafter.block // 2, scenario.drafter.block * 2):
        if 2 <= block <= MAX_BLOCK:
            yield Choice("block", f"block {block}", {**held, "drafter.block": block})
    for budget in (scenario.tree.budget // 2, scenario.tree.budget * 2):
        if 1 <= budget <= MAX_BUDGET:
            yield Choice("budget", f"budget {budget}", {**held, "tree.budget": budget})


def _capture(setup: Setup) -> Iterator[Choice]:
    """The limit on captured trees lifted, or kept, where this tree breaks it."""
    if setup.broken_limit is None:
        return
    kept = setup.scenario.capture_limit is CapturePolicy.KEPT
    other = CapturePolicy.LIFTED if kept else CapturePolicy.KEPT
    yield Choice("capture limit", f"limit on captured trees {other.value}", {"capture_limit": other.value})


def _builders(setup: Setup) -> Iterator[Choice]:
    scenario = setup.scenario
    if not builds_tree(scenario):
        return
    on_host = scenario.tree.builder is TreeBuilder.HOST
    other = TreeBuilder.GPU if on_host else TreeBuilder.HOST
    where = "GPU" if on_host else "host"
    yield Choice("builder", f"tree built on the {where}", {"tree.builder": other.value})


def _engines(setup: Setup) -> Iterator[Choice]:
    scenario = setup.scenario
    if scenario.stack == NATIVE:
        yield Choice("engine", f"stack {STOCK}", {"stack": STOCK})
        return
    yield Choice("engine", f"stack {NATIVE}", {"stack": NATIVE})
    if builds_tree(scenario) and scenario.tree.builder is TreeBuilder.HOST:
        on_gpu = {"stack": NATIVE, "tree.builder": TreeBuilder.GPU.value}
        yield Choice("engine", f"stack {NATIVE}, tree built on the GPU", on_gpu)


def _experts(setup: Setup) -> Iterator[Choice]:
    other = setup.scenario.model + OTHER_EXPERTS
    if other in catalog.names(Kind.MODEL):
        yield Choice("experts", "NVFP4 experts", {"model": other, "experts.kernel": None})


def _gpus(setup: Setup) -> Iterator[Choice]:
    """Every shipped GPU that usually sits beside others, with its usual link and host."""
    for name in catalog.names(Kind.GPU):
        gpu = catalog.gpu(name)
        if name == setup.machine.gpu.name or gpu.usual_interconnect is None:
            continue
        host = gpu.usual_host or setup.scenario.host
        changes = {"gpu": name, "interconnect": gpu.usual_interconnect, "host": host, "experts.kernel": None}
        yield Choice("GPU", f"GPU {name}", changes)

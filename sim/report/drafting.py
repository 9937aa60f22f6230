"""What is drafted and for how many, and what a reader must know of it."""

from __future__ import annotations

from sim.choices import Shape
from sim.drafting import REACHED, drafter_quality, required_accuracy
from sim.setup import Setup

SHOWN_POSITIONS = (1, 2, 4, 8)


def drafting_line(setup: Setup) -> str:
    """What drafts, how much, and in what shape."""
    scenario = setup.scenario
    several = setup.requests > 1
    requests = f", {setup.requests} requests in lock-step; tok/s of all" if several else ""
    requests += f"; {capacity_line(setup)}" if setup.capacity_limited else ""
    if scenario.is_plain:
        return f"plain decoding (acceptance is not used){requests}"
    spec, tokens = scenario.drafted, f"(M = {scenario.verify_tokens})"
    match spec.shape:
        case Shape.DDTREE:
            drafted = f"budget {spec.budget} {tokens}, tree on {scenario.tree.builder.value}"
        case Shape.CHAIN:
            drafted = f"chain of {spec.nodes} {tokens}"
        case Shape.EAGLE:
            drafted = f"EAGLE tree of {spec.nodes}, top {spec.top_k} {tokens}"
    return f"{setup.drafter.name}, block {spec.block}, {drafted}{requests}"


def capacity_line(setup: Setup) -> str:
    """How many requests of the load the cache holds."""
    return f"capacity limited: {setup.requests} of {setup.scenario.load.concurrency} requests fit"


def batch_notes(setup: Setup) -> list[str]:
    """What the batch is and is not; nothing for one request alone."""
    if setup.scenario.load.concurrency == 1:
        return []
    found = ["The batch is full from the first step to the last: ramp-up and drain are excluded."]
    if setup.capacity_limited:
        blocks, each = setup.capacity
        found.append(
            f"Capacity limited: {blocks:,} cache blocks on each GPU, {each:,} for a request's whole life;"
            " the others wait, which no figure here counts."
        )
    return found


def drafting_notes(setup: Setup) -> list[str]:
    """What a reader must know about drafter and acceptance; nothing for plain decoding."""
    if setup.scenario.is_plain:
        return []
    found = acceptance_notes(setup)
    block, trained = setup.scenario.drafter.block, setup.drafter.longest_block
    if trained is not None and block > trained:
        found.append(
            f"{setup.drafter.name} was trained at block {trained}; at block {block} it may gain nothing."
        )
    if setup.drafter.targets and setup.model.name not in setup.drafter.targets:
        trained_for = ", ".join(setup.drafter.targets)
        found.append(f"{setup.drafter.name} was trained for {trained_for}, not for {setup.model.name}.")
    if setup.drafter.hypothetical:
        found.append(f"Hypothesis: {setup.drafter.title}.")
    return found


def acceptance_notes(setup: Setup) -> list[str]:
    """Where acceptance comes from; how good the drafter must be where it follows from the tree."""
    given, accuracy = setup.scenario.acceptance, setup.drafter.accuracy
    if given.trace is not None:
        return [f"Acceptance is drawn from {given.trace}, request by request, whatever block and budget."]
    if given.quality is None or accuracy is None:
        return ["Acceptance is what the scenario says; block and budget cap it but do not change it."]
    quality = drafter_quality(setup, given.asked_mean)
    return [
        f"Acceptance follows from the tree: accuracy of {setup.drafter.name} ({accuracy.source.name}),"
        f" log-odds {quality.shift:+.2f}, off the spine x{quality.off_spine:g}.",
        _accuracy_line(setup),
    ]


def _accuracy_line(setup: Setup) -> str:
    """How often the first choice must be right at some positions."""
    last = setup.scenario.drafted.positions
    positions = [*(position for position in SHOWN_POSITIONS if position < last), last]
    shown = []
    for mean, _, landed, top1 in required_accuracy(setup):
        label = "in the catalog" if mean is None else f"for {mean:g} tokens"
        if mean is not None and abs(landed - mean) > REACHED:
            label += f" (the nearest is {landed:.2f})"
        shown.append(f"{label} " + " ".join(f"{100 * top1[position - 1]:.3g}" for position in positions))
    where = " ".join(map(str, positions))
    return f"First choice right, %, at positions {where}, steps of middling difficulty: {'; '.join(shown)}."

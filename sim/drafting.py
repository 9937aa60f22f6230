"""What a setup drafts, and what lands of it: its tree, how good its drafter is, its acceptance."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

from scipy import optimize

from hwmodels.drafters import Accuracy
from hwmodels.errors import HardwareError
from sim import ddtree
from sim.acceptance import (
    Acceptance,
    AcceptanceModel,
    TraceModel,
    hazards_from_rates,
    solve_constant_hazard,
)
from sim.choices import Shape
from sim.ddtree import TreeSpec
from sim.errors import ScenarioError
from sim.quality import Array, DrafterQuality
from sim.setup import Setup

LARGEST_SHIFT = 30.0
"""Log-odds; beyond this a drafter is always right, or never."""
REACHED = 0.005
"""Tokens by which a mean may be missed and still be called reached."""


def acceptance_model(setup: Setup, mean_length: float | None = None) -> Acceptance:
    """The model that the scenario of *setup* asks for; *mean_length* replaces the one it names."""
    given, cap = setup.scenario.acceptance, setup.scenario.max_acceptance_length
    if cap == 1:
        return AcceptanceModel(())
    if setup.trace is not None:
        return TraceModel(setup.trace, cap)
    if given.length is not None:
        return AcceptanceModel((1.0,) * (given.length - 1) + (0.0,) * (cap - given.length))
    variation = (given.request_sd, given.step_correlation, given.decay_per_1k_context)
    return AcceptanceModel(_hazards(setup, mean_length), *variation)


def _hazards(setup: Setup, mean_length: float | None) -> tuple[float, ...]:
    """One hazard per position that a step can land."""
    scenario = setup.scenario
    given, cap = scenario.acceptance, scenario.max_acceptance_length
    target = mean_length if mean_length is not None else given.asked_mean
    if given.quality is not None:
        return tree_model(drafter_quality(setup, target), scenario.drafted).hazards
    if target is not None:
        return (solve_constant_hazard(target, cap, given.request_sd),) * (cap - 1)
    if given.rates is not None:
        return hazards_from_rates(given.rates)[: cap - 1]
    vector = given.hazard_vector
    assert vector is not None
    return vector * (cap - 1) if isinstance(given.hazard, float) else vector[: cap - 1]


def drafter_quality(setup: Setup, mean_length: float | None) -> DrafterQuality:
    """How good the drafter is: the catalog's accuracy, shifted to *mean_length* where given.

    HardwareError where the catalog knows no accuracy of it.
    """
    scenario = setup.scenario
    given = scenario.acceptance.quality
    assert given is not None
    known = setup.drafter.accuracy
    if known is None:
        raise HardwareError(
            setup.drafter.name, "no accuracy is known for it: give mean_length, hazard or rates"
        )
    quality = quality_of(known)
    if given.off_spine is not None:
        quality = replace(quality, off_spine=given.off_spine)
    if mean_length is None:
        return quality
    return _shifted_to(quality, mean_length, scenario.asked_at, scenario.acceptance.request_sd)


def quality_of(known: Accuracy) -> DrafterQuality:
    """The accuracy of a catalog entry as a model."""
    return DrafterQuality(
        top1_logit=known.top1_logit or 0.0,
        depth_slope=known.depth_slope,
        step_sd=known.step_sd,
        easy_share=known.easy_share,
        off_spine=known.off_spine,
        stated_slope=known.stated_slope,
        top1=hazards_from_rates(known.rates) if known.rates else (),
    )


class Required(NamedTuple):
    """How often the drafter must be right for the scenario to hold."""

    mean_length: float | None
    """None: as the catalog has it."""
    shift: float
    """Added to the catalog's log-odds."""
    landed: float
    """The mean that the tree lands then; another than was asked for where the tree jumps."""
    top1: tuple[float, ...]
    """Chance of each position's first choice in a step of middling difficulty."""


def required_accuracy(setup: Setup) -> list[Required]:
    """Accuracy in the catalog, and for each mean that is asked for; empty where none follows from a tree."""
    given, positions = setup.scenario.acceptance, setup.scenario.drafted.positions
    if given.quality is None or setup.scenario.is_plain:
        return []
    asked = {given.asked_mean, *(given.mean_length_range or ())}
    found = []
    for mean in (None, *sorted(mean for mean in asked if mean is not None)):
        quality = drafter_quality(setup, mean)
        lands = landed(quality, setup.scenario.asked_at, given.request_sd)
        found.append(Required(mean, quality.shift, lands, tuple(quality.top1_by_depth(positions).tolist())))
    return found


@cache
def _shifted_to(
    quality: DrafterQuality, mean_length: float, spec: TreeSpec, request_sd: float
) -> DrafterQuality:
    """*quality* with other log-odds, so that the tree of *spec* lands *mean_length*.

    Trees change by whole nodes, and off the spine a node may cost more than it brings: the
    mean then jumps, and the shift is where it does. ScenarioError where none comes near.
    """

    def excess(shift: float) -> float:
        return landed(quality.shifted(shift), spec, request_sd) - mean_length

    low, high = -LARGEST_SHIFT, LARGEST_SHIFT
    if excess(low) < 0 < excess(high):
        return quality.shifted(float(optimize.brentq(excess, low, high, xtol=1e-6)))
    nearest = min((low, high), key=lambda shift: abs(excess(shift)))
    if abs(excess(nearest)) > REACHED:
        ends = " to ".join(f"{mean_length + excess(shift):.2f}" for shift in (low, high))
        problem = f"{mean_length:g} tokens a step cannot be landed with {spec}: only {ends}"
        raise ScenarioError("acceptance.quality", 0, "mean_length", problem)
    return quality.shifted(nearest)


def landed(quality: DrafterQuality, spec: TreeSpec, request_sd: float) -> float:
    """E[L] of the tree of *spec*, over requests and the difficulty of steps."""
    return tree_model(quality, spec, request_sd).mean_length()


def tree_model(quality: DrafterQuality, spec: TreeSpec, request_sd: float = 0.0) -> AcceptanceModel:
    """What the tree of *spec* lands where steps do not depend on one another."""
    return survival_model(quality.survival(spec)[: spec.cap - 1], request_sd)


def survival_model(survival: Array, request_sd: float = 0.0) -> AcceptanceModel:
    """The model with P(L > 1), P(L > 2), ... *survival* at the middle of requests."""
    return AcceptanceModel(hazards_from_rates(tuple(survival.tolist())), request_sd)


def heap_operations(setup: Setup) -> int:
    """Pushes and pops that building the tree takes, in a step of middling difficulty.

    The most that a tree of this budget can take where nothing is known of the drafter's marginals.
    """
    scenario = setup.scenario
    spec = scenario.drafted
    if spec.shape is not Shape.DDTREE:
        return 0
    if scenario.acceptance.quality is None:
        return ddtree.most_operations(spec.budget)
    quality = drafter_quality(setup, scenario.acceptance.asked_mean)
    return quality.draft(quality.top1_by_depth(spec.positions), spec).heap_operations

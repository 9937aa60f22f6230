"""Whether a scenario can be drawn as its ``uncertain`` says, and the scenarios that it then stands for."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np
from pydantic import ValidationError

from hwmodels import catalog
from hwmodels.documents import dotted
from hwmodels.entry import Figure
from sim.uncertainty.keys import KINDS, MEANS, TIMES_ALONE, Where, is_whole, place_of
from sim.uncertainty.priors import Array, Choice, Coarse, Integers, Prior, Uniform, Whole
from sim.uncertainty.stated import Distribution, Own

if TYPE_CHECKING:
    from sim.scenario import Scenario

ENDS: Array = np.array([0.0, 1.0])


def problem_of(scenario: Scenario, key: str, stated: Distribution) -> str:
    """Why *key* of *scenario* cannot be drawn as *stated*; empty where it can."""
    try:
        where = place_of(key, type(scenario), scenario.entries)
        if stated.from_ is not None:
            _check_own(scenario, key, where, stated.from_)
        elif where is Where.SCENARIO:
            for value in _extremes(scenario_prior(scenario, key, stated)):
                drawn(scenario, {key: value})
        else:
            _check_numbers(key, where, _extremes(stated.prior))
    except ValidationError as problem:
        return first_problem(problem)
    except ValueError as problem:
        return str(problem)
    return ""


def _extremes(prior: Prior) -> list[Any]:
    """The lowest and highest value that *prior* may give; all of a choice."""
    found: list[Any] = list(prior.options) if isinstance(prior, Choice) else prior.at(ENDS).tolist()
    return found


def _check_own(scenario: Scenario, key: str, where: Where, own: Own) -> None:
    """ValueError where *key* has nothing of its own to draw from."""
    if where is Where.SCENARIO:
        raise ValueError(f"from: {own.value} is what figures state; a scenario key needs a distribution")
    if own is Own.RANGE and (where is not Where.FIGURE or figure_at(scenario, key).range is None):
        raise ValueError("has no range; from: fit takes what its source leaves open")


def _check_numbers(key: str, where: Where, values: list[Any]) -> None:
    """ValueError where a figure or factor cannot be all of *values*."""
    if any(isinstance(value, bool | str) for value in values):
        raise ValueError(f"needs numbers, got {values}")
    # Bandwidths and rates are divided by; a cost may be nothing.
    may_be_nothing = where is Where.FIGURE and ("_us" in key or key.endswith("_correlation"))
    if min(values) < 0 or (min(values) == 0 and not may_be_nothing):
        raise ValueError(f"may not be drawn as {min(values):.4g}; a lognormal stays above 0")


def scenario_prior(scenario: Scenario, key: str, stated: Distribution) -> Prior:
    """The distribution of a scenario key: whole numbers where it takes no others.

    A key that a step is built by takes a few values alone, for each needs a step of its own.
    """
    prior = stated.prior
    if isinstance(prior, Choice):
        return prior
    if is_whole(key, type(scenario)):
        prior = _whole(prior)
    return prior if key in TIMES_ALONE | MEANS else Coarse(prior)


def _whole(prior: Prior) -> Prior:
    """*prior* over whole numbers."""
    if isinstance(prior, Uniform):
        return Integers(ceil(prior.low), floor(prior.high))
    return Whole(prior)


def drawn(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """*scenario* with *values* of its keys, certain of all; ValueError where it is none.

    A mean that acceptance is solved for holds at the scenario's own tree, whatever is drawn.
    """
    own = {
        key: int(value) if isinstance(value, float) and is_whole(key, type(scenario)) else value
        for key, value in values.items()
    }
    certain: dict[str, Any] = {"uncertain": {}, "acceptance.mean_length_range": None}
    certain |= {"regression": None, "calibration": None}
    return with_keys(scenario, {**certain, **_solved_at(scenario), **own})


def _solved_at(scenario: Scenario) -> dict[str, Any]:
    """Where the mean of a quality holds, spelled out."""
    quality, at = scenario.acceptance.quality, scenario.asked_at
    if quality is None or quality.mean_length is None or scenario.is_plain:
        return {}
    where = {"block": at.block, "budget": at.budget, "shape": at.shape.value, "top_k": at.top_k}
    return {f"acceptance.quality.{key}": value for key, value in where.items()}


def with_keys(scenario: Scenario, values: Mapping[str, Any]) -> Scenario:
    """*scenario* with other *values* of some keys; ValueError where it is none."""
    data = scenario.model_dump(mode="json")
    for key, value in values.items():
        *outer, last = key.split(".")
        owner = data
        for part in outer:
            owner = owner[part]
            if owner is None:
                raise ValueError(f"this scenario has no {part}")
        owner[last] = value
    return type(scenario).model_validate(data, strict=False)


def figure_at(scenario: Scenario, key: str) -> Figure:
    """The figure *key* (``gpu.achieved_bandwidth_gb_s``) of an entry that *scenario* names."""
    short, _, own = key.partition(".")
    kind = KINDS[short]
    return dict(catalog.figures(catalog.entry(kind, scenario.entries[kind])))[own]


def first_problem(problem: ValidationError) -> str:
    """What is wrong first, in one line."""
    found = problem.errors(include_url=False)[0]
    text = str(found["ctx"]["error"]) if found["type"] == "value_error" else found["msg"]
    place = dotted(tuple(found["loc"]))
    return f"{place}: {text}" if place else text

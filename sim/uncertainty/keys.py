"""What a scenario file may call uncertain: its own keys, figures of its catalog entries, families of work."""

from __future__ import annotations

import difflib
from enum import Enum
from typing import get_args

from pydantic import BaseModel

from hwmodels import catalog
from hwmodels.catalog import Kind
from hwmodels.documents import known_keys
from sim import families

WORK = "work"
"""``work.routed_experts``: how many times as long as estimated a family of work takes."""
KINDS = {kind.value.removesuffix("s"): kind for kind in Kind}
"""``gpu.achieved_bandwidth_gb_s``: a figure of the scenario's catalog entry of that kind."""
FIXED = frozenset(
    {
        "question",
        "assumptions",
        "anchor",
        "regression",
        "calibration",
        "uncertain",
        "runs",
        "seed",
        "acceptance.trace",
        "acceptance.counts",
        "acceptance.mean_length_range",
    }
)
"""Scenario keys that are no part of what is simulated, or stand for an uncertainty themselves."""
NAMED = frozenset({"model", "gpu", "interconnect", "host", "stack", "drafter.model"})
"""Scenario keys that name catalog entries, which have figures of their own."""

TIMES_ALONE = frozenset(
    {"experts.routing_correlation", "acceptance.step_correlation", "acceptance.decay_per_1k_context"}
)
"""Scenario keys that change times and lengths, but not how a step is built."""
MEANS = frozenset({"acceptance.mean_length", "acceptance.quality.mean_length"})
"""Scenario keys of what acceptance is solved for."""


class Where(Enum):
    """What a key belongs to."""

    SCENARIO = "scenario"
    FIGURE = "figure"
    WORK = "work"
    DISCREPANCY = "discrepancy"
    """What the model lacks, which no file states."""


def place_of(key: str, model: type[BaseModel], names: dict[Kind, str]) -> Where:
    """What *key* belongs to; ValueError with the nearest known key where it belongs to nothing.

    *model* is what scenarios are made of, *names* are the catalog entries that this one names.
    """
    if key in NAMED:
        raise ValueError("names a catalog entry, whose figures may be uncertain, but not which it is")
    if key in FIXED:
        raise ValueError("cannot be uncertain")
    if is_luck(key):
        raise ValueError("is the size of luck, which is drawn anew in every step as it is")
    known = {
        Where.SCENARIO: scenario_keys(model),
        Where.FIGURE: figure_keys(names),
        Where.WORK: [f"{WORK}.{slug(family)}" for family in families.names()],
    }
    for where, keys in known.items():
        if key in keys:
            return where
    near = difflib.get_close_matches(key, [key for keys in known.values() for key in keys], n=1, cutoff=0.6)
    hint = f", did you mean '{near[0]}'?" if near else ""
    raise ValueError(f"no scenario key, no figure of an entry it names, and no {WORK}.<family>{hint}")


def scenario_keys(model: type[BaseModel], path: tuple[str, ...] = ()) -> list[str]:
    """Dotted keys of every value of *model* that may be uncertain."""
    found: list[str] = []
    for name in known_keys(model, path):
        key = ".".join((*path, name))
        if key not in FIXED | NAMED:
            inside = scenario_keys(model, (*path, name))
            found += inside or [key]
    return found


def is_whole(key: str, model: type[BaseModel]) -> bool:
    """True where the scenario key *key* takes whole numbers alone."""
    *outer, last = key.split(".")
    holder = model
    for part in outer:
        field = holder.model_fields[part].annotation
        options = [a for a in (field, *get_args(field)) if isinstance(a, type) and issubclass(a, BaseModel)]
        holder = options[0]
    annotation = holder.model_fields[last].annotation
    return int in (annotation, *get_args(annotation))


def figure_keys(names: dict[Kind, str]) -> list[str]:
    """Keys of the figures of the entries *names*, with their kind before them; those of luck left out."""
    return [
        f"{short}.{key}"
        for short, kind in KINDS.items()
        for key, _ in catalog.figures(catalog.entry(kind, names[kind]))
        if not is_luck(key)
    ]


def is_luck(key: str) -> bool:
    """True for figures that say how widely single executions differ, not how long they take."""
    return key.endswith("_cv") or "noise." in key


def slug(family: str) -> str:
    """A family's name as a key."""
    return family.replace(" ", "_").replace("-", "_").lower()

"""Axes of a sweep: any scenario key with its values, or named bundles of changes.

Written ``tree.budget=4,8,16``, ``tree.budget=4..64*2`` (doubling), ``drafter.block=2..16:2``
(in steps of 2, ends included), or in a sweep file as a list of the same, or as a mapping
of names to changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from hwmodels.documents import parse
from sim.errors import ScenarioError
from sim.scenario import check_key, located, unknown_entry

MAX_VALUES = 1000
RANGE = re.compile(r"(-?[\d.]+)\.\.(-?[\d.]+)(?:([:*])(-?[\d.]+))?")
BUNDLE_NAME = re.compile(r"[A-Za-z][\w-]{0,39}")
COLUMNS = (
    *("cell", "run", "error", "step", "tokens", "duration", "best", "from_best", "distinguishable"),
    *("throughput", "acceptance", "breakdown", "sources"),
)
"""How columns of the result tables begin; see ``sim.sweeps.tables``."""
EXACT = 2**53
"""Whole numbers beyond this are names: a float cannot tell them apart."""
UNITS = {
    "tree.budget": "nodes",
    "drafter.block": "positions",
    "load.context_tokens": "tokens",
    "load.output_tokens": "tokens",
    "load.concurrency": "requests",
    "gpus": "TP ranks",
    "acceptance.length": "tokens a step",
    "acceptance.mean_length": "tokens a step",
    "acceptance.hazard": "probability",
    "acceptance.request_sd": "log-odds",
    "acceptance.decay_per_1k_context": "log-odds per 1,000 tokens",
    "experts.routing_correlation": "rho",
    "kv.run_tokens": "tokens",
}


@dataclass(frozen=True)
class Value:
    """One point of an axis: how it is called, and what it changes in the scenario."""

    label: str
    changes: tuple[tuple[str, Any], ...]
    number: float | None
    """The value itself where it is a number."""


@dataclass(frozen=True)
class Axis:
    """*values* of the scenario key *name*, or of a bundle of that name."""

    name: str
    values: tuple[Value, ...]
    place: str
    """The option or file that asked for it."""

    @property
    def numeric(self) -> bool:
        """True where every value is a number."""
        return all(value.number is not None for value in self.values)

    @property
    def title(self) -> str:
        """Name and unit."""
        unit = UNITS.get(self.name)
        return f"{self.name} ({unit})" if unit else self.name


def from_option(text: str) -> Axis:
    """The axis in ``--axis KEY=VALUES``; ScenarioError where it is none."""
    place = f"--axis {text}"
    name, equals, raw = text.partition("=")
    if not equals or not name.strip() or not raw.strip():
        raise ScenarioError(place, 0, "", "expected key=values, such as tree.budget=4,8,16 or 4..64*2")
    values = parse(f"values: [{raw}]", place, ScenarioError).data["values"]
    return from_values(name.strip(), values, place, Path())


def from_values(name: str, given: Any, place: str, folder: Path) -> Axis:
    """The axis *name* with values as a file gives them; entries named by file lie in *folder*."""
    if isinstance(given, dict):
        _check_bundle_name(name, place)
        values = [_bundle(label, changes, name, place, folder) for label, changes in given.items()]
    else:
        check_key(name, place)
        items = given if isinstance(given, list) else [given]
        expanded = [value for item in items for value in _expand(item, name, place)]
        values = [_single(name, value, place, folder) for value in expanded]
    if not values:
        raise ScenarioError(place, 0, name, "an axis needs at least one value")
    if all(value.number is not None for value in values):
        # In their own order, so that neighbours on the axis are neighbours in value.
        values.sort(key=lambda value: value.number or 0.0)
    values = _shortened(values)
    seen: set[str | float] = set()
    for value in values:
        told_by = value.label if value.number is None else value.number
        if told_by in seen:
            raise ScenarioError(place, 0, name, f"{value.label} is given twice")
        seen.add(told_by)
    return Axis(name, tuple(values), place)


def _shortened(values: list[Value]) -> list[Value]:
    """Files by their names alone, where these tell them apart."""
    short = [Path(v.label).stem if v.label.endswith(".yaml") else v.label for v in values]
    if len(set(short)) < len(short):
        return values
    return [replace(value, label=label) for value, label in zip(values, short, strict=True)]


def _check_bundle_name(name: str, place: str) -> None:
    """A bundle's name becomes a column and part of file names."""
    if not BUNDLE_NAME.fullmatch(name) or name.startswith(COLUMNS):
        raise ScenarioError(
            place, 0, name, "the name of a bundle is a word that is no column of the results, such as machine"
        )


def _bundle(label: str, changes: Any, name: str, place: str, folder: Path) -> Value:
    if not isinstance(changes, dict) or not changes:
        raise ScenarioError(place, 0, f"{name}.{label}", "expected a mapping of scenario keys to values")
    for key in changes:
        check_key(key, place)
    return Value(label, tuple((key, located(key, v, folder)) for key, v in changes.items()), None)


def _single(name: str, value: Any, place: str, folder: Path) -> Value:
    setting = located(name, value, folder)
    problem = unknown_entry(name, setting)
    if problem:
        raise ScenarioError(place, 0, name, problem)
    return Value(str(value), ((name, setting),), _number(value))


def _number(value: Any) -> float | None:
    """*value* as a number, where it is one that a float can hold."""
    number = isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= EXACT
    return float(value) if number else None


def _expand(item: Any, name: str, place: str) -> list[Any]:
    """The values of a range such as ``4..64*2``; *item* alone where it is none."""
    match = RANGE.fullmatch(item) if isinstance(item, str) else None
    if match is None and isinstance(item, str) and ".." in item and not item.endswith(".yaml"):
        raise ScenarioError(place, 0, name, f"not a range: {item} (first..last, first..last:step, *factor)")
    if match is None:
        return [item]
    try:
        first, last = Decimal(match[1]), Decimal(match[2])
        by = Decimal(match[4] or 1)
    except ArithmeticError:
        raise ScenarioError(place, 0, name, f"not a range of numbers: {item}") from None
    values = []
    for value in _steps(first, last, by, match[3] == "*", f"{place}: {name}: {item}"):
        values.append(value)
        if len(values) > MAX_VALUES:
            raise ScenarioError(place, 0, name, f"{item} has more than {MAX_VALUES:,} values")
    return [int(value) if value == value.to_integral_value() else float(value) for value in values]


def _steps(first: Decimal, last: Decimal, by: Decimal, times: bool, what: str) -> Iterator[Decimal]:
    """From *first* to *last*, adding or multiplying *by* each time."""
    if last < first or by <= 0 or (times and (by <= 1 or first <= 0)):
        raise ScenarioError(what, 0, "", "a range goes up: first..last:step, or first..last*factor above 1")
    value = first
    while value <= last:
        yield value
        value = value * by if times else value + by

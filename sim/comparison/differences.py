"""The keys in which two scenarios differ, once everything is filled in."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from sim.scenario import OWN_KEYS, Scenario

MADE_EQUAL = frozenset({"runs", "seed"})
"""Keys that a comparison sets itself."""


class KeyDifference(NamedTuple):
    """A scenario key and its value on both sides; None where a side does not have it."""

    key: str
    a: Any
    b: Any


def differences(a: Scenario, b: Scenario) -> tuple[KeyDifference, ...]:
    """Where *a* and *b* differ, in the order in which scenarios are written."""
    of_a, of_b = (dict(_leaves(_asked(scenario))) for scenario in (a, b))
    found = (KeyDifference(key, of_a.get(key), of_b.get(key)) for key in {**of_a, **of_b})
    return tuple(each for each in found if each.a != each.b)


def _asked(scenario: Scenario) -> dict[str, Any]:
    """What is simulated, without what a file says of itself."""
    return scenario.model_dump(mode="json", exclude=set(OWN_KEYS | MADE_EQUAL))


def _leaves(value: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values; what is left to a default has none."""
    for key, inside in value.items():
        if isinstance(inside, dict):
            yield from _leaves(inside, f"{prefix}{key}.")
        elif inside is not None:
            yield f"{prefix}{key}", inside

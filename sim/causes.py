"""Why a scenario is slower than another: each cause's share, and what stays unexplained.

The causes are groups of keys in which the two scenarios differ. A share is the Shapley
value of a cause in the logarithm of throughput: what it brings on average over the orders
in which the causes may be brought in, so that the shares add up to the whole predicted
change and none depends on an order (Shapley 1953; for such decompositions Shorrocks 2013,
J. Econ. Inequality 11).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import factorial, log
from pathlib import Path
from typing import Any

from sim import scenario as scenarios
from sim import setup as setups
from sim.scenario import Scenario
from sim.simulate import Simulation, play
from sim.uncertainty.checks import with_keys

RUNS = 32
"""Runs of every variant, with the same luck; a share is known to about a per cent of throughput."""


@dataclass(frozen=True)
class CauseShare:
    """What one cause does."""

    name: str
    alone_tok_s: float
    """Throughput of one request in the other scenario with this cause alone."""
    log_change: float
    """Its part of the logarithm of the predicted change; below 0 where it slows down."""


@dataclass(frozen=True)
class CandidateEffect:
    """What something that the scenario does not say would do on top of all causes."""

    name: str
    tok_s: float
    """Throughput of one request."""


@dataclass(frozen=True)
class Explanation:
    """From one scenario to another, cause by cause."""

    since: str
    since_tok_s: float
    since_published_tok_s: float | None
    causes: tuple[CauseShare, ...]
    tok_s: float
    candidates: tuple[CandidateEffect, ...]

    @property
    def predicted_log_change(self) -> float:
        """Logarithm of predicted over predicted."""
        return log(self.tok_s / self.since_tok_s)


def explain(scenario: Scenario) -> Explanation | None:
    """The Explanation that *scenario* asks for under ``regression``; None where it does not."""
    asked = scenario.regression
    if asked is None:
        return None
    before = scenarios.load(Path(asked.since))
    names = [cause.name for cause in asked.causes]
    keys = {cause.name: cause.keys for cause in asked.causes}
    known = {
        held: _tok_s(_with_keys(before, scenario, [key for name in held for key in keys[name]]))
        for held in subsets(names)
    }
    return Explanation(
        since=Path(asked.since).stem,
        since_tok_s=known[frozenset()],
        since_published_tok_s=None if before.anchor is None else before.anchor.published_tok_s,
        causes=tuple(
            CauseShare(name, known[frozenset([name])], shapley(name, names, known)) for name in names
        ),
        tok_s=known[frozenset(names)],
        candidates=tuple(
            CandidateEffect(candidate.name, _tok_s(with_changes(scenario, candidate.changes)))
            for candidate in asked.candidates
        ),
    )


def subsets(names: Collection[str]) -> Iterator[frozenset[str]]:
    """All subsets of *names*, smaller ones first."""
    for size in range(len(names) + 1):
        yield from map(frozenset, combinations(names, size))


def shapley(name: str, names: Collection[str], tok_s: dict[frozenset[str], float]) -> float:
    """The mean over orders of what *name* adds to the logarithm of throughput."""
    others = [other for other in names if other != name]
    total = 0.0
    for held in subsets(others):
        weight = factorial(len(held)) * factorial(len(others) - len(held)) / factorial(len(names))
        total += weight * log(tok_s[held | {name}] / tok_s[held])
    return total


def _with_keys(before: Scenario, after: Scenario, keys: Collection[str]) -> Scenario:
    """*before* with the values that *after* has of *keys*, and with its luck."""
    source = after.model_dump(mode="json")
    return with_changes(before, {key: _at(source, key) for key in (*keys, "runs", "seed")})


def _at(data: dict[str, Any], key: str) -> Any:
    value: Any = data
    for part in key.split("."):
        value = value[part]
    return value


def with_changes(scenario: Scenario, changes: Mapping[str, Any]) -> Scenario:
    """*scenario* with *changes* (key to value); ValueError where they do not fit together."""
    return with_keys(scenario, {**changes, "regression": None})


def _tok_s(scenario: Scenario) -> float:
    """Mean throughput of one request: all tokens over time, over the requests decoded together."""
    simulation = Simulation(setups.resolve(scenario))
    runs = [run.throughput_tok_s for run in play(simulation, min(RUNS, scenario.runs))]
    return sum(runs) / len(runs) / scenario.load.concurrency

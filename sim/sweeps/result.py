"""A finished sweep: every cell's result or error, the ranking, and what explains it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sim.graph import Component
from sim.setup import LaunchMode
from sim.sweeps.axes import Axis
from sim.sweeps.cell import CellResult
from sim.sweeps.conduct import Done
from sim.sweeps.plan import Plan
from sim.sweeps.ranking import Ranking, rank


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found."""

    plan: Plan
    results: dict[int, CellResult]
    """By cell index, in that order; without the cells that failed."""
    errors: dict[int, str]
    ranking: Ranking | None
    """None where no cell finished."""

    def throughput(self, index: int) -> float | None:
        """Mean tok/s of a cell; None where it failed."""
        result = self.results.get(index)
        return None if result is None else float(result.summary["throughput_tok_s"]["mean"])


def result_of(plan: Plan, done: Done) -> SweepResult:
    """The SweepResult of *plan*."""
    results = {index: CellResult.from_json(done.results[index]) for index in sorted(done.results)}
    ranking = rank({index: result.throughput_tok_s for index, result in results.items()})
    return SweepResult(plan, results, dict(sorted(done.errors.items())), ranking)


def index_of(plan: Plan, positions: tuple[int, ...]) -> int:
    """The cell at *positions*, one per axis."""
    index = 0
    for axis, position in zip(plan.axes, positions, strict=True):
        index = index * len(axis.values) + position
    return index


def positions_of(plan: Plan, index: int) -> tuple[int, ...]:
    """The position of cell *index* along each axis."""
    positions = []
    for axis in reversed(plan.axes):
        index, position = divmod(index, len(axis.values))
        positions.append(position)
    return tuple(reversed(positions))


class Move(NamedTuple):
    """From the best cell to the next one along an axis: what it costs, and why."""

    axis: Axis
    label: str
    """The value moved to."""
    throughput_tok_s: float
    step_ms: float
    length: float
    components_ms: dict[Component, float]
    """Change of each component's share of the step, in ms."""
    launch: LaunchMode | None
    """How the verify pass is launched there, where that differs."""


class Neighbourhood(NamedTuple):
    """The best cell along one axis."""

    axis: Axis
    label: str
    """Its value."""
    moves: tuple[Move, ...]
    """To the next finished cell below and above, where there is one."""
    inside: bool
    """True where finished cells lie on both sides of it."""


def neighbourhoods(result: SweepResult) -> list[Neighbourhood]:
    """The surroundings of the best cell along every axis; empty where no cell finished."""
    if result.ranking is None:
        return []
    return [_along(result, axis) for axis in range(len(result.plan.axes))]


def _along(result: SweepResult, at: int) -> Neighbourhood:
    plan = result.plan
    assert result.ranking is not None
    best = result.ranking.best
    axis, home = plan.axes[at], positions_of(plan, best)
    found = [_next(result, home, at, way) for way in (-1, 1)]
    moves = [
        _move(result, axis, axis.values[positions_of(plan, index)[at]].label, best, index)
        for index in found
        if index is not None
    ]
    return Neighbourhood(axis, axis.values[home[at]].label, tuple(moves), None not in found)


def _next(result: SweepResult, home: tuple[int, ...], at: int, way: int) -> int | None:
    """The nearest finished cell from *home* along axis *at*."""
    position = home[at] + way
    while 0 <= position < len(result.plan.axes[at].values):
        index = index_of(result.plan, (*home[:at], position, *home[at + 1 :]))
        if index in result.results:
            return index
        position += way
    return None


def _move(result: SweepResult, axis: Axis, label: str, best: int, index: int) -> Move:
    here, there = result.results[best].summary, result.results[index].summary
    step = {True: here["step_time_ms"]["mean"], False: there["step_time_ms"]["mean"]}
    components = {
        component: there["breakdown"][component.name.lower()] * step[False]
        - here["breakdown"][component.name.lower()] * step[True]
        for component in Component
    }
    return Move(
        axis,
        label,
        there["throughput_tok_s"]["mean"] - here["throughput_tok_s"]["mean"],
        step[False] - step[True],
        there["acceptance_length"]["mean"] - here["acceptance_length"]["mean"],
        dict(sorted(components.items(), key=lambda pair: -abs(pair[1]))),
        _launch(result.plan, best, index),
    )


def _launch(plan: Plan, best: int, index: int) -> LaunchMode | None:
    here, there = plan.cells[best].setup, plan.cells[index].setup
    assert here is not None
    assert there is not None
    return None if here.verify_launch is there.verify_launch else there.verify_launch

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

NEARLY = 0.01
"""Losing less than this share of the best throughput is not worth a word."""


@dataclass(frozen=True)
class SweepResult:
    """What a sweep found."""

    plan: Plan
    results: dict[int, CellResult]
    """By cell index, in that order; without the cells that failed."""
    reused: int
    """Results that were there from before."""
    errors: dict[int, str]
    ranking: Ranking | None
    """None where no cell finished."""

    def slower(self, index: int) -> bool:
        """True where a finished cell is distinguishably slower than the best, by ``NEARLY`` or more."""
        assert self.ranking is not None
        return self.ranking.verdicts[index].distinguishable and not self.near(index)

    def near(self, index: int) -> bool:
        """True where a finished cell loses less than ``NEARLY`` of the best throughput."""
        assert self.ranking is not None
        top = self.throughput(self.ranking.best) or 0.0
        return (self.throughput(index) or 0.0) >= (1 - NEARLY) * top

    def throughput(self, index: int) -> float | None:
        """Mean tok/s of a cell; None where it failed."""
        result = self.results.get(index)
        return None if result is None else float(result.summary["throughput_tok_s"]["mean"])


def result_of(plan: Plan, done: Done) -> SweepResult:
    """The SweepResult of *plan*."""
    results = {index: CellResult.from_json(done.results[index]) for index in sorted(done.results)}
    ranking = rank({index: result.throughput_tok_s for index, result in results.items()})
    return SweepResult(plan, results, done.reused, dict(sorted(done.errors.items())), ranking)


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


def line_through(plan: Plan, index: int, at: int) -> list[int]:
    """The cells that differ from cell *index* along axis *at* only, in the axis's order."""
    home = positions_of(plan, index)
    places = range(len(plan.axes[at].values))
    return [index_of(plan, (*home[:at], place, *home[at + 1 :])) for place in places]


def slice_through(plan: Plan, index: int, across: int, up: int) -> list[list[int]]:
    """The cells that differ from cell *index* along two axes only: a row per value of *up*."""
    return [line_through(plan, start, across) for start in line_through(plan, index, up)]


class Move(NamedTuple):
    """From the best cell to the next one along an axis: what changes, and why."""

    label: str
    """The value moved to."""
    delta_tok_s: float
    delta_step_ms: float
    delta_length: float
    delta_ms: dict[Component, float]
    """Change of each component's share of the step, in ms; the largest first."""
    launch: LaunchMode | None
    """How the verify pass is launched there, where that differs."""


class Neighbourhood(NamedTuple):
    """The best cell along one axis."""

    axis: Axis
    label: str
    """Its value."""
    moves: tuple[Move, ...]
    """To the next finished cell below and above, where there is one."""
    plateau: tuple[str, ...]
    """Values around and with the best one that do about as well (see ``SweepResult.slower``)."""
    below: bool
    """True where some cell below it is slower."""
    above: bool
    """True where some cell above it is slower."""


def neighbourhoods(result: SweepResult) -> list[Neighbourhood]:
    """The surroundings of the best cell along every axis; empty where no cell finished."""
    if result.ranking is None:
        return []
    return [_along(result, result.ranking, at) for at in range(len(result.plan.axes))]


def _along(result: SweepResult, ranking: Ranking, at: int) -> Neighbourhood:
    """The surroundings along axis *at*, among the cells that finished."""
    plan, axis, best = result.plan, result.plan.axes[at], ranking.best
    labels = dict(zip(line_through(plan, best, at), (v.label for v in axis.values), strict=True))
    line = [index for index in labels if index in result.results]
    here = line.index(best)
    slower = [result.slower(index) for index in line]
    first = here - next((n for n, found in enumerate(reversed(slower[:here])) if found), here)
    last = here + next((n for n, found in enumerate(slower[here + 1 :]) if found), len(line) - here - 1)
    return Neighbourhood(
        axis,
        labels[best],
        tuple(
            _move(result, labels[line[next_]], best, line[next_])
            for next_ in (here - 1, here + 1)
            if 0 <= next_ < len(line)
        ),
        tuple(labels[index] for index in line[first : last + 1]),
        any(slower[:here]),
        any(slower[here + 1 :]),
    )


def _move(result: SweepResult, label: str, best: int, index: int) -> Move:
    here, there = result.results[best].summary, result.results[index].summary
    step_here, step_there = here["step_time_ms"]["mean"], there["step_time_ms"]["mean"]
    components = {
        component: there["breakdown"][component.name.lower()] * step_there
        - here["breakdown"][component.name.lower()] * step_here
        for component in Component
    }
    return Move(
        label,
        there["throughput_tok_s"]["mean"] - here["throughput_tok_s"]["mean"],
        step_there - step_here,
        there["acceptance_length"]["mean"] - here["acceptance_length"]["mean"],
        dict(sorted(components.items(), key=lambda pair: -abs(pair[1]))),
        _launch(result.plan, best, index),
    )


def _launch(plan: Plan, best: int, index: int) -> LaunchMode | None:
    here, there = plan.cells[best].setup, plan.cells[index].setup
    assert here is not None
    assert there is not None
    return None if here.verify_launch is there.verify_launch else there.verify_launch

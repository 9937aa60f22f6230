"""The answer with everything drawn that is not known, beside the luck of its runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, log
from typing import Any

import numpy as np

from sim.records import RunResult
from sim.setup import Setup
from sim.uncertainty.parameters import Parameter, Parameters, Values
from sim.uncertainty.priors import Choice, Column, objects
from sim.uncertainty.response import Progress, Response

DRAWS = 256
"""A power of two, as Sobol points want it."""
LOW, HIGH = 0.05, 0.95
"""Quantiles of a band, and of a parameter that is moved alone."""
SHOWN = 3


@dataclass(frozen=True, slots=True)
class Band:
    """Quantiles of throughput, tok/s."""

    mean: float
    p5: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True)
class Swing:
    """What one parameter does alone, the others at their best values."""

    name: str
    basis: str
    values: tuple[Any, Any]
    """At P5 and P95; of a choice those with the least and the most throughput."""
    tok_s: tuple[float, float]
    """Mean throughput there."""

    @property
    def width(self) -> float:
        """How far apart, in logarithms; infinite where nothing fits at one end."""
        low, high = sorted(self.tok_s)
        return log(high / low) if low else inf if high else 0.0


@dataclass(frozen=True)
class Total:
    """Throughput with all parameters drawn."""

    draws: int
    seed: int
    parameters: int
    swings: tuple[Swing, ...]
    """Of those that move it at all, the widest first."""
    without_luck: Band
    """Parameters drawn, mean throughput."""
    throughput_tok_s: Band
    """Parameters drawn, one run each."""


def total(
    setup: Setup, runs: Sequence[RunResult], advance: Progress = lambda: None, count: int = DRAWS
) -> Total | None:
    """The Total of *setup*, whose *runs* were played; None where all is known.

    *advance* hears of each draw. Errors of values that no machine can have go through.
    """
    response = Response(setup, runs=runs)
    parameters, seed = response.parameters, setup.scenario.seed
    if not parameters.items:
        return None
    outcomes = response.outcomes(parameters.draw(count, seed), advance)
    return Total(
        draws=count,
        seed=seed,
        parameters=len(parameters),
        swings=swings(response),
        without_luck=_band(outcomes.mean_tok_s),
        throughput_tok_s=_band(outcomes.run_tok_s),
    )


def swings(response: Response) -> tuple[Swing, ...]:
    """Every parameter that moves throughput alone, the widest first."""
    parameters = response.parameters
    columns = {parameter.name: _ends(parameters, parameter) for parameter in parameters}
    tok_s = response.throughput(_one_at_a_time(parameters, columns))
    parts = np.split(tok_s, np.cumsum([len(column) for column in columns.values()])[:-1])
    found = [_swing(p, columns[p.name], part) for p, part in zip(parameters, parts, strict=True)]
    return tuple(sorted((swing for swing in found if swing.width > 0), key=lambda swing: -swing.width))


def _ends(parameters: Parameters, parameter: Parameter) -> Column:
    """The values that *parameter* is moved to: its low and high quantile, or every choice."""
    if isinstance(parameter.prior, Choice):
        return objects(parameter.prior.options)
    return parameters.levels(parameter, np.array([LOW, HIGH]))


def _one_at_a_time(parameters: Parameters, columns: dict[str, Column]) -> Values:
    """The best values, in which each parameter in turn takes its values of *columns*."""
    rows = sum(len(column) for column in columns.values())
    moved, first = dict(parameters.best(rows).columns), 0
    for name, column in columns.items():
        moved[name][first : first + len(column)] = column
        first += len(column)
    return Values(moved, rows)


def _swing(parameter: Parameter, values: Column, tok_s: Column) -> Swing:
    ends = (0, -1) if not isinstance(parameter.prior, Choice) else (int(tok_s.argmin()), int(tok_s.argmax()))
    low, high = ends
    held = values.tolist()
    return Swing(
        parameter.name, parameter.basis, (held[low], held[high]), (float(tok_s[low]), float(tok_s[high]))
    )


def _band(tok_s: Column) -> Band:
    p5, p50, p95 = np.quantile(tok_s, [LOW, 0.5, HIGH]).tolist()
    return Band(float(tok_s.mean()), p5, p50, p95)

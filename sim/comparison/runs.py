"""A scenario's runs as a comparison needs them: a line per run, and its critical path by component."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from sim.graph import IntArray
from sim.records import RunResult
from sim.simulate import Simulation, play
from sim.statistics import NS_PER_MS

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Runs:
    """Runs of one scenario, in order."""

    results: tuple[RunResult, ...]
    component_ns: IntArray
    """(runs, components) critical path of all steps of a run, in the order of Component."""

    @property
    def requests(self) -> int:
        """Requests decoded in lock-step, the same in all runs."""
        return self.results[0].requests

    @cached_property
    def tok_s(self) -> Array:
        """(runs,) tokens of all requests per second."""
        return np.array([run.throughput_tok_s for run in self.results])

    @cached_property
    def step_ms(self) -> Array:
        """(runs,) step time, mean over the run's steps."""
        return np.array([run.mean_step_ns / NS_PER_MS for run in self.results])

    @cached_property
    def length(self) -> Array:
        """(runs,) acceptance length, mean over the run's steps."""
        return np.array([run.mean_length for run in self.results])

    @cached_property
    def component_ms(self) -> Array:
        """(runs, components) critical path of the run's mean step; adds up to ``step_ms``."""
        steps = np.array([run.steps for run in self.results])
        return np.asarray(self.component_ns / steps[:, None] / NS_PER_MS)

    def same_as(self, other: Runs) -> bool:
        """Whether every run is the same, component by component, to the nanosecond."""
        return self.results == other.results and np.array_equal(self.component_ns, other.component_ns)


def play_runs(simulation: Simulation, count: int, advance: Callable[[], None] = lambda: None) -> Runs:
    """The first *count* runs of *simulation*, as ``run`` plays them; *advance* hears of each."""
    results, components = [], []
    for run in play(simulation, count):
        results.append(run.result)
        components.append(run.steps.component_ns.sum(axis=0))
        advance()
    return Runs(tuple(results), np.array(components))

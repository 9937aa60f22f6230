"""The work of one cell, wherever it is done. Everything here can be pickled."""

from __future__ import annotations

import json
import traceback
from dataclasses import dataclass
from typing import Any, NamedTuple

from hwmodels.errors import DocumentError, HardwareError
from sim import digests, output
from sim.errors import SimulationError
from sim.replay import replay
from sim.setup import Setup
from sim.simulate import Simulation, play
from sim.statistics import summarise
from sim.tally import Tally

REPLAYED_STEPS = 16


@dataclass(frozen=True, slots=True)
class Task:
    """A cell to run, and the version of the code that must run it."""

    index: int
    setup: Setup
    code: str


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a cell: a *result* as JSON text, or an *error*."""

    index: int
    result: str | None
    error: str | None


class CellResult(NamedTuple):
    """A finished cell."""

    summary: dict[str, Any]
    """As in the summary.json of a single run."""
    runs: list[list[int]]
    """For each run steps, tokens and duration in ns."""
    replayed_steps: int
    """Steps played again on the SimPy engine."""

    @classmethod
    def from_json(cls, text: str) -> CellResult:
        """The result that *text* holds."""
        return cls(**json.loads(text))

    @classmethod
    def readable(cls, text: str) -> bool:
        """False where *text* holds no result, as in a damaged store."""
        try:
            return bool(cls.from_json(text).runs)
        except (ValueError, TypeError):
            return False

    @property
    def throughput_tok_s(self) -> list[float]:
        """Of each run."""
        return [tokens / (duration_ns / 1e9) for _, tokens, duration_ns in self.runs]


def run_cell(task: Task) -> Outcome:
    """Run all runs of *task*; whatever goes wrong becomes its error."""
    try:
        if digests.code() != task.code:
            problem = "this worker has another version of the simulator or its libraries"
            return Outcome(task.index, None, problem)
        return Outcome(task.index, json.dumps(simulate(task.setup)._asdict(), allow_nan=False), None)
    except (DocumentError, HardwareError, SimulationError) as problem:
        return Outcome(task.index, None, str(problem))
    except Exception as problem:
        # Whatever it is, it is this cell's; the traceback's end says where.
        where = traceback.extract_tb(problem.__traceback__)[-1]
        kind = type(problem).__name__
        return Outcome(task.index, None, f"{kind}: {problem} ({where.name}, line {where.lineno})")


def simulate(setup: Setup) -> CellResult:
    """All runs of *setup*, the first steps of them also on SimPy."""
    simulation = Simulation(setup)
    tally = Tally(simulation.graph.lanes, simulation.measured_file)
    for run in play(simulation, setup.scenario.runs):
        tally.add(run)
    experiment = tally.experiment()
    replayed = replay(simulation, experiment.in_full[:1], REPLAYED_STEPS)
    runs = [[run.steps, run.tokens, run.duration_ns] for run in experiment.runs]
    return CellResult(output.summary_fields(summarise(experiment)), runs, replayed.steps)

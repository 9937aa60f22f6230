"""Runs come and go; what statistics need of them stays, so memory grows by 10 bytes a step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sim.errors import SimulationError
from sim.graph import IntArray, Lane
from sim.records import Experiment, Run, RunResult

RUNS_IN_FULL = 32
"""Runs whose every step is kept; the others leave a line and their share of the sums."""


class _Row(NamedTuple):
    """What stays of one run."""

    result: RunResult
    lengths: NDArray[np.int16]
    step_ns: IntArray
    component_ns: IntArray
    phase_ns: IntArray
    source_ns: IntArray
    busy_ns: IntArray
    collective_wait_ns: int
    collective_transfer_ns: int
    in_full: Run | None


class Tally:
    """Collects the runs of an experiment, in order."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        self._lanes = lanes
        self._rows: list[_Row] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, run: Run) -> None:
        """Take in *run*, in one move: an interrupt leaves it counted everywhere or nowhere."""
        steps = run.steps
        self._rows.append(
            _Row(
                run.result,
                steps.lengths.astype(np.int16),
                steps.step_ns,
                steps.component_ns.sum(axis=0),
                steps.phase_ns.sum(axis=0),
                steps.source_ns.sum(axis=0),
                steps.busy_ns.sum(axis=0),
                int(steps.collective_wait_ns.sum()),
                int(steps.collective_transfer_ns.sum()),
                run if len(self._rows) < RUNS_IN_FULL else None,
            )
        )

    def experiment(self) -> Experiment:
        """The Experiment so far; SimulationError before the first run."""
        rows = self._rows
        if not rows:
            raise SimulationError("an experiment needs a run")
        return Experiment(
            lanes=self._lanes,
            runs=tuple(row.result for row in rows),
            lengths=np.concatenate([row.lengths for row in rows]),
            step_ns=np.concatenate([row.step_ns for row in rows]),
            component_ns=np.sum([row.component_ns for row in rows], axis=0),
            phase_ns=np.sum([row.phase_ns for row in rows], axis=0),
            source_ns=np.sum([row.source_ns for row in rows], axis=0),
            busy_ns=np.sum([row.busy_ns for row in rows], axis=0),
            collective_wait_ns=sum(row.collective_wait_ns for row in rows),
            collective_transfer_ns=sum(row.collective_transfer_ns for row in rows),
            in_full=tuple(row.in_full for row in rows if row.in_full is not None),
        )

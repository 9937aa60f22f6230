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


class _Totals(NamedTuple):
    """Sums over all steps of all runs so far, and how many runs they are of."""

    runs: int
    component_ns: IntArray
    phase_ns: IntArray
    source_ns: IntArray
    file_ns: int
    busy_ns: IntArray
    allreduce_wait_ns: int
    allreduce_transfer_ns: int


class Tally:
    """Collects the runs of an experiment, in order, on a machine with or without a *measured_file*."""

    def __init__(self, lanes: tuple[Lane, ...], measured_file: str | None = None) -> None:
        self._lanes = lanes
        self._measured_file = measured_file
        self._results: list[RunResult] = []
        self._lengths: list[NDArray[np.int16]] = []
        self._tpot_ns: list[NDArray[np.float64]] = []
        self._step_ns: list[IntArray] = []
        self._in_full: list[Run] = []
        zero = np.zeros(1, dtype=np.int64)
        self._totals = _Totals(0, zero, zero, zero, 0, zero, 0, 0)

    def __len__(self) -> int:
        return self._totals.runs

    def add(self, run: Run) -> None:
        """Take in *run*. It counts once the totals are replaced: an interrupt before that leaves it out."""
        steps, before = run.steps, self._totals
        count = before.runs
        totals = _Totals(
            count + 1,
            before.component_ns + steps.component_ns.sum(axis=0),
            before.phase_ns + steps.phase_ns.sum(axis=0),
            before.source_ns + steps.source_ns.sum(axis=0),
            before.file_ns + int(steps.file_ns.sum()),
            before.busy_ns + steps.busy_ns.sum(axis=0),
            before.allreduce_wait_ns + int(steps.allreduce_wait_ns.sum()),
            before.allreduce_transfer_ns + int(steps.allreduce_transfer_ns.sum()),
        )
        # What an interrupt left behind the last counted run is written over.
        self._results[count:] = [run.result]
        self._lengths[count:] = [steps.lengths.ravel().astype(np.int16)]
        self._tpot_ns[count:] = [run.tpot_ns]
        self._step_ns[count:] = [steps.step_ns]
        if count < RUNS_IN_FULL:
            self._in_full[count:] = [run]
        self._totals = totals

    def experiment(self) -> Experiment:
        """The Experiment so far; SimulationError before the first run."""
        totals = self._totals
        if not totals.runs:
            raise SimulationError("an experiment needs a run")
        return Experiment(
            lanes=self._lanes,
            runs=tuple(self._results[: totals.runs]),
            lengths=np.concatenate(self._lengths[: totals.runs]),
            tpot_ns=np.concatenate(self._tpot_ns[: totals.runs]),
            step_ns=np.concatenate(self._step_ns[: totals.runs]),
            component_ns=totals.component_ns,
            phase_ns=totals.phase_ns,
            source_ns=totals.source_ns,
            file_ns=totals.file_ns,
            measured_file=self._measured_file,
            busy_ns=totals.busy_ns,
            allreduce_wait_ns=totals.allreduce_wait_ns,
            allreduce_transfer_ns=totals.allreduce_transfer_ns,
            in_full=tuple(self._in_full[: totals.runs]),
        )

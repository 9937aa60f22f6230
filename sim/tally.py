"""Runs come and go; what statistics need of them stays, so memory grows by 10 bytes a step."""

from __future__ import annotations

import numpy as np

from sim.errors import SimulationError
from sim.graph import IntArray, Lane
from sim.records import Experiment, Run, RunResult

RUNS_IN_FULL = 32
"""Runs whose every step is kept; the others leave a line and their share of the sums."""
PER_STEP = ("component_ns", "phase_ns", "source_ns", "busy_ns")


class Tally:
    """Collects the runs of an experiment, in order."""

    def __init__(self, lanes: tuple[Lane, ...]) -> None:
        self._lanes = lanes
        self._runs: list[RunResult] = []
        self._lengths: list[IntArray] = []
        self._step_ns: list[IntArray] = []
        self._sums: dict[str, IntArray] = {}
        self._wait_ns = 0
        self._transfer_ns = 0
        self._in_full: list[Run] = []

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> None:
        """Take in *run*."""
        steps = run.steps
        self._lengths.append(steps.lengths.astype(np.int16))
        self._step_ns.append(steps.step_ns)
        for name in PER_STEP:
            total = getattr(steps, name).sum(axis=0)
            self._sums[name] = total if name not in self._sums else self._sums[name] + total
        self._wait_ns += int(steps.collective_wait_ns.sum())
        self._transfer_ns += int(steps.collective_transfer_ns.sum())
        if len(self._in_full) < RUNS_IN_FULL:
            self._in_full.append(run)
        # Last, so that an interrupt in between leaves this run uncounted everywhere that matters.
        self._runs.append(run.result)

    def experiment(self) -> Experiment:
        """The Experiment so far; SimulationError before the first run."""
        if not self._runs:
            raise SimulationError("an experiment needs a run")
        return Experiment(
            lanes=self._lanes,
            runs=tuple(self._runs),
            lengths=np.concatenate(self._lengths),
            step_ns=np.concatenate(self._step_ns),
            component_ns=self._sums["component_ns"],
            phase_ns=self._sums["phase_ns"],
            source_ns=self._sums["source_ns"],
            busy_ns=self._sums["busy_ns"],
            collective_wait_ns=self._wait_ns,
            collective_transfer_ns=self._transfer_ns,
            in_full=tuple(self._in_full),
        )

"""Runs in, quantities out: means with honest intervals, quantiles, shares.

Runs are independent, so the interval of a mean over runs is Student's t whatever the
correlation inside a run. Below ``MIN_RUNS`` there is no interval, and the summary says so.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hwmodels.estimate import Source
from sim.graph import Component, IntArray, Lane, Phase
from sim.records import Experiment, StepRecords

CONFIDENCE = 0.95
MIN_RUNS = 5
"""Fewer runs than this give a mean without an interval."""
NS_PER_MS = 1e6

Label = TypeVar("Label", bound=Enum)


@dataclass(frozen=True, slots=True)
class Spread:
    """A mean with the half width of its 95 % interval, and quantiles of the observations."""

    mean: float
    half_width: float | None
    """None where there are too few runs for an interval."""
    p5: float
    p50: float
    p95: float


def half_width(values: ArrayLike) -> float | None:
    """Student-t half width of the mean of independent *values*; None for too few of them."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < MIN_RUNS:
        return None
    quantile = stats.t.ppf((1 + CONFIDENCE) / 2, len(sample) - 1)
    return float(quantile * sample.std(ddof=1) / np.sqrt(len(sample)))


def spread(run_means: ArrayLike, observations: ArrayLike) -> Spread:
    """Mean and interval over runs, quantiles over *observations*."""
    p5, p50, p95 = np.quantile(np.asarray(observations, dtype=float), [0.05, 0.5, 0.95])
    mean = float(np.mean(np.asarray(run_means, dtype=float)))
    return Spread(mean, half_width(run_means), float(p5), float(p50), float(p95))


@dataclass(frozen=True)
class Summary:
    """What an experiment says. Shares are fractions of the steps' critical path and add to 1."""

    throughput_tok_s: Spread
    """Quantiles over runs."""
    step_time_ms: Spread
    """Quantiles over steps."""
    acceptance_length: Spread
    """Quantiles over steps."""
    length_shares: tuple[float, ...]
    """Share of steps that committed 1, 2, ... tokens."""
    components: dict[Component, float]
    phases: dict[Phase, float]
    sources: dict[Source, float]
    utilisation: dict[Lane, float]
    allreduce_wait_ms: float
    """Per step, mean over ranks."""
    allreduce_transfer_ms: float
    runs: int
    steps: int


def summarise(experiment: Experiment) -> Summary:
    """The Summary of *experiment*."""
    runs = experiment.runs
    steps = [run.steps for run in runs]
    throughput = [run.throughput_tok_s for run in runs]
    total_ns = sum(int(record.step_ns.sum()) for record in steps)
    lengths = np.concatenate([record.lengths for record in steps])
    count = len(lengths)
    wait = sum(float(record.collective_wait_ns.sum()) for record in steps)
    transfer = sum(int(record.collective_transfer_ns.sum()) for record in steps)
    return Summary(
        throughput_tok_s=spread(throughput, throughput),
        step_time_ms=_over_steps([record.step_ns / NS_PER_MS for record in steps]),
        acceptance_length=_over_steps([record.lengths for record in steps]),
        length_shares=tuple(float(n) for n in np.bincount(lengths)[1:] / count),
        components=_shares((r.critical_ns for r in steps), total_ns),
        phases=_shares((r.phase_ns for r in steps), total_ns),
        sources=_shares((r.source_ns for r in steps), total_ns),
        utilisation=_utilisation(experiment.lanes, steps, total_ns),
        allreduce_wait_ms=wait / count / NS_PER_MS,
        allreduce_transfer_ms=transfer / count / NS_PER_MS,
        runs=len(runs),
        steps=count,
    )


def _over_steps(per_run: Sequence[NDArray[np.float64] | IntArray]) -> Spread:
    """Interval over the runs' means, quantiles over all steps."""
    return spread([float(values.mean()) for values in per_run], np.concatenate(per_run))


def _shares(groups: Iterable[dict[Label, IntArray]], total_ns: int) -> dict[Label, float]:
    """Fraction of *total_ns* by label, largest first; labels without any time are left out."""
    sums: dict[Label, int] = {}
    for group in groups:
        for label, values in group.items():
            sums[label] = sums.get(label, 0) + int(values.sum())
    ordered = sorted(sums.items(), key=lambda pair: -pair[1])
    return {label: value / total_ns for label, value in ordered if value}


def _utilisation(lanes: tuple[Lane, ...], steps: list[StepRecords], total_ns: int) -> dict[Lane, float]:
    busy = sum(record.busy_ns.sum(axis=0) for record in steps)
    return {lane: float(value) / total_ns for lane, value in zip(lanes, np.asarray(busy), strict=True)}

"""Runs in, quantities out: means with honest intervals, quantiles, shares.

Runs are independent, so the interval of a mean over runs is Student's t whatever the
correlation inside a run. Below ``MIN_RUNS`` there is no interval, and the summary says so.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from hwmodels.estimate import Source
from sim.graph import Component, IntArray, Lane, Phase
from sim.records import Experiment

CONFIDENCE = 0.95
MIN_RUNS = 5
"""Fewer runs than this give a mean without an interval."""
NS_PER_MS = 1e6

FloatArray = NDArray[np.float64]
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


@dataclass(frozen=True, slots=True)
class Tail:
    """A mean and the quantiles that users complain about."""

    mean: float
    p50: float
    p95: float
    p99: float


def half_width(values: ArrayLike, confidence: float = CONFIDENCE) -> float | None:
    """Student-t half width of the mean of independent *values*; None for too few of them."""
    sample = np.asarray(values, dtype=float)
    if len(sample) < MIN_RUNS:
        return None
    quantile = stats.t.ppf((1 + confidence) / 2, len(sample) - 1)
    return float(quantile * sample.std(ddof=1) / np.sqrt(len(sample)))


def spread(run_means: ArrayLike, observations: ArrayLike) -> Spread:
    """Mean and interval over runs, quantiles over *observations*."""
    p5, p50, p95 = np.quantile(np.asarray(observations, dtype=float), [0.05, 0.5, 0.95])
    mean = float(np.mean(np.asarray(run_means, dtype=float)))
    return Spread(mean, half_width(run_means), float(p5), float(p50), float(p95))


def tail(observations: ArrayLike, weights: ArrayLike | None = None) -> Tail:
    """The Tail of *observations*, each of which counts *weights* times."""
    values = np.asarray(observations, dtype=float)
    counts = np.ones(len(values)) if weights is None else np.asarray(weights, dtype=float)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(counts[order])
    at = np.searchsorted(reached, np.array([0.5, 0.95, 0.99]) * reached[-1])
    p50, p95, p99 = values[order][np.minimum(at, len(values) - 1)]
    return Tail(float(np.average(values, weights=counts)), float(p50), float(p95), float(p99))


@dataclass(frozen=True)
class Summary:
    """What an experiment says. Shares are fractions of the steps' critical path and add to 1."""

    throughput_tok_s: Spread
    """Quantiles over runs."""
    step_time_ms: Spread
    """Quantiles over steps."""
    acceptance_length: Spread
    """Quantiles over steps and requests."""
    tpot_ms: Spread
    """Time per output token of a request; quantiles over requests."""
    tpot_tail_ms: Tail
    """The same, of the slow ones."""
    itl_ms: Tail
    """Between tokens of a request, over tokens: those that one step lands share its time."""
    user_tok_s: Spread
    """Of one request among those that decode together; quantiles over runs."""
    request_tok_s: Spread
    """Each request's own, from its first step to its last; quantiles over requests."""
    length_shares: tuple[float, ...]
    """Share of a request's steps that committed 1, 2, ... tokens."""
    components: dict[Component, float]
    phases: dict[Phase, float]
    sources: dict[Source, float]
    measured_files: dict[str, float]
    """Share of the steps that rests on the machine's measured file, by its name; empty without one."""
    utilisation: dict[Lane, float]
    allreduce_wait_ms: float
    """Per step, mean over ranks."""
    allreduce_transfer_ms: float
    runs: int
    steps: int
    requests: int
    """Decoded in lock-step."""


def summarise(experiment: Experiment) -> Summary:
    """The Summary of *experiment*."""
    runs = experiment.runs
    throughput = [run.throughput_tok_s for run in runs]
    total_ns, count = sum(run.duration_ns for run in runs), len(experiment.step_ns)
    tpot_ms = experiment.tpot_ns / NS_PER_MS
    request_tok_s = 1e9 / experiment.tpot_ns
    step_ms = [run.mean_step_ns / NS_PER_MS for run in runs]
    per_user = [value / runs[0].requests for value in throughput]
    return Summary(
        throughput_tok_s=spread(throughput, throughput),
        step_time_ms=spread(step_ms, experiment.step_ns / NS_PER_MS),
        acceptance_length=spread([run.mean_length for run in runs], experiment.lengths),
        tpot_ms=spread(tpot_ms.reshape(len(runs), -1).mean(axis=1), tpot_ms),
        tpot_tail_ms=tail(tpot_ms),
        itl_ms=tail(*_inter_token_ms(experiment)),
        user_tok_s=spread(per_user, per_user),
        request_tok_s=spread(request_tok_s.reshape(len(runs), -1).mean(axis=1), request_tok_s),
        length_shares=tuple(float(n) for n in np.bincount(experiment.lengths)[1:] / len(experiment.lengths)),
        components=_shares(Component, experiment.component_ns, total_ns),
        phases=_shares(Phase, experiment.phase_ns, total_ns),
        sources=_shares(Source, experiment.source_ns, total_ns),
        measured_files=_measured_share(experiment, total_ns),
        utilisation=_utilisation(experiment, total_ns),
        allreduce_wait_ms=experiment.allreduce_wait_ns / count / NS_PER_MS,
        allreduce_transfer_ms=experiment.allreduce_transfer_ns / count / NS_PER_MS,
        runs=len(runs),
        steps=count,
        requests=runs[0].requests,
    )


def _inter_token_ms(experiment: Experiment) -> tuple[FloatArray, FloatArray]:
    """Times between tokens, and how many tokens waited that long."""
    lengths = experiment.lengths.reshape(len(experiment.step_ns), -1)
    longest = int(lengths.max())
    found = [np.count_nonzero(lengths == length, axis=1) * length for length in range(1, longest + 1)]
    tokens = np.stack(found, axis=1)
    between = experiment.step_ns[:, None] / NS_PER_MS / np.arange(1, longest + 1)
    landed = tokens > 0
    return between[landed], tokens[landed].astype(float)


def _shares(kinds: type[Label], sums: IntArray, total_ns: int) -> dict[Label, float]:
    """Fraction of *total_ns* by kind, largest first; kinds without any time are left out."""
    ordered = sorted(zip(kinds, sums.tolist(), strict=True), key=lambda pair: -pair[1])
    return {kind: value / total_ns for kind, value in ordered if value}


def _measured_share(experiment: Experiment, total_ns: int) -> dict[str, float]:
    name = experiment.measured_file
    return {} if name is None else {name: experiment.file_ns / total_ns}


def _utilisation(experiment: Experiment, total_ns: int) -> dict[Lane, float]:
    busy = experiment.busy_ns.tolist()
    return {lane: value / total_ns for lane, value in zip(experiment.lanes, busy, strict=True)}

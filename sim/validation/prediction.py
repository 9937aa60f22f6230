"""How fast a scenario decodes, and what that rests on.

Throughput follows from the mean step: ``concurrency x acceptance length / step time``. The acceptance
length is the row's own, so no luck in lengths enters; the step time is played on the batch engine with
all its noise, over several runs (each with its own slow GPU), at the context of half way, for attention is
linear in it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hwmodels.estimate import Source
from sim import batch
from sim.batching import Batch
from sim.graph import Component, IntArray
from sim.means import BaseTimes, mean_times
from sim.records import StepRecords
from sim.scenario import Scenario
from sim.setup import Setup, resolve
from sim.simulate import Simulation
from sim.validation.families import Family, family_of
from sim.validation.occupancy import occupancy
from sim.validation.translation import Question
from sim.validation.workloads import DataSet

Array = NDArray[np.float64]
RUNS = 24
"""Runs played: the slowest of a node's GPUs is drawn anew in each."""
STEPS = 48
"""Steps of a run."""
NS = 1e-9


class FamilyCost(NamedTuple):
    """What is known of one family of figures in one step."""

    seconds: float
    """Plain sum over rank 0 and the host, whatever overlaps."""
    spread: float
    """Relative one-sigma uncertainty, weighted by time."""


@dataclass(frozen=True, eq=False)
class StepModel:
    """The mean step of a scenario, ready to be asked what happens when figures are off."""

    simulation: Simulation
    context: int
    """Cached tokens of a request."""
    label_s: Array
    """(labels,) mean seconds of one execution."""
    spreads: Array
    """(labels,) relative one-sigma uncertainty of those."""
    families: tuple[Family, ...]
    family_of: NDArray[np.int64]
    """(labels,) index into *families*."""

    @classmethod
    def of(cls, setup: Setup, context: int) -> StepModel:
        """The mean step of *setup* over *context* cached tokens."""
        simulation = Simulation(setup)
        labels = simulation.pieces.labels
        named = [family_of(label.work) for label in labels]
        families = tuple(dict.fromkeys(named))
        return cls(
            simulation=simulation,
            context=context,
            label_s=_label_s(simulation, simulation.base, context),
            spreads=np.array([setup.costs.estimate(label.work).spread for label in labels]),
            families=families,
            family_of=np.array([families.index(family) for family in named], dtype=np.int64),
        )

    def costed_by(self, setup: Setup) -> Array:
        """(labels,) mean seconds where *setup* has other figures for the same work."""
        return _label_s(self.simulation, BaseTimes(setup, self.simulation.pieces), self.context)

    def played_ns(self) -> IntArray:
        """(RUNS x STEPS, pieces) durations of the steps that ``predict`` plays."""
        decoded = _steady(self.simulation, self.context)
        return np.concatenate([self.simulation.durations(run, decoded) for run in range(RUNS)])

    def step_s(self, factors: Array) -> Array:
        """(rows,) seconds of a mean step whose labels take *factors* (rows, labels) times as long."""
        pieces = self.simulation.pieces
        kind_s = mean_times(pieces, self.label_s * factors).kind_s
        durations = np.rint(kind_s[:, pieces.kind_of] / NS).astype(np.int64)
        return np.asarray(batch.play(pieces.graph, durations).max(axis=1) * NS)

    def scaled(self, family: int, factors: Array) -> Array:
        """(rows,) seconds of a step in which *family* alone takes *factors* (rows,) times as long."""
        own = self.family_of == family
        return self.step_s(np.where(own, factors[:, None], 1.0))

    def costs(self) -> dict[Family, FamilyCost]:
        """What each family takes of a step, before overlap."""
        times = self._executions() * self.label_s
        found = {}
        for index, family in enumerate(self.families):
            own = self.family_of == index
            total = float(times[own].sum())
            spread = float((times[own] * self.spreads[own]).sum() / total) if total else 0.0
            found[family] = FamilyCost(total, spread)
        return found

    def _executions(self) -> Array:
        """(labels,) how often one rank, or the host, meets each label in a step."""
        simulation = self.simulation
        counts = np.zeros(len(self.label_s))
        for op, label in zip(simulation.graph.ops, simulation.pieces.label_of.tolist(), strict=True):
            counts[label] += op.rank in (None, 0)
        return counts


@dataclass(frozen=True, eq=False)
class Prediction:
    """The step of one scenario."""

    requests: int
    """Decoded together: those of the load that fit into the cache."""
    step_s: float
    """Mean, noise and waiting for the slowest GPU included."""
    luck: float
    """Relative standard deviation of the mean step from run to run."""
    components: dict[Component, float]
    """Seconds of the critical path; they add up to ``step_s``."""
    sources: dict[Source, float]
    """Shares of the critical path."""
    model: StepModel
    occupancy: float = 1.0
    """Throughput over the whole benchmark, drain included, over that of the full batch."""

    def tok_s(self, question: Question) -> float:
        """Tokens per second of all requests."""
        return self.occupancy * self.requests * question.acceptance_length / self.step_s


def predict(scenario: Scenario, context: int) -> Prediction:
    """The Prediction of *scenario* over *context* cached tokens; HardwareError where figures lack."""
    setup = resolve(scenario)
    model = StepModel.of(setup, context)
    records = [model.simulation.played(run, _steady(model.simulation, context)) for run in range(RUNS)]
    run_means = np.array([record.step_ns.mean() for record in records]) * NS
    return Prediction(
        requests=setup.requests,
        step_s=float(run_means.mean()),
        luck=float(run_means.std(ddof=1) / run_means.mean()),
        components=dict(zip(Component, _mean_s(records, "component_ns"), strict=True)),
        sources=dict(zip(Source, _shares(records), strict=True)),
        model=model,
    )


def _label_s(simulation: Simulation, base: BaseTimes, context: int) -> Array:
    """(labels,) seconds that *base* says over *context* cached tokens."""
    return np.asarray(base.seconds(np.array([context]), np.array([_joining(simulation)]))[0])


def _joining(simulation: Simulation) -> float:
    """Requests that join in a step, on average: each stays for its output over its acceptance length."""
    setup = simulation.setup
    steps = max(1.0, setup.scenario.load.output_tokens / simulation.acceptance.mean_length())
    return setup.requests / steps


def _steady(simulation: Simulation, context: int) -> Batch:
    """Steps of a full batch at one context, each with its share of the requests that join.

    A token each: what they commit does not change their time.
    """
    requests = simulation.setup.requests
    size = (STEPS, requests)
    return Batch(
        lengths=np.ones(size, dtype=np.int64),
        contexts=np.full(size, context, dtype=np.int64),
        joined=np.full(STEPS, _joining(simulation)),
        first_steps=np.full(requests, STEPS, dtype=np.int64),
    )


def _mean_s(records: list[StepRecords], name: str) -> list[float]:
    total = sum(getattr(record, name).sum(axis=0) for record in records)
    steps = sum(len(record.step_ns) for record in records)
    return [float(value) for value in total / steps * NS]


def _shares(records: list[StepRecords]) -> list[float]:
    means = _mean_s(records, "source_ns")
    return [value / sum(means) for value in means]


class Predictions:
    """Predictions by scenario: many rows share their baseline."""

    def __init__(self) -> None:
        self._known: dict[tuple[Scenario, int], Prediction] = {}

    def of(self, question: Question) -> Prediction:
        """The Prediction for *question*; HardwareError where figures lack."""
        scenario, contexts = question.scenario, question.contexts
        found = self._predicted(scenario, contexts.middle)
        if contexts.data_set is None or found.requests == 1:
            return found
        alone = self._predicted(with_one_request(scenario), contexts.middle)
        share = share_of_full(contexts.data_set, found.requests, alone.step_s, found.step_s)
        return replace(found, occupancy=share)

    def _predicted(self, scenario: Scenario, context: int) -> Prediction:
        key = (scenario, context)
        if key not in self._known:
            self._known[key] = predict(*key)
        return self._known[key]


def share_of_full(data_set: DataSet, requests: int, alone_s: float, step_s: float) -> float:
    """Throughput over all of *data_set*, *requests* at a time, over that of a batch that stays full.

    A step takes *step_s* in it and *alone_s* with one request.
    """
    return occupancy(data_set.prompts, requests, alone_s / step_s, data_set.length_cv)


def with_one_request(scenario: Scenario) -> Scenario:
    """*scenario* without the rest of its batch."""
    return scenario.model_copy(update={"load": scenario.load.model_copy(update={"concurrency": 1})})

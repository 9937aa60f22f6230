"""Throughput as a function of parameters: the mean step played again, without simulating whole runs.

A draw's figures go through the cost model and its factors of work onto the mean times of the step; the
batch engine plays that step, so that overlap and the critical path decide. Luck is that of runs which were
played at the best values: draw i is paired with run i, meets the same luck in acceptance and is as much
slower than its mean step as that run was.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from hwmodels.cost import CostModel
from hwmodels.work import ContextWork, GroupedExperts, Prefill, Work
from sim.acceptance import Acceptance
from sim.batching import closed_loop
from sim.drafting import acceptance_model
from sim.draws import RandomStream, generator
from sim.kernels import routed_experts
from sim.records import RunResult
from sim.scenario import Scenario
from sim.setup import Setup
from sim.uncertainty.applied import with_figures, with_scenario_keys
from sim.uncertainty.keys import TIMES_ALONE, Where
from sim.uncertainty.lengths import Lengths
from sim.uncertainty.mean_step import COUNTS, Step
from sim.uncertainty.parameters import Parameters, Values, mean_key
from sim.uncertainty.priors import Array

NS = 1e-9
Progress = Callable[[], None]
Keys = tuple[tuple[str, Any], ...]
"""Scenario keys and values."""


def _silent() -> None:
    """No progress to show."""


class Form(NamedTuple):
    """What decides how a step is built; setups of the same form differ in times and acceptance alone."""

    keys: Keys
    """Values of scenario keys that a step is built by."""
    requests: int
    verify_padding: int
    draft_padding: int


class Outcomes(NamedTuple):
    """What draws of parameters bring."""

    mean_tok_s: Array
    """(draws,) without luck."""
    run_tok_s: Array
    """(draws,) with the luck of one run each; empty without runs."""


class Draw(NamedTuple):
    """One draw, ready to be timed."""

    setup: Setup
    keys: Keys
    """Other values of scenario keys."""
    form: Form
    factors: dict[str, float]
    """Of families of work, by name."""
    mean_length: float | None
    """What acceptance is solved for; None as the scenario has it."""
    longer: float
    """How many times as long a step is for reasons that the model lacks."""


class Response:
    """What *setup* does at any values of its *parameters*; paired with the luck of *runs* where given."""

    def __init__(
        self, setup: Setup, parameters: Parameters | None = None, runs: Sequence[RunResult] = ()
    ) -> None:
        self.setup = setup
        self.parameters = Parameters.of(setup) if parameters is None else parameters
        self.runs = tuple(runs)
        self._steps: dict[Form, Step] = {}
        self._setups: dict[Keys, Setup] = {(): setup}
        self._lengths: dict[Keys, Lengths] = {}
        self._known: dict[tuple[Keys, float | None], Acceptance] = {}

    def throughput(self, values: Values, advance: Progress = _silent) -> Array:
        """(draws,) mean tok/s of all requests at *values*, without luck.

        In proportion to the mean over runs where there are runs, so that the noise of their steps is in it.
        """
        return self.outcomes(values, advance).mean_tok_s

    def step_seconds(self, values: Values) -> Array:
        """(draws,) seconds of the mean step at *values*, without noise."""
        return self._step_s(self._drawn(values), _silent)

    def with_luck(self, values: Values, advance: Progress = _silent) -> Array:
        """(draws,) tok/s of one run each: draw i with the luck of run i, after the last the first again.

        At the best values it is that run's own throughput. ValueError where there are no runs.
        """
        if not self.runs:
            raise ValueError("there are no runs whose luck could be met")
        return self.outcomes(values, advance).run_tok_s

    def outcomes(self, values: Values, advance: Progress = _silent) -> Outcomes:
        """``throughput`` and ``with_luck`` of the same draws."""
        drawn = self._drawn(values)
        step_s = self._step_s(drawn, advance)
        met = enumerate(zip(drawn, step_s, strict=True)) if self.runs else ()
        by_run = [self._run_tok_s(self.runs[index % len(self.runs)], *one) for index, one in met]
        return Outcomes(self.scale * self._mean_tok_s(drawn, step_s), np.array(by_run))

    def _run_tok_s(self, run: RunResult, draw: Draw, step_s: float) -> float:
        """Throughput of *run* if *draw* were true."""
        if not draw.form.requests:
            return 0.0
        tokens, steps = self._committed(run, draw)
        return tokens / (steps * run.mean_step_ns * NS * step_s / self._best_step_s)

    @cached_property
    def scale(self) -> float:
        """Mean throughput of the runs over that of the mean step; 1 without runs."""
        if not self.runs:
            return 1.0
        played = sum(run.throughput_tok_s for run in self.runs) / len(self.runs)
        return float(played / self._mean_tok_s(self._best, np.array([self._best_step_s]))[0])

    @cached_property
    def _best(self) -> list[Draw]:
        return self._drawn(self.parameters.best())

    @cached_property
    def _best_step_s(self) -> float:
        return float(self._step_s(self._best, _silent)[0])

    def _drawn(self, values: Values) -> list[Draw]:
        return [self._draw(row) for row in values.rows()]

    def _draw(self, row: dict[str, Any]) -> Draw:
        """One draw's *row* of values put in."""
        mean, mean_name = None, mean_key(self.setup)
        keys, figures, factors, longer = [], {}, {}, 1.0
        for name, value in row.items():
            parameter = self.parameters[name]
            if name == mean_name:
                mean = float(value)
            elif parameter.where is Where.WORK:
                factors[name] = float(value)
            elif parameter.where is Where.DISCREPANCY:
                longer *= float(value)
            elif value != parameter.best and parameter.where is Where.FIGURE:
                figures[name] = float(value)
            elif value != parameter.best:
                keys.append((name, value))
        setup = with_figures(self._with_keys(tuple(keys)), figures)
        return Draw(setup, tuple(keys), _form(tuple(keys), setup), factors, mean, longer)

    def _with_keys(self, keys: Keys) -> Setup:
        """The setup with other values of scenario *keys*, looked up once."""
        if keys not in self._setups:
            self._setups[keys] = with_scenario_keys(self.setup, dict(keys))
        return self._setups[keys]

    def _step_s(self, drawn: Sequence[Draw], advance: Progress) -> Array:
        """(draws,) seconds of each draw's mean step; draws of the same form are played at once."""
        by_form: dict[Form, list[int]] = {}
        for index, draw in enumerate(drawn):
            by_form.setdefault(draw.form, []).append(index)
        seconds = np.empty(len(drawn))
        for form, rows in by_form.items():
            if not form.requests:
                # The weights leave no room for one request: it never ends.
                seconds[rows] = np.inf
                continue
            step, times = self._step(form, drawn[rows[0]].setup), []
            for row in rows:
                times.append(self._label_s(step, drawn[row]))
                advance()
            longer = [drawn[row].longer for row in rows]
            seconds[rows] = step.seconds(np.array(times)) * longer
        return seconds

    def _step(self, form: Form, setup: Setup) -> Step:
        """The step of *form*, built once with what is best of all figures that *setup* draws."""
        if form not in self._steps:
            counts = {name for name in COUNTS if name in self.parameters.names}
            best = {name: COUNTS[name](self.setup) for name in counts}
            self._steps[form] = Step.of(with_figures(setup, best), counts)
        return self._steps[form]

    def _label_s(self, step: Step, draw: Draw) -> Array:
        """(labels,) mean seconds of one execution, half way through a request."""
        setup = draw.setup
        context = half_way(setup.scenario)
        joined = setup.requests / max(1.0, setup.scenario.load.output_tokens / self._mean_length(draw))
        works = [_in_setup(work, setup, setup.requests) for work in step.works(setup)]
        times = [_seconds(setup.costs, work, context, joined) for work in works]
        return np.array(times) * self._factors(step, draw.factors)

    def _factors(self, step: Step, factors: dict[str, float]) -> Array:
        """(labels,) how many times as long as estimated each takes."""
        found = np.ones(len(step.family_names))
        for at, name in enumerate(step.family_names):
            factor = factors.get(name, 1.0)
            if factor == 1:
                continue
            sd = self.parameters[name].label_log_sd
            found[at] = factor if sd is None else factor ** (step.label_log_sd[at] / sd)
        return found

    def _mean_tok_s(self, drawn: Iterable[Draw], step_s: Array) -> Array:
        committed = [draw.setup.requests * self._mean_length(draw) for draw in drawn]
        return np.array(committed) / step_s

    def _mean_length(self, draw: Draw) -> float:
        return self._acceptance(draw).mean_length()

    def _acceptance(self, draw: Draw) -> Acceptance:
        """The acceptance model of *draw*."""
        keys, mean = draw.keys, draw.mean_length
        if mean == draw.setup.scenario.acceptance.asked_mean:
            mean = None
        if (keys, mean) not in self._known:
            self._known[keys, mean] = (
                acceptance_model(draw.setup) if mean is None else self._lengths_of(draw).model(mean)
            )
        return self._known[keys, mean]

    def _lengths_of(self, draw: Draw) -> Lengths:
        """Acceptance at any mean, for the scenario of *draw*."""
        keys = draw.keys
        if keys not in self._lengths:
            low, high = self.parameters[mean_key(self.setup)].prior.at(np.array([0.0, 1.0])).tolist()
            self._lengths[keys] = Lengths(self._with_keys(keys), low, high)
        return self._lengths[keys]

    def _committed(self, run: RunResult, draw: Draw) -> tuple[int, int]:
        """Tokens and steps of *run* with the acceptance of *draw* and the same luck."""
        same = draw.mean_length in (None, self.setup.scenario.acceptance.asked_mean)
        if same and not draw.keys and draw.form == self._best[0].form:
            return run.tokens, run.steps
        load, seed = draw.setup.scenario.load, self.setup.scenario.seed
        users = range(load.concurrency)
        luck = [generator(seed, run.index, RandomStream.ACCEPTANCE, user) for user in users]
        lengths = closed_loop(self._acceptance(draw), load, luck, draw.setup.capacity).lengths
        return int(lengths.sum()), len(lengths)


def half_way(scenario: Scenario) -> int:
    """Cached tokens half way through a request: attention is linear in them, or nearly."""
    return scenario.load.context_tokens + scenario.load.output_tokens // 2


def _form(keys: Keys, setup: Setup) -> Form:
    built_by = tuple((key, value) for key, value in keys if key not in TIMES_ALONE)
    return Form(built_by, setup.requests, setup.verify_padding, setup.draft_padding)


def _seconds(costs: CostModel, work: Work, context: int, joined: float) -> float:
    """Mean seconds of *work* at *context*, where *joined* requests join a step."""
    if isinstance(work, ContextWork):
        return costs.estimate(work.at_context(context)).seconds
    seconds = costs.estimate(work).seconds
    return seconds * joined if isinstance(work, Prefill) else seconds


def _in_setup(work: Work, setup: Setup, requests: int) -> Work:
    """*work* of *requests* as it is in *setup*: routing decides how many experts it touches."""
    if isinstance(work, GroupedExperts):
        assert setup.model.experts is not None
        return routed_experts(setup, requests, work.tokens // requests, setup.model.experts)
    if isinstance(work, Prefill):
        kernels = tuple((_in_setup(kernel, setup, 1), times) for kernel, times in work.kernels)
        return replace(work, kernels=kernels)
    return work

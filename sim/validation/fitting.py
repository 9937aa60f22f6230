"""Fits a stack's few unknown host costs to named measurements, and shows what that is worth.

Least squares of ``log(predicted step / measured step)``, each in units of MODEL_SD, beside
``(value - prior) / its standard deviation`` for every figure whose prior states a range. Each case is then
left out in turn (all that is fitted to of it) and predicted from the others.

A step is played as ``predict`` plays it, luck included, for a maximum of two times that vary is longer than
the maximum of their means. Luck is drawn once, at the priors, and scales with what the figures make of each
piece.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares

from hwmodels.entry import Figure
from hwmodels.stacks import Stack
from sim import batch
from sim.graph import IntArray, StepGraph
from sim.means import mean_times
from sim.setup import Setup, resolve
from sim.validation.fits import Fit, figure, with_values
from sim.validation.prediction import NS, StepModel, share_of_full, with_one_request
from sim.validation.translation import CaseKind, Question

Array = NDArray[np.float64]
MODEL_SD = 0.1
"""Relative deviation of a step for reasons other than the figures fitted: about what the shipped cases are
off by in the middle. It decides how much a prior holds back."""
LEAST, MOST = 0.2, 5.0
"""Times its prior value that a figure may become."""
STARTS = (1.0, 0.6, 1.7)
"""Times the priors: where the search begins, for a step that is the longer of two times has kinks."""
RELATIVE_STEP = 2e-3
"""Of the derivatives. Steps are whole nanoseconds, so a smaller one would see their rounding."""


class Host:
    """One measurement, ready to be predicted with other host costs.

    What every label takes is linear in them. (A prompt's pass is the longer of its kernels and its
    launches, and taken to stay what it is at the priors; so is how full the batch is over a benchmark.)
    """

    def __init__(self, question: Question, priors: Mapping[str, Figure]) -> None:
        self.question = question
        before = {key: prior.value for key, prior in priors.items()}
        setup = _changed(resolve(question.scenario), before)
        self._model = StepModel.of(setup, question.contexts.middle)
        self._prior = np.array(list(before.values()))
        self._per_us = np.array([self._slope(setup, key, value) for key, value in before.items()])
        self._kind_s = self._kinds(self._model.label_s)
        self._played = self._model.played_ns()
        tokens = setup.requests * question.acceptance_length * self._occupancy(setup, before)
        self._measured_s = tokens / question.measured_tok_s

    def _occupancy(self, setup: Setup, before: Mapping[str, float]) -> float:
        """Throughput over the whole benchmark over that of the full batch."""
        data_set = self.question.contexts.data_set
        if data_set is None or setup.requests == 1:
            return 1.0
        single = _changed(resolve(with_one_request(setup.scenario)), before)
        alone = StepModel.of(single, self.question.contexts.middle)
        alone_s = _mean_s(alone.simulation.pieces.graph, alone.played_ns())
        return share_of_full(data_set, setup.requests, alone_s, self.step_s(self._prior))

    def _slope(self, setup: Setup, key: str, value: float) -> Array:
        """(labels,) seconds for every us of the figure at *key*."""
        change = RELATIVE_STEP * value
        dearer = self._model.costed_by(_changed(setup, {key: value + change}))
        return (dearer - self._model.label_s) / change

    @property
    def name(self) -> tuple[str, CaseKind]:
        """The case and which of its measurements."""
        return self.question.case.id, self.question.kind

    def log_error(self, values: Array) -> float:
        """Logarithm of the step with *values* (figures,) us over the measured one."""
        return math.log(self.step_s(values) / self._measured_s)

    def step_s(self, values: Array) -> float:
        """Seconds of the mean step with *values* (figures,) us, luck included."""
        pieces = self._model.simulation.pieces
        kind_s = self._kinds(self._model.label_s + (values - self._prior) @ self._per_us)
        longer = np.divide(kind_s, self._kind_s, out=np.ones_like(kind_s), where=self._kind_s > 0)
        return _mean_s(pieces.graph, _scaled(self._played, longer[pieces.kind_of]))

    def _kinds(self, label_s: Array) -> Array:
        """(kinds,) mean seconds."""
        return np.asarray(mean_times(self._model.simulation.pieces, label_s[None]).kind_s[0])


def _mean_s(graph: StepGraph, durations: IntArray) -> float:
    """Seconds of a step in the mean over *durations* (steps, pieces)."""
    return float(batch.play(graph, durations).max(axis=1).mean() * NS)


def _scaled(durations: IntArray, factors: Array) -> IntArray:
    """*durations* (steps, pieces) times *factors* (pieces,)."""
    scaled, other = durations.copy(), np.flatnonzero(factors != 1)
    scaled[:, other] = np.rint(durations[:, other] * factors[other])
    return scaled


def _changed(setup: Setup, values: Mapping[str, float]) -> Setup:
    machine = setup.machine
    return replace(setup, machine=replace(machine, stack=with_values(machine.stack, values)))


class FittedFigure(NamedTuple):
    """One host cost, us."""

    key: str
    prior: Figure
    shipped: float
    """In the catalog now."""
    value: float
    sigma: float
    """One sigma from the Jacobian; wider where the fit leaves more than MODEL_SD. Infinite where nothing
    decides it."""
    influence: float
    """The most that 1 % of it changes one of the steps, in per cent."""

    @property
    def is_outside(self) -> bool:
        """Whether the value contradicts the range that was known before."""
        known = self.prior.range
        return known is not None and not known[0] <= self.value <= known[1]

    @property
    def at_limit(self) -> bool:
        """Whether the search ended where it may not go on."""
        return not LEAST * 1.001 < self.value / self.prior.value < MOST * 0.999


class FittedRow(NamedTuple):
    """One measurement: predicted over measured tok/s, less 1."""

    id: str
    kind: CaseKind
    measured_tok_s: float
    prior: float
    """With what was known before."""
    shipped: float
    """With the catalog's figures of now."""
    fitted: float
    left_out: float | None
    """Fitted without this case; None for a check."""


@dataclass(frozen=True)
class Fitted:
    """What a fit comes to."""

    stack: str
    figures: tuple[FittedFigure, ...]
    rows: tuple[FittedRow, ...]
    checks: tuple[FittedRow, ...]


def run(fit: Fit) -> Fitted:
    """Fit, leave one case out at a time, and check. The same whatever the order of the cases."""
    hosts = [Host(question, fit.priors) for question in fit.fitted_to]
    checks = [Host(question, fit.priors) for question in fit.checked_on]
    values = solve(hosts, fit.priors)
    without = {name: solve(_without(hosts, name), fit.priors, values) for name in _cases(hosts)}
    points = _Points(_priors(fit.priors), _shipped(fit.stack, fit.priors), values)
    return Fitted(
        fit.stack.name,
        _figures(fit, hosts, values),
        tuple(_row(host, points, without[host.name[0]]) for host in hosts),
        tuple(_row(host, points, None) for host in checks),
    )


def solve(hosts: Sequence[Host], priors: Mapping[str, Figure], start: Array | None = None) -> Array:
    """(figures,) us that fit *hosts* best; the search also begins at *start*, where it is given."""
    before = _priors(priors)
    starts = [factor * np.ones_like(before) for factor in STARTS]
    starts += [] if start is None else [np.clip(start / before, LEAST * 1.01, MOST * 0.99)]

    def residuals(factors: Array) -> Array:
        return _residuals(hosts, priors, factors * before)

    found = [
        least_squares(
            residuals, at, bounds=(LEAST, MOST), diff_step=[RELATIVE_STEP] * len(at), xtol=1e-5, ftol=1e-7
        )
        for at in starts
    ]
    return np.asarray(min(found, key=lambda one: float(one.cost)).x * before)


def _residuals(hosts: Sequence[Host], priors: Mapping[str, Figure], values: Array) -> Array:
    """(measurements + figures,) standard deviations that *values* are off by."""
    steps = [host.log_error(values) / MODEL_SD for host in hosts]
    held = [_held(prior, value) for prior, value in zip(priors.values(), values.tolist(), strict=True)]
    return np.array(steps + held)


def _held(prior: Figure, value: float) -> float:
    """How far *value* lies from *prior*, in its standard deviations; 0 where it states no range."""
    return (value / prior.value - 1) / prior.spread if prior.spread else 0.0


def _figures(fit: Fit, hosts: Sequence[Host], values: Array) -> tuple[FittedFigure, ...]:
    jacobian = _jacobian(hosts, fit.priors, values)
    sigmas = _sigmas(jacobian, _residuals(hosts, fit.priors, values)[: len(hosts)])
    influence = np.abs(jacobian[: len(hosts)]).max(axis=0) * MODEL_SD * values
    shipped = _shipped(fit.stack, fit.priors)
    columns = (fit.priors, fit.priors.values(), shipped, values, sigmas, influence)
    return tuple(
        FittedFigure(key, prior, *map(float, numbers)) for key, prior, *numbers in zip(*columns, strict=True)
    )


def _jacobian(hosts: Sequence[Host], priors: Mapping[str, Figure], values: Array) -> Array:
    """(measurements + figures, figures) change of the residuals per us, by central differences."""
    columns = []
    for index, value in enumerate(values):
        step = np.zeros_like(values)
        step[index] = RELATIVE_STEP * value
        ends = [_residuals(hosts, priors, values + sign * step) for sign in (1, -1)]
        columns.append((ends[0] - ends[1]) / (2 * step[index]))
    return np.array(columns).T


def _sigmas(jacobian: Array, misfit: Array) -> Array:
    """(figures,) standard deviations; *misfit* (measurements,) widens them where it is more than expected."""
    freedom = max(1, len(misfit) - jacobian.shape[1])
    excess = max(1.0, float(misfit @ misfit) / freedom)
    information = jacobian.T @ jacobian
    decided = np.diag(information) > 0
    sigmas = np.full(len(information), np.inf)
    covariance = np.linalg.pinv(information[np.ix_(decided, decided)])
    sigmas[decided] = np.sqrt(np.diag(covariance) * excess)
    return sigmas


class _Points(NamedTuple):
    """(figures,) us at which every measurement is predicted."""

    prior: Array
    shipped: Array
    fitted: Array


def _row(host: Host, points: _Points, without: Array | None) -> FittedRow:
    return FittedRow(
        *host.name,
        host.question.measured_tok_s,
        prior=_error(host, points.prior),
        shipped=_error(host, points.shipped),
        fitted=_error(host, points.fitted),
        left_out=None if without is None else _error(host, without),
    )


def _error(host: Host, values: Array) -> float:
    """Predicted over measured throughput, less 1."""
    return math.exp(-host.log_error(values)) - 1


def _priors(priors: Mapping[str, Figure]) -> Array:
    return np.array([prior.value for prior in priors.values()])


def _shipped(stack: Stack, priors: Mapping[str, Figure]) -> Array:
    return np.array([figure(stack, key).value for key in priors])


def _cases(hosts: Sequence[Host]) -> list[str]:
    return list(dict.fromkeys(host.name[0] for host in hosts))


def _without(hosts: Sequence[Host], case: str) -> list[Host]:
    return [host for host in hosts if host.name[0] != case]

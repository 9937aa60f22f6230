"""A published measurement as an observation: what the simulator makes of it, and what it may be off by."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from math import log, sqrt
from typing import Self

from sim.drafting import acceptance_model
from sim.errors import ScenarioError
from sim.scenario import Scenario
from sim.setup import Setup, resolve
from sim.uncertainty.checks import with_keys
from sim.uncertainty.posterior import Discrepancy, SystemKind
from sim.uncertainty.response import half_way
from sim.validation import residuals
from sim.validation.prediction import Prediction, Predictions, predict
from sim.validation.residuals import shipped_residuals
from sim.validation.translation import CaseKind, Question
from sim.validation.uncertainty import MEASUREMENT_SD, length_sd
from sim.validation.verdicts import Ground


@dataclass(frozen=True, eq=False)
class Predicted:
    """A setup and the throughput that it has at the best values of everything."""

    name: str
    setup: Setup
    prediction: Prediction
    tok_s: float
    set_aside: str | None
    """The calibration that its scenario names: what is learnt here begins from the priors."""

    @classmethod
    def of(cls, name: str, scenario: Scenario) -> Self:
        """What *scenario*, called *name*, decodes; HardwareError where figures lack."""
        setup = resolve(uncalibrated(scenario))
        found = predict(setup.scenario, half_way(setup.scenario))
        length = acceptance_model(setup).mean_length()
        tok_s = found.requests * length / found.step_s
        return cls(name, setup, found, tok_s, scenario.calibration)


@dataclass(frozen=True, eq=False)
class Observed(Predicted):
    """One of which a measurement was published."""

    published_tok_s: float
    source: str
    noise_sd: float
    """Of the logarithm: one measurement against another, the luck of its run, a rounded acceptance length."""

    @property
    def log_published(self) -> float:
        """Of tok/s."""
        return log(self.published_tok_s)


def of_anchor(name: str, scenario: Scenario) -> Observed:
    """The measurement that *scenario* is anchored to; ScenarioError where it has none."""
    anchor = scenario.anchor
    if anchor is None:
        raise ScenarioError(name, 0, "anchor", "this scenario names no published measurement")
    if anchor.tok_s is None:
        raise ScenarioError(
            name, 0, "anchor.tok_s_range", f"a range is a claim, not a measurement ({anchor.source})"
        )
    own = Predicted.of(name, scenario)
    noise = sqrt(MEASUREMENT_SD**2 + own.prediction.luck**2)
    return Observed(
        name=name,
        setup=own.setup,
        prediction=own.prediction,
        tok_s=own.tok_s,
        set_aside=own.set_aside,
        published_tok_s=anchor.tok_s,
        source=anchor.source,
        noise_sd=noise,
    )


def of_question(question: Question, predictions: Predictions) -> Observed:
    """The measurement of a published case."""
    found, case = predictions.of(question), question.case
    spreads = (MEASUREMENT_SD, found.luck, length_sd(case, question.kind))
    return Observed(
        name=f"{case.id}/{question.kind.value}",
        setup=resolve(question.scenario),
        prediction=found,
        tok_s=found.tok_s(question),
        set_aside=None,
        published_tok_s=question.measured_tok_s,
        source=case.source,
        noise_sd=sqrt(sum(sd * sd for sd in spreads)),
    )


def uncalibrated(scenario: Scenario) -> Scenario:
    """*scenario* as if nothing had been learnt yet."""
    return with_keys(scenario, {"calibration": None})


def discrepancies(without: Collection[str]) -> dict[SystemKind, Discrepancy]:
    """What the model lacks on each kind of system, from the shipped cases on all systems but *without*."""
    known = shipped_residuals()
    kinds = [SystemKind(plain, tabled) for plain in (False, True) for tabled in (False, True)]
    return {kind: residuals.random_effects(known, _case_kind(kind), _ground(kind), without) for kind in kinds}


def _case_kind(kind: SystemKind) -> CaseKind:
    return CaseKind.BASELINE if kind.plain else CaseKind.SPECULATIVE


def _ground(kind: SystemKind) -> Ground:
    return Ground.TABLES if kind.tabled else Ground.ROOFLINE

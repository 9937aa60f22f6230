"""The interval around a prediction: everything that is known not to be known, drawn together.

* each family of figures is off by one lognormal factor, as widely as its Estimates say (ranges of
  figures, errors of fits), and the mean step is played again with all of them (scrambled Sobol points);
* the slowest GPU of a node and the drift of its clocks differ from run to run (luck);
* the row's acceptance length is rounded, read off a rate, or "about";
* a published throughput is one measurement;
* what the model lacks altogether, as the residuals of *other* systems show it (``sim.validation.residuals``).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.stats import qmc

from sim.validation.cases import Case
from sim.validation.prediction import Prediction
from sim.validation.translation import CaseKind, Question

Array = NDArray[np.float64]
DRAWS = 256
SEED = 1
LEVEL = 0.9
"""Of the interval."""
MEASUREMENT_SD = 0.02
"""One published measurement against another of the same configuration. The pages of sjug/rtx6kpro and
local-inference-lab/rtx6kpro measure the same Kimi K2.6 configurations again after software updates: 91.4,
92.4, 92.4, 89.7 and 89.4 tok/s for one request (1.6 %), 641.8 and 636.2 for sixteen."""
APPROXIMATE_LENGTH_SD = 0.05
"""Acceptance lengths that a source calls approximate."""
DERIVED_LENGTH_SD = 0.02
"""Lengths derived from a printed acceptance rate, whose window need not be the timed one."""


@dataclass(frozen=True, eq=False)
class Draws:
    """What a prediction may be off by, without the model's own discrepancy."""

    log_factors: Array
    """(draws,) logarithm of throughput over the predicted one."""
    standard_normals: Array
    """(draws,) further ones, independent of them, for the discrepancy."""

    @property
    def log_sd(self) -> float:
        """Standard deviation of the logarithm."""
        return float(self.log_factors.std())

    def interval(self, predicted: float, discrepancy_sd: float) -> tuple[float, float]:
        """Low and high end around *predicted*, the model's *discrepancy_sd* included."""
        logs = self.log_factors + discrepancy_sd * self.standard_normals
        low, high = np.quantile(logs, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return predicted * math.exp(low), predicted * math.exp(high)


def draw(question: Question, prediction: Prediction) -> Draws:
    """The Draws around *prediction*: the same for the same question."""
    model = prediction.model
    others = (prediction.luck, MEASUREMENT_SD, length_sd(question.case, question.kind))
    normals = _normals(len(model.families) + len(others) + 1)
    of_families, of_others = np.split(normals[:, :-1], [len(model.families)], axis=1)
    factors = np.exp(of_families[:, model.family_of] * log_sd(model.spreads))
    slower = np.log(model.step_s(factors) / model.step_s(np.ones((1, len(model.spreads)))))
    return Draws(of_others @ np.array(others) - slower, normals[:, -1])


def log_sd(spreads: ArrayLike) -> Array:
    """Standard deviations of the logarithm of lognormal factors whose relative ones are *spreads*."""
    return np.asarray(np.sqrt(np.log1p(np.square(spreads))))


def length_sd(case: Case, kind: CaseKind) -> float:
    """Relative uncertainty of the acceptance length that *case* states."""
    length = case.acceptance_length
    if kind is CaseKind.BASELINE or length is None:
        return 0.0
    origin = case.acceptance_length_origin.casefold()
    if "approx" in origin or "about" in origin:
        return APPROXIMATE_LENGTH_SD
    if "derived" in origin or "rate" in origin:
        return DERIVED_LENGTH_SD
    decimals = len(f"{length:g}".partition(".")[2])
    return float(10.0**-decimals / math.sqrt(12) / length)


def _normals(dimensions: int) -> Array:
    """(draws, dimensions) standard normal quasi-random numbers."""
    points = qmc.Sobol(dimensions, scramble=True, rng=np.random.default_rng(SEED)).random(DRAWS)
    return np.asarray(special.ndtri(np.clip(points, 1e-9, 1 - 1e-9)))

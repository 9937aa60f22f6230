"""Acceptance at many mean lengths, without solving for each."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np

from sim.acceptance import Acceptance, AcceptanceModel
from sim.drafting import acceptance_model, drafter_quality, landed, survival_model
from sim.quality import DrafterQuality
from sim.setup import Setup
from sim.uncertainty.priors import Array

NODES = 17
"""Accuracies between which lengths are interpolated."""


class Lengths:
    """Acceptance models of *setup* at any mean from *low* to *high*.

    Where acceptance follows from the tree, the drafter's log-odds are solved for at both ends alone;
    between them P(L > d) is interpolated in the mean over ``NODES`` accuracies, so that the mean is met
    up to what requests differ by.
    """

    def __init__(self, setup: Setup, low: float, high: float) -> None:
        self._setup, self._low, self._high = setup, low, high

    def model(self, mean_length: float) -> Acceptance:
        """The model whose mean is *mean_length*."""
        scenario = self._setup.scenario
        if (
            scenario.acceptance.quality is None
            or scenario.max_acceptance_length == 1
            or self._low == self._high
        ):
            return acceptance_model(self._setup, mean_length)
        means, survivals = self._curve
        survival = np.array([np.interp(mean_length, means, column) for column in survivals.T])
        given = scenario.acceptance
        hazards = survival_model(survival).hazards
        return AcceptanceModel(hazards, given.request_sd, given.step_correlation, given.decay_per_1k_context)

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """(nodes,) means that the scenario may ask for, rising, and (nodes, depths) P(L > d) of its tree."""
        scenario = self._setup.scenario
        best, worst = (drafter_quality(self._setup, mean) for mean in (self._high, self._low))
        landing = {quality.shift: self._landed(quality) for quality in (worst, best)}
        while len(landing) < NODES:
            # Half way where the means lie farthest apart: what a step of log-odds brings falls fast.
            shifts = sorted(landing)
            gaps = [landing[after] - landing[before] for before, after in pairwise(shifts)]
            at = int(np.argmax(gaps))
            middle = worst.shifted((shifts[at] + shifts[at + 1]) / 2 - worst.shift)
            landing[middle.shift] = self._landed(middle)
        qualities = [worst.shifted(shift - worst.shift) for shift in sorted(landing, key=landing.__getitem__)]
        survivals = np.array([q.survival(scenario.drafted)[: scenario.drafted.cap - 1] for q in qualities])
        return np.array(sorted(landing.values())), survivals

    def _landed(self, quality: DrafterQuality) -> float:
        scenario = self._setup.scenario
        return landed(quality, scenario.asked_at, scenario.acceptance.request_sd)

"""Acceptance at many mean lengths, without solving for each."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from sim.acceptance import Acceptance, AcceptanceModel
from sim.drafting import acceptance_model, drafter_quality, landed, survival_model
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
        if scenario.acceptance.quality is None or scenario.max_acceptance_length == 1 or self._low == self._high:
            return acceptance_model(self._setup, mean_length)
        means, survivals = self._curve
        survival = np.array([np.interp(mean_length, means, column) for column in survivals.T])
        given = scenario.acceptance
        hazards = survival_model(survival).hazards
        return AcceptanceModel(hazards, given.request_sd, given.step_correlation, given.decay_per_1k_context)

    @cached_property
    def _curve(self) -> tuple[Array, Array]:
        """(nodes,) means where the scenario asks for one, rising, and (nodes, depths) P(L > d) of its tree."""
        scenario = self._setup.scenario
        sd = scenario.acceptance.request_sd
        ends = [drafter_quality(self._setup, mean) for mean in (self._low, self._high)]
        shifts = np.linspace(ends[0].shift, ends[1].shift, NODES)
        qualities = [ends[0].shifted(shift - ends[0].shift) for shift in shifts.tolist()]
        means = np.array([landed(quality, scenario.asked_at, sd) for quality in qualities])
        survivals = np.array([q.survival(scenario.drafted)[: scenario.drafted.cap - 1] for q in qualities])
        # A tree that jumps by whole nodes may land a little less with a better drafter.
        order = np.argsort(means, kind="stable")
        return means[order], survivals[order]

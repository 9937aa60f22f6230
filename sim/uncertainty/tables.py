"""What tables and fits leave open, apart from the figures that are uncertain by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwmodels import catalog
from hwmodels.basis import measured_gpu
from hwmodels.catalog import EntryT
from hwmodels.cost import CostModel
from hwmodels.machine import Machine
from hwmodels.uncertainty import unstated_spread
from hwmodels.work import AllReduce, Gemm, GqaAttention, GroupedExperts, MlaAttention, Work
from sim.uncertainty.priors import Array

TABLED = (AllReduce, Gemm, GqaAttention, GroupedExperts, MlaAttention)
"""Work whose times come from measured tables, or from figures in their stead."""


def table_spreads(machine: Machine, works: Sequence[Work]) -> Array:
    """(works,) relative one-sigma uncertainty of what tables and fits say of *works*.

    That of figures is not in it. A table that states no error is as uncertain as its source.
    """
    costs = CostModel(certain(machine))
    return np.array([_spread(costs, work) for work in works])


def _spread(costs: CostModel, work: Work) -> float:
    estimate = costs.estimate(work)
    if isinstance(work, TABLED) and estimate.seconds:
        return max(estimate.spread, unstated_spread(estimate.source))
    return estimate.spread


def certain(machine: Machine) -> Machine:
    """*machine* with figures that state no uncertainty."""
    return replace(
        machine,
        gpu=_without_ranges(machine.gpu),
        interconnect=_without_ranges(machine.interconnect),
        host=_without_ranges(machine.host),
        stack=_without_ranges(machine.stack),
        tables_of=machine.tables_of or measured_gpu(machine.gpu),
    )


def _without_ranges(entry: EntryT) -> EntryT:
    return catalog.with_values(entry, {key: figure.value for key, figure in catalog.figures(entry)})

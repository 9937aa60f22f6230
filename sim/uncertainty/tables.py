"""What tables and fits leave open, apart from the figures that are uncertain by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from hwmodels import catalog
from hwmodels.basis import measured_gpu
from hwmodels.catalog import EntryT
from hwmodels.cost import CostModel
from hwmodels.estimate import Source
from hwmodels.machine import Machine
from hwmodels.uncertainty import carried_spread, unstated_spread
from hwmodels.work import AllReduce, Gemm, GqaAttention, GroupedExperts, MlaAttention, Work
from sim.uncertainty.priors import Array

TABLED = (AllReduce, Gemm, GqaAttention, GroupedExperts, MlaAttention)
"""Work whose times come from measured tables, or from figures in their stead."""


def table_spreads(machine: Machine, works: Sequence[Work]) -> Array:
    """(works,) relative one-sigma uncertainty of what tables and fits say of *works*.

    That of figures is not in it. A table that states no error is as uncertain as its source; one of another
    GPU at least as uncertain as tables prove to be when carried so far.
    """
    costs = CostModel(certain(machine))
    return np.array([_spread(costs, work) for work in works])


def _spread(costs: CostModel, work: Work) -> float:
    estimate = costs.estimate(work)
    if not isinstance(work, TABLED) or not estimate.seconds:
        return estimate.spread
    carried = carried_spread(work, costs.bandwidth_ratio) if estimate.source is Source.SCALED else 0.0
    return max(estimate.spread, unstated_spread(estimate.source), carried)


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

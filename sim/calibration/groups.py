"""Unknowns by what they belong to: how far each group moves a measurement, before and after it taught.

A measurement sees the sum of everything. What it leaves of a group says how much of that sum was told apart.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import assert_never

import numpy as np
from numpy.typing import NDArray

from hwmodels.catalog import Kind
from sim.calibration.inference import ImportanceSample
from sim.calibration.joint import Unknowns
from sim.families import Family
from sim.uncertainty.keys import KINDS, WORK, Where, slug
from sim.uncertainty.parameters import Parameter

Array = NDArray[np.float64]
LEAST = 0.001
"""A group that moves a measurement less, one sigma, is left out."""


class Group(StrEnum):
    """What unknowns belong to; the value is the group's name in reports."""

    HOST = "host costs"
    KERNELS = "kernels and memory"
    LINKS = "links"
    DRAFTING = "drafting and acceptance"
    LOAD = "load and routing"
    """Other keys of the scenario."""
    DISCREPANCY = "what the model lacks"


_OF_FIGURES = {
    Kind.HOST: Group.HOST,
    Kind.STACK: Group.HOST,
    Kind.INTERCONNECT: Group.LINKS,
    Kind.DRAFTER: Group.DRAFTING,
    Kind.GPU: Group.KERNELS,
    Kind.MODEL: Group.KERNELS,
}
_DRAFTING_KEYS = frozenset({"acceptance", "drafter", "tree"})
_OF_WORK = {
    Family.COLLECTIVES: Group.LINKS,
    Family.EXCHANGES: Group.LINKS,
    Family.COPIES: Group.HOST,
    Family.GRAPHS: Group.HOST,
    Family.EAGER: Group.HOST,
    Family.LOOSE_LAUNCHES: Group.HOST,
    Family.SCHEDULING: Group.HOST,
    Family.TREE_DISPATCH: Group.HOST,
    Family.TREE_BUILD: Group.HOST,
}
_BY_WORK = {f"{WORK}.{slug(family)}": group for family, group in _OF_WORK.items()}


def group_of(unknown: Parameter) -> Group:
    """The Group of *unknown*."""
    owner = unknown.name.partition(".")[0]
    match unknown.where:
        case Where.DISCREPANCY:
            return Group.DISCREPANCY
        case Where.WORK:
            return _BY_WORK.get(unknown.name, Group.KERNELS)
        case Where.FIGURE:
            return _OF_FIGURES[KINDS[owner]]
        case Where.SCENARIO:
            return Group.DRAFTING if owner in _DRAFTING_KEYS else Group.LOAD
        case _:
            assert_never(unknown.where)


@dataclass(frozen=True)
class Moved:
    """How far one group moves one measurement."""

    group: Group
    before: float
    """One sigma of log tok/s."""
    after: float
    most: Parameter
    """The unknown of the group that moves it most."""
    count: int
    """Of unknowns that move it."""


def moved(found: ImportanceSample, unknowns: Unknowns, row: int) -> tuple[Moved, ...]:
    """Every group that moves measurement *row*, linearised; what moved it most before comes first."""
    slopes, covariance = found.near.slopes[row], found.posterior.covariance
    groups = [group_of(item) for item in unknowns.items]
    rows = _each(slopes, covariance, groups, unknowns.items)
    return tuple(sorted(rows, key=lambda one: -one.before))


def _each(
    slopes: Array, covariance: Array, groups: Sequence[Group], items: Sequence[Parameter]
) -> Iterator[Moved]:
    for group in Group:
        own = np.array([one is group for one in groups])
        parts = np.where(own, slopes, 0.0)
        before = float(np.sqrt(parts @ parts))
        if before >= LEAST:
            after = float(np.sqrt(parts @ covariance @ parts))
            most = items[int(np.argmax(np.abs(parts)))]
            yield Moved(group, before, after, most, int(np.count_nonzero(parts)))

"""How far figures may be off that do not say so themselves, by their source."""

from __future__ import annotations

from functools import cache
from math import log

from hwmodels.catalog import DATA
from hwmodels.documents import Strict, read, validate
from hwmodels.entry import Figure
from hwmodels.estimate import Source
from hwmodels.work import Gemm, GqaAttention, GroupedExperts, MlaAttention, Work


class Carried(Strict):
    """Relative one-sigma uncertainty of a table on another GPU, for every e-fold between their bandwidths."""

    gemms: Figure
    experts: Figure
    latent_attention: Figure
    grouped_attention: Figure


class Unstated(Strict):
    """Relative one-sigma uncertainty where nothing better is stated."""

    measured: Figure
    fitted: Figure
    scaled: Figure
    datasheet: Figure
    assumed: Figure
    carried: Carried


@cache
def unstated() -> Unstated:
    """The shipped figures."""
    return validate(read(DATA / "uncertainty.yaml"), Unstated)


def unstated_spread(source: Source) -> float:
    """Relative one-sigma uncertainty of a figure from *source* that states none."""
    figure: Figure = getattr(unstated(), source.value)
    return figure.value


def carried_spread(work: Work, bandwidth_ratio: float) -> float:
    """Relative one-sigma uncertainty of *work*'s time from a table of a GPU with another bandwidth.

    The further two GPUs are apart the less of a kernel's time scales as bandwidth does. Nothing for work
    that no table has GPU by GPU.
    """
    carried = unstated().carried
    match work:
        case Gemm():
            figure = carried.gemms
        case GroupedExperts():
            figure = carried.experts
        case MlaAttention():
            figure = carried.latent_attention
        case GqaAttention():
            figure = carried.grouped_attention
        case _:
            return 0.0
    return figure.value * abs(log(bandwidth_ratio))

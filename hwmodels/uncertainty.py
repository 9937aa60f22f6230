"""How far figures may be off that do not say so themselves, by their source."""

from __future__ import annotations

from functools import cache

from hwmodels.catalog import DATA
from hwmodels.documents import Strict, read, validate
from hwmodels.entry import Figure
from hwmodels.estimate import Source


class Unstated(Strict):
    """Relative one-sigma uncertainty where nothing better is stated."""

    measured: Figure
    fitted: Figure
    scaled: Figure
    datasheet: Figure
    assumed: Figure


@cache
def unstated() -> Unstated:
    """The shipped figures."""
    return validate(read(DATA / "uncertainty.yaml"), Unstated)


def unstated_spread(source: Source) -> float:
    """Relative one-sigma uncertainty of a figure from *source* that states none."""
    figure: Figure = getattr(unstated(), source.value)
    return figure.value

"""What the model lacks altogether, learnt from where it was off on other systems.

No figure has a range for an effect that nobody modelled. The shipped cases show how far predictions are
off beyond what their own uncertainty explains; a row's interval is widened by what *other* systems
show, never its own (leave one system out). Plain decoding and speculation are told apart, and GPUs with
measured tables from those that only have a roofline, where that leaves systems enough to learn from. The term
is the least standard deviation with which 90 % of the rows alike, every system with the same weight, would
lie inside their intervals.
"""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy import special

from sim import files
from sim.validation import shipped
from sim.validation.errors import CasesError
from sim.validation.uncertainty import LEVEL
from sim.validation.verdicts import Row

DIGITS = 5
ENOUGH_SYSTEMS = 3
QUANTILE = float(special.ndtri((1 + LEVEL) / 2))


class Residual(NamedTuple):
    """How far the prediction of one shipped measurement is off."""

    id: str
    kind: str
    ground: str
    system: str
    log_error: float
    """Logarithm of predicted over measured."""
    log_sd: float
    """What the prediction itself is known not to know."""


def of_rows(rows: Iterable[Row]) -> tuple[Residual, ...]:
    """The residuals of *rows*."""
    return tuple(
        Residual(
            row.id,
            row.kind.value,
            row.ground.value,
            row.system,
            round(math.log1p(row.error), DIGITS),
            round(row.draws.log_sd, DIGITS),
        )
        for row in rows
    )


def discrepancy_sd(residuals: Sequence[Residual], row: Row) -> float:
    """Standard deviation of what the model lacks on *row*, from other systems; 0 where there are none."""
    others = [
        residual for residual in residuals if residual.system != row.system and residual.kind == row.kind
    ]
    alike = [residual for residual in others if residual.ground == row.ground]
    enough = len({residual.system for residual in alike}) >= ENOUGH_SYSTEMS
    return _covering_sd(alike if enough else others)


def _covering_sd(residuals: Sequence[Residual]) -> float:
    """The least standard deviation that covers 90 % of *residuals*, systems weighing the same."""
    if not residuals:
        return 0.0
    counts = Counter(residual.system for residual in residuals)
    excess = np.array([(r.log_error / QUANTILE) ** 2 - r.log_sd**2 for r in residuals])
    weights = np.array([1 / counts[residual.system] for residual in residuals])
    order = np.argsort(excess)
    reached = np.cumsum(weights[order]) / weights.sum()
    least = excess[order][np.searchsorted(reached, LEVEL - 1e-12)]
    return math.sqrt(max(0.0, float(least)))


def write(residuals: Sequence[Residual], path: Path) -> None:
    """Put *residuals* at *path* as CSV."""
    files.replace(path, files.csv_text(Residual._fields, residuals))


@cache
def shipped_residuals() -> tuple[Residual, ...]:
    """Those of the shipped cases; none where there is no such file."""
    path = shipped.residuals()
    return read(path) if path.is_file() else ()


def read(path: Path) -> tuple[Residual, ...]:
    """The residuals in *path*; CasesError where they are not."""
    with path.open(encoding="utf-8", newline="") as stream:
        header, *rows = list(csv.reader(stream)) or [[]]
    if tuple(header) != Residual._fields:
        raise CasesError(str(path), 1, "", f"expected the columns {', '.join(Residual._fields)}")
    try:
        return tuple(
            Residual(name, kind, ground, system, float(log_error), float(log_sd))
            for name, kind, ground, system, log_error, log_sd in rows
        )
    except ValueError as problem:
        raise CasesError(str(path), 0, "", f"not a file of residuals: {problem}") from None

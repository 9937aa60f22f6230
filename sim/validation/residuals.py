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
from collections.abc import Collection, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special
from scipy.optimize import minimize
from scipy.stats import multivariate_normal

from sim import files
from sim.errors import SimulationError
from sim.uncertainty.posterior import NO_DISCREPANCY, Discrepancy
from sim.validation import shipped
from sim.validation.errors import CasesError
from sim.validation.translation import CaseKind
from sim.validation.uncertainty import LEVEL
from sim.validation.verdicts import Ground, Row

DIGITS = 5
ENOUGH_SYSTEMS = 3
START_SD, LEAST_SD = 0.1, 1e-4
"""Where the search for deviations begins, and the least that one row is off by."""
Array = NDArray[np.float64]
QUANTILE = float(special.ndtri((1 + LEVEL) / 2))


class Residual(NamedTuple):
    """How far the prediction of one shipped measurement is off."""

    id: str
    kind: CaseKind
    ground: Ground
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
            row.kind,
            row.ground,
            row.system,
            round(row.log_error, DIGITS),
            round(row.draws.log_sd, DIGITS),
        )
        for row in rows
    )


def discrepancy_sd(residuals: Sequence[Residual], row: Row) -> float:
    """Standard deviation of what the model lacks on *row*, from other systems; 0 where there are none."""
    return _covering_sd(_alike(residuals, row.kind, row.ground, {row.system}))


def random_effects(
    residuals: Sequence[Residual], kind: CaseKind, ground: Ground, without: Collection[str] = ()
) -> Discrepancy:
    """What the model lacks on systems of *kind* and *ground*, learnt from all but those named in *without*.

    Random effects about zero, by maximum likelihood: rows of one system share an error, and each has one of
    its own. What a prediction is known not to know (tables, host costs) is taken to be shared too.
    NO_DISCREPANCY where there is nothing to learn from.
    """
    known = _alike(residuals, kind, ground, without)
    if not known:
        return NO_DISCREPANCY
    systems = [[r for r in known if r.system == name] for name in sorted({r.system for r in known})]

    def unlikely(sds: Array) -> float:
        """Minus the log likelihood of *sds* (shared, own)."""
        return -sum(_log_density(rows, *sds.tolist()) for rows in systems)

    best = minimize(unlikely, (START_SD, START_SD), bounds=[(0, None), (LEAST_SD, None)])
    if not best.success:
        raise SimulationError(f"no deviations fit the residuals: {best.message}")
    return Discrepancy(*map(float, best.x))


def _log_density(rows: Sequence[Residual], shared_sd: float, own_sd: float) -> float:
    """Of the errors of one system's *rows* together."""
    errors, known = np.array([row.log_error for row in rows]), np.array([row.log_sd for row in rows])
    covariance = shared_sd**2 + np.outer(known, known) + own_sd**2 * np.eye(len(rows))
    return float(multivariate_normal.logpdf(errors, cov=covariance))


def _alike(
    residuals: Sequence[Residual], kind: CaseKind, ground: Ground, without: Collection[str]
) -> list[Residual]:
    """Those of *kind* and *ground* of all systems but *without*; on any ground where they are too few."""
    others = [residual for residual in residuals if residual.kind is kind and residual.system not in without]
    alike = [residual for residual in others if residual.ground is ground]
    return alike if len({residual.system for residual in alike}) >= ENOUGH_SYSTEMS else others


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
            Residual(name, CaseKind(kind), Ground(ground), system, float(log_error), float(log_sd))
            for name, kind, ground, system, log_error, log_sd in rows
        )
    except ValueError as problem:
        raise CasesError(str(path), 0, "", f"not a file of residuals: {problem}") from None

"""Every row of a file predicted; one that cannot be skipped with its reason."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from hwmodels.errors import HardwareError
from sim.errors import ScenarioError
from sim.validation import naming, residuals
from sim.validation.cases import Case
from sim.validation.errors import Unpredictable
from sim.validation.prediction import Predictions
from sim.validation.residuals import Residual
from sim.validation.translation import CaseKind, measured, question
from sim.validation.uncertainty import draw
from sim.validation.verdicts import Row, Skipped, Validation


@dataclass(frozen=True)
class Wish:
    """A measurement of a case that is to be predicted; *kind* is None where it measured nothing."""

    case: Case
    kind: CaseKind | None


def wishes(cases: Sequence[Case], system: str = "") -> list[Wish]:
    """What *cases* measured, on systems whose name, GPU or engine has all words of *system*."""
    return [Wish(case, kind) for case in cases if _is_of(case, system) for kind in _kinds(case)]


def _kinds(case: Case) -> Sequence[CaseKind | None]:
    return [kind for kind in CaseKind if measured(case, kind) is not None] or [None]


def _is_of(case: Case, system: str) -> bool:
    asked = naming.words(system.replace("_", " ")).split()
    said = naming.words(f"{case.gpu} {case.engine}").split()
    if all(word in said for word in asked):
        return True
    try:
        name = question(case, CaseKind.BASELINE).system
    except Unpredictable:
        return False
    return all(word in naming.words(name.replace("_", " ")).split() for word in asked)


def validate(
    wanted: Sequence[Wish],
    known: Sequence[Residual],
    advance: Callable[[], None] = lambda: None,
) -> Validation:
    """Predict every one of *wanted*, in intervals that the *known* residuals widen.

    *advance* hears of each as it ends.
    """
    predictions = Predictions()
    rows: list[Row] = []
    skipped: list[Skipped] = []
    for wish in wanted:
        try:
            rows.append(_row(wish, predictions, known))
        except (Unpredictable, ScenarioError, HardwareError) as problem:
            skipped.append(Skipped(wish.case.id, wish.kind, str(problem)))
        advance()
    return Validation(tuple(rows), tuple(skipped))


def _row(wish: Wish, predictions: Predictions, known: Sequence[Residual]) -> Row:
    if wish.kind is None:
        raise Unpredictable("neither tok_s_total nor baseline_tok_s_total is given")
    asked = question(wish.case, wish.kind)
    prediction = predictions.of(asked)
    return _widened(Row(asked, prediction, draw(asked, prediction), discrepancy_sd=0.0), known)


def learnt(validation: Validation) -> tuple[Validation, tuple[Residual, ...]]:
    """*validation* with intervals widened by its own rows of other systems, and the residuals of all rows."""
    found = residuals.of_rows(validation.rows)
    rows = tuple(_widened(row, found) for row in validation.rows)
    return replace(validation, rows=rows), found


def _widened(row: Row, known: Sequence[Residual]) -> Row:
    return replace(row, discrepancy_sd=residuals.discrepancy_sd(known, row))

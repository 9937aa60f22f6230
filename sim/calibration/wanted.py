"""Which measurements a calibration is asked to learn from: ``--to``."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence
from pathlib import Path

from sim import scenario as scenarios
from sim import shipped
from sim.calibration.observed import Observed, of_anchor, of_question
from sim.errors import ScenarioError
from sim.scenario import Scenario
from sim.validation import cases
from sim.validation import shipped as shipped_cases
from sim.validation.errors import Unpredictable
from sim.validation.prediction import Predictions
from sim.validation.translation import CaseKind, measured, question

ANCHOR = "anchor"
"""The measurement that the calibrated scenario itself names."""
CASES = ".csv"
"""What the name of a file of cases ends in."""
SHIPPED_CASES = "cases.csv"
"""The shipped cases, where no file of that name is here."""


def observations(asked: Sequence[str], own: Sequence[tuple[str, Scenario]]) -> tuple[Observed, ...]:
    """What *asked* (``--to``) names; *own* are the scenarios to be calibrated, by name.

    Scenarios are learnt from by their anchors, rows of a file of cases by their names. ScenarioError,
    CasesError or HardwareError where one cannot be, or is there twice.
    """
    found: list[Observed] = []
    for text in asked:
        for one in _of(text, own):
            _check_new(text, one, found)
            found.append(one)
    if not found:
        raise ScenarioError("--to", 0, "", "names nothing to learn from")
    return tuple(found)


def _check_new(text: str, one: Observed, found: Sequence[Observed]) -> None:
    """Refuse a measurement that was named before, or printed under another name."""
    for other in found:
        if one.name == other.name:
            raise ScenarioError(f"--to {text}", 0, "", f"'{one.name}' is named twice")
        same = (one.setup.system, one.published_tok_s) == (other.setup.system, other.published_tok_s)
        if same and one.setup.scenario.is_plain == other.setup.scenario.is_plain:
            what = f"{one.published_tok_s:.4g} tok/s on {one.setup.system}"
            problem = (
                f"'{one.name}' and '{other.name}' are the same measurement ({what}): it would count twice"
            )
            raise ScenarioError(f"--to {text}", 0, "", problem)


def _of(text: str, own: Sequence[tuple[str, Scenario]]) -> Iterator[Observed]:
    """What one ``--to`` names."""
    file, _, ids = text.rpartition(":")
    if file.lower().endswith(CASES):
        yield from _of_cases(text, _cases_file(file), _items(ids))
        return
    for item in _items(text):
        if item.lower().endswith(CASES):
            raise ScenarioError(f"--to {text}", 0, "", f"name rows of it: {item}:ID,ID")
        if item == ANCHOR:
            yield from (of_anchor(name, scenario) for name, scenario in own)
            continue
        path = shipped.find(item)
        yield of_anchor(path.stem, scenarios.load(path))


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",") if item.strip()]


def _cases_file(name: str) -> Path:
    path = Path(name)
    return shipped_cases.cases() if name == SHIPPED_CASES and not path.is_file() else path


def _of_cases(text: str, path: Path, ids: Sequence[str]) -> Iterator[Observed]:
    """Rows of *path* by name, or ``name/baseline`` for one of two measurements."""
    known = {case.id: case for case in cases.read(path)}
    predictions = Predictions()
    for name in ids:
        id_, _, kind = name.partition("/")
        case = known.get(id_)
        if case is None:
            near = difflib.get_close_matches(id_, known, n=1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            raise ScenarioError(f"--to {text}", 0, "", f"{path} has no case '{id_}'{hint}")
        kinds = [k for k in CaseKind if measured(case, k) is not None and kind in ("", k.value)]
        if not kinds:
            raise ScenarioError(f"--to {text}", 0, "", f"'{name}' measured nothing of that kind")
        for each in kinds:
            try:
                yield of_question(question(case, each), predictions)
            except Unpredictable as problem:
                raise ScenarioError(f"--to {text}", 0, "", f"'{name}': {problem}") from None

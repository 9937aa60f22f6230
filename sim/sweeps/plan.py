"""What a sweep is to do: a scenario, axes, and the cells they span.

Every cell is the scenario with a few keys changed, built and validated like a file. A
cell that is no valid scenario is kept with its error; the others go on without it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import Field

from hwmodels import documents
from hwmodels.documents import Document, Strict, validate
from hwmodels.errors import DocumentError, HardwareError
from sim import digests, scenario, shipped
from sim.errors import ScenarioError
from sim.setup import Setup, resolve
from sim.sweeps import axes
from sim.sweeps.axes import Axis, Value

MAX_CELLS = 100_000
TEXT_KEYS = {"question", "assumptions", "anchor", "uncertain"}
"""Keys of a scenario that do not change its numbers."""


class SweepFile(Strict):
    """A sweep to be repeated: which scenario, what is changed in all cells, and the axes."""

    question: str = Field(min_length=10)
    """The question this sweep answers, in one sentence."""
    scenario: str
    """A scenario file beside this one, or a shipped scenario's name."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Scenario keys changed in every cell, such as `load.output_tokens: 1024`."""
    axes: dict[str, Any] = Field(min_length=1)
    """For each axis a list of values, a range such as 4..64*2, or a mapping of names to changes."""
    runs: int | None = Field(default=None, ge=1)
    seed: int | None = Field(default=None, ge=0)


@dataclass(frozen=True)
class Cell:
    """One point of the grid, ready to run or refused."""

    index: int
    point: tuple[Value, ...]
    """One value per axis."""
    setup: Setup | None
    error: str | None
    """Why it is no valid scenario."""
    key: str
    """Hash of everything its numbers depend on; empty where it is refused."""


@dataclass(frozen=True)
class Plan:
    """A sweep's *cells* in the order of its *axes*, the last one fastest."""

    name: str
    question: str
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    changes: tuple[str, ...]
    """What was changed in every cell, as ``key=value``."""


def from_target(target: str, options: Sequence[str], changes: Sequence[tuple[str, Any, str]]) -> Plan:
    """The Plan of *target*, a scenario or a sweep file, with ``--axis`` *options*.

    *changes* are (key, value, place), laid over every cell. An option's axis replaces one of
    the same name in the file. ScenarioError where anything is wrong with the whole sweep.
    """
    for key, _, place in changes:
        scenario.check_key(key, place)
    given = [axes.from_option(option) for option in options]
    path = find(target)
    document = documents.read(path, ScenarioError)
    if "axes" in document.data:
        return _from_file(path, document, given, changes)
    if not given:
        raise ScenarioError("--axis", 0, "", "a sweep needs an axis, such as --axis tree.budget=4,8,16")
    name = "-".join([path.stem, *(axis.name for axis in given)])
    return plan(name, "", scenario.read(path), given, changes)


def schema() -> dict[str, Any]:
    """The JSON Schema of a sweep file, for editors."""
    whole = SweepFile.model_json_schema()
    whole["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    whole["title"] = "specdec-sim sweep"
    return whole


def find(target: str) -> Path:
    """The scenario or sweep file that *target* names."""
    sweep = shipped.sweeps_folder() / f"{target}.yaml"
    return sweep if sweep.is_file() and not Path(target).exists() else shipped.find(target, sweeps=True)


def _from_file(
    path: Path, document: Document, given: Sequence[Axis], changes: Sequence[tuple[str, Any, str]]
) -> Plan:
    described = validate(document, SweepFile, ScenarioError)
    # As it was read: validation turns no number into another, but keys may be of any type.
    own = {name: _axis(document, name, path.parent) for name in described.axes}
    own |= {axis.name: axis for axis in given}
    settings = [
        (key, scenario.located(key, value, path.parent), _place(document, ("set", key)))
        for key, value in described.set.items()
    ]
    for key in ("runs", "seed"):
        if getattr(described, key) is not None:
            settings.append((key, getattr(described, key), _place(document, (key,))))
    for key, _, place in settings:
        scenario.check_key(key, place)
    beside = path.parent / described.scenario
    base = beside if beside.is_file() else shipped.find(described.scenario)
    if "axes" in documents.read(base, ScenarioError).data:
        raise ScenarioError(*document.place(("scenario",)), "scenario", f"{base} is a sweep, not a scenario")
    given_keys = {key for key, _, _ in changes}
    every = [*(setting for setting in settings if setting[0] not in given_keys), *changes]
    return plan(path.stem, described.question, scenario.read(base), list(own.values()), every)


def _axis(document: Document, name: str, folder: Path) -> Axis:
    return axes.from_values(name, document.data["axes"][name], _place(document, ("axes", name)), folder)


def _place(document: Document, path: tuple[str, ...]) -> str:
    file, line = document.place(path)
    return f"{file}:{line}"


def plan(
    name: str,
    question: str,
    base: Document,
    spanned: Sequence[Axis],
    changes: Sequence[tuple[str, Any, str]],
) -> Plan:
    """The Plan of *base* over the *spanned* axes."""
    _check_once(spanned, changes)
    count = 1
    for axis in spanned:
        count *= len(axis.values)
    if count > MAX_CELLS:
        raise ScenarioError(spanned[0].place, 0, "", f"{count:,} cells; the most is {MAX_CELLS:,}")
    for key, value, place in changes:
        base = scenario.changed(base, key, value, place)
    points = itertools.product(*(axis.values for axis in spanned))
    cells = [_cell(index, point, base, spanned) for index, point in enumerate(points)]
    title = question or str(base.data.get("question", ""))
    said = tuple(f"{key}={json.dumps(value)}" for key, value, _ in changes)
    return Plan(name, title, tuple(spanned), tuple(cells), said)


def _check_once(spanned: Sequence[Axis], changes: Sequence[tuple[str, Any, str]]) -> None:
    """Refuse a key that two axes, or an axis and a change of all cells, would both set."""
    set_by = {key: place for key, _, place in changes}
    for axis in spanned:
        keys = {axis.name, *(key for value in axis.values for key, _ in value.changes)}
        for key in sorted(keys):
            if key in set_by:
                raise ScenarioError(axis.place, 0, key, f"is set by {set_by[key]} too")
            set_by[key] = axis.place


def _cell(index: int, point: tuple[Value, ...], base: Document, spanned: Sequence[Axis]) -> Cell:
    for axis, value in zip(spanned, point, strict=True):
        for key, setting in value.changes:
            base = scenario.changed(base, key, setting, axis.place)
    try:
        setup = resolve(scenario.build(base))
    except (DocumentError, HardwareError) as problem:
        return Cell(index, point, None, str(problem), "")
    return Cell(index, point, setup, None, key_of(setup))


def key_of(setup: Setup) -> str:
    """SHA-256 over all that the numbers of *setup* depend on: scenario, catalog entries, files, code."""
    machine = setup.machine
    entries = (machine.gpu, machine.interconnect, machine.host, machine.stack, setup.model, setup.drafter)
    parts = [setup.scenario.model_dump_json(exclude=TEXT_KEYS)]
    parts += [entry.model_dump_json() for entry in entries]
    parts += [json.dumps(setup.trace.requests)] if setup.trace is not None else []
    parts += [machine.samples.sha256] if machine.samples is not None else []
    return hashlib.sha256("\n".join([*parts, digests.code()]).encode()).hexdigest()

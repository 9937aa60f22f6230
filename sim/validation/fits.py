"""Reads which host costs of a stack are fitted to which published cases.

A fit names its measurements; nothing is fitted to one case alone, and what a figure was known to be before
stays in the file, so that fitting again starts from there and not from the last result.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from hwmodels import catalog, documents
from hwmodels.catalog import Kind
from hwmodels.documents import Document, KeyPath, Strict, did_you_mean, dotted
from hwmodels.entry import Figure
from hwmodels.stacks import Stack
from sim.validation.cases import Case
from sim.validation.errors import FitsError, Unpredictable
from sim.validation.translation import CaseKind, Question, measured, question

SECTIONS = ("dispatch", "drafting")
"""Of a stack: where its host costs are."""


class Named(Strict):
    """Cases by which of their measurements is meant."""

    baseline: tuple[str, ...] = ()
    speculative: tuple[str, ...] = ()

    def by_kind(self) -> dict[CaseKind, tuple[str, ...]]:
        """The same under the names of kinds."""
        return {kind: getattr(self, kind.value) for kind in CaseKind}


class FitEntry(Strict):
    """One fit as the file has it."""

    stack: str
    """The stack whose figures these are; stacks that inherit them share the result."""
    figures: dict[str, Figure] = Field(min_length=1)
    """What was known of each before any of its cases: ``dispatch.schedule_us`` and the like.

    A range is read as +- 2 sigma and holds the fit back a little.
    """
    cases: Named
    """Fitted to."""
    checks: Named = Named()
    """Predicted with the result, and never fitted to."""


class FitsFile(Strict):
    """The whole file."""

    fits: tuple[FitEntry, ...] = Field(min_length=1)


@dataclass(frozen=True)
class Fit:
    """Host costs of *stack*, by key with what was known of them before, and the measurements that decide."""

    stack: Stack
    priors: dict[str, Figure]
    fitted_to: tuple[Question, ...]
    checked_on: tuple[Question, ...]


def read(path: Path, cases: Sequence[Case]) -> tuple[Fit, ...]:
    """The fits in *path* on some of *cases*; FitsError with file, line and key where it is no such file."""
    document = documents.read(path, FitsError)
    entries = documents.validate(document, FitsFile, FitsError).fits
    known = {case.id: case for case in cases}
    reader = _Reader(document, known)
    return tuple(reader.fit(index, entry) for index, entry in enumerate(entries))


ALL = "all"
"""Stands for every stack that has a fit."""


def of_stack(path: Path, fits: Sequence[Fit], name: str) -> tuple[Fit, ...]:
    """Those of *fits*, read from *path*, whose stack is *name*; FitsError where there is none."""
    known = [fit.stack.name for fit in fits]
    if name not in (*known, ALL):
        raise FitsError(str(path), 0, "", f"no fit of a stack '{name}'{did_you_mean(name, [*known, ALL])}")
    return tuple(fit for fit in fits if name in (fit.stack.name, ALL))


class _Reader:
    """Looks up what entries name, and says where one names what does not exist."""

    def __init__(self, document: Document, cases: Mapping[str, Case]) -> None:
        self._document = document
        self._cases = cases
        self._owners: dict[tuple[str, str], int] = {}

    def fit(self, index: int, entry: FitEntry) -> Fit:
        path: KeyPath = ("fits", index)
        if entry.stack not in catalog.names(Kind.STACK):
            raise self._fail((*path, "stack"), catalog.unknown_name(Kind.STACK, entry.stack))
        stack = catalog.stack(entry.stack)
        for key, prior in entry.figures.items():
            self._check_figure((*path, "figures", key), stack, prior)
        fitted = dict(self._questions((*path, "cases"), entry.cases))
        checked = dict(self._questions((*path, "checks"), entry.checks))
        self._check_shared(stack, entry.figures, fitted | checked)
        distinct = tuple(_distinct(fitted.values()))
        self._check_apart(distinct, checked)
        count = len({one.case.id for one in distinct})
        if count <= len(entry.figures):
            problem = f"{len(entry.figures)} figures need more cases than {count}"
            raise self._fail((*path, "cases"), problem)
        return Fit(stack, entry.figures, distinct, tuple(_distinct(checked.values())))

    def _check_apart(self, fitted: Sequence[Question], checked: Mapping[KeyPath, Question]) -> None:
        """Refuse to check on what is fitted to, under whatever name."""
        for path, one in checked.items():
            if any(_same(one, other) for other in fitted):
                raise self._fail(path, f"'{one.case.id}' is fitted to: it checks nothing")

    def _check_figure(self, path: KeyPath, stack: Stack, prior: Figure) -> None:
        key = str(path[-1])
        known = figure_keys(stack)
        if key not in known:
            raise self._fail(path, f"{stack.name} has no such host cost{did_you_mean(key, known)}")
        if not prior.value:
            raise self._fail((*path, "value"), "must be above 0: the fit looks between 0.2 and 5 times it")
        first = self._owners.setdefault((stack.name, key), int(path[1]))
        if first != path[1]:
            raise self._fail(path, f"fitted twice, first in fits[{first}]")

    def _questions(self, path: KeyPath, named: Named) -> Iterator[tuple[KeyPath, Question]]:
        for kind, ids in named.by_kind().items():
            for index, name in enumerate(ids):
                where = (*path, kind.value, index)
                if name in ids[:index]:
                    raise self._fail(where, f"'{name}' given twice")
                yield where, self._question(where, name, kind)

    def _question(self, path: KeyPath, name: str, kind: CaseKind) -> Question:
        case = self._cases.get(name)
        if case is None:
            near = difflib.get_close_matches(name, self._cases, n=1)
            hint = f", did you mean '{near[0]}'?" if near else ""
            raise self._fail(path, f"no case '{name}'{hint}")
        if measured(case, kind) is None:
            raise self._fail(path, f"'{name}' measured nothing {kind.value}")
        try:
            return question(case, kind)
        except Unpredictable as problem:
            raise self._fail(path, f"'{name}': {problem}") from None

    def _check_shared(
        self, stack: Stack, priors: Mapping[str, Figure], asked: Mapping[KeyPath, Question]
    ) -> None:
        """Refuse cases of stacks that have figures of their own."""
        for path, one in asked.items():
            other = catalog.stack(one.scenario.stack)
            for key in priors:
                if figure(other, key) != figure(stack, key):
                    problem = f"'{one.case.id}' ran on {other.name}, whose {key} is not that of {stack.name}"
                    raise self._fail(path, problem)

    def _fail(self, path: KeyPath, problem: str) -> FitsError:
        return FitsError(*self._document.place(path), dotted(path), problem)


def _distinct(questions: Iterable[Question]) -> Iterator[Question]:
    """*questions* by name, without measurements that are printed under two names."""
    seen: list[Question] = []
    for one in sorted(questions, key=lambda q: (q.case.id, q.kind)):
        if not any(_same(one, other) for other in seen):
            seen.append(one)
            yield one


def _same(one: Question, other: Question) -> bool:
    """Whether both are the same measurement of the same configuration."""
    return _configuration(one) == _configuration(other) and one.measured_tok_s == other.measured_tok_s


def _configuration(asked: Question) -> object:
    # The name of the case is in the scenario's question alone.
    return asked.scenario.model_copy(update={"question": ""}), asked.contexts, asked.kind


def figure_keys(stack: Stack) -> list[str]:
    """The host costs of *stack* that can be fitted: times, not counts, which shape the step itself."""
    return [
        f"{section}.{name}"
        for section in SECTIONS
        for name, value in getattr(stack, section)
        if isinstance(value, Figure) and "_us" in name
    ]


def figure(stack: Stack, key: str) -> Figure:
    """The host cost of *stack* at *key*."""
    section, name = key.split(".")
    found = getattr(getattr(stack, section), name)
    assert isinstance(found, Figure)
    return found


def with_values(stack: Stack, values: Mapping[str, float]) -> Stack:
    """*stack* with its host costs at the keys of *values* changed, whatever their ranges are."""
    for key, value in values.items():
        section, name = key.split(".")
        changed = figure(stack, key).model_copy(update={"value": value})
        part = getattr(stack, section).model_copy(update={name: changed})
        stack = stack.model_copy(update={section: part})
    return stack

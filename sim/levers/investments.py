"""Investments alone and combined: what each is worth depends on what else is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import exp
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from hwmodels.documents import Document, Strict, read, validate
from sim import scenario as scenarios
from sim import shipped
from sim.causes import shapley, subsets
from sim.errors import ScenarioError
from sim.levers.played import PlayedSteps
from sim.setup import Setup, resolve
from sim.simulate import Simulation

MAX_INVESTMENTS = 5
Held = frozenset[str]
"""Names of the investments that are made."""


class Investment(Strict):
    """Something that money could buy."""

    name: str = Field(min_length=3)
    title: str = Field(min_length=3)
    """What it is, in words."""
    set: dict[str, Any] = Field(min_length=1)
    """Scenario keys and the values they have with it."""


class Plan(Strict):
    """A file of investments."""

    question: str = Field(min_length=10)
    """The question it answers, in one sentence."""
    base: str
    """A shipped scenario's name, or a scenario file beside this one."""
    set: dict[str, Any] = Field(default_factory=dict)
    """Scenario keys changed in all combinations."""
    investments: tuple[Investment, ...] = Field(min_length=1, max_length=MAX_INVESTMENTS)
    beside: Investment | None = None
    """What every combination is shown with and without."""
    assumptions: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _names_differ(self) -> Self:
        names = [each.name for each in self.investments]
        if len(set(names)) < len(names):
            raise ValueError(f"investments need names of their own, got {', '.join(names)}")
        return self


@dataclass(frozen=True)
class Return:
    """What one combination decodes."""

    tok_s: float
    range_tok_s: tuple[float, float] | None
    """At both ends of the scenario's range of mean lengths, where it has one."""


@dataclass(frozen=True)
class Worth:
    """What one investment multiplies throughput by."""

    investment: Investment
    alone: float
    on_top: float
    """Of all others."""
    fair: float
    """Its Shapley share: the mean over all orders; these multiply to the whole."""


@dataclass(frozen=True)
class Returns:
    """All combinations of a plan."""

    plan: Plan
    base: Setup
    """With nothing made."""
    returns: Mapping[Held, Return]
    beside: Mapping[Held, Return]
    """The same with what is shown beside them; empty where nothing is."""
    worths: tuple[Worth, ...]

    @property
    def names(self) -> list[str]:
        """Of the investments, in the order of the file."""
        return [each.name for each in self.plan.investments]


def plans_folder() -> Path:
    """Where the shipped plans are."""
    return shipped.folder() / "investments"


def find(name: str) -> Path:
    """The plan *name*: a file, or a shipped one; ScenarioError where there is none."""
    known = sorted(path.stem for path in plans_folder().glob("*.yaml"))
    path = Path(name)
    if path.is_file():
        return path
    if name in known:
        return plans_folder() / f"{name}.yaml"
    raise ScenarioError(name, 0, "", f"no such file, nor a shipped plan (shipped: {', '.join(known)})")


@dataclass(frozen=True)
class Prepared:
    """A plan whose every combination has been looked up: nothing in it is wrong."""

    plan: Plan
    setups: Mapping[Held, Setup]
    beside: Mapping[Held, Setup]

    @property
    def combinations(self) -> int:
        """How many are to be played."""
        return len(self.setups) + len(self.beside)


def prepare(path: Path) -> Prepared:
    """The plan in *path* with all its scenarios; DocumentError or HardwareError where one is wrong."""
    document = read(path, ScenarioError)
    plan = validate(document, Plan, ScenarioError)
    local = path.parent / plan.base
    base = scenarios.read(local if local.is_file() else shipped.find(plan.base))
    return Prepared(
        plan=plan,
        setups=dict(_setups(document, base, plan, None)),
        beside=dict(_setups(document, base, plan, plan.beside)) if plan.beside is not None else {},
    )


def _setups(
    document: Document, base: Document, plan: Plan, beside: Investment | None
) -> Iterator[tuple[Held, Setup]]:
    by_name = {each.name: each for each in plan.investments}
    for held in subsets(list(by_name)):
        made = [by_name[name] for name in by_name if name in held]
        changed = _changed(base, plan.set, f"{document.file}: set")
        for each in (*made, *([] if beside is None else [beside])):
            changed = _changed(changed, each.set, f"{document.file}: {each.name}")
        yield held, resolve(scenarios.build(changed))


def _changed(document: Document, changes: Mapping[str, Any], place: str) -> Document:
    for key, value in changes.items():
        scenarios.check_key(key, place)
        document = scenarios.changed(document, key, value, place)
    return document


def play(prepared: Prepared, advance: Callable[[], None] = lambda: None) -> Returns:
    """Play every combination with the same luck; *advance* is called after each."""
    returns = {held: _return(setup, advance) for held, setup in prepared.setups.items()}
    beside = {held: _return(setup, advance) for held, setup in prepared.beside.items()}
    return Returns(prepared.plan, prepared.setups[Held()], returns, beside, _worths(prepared.plan, returns))


def _return(setup: Setup, advance: Callable[[], None]) -> Return:
    played = PlayedSteps.of(Simulation(setup))
    step_ns = played.step_ns(played.unchanged)
    ends = setup.scenario.acceptance.mean_length_range
    advance()
    return Return(
        tok_s=played.tok_s(step_ns),
        range_tok_s=None
        if ends is None
        else (played.tok_s(step_ns, ends[0]), played.tok_s(step_ns, ends[1])),
    )


def _worths(plan: Plan, returns: Mapping[Held, Return]) -> tuple[Worth, ...]:
    tok_s = {held: found.tok_s for held, found in returns.items()}
    names = [each.name for each in plan.investments]
    nothing, everything = Held(), Held(names)
    return tuple(
        Worth(
            investment=each,
            alone=tok_s[Held([each.name])] / tok_s[nothing],
            on_top=tok_s[everything] / tok_s[everything - {each.name}],
            fair=exp(shapley(each.name, names, tok_s)),
        )
        for each in plan.investments
    )

"""All levers of some scenarios."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from sim.levers.alternatives import Alternative, Choice, choices, evaluate
from sim.levers.drivers import STAGES, Drivers, drivers
from sim.levers.effects import Base, Effect, LeverBench
from sim.levers.kinds import Lever
from sim.levers.played import PlayedSteps
from sim.setup import Setup
from sim.simulate import Simulation

Result = TypeVar("Result")


@dataclass(frozen=True)
class Study:
    """The levers of one scenario."""

    name: str
    setup: Setup
    base: Base
    effects: tuple[Effect, ...]
    alternatives: tuple[Alternative, ...]
    drivers: Drivers | None
    """What drives the uncertainty; None where that was not asked, or all is known."""

    def effect(self, lever: Lever) -> Effect | None:
        """What *lever* does; None where it acts on nothing here."""
        return next((effect for effect in self.effects if effect.lever is lever), None)


@dataclass(frozen=True)
class Task:
    """A scenario whose levers are to be pulled."""

    name: str
    bench: LeverBench
    choices: Sequence[Choice]
    with_drivers: bool

    @classmethod
    def of(cls, name: str, setup: Setup, with_drivers: bool = True) -> Task:
        """All levers of *setup*, and what drives its uncertainty where asked."""
        bench = LeverBench(PlayedSteps.of(Simulation(setup)))
        return cls(name, bench, choices(setup), with_drivers)

    @property
    def size(self) -> int:
        """Levers, choices, and stages of what drives the uncertainty."""
        return len(self.bench.levers) + len(self.choices) + (STAGES if self.with_drivers else 0)

    def done(self, advance: Callable[[], None] = lambda: None) -> Study:
        """Pull every lever; *advance* is called after each."""
        setup = self.bench.setup
        return Study(
            name=self.name,
            setup=setup,
            base=self.bench.base,
            effects=tuple(_after(self.bench.effect(lever), advance) for lever in self.bench.levers),
            alternatives=tuple(_after(evaluate(setup, choice), advance) for choice in self.choices),
            drivers=drivers(setup, advance) if self.with_drivers else None,
        )


def _after(result: Result, advance: Callable[[], None]) -> Result:
    advance()
    return result

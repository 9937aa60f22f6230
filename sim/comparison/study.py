"""Some scenarios, all compared with the first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from sim import shipped
from sim.comparison.differences import KeyDifference, differences
from sim.comparison.intervals import Certainty, Pairing
from sim.comparison.paired import Pair, pair
from sim.comparison.runs import Runs, play_runs
from sim.comparison.unknown import Drawn, Unknown, draw_together, unknown
from sim.draws import RandomStream
from sim.scenario import build, changed, edited
from sim.setup import Setup, resolve
from sim.simulate import Simulation

CONFIDENCE = 0.99
"""Of the intervals of one quantity, of all comparisons of a study together."""


@dataclass(frozen=True)
class Entrant:
    """A scenario that takes part."""

    name: str
    """Of its file; where two files have the same one, as it was asked for."""
    path: Path
    setup: Setup


@dataclass(frozen=True, eq=False)
class Side:
    """An entrant whose runs were played."""

    entrant: Entrant
    runs: Runs
    luck_widths: dict[RandomStream, int]
    """Random values that one of its steps takes of each stream."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Against:
    """A scenario against the first one."""

    side: Side
    differences: tuple[KeyDifference, ...]
    other_luck: tuple[RandomStream, ...]
    """Streams of which a step takes another number of values, so that steps do not meet the same luck."""
    pair: Pair
    unknown: Unknown | None
    """None where that was not asked for, or all is known."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """The first scenario, and all others against it."""

    first: Side
    others: tuple[Against, ...]
    pairing: Pairing
    draws: int
    """Of what is not known; 0 where that was not asked for."""
    changes: tuple[str, ...]
    """To all scenarios, as asked for on the command line."""

    @property
    def sides(self) -> tuple[Side, ...]:
        """All of them, the first one first."""
        return (self.first, *(other.side for other in self.others))


def entrants(
    names: Sequence[str],
    changes: Sequence[tuple[str, Any, str]] = (),
    sets: Sequence[str] = (),
    pairing: Pairing = Pairing.COMMON,
) -> tuple[Entrant, ...]:
    """The scenarios called *names*, each with *sets* and then *changes* (key, value, place) made.

    All get the number of runs of the first, and its seed; with other luck in each, the seeds that follow.
    """
    paths = [shipped.find(name) for name in names]
    first = _setup(paths[0], sets, changes)
    scenario, found = first.scenario, [first]
    for place, path in enumerate(paths[1:], 1):
        seed = scenario.seed + (place if pairing is Pairing.INDEPENDENT else 0)
        same = [("runs", scenario.runs, names[0]), ("seed", seed, names[0])]
        found.append(_setup(path, sets, [*changes, *same]))
    alike = len({path.stem for path in paths}) < len(set(paths))
    shown = names if alike else [path.stem for path in paths]
    return tuple(map(Entrant, shown, paths, found))


def _setup(path: Path, sets: Sequence[str], changes: Sequence[tuple[str, Any, str]]) -> Setup:
    document = edited(path, tuple(sets))
    for change in changes:
        document = changed(document, *change)
    return resolve(build(document))


@dataclass(frozen=True)
class Task:
    """A study to be made."""

    entrants: tuple[Entrant, ...]
    pairing: Pairing = Pairing.COMMON
    draws: int = 0
    changes: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """Runs and draws of all scenarios."""
        runs = self.entrants[0].setup.scenario.runs
        return len(self.entrants) * (runs + self.draws)

    def done(self, advance: Callable[[], None] = lambda: None) -> Study:
        """Play and draw; *advance* hears of every run and draw."""
        sides = [_played(entrant, advance) for entrant in self.entrants]
        certainty = Certainty(self.pairing, CONFIDENCE).each_of(len(sides) - 1)
        drawn = self._drawn(sides, advance)
        found = [] if drawn is None else [unknown(drawn[0], one, certainty.confidence) for one in drawn[1:]]
        others = tuple(
            _against(sides[0], side, certainty, not_known)
            for side, not_known in zip_longest(sides[1:], found)
        )
        return Study(
            first=sides[0], others=others, pairing=self.pairing, draws=self.draws, changes=self.changes
        )

    def _drawn(self, sides: Sequence[Side], advance: Callable[[], None]) -> list[Drawn] | None:
        """The draws of all *sides*; None where that was not asked for, or all is known."""
        if not self.draws:
            return None
        setups = [(side.entrant.setup, side.runs) for side in sides]
        return draw_together(setups, self.draws, setups[0][0].scenario.seed, advance)


def _against(first: Side, side: Side, certainty: Certainty, found: Unknown | None) -> Against:
    return Against(
        side=side,
        differences=differences(first.entrant.setup.scenario, side.entrant.setup.scenario),
        other_luck=_other_luck(first, side),
        pair=pair(first.runs, side.runs, certainty),
        unknown=found,
    )


def _played(entrant: Entrant, advance: Callable[[], None]) -> Side:
    simulation = Simulation(entrant.setup)
    runs = play_runs(simulation, entrant.setup.scenario.runs, advance)
    return Side(entrant, runs, simulation.luck_widths)


def _other_luck(a: Side, b: Side) -> tuple[RandomStream, ...]:
    """Streams of both of which a step of *b* takes another number of values than one of *a*."""
    both = a.luck_widths.keys() & b.luck_widths.keys()
    return tuple(s for s in RandomStream if s in both and a.luck_widths[s] != b.luck_widths[s])

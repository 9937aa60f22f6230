"""Levers and choices of one scenario, or of several beside one another."""

from __future__ import annotations

from collections.abc import Sequence
from string import ascii_uppercase

from rich.table import Table
from rich.text import Text

from sim.levers.alternatives import Alternative
from sim.levers.kinds import Degree, Group, Lever
from sim.levers.study import Study
from sim.levers.words import DEGREE_NAMES, bound, change, gain, share, table_of

MOST_IN_FULL = 2
"""Scenarios beside one another whose every degree is shown."""
MOST_WITH_SHARES = 3
"""Whose shares of the step, and throughputs, are."""


def single(study: Study) -> Table:
    """One scenario's levers, the largest of each group first."""
    table = table_of("tok/s if it were", "of step", *(d.title for d in Degree), "Amdahl", "elasticity")
    for lever in in_order([study]):
        if lever is None:
            table.add_row("")
            continue
        effect = study.effect(lever)
        assert effect is not None
        table.add_row(
            Text(lever.value),
            share(effect),
            *(f"{effect.tok_s[d]:.1f} {gain(study, effect, d):>7}" for d in Degree),
            bound(study, effect),
            f"{effect.elasticity:.3f}",
        )
    return table


def beside(studies: Sequence[Study]) -> Table:
    """The same levers of several scenarios."""
    count = len(studies)
    shown = tuple(Degree) if count <= MOST_IN_FULL else (Degree.FREE,)
    shares = ["of step"] if count <= MOST_WITH_SHARES else []
    names = [*shares, *(DEGREE_NAMES[degree] for degree in shown)]
    heads = [f"{at} {name}" if name == names[0] else name for at in ascii_uppercase[:count] for name in names]
    table = table_of("tok/s if it were", *heads, gap=1)
    for lever in in_order(studies):
        if lever is None:
            table.add_row("")
            continue
        cells: list[str] = []
        for study in studies:
            effect = study.effect(lever)
            gains = ["" for _ in names]
            if effect is not None:
                gains = [*(share(effect) for _ in shares), *(gain(study, effect, d) for d in shown)]
            cells += gains
        table.add_row(Text(lever.value), *cells)
    return table


def in_order(studies: Sequence[Study]) -> list[Lever | None]:
    """Levers group by group, the largest first by the first scenario that has it; None between groups."""
    found: list[Lever | None] = []
    for group in Group:
        own = [lever for lever in Lever if lever.group is group and any(s.effect(lever) for s in studies)]
        found += [*([None] if found else []), *sorted(own, key=lambda lever: -_largest(studies, lever))]
    return found


def _largest(studies: Sequence[Study], lever: Lever) -> float:
    for study in studies:
        effect = study.effect(lever)
        if effect is not None:
            return effect.tok_s[Degree.FREE] / study.base.tok_s
    return 0.0


def alternatives(studies: Sequence[Study]) -> Table:
    """Choices, each instead of what the scenario has."""
    count = len(studies)
    in_full = count <= MOST_WITH_SHARES
    letters = ascii_uppercase[:count] if count > 1 else " "
    heads = [head for at in letters for head in ((f"{at} tok/s".strip(), "") if in_full else (at,))]
    table = table_of("instead", *heads, *([""] if count <= MOST_IN_FULL else []))
    for key in choice_keys(studies):
        found = [chosen(study, key) for study in studies]
        pairs = [_chosen_cells(study, each) for study, each in zip(studies, found, strict=True)]
        cells = [cell for pair in pairs for cell in (pair if in_full else pair[1:])]
        notes = dict.fromkeys(each.note for each in found if each is not None and each.note)
        table.add_row(Text(key[1]), *cells, *([Text("; ".join(notes))] if count <= MOST_IN_FULL else []))
    return table


def choice_keys(studies: Sequence[Study]) -> list[tuple[str, str]]:
    """Kind and name of every choice that can be simulated somewhere, those of a kind together."""
    names = dict.fromkeys(
        (alternative.choice.kind, alternative.choice.name)
        for study in studies
        for alternative in study.alternatives
        if alternative.tok_s is not None
    )
    kinds = list(dict.fromkeys(kind for kind, _ in names))
    return sorted(names, key=lambda key: kinds.index(key[0]))


def chosen(study: Study, key: tuple[str, str]) -> Alternative | None:
    """What the choice of this kind and name does to *study*; None where it has no such choice."""
    return next((a for a in study.alternatives if (a.choice.kind, a.choice.name) == key), None)


def _chosen_cells(study: Study, alternative: Alternative | None) -> list[str]:
    if alternative is None or alternative.tok_s is None:
        return ["", ""]
    return [f"{alternative.tok_s:.1f}", change(alternative.tok_s / study.base.tok_s)]


def impossible(study: Study, named: bool) -> list[str]:
    """Choices that cannot be simulated, those with the same reason together."""
    by_reason: dict[str, list[str]] = {}
    for alternative in study.alternatives:
        if alternative.tok_s is None:
            reason = "no room in memory" if "needs" in alternative.problem else alternative.problem
            by_reason.setdefault(reason, []).append(alternative.choice.name.split(",")[0])
    where = f"{study.name}: " if named else ""
    return [f"{where}not possible: {', '.join(names)} ({reason})" for reason, names in by_reason.items()]

"""Levers as lines of text. Nothing here prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from string import ascii_uppercase

from rich.console import RenderableType
from rich.text import Text

from sim.levers.alternatives import follows_from_tree
from sim.levers.drivers import Drivers
from sim.levers.kinds import Degree, Group
from sim.levers.overhead import overhead
from sim.levers.played import RUNS, STEPS
from sim.levers.study import Study
from sim.levers.tables import alternatives, beside, impossible, single
from sim.levers.words import change, per_cent, table_of
from sim.report import drafting_line, render, value

MOST_SCENARIOS = 6
"""That fit beside one another at all."""
SMALL_GAIN = 0.005
"""Gains below this are not worth a word."""
HIDDEN = 0.75
"""A lever whose gain is less than this share of Amdahl's bound is called overlapped."""
REPORT_WIDTH = 110
"""Columns: two scenarios side by side need so many."""
DEGREES_NOTE = (
    "10 or 50 % better: a time that much shorter, a bandwidth that much higher, the gap between mean"
    " acceptance length and the longest one closed by so much. Free: no time, endless bandwidth, all ranks in"
    " step, the longest length every time."
)
LUCK_NOTE = f"Means of {RUNS} runs of {STEPS} steps, played again with the same luck for every lever."
TRANSFER_NOTE = (
    "AllReduce latency is what the smallest message takes on the same GPUs, bandwidth what is left; both"
    " levers hold for the drafter's AllReduces too."
)
AMDAHL_NOTE = (
    "Amdahl: the critical path without what is free, and nothing else in the way; elasticity: per cent of"
    " throughput for a per cent better. HBM bandwidth is a GPU's achieved and peak bandwidth together."
)


def lines(studies: Sequence[Study]) -> list[str]:
    """The whole report."""
    parts: list[RenderableType] = [
        Text(line)
        for letter, study in zip(ascii_uppercase, studies, strict=False)
        for line in head(study, f"{letter}  " if len(studies) > 1 else "")
    ]
    parts.append(Text(LUCK_NOTE))
    parts += [Text(), single(studies[0]) if len(studies) == 1 else beside(studies), Text()]
    parts += [*overhead(studies), Text()]
    parts += [Text(line) for study in studies for line in overlapped(study)]
    parts += [Text(), alternatives(studies)]
    parts += [Text(line) for study in studies for line in impossible(study, len(studies) > 1)]
    for study in studies:
        parts += _drivers(study, len(studies) > 1)
    parts += [Text(), *(Text(line) for line in notes(studies))]
    return render(parts, REPORT_WIDTH)


def _drivers(study: Study, named: bool) -> list[RenderableType]:
    """What drives the uncertainty of one scenario."""
    found = study.drivers
    if found is None:
        return []
    where = f"{study.name}: " if named else ""
    table = table_of(f"{where}not known", "total index", "alone", "P5", "tok/s", "P95", "tok/s")
    for driver in found.drivers:
        swing = driver.swing
        ends = [
            cell
            for drawn, tok_s in zip(swing.values, swing.tok_s, strict=True)
            for cell in (value(drawn), f"{tok_s:.1f}")
        ]
        table.add_row(Text(swing.name), f"{driver.total:.2f}", f"{driver.first:.2f}", *map(Text, ends))
    return [Text(), table, Text(drivers_note(found))]


def drivers_note(found: Drivers) -> str:
    """What the indices mean, and how much of the variance they are about."""
    asked = per_cent(min(1.0, found.asked_share))
    return (
        "Total Sobol indices: the share of throughput's variance that stays when all but this is known; of"
        f" {found.parameters} unknowns the {len(found.drivers)} that move it most alone hold {asked} of it."
        " tok/s are of the mean step, without noise."
    )


def head(study: Study, letter: str) -> list[str]:
    """The question, the machine, and throughput as it is; *letter* stands before it."""
    setup, base = study.setup, study.base
    machine = setup.machine
    requests = "" if setup.requests == 1 else f"{setup.requests} x "
    return [
        f"{letter}{setup.scenario.question}",
        f"{study.name}: {machine.ranks}x {machine.gpu.name}, {machine.interconnect.name},"
        f" {machine.host.name}, {machine.stack.name}; {setup.model.name}; {drafting_line(setup)}",
        f"{base.tok_s:.1f} tok/s = {requests}{base.mean_length:.2f} tokens / {base.step_s * 1e3:.2f} ms",
    ]


def overlapped(study: Study) -> list[str]:
    """Levers that others run beside: the critical path promises more than there is."""
    base, found = study.base.tok_s, []
    for effect in study.effects:
        if effect.bound_tok_s is None or effect.lever.group is Group.TOGETHER:
            continue
        bound = effect.bound_tok_s[Degree.FREE] / base - 1
        gain = effect.gain(Degree.FREE, base)
        if bound > SMALL_GAIN and gain < HIDDEN * bound:
            found.append(f"{effect.lever.value} {change(1 + gain)} of {change(1 + bound)}")
    return [f"{study.name}: overlap takes back what Amdahl promises for {', '.join(found)}."] if found else []


def notes(studies: Sequence[Study]) -> Iterator[str]:
    """What a reader must know about all numbers."""
    yield DEGREES_NOTE
    yield TRANSFER_NOTE
    yield AMDAHL_NOTE
    widest = max(effect.half_width for study in studies for effect in study.effects)
    yield f"What luck is left in these throughputs over the scenario's is {per_cent(widest)} or less (95 %)."
    if all(follows_from_tree(study.setup.scenario) for study in studies):
        yield "Other blocks and budgets land what a drafter of the same accuracy lands with them."
    else:
        yield "Other blocks and budgets are left out where acceptance does not follow from the tree."
